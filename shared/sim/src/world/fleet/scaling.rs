//! Groups keep their desired number of machines, or of capacity units if their instance types have weights (EC2 Auto Scaling user
//! guide, "Configure an Auto Scaling group to use instance weights"): machines are launched until the units are reached, and may
//! exceed them.

use std::collections::BTreeMap;

use super::super::World;
use super::super::machine::{Fetch, Machine, Power, Process, State};
use super::super::task::FleetTask;
use super::{made, userdata};

/// The time until the system of a machine is up and registered in Systems Manager.
const SYSTEM_S: (f64, f64) = (35.0, 75.0);
/// The time that a terminated machine takes to stop.
const STOPS_S: (f64, f64) = (5.0, 30.0);
/// The time from then until Auto Scaling removes it from the group.
const FORGETS_S: (f64, f64) = (10.0, 40.0);
/// The time until Auto Scaling notices that a machine is dead.
const NOTICES_S: (f64, f64) = (60.0, 180.0);
/// The time until it replaces a machine that it finds unhealthy ("almost immediately", EC2 Auto Scaling user guide, "Health checks for
/// instances in an Auto Scaling group"). The machine may serve until then.
const REPLACES_S: (f64, f64) = (1.0, 30.0);

impl World {
    pub(in crate::world) fn run_fleet(&mut self, task: FleetTask) {
        let group = self.group_about(task.about());
        self.perform_fleet(task);
        self.remember_group(&group);
    }

    fn perform_fleet(&mut self, task: FleetTask) {
        match task {
            FleetTask::Reconcile { group } => self.reconcile(&group),
            FleetTask::Boots { machine } => self.boots(&machine),
            FleetTask::Bootstraps { machine } => self.bootstraps(&machine),
            FleetTask::HookEnds { machine, token } => self.hook_ends(&machine, &token),
            FleetTask::InService { machine } => self.in_service(&machine),
            FleetTask::Stops { machine } => {
                self.stops(&machine);
                let seconds = self.draw_s("forget a machine", FORGETS_S.0, FORGETS_S.1);
                self.fleet_after_s(seconds, FleetTask::Gone { machine });
            }
            FleetTask::Gone { machine } => self.gone(&machine),
            FleetTask::Unhealthy { machine } => self.unhealthy(&machine),
            FleetTask::Replaces { machine } => self.replaces(&machine),
            FleetTask::Rebalances { group } => self.rebalances(&group),
            FleetTask::Reclaims { machine } => self.reclaim_machine(&machine),
            FleetTask::Autoscales => self.autoscales(),
            FleetTask::Repairs => self.repairs(),
            FleetTask::Reclaimed { machine } => self.reclaimed(&machine),
            FleetTask::Speaks { machine } => self.speaks(&machine),
            FleetTask::Unjams { machine } => self.unjams(&machine),
            FleetTask::Reconnects { machine } => self.reconnects(&machine),
            FleetTask::Leaves { machine } => self.leaves(&machine),
            FleetTask::NotReady { machine } => self.node_is_not_ready(&machine),
            // Its health checks pass from now on: see `World::note_targets`.
            FleetTask::Restarted { .. } => {}
        }
    }

    pub(super) fn fleet_after_s(&mut self, seconds: f64, task: FleetTask) {
        self.after_s(seconds, super::super::task::Task::Fleet(task));
    }

    /// Launches missing machines or terminates surplus ones.
    fn reconcile(&mut self, name: &str) {
        self.ahead_takes_its_place(name);
        let Some(group) = self.fleet.groups.get(name) else { return };
        let ahead = group.ahead.as_ref().and_then(|ahead| self.fleet.machines.get(&ahead.comes));
        let wanted = group.desired + ahead.map_or(0, |machine| machine.weight);
        let launches = !group.suspended.contains(&Process::Launch) && !group.no_capacity;
        let terminates = !group.suspended.contains(&Process::Terminate);
        let (heaviest, mut units) = (group.heaviest(), self.units(name));
        while launches && units < wanted {
            let Some(id) = self.launch(name) else { break };
            units += self.fleet.machines[&id].weight;
        }
        // "Current capacity will either be at the desired capacity or above it", by less than the largest weight.
        while terminates && units >= wanted + heaviest {
            let Some(machine) = self.scale_in(name) else { break };
            units -= self.fleet.machines[&machine].weight;
            self.record(format!("{name} has too many machines and lets go of {machine}"));
            self.begin_termination(&machine);
        }
        self.check_zone_balance(name);
    }

    /// The sum of the capacity units of a group's machines.
    pub(super) fn units(&self, name: &str) -> u32 {
        let machines = self.fleet.machines.values().filter(|one| one.group == name && one.state.counts());
        machines.map(|machine| machine.weight).sum()
    }

    /// The number of machines that a group should have. If it has weights, this is its present machines plus as many machines of
    /// the largest weight as the missing units need.
    pub(in crate::world) fn wanted_machines(&self, name: &str) -> u32 {
        let Some(group) = self.fleet.groups.get(name) else { return 0 };
        if group.weights.is_empty() {
            return group.desired;
        }
        let machines = self.fleet.machines.values().filter(|one| one.group == name && one.state.counts());
        let lacks = group.desired.saturating_sub(self.units(name)).div_ceil(group.heaviest());
        u32::try_from(machines.count()).unwrap_or(u32::MAX).saturating_add(lacks)
    }

    /// The machine that a scale-in terminates: the oldest in the zone with the most machines, without protected ones.
    pub(super) fn scale_in(&self, name: &str) -> Option<String> {
        let counts = self.zones_in_use(name);
        let comes = self.fleet.groups.get(name).and_then(|group| Some(&group.ahead.as_ref()?.comes));
        let machines = self.machines_of(name).into_iter().map(|id| &self.fleet.machines[&id]);
        let machines = machines
            .filter(|machine| machine.state.counts() && !machine.protected && Some(&machine.id) != comes);
        let most = machines.clone().map(|machine| counts[&machine.zone]).max()?;
        machines.into_iter().find(|machine| counts[&machine.zone] == most).map(|machine| machine.id.clone())
    }

    pub(in crate::world) fn zones_in_use(&self, name: &str) -> BTreeMap<String, usize> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for machine in self.fleet.machines.values().filter(|one| one.group == name && one.state.counts()) {
            *counts.entry(machine.zone.clone()).or_default() += 1;
        }
        counts
    }

    /// Launches one more machine in the zone with the fewest, and returns its id.
    pub(super) fn launch(&mut self, name: &str) -> Option<String> {
        let group = self.fleet.groups[name].clone();
        let counts = self.zones_in_use(name);
        let zone = group.zones.iter().min_by_key(|zone| counts.get(*zone).copied().unwrap_or_default());
        let zone = zone.cloned()?;
        self.fleet.launched += 1;
        let hex = self.hex(&format!("machine {name} {}", self.fleet.launched));
        let id = format!("i-0{}", &hex[..16]);
        let found = group.template.as_ref().and_then(|template| self.template_data(template));
        let (version, node, tags) = match found {
            Some((version, data)) => {
                (Some(version.to_string()), userdata::node_file(data), made::machine_tags(data))
            }
            None => (None, None, BTreeMap::new()),
        };
        let template = group.template.clone().zip(version).map(|(mut template, version)| {
            template.version = version;
            template
        });
        let fate = self.fate(name);
        // EC2's free capacity decides which type an allocation strategy chooses.
        let weight = match group.weights.as_slice() {
            [] => 1,
            [only] => *only,
            several => {
                let chosen = (self.draw("an instance type") * several.len() as f64) as usize;
                several[chosen.min(several.len() - 1)]
            }
        };
        let machine = Machine {
            weight,
            id: id.clone(),
            group: name.to_owned(),
            zone,
            template,
            tags,
            launched_at: self.now,
            state: if group.launch_hook.is_some() { State::PendingWait } else { State::Pending },
            left_at: None,
            healthy: true,
            power: Power::Starting,
            credentials: node.as_ref().map(|node| node.credentials.clone()).unwrap_or_default(),
            node,
            ready: false,
            fetch: Fetch::Unasked,
            starts: None,
            restarting: None,
            expired: false,
            locked_out: false,
            silent: false,
            jammed: false,
            unmanaged: false,
            unregistered: false,
            asked_to_go: false,
            protected: false,
            interrupted: false,
            waits: None,
            fate,
            answers: false,
            targets: Vec::new(),
        };
        self.record(format!("{name} launches {id} in {}", machine.zone));
        self.fleet.machines.insert(id.clone(), machine);
        if let Some(hook) = group.launch_hook {
            self.wait_for_hook(&id, hook);
        }
        match fate {
            _ if self.fleet.others_run_machines => {}
            super::Fate::Dead => {}
            super::Fate::GivesUp | super::Fate::Boots(_) => {
                let slower = if let super::Fate::Boots(slower) = fate { slower } else { 1.0 };
                let seconds = self.draw_s("boot", SYSTEM_S.0, SYSTEM_S.1) * slower;
                self.fleet_after_s(seconds, FleetTask::Boots { machine: id.clone() });
            }
        }
        Some(id)
    }

    /// Begins the termination of a machine: through its terminate hook, if its group has one.
    pub(super) fn begin_termination(&mut self, id: &str) {
        let now = self.now;
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        if !machine.state.counts() {
            return;
        }
        machine.waits = None;
        machine.left_at = Some(now);
        machine.state = State::TerminatingWait;
        let hook = self.fleet.groups.get(&machine.group).and_then(|group| group.terminate_hook.clone());
        let group = machine.group.clone();
        match hook {
            Some(hook) => {
                self.wait_for_hook(id, hook);
                self.is_about_to_leave(id);
            }
            None => self.proceed(id),
        }
        self.reconcile_soon(&group);
    }

    /// No hook holds a machine any more.
    pub(super) fn proceed(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        machine.state = State::TerminatingProceed;
        machine.waits = None;
        let seconds = self.draw_s("stop a machine", STOPS_S.0, STOPS_S.1);
        self.fleet_after_s(seconds, FleetTask::Stops { machine: id.to_owned() });
    }

    /// A machine stops, and its programs with it.
    pub(super) fn stops(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        if machine.power == Power::Down {
            return;
        }
        let was_up = machine.power == Power::Up;
        machine.power = Power::Down;
        machine.ready = false;
        let line = format!("{id} of {} stops", machine.group);
        self.record(line);
        if was_up {
            self.machine_stopped(id);
        }
    }

    pub(super) fn gone(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.remove(id) else { return };
        self.let_go_of_volume(&machine);
        self.terminated(&machine);
        if self.fleet.groups.contains_key(&machine.group) {
            self.reconcile_soon(&machine.group);
        }
    }

    /// A machine dies: its hardware fails, its zone is lost, or its Spot price is no longer enough.
    pub fn kill_machine(&mut self, id: &str) {
        if !self.fleet.machines.contains_key(id) {
            return;
        }
        self.stops(id);
        let seconds = self.draw_s("notice a dead machine", NOTICES_S.0, NOTICES_S.1);
        self.fleet_after_s(seconds, FleetTask::Unhealthy { machine: id.to_owned() });
    }

    pub(super) fn unhealthy(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        machine.healthy = false;
        let group = machine.group.clone();
        self.record(format!("{group} finds {id} unhealthy"));
        let seconds = self.draw_s("replace an unhealthy machine", REPLACES_S.0, REPLACES_S.1);
        self.fleet_after_s(seconds, FleetTask::Replaces { machine: id.to_owned() });
    }

    /// Somebody reports to Auto Scaling that a machine is unhealthy (`SetInstanceHealth`), or EC2 has an event for it. It serves.
    pub fn condemn_machine(&mut self, id: &str) {
        let serves = self.fleet.machines.get(id).is_some_and(|machine| {
            machine.power == Power::Up && machine.healthy && machine.state == State::InService
        });
        if serves {
            self.unhealthy(id);
        }
    }

    fn replaces(&mut self, id: &str) {
        let Some(group) = self.fleet.machines.get(id).map(|machine| machine.group.clone()) else { return };
        let suspended = self.fleet.groups.get(&group).map(|group| &group.suspended);
        let holds = |process: &Process| suspended.is_some_and(|all| all.contains(process));
        if holds(&Process::ReplaceUnhealthy) || holds(&Process::Terminate) {
            // Checked again once somebody has resumed the process.
            return self.fleet_after_s(NOTICES_S.1, FleetTask::Replaces { machine: id.to_owned() });
        }
        self.begin_termination(id);
    }

    pub(in crate::world) fn record(&mut self, line: String) {
        self.fleet.story.push((self.now, line));
    }

    /// What happened to machines and clusters since the last call, one line per event.
    #[must_use]
    pub fn story(&mut self) -> Vec<(jiff::Timestamp, String)> {
        std::mem::take(&mut self.fleet.story)
    }
}
