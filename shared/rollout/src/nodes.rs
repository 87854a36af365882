//! The nodes of a rollout: they are refreshed in place or replaced, one safe step after the other (P4, P5).
//!
//! A [`NodeStep`] is one role: a member of etcd, the controllers, a pool. Its turn comes when the stacks of its wave are done, so that
//! every machine that Auto Scaling launches has the new release. The state is read from the world each time: a machine that was launched
//! from its group's present launch template needs nothing, whoever launched it. [`danger`] says which machines may not be taken down.
//!
//! Each kind of work is its own state machine ([`Task`]), whose states have only the data that they need.

mod closing;
mod controllers;
mod credentials;
mod danger;
mod drains;
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
mod urgency;
mod windows;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::cluster::MaintenanceWindow;
use slipway_core::deadline::{Deadline, Urgency};
use slipway_core::node::Verb;
use slipway_core::role::Role;

use super::departures::Departure;
use super::errand::{Round, Sender, SentCommand};
use super::fleet::{GroupView, Lifecycle, MachineView, serving};
use super::outbox::{Effects, Evidence, Seen};
use super::patience::{CONSISTENT, PATIENCE, RECONSIDERED};
use super::waits::{Danger, Waits};
use super::{Active, Effect, Observed, ToObserve};

pub use closing::unserved;
pub(crate) use closing::{Closing, ClosingState};
pub(crate) use controllers::{Controllers, ControllersState, ControllersWork};
pub(crate) use credentials::{PoolRefresh, PoolRefreshState};
pub(crate) use leaver::{Leaver, LeaverState};
pub(crate) use machine::Tries;
pub use machine::{Phase, Place};
pub(crate) use member::{Member, MemberState, RefreshMember, Refreshing, ReplaceMember, Replacing};
pub(super) use planned::nodes_for_a_person;
pub(crate) use removal::{Removal, RemovalState};
pub(crate) use saver::{Saver, SaverState};
pub use step::{NodeStep, Task, Work};
pub(crate) use urgency::Held;
pub(crate) use urgency::{held_by_a_pause, overridden, unapproved};
pub(crate) use windows::window_is_open;
pub use workers::LeftOver;
pub(crate) use workers::{Extra, Workers, WorkersState};

/// The number of machines of a pool that get commands at a time, and the number of pools that are processed in parallel, so that an
/// invocation stays bounded, whatever the spec allows.
const AT_A_TIME: u32 = 10;

/// The state that all node steps of a rollout share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nodes {
    /// The steps in order.
    pub steps: Vec<NodeStep>,
    /// The groups of all members of etcd, including members that do not change.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<Role, String>,
    /// The groups of members that are to be removed from etcd and are not yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaving: BTreeMap<Role, String>,
    /// The group of the controllers; controllers drain workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<String>,
    /// When the newest successful snapshot was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_at: Option<Timestamp>,
    /// The times in which disruptive work may begin; empty: always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<MaintenanceWindow>,
    /// When the certificates in use expire.
    #[serde(default, skip_serializing_if = "Deadline::is_none")]
    pub deadline: Deadline,
    /// What the rollout did not wait for, and the expiry of the certificates that were the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overridden: BTreeMap<Held, Timestamp>,
    /// How many workers may fail before the rollout fails.
    #[serde(default)]
    pub budget: u32,
    /// How many workers failed.
    #[serde(default)]
    pub failures: u32,
}

/// The context of the work on a role.
struct Turn<'a> {
    cluster: &'a str,
    /// What identifies this rollout in the tokens of its commands.
    token: &'a str,
    /// The role.
    role: &'a Role,
    /// Its stack.
    stack: &'a str,
    /// Its Auto Scaling group.
    group: &'a str,
    /// `Kubernetes 1.36 → 1.37`, if its machines get another minor.
    minor: Option<&'a str>,
    /// The number of command rounds of the role.
    rounds: &'a mut u32,
    /// The name of the rollout's change sets.
    change_set: &'a str,
    observed: &'a Observed,
    now: Timestamp,
    members: &'a BTreeMap<Role, String>,
    /// The groups of members that stay.
    staying: &'a BTreeMap<Role, String>,
    controllers: Option<&'a String>,
    snapshot_at: &'a mut Option<Timestamp>,
    windows: &'a [MaintenanceWindow],
    urgency: Urgency,
    /// From when on the step ignores windows.
    urgent_from: Option<Timestamp>,
    skipped: &'a BTreeSet<String>,
    departures: &'a mut BTreeMap<String, Departure>,
    /// How many workers may still fail.
    budget: &'a mut Budget,
    /// A newer spec waits until the work in progress is done.
    newer: bool,
    /// The members of etcd with the same kind of work that are worked on later.
    later: BTreeSet<Role>,
    /// The one of them that has to go first.
    first: Option<Role>,
    effects: Effects,
}

/// How many workers may fail, and how many did.
struct Budget {
    allowed: u32,
    failures: u32,
}

impl Turn<'_> {
    /// Why no machine would come in place of one that is terminated, if so.
    fn group_cannot_launch(&self) -> Option<Danger> {
        let group = self.observed.groups.get(self.group)?.as_ref()?;
        group.launch_suspended.then(|| Danger::CannotLaunch(group.name.clone()))
    }

    /// Sends commands to machines.
    fn ask(&mut self, whom: Vec<(Role, String, Verb)>) -> Round {
        // If nobody can be asked, nothing changes.
        if whom.is_empty() {
            return Round::default();
        }
        *self.rounds += 1;
        let name = self.role.to_string();
        let sender = Sender { owner: self.token, cluster: self.cluster, name: &name };
        let round = Round::new(sender, *self.rounds, whom, self.now);
        self.effects.extend(round.iter().map(|sent| Effect::Send(sent.command.clone())));
        round
    }

    /// Sends a command to one machine.
    fn ask_one(&mut self, role: &Role, instance: String, verb: Verb) -> SentCommand {
        self.ask_one_on(Evidence::new(Seen::World, self.now), role, instance, verb)
    }

    /// As [`Turn::ask_one`], for a decision based on that evidence.
    fn ask_one_on(&mut self, evidence: Evidence, role: &Role, instance: String, verb: Verb) -> SentCommand {
        *self.rounds += 1;
        let name = self.role.to_string();
        let sender = Sender { owner: self.token, cluster: self.cluster, name: &name };
        let sent = SentCommand::new(sender, *self.rounds, (role.clone(), instance, verb), self.now);
        self.effects.push_on(Effect::Send(sent.command.clone()), evidence);
        sent
    }

    /// The evidence for taking a member down: the answers to `round`, and the snapshot, as long as it counts (P4).
    fn evidence_of_members(&self, round: &Round) -> Evidence {
        let evidence = Evidence::new(Seen::Members, round.at().unwrap_or(self.now));
        danger::counts_until(*self.snapshot_at).map_or(evidence, |until| evidence.at_most_until(until))
    }

    /// Windows limit the beginning of disruptive work.
    fn may_start(&self) -> bool {
        self.urgency.overrides() || window_is_open(self.windows, self.now)
    }

    /// Whether that machine has a departure.
    fn departs(&self, machine: &str) -> bool {
        departs(self.departures, machine)
    }

    /// The reason to wait for a window.
    fn window(&self) -> Waits {
        Waits::Window { at_most_until: self.urgent_from }
    }

    /// Why there is no group to work on.
    fn no_group(&self) -> String {
        format!("there is no Auto Scaling group {}", self.group)
    }
}

/// Whether that machine has a departure.
fn departs(departures: &BTreeMap<String, Departure>, machine: &str) -> bool {
    departures.get(machine).is_some_and(|one| !one.only_stays_cordoned())
}

impl Nodes {
    /// Whether there are no steps.
    pub(super) fn is_none(&self) -> bool {
        self.steps.is_empty()
    }

    /// The wave of the first step that is not done.
    pub(super) fn wave(&self) -> Option<u8> {
        self.turn().map(|at| self.steps[at].wave())
    }

    /// The results of all steps, once they are done.
    pub(super) fn summary(&self) -> String {
        let roles = |work, skipped| -> Vec<String> {
            let steps = self.steps.iter().filter(|step| step.work() == work && step.is_skipped() == skipped);
            steps.map(|step| step.role.to_string()).collect()
        };
        let mut text = String::new();
        for (words, roles) in [
            ("refreshed", roles(Work::Refresh, false)),
            ("replaced", roles(Work::Replace, false)),
            ("out of etcd's membership", roles(Work::Leave, false)),
            ("removed", roles(Work::Remove, false)),
            (
                "left as they are, as told",
                [roles(Work::Refresh, true), roles(Work::Replace, true), roles(Work::Remove, true)].concat(),
            ),
        ] {
            if !roles.is_empty() {
                text.push_str(&format!("; {words}: {}", roles.join(", ")));
            }
        }
        let older = self.steps.iter().filter_map(|step| {
            if let Task::Closing(closing) = &step.task { Some(&closing.older) } else { None }
        });
        let older: Vec<&str> = older.flatten().map(String::as_str).collect();
        if !older.is_empty() {
            text.push_str(&format!(
                "; it is not known whether the cluster serves, because the node agent is older than that question: {}",
                older.join(", ")
            ));
        }
        if self.steps.iter().any(|step| matches!(&step.task, Task::Closing(closing) if closing.nobody)) {
            text.push_str(
                "; it is not known whether the cluster serves, because all controllers were skipped",
            );
        }
        if let Some(overridden) = overridden(self) {
            text.push_str(&format!("; {overridden}"));
        }
        text
    }

    /// The state of each step in words; `now` is what the steps wait for whose turn it is.
    pub(super) fn words(&self, now: &BTreeMap<Role, Waits>) -> BTreeMap<String, String> {
        let words = |step: &NodeStep| {
            let words = match (step.failure(), step.is_done()) {
                (Some(why), _) => why.to_owned(),
                (None, true) if step.is_skipped() => "skipped by order of a person".to_owned(),
                (None, true) => "done".to_owned(),
                (None, false) => {
                    now.get(&step.role).map_or_else(|| "waits for its turn".to_owned(), ToString::to_string)
                }
            };
            (if step.is_final_check() { "cluster".to_owned() } else { step.role.to_string() }, words)
        };
        // A role may have two steps, one before its stack and one after; a step that is open or has failed is shown.
        let shown = self.steps.iter().filter(|step| !(step.is_final_check() && step.is_done()));
        let (done, open): (Vec<_>, Vec<_>) = shown.partition(|step| step.is_done());
        done.into_iter().chain(open.into_iter().rev()).map(words).collect()
    }

    /// Members that were removed from etcd, or may have been.
    pub(super) fn removed_members(&self) -> impl Iterator<Item = &Role> {
        self.steps.iter().filter(|step| step.may_be_out()).map(|step| &step.role)
    }

    fn turn(&self) -> Option<usize> {
        self.steps.iter().position(|step| !step.is_done())
    }

    /// The steps whose turn it is: the first one; if that is a pool, every pool whose predecessors are done.
    fn turns(&self) -> Vec<usize> {
        let Some(first) = self.turn() else { return Vec::new() };
        if !matches!(self.steps[first].role, Role::Pool(_)) {
            return vec![first];
        }
        let open = |role: &Role| self.steps.iter().any(|one| &one.role == role && !one.is_done());
        let free = |step: &NodeStep| !step.is_done() && !step.after.iter().any(open);
        let found: Vec<usize> = (first..self.steps.len()).filter(|at| free(&self.steps[*at])).collect();
        // Pools never wait for each other in a circle; if they did, the first would be chosen.
        if found.is_empty() { vec![first] } else { found.into_iter().take(AT_A_TIME as usize).collect() }
    }

    /// The steps that are observed: those whose turn it is, and if nothing may begin, those whose stack CloudFormation is deleting.
    fn steps_to_observe(&self, held: bool) -> Vec<usize> {
        let deleting = |at: &usize| self.steps[*at].is_deleting();
        if held { (0..self.steps.len()).filter(deleting).collect() } else { self.turns() }
    }

    /// Why it has failed, and for which role.
    pub(super) fn failure(&self) -> Option<String> {
        let words = |step: &NodeStep| {
            let why = step.failure()?;
            Some(if step.is_final_check() { why.to_owned() } else { format!("{}: {why}", step.role) })
        };
        self.steps.iter().find_map(words)
    }

    /// Whether everything is as planned, and only the look at the whole cluster is left, or has failed.
    pub(super) fn is_closing(&self) -> bool {
        self.turn().is_some_and(|at| self.steps[at].is_final_check())
    }

    /// Whether work has begun that should be completed before anything else begins.
    pub(super) fn is_busy(&self) -> bool {
        self.steps.iter().any(NodeStep::is_busy)
    }

    /// Whether a deletion of a stack was requested and has not ended.
    pub(super) fn is_deleting(&self) -> bool {
        self.steps.iter().any(NodeStep::is_deleting)
    }

    /// The groups whose machines CloudFormation terminates.
    pub(super) fn groups_that_go(&self) -> impl Iterator<Item = String> {
        self.steps.iter().filter(|step| step.is_deleting()).map(|step| step.group.clone())
    }

    /// The removed pools that are gone.
    pub(super) fn deleted_pools(&self) -> impl Iterator<Item = &NodeStep> {
        let removed = |step: &&NodeStep| step.work() == Work::Remove && step.is_done() && !step.is_skipped();
        self.steps.iter().filter(removed)
    }

    /// The stacks that should have been deleted, and stay because a machine was skipped.
    pub(super) fn stacks_of_skipped(&self) -> impl Iterator<Item = &String> {
        let kept = self.steps.iter().filter(|step| step.work() == Work::Remove && step.is_skipped());
        kept.map(|step| &step.stack)
    }

    /// As far as is known, CloudFormation did not receive the request to delete that stack.
    pub(super) fn not_deleted(&mut self, stack: &str) {
        for step in self.steps.iter_mut().filter(|step| step.is_deleting() && step.stack == stack) {
            if let Task::Removal(removal) = &mut step.task {
                removal.phase = Phase::new(RemovalState::Empty);
            }
        }
    }

    /// CloudFormation refused to delete that stack.
    pub(super) fn record_deletion_refusal(&mut self, stack: &str, reason: &str) {
        for step in self.steps.iter_mut().filter(|step| step.is_deleting() && step.stack == stack) {
            step.fail(reason);
        }
    }

    /// The time of a pause does not count. Observations from before it say nothing about the present, so the machine to be taken down is
    /// checked again, and so is the snapshot (P4, P5).
    pub(super) fn resumed(&mut self, at: Timestamp) {
        self.steps.iter_mut().for_each(|step| step.resumed(at));
    }

    /// The command with that token was not sent: the decision is checked again.
    pub(super) fn not_sent(&mut self, token: &str) {
        self.steps.iter_mut().for_each(|step| step.not_sent(token));
    }

    /// The machine of the command with that token is skipped: the other machines of the round still answer.
    pub(super) fn not_refreshed(&mut self, token: &str) {
        self.steps.iter_mut().for_each(|step| step.not_refreshed(token));
    }

    /// Run Command refused the command with that token.
    pub(super) fn unsent(&mut self, token: &str, reason: &str) {
        self.steps.iter_mut().for_each(|step| step.refused(token, reason));
    }

    /// Auto Scaling refused a call for the machines of `group`.
    pub(super) fn record_group_refusal(&mut self, group: &str, reason: &str) {
        for at in self.turns() {
            let step = &mut self.steps[at];
            // The look makes no such call: it was for a controller that leaves.
            if step.group == group && !step.is_final_check() {
                step.fail(reason);
            }
        }
    }

    /// Auto Scaling refused to raise the desired capacity of `group`, or was not asked to.
    pub(super) fn not_raised(&mut self, group: &str) {
        for step in self.steps.iter_mut().filter(|step| step.group == group) {
            if let Task::Workers(workers) = &mut step.task {
                workers.not_raised();
            }
        }
    }

    /// The surge of each pool that its group still wants.
    pub(super) fn left_over(&self) -> impl Iterator<Item = (&Role, LeftOver)> {
        let left = self.steps.iter().filter_map(|step| Some((&step.role, step.task.left_over()?)));
        left.filter(|(_, left)| left.machines() > 0)
    }

    /// The surge of an earlier rollout that ended early.
    pub(super) fn had_left_over(&mut self, left_over: &BTreeMap<Role, LeftOver>) {
        for step in &mut self.steps {
            if let (Task::Workers(workers), Some(left)) = (&mut step.task, left_over.get(&step.role)) {
                workers.extra = Extra::Left(*left);
            }
        }
    }

    /// The rollout ends: running commands are cancelled, and cordoned controllers stay.
    pub(super) fn called_off(
        &mut self,
        departures: &mut BTreeMap<String, Departure>,
        now: Timestamp,
    ) -> Vec<Effect> {
        self.steps.iter_mut().flat_map(|step| step.called_off(departures, now)).collect()
    }

    /// Until when the snapshot counts that is taken before that stack is updated; `None` if none is.
    pub(super) fn saved_until(&self, stack: &str) -> Option<Timestamp> {
        let saves = |step: &NodeStep| step.stack == stack && matches!(step.task, Task::Saver(_));
        self.steps.iter().any(saves).then(|| danger::counts_until(self.snapshot_at)).flatten()
    }

    /// CloudFormation was not told yet to update these stacks. See [`Saver::stack_still_to_begin`].
    pub(super) fn stacks_still_to_begin(&mut self, stacks: &BTreeSet<String>, now: Timestamp) {
        for step in self.steps.iter_mut().filter(|step| stacks.contains(&step.stack)) {
            if let Task::Saver(saver) = &mut step.task {
                saver.stack_still_to_begin(self.snapshot_at, now);
            }
        }
    }

    /// What to observe for the steps whose turn it is; `held`: nothing may begin.
    pub(super) fn to_observe(&self, held: bool, now: Timestamp, scope: &mut ToObserve) {
        for step in self.steps_to_observe(held).into_iter().map(|at| &self.steps[at]) {
            let work = step.work();
            if work == Work::Remove {
                scope.going.insert(step.stack.clone());
            }
            let takes_snapshot = work == Work::Save || step.minor.is_some() && step.role == Role::Controller;
            if step.role.member().is_some() || takes_snapshot {
                scope.groups.extend(self.members.values().chain(self.leaving.values()).cloned());
            }
            scope.groups.insert(step.group.clone());
            if step.asks_balancers(self.urgency_of(&step.role, now)) {
                scope.targets.insert(step.group.clone());
            }
            if matches!(step.role, Role::Pool(_)) && work != Work::Refresh {
                scope.groups.extend(self.controllers.clone());
            }
            if let Task::Closing(closing) = &step.task {
                // A member of etcd is known by its name, and its machine, which a person may skip, by its group.
                scope.groups.extend(closing.groups.values().chain(self.members.values()).cloned());
            }
            scope.commands.extend(step.awaited_commands());
            // If machines of several pools boot, the reports of the first pool are read.
            scope.booting.get_or_insert((step.role.clone(), step.group.clone()));
        }
    }
}

/// Advances the steps whose turn it is as far as the observation allows. Returns the effects, and what each step waits for. `newer`: a
/// newer spec waits until the work in progress is done. `held`: nothing may begin.
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
    for at in nodes.steps_to_observe(held) {
        let role = nodes.steps[at].role.clone();
        if !held {
            nodes.note_override(&role, now);
        }
        let urgent_from = nodes.urgent_from(&role);
        // Until the last of the members has left, and etcd's stack is without them, the newer plan cannot begin.
        let leaves = nodes.steps[at].work() == Work::Leave && nodes.removed_members().next().is_some();
        let newest = observed.desired.as_ref().filter(|_| newer && leaves);
        let newest = newest.map(|wanted| wanted.plan.urgency(now)).filter(|urgency| urgency.overrides());
        let urgency = newest.unwrap_or_else(|| nodes.urgency_of(&role, now));
        // A role may have two steps: an answer to one must not count for the other.
        let token = format!("{cluster} {} {} {at}", active.change_set, active.started_at);
        let later = nodes.later_members(at);
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
            later,
            first: None,
            effects: Effects::new(now),
        };
        if let Some(what) = task.advance(&mut turn) {
            waits.insert(turn.role.clone(), what);
        }
        effects.append(turn.effects);
        if let Some(first) = turn.first {
            nodes.goes_first(&first, at);
        }
        let step = &nodes.steps[at];
        if step.work() == Work::Leave && step.is_done() {
            nodes.leaving.remove(&step.role);
        }
    }
    nodes.failures = budget.failures;
    (effects, waits)
}

/// Each kind of work, and its states.
pub(super) fn kinds() -> [(&'static str, &'static [super::transitions::Transition]); 9] {
    use machine::State;
    [
        ("A member of etcd that is replaced", MemberState::<Replacing>::TRANSITIONS),
        ("A member of etcd that installs new credentials", MemberState::<Refreshing>::TRANSITIONS),
        ("A snapshot before a stack is updated", SaverState::TRANSITIONS),
        ("A member of etcd that leaves", LeaverState::TRANSITIONS),
        ("Controllers", ControllersState::TRANSITIONS),
        ("A pool that installs new credentials", PoolRefreshState::TRANSITIONS),
        ("A pool whose workers are replaced", WorkersState::TRANSITIONS),
        ("A pool that is removed", RemovalState::TRANSITIONS),
        ("The look at the whole cluster", ClosingState::TRANSITIONS),
    ]
}

/// The machines of a group that count: in service, or booting.
fn counting(group: &GroupView) -> impl Iterator<Item = (&String, &MachineView)> {
    group.machines.iter().filter(|(_, machine)| match machine.lifecycle {
        Lifecycle::Pending | Lifecycle::InService => true,
        Lifecycle::TerminatingWait | Lifecycle::Terminating | Lifecycle::Retained | Lifecycle::Elsewhere => {
            false
        }
    })
}

/// Whether somebody took a machine out of service that is not `renewed`, and that may come back (`EnterStandby`).
fn stands_by(group: &GroupView, renewed: impl Fn(&String, &MachineView) -> bool) -> bool {
    let apart = group.machines.iter().filter(|(_, machine)| machine.lifecycle == Lifecycle::Elsewhere);
    apart.into_iter().any(|(id, machine)| !renewed(id, machine))
}

/// Whether the machine is in service.
fn serves(group: &GroupView, machine: &str) -> bool {
    group.machines.get(machine).is_some_and(|one| one.lifecycle == Lifecycle::InService)
}

/// Whether it was launched from its group's present launch template.
fn is_current(group: &GroupView, machine: &MachineView) -> bool {
    machine.template.is_some() && machine.template == group.template
}
