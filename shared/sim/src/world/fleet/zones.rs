//! Groups keep their zones in balance, and replace Spot machines that are likely to be interrupted. In both cases the new machine
//! is launched first.
//!
//! EC2 Auto Scaling user guide, "Rebalancing activities": a termination with a decrement, or a change of zones, can leave a group
//! out of balance. The group then launches a machine in the zone with the fewest before it terminates one in the zone with the
//! most. Meanwhile it may exceed its maximum by ten percent or by one instance. `TerminateInstanceInAutoScalingGroup` in botocore's
//! service model says the same: "rebalancing might terminate instances in other zones". "Capacity Rebalancing" does so for a Spot
//! instance that was sent a rebalance recommendation. That "can arrive sooner than the two-minute Spot Instance interruption
//! notice", or along with it (EC2 user guide, "EC2 instance rebalance recommendations"); an interruption does not have to follow.
//! At the notice, a group with Capacity Rebalancing "calls the termination lifecycle hook and attempts to launch a replacement
//! immediately" (EC2 Auto Scaling user guide, "Capacity Rebalancing"). EC2 interrupts the instance two minutes after the notice, even
//! if the hook waits.

use jiff::SignedDuration;
use serde_json::json;

use super::super::World;
use super::super::machine::{Ahead, Process, State};
use super::super::task::FleetTask;

/// The time from an imbalance of zones to the launch that corrects it.
const REBALANCES_S: (f64, f64) = (20.0, 180.0);
/// The time from the notice to the interruption of a Spot machine.
const NOTICE_S: f64 = 120.0;

impl World {
    /// A group that has two machines more in one zone than in another will rebalance its zones.
    pub(super) fn check_zone_balance(&mut self, name: &str) {
        let Some(group) = self.fleet.groups.get(name) else { return };
        let suspended = |process| group.suspended.contains(&process);
        if group.ahead.is_some() || group.rebalances || suspended(Process::AzRebalance) {
            return;
        }
        let rate = self.fleet.faults.rebalances;
        if !self.is_out_of_balance(name) || !self.chance("rebalances its zones", rate) {
            return;
        }
        if let Some(group) = self.fleet.groups.get_mut(name) {
            group.rebalances = true;
        }
        let seconds = self.draw_s("rebalances", REBALANCES_S.0, REBALANCES_S.1);
        self.fleet_after_s(seconds, FleetTask::Rebalances { group: name.to_owned() });
    }

    fn is_out_of_balance(&self, name: &str) -> bool {
        let Some(group) = self.fleet.groups.get(name) else { return false };
        let counts = self.zones_in_use(name);
        let of_zones = group.zones.iter().map(|zone| counts.get(zone).copied().unwrap_or_default());
        let (most, fewest) = (of_zones.clone().max().unwrap_or_default(), of_zones.min().unwrap_or_default());
        // A machine that is still booting may restore the balance.
        let settled = self.fleet.machines.values().filter(|one| one.group == name && one.state.counts());
        most > fewest + 1
            && (group.desired..group.desired + group.heaviest()).contains(&self.units(name))
            && settled.clone().all(|one| one.state == State::InService)
    }

    pub(super) fn rebalances(&mut self, name: &str) {
        let Some(group) = self.fleet.groups.get_mut(name) else { return };
        group.rebalances = false;
        let held = group.ahead.is_some()
            || group.suspended.contains(&Process::AzRebalance)
            || group.suspended.contains(&Process::Launch);
        if held || !self.is_out_of_balance(name) {
            return;
        }
        self.record(format!("{name} brings its zones into balance"));
        self.comes_first(name, None);
    }

    fn comes_first(&mut self, name: &str, goes: Option<String>) {
        let comes = self.launch(name);
        if let Some(group) = self.fleet.groups.get_mut(name) {
            group.ahead = comes.map(|comes| Ahead { comes, goes });
        }
    }

    /// The machine that was launched first is in service, so the other one is terminated. If the new machine never gets there, no
    /// machine is terminated.
    pub(super) fn ahead_takes_its_place(&mut self, name: &str) {
        let Some(group) = self.fleet.groups.get(name) else { return };
        let Some(ahead) = group.ahead.clone() else { return };
        let terminates = !group.suspended.contains(&Process::Terminate);
        let state = self.fleet.machines.get(&ahead.comes).map(|machine| machine.state);
        match state {
            Some(State::Pending | State::PendingWait | State::PendingProceed) => return,
            Some(State::InService) if !terminates => return,
            Some(
                State::InService
                | State::TerminatingWait
                | State::TerminatingProceed
                | State::TerminatingRetained,
            )
            | None => {}
        }
        let goes = match ahead.goes {
            Some(goes) => {
                Some(goes).filter(|id| self.fleet.machines.get(id).is_some_and(|one| one.state.counts()))
            }
            // Chosen while the new machine still counts as surplus, so that the new machine is not chosen itself.
            None => self.scale_in(name),
        };
        if let Some(group) = self.fleet.groups.get_mut(name) {
            group.ahead = None;
        }
        if let (Some(State::InService), Some(goes)) = (state, goes) {
            self.record(format!("{name} lets go of {goes}, whose place {} takes", ahead.comes));
            self.begin_termination(&goes);
        }
    }

    /// EC2 recommends replacing a Spot machine. The interruption notice may come much later, or never; with `reclaimed_after`, it
    /// comes after that time.
    pub fn recommend_to_replace(&mut self, id: &str, reclaimed_after: Option<SignedDuration>) {
        let Some(machine) = self.fleet.machines.get(id).cloned() else { return };
        self.record(format!("{id} of {} is at a higher risk of interruption", machine.group));
        let detail = json!({"instance-id": id});
        self.about_spot("EC2 Instance Rebalance Recommendation", id, detail);
        let group = self.fleet.groups.get(&machine.group);
        let replaces = group.is_some_and(|group| group.replaces_spot && group.ahead.is_none());
        if replaces && machine.state == State::InService {
            self.comes_first(&machine.group, Some(id.to_owned()));
        }
        if let Some(after) = reclaimed_after {
            self.fleet_after_s(after.as_secs_f64(), FleetTask::Reclaims { machine: id.to_owned() });
        }
        self.remember_group(&machine.group);
    }

    /// EC2 reclaims a Spot machine: the notice comes two minutes before, and a recommendation to replace the machine comes no later
    /// than the notice.
    pub fn reclaim_machine(&mut self, id: &str) {
        let Some(name) = self.fleet.machines.get(id).map(|machine| machine.group.clone()) else { return };
        self.record(format!("{id} of {name} is to be interrupted in two minutes"));
        if let Some(machine) = self.fleet.machines.get_mut(id) {
            machine.interrupted = true;
        }
        let goes = |ahead: &Ahead| ahead.goes.as_deref() == Some(id);
        let Some(group) = self.fleet.groups.get_mut(&name) else { return };
        let is_known = group.ahead.as_ref().is_some_and(goes);
        if group.replaces_spot && !group.suspended.contains(&Process::Terminate) {
            // Its successor may have been launched already.
            group.ahead = group.ahead.take().filter(|ahead| !goes(ahead));
            self.begin_termination(id);
        }
        if !is_known {
            self.recommend_to_replace(id, None);
        }
        let detail = json!({"instance-id": id, "instance-action": "terminate"});
        self.about_spot("EC2 Spot Instance Interruption Warning", id, detail);
        self.fleet_after_s(NOTICE_S, FleetTask::Reclaimed { machine: id.to_owned() });
    }

    /// Whether that group replaces Spot machines that are likely to be interrupted.
    #[cfg(test)]
    pub(crate) fn set_capacity_rebalance(&mut self, group: &str, replaces: bool) {
        if let Some(group) = self.fleet.groups.get_mut(group) {
            group.replaces_spot = replaces;
        }
    }

    fn about_spot(&mut self, kind: &str, id: &str, detail: serde_json::Value) {
        let resource = format!("arn:aws:ec2:{}:{}:instance/{id}", self.config.region, self.config.account);
        self.send_event("aws.ec2", kind, &resource, detail);
    }

    /// The two minutes are over, and no hook holds the machine.
    pub(super) fn reclaimed(&mut self, id: &str) {
        if self.fleet.machines.contains_key(id) {
            self.record(format!("{id} is interrupted"));
            self.kill_machine(id);
        }
    }
}
