//! `slipway history`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use slipway_core::keys;
use slipway_core::status::RolloutState;
use slipway_core::words::{count, moment};
use slipway_flows::store::{self, AT_A_TIME};
use slipway_plan::{Plan, PlanKind};
use slipway_rollout::{Rollout, RolloutResult};

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::overview::plain;
use crate::printer::{Colour, Printer};

/// Show the rollouts of a cluster in AWS, the newest first: when each began and ended, what it was for, its result, and whether a person approved it.
///
/// Only the installation's asset bucket is read. The state of the rollout keeps the last 30 rollouts that have ended. Who approved a plan is in
/// CloudTrail, as the caller of PutEvents.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Kinds:
  launch         nothing stood before
  minor upgrade  another minor of Kubernetes or etcd
  renewal        other credentials of etcd members and controllers, and nothing else
  look           nothing changed; the cluster was looked at
  change         anything else

Exit codes:
  0  shown
  1  there is no such cluster, or nothing was planned for it yet
  2  wrong usage
  3  the asset bucket could not be read

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway history --cluster prod
  slipway history --cluster prod --output json | jq '.rollouts[] | select(.result == \"failed\").message'")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
}

/// A rollout in one line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    generation: u64,
    plan: String,
    /// `running`, or how it ended.
    result: RolloutState,
    /// `None`: the plan is not stored any more.
    kind: Option<PlanKind>,
    /// The plan in one line.
    summary: Option<String>,
    approved: bool,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    seconds: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let rollout = cloud.rollout().await?;
    let with_plans = lines(&rollout).into_iter().map(|line| with_plan(&cloud, line));
    let lines: Vec<Line> = stream::iter(with_plans).buffered(AT_A_TIME).try_collect().await?;
    let destroyed_at = rollout.last_destroyed().map(|gone| gone.at);
    let machine =
        json!({ "ok": true, "cluster": cloud.cluster, "rollouts": lines, "destroyedAt": destroyed_at });
    printer.result(&text(&cloud.cluster, &lines, destroyed_at, printer), &machine);
    Ok(Exit::Done)
}

/// The rollouts that the state knows, the newest first. Those that ended before it kept all of them are known by what it kept then: the successful
/// ones, and the last one.
fn lines(rollout: &Rollout) -> Vec<Line> {
    let line = |generation, plan: &str, result: RolloutState| Line {
        generation,
        plan: plan.to_owned(),
        result,
        kind: None,
        summary: None,
        approved: false,
        started_at: None,
        ended_at: None,
        seconds: None,
        message: String::new(),
    };
    let mut all: BTreeMap<u64, Line> = BTreeMap::new();
    for good in &rollout.rollback_targets {
        let known = line(good.generation, &good.plan, RolloutResult::Succeeded.into());
        let (started_at, ended_at) = (Some(good.started_at), Some(good.ended_at));
        all.insert(good.generation, Line { approved: good.approved, started_at, ended_at, ..known });
    }
    for past in &rollout.past {
        let known = line(past.generation, &past.plan, past.result.into());
        let (started_at, ended_at) = (past.started_at, Some(past.ended_at));
        let message = past.message.clone();
        all.insert(past.generation, Line { approved: past.approved, started_at, ended_at, message, ..known });
    }
    if let Some(active) = rollout.active() {
        let known = line(rollout.generation, &active.plan, RolloutState::Running);
        let started_at = Some(active.started_at);
        all.insert(rollout.generation, Line { approved: active.approved, started_at, ..known });
    }
    let mut all: Vec<Line> = all.into_values().rev().collect();
    if let Some(last) = &rollout.last
        && !all.iter().any(|line| line.ended_at == Some(last.ended_at))
        && rollout.active().is_none()
    {
        let known = line(rollout.generation, &last.plan, last.result.into());
        let (ended_at, message) = (Some(last.ended_at), last.message.clone());
        all.insert(0, Line { ended_at, message, ..known });
    }
    for line in &mut all {
        line.seconds = line.started_at.zip(line.ended_at).map(|(from, to)| to.as_second() - from.as_second());
    }
    all
}

/// The line with what its plan says, if that is stored and can be read.
async fn with_plan(cloud: &Cloud, line: Line) -> Result<Line, CliError> {
    let stored = store::load::<Plan>(cloud.assets(), &keys::plan(&cloud.cluster, &line.plan)).await;
    let plan = match stored {
        Ok(stored) => stored.value,
        Err(slipway_flows::error::FlowError::Corrupt { .. }) => None,
        Err(error) => return Err(CliError::from(error).in_cloud()),
    };
    let (kind, summary) = (plan.as_ref().map(Plan::kind), plan.as_ref().map(Plan::summary));
    Ok(Line { kind, summary, ..line })
}

fn text(cluster: &str, lines: &[Line], destroyed_at: Option<Timestamp>, printer: &Printer) -> String {
    let mut text = format!("{cluster}: {}, the newest first\n", count(lines.len(), "rollout"));
    for line in lines {
        let colour = match line.result {
            RolloutState::Succeeded => Colour::Green,
            RolloutState::Failed => Colour::Red,
            RolloutState::Idle
            | RolloutState::AboutToBegin
            | RolloutState::WaitingForApproval
            | RolloutState::Running
            | RolloutState::Paused
            | RolloutState::Aborting
            | RolloutState::Stuck
            | RolloutState::Superseded
            | RolloutState::Aborted
            | RolloutState::Destroying
            | RolloutState::Destroyed => Colour::Yellow,
        };
        let kind = line.kind.map_or("unknown", PlanKind::word);
        let result = printer.paint(colour, &format!("{:<10}", line.result.as_str()));
        let when = match (line.started_at, line.ended_at) {
            (Some(from), Some(_)) => {
                format!("{}, took {}", moment(from), line.seconds.map(took).unwrap_or_default())
            }
            (Some(from), None) => format!("{}, still open", moment(from)),
            (None, Some(to)) => format!("{}, refused before it began", moment(to)),
            (None, None) => String::new(),
        };
        let approved = if line.approved { ", approved by a person" } else { "" };
        let _ = writeln!(text, "{:>5}  {kind:<13}  {result}  {when}{approved}", line.generation);
        let summary = line.summary.as_deref().unwrap_or("it is not stored any more");
        let _ = writeln!(text, "       plan {}: {}", line.plan, plain(summary));
        if !line.message.is_empty() {
            let _ = writeln!(text, "       {}", plain(&line.message));
        }
    }
    if let Some(at) = destroyed_at {
        let _ = writeln!(text, "destroyed at {}", moment(at));
    }
    text
}

/// A duration in the unit that fits.
fn took(seconds: i64) -> String {
    match seconds {
        ..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::Value;

    use super::*;

    fn rollout(more: Value) -> Rollout {
        let mut state = serde_json::to_value(Rollout::new("c")).unwrap();
        state.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(state).unwrap()
    }

    #[test]
    fn what_ended_before_all_were_kept_is_known_by_what_was_kept_then() {
        let at = |minute: u32| format!("2026-11-27T12:{minute:02}:00Z");
        let good = json!({"generation": 2, "specVersion": "v", "plan": "p2", "target": "t", "approved": true,
            "startedAt": at(1), "endedAt": at(4)});
        let last = json!({"plan": "p3", "specVersion": "v", "target": "t", "result": "failed", "message": "why",
            "endedAt": at(9), "steps": []});
        let old = rollout(json!({"generation": 3, "rollbackTargets": [good], "last": last}));
        let show = |lines: &[Line]| -> Vec<(u64, String, Option<i64>, String)> {
            let one =
                |line: &Line| (line.generation, line.result.to_string(), line.seconds, line.message.clone());
            lines.iter().map(one).collect()
        };
        let expected = [
            (3, "failed".to_owned(), None, "why".to_owned()),
            (2, "succeeded".to_owned(), Some(180), String::new()),
        ];
        assert_eq!(show(&lines(&old)), expected);
        // The same rollout as the state keeps it now: it is told once, and with its beginning.
        let past = json!({"generation": 3, "plan": "p3", "result": "failed", "startedAt": at(5), "endedAt": at(9), "message": "why"});
        let new = rollout(json!({"generation": 3, "rollbackTargets": [good], "last": last, "past": [past]}));
        let told = show(&lines(&new));
        assert_eq!((told.len(), &told[0]), (2, &(3, "failed".to_owned(), Some(240), "why".to_owned())));
        assert_eq!([took(119), took(120), took(7_260)], ["119 s", "2 min", "2 h 1 min"]);
    }
}
