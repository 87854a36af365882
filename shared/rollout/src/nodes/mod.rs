//! The nodes of a rollout: refreshed in place or replaced, one safe step after the other (P4, P5).
//!
//! A [`NodeStep`] is one role: a member of etcd, the controllers, a pool. Its turn comes when the stacks of its wave are done, so that
//! whatever Auto Scaling launches is of the new release. Everything is read off the world each time: a machine that was launched from
//! what its group launches now has nothing to be done to it, whoever launched it. [`danger`] says what may not be taken down.
//!
//! Commands are asked for in rounds. Each is named by a token of its own, so that a function that dies asks for none twice, and the
//! round is counted in the state, so that no answer of an earlier one is taken for news.

pub(super) mod asks;
mod danger;
mod idle;
mod leaver;
mod machines;
mod member;
mod planned;
mod removal;
mod words;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::departures::Departure;
use super::fleet::{GroupView, Lifecycle, MachineView};
use super::outbox::Effects;
use super::urgency::{Held, overridden};
use super::{Active, Observed, ToObserve};
use slipway_core::cluster::Pace;
use slipway_core::node::BootstrapReport;
use slipway_core::node::Command;
use slipway_core::pki::Role;
use slipway_core::renewal::{Deadline, Urgency, deadline};

pub(super) use planned::left;
pub use words::{since_windows_open, window_is_open};
pub use workers::Crew;

/// How often one machine's step is tried: what fails for the third time does not fail by chance.
pub(super) const TRIES: u32 = deadline::TRIES;

/// How long a machine may take from its launch to its service, and etcd or the API until all is well again. The launch hook waits for
/// half an hour; twice that leaves Auto Scaling one more try.
pub(super) const PATIENCE: SignedDuration = deadline::PATIENCE;

/// What was decided and has not been seen to happen after so long is decided anew: whatever it was decided on is too old by then
/// ([`super::outbox::FRESH`]), and Auto Scaling's answers are not that late.
pub(super) const RECONSIDERED: SignedDuration = SignedDuration::from_mins(5);

/// Before the machines of a role are asked again how they are: once a tick.
pub(super) const PAUSE: SignedDuration = SignedDuration::from_secs(50);

/// Machines of a pool that are asked at once at most, and pools that are worked on side by side: an invocation stays bounded, whatever
/// the spec allows.
const AT_A_TIME: u32 = 10;

/// What is to be done to the machines of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeStep {
    /// The role.
    pub role: Role,
    /// The stack that its group is in.
    pub stack: String,
    /// Its Auto Scaling group.
    pub group: String,
    /// Replaced, or refreshed.
    pub work: Work,
    /// Digest of the credentials that its machines end with.
    pub credentials: String,
    /// How many machines there are to be.
    pub size: u32,
    /// How many there may be at most, but for those that come first.
    #[serde(default)]
    pub most: u32,
    /// How many may be missing, or too many, while they are worked on.
    #[serde(default)]
    pub pace: Pace,
    /// Whether its group counts units of capacity, not machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// Pools that come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Role>,
    /// How far it is.
    pub state: NodeState,
    /// When it came there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The machine that is worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// How often its present machine's work failed.
    #[serde(default)]
    pub tries: u32,
    /// How often machines were asked something.
    #[serde(default)]
    pub round: u32,
    /// What they were asked last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Asked>,
    /// Machines that took the new credentials.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<String>,
    /// The machine whose pods were evicted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<String>,
    /// The controller that pods were told to leave, and that has not gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<String>,
    /// Seconds after which a drain may be forced by all the other rules; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// Whether a machine was left, as a person said, or since it could not be replaced.
    #[serde(default)]
    pub left: bool,
    /// `Kubernetes 1.36 → 1.37`, where its machines go to another minor release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<String>,
    /// Since when none of its machines seems to need anything, though nothing was done to any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// Whether it comes before its stack.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// How the workers of a pool stand that are replaced.
    #[serde(default, skip_serializing_if = "Crew::is_none")]
    pub crew: Crew,
}

/// What is done to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// It takes new credentials in place.
    Refresh,
    /// Another takes its place.
    Replace,
    /// There is one too many, and it goes; the others stay as they are.
    Fewer,
    /// A member of etcd leaves the membership, before its group goes.
    Leave,
    /// It goes, and its stack with it.
    Remove,
}

impl Work {
    /// Whether machines of before are gone, or have changed, when it is done.
    pub(super) const fn renews(self) -> bool {
        match self {
            Self::Refresh | Self::Replace => true,
            Self::Fewer | Self::Leave | Self::Remove => false,
        }
    }
}

/// How far a [`NodeStep`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// Looking for what is to be done next.
    Waiting,
    /// A snapshot of etcd is being taken.
    Snapshot,
    /// The others are asked whether they can do without it.
    Check,
    /// Leadership is moved to another member.
    Leader,
    /// It takes its credentials.
    Refresh,
    /// It was terminated and its successor comes; or one more comes before it goes.
    Return,
    /// Its pods are evicted.
    Drain,
    /// It was terminated, and none comes for it.
    Leave,
    /// All are asked whether they are well.
    After,
    /// Nothing is left to do.
    Done,
    /// It failed, and why.
    Failed(String),
}

/// A command that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Asked {
    /// The role of the machine.
    pub role: Role,
    /// What.
    pub command: Command,
    /// When.
    pub at: Timestamp,
    /// Why Run Command would not take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

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
    pub windows: Vec<slipway_core::cluster::MaintenanceWindow>,
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

/// What a step sees, and what it wants.
struct Turn<'a> {
    cluster: &'a str,
    token: String,
    /// The name of the rollout's change sets.
    change_set: &'a str,
    observed: &'a Observed,
    now: Timestamp,
    members: &'a BTreeMap<Role, String>,
    /// Those of them that are to stay.
    staying: &'a BTreeMap<Role, String>,
    controllers: Option<&'a String>,
    snapshot_at: &'a mut Option<Timestamp>,
    windows: &'a [slipway_core::cluster::MaintenanceWindow],
    urgency: Urgency,
    /// What a step says that waits for a window.
    waits_for_window: String,
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

/// Where a step stands after a look.
enum Look {
    /// It moved, and may be looked at again.
    Again,
    /// It waits, for that.
    Waits(String),
}

impl Nodes {
    /// Whether there is anything at all.
    pub(super) fn is_none(&self) -> bool {
        self.steps.is_empty()
    }

    /// How far each step is.
    pub(super) fn places(&self) -> Vec<(NodeState, Option<String>, usize, usize)> {
        let place = |step: &NodeStep| {
            (step.state.clone(), step.machine.clone(), step.done.len(), step.crew.begun.len())
        };
        self.steps.iter().map(place).collect()
    }

    /// Each step in words; `now` are those of the ones whose turn it is.
    pub(super) fn words(&self, now: &BTreeMap<Role, String>) -> BTreeMap<String, String> {
        let words = |step: &NodeStep| {
            let words = match &step.state {
                NodeState::Done if step.left => "left as it is, as it was told",
                NodeState::Done => "done",
                NodeState::Failed(why) => why.as_str(),
                NodeState::Waiting
                | NodeState::Snapshot
                | NodeState::Check
                | NodeState::Leader
                | NodeState::Refresh
                | NodeState::Return
                | NodeState::Drain
                | NodeState::Leave
                | NodeState::After => now.get(&step.role).map_or("waits for its turn", String::as_str),
            };
            (step.role.to_string(), words.to_owned())
        };
        self.steps.iter().map(words).collect()
    }

    /// What became of all, once they are done.
    pub(super) fn summary(&self) -> String {
        let named = |work, left| -> Vec<String> {
            let of = self.steps.iter().filter(|step| step.work == work && step.left == left);
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

    /// The wave of the first step that is not done.
    pub(super) fn wave(&self) -> Option<u8> {
        self.turn().map(|at| self.steps[at].wave())
    }

    /// Members that are out of etcd's membership, or may be.
    pub(super) fn taken_out(&self) -> impl Iterator<Item = &Role> {
        let leave = self.steps.iter().filter(|step| step.work == Work::Leave);
        let out = leave.filter(|step| match step.state {
            NodeState::Leave | NodeState::After | NodeState::Done => true,
            NodeState::Waiting
            | NodeState::Snapshot
            | NodeState::Check
            | NodeState::Leader
            | NodeState::Refresh
            | NodeState::Return
            | NodeState::Drain
            | NodeState::Failed(_) => false,
        });
        out.map(|step| &step.role)
    }

    fn turn(&self) -> Option<usize> {
        self.steps.iter().position(|step| step.state != NodeState::Done)
    }

    /// The steps whose turn it is: the first, and where that is a pool, every pool whose predecessors are done.
    fn turns(&self) -> Vec<usize> {
        let Some(first) = self.turn() else { return Vec::new() };
        if !matches!(self.steps[first].role, Role::Pool(_)) {
            return vec![first];
        }
        let open =
            |role: &Role| self.steps.iter().any(|one| &one.role == role && one.state != NodeState::Done);
        let free = |step: &NodeStep| step.state != NodeState::Done && !step.after.iter().any(open);
        let found: Vec<usize> = (first..self.steps.len()).filter(|at| free(&self.steps[*at])).collect();
        // Pools never wait for each other in a circle; if they did, the first would go first.
        if found.is_empty() { vec![first] } else { found.into_iter().take(AT_A_TIME as usize).collect() }
    }

    /// Why it can go no further.
    pub(super) fn failure(&self) -> Option<&str> {
        self.steps.iter().find_map(|step| match &step.state {
            NodeState::Failed(reason) => Some(reason.as_str()),
            NodeState::Waiting
            | NodeState::Snapshot
            | NodeState::Check
            | NodeState::Leader
            | NodeState::Refresh
            | NodeState::Return
            | NodeState::Drain
            | NodeState::Leave
            | NodeState::After
            | NodeState::Done => None,
        })
    }

    /// Time that went by while it was paused does not count. What was seen before it tells nothing of now, so whoever is about to go is
    /// looked at anew, and so is the snapshot (P4, P5).
    pub(super) fn resumed(&mut self, at: Timestamp) {
        for step in self.steps.iter_mut().filter(|step| step.state != NodeState::Done) {
            if matches!(step.state, NodeState::Snapshot | NodeState::Check | NodeState::Leader) {
                step.enter(NodeState::Waiting, at);
            }
            step.since = step.since.map(|since| since.max(at));
            step.asked.iter_mut().for_each(|asked| asked.at = asked.at.max(at));
        }
    }

    /// The command of that token was not sent: what was about to be done is looked at anew.
    pub(super) fn not_sent(&mut self, token: &str) {
        for step in &mut self.steps {
            if step.asked.iter().any(|asked| asked.command.token == token) {
                step.asked.clear();
                if step.state != NodeState::After {
                    step.state = NodeState::Waiting;
                }
            }
        }
    }

    /// Run Command would not take the command of that token.
    pub(super) fn unsent(&mut self, token: &str, reason: &str) {
        let asked = self.steps.iter_mut().flat_map(|step| &mut step.asked);
        for one in asked.filter(|asked| asked.command.token == token) {
            one.refused = Some(reason.to_owned());
        }
    }

    /// Auto Scaling would not do that to the machines of `group`.
    pub(super) fn stuck(&mut self, group: &str, reason: &str) {
        for at in self.turns() {
            let step = &mut self.steps[at];
            if step.group == group {
                step.state = NodeState::Failed(reason.to_owned());
            }
        }
    }

    /// What the steps whose turn it is look at; `held`: nothing may begin.
    pub(super) fn to_observe(&self, held: bool, look: &mut ToObserve) {
        for step in self.to_look_at(held).into_iter().map(|at| &self.steps[at]) {
            if step.work == Work::Remove {
                look.going.insert(step.stack.clone());
            }
            let takes_snapshot = step.minor.is_some() && step.role == Role::Controller;
            if step.role.member().is_some() || takes_snapshot {
                look.groups.extend(self.members.values().chain(self.leaving.values()).cloned());
            }
            look.groups.insert(step.group.clone());
            if matches!(step.role, Role::Pool(_)) && step.work != Work::Refresh {
                look.groups.extend(self.controllers.clone());
            }
            look.commands
                .extend(step.asked.iter().filter(|one| one.refused.is_none()).map(|one| one.command.clone()));
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
) -> (Effects, BTreeMap<Role, String>) {
    let token = format!("{cluster} {} {}", active.change_set, active.started_at);
    let nodes = &mut active.nodes;
    let mut budget = Budget { allowed: nodes.budget, failures: nodes.failures };
    let (mut effects, mut said) = (Effects::new(now), BTreeMap::new());
    let all = nodes.members.iter().chain(&nodes.leaving);
    let members: BTreeMap<Role, String> = all.map(|(role, group)| (role.clone(), group.clone())).collect();
    for at in nodes.to_look_at(held) {
        let role = nodes.steps[at].role.clone();
        if !held {
            nodes.note_override(&role, now);
        }
        let (urgency, waits_for_window) = (nodes.urgency_of(&role, now), nodes.waits_for_window(&role));
        let mut turn = Turn {
            cluster,
            token: token.clone(),
            change_set: &active.change_set,
            observed,
            now,
            members: &members,
            staying: &nodes.members,
            controllers: nodes.controllers.as_ref(),
            snapshot_at: &mut nodes.snapshot_at,
            windows: &nodes.windows,
            urgency,
            waits_for_window,
            skipped: &active.skipped,
            departures: &mut *departures,
            budget: &mut budget,
            newer,
            effects: Effects::new(now),
        };
        let step = &mut nodes.steps[at];
        if let Some(words) = step.looks(&mut turn) {
            said.insert(step.role.clone(), words);
        }
        effects.append(turn.effects);
        if step.work == Work::Leave && step.state == NodeState::Done {
            nodes.leaving.remove(&step.role);
        }
    }
    nodes.failures = budget.failures;
    (effects, said)
}

impl NodeStep {
    /// Looks as often as something moves: what it waits for in the end, if it does.
    fn looks(&mut self, turn: &mut Turn<'_>) -> Option<String> {
        // Each look moves it at least a state on, and no machine has more than a dozen.
        for _ in 0..64 {
            let look = match self.role {
                Role::Etcd(_) if self.work == Work::Leave => leaver::look(self, turn),
                Role::Etcd(_) => member::look(self, turn),
                Role::Pool(_) if self.work == Work::Replace => workers::look(self, turn),
                Role::Pool(_) if self.work == Work::Remove => removal::look(self, turn),
                Role::Controller | Role::Pool(_) | Role::Admin => machines::look(self, turn),
            };
            match look {
                Look::Again if self.state == NodeState::Done => return None,
                Look::Again => {}
                Look::Waits(waits) => return Some(waits),
            }
        }
        None
    }

    fn enter(&mut self, state: NodeState, now: Timestamp) -> Look {
        self.state = state;
        self.since = Some(now);
        self.asked.clear();
        Look::Again
    }

    fn fail(&mut self, why: String) -> Look {
        self.asked.clear();
        self.state = NodeState::Failed(format!("{}: {why}", self.role));
        Look::Waits(why)
    }

    /// The present machine's work failed: it is begun anew, from the looking on, or given up.
    fn again(&mut self, turn: &Turn<'_>, what: &str, why: &str) -> Look {
        self.tries += 1;
        if self.tries < TRIES {
            return self.enter(NodeState::Waiting, turn.now);
        }
        let machine = self.machine.as_deref().unwrap_or("its machine");
        self.fail(format!("{what} {machine} failed {TRIES} times: {why}"))
    }

    fn has_waited(&self, turn: &Turn<'_>) -> SignedDuration {
        self.since.map_or(SignedDuration::ZERO, |since| turn.now.duration_since(since))
    }
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

/// Whether it was launched from what its group launches now.
fn is_current(group: &GroupView, machine: &MachineView) -> bool {
    machine.template.is_some() && machine.template == group.template
}

/// What a machine that boots says of itself.
fn boots(group: &GroupView, reports: &BTreeMap<String, BootstrapReport>) -> String {
    let pending = counting(group).filter(|(_, machine)| machine.lifecycle == Lifecycle::Pending);
    let words: Vec<String> = pending
        .map(|(id, _)| match reports.get(id) {
            None => format!("{id} boots"),
            Some(report) => {
                let step = report.step.as_deref().map(|step| format!(" ({step})")).unwrap_or_default();
                let failure = report.failure.as_ref().map(|failure| format!(": {}", failure.message));
                format!("{id} boots{step}{}", failure.unwrap_or_default())
            }
        })
        .collect();
    if words.is_empty() { "no machine boots".to_owned() } else { words.join(", ") }
}
