//! What other users do to groups: people, or a cluster autoscaler.
//!
//! The cluster autoscaler of AWS (`cloudprovider/aws/aws_manager.go`) grows a group by `SetDesiredCapacity` and shrinks it by
//! `TerminateInstanceInAutoScalingGroup` with `ShouldDecrementDesiredCapacity`, one node at a time.

use super::super::World;
use super::super::machine::{Process, State};
use super::super::task::FleetTask;
use super::api::Termination;

impl World {
    /// Somebody raises the desired capacity of a group by one, up to its maximum.
    pub fn others_grow(&mut self, name: &str) {
        let Some(group) = self.fleet.groups.get_mut(name).filter(|group| group.desired < group.max) else {
            return;
        };
        group.desired += 1;
        let desired = group.desired;
        self.record(format!("somebody has {name} want {desired} machines"));
        self.reconcile_soon(name);
        self.remember_group(name);
    }

    /// Somebody terminates a random machine of a group with a decrement, down to its minimum.
    pub fn others_shrink(&mut self, name: &str, choice: u64) {
        let serving: Vec<String> = self
            .machines_of(name)
            .into_iter()
            .filter(|id| self.fleet.machines[id].state == State::InService)
            .collect();
        let at = usize::try_from(choice).unwrap_or_default() % serving.len().max(1);
        let Some(id) = serving.get(at).cloned() else { return };
        let asked = Termination { instance: id.clone(), shrink: true };
        if self.terminates(&asked).is_ok() {
            self.record(format!("somebody takes {id} of {name} down"));
        }
    }

    /// EC2 has no capacity for machines of a group, or has it again. Auto Scaling keeps trying (EC2 Auto Scaling user guide, "Troubleshoot
    /// issues: instance launch failures").
    pub fn set_capacity(&mut self, name: &str, has_some: bool) {
        let Some(group) = self.fleet.groups.get_mut(name) else { return };
        group.no_capacity = !has_some;
        self.record(format!("EC2 {} capacity for {name}", if has_some { "has" } else { "has no" }));
        self.fleet_after_s(1.0, FleetTask::Reconcile { group: name.to_owned() });
    }

    /// Somebody suspends a process of a group, or resumes it.
    pub fn suspend(&mut self, name: &str, process: Process, is_suspended: bool) {
        let Some(group) = self.fleet.groups.get_mut(name) else { return };
        let changed = match is_suspended {
            true => group.suspended.insert(process),
            false => group.suspended.remove(&process),
        };
        if !changed {
            return;
        }
        let what = if is_suspended { "suspends" } else { "resumes" };
        self.record(format!("somebody {what} {} of {name}", process.name()));
        // "When you resume the Launch process, Amazon EC2 Auto Scaling immediately replaces …".
        self.fleet_after_s(1.0, FleetTask::Reconcile { group: name.to_owned() });
        self.remember_group(name);
    }

    /// Somebody protects a machine from scale-in, or removes the protection (`SetInstanceProtection`).
    pub fn protect(&mut self, id: &str, is_protected: bool) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        machine.protected = is_protected;
        let group = machine.group.clone();
        self.remember_group(&group);
        if is_protected {
            self.record(format!("somebody protects {id} of {group} from scale-in"));
        }
    }

    /// Removes every protection from scale-in, resumes every process of every group, and gives each capacity.
    pub fn others_let_be(&mut self) {
        let groups: Vec<String> = self.fleet.groups.keys().cloned().collect();
        for group in groups {
            if self.fleet.groups[&group].no_capacity {
                self.set_capacity(&group, true);
            }
            for process in
                [Process::Launch, Process::Terminate, Process::ReplaceUnhealthy, Process::AzRebalance]
            {
                self.suspend(&group, process, false);
            }
        }
        let machines: Vec<String> = self.fleet.machines.keys().cloned().collect();
        machines.iter().for_each(|id| self.protect(id, false));
    }
}
