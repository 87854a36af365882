//! Durations as Go writes them, which Kubernetes' programs read.

/// The text in nanoseconds: `1h30m`, `1.5s`, `0`, `-2m`; `None` if Go's `time.ParseDuration` refuses it. There is no unit above the hour.
pub(crate) fn nanoseconds(text: &str) -> Option<i128> {
    const UNITS: [(&str, i128); 8] = [
        ("ns", 1),
        ("us", 1000),
        ("µs", 1000),
        ("μs", 1000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60 * 1_000_000_000),
        ("h", 3600 * 1_000_000_000),
    ];
    let (sign, mut rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_i128;
    loop {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        let next = after.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(next);
        let (_, length) = UNITS.iter().find(|(known, _)| *known == unit)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || whole.len() > 15 || fraction.contains('.') {
            return None;
        }
        // Go keeps nanoseconds, too, and drops what is smaller.
        let fraction = &fraction[..fraction.len().min(15)];
        let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        let part = if fraction.is_empty() { 0 } else { fraction.parse::<i128>().ok()? };
        let whole = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()? };
        total += whole * length + part * length / scale;
        rest = after;
        if rest.is_empty() {
            return (total <= i128::from(i64::MAX)).then_some(sign * total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        const S: i128 = 1_000_000_000;
        for (text, wanted) in [
            ("0", 0),
            ("0s", 0),
            ("1h30m", 5400 * S),
            ("1.5s", 3 * S / 2),
            (".5s", S / 2),
            ("1.s", S),
            ("-2m", -120 * S),
            ("100ms", S / 10),
            ("3µs", 3000),
        ] {
            assert_eq!(nanoseconds(text), Some(wanted), "{text}");
        }
        for text in ["", "30", "1d", "1 s", "s", ".s", "1h30", "1w", "--1s", "1..5s", "99999999999h"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
