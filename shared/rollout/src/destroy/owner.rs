//! Whose a stack is that has the name of one of the cluster's.

use super::super::stack_step::OWNER_TAG;
use super::super::{Rollout, StackStatus, StackView, StepState};
use super::GoingState;

/// The state of a stack that is not the cluster's to delete; `None` if it is.
pub(super) fn foreign(state: &Rollout, name: &str, stack: &StackView) -> Option<GoingState> {
    // A stack that was deployed is ours, unless somebody has replaced it: then a person has to decide.
    let known = state.deployed.contains_key(name) || state.left.contains_key(name);
    let is_ours = stack.tags.get(OWNER_TAG) == Some(&state.cluster)
        || !known && stack.status == StackStatus::ReviewInProgress && is_begun(state, name);
    (!is_ours).then(|| match known {
        true => GoingState::Failed(format!("{name} exists and is not Slipway's")),
        false => GoingState::NotOurs,
    })
}

/// Whether the newest rollout asked for a change set of the stack. A stack that is no more than a change set does not have its tags yet
/// (docs/security.md), and would stay behind.
fn is_begun(state: &Rollout, name: &str) -> bool {
    let open = state.active().into_iter().flat_map(|active| &active.steps);
    let mut steps = open.chain(state.last.iter().flat_map(|last| &last.steps));
    steps.any(|step| step.stack == name && step.state != StepState::Waiting)
}
