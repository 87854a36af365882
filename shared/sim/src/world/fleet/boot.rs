//! From the start of a machine until its agent reports that it is healthy.

use jiff::SignedDuration;
use slipway_core::node::{BootstrapReport, BootstrapState, LAUNCH_HOOK, MachineArns};

use super::super::World;
use super::super::machine::{Fate, Fetch, HookResult, Power, State};
use super::super::task::FleetTask;
use super::super::weather::Service;

/// How long an agent takes to fetch, unpack and write files, before it depends on others.
const PREPARES_S: (f64, f64) = (25.0, 60.0);
/// How often an agent checks whether it can continue.
const LOOKS_S: f64 = 5.0;
/// How long the user data retries its downloads from S3 before it gives the machine up: eight pauses of 2, 4, … 256 s (`fetch` in
/// `shared/render/src/userdata.rs`).
const FETCHES: SignedDuration = SignedDuration::from_secs(510);

impl World {
    pub(super) fn boots(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        if machine.power != Power::Starting {
            return;
        }
        machine.power = Power::Up;
        match (&machine.node, machine.state) {
            // The machine has no agent that could report its health.
            (None, State::Pending) => self.in_service(id),
            (None, _) => {}
            (Some(_), _) => {
                let seconds = self.draw_s("prepare", PREPARES_S.0, PREPARES_S.1);
                self.fleet_after_s(seconds, FleetTask::Bootstraps { machine: id.to_owned() });
            }
        }
    }

    /// The agent continues as far as it can, and checks again later.
    pub(super) fn bootstraps(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id) else { return };
        if machine.power != Power::Up || machine.ready || machine.silent {
            return;
        }
        if machine.fate == Fate::GivesUp {
            return self.gives_up(id);
        }
        if !self.fetches(id) {
            return;
        }
        // The agent sends heartbeats for its machine as long as it runs.
        self.heartbeat(id, LAUNCH_HOOK);
        self.sets_its_record(id);
        if !self.joins_its_cluster(id) {
            return self.fleet_after_s(LOOKS_S, FleetTask::Bootstraps { machine: id.to_owned() });
        }
        self.reports(id, BootstrapState::Healthy);
        if let Some(machine) = self.fleet.machines.get_mut(id) {
            machine.ready = true;
            if machine.state == State::Pending {
                self.in_service(id);
            } else {
                self.settle_hook(id, LAUNCH_HOOK, HookResult::Continue);
            }
        }
    }

    /// Whether a machine has its files from S3, and KMS has decrypted its credentials. During an outage of either, it retries: the
    /// user data gives up after [`FETCHES`], and the agent waits for KMS as long as its hook allows (`agent/src/bootstrap.rs`).
    fn fetches(&mut self, id: &str) -> bool {
        let storage = self.down_until(Service::Storage).is_some();
        let is_down = storage || self.down_until(Service::Keys).is_some();
        let now = self.now;
        let Some(machine) = self.fleet.machines.get_mut(id) else { return false };
        let since = match machine.fetch {
            Fetch::Done => return true,
            Fetch::RefusedSince(since) => since,
            Fetch::Unasked => now,
        };
        machine.fetch = if is_down { Fetch::RefusedSince(since) } else { Fetch::Done };
        if !is_down {
            return true;
        }
        if storage && now.duration_since(since) > FETCHES {
            self.gives_up(id);
            return false;
        }
        if !storage {
            self.heartbeat(id, LAUNCH_HOOK);
        }
        self.fleet_after_s(LOOKS_S, FleetTask::Bootstraps { machine: id.to_owned() });
        false
    }

    fn gives_up(&mut self, id: &str) {
        self.reports(id, BootstrapState::GivenUp);
        self.settle_hook(id, LAUNCH_HOOK, HookResult::Abandon);
    }

    /// An agent writes its bootstrap report to the bucket. It tries five times if its machine is healthy, so that only an outage of
    /// S3 loses the report, and once if it gives up (`agent/src/bootstrap/report.rs`).
    fn reports(&mut self, id: &str, state: BootstrapState) {
        let served = state == BootstrapState::Healthy;
        if self.down_until(Service::Storage).is_some() {
            return;
        }
        if !served && self.chance("a report is lost", self.fleet.faults.report_lost) {
            return;
        }
        let Some(node) = self.fleet.machines.get(id).and_then(|machine| machine.node.as_ref()) else {
            return;
        };
        let report = BootstrapReport {
            format: BootstrapReport::FORMAT,
            instance: id.to_owned(),
            role: node.role.clone(),
            config: node.config.clone(),
            credentials: node.credentials.clone(),
            agent: String::new(),
            state,
            served,
            step: None,
            failure: None,
            at: self.now,
        };
        self.fleet.reports.push((node.cluster.clone(), report));
    }

    /// The bootstrap reports of agents since the last call, with the cluster's name.
    #[must_use]
    pub fn bootstrap_reports(&mut self) -> Vec<(String, BootstrapReport)> {
        std::mem::take(&mut self.fleet.reports)
    }

    /// What the ARNs of its machines begin with.
    #[must_use]
    pub fn machine_arns(&self) -> MachineArns {
        MachineArns::new(&self.config.region, &self.config.account)
    }

    /// A member of etcd writes its DNS record. Only members themselves ever delete it.
    fn sets_its_record(&mut self, id: &str) {
        let machine = &self.fleet.machines[id];
        let Some(zone) = machine.node.as_ref().and_then(|node| node.zone.clone()) else { return };
        let name = self.member_name(machine.role(), &zone);
        if self.fleet.records.insert((zone, name.clone())) {
            self.record(format!("{id} sets the record {name}"));
        }
    }

    /// The DNS name of a member in a zone. If no stack made the zone, this world does not know the zone's name.
    fn member_name(&self, role: &str, zone: &str) -> String {
        let made = self.things.get(&("AWS::Route53::HostedZone".to_owned(), zone.to_owned()));
        let domain = made.and_then(|made| made.properties.get("Name")?.as_str());
        format!("{role}.{}", domain.unwrap_or(zone).trim_end_matches('.'))
    }

    /// Deletes the records of members in the zone of that machine, and returns their names.
    pub(in crate::world) fn takes_records_back(&mut self, id: &str) -> Vec<String> {
        let zone = self.fleet.machines.get(id).and_then(|machine| machine.node.as_ref()?.zone.clone());
        let ours = |(of, _): &&(String, String)| Some(of) == zone.as_ref();
        let gone: Vec<(String, String)> = self.fleet.records.iter().filter(ours).cloned().collect();
        for record in &gone {
            self.fleet.records.remove(record);
            self.record(format!("{id} takes the record {} back", record.1));
        }
        gone.into_iter().map(|(_, name)| name).collect()
    }

    /// The records that members of etcd have written and nobody has deleted.
    #[must_use]
    pub fn records(&self) -> Vec<String> {
        self.fleet.records.iter().map(|(_, name)| name.clone()).collect()
    }

    /// A person deletes all of them by hand.
    pub fn clear_records(&mut self) {
        self.fleet.records.clear();
    }

    /// Whether a zone has records that no stack knows of.
    pub(in crate::world) fn has_records(&self, zone: &str) -> bool {
        self.fleet.records.iter().any(|(of, _)| of == zone)
    }
}
