//! The rules of a destruction: no acknowledged write of etcd is lost, nothing is created meanwhile, stacks that others depend on are
//! deleted last, and nothing remains.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{Command, Verb};

use super::{CLOCKS, Checker};
use crate::world::{ClusterFacts, World};
use crate::year::acts::Act;

/// An order to destroy a cluster that is delivered later than this is not obeyed (docs/architecture.md).
const LATEST: SignedDuration = SignedDuration::from_hours(1);

/// The known orders to destroy the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends {
    /// The times of the orders that may have been received and are not over.
    pub(super) given: BTreeSet<Timestamp>,
    /// Those of them that need no last snapshot.
    waived: BTreeSet<Timestamp>,
    /// The time of the newest order that was received and has to be executed.
    obeyed: Option<Timestamp>,
    /// Orders whose execution has stopped: the bus reported a failure or an abort after they were first delivered.
    stopped: BTreeSet<Timestamp>,
    /// When it was resumed after a pause.
    resumed: Option<Timestamp>,
    /// When an API server answered last: until then something may have been written to etcd.
    written: Option<Timestamp>,
    /// The time of the newest abort that was received.
    pub(super) called_off: Option<Timestamp>,
    /// Stacks whose deletion was requested.
    deleted: BTreeSet<String>,
    /// Retained machines that were terminated with their stacks. A termination may be repeated after a function died.
    let_go: BTreeSet<String>,
    /// Machines are missing because of a destruction.
    apart: bool,
    /// Orders up to this time are over.
    over: Option<Timestamp>,
    /// The cluster that is gone was destroyed without a snapshot.
    unsaved: bool,
}

impl Ends {
    /// Whether the order that is executed, or a later one, needs no last snapshot.
    fn does_without(&self) -> bool {
        self.waived.iter().any(|at| self.obeyed.is_none_or(|obeyed| *at >= obeyed))
    }
}

/// The step in which a stack is deleted: pools first, and last the stacks that all others depend on. `None` if the stack is not the
/// cluster's.
fn step(cluster: &str, stack: &str) -> Option<u8> {
    let rest = stack.strip_prefix(cluster)?.strip_prefix('-')?;
    match rest {
        "control-plane" => Some(1),
        "etcd" => Some(2),
        "network" | "identity" => Some(3),
        pool => pool.starts_with("pool-").then_some(0),
    }
}

/// The resources of a destroyed cluster that still exist.
pub(in crate::year) fn remaining_resources(world: &World, cluster: &str) -> Vec<String> {
    let machines = world.machines().into_iter().filter(|one| one.cluster == cluster);
    let machines = machines.map(|one| format!("{} of {} is still there", one.id, one.group));
    let stacks = world.stacks_there().into_iter().filter(|(name, _)| step(cluster, name).is_some());
    let stacks = stacks.map(|(name, status)| format!("{name} is {status}"));
    let records = world.records().into_iter().map(|name| format!("the record {name} is still there"));
    let ticks = world.schedules().into_iter().map(|name| format!("the tick {name} is still there"));
    machines.chain(stacks).chain(records).chain(ticks).collect()
}

impl Checker {
    /// A person ordered a destruction at `at`, and the order may have been received.
    pub fn may_end(&mut self, at: Timestamp, without_snapshot: bool) {
        if self.ends.over.is_some_and(|over| at <= over) {
            return;
        }
        self.ends.given.insert(at);
        self.ends.waived.extend(without_snapshot.then_some(at));
    }

    /// The order of the time `at` was received at `now`. It has to be executed, unless one of these documented exceptions holds: the spec
    /// protects the cluster; the order is more than an hour late; a person aborted it, as far as clocks decide; the cluster is gone since, or
    /// the destruction has stopped since it was first delivered, so that only a newer order begins anything.
    pub fn ends(&mut self, at: Timestamp, now: Timestamp) {
        let is_over = self.ends.over.is_some_and(|over| at <= over) || self.ends.stopped.contains(&at);
        let is_late = now.duration_since(at) > LATEST - CLOCKS;
        let is_off = self.ends.called_off.is_some_and(|off| off.duration_since(at) >= -CLOCKS);
        if self.rules.protected || is_over || is_late || is_off {
            return;
        }
        self.ends.obeyed = self.ends.obeyed.max(Some(at));
        // An open rollout makes no further progress.
        self.aborted |= self.target.is_some();
    }

    /// The bus reported a failure or an abort. If a rollout is open, the report is about the rollout.
    pub(super) fn ending_stopped(&mut self, world: &World) {
        if self.target.is_none() {
            let going = world.stacks_there().into_iter().filter(|(_, status)| status == "DELETE_IN_PROGRESS");
            for (name, _) in going.filter(|(name, _)| step(&self.cluster, name).is_some()).collect::<Vec<_>>()
            {
                let what = format!("the destruction is reported as over while {name} is being deleted");
                self.wrong(world.now(), "P10", what);
            }
            self.ends.stopped.extend(&self.ends.given);
        }
    }

    /// Whether the cluster is being destroyed.
    pub(super) fn is_ending(&self) -> bool {
        self.ends.obeyed.is_some_and(|at| !self.ends.stopped.contains(&at))
    }

    /// An abort of a destruction that was given at `at` was received.
    pub fn called_off(&mut self, at: Timestamp) {
        self.ends.called_off = self.ends.called_off.max(Some(at));
    }

    /// The cluster is reported as gone: all orders that were given until then are over.
    pub fn gone(&mut self, now: Timestamp) {
        let without = self.ends.does_without();
        let Ends { given, deleted, over, unsaved, .. } = std::mem::take(&mut self.ends);
        let (over, unsaved) = (over.max(Some(now)), without || unsaved && given.is_empty());
        self.ends = Ends { deleted, apart: true, over, unsaved, ..Ends::default() };
    }

    /// Notes whether anybody can write to etcd.
    pub(super) fn note_writers(&mut self, facts: &ClusterFacts, now: Timestamp) {
        if !facts.api_servers.is_empty() {
            self.ends.written = Some(now);
        }
    }

    /// The destruction continues after a pause. Writes during the pause are in no snapshot.
    pub(super) fn destruction_resumed(&mut self, at: Timestamp) {
        if self.is_paused() && self.paused_at.is_some_and(|paused| paused < at) {
            self.ends.resumed = Some(at);
        }
    }

    /// Whether a person allowed the destruction of the cluster without a last snapshot.
    #[must_use]
    pub fn may_go_unsaved(&self) -> bool {
        self.ends.unsaved
    }

    /// Whether the newest order that may have been received was not aborted. If the clocks do not decide the order of the two, the
    /// destruction stands.
    fn is_to_end(&self) -> bool {
        let newest = self.ends.given.last().copied();
        let off = self.ends.called_off.filter(|off| newest.is_some_and(|at| off.duration_since(at) > CLOCKS));
        newest.is_some() && off.is_none()
    }

    /// Checks an act of a destruction. Returns `true` if no other rule applies to the act.
    pub(super) fn ends_by(&mut self, world: &World, facts: &ClusterFacts, act: &Act) -> bool {
        let now = world.now();
        if let Act::CreateChangeSet(stack, _) | Act::Execute(stack, _) = act {
            self.ends.deleted.remove(stack);
        }
        let may_be_meant = !self.ends.given.is_empty() && !self.rollout_has(facts, act);
        if !may_be_meant {
            return false;
        }
        let is_part = match act {
            Act::Send(command) => match command.verb {
                Verb::EtcdSnapshot => {
                    self.saves(facts, command, now);
                    true
                }
                Verb::EtcdRetire => true,
                Verb::Refresh { .. } | Verb::EtcdMoveLeader | Verb::EtcdRemove { .. } => {
                    return self.grows(act, now);
                }
                Verb::Status
                | Verb::Logs { .. }
                | Verb::Serves { .. }
                | Verb::EtcdHealth
                | Verb::EtcdRestore { .. }
                | Verb::EtcdDefragment
                | Verb::Drain { .. }
                | Verb::Uncordon { .. } => return false,
            },
            Act::DeleteStack(id, _) => {
                self.takes_stack(world, facts, id.split('/').nth(1).unwrap_or(id));
                true
            }
            // A retained machine is terminated even while nothing may begin, if its removal has begun.
            Act::Terminate(_, machine, _) => return self.lets_go(machine),
            Act::Complete(..) => return false,
            Act::SetDesired(..) | Act::CreateChangeSet(..) | Act::Execute(..) => return self.grows(act, now),
        };
        if is_part && !self.is_to_end() {
            self.wrong(now, "P10", format!("{act} although a person called it off"));
        } else if is_part && self.is_paused() {
            self.wrong(now, "P10", format!("{act} although it is paused"));
        }
        is_part
    }

    /// Whether the act may belong to an open rollout, which deletes an empty pool or a stack that was never created, and takes snapshots.
    fn rollout_has(&self, facts: &ClusterFacts, act: &Act) -> bool {
        let Some(target) = &self.target else { return false };
        match act {
            Act::DeleteStack(id, stands) => {
                let name = id.split('/').nth(1).unwrap_or(id);
                let of_it =
                    self.machines.values().filter(|one| one.group == name && one.ready && !one.leaving);
                let pods: usize = of_it.filter_map(|one| facts.pods.get(&one.id)).sum();
                !target.has_stack(name) && pods == 0 || target.has_stack(name) && !stands
            }
            Act::Send(command) => command.verb == Verb::EtcdSnapshot && !self.aborted,
            Act::Terminate(..)
            | Act::Complete(..)
            | Act::SetDesired(..)
            | Act::CreateChangeSet(..)
            | Act::Execute(..) => false,
        }
    }

    /// Whether the act creates something, or changes a machine that should stay.
    fn grows(&mut self, act: &Act, now: Timestamp) -> bool {
        let off = |at| self.ends.called_off.is_some_and(|off| off.duration_since(at) >= -CLOCKS);
        if self.ends.obeyed.is_some_and(|at| !off(at)) {
            self.wrong(now, "§9", format!("{act} although the cluster is taken away"));
            return true;
        }
        false
    }

    /// The last snapshot is taken from the leader: only the leader certainly has every acknowledged write.
    fn saves(&mut self, facts: &ClusterFacts, command: &Command, now: Timestamp) {
        let role = self.roles.get(&command.instance).cloned().unwrap_or_default();
        if !self.faults && facts.leader.as_ref() != Some(&role) {
            self.wrong(now, "P4", format!("{role} takes the last snapshot, and {:?} leads", facts.leader));
        }
    }

    /// The deletion of a stack is requested.
    fn takes_stack(&mut self, world: &World, facts: &ClusterFacts, stack: &str) {
        let now = world.now();
        self.is_saved(facts, stack, now);
        let Some(turn) = step(&self.cluster, stack) else {
            return self.wrong(now, "P3", format!("{stack} is deleted, and is none of the cluster's"));
        };
        let there = world.stacks_there();
        // A stack of which there is only a change set has no resources: it may be deleted at any time.
        let stand = there.iter().filter(|(_, status)| *status != "REVIEW_IN_PROGRESS");
        let before = stand.filter(|(name, _)| step(&self.cluster, name).is_some_and(|one| one < turn));
        let before: Vec<&String> = before.map(|(name, _)| name).collect();
        if !before.is_empty() {
            let what = format!("{stack} is told to go, and {before:?} still stand on it");
            self.wrong(now, "§9", what);
        }
        self.ends.deleted.insert(stack.to_owned());
        self.ends.apart = true;
    }

    /// Whether there is a snapshot that is newer than the order, or none is needed. Etcd goes only if there is one that is newer than the last
    /// answer of an API server, too.
    fn is_saved(&mut self, facts: &ClusterFacts, stack: &str, now: Timestamp) {
        let since = self.ends.obeyed.or(self.ends.given.first().copied()).max(self.ends.resumed);
        let Some(since) = since.filter(|_| !self.ends.does_without() && !facts.members.is_empty()) else {
            return;
        };
        let etcd = format!("{}-etcd", self.cluster);
        let (is_etcd, etcd_goes) = (stack == etcd, self.ends.deleted.contains(&etcd));
        if let Some(written) = self.ends.written.filter(|_| is_etcd && !etcd_goes)
            && !facts.snapshots.iter().any(|at| *at > written)
        {
            let what = format!(
                "{stack} is told to go, and its last snapshot is older than what an API server wrote at {written}"
            );
            self.wrong(now, "P4", what);
        }
        // If etcd was already being deleted when a later order came, a snapshot after the first order is enough. So it is when nobody has
        // written since that snapshot.
        let since =
            if is_etcd || etcd_goes { self.ends.given.first().copied().unwrap_or(since) } else { since };
        if !facts.snapshots.iter().any(|at| *at >= since) {
            let what = format!("{stack} is told to go without a last snapshot of after the order");
            self.wrong(now, "P4", what);
        }
    }

    /// A retained machine is terminated once the deletion of its stack was requested.
    fn lets_go(&mut self, machine: &str) -> bool {
        if self.machines.get(machine).is_some_and(|one| one.retained)
            && self.is_deleted_with_its_stack(machine)
        {
            self.ends.let_go.insert(machine.to_owned());
        }
        self.ends.let_go.contains(machine)
    }

    /// Whether the deletion of that machine's stack was requested. Then its pods have nowhere else to run.
    pub(super) fn is_deleted_with_its_stack(&self, machine: &str) -> bool {
        let Some(role) = self.roles.get(machine) else { return false };
        let kind = match role.as_str() {
            "controller" => "control-plane",
            member if member.starts_with("etcd-") => "etcd",
            pool => pool,
        };
        self.ends.deleted.contains(&format!("{}-{kind}", self.cluster))
    }

    /// Whether machines are missing because of a destruction, until all of them are back.
    pub(super) fn is_apart(&mut self, is_whole: bool) -> bool {
        if is_whole && self.ends.deleted.is_empty() && !self.is_to_end() {
            self.ends.apart = false;
        }
        self.ends.apart
    }
}
