//! A machine that EC2 interrupts: it is drained at once, and rests until it is gone.

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::Verb;
use slipway_core::role::Role;

use super::super::Scene;
use super::{Cause, Departure, DepartureState, Ending};
use crate::drain::Drain;
use crate::waits::HowFar;

/// How long a notice counts. EC2 interrupts the machine two minutes after it; the rest is for an event, a clock or a look that is late.
/// A machine that is still in service after this time was not interrupted.
pub(in super::super) const NOTICE_COUNTS: SignedDuration = SignedDuration::from_mins(10);

/// A round of the drain of such a machine ends after this number of seconds, because the machine does not run longer than that. A round of
/// the usual length would keep its controller waiting for pods that are lost.
pub(in super::super) const NOTICE_S: u32 = 120;

impl Departure {
    /// The departure of a machine that EC2 interrupts, by its notice of the time `at`.
    pub(in super::super) fn by_interruption(
        role: Role,
        group: &str,
        force_after_s: Option<u32>,
        at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let one = Self::by_auto_scaling(role, group, force_after_s, now);
        Self { cause: Cause::Interruption { at }, ..one }
    }

    /// EC2 interrupts a machine that has a departure already. A drain goes on, and nobody can hold it or take it back any more. If the machine
    /// was to stay, it is drained.
    pub(in super::super) fn goes_after_all(&mut self, at: Timestamp, now: Timestamp) {
        match self.state {
            DepartureState::Leave { .. } | DepartureState::Rest { .. } => {}
            DepartureState::Drain { .. } if self.is_of_an_interruption() => {}
            DepartureState::Drain { .. } => self.cause = Cause::Interruption { at },
            DepartureState::Withdraw { .. } | DepartureState::Uncordon { .. } => {
                self.cause = Cause::Interruption { at };
                self.drains_after_all(now);
            }
        }
    }

    /// Whether EC2 interrupts it in this moment.
    pub(in super::super) fn is_urgent(&self, now: Timestamp) -> bool {
        match self.cause {
            Cause::Interruption { at } => now.duration_since(at) <= NOTICE_COUNTS,
            Cause::Rollout(_) | Cause::AutoScaling => false,
        }
    }

    /// Whether EC2's notice is why it is removed.
    pub(crate) const fn is_of_an_interruption(&self) -> bool {
        match self.cause {
            Cause::Interruption { .. } => true,
            Cause::Rollout(_) | Cause::AutoScaling => false,
        }
    }

    /// Whether a machine in service is still to go: its rollout continues, or EC2 may still interrupt it.
    pub(super) fn is_still_leaving(&self, scene: &Scene<'_>) -> bool {
        match self.cause {
            Cause::Rollout(_) | Cause::AutoScaling => scene.rollout_continues,
            Cause::Interruption { .. } => self.is_urgent(scene.now),
        }
    }

    /// Whether nobody terminates it once it is empty: EC2 does so, or its stack is deleted with it.
    pub(super) const fn rests_once_empty(&self) -> bool {
        match self.cause {
            Cause::Rollout(Ending::Rests) | Cause::Interruption { .. } => true,
            Cause::Rollout(Ending::Replaced | Ending::Surplus { .. }) | Cause::AutoScaling => false,
        }
    }

    pub(super) const fn empty_in_words(&self) -> HowFar {
        if self.is_of_an_interruption() { HowFar::Interrupted } else { HowFar::Empty }
    }

    /// The command that drains it.
    pub(super) fn drain_verb(&self, id: &str, now: Timestamp) -> Verb {
        if self.is_urgent(now) {
            Drain::verb_for(id, NOTICE_S, self.force_after_s)
        } else {
            Drain::verb(id, self.force_after_s)
        }
    }
}
