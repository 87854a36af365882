//! A machine that is empty: it rests, or is terminated.

use jiff::Timestamp;

use super::super::Scene;
use super::again::LastDrain;
use super::{Cause, Departure, DepartureState, Ending, Hold, STAYS};
use crate::Effect;
use crate::errand::PAUSE;
use crate::patience::{PATIENCE, RECONSIDERED};

impl Departure {
    /// It had no pods any more when the command of that time was sent, so it is terminated.
    pub(super) fn is_empty(
        &mut self,
        id: &str,
        hold: Hold,
        emptied_at: Timestamp,
        scene: &Scene<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if self.rests_once_empty() && !hold.must_go() {
            self.enter(DepartureState::Rest { emptied_at }, scene.now);
            return;
        }
        if hold.must_go() && self.is_of_a_rollout() {
            // Auto Scaling has terminated it meanwhile, and launches another one for it: a surplus machine is then still there.
            self.cause = Cause::Rollout(Ending::Replaced);
        }
        let (group, instance) = (self.group.clone(), id.to_owned());
        let effect = match hold {
            Hold::Hook => Effect::CompleteTermination { group, instance },
            // A retained machine is not part of the desired capacity.
            Hold::Kept => Effect::Terminate { group, instance, then_desired: None },
            Hold::Free => Effect::Terminate { group, instance, then_desired: self.then_desired(scene) },
        };
        self.leaves(&effect, scene.now);
        effects.push(effect);
    }

    /// The desired capacity of its group once it and all other surplus machines are gone. It is the same for each of them, so that it does
    /// not matter which of them is terminated first, or whose call is throttled. If the group already wants no more than that, because
    /// somebody else, such as a cluster autoscaler, has made it smaller, or because it is at its minimum, the machine is not surplus any
    /// more, and another one replaces it.
    fn then_desired(&self, scene: &Scene<'_>) -> Option<u32> {
        let Cause::Rollout(Ending::Surplus { of }) = self.cause else { return None };
        let group = scene.observed.groups.get(&self.group)?.as_ref()?;
        let least = of.saturating_sub(1).max(group.min);
        (group.desired > least).then_some(least)
    }

    /// Auto Scaling refused to terminate it. As a surplus machine it may have been refused because its group is at its minimum: then it is
    /// terminated as a replaced machine. Otherwise it stays and is uncordoned. Returns whether its departure terminated it.
    pub(crate) fn not_terminated(&mut self, reason: &str) -> bool {
        let DepartureState::Leave { requested_at, .. } = self.state else { return false };
        if self.is_surplus() {
            self.cause = Cause::Rollout(Ending::Replaced);
            self.enter(DepartureState::drains(), requested_at);
        } else {
            self.withdraw(Some(reason.to_owned()), requested_at);
        }
        true
    }

    pub(super) fn leave(
        &mut self,
        id: &str,
        requested_at: Timestamp,
        hold: Hold,
        scene: &Scene<'_>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if hold.must_go() && scene.now.duration_since(requested_at) >= PAUSE {
            let (group, instance) = (self.group.clone(), id.to_owned());
            let last = (hold == Hold::Kept).then(LastDrain::default);
            effects.push(if hold == Hold::Hook {
                Effect::CompleteTermination { group, instance }
            } else {
                // Its hook timed out before it could be completed. Terminating it once more starts the hook again.
                Effect::Terminate { group, instance, then_desired: None }
            });
            self.state = DepartureState::Leave { requested_at: scene.now, last };
        }
        // Its termination was decided and did not happen, because the evidence became too old. No pod is left to be evicted.
        if !hold.must_go() && scene.now.duration_since(self.since) > RECONSIDERED {
            return self.enter(DepartureState::drains(), scene.now);
        }
        if self.problem.is_none() && scene.now.duration_since(self.since) > PATIENCE {
            let minutes = PATIENCE.as_mins();
            self.problem = Some(format!("{id} was terminated and is still there after {minutes} minutes"));
        }
        STAYS
    }
}
