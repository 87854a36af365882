//! A pool that the spec has no longer: its machines are emptied, all of them, and then its stack is deleted (P6).
//!
//! They are drained where they are, as many at a time as may be missing, and stay, empty, until the last of them is. Up to that moment
//! nothing was taken away: an abort, a failure or a newer spec has them take pods again, and the pool is as it was. Then CloudFormation is
//! told to delete the stack, and takes the machines down through their terminate hooks, which are completed when a drain finds nothing left
//! ([`Departure`]): whatever came to a machine meanwhile is evicted under its budgets, too. Once begun, a deletion is seen to its end.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::cluster::Pace;
use slipway_core::role::Role;

use super::super::departures::{Departure, DepartureState, Ending, MOST_DRAINS};
use super::super::fleet::{GroupView, Lifecycle, MachineView};
use super::super::stack_step::{OWNER_TAG, Phase as StackPhase, because, phase};
use super::super::waits::{Departs, Detail, Idle, Kept, Looked, Waits};
use super::super::{Effect, StackStatus, StackView, operation_token};
use super::machine::{Machine, Move, Place, State, waited};
use super::{PATIENCE, Phase, Turn, serving};
use crate::states::{Wakes, Way};

/// A pool that goes with its stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Removal {
    /// How many are emptied at once.
    pub pace: Pace,
    /// Seconds after which a drain may be forced by all the other rules; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// Machines that are being emptied.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub begun: BTreeSet<String>,
    /// Machines that are empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub empty: BTreeSet<String>,
    /// How far it is.
    pub phase: Phase<RemovalState>,
}

/// How far a [`Removal`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemovalState {
    /// Its machines are emptied.
    Empty,
    /// CloudFormation deletes its stack.
    Delete,
}

impl State for RemovalState {
    const WAYS: &'static [Way] = &[
        Way::new(
            "empty",
            "all its machines are emptied, and stay",
            &[Wakes::Command],
            &["delete", "done", "failed"],
        ),
        Way::new("delete", "CloudFormation deletes its stack", &[Wakes::Stack], &["empty", "done", "failed"]),
        Way::DONE,
        Way::FAILED,
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
            // Nothing has gone before its stack is deleted.
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
            RemovalState::Empty => self.look_at_machines(turn),
            RemovalState::Delete => deleted(*since, turn),
        }
    }
}

impl Removal {
    /// Its machines stay, and take pods again.
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

    fn look_at_machines(&mut self, turn: &mut Turn<'_>) -> To {
        let controllers = turn.controllers.and_then(|name| turn.observed.groups.get(name));
        let group = turn.observed.groups.get(turn.group);
        let stack = turn.observed.stacks.get(turn.stack);
        let (Some(group), Some(_), Some(stack)) = (group, controllers, stack) else {
            return Move::Stay(RemovalState::Empty, Waits::Look(Looked::MachinesAndStack));
        };
        let Some(stack) = stack.as_ref().filter(|stack| stack.status != StackStatus::DeleteComplete) else {
            // Somebody was quicker.
            return Move::Done { left: false };
        };
        if let Some(moves) = self.empty(turn, group.as_ref()) {
            return moves;
        }
        // Before anything is taken away: a deletion once begun would wait for it, and could not be called off.
        if let Some(kept) = group.as_ref().and_then(kept) {
            return Move::Stay(RemovalState::Empty, Waits::Kept(kept));
        }
        delete(turn, stack)
    }

    /// Has its machines emptied; `None`: all are, and what is disruptive may start.
    fn empty(&mut self, turn: &mut Turn<'_>, group: Option<&GroupView>) -> Option<To> {
        let machines: Vec<&String> = group.into_iter().flat_map(serving).map(|(id, _)| id).collect();
        if machines.iter().any(|id| turn.skipped.contains(*id)) {
            // With one that is to be left, its stack is, too.
            self.let_all_stay(turn.role, turn.group, turn.departures, turn.now);
            return Some(Move::Done { left: true });
        }
        self.empty.retain(|id| machines.contains(&id));
        for id in std::mem::take(&mut self.begun) {
            // One that is not there any more has gone by itself.
            let Some(one) = turn.departures.get(&id) else { continue };
            if let Some(why) = one.problem.clone() {
                return Some(Move::Fail(why));
            }
            if one.state == DepartureState::Rest {
                turn.departures.remove(&id);
                self.empty.insert(id);
            } else {
                self.begun.insert(id);
            }
        }
        let todo: Vec<&String> = machines.iter().copied().filter(|id| !self.empty.contains(*id)).collect();
        let held = turn.newer || !turn.may_start();
        if let Some(group) = group.filter(|_| !held) {
            let of = u32::try_from(machines.len()).unwrap_or(u32::MAX);
            let width = self.pace.may_miss(of).max(1) as usize;
            let free = width.saturating_sub(self.begun.len());
            let free = free.min(MOST_DRAINS.saturating_sub(turn.departures.len()));
            let next = todo.iter().filter(|id| !turn.departs(id)).take(free);
            for id in next.map(|id| (*id).clone()).collect::<Vec<_>>() {
                let one =
                    Departure::by_rollout(turn.role, group, Ending::Rests, self.force_after_s, turn.now);
                turn.departures.insert(id.clone(), one);
                self.begun.insert(id);
            }
        }
        if todo.is_empty() && !held {
            return None;
        }
        let departs = Departs::of(self.begun.iter(), turn.departures);
        let idle = departs.is_empty().then_some(match (turn.newer, held) {
            (true, _) => Idle::NewerSpec,
            (false, true) => Idle::Window { at_most_until: turn.urgent_from },
            (false, false) => Idle::Others,
        });
        let waits = Waits::Removal { departs, idle, empty: Detail((self.empty.len(), machines.len())) };
        Some(Move::Stay(RemovalState::Empty, waits))
    }
}

/// A machine that its group has retained: its terminate hook ran out before anybody had drained it, so pods may run on it, and CloudFormation
/// deletes no group that has machines. It is drained and terminated like every worker that Auto Scaling takes down ([`Departure`]).
fn kept(group: &GroupView) -> Option<Kept> {
    let kept = |machine: &MachineView| machine.lifecycle == Lifecycle::Retained;
    let (id, _) = group.machines.iter().find(|(_, machine)| kept(machine))?;
    Some(Kept { group: group.name.clone(), machine: id.clone() })
}

/// Nothing is left on its machines: its stack goes, and they with it.
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

/// What became of the deletion.
fn deleted(since: Option<Timestamp>, turn: &Turn<'_>) -> To {
    let Some(found) = turn.observed.stacks.get(turn.stack) else {
        return Move::Stay(RemovalState::Delete, Waits::DeletionBegins { emptied: false });
    };
    let Some(stack) = found.as_ref().filter(|stack| stack.status != StackStatus::DeleteComplete) else {
        return Move::Done { left: false };
    };
    if stack.status == StackStatus::DeleteFailed {
        let failures = turn.observed.failures.get(turn.stack).map(Vec::as_slice).unwrap_or_default();
        return Move::Fail(because(format!("{} could not be deleted", turn.stack), failures));
    }
    // It is called off where somebody else uses what the stack exports; the stack then stays as it was.
    if stack.status != StackStatus::DeleteInProgress && waited(since, turn.now) > PATIENCE {
        let minutes = PATIENCE.as_mins();
        let why = stack.reason.as_deref().unwrap_or("CloudFormation does not say why");
        return Move::Fail(format!(
            "the deletion of {} has not begun within {minutes} minutes: {why}",
            turn.stack
        ));
    }
    let group = turn.observed.groups.get(turn.group).and_then(Option::as_ref);
    let left = Detail(group.map_or(0, |group| group.machines.len()));
    Move::Stay(RemovalState::Delete, Waits::Deletion { left, kept: group.and_then(kept) })
}
