//! What a rollout leaves behind when it ends.

use slipway_core::role::Role;

use super::fleet::OWNER_TAG;
use super::{Active, Observed, Rollout, RolloutResult, StackStatus, Step, StepState};

impl Rollout {
    /// Whether the upload with that version is looked at even if it changes nothing: after the last rollout the cluster did not serve. A
    /// daily scan plans the same version again, and does not count: it would fail again each day.
    #[must_use]
    pub fn looks_again(&self, version: &str) -> bool {
        let last = self.last.as_ref().filter(|_| self.active().is_none());
        last.is_some_and(|last| last.unserved && last.spec_version != version)
    }
}

/// Remembers what runs. Returns whether only the look at the whole cluster is missing, so that the next upload has to be looked at.
pub(super) fn settle(next: &mut Rollout, active: &Active, result: RolloutResult) -> bool {
    let only_the_look_is_left = stage_is_last(active);
    // However it ends: machines that have their credentials do not get them again.
    if result == RolloutResult::Succeeded || only_the_look_is_left {
        is_as_planned(next, active);
    }
    // A newer plan has a look of its own.
    matches!(result, RolloutResult::Failed | RolloutResult::Aborted) && only_the_look_is_left
}

/// The stacks that an ended rollout was creating and that exist, with its release.
pub(super) fn unfinished(next: &Rollout, active: &Active, observed: &Observed) -> Vec<(String, String)> {
    let creates = |step: &&Step| step.state != StepState::Done && !next.standing().contains_key(&step.stack);
    let exists = |step: &&Step| {
        let view = observed.stacks.get(&step.stack).and_then(Option::as_ref);
        view.is_some_and(|view| {
            let is_ours = view.tags.get(OWNER_TAG) == step.tags.get(OWNER_TAG);
            is_ours && view.status != StackStatus::DeleteComplete
        })
    };
    let steps = active.steps.iter().filter(creates).filter(exists);
    steps.map(|step| (step.stack.clone(), active.target.clone())).collect()
}

/// Whether everything is as planned, and only the look at the whole cluster is not done.
fn stage_is_last(active: &Active) -> bool {
    active.steps.iter().all(|step| step.state == StepState::Done) && active.nodes.is_closing()
}

/// All stacks and nodes are as planned.
fn is_as_planned(next: &mut Rollout, active: &Active) {
    // Stacks that still exist are remembered with their release.
    for stack in active.stacks_by_hand.iter().chain(active.nodes.kept()) {
        next.orphaned.extend(next.deployed.remove_entry(stack));
    }
    // Unchanged stacks are at the new release, too.
    for release in next.deployed.values_mut() {
        release.clone_from(&active.target);
    }
    // A role that the rollout did not change, or completed, is not behind; a role with skipped machines is.
    let left = |role: &Role| active.nodes.steps.iter().any(|step| step.is_skipped() && &step.role == role);
    next.earlier.retain(|role, _| left(role));
}
