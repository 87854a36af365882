//! Machines that are being removed: a controller drains the machine, then it is terminated, and only then is a worker's terminate hook
//! completed (P6). A controller rests once it is empty, until the step of the controllers terminates it.
//!
//! A [`Departure`] begins in three ways: a rollout replaces a machine; Auto Scaling terminates one by itself, because the pool got smaller or
//! the machine is unhealthy, and holds it in its terminate hook; or EC2 announces that it interrupts a Spot machine (`interruption`). A
//! departure continues after its rollout has ended. Heartbeats extend the hook as long as the drain takes, and the hook is never completed before the drain is done.
//!
//! If a machine should stay after all, because its rollout was aborted or has failed, its drain is cancelled and the node is uncordoned.
//! This begins nothing (P10): it evicts, stops and creates nothing. Without it, a stopped rollout would evict pods for more minutes, and
//! leave a cordoned node.

mod departure;
mod interruption;
mod notice;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::release::{StackKind, stack_name};
use slipway_core::role::Role;

use super::fleet::{GroupView, OWNER_TAG};
use super::waits::{Departs, List};
use super::{Effect, Observed, Rollout, Step, StepState, ToObserve};

pub use departure::Departure;
pub(crate) use departure::TRANSITIONS;
pub(crate) use departure::{DepartureState, Ending};

/// The maximum number of machines that are drained at a time, so that an invocation stays bounded.
pub(super) const MOST_DRAINS: usize = 20;

/// The number of drains that one controller runs at a time. The SSM agent runs five commands at a time (amazon-ssm-agent,
/// `agent/appconfig/constants.go`, `DefaultCommandWorkersLimit`); the others are for queries about the controller's health.
const DRAINS_OF_ONE: usize = 3;

/// How long no controller gets a drain whose agent could not be reached. A command that is not delivered is noticed after nine minutes.
const UNREACHED_FOR: SignedDuration = SignedDuration::from_mins(15);

/// The number of pools, in turn, that each wake observes for machines that Auto Scaling terminates while a rollout is open.
const LOOKS: usize = 5;

/// How many more commands controllers may get in this look.
struct Slots {
    drains: usize,
    /// Drains of machines that EC2 interrupts: they may use `drains`, and one more of each controller.
    urgent: usize,
    uncordons: usize,
}

/// What all departures of one look have in common.
struct Scene<'a> {
    cluster: &'a str,
    observed: &'a Observed,
    now: Timestamp,
    /// A person ordered that nothing new may start.
    paused: bool,
    /// The rollout that began them continues.
    rollout_continues: bool,
    /// Controllers in service.
    controllers: Vec<&'a String>,
    /// The number of drains that each controller runs.
    busy: RefCell<BTreeMap<String, usize>>,
}

impl Rollout {
    /// The name of the controllers' group; controllers drain workers.
    fn controllers_group(&self) -> String {
        stack_name(&self.cluster, StackKind::ControlPlane, "")
    }

    /// The pool with that group, if it is a pool of this cluster that exists or is being created.
    fn pool_of(&self, group: &str) -> Option<Role> {
        let stands =
            self.deployed.contains_key(group) || self.orphaned.contains_key(group) || self.makes(group);
        let pool = group.strip_prefix(&stack_name(&self.cluster, StackKind::Pool, ""))?;
        (stands && !pool.is_empty()).then(|| Role::Pool(pool.to_owned()))
    }

    /// Whether a rollout creates that stack, or deletes the rest of a failed creation, which may be an earlier one. Such a stack is in no
    /// release yet, but its machines may wait in their terminate hooks.
    fn makes(&self, stack: &str) -> bool {
        let is_made = || self.steps_of_stacks().any(|step| step.stack == stack);
        !self.deployed.contains_key(stack) && (self.unfinished.contains_key(stack) || is_made())
    }

    /// The steps of the open rollout, or of the last one.
    fn steps_of_stacks(&self) -> impl Iterator<Item = &Step> {
        let last = self.last.iter().flat_map(|last| &last.steps).filter(|_| self.active().is_none());
        let steps = self.active().into_iter().flat_map(|active| &active.steps).chain(last);
        steps.filter(|step| step.state != StepState::Done)
    }

    /// What happens to workers while no rollout is open, in words.
    pub(super) fn departures_in_words(&self) -> Option<String> {
        let first: Vec<Departs> = self.departures.iter().take(3).map(|(id, one)| one.departs(id)).collect();
        let count = self.departures.len();
        (count > 0).then(|| format!("nodes that are being removed, {count} in total: {}", List(&first)))
    }

    /// The groups of pools that the daily check observes, a limited number in turn. Otherwise nobody would notice machines in their
    /// terminate hooks whose event was lost, and retained machines.
    #[must_use]
    pub fn groups_to_observe(&self, now: Timestamp) -> Vec<String> {
        const MOST: usize = 50;
        let made = self.steps_of_stacks().map(|step| &step.stack);
        let pools: BTreeSet<&String> = self
            .deployed
            .keys()
            .chain(self.orphaned.keys())
            .chain(self.unfinished.keys())
            .chain(made)
            .filter(|stack| self.drains(stack))
            .collect();
        let pools: Vec<&String> = pools.into_iter().collect();
        let days = usize::try_from(now.as_second() / 86_400).unwrap_or_default();
        (0..pools.len().min(MOST)).map(|at| pools[(days * MOST + at) % pools.len()].clone()).collect()
    }

    /// Whether Auto Scaling may terminate machines of `group` that have to be drained.
    #[must_use]
    pub fn drains(&self, group: &str) -> bool {
        self.pool_of(group).is_some()
    }
}

/// What the departures need to observe, and the groups that may have more of them.
pub(super) fn to_observe(rollout: &Rollout, now: Timestamp, scope: &mut ToObserve) {
    if let Some(active) = rollout.active() {
        scope.groups.extend(active.nodes.groups_that_go());
        let made = active.steps.iter().map(|step| &step.stack).filter(|stack| rollout.makes(stack));
        let stands = rollout.deployed.keys().chain(rollout.orphaned.keys());
        let stands = stands.chain(rollout.unfinished.keys()).chain(made);
        let pools: Vec<&String> = stands.filter(|stack| rollout.drains(stack)).collect();
        // By the minute, so that each pool has its turn.
        let at = usize::try_from(now.as_second() / 60).unwrap_or_default() * LOOKS;
        let turn = (0..pools.len().min(LOOKS)).map(|more| pools[(at + more) % pools.len()].clone());
        scope.groups.extend(turn);
    }
    if rollout.departures.is_empty() {
        return;
    }
    scope.groups.insert(rollout.controllers_group());
    scope.groups.extend(rollout.departures.values().map(|one| one.group.clone()));
    let sent = rollout.departures.values().filter_map(Departure::command);
    scope.commands.extend(sent.filter(|one| one.refused.is_none()).map(|one| one.command.clone()));
}

/// Advances all departures as far as the observation allows; `rollout_continues`: the rollout that began some of them continues its work.
pub(super) fn advance(
    rollout: &mut Rollout,
    observed: &Observed,
    now: Timestamp,
    rollout_continues: bool,
) -> Vec<Effect> {
    let mut effects = notice::notice(rollout, observed, now);
    let mut departures = std::mem::take(&mut rollout.departures);
    departures.values_mut().for_each(|one| one.note_unreached(observed, now));
    let controllers = observed.groups.get(&rollout.controllers_group()).and_then(Option::as_ref);
    let scene = Scene {
        cluster: &rollout.cluster,
        observed,
        now,
        paused: rollout.paused_since().is_some(),
        rollout_continues,
        controllers: controllers.map_or_else(Vec::new, |group| may_drain(group, &departures, now)),
        busy: RefCell::default(),
    };
    let mut slots = Slots {
        drains: MOST_DRAINS.min(scene.controllers.len() * DRAINS_OF_ONE),
        urgent: MOST_DRAINS.min(scene.controllers.len() * (DRAINS_OF_ONE + 1)),
        // One machine per controller, so that drains that last for hours do not block the machines that have to be uncordoned.
        uncordons: scene.controllers.len(),
    };
    for one in departures.values() {
        let (sent, is_drain) = match (one.drain_command(), one.uncordon_command()) {
            (Some(sent), _) => (sent, true),
            (None, Some(sent)) => (sent, false),
            (None, None) => continue,
        };
        if sent.outcome(observed, now).is_none() {
            *scene.busy.borrow_mut().entry(sent.command.instance.clone()).or_default() += 1;
            if is_drain {
                slots.drains = slots.drains.saturating_sub(1);
                slots.urgent = slots.urgent.saturating_sub(1);
            } else {
                slots.uncordons = slots.uncordons.saturating_sub(1);
            }
        }
    }
    // A machine that EC2 takes within minutes comes first. Of the others, the departure with the fewest requests does, so that drains that
    // pods block forever leave room for others.
    let mut order: Vec<String> = departures.keys().cloned().collect();
    order.sort_by_key(|id| (!departures[id].is_urgent(now), departures[id].rounds));
    for id in order {
        let Some(one) = departures.get_mut(&id) else { continue };
        // A departure that was not observed does not change.
        let Some(group) = observed.groups.get(&one.group) else { continue };
        // Of this group only the name was known when the notice came.
        let is_foreign =
            |group: &GroupView| group.tags.get(OWNER_TAG).map(String::as_str) != Some(scene.cluster);
        if one.is_of_an_interruption() && group.as_ref().is_some_and(is_foreign) {
            departures.remove(&id);
            continue;
        }
        let machine = group.as_ref().and_then(|group| group.machines.get(&id));
        // The maximum number of state changes in one look.
        if !(0..4).all(|_| one.advance(&id, machine, &scene, &mut slots, &mut effects)) {
            departures.remove(&id);
        }
    }
    rollout.departures = departures;
    effects
}

/// The controllers that may drain workers: not those that Auto Scaling finds unhealthy, and not those whose agent lately could not be
/// reached. Such a controller has no drains, so each further one would be sent to it. If there is no other one, any in service.
fn may_drain<'a>(
    group: &'a GroupView,
    departures: &BTreeMap<String, Departure>,
    now: Timestamp,
) -> Vec<&'a String> {
    let unreached = departures.values().filter_map(|one| one.unreached.as_ref());
    let lately = unreached.filter(|one| now.duration_since(one.at) < UNREACHED_FOR);
    let lately: BTreeSet<&String> = lately.map(|one| &one.controller).collect();
    let (well, others): (Vec<_>, Vec<_>) =
        super::fleet::serving(group).partition(|(id, one)| one.healthy && !lately.contains(id));
    let chosen = if well.is_empty() { others } else { well };
    chosen.into_iter().map(|(id, _)| id).collect()
}

impl Departs {
    /// The first of the machines that are being terminated.
    pub(crate) fn first_three<'a>(
        begun: impl Iterator<Item = &'a String>,
        departures: &BTreeMap<String, Departure>,
    ) -> Vec<Self> {
        begun.filter_map(|id| Some(departures.get(id)?.departs(id))).take(3).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::{GroupView, Lifecycle};

    /// A group of the cluster `c`, as it is observed.
    pub(crate) fn group(name: &str, machines: &[(&str, Lifecycle)]) -> (String, Option<GroupView>) {
        let machine = |(id, lifecycle): &(&str, Lifecycle)| {
            let one =
                json!({"zone": "a", "lifecycle": lifecycle, "healthy": true, "weight": 1, "template": null});
            ((*id).to_owned(), one)
        };
        let machines: BTreeMap<_, _> = machines.iter().map(machine).collect();
        let view = json!({
            "name": name, "desired": 1, "min": 1, "max": 2, "template": null, "machines": machines,
            "tags": {"slipway:cluster": "c"}, "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/",
        });
        (name.to_owned(), Some(serde_json::from_value(view).unwrap()))
    }
}
