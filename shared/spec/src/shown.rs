//! What of a stranger's text may be shown: findings go to the bus, to `status.json` and to logs, where a spec's
//! values must neither fill an event nor, as a key that was pasted to the wrong place, become public.

/// The most letters of one value that are shown. The longest example that a help text quotes, an ARN, has 85.
const MOST_LETTERS: usize = 90;
/// So many bytes has a whole sentence at most: fifty findings of two sentences each stay below 256 KiB, which is
/// what `EventBridge` takes, even if JSON escapes every letter of them.
const MOST_BYTES: usize = 800;
/// So many letters of base64 in a row are taken for key material: an AWS secret access key has as many, and the
/// lines of a PEM file have 64.
const KEY_RUN: usize = 40;
/// The replacement for text that is not shown.
const HIDDEN: &str = "(a long text)";

/// One value, or one key of a path: clipped, or hidden if it looks like key material.
pub(crate) fn value(text: &str) -> String {
    if is_key_material(text) {
        return HIDDEN.to_owned();
    }
    let mut clean = String::new();
    for letter in text.chars().take(MOST_LETTERS) {
        if is_unseen(letter) {
            clean.push_str(&format!("U+{:04X}", u32::from(letter)));
        } else {
            clean.push(visible(letter));
        }
    }
    if text.chars().nth(MOST_LETTERS).is_some() { clean + "…" } else { clean }
}

/// A message or a help text, with its values between backticks.
pub(crate) fn sentence(text: &str) -> String {
    // A value may hold backticks of its own: then everything from the first to the last is its.
    if is_key_material(text) {
        return match (text.find('`'), text.rfind('`')) {
            (Some(first), Some(last))
                if first < last && !is_key_material(&text[..first]) && !is_key_material(&text[last..]) =>
            {
                clipped(&format!("{}{HIDDEN}{}", &text[..first], &text[last + 1..]))
            }
            _ => HIDDEN.to_owned(),
        };
    }
    let parts: Vec<String> = text
        .split('`')
        .enumerate()
        .map(|(index, part)| if index % 2 == 1 { value(part) } else { part.to_owned() })
        .collect();
    clipped(&parts.join("`"))
}

fn clipped(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars().map(visible) {
        if shown.len() + letter.len_utf8() > MOST_BYTES {
            shown.push('…');
            break;
        }
        shown.push(letter);
    }
    shown
}

/// Findings are single lines, wherever they are read.
fn visible(letter: char) -> char {
    if letter.is_control() { ' ' } else { letter }
}

/// Letters that a reader does not see, or takes for a space: pasted from a web page, they make a name another one. The blanks of Unicode
/// (category Zs) other than the space, and marks without a width (Cf).
fn is_unseen(letter: char) -> bool {
    (letter.is_whitespace() && !letter.is_ascii() && !letter.is_control())
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Whether a text holds what may be a secret: a PEM key, a key in base64, a token. Only what mixes small and capital
/// letters with digits counts, so that long names and paths are still shown.
fn is_key_material(text: &str) -> bool {
    let of_base64 = |letter: char| letter.is_ascii_alphanumeric() || "+/=-_".contains(letter);
    text.contains("PRIVATE KEY")
        || text.split(|letter| !of_base64(letter)).any(|run| {
            run.len() >= KEY_RUN
                && run.contains(|letter: char| letter.is_ascii_lowercase())
                && run.contains(|letter: char| letter.is_ascii_uppercase())
                && run.contains(|letter: char| letter.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_are_shown_as_they_are() {
        for text in ["`10.0.0.0/16` is not an IPv4 range", "nothing quoted", "an odd ` backtick", ""] {
            assert_eq!(sentence(text), text);
        }
        assert_eq!(
            value("arn:aws:kms:eu-west-1:111122223333:key/0f1e2d3c"),
            "arn:aws:kms:eu-west-1:111122223333:key/0f1e2d3c"
        );
    }

    #[test]
    fn long_values_are_clipped_by_letters() {
        assert_eq!(value(&"ä".repeat(MOST_LETTERS)), "ä".repeat(MOST_LETTERS));
        assert_eq!(value(&"ä".repeat(MOST_LETTERS + 1)), "ä".repeat(MOST_LETTERS) + "…");
        assert_eq!(
            sentence(&format!("`{}` is long", "a".repeat(100_000))),
            format!("`{}…` is long", "a".repeat(MOST_LETTERS))
        );
        assert!(sentence(&"` ".repeat(100_000)).len() <= MOST_BYTES + "…".len());
        assert_eq!(value("two\nlines"), "two lines");
    }

    #[test]
    fn letters_that_nobody_sees_are_named() {
        assert_eq!(sentence("`eu-west-1\u{200b}` is none"), "`eu-west-1U+200B` is none");
        assert_eq!(value("base\u{a0}"), "baseU+00A0");
        assert_eq!(value("base ä"), "base ä");
    }

    #[test]
    fn p9_key_material_is_hidden() {
        let pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----";
        assert_eq!(sentence(&format!("`{pem}` is not a number")), "(a long text) is not a number");
        assert_eq!(sentence(&format!("`a` is `x`{pem}` here")), "(a long text) here");
        assert_eq!(sentence(pem), HIDDEN);
        assert_eq!(value("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), HIDDEN);
        assert_eq!(value(&"aB3".repeat(14)), HIDDEN);
        assert_ne!(value(&"ab3".repeat(14)), HIDDEN);
    }
}
