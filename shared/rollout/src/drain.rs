//! A node that is being drained: a controller is asked to evict its pods, in rounds of ten minutes, until none is left.
//!
//! Controllers and workers are drained alike; only how long their pods may hold them up differs.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Observed;
use super::errand::{Asked, PAUSE, TRIES};
use super::waits::{Detail, HeldBy, HeldPod};
use slipway_core::node::{Drained, FailureCode, Verb};

/// A round ends after so many seconds, done or not, to say what it waits for; then the next begins.
const ROUND_S: u32 = 600;

/// How far the drain of a node is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Drain {
    /// The round that a controller was asked for; `None`: none was yet, or the last one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// How many rounds failed, one after the other.
    #[serde(default)]
    pub tries: u32,
    /// When the last round failed: the next comes a while after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// What the last round waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldBy>,
}

/// How long pods may hold up a drain that began then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) since: Timestamp,
    pub(super) most: SignedDuration,
}

/// Where a drain stands after a look.
pub(super) enum DrainProgress {
    /// Nobody is asked: a controller is to be.
    Idle,
    /// A controller is at it.
    Runs,
    /// The last round failed a moment ago: the next comes a while after it.
    Pauses,
    /// No pod is left that has to go.
    Empty,
    /// It is given up, and why.
    GivenUp(String),
}

impl Drain {
    /// What a controller is asked for `node`.
    pub(super) fn verb(node: &str, force_after_s: Option<u32>) -> Verb {
        Verb::Drain { node: node.to_owned(), for_s: ROUND_S, force_after_s }
    }

    fn too_late(&self, node: &str, patience: Patience) -> String {
        let hours = patience.most.as_hours();
        let held = self
            .held
            .as_ref()
            .map_or_else(|| "no controller had time for it".to_owned(), ToString::to_string);
        format!("{node} could not be drained within {hours} hours: {held}")
    }

    /// Looks at it once. Without `patience` the node has to go, and is drained for as long as it takes.
    pub(super) fn progress(
        &mut self,
        node: &str,
        observed: &Observed,
        now: Timestamp,
        patience: Option<Patience>,
    ) -> DrainProgress {
        let late = patience.filter(|one| now.duration_since(one.since) > one.most);
        let Some(asked) = &self.asked else {
            if let Some(patience) = late {
                return DrainProgress::GivenUp(self.too_late(node, patience));
            }
            let pauses = self.failed_at.is_some_and(|at| now.duration_since(at) < PAUSE);
            return if pauses { DrainProgress::Pauses } else { DrainProgress::Idle };
        };
        let Some(answer) = asked.answer::<Drained>(observed, now) else { return DrainProgress::Runs };
        // What is no node has no pods.
        let is_no_node = asked.failed_with(observed, FailureCode::DrainNoNode);
        let never_ran = asked.never_ran(observed);
        self.asked = None;
        match answer {
            Ok(answer) if answer.done => DrainProgress::Empty,
            Err(_) if is_no_node => DrainProgress::Empty,
            Ok(answer) => {
                (self.tries, self.failed_at) = (0, None);
                self.held = Some(HeldBy::Pods(HeldPod::of(&answer)));
                match late {
                    Some(patience) => DrainProgress::GivenUp(self.too_late(node, patience)),
                    None => DrainProgress::Idle,
                }
            }
            Err(why) => {
                self.tries += u32::from(!never_ran);
                self.failed_at = Some(now);
                // Also where none ever ran: the controllers that are asked may be out of reach for good.
                if patience.is_some() && self.tries >= TRIES || late.is_some() {
                    let most = self.tries.max(TRIES);
                    return DrainProgress::GivenUp(format!("draining {node} failed {most} times: {why}"));
                }
                self.held = Some(HeldBy::Failure(Detail(why)));
                DrainProgress::Pauses
            }
        }
    }
}

#[cfg(test)]
mod tests;
