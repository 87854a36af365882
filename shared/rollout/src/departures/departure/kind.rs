//! What kind of departure it is.

use jiff::Timestamp;

use super::{Cause, Departure, DepartureState, Ending};

impl Departure {
    /// Whether a rollout removes it.
    pub(crate) const fn is_of_a_rollout(&self) -> bool {
        match self.cause {
            Cause::Rollout(_) => true,
            Cause::AutoScaling | Cause::Interruption { .. } => false,
        }
    }

    /// Whether a rollout drains it, or has drained it.
    pub(crate) const fn goes_by_a_rollout(&self) -> bool {
        self.is_of_a_rollout()
            && matches!(self.state, DepartureState::Drain { .. } | DepartureState::Rest { .. })
    }

    /// When the command was sent that found it empty; `None` if none has, or if it is not to stay empty.
    pub(crate) const fn emptied_at(&self) -> Option<Timestamp> {
        match self.state {
            DepartureState::Rest { emptied_at } => Some(emptied_at),
            DepartureState::Drain { .. }
            | DepartureState::Leave { .. }
            | DepartureState::Withdraw { .. }
            | DepartureState::Uncordon { .. } => None,
        }
    }

    /// It is empty and is drained once more: a person may have uncordoned it since.
    pub(crate) fn drains_anew(&mut self, now: Timestamp) {
        self.enter(DepartureState::drains(), now);
    }

    /// The time before `now` does not count: its rollout was paused. If it was empty, a person may have uncordoned it meanwhile.
    pub(crate) fn resumed(&mut self, now: Timestamp) {
        self.since = self.since.max(now);
        if self.goes_by_a_rollout() && self.emptied_at().is_some() {
            self.drains_anew(now);
        }
    }

    /// Whether it is being drained.
    pub(crate) const fn drains(&self) -> bool {
        matches!(self.state, DepartureState::Drain { .. })
    }

    /// Whether its pods may hold it for as long as they like: it is drained, or it waits in its terminate hook, where it is drained again.
    pub(crate) const fn may_be_held(&self) -> bool {
        match &self.state {
            DepartureState::Drain { .. } => true,
            DepartureState::Leave { last: Some(last), .. } => last.drain.held.is_some(),
            DepartureState::Leave { last: None, .. }
            | DepartureState::Rest { .. }
            | DepartureState::Withdraw { .. }
            | DepartureState::Uncordon { .. } => false,
        }
    }

    /// Whether a rollout removes it, and the command with that token drains it.
    pub(crate) fn drains_by(&self, token: &str) -> bool {
        let DepartureState::Drain { drain, .. } = &self.state else { return false };
        self.is_of_a_rollout() && drain.sent.as_ref().is_some_and(|sent| sent.command.token == token)
    }

    /// Whether a rollout removes it, and no command was sent for it yet, or Run Command took none of them.
    pub(crate) const fn is_unsent(&self) -> bool {
        self.is_of_a_rollout() && self.rounds == self.unsent && self.drains()
    }

    /// Whether no machine replaces it.
    pub(crate) const fn is_surplus(&self) -> bool {
        matches!(self.cause, Cause::Rollout(Ending::Surplus { .. }))
    }

    /// Whether it is being drained, and no machine replaces it.
    pub(crate) fn is_drained_as_surplus(&self) -> bool {
        self.is_surplus() && self.drains()
    }
}
