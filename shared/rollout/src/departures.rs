//! Workers on their way out: drained by a controller, then terminated, and let go of by their hook only after that (P6).
//!
//! Two begin a [`Departure`]: a rollout that replaces a worker, and Auto Scaling, which takes one down by itself (a smaller pool, a
//! machine that is ill or about to be reclaimed) and holds it in its terminate hook. What has begun outlives its rollout: a hook is kept
//! alive by heartbeats for as long as the drain goes on, and is never completed before it is done.
//!
//! A machine that a rollout no longer wants to go, since it was aborted or has failed, takes pods again: its drain is taken back, and it
//! is uncordoned. That is no beginning (P10): nothing is evicted, stopped or made by it, and without it a rollout that was stopped
//! would go on evicting for minutes, and leave a node that nothing is scheduled to. A controller that was drained comes here for that.

mod departure;
mod notice;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use slipway_core::release::{StackKind, stack_name};
use slipway_core::role::Role;

use super::waits::{Departs, List};
use super::{Effect, Observed, Rollout, Step, StepState, ToObserve};

pub use departure::Departure;
pub(crate) use departure::WAYS;
pub(crate) use departure::{DepartureState, Ending};

/// Workers that are drained at once at most: an invocation stays bounded.
pub(super) const MOST_DRAINS: usize = 20;

/// Drains that one controller runs at a time. The agent of Systems Manager runs five commands at once (amazon-ssm-agent,
/// `agent/appconfig/constants.go`, `DefaultCommandWorkersLimit`); the others are for whoever asks how the controller is.
const DRAINS_OF_ONE: usize = 3;

/// A pool whose group is looked at for machines that Auto Scaling takes down, at each wake while a rollout is open: so many, in turn.
const LOOKS: usize = 5;

/// How many commands more controllers may be asked in this look.
struct Slots {
    drains: usize,
    uncordons: usize,
}

/// What a look at all departures sees.
struct Scene<'a> {
    cluster: &'a str,
    observed: &'a Observed,
    now: Timestamp,
    /// A person said that nothing new may start.
    paused: bool,
    /// The rollout that began them goes on.
    rollout_continues: bool,
    /// Controllers that serve.
    controllers: Vec<&'a String>,
    /// How many drains each controller runs.
    busy: RefCell<BTreeMap<String, usize>>,
}

impl Rollout {
    /// The name of the group of the controllers, which drain workers.
    fn controllers_group(&self) -> String {
        stack_name(&self.cluster, StackKind::ControlPlane, "")
    }

    /// The pool whose group bears that name, if it is one of this cluster's that stands, or is being made.
    fn pool_of(&self, group: &str) -> Option<Role> {
        let stands = self.deployed.contains_key(group) || self.left.contains_key(group) || self.makes(group);
        let pool = group.strip_prefix(&stack_name(&self.cluster, StackKind::Pool, ""))?;
        (stands && !pool.is_empty()).then(|| Role::Pool(pool.to_owned()))
    }

    /// Whether the open rollout, or the last one, makes that stack or deletes what an earlier creation left of it: it stands in no release
    /// yet, and its machines may wait in their terminate hooks all the same.
    fn makes(&self, stack: &str) -> bool {
        !self.deployed.contains_key(stack) && self.steps_of_stacks().any(|step| step.stack == stack)
    }

    /// Steps of the rollout that is open, or of the last one.
    fn steps_of_stacks(&self) -> impl Iterator<Item = &Step> {
        let last = self.last.iter().flat_map(|last| &last.steps).filter(|_| self.active().is_none());
        let steps = self.active().into_iter().flat_map(|active| &active.steps).chain(last);
        steps.filter(|step| step.state != StepState::Done)
    }

    /// What becomes of workers while no rollout is open, in words.
    pub(super) fn departures_in_words(&self) -> Option<String> {
        let first: Vec<Departs> = self.departures.iter().take(3).map(|(id, one)| one.departs(id)).collect();
        let count = self.departures.len();
        (count > 0).then(|| format!("nodes on their way out, {count} in all: {}", List(&first)))
    }

    /// The groups of pools that a daily look is at, so many of them, each in its turn: machines in their terminate hooks whose event was lost,
    /// and those that a group keeps, would be mentioned by nobody else.
    #[must_use]
    pub fn groups_to_look_at(&self, now: Timestamp) -> Vec<String> {
        const MOST: usize = 50;
        let made = self.steps_of_stacks().map(|step| &step.stack);
        let pools: BTreeSet<&String> = self
            .deployed
            .keys()
            .chain(self.left.keys())
            .chain(made)
            .filter(|stack| self.drains(stack))
            .collect();
        let pools: Vec<&String> = pools.into_iter().collect();
        let days = usize::try_from(now.as_second() / 86_400).unwrap_or_default();
        (0..pools.len().min(MOST)).map(|at| pools[(days * MOST + at) % pools.len()].clone()).collect()
    }

    /// Whether Auto Scaling may take down machines of `group` that somebody has to drain.
    #[must_use]
    pub fn drains(&self, group: &str) -> bool {
        self.pool_of(group).is_some()
    }
}

/// What those on their way out are looked at by, and which groups may have more of them.
pub(super) fn to_observe(rollout: &Rollout, now: Timestamp, look: &mut ToObserve) {
    if let Some(active) = rollout.active() {
        look.groups.extend(active.nodes.groups_that_go());
        let made = active.steps.iter().map(|step| &step.stack).filter(|stack| rollout.makes(stack));
        let stands = rollout.deployed.keys().chain(rollout.left.keys()).chain(made);
        let pools: Vec<&String> = stands.filter(|stack| rollout.drains(stack)).collect();
        // By the minute, so that each has its turn.
        let at = usize::try_from(now.as_second() / 60).unwrap_or_default() * LOOKS;
        let turn = (0..pools.len().min(LOOKS)).map(|more| pools[(at + more) % pools.len()].clone());
        look.groups.extend(turn);
    }
    if rollout.departures.is_empty() {
        return;
    }
    look.groups.insert(rollout.controllers_group());
    look.groups.extend(rollout.departures.values().map(|one| one.group.clone()));
    let asked = rollout.departures.values().filter_map(Departure::asked);
    look.commands.extend(asked.filter(|one| one.refused.is_none()).map(|one| one.command.clone()));
}

/// Takes all that are on their way out as far as what was observed allows; `rollout_continues`: the rollout that
/// began some of them goes on with its work.
pub(super) fn advance(
    rollout: &mut Rollout,
    observed: &Observed,
    now: Timestamp,
    rollout_continues: bool,
) -> Vec<Effect> {
    let mut effects = notice::notice(rollout, observed, now);
    let mut departures = std::mem::take(&mut rollout.departures);
    let controllers = observed.groups.get(&rollout.controllers_group()).and_then(Option::as_ref);
    let scene = Scene {
        cluster: &rollout.cluster,
        observed,
        now,
        paused: rollout.paused_since().is_some(),
        rollout_continues,
        controllers: controllers.into_iter().flat_map(super::nodes::serving).map(|(id, _)| id).collect(),
        busy: RefCell::default(),
    };
    let mut slots = Slots {
        drains: MOST_DRAINS.min(scene.controllers.len() * DRAINS_OF_ONE),
        // One machine for each controller, so that drains that last for hours hold up none that is to take pods again.
        uncordons: scene.controllers.len(),
    };
    for one in departures.values() {
        let (asked, free) = match (one.drain_asked(), one.uncordon_asked()) {
            (Some(asked), _) => (asked, &mut slots.drains),
            (None, Some(asked)) => (asked, &mut slots.uncordons),
            (None, None) => continue,
        };
        if asked.outcome(observed, now).is_none() {
            *scene.busy.borrow_mut().entry(asked.command.instance.clone()).or_default() += 1;
            *free = free.saturating_sub(1);
        }
    }
    // Whoever was asked for least often comes first: drains that their pods hold up for ever leave room for others.
    let mut order: Vec<String> = departures.keys().cloned().collect();
    order.sort_by_key(|id| departures[id].rounds);
    for id in order {
        let Some(one) = departures.get_mut(&id) else { continue };
        // What was not looked at stays as it is.
        let Some(group) = observed.groups.get(&one.group) else { continue };
        let machine = group.as_ref().and_then(|group| group.machines.get(&id));
        // A state leads to another in the same look at most so often.
        if !(0..4).all(|_| one.advance(&id, machine, &scene, &mut slots, &mut effects)) {
            departures.remove(&id);
        }
    }
    rollout.departures = departures;
    effects
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
            "tags": {"slipway:cluster": "c"},
        });
        (name.to_owned(), Some(serde_json::from_value(view).unwrap()))
    }
}
