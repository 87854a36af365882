//! Pages that a person opens in a browser, and text from elsewhere that may stand in them or on a terminal.
//!
//! A page stands alone: it loads nothing, runs no script, and says so to the browser. It is also well-formed XML.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What a page says of itself to the browser: that it loads nothing and runs no script.
///
/// maud leaves void elements open, as HTML has it; XML wants them closed.
const META: &str = "<meta charset=\"utf-8\" />\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\" />\
<meta name=\"referrer\" content=\"no-referrer\" />";

/// What pages of ours look like, in light and in dark.
pub const STYLE: &str = include_str!("page.css");

/// A page with `body` below its title; `style` is what it looks like besides, and `made` what it was made of, in words.
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

/// Without the characters that neither HTML nor XML may hold, however they are escaped; and without those that turn the
/// direction of writing, by which a value could look like another to whoever approves the plan.
#[must_use]
pub fn clean(text: &str) -> String {
    let fine = |letter: char| !letter.is_control() || letter == '\n' || letter == '\t';
    let odd = |letter: char| matches!(letter, '\u{fffe}' | '\u{ffff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // Most are plain, and many are cleaned.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text.to_owned();
    }
    text.chars().map(|letter| if fine(letter) && !odd(letter) { letter } else { '\u{fffd}' }).collect()
}
