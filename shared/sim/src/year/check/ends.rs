//! What must hold when a cluster is taken away: nobody loses what etcd has acknowledged, nothing is made meanwhile, what others stand on
//! goes last, and nothing is left behind.

use std::collections::BTreeSet;

use jiff::Timestamp;
use slipway_core::node::{Command, Verb};

use super::{CLOCKS, Checker};
use crate::world::{ClusterFacts, World};
use crate::year::acts::Act;

/// What is known of an order to take the cluster away.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends {
    /// When each was given that may have been heard, and is not over.
    given: BTreeSet<Timestamp>,
    /// Those of them that do without a last snapshot.
    waived: BTreeSet<Timestamp>,
    /// When the newest was given that was heard, and is obeyed.
    obeyed: Option<Timestamp>,
    /// That order was carried out no further: the bus said that it stopped, or was called off.
    stopped: bool,
    /// When it was told to go on after a pause.
    resumed: Option<Timestamp>,
    /// When the newest word was given that calls it off, and was heard.
    pub(super) called_off: Option<Timestamp>,
    /// Stacks that were told to go.
    told: BTreeSet<String>,
    /// Machines that their groups had kept, and that were let go with them. What was sent may be sent once more, when a function died.
    let_go: BTreeSet<String>,
    /// Something is missing because of that.
    apart: bool,
    /// What was given until then is over.
    over: Option<Timestamp>,
    /// The cluster that is gone went without a snapshot.
    unsaved: bool,
}

impl Ends {
    /// Whether the order that is obeyed, or one that was given after it, does without a last snapshot.
    fn does_without(&self) -> bool {
        self.waived.iter().any(|at| self.obeyed.is_none_or(|obeyed| *at >= obeyed))
    }
}

/// In the how-manieth step a stack goes: pools first, and last what all others stand in. `None`: it is none of the cluster's.
fn step(cluster: &str, stack: &str) -> Option<u8> {
    let rest = stack.strip_prefix(cluster)?.strip_prefix('-')?;
    match rest {
        "control-plane" => Some(1),
        "etcd" => Some(2),
        "network" | "identity" => Some(3),
        pool => pool.starts_with("pool-").then_some(0),
    }
}

/// What of a cluster that was taken away is still there.
pub(in crate::year) fn left_behind(world: &World, cluster: &str) -> Vec<String> {
    let machines = world.machines().into_iter().filter(|one| one.cluster == cluster);
    let machines = machines.map(|one| format!("{} of {} is still there", one.id, one.group));
    let stacks = world.stacks_there().into_iter().filter(|(name, _)| step(cluster, name).is_some());
    let stacks = stacks.map(|(name, status)| format!("{name} is {status}"));
    let records = world.records().into_iter().map(|name| format!("the record {name} is still there"));
    let ticks = world.schedules().into_iter().map(|name| format!("the tick {name} is still there"));
    machines.chain(stacks).chain(records).chain(ticks).collect()
}

impl Checker {
    /// A person ordered at `at` to take it away, and may have been heard.
    pub fn may_end(&mut self, at: Timestamp, without_snapshot: bool) {
        if self.ends.over.is_some_and(|over| at <= over) {
            return;
        }
        self.ends.given.insert(at);
        self.ends.waived.extend(without_snapshot.then_some(at));
    }

    /// That was heard; `obeyed`: and is what goes on now.
    pub fn ends(&mut self, at: Timestamp, obeyed: bool) {
        if obeyed {
            // An order that is delivered once more after it was called off begins nothing.
            self.ends.stopped &= self.ends.obeyed >= Some(at);
            self.ends.obeyed = self.ends.obeyed.max(Some(at));
            // Whatever is open goes no further.
            self.aborted |= self.target.is_some();
        }
    }

    /// The bus said that what was open has failed or was aborted. While a rollout is open that is the rollout.
    pub(super) fn ending_stopped(&mut self) {
        self.ends.stopped |= self.target.is_none();
    }

    /// Whether the cluster is being taken away.
    pub(super) fn is_ending(&self) -> bool {
        self.ends.obeyed.is_some() && !self.ends.stopped
    }

    /// A person who thought better of it at `at` was heard.
    pub fn called_off(&mut self, at: Timestamp) {
        self.ends.called_off = self.ends.called_off.max(Some(at));
    }

    /// What was obeyed goes on no longer, since it was called off at `at`.
    pub fn stopped_ending(&mut self, at: Timestamp) {
        if self.ends.obeyed.is_some() {
            self.called_off(at);
        }
    }

    /// Everything is said to be gone: what was ordered until now is over.
    pub fn gone(&mut self) {
        let without = self.ends.does_without();
        let Ends { given, told, over, unsaved, .. } = std::mem::take(&mut self.ends);
        let (over, unsaved) = (over.max(given.last().copied()), without || unsaved && given.is_empty());
        self.ends = Ends { told, apart: true, over, unsaved, ..Ends::default() };
    }

    /// It goes on after a pause: what was written meanwhile is in no snapshot.
    pub(super) fn goes_on(&mut self, at: Timestamp) {
        if self.is_paused() && self.paused_at.is_some_and(|paused| paused < at) {
            self.ends.resumed = Some(at);
        }
    }

    /// Whether a person let the cluster that is gone go without a last snapshot.
    #[must_use]
    pub fn may_go_unsaved(&self) -> bool {
        self.ends.unsaved
    }

    /// Whether nobody has thought better of the newest order that may have been heard. Where the clocks leave it open, it stands.
    fn is_to_end(&self) -> bool {
        let newest = self.ends.given.last().copied();
        let off = self.ends.called_off.filter(|off| newest.is_some_and(|at| off.duration_since(at) > CLOCKS));
        newest.is_some() && off.is_none()
    }

    /// What is done to take the cluster away is looked at here, and `true`: by no other rule.
    pub(super) fn ends_by(&mut self, world: &World, facts: &ClusterFacts, act: &Act) -> bool {
        let now = world.now();
        if let Act::CreateChangeSet(stack, _) | Act::Execute(stack, _) = act {
            self.ends.told.remove(stack);
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
                Verb::Status | Verb::EtcdHealth | Verb::Drain { .. } | Verb::Uncordon { .. } => return false,
            },
            Act::DeleteStack(id, _) => {
                self.takes_stack(world, facts, id.split('/').nth(1).unwrap_or(id));
                true
            }
            // What is seen to its end, where it has begun, is ended also while nothing begins.
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

    /// Whether a rollout that is open may do that for itself: it deletes a pool that is empty and what never came to be, and takes snapshots.
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

    /// Something is made, or done to a machine that is to stay.
    fn grows(&mut self, act: &Act, now: Timestamp) -> bool {
        let off = |at| self.ends.called_off.is_some_and(|off| off.duration_since(at) >= -CLOCKS);
        if self.ends.obeyed.is_some_and(|at| !off(at)) {
            self.wrong(now, "§9", format!("{act} although the cluster is taken away"));
            return true;
        }
        false
    }

    /// The last snapshot is that of whoever leads: what was acknowledged is in no other member's for certain.
    fn saves(&mut self, facts: &ClusterFacts, command: &Command, now: Timestamp) {
        let role = self.roles.get(&command.instance).cloned().unwrap_or_default();
        if !self.faults && facts.leader.as_ref() != Some(&role) {
            self.wrong(now, "P4", format!("{role} takes the last snapshot, and {:?} leads", facts.leader));
        }
    }

    /// A stack is told to go.
    fn takes_stack(&mut self, world: &World, facts: &ClusterFacts, stack: &str) {
        let now = world.now();
        self.is_saved(facts, stack, now);
        let Some(turn) = step(&self.cluster, stack) else {
            return self.wrong(now, "P3", format!("{stack} is deleted, and is none of the cluster's"));
        };
        let there = world.stacks_there();
        let before = there.keys().filter(|name| step(&self.cluster, name).is_some_and(|one| one < turn));
        let before: Vec<&String> = before.collect();
        if !before.is_empty() {
            let what = format!("{stack} is told to go, and {before:?} still stand on it");
            self.wrong(now, "§9", what);
        }
        self.ends.told.insert(stack.to_owned());
        self.ends.apart = true;
    }

    /// Whether there is a snapshot of after the order, or need be none.
    fn is_saved(&mut self, facts: &ClusterFacts, stack: &str, now: Timestamp) {
        let since = self.ends.obeyed.or(self.ends.given.first().copied()).max(self.ends.resumed);
        let Some(since) = since.filter(|_| !self.ends.does_without() && !facts.members.is_empty()) else {
            return;
        };
        // What no snapshot of after a later order could save any more is saved by one of after the first.
        let etcd_goes = self.ends.told.contains(&format!("{}-etcd", self.cluster));
        let since = if etcd_goes { self.ends.given.first().copied().unwrap_or(since) } else { since };
        if !facts.snapshots.iter().any(|at| *at >= since) {
            let what = format!("{stack} is told to go without a last snapshot of after the order");
            self.wrong(now, "P4", what);
        }
    }

    /// A machine that its group keeps goes, once its stack was told to.
    fn lets_go(&mut self, machine: &str) -> bool {
        if self.machines.get(machine).is_some_and(|one| one.retained) && self.goes_with_its_stack(machine) {
            self.ends.let_go.insert(machine.to_owned());
        }
        self.ends.let_go.contains(machine)
    }

    /// Whether the stack of that machine was told to go: nobody's pods have anywhere else to go to.
    pub(super) fn goes_with_its_stack(&self, machine: &str) -> bool {
        let Some(role) = self.roles.get(machine) else { return false };
        let kind = match role.as_str() {
            "controller" => "control-plane",
            member if member.starts_with("etcd-") => "etcd",
            pool => pool,
        };
        self.ends.told.contains(&format!("{}-{kind}", self.cluster))
    }

    /// Whether machines are missing because the cluster goes, or went: until all are back.
    pub(super) fn is_apart(&mut self, is_whole: bool) -> bool {
        if is_whole && self.ends.told.is_empty() && !self.is_to_end() {
            self.ends.apart = false;
        }
        self.ends.apart
    }
}
