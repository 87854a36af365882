//! Times and counts in words, and suggestions for mistyped words.

use std::borrow::Cow;
use std::fmt::Display;

use jiff::Timestamp;

/// The time in RFC 3339, to the second.
#[must_use]
pub fn moment(at: Timestamp) -> String {
    jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", at).unwrap_or_else(|_| at.to_string())
}

/// `1 stack`, `3 stacks`.
#[must_use]
pub fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The word that was probably meant: only few letters differ, or only case and punctuation.
#[must_use]
pub fn nearest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let folded = fold(word);
    words
        .map(|candidate| (strsim::damerau_levenshtein(&folded, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| {
            *distance <= (candidate.len() / 4).clamp(1, 4) || begins(&folded, &fold(candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Whether one is a prefix of the other (`automatic`, `auto`), of at least three letters.
fn begins(one: &str, other: &str) -> bool {
    one.len().min(other.len()) >= 3 && (one.starts_with(other) || other.starts_with(one))
}

fn fold(word: &str) -> String {
    word.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

/// Whether a terminal does something at that character instead of showing it: control characters (of both sets: `U+009B` begins a sequence,
/// too), and those that change the direction of the text around them or break a line.
/// <https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters>
#[must_use]
pub fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// `text` with a space in the place of each character that [`is_harmful`].
#[must_use]
pub fn harmless(text: &str) -> Cow<'_, str> {
    match text.contains(is_harmful) {
        true => text.chars().map(|letter| if is_harmful(letter) { ' ' } else { letter }).collect(),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_to_the_second_and_one_thing_is_no_plural() {
        let at: Timestamp = "2027-11-17T01:20:15.603980561Z".parse().unwrap();
        assert_eq!(moment(at), "2027-11-17T01:20:15Z");
        assert_eq!(
            (count(0_usize, "finding"), count(1_u32, "finding")),
            ("0 findings".to_owned(), "1 finding".to_owned())
        );
    }
}
