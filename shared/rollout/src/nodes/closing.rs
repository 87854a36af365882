//! The last step of each rollout: whether the whole cluster serves (P11), also the machines that the rollout did not touch.
//!
//! All controllers in service are asked, and no worker: a controller knows the Nodes, so the number of commands does not grow with the
//! cluster. What they answer is held against what the groups want. The step disrupts nothing: it needs no window, and undoes nothing when
//! it fails. Machines that a person skipped do not count.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::node::report::ComponentName;
use slipway_core::node::{ClusterServes, NodesReady, Verb};
use slipway_core::role::Role;

use crate::transitions::{Transition, Wakes};

use super::super::errand::{Round, SentCommand};
use super::super::fleet::{GroupView, Lifecycle, MachineView};
use super::super::waits::{Asks, Boot, Detail, Gap, List, ObservedParts, Waits};
use super::machine::{Machine, Move, Place, State, waited};
use super::{PATIENCE, Phase, Turn, serves, serving};

/// How old the answers may be when the rollout ends: nothing is taken down because of them, so they may be older than the evidence of
/// an effect. Otherwise a rollout whose ticks are late would ask for ever.
const TOLD: SignedDuration = SignedDuration::from_mins(10);

/// The most machines whose Nodes are left out: their ids are a parameter of a command, and 400 are 8 KB.
const MOST_LEFT_OUT: usize = 400;

/// The look at the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Closing {
    /// The groups whose machines are Nodes: those of the controllers and of all pools.
    pub groups: BTreeMap<Role, String>,
    /// Controllers whose agent is older than this look: they cannot say whether the cluster serves.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub older: BTreeSet<String>,
    /// A person skipped all controllers, so that none was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nobody: bool,
    /// The state of the work.
    pub phase: Phase<ClosingState>,
}

/// The states of a [`Closing`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClosingState {
    /// All controllers are asked.
    Check(Round),
}

impl State for ClosingState {
    const TRANSITIONS: &'static [Transition] = &[
        Transition::new(
            "check",
            "all controllers are asked whether etcd, their components, the node managers and the Nodes of all pools serve",
            &[Wakes::Command],
            &["done", "failed"],
        ),
        Transition::DONE,
        Transition::FAILED,
    ];

    fn start() -> Self {
        Self::Check(Round::default())
    }

    fn place(&self) -> Place {
        match self {
            Self::Check(_) => Place::Check,
        }
    }

    fn commands(&self) -> &[SentCommand] {
        match self {
            Self::Check(round) => round.as_slice(),
        }
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        match self {
            Self::Check(round) => round.as_mut_slice(),
        }
    }

    fn is_busy(&self) -> bool {
        false
    }
}

impl Closing {
    /// A look whose turn has not come.
    pub(super) fn new(groups: BTreeMap<Role, String>) -> Self {
        Self { groups, older: BTreeSet::new(), nobody: false, phase: Phase::new(ClosingState::start()) }
    }
}

impl Machine for Closing {
    type State = ClosingState;

    fn phase_mut(&mut self) -> &mut Phase<ClosingState> {
        &mut self.phase
    }

    fn next_move(
        &mut self,
        ClosingState::Check(round): ClosingState,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
    ) -> Move<ClosingState> {
        since.get_or_insert(turn.now);
        let asks = |round| Move::Stay(ClosingState::Check(round), Waits::Answers(Asks::Cluster));
        if self.groups.values().any(|group| !turn.observed.groups.contains_key(group)) {
            return Move::Stay(ClosingState::Check(round), Waits::Look(ObservedParts::Machines));
        }
        let round = round.without(turn.skipped);
        let round = if round.is_empty() { self.ask_all(turn) } else { round };
        let Some(gaps) = self.gaps(&round, turn) else { return asks(round) };
        // Machines left, or a person skipped some, since the controllers were asked: their Nodes may stand in for others.
        let without = self.without(turn);
        let is_current = round.iter().all(|sent| leaves_out(&sent.command.verb, &without));
        let patient = waited(*since, turn.now) <= PATIENCE;
        // Where machines come and go all the time, no answer is current; after an hour the gaps that were seen count.
        if !is_current && (patient || gaps.is_empty()) {
            return asks(if round.may_ask_again(turn.now) { self.ask_all(turn) } else { round });
        }
        // What they said may be too old, because a wake came late. It is no reason to fail, either.
        if round.at().is_some_and(|at| turn.now.duration_since(at) > TOLD) {
            return asks(self.ask_all(turn));
        }
        if gaps.is_empty() {
            return Move::Done { skipped: false };
        }
        if !patient {
            return Move::Fail(format!(
                "all is rolled out, and the cluster does not serve after {} minutes: {}. Nothing is undone. `slipway status --cluster {}` \
                 shows what each machine reports; resolve that, then `slipway apply cluster.yaml --cluster {}` looks again",
                PATIENCE.as_mins(),
                List(&gaps),
                turn.cluster,
                turn.cluster
            ));
        }
        let round = if round.may_ask_again(turn.now) { self.ask_all(turn) } else { round };
        Move::Stay(ClosingState::Check(round), Waits::Serves(gaps))
    }
}

/// Whether the answer of that verb leaves out the Nodes of these machines.
fn leaves_out(verb: &Verb, machines: &BTreeSet<String>) -> bool {
    matches!(verb, Verb::Serves { without } if machines.is_subset(without))
}

impl Closing {
    /// Asks all controllers in service.
    fn ask_all(&self, turn: &mut Turn<'_>) -> Round {
        let verb = Verb::Serves { without: self.without(turn) };
        let group = turn.observed.groups.get(turn.group).and_then(Option::as_ref);
        let whom: Vec<_> = group
            .into_iter()
            .flat_map(serving)
            .filter(|(id, _)| !turn.skipped.contains(*id))
            .map(|(id, _)| (turn.role.clone(), id.clone(), verb.clone()))
            .collect();
        turn.ask(whom)
    }

    /// The machines whose Nodes do not count: they are not in service, or a person skipped them.
    fn without(&self, turn: &Turn<'_>) -> BTreeSet<String> {
        let groups = self.groups.values().filter_map(|name| turn.observed.groups.get(name)?.as_ref());
        let counts = |id: &String, one: &MachineView| {
            one.lifecycle == Lifecycle::InService && !turn.skipped.contains(id)
        };
        let others = groups.flat_map(|group| &group.machines).filter(|(id, one)| !counts(id, one));
        others.map(|(id, _)| id.clone()).take(MOST_LEFT_OUT).collect()
    }

    /// What does not serve; `None` if answers are missing.
    fn gaps(&mut self, round: &Round, turn: &Turn<'_>) -> Option<Vec<Gap>> {
        let answers = round.answers::<ClusterServes>(turn.observed, turn.now)?;
        let controllers = turn.observed.groups.get(turn.group).and_then(Option::as_ref);
        let mut gaps = Vec::new();
        let mut reports = Vec::new();
        self.older.clear();
        for (sent, answer) in answers {
            let machine = &sent.command.instance;
            // It was replaced meanwhile: its successor is asked.
            if !controllers.is_some_and(|group| serves(group, machine)) {
                gaps.push(Gap::Changed { machine: machine.clone() });
                continue;
            }
            match answer {
                Ok(answer) => {
                    gaps.extend(of_controller(machine, &answer));
                    reports.push(answer);
                }
                Err(_) if sent.was_not_understood(turn.observed) => {
                    self.older.insert(machine.clone());
                }
                Err(problem) => {
                    gaps.push(Gap::Silent { machine: machine.clone(), problem: Detail(problem) });
                }
            }
        }
        self.nobody = round.is_empty();
        if controllers.is_none_or(|group| serving(group).next().is_none()) {
            gaps.push(Gap::NoController);
        }
        let wanted = turn.staying.keys().map(ToString::to_string).collect();
        gaps.extend(of_etcd(&reports, &wanted, &skipped_members(turn)));
        // Of several lists the longest tells most: an API server that has just started lists what it has read so far.
        let nodes = reports.iter().filter_map(|answer| answer.nodes.as_ref());
        let nodes = nodes.max_by_key(|nodes| nodes.values().map(|role| role.ready).sum::<u32>());
        for (role, name) in &self.groups {
            match turn.observed.groups.get(name) {
                Some(Some(group)) => {
                    gaps.extend(fewer(role, group, turn));
                    let of_role = nodes.map(|nodes| nodes.get(&role.to_string()));
                    gaps.extend(of_role.and_then(|nodes| of_nodes(role, group, nodes, turn.skipped)));
                }
                Some(None) | None => gaps.push(Gap::NoGroup { group: name.clone() }),
            }
        }
        // Without a list nothing is known of the Nodes; the API servers have then said why.
        if !reports.is_empty() && nodes.is_none() && gaps.is_empty() {
            gaps.push(Gap::NodesUnknown);
        }
        Some(gaps)
    }
}

/// What controllers say, by their machine, of themselves and of etcd that does not serve, in words: for whoever asks them outside of a rollout.
/// `members`: the names that etcd's members should have.
#[must_use]
pub fn unserved(answers: &BTreeMap<String, ClusterServes>, members: &BTreeSet<String>) -> Vec<String> {
    let mut gaps: Vec<Gap> =
        answers.iter().flat_map(|(machine, answer)| of_controller(machine, answer)).collect();
    let reports: Vec<ClusterServes> = answers.values().cloned().collect();
    gaps.extend(of_etcd(&reports, members, &BTreeSet::new()));
    if answers.is_empty() {
        gaps.push(Gap::NoController);
    } else if gaps.is_empty() && answers.values().all(|answer| answer.nodes.is_none()) {
        gaps.push(Gap::NodesUnknown);
    }
    gaps.iter().map(ToString::to_string).collect()
}

/// What a controller says of itself.
fn of_controller(machine: &str, answer: &ClusterServes) -> Vec<Gap> {
    let problem = |problem: &Option<String>| Detail(problem.clone());
    let machine = machine.to_owned();
    let api = (!answer.api_server.healthy)
        .then(|| Gap::ApiServer { machine: machine.clone(), problem: problem(&answer.api_server.problem) });
    // One of each that works is enough for the cluster, and the others are its reserve: after a rollout all must work.
    let components = [
        (ComponentName::ControllerManager, &answer.controller_manager),
        (ComponentName::Scheduler, &answer.scheduler),
    ];
    let ill = components.into_iter().filter(|(_, health)| !health.healthy).map(|(component, health)| {
        Gap::Component { machine: machine.clone(), component, problem: problem(&health.problem) }
    });
    let manager = (!answer.node_manager.healthy).then(|| Gap::NodeManager {
        machine: machine.clone(),
        problem: problem(&answer.node_manager.problem),
    });
    api.into_iter().chain(ill).chain(manager).collect()
}

/// The members of etcd whose machines a person skipped.
fn skipped_members(turn: &Turn<'_>) -> BTreeSet<String> {
    let is_skipped = |name: &String| {
        let group = turn.observed.groups.get(name).and_then(Option::as_ref);
        group.is_some_and(|group| group.machines.keys().any(|id| turn.skipped.contains(id)))
    };
    let skipped = turn.members.iter().filter(|(_, group)| is_skipped(group));
    skipped.map(|(role, _)| role.to_string()).collect()
}

/// What the controllers say of etcd, whose members should be those that are `wanted`. A member serves if each of them says so; the membership
/// is known if one of them knows it. A member that serves reads through a majority, so that one is enough for the quorum when all others are
/// `skipped`.
fn of_etcd(reports: &[ClusterServes], wanted: &BTreeSet<String>, skipped: &BTreeSet<String>) -> Vec<Gap> {
    let members = || reports.iter().flat_map(|answer| &answer.etcd);
    let ill = members().filter(|(member, health)| !health.healthy && !skipped.contains(*member));
    let ill: BTreeMap<&String, &Option<String>> =
        ill.map(|(member, health)| (member, &health.problem)).collect();
    let gap = |(member, problem): (&String, &Option<String>)| Gap::Member {
        member: member.clone(),
        problem: Detail(problem.clone()),
    };
    // Those that nobody names, as far as the membership is known.
    let named: BTreeSet<&String> = members().map(|(member, _)| member).collect();
    let counts = |member: &&String| !named.contains(member) && !skipped.contains(*member);
    let missing = wanted.iter().filter(counts).filter(|_| !named.is_empty());
    let missing = missing.map(|member| Gap::NoMember { member: member.clone() });
    let gaps: Vec<Gap> = ill.into_iter().map(gap).chain(missing).collect();
    if gaps.is_empty() && !reports.is_empty() && !members().any(|(_, health)| health.healthy) {
        return vec![Gap::NoQuorum];
    }
    gaps
}

/// A group with fewer machines in service than it wants. Of a group with weights, units of capacity are counted.
fn fewer(role: &Role, group: &GroupView, turn: &Turn<'_>) -> Option<Gap> {
    let serve: u32 = serving(group).map(|(_, machine)| machine.weight).sum();
    let boots = || Boot::pending_in(group, &turn.observed.booting);
    (serve < group.desired).then(|| Gap::Fewer {
        role: role.clone(),
        serve,
        desired: group.desired,
        boots: boots(),
    })
}

/// Machines in service whose Nodes are missing or not Ready. `nodes`: what is known of the Nodes of that role.
fn of_nodes(
    role: &Role,
    group: &GroupView,
    nodes: Option<&NodesReady>,
    skipped: &BTreeSet<String>,
) -> Option<Gap> {
    let none = NodesReady::default();
    let nodes = nodes.unwrap_or(&none);
    let counts = |id: &String| serves(group, id) && !skipped.contains(id);
    let ill: Vec<_> = nodes.not_ready.iter().filter(|node| counts(&node.node)).collect();
    // The controllers left out the Nodes of machines that were skipped, or are not in service.
    let left_out = group
        .machines
        .iter()
        .filter(|(id, one)| one.lifecycle == Lifecycle::InService && skipped.contains(*id));
    let wanted = u32::try_from(serving(group).count().saturating_sub(left_out.count())).unwrap_or(u32::MAX);
    if ill.is_empty() && nodes.ready >= wanted {
        return None;
    }
    Some(Gap::Nodes {
        role: role.clone(),
        wanted,
        registered: Detail(nodes.registered),
        ready: Detail(nodes.ready),
        not_ready: ill.iter().map(|node| node.node.clone()).collect(),
        why: Detail(ill.first().map(|node| node.why.clone()).filter(|why| !why.is_empty())),
    })
}

#[cfg(test)]
mod tests;
