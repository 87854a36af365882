//! The urgency of a rollout: it is computed at every decision from the expiry of the certificates in use and the clock (P7).
//!
//! If certificates expire soon, the rollout ignores maintenance windows and approval, and the health of all machines counts as always. Only
//! if certificates have expired, the health of others is not waited for. A pause stays in force (P10), and the status says what it
//! endangers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::deadline::Urgency;
use slipway_core::role::Role;
use slipway_core::words::moment;
use slipway_plan::Plan;

use super::super::Rollout;
use super::{Nodes, window_is_open};

/// What a rollout does not wait for if certificates expire soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Held {
    /// The approval of a person.
    Approval,
    /// A maintenance window.
    Window,
}

/// Which machines depend on each other's health: those of one kind.
const fn is_same_kind(one: &Role, other: &Role) -> bool {
    matches!(
        (one, other),
        (Role::Etcd(_), Role::Etcd(_))
            | (Role::Controller, Role::Controller)
            | (Role::Pool(_), Role::Pool(_))
    )
}

const fn is_pool(role: &Role) -> bool {
    matches!(role, Role::Pool(_))
}

impl Nodes {
    /// Whether the machines of `role` still have their old credentials: their step is not done.
    fn is_open(&self, role: &Role) -> bool {
        self.steps.iter().any(|step| step.role == *role && !step.is_done() && step.work().renews())
    }

    /// The urgency of the whole rollout.
    pub(crate) fn urgency(&self, now: Timestamp) -> Urgency {
        self.deadline.urgency(|role| self.is_open(role), now)
    }

    /// The urgency of the step of `role`. etcd and the controllers have their turns one after the other, so that a wait of one delays the
    /// next: each is as urgent as the most urgent of them. A pool has its own urgency. Only expired certificates of machines of the same
    /// kind excuse that those do not answer.
    pub(crate) fn urgency_of(&self, role: &Role, now: Timestamp) -> Urgency {
        let own = self.deadline.urgency(|one| is_same_kind(one, role) && self.is_open(one), now);
        if own.has_expired() || is_pool(role) {
            return own;
        }
        match self.deadline.urgency(|one| !is_pool(one) && self.is_open(one), now) {
            Urgency::None => Urgency::None,
            Urgency::Due { ends } | Urgency::Expired { ends } => Urgency::Due { ends },
        }
    }

    /// Records that the step of `role` ignores a window, for a later explanation.
    pub(crate) fn note_override(&mut self, role: &Role, now: Timestamp) {
        if let Some(ends) = self.urgency_of(role, now).ends()
            && !window_is_open(&self.windows, now)
            && !self.overridden.contains_key(&Held::Window)
        {
            self.overridden.insert(Held::Window, ends);
        }
    }

    /// From when on the step of `role` ignores windows.
    pub(crate) fn urgent_from(&self, role: &Role) -> Option<Timestamp> {
        self.deadline.urgent_from(|one| self.is_open(one) && (is_pool(role) == is_pool(one)))
    }
}

/// The record for a plan that begins without the approval that its policy requires.
pub(crate) fn unapproved(plan: &Plan, now: Timestamp) -> Option<(Held, Timestamp)> {
    plan.urgency(now)
        .ends()
        .filter(|_| plan.needs_approval() && !plan.is_empty())
        .map(|ends| (Held::Approval, ends))
}

/// What was ignored, in words; `None` if nothing was.
pub(crate) fn overridden(nodes: &Nodes) -> Option<String> {
    let words = nodes.overridden.iter().map(|(held, ends)| {
        let without = match held {
            Held::Approval => "begun without approval",
            Held::Window => "outside of the maintenance windows",
        };
        format!("{without}, since certificates in use expire at {}", moment(*ends))
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Which urgent renewal a pause holds, in words.
pub(crate) fn held_by_a_pause(urgency: Urgency, state: &Rollout) -> Option<String> {
    let words = urgency.words()?;
    Some(format!("{words}, and nothing renews them before `slipway resume --cluster {}`", state.cluster))
}
