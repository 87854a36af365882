//! The nodes of a rollout: refreshed in place or replaced, one safe step after the other (P4, P5).
//!
//! A [`NodeStep`] is one role: a member of etcd, the controllers, a pool. Its turn comes when the stacks of its wave are done, so that
//! whatever Auto Scaling launches is of the new release. Everything is read off the world each time: a machine that was launched from
//! what its group launches now has nothing to be done to it, whoever launched it. [`danger`] says what may not be taken down.
//!
//! Each kind of work is a state machine of its own ([`Task`]), whose states hold what that state needs and nothing else.

mod controllers;
mod credentials;
mod danger;
mod idle;
mod leaver;
mod machine;
mod member;
mod members;
mod planned;
mod removal;
mod saver;
mod step;
#[cfg(test)]
mod tests;
mod windows;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::cluster::MaintenanceWindow;
use slipway_core::deadline::{self, Deadline, Urgency};
use slipway_core::node::Verb;
use slipway_core::role::Role;

use super::departures::Departure;
use super::errand::{Asked, Round, Sender};
use super::fleet::{GroupView, Lifecycle, MachineView};
use super::outbox::{Effects, Seen};
use super::urgency::{Held, overridden};
use super::waits::Waits;
use super::{Active, Effect, Observed, ToObserve};

pub(crate) use controllers::{Controllers, ControllersState, ControllersWork};
pub(crate) use credentials::{PoolRefresh, PoolRefreshState};
pub(crate) use idle::CONSISTENT;
pub(crate) use leaver::{Leaver, LeaverState};
pub(crate) use machine::Tries;
pub use machine::{Phase, Place};
pub(crate) use member::{Member, MemberState, RefreshMember, Refreshing, ReplaceMember, Replacing};
pub(super) use planned::left_to_a_person;
pub(crate) use removal::{Removal, RemovalState};
pub(crate) use saver::{Saver, SaverState};
pub use step::{NodeStep, Task, Work};
pub(crate) use windows::window_is_open;
pub use workers::LeftOver;
pub(crate) use workers::{Extra, Workers, WorkersState};

/// How long a machine may take from its launch to its service, and etcd or the API until all is well again. The launch hook waits for
/// half an hour; twice that leaves Auto Scaling one more try.
pub(super) const PATIENCE: SignedDuration = deadline::PATIENCE;

/// What was decided and has not been seen to happen after so long is decided anew: whatever it was decided on is too old by then
/// ([`super::outbox::FRESH`]), and Auto Scaling's answers are not that late.
pub(super) const RECONSIDERED: SignedDuration = SignedDuration::from_mins(5);

/// Machines of a pool that are asked at once at most, and pools that are worked on side by side: an invocation stays bounded, whatever
/// the spec allows.
const AT_A_TIME: u32 = 10;

/// What holds for all node steps of a rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nodes {
    /// In the order of their turn.
    pub steps: Vec<NodeStep>,
    /// The groups of all members of etcd, also of those that nothing is done to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<Role, String>,
    /// The groups of those that leave the membership, and have not left it yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaving: BTreeMap<Role, String>,
    /// The group of the controllers, which drain workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<String>,
    /// When the newest snapshot was asked for that was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_at: Option<Timestamp>,
    /// Times in which something disruptive may start; empty: always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<MaintenanceWindow>,
    /// Until when what the machines have is good.
    #[serde(default, skip_serializing_if = "Deadline::is_none")]
    pub deadline: Deadline,
    /// What it did not wait for, and when the certificates end that were why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overridden: BTreeMap<Held, Timestamp>,
    /// How many workers may fail to be replaced before it stops.
    #[serde(default)]
    pub budget: u32,
    /// How many did.
    #[serde(default)]
    pub failures: u32,
}

/// What the work on a role sees, and what it wants.
struct Turn<'a> {
    cluster: &'a str,
    /// What names this rollout in the tokens of its commands.
    token: &'a str,
    /// The role that is worked on.
    role: &'a Role,
    /// Its stack.
    stack: &'a str,
    /// Its Auto Scaling group.
    group: &'a str,
    /// `Kubernetes 1.36 → 1.37`, where its machines go to another minor release.
    minor: Option<&'a str>,
    /// How often its machines were asked something.
    rounds: &'a mut u32,
    /// The name of the rollout's change sets.
    change_set: &'a str,
    observed: &'a Observed,
    now: Timestamp,
    members: &'a BTreeMap<Role, String>,
    /// Those of them that are to stay.
    staying: &'a BTreeMap<Role, String>,
    controllers: Option<&'a String>,
    snapshot_at: &'a mut Option<Timestamp>,
    windows: &'a [MaintenanceWindow],
    urgency: Urgency,
    /// From when on no window holds it up.
    urgent_from: Option<Timestamp>,
    skipped: &'a BTreeSet<String>,
    departures: &'a mut BTreeMap<String, Departure>,
    /// How many workers may still fail to be replaced.
    budget: &'a mut Budget,
    /// A newer spec waits until what was begun is done.
    newer: bool,
    effects: Effects,
}

/// How many workers may fail to be replaced, and how many did.
struct Budget {
    allowed: u32,
    failures: u32,
}

impl Turn<'_> {
    /// Asks machines something.
    fn ask(&mut self, whom: Vec<(Role, String, Verb)>) -> Round {
        *self.rounds += 1;
        let name = self.role.to_string();
        let sender = Sender { of: self.token, cluster: self.cluster, name: &name };
        let round = Round::new(sender, *self.rounds, whom, self.now);
        self.effects.extend(round.iter().map(|asked| Effect::Send(asked.command.clone())));
        round
    }

    /// Asks one machine something.
    fn ask_one(&mut self, role: &Role, instance: String, verb: Verb) -> Asked {
        self.ask_one_on(Seen::World, self.now, role, instance, verb)
    }

    /// As [`Turn::ask_one`], decided on what was seen at `at`.
    fn ask_one_on(&mut self, seen: Seen, at: Timestamp, role: &Role, instance: String, verb: Verb) -> Asked {
        *self.rounds += 1;
        let name = self.role.to_string();
        let sender = Sender { of: self.token, cluster: self.cluster, name: &name };
        let asked = Asked::new(sender, *self.rounds, (role.clone(), instance, verb), self.now);
        self.effects.push_on(Effect::Send(asked.command.clone()), seen, at);
        asked
    }

    /// Windows bound the start of what is disruptive.
    fn may_start(&self) -> bool {
        self.urgency.overrides() || window_is_open(self.windows, self.now)
    }

    /// Whether that machine is on its way out, or back.
    fn departs(&self, machine: &str) -> bool {
        self.departures.get(machine).is_some_and(|one| !one.only_stays_cordoned())
    }

    /// What it says that waits for a window.
    fn window(&self) -> Waits {
        Waits::Window { at_most_until: self.urgent_from }
    }

    /// Why there is no group to work on.
    fn no_group(&self) -> String {
        format!("there is no Auto Scaling group {}", self.group)
    }
}

impl Nodes {
    /// Whether there is anything at all.
    pub(super) fn is_none(&self) -> bool {
        self.steps.is_empty()
    }

    /// The wave of the first step that is not done.
    pub(super) fn wave(&self) -> Option<u8> {
        self.turn().map(|at| self.steps[at].wave())
    }

    /// What became of all, once they are done.
    pub(super) fn summary(&self) -> String {
        let named = |work, left| -> Vec<String> {
            let of = self.steps.iter().filter(|step| step.work() == work && step.is_left() == left);
            of.map(|step| step.role.to_string()).collect()
        };
        let mut text = String::new();
        for (words, roles) in [
            ("refreshed", named(Work::Refresh, false)),
            ("replaced", named(Work::Replace, false)),
            ("out of etcd's membership", named(Work::Leave, false)),
            ("removed", named(Work::Remove, false)),
            (
                "left as they are, as told",
                [named(Work::Refresh, true), named(Work::Replace, true), named(Work::Remove, true)].concat(),
            ),
        ] {
            if !roles.is_empty() {
                text.push_str(&format!("; {words}: {}", roles.join(", ")));
            }
        }
        if let Some(overridden) = overridden(self) {
            text.push_str(&format!("; {overridden}"));
        }
        text
    }

    /// Each step in words; `now` is what those wait for whose turn it is.
    pub(super) fn words(&self, now: &BTreeMap<Role, Waits>) -> BTreeMap<String, String> {
        let words = |step: &NodeStep| {
            let words = match (step.failure(), step.is_done()) {
                (Some(why), _) => why.to_owned(),
                (None, true) if step.is_left() => "left as it is, as it was told".to_owned(),
                (None, true) => "done".to_owned(),
                (None, false) => {
                    now.get(&step.role).map_or_else(|| "waits for its turn".to_owned(), ToString::to_string)
                }
            };
            (step.role.to_string(), words)
        };
        // A role may have two steps, one before its stack and one after: what is open or has failed counts.
        let (done, open): (Vec<_>, Vec<_>) = self.steps.iter().partition(|step| step.is_done());
        done.into_iter().chain(open.into_iter().rev()).map(words).collect()
    }

    /// Members that are out of etcd's membership, or may be.
    pub(super) fn taken_out(&self) -> impl Iterator<Item = &Role> {
        self.steps.iter().filter(|step| step.may_be_out()).map(|step| &step.role)
    }

    fn turn(&self) -> Option<usize> {
        self.steps.iter().position(|step| !step.is_done())
    }

    /// The steps whose turn it is: the first, and where that is a pool, every pool whose predecessors are done.
    fn turns(&self) -> Vec<usize> {
        let Some(first) = self.turn() else { return Vec::new() };
        if !matches!(self.steps[first].role, Role::Pool(_)) {
            return vec![first];
        }
        let open = |role: &Role| self.steps.iter().any(|one| &one.role == role && !one.is_done());
        let free = |step: &NodeStep| !step.is_done() && !step.after.iter().any(open);
        let found: Vec<usize> = (first..self.steps.len()).filter(|at| free(&self.steps[*at])).collect();
        // Pools never wait for each other in a circle; if they did, the first would go first.
        if found.is_empty() { vec![first] } else { found.into_iter().take(AT_A_TIME as usize).collect() }
    }

    /// The steps that are looked at: those whose turn it is, and where nothing may begin those that CloudFormation works at.
    fn to_look_at(&self, held: bool) -> Vec<usize> {
        let deleting = |at: &usize| self.steps[*at].is_deleting();
        if held { (0..self.steps.len()).filter(deleting).collect() } else { self.turns() }
    }

    /// Why it can go no further, and for which role.
    pub(super) fn failure(&self) -> Option<String> {
        self.steps.iter().find_map(|step| Some(format!("{}: {}", step.role, step.failure()?)))
    }

    /// Whether something was begun that had better be ended before anything else begins.
    pub(super) fn is_busy(&self) -> bool {
        self.steps.iter().any(NodeStep::is_busy)
    }

    /// Whether CloudFormation was told to delete a stack, and has not ended.
    pub(super) fn is_deleting(&self) -> bool {
        self.steps.iter().any(NodeStep::is_deleting)
    }

    /// The groups whose machines CloudFormation takes down.
    pub(super) fn groups_that_go(&self) -> impl Iterator<Item = String> {
        self.steps.iter().filter(|step| step.is_deleting()).map(|step| step.group.clone())
    }

    /// The pools that are gone.
    pub(super) fn gone(&self) -> impl Iterator<Item = &NodeStep> {
        let removed = |step: &&NodeStep| step.work() == Work::Remove && step.is_done() && !step.is_left();
        self.steps.iter().filter(removed)
    }

    /// The stacks that were to go, and stay as somebody said.
    pub(super) fn kept(&self) -> impl Iterator<Item = &String> {
        let kept = self.steps.iter().filter(|step| step.work() == Work::Remove && step.is_left());
        kept.map(|step| &step.stack)
    }

    /// CloudFormation was not told to delete that stack, as far as is known.
    pub(super) fn not_deleted(&mut self, stack: &str) {
        for step in self.steps.iter_mut().filter(|step| step.is_deleting() && step.stack == stack) {
            if let Task::Removal(removal) = &mut step.task {
                removal.phase = Phase::new(RemovalState::Empty);
            }
        }
    }

    /// CloudFormation would not delete that stack.
    pub(super) fn undeletable(&mut self, stack: &str, reason: &str) {
        for step in self.steps.iter_mut().filter(|step| step.is_deleting() && step.stack == stack) {
            step.fail(reason);
        }
    }

    /// Time that went by while it was paused does not count. What was seen before it tells nothing of now, so whoever is about to go is
    /// looked at anew, and so is the snapshot (P4, P5).
    pub(super) fn resumed(&mut self, at: Timestamp) {
        self.steps.iter_mut().for_each(|step| step.resumed(at));
    }

    /// The command of that token was not sent: what was about to be done is looked at anew.
    pub(super) fn not_sent(&mut self, token: &str) {
        self.steps.iter_mut().for_each(|step| step.not_sent(token));
    }

    /// The machine that the command of that token would have refreshed is left as it is: the others that were asked with it answer still.
    pub(super) fn not_refreshed(&mut self, token: &str) {
        self.steps.iter_mut().for_each(|step| step.not_refreshed(token));
    }

    /// Run Command would not take the command of that token.
    pub(super) fn unsent(&mut self, token: &str, reason: &str) {
        self.steps.iter_mut().for_each(|step| step.refused(token, reason));
    }

    /// Auto Scaling would not do that to the machines of `group`.
    pub(super) fn stuck(&mut self, group: &str, reason: &str) {
        for at in self.turns() {
            let step = &mut self.steps[at];
            if step.group == group {
                step.fail(reason);
            }
        }
    }

    /// Auto Scaling would not have `group` want more machines, or was not told so.
    pub(super) fn not_raised(&mut self, group: &str) {
        for step in self.steps.iter_mut().filter(|step| step.group == group) {
            if let Task::Workers(workers) = &mut step.task {
                workers.not_raised();
            }
        }
    }

    /// The machines that each pool was to have more while it was rolled, and still wants.
    pub(super) fn left_over(&self) -> impl Iterator<Item = (&Role, LeftOver)> {
        let left = self.steps.iter().filter_map(|step| Some((&step.role, step.task.left_over()?)));
        left.filter(|(_, left)| left.machines() > 0)
    }

    /// The same of an earlier rollout, which ended early.
    pub(super) fn had_left_over(&mut self, left_over: &BTreeMap<Role, LeftOver>) {
        for step in &mut self.steps {
            if let (Task::Workers(workers), Some(left)) = (&mut step.task, left_over.get(&step.role)) {
                workers.extra = Extra::Left(*left);
            }
        }
    }

    /// The rollout ends: what was asked for and still runs is taken back, and controllers that were cordoned stay.
    pub(super) fn called_off(
        &mut self,
        departures: &mut BTreeMap<String, Departure>,
        now: Timestamp,
    ) -> Vec<Effect> {
        self.steps.iter_mut().flat_map(|step| step.called_off(departures, now)).collect()
    }

    /// CloudFormation was not told yet to make the members that join. See [`Saver::members_still_to_join`].
    pub(super) fn members_still_to_join(&mut self, now: Timestamp) {
        for step in &mut self.steps {
            if let Task::Saver(saver) = &mut step.task {
                saver.members_still_to_join(self.snapshot_at, now);
            }
        }
    }

    /// What the steps whose turn it is look at; `held`: nothing may begin.
    pub(super) fn to_observe(&self, held: bool, now: Timestamp, look: &mut ToObserve) {
        for step in self.to_look_at(held).into_iter().map(|at| &self.steps[at]) {
            let work = step.work();
            if work == Work::Remove {
                look.going.insert(step.stack.clone());
            }
            let takes_snapshot = step.minor.is_some() && step.role == Role::Controller;
            if step.role.member().is_some() || takes_snapshot {
                look.groups.extend(self.members.values().chain(self.leaving.values()).cloned());
            }
            look.groups.insert(step.group.clone());
            if step.asks_balancers(self.urgency_of(&step.role, now)) {
                look.targets.insert(step.group.clone());
            }
            if matches!(step.role, Role::Pool(_)) && work != Work::Refresh {
                look.groups.extend(self.controllers.clone());
            }
            look.commands.extend(step.commands());
            // Of several pools that boot machines the first says how they are.
            look.booting.get_or_insert((step.role.clone(), step.group.clone()));
        }
    }
}

/// Takes the steps whose turn it is as far as what was observed allows: what to do, and what each waits for. `newer`: a newer spec waits
/// until what was begun is done. `held`: nothing may begin.
pub(super) fn advance(
    active: &mut Active,
    departures: &mut BTreeMap<String, Departure>,
    cluster: &str,
    observed: &Observed,
    now: Timestamp,
    newer: bool,
    held: bool,
) -> (Effects, BTreeMap<Role, Waits>) {
    let nodes = &mut active.nodes;
    let mut budget = Budget { allowed: nodes.budget, failures: nodes.failures };
    let (mut effects, mut waits) = (Effects::new(now), BTreeMap::new());
    let all = nodes.members.iter().chain(&nodes.leaving);
    let members: BTreeMap<Role, String> = all.map(|(role, group)| (role.clone(), group.clone())).collect();
    for at in nodes.to_look_at(held) {
        let role = nodes.steps[at].role.clone();
        if !held {
            nodes.note_override(&role, now);
        }
        let (urgency, urgent_from) = (nodes.urgency_of(&role, now), nodes.urgent_from(&role));
        // A role may have two steps: no answer to the one is taken for an answer to the other.
        let token = format!("{cluster} {} {} {at}", active.change_set, active.started_at);
        let NodeStep { role, stack, group, minor, rounds, task, .. } = &mut nodes.steps[at];
        let mut turn = Turn {
            cluster,
            token: &token,
            role,
            stack,
            group,
            minor: minor.as_deref(),
            rounds,
            change_set: &active.change_set,
            observed,
            now,
            members: &members,
            staying: &nodes.members,
            controllers: nodes.controllers.as_ref(),
            snapshot_at: &mut nodes.snapshot_at,
            windows: &nodes.windows,
            urgency,
            urgent_from,
            skipped: &active.skipped,
            departures: &mut *departures,
            budget: &mut budget,
            newer,
            effects: Effects::new(now),
        };
        if let Some(what) = task.advance(&mut turn) {
            waits.insert(turn.role.clone(), what);
        }
        effects.append(turn.effects);
        let step = &nodes.steps[at];
        if step.work() == Work::Leave && step.is_done() {
            nodes.leaving.remove(&step.role);
        }
    }
    nodes.failures = budget.failures;
    (effects, waits)
}

/// Each kind of work, and its states.
pub(super) fn kinds() -> [(&'static str, &'static [super::states::Way]); 8] {
    use machine::State;
    [
        ("A member of etcd that is replaced", MemberState::<Replacing>::WAYS),
        ("A member of etcd that takes new credentials", MemberState::<Refreshing>::WAYS),
        ("A snapshot before members join", SaverState::WAYS),
        ("A member of etcd that leaves", LeaverState::WAYS),
        ("Controllers", ControllersState::WAYS),
        ("A pool that takes new credentials", PoolRefreshState::WAYS),
        ("A pool whose workers are replaced", WorkersState::WAYS),
        ("A pool that goes", RemovalState::WAYS),
    ]
}

/// A group's machines that count: that serve, or are about to.
fn counting(group: &GroupView) -> impl Iterator<Item = (&String, &MachineView)> {
    group.machines.iter().filter(|(_, machine)| match machine.lifecycle {
        Lifecycle::Pending | Lifecycle::InService => true,
        Lifecycle::TerminatingWait | Lifecycle::Terminating | Lifecycle::Retained | Lifecycle::Elsewhere => {
            false
        }
    })
}

/// A group's machines that serve.
pub(super) fn serving(group: &GroupView) -> impl Iterator<Item = (&String, &MachineView)> {
    counting(group).filter(|(_, machine)| machine.lifecycle == Lifecycle::InService)
}

/// Whether it serves.
fn serves(group: &GroupView, machine: &str) -> bool {
    group.machines.get(machine).is_some_and(|one| one.lifecycle == Lifecycle::InService)
}

/// Whether it was launched from what its group launches now.
fn is_current(group: &GroupView, machine: &MachineView) -> bool {
    machine.template.is_some() && machine.template == group.template
}
