//! The faults of machines and commands.

use super::super::World;
use super::super::machine::Fate;

/// The probability of each fault. All are 0 by default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FleetFaults {
    /// A machine boots, but takes up to ten times as long.
    pub slow_boot: f64,
    /// A machine never comes up.
    pub dead_boot: f64,
    /// The agent of a machine gives up.
    pub failed_boot: f64,
    /// The report of an agent that gives up does not reach the bucket.
    pub report_lost: f64,
    /// A machine whose launch is abandoned passes through the terminate hook.
    pub abandoned_hooks: f64,
    /// The answer about a group is some seconds old.
    pub stale_groups: f64,
    /// The answer about a stack or a change set is some seconds old.
    pub stale_stacks: f64,
    /// The answer about the targets of a target group is some seconds old.
    pub stale_targets: f64,
    /// A group whose zones are out of balance rebalances them.
    pub rebalances: f64,
    /// A command hangs until its document's timeout.
    pub command_hangs: f64,
    /// A command fails, although the node is healthy.
    pub command_fails: f64,
    /// A command is executed twice.
    pub command_doubled: f64,
    /// A command is missing from every list for some seconds.
    pub command_unlisted: f64,
    /// `GetCommandInvocation` does not know a command for some seconds: `InvocationDoesNotExist`.
    pub command_undescribed: f64,
    /// A command prints more than AWS keeps, and its answer is cut.
    pub output_cut: f64,
    /// A workload has a budget that never allows an eviction.
    pub stubborn_budget: f64,
    /// A member of etcd takes twenty times as long to catch up.
    pub slow_member: f64,
    /// A call is throttled: `Throttling: Rate exceeded`.
    pub throttled: f64,
    /// A resource fails while its stack is created or updated, and the stack rolls back; or it fails while it is deleted, and the
    /// deletion stops.
    pub resource_fails: f64,
    /// A resource fails while its stack rolls back. The stack is then `ROLLBACK_FAILED` or `UPDATE_ROLLBACK_FAILED`, and needs a
    /// person.
    pub rollback_fails: f64,
}

impl World {
    /// Sets the probabilities of faults from now on.
    pub fn set_fleet_faults(&mut self, faults: FleetFaults) {
        self.fleet.faults = faults;
    }

    /// From now on somebody releases the machines of groups that are deleted, as a destruction does: no hook holds them, and no
    /// machine is retained.
    pub fn let_machines_go(&mut self) {
        self.fleet.lets_go = true;
    }

    /// From now on so many pods of each workload of `role` may be missing. With 0, no eviction is ever allowed.
    pub fn set_budgets(&mut self, cluster: &str, role: &str, max_missing: usize) {
        let cluster = self.fleet.clusters.get_mut(cluster);
        for workload in cluster.into_iter().flat_map(|cluster| &mut cluster.kube.workloads) {
            if workload.role == role && workload.max_missing.is_some() {
                workload.max_missing = Some(max_missing);
            }
        }
    }

    /// The next machines of `group` have these fates, one each, whatever the probabilities say.
    pub fn set_fate(&mut self, group: &str, fates: impl IntoIterator<Item = Fate>) {
        self.fleet.fates.entry(group.to_owned()).or_default().extend(fates);
    }

    /// A number in [0, 1) that follows from the seed, the number of draws so far, and `label`.
    pub(in crate::world) fn draw(&mut self, label: &str) -> f64 {
        self.sequence += 1;
        let hex = self.hex(&format!("draw {} {label}", self.sequence));
        let number = u32::from_str_radix(&hex[..8], 16).unwrap_or_default();
        f64::from(number) / (f64::from(u32::MAX) + 1.0)
    }

    /// A random number of seconds between `least` and `most`.
    pub(in crate::world) fn draw_s(&mut self, label: &str, least: f64, most: f64) -> f64 {
        least + (most - least) * self.draw(label)
    }

    /// Whether an event with that probability happens. An impossible event draws no number, so that a world without a fault stays
    /// the same when a fault is added to the code.
    pub(in crate::world) fn chance(&mut self, label: &str, probability: f64) -> bool {
        probability > 0.0 && self.draw(label) < probability
    }

    pub(super) fn fate(&mut self, group: &str) -> Fate {
        if let Some(fate) = self.fleet.fates.get_mut(group).and_then(std::collections::VecDeque::pop_front) {
            return fate;
        }
        let faults = self.fleet.faults;
        if self.chance("dead boot", faults.dead_boot) {
            return Fate::Dead;
        }
        if self.chance("failed boot", faults.failed_boot) {
            return Fate::GivesUp;
        }
        if self.chance("slow boot", faults.slow_boot) {
            return Fate::Boots(self.draw_s("slow boot", 2.0, 10.0));
        }
        Fate::Boots(1.0)
    }
}
