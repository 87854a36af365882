//! The machines of a group whose stack goes: CloudFormation waits until the last is gone.

use jiff::Timestamp;

use super::super::errand::PAUSE;
use super::super::fleet::Lifecycle;
use super::super::stack_step::OWNER_TAG;
use super::super::{Effect, Observed, Rollout, StackStatus};
use super::{Destroy, GoingState};

/// Machines that are let go in one look: an invocation stays bounded.
const MOST_AT_ONCE: usize = 100;

/// Ends the terminate hooks of workers whose stack goes: without that they would be kept. Those that were kept before, since nobody drained
/// them, are terminated: they cost money, and a group that holds any cannot go.
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

/// Whether CloudFormation has begun to delete that stack. That it was told to, in this very decision perhaps, does not say that it does: the call
/// may fail, and the order be taken back.
pub(super) fn is_seen_to_go(observed: &Observed, stack: &str) -> bool {
    let stack = observed.stacks.get(stack).and_then(Option::as_ref);
    stack.is_some_and(|stack| {
        matches!(stack.status, StackStatus::DeleteInProgress | StackStatus::DeleteFailed)
    })
}
