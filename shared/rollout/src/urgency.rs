//! How urgent a rollout is: computed at every decision from when the certificates end that its machines still have, and the clock (P7).
//!
//! Where they are about to end, neither a maintenance window nor an approval holds it up, and everybody's health counts as ever. Only
//! where they have ended is nobody's health waited for. A pause stays a pause (P10): it is said what that costs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::deadline::Urgency;
use slipway_core::role::Role;
use slipway_core::words::moment;
use slipway_plan::Plan;

use super::Rollout;
use super::nodes::{Nodes, window_is_open};

/// What a rollout does not wait for where certificates are about to expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Held {
    /// A person's approval.
    Approval,
    /// A maintenance window.
    Window,
}

/// Which machines answer for each other: those of one kind.
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
    /// Whether the machines of `role` still have what they had: their step is not done.
    fn is_open(&self, role: &Role) -> bool {
        self.steps.iter().any(|step| step.role == *role && !step.is_done() && step.work().renews())
    }

    /// How urgent it is as a whole.
    pub(super) fn urgency(&self, now: Timestamp) -> Urgency {
        self.deadline.urgency(|role| self.is_open(role), now)
    }

    /// How urgent the step of `role` is. etcd and the controllers have their turn one after the other, so that what one of them waits for
    /// holds up the next: each is as urgent as the most urgent of them. A pool is as urgent as it is itself. Only what others of the same
    /// kind have expired excuses that those do not answer.
    pub(super) fn urgency_of(&self, role: &Role, now: Timestamp) -> Urgency {
        let own = self.deadline.urgency(|one| is_same_kind(one, role) && self.is_open(one), now);
        if own.has_expired() || is_pool(role) {
            return own;
        }
        match self.deadline.urgency(|one| !is_pool(one) && self.is_open(one), now) {
            Urgency::None => Urgency::None,
            Urgency::Due { ends } | Urgency::Expired { ends } => Urgency::Due { ends },
        }
    }

    /// Takes note of a window that does not hold up the step of `role`, for whoever asks afterwards why.
    pub(super) fn note_override(&mut self, role: &Role, now: Timestamp) {
        if let Some(ends) = self.urgency_of(role, now).ends()
            && !window_is_open(&self.windows, now)
            && !self.overridden.contains_key(&Held::Window)
        {
            self.overridden.insert(Held::Window, ends);
        }
    }

    /// From when on no window holds up the step of `role`.
    pub(super) fn urgent_from(&self, role: &Role) -> Option<Timestamp> {
        self.deadline.urgent_from(|one| self.is_open(one) && (is_pool(role) == is_pool(one)))
    }
}

/// What is noted of a plan that begins without the approval that its policy asks for.
pub(super) fn unapproved(plan: &Plan, now: Timestamp) -> Option<(Held, Timestamp)> {
    plan.urgency(now).ends().filter(|_| plan.needs_approval()).map(|ends| (Held::Approval, ends))
}

/// What was not waited for, in words; `None`: everything was.
pub(super) fn overridden(nodes: &Nodes) -> Option<String> {
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

/// What a pause holds up that cannot wait.
pub(super) fn held_by_a_pause(urgency: Urgency, state: &Rollout) -> Option<String> {
    let words = urgency.words()?;
    Some(format!("{words}, and nothing renews them before `slipway resume --cluster {}`", state.cluster))
}
