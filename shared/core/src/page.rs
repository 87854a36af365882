//! HTML pages, and the cleaning of foreign text for pages and terminals.
//!
//! A page is self-contained: it loads nothing, runs no script, and has a content security policy that says so. It is well-formed XML as
//! well.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::words::is_harmful;

/// The content security policy and other metadata of a page.
///
/// Written out because maud leaves void elements open, as in HTML, and XML needs them closed.
const META: &str = "<meta charset=\"utf-8\" />\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\" />\
<meta name=\"referrer\" content=\"no-referrer\" />";

/// The style of all pages, for light and dark mode.
pub const STYLE: &str = include_str!("page.css");

/// A page with `body` below its title. `style` is added to [`STYLE`], and `made` says in the footer what the page was made from.
#[must_use]
pub fn page(title: &str, style: &str, body: &Markup, made: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (PreEscaped(META))
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body {
                main { (body) }
                footer { "Made by Slipway " (made) ". This page loads nothing and runs no script." }
            }
        }
    };
    let mut text = page.into_string();
    text.push('\n');
    text
}

/// `text` without characters that HTML and XML forbid even when escaped, and without those that change the writing direction or break a line,
/// which could disguise a value from the person who approves a plan.
#[must_use]
pub fn clean(text: &str) -> String {
    let fine = |letter: char| matches!(letter, '\n' | '\t') || !is_harmful(letter);
    let odd = |letter: char| matches!(letter, '\u{fffe}' | '\u{ffff}');
    // A fast path: most text is plain ASCII.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text.to_owned();
    }
    text.chars().map(|letter| if fine(letter) && !odd(letter) { letter } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_a_page_shows_no_character_that_disguises_others() {
        for letter in
            "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{0}\u{85}\u{fffe}"
                .chars()
        {
            assert!(is_harmful(letter) || letter == '\u{fffe}', "{letter:?}");
            assert_eq!(clean(&format!("a{letter}b")), "a\u{fffd}b", "{letter:?}");
        }
        assert_eq!(clean("ä\n\t€"), "ä\n\t€");
    }
}
