//! Characters that do something to a terminal. Nodes write reports and choose keys, and whoever reads them must see what is there.

use std::borrow::Cow;
use std::fmt::Write as _;

use slipway_core::words::is_harmful;

/// Text for people. `coloured`: whether it may contain colours, which are sequences as the printer's own.
pub(super) fn text(text: &str, coloured: bool) -> Cow<'_, str> {
    let stays = |letter: char| matches!(letter, '\n' | '\t') || !is_harmful(letter);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let length = colour(rest).filter(|_| coloured);
        let (piece, after) = rest.split_at(length.unwrap_or(letter.len_utf8()));
        shown.push_str(if length.is_some() || stays(letter) { piece } else { " " });
        rest = after;
    }
    Cow::Owned(shown)
}

/// The length of the colour at the beginning of `text`: `ESC [ 1 ; 31 m`.
fn colour(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.find(|letter: char| !(letter.is_ascii_digit() || letter == ';'))?;
    codes[end..].starts_with('m').then_some("\u{1b}[".len() + end + "m".len())
}

/// A document in JSON or YAML, where only texts in quotes contain other characters than these: they are escaped in the same way in both.
pub(super) fn document(text: &str) -> Cow<'_, str> {
    let stays = |letter: char| letter == '\n' || !is_harmful(letter);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if stays(letter) {
            shown.push(letter);
        } else {
            let _ = write!(shown, "\\u{:04x}", u32::from(letter));
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn nobodys_text_does_anything_to_a_terminal() {
        for (given, shown) in [
            ("two\n\tlines é …", "two\n\tlines é …"),
            ("\u{1b}]52;c;aGk=\u{7}", " ]52;c;aGk= "),
            ("a\u{1b}[2J\u{9b}2Jb\rc\u{7f}", "a [2J 2Jb c "),
            ("\u{202e}gpj.exe\u{2069}\u{2028}", " gpj.exe  "),
            ("\u{1b}[", " ["),
            ("\u{1b}[31", " [31"),
        ] {
            assert_eq!(text(given, true), shown, "{given:?}");
            assert_eq!(text(given, false), shown, "{given:?}");
        }
        let painted = "\u{1b}[1;31mred\u{1b}[0m\u{1b}[m";
        assert_eq!(text(painted, true), painted);
        assert_eq!(text(painted, false), " [1;31mred [0m [m");
    }

    #[test]
    fn a_document_means_the_same_and_does_nothing_to_a_terminal() {
        let value = serde_json::json!({ "a\u{9b}": "\u{202e}x\u{7f}\u{1b}[2J\r\n" });
        let shown = document(&serde_json::to_string_pretty(&value).unwrap()).into_owned();
        assert!(shown.chars().all(|letter| letter == '\n' || !is_harmful(letter)), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert_eq!(document("{\n  \"a\": 1\n}\n"), "{\n  \"a\": 1\n}\n");
    }
}
