//! Partitions that only some observe: a member of etcd that the other members do not reach while Auto Scaling and Systems Manager
//! do, and a machine that Systems Manager does not reach while everybody else does.
//!
//! A member on the smaller side of a partition has no leader and accepts no writes. The larger side elects another leader if it has
//! to (etcd documentation, "Failure modes", "Network partition"). EC2's status checks detect neither case: they check the host, and
//! whether the system answers ARP (EC2 user guide, "Status checks for your instances"). An SSM agent without a connection is
//! `ConnectionLost`; commands to it wait until their delivery times out (Systems Manager user guide, "Understanding command
//! statuses"). A command to an agent that does not run, or is not registered, is refused: `InvalidInstanceId` (botocore,
//! `SSM.Client.exceptions.InvalidInstanceId`).

use jiff::SignedDuration;

use super::super::World;
use super::super::machine::Power;
use super::super::task::FleetTask;

impl World {
    /// For this time, the member of etcd on that machine and the other members do not reach each other.
    pub fn isolate_member(&mut self, id: &str, long: SignedDuration) {
        let Some(machine) = self.fleet.machines.get(id).filter(|one| one.power == Power::Up).cloned() else {
            return;
        };
        if self.etcd_isolated(&machine) {
            self.fleet_after_s(long.as_secs_f64(), FleetTask::Reconnects { machine: id.to_owned() });
        }
    }

    /// For this time, Systems Manager does not reach the agent of that machine; `refuses`: it refuses commands to it.
    pub fn lose_agent(&mut self, id: &str, long: SignedDuration, refuses: bool) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        if machine.power != Power::Up || machine.unmanaged {
            return;
        }
        (machine.unmanaged, machine.unregistered) = (true, refuses);
        let line = format!("Systems Manager does not reach {id} of {}", machine.group);
        self.record(line);
        self.fleet_after_s(long.as_secs_f64(), FleetTask::Reconnects { machine: id.to_owned() });
    }

    /// Everybody reaches a machine again.
    pub(super) fn reconnects(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        let was_unmanaged = std::mem::take(&mut machine.unmanaged);
        machine.unregistered = false;
        let machine = machine.clone();
        self.etcd_reconnected(&machine);
        if was_unmanaged && machine.power == Power::Up {
            self.record(format!("Systems Manager reaches {id} of {} again", machine.group));
            if !machine.silent {
                self.report_ended_commands(id);
                self.takes_what_waits(id);
            }
        }
    }

    /// Ends all partitions.
    pub fn end_partitions(&mut self) {
        let machines: Vec<String> = self.fleet.machines.keys().cloned().collect();
        machines.iter().for_each(|id| self.reconnects(id));
    }
}
