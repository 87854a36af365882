//! Workers that are replaced: each drained by a controller under its pods' budgets, then terminated in so many words (P6, [`Departure`]).
//!
//! The first of a pool is its canary: the others follow only when the pool is whole again. Then as many go at once as may be missing
//! (`maxUnavailable`); with `surge` more machines come first, so that a pool that may miss none, or has one alone, is rolled as well.
//! Of several zones the one that has most machines gives one up first, which is where Auto Scaling has put one more.

mod extra;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::states::{Wakes, Way};

use super::super::Effect;
use super::super::departures::{Departure, DepartureState, Ending, MOST_DRAINS};
use super::super::fleet::{GroupView, Lifecycle};
use super::super::waits::{Boot, Boots, Comes, Departs, Detail, Idle, Looked, Many, Waits, WorkersWait};
use super::credentials::outdated;
use super::idle::surely;
use super::machine::{Machine, Move, Place, State, waited};
use super::{PATIENCE, Phase, RECONSIDERED, Turn, counting, is_current, serves, serving};
pub(crate) use extra::Extra;
pub use extra::LeftOver;
use slipway_core::cluster::Pace;

/// Workers of a pool that are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workers {
    /// How many there are to be at least.
    pub size: u32,
    /// How many there may be at most, but for those that come first.
    pub most: u32,
    /// How many may be missing, or too many, while they are worked on.
    pub pace: Pace,
    /// Whether its group counts units of capacity, not machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// Seconds after which a drain may be forced by all the other rules; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// How many machines more its group wants than there are to be.
    #[serde(default)]
    pub extra: Extra,
    /// Those that went.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<String>,
    /// Those that could not be replaced, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<String, String>,
    /// Whether the first was replaced, and the pool was whole after it.
    #[serde(default)]
    pub proved: bool,
    /// How far it is.
    pub phase: Phase<WorkersState>,
}

/// How far [`Workers`] are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WorkersState {
    /// Nobody was told to go, and none is to come first.
    Look {
        /// Since when nothing seems to be left to do, though nothing was done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_since: Option<Timestamp>,
    },
    /// Workers are drained and go, or more come first.
    Roll {
        /// Those that were told to go, and have not gone.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        begun: BTreeMap<String, Told>,
    },
}

/// A worker that was told to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Told {
    /// It goes.
    Goes,
    /// It goes, and its group was told to want one less.
    Shrinks,
}

impl State for WorkersState {
    const WAYS: &'static [Way] = &[
        Way::new(
            "look",
            "nobody was told to go: looks who is outdated, waits for a window, or for a whole pool",
            &[Wakes::Machine],
            &["roll", "done", "failed"],
        ),
        Way::new(
            "roll",
            "workers are drained and go, or more come first",
            &[Wakes::Machine, Wakes::Command],
            &["look", "done", "failed"],
        ),
        Way::DONE,
        Way::FAILED,
    ];

    fn look() -> Self {
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
    /// Those that were told to go, and have not gone.
    pub(super) fn begun(&self) -> usize {
        match self {
            Self::Look { .. } => 0,
            Self::Roll { begun } => begun.len(),
        }
    }
}

/// What there is of a pool.
struct Pool<'g> {
    /// Outdated machines that serve, and that nobody has told to go.
    outdated: Vec<&'g String>,
    /// How many serve and stay.
    available: u32,
    /// How many come, or are ill.
    comes: u32,
    /// How many there are to be, without those that come first.
    wanted: u32,
}

type To = Move<WorkersState>;

/// Those that were told to go, and have not gone.
type Begun = BTreeMap<String, Told>;

impl Machine for Workers {
    type State = WorkersState;

    fn phase_mut(&mut self) -> &mut Phase<WorkersState> {
        &mut self.phase
    }

    fn look(&mut self, state: WorkersState, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let controllers = turn.controllers.and_then(|name| turn.observed.groups.get(name));
        let (Some(view), Some(controllers)) = (turn.observed.groups.get(turn.group), controllers) else {
            return Move::Stay(state, Waits::Look(Looked::Machines));
        };
        let (Some(group), Some(_)) = (view, controllers) else {
            return Move::Fail(format!("{}, or none of controllers", turn.no_group()));
        };
        let (mut begun, idle_since) = match state {
            WorkersState::Look { idle_since } => (Begun::new(), idle_since),
            WorkersState::Roll { begun } => (begun, None),
        };
        if let Extra::Left(left) = self.extra {
            self.extra = Extra::Known { machines: self.left_over(left, group), expected: None };
        }
        if let Some(why) = self.settle(&mut begun, turn, group) {
            return Move::Fail(why);
        }
        let still_to_go = begun.iter().filter(|(id, told)| **told == Told::Shrinks && serves(group, id));
        let still_to_go = u32::try_from(still_to_go.count()).unwrap_or(u32::MAX);
        self.extra.follow(group.desired, still_to_go, turn.now);
        // Without those that come first nobody may go for them.
        if self.extra.is_to_come(group.desired) {
            return self.stays(begun, self.comes_first(turn, group));
        }
        let pool = self.survey(turn, group);
        let extra = self.extra.machines();
        let is_whole = pool.comes == 0 && pool.available >= pool.wanted.saturating_add(extra);
        if begun.is_empty() && is_whole && !self.done.is_empty() {
            self.proved = true;
        }
        if let Some(why) = self.shortage(&begun, since, turn, group, &pool) {
            return Move::Fail(why);
        }
        if pool.outdated.is_empty() && begun.is_empty() && is_whole && extra == 0 {
            let idle_since = idle_since.unwrap_or(turn.now);
            if self.done.is_empty() && !surely(idle_since, turn.now) {
                let state = WorkersState::Look { idle_since: Some(idle_since) };
                return Move::Stay(state, Waits::SecondLook(Many::Several));
            }
            let left = serving(group).any(|(id, machine)| {
                !is_current(group, machine) || turn.skipped.contains(id) || self.given_up.contains_key(id)
            });
            return Move::Done { left };
        }
        let waits = self.begin(&mut begun, turn, group, &pool);
        // Nobody was told to go, and Auto Scaling launches none: a newer spec need not wait for the rest of the patience. What the group wants
        // more is left over then, as after a failure. It is not told to want less: it would choose who goes, and may have launched one just now.
        if begun.is_empty() && turn.newer && pool.comes == 0 && waited(*since, turn.now) > RECONSIDERED {
            return Move::Stay(WorkersState::look(), waits);
        }
        self.stays(begun, waits)
    }
}

impl Workers {
    /// Its group does not want more, since that was refused or never told: those were to come first, never come, and are not taken away by a later rollout.
    pub(super) fn not_raised(&mut self) {
        self.extra = self.extra.not_raised();
    }

    /// It waits, with those that were told to go.
    fn stays(&self, begun: Begun, waits: Waits) -> To {
        let rolls = !begun.is_empty() || self.extra.machines() > 0;
        let state = if rolls { WorkersState::Roll { begun } } else { WorkersState::look() };
        Move::Stay(state, waits)
    }

    /// How many machines more the group wants than there are to be: an earlier rollout may have ended with more than the spec has, or with
    /// more than the group wanted before it, which were so many.
    fn left_over(&self, left: LeftOver, group: &GroupView) -> u32 {
        if self.weighted {
            return 0;
        }
        let too_many = group.desired.saturating_sub(self.most.max(self.size));
        too_many.max(left.of(group.desired).min(group.desired.saturating_sub(self.size)))
    }

    /// What became of those that were told to go; why it fails, if it does.
    fn settle(&mut self, begun: &mut Begun, turn: &mut Turn<'_>, group: &GroupView) -> Option<String> {
        for (id, mut told) in std::mem::take(begun) {
            // Told to be left while it was drained: it takes pods again.
            let left = turn.departures.get_mut(&id).filter(|one| {
                turn.skipped.contains(&id)
                    && matches!(one.state, DepartureState::Drain { .. })
                    && one.is_of_a_rollout()
            });
            if let Some(one) = left {
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
            if one.is_surplus() && leaves && told == Told::Goes {
                told = Told::Shrinks;
                self.extra.shrinks(group.desired, turn.now);
            }
            let Some(why) = one.problem.clone() else {
                begun.insert(id, told);
                continue;
            };
            turn.budget.failures += 1;
            self.given_up.insert(id, why.clone());
            // What the first of a pool meets, the others would.
            if !self.proved || turn.budget.failures > turn.budget.allowed {
                return Some(why);
            }
        }
        None
    }

    /// The pool has fewer machines than it should, and nobody was told to go: successors are late, or those that are to come first. Why it
    /// fails, if it does.
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
            let boots = Boot::of(group, &turn.observed.booting);
            return Some(format!("it is not whole after {} minutes: {}", PATIENCE.as_mins(), Boots(&boots)));
        }
        // Auto Scaling goes on trying, and may do so for as long again.
        *since = Some(turn.now);
        None
    }

    /// Whether it has fewer machines than it should, or those that are to come first have not come.
    fn lacks_first(&self, pool: &Pool<'_>) -> bool {
        pool.available < pool.wanted.saturating_add(self.extra.machines())
    }

    fn survey<'g>(&self, turn: &Turn<'_>, group: &'g GroupView) -> Pool<'g> {
        let goes = |id: &String| turn.departs(id);
        let healthy = serving(group).filter(|(id, machine)| machine.healthy && !goes(id));
        let available = u32::try_from(healthy.count()).unwrap_or(u32::MAX);
        let comes = counting(group).filter(|(id, machine)| {
            (machine.lifecycle == Lifecycle::Pending || !machine.healthy) && !goes(id)
        });
        let comes = u32::try_from(comes.count()).unwrap_or(u32::MAX);
        let going = u32::try_from(group.machines.keys().filter(|id| goes(id)).count()).unwrap_or(u32::MAX);
        let mut outdated: Vec<&String> = outdated(&self.done, turn, group);
        outdated.retain(|id| !goes(id) && !self.given_up.contains_key(*id) && group.machines[*id].healthy);
        // How many machines a group wants that counts units of capacity is seen by those that it has, and by the units that they lack.
        let wanted = if self.weighted {
            available + comes + going + lacking(group)
        } else {
            group.desired.saturating_sub(self.extra.machines())
        };
        Pool { outdated, available, comes, wanted }
    }

    /// Has as many go as may be missing, or more come first; says what it waits for.
    fn begin(&mut self, begun: &mut Begun, turn: &mut Turn<'_>, group: &GroupView, pool: &Pool<'_>) -> Waits {
        let may_start = turn.may_start();
        let mut outdated = pool.outdated.clone();
        let extra = self.extra.machines();
        if may_start && !turn.newer && !outdated.is_empty() {
            let more = self.more(group, pool);
            if more > 0 {
                let desired = group.desired + more;
                self.extra = self.extra.raised(more, group.desired, turn.now);
                turn.effects.push(Effect::SetDesired { group: turn.group.to_owned(), desired });
                return self.comes_first(turn, group);
            }
        }
        let shrinking = begun.iter().filter(|(_, told)| **told == Told::Goes);
        let shrinking =
            shrinking.filter(|(id, _)| turn.departures.get(*id).is_some_and(Departure::is_surplus)).count();
        let mut surplus = extra.saturating_sub(u32::try_from(shrinking).unwrap_or(u32::MAX));
        let mut free = (pool.available + self.pace.may_miss(pool.wanted)).saturating_sub(pool.wanted);
        if !self.proved {
            // The first of a pool goes alone until its successor serves, also while Auto Scaling has not launched that one, or cannot.
            free = free.min(u32::from(begun.is_empty() && pool.comes == 0 && self.done.is_empty()));
        }
        let busy = u32::try_from(turn.departures.len()).unwrap_or(u32::MAX);
        free = free.min(u32::try_from(MOST_DRAINS).unwrap_or(u32::MAX).saturating_sub(busy));
        let held = !may_start || turn.newer;
        while free > 0 {
            let shrink = surplus > 0 && (held || outdated.len() <= surplus as usize);
            // Of the surplus somebody goes even when nothing else begins.
            if held && !shrink {
                break;
            }
            let Some(id) = next(&mut outdated, turn, group, shrink) else { break };
            surplus -= u32::from(shrink);
            free -= 1;
            let ends = if shrink { Ending::Surplus { of: group.desired } } else { Ending::Replaced };
            let one = Departure::by_rollout(turn.role, group, ends, self.force_after_s, turn.now);
            turn.departures.insert(id.clone(), one);
            begun.insert(id, Told::Goes);
        }
        // Otherwise the machines that boot are named, or those that the pool lacks.
        let is_full = pool.comes == 0 && pool.available >= pool.wanted;
        if begun.is_empty() && is_full && self.lacks_first(pool) {
            return self.comes_first(turn, group);
        }
        Waits::Workers(self.waits(begun, turn, group, pool, may_start))
    }

    /// How many machines are to come before others go.
    fn more(&self, group: &GroupView, pool: &Pool<'_>) -> u32 {
        let outdated = u32::try_from(pool.outdated.len()).unwrap_or(u32::MAX);
        let most = if self.weighted { 0 } else { self.pace.more(pool.wanted) };
        // The first of them is a canary, too.
        let most = if self.proved { most } else { most.min(1) };
        let room = group.max.saturating_sub(group.desired);
        most.min(outdated).saturating_sub(self.extra.machines()).min(room)
    }

    fn waits(
        &self,
        begun: &Begun,
        turn: &Turn<'_>,
        group: &GroupView,
        pool: &Pool<'_>,
        may_start: bool,
    ) -> WorkersWait {
        let departs = Departs::of(begun.keys(), turn.departures);
        let in_all = (begun.len() > departs.len()).then_some(Detail(begun.len()));
        let is_short = pool.comes > 0 || pool.available < pool.wanted;
        let whole = is_short.then(|| Boot::of(group, &turn.observed.booting));
        let idle = (departs.is_empty() && in_all.is_none() && whole.is_none()).then(|| {
            if turn.newer {
                Idle::NewerSpec
            } else if !may_start {
                Idle::Window { at_most_until: turn.urgent_from }
            } else if self.pace.may_miss(pool.wanted) == 0 && self.extra.machines() == 0 {
                Idle::NoRoom { group: turn.group.to_owned(), max: group.max }
            } else {
                Idle::Others
            }
        });
        WorkersWait { departs, in_all, whole, idle, done: Detail(self.done.len()) }
    }

    fn comes_first(&self, turn: &Turn<'_>, group: &GroupView) -> Waits {
        let boots = Boot::of(group, &turn.observed.booting);
        Waits::Boot(Comes::First(self.extra.machines()), boots)
    }
}

/// Who goes next: of the zone that has most machines, the first.
fn next(outdated: &mut Vec<&String>, turn: &Turn<'_>, group: &GroupView, shrink: bool) -> Option<String> {
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
    // Nobody is outdated, and there is one too many.
    let stays = serving(group).map(|(id, _)| id).filter(|id| !turn.departs(id));
    let stays = stays.filter(|id| shrink && !turn.skipped.contains(*id));
    stays.max_by_key(most).cloned()
}

/// How many machines a group with weights lacks at least: so many of the heaviest that it has.
fn lacking(group: &GroupView) -> u32 {
    let weights: Vec<u32> = counting(group).map(|(_, machine)| machine.weight).collect();
    let units = weights.iter().copied().fold(0, u32::saturating_add);
    group.desired.saturating_sub(units).div_ceil(weights.into_iter().max().unwrap_or(1).max(1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use slipway_core::cluster::CountOrPercent;

    /// A group that wants so many units, and may have twice as many, of machines of these weights.
    fn group(desired: u32, weights: &[u32]) -> GroupView {
        let machine = |(at, weight): (usize, &u32)| {
            let machine = json!({
                "zone": "a", "lifecycle": "inService", "healthy": true, "weight": weight, "template": null,
            });
            (format!("i-{at}"), machine)
        };
        let machines: BTreeMap<String, Value> = weights.iter().enumerate().map(machine).collect();
        serde_json::from_value(json!({
            "name": "c-pool-a", "desired": desired, "min": 1, "max": desired * 2, "template": null,
            "machines": machines, "tags": {},
        }))
        .unwrap()
    }

    #[test]
    fn p6_a_group_with_weights_lacks_as_many_machines_as_its_heaviest_need_for_the_units() {
        for (desired, weights, machines) in [
            (8, &[4, 4][..], 0),
            (9, &[4, 4], 1),
            (10, &[4, 4], 1),
            (12, &[4, 4], 1),
            (13, &[4, 4], 2),
            (10, &[1, 8], 1),
            (7, &[4, 4], 0),
            (3, &[], 3),
            (3, &[0], 3),
        ] {
            assert_eq!(lacking(&group(desired, weights)), machines, "{desired} of {weights:?}");
        }
    }

    #[test]
    fn p6_to_a_pool_with_weights_none_comes_first_since_nobody_knows_how_many_machines_a_unit_is() {
        let group = group(4, &[1, 1, 1, 1]);
        let outdated: Vec<&String> = group.machines.keys().collect();
        let pool = Pool { outdated, available: 4, comes: 0, wanted: 4 };
        for (weighted, more) in [(false, 2), (true, 0)] {
            let pace = Pace { max_unavailable: CountOrPercent::Count(1), surge: CountOrPercent::Count(2) };
            let workers = Workers {
                size: 4,
                most: 4,
                pace,
                weighted,
                force_after_s: None,
                extra: Extra::told(0, 4, Timestamp::UNIX_EPOCH),
                done: BTreeSet::new(),
                given_up: BTreeMap::new(),
                proved: true,
                phase: Phase::new(WorkersState::look()),
            };
            assert_eq!(workers.more(&group, &pool), more, "{weighted}");
        }
    }
}
