//! Times, versions and foreign texts in the form for a terminal.

use jiff::Timestamp;
use slipway_core::words::is_harmful;

/// How long ago, in a suitable unit.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - then.as_second();
    match seconds {
        // Clocks differ by a few seconds.
        ..=4 => "just now".to_owned(),
        5..=119 => format!("{seconds} s ago"),
        120..=7_199 => format!("{} min ago", seconds / 60),
        7_200..=172_799 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// Whole days until `end`; negative once it has passed.
pub(crate) fn days_left(end: Timestamp, now: Timestamp) -> i64 {
    (end.as_second() - now.as_second()).div_euclid(86_400)
}

/// `in 12 d`, `expired 3 d ago`.
pub(crate) fn remaining(end: Timestamp, now: Timestamp) -> String {
    match days_left(end, now) {
        days if days < 0 => format!("expired {} d ago", -days),
        days => format!("{days} d left"),
    }
}

/// The beginning of a version id.
pub(crate) fn version(id: &str) -> String {
    id.chars().take(12).collect()
}

/// Longer than any message of Slipway's.
const LONGEST: usize = 2_000;

/// Foreign text, such as a node's, on one line and without characters that do something to a terminal.
pub(crate) fn plain(text: &str) -> String {
    let shown = |letter: char| if is_harmful(letter) { ' ' } else { letter };
    let mut plain: String = text.trim().chars().take(LONGEST).map(shown).collect();
    if text.chars().nth(LONGEST).is_some() {
        plain.push('…');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_said_in_the_unit_that_fits() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        for (then, words) in [
            ("2026-11-22T12:00:30Z", "just now"),
            ("2026-11-22T11:59:00Z", "60 s ago"),
            ("2026-11-22T11:45:10Z", "14 min ago"),
            ("2026-11-21T12:00:00Z", "24 h ago"),
            ("2026-11-02T12:00:00Z", "20 d ago"),
        ] {
            assert_eq!(ago(then.parse().unwrap(), now), words, "{then}");
        }
        assert_eq!(remaining("2026-11-22T11:59:59Z".parse().unwrap(), now), "expired 1 d ago");
        assert_eq!(remaining("2026-11-23T11:59:59Z".parse().unwrap(), now), "0 d left");
    }

    #[test]
    fn a_node_cannot_write_on_the_terminal_of_who_looks() {
        assert_eq!(plain("a\u{1b}[2Jb\r\nc\u{9b}31m\n"), "a [2Jb  c 31m");
        assert_eq!(plain(&"x".repeat(3_000)).chars().count(), LONGEST + 1);
    }
}
