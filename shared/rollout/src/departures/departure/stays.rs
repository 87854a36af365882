//! A machine that stays after all: its drain is cancelled, and it is uncordoned.

use jiff::Timestamp;
use slipway_core::node::{FailureCode, Uncordoned, Verb};

use super::super::{Scene, Slots};
use super::{Departure, DepartureState, GONE, STAYS};
use crate::errand::{PAUSE, RetryPolicy, RetryState, SentCommand};
use crate::{Effect, Observed};

impl Departure {
    /// Cancels its drain repeatedly until it has ended: Run Command may not list the command yet, and does not guarantee the cancellation.
    pub(super) fn take_back(&mut self, scene: &Scene<'_>, effects: &mut Vec<Effect>) -> bool {
        let now = scene.now;
        let DepartureState::Withdraw { sent, cancelled_at } = &mut self.state else { return STAYS };
        let Some(sent) = sent.as_ref().filter(|sent| still_runs(sent, scene.observed, now)) else {
            return self.enter(DepartureState::Uncordon { sent: None, tried: RetryState::default() }, now);
        };
        if cancelled_at.is_none_or(|at| now.duration_since(at) >= PAUSE) {
            effects.extend(sent.take_back());
            *cancelled_at = Some(now);
        }
        STAYS
    }

    pub(super) fn uncordon(
        &mut self,
        id: &str,
        scene: &Scene<'_>,
        slots: &mut Slots,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let is_of_a_rollout = self.is_of_a_rollout();
        let DepartureState::Uncordon { sent, tried } = &mut self.state else { return STAYS };
        if scene.paused && scene.rollout_continues && is_of_a_rollout {
            return STAYS;
        }
        if let Some(last) = sent {
            match last.answer::<Uncordoned>(scene.observed, scene.now) {
                None => return STAYS,
                Some(Ok(_)) => return GONE,
                Some(Err(_)) if last.failed_with(scene.observed, FailureCode::DrainNoNode) => return GONE,
                Some(Err(why)) => {
                    let reached = last.has_reached(scene.observed);
                    // It stays until it is uncordoned, whatever the verdict.
                    tried.failed(reached, last.at, &why, scene.now, RetryPolicy::UNCORDON);
                    *sent = None;
                }
            }
        }
        // A whole pool may have to be uncordoned at once.
        if tried.pauses(scene.now, RetryPolicy::UNCORDON).is_none()
            && slots.uncordons > 0
            && let Some(next) = self.ask(id, Verb::Uncordon { node: id.to_owned() }, scene, effects)
            && let Some(sent) = self.state.command_mut()
        {
            slots.uncordons -= 1;
            *sent = Some(next);
        }
        STAYS
    }
}

/// Whether a cancelled drain may still run.
pub(super) fn still_runs(sent: &SentCommand, observed: &Observed, now: Timestamp) -> bool {
    let is_late = sent.is_older_than(sent.command.verb.answers_within(), now);
    sent.outcome(observed, now).is_none() && !is_late
}
