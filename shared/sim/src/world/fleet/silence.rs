//! Machines that are up but silent: they hang, or their network has failed.
//!
//! EC2's system status check detects a lost network, and the instance status check a system that hangs, both after minutes and not
//! always (EC2 user guide, "Status checks for your instances"). Auto Scaling replaces a machine if one of them fails
//! (`HealthCheckType` EC2). Until then Run Command accepts commands for it, which end as `DeliveryTimedOut`. The node controller
//! marks a node as `NotReady`, and its pods with it, when the node was silent for 50 s (`--node-monitor-grace-period`).

use jiff::SignedDuration;

use super::super::World;
use super::super::machine::Power;
use super::super::task::FleetTask;

/// The time from the last heartbeat of a kubelet to `NotReady`.
const GRACE_S: f64 = 50.0;

impl World {
    /// Makes a machine silent for this time. After `noticed_after` its status check fails, if it is still silent.
    pub fn hang_machine(&mut self, id: &str, long: SignedDuration, noticed_after: Option<SignedDuration>) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        if machine.power != Power::Up || machine.silent {
            return;
        }
        machine.silent = true;
        let machine = machine.clone();
        self.record(format!("{id} of {} is silent", machine.group));
        self.process_stops(&machine);
        self.fleet_after_s(GRACE_S, FleetTask::NotReady { machine: id.to_owned() });
        self.fleet_after_s(long.as_secs_f64(), FleetTask::Speaks { machine: id.to_owned() });
        if let Some(after) = noticed_after.filter(|after| *after < long) {
            self.fleet_after_s(after.as_secs_f64(), FleetTask::Unhealthy { machine: id.to_owned() });
        }
    }

    /// A silent machine answers again.
    pub(super) fn speaks(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id).filter(|machine| machine.silent) else { return };
        machine.silent = false;
        let machine = machine.clone();
        self.record(format!("{id} of {} answers again", machine.group));
        if machine.power != Power::Up {
            return;
        }
        self.etcd_returns(id);
        self.takes_what_waits(id);
        self.node_is_ready(&machine, true);
        if !machine.ready {
            self.fleet_after_s(1.0, FleetTask::Bootstraps { machine: id.to_owned() });
        }
    }

    pub(super) fn node_is_not_ready(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id).filter(|machine| machine.silent).cloned() else {
            return;
        };
        self.node_is_ready(&machine, false);
    }

    /// All silent machines answer again.
    pub fn end_silence(&mut self) {
        let silent = self.fleet.machines.values().filter(|machine| machine.silent);
        let silent: Vec<String> = silent.map(|machine| machine.id.clone()).collect();
        silent.iter().for_each(|id| self.speaks(id));
    }
}
