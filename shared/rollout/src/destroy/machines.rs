//! The machines of a group whose stack is deleted: CloudFormation waits until the last one is gone.

use jiff::Timestamp;

use super::super::errand::PAUSE;
use super::super::fleet::Lifecycle;
use super::super::stack_step::OWNER_TAG;
use super::super::{Effect, Observed, Rollout, StackStatus};
use super::{Destroy, GoingState};

/// The number of machines that are released in one look, so that an invocation stays bounded.
const MOST_AT_ONCE: usize = 100;

/// Completes the terminate hooks of workers whose stack is deleted; otherwise the workers would be retained. Retained workers are
/// terminated: they cost money, and a group with machines cannot be deleted.
pub(super) fn let_go(
    state: &Rollout,
    open: &mut Destroy,
    observed: &Observed,
    now: Timestamp,
) -> Vec<Effect> {
    if open.told.is_some_and(|at| now.duration_since(at) < PAUSE) {
        return Vec::new();
    }
    let deleting = |name: &String| {
        let mut stacks = open.stacks.iter();
        stacks.any(|going| &going.stack == name && matches!(going.state, GoingState::Deleting(_)))
            && is_seen_to_go(observed, name)
    };
    let groups = observed.groups.iter().filter(|(name, _)| deleting(name));
    let groups = groups.filter_map(|(_, group)| group.as_ref());
    let ours = groups.filter(|group| group.tags.get(OWNER_TAG) == Some(&state.cluster));
    let ends: Vec<Effect> = ours
        .flat_map(|group| group.machines.iter().map(|(id, machine)| (&group.name, id, machine)))
        .filter_map(|(group, id, machine)| {
            let (group, instance) = (group.clone(), id.clone());
            match machine.lifecycle {
                Lifecycle::TerminatingWait => Some(Effect::CompleteTermination { group, instance }),
                Lifecycle::Retained => Some(Effect::Terminate { group, instance, then_desired: None }),
                Lifecycle::Pending | Lifecycle::InService | Lifecycle::Terminating | Lifecycle::Elsewhere => {
                    None
                }
            }
        })
        .take(MOST_AT_ONCE)
        .collect();
    if !ends.is_empty() {
        open.told = Some(now);
    }
    ends
}

/// Whether CloudFormation has begun to delete that stack. That a deletion was requested, perhaps in this very decision, is not enough: the
/// call may fail, and the order may be aborted.
pub(super) fn is_seen_to_go(observed: &Observed, stack: &str) -> bool {
    let stack = observed.stacks.get(stack).and_then(Option::as_ref);
    stack.is_some_and(|stack| {
        matches!(stack.status, StackStatus::DeleteInProgress | StackStatus::DeleteFailed)
    })
}
