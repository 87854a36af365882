//! `slipway certs show`.

use std::fmt::Write as _;
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_crypto::timeline::{self, Row};
use slipway_crypto::verify::{Certificate, Survey};

use super::place::PlaceArgs;
use super::{Moment, SOON_DAYS};
use crate::Exit;
use crate::failure::CliError;
use crate::local::write_atomic;
use crate::printer::{Colour, Printer};

/// Show all certificates of a folder or of a cluster in AWS: names, issuer, dates, remaining days, key, and the roles that have it.
///
/// Certificates that share a key are pointed out. Nothing is decrypted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  shown
  1  there is no certificate
  2  wrong usage
  3  something could not be read or written

Examples:
  slipway certs show rendered
  slipway certs show --cluster prod
  slipway certs show /etc/kubernetes/pki --sort name
  slipway certs show rendered --html expiries.html
  slipway certs show rendered --output json | jq '.certificates[] | select(.daysLeft < 60) | .name'")]
pub(crate) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// The order.
    #[arg(long, value_enum, default_value_t = Sort::Expiry, value_name = "ORDER")]
    sort: Sort,
    /// Also write a self-contained HTML page with a timeline.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    moment: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// By expiry, the earliest first.
    Expiry,
    /// By name.
    Name,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let now = args.moment.get();
    let place = args.place.find().await?;
    let survey = place.survey(place.files().await?)?;
    let mut shown: Vec<(String, &Certificate)> =
        survey.certificates.iter().map(|one| (survey.name_of(one), one)).collect();
    shown.sort_by(|(a, one), (b, other)| {
        let by_name = (a, &one.file).cmp(&(b, &other.file));
        match args.sort {
            Sort::Name => by_name,
            Sort::Expiry => one.facts.not_after.cmp(&other.facts.not_after).then(by_name),
        }
    });
    if let Some(path) = &args.html {
        let rows: Vec<Row> =
            shown.iter().map(|(name, one)| Row::from_certificate(name, one, held_by(&survey, one))).collect();
        let page = timeline::page(&place.to_string(), &rows, &survey.twins(), now, SOON_DAYS);
        write_atomic(path, page.as_bytes()).map_err(|error| CliError::file("write", path, &error))?;
    }
    let twins = survey.twins();
    let mut machine = json!({
        "ok": true,
        "layout": survey.layout,
        "at": now,
        "certificates": shown.iter().map(|(name, one)| machine(&survey, name, one, now)).collect::<Vec<_>>(),
        "twins": twins,
        "unread": survey.findings,
        "others": survey.others,
    });
    place.name_in(&mut machine);
    let mut text = String::new();
    for (name, one) in &shown {
        certificate(&mut text, printer, &survey, name, one, now);
    }
    for twins in &twins {
        let line = format!(
            "ONE KEY, SEVERAL NAMES: {}: whoever holds one of them can act as all of them",
            twins.names.join(", ")
        );
        let _ = writeln!(text, "{}", printer.paint(Colour::Red, &line));
    }
    for finding in &survey.findings {
        let line = format!("{}: {}", finding.file, finding.message);
        let _ = writeln!(text, "{}", printer.paint(Colour::Red, &line));
    }
    let _ = writeln!(text, "{}", summary(&survey, shown.len(), now));
    printer.result(&text, &machine);
    Ok(Exit::Done)
}

/// A first line with the most important facts, then the details.
fn certificate(
    text: &mut String,
    printer: &Printer,
    survey: &Survey,
    name: &str,
    one: &Certificate,
    now: Timestamp,
) {
    let facts = &one.facts;
    let days_left = facts.days_left(now);
    let (colour, days) = match days_left {
        _ if facts.not_after < now => (Colour::Red, format!("expired {} d ago", -days_left)),
        _ if facts.not_before > now => (Colour::Red, "not yet valid".to_owned()),
        _ if days_left < i64::from(SOON_DAYS) => (Colour::Yellow, format!("{days_left} d left")),
        _ => (Colour::Green, format!("{days_left} d left")),
    };
    let days = printer.paint(colour, &format!("{days:>16}"));
    let _ = writeln!(text, "{days}  {name}");
    let mut line = |what: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{:>16}  {what:<9}{value}", "");
        }
    };
    line("subject", &facts.subject);
    line("names", &facts.sans.join(", "));
    line("issuer", if facts.self_issued { "itself" } else { &facts.issuer });
    line("serial", &facts.serial);
    line("valid", &format!("{} to {}", facts.not_before, facts.not_after));
    line("key", &format!("{}, signed by {}", facts.key, facts.signature));
    line("held by", &held_by(survey, one));
    if survey.manifest.is_none() {
        line("file", &one.at());
    }
    text.push('\n');
}

fn held_by(survey: &Survey, one: &Certificate) -> String {
    if survey.manifest.is_none() {
        return String::new();
    }
    if !survey.is_current(one) {
        return "nobody any more: an earlier one".to_owned();
    }
    let roles: Vec<String> = survey.roles_of(one).iter().map(ToString::to_string).collect();
    if roles.is_empty() { "nobody".to_owned() } else { roles.join(", ") }
}

fn machine(survey: &Survey, name: &str, one: &Certificate, now: Timestamp) -> Value {
    let mut value = serde_json::to_value(&one.facts).expect("facts have string keys only");
    value["name"] = json!(name);
    value["file"] = json!(one.at());
    value["daysLeft"] = json!(one.facts.days_left(now));
    value["current"] = json!(survey.is_current(one));
    value["roles"] = json!(survey.roles_of(one));
    value
}

fn summary(survey: &Survey, count: usize, now: Timestamp) -> String {
    let current = survey.certificates.iter().filter(|one| survey.is_current(one));
    let (mut expired, mut soon) = (0, 0);
    for one in current {
        match one.facts.days_left(now) {
            _ if one.facts.not_after < now => expired += 1,
            days_left if days_left < i64::from(SOON_DAYS) => soon += 1,
            _ => {}
        }
    }
    format!("{count} certificates: {expired} expired, {soon} expire within {SOON_DAYS} days")
}
