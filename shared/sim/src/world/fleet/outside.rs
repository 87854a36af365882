//! Machines that are not simulated: somebody outside of this world boots each machine that a group launches, and says what becomes of it.
//!
//! Groups, hooks, target groups and Run Command are this world's as ever. What a machine does is not: when its system is up, whether it
//! answers health checks, how a command ends, when it dies. Auto Scaling learns the rest as in AWS, by the calls of the machine's agent.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::World;
use super::super::machine::{Power, State};

/// What a machine is launched with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// `LaunchTemplateData`, its references resolved; the user data in base64.
    pub template: Value,
    /// As its launch template gives them, and its group.
    pub tags: BTreeMap<String, String>,
}

impl World {
    /// From now on machines are somebody else's: none boots, bootstraps or ends by itself.
    pub fn leave_machines_to_others(&mut self) {
        self.fleet.others_run_machines = true;
    }

    /// What a machine is launched with; `None`: there is no such machine, or its template is gone.
    #[must_use]
    pub fn launch_of(&self, id: &str) -> Option<Launch> {
        let machine = self.fleet.machines.get(id)?;
        let template = machine.template.as_ref()?;
        let version = template.version.parse().ok()?;
        let data = self.fleet.templates.get(&template.id)?.get(&version)?;
        let mut tags = machine.tags.clone();
        tags.insert("aws:autoscaling:groupName".to_owned(), machine.group.clone());
        Some(Launch { template: data.clone(), tags })
    }

    /// Systems Manager hears of a machine's agent: its system is up.
    pub fn machine_is_up(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id).filter(|one| one.power == Power::Starting) else {
            return;
        };
        machine.power = Power::Up;
        let (is_nobodys, state) = (machine.node.is_none(), machine.state);
        self.record(format!("{id} is up"));
        if is_nobodys && state == State::Pending {
            self.in_service(id);
        }
        self.takes_what_waits(id);
    }

    /// Whether a machine answers the health checks of its target groups, from now on.
    pub fn machine_answers(&mut self, id: &str, answers: bool) {
        if let Some(machine) = self.fleet.machines.get_mut(id) {
            machine.answers = answers;
        }
    }

    /// Every resource of that type that exists: its physical id and its properties.
    #[must_use]
    pub fn resources_of_type(&self, kind: &str) -> BTreeMap<String, Value> {
        let of_it = self.things.iter().filter(|((of, _), _)| of == kind);
        of_it.map(|((_, id), thing)| (id.clone(), thing.properties.clone())).collect()
    }

    /// A machine has set a record in a hosted zone, of which no stack knows; or has taken it back.
    pub fn note_record(&mut self, zone: &str, name: &str, is_there: bool) {
        let record = (zone.to_owned(), name.trim_end_matches('.').to_owned());
        if is_there {
            self.fleet.records.insert(record);
        } else {
            self.fleet.records.remove(&record);
        }
    }
}
