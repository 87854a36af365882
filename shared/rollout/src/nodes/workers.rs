//! Workers that are replaced: each drained by a controller under its pods' budgets, then terminated in so many words (P6, [`Departure`]).
//!
//! The first of a pool is its canary: the others follow only when the pool is whole again. Then as many go at once as may be missing
//! (`maxUnavailable`); with `surge` more machines come first, so that a pool that may miss none, or has one alone, is rolled as well.
//! Of several zones the one that has most machines gives one up first, which is where Auto Scaling has put one more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::Effect;
use super::super::departures::{Cause, Departure, DepartureState, MOST_DRAINS};
use super::super::fleet::{GroupView, Lifecycle};
use super::machines::stale;
use super::member::may_start;
use super::{Look, NodeState, NodeStep, PATIENCE, RECONSIDERED, Turn, boots, counting, is_current, serving};

/// How the workers of a pool stand that are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Crew {
    /// Those that were told to go.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub begun: BTreeSet<String>,
    /// Whether one was replaced, and all was well after it.
    #[serde(default)]
    pub proved: bool,
    /// How many more its group wants than before; `None`: it was not looked at yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<u32>,
    /// When that was changed: what was seen before does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resized: Option<Timestamp>,
    /// How many machines the group should want after what it was told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u32>,
    /// When it was told that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_since: Option<Timestamp>,
    /// Those of them that went, of which the group was told to want one less.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shrunk: BTreeSet<String>,
    /// Those that could not be replaced, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<String, String>,
}

impl Crew {
    /// The group was told to want so many.
    fn expects(&mut self, desired: u32, now: Timestamp) {
        self.expected = Some(desired);
        self.expected_since = Some(now);
    }

    /// Somebody else changes the group's size, too: a cluster autoscaler sets absolute values from what it saw up to a minute before
    /// (kubernetes/autoscaler, cloudprovider/aws, `IncreaseSize`), and takes back a machine that has not become a node within a quarter of an hour
    /// (`removeOldUnregisteredNodes`). What it took back of the machines that were to come first is not one too many any more.
    fn follow(&mut self, desired: u32, now: Timestamp) {
        let (Some(expected), Some(since)) = (self.expected, self.expected_since) else { return };
        if now.duration_since(since) <= RECONSIDERED {
            return;
        }
        let taken_back = expected.saturating_sub(desired);
        self.extra = self.extra.map(|extra| extra.saturating_sub(taken_back));
        self.expected = Some(desired);
    }

    /// Whether nothing is known yet.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
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

/// Looks at a pool once.
pub(super) fn look(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let controllers = turn.controllers.and_then(|name| turn.observed.groups.get(name));
    let (Some(view), Some(controllers)) = (turn.observed.groups.get(&step.group), controllers) else {
        return Look::Waits("looks at its machines".to_owned());
    };
    let (Some(group), Some(_)) = (view, controllers) else {
        return step.fail(format!("there is no Auto Scaling group {}, or none of controllers", step.group));
    };
    match &step.state {
        NodeState::Failed(why) => return Look::Waits(why.clone()),
        NodeState::Done => return Look::Again,
        NodeState::Waiting
        | NodeState::Snapshot
        | NodeState::Check
        | NodeState::Leader
        | NodeState::Refresh
        | NodeState::Return
        | NodeState::Drain
        | NodeState::Leave
        | NodeState::After => {}
    }
    if step.crew.resized == Some(turn.now) {
        return Look::Waits(comes_first(step, turn, group));
    }
    // An earlier rollout may have ended with more than the spec has.
    step.crew.extra.get_or_insert_with(|| {
        if step.weighted { 0 } else { group.desired.saturating_sub(step.most.max(step.size)) }
    });
    if let Some(look) = settle(step, turn, group) {
        return look;
    }
    step.crew.follow(group.desired, turn.now);
    let extra = step.crew.extra.unwrap_or_default();
    let pool = survey(step, turn, group);
    let is_whole = pool.comes == 0 && pool.available >= pool.wanted.saturating_add(extra);
    if step.crew.begun.is_empty() && is_whole && !step.done.is_empty() {
        step.crew.proved = true;
    }
    if let Some(look) = shortage(step, turn, group, &pool) {
        return look;
    }
    if pool.outdated.is_empty() && step.crew.begun.is_empty() && is_whole && extra == 0 {
        if !step.is_surely_idle(turn.now) {
            return Look::Waits("makes sure that its machines are as planned".to_owned());
        }
        step.left = serving(group).any(|(id, machine)| {
            !is_current(group, machine) || turn.skipped.contains(id) || step.crew.given_up.contains_key(id)
        });
        return step.enter(NodeState::Done, turn.now);
    }
    let began = begin(step, turn, group, &pool);
    step.state = if step.crew.begun.is_empty() && step.crew.extra == Some(0) {
        NodeState::Waiting
    } else {
        NodeState::Drain
    };
    began
}

/// What became of those that were told to go.
fn settle(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Option<Look> {
    for id in std::mem::take(&mut step.crew.begun) {
        // Told to be left while it was drained: it takes pods again.
        let left = turn.departures.get_mut(&id).filter(|one| {
            turn.skipped.contains(&id)
                && matches!(one.state, DepartureState::Drain)
                && one.cause == Cause::Rollout
        });
        if let Some(one) = left {
            one.withdraw(None, turn.now);
            continue;
        }
        let Some(one) = turn.departures.get(&id) else {
            if !serving(group).any(|(stays, _)| *stays == id) {
                step.done.insert(id);
            }
            continue;
        };
        if one.surplus_of.is_some()
            && one.state == DepartureState::Leave
            && step.crew.shrunk.insert(id.clone())
        {
            step.crew.extra = step.crew.extra.map(|extra| extra.saturating_sub(1));
            let expected = step.crew.expected.unwrap_or(group.desired);
            step.crew.expects(expected.saturating_sub(1), turn.now);
        }
        let Some(why) = one.problem.clone() else {
            step.crew.begun.insert(id);
            continue;
        };
        turn.budget.failures += 1;
        step.crew.given_up.insert(id, why.clone());
        // What the first of a pool meets, the others would.
        if !step.crew.proved || turn.budget.failures > turn.budget.allowed {
            return Some(step.fail(why));
        }
    }
    None
}

fn survey<'g>(step: &NodeStep, turn: &Turn<'_>, group: &'g GroupView) -> Pool<'g> {
    let goes = |id: &String| turn.departures.contains_key(id);
    let healthy = serving(group).filter(|(id, machine)| machine.healthy && !goes(id));
    let available = u32::try_from(healthy.count()).unwrap_or(u32::MAX);
    let comes = counting(group)
        .filter(|(id, machine)| (machine.lifecycle == Lifecycle::Pending || !machine.healthy) && !goes(id));
    let comes = u32::try_from(comes.count()).unwrap_or(u32::MAX);
    let going = u32::try_from(group.machines.keys().filter(|id| goes(id)).count()).unwrap_or(u32::MAX);
    let mut outdated: Vec<&String> = stale(step, turn, group);
    outdated.retain(|id| !goes(id) && !step.crew.given_up.contains_key(*id) && group.machines[*id].healthy);
    // How many machines a group wants that counts units of capacity is seen by those that it has.
    let wanted = if step.weighted {
        available + comes + going
    } else {
        group.desired.saturating_sub(step.crew.extra.unwrap_or_default())
    };
    Pool { outdated, available, comes, wanted }
}

/// The pool has fewer machines than it should, and nobody was told to go: its successors are late.
fn shortage(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView, pool: &Pool<'_>) -> Option<Look> {
    let is_short = pool.comes > 0 || pool.available < pool.wanted;
    if !is_short || !step.crew.begun.is_empty() {
        step.since = None;
        return None;
    }
    if step.since.is_none() {
        step.since = Some(turn.now);
    }
    if step.has_waited(turn) <= PATIENCE {
        return None;
    }
    let boots = boots(group, &turn.observed.booting);
    let why = format!("it is not whole after {} minutes: {boots}", PATIENCE.as_mins());
    turn.budget.failures += 1;
    if !step.crew.proved || turn.budget.failures > turn.budget.allowed {
        return Some(step.fail(why));
    }
    // Auto Scaling goes on trying, and may do so for as long again.
    step.since = Some(turn.now);
    None
}

/// Has as many go as may be missing, or more come first; says what it waits for.
fn begin(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView, pool: &Pool<'_>) -> Look {
    let may_start = may_start(turn);
    let mut outdated = pool.outdated.clone();
    let extra = step.crew.extra.unwrap_or_default();
    if may_start && !turn.newer && !outdated.is_empty() {
        let more = more(step, group, pool);
        if more > 0 {
            step.crew.extra = Some(extra + more);
            step.crew.resized = Some(turn.now);
            step.crew.expects(group.desired + more, turn.now);
            turn.effects
                .push(Effect::SetDesired { group: step.group.clone(), desired: group.desired + more });
            return Look::Waits(comes_first(step, turn, group));
        }
    }
    let mut shrinking = step.crew.begun.iter().filter(|id| !step.crew.shrunk.contains(*id));
    let shrinking =
        shrinking.by_ref().filter(|id| turn.departures.get(*id).is_some_and(|one| one.surplus_of.is_some()));
    let mut surplus = extra.saturating_sub(u32::try_from(shrinking.count()).unwrap_or(u32::MAX));
    let mut free = (pool.available + step.pace.may_miss(pool.wanted)).saturating_sub(pool.wanted);
    if !step.crew.proved {
        free = free.min(u32::from(step.crew.begun.is_empty() && pool.comes == 0));
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
        let one = Departure::by_rollout(&step.role, group, shrink, step.force_after_s, turn.now);
        turn.departures.insert(id.clone(), one);
        step.crew.begun.insert(id);
    }
    Look::Waits(words(step, turn, group, pool, may_start))
}

/// How many machines are to come before others go.
fn more(step: &NodeStep, group: &GroupView, pool: &Pool<'_>) -> u32 {
    let outdated = u32::try_from(pool.outdated.len()).unwrap_or(u32::MAX);
    let most = if step.weighted { 0 } else { step.pace.more(pool.wanted) };
    // The first of them is a canary, too.
    let most = if step.crew.proved { most } else { most.min(1) };
    let room = group.max.saturating_sub(group.desired);
    most.min(outdated).saturating_sub(step.crew.extra.unwrap_or_default()).min(room)
}

/// Who goes next: of the zone that has most machines, the first.
fn next(outdated: &mut Vec<&String>, turn: &Turn<'_>, group: &GroupView, shrink: bool) -> Option<String> {
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, machine) in serving(group).filter(|(id, _)| !turn.departures.contains_key(*id)) {
        *zones.entry(&machine.zone).or_default() += 1;
    }
    let most = |id: &&String| zones.get(group.machines[*id].zone.as_str()).copied().unwrap_or_default();
    let first = outdated.iter().copied().rev().max_by_key(most);
    if let Some(first) = first {
        outdated.retain(|id| *id != first);
        return Some(first.clone());
    }
    // Nobody is outdated, and there is one too many.
    let stays = serving(group).map(|(id, _)| id).filter(|id| !turn.departures.contains_key(*id));
    let stays = stays.filter(|id| shrink && !turn.skipped.contains(*id));
    stays.max_by_key(most).cloned()
}

fn comes_first(step: &NodeStep, turn: &Turn<'_>, group: &GroupView) -> String {
    let extra = step.crew.extra.unwrap_or_default();
    let boots = boots(group, &turn.observed.booting);
    format!("{extra} more {} first: {boots}", if extra == 1 { "machine comes" } else { "machines come" })
}

fn words(step: &NodeStep, turn: &Turn<'_>, group: &GroupView, pool: &Pool<'_>, may_start: bool) -> String {
    let going = step.crew.begun.iter().filter_map(|id| Some((id, turn.departures.get(id)?)));
    let mut words: Vec<String> = going.take(3).map(|(id, one)| one.words(id)).collect();
    if step.crew.begun.len() > words.len() {
        words.push(format!("and others, {} in all", step.crew.begun.len()));
    }
    if pool.comes > 0 || pool.available < pool.wanted {
        words.push(format!("waits until all its machines serve: {}", boots(group, &turn.observed.booting)));
    }
    if words.is_empty() {
        words.push(if turn.newer {
            "makes way for a newer spec".to_owned()
        } else if !may_start {
            turn.waits_for_window.clone()
        } else if step.pace.may_miss(pool.wanted) == 0 && step.crew.extra == Some(0) {
            format!(
                "waits for room: none of its machines may be missing, and {} may have no more than {}",
                step.group, group.max
            )
        } else {
            "waits for others that are drained".to_owned()
        });
    }
    format!("{} ({} done)", words.join("; "), step.done.len())
}
