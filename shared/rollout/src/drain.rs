//! Draining a node: a controller evicts its pods, in rounds of ten minutes, until none is left.
//!
//! Controllers and workers are drained in the same way; only the time that their pods may block the drain differs.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Observed;
use super::errand::{RetryDecision, RetryPolicy, RetryState, SentCommand};
use super::outbox::FRESH;
use super::waits::{Detail, HeldBy, HeldPod};
use slipway_core::node::{Drained, FailureCode, Verb};

/// A round ends after this number of seconds, complete or not, and reports what it waits for; then the next one begins.
const ROUND_S: u32 = 600;

/// How long a node counts as empty after the command that emptied it was sent. It is cordoned, but a person may uncordon it while a
/// rollout is paused, and it may register anew without the cordon. A round may take ten minutes of this; draining an empty node again takes
/// seconds.
pub(super) const EMPTY_FOR: SignedDuration = SignedDuration::from_secs(ROUND_S as i64 + FRESH.as_secs());

/// The state of a node's drain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Drain {
    /// The command of the present round; `None` if there was none yet, or the last one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentCommand>,
    /// Rounds that failed.
    #[serde(default)]
    pub tried: RetryState,
    /// What the last round waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldBy>,
}

/// How long pods may block a drain that began at some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) since: Timestamp,
    pub(super) most: SignedDuration,
}

/// The progress of a drain after a look.
pub(super) enum DrainProgress {
    /// No command is open: the next round has to be requested.
    Idle,
    /// A controller is draining.
    Runs,
    /// The last round has just failed: the next one begins a while later.
    Pauses,
    /// No pod is left that has to be evicted.
    Empty {
        /// When the command that found this was sent.
        asked_at: Timestamp,
    },
    /// It is given up, for this reason.
    GivenUp(String),
}

impl Drain {
    /// The command to a controller for `node`.
    pub(super) fn verb(node: &str, force_after_s: Option<u32>) -> Verb {
        Self::verb_for(node, ROUND_S, force_after_s)
    }

    /// As [`Self::verb`], for a round that ends after `for_s` seconds.
    pub(super) fn verb_for(node: &str, for_s: u32, force_after_s: Option<u32>) -> Verb {
        Verb::Drain { node: node.to_owned(), for_s, force_after_s }
    }

    fn too_late(&self, node: &str, patience: Patience) -> String {
        let hours = patience.most.as_hours();
        let held = self
            .held
            .as_ref()
            .map_or_else(|| "no controller had time for it".to_owned(), ToString::to_string);
        format!("{node} could not be drained within {hours} hours: {held}")
    }

    /// Looks at the drain once. Without `patience` the node has to leave, and is drained for as long as that takes.
    pub(super) fn progress(
        &mut self,
        node: &str,
        observed: &Observed,
        now: Timestamp,
        patience: Option<Patience>,
    ) -> DrainProgress {
        let late = patience.filter(|one| now.duration_since(one.since) > one.most);
        let Some(sent) = &self.sent else {
            if let Some(patience) = late {
                return DrainProgress::GivenUp(self.too_late(node, patience));
            }
            let pauses = self.tried.pauses(now, RetryPolicy::DRAIN);
            return pauses.map_or(DrainProgress::Idle, |_| DrainProgress::Pauses);
        };
        let Some(answer) = sent.answer::<Drained>(observed, now) else { return DrainProgress::Runs };
        // A machine that is not a node has no pods. It may become one at any time, so an old answer says nothing, as after a pause.
        let is_no_node = sent.failed_with(observed, FailureCode::DrainNoNode);
        let asked_at = sent.at;
        let age = now.duration_since(asked_at);
        let has_reached = sent.has_reached(observed);
        if has_reached {
            self.tried.record_reached();
        }
        self.sent = None;
        match answer {
            Ok(answer) if answer.done && age > EMPTY_FOR => DrainProgress::Idle,
            Err(_) if is_no_node && age > FRESH => DrainProgress::Idle,
            Ok(answer) if answer.done => DrainProgress::Empty { asked_at },
            Err(_) if is_no_node => DrainProgress::Empty { asked_at },
            Ok(answer) => {
                self.tried = RetryState::default();
                self.held = Some(HeldBy::Pods(HeldPod::first_three(&answer)));
                match late {
                    Some(patience) => DrainProgress::GivenUp(self.too_late(node, patience)),
                    None => DrainProgress::Idle,
                }
            }
            Err(why) => {
                let verdict = self.tried.failed(has_reached, asked_at, &why, now, RetryPolicy::DRAIN);
                match verdict {
                    RetryDecision::Unreached(lasting) if patience.is_some() => {
                        DrainProgress::GivenUp(format!(
                            "draining {node}: no controller could be reached for {} minutes: {why}",
                            lasting.as_mins()
                        ))
                    }
                    RetryDecision::TooOften if patience.is_some() => DrainProgress::GivenUp(format!(
                        "draining {node} failed {} times: {why}",
                        self.tried.tries
                    )),
                    RetryDecision::Again | RetryDecision::TooOften | RetryDecision::Unreached(_) => {
                        self.held = Some(HeldBy::Failure(Detail(why)));
                        late.map_or(DrainProgress::Pauses, |patience| {
                            DrainProgress::GivenUp(self.too_late(node, patience))
                        })
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
