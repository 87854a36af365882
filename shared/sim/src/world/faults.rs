//! Injected faults.

use super::World;
use super::error::{ApiError, ApiResult};

/// The phase in which an injected failure happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// While a resource is created or updated.
    Forward,
    /// While an update is rolled back.
    Rollback,
    /// While a resource is deleted: by a deletion, the rollback of a creation, or the cleanup after an update.
    Delete,
}

#[derive(Debug, Clone)]
struct Failure {
    /// A logical id or a type.
    selector: String,
    phase: Phase,
    reason: String,
    times: usize,
}

#[derive(Debug, Clone)]
struct Refusal {
    action: String,
    error: fn(&str) -> ApiError,
    times: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    failures: Vec<Failure>,
    refusals: Vec<Refusal>,
}

impl World {
    /// The next `times` creations or updates of resources whose logical id or type is `selector` fail with `reason`.
    pub fn fail(&mut self, selector: &str, reason: &str, times: usize) {
        self.fail_during(Phase::Forward, selector, reason, times);
    }

    /// As [`World::fail`], in another phase.
    pub fn fail_during(&mut self, phase: Phase, selector: &str, reason: &str, times: usize) {
        let (selector, reason) = (selector.to_owned(), reason.to_owned());
        self.faults.failures.push(Failure { selector, phase, reason, times });
    }

    /// The next `times` calls of `action` (`*`: of any action) are throttled: `Throttling: Rate exceeded`.
    pub fn throttle(&mut self, action: &str, times: usize) {
        self.refuse(action, |_| ApiError::throttling(), times);
    }

    /// The next `times` calls of `action` (`*`: of any action) are denied: `AccessDenied`.
    pub fn deny(&mut self, action: &str, times: usize) {
        self.refuse(action, ApiError::access_denied, times);
    }

    /// Whether an injected fault has not happened yet. A test whose fault never happens proves nothing.
    #[must_use]
    pub fn faults_pending(&self) -> bool {
        self.faults.failures.iter().any(|one| one.times > 0)
            || self.faults.refusals.iter().any(|one| one.times > 0)
    }

    fn refuse(&mut self, action: &str, error: fn(&str) -> ApiError, times: usize) {
        self.faults.refusals.push(Refusal { action: action.to_owned(), error, times });
    }

    /// Every API action begins here: it is counted, and refused if a fault says so.
    pub(super) fn enter(&mut self, action: &'static str) -> ApiResult<()> {
        *self.calls.entry(action).or_default() += 1;
        self.gets_through(action)?;
        let throttled = self.fleet.faults.throttled;
        if self.chance("throttled", throttled) {
            return Err(ApiError::throttling());
        }
        let refusals = &mut self.faults.refusals;
        let hit =
            refusals.iter_mut().find(|one| one.times > 0 && (one.action == "*" || one.action == action));
        match hit {
            None => Ok(()),
            Some(refusal) => {
                refusal.times -= 1;
                Err((refusal.error)(action))
            }
        }
    }

    pub(super) fn take_failure(&mut self, phase: Phase, logical_id: &str, kind: &str) -> Option<String> {
        let hit = self.faults.failures.iter_mut().find(|one| {
            one.times > 0 && one.phase == phase && (one.selector == logical_id || one.selector == kind)
        });
        if let Some(hit) = hit {
            hit.times -= 1;
            return Some(hit.reason.clone());
        }
        let faults = self.fleet.faults;
        let struck = match phase {
            Phase::Forward => self.chance("resource fails", faults.resource_fails),
            Phase::Rollback => self.chance("rollback fails", faults.rollback_fails),
            // Each deletion decides this itself: see `World::removed`.
            Phase::Delete => false,
        };
        struck
            .then(|| format!("{kind} {logical_id}: Internal Failure (Service: simulated, Status Code: 500)"))
    }
}
