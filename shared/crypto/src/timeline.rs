//! An HTML page that shows certificates and their expiry on a timeline.
//!
//! Like the page of a plan, it consists of one file, loads nothing, runs no script, and is well-formed XML.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};
use slipway_core::page::{self, clean};

use crate::verify::{Certificate, Twins};

/// One certificate.
#[derive(Debug, Clone)]
pub struct Row {
    /// The name that people use for it.
    pub name: String,
    /// Its subject.
    pub subject: String,
    /// The name of its issuer.
    pub issuer: String,
    /// Its key.
    pub key: String,
    /// Who holds it, in words.
    pub holders: String,
    /// Whether it signs other certificates.
    pub authority: bool,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
}

impl Row {
    /// The row of a certificate with that name and these holders.
    #[must_use]
    pub fn from_certificate(name: &str, one: &Certificate, holders: String) -> Self {
        let facts = &one.facts;
        Self {
            name: name.to_owned(),
            subject: facts.subject.clone(),
            issuer: facts.issuer.clone(),
            key: facts.key.to_string(),
            holders,
            authority: facts.authority,
            not_before: facts.not_before,
            not_after: facts.not_after,
        }
    }
}

const BARS: &str = include_str!("timeline.css");

const DAY: i64 = 86_400;

/// The page, in the order of `rows`. A certificate is yellow from `soon_days` before its expiry.
#[must_use]
pub fn page(title: &str, rows: &[Row], twins: &[Twins], now: Timestamp, soon_days: u32) -> String {
    let title = clean(&format!("Certificates of {title}"));
    let scale = Scale::covering(rows, now);
    let state = |row: &Row| State::for_row(row, now, soon_days);
    let count = |wanted: State| rows.iter().filter(|row| state(row) == wanted).count();
    let tile = |number: usize, what: &str, grave: bool| {
        html! { div class=(if grave && number > 0 { "tile grave" } else { "tile" }) { b { (number) } span { (what) } } }
    };
    let body = html! {
        h1 { (title) }
        p class="lead" { (headline(rows, now)) }
        div class="tiles" {
            (tile(count(State::Expired), "expired", true))
            (tile(count(State::Soon), &format!("expire within {soon_days} days"), false))
            (tile(count(State::NotYet), "not yet valid", true))
            (tile(count(State::Fine), "fine", false))
            (tile(twins.len(), "keys with several names", true))
        }
        @for one in twins {
            p class="gone" { b { "One key, several names: " } (clean(&one.names.join(", "))) }
        }
        section {
            h2 { "What expires when" }
            table class="times" {
                thead { tr { th { "Certificate" } th { "Days left" } th { (scale.years()) } th { "Ends" } } }
                tbody { @for row in rows { (line(row, state(row), &scale, now)) } }
            }
        }
    };
    page::page(&title, BARS, &body, &format!("as of {now}"))
}

fn headline(rows: &[Row], now: Timestamp) -> String {
    match rows.iter().filter(|row| row.not_after >= now).min_by_key(|row| row.not_after) {
        Some(next) => {
            let days = (next.not_after.as_second() - now.as_second()).div_euclid(DAY);
            clean(&format!("{} expires first: in {days} days, on {}.", next.name, date(next.not_after)))
        }
        None => "None of them is valid any more.".to_owned(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Expired,
    NotYet,
    Soon,
    Fine,
}

impl State {
    fn for_row(row: &Row, now: Timestamp, soon_days: u32) -> Self {
        let remaining_s = row.not_after.as_second() - now.as_second();
        if remaining_s < 0 {
            Self::Expired
        } else if row.not_before > now {
            Self::NotYet
        } else if remaining_s.div_euclid(DAY) < i64::from(soon_days) {
            Self::Soon
        } else {
            Self::Fine
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Expired | Self::NotYet => "gone",
            Self::Soon => "change",
            Self::Fine => "add",
        }
    }
}

/// The scale of time: from the first beginning to the last end, including today.
struct Scale {
    start: i64,
    length: i64,
    now: i64,
}

impl Scale {
    fn covering(rows: &[Row], now: Timestamp) -> Self {
        let now = now.as_second();
        let start = rows.iter().map(|row| row.not_before.as_second()).min().unwrap_or(now).min(now);
        let end = rows.iter().map(|row| row.not_after.as_second()).max().unwrap_or(now).max(now);
        Self { start, length: (end - start).max(1), now }
    }

    /// In thousandths of the line, so that the page is the same on every machine.
    fn at(&self, second: i64) -> i64 {
        let past = (second - self.start).clamp(0, self.length);
        i64::try_from(i128::from(past) * 1000 / i128::from(self.length)).unwrap_or_default()
    }

    /// A mark for each new year, at most a dozen.
    fn years(&self) -> Markup {
        let year = |second: i64| {
            Timestamp::from_second(second).map_or(0, |time| i64::from(time.to_zoned(TimeZone::UTC).year()))
        };
        let (first, last) = (year(self.start) + 1, year(self.start + self.length));
        let step = ((last - first).max(0) / 12 + 1).max(1);
        let marks = (first..=last).step_by(usize::try_from(step).unwrap_or(1));
        let begins = |year: i64| -> Option<i64> {
            let date = jiff::civil::Date::new(i16::try_from(year).ok()?, 1, 1).ok()?;
            Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
        };
        html! {
            div class="line" {
                @for (year, at) in marks.filter_map(|year| Some((year, self.at(begins(year)?)))) {
                    span class="year" style=(format!("left:{}", percent(at))) { (year) }
                }
            }
        }
    }
}

fn percent(thousandths: i64) -> String {
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

fn date(time: Timestamp) -> String {
    time.strftime("%F").to_string()
}

fn line(row: &Row, state: State, scale: &Scale, now: Timestamp) -> Markup {
    let days = (row.not_after.as_second() - now.as_second()).div_euclid(DAY);
    let (start, end) = (scale.at(row.not_before.as_second()), scale.at(row.not_after.as_second()));
    // A period of a day must be visible on a scale of ten years.
    let width = (end - start).max(4).min(1000 - start.min(996));
    let start = start.min(996);
    html! {
        tr {
            th scope="row" {
                (clean(&row.name))
                @if row.authority { " " span class="small" { "authority" } }
                div class="small" { (clean(&row.subject)) }
                div class="small" { (clean(&row.key)) ", by " (clean(&row.issuer)) }
                @if !row.holders.is_empty() { div class="small" { "held by " (clean(&row.holders)) } }
            }
            td class=(state.class()) {
                @match state {
                    State::Expired => { "expired " (-days) " days ago" }
                    State::NotYet => { "not yet valid" }
                    State::Soon | State::Fine => { (days) }
                }
            }
            td {
                div class="line" {
                    div class={ "bar " (state.class()) } style=(format!("left:{};width:{}", percent(start), percent(width))) {}
                    div class="now" style=(format!("left:{}", percent(scale.at(scale.now)))) {}
                }
            }
            td { (date(row.not_after)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, from: &str, to: &str) -> Row {
        let time = |text: &str| format!("{text}T00:00:00Z").parse().unwrap();
        Row {
            name: name.to_owned(),
            subject: "CN=<script>alert(1)</script>".to_owned(),
            issuer: "CN=\u{202e}ca".to_owned(),
            key: "ECDSA P-256".to_owned(),
            holders: String::new(),
            authority: false,
            not_before: time(from),
            not_after: time(to),
        }
    }

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_page_is_whole_alone_and_not_to_be_broken_out_of() {
        let rows = [
            row("old", "2020-01-01", "2021-01-01"),
            row("soon", "2026-01-01", "2026-12-01"),
            row("fine", "2026-01-01", "2036-01-01"),
            row("later", "2027-01-01", "2028-01-01"),
        ];
        let twins = [Twins { spki_sha256: "ab".to_owned(), names: vec!["a&b".to_owned(), "c".to_owned()] }];
        let page = page("a<b", &rows, &twins, now(), 30);
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let tree = roxmltree::Document::parse_with_options(&page, options).unwrap();
        assert!(!tree.descendants().any(|node| node.has_tag_name("script") || node.has_tag_name("img")));
        let text: String = tree.descendants().filter_map(|node| node.text()).collect();
        for piece in [
            "soon expires first: in 10 days, on 2026-12-01.",
            "expired 2150 days ago",
            "not yet valid",
            "a&b, c",
        ] {
            assert!(text.contains(piece), "{piece} is not in {text}");
        }
        assert!(!page.contains('\u{202e}') && page.contains("default-src 'none'"));
        assert!(page.contains(r#"class="bar gone" style="left:0.0%"#), "the first begins at the left edge");
    }

    #[test]
    fn no_dates_break_the_line() {
        for rows in
            [vec![], vec![row("a", "2026-11-20", "2026-11-20")], vec![row("a", "2030-01-01", "2020-01-01")]]
        {
            let page = page("x", &rows, &[], now(), 30);
            assert!(page.contains("</html>"));
        }
        let mut odd = row("a", "2026-01-01", "2027-01-01");
        (odd.not_before, odd.not_after) = (Timestamp::MIN, Timestamp::MAX);
        let page = page("x", &[odd], &[], now(), 30);
        assert!(page.contains("</html>") && page.matches("class=\"year\"").count() < 20);
    }
}
