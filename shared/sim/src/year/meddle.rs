//! Deliberate mistakes that a test puts around the decision, to see whether the checker reports them.

use std::fmt;

use jiff::Timestamp;
use slipway_flows::rollout::Waker;
use slipway_rollout::{Decision, Observed, Rollout, decide};

/// A deliberate mistake: the decision sees other things than are there, is replaced by another one, or does not receive orders.
pub trait Meddler: fmt::Debug + Send + Sync {
    /// The decision that is made instead.
    fn decide(&self, rollout: &Rollout, observed: &Observed, now: Timestamp) -> Decision {
        decide(rollout, observed, now)
    }

    /// The wake that the function receives instead, given its state; `None`: it is not woken.
    fn intercept_wake(&self, by: Waker, state: Option<&Rollout>) -> Option<Waker> {
        let _ = state;
        Some(by)
    }
}
