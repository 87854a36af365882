//! Removing a pool that the spec no longer has: all its machines are drained, and then its stack is deleted (P6).
//!
//! Machines are drained in place, as many at a time as may be missing, and stay, empty, until the last one is drained. Until then nothing
//! is lost: after an abort, a failure or a newer spec the machines are uncordoned, and the pool is as before. Then the deletion of the
//! stack is requested. CloudFormation terminates the machines through their terminate hooks, which are completed when a drain finds no pod
//! ([`Departure`]): pods that came to a machine meanwhile are evicted under their budgets, too. A deletion that has begun is completed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::cluster::Pace;
use slipway_core::role::Role;

use super::super::departures::{Departure, Ending};
use super::super::fleet::{GroupView, Lifecycle, MachineView, OWNER_TAG};
use super::super::stack_step::{Phase as StackPhase, because, phase};
use super::super::waits::{Boot, Comes, Departs, Detail, Idle, Kept, ObservedParts, Waits};
use super::super::{Effect, StackStatus, StackView, operation_token};
use super::machine::{Machine, Move, Place, State, waited};
use super::{CONSISTENT, PATIENCE, Phase, Turn, serving};
use crate::transitions::{Transition, Wakes};

/// The removal of a pool with its stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Removal {
    /// How many machines are drained at a time.
    pub pace: Pace,
    /// Seconds after which a drain may use force, if all other rules for that hold; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// Machines that are being drained.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub begun: BTreeSet<String>,
    /// Machines that are empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub empty: BTreeSet<String>,
    /// The state of the work.
    pub phase: Phase<RemovalState>,
}

/// The states of a [`Removal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemovalState {
    /// Its machines are drained.
    Empty,
    /// CloudFormation deletes its stack.
    Delete,
}

impl State for RemovalState {
    const TRANSITIONS: &'static [Transition] = &[
        Transition::new(
            "empty",
            "its machines are drained one after the other, and stay",
            &[Wakes::Command],
            &["delete", "done", "failed"],
        ),
        Transition::new(
            "delete",
            "CloudFormation deletes its stack",
            &[Wakes::Stack],
            &["empty", "done", "failed"],
        ),
        Transition::DONE,
        Transition::FAILED,
    ];

    fn start() -> Self {
        Self::Empty
    }

    fn place(&self) -> Place {
        match self {
            Self::Empty => Place::Empty,
            Self::Delete => Place::Delete,
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Delete => true,
            // Nothing is lost before its stack is deleted.
            Self::Empty => false,
        }
    }
}

type To = Move<RemovalState>;

impl Machine for Removal {
    type State = RemovalState;

    fn phase_mut(&mut self) -> &mut Phase<RemovalState> {
        &mut self.phase
    }

    fn next_move(&mut self, state: RemovalState, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        match state {
            RemovalState::Empty => self.check_machines(since, turn),
            RemovalState::Delete => deleted(*since, turn),
        }
    }
}

impl Removal {
    /// Its machines stay, and are uncordoned.
    pub(super) fn let_all_stay(
        &mut self,
        role: &Role,
        group: &str,
        departures: &mut BTreeMap<String, Departure>,
        now: Timestamp,
    ) {
        for id in std::mem::take(&mut self.begun) {
            if let Some(one) = departures.get_mut(&id).filter(|one| one.is_of_a_rollout()) {
                one.withdraw(None, now);
            }
        }
        for id in std::mem::take(&mut self.empty) {
            let back = || Departure::called_off(role.clone(), group, None, now);
            departures.entry(id).or_insert_with(back);
        }
    }

    fn check_machines(&mut self, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let controllers = turn.controllers.and_then(|name| turn.observed.groups.get(name));
        let group = turn.observed.groups.get(turn.group);
        let stack = turn.observed.stacks.get(turn.stack);
        let (Some(group), Some(_), Some(stack)) = (group, controllers, stack) else {
            return Move::Stay(RemovalState::Empty, Waits::Look(ObservedParts::MachinesAndStack));
        };
        let Some(stack) = stack.as_ref().filter(|stack| stack.status != StackStatus::DeleteComplete) else {
            // Somebody else has deleted the stack.
            return Move::Done { skipped: false };
        };
        if let Some(moves) = self.empty(turn, group.as_ref()) {
            *since = None;
            return moves;
        }
        // Before anything is deleted: a deletion in progress would wait for the machine, and could not be aborted.
        if let Some(waits) = group.as_ref().and_then(|group| not_gone(group, turn)) {
            return Move::Stay(RemovalState::Empty, waits);
        }
        // A cluster autoscaler launches one for the pods that were evicted. Its Node takes pods as soon as it is Ready, and an answer may be
        // late. A pool whose machines never come is deleted nevertheless.
        let boots = group.as_ref().map(|group| Boot::pending_in(group, &turn.observed.booting));
        let boots = boots.filter(|boots| !boots.is_empty());
        *since = boots.is_some().then(|| since.unwrap_or(turn.now));
        match boots {
            Some(boots) if waited(*since, turn.now) <= PATIENCE => {
                Move::Stay(RemovalState::Empty, Waits::Boot(Comes::Earlier, boots))
            }
            Some(_) | None => delete(turn, stack),
        }
    }

    /// Drains its machines; `None` if all are empty and disruptive work may begin.
    fn empty(&mut self, turn: &mut Turn<'_>, group: Option<&GroupView>) -> Option<To> {
        let machines: Vec<&String> = group.into_iter().flat_map(serving).map(|(id, _)| id).collect();
        if machines.iter().any(|id| turn.skipped.contains(*id)) {
            // If a machine is skipped, its stack stays, too.
            self.let_all_stay(turn.role, turn.group, turn.departures, turn.now);
            return Some(Move::Done { skipped: true });
        }
        // One that EC2 wanted to interrupt, and did not, takes pods again.
        self.empty.retain(|id| machines.contains(&id) && !turn.departs(id));
        for id in std::mem::take(&mut self.begun) {
            // A machine that is not there any more left by itself.
            let Some(one) = turn.departures.get(&id) else { continue };
            // One that EC2 wanted to interrupt is only slow to take pods again.
            if let Some(why) = one.problem.clone().filter(|_| !one.is_of_an_interruption()) {
                return Some(Move::Fail(why));
            }
            if one.emptied_at().is_some() && one.is_of_a_rollout() {
                turn.departures.remove(&id);
                self.empty.insert(id);
            } else {
                self.begun.insert(id);
            }
        }
        let todo: Vec<&String> = machines.iter().copied().filter(|id| !self.empty.contains(*id)).collect();
        let held = turn.newer || !turn.may_start();
        if let Some(group) = group.filter(|_| !held) {
            let all = u32::try_from(machines.len()).unwrap_or(u32::MAX);
            let width = self.pace.max_missing(all).max(1) as usize;
            let free = width.saturating_sub(self.begun.len());
            let free = free.min(turn.free_drains());
            let next = todo.iter().filter(|id| !turn.departs(id)).take(free);
            for id in next.map(|id| (*id).clone()).collect::<Vec<_>>() {
                let one =
                    Departure::by_rollout(turn.role, group, Ending::Rests, self.force_after_s, turn.now);
                turn.departures.insert(id.clone(), one);
                self.begun.insert(id);
            }
        }
        // One that is being drained is there, although a late answer of Auto Scaling may not show it.
        if todo.is_empty() && self.begun.is_empty() && !held {
            return None;
        }
        let departs = Departs::first_three(self.begun.iter(), turn.departures);
        let idle = departs.is_empty().then_some(match (turn.newer, held) {
            (true, _) => Idle::NewerSpec,
            (false, true) => Idle::Window { at_most_until: turn.urgent_from },
            (false, false) => Idle::Others,
        });
        let waits = Waits::Removal { departs, idle, empty: Detail((self.empty.len(), machines.len())) };
        Some(Move::Stay(RemovalState::Empty, waits))
    }
}

/// A machine that its group has retained: its terminate hook timed out before it was drained, so it may have pods, and CloudFormation
/// deletes no group with machines. It is drained and terminated like every worker that Auto Scaling terminates ([`Departure`]).
fn kept(group: &GroupView) -> Option<Kept> {
    let kept = |machine: &MachineView| machine.lifecycle == Lifecycle::Retained;
    let (id, _) = group.machines.iter().find(|(_, machine)| kept(machine))?;
    Some(Kept { group: group.name.clone(), machine: id.clone() })
}

/// A machine besides those in service that may have pods: retained, in Standby, or held in its terminate hook. A group is not deleted before
/// they are gone.
fn not_gone(group: &GroupView, turn: &Turn<'_>) -> Option<Waits> {
    if let Some(kept) = kept(group) {
        return Some(Waits::Kept(kept));
    }
    group.machines.iter().find_map(|(id, machine)| match machine.lifecycle {
        Lifecycle::Elsewhere => Some(Waits::Standby { group: group.name.clone(), machine: id.clone() }),
        Lifecycle::TerminatingWait => Some(Waits::Departure(turn.departures.get(id)?.departs(id))),
        Lifecycle::Pending | Lifecycle::InService | Lifecycle::Terminating | Lifecycle::Retained => None,
    })
}

/// All machines are empty: the stack is deleted together with them.
fn delete(turn: &mut Turn<'_>, stack: &StackView) -> To {
    if stack.tags.get(OWNER_TAG).map(String::as_str) != Some(turn.cluster) {
        return Move::Fail(format!("{} exists and is not Slipway's", turn.stack));
    }
    let is_going = stack.status == StackStatus::DeleteInProgress;
    if matches!(phase(stack.status), StackPhase::Busy) && !is_going {
        return Move::Stay(RemovalState::Empty, Waits::StackBusy(stack.status));
    }
    if !is_going {
        turn.effects.push(Effect::DeleteStack {
            stack: turn.stack.to_owned(),
            id: stack.id.clone(),
            stands: true,
            token: operation_token(turn.change_set, &stack.id, "delete"),
        });
    }
    Move::Enter(RemovalState::Delete, Waits::DeletionBegins { emptied: true })
}

/// The result of the deletion.
fn deleted(since: Option<Timestamp>, turn: &Turn<'_>) -> To {
    let Some(found) = turn.observed.stacks.get(turn.stack) else {
        return Move::Stay(RemovalState::Delete, Waits::DeletionBegins { emptied: false });
    };
    let Some(stack) = found.as_ref().filter(|stack| stack.status != StackStatus::DeleteComplete) else {
        return Move::Done { skipped: false };
    };
    // An earlier deletion failed, and the answer may be from before this one.
    let is_sure = waited(since, turn.now) >= CONSISTENT;
    if stack.status == StackStatus::DeleteFailed && is_sure {
        let failures = turn.observed.failures.get(turn.stack).map(Vec::as_slice).unwrap_or_default();
        return Move::Fail(because(format!("{} could not be deleted", turn.stack), failures));
    }
    // CloudFormation cancels a deletion if another stack uses an export of the stack, which then stays as it was.
    if stack.status != StackStatus::DeleteInProgress && waited(since, turn.now) > PATIENCE {
        let minutes = PATIENCE.as_mins();
        let why = stack.reason.as_deref().unwrap_or("CloudFormation does not say why");
        return Move::Fail(format!(
            "the deletion of {} has not begun within {minutes} minutes: {why}",
            turn.stack
        ));
    }
    let group = turn.observed.groups.get(turn.group).and_then(Option::as_ref);
    let machines = Detail(group.map_or(0, |group| group.machines.len()));
    Move::Stay(RemovalState::Delete, Waits::Deletion { machines, kept: group.and_then(kept) })
}
