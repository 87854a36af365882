//! Machines that are up but silent: they hang, or their network has failed.
//!
//! EC2's system status check detects a lost network, and the instance status check a system that hangs, both after minutes and not
//! always (EC2 user guide, "Status checks for your instances"). Auto Scaling replaces a machine if one of them fails
//! (`HealthCheckType` EC2). Until then Run Command accepts commands for it, which end as `DeliveryTimedOut`. The node controller
//! marks a node as `NotReady`, and its pods with it, when the node was silent for 50 s (`--node-monitor-grace-period`).
//!
//! And machines whose container runtime hangs: the kubelet speaks, says after three minutes that it is not Ready ("PLEG is not healthy",
//! `genericPlegRelistThreshold` in kubernetes `pkg/kubelet/kubelet.go`), and its pods stay `Terminating` (kubernetes/kubernetes 75065, 93925).

use jiff::SignedDuration;

use super::super::World;
use super::super::cluster::Kubelet;
use super::super::machine::Power;
use super::super::task::FleetTask;

/// The time from the last heartbeat of a kubelet to `NotReady`.
const GRACE_S: f64 = 50.0;
/// The time after which a kubelet whose container runtime does not answer says that it is not Ready.
const RELIST_S: f64 = 180.0;

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
        self.node_is(&machine, if machine.jammed { Kubelet::Unable } else { Kubelet::Well });
        if !machine.ready {
            self.fleet_after_s(1.0, FleetTask::Bootstraps { machine: id.to_owned() });
        }
    }

    pub(super) fn node_is_not_ready(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id).cloned() else { return };
        if machine.silent {
            self.node_is(&machine, Kubelet::Silent);
        } else if machine.jammed {
            self.node_is(&machine, Kubelet::Unable);
        }
    }

    /// The container runtime of a machine hangs for this time.
    pub fn jam_machine(&mut self, id: &str, long: SignedDuration) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        if machine.power != Power::Up || machine.jammed {
            return;
        }
        machine.jammed = true;
        let group = machine.group.clone();
        self.record(format!("{id} of {group} cannot run pods"));
        self.fleet_after_s(RELIST_S, FleetTask::NotReady { machine: id.to_owned() });
        self.fleet_after_s(long.as_secs_f64(), FleetTask::Unjams { machine: id.to_owned() });
    }

    /// The container runtime of a machine works again.
    pub(super) fn unjams(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id).filter(|machine| machine.jammed) else { return };
        machine.jammed = false;
        let machine = machine.clone();
        self.record(format!("{id} of {} can run pods again", machine.group));
        if machine.power == Power::Up && !machine.silent {
            self.node_is(&machine, Kubelet::Well);
        }
    }

    /// All silent machines answer again, and all container runtimes work.
    pub fn end_silence(&mut self) {
        let jammed = self.fleet.machines.values().filter(|machine| machine.jammed);
        let jammed: Vec<String> = jammed.map(|machine| machine.id.clone()).collect();
        jammed.iter().for_each(|id| self.unjams(id));
        let silent = self.fleet.machines.values().filter(|machine| machine.silent);
        let silent: Vec<String> = silent.map(|machine| machine.id.clone()).collect();
        silent.iter().for_each(|id| self.speaks(id));
    }
}
