//! P11: when a rollout is reported as succeeded, etcd has its quorum, an API server answers, and the wanted Nodes are Ready. Judged by the
//! machines themselves, not by what any agent says.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::Checker;
use super::target::Target;
use crate::world::{ClusterFacts, MachineFacts, Power, World};

/// How long ago a part may have stopped serving: the controllers told up to ten minutes before, and an invocation takes a minute.
const TOLD: SignedDuration = SignedDuration::from_mins(12);

/// How long the Node of a silent machine stays Ready (`--node-monitor-grace-period`).
const UNNOTICED: SignedDuration = SignedDuration::from_secs(50);

/// Which parts of the cluster serve.
#[derive(Debug, Clone, Default)]
pub(super) struct Serving {
    /// Those that serve now.
    now: BTreeSet<String>,
    /// When each last served.
    last: BTreeMap<String, Timestamp>,
    /// The silent machines, and since when they are.
    silent: BTreeMap<String, Timestamp>,
}

impl Serving {
    /// Whether the Node of a machine can be Ready: the machine runs, answers, and its certificates are accepted.
    fn can_be_ready(&self, machine: &MachineFacts, now: Timestamp) -> bool {
        let noticed = |since: &Timestamp| now.duration_since(*since) > UNNOTICED;
        let is_silent = machine.silent && self.silent.get(&machine.id).is_none_or(noticed);
        machine.ready && machine.power == Power::Up && !is_silent && !machine.expired && !machine.leaving
    }
}

impl Checker {
    /// The roles of the open rollout whose machines are Nodes, with their groups, which have the names of their stacks.
    fn node_groups(&self) -> BTreeMap<String, String> {
        self.target.as_ref().map(Target::node_groups).unwrap_or_default()
    }

    /// Whether the machines of a role whose Nodes are Ready are what its group wants. A machine that a person skipped does not count.
    fn serves_whole(&self, world: &World, role: &str, group: &str) -> bool {
        let machines = world.machines();
        let of_role = machines.iter().filter(|one| one.role == role);
        let ready = of_role.filter(|one| {
            self.serving.can_be_ready(one, world.now()) || self.skipped.contains(&one.id) && !one.leaving
        });
        world.are_enough(group, ready.map(|one| one.id.as_str()))
    }

    /// Notes which parts serve.
    pub(super) fn note_serving(&mut self, world: &World, facts: &ClusterFacts, now: Timestamp) {
        self.serving.silent.retain(|id, _| self.machines.get(id).is_some_and(|one| one.silent));
        for one in self.machines.values().filter(|one| one.silent) {
            self.serving.silent.entry(one.id.clone()).or_insert(now);
        }
        let mut serve = BTreeSet::new();
        if facts.leader.is_some() {
            serve.insert("etcd".to_owned());
        }
        if !facts.api_servers.is_empty() {
            serve.insert("the API".to_owned());
        }
        let groups = self.node_groups();
        serve.extend(
            groups
                .into_iter()
                .filter(|(role, group)| self.serves_whole(world, role, group))
                .map(|(role, _)| role),
        );
        // What served until just now did so a moment ago.
        for part in serve.union(&self.serving.now) {
            self.serving.last.insert(part.clone(), now);
        }
        self.serving.now = serve;
    }

    /// A rollout is reported as succeeded, at `stored` as it says.
    pub fn succeeded(&mut self, world: &World, stored: Option<Timestamp>) {
        let now = world.now();
        // Nobody can be asked if a person skipped all controllers, which the rollout reports.
        let mut controllers =
            self.machines.values().filter(|one| one.role == "controller" && !one.leaving).peekable();
        if controllers.peek().is_some() && controllers.all(|one| self.skipped.contains(&one.id)) {
            return;
        }
        let late = stored.map_or(SignedDuration::ZERO, |stored| now.duration_since(stored));
        let groups = self.node_groups();
        let parts = ["etcd".to_owned(), "the API".to_owned()].into_iter().chain(groups.keys().cloned());
        let known = if self.faults { TOLD + late } else { SignedDuration::ZERO };
        let is_served = |part: &String| {
            let last = self.serving.last.get(part);
            self.serving.now.contains(part)
                || last.is_some_and(|at| now.duration_since(*at) <= known)
                // The time may have advanced during the invocation, and a group may want fewer machines since.
                || groups.get(part).is_some_and(|group| self.serves_whole(world, part, group))
        };
        let missing: Vec<String> = parts.filter(|part| !is_served(part)).collect();
        if !missing.is_empty() {
            self.wrong(
                now,
                "P11",
                format!("the rollout is reported as succeeded, and {} do not serve", missing.join(", ")),
            );
        }
    }
}
