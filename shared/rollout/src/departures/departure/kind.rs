//! What kind of departure it is.

use super::{Cause, Departure, DepartureState, Ending};

impl Departure {
    /// Whether a rollout removes it.
    pub(crate) const fn is_of_a_rollout(&self) -> bool {
        match self.cause {
            Cause::Rollout(_) => true,
            Cause::AutoScaling | Cause::Interruption { .. } => false,
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
            | DepartureState::Rest
            | DepartureState::Withdraw { .. }
            | DepartureState::Uncordon { .. } => false,
        }
    }

    /// Whether a rollout removes it, and the command with that token drains it.
    pub(crate) fn drains_by(&self, token: &str) -> bool {
        let DepartureState::Drain { drain, .. } = &self.state else { return false };
        self.is_of_a_rollout() && drain.asked.as_ref().is_some_and(|asked| asked.command.token == token)
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
