//! Where a mistake may be put into a rollout from outside, to see whether it is noticed.

use std::fmt;

use jiff::Timestamp;
use slipway_flows::launch::Waker;
use slipway_rollout::{Decision, Observed, Rollout, decide};

/// Somebody who makes a mistake: sees other things than are there, decides something else, or does not hear.
pub trait Meddler: fmt::Debug + Send + Sync {
    /// What is decided instead.
    fn decide(&self, rollout: &Rollout, observed: &Observed, now: Timestamp) -> Decision {
        decide(rollout, observed, now)
    }

    /// By what the function is woken instead, while its state is that; `None`: it is not.
    fn hears(&self, by: Waker, state: Option<&Rollout>) -> Option<Waker> {
        let _ = state;
        Some(by)
    }
}
