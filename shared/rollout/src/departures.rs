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
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::waits::{Departs, List};
use super::{Effect, Observed, Rollout, StepState, ToObserve};
use slipway_core::pki::Role;
use slipway_core::render::{StackKind, stack_name};

pub(crate) use departure::WAYS;
pub use departure::{Cause, Departure, DepartureState, Ending};

/// Workers that are drained at once at most: an invocation stays bounded.
pub(super) const MOST_DRAINS: usize = 20;

/// Drains that one controller runs at a time. The agent of Systems Manager runs five commands at once (amazon-ssm-agent,
/// `agent/appconfig/constants.go`, `DefaultCommandWorkersLimit`); the others are for whoever asks how the controller is.
const DRAINS_OF_ONE: usize = 3;

/// A pool whose group is looked at for machines that Auto Scaling takes down, at each wake while a rollout is open: so many, in turn.
const LOOKS: usize = 5;

/// What a look at all departures sees.
struct Scene<'a> {
    cluster: &'a str,
    observed: &'a Observed,
    now: Timestamp,
    /// A person said that nothing new may start.
    paused: bool,
    /// The rollout that began them goes on.
    goes_on: bool,
    /// Controllers that serve.
    controllers: Vec<&'a String>,
    /// How many drains each controller runs.
    busy: RefCell<BTreeMap<String, usize>>,
    /// By how many machines each group was told to shrink in this look.
    shrunk: RefCell<BTreeMap<String, u32>>,
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

    /// Whether the open rollout makes that stack: it stands in no release yet.
    fn makes(&self, stack: &str) -> bool {
        let steps = self.active().into_iter().flat_map(|active| &active.steps);
        let made = steps.filter(|step| match step.state {
            StepState::Executing | StepState::Failed(_) => true,
            StepState::Waiting | StepState::ChangeSet | StepState::Done => false,
        });
        !self.deployed.contains_key(stack) && made.into_iter().any(|step| step.stack == stack)
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
        let pools: Vec<&String> =
            self.deployed.keys().chain(self.left.keys()).filter(|stack| self.drains(stack)).collect();
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

/// Takes all that are on their way out as far as what was observed allows; `goes_on`: the rollout that began them does.
pub(super) fn advance(
    rollout: &mut Rollout,
    observed: &Observed,
    now: Timestamp,
    goes_on: bool,
) -> Vec<Effect> {
    let mut effects = notice::notice(rollout, observed, now);
    let mut departures = std::mem::take(&mut rollout.departures);
    let controllers = observed.groups.get(&rollout.controllers_group()).and_then(Option::as_ref);
    let scene = Scene {
        cluster: &rollout.cluster,
        observed,
        now,
        paused: rollout.paused_since().is_some(),
        goes_on,
        controllers: controllers.into_iter().flat_map(super::nodes::serving).map(|(id, _)| id).collect(),
        busy: RefCell::default(),
        shrunk: RefCell::default(),
    };
    for asked in departures.values().filter_map(Departure::drain_asked) {
        *scene.busy.borrow_mut().entry(asked.command.instance.clone()).or_default() += 1;
    }
    let draining = departures.values().filter_map(Departure::drain_asked).count();
    let mut free = MOST_DRAINS.min(scene.controllers.len() * DRAINS_OF_ONE).saturating_sub(draining);
    departures.retain(|id, one| {
        // What was not looked at stays as it is.
        let Some(group) = observed.groups.get(&one.group) else { return true };
        let machine = group.as_ref().and_then(|group| group.machines.get(id));
        // A state leads to another in the same look at most so often.
        (0..4).all(|_| one.look(id, machine, &scene, &mut free, &mut effects))
    });
    rollout.departures = departures;
    effects
}
