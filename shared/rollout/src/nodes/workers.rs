//! Workers that are replaced: each drained by a controller under its pods' budgets, then terminated in so many words (P6, [`Departure`]).
//!
//! The first of a pool is its canary: the others follow only when the pool is whole again. Then as many go at once as may be missing
//! (`maxUnavailable`); with `surge` more machines come first, so that a pool that may miss none, or has one alone, is rolled as well.
//! Of several zones the one that has most machines gives one up first, which is where Auto Scaling has put one more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::states::{Wakes, Way};

use super::super::Effect;
use super::super::departures::{Cause, Departure, DepartureState, MOST_DRAINS};
use super::super::errand::Asked;
use super::super::fleet::{GroupView, Lifecycle};
use super::super::waits::{Boot, Boots, Comes, Departs, Figure, Idle, Looked, Many, Waits, WorkersWait};
use super::credentials::outdated;
use super::idle::surely;
use super::machine::{Machine, Move, Place, State, waited};
use super::{PATIENCE, Phase, RECONSIDERED, Turn, counting, is_current, serves, serving};
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
    /// How many machines more its group wants than there are to be, as an earlier rollout that ended early left it, or this one would.
    #[serde(default)]
    pub left_over: u32,
    /// How far it is. It has a single state, which tells of each worker.
    pub phase: Phase<Crew>,
}

/// How the workers of a pool stand that are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Crew {
    /// Those that were told to go.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub begun: BTreeSet<String>,
    /// Those that went.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<String>,
    /// Whether the first was replaced, and the pool was whole after it.
    #[serde(default)]
    pub proved: bool,
    /// How many machines more its group wants than there are to be; `None`: it was not looked at yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<u32>,
    /// When that was changed: what was seen before does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resized: Option<Timestamp>,
    /// What its group was told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// Those of them that went, of which the group was told to want one less.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shrunk: BTreeSet<String>,
    /// Those that could not be replaced, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<String, String>,
    /// Since when nothing seems to be left to do, though nothing was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
}

/// How many machines a group should want after what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expected {
    /// So many.
    pub desired: u32,
    /// When it was told.
    pub since: Timestamp,
}

impl State for Crew {
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
        Way::new("done", "nothing is left to do", &[], &[]),
        Way::new("failed", "it failed: the rollout ends", &[], &[]),
    ];

    fn look() -> Self {
        Self::default()
    }

    fn place(&self) -> Place {
        if self.is_busy() { Place::Roll } else { Place::Look }
    }

    fn asked(&self) -> &[Asked] {
        &[]
    }

    fn asked_mut(&mut self) -> &mut [Asked] {
        &mut []
    }

    fn is_busy(&self) -> bool {
        !self.begun.is_empty() || self.extra.is_some_and(|extra| extra > 0)
    }
}

impl Crew {
    /// The group was told to want so many.
    fn expects(&mut self, desired: u32, since: Timestamp) {
        self.expected = Some(Expected { desired, since });
    }

    /// Somebody else changes the group's size, too: a cluster autoscaler sets absolute values from what it saw up to a minute before
    /// (kubernetes/autoscaler, cloudprovider/aws, `IncreaseSize`), and takes back a machine that has not become a node within a quarter of an hour
    /// (`removeOldUnregisteredNodes`). What it took back of the machines that were to come first is not one too many any more.
    fn follow(&mut self, desired: u32, now: Timestamp) {
        let Some(expected) = self.expected.filter(|one| now.duration_since(one.since) > RECONSIDERED) else {
            return;
        };
        let taken_back = expected.desired.saturating_sub(desired);
        self.extra = self.extra.map(|extra| extra.saturating_sub(taken_back));
        self.expected = Some(Expected { desired, ..expected });
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

type To = Move<Crew>;

impl Machine for Workers {
    type State = Crew;

    fn phase_mut(&mut self) -> &mut Phase<Crew> {
        &mut self.phase
    }

    fn look(&mut self, mut crew: Crew, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let controllers = turn.controllers.and_then(|name| turn.observed.groups.get(name));
        let (Some(view), Some(controllers)) = (turn.observed.groups.get(turn.group), controllers) else {
            return Move::Stay(crew, Waits::Look(Looked::Machines));
        };
        let (Some(group), Some(_)) = (view, controllers) else {
            return Move::Fail(format!("{}, or none of controllers", turn.no_group()));
        };
        if crew.resized == Some(turn.now) {
            let waits = comes_first(&crew, turn, group);
            return Move::Stay(crew, waits);
        }
        // An earlier rollout may have ended with more than the spec has, or with more than the group wanted before it.
        let too_many = group.desired.saturating_sub(self.most.max(self.size));
        let left = too_many.max(self.left_over.min(group.desired.saturating_sub(self.size)));
        crew.extra.get_or_insert(if self.weighted { 0 } else { left });
        if let Some(why) = settle(&mut crew, turn, group) {
            self.left_over = crew.extra.unwrap_or_default();
            return Move::Fail(why);
        }
        crew.follow(group.desired, turn.now);
        // An answer of before, or the group was never told: without those that come first nobody may go for them.
        if crew.expected.is_some_and(|expected| group.desired < expected.desired) {
            let waits = comes_first(&crew, turn, group);
            self.left_over = crew.extra.unwrap_or_default();
            return Move::Stay(crew, waits);
        }
        let extra = crew.extra.unwrap_or_default();
        self.left_over = extra;
        let pool = self.survey(&crew, turn, group);
        let is_whole = pool.comes == 0 && pool.available >= pool.wanted.saturating_add(extra);
        if crew.begun.is_empty() && is_whole && !crew.done.is_empty() {
            crew.proved = true;
        }
        if let Some(why) = shortage(&crew, since, turn, group, &pool) {
            return Move::Fail(why);
        }
        if pool.outdated.is_empty() && crew.begun.is_empty() && is_whole && extra == 0 {
            let idle_since = *crew.idle_since.get_or_insert(turn.now);
            if crew.done.is_empty() && !surely(idle_since, turn.now) {
                return Move::Stay(crew, Waits::SecondLook(Many::Several));
            }
            let left = serving(group).any(|(id, machine)| {
                !is_current(group, machine) || turn.skipped.contains(id) || crew.given_up.contains_key(id)
            });
            return Move::Done { left };
        }
        crew.idle_since = None;
        let waits = self.begin(&mut crew, turn, group, &pool);
        self.left_over = crew.extra.unwrap_or_default();
        Move::Stay(crew, waits)
    }
}

/// What became of those that were told to go; why it fails, if it does.
fn settle(crew: &mut Crew, turn: &mut Turn<'_>, group: &GroupView) -> Option<String> {
    for id in std::mem::take(&mut crew.begun) {
        // Told to be left while it was drained: it takes pods again.
        let left = turn.departures.get_mut(&id).filter(|one| {
            turn.skipped.contains(&id)
                && matches!(one.state, DepartureState::Drain { .. })
                && one.cause == Cause::Rollout
        });
        if let Some(one) = left {
            one.withdraw(None, turn.now);
            continue;
        }
        let Some(one) = turn.departures.get(&id) else {
            if !serves(group, &id) {
                crew.done.insert(id);
            }
            continue;
        };
        let leaves = matches!(one.state, DepartureState::Leave { .. });
        if one.is_surplus() && leaves && crew.shrunk.insert(id.clone()) {
            crew.extra = crew.extra.map(|extra| extra.saturating_sub(1));
            let expected = crew.expected.map_or(group.desired, |expected| expected.desired);
            crew.expects(expected.saturating_sub(1), turn.now);
        }
        let Some(why) = one.problem.clone() else {
            crew.begun.insert(id);
            continue;
        };
        turn.budget.failures += 1;
        crew.given_up.insert(id, why.clone());
        // What the first of a pool meets, the others would.
        if !crew.proved || turn.budget.failures > turn.budget.allowed {
            return Some(why);
        }
    }
    None
}

/// The pool has fewer machines than it should, and nobody was told to go: its successors are late. Why it fails, if it does.
fn shortage(
    crew: &Crew,
    since: &mut Option<Timestamp>,
    turn: &mut Turn<'_>,
    group: &GroupView,
    pool: &Pool<'_>,
) -> Option<String> {
    let is_short = pool.comes > 0 || pool.available < pool.wanted;
    if !is_short || !crew.begun.is_empty() {
        *since = None;
        return None;
    }
    since.get_or_insert(turn.now);
    if waited(*since, turn.now) <= PATIENCE {
        return None;
    }
    turn.budget.failures += 1;
    if !crew.proved || turn.budget.failures > turn.budget.allowed {
        let boots = Boot::of(group, &turn.observed.booting);
        return Some(format!("it is not whole after {} minutes: {}", PATIENCE.as_mins(), Boots(&boots)));
    }
    // Auto Scaling goes on trying, and may do so for as long again.
    *since = Some(turn.now);
    None
}

impl Workers {
    fn survey<'g>(&self, crew: &Crew, turn: &Turn<'_>, group: &'g GroupView) -> Pool<'g> {
        let goes = |id: &String| turn.departs(id);
        let healthy = serving(group).filter(|(id, machine)| machine.healthy && !goes(id));
        let available = u32::try_from(healthy.count()).unwrap_or(u32::MAX);
        let comes = counting(group).filter(|(id, machine)| {
            (machine.lifecycle == Lifecycle::Pending || !machine.healthy) && !goes(id)
        });
        let comes = u32::try_from(comes.count()).unwrap_or(u32::MAX);
        let going = u32::try_from(group.machines.keys().filter(|id| goes(id)).count()).unwrap_or(u32::MAX);
        let mut outdated: Vec<&String> = outdated(&crew.done, turn, group);
        outdated.retain(|id| !goes(id) && !crew.given_up.contains_key(*id) && group.machines[*id].healthy);
        // How many machines a group wants that counts units of capacity is seen by those that it has, and by the units that they lack.
        let wanted = if self.weighted {
            available + comes + going + lacking(group)
        } else {
            group.desired.saturating_sub(crew.extra.unwrap_or_default())
        };
        Pool { outdated, available, comes, wanted }
    }

    /// Has as many go as may be missing, or more come first; says what it waits for.
    fn begin(&self, crew: &mut Crew, turn: &mut Turn<'_>, group: &GroupView, pool: &Pool<'_>) -> Waits {
        let may_start = turn.may_start();
        let mut outdated = pool.outdated.clone();
        let extra = crew.extra.unwrap_or_default();
        if may_start && !turn.newer && !outdated.is_empty() {
            let more = self.more(crew, group, pool);
            if more > 0 {
                let desired = group.desired + more;
                crew.extra = Some(extra + more);
                crew.resized = Some(turn.now);
                crew.expects(desired, turn.now);
                turn.effects.push(Effect::SetDesired { group: turn.group.to_owned(), desired });
                return comes_first(crew, turn, group);
            }
        }
        let shrinking = crew.begun.iter().filter(|id| !crew.shrunk.contains(*id));
        let shrinking =
            shrinking.filter(|id| turn.departures.get(*id).is_some_and(Departure::is_surplus)).count();
        let mut surplus = extra.saturating_sub(u32::try_from(shrinking).unwrap_or(u32::MAX));
        let mut free = (pool.available + self.pace.may_miss(pool.wanted)).saturating_sub(pool.wanted);
        if !crew.proved {
            free = free.min(u32::from(crew.begun.is_empty() && pool.comes == 0));
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
            let one = Departure::by_rollout(turn.role, group, shrink, self.force_after_s, turn.now);
            turn.departures.insert(id.clone(), one);
            crew.begun.insert(id);
        }
        Waits::Workers(self.waits(crew, turn, group, pool, may_start))
    }

    /// How many machines are to come before others go.
    fn more(&self, crew: &Crew, group: &GroupView, pool: &Pool<'_>) -> u32 {
        let outdated = u32::try_from(pool.outdated.len()).unwrap_or(u32::MAX);
        let most = if self.weighted { 0 } else { self.pace.more(pool.wanted) };
        // The first of them is a canary, too.
        let most = if crew.proved { most } else { most.min(1) };
        let room = group.max.saturating_sub(group.desired);
        most.min(outdated).saturating_sub(crew.extra.unwrap_or_default()).min(room)
    }

    fn waits(
        &self,
        crew: &Crew,
        turn: &Turn<'_>,
        group: &GroupView,
        pool: &Pool<'_>,
        may_start: bool,
    ) -> WorkersWait {
        let departs = Departs::of(&crew.begun, turn.departures);
        let in_all = (crew.begun.len() > departs.len()).then_some(Figure(crew.begun.len()));
        let is_short = pool.comes > 0 || pool.available < pool.wanted;
        let whole = is_short.then(|| Boot::of(group, &turn.observed.booting));
        let idle = (departs.is_empty() && in_all.is_none() && whole.is_none()).then(|| {
            if turn.newer {
                Idle::NewerSpec
            } else if !may_start {
                Idle::Window { at_most_until: turn.urgent_from }
            } else if self.pace.may_miss(pool.wanted) == 0 && crew.extra == Some(0) {
                Idle::NoRoom { group: turn.group.to_owned(), max: group.max }
            } else {
                Idle::Others
            }
        });
        WorkersWait { departs, in_all, whole, idle, done: Figure(crew.done.len()) }
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

fn comes_first(crew: &Crew, turn: &Turn<'_>, group: &GroupView) -> Waits {
    let boots = Boot::of(group, &turn.observed.booting);
    Waits::Boot(Comes::First(crew.extra.unwrap_or_default()), boots)
}
