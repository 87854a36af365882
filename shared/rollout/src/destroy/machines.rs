//! The machines of a group whose stack is deleted: CloudFormation waits until the last one is gone.

use jiff::Timestamp;
use slipway_core::release::StackKind;

use super::super::errand::PAUSE;
use super::super::fleet::{Lifecycle, OWNER_TAG};
use super::super::{Effect, Observed, Rollout, StackStatus};
use super::save::member_groups;
use super::{Destroy, Going, GoingState};

/// The number of machines that are released in one look, so that an invocation stays bounded.
const MOST_AT_ONCE: usize = 100;

/// The groups of a stack. All have terminate hooks (slipway-render, `groups.rs`).
pub(super) fn groups(cluster: &str, going: &Going) -> Vec<String> {
    match going.kind {
        StackKind::Network | StackKind::Identity => Vec::new(),
        StackKind::Etcd => member_groups(cluster).map(|(_, group)| group).collect(),
        StackKind::ControlPlane | StackKind::Pool => vec![going.stack.clone()],
    }
}

/// Completes the terminate hooks of machines whose stack is deleted. Otherwise CloudFormation would wait until the hooks run out (ten
/// minutes for a member of etcd, fifteen for a controller), and workers would then be retained. Retained workers are terminated: they cost
/// money, and a group with machines cannot be deleted.
pub(super) fn let_go(
    state: &Rollout,
    open: &mut Destroy,
    observed: &Observed,
    now: Timestamp,
) -> Vec<Effect> {
    if open.settled_at.is_some_and(|at| now.duration_since(at) < PAUSE) {
        return Vec::new();
    }
    let deleting = open.stacks.iter().filter(|going| {
        matches!(going.state, GoingState::Deleting(_)) && is_seen_to_go(observed, &going.stack)
    });
    let groups = deleting.flat_map(|going| groups(&state.cluster, going));
    let groups = groups.filter_map(|name| observed.groups.get(&name)?.as_ref());
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
        open.settled_at = Some(now);
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
