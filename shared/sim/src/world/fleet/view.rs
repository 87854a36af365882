//! What is so of the machines, for whoever checks the world from outside.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use slipway_rollout::fleet::TemplateVersion;

use super::super::World;
use super::super::commands::Details;
use super::{Machine, Power, State};

/// A machine, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// `i-…`.
    pub id: String,
    /// Its group.
    pub group: String,
    /// `etcd-0`, `controller`, `pool-general`, …; empty if it is nobody's.
    pub role: String,
    /// The cluster; empty if it is nobody's.
    pub cluster: String,
    /// `eu-west-1a`.
    pub zone: String,
    /// How many units of its group's capacity it counts for.
    pub weight: u32,
    /// What it was launched from.
    pub template: Option<TemplateVersion>,
    /// When.
    pub launched_at: Timestamp,
    /// Whether it runs.
    pub power: Power,
    /// Its agent has said that it is healthy.
    pub ready: bool,
    /// Auto Scaling has it in service.
    pub serves: bool,
    /// It is on its way out.
    pub leaving: bool,
    /// It was kept, since nobody had drained it.
    pub retained: bool,
    /// Digest of the configuration that it was launched with.
    pub config: String,
    /// Digest of the credentials that are in force.
    pub credentials: String,
    /// It is up, and nothing of it answers.
    pub silent: bool,
    /// Something that it presents has expired: its own, or its kubelet's.
    pub expired: bool,
}

/// An Auto Scaling group, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    /// At least, in units of capacity where it has weights.
    pub min: u32,
    /// At most, in the same units.
    pub max: u32,
    /// It wants so many machines; see `World::wanted_machines`.
    pub desired: u32,
    /// What it launches now.
    pub template: Option<TemplateVersion>,
}

impl World {
    /// The group of that name; `None`: there is none.
    #[must_use]
    pub fn group_facts(&self, name: &str) -> Option<GroupFacts> {
        let group = self.fleet.groups.get(name)?;
        let (min, max, desired) = (group.min, group.max, self.wanted_machines(name));
        Some(GroupFacts { min, max, desired, template: group.template.clone() })
    }

    /// What a version of a launch template says of a machine, its user data left out: what each machine is told of itself is in
    /// [`MachineFacts`]. `None`: there is no such version.
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

    /// Whether all that was sent with that comment has come to its end, however it ended.
    #[must_use]
    pub fn is_over(&self, comment: &str) -> bool {
        let mut sent = self.fleet.commands.iter().rev().filter(|sent| sent.comment == comment).peekable();
        sent.peek().is_some() && sent.all(|sent| sent.details.is_over())
    }

    /// Whether all that was sent with that comment was carried out, and failed.
    #[must_use]
    pub fn has_failed(&self, comment: &str) -> bool {
        let mut sent = self.fleet.commands.iter().rev().filter(|sent| sent.comment == comment).peekable();
        sent.peek().is_some() && sent.all(|sent| sent.details == Details::Failed)
    }

    /// Whether between two versions of a launch template there is one that says something else than the first does: the group of whoever was
    /// launched by the first was to launch others since.
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

    /// The tags of the group of that name; `None`: there is none.
    #[must_use]
    pub fn group_tags(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.fleet.groups.get(name).map(|group| &group.tags)
    }

    /// The group of a machine, and the machine's tags; `None`: there is no such machine.
    #[must_use]
    pub fn machine_tags(&self, id: &str) -> Option<(&str, &BTreeMap<String, String>)> {
        self.fleet.machines.get(id).map(|machine| (machine.group.as_str(), &machine.tags))
    }

    /// Every machine, in the order of their ids.
    #[must_use]
    pub fn machines(&self) -> Vec<MachineFacts> {
        self.fleet.machines.values().map(MachineFacts::of).collect()
    }

    /// Brings `known` up to what is so now: every machine, by its id. What is still as it was known is not made anew.
    pub fn update_machines(&self, known: &mut BTreeMap<String, MachineFacts>) {
        let machines = &self.fleet.machines;
        known.retain(|id, facts| machines.get(id).is_some_and(|machine| facts.is_of(machine)));
        for (id, machine) in machines {
            if !known.contains_key(id) {
                known.insert(id.clone(), MachineFacts::of(machine));
            }
        }
    }
}

impl MachineFacts {
    fn of(machine: &Machine) -> Self {
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
            retained: machine.state == State::TerminatingRetained,
            config: machine.node.as_ref().map(|node| node.config.clone()).unwrap_or_default(),
            credentials: machine.credentials.clone(),
            silent: machine.silent,
            expired: machine.expired || machine.locked_out,
        }
    }

    /// Whether they say what is so of `machine`. What it was launched as never changes.
    fn is_of(&self, machine: &Machine) -> bool {
        self.power == machine.power
            && self.ready == machine.ready
            && self.serves == (machine.state == State::InService)
            && self.leaving != machine.state.counts()
            && self.retained == (machine.state == State::TerminatingRetained)
            && self.silent == machine.silent
            && self.expired == (machine.expired || machine.locked_out)
            && self.credentials == machine.credentials
    }
}
