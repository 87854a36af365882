//! Workers that are replaced: one at a time, its pods evicted by a controller under their budgets, then terminated in so many words (P6).
//!
//! The first of a pool is its canary: the next goes only when its successor serves. A pool that may have no machine less than it wants
//! (`maxUnavailable: 0`) is not begun.

use super::super::Effect;
use super::super::fleet::{GroupView, Lifecycle};
use super::machines::{drain, stale};
use super::member::may_start;
use super::{Look, NodeState, NodeStep, PATIENCE, Turn, boots, counting, serving};

/// Looks at a pool once.
pub(super) fn look(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let controllers = turn.controllers.and_then(|name| turn.observed.groups.get(name));
    let (Some(view), Some(controllers)) = (turn.observed.groups.get(&step.group), controllers) else {
        return Look::Waits("looks at its machines".to_owned());
    };
    let (Some(group), Some(controllers)) = (view, controllers) else {
        return step.fail(format!("there is no Auto Scaling group {}, or none of controllers", step.group));
    };
    match &step.state {
        NodeState::Waiting => begin(step, turn, group),
        NodeState::Drain => drain(step, turn, group, controllers),
        NodeState::Check => terminate(step, turn, group),
        NodeState::Leave => leaves(step, turn, group),
        // No other state is entered here.
        NodeState::Snapshot
        | NodeState::Leader
        | NodeState::Refresh
        | NodeState::Return
        | NodeState::After => step.enter(NodeState::Waiting, turn.now),
        NodeState::Done => Look::Again,
        NodeState::Failed(why) => Look::Waits(why.clone()),
    }
}

/// Machines that come: while there are any, the pool has less than it wants.
fn comes(group: &GroupView) -> bool {
    counting(group).any(|(_, machine)| machine.lifecycle == Lifecycle::Pending || !machine.healthy)
}

fn begin(step: &mut NodeStep, turn: &Turn<'_>, group: &GroupView) -> Look {
    if step.since.is_none() {
        step.since = Some(turn.now);
    }
    if comes(group) {
        let boots = boots(group, &turn.observed.booting);
        if step.has_waited(turn) > PATIENCE {
            return step.fail(format!("it is not whole after {} minutes: {boots}", PATIENCE.as_mins()));
        }
        return Look::Waits(format!("waits until all its machines serve: {boots}"));
    }
    let stale = stale(step, turn, group);
    let Some(first) = stale.first() else {
        step.left = serving(group).any(|(id, _)| turn.skipped.contains(id));
        return step.enter(NodeState::Done, turn.now);
    };
    if !may_start(turn) {
        return Look::Waits("waits for the next maintenance window".to_owned());
    }
    if step.machine.as_ref() != Some(*first) {
        step.machine = Some((*first).clone());
        step.tries = 0;
    }
    step.enter(NodeState::Drain, turn.now)
}

/// Its pods are gone.
fn terminate(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Look {
    let id = step.machine.clone().filter(|id| serving(group).any(|(one, _)| one == id));
    let Some(instance) = id.filter(|id| step.drained.as_ref() == Some(id)) else {
        return step.enter(NodeState::Waiting, turn.now);
    };
    step.enter(NodeState::Leave, turn.now);
    turn.effects.push(Effect::Terminate { group: step.group.clone(), instance, shrink: false });
    Look::Waits("a machine leaves".to_owned())
}

fn leaves(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Look {
    let Some(id) = step.machine.clone().filter(|id| group.machines.contains_key(id)) else {
        return step.enter(NodeState::Waiting, turn.now);
    };
    if step.has_waited(turn) > PATIENCE {
        return step
            .fail(format!("{id} was terminated and is still there after {} minutes", PATIENCE.as_mins()));
    }
    // Its hook waits for whoever drained it; that was us, and it ended.
    let waits =
        group.machines.get(&id).is_some_and(|machine| machine.lifecycle == Lifecycle::TerminatingWait);
    if waits && step.drained.as_ref() == Some(&id) && step.may_ask_again(turn) {
        turn.effects.push(Effect::CompleteTermination { group: step.group.clone(), instance: id.clone() });
    }
    Look::Waits(format!("waits for {id} to leave"))
}
