//! `slipway simulate`.

use std::path::PathBuf;

use jiff::SignedDuration;
use serde_json::json;
use slipway_core::drain::lasting;
use slipway_core::words::moment;
use slipway_sim::year::{Chronicle, Year};

use crate::Exit;
use crate::failure::CliError;
use crate::local::write_atomic;
use crate::printer::Printer;
use crate::source::{PatchArgs, Source, SpecArgs};

/// Simulate years of a cluster in seconds: launch, daily scans, renewals and rollouts, in a simulated AWS with random faults. AWS is not
/// called, and only the page of `--html` is written.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rendering, scans and rollouts run the code of the functions; machines, etcd, the API and AWS are models (docs/simulation.md). The same
seed gives the same history. Files in patches/ and import/ are not used.

Exit codes:
  0  no promise was broken
  1  the spec was refused, its launch did not result in a working cluster, a promise was broken, or certificates expired
  2  wrong usage
  3  the file could not be read

Examples:
  slipway simulate cluster.yaml
  slipway simulate cluster.yaml --days 800 --seed 7 --faults 0.05
  slipway simulate cluster.yaml --html year.html
  slipway simulate cluster.yaml --faults 0 --output json")]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    /// The number of days to simulate after the launch.
    #[arg(long, value_name = "DAYS", default_value_t = 400, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    days: u32,
    /// The seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// The probability of faults: 0 is never, 0.1 is very often.
    #[arg(long, value_name = "P", default_value_t = 0.01, allow_negative_numbers = true, value_parser = probability)]
    faults: f64,
    /// After the launch, nobody approves a plan, or uploads the spec again after a failure.
    #[arg(long)]
    unattended: bool,
    /// Also write an HTML page with machines, rollouts and certificates.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn probability(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if (0.0..=0.2).contains(&number) { Ok(number) } else { Err("it must be from 0 to 0.2".to_owned()) }
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let source = Source::read(args.spec.path(), &PatchArgs::default())?;
    let accepted = match source.parse() {
        Ok(accepted) => accepted,
        Err(findings) => {
            printer.refused(&source, &findings);
            return Ok(Exit::Findings);
        }
    };
    if let Some(path) = args.html.as_deref().filter(|path| path.is_dir()) {
        return Err(CliError::refused(
            format!("{} is a directory", path.display()),
            "name a file for --html",
        ));
    }
    let year = Year {
        spec: String::from_utf8_lossy(&source.bytes).into_owned(),
        days: args.days,
        seed: args.seed,
        faults: args.faults,
        unattended: args.unattended,
        upload: None,
    };
    let chronicle = year
        .live()
        .map_err(|refused| CliError::refused(refused.to_string(), "check it: slipway validate"))?;
    let whole = chronicle.lived > SignedDuration::ZERO
        && chronicle.violations.is_empty()
        && expired_for(&chronicle).is_none();
    printer.result(&report(&accepted.cluster.name, args, &chronicle), &machine(args, &chronicle));
    // Written last, so that the result is printed even if this fails.
    if let Some(path) = &args.html {
        let subject = format!("{} days with seed {} and faults {}", args.days, args.seed, args.faults);
        write_atomic(path, chronicle.to_html(&accepted.cluster.name, &subject).as_bytes())
            .map_err(|error| CliError::file("write", path, &error))?;
    }
    Ok(if whole { Exit::Done } else { Exit::Findings })
}

/// How long before the end a certificate in use expired; `None` if none did. That breaks no promise if the spec turns renewals off.
fn expired_for(year: &Chronicle) -> Option<SignedDuration> {
    year.margin.filter(|margin| margin.is_negative()).map(SignedDuration::abs)
}

fn report(name: &str, args: &Args, year: &Chronicle) -> String {
    let mut text = String::new();
    for (at, line) in &year.events {
        text.push_str(&format!("{}  {line}\n", at.strftime("%Y-%m-%d %H:%M")));
    }
    if year.lived.is_zero() {
        text.push_str(&format!("{name} never became ready: the lines above say why, or what it waits for\n"));
        return text;
    }
    let count = |function: &str| year.tally.invocations.get(function).copied().unwrap_or_default();
    let ends: Vec<String> = year.rollouts.iter().map(|(end, count)| format!("{count} {end}")).collect();
    let bill = year.tally.usage().bill();
    let margin = year
        .margin
        .map_or_else(|| "unknown".to_owned(), |remaining| format!("{} days", remaining.as_hours() / 24));
    text.push_str(&format!(
        "\n{name}: {} days with seed {} and faults {}\n\
         rollouts            {}\n\
         etcd had a leader   {:.4} % of the time\n\
         the API answered    {:.4} % of the time\n\
         certificates        the nearest to its end had {margin} left\n\
         pods                {} evicted, {} lost with machines that died\n\
         machines that died  {}\n\
         invocations         render {}, scan {}, rollout {}; {} failed and were tried again, {} dead-lettered\n\
         Slipway itself      ${:.2}: Lambda {:.2}, S3 {:.2}, KMS {:.2}, EventBridge {:.2}, CloudWatch {:.2}\n",
        year.lived.as_hours() / 24,
        args.seed,
        args.faults,
        ends.join(", "),
        100.0 * year.share(year.etcd),
        100.0 * year.share(year.api),
        year.evicted,
        year.lost,
        year.tally.deaths,
        count("render"),
        count("scan"),
        count("rollout"),
        year.tally.failed,
        year.tally.dead_letters,
        bill.total(),
        bill.lambda,
        bill.s3,
        bill.kms,
        bill.events,
        bill.metrics,
    ));
    if let Some(long) = expired_for(year) {
        text.push_str(&format!(
            "EXPIRED: a certificate in use expired {} before the end. From then on machines refuse each other, whatever is said above: turn on \
             certificatesConfiguration.rolloutBeforeExpiry and, for authorities, its caRotationDays, or renew in time (slipway renew)\n",
            lasting(SignedDuration::from_mins(long.as_mins()))
        ));
    }
    for wrong in &year.violations {
        text.push_str(&format!("BROKEN: {} at {}: {}\n", wrong.promise, moment(wrong.at), wrong.what));
        if let Some(status) = &year.status {
            text.push_str(&format!("  status.json said then: {status}\n"));
        }
    }
    text
}

/// Rounded to a millionth.
fn dollars(amount: f64) -> f64 {
    (amount * 1e6).round() / 1e6
}

fn machine(args: &Args, year: &Chronicle) -> serde_json::Value {
    let events: Vec<_> = year.events.iter().map(|(at, line)| json!({ "at": at, "said": line })).collect();
    let broken: Vec<_> = year
        .violations
        .iter()
        .map(|one| json!({ "promise": one.promise, "at": one.at, "what": one.what }))
        .collect();
    let bill = year.tally.usage().bill();
    json!({
        "days": args.days, "seed": args.seed, "faults": args.faults,
        "livedSeconds": year.lived.as_secs(),
        "rollouts": year.rollouts,
        "availability": { "etcd": year.share(year.etcd), "api": year.share(year.api) },
        "certificatesExpired": expired_for(year).is_some(),
        "certificateMarginSeconds": year.margin.map(|margin| margin.as_secs()),
        "pods": { "evicted": year.evicted, "lost": year.lost },
        "machinesThatDied": year.tally.deaths,
        "invocations": year.tally.invocations,
        "failedInvocations": year.tally.failed,
        "deadLetters": year.tally.dead_letters,
        "dollars": {
            "lambda": dollars(bill.lambda), "s3": dollars(bill.s3), "kms": dollars(bill.kms),
            "eventBridge": dollars(bill.events), "cloudWatch": dollars(bill.metrics), "total": dollars(bill.total()),
        },
        "broken": broken,
        "status": year.status,
        "said": events,
    })
}
