//! `drain` and `uncordon`, run on a controller for any node.
//!
//! [`slipway_core::drain`] decides, as in the simulator. [`observe`] reads the state and [`act`] changes it. When the drain began
//! and when a pod was last forced are annotations of the node, so a drain on another controller continues with the same
//! deadlines.

mod act;
mod observe;
mod options;
#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::drain::{Answer, Policy, decide};
use slipway_core::node::{DrainRecord, Drained, Uncordoned};
use tokio::time::{Instant, sleep};

use crate::api;
use crate::failure::AgentResult;

use observe::{PastTries, observe};
pub use options::{Drain, Uncordon};

/// Without a time limit of its own, a drain gives up after the API server has not answered for this long.
const SILENCE: Duration = Duration::from_secs(300);
/// Pause after a call that failed.
const PAUSE: Duration = Duration::from_secs(2);

/// Pause after another writer was first to change the node.
const LOST_RACE_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// Drains a node until it is empty or the time is over.
pub async fn drain(root: &Path, options: &Drain) -> AgentResult<Drained> {
    let policy = options.policy();
    let end = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut tries = PastTries::default();
    let mut record = DrainRecord::new(&options.node);
    let mut silent: Option<Instant> = None;
    loop {
        // A new client each time: the credentials may have been refreshed.
        let passed = match api::client(root).await {
            Ok(client) => step(&client, &policy, &mut tries, &mut record).await,
            Err(failure) => Err(failure),
        };
        let pause = match passed {
            Ok(None) => return Ok(record.answer(true)),
            Ok(Some(at)) => {
                silent = None;
                time_until(at)
            }
            Err(failure) => {
                let since = *silent.get_or_insert_with(Instant::now);
                let over = end.is_some_and(|end| Instant::now() + PAUSE >= end);
                if !failure.transient || over || (end.is_none() && since.elapsed() >= SILENCE) {
                    return Err(failure);
                }
                PAUSE
            }
        };
        if end.is_some_and(|end| Instant::now() + pause >= end) {
            return Ok(record.answer(false));
        }
        sleep(pause).await;
    }
}

/// Observes, decides, acts. Returns when to continue, or `None` when the node is empty.
async fn step(
    client: &kube::Client,
    policy: &Policy,
    tries: &mut PastTries,
    record: &mut DrainRecord,
) -> AgentResult<Option<Timestamp>> {
    let observation = observe(client, record.node(), tries).await?;
    let now = Timestamp::now();
    let step = decide(&observation.observed, policy, now);
    record.see(observation.observed.node.started, observation.not_ready.as_deref(), &step);
    if step.done {
        return Ok(None);
    }
    if step.begin {
        let begun = act::begin(client, &observation, now).await?;
        if begun {
            print_progress(&json!({ "node": record.node(), "drain": "begins" }));
        }
        return Ok(Some(after_begin(begun, now)));
    }
    remember(act::evict(client, &step.evict).await, now, tries, record)?;
    if let Some(target) = &step.force
        && act::force(client, &observation, target, now).await?
    {
        record.forced(&target.name);
        print_progress(&json!({ "node": record.node(), "forced": target.name.to_string() }));
    }
    Ok(Some(step.look_again.unwrap_or(now)))
}

/// Records every answer that arrived, and then says that one did not: evictions that the API server accepted have begun.
fn remember(
    evicted: Vec<act::Evicted>,
    now: Timestamp,
    tries: &mut PastTries,
    record: &mut DrainRecord,
) -> AgentResult<()> {
    let mut unanswered = Ok(());
    for (target, answer) in evicted {
        match answer {
            Ok(Some(answer)) => {
                if answer == Answer::Accepted {
                    record.evicted(&target.name);
                    print_progress(&json!({ "node": record.node(), "evicted": target.name.to_string() }));
                }
                tries.remember(&target, now, answer);
            }
            Ok(None) => {}
            Err(failure) => unanswered = unanswered.and(Err(failure)),
        }
    }
    unanswered
}

/// When to look at the node after the attempt to begin: at once if it was written, and a little later if another writer was first, who may be
/// writing still. Kubelets and controllers write a Node's status every few seconds, so without a pause this process and the API server could
/// be busy with refused patches.
fn after_begin(begun: bool, now: Timestamp) -> Timestamp {
    if begun { now } else { now.saturating_add(LOST_RACE_PAUSE).unwrap_or(Timestamp::MAX) }
}

pub async fn uncordon(root: &Path, options: &Uncordon) -> AgentResult<Uncordoned> {
    let client = api::client(root).await?;
    act::uncordon(&client, &options.node).await?;
    Ok(Uncordoned { node: options.node.clone(), cordoned: false })
}

fn time_until(at: Timestamp) -> Duration {
    let remaining = at.duration_since(Timestamp::now()).max(SignedDuration::ZERO);
    Duration::try_from(remaining).unwrap_or_default()
}

/// Progress as lines on standard error; standard output carries the one JSON object.
fn print_progress(value: &Value) {
    // The reader of the pipe may be gone.
    let _ = writeln!(std::io::stderr(), "{value}");
}
