//! A year as one HTML page: every machine by its role, every rollout, and the remaining validity of the certificates in use.
//!
//! Like the page of a plan, it consists of one file, loads nothing, runs no script, and is well-formed XML. All coordinates are whole
//! tenths of a unit, so that the page is the same on every machine.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use maud::{Markup, html};
use slipway_core::page::{self, clean};

use super::lives::Lifetime;
use super::whole::Chronicle;

const STYLE: &str = include_str!("picture.css");

/// In units of the picture: its width, the position where time begins, and the height of a line.
const WIDTH: i64 = 1_000;
const MARGIN: i64 = 130;
const LINE: i64 = 16;
/// The height of the curve of certificates.
const CURVE: i64 = 120;
/// The maximum number of lines per role. Further machines share the last line.
const LINES: usize = 40;

impl Chronicle {
    /// The page that shows the year; `subject` describes the simulation.
    #[must_use]
    pub fn to_html(&self, name: &str, subject: &str) -> String {
        page(name, subject, self)
    }
}

/// A rollout.
#[derive(Debug, PartialEq)]
struct Band<'c> {
    from: Timestamp,
    until: Timestamp,
    end: &'static str,
    said: &'c str,
}

/// The horizontal scale of time, which all rows share.
struct Scale {
    from: i64,
    length: i64,
}

impl Scale {
    /// The position of a time, in tenths of a unit.
    fn x(&self, at: Timestamp) -> i64 {
        let past = (at.as_second() - self.from).clamp(0, self.length);
        let width = i128::from(10 * (WIDTH - MARGIN));
        10 * MARGIN + i64::try_from(i128::from(past) * width / i128::from(self.length)).unwrap_or_default()
    }
}

/// Tenths of a unit as an SVG number.
fn units(tenths: i64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The page; `subject` describes the simulation.
#[must_use]
pub(super) fn page(name: &str, subject: &str, year: &Chronicle) -> String {
    let scale = Scale {
        from: year.from.as_second(),
        length: (year.until.as_second() - year.from.as_second()).max(1),
    };
    let title = clean(&format!("{name}: {subject}"));
    let body = html! {
        h1 { (title) }
        @for wrong in &year.violations {
            p class="gone" { b { "Broken: " (wrong.promise) } " " (clean(&format!("{}: {}", wrong.at, wrong.what))) }
        }
        div class="tiles" {
            @for (number, what, grave) in tiles(year) {
                div class=(if grave { "tile grave" } else { "tile" }) { b { (clean(&number)) } span { (what) } }
            }
        }
        section {
            h2 { "Machines and rollouts" }
            (machines(year, &scale))
            p class="small" {
                "Each line is a place for a machine: pale while it boots, red where it broke. Rollouts are above: green ones succeeded, red ones failed."
            }
        }
        @if !year.margins.is_empty() {
            section {
                h2 { "Certificates" }
                (certificates(year, &scale))
                p class="small" {
                    "How many days the certificate in force that is nearest to its end still held"
                    @if year.renew_before.is_some() { "; dashed: at which the policy renews it" }
                    "."
                }
            }
        }
        section {
            h2 { "What was said" }
            table class="dates" {
                thead { tr { th { "When" } th { "What" } } }
                tbody {
                    @for (at, line) in &year.events {
                        tr { td { (at.strftime("%F %H:%M")) } td { (clean(line)) } }
                    }
                }
            }
        }
    };
    page::page(&title, STYLE, &body, "by simulation: machines and AWS are models")
}

/// The summary tiles: the number, its label, and whether it is bad.
fn tiles(year: &Chronicle) -> Vec<(String, &'static str, bool)> {
    let count = |end: &str| year.rollouts.get(end).copied().unwrap_or_default();
    let share = |part| format!("{:.4} %", 100.0 * year.share(part));
    let days = |margin: SignedDuration| margin.as_hours() / 24;
    vec![
        (count("succeeded").to_string(), "rollouts succeeded", false),
        (count("failed").to_string(), "failed", count("failed") > 0),
        (share(year.etcd), "of the time etcd had a leader", year.etcd < year.lived),
        (share(year.api), "of the time the API answered", year.api < year.lived),
        (
            year.margin.map_or_else(|| "?".to_owned(), |margin| days(margin).to_string()),
            "days at least that a certificate in force still held",
            year.margin.is_some_and(|margin| margin <= SignedDuration::ZERO),
        ),
        (year.tally.deaths.to_string(), "machines broke", false),
        (format!("${:.2}", year.tally.usage().bill().total()), "for Slipway itself", false),
    ]
}

/// The first day of each month: its position and its label.
fn months(year: &Chronicle, scale: &Scale) -> Vec<(i64, String)> {
    let first = year.from.to_zoned(TimeZone::UTC).date().first_of_month();
    let dates = (1..600).filter_map(|month: i64| first.checked_add(month.months()).ok());
    let dates: Vec<_> = dates
        .filter_map(|date| Some((date.to_zoned(TimeZone::UTC).ok()?.timestamp(), date)))
        .take_while(|(at, _)| *at < year.until)
        .collect();
    // At most some fifteen are labelled.
    let step = dates.len() / 15 + 1;
    let shown = dates.into_iter().step_by(step);
    shown.map(|(at, date)| (scale.x(at), date.strftime("%b %Y").to_string())).collect()
}

fn grid(months: &[(i64, String)], height: i64) -> Markup {
    html! {
        @for (x, name) in months {
            line class="grid" x1=(units(*x)) x2=(units(*x)) y1="14" y2=(height) {}
            text x=(units(x + 20)) y="10" { (name) }
        }
    }
}

fn machines(year: &Chronicle, scale: &Scale) -> Markup {
    let rows = rows(&year.machines);
    let months = months(year, scale);
    let lines: i64 = rows.iter().map(|(_, lines)| i64::try_from(lines.len()).unwrap_or_default()).sum();
    let top = 14 + LINE + 6;
    let height = top + lines * LINE + i64::try_from(rows.len()).unwrap_or_default() * 6;
    let mut y = top;
    let mut drawn = Vec::new();
    for (role, lines) in &rows {
        drawn.push((y, role.as_str(), lines));
        y += i64::try_from(lines.len()).unwrap_or_default() * LINE + 6;
    }
    html! {
        figure {
            svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label="machines by role, and rollouts, over time" {
                (grid(&months, height))
                text class="role" x="0" y=(14 + 11) { "rollouts" }
                @for band in bands(year) {
                    rect class=(band.end) x=(units(scale.x(band.from))) y="16" height="12" rx="1"
                        width=(units((scale.x(band.until) - scale.x(band.from)).max(20))) {
                        title { (clean(&format!("{}: {}", band.from.strftime("%F %H:%M"), band.said))) }
                    }
                }
                @for (y, role, lines) in drawn {
                    text class="role" x="0" y=(y + 11) { (clean(role)) }
                    @for (index, line) in lines.iter().enumerate() {
                        @for machine in line { (bar(machine, y + i64::try_from(index).unwrap_or_default() * LINE, year, scale)) }
                    }
                }
            }
        }
    }
}

/// The CSS class of a role's machines.
fn class(role: &str) -> &'static str {
    match role {
        "controller" => "controller",
        role if role.starts_with("etcd-") => "etcd",
        _ => "pool",
    }
}

fn bar(machine: &Lifetime, y: i64, year: &Chronicle, scale: &Scale) -> Markup {
    let until = machine.until.unwrap_or(year.until);
    let served = machine.served.unwrap_or(until);
    let (from, served, until) = (scale.x(machine.from), scale.x(served), scale.x(until));
    let class = class(&machine.role);
    let caption = format!(
        "{} {}: from {}{}",
        machine.role,
        machine.id,
        machine.from.strftime("%F %H:%M"),
        machine.until.map_or_else(String::new, |until| format!(" to {}", until.strftime("%F %H:%M"))),
    );
    html! {
        g {
            title { (clean(&caption)) }
            rect class={ (class) " boot" } x=(units(from)) y=(y) height="12" width=(units((served - from).max(0))) {}
            // The gap makes the succession of machines visible.
            rect class=(class) x=(units(served)) y=(y) height="12" width=(units((until - served - 5).max(3))) {}
            @if machine.died {
                rect class="died" x=(units(until - 25)) y=(y - 1) height="14" width="2.5" {}
            }
        }
    }
}

/// By role, the lines of its machines; the machines of one line follow each other.
fn rows(machines: &[Lifetime]) -> Vec<(String, Vec<Vec<&Lifetime>>)> {
    let mut roles: BTreeMap<(u8, &str), Vec<Vec<&Lifetime>>> = BTreeMap::new();
    for machine in machines {
        let order = match class(&machine.role) {
            "etcd" => 0,
            "controller" => 1,
            _ => 2,
        };
        let lines = roles.entry((order, &machine.role)).or_default();
        // A successor may boot while the machine before it is being terminated.
        let serves = machine.served.unwrap_or(machine.from);
        let free = lines
            .iter()
            .position(|line| line.last().is_some_and(|last| last.until.is_some_and(|until| until <= serves)));
        let at = free.unwrap_or(lines.len()).min(LINES - 1);
        match lines.get_mut(at) {
            Some(line) => line.push(machine),
            None => lines.push(vec![machine]),
        }
    }
    roles.into_iter().map(|((_, role), lines)| (role.to_owned(), lines)).collect()
}

/// From each start of a rollout to its end; a rollout without an end is still open.
fn bands(year: &Chronicle) -> Vec<Band<'_>> {
    let mut bands: Vec<Band<'_>> = Vec::new();
    for (at, line) in &year.events {
        let Some(rest) = line.strip_prefix("rollout ") else { continue };
        let end = ["succeeded", "failed", "aborted"].into_iter().find(|end| rest.starts_with(end));
        if rest.starts_with("started") {
            bands.push(Band { from: *at, until: year.until, end: "open", said: line });
        } else if let (Some(end), Some(open)) = (end, bands.last_mut().filter(|band| band.end == "open")) {
            *open = Band { from: open.from, until: *at, end, said: line };
        } else if let Some(end) = end {
            // It was refused before it began.
            bands.push(Band { from: *at, until: *at, end, said: line });
        }
    }
    bands
}

fn certificates(year: &Chronicle, scale: &Scale) -> Markup {
    const DAY_S: i64 = 86_400;
    let days = |margin: SignedDuration| margin.as_secs() / DAY_S;
    let most = year.margins.iter().map(|(_, margin)| days(*margin)).max().unwrap_or(1).max(1);
    let bottom = 14 + CURVE;
    let y = |days: i64| 10 * bottom - 10 * CURVE * days.clamp(0, most) / most;
    let points: Vec<String> = year
        .margins
        .iter()
        .map(|(at, margin)| format!("{},{}", units(scale.x(*at)), units(y(days(*margin)))))
        .collect();
    let months = months(year, scale);
    html! {
        figure {
            svg viewBox=(format!("0 0 {WIDTH} {}", bottom + 4)) role="img" aria-label="days that certificates still held, over time" {
                (grid(&months, bottom))
                @for part in [most, most / 2, 0] {
                    line class="grid" x1=(MARGIN) x2=(WIDTH) y1=(units(y(part))) y2=(units(y(part))) {}
                    text x=(MARGIN - 8) y=(units(y(part) + 30)) text-anchor="end" { (part) " d" }
                }
                @if let Some(before) = year.renew_before {
                    line class="renew" x1=(MARGIN) x2=(WIDTH) y1=(units(y(days(before)))) y2=(units(y(days(before)))) {}
                }
                polyline class="left" points=(points.join(" ")) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("{text}:00:00Z").parse().unwrap()
    }

    fn life(role: &str, id: &str, from: &str, until: Option<&str>) -> Lifetime {
        let served = Some(at(from) + SignedDuration::from_mins(2));
        Lifetime {
            id: id.to_owned(),
            role: role.to_owned(),
            from: at(from),
            served,
            until: until.map(at),
            died: false,
        }
    }

    #[test]
    fn who_follows_whom_shares_a_line_and_who_is_there_together_does_not() {
        let machines = [
            life("controller", "i-1", "2027-01-01T08", Some("2027-06-01T10")),
            life("controller", "i-2", "2027-01-01T08", None),
            life("etcd-0", "i-3", "2027-01-01T08", None),
            // An additional one came before the first one was terminated.
            life("controller", "i-4", "2027-06-01T09", None),
            life("controller", "i-5", "2027-06-01T11", None),
        ];
        let served = Some(at("2027-06-01T12"));
        let later = Lifetime { served, ..life("etcd-1", "i-7", "2027-06-01T10", None) };
        let machines: Vec<Lifetime> = machines
            .into_iter()
            // It was still there when its successor was launched.
            .chain([life("etcd-1", "i-6", "2027-01-01T08", Some("2027-06-01T11")), later])
            .collect();
        let rows = rows(&machines);
        let ids = |lines: &[Vec<&Lifetime>]| -> Vec<Vec<String>> {
            lines.iter().map(|line| line.iter().map(|one| one.id.clone()).collect()).collect()
        };
        assert_eq!(rows[0].0, "etcd-0");
        assert_eq!(ids(&rows[1].1), [["i-6", "i-7"]]);
        assert_eq!(rows[2].0, "controller");
        assert_eq!(ids(&rows[2].1), [vec!["i-1", "i-5"], vec!["i-2"], vec!["i-4"]]);
    }

    #[test]
    fn a_rollout_reaches_from_its_start_to_its_end_and_one_without_an_end_to_the_last_day() {
        let totals = [
            ("2027-01-01T08", "rollout started: a"),
            ("2027-01-01T09", "rollout succeeded: all"),
            ("2027-02-01T08", "certificates renewed: x"),
            ("2027-02-02T08", "rollout failed: what runs speaks against it"),
            ("2027-03-01T08", "rollout started: b"),
        ];
        let year = Chronicle {
            events: totals.iter().map(|(when, line)| (at(when), (*line).to_owned())).collect(),
            from: at("2027-01-01T00"),
            until: at("2027-04-01T00"),
            ..Chronicle::default()
        };
        let seen: Vec<_> = bands(&year).iter().map(|band| (band.from, band.until, band.end)).collect();
        assert_eq!(
            seen,
            [
                (at("2027-01-01T08"), at("2027-01-01T09"), "succeeded"),
                (at("2027-02-02T08"), at("2027-02-02T08"), "failed"),
                (at("2027-03-01T08"), at("2027-04-01T00"), "open"),
            ]
        );
    }
}
