//! The facts about machines, for a checker outside of the world.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use slipway_rollout::fleet::TemplateVersion;

use super::super::World;
use super::super::commands::Details;
use super::super::machine::{Machine, Power, State};

/// The state of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// `i-…`.
    pub id: String,
    /// Its group.
    pub group: String,
    /// `etcd-0`, `controller`, `pool-general`, …; empty if it belongs to no cluster.
    pub role: String,
    /// The cluster; empty if it belongs to none.
    pub cluster: String,
    /// `eu-west-1a`.
    pub zone: String,
    /// The number of capacity units that it counts for.
    pub weight: u32,
    /// The launch template that it was launched from.
    pub template: Option<TemplateVersion>,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// Whether it runs.
    pub power: Power,
    /// Its agent has reported that it is healthy.
    pub ready: bool,
    /// Auto Scaling has it in service.
    pub serves: bool,
    /// It is being terminated.
    pub leaving: bool,
    /// EC2 has announced that it interrupts it.
    pub interrupted: bool,
    /// Its group has retained it, because nobody had drained it.
    pub retained: bool,
    /// Digest of the configuration that it was launched with.
    pub config: String,
    /// Digest of the credentials in use.
    pub credentials: String,
    /// It is up, but does not answer.
    pub silent: bool,
    /// Systems Manager refuses commands to it.
    pub unregistered: bool,
    /// One of its certificates has expired: Slipway's or its kubelet's own.
    pub expired: bool,
}

/// The state of an Auto Scaling group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    /// The minimum size, in units of capacity if the group has weights.
    pub min: u32,
    /// The maximum size, in the same units.
    pub max: u32,
    /// The number of machines that it should have; see `World::wanted_machines`.
    pub desired: u32,
    /// The launch template that it uses now.
    pub template: Option<TemplateVersion>,
}

impl World {
    /// The group with that name; `None` if there is none.
    #[must_use]
    pub fn group_facts(&self, name: &str) -> Option<GroupFacts> {
        let group = self.fleet.groups.get(name)?;
        let (min, max, desired) = (group.min, group.max, self.wanted_machines(name));
        Some(GroupFacts { min, max, desired, template: group.template.clone() })
    }

    /// Whether these machines are as many as their group wants, or as many units of capacity if it has weights.
    #[must_use]
    pub fn are_enough<'m>(&self, group: &str, machines: impl Iterator<Item = &'m str>) -> bool {
        let machines = machines.filter_map(|id| self.fleet.machines.get(id));
        let units: u32 = machines.map(|machine| machine.weight).sum();
        self.fleet.groups.get(group).is_none_or(|group| units >= group.desired)
    }

    /// The content of a version of a launch template without its user data; [`MachineFacts`] has what the user data tells each
    /// machine. `None` if there is no such version.
    #[must_use]
    pub fn launched_as(&self, template: &TemplateVersion) -> Option<Value> {
        let version = template.version.parse().ok()?;
        let mut data = self.fleet.templates.get(&template.id)?.get(&version)?.clone();
        if let Some(data) = data.as_object_mut() {
            data.remove("UserData");
        }
        Some(data)
    }

    /// How often each command was sent, by its comment.
    #[must_use]
    pub fn commands_by_comment(&self) -> BTreeMap<&str, u32> {
        let mut counts = BTreeMap::new();
        for sent in &self.fleet.commands {
            *counts.entry(sent.comment.as_str()).or_default() += 1;
        }
        counts
    }

    /// Whether all commands with that comment have ended, with any result.
    #[must_use]
    pub fn is_over(&self, comment: &str) -> bool {
        let mut sent = self.fleet.commands.iter().rev().filter(|sent| sent.comment == comment).peekable();
        sent.peek().is_some() && sent.all(|sent| sent.details.is_over())
    }

    /// Whether all commands with that comment were executed and failed.
    #[must_use]
    pub fn has_failed(&self, comment: &str) -> bool {
        let mut sent = self.fleet.commands.iter().rev().filter(|sent| sent.comment == comment).peekable();
        sent.peek().is_some() && sent.all(|sent| sent.details == Details::Failed)
    }

    /// Whether a version of the launch template between the two versions differs from the first. Then the group was to launch other
    /// machines since the first version.
    #[must_use]
    pub fn changed_between(&self, first: &TemplateVersion, last: &TemplateVersion) -> bool {
        let (Ok(from), Ok(to)) = (first.version.parse::<u64>(), last.version.parse::<u64>()) else {
            return false;
        };
        let Some(versions) = self.fleet.templates.get(&first.id).filter(|_| first.id == last.id) else {
            return false;
        };
        from < to && versions.range(from..=to).any(|(_, data)| Some(data) != versions.get(&from))
    }

    /// The tags of the group with that name; `None` if there is none.
    #[must_use]
    pub fn group_tags(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.fleet.groups.get(name).map(|group| &group.tags)
    }

    /// The group of a machine, and the machine's tags; `None` if there is no such machine.
    #[must_use]
    pub fn machine_tags(&self, id: &str) -> Option<(&str, &BTreeMap<String, String>)> {
        self.fleet.machines.get(id).map(|machine| (machine.group.as_str(), &machine.tags))
    }

    /// Every machine, in the order of their ids.
    #[must_use]
    pub fn machines(&self) -> Vec<MachineFacts> {
        self.fleet.machines.values().map(MachineFacts::from_machine).collect()
    }

    /// Updates `known`, every machine by its id, to the present state. Entries that have not changed are not made again.
    pub fn update_machines(&self, known: &mut BTreeMap<String, MachineFacts>) {
        let machines = &self.fleet.machines;
        known.retain(|id, facts| machines.get(id).is_some_and(|machine| facts.is_of(machine)));
        for (id, machine) in machines {
            if !known.contains_key(id) {
                known.insert(id.clone(), MachineFacts::from_machine(machine));
            }
        }
    }
}

impl MachineFacts {
    fn from_machine(machine: &Machine) -> Self {
        Self {
            id: machine.id.clone(),
            group: machine.group.clone(),
            role: machine.role().to_owned(),
            cluster: machine.cluster().unwrap_or_default().to_owned(),
            zone: machine.zone.clone(),
            weight: machine.weight,
            template: machine.template.clone(),
            launched_at: machine.launched_at,
            power: machine.power,
            ready: machine.ready,
            serves: machine.state == State::InService,
            leaving: !machine.state.counts(),
            interrupted: machine.interrupted,
            retained: machine.state == State::TerminatingRetained,
            config: machine.node.as_ref().map(|node| node.config.clone()).unwrap_or_default(),
            credentials: machine.credentials.clone(),
            silent: machine.silent,
            unregistered: machine.unregistered,
            expired: machine.expired || machine.locked_out,
        }
    }

    /// Whether it goes, whatever Slipway does: Auto Scaling terminates it, or EC2 interrupts it.
    #[must_use]
    pub fn goes_anyway(&self) -> bool {
        self.leaving || self.interrupted
    }

    /// Whether the facts are the present state of `machine`. The launch template never changes.
    fn is_of(&self, machine: &Machine) -> bool {
        self.power == machine.power
            && self.ready == machine.ready
            && self.serves == (machine.state == State::InService)
            && self.leaving != machine.state.counts()
            && self.interrupted == machine.interrupted
            && self.retained == (machine.state == State::TerminatingRetained)
            && self.silent == machine.silent
            && self.unregistered == machine.unregistered
            && self.expired == (machine.expired || machine.locked_out)
            && self.credentials == machine.credentials
    }
}
