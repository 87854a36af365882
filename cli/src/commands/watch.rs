//! `slipway watch`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::keys;
use slipway_core::status::{RolloutState, SpecResult, Status};
use slipway_flows::error::FlowError;
use slipway_flows::store;
use slipway_ports::{Listing as _, Objects as _};
use slipway_rollout::{Ignored, Rollout};
use tokio::time::sleep;

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::overview::{Gravity, Overview, Page, Reports, plain};
use crate::printer::Printer;

/// Watch a cluster in AWS until its rollout ends: the output of `slipway status`, refreshed every few seconds, or one line for each
/// change if the output is not a terminal.
///
/// It also waits for a spec that was just uploaded, and for an approval.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  everything is as planned, or nothing had to change
  1  the spec was refused, the rollout failed, the time limit was reached, or there is no such cluster
  2  wrong usage
  3  the asset bucket could not be read

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway watch --cluster prod
  slipway watch --cluster prod --minutes 60 | tee rollout.log
  slipway watch --cluster prod --output json | jq -c 'select(.about == \"rollout\")'")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    pace: Pace,
}

/// How often to look, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Pace {
    /// Seconds between two updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=300))]
    every: u64,
    /// Stop watching after so many minutes; the rollout continues.
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { every: 3, minutes: None }
    }
}

/// How long to wait for a status of the newest upload. It is rendered within seconds; an upload that changes nothing leaves no status.
const TRACE_WITHIN: SignedDuration = SignedDuration::from_secs(60);
/// How many consecutive failures end the watch.
const MOST_FAILURES: u32 = 5;

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    to_the_end(&cloud, &args.pace, &Follow::default(), printer).await
}

/// What a watch is to follow.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    /// Whether a spec was just uploaded. The clocks of this machine and of S3 need not agree about what "just" is.
    pub(crate) uploaded: bool,
    /// Whether everything that was uploaded was there before.
    pub(crate) unchanged: bool,
}

/// What a watch saw last.
#[derive(Debug, Default)]
struct LastOutput {
    lines: BTreeMap<String, String>,
    /// The rollout that the lines are about.
    rollout: (u64, Option<String>),
    failures: u32,
}

/// How long to wait for an order. It is normally processed within seconds; otherwise it was lost or came too late.
const TAKEN_WITHIN: Duration = Duration::from_secs(120);

/// Watches the effect of an order that was just put on the bus, once `taken` says that the rollout has processed it. `before`: the last
/// ignored order until then.
pub(crate) async fn an_order(
    cloud: &Cloud,
    taken: impl Fn(&Rollout) -> bool,
    before: Option<&Ignored>,
    printer: &Printer,
) -> Result<Exit, CliError> {
    let pace = Pace::default();
    let polls = TAKEN_WITHIN.as_secs() / pace.every;
    for _ in 0..polls {
        let rollout = cloud.rollout().await?;
        if taken(&rollout) {
            return to_the_end(cloud, &pace, &Follow::default(), printer).await;
        }
        if let Some(ignored) = rollout.ignored.filter(|ignored| Some(ignored) != before) {
            return Err(CliError::refused(ignored.message, ignored.help));
        }
        sleep(Duration::from_secs(pace.every)).await;
    }
    let problem = format!("the order was not processed within {} seconds", TAKEN_WITHIN.as_secs());
    Err(CliError::refused(
        problem,
        "the log of the rollout function says why, or its dead-letter queue has it; then give it again",
    ))
}

/// The plan of the spec that was just uploaded as `version`. `None`: there is none to approve, and the person was told why.
pub(crate) async fn plan_of(
    cloud: &Cloud,
    version: &str,
    printer: &Printer,
) -> Result<Option<String>, CliError> {
    let name = cloud.cluster.as_str();
    printer.beside("waiting for its plan…\n");
    for _ in 0..TRACE_WITHIN.as_secs() {
        let status = store::load::<Status>(cloud.assets(), &keys::status(name)).await;
        let status = status.map_err(|error| CliError::from(error).in_cloud())?.value;
        if let Some(spec) = status.and_then(|status| status.spec).filter(|spec| spec.version == version) {
            return match (spec.result, spec.plan) {
                (SpecResult::Accepted, Some(plan)) => Ok(Some(plan)),
                (SpecResult::Accepted, None) => Ok(None),
                (SpecResult::Rejected | SpecResult::Failed, _) => {
                    let first = spec.diagnostics.first().map(ToString::to_string).or(spec.failure);
                    let problem = format!("the spec was refused: {}", plain(&first.unwrap_or_default()));
                    Err(CliError::refused(problem, format!("slipway status --cluster {name} shows all")))
                }
            };
        }
        sleep(Duration::from_secs(1)).await;
    }
    printer.beside(&format!("no plan was made: nothing changes. slipway status --cluster {name}\n"));
    Ok(None)
}

/// Watches until there is nothing left to wait for.
pub(crate) async fn to_the_end(
    cloud: &Cloud,
    pace: &Pace,
    follow: &Follow,
    printer: &Printer,
) -> Result<Exit, CliError> {
    let began = Timestamp::now();
    let (mut reports, mut seen) = (Reports::default(), LastOutput::default());
    loop {
        let now = Timestamp::now();
        let looked = match observe(cloud, &mut reports, follow, began, now).await {
            Ok(looked) => {
                seen.failures = 0;
                Some(looked)
            }
            Err(failure) if seen.failures < MOST_FAILURES && failure.is_passing() => {
                seen.failures += 1;
                printer.beside(&format!("cannot read the status: {failure}; trying again\n"));
                None
            }
            Err(failure) => return Err(failure),
        };
        if let Some((view, upload)) = &looked {
            if follow.unchanged && stands_as_uploaded(view) {
                line(printer, view.at, "spec", &nothing_new(&cloud.cluster));
                return Ok(Exit::Done);
            }
            seen.show(view, *upload, printer);
            if let Some(exit) = ended(view, *upload) {
                return Ok(exit);
            }
        }
        let minutes = pace
            .minutes
            .map(|minutes| SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(i64::MAX / 60)));
        if minutes.is_some_and(|most| now.duration_since(began) >= most) {
            let problem = format!("the rollout of {} had not ended in that time", cloud.cluster);
            return Err(CliError::refused(
                problem,
                format!("it goes on: slipway watch --cluster {}", cloud.cluster),
            ));
        }
        sleep(Duration::from_secs(pace.every)).await;
    }
}

/// The state of the newest upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upload {
    /// It was processed, or is so old that it left no status.
    Seen,
    /// It may be in the process of being rendered.
    Fresh,
}

async fn observe(
    cloud: &Cloud,
    reports: &mut Reports,
    follow: &Follow,
    began: Timestamp,
    now: Timestamp,
) -> Result<(Overview, Upload), CliError> {
    // The upload first, so that what is read afterwards is not older.
    let upload = upload(cloud, follow, began, now).await.map_err(CliError::in_cloud)?;
    Ok((Overview::read(cloud, reports, now).await?, upload))
}

/// Whether the newest spec has not been rendered yet.
async fn upload(
    cloud: &Cloud,
    follow: &Follow,
    began: Timestamp,
    now: Timestamp,
) -> Result<Upload, CliError> {
    let (name, specs) = (cloud.cluster.as_str(), cloud.specs().await?);
    let key = keys::spec(name);
    let fresh = |modified: Timestamp| now.duration_since(modified) < TRACE_WITHIN;
    let may_be_new = if follow.uploaded {
        fresh(began)
    } else {
        let listed = specs.list(&key, 1).await.map_err(FlowError::from)?;
        listed.first().is_some_and(|object| object.key == key && fresh(object.modified))
    };
    if !may_be_new {
        return Ok(Upload::Seen);
    }
    let Some(head) = specs.head(&key).await.map_err(FlowError::from)? else { return Ok(Upload::Seen) };
    // The overview reports a status that cannot be read. Everything else about a spec is written before its status.
    let status = store::load::<Status>(cloud.assets(), &keys::status(name)).await.ok();
    let spec = status.and_then(|status| status.value?.spec);
    Ok(if spec.is_some_and(|spec| spec.version == head.version) { Upload::Seen } else { Upload::Fresh })
}

/// Whether the spec that is rolled out succeeded, and nothing else is to come.
fn stands_as_uploaded(view: &Overview) -> bool {
    let rollout = &view.rollout;
    let open = rollout.running || rollout.pending || rollout.waits.is_some();
    let accepted = view.spec.as_ref().is_some_and(|spec| spec.result == SpecResult::Accepted);
    accepted && !open && !view.spec_is_past && rollout.state == RolloutState::Succeeded
}

fn nothing_new(cluster: &str) -> String {
    format!(
        "nothing changes: spec and patches are the same as before, and are rolled out. If Slipway itself was updated since, a plan follows: \
         slipway watch --cluster {cluster}"
    )
}

/// How it ended, if it did.
fn ended(view: &Overview, upload: Upload) -> Option<Exit> {
    let refused =
        !view.spec_is_past && view.spec.as_ref().is_some_and(|spec| spec.result != SpecResult::Accepted);
    let rollout = &view.rollout;
    let open = rollout.running || rollout.pending || rollout.waits.is_some();
    if upload == Upload::Fresh || (open && !(refused && rollout.waits.is_some())) {
        return None;
    }
    let well =
        matches!(rollout.state, RolloutState::Succeeded | RolloutState::Idle | RolloutState::Destroyed);
    Some(if refused || !well { Exit::Findings } else { Exit::Done })
}

impl LastOutput {
    fn show(&mut self, view: &Overview, upload: Upload, printer: &Printer) {
        if printer.is_watched() {
            let wait = if upload == Upload::Fresh {
                "the spec that was uploaded a moment ago is being processed; this is the state before it\n"
            } else {
                ""
            };
            let page = Page { printer, all: false }.text(view);
            printer.redraw(&format!("cluster {} at {}\n{wait}{page}", view.cluster, view.at));
            return;
        }
        for (about, words) in self.news(view, upload) {
            line(printer, view.at, &about, &words);
        }
    }

    /// What changed since the last look. Lines of an earlier rollout, such as those of its stacks, are not taken for news of this one.
    fn news(&mut self, view: &Overview, upload: Upload) -> Vec<(String, String)> {
        let rollout = (view.rollout.generation, view.rollout.plan.clone());
        let lines = lines(view, upload);
        let changed = lines.iter().filter(|(about, words)| self.lines.get(*about) != Some(*words));
        let mut news: Vec<(String, String)> =
            changed.map(|(about, words)| (about.clone(), words.clone())).collect();
        let same = rollout == self.rollout && !view.rollout.stacks.is_empty();
        for about in self.lines.keys().filter(|about| !lines.contains_key(*about)) {
            let gone = match about.split(' ').next() {
                Some("stack") => same || view.rollout.state == RolloutState::Destroyed,
                Some("node" | "certificates") => true,
                // The rest is about the progress of something that has ended.
                _ => false,
            };
            if gone {
                news.push((about.clone(), "is no more".to_owned()));
            }
        }
        (self.lines, self.rollout) = (lines, rollout);
        news
    }
}

fn line(printer: &Printer, at: Timestamp, about: &str, words: &str) {
    let second = at.strftime("%Y-%m-%dT%H:%M:%SZ");
    let machine = json!({ "at": at, "about": about, "message": words });
    printer.line(&format!("{second} {about}: {words}"), &machine);
}

/// The lines to print, by subject. Their words change only when the state does, not with time. While a new spec is being processed, the
/// last one and its rollout are not what the watch is about.
fn lines(view: &Overview, upload: Upload) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    if upload == Upload::Fresh {
        let words = "the spec that was uploaded a moment ago is being processed";
        lines.insert("spec".to_owned(), words.to_owned());
        return lines;
    }
    if let Some(spec) = &view.spec {
        let summary = spec.summary.as_deref().map(|summary| format!(", {summary}")).unwrap_or_default();
        let result = match spec.result {
            _ if view.spec_is_past => "of the cluster that was destroyed",
            SpecResult::Accepted => "accepted",
            SpecResult::Rejected => "refused",
            SpecResult::Failed => "not rendered",
        };
        lines.insert("spec".to_owned(), plain(&format!("{result} (version {}){summary}", spec.version)));
    }
    let rollout = &view.rollout;
    let command = rollout.command.as_ref().map(|command| format!("; next: {command}")).unwrap_or_default();
    lines.insert("rollout".to_owned(), plain(&format!("{}: {}{command}", rollout.state, rollout.message)));
    if let Some(next) = &rollout.next {
        lines.insert("next".to_owned(), plain(next));
    }
    if let Some(progress) = &rollout.progress {
        lines.insert("progress".to_owned(), progress.words());
    }
    for (stack, words) in &rollout.stacks {
        lines.insert(format!("stack {stack}"), plain(words));
    }
    for node in &view.nodes {
        if let Some(words) = node.words() {
            lines.insert(format!("node {} ({})", plain(&node.instance), plain(&node.role)), words);
        }
    }
    // Nodes, spec and rollout have lines of their own.
    for found in
        view.findings.iter().filter(|found| found.gravity == Gravity::Wrong && found.about == "certificates")
    {
        lines.insert("certificates".to_owned(), plain(&found.message));
    }
    lines
}

#[cfg(test)]
mod tests {
    use crate::overview::testing::{view, with_stacks};

    use super::*;

    fn changes(seen: &mut LastOutput, view: &Overview, upload: Upload) -> Vec<String> {
        let news = seen.news(view, upload).into_iter();
        news.map(|(about, words)| format!("{about}: {words}")).collect()
    }

    #[test]
    fn a_watch_of_an_upload_does_not_take_the_old_rollout_for_the_new_one() {
        let mut seen = LastOutput::default();
        let old = with_stacks(view(RolloutState::Succeeded, 4, "old"), &["c-network", "c-pool-a"]);
        let words = ["spec: the spec that was uploaded a moment ago is being processed"];
        assert_eq!(changes(&mut seen, &old, Upload::Fresh), words);
        let begun = with_stacks(view(RolloutState::Running, 5, "new"), &["c-pool-a"]);
        assert_eq!(
            changes(&mut seen, &begun, Upload::Seen),
            ["rollout: running: new", "stack c-pool-a: done"]
        );
    }

    #[test]
    fn stacks_that_stand_are_not_said_to_be_gone_when_another_rollout_begins() {
        let mut seen = LastOutput::default();
        let old = with_stacks(view(RolloutState::Succeeded, 4, "old"), &["c-network", "c-pool-a"]);
        changes(&mut seen, &old, Upload::Seen);
        // A plan that waits has no stacks, and has the number of the rollout before it.
        assert_eq!(
            changes(&mut seen, &view(RolloutState::AboutToBegin, 4, "new"), Upload::Seen),
            ["rollout: about-to-begin: new"]
        );
        let begun = with_stacks(view(RolloutState::Running, 5, "new"), &["c-pool-a"]);
        changes(&mut seen, &begun, Upload::Seen);
        // Within one rollout a stack that is not listed any more is gone.
        let ended = with_stacks(view(RolloutState::Running, 5, "new"), &["c-network"]);
        assert!(changes(&mut seen, &ended, Upload::Seen).contains(&"stack c-pool-a: is no more".to_owned()));
    }

    #[test]
    fn an_upload_of_the_same_is_over_at_once_only_if_what_it_led_to_stands() {
        let accepted = |mut view: Overview| {
            let spec =
                serde_json::from_value(json!({ "version": "v", "result": "accepted", "diagnostics": [] }));
            view.spec = spec.unwrap();
            view
        };
        assert!(stands_as_uploaded(&accepted(view(RolloutState::Succeeded, 4, "old"))));
        assert!(!stands_as_uploaded(&view(RolloutState::Succeeded, 4, "old")), "nothing was rendered yet");
        assert!(
            !stands_as_uploaded(&accepted(view(RolloutState::Failed, 4, "old"))),
            "an upload begins it again"
        );
        let mut next = view(RolloutState::Succeeded, 4, "old");
        next.rollout.pending = true;
        assert!(!stands_as_uploaded(&accepted(next)));
    }
}
