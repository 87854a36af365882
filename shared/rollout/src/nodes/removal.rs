//! A pool that the spec has no longer: its machines are emptied, all of them, and then its stack is deleted (P6).
//!
//! They are drained where they are, as many at a time as may be missing, and stay, empty, until the last of them is. Up to that moment
//! nothing was taken away: an abort, a failure or a newer spec has them take pods again, and the pool is as it was. Then CloudFormation is
//! told to delete the stack, and takes the machines down through their terminate hooks, which are completed when a drain finds nothing left
//! ([`Departure`]): whatever came to a machine meanwhile is evicted under its budgets, too. Once begun, a deletion is seen to its end.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::departures::{Cause, Departure, DepartureState, MOST_DRAINS};
use super::super::fleet::{GroupView, Lifecycle, MachineView};
use super::super::stack_step::{OWNER_TAG, Phase, because, phase, status_of};
use super::super::{Effect, StackStatus, StackView, operation_token};
use super::member::may_start;
use super::{Look, NodeState, NodeStep, Nodes, PATIENCE, Turn, Work, serving};
use slipway_core::words::count;

impl NodeStep {
    /// Whether CloudFormation was told to delete the stack of its pool, and has not said that it is gone.
    pub(super) fn is_deleting(&self) -> bool {
        self.work == Work::Remove && self.state == NodeState::Leave
    }

    /// The machines of a pool that was to go stay, and take pods again.
    pub(super) fn let_all_stay(&mut self, departures: &mut BTreeMap<String, Departure>, now: Timestamp) {
        for id in std::mem::take(&mut self.crew.begun) {
            if let Some(one) = departures.get_mut(&id).filter(|one| one.cause == Cause::Rollout) {
                one.withdraw(None, now);
            }
        }
        for id in std::mem::take(&mut self.done) {
            let back = || Departure::called_off(self.role.clone(), &self.group, None, now);
            departures.entry(id).or_insert_with(back);
        }
    }
}

impl Nodes {
    /// The steps that are looked at: those whose turn it is, and where nothing may begin those that CloudFormation works at.
    pub(super) fn to_look_at(&self, held: bool) -> Vec<usize> {
        let deleting = |at: &usize| self.steps[*at].is_deleting();
        if held { (0..self.steps.len()).filter(deleting).collect() } else { self.turns() }
    }

    /// Whether something was begun that had better be ended before anything else begins.
    pub(in super::super) fn is_busy(&self) -> bool {
        // Of a pool that goes nothing has gone before its stack is deleted.
        self.steps.iter().filter(|step| step.work != Work::Remove || step.is_deleting()).any(
            |step| match step.state {
                NodeState::Refresh
                | NodeState::Return
                | NodeState::Drain
                | NodeState::Leave
                | NodeState::After => true,
                // Its pods have left it already.
                NodeState::Check => step.cordoned.is_some(),
                NodeState::Waiting
                | NodeState::Snapshot
                | NodeState::Leader
                | NodeState::Done
                | NodeState::Failed(_) => false,
            },
        )
    }

    /// Whether CloudFormation was told to delete a stack, and has not ended.
    pub(in super::super) fn is_deleting(&self) -> bool {
        self.steps.iter().any(NodeStep::is_deleting)
    }

    /// The groups whose machines CloudFormation takes down.
    pub(in super::super) fn groups_that_go(&self) -> impl Iterator<Item = String> {
        self.steps.iter().filter(|step| step.is_deleting()).map(|step| step.group.clone())
    }

    /// The pools that are gone.
    pub(in super::super) fn gone(&self) -> impl Iterator<Item = &NodeStep> {
        let removed = |step: &&NodeStep| step.work == Work::Remove && step.state == NodeState::Done;
        self.steps.iter().filter(removed).filter(|step| !step.left)
    }

    /// The stacks that were to go, and stay as somebody said.
    pub(in super::super) fn kept(&self) -> impl Iterator<Item = &String> {
        self.steps.iter().filter(|step| step.work == Work::Remove && step.left).map(|step| &step.stack)
    }

    /// CloudFormation would not delete that stack.
    pub(in super::super) fn undeletable(&mut self, stack: &str, reason: &str) {
        for step in self.steps.iter_mut().filter(|step| step.is_deleting() && step.stack == stack) {
            step.state = NodeState::Failed(reason.to_owned());
        }
    }
}

/// Looks at a pool that goes once.
pub(super) fn look(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    match &step.state {
        NodeState::Failed(why) => return Look::Waits(why.clone()),
        NodeState::Done => return Look::Again,
        NodeState::Leave => return deleted(step, turn),
        NodeState::Waiting
        | NodeState::Snapshot
        | NodeState::Check
        | NodeState::Leader
        | NodeState::Refresh
        | NodeState::Return
        | NodeState::Drain
        | NodeState::After => {}
    }
    let controllers = turn.controllers.and_then(|name| turn.observed.groups.get(name));
    let group = turn.observed.groups.get(&step.group);
    let (Some(group), Some(_), Some(stack)) = (group, controllers, turn.observed.stacks.get(&step.stack))
    else {
        return Look::Waits("looks at its machines and its stack".to_owned());
    };
    let Some(stack) = stack.as_ref().filter(|stack| stack.status != StackStatus::DeleteComplete) else {
        // Somebody was quicker.
        return step.enter(NodeState::Done, turn.now);
    };
    if let Some(look) = empty(step, turn, group.as_ref()) {
        return look;
    }
    // Before anything is taken away: a deletion once begun would wait for it, and could not be called off.
    if let Some(words) = group.as_ref().and_then(keeps) {
        return Look::Waits(words);
    }
    delete(step, turn, stack)
}

/// Has its machines emptied; `None`: all are, and what is disruptive may start.
fn empty(step: &mut NodeStep, turn: &mut Turn<'_>, group: Option<&GroupView>) -> Option<Look> {
    let machines: Vec<&String> = group.into_iter().flat_map(serving).map(|(id, _)| id).collect();
    if machines.iter().any(|id| turn.skipped.contains(*id)) {
        // With one that is to be left, its stack is, too.
        step.let_all_stay(turn.departures, turn.now);
        step.left = true;
        return Some(step.enter(NodeState::Done, turn.now));
    }
    step.done.retain(|id| machines.contains(&id));
    for id in std::mem::take(&mut step.crew.begun) {
        // One that is not there any more has gone by itself.
        let Some(one) = turn.departures.get(&id) else { continue };
        if let Some(why) = one.problem.clone() {
            return Some(step.fail(why));
        }
        if one.state == DepartureState::Rest {
            turn.departures.remove(&id);
            step.done.insert(id);
        } else {
            step.crew.begun.insert(id);
        }
    }
    let todo: Vec<&String> = machines.iter().copied().filter(|id| !step.done.contains(*id)).collect();
    let held = turn.newer || !may_start(turn);
    if let Some(group) = group.filter(|_| !held) {
        let of = u32::try_from(machines.len()).unwrap_or(u32::MAX);
        let width = step.pace.may_miss(of).max(1) as usize;
        let free = width.saturating_sub(step.crew.begun.len());
        let free = free.min(MOST_DRAINS.saturating_sub(turn.departures.len()));
        let next = todo.iter().filter(|id| !turn.departures.contains_key(**id)).take(free);
        for id in next.map(|id| (*id).clone()).collect::<Vec<_>>() {
            let one = Departure::to_rest(&step.role, group, step.force_after_s, turn.now);
            turn.departures.insert(id.clone(), one);
            step.crew.begun.insert(id);
        }
    }
    if todo.is_empty() && !held {
        return None;
    }
    if !step.crew.begun.is_empty() && step.state != NodeState::Drain {
        step.state = NodeState::Drain;
        step.since = Some(turn.now);
    }
    let going = step.crew.begun.iter().filter_map(|id| Some((id, turn.departures.get(id)?)));
    let mut words: Vec<String> = going.take(3).map(|(id, one)| one.words(id)).collect();
    if words.is_empty() {
        words.push(match (turn.newer, held) {
            (true, _) => "makes way for a newer spec".to_owned(),
            (false, true) => "waits for the next maintenance window".to_owned(),
            (false, false) => "waits for others that are drained".to_owned(),
        });
    }
    Some(Look::Waits(format!("{} ({} of {} empty)", words.join("; "), step.done.len(), machines.len())))
}

/// Whom its group keeps, and what helps: its terminate hook was abandoned, since nobody had drained it, so that pods may run on it; and no
/// group is deleted that has machines. Who did not drain it then is not told to drain it now: it is a person's.
fn keeps(group: &GroupView) -> Option<String> {
    let kept = |machine: &MachineView| machine.lifecycle == Lifecycle::Retained;
    let (id, _) = group.machines.iter().find(|(_, machine)| kept(machine))?;
    Some(format!(
        "{} keeps {id}, which nobody has drained: drain its node (`kubectl drain`), then `aws autoscaling terminate-instance-in-auto-scaling-group \
         --instance-id {id} --no-should-decrement-desired-capacity`",
        group.name
    ))
}

/// Nothing is left on its machines: its stack goes, and they with it.
fn delete(step: &mut NodeStep, turn: &mut Turn<'_>, stack: &StackView) -> Look {
    if stack.tags.get(OWNER_TAG).map(String::as_str) != Some(turn.cluster) {
        return step.fail(format!("{} exists and is not Slipway's", step.stack));
    }
    let is_going = stack.status == StackStatus::DeleteInProgress;
    if matches!(phase(stack.status), Phase::Busy) && !is_going {
        return Look::Waits(format!("CloudFormation is at work on its stack ({})", status_of(Some(stack))));
    }
    step.enter(NodeState::Leave, turn.now);
    if !is_going {
        let token = operation_token(turn.change_set, &stack.id, "delete");
        turn.effects.push(Effect::DeleteStack {
            stack: step.stack.clone(),
            id: stack.id.clone(),
            stands: true,
            token,
        });
    }
    Look::Waits("its machines are empty, and its stack is deleted".to_owned())
}

/// What became of the deletion.
fn deleted(step: &mut NodeStep, turn: &Turn<'_>) -> Look {
    let Some(found) = turn.observed.stacks.get(&step.stack) else {
        return Look::Waits("its stack is deleted".to_owned());
    };
    let Some(stack) = found.as_ref().filter(|stack| stack.status != StackStatus::DeleteComplete) else {
        return step.enter(NodeState::Done, turn.now);
    };
    if stack.status == StackStatus::DeleteFailed {
        let failures = turn.observed.failures.get(&step.stack).map(Vec::as_slice).unwrap_or_default();
        return step.fail(because(format!("{} could not be deleted", step.stack), failures));
    }
    let group = turn.observed.groups.get(&step.group).and_then(Option::as_ref);
    // It is called off where somebody else uses what the stack exports; the stack then stays as it was.
    if stack.status != StackStatus::DeleteInProgress && step.has_waited(turn) > PATIENCE {
        let minutes = PATIENCE.as_mins();
        let why = stack.reason.as_deref().unwrap_or("CloudFormation does not say why");
        return step
            .fail(format!("the deletion of {} has not begun within {minutes} minutes: {why}", step.stack));
    }
    let left = count(group.map_or(0, |group| group.machines.len()), "machine");
    let kept = group.and_then(keeps).map(|words| format!("; {words}")).unwrap_or_default();
    Look::Waits(format!("CloudFormation deletes its stack ({left} left){kept}"))
}
