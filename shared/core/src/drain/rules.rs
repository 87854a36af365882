//! What a drain may do besides evicting under budgets.

use jiff::{SignedDuration, Timestamp};

use super::{Observed, Pod, between};
use crate::cluster::RolloutPolicy;

/// How a node is drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// When a pod may be deleted though its budget forbids it; `None`: never.
    pub force: Option<Force>,
    /// What becomes of pods with data of their own.
    pub empty_dir: Treatment,
    /// What becomes of pods that nobody makes again.
    pub bare: Treatment,
}

/// What becomes of pods that lose something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// They are evicted like others.
    Evict,
    /// The drain waits until a person has seen to them.
    Wait,
}

/// All of these must hold before a pod is deleted by force, and its eviction must just have been refused because of a
/// budget. They are Zalando's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Force {
    /// How long the node has been drained.
    pub after: SignedDuration,
    /// How old the pod is.
    pub pod_age: SignedDuration,
    /// For how long each healthy pod of its budgets has been healthy: a new one must have shown that it can serve.
    pub healthy_for: SignedDuration,
    /// For how long each unhealthy one has been that: somebody must have had the time to mend it.
    pub unhealthy_for: SignedDuration,
    /// How long no pod of the node was deleted by force.
    pub interval: SignedDuration,
}

impl Force {
    /// The rules, for nodes that have been drained so long.
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
    /// Data in an `emptyDir` and pods of their own are lost with any node: a machine that fails asks nobody. So they go,
    /// and a drain ends.
    #[must_use]
    pub const fn with(force: Option<Force>) -> Self {
        Self { force, empty_dir: Treatment::Evict, bare: Treatment::Evict }
    }

    /// How nodes are drained by the spec: those of `pool`, or controllers.
    #[must_use]
    pub fn of(rollout: &RolloutPolicy, pool: Option<&str>) -> Self {
        let own = pool.and_then(|name| rollout.pools.get(name)).and_then(|pool| pool.drain_force_after_min);
        let minutes = own.or(rollout.drain_force_after_min);
        Self::with(minutes.map(|minutes| Force::after(SignedDuration::from_mins(minutes.into()))))
    }
}

/// A rule that does not hold yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmet {
    /// When it will, if nothing changes.
    pub(super) at: Timestamp,
    /// What is too short.
    pub(super) what: Rule,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    Drain(SignedDuration),
    PodAge(SignedDuration),
    Healthy(String, SignedDuration),
    Unhealthy(String, SignedDuration),
    Interval(SignedDuration),
}

impl Force {
    /// Which of the rules keep `pod` from being deleted at `now`, each with the moment at which it will not.
    pub(super) fn unmet(&self, observed: &Observed, pod: &Pod, now: Timestamp) -> Vec<Unmet> {
        let mut unmet = Vec::new();
        let mut demand = |since: Timestamp, long: SignedDuration, what: Rule| {
            if between(since, now) < long {
                // An instant at the end of time is as good as never.
                unmet.push(Unmet { at: since.checked_add(long).unwrap_or(Timestamp::MAX), what });
            }
        };
        // A node without the annotation is begun with, before anything else.
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
