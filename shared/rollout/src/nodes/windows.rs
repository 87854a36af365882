//! Maintenance windows: when disruptive work may begin.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use slipway_core::cluster::MaintenanceWindow;

/// Whether one of `windows` is open; none means always.
#[must_use]
pub(crate) fn window_is_open(windows: &[MaintenanceWindow], now: Timestamp) -> bool {
    windows.is_empty() || since_windows_open(windows, now).is_some()
}

/// How long the open window has been open; `None` if none is open.
#[must_use]
pub(crate) fn since_windows_open(windows: &[MaintenanceWindow], now: Timestamp) -> Option<SignedDuration> {
    // A window may have opened the day before, and be longer than a day.
    let opened = windows.iter().flat_map(|window| {
        (0..=7).filter_map(move |back: i64| {
            let day =
                now.checked_sub(SignedDuration::from_hours(24 * back)).ok()?.to_zoned(TimeZone::UTC).date();
            let opens_that_day = window.opens_on(day.weekday().into());
            let midnight = day.to_zoned(TimeZone::UTC).ok()?.timestamp();
            let opens = midnight.checked_add(SignedDuration::from_mins(window.start_minute.into())).ok()?;
            let open = now.duration_since(opens);
            let within = !open.is_negative() && open < SignedDuration::from_mins(window.length_min.into());
            (opens_that_day && within).then_some(open)
        })
    });
    opened.min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use slipway_core::cluster::Day;

    #[test]
    fn a_window_is_open_from_its_minute_on_for_its_length_over_midnight_too() {
        let window = |days: &[Day], start_minute, length_min| MaintenanceWindow {
            days: days.to_vec(),
            start_minute,
            length_min,
        };
        // 2026-11-22 is a Sunday.
        let open = |windows: &[MaintenanceWindow], at: &str| window_is_open(windows, at.parse().unwrap());
        let night = [window(&[Day::Sat], 23 * 60, 180)];
        for (at, is_open) in [
            ("2026-11-21T22:59:59Z", false),
            ("2026-11-21T23:00:00Z", true),
            ("2026-11-22T01:59:59Z", true),
            ("2026-11-22T02:00:00Z", false),
            ("2026-11-22T23:30:00Z", false),
        ] {
            assert_eq!(open(&night, at), is_open, "{at}");
        }
        assert!(open(&[], "2026-11-22T12:00:00Z"));
        assert!(open(&[window(&[], 12 * 60, 1)], "2026-11-22T12:00:59Z"));
        assert!(!open(&[window(&[], 12 * 60, 1)], "2026-11-22T12:01:00Z"));
    }
}
