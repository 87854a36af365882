//! What the agent of a member or a controller does when its group terminates the machine (`slipway-node leave`,
//! `agent/src/leave.rs`): it stops the machine's programs and completes the terminate hook. Workers are drained by others, who also
//! complete their hooks.

use jiff::Timestamp;

use super::super::World;
use super::super::cluster::Etcd;
use super::super::machine::{HookResult, Power, State};
use super::super::task::FleetTask;

/// The time until the agent has read the target state twice and stopped the member's process.
const MEMBER_S: (f64, f64) = (4.0, 15.0);
/// The same, plus the time until load balancers send no more requests (30 s) and the API server has stopped.
const CONTROLLER_S: (f64, f64) = (38.0, 75.0);
/// How often the agent checks whether the other members are a majority.
const LOOKS_S: f64 = 5.0;

impl World {
    /// A machine waits in its terminate hook.
    pub(super) fn is_about_to_leave(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id) else { return };
        let (least, most) = match machine.role() {
            "controller" => CONTROLLER_S,
            role if role.starts_with("etcd-") => MEMBER_S,
            _ => return,
        };
        if machine.power != Power::Up || !machine.ready || self.fleet.others_run_machines {
            return;
        }
        let seconds = self.draw_s("leaves", least, most);
        self.fleet_after_s(seconds, FleetTask::Leaves { machine: id.to_owned() });
    }

    pub(super) fn leaves(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id).cloned() else { return };
        let speaks = machine.power == Power::Up && !machine.silent;
        let (Some(waits), State::TerminatingWait, true) = (machine.waits.clone(), machine.state, speaks)
        else {
            return;
        };
        if machine.role() == "controller" {
            if let Some(machine) = self.fleet.machines.get_mut(id) {
                machine.restarting = Some(Timestamp::MAX);
            }
            self.record(format!("the API server of {id} ends"));
        } else if self.is_last_of_majority(machine.cluster().unwrap_or_default(), machine.role()) {
            return self.fleet_after_s(LOOKS_S, FleetTask::Leaves { machine: id.to_owned() });
        } else {
            self.process_stops(&machine);
        }
        self.settle_hook(id, &waits.hook.name, HookResult::Continue);
    }

    /// Whether a member serves and the other members alone are no majority, so that it has to stay.
    fn is_last_of_majority(&self, cluster: &str, role: &str) -> bool {
        let Some(etcd) = self.fleet.clusters.get(cluster).map(|one| &one.etcd) else { return false };
        let Some(member) = etcd.members.get(role) else { return false };
        let voters = etcd.members.iter().filter(|(_, member)| !member.learner);
        let others = voters.clone().filter(|(other, _)| *other != role && etcd.reaches(role, other));
        let (voters, others) = (voters.count(), others.count());
        let serves = etcd.leader.is_some() && Etcd::is_up(member, self.now);
        serves && !member.learner && voters > 1 && others <= voters / 2
    }
}
