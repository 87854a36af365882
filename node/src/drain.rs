//! `drain` and `uncordon`: emptying a node of its pods, and giving it back. On a controller, for any node.
//!
//! What is done is decided by [`slipway_core::drain`], as in the simulator; here it is looked ([`observe`]) and done
//! ([`act`]). What a drain must remember lies on the node: whoever drains it next, here or on another controller, goes on
//! with the same deadlines.

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
use crate::failure::Outcome;

use observe::{Memory, look};
pub use options::{Drain, Uncordon};

/// How long the API server may be silent before a drain that has all the time there is gives up.
const SILENCE: Duration = Duration::from_secs(300);
/// How long to wait after a call that did not come through.
const PAUSE: Duration = Duration::from_secs(2);

/// Drains a node until it is empty, or the time is over.
///
/// # Errors
/// If there is no such node, or the API server does not answer for long.
pub async fn drain(root: &Path, options: &Drain) -> Outcome<Drained> {
    let policy = options.policy();
    let end = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut memory = Memory::default();
    let mut record = DrainRecord::new(&options.node);
    let mut silent: Option<Instant> = None;
    loop {
        // Each time anew: the credentials may have been refreshed meanwhile.
        let passed = match api::client(root).await {
            Ok(client) => pass(&client, &policy, &mut memory, &mut record).await,
            Err(failure) => Err(failure),
        };
        let again = match passed {
            Ok(None) => return Ok(record.answer(true)),
            Ok(Some(at)) => {
                silent = None;
                until(at)
            }
            Err(failure) => {
                let since = *silent.get_or_insert_with(Instant::now);
                let over = end.is_some_and(|end| Instant::now() + PAUSE >= end);
                if !failure.passing || over || (end.is_none() && since.elapsed() >= SILENCE) {
                    return Err(failure);
                }
                PAUSE
            }
        };
        if end.is_some_and(|end| Instant::now() + again >= end) {
            return Ok(record.answer(false));
        }
        sleep(again).await;
    }
}

/// Looks, decides and does what was decided; gives when to look again, or nothing when the node is empty.
async fn pass(
    client: &kube::Client,
    policy: &Policy,
    memory: &mut Memory,
    record: &mut DrainRecord,
) -> Outcome<Option<Timestamp>> {
    let scene = look(client, record.node(), memory).await?;
    let now = Timestamp::now();
    let step = decide(&scene.observed, policy, now);
    record.see(scene.observed.node.started, scene.not_ready.as_deref(), &step);
    if step.done {
        return Ok(None);
    }
    if step.begin {
        if act::begin(client, &scene, now).await? {
            tell(&json!({ "node": record.node(), "drain": "begins" }));
        }
        return Ok(Some(now));
    }
    for (target, answer) in act::evict(client, &step.evict).await? {
        let Some(answer) = answer else { continue };
        if answer == Answer::Accepted {
            record.evicted(&target.name);
            tell(&json!({ "node": record.node(), "evicted": target.name.to_string() }));
        }
        memory.remember(&target, now, answer);
    }
    if let Some(target) = &step.force
        && act::force(client, &scene, target, now).await?
    {
        record.forced(&target.name);
        tell(&json!({ "node": record.node(), "forced": target.name.to_string() }));
    }
    Ok(Some(step.look_again.unwrap_or(now)))
}

/// Lets pods come to a node again, and forgets its drain.
///
/// # Errors
/// If there is no such node, or the API server does not answer.
pub async fn uncordon(root: &Path, options: &Uncordon) -> Outcome<Uncordoned> {
    let client = api::client(root).await?;
    act::uncordon(&client, &options.node).await?;
    Ok(Uncordoned { node: options.node.clone(), cordoned: false })
}

fn until(at: Timestamp) -> Duration {
    let left = at.duration_since(Timestamp::now()).max(SignedDuration::ZERO);
    Duration::try_from(left).unwrap_or_default()
}

/// Progress, a line each, beside the one object that the verb prints in the end.
fn tell(value: &Value) {
    // Whoever asked may be gone.
    let _ = writeln!(std::io::stderr(), "{value}");
}
