//! `slipway diff`.

mod findings;
mod reading;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use slipway_core::words::count;

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::overview::plain;
use crate::printer::{Colour, Printer};
use findings::{ClusterRead, Course, Finding, Level, StackRead, findings};

/// Show what was changed by hand in the stacks and Auto Scaling groups of a cluster in AWS, and how to set each back.
///
/// CloudFormation's drift detection compares each resource with its template, which takes some minutes. This command also compares each stack
/// with the release that was rolled out, and each group with the sizes in it. Nothing is changed, in AWS or in Slipway.
///
/// Not shown is what is normal: a desired capacity between minimum and maximum, which an autoscaler sets, and what an open rollout is changing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Levels:
  differs  it is not as it was rolled out
  unknown  it could not be compared
  note     good to know, and no difference

Exit codes:
  0  everything was compared, and nothing differs
  1  something differs, or could not be compared; or there is no such cluster, or nothing of it is deployed
  2  wrong usage
  3  something could not be read, or AWS refused

The IAM permissions for this are listed in docs/cli.md. docs/cli.md also says what drift detection does not see.

Examples:
  slipway diff --cluster prod
  slipway diff --cluster prod && echo 'nobody has changed anything'
  slipway diff --cluster prod --output json | jq '.findings[] | select(.level == \"differs\") | .help'")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    /// Give up on a drift detection after so many minutes. 0: look once.
    #[arg(long, value_name = "MINUTES", default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=180))]
    minutes: u64,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let rollout = cloud.rollout().await?;
    must_stand(&rollout)?;
    let name = cloud.cluster.as_str();
    if rollout.is_going() {
        let help = format!("slipway status --cluster {name} shows how far that is");
        return Err(CliError::refused(
            format!("{name} is being destroyed, so nothing is to be compared"),
            help,
        ));
    }
    let standing = rollout.existing_releases();
    if standing.is_empty() {
        let help = format!("slipway status --cluster {name} shows its rollout");
        return Err(CliError::refused(format!("nothing of {name} is deployed yet"), help));
    }
    let wanted = reading::wanted(&cloud, &standing).await?;
    printer.beside(&format!(
        "CloudFormation compares the resources of {} with their templates; this may take some minutes\n",
        count(wanted.len(), "stack")
    ));
    let within = Duration::from_secs(args.minutes * 60);
    let stacks_read = reading::stacks(&cloud, wanted, within, printer).await?;
    // Minutes have passed.
    let after = cloud.rollout().await?;
    if after.existing_releases() != standing {
        let problem = format!("a rollout of {name} changed its stacks while they were compared");
        return Err(CliError::refused(problem, "run it again"));
    }
    let read = ClusterRead {
        cluster: name.to_owned(),
        region: cloud.region().to_owned(),
        course: Course::from_rollout(&rollout).and_then(Course::from_rollout(&after)),
        stacks: stacks_read,
    };
    let found = findings(&read);
    let same = found.iter().all(|finding| finding.level == Level::Note);
    let machine = json!({
        "ok": true,
        "same": same,
        "cluster": name,
        "region": read.region,
        "at": Timestamp::now(),
        "rolloutIsOpen": read.course == Course::Rolling,
        "stacks": stacks(&read.stacks),
        "findings": found,
    });
    printer.result(&text(&found, &read, &cloud, printer), &machine);
    Ok(if same { Exit::Done } else { Exit::Findings })
}

/// The release that each stack was compared with, and its status.
fn stacks(all: &[StackRead]) -> BTreeMap<&str, serde_json::Value> {
    let shown = all.iter().map(|one| {
        let status = one.standing.as_ref().map(|standing| standing.status.as_str());
        (one.name.as_str(), json!({ "release": one.release, "status": status }))
    });
    shown.collect()
}

/// What an upload does and does not do about drift, below findings that CloudFormation made.
const NO_REPAIR: &str = "An upload of the same spec repairs none of this: CloudFormation compares templates, and they are the same. A drift-aware \
                         change set (REVERT_DRIFT) compares with what is there: docs/cli.md, diff.\n";

/// A line for each finding, with its differences and the way back below it; then how many there are of each level.
fn text(all: &[Finding], read: &ClusterRead, cloud: &Cloud, printer: &Printer) -> String {
    let mut text = format!(
        "{} of {} in {}, compared with what {} has\n",
        count(read.stacks.len(), "stack"),
        read.cluster,
        read.region,
        cloud.place()
    );
    for finding in all {
        let colour = match finding.level {
            Level::Differs => Colour::Red,
            Level::Unknown => Colour::Yellow,
            Level::Note => Colour::Cyan,
        };
        let level = printer.paint(colour, &format!("{:<7}", finding.level.word()));
        let _ = writeln!(text, "{level}  {}: {}", plain(&finding.about), plain(&finding.message));
        for one in &finding.differences {
            let side = |value: &Option<String>| match value {
                Some(value) => shortened(&plain(value)),
                None => "nothing".to_owned(),
            };
            let _ = writeln!(
                text,
                "{:7}    {}: rolled out {}, there is {}",
                "",
                plain(&one.property),
                side(&one.expected),
                side(&one.actual)
            );
        }
        if let Some(help) = &finding.help {
            let _ = writeln!(text, "{:7}    {}", "", plain(help));
        }
    }
    if all.iter().any(|finding| finding.level == Level::Differs) {
        text.push_str(NO_REPAIR);
    }
    let number = |level| all.iter().filter(|finding| finding.level == level).count();
    let (differ, unknown, notes) = (number(Level::Differs), number(Level::Unknown), number(Level::Note));
    let _ = writeln!(text, "{}, {unknown} unknown, {}", count(differ, "difference"), count(notes, "note"));
    text
}

/// The most characters of a value that are shown; JSON has all of it.
const LONGEST: usize = 200;

fn shortened(value: &str) -> String {
    match value.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}… ({} characters)", &value[..at], value.chars().count()),
        None => value.to_owned(),
    }
}
