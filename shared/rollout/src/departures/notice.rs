//! Which workers Auto Scaling wants to go, and whether they ever served.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::node::{BootstrapReport, BootstrapState};
use slipway_core::role::Role;

use super::Departure;
use crate::fleet::{GroupView, Lifecycle};
use crate::stack_step::OWNER_TAG;
use crate::{Effect, Observed, Rollout};

/// Machines that Auto Scaling wants to go and that were not taken note of yet, whose reports are read in one look: an invocation stays
/// bounded.
const MOST_UNNOTICED: usize = 20;

impl Rollout {
    /// The machines of pools that Auto Scaling wants to go and that nobody has taken note of: whether they ever served is told by
    /// what they said of their bootstrap.
    pub fn unnoticed(
        &self,
        groups: &BTreeMap<String, Option<GroupView>>,
    ) -> impl Iterator<Item = (Role, String)> {
        let ours = groups.iter().filter_map(|(name, group)| Some((self.pool_of(name)?, group.as_ref()?)));
        let machines = ours.flat_map(|(role, group)| {
            let waits = group.machines.iter().filter(|(_, one)| one.must_be_drained());
            waits.map(move |(id, _)| (role.clone(), id.clone()))
        });
        machines.filter(|(_, id)| !self.departures.contains_key(id)).take(MOST_UNNOTICED)
    }
}

/// Takes note of workers that Auto Scaling takes down by itself.
pub(super) fn notice(rollout: &mut Rollout, observed: &Observed, now: Timestamp) -> Vec<Effect> {
    let (mut found, mut effects) = (BTreeMap::new(), Vec::new());
    for (name, group) in &observed.groups {
        let (Some(role), Some(group)) = (rollout.pool_of(name), group) else { continue };
        if group.tags.get(OWNER_TAG) != Some(&rollout.cluster) {
            continue;
        }
        for (id, machine) in group.machines.iter().filter(|(_, machine)| machine.must_be_drained()) {
            if rollout.departures.contains_key(id) {
                continue;
            }
            let force_after_s = rollout.force_after_s.get(&role).copied();
            let mut one = Departure::by_auto_scaling(role.clone(), name, force_after_s, now);
            if never_served(rollout, name, observed.booting.get(id)) {
                one.leaves(now);
                let (group, instance) = (name.clone(), id.clone());
                effects.push(match machine.lifecycle {
                    Lifecycle::Retained => Effect::Terminate { group, instance, then_desired: None },
                    Lifecycle::TerminatingWait
                    | Lifecycle::Terminating
                    | Lifecycle::Pending
                    | Lifecycle::InService
                    | Lifecycle::Elsewhere => Effect::CompleteTermination { group, instance },
                });
            }
            found.insert(id.clone(), one);
        }
    }
    let is_first = rollout.active().is_none() && rollout.departures.is_empty() && !found.is_empty();
    rollout.departures.extend(found);
    effects.extend(is_first.then_some(Effect::ArmTick));
    effects
}

/// Whether a machine that waits in its terminate hook never served, so that there is nothing to be drained: its launch was abandoned. Auto
/// Scaling runs the terminate hook after that, too (observed in AWS in September 2026 by others, radkawar/stackd,
/// `lifecycle_native.json`; its user guide does not say), and would keep the machine if nobody ended the hook.
fn never_served(rollout: &Rollout, group: &str, report: Option<&BootstrapReport>) -> bool {
    match report.map(|report| (report.state, report.served)) {
        Some((BootstrapState::Healthy, _) | (_, true)) => false,
        Some((BootstrapState::Working | BootstrapState::GivenUp, false)) => true,
        // One that never ran the agent told nothing. Of a stack that stands it may be a report that was lost.
        None => rollout.makes(group),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p6_a_worker_that_was_in_service_is_drained_although_its_reboot_comes_to_nothing() {
        let rollout = Rollout::new("c");
        let report = |state: &str, served: bool| -> BootstrapReport {
            serde_json::from_value(json!({
                "format": 1, "instance": "i-1", "role": "pool-a", "config": "", "credentials": "", "agent": "1", "state": state,
                "served": served, "at": "2026-11-22T12:00:00Z",
            }))
            .unwrap()
        };
        let never = |state, served| never_served(&rollout, "c-pool-a", Some(&report(state, served)));
        assert!(never("working", false) && never("given-up", false));
        assert!(!never("working", true) && !never("healthy", true) && !never("healthy", false));
        assert!(!never_served(&rollout, "c-pool-a", None), "a report may be lost");
    }
}
