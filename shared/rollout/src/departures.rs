//! Workers on their way out: drained by a controller, then terminated, and let go of by their hook only after that (P6).
//!
//! Two begin a [`Departure`]: a rollout that replaces a worker, and Auto Scaling, which takes one down by itself (a smaller pool, a
//! machine that is ill or about to be reclaimed) and holds it in its terminate hook. What has begun outlives its rollout: a hook is kept
//! alive by heartbeats for as long as the drain goes on, and is never completed before it is done.
//!
//! A machine that a rollout no longer wants to go, since it was aborted or has failed, takes pods again: its drain is taken back, and it
//! is uncordoned. That is no beginning (P10): nothing is evicted, stopped or made by it, and without it a rollout that was stopped
//! would go on evicting for minutes, and leave a node that nothing is scheduled to. A controller that was drained comes here for that.

mod notice;

use std::cell::RefCell;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::fleet::{GroupView, Lifecycle, MachineView};
use super::nodes::asks::{answer, call_back, command, is_told, never_ran, outcome};
use super::nodes::{Asked, PATIENCE, PAUSE, RECONSIDERED, TRIES};
use super::{Effect, Observed, Rollout, StepState, ToObserve};
use slipway_core::node::{Drained, FailureCode, Uncordoned, Verb};
use slipway_core::pki::Role;
use slipway_core::render::{StackKind, stack_name};

/// A drain ends after so many seconds, done or not, to say what it waits for; then it goes on.
pub(super) const DRAINS_FOR_S: u32 = 600;

/// How long pods may hold up a worker that a rollout replaces: they may be jobs that end by themselves overnight.
const DRAIN_PATIENCE: SignedDuration = SignedDuration::from_hours(24);

/// How often a hook is prolonged. It waits for half an hour, so that two heartbeats may be lost.
const HEARTBEAT: SignedDuration = SignedDuration::from_mins(10);

/// Workers that are drained at once at most: an invocation stays bounded.
pub(super) const MOST_DRAINS: usize = 20;

/// Drains that one controller runs at a time. The agent of Systems Manager runs five commands at once (amazon-ssm-agent,
/// `agent/appconfig/constants.go`, `DefaultCommandWorkersLimit`); the others are for whoever asks how the controller is.
const DRAINS_OF_ONE: usize = 3;

/// How often a machine that stays is told so: its API may be down for a while.
const UNCORDONS: u32 = 30;

/// A pool whose group is looked at for machines that Auto Scaling takes down, at each wake while a rollout is open: so many, in turn.
const LOOKS: usize = 5;

/// What a look says of a departure: there is still something to do, or nothing is left of it.
const STAYS: bool = true;
const GONE: bool = false;

/// A worker on its way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Departure {
    /// Its pool.
    pub role: Role,
    /// Its Auto Scaling group.
    pub group: String,
    /// Who wants it to go.
    pub cause: Cause,
    /// How far it is.
    pub state: DepartureState,
    /// When it came there.
    pub since: Timestamp,
    /// How many machines its group wanted when it was chosen as one too many, so that none comes for it; `None`: another takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surplus_of: Option<u32>,
    /// Whether it stays where it is once it is drained, until its stack is deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rests: bool,
    /// Seconds after which its drain may be forced by all the other rules; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// How often what is asked for it failed.
    #[serde(default)]
    pub tries: u32,
    /// How often something was asked.
    #[serde(default)]
    pub round: u32,
    /// What was asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// When Auto Scaling was last told something about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Timestamp>,
    /// What holds up its drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Why it does not go after all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Who wants a worker to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// A rollout.
    Rollout,
    /// Auto Scaling itself.
    AutoScaling,
}

/// How far a [`Departure`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DepartureState {
    /// Its pods are evicted.
    Drain,
    /// It is drained, and goes.
    Leave,
    /// It is drained, and stays until its stack goes.
    Rest,
    /// It does not go after all: its drain comes to its end.
    Withdraw,
    /// It is told to take pods again.
    Uncordon,
}

/// How its group holds a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It serves.
    Free,
    /// It waits in its terminate hook.
    Hook,
    /// Its terminate hook ran out before it was drained: it runs on until somebody terminates it once more
    /// (docs.aws.amazon.com/autoscaling/ec2/userguide, "Manage retained instances").
    Kept,
}

impl Hold {
    /// Whether Auto Scaling does not count on it any more.
    const fn must_go(self) -> bool {
        match self {
            Self::Free => false,
            Self::Hook | Self::Kept => true,
        }
    }
}

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
        let steps = self.active.iter().flat_map(|active| &active.steps);
        let made = steps.filter(|step| match step.state {
            StepState::Executing | StepState::Failed(_) => true,
            StepState::Waiting | StepState::ChangeSet | StepState::Done => false,
        });
        !self.deployed.contains_key(stack) && made.into_iter().any(|step| step.stack == stack)
    }

    /// What becomes of workers while no rollout is open, in words.
    pub(super) fn departures_in_words(&self) -> Option<String> {
        let words = self.departures.iter().take(3).map(|(id, one)| one.words(id));
        let words = words.collect::<Vec<_>>().join("; ");
        let count = self.departures.len();
        (count > 0).then(|| format!("nodes on their way out, {count} in all: {words}"))
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
    if let Some(active) = &rollout.active {
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
    let asked = rollout.departures.values().filter_map(|one| one.asked.as_ref());
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
    for asked in departures.values().filter(|one| one.is_draining()).filter_map(|one| one.asked.as_ref()) {
        *scene.busy.borrow_mut().entry(asked.command.instance.clone()).or_default() += 1;
    }
    let draining = departures.values().filter(|one| one.is_draining()).count();
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

impl Departure {
    fn new(role: Role, group: &str, cause: Cause, force_after_s: Option<u32>, now: Timestamp) -> Self {
        Self {
            role,
            group: group.to_owned(),
            cause,
            state: DepartureState::Drain,
            since: now,
            surplus_of: None,
            rests: false,
            force_after_s,
            tries: 0,
            round: 0,
            asked: None,
            told: None,
            waits: None,
            problem: None,
        }
    }

    /// One that was cordoned and does not go after all; `asked`: the drain that may still run.
    pub(super) fn called_off(role: Role, group: &str, asked: Option<Asked>, now: Timestamp) -> Self {
        let one = Self::new(role, group, Cause::Rollout, None, now);
        Self { state: DepartureState::Withdraw, asked, ..one }
    }

    /// One of a pool that goes as a whole: it stays, empty, until all are.
    pub(super) fn to_rest(
        role: &Role,
        group: &GroupView,
        force_after_s: Option<u32>,
        now: Timestamp,
    ) -> Self {
        let one = Self::new(role.clone(), &group.name, Cause::Rollout, force_after_s, now);
        Self { rests: true, ..one }
    }

    /// One that a rollout begins; `is_surplus`: none comes for it.
    pub(super) fn by_rollout(
        role: &Role,
        group: &GroupView,
        is_surplus: bool,
        force_after_s: Option<u32>,
        now: Timestamp,
    ) -> Self {
        let one = Self::new(role.clone(), &group.name, Cause::Rollout, force_after_s, now);
        Self { surplus_of: is_surplus.then_some(group.desired), ..one }
    }

    /// Whether a controller is asked to drain it.
    const fn is_draining(&self) -> bool {
        matches!(self.state, DepartureState::Drain) && self.asked.is_some()
    }

    /// In words, for a person.
    pub(super) fn words(&self, id: &str) -> String {
        match (self.state, &self.waits) {
            (DepartureState::Drain, Some(waits)) => format!("drains {id}, which waits for {waits}"),
            (DepartureState::Drain, None) => format!("drains {id}"),
            (DepartureState::Leave, _) => format!("waits for {id} to leave"),
            (DepartureState::Rest, _) => format!("{id} is empty"),
            (DepartureState::Withdraw | DepartureState::Uncordon, _) => {
                format!("has {id} take pods again")
            }
        }
    }

    fn enter(&mut self, state: DepartureState, now: Timestamp) -> bool {
        self.state = state;
        self.since = now;
        self.asked = None;
        self.tries = 0;
        STAYS
    }

    /// It does not go after all: what was asked for it is taken back, and pods may come again once that has ended.
    pub(super) fn withdraw(&mut self, why: Option<String>, now: Timestamp) -> bool {
        self.problem = why.or_else(|| self.problem.take());
        self.state = DepartureState::Withdraw;
        self.since = now;
        self.told = None;
        STAYS
    }

    fn look(
        &mut self,
        id: &str,
        machine: Option<&MachineView>,
        scene: &Scene<'_>,
        free: &mut usize,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let hold = match machine.map(|machine| machine.lifecycle) {
            None => return GONE,
            // On its way out without a hook that would wait for anybody.
            Some(Lifecycle::Terminating) if scene.now.duration_since(self.since) > PATIENCE => return GONE,
            Some(Lifecycle::Terminating) => return STAYS,
            Some(Lifecycle::TerminatingWait) => Hold::Hook,
            Some(Lifecycle::Retained) => Hold::Kept,
            Some(Lifecycle::Pending | Lifecycle::InService | Lifecycle::Elsewhere) => Hold::Free,
        };
        // A controller that its group takes down leaves by itself.
        if hold.must_go() && self.role == Role::Controller {
            return GONE;
        }
        match self.state {
            DepartureState::Drain => self.drain(id, hold, scene, free, effects),
            DepartureState::Leave => self.leave(id, hold, scene, effects),
            DepartureState::Rest | DepartureState::Withdraw | DepartureState::Uncordon if hold.must_go() => {
                // Auto Scaling wants it now.
                self.cause = Cause::AutoScaling;
                self.problem = None;
                self.enter(DepartureState::Drain, scene.now)
            }
            DepartureState::Rest if scene.goes_on => STAYS,
            DepartureState::Rest => self.withdraw(None, scene.now),
            DepartureState::Withdraw => self.call_back(scene, effects),
            DepartureState::Uncordon => self.uncordon(id, scene, free, effects),
        }
    }

    fn drain(
        &mut self,
        id: &str,
        hold: Hold,
        scene: &Scene<'_>,
        free: &mut usize,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let now = scene.now;
        if hold == Hold::Hook && self.told.is_none_or(|at| now.duration_since(at) >= HEARTBEAT) {
            self.told = Some(now);
            effects.push(Effect::ProlongTermination { group: self.group.clone(), instance: id.to_owned() });
        }
        if !hold.must_go() && self.cause == Cause::AutoScaling {
            // Somebody took it out of the group's hands.
            return GONE;
        }
        if !hold.must_go() && !scene.goes_on {
            return self.withdraw(None, now);
        }
        if scene.paused {
            return STAYS;
        }
        let Some(asked) = &self.asked else {
            if *free == 0 {
                return STAYS;
            }
            let verb =
                Verb::Drain { node: id.to_owned(), for_s: DRAINS_FOR_S, force_after_s: self.force_after_s };
            if self.ask(id, verb, scene, effects) {
                *free -= 1;
            }
            return STAYS;
        };
        let Some(answered) = answer::<Drained>(asked, scene.observed, now) else { return STAYS };
        let undelivered = never_ran(asked, scene.observed);
        let done = match &answered {
            Ok(answer) => answer.done,
            // What is no node has no pods.
            Err(_) => is_told(asked, scene.observed, FailureCode::DrainNoNode),
        };
        if done {
            self.leaves(id, hold, scene, effects);
            return STAYS;
        }
        *free += 1;
        match answered {
            Ok(answer) => {
                let waits = waiting(&answer);
                self.tries = 0;
                self.asked = None;
                if !hold.must_go() && now.duration_since(self.since) > DRAIN_PATIENCE {
                    let hours = DRAIN_PATIENCE.as_hours();
                    let why = format!("{id} could not be drained within {hours} hours: {waits}");
                    return self.withdraw(Some(why), now);
                }
                self.waits = Some(waits);
                STAYS
            }
            Err(why) => {
                self.tries += u32::from(!undelivered);
                self.asked = None;
                if !hold.must_go() && self.tries >= TRIES {
                    let why = format!("draining {id} failed {TRIES} times: {why}");
                    return self.withdraw(Some(why), now);
                }
                self.waits = Some(why);
                STAYS
            }
        }
    }

    /// Asks a controller; `false`: none serves.
    fn ask(&mut self, id: &str, verb: Verb, scene: &Scene<'_>, effects: &mut Vec<Effect>) -> bool {
        // Whoever has least to do; of several each time another, and not the same for all.
        let count = scene.controllers.len().max(1);
        let at = id.bytes().fold(self.round as usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        let mut busy = scene.busy.borrow_mut();
        let in_turn = (0..scene.controllers.len()).map(|more| scene.controllers[(at % count + more) % count]);
        let Some(controller) = in_turn.min_by_key(|id| busy.get(*id).copied().unwrap_or_default()) else {
            return false;
        };
        *busy.entry(controller.clone()).or_default() += 1;
        self.round += 1;
        let of = format!("{id} {}", self.since);
        let command = command(&of, scene.cluster, &self.role, self.round, controller.clone(), verb);
        effects.push(Effect::Send(command.clone()));
        self.asked = Some(Asked { role: Role::Controller, command, at: scene.now, refused: None });
        true
    }

    /// Its drain is taken back, again and again until it has ended: Run Command may not list it yet, and promises nothing.
    fn call_back(&mut self, scene: &Scene<'_>, effects: &mut Vec<Effect>) -> bool {
        let (now, longest) = (scene.now, SignedDuration::from_secs(i64::from(DRAINS_FOR_S) + 300));
        let runs = |asked: &&Asked| {
            outcome(asked, scene.observed, now).is_none() && now.duration_since(asked.at) <= longest
        };
        let Some(asked) = self.asked.as_ref().filter(runs) else {
            return self.enter(DepartureState::Uncordon, now);
        };
        if self.told.is_none_or(|at| now.duration_since(at) >= PAUSE) {
            effects.extend(call_back(asked));
            self.told = Some(now);
        }
        STAYS
    }

    /// Its pods are gone: it goes, too.
    fn leaves(&mut self, id: &str, hold: Hold, scene: &Scene<'_>, effects: &mut Vec<Effect>) {
        let now = scene.now;
        if self.rests && !hold.must_go() {
            self.enter(DepartureState::Rest, now);
            return;
        }
        self.enter(DepartureState::Leave, now);
        self.told = Some(now);
        let (group, instance) = (self.group.clone(), id.to_owned());
        effects.push(match hold {
            Hold::Hook => Effect::CompleteTermination { group, instance },
            // What its group keeps is none of those that the group wants.
            Hold::Kept => Effect::Terminate { group, instance, then_desired: None },
            Hold::Free => Effect::Terminate { group, instance, then_desired: self.then_desired(scene) },
        });
    }

    /// How many machines its group is to want once it is gone. Where somebody else, such as a cluster autoscaler, has made the group smaller
    /// since it was chosen as one too many, or it is as small as it may be, it is one too many no longer: another takes its place.
    fn then_desired(&self, scene: &Scene<'_>) -> Option<u32> {
        let of = self.surplus_of?;
        let group = scene.observed.groups.get(&self.group)?.as_ref()?;
        let mut shrunk = scene.shrunk.borrow_mut();
        let shrunk = shrunk.entry(self.group.clone()).or_default();
        let size = group.desired.checked_sub(*shrunk + 1)?;
        if group.desired < of || size < group.min {
            return None;
        }
        *shrunk += 1;
        Some(size)
    }

    /// Auto Scaling would not terminate it. As one too many it might not go since its group is as small as it may be: it goes as one
    /// that is replaced. Else it stays, and takes pods again.
    pub(super) fn refused(&mut self, reason: &str) {
        self.asked = None;
        if self.surplus_of.take().is_some() {
            self.state = DepartureState::Drain;
        } else {
            self.problem = Some(reason.to_owned());
            self.told = None;
            self.state = DepartureState::Withdraw;
        }
    }

    fn leave(&mut self, id: &str, hold: Hold, scene: &Scene<'_>, effects: &mut Vec<Effect>) -> bool {
        if hold.must_go() && self.told.is_none_or(|at| scene.now.duration_since(at) >= PAUSE) {
            self.told = Some(scene.now);
            let (group, instance) = (self.group.clone(), id.to_owned());
            effects.push(if hold == Hold::Hook {
                Effect::CompleteTermination { group, instance }
            } else {
                // Its hook ran out before anybody could complete it. To terminate it once more begins its hook anew.
                Effect::Terminate { group, instance, then_desired: None }
            });
        }
        // It was to be terminated and is not: what that was decided on became too old. Nothing is left on it to be evicted.
        if !hold.must_go() && scene.now.duration_since(self.since) > RECONSIDERED {
            return self.enter(DepartureState::Drain, scene.now);
        }
        if self.problem.is_none() && scene.now.duration_since(self.since) > PATIENCE {
            let minutes = PATIENCE.as_mins();
            self.problem = Some(format!("{id} was terminated and is still there after {minutes} minutes"));
        }
        STAYS
    }

    fn uncordon(&mut self, id: &str, scene: &Scene<'_>, free: &mut usize, effects: &mut Vec<Effect>) -> bool {
        if scene.paused && scene.goes_on {
            return STAYS;
        }
        if let Some(asked) = &self.asked {
            match answer::<Uncordoned>(asked, scene.observed, scene.now) {
                None => return STAYS,
                Some(Ok(_)) => return GONE,
                Some(Err(_)) if scene.now.duration_since(asked.at) < PAUSE => return STAYS,
                Some(Err(_)) => {
                    self.tries += 1;
                    if self.tries >= UNCORDONS || is_told(asked, scene.observed, FailureCode::DrainNoNode) {
                        return GONE;
                    }
                }
            }
        }
        // A whole pool may come back at once.
        if *free > 0 && self.ask(id, Verb::Uncordon { node: id.to_owned() }, scene, effects) {
            *free -= 1;
        }
        STAYS
    }
}

/// What holds up a drain, by its answer.
pub(super) fn waiting(drained: &Drained) -> String {
    let waiting: Vec<String> =
        drained.waiting.iter().take(3).map(|one| format!("{}: {}", one.pod, one.why)).collect();
    waiting.join("; ")
}
