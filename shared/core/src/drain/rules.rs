//! When a drain may do more than evict pods under their disruption budgets.

use jiff::{SignedDuration, Timestamp};

use super::{Observed, Pod, between};
use crate::cluster::RolloutPolicy;

/// How a node is drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// When a pod may be deleted although its budget forbids the eviction. `None`: never.
    pub force: Option<Force>,
    /// What happens to pods with an `emptyDir`.
    pub empty_dir: Treatment,
    /// What happens to bare pods, which nothing recreates.
    pub bare: Treatment,
}

/// What happens to pods that lose something when they are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// They are evicted like others.
    Evict,
    /// The drain waits until a person has deleted them.
    Wait,
}

/// The rules for force: all must hold before a pod is deleted by force, and its eviction must just have been refused because of a
/// disruption budget. They are those of Zalando's cluster-lifecycle-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Force {
    /// How long the drain must have lasted.
    pub after: SignedDuration,
    /// How old the pod must be.
    pub pod_age: SignedDuration,
    /// How long each healthy pod of its budgets must have been healthy: a new pod must have shown that it can serve.
    pub healthy_for: SignedDuration,
    /// How long each unhealthy pod of its budgets must have been unhealthy: somebody must have had time to repair it.
    pub unhealthy_for: SignedDuration,
    /// How long ago the last pod of the node was deleted by force.
    pub interval: SignedDuration,
}

impl Force {
    /// The rules, with the duration after which a drain may be forced.
    #[must_use]
    pub const fn after(after: SignedDuration) -> Self {
        Self {
            after,
            pod_age: SignedDuration::from_hours(72),
            healthy_for: SignedDuration::from_hours(1),
            unhealthy_for: SignedDuration::from_hours(6),
            interval: SignedDuration::from_mins(5),
        }
    }
}

impl Policy {
    /// The policy with `force`. Bare pods and data in an `emptyDir` are evicted: they would be lost with any failing machine as well, and
    /// waiting for them would block the drain for ever.
    #[must_use]
    pub const fn with(force: Option<Force>) -> Self {
        Self { force, empty_dir: Treatment::Evict, bare: Treatment::Evict }
    }

    /// The policy of the spec for the nodes of `pool`, or for controllers.
    #[must_use]
    pub fn from_rollout(rollout: &RolloutPolicy, pool: Option<&str>) -> Self {
        let own = pool.and_then(|name| rollout.pools.get(name)).and_then(|pool| pool.drain_force_after_min);
        let minutes = own.or(rollout.drain_force_after_min);
        Self::with(minutes.map(|minutes| Force::after(SignedDuration::from_mins(minutes.into()))))
    }
}

/// A rule that does not hold yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmet {
    /// When it will hold if nothing changes.
    pub(super) at: Timestamp,
    /// What is too short.
    pub(super) what: Rule,
}

/// The rules, each with the duration that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    Drain(SignedDuration),
    PodAge(SignedDuration),
    Healthy(String, SignedDuration),
    Unhealthy(String, SignedDuration),
    Interval(SignedDuration),
}

impl Force {
    /// The rules that keep `pod` from being deleted at `now`, each with the time from which it holds.
    pub(super) fn unmet(&self, observed: &Observed, pod: &Pod, now: Timestamp) -> Vec<Unmet> {
        let mut unmet = Vec::new();
        let mut demand = |since: Timestamp, long: SignedDuration, what: Rule| {
            if between(since, now) < long {
                // A time too late to represent counts as never.
                unmet.push(Unmet { at: since.checked_add(long).unwrap_or(Timestamp::MAX), what });
            }
        };
        // A node without the annotation gets it before anything else happens, so its drain has just begun.
        demand(observed.node.started.unwrap_or(now), self.after, Rule::Drain(self.after));
        demand(pod.created, self.pod_age, Rule::PodAge(self.pod_age));
        for sibling in pod.budgets.iter().filter_map(|name| observed.budgets.get(name)).flat_map(|b| &b.pods)
        {
            if sibling.name == pod.name {
                continue;
            }
            let name = sibling.name.to_string();
            if sibling.healthy {
                demand(sibling.since, self.healthy_for, Rule::Healthy(name, self.healthy_for));
            } else {
                demand(sibling.since, self.unhealthy_for, Rule::Unhealthy(name, self.unhealthy_for));
            }
        }
        if let Some(last) = observed.node.last_forced {
            demand(last, self.interval, Rule::Interval(self.interval));
        }
        unmet
    }
}
