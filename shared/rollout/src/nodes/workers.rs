//! Replacing workers: a controller drains each one under the budgets of its pods, and then it is terminated by its id (P6, [`Departure`]).
//!
//! The first worker of a pool is its canary: the others follow only when the pool is whole again. Then as many are replaced at a time as
//! may be missing (`maxUnavailable`). With a `surge`, that many machines are launched first, so that a pool can be rolled in which no
//! machine may be missing, or which has only one. The next worker to be replaced is in the zone with the most machines, because Auto
//! Scaling launches its successor in the zone with the fewest.

mod extra;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::transitions::{Transition, Wakes};

use super::super::Effect;
use super::super::departures::{Departure, DepartureState, Ending};
use super::super::fleet::{GroupView, Lifecycle};
use super::super::waits::{
    Boot, Boots, Comes, Departs, Detail, Idle, Many, ObservedParts, Waits, WorkersWait,
};
use super::credentials::outdated;
use super::idle::is_idle_long_enough;
use super::machine::{Machine, Move, Place, State, waited};
use super::{PATIENCE, Phase, RECONSIDERED, Turn, counting, departs, is_current, serves, serving, stands_by};
pub(crate) use extra::Extra;
pub use extra::LeftOver;
use slipway_core::cluster::Pace;

/// The replacement of a pool's workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workers {
    /// The minimum of the spec, in machines.
    pub size: u32,
    /// The maximum of the spec, in machines, without the surge.
    pub most: u32,
    /// `maxUnavailable` and `surge`.
    pub pace: Pace,
    /// Whether its group counts units of capacity instead of machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// Seconds after which a drain may use force, if all other rules for that hold; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// By how many machines its group's desired capacity exceeds the size of the pool, because of the surge.
    #[serde(default)]
    pub extra: Extra,
    /// Workers that are gone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<String>,
    /// Workers that could not be replaced, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<String, String>,
    /// Whether the first worker was replaced and the pool was whole after that.
    #[serde(default)]
    pub proved: bool,
    /// The state of the work.
    pub phase: Phase<WorkersState>,
}

/// The states of [`Workers`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WorkersState {
    /// No worker is being replaced, and no surge machine is expected.
    Look {
        /// Since when there seems to be nothing to do, although nothing was done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_since: Option<Timestamp>,
    },
    /// Workers are being replaced, or surge machines are launched.
    Roll {
        /// Workers that are being replaced.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        begun: BTreeMap<String, Exit>,
    },
}

/// What happens to the size of the group when a worker is terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Exit {
    /// Nothing yet.
    Goes,
    /// The group was told to lower its desired capacity by one.
    Shrinks,
}

impl State for WorkersState {
    const TRANSITIONS: &'static [Transition] = &[
        Transition::new(
            "look",
            "no worker is being replaced: finds outdated workers, or waits for a window or for missing machines",
            &[Wakes::Machine],
            &["roll", "done", "failed"],
        ),
        Transition::new(
            "roll",
            "workers are drained and terminated, or the machines of the surge are launched",
            &[Wakes::Machine, Wakes::Command],
            &["look", "done", "failed"],
        ),
        Transition::DONE,
        Transition::FAILED,
    ];

    fn start() -> Self {
        Self::Look { idle_since: None }
    }

    fn place(&self) -> Place {
        match self {
            Self::Look { .. } => Place::Look,
            Self::Roll { .. } => Place::Roll,
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Roll { .. } => true,
            Self::Look { .. } => false,
        }
    }
}

impl WorkersState {
    /// The number of workers that are being replaced.
    pub(super) fn begun(&self) -> usize {
        match self {
            Self::Look { .. } => 0,
            Self::Roll { begun } => begun.len(),
        }
    }
}

/// The observed state of a pool.
struct Pool<'g> {
    /// Outdated machines in service without a departure.
    outdated: Vec<&'g String>,
    /// The number of machines in service without a departure.
    available: u32,
    /// The number of machines that boot or are unhealthy.
    comes: u32,
    /// The number of machines that the pool should have, without the surge.
    wanted: u32,
}

type To = Move<WorkersState>;

/// Workers that are being replaced.
type Begun = BTreeMap<String, Exit>;

impl Machine for Workers {
    type State = WorkersState;

    fn phase_mut(&mut self) -> &mut Phase<WorkersState> {
        &mut self.phase
    }

    fn next_move(&mut self, state: WorkersState, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let controllers = turn.controllers.and_then(|name| turn.observed.groups.get(name));
        let (Some(view), Some(controllers)) = (turn.observed.groups.get(turn.group), controllers) else {
            return Move::Stay(state, Waits::Look(ObservedParts::Machines));
        };
        let (Some(group), Some(_)) = (view, controllers) else {
            return Move::Fail(format!("{}, or none of controllers", turn.no_group()));
        };
        let (mut begun, idle_since) = match state {
            WorkersState::Look { idle_since } => (Begun::new(), idle_since),
            WorkersState::Roll { begun } => (begun, None),
        };
        if let Extra::Left(left_over) = self.extra {
            self.extra = Extra::found(self.left_over(left_over, group), group.desired, turn.now);
        }
        let still_to_go = begun.iter().filter(|(id, exit)| **exit == Exit::Shrinks && serves(group, id));
        let still_to_go = u32::try_from(still_to_go.count()).unwrap_or(u32::MAX);
        self.extra.follow(group.desired, group.min, still_to_go, turn.now);
        if let Some(why) = self.read_results(&mut begun, turn, group) {
            return Move::Fail(why);
        }
        self.keep_surplus(&mut begun, turn, group);
        // No worker may be terminated in place of a surge machine that was not launched.
        if self.extra.is_to_come(group.desired) {
            return self.stays(begun, self.comes_first(turn, group));
        }
        let pool = self.read_pool(turn, group);
        let extra = self.extra.machines();
        let is_whole = pool.comes == 0 && pool.available >= pool.wanted.saturating_add(extra);
        if begun.is_empty() && is_whole && !self.done.is_empty() {
            self.proved = true;
        }
        if let Some(why) = self.shortage(&begun, since, turn, group, &pool) {
            return Move::Fail(why);
        }
        let is_small = extra == 0 && !self.extra.may_be_larger();
        if pool.outdated.is_empty() && begun.is_empty() && is_whole && is_small {
            let idle_since = idle_since.unwrap_or(turn.now);
            if self.done.is_empty() && !is_idle_long_enough(idle_since, turn.now) {
                let state = WorkersState::Look { idle_since: Some(idle_since) };
                return Move::Stay(state, Waits::SecondLook(Many::Several));
            }
            let skipped = serving(group).any(|(id, machine)| {
                !is_current(group, machine) || turn.skipped.contains(id) || self.given_up.contains_key(id)
            });
            return Move::Done {
                skipped: skipped || stands_by(group, |_, machine| is_current(group, machine)),
            };
        }
        let waits = self.begin(&mut begun, turn, group, &pool);
        // No worker is being replaced, and Auto Scaling launches none, so a newer spec does not have to wait any longer. The surge is then
        // left over, as after a failure. The desired capacity is not lowered: the group would choose the machine to terminate, and may have
        // launched one just now.
        if begun.is_empty() && turn.newer && pool.comes == 0 && waited(*since, turn.now) > RECONSIDERED {
            return Move::Stay(WorkersState::start(), waits);
        }
        self.stays(begun, waits)
    }
}

impl Workers {
    /// The surge was refused, or its group was never asked for it. It will not be launched, so no later rollout may remove it.
    pub(super) fn not_raised(&mut self) {
        self.extra = self.extra.not_raised();
    }

    /// It waits while these workers are being replaced.
    fn stays(&self, begun: Begun, waits: Waits) -> To {
        let rolls = !begun.is_empty() || self.extra.machines() > 0;
        let state = if rolls { WorkersState::Roll { begun } } else { WorkersState::start() };
        Move::Stay(state, waits)
    }

    /// How many surge machines of a rollout that ended early are left in the group: as many as that rollout had added, or as many as the
    /// group has above the spec's maximum.
    fn left_over(&self, left: LeftOver, group: &GroupView) -> u32 {
        if self.weighted {
            return 0;
        }
        let too_many = group.desired.saturating_sub(self.most.max(self.size));
        too_many.max(left.still_there(group.desired).min(group.desired.saturating_sub(self.size)))
    }

    /// Reads the results of the workers that are being replaced. Returns why the pool fails, if it does.
    fn read_results(&mut self, begun: &mut Begun, turn: &mut Turn<'_>, group: &GroupView) -> Option<String> {
        for (id, mut exit) in std::mem::take(begun) {
            // A person skipped it while it was drained: it is uncordoned.
            let skipped = turn.departures.get_mut(&id).filter(|one| {
                turn.skipped.contains(&id)
                    && matches!(one.state, DepartureState::Drain { .. })
                    && one.is_of_a_rollout()
            });
            if let Some(one) = skipped {
                one.withdraw(None, turn.now);
                continue;
            }
            let Some(one) = turn.departures.get(&id) else {
                if !serves(group, &id) {
                    self.done.insert(id);
                }
                continue;
            };
            let leaves = matches!(one.state, DepartureState::Leave { .. });
            match exit {
                Exit::Goes if one.is_surplus() && leaves => {
                    exit = Exit::Shrinks;
                    self.extra.shrinks(group.desired, turn.now);
                }
                // The decrement was refused, or Auto Scaling terminated the machine before it.
                Exit::Shrinks if !one.is_surplus() && one.is_of_a_rollout() => {
                    exit = Exit::Goes;
                    self.extra.not_lowered(!serves(group, &id));
                }
                Exit::Goes | Exit::Shrinks => {}
            }
            // EC2 interrupts a machine, or does not: that is no failure of the rollout.
            let Some(why) = one.problem.clone().filter(|_| !one.is_of_an_interruption()) else {
                begun.insert(id, exit);
                continue;
            };
            turn.budget.failures += 1;
            self.given_up.insert(id, why.clone());
            // A failure of the canary would also happen to the others.
            if !self.proved || turn.budget.failures > turn.budget.allowed {
                return Some(why);
            }
        }
        None
    }

    /// Somebody else, such as a cluster autoscaler, has taken back machines of the surge: as many workers of the new release that are being
    /// drained as surplus stay. Otherwise other machines would replace them.
    fn keep_surplus(&self, begun: &mut Begun, turn: &mut Turn<'_>, group: &GroupView) {
        // One whose termination was requested is no part of the surge any more.
        let surplus = begun.iter().filter(|(_, exit)| **exit == Exit::Goes).map(|(id, _)| id);
        let surplus = surplus
            .filter(|id| turn.departures.get(*id).is_some_and(Departure::is_drained_as_surplus))
            .cloned();
        let surplus: Vec<String> = surplus.collect();
        let too_many = surplus.len().saturating_sub(self.extra.machines() as usize);
        let current = |id: &&String| {
            group.machines.get(*id).is_some_and(|one| is_current(group, one)) && serves(group, id)
        };
        for id in surplus.iter().filter(current).take(too_many) {
            begun.remove(id);
            if let Some(one) = turn.departures.get_mut(id) {
                one.withdraw(None, turn.now);
            }
        }
    }

    /// Why the pool fails, if it does: for too long it has had fewer machines than it should, while no worker is being replaced. Successors
    /// or surge machines are late.
    fn shortage(
        &self,
        begun: &Begun,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
        pool: &Pool<'_>,
    ) -> Option<String> {
        let is_short = pool.comes > 0 || self.lacks_first(pool);
        if !is_short || !begun.is_empty() {
            *since = None;
            return None;
        }
        since.get_or_insert(turn.now);
        if waited(*since, turn.now) <= PATIENCE {
            return None;
        }
        turn.budget.failures += 1;
        if !self.proved || turn.budget.failures > turn.budget.allowed {
            let boots = Boot::pending_in(group, &turn.observed.booting);
            return Some(format!("it is not whole after {} minutes: {}", PATIENCE.as_mins(), Boots(&boots)));
        }
        // Auto Scaling keeps trying, and gets the same time again.
        *since = Some(turn.now);
        None
    }

    /// Whether it has fewer machines than it should, including the surge.
    fn lacks_first(&self, pool: &Pool<'_>) -> bool {
        pool.available < pool.wanted.saturating_add(self.extra.machines())
    }

    fn read_pool<'g>(&self, turn: &Turn<'_>, group: &'g GroupView) -> Pool<'g> {
        let mut outdated: Vec<&String> = outdated(&self.done, turn, group);
        outdated.retain(|id| {
            !turn.departs(id) && !self.given_up.contains_key(*id) && group.machines[*id].healthy
        });
        Pool { outdated, ..self.count(turn.departures, group) }
    }

    /// How many machines the pool has and should have.
    fn count<'g>(&self, departures: &BTreeMap<String, Departure>, group: &'g GroupView) -> Pool<'g> {
        // A machine that had gone serves only in an answer from before that.
        let goes = |id: &String| departs(departures, id) || self.done.contains(id) && serves(group, id);
        let healthy = serving(group).filter(|(id, machine)| machine.healthy && !goes(id));
        let available = u32::try_from(healthy.count()).unwrap_or(u32::MAX);
        let comes = counting(group).filter(|(id, machine)| {
            (machine.lifecycle == Lifecycle::Pending || !machine.healthy) && !goes(id)
        });
        let comes = u32::try_from(comes.count()).unwrap_or(u32::MAX);
        let going = u32::try_from(group.machines.keys().filter(|id| goes(id)).count()).unwrap_or(u32::MAX);
        // A group that counts capacity units does not say how many machines it should have. That follows from its present machines and the
        // missing units.
        let wanted = if self.weighted {
            available + comes + going + lacking(group)
        } else {
            group.desired.saturating_sub(self.extra.machines())
        };
        Pool { outdated: Vec::new(), available, comes, wanted }
    }

    /// Before the first drain command of a worker is sent, its pool is observed once more: if a machine was lost meanwhile, or an earlier
    /// answer was late, too many would be missing, and the worker is chosen again later. A surplus worker with the new release may be the
    /// one that is missing.
    pub(super) fn reconsider(&self, departures: &mut BTreeMap<String, Departure>, group: &GroupView) {
        let Some(WorkersState::Roll { begun }) = self.phase.state() else { return };
        for id in begun.keys().rev() {
            let Some(one) = departures.get(id).filter(|one| one.is_unsent()) else { continue };
            let pool = self.count(departures, group);
            let surge = self.extra.still_there(group.desired);
            let wanted = if self.weighted { pool.wanted } else { group.desired.saturating_sub(surge) };
            let is_current = group.machines.get(id).is_some_and(|machine| is_current(group, machine));
            let may = if one.is_surplus() && is_current { 0 } else { self.pace.max_missing(wanted) };
            if pool.available.saturating_add(may) < wanted {
                departures.remove(id);
            }
        }
    }

    /// Begins to replace as many workers as may be missing, or requests the surge. Returns what it waits for.
    fn begin(&mut self, begun: &mut Begun, turn: &mut Turn<'_>, group: &GroupView, pool: &Pool<'_>) -> Waits {
        // Nothing would come for a worker that goes.
        if let Some(danger) = turn.group_cannot_launch().filter(|_| begun.is_empty()) {
            return Waits::Dangers(vec![danger]);
        }
        let may_start = turn.may_start();
        let mut outdated = pool.outdated.clone();
        let extra = self.extra.machines();
        // An answer from before a decrement would set a size that undoes it.
        if may_start && !turn.newer && !outdated.is_empty() && !self.extra.may_be_larger() {
            let more = self.missing_surge(group, pool);
            if more > 0 {
                let desired = group.desired + more;
                self.extra = self.extra.raised(more, group.desired, turn.now);
                turn.effects.push(Effect::SetDesired { group: turn.group.to_owned(), desired });
                return self.comes_first(turn, group);
            }
        }
        let shrinking = begun.iter().filter(|(_, exit)| **exit == Exit::Goes);
        let shrinking =
            shrinking.filter(|(id, _)| turn.departures.get(*id).is_some_and(Departure::is_surplus)).count();
        let mut surplus = extra.saturating_sub(u32::try_from(shrinking).unwrap_or(u32::MAX));
        let mut free = (pool.available + self.pace.max_missing(pool.wanted)).saturating_sub(pool.wanted);
        if !self.proved {
            // The canary is replaced alone until its successor is in service, also while Auto Scaling has not launched the successor, or
            // cannot.
            free = free.min(u32::from(begun.is_empty() && pool.comes == 0 && self.done.is_empty()));
        }
        free = free.min(u32::try_from(turn.free_drains()).unwrap_or(u32::MAX));
        // A machine with the new release is terminated only if more serve than the pool should have: the surplus machine may be the one
        // that is missing.
        let mut spare = pool.available.saturating_sub(pool.wanted);
        // Outside of a window nothing begins. The surge waits for the next one, because its place is made by draining workers with pods.
        while may_start && free > 0 {
            let shrink = surplus > 0 && (turn.newer || outdated.len() <= surplus as usize);
            // A surplus machine is removed even if a newer spec waits.
            if turn.newer && !shrink {
                break;
            }
            let Some(id) = self.next(&mut outdated, turn, group, shrink && spare > 0) else { break };
            surplus -= u32::from(shrink);
            free -= 1;
            spare = spare.saturating_sub(1);
            let ends = if shrink { goes_as_surplus(begun, turn, group) } else { Ending::Replaced };
            let one = Departure::by_rollout(turn.role, group, ends, self.force_after_s, turn.now);
            turn.departures.insert(id.clone(), one);
            begun.insert(id, Exit::Goes);
        }
        // Otherwise it says which machines boot, or how many the pool lacks.
        let is_full = pool.comes == 0 && pool.available >= pool.wanted;
        if begun.is_empty() && is_full && self.lacks_first(pool) {
            return self.comes_first(turn, group);
        }
        Waits::Workers(self.waits(begun, turn, group, pool, may_start))
    }

    /// How many more machines to launch before workers are terminated.
    fn missing_surge(&self, group: &GroupView, pool: &Pool<'_>) -> u32 {
        let outdated = u32::try_from(pool.outdated.len()).unwrap_or(u32::MAX);
        let most = if self.weighted { 0 } else { self.pace.max_surge(pool.wanted) };
        // The first surge machine is a canary, too.
        let most = if self.proved { most } else { most.min(1) };
        let room = group.max.saturating_sub(group.desired);
        most.min(outdated).saturating_sub(self.extra.machines()).min(room)
    }

    /// The next worker to be replaced: the first one in the zone with the most machines. With `shrink`, a worker that is not outdated may be
    /// chosen, too.
    fn next(
        &self,
        outdated: &mut Vec<&String>,
        turn: &Turn<'_>,
        group: &GroupView,
        shrink: bool,
    ) -> Option<String> {
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, machine) in serving(group).filter(|(id, _)| !turn.departs(id)) {
            *zones.entry(&machine.zone).or_default() += 1;
        }
        let most = |id: &&String| zones.get(group.machines[*id].zone.as_str()).copied().unwrap_or_default();
        let first = outdated.iter().copied().rev().max_by_key(most);
        if let Some(first) = first {
            outdated.retain(|id| *id != first);
            return Some(first.clone());
        }
        // None is outdated, and there is one surplus machine.
        let stays = serving(group).map(|(id, _)| id).filter(|id| !turn.departs(id));
        let stays =
            stays.filter(|id| shrink && !turn.skipped.contains(*id) && !self.given_up.contains_key(*id));
        stays.max_by_key(most).cloned()
    }

    fn waits(
        &self,
        begun: &Begun,
        turn: &Turn<'_>,
        group: &GroupView,
        pool: &Pool<'_>,
        may_start: bool,
    ) -> WorkersWait {
        let departs = Departs::first_three(begun.keys(), turn.departures);
        let in_all = (begun.len() > departs.len()).then_some(Detail(begun.len()));
        let is_short = pool.comes > 0 || pool.available < pool.wanted;
        let whole = is_short.then(|| Boot::pending_in(group, &turn.observed.booting));
        let idle = (departs.is_empty() && in_all.is_none() && whole.is_none()).then(|| {
            if turn.newer {
                Idle::NewerSpec
            } else if !may_start {
                Idle::Window { at_most_until: turn.urgent_from }
            } else if self.pace.max_missing(pool.wanted) == 0 && self.extra.machines() == 0 {
                Idle::NoRoom { group: turn.group.to_owned(), max: group.max }
            } else {
                Idle::Others
            }
        });
        WorkersWait { departs, in_all, whole, idle, done: Detail(self.done.len()) }
    }

    fn comes_first(&self, turn: &Turn<'_>, group: &GroupView) -> Waits {
        let boots = Boot::pending_in(group, &turn.observed.booting);
        Waits::Boot(Comes::First(self.extra.machines()), boots)
    }
}

/// How a surplus machine is terminated. Each of the other surplus machines lowers the desired capacity, too, in any order, so that none of
/// them mistakes that for a change by somebody else.
fn goes_as_surplus(begun: &Begun, turn: &mut Turn<'_>, group: &GroupView) -> Ending {
    let mut desired = group.desired;
    for (id, exit) in begun {
        let still_to_go = *exit == Exit::Goes || serves(group, id);
        let one = turn.departures.get_mut(id).filter(|one| still_to_go && one.is_surplus());
        if let Some(one) = one {
            one.count_removed_surplus();
            desired = desired.saturating_sub(1);
        }
    }
    Ending::Surplus { of: desired }
}

/// The minimum number of machines that a group with weights lacks: this many of its heaviest machines would provide the missing units.
fn lacking(group: &GroupView) -> u32 {
    let weights: Vec<u32> = counting(group).map(|(_, machine)| machine.weight).collect();
    let units = weights.iter().copied().fold(0, u32::saturating_add);
    group.desired.saturating_sub(units).div_ceil(weights.into_iter().max().unwrap_or(1).max(1))
}

#[cfg(test)]
mod tests;
