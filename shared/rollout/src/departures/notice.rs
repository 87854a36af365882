//! Which workers Auto Scaling terminates, and whether they ever served.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{BootstrapReport, BootstrapState, WORKER_LAUNCH_S};
use slipway_core::role::Role;

use super::Departure;
use crate::fleet::{GroupView, Lifecycle, OWNER_TAG};
use crate::{Effect, Observed, Rollout};

/// The number of such machines without a departure whose reports are read in one look, so that an invocation stays bounded.
const MOST_UNNOTICED: usize = 20;

impl Rollout {
    /// The machines of pools that Auto Scaling terminates and that have no departure yet. Their bootstrap reports say whether they ever
    /// served.
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

/// Begins departures for workers that Auto Scaling terminates by itself.
pub(super) fn notice(rollout: &mut Rollout, observed: &Observed, now: Timestamp) -> Vec<Effect> {
    let (mut found, mut effects) = (BTreeMap::new(), Vec::new());
    // Of the others, no report was read: they come in the next look.
    let read: BTreeSet<String> = rollout.unnoticed(&observed.groups).map(|(_, id)| id).collect();
    for (name, group) in &observed.groups {
        let (Some(role), Some(group)) = (rollout.pool_of(name), group) else { continue };
        if group.tags.get(OWNER_TAG) != Some(&rollout.cluster) {
            continue;
        }
        for (id, machine) in group.machines.iter().filter(|(_, machine)| machine.must_be_drained()) {
            if !read.contains(id) {
                continue;
            }
            let force_after_s = rollout.force_after_s.get(&role).copied();
            let mut one = Departure::by_auto_scaling(role.clone(), name, force_after_s, now);
            if never_served(rollout, name, observed.booting.get(id), now) {
                let (group, instance) = (name.clone(), id.clone());
                let effect = match machine.lifecycle {
                    Lifecycle::Retained => Effect::Terminate { group, instance, then_desired: None },
                    Lifecycle::TerminatingWait
                    | Lifecycle::Terminating
                    | Lifecycle::Pending
                    | Lifecycle::InService
                    | Lifecycle::Elsewhere => Effect::CompleteTermination { group, instance },
                };
                one.leaves(&effect, now);
                effects.push(effect);
            }
            found.insert(id.clone(), one);
        }
    }
    let is_first = rollout.active().is_none() && rollout.departures.is_empty() && !found.is_empty();
    rollout.departures.extend(found);
    effects.extend(is_first.then_some(Effect::ArmTick));
    effects
}

/// Whether a machine in its terminate hook never served, because its launch was abandoned, so that nothing has to be drained. Auto Scaling
/// runs the terminate hook after that, too (others observed this in AWS in September 2026, radkawar/stackd, `lifecycle_native.json`; the
/// user guide does not mention it), and would retain the machine if nobody completed the hook.
///
/// A report of a machine that was still working may be out of date: the machine reports itself healthy when it is, and that report may have
/// been lost. So it says nothing once it is older than the launch hook waits.
fn never_served(rollout: &Rollout, group: &str, report: Option<&BootstrapReport>, now: Timestamp) -> bool {
    const CURRENT: SignedDuration = SignedDuration::from_secs(WORKER_LAUNCH_S as i64);
    let is_current = |report: &&BootstrapReport| {
        let works_unserved = report.state == BootstrapState::Working && !report.served;
        !works_unserved || now.duration_since(report.at) <= CURRENT
    };
    match report.filter(is_current).map(|report| (report.state, report.served)) {
        Some((BootstrapState::Healthy, _) | (_, true)) => false,
        Some((BootstrapState::Working | BootstrapState::GivenUp, false)) => true,
        // A machine that never ran the agent has no report. In a stack that exists, the report may have been lost.
        None => rollout.makes(group),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::group;
    use super::*;

    fn report(state: &str, served: bool) -> BootstrapReport {
        serde_json::from_value(json!({
            "format": 1, "instance": "i-1", "role": "pool-a", "config": "", "credentials": "", "agent": "1", "state": state,
            "served": served, "at": NOW,
        }))
        .unwrap()
    }

    #[test]
    fn p6_a_worker_that_was_in_service_is_drained_although_its_reboot_comes_to_nothing() {
        let rollout = Rollout::new("c");
        let never = |state, served| never_served(&rollout, "c-pool-a", Some(&report(state, served)), NOW);
        assert!(never("working", false) && never("given-up", false));
        assert!(!never("working", true) && !never("healthy", true) && !never("healthy", false));
        assert!(!never_served(&rollout, "c-pool-a", None, NOW), "a report may be lost");
    }

    /// It boots slowly, says so, and then serves, while S3 cannot take its report.
    #[test]
    fn p6_a_worker_that_said_half_an_hour_ago_that_it_boots_may_have_served() {
        let rollout = Rollout::new("c");
        let after = |state, served, minutes| {
            let now = NOW + SignedDuration::from_mins(minutes);
            never_served(&rollout, "c-pool-a", Some(&report(state, served)), now)
        };
        assert!(after("working", false, 30) && !after("working", false, 31));
        assert!(after("working", false, -5), "its clock is fast");
        assert!(after("given-up", false, 60 * 24), "it abandoned its launch");
        assert!(!after("working", true, 60 * 24));
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// A cluster with the pools `a` and `b`.
    fn stands() -> Rollout {
        let deployed = ["c-pool-a", "c-pool-b"].map(|stack| (stack.to_owned(), "t".to_owned())).into();
        Rollout { deployed, ..Rollout::new("c") }
    }

    fn departure() -> Departure {
        Departure::by_auto_scaling(Role::Pool("a".to_owned()), "c-pool-a", None, NOW)
    }

    #[test]
    fn p6_those_that_wait_for_a_drain_and_were_not_noticed_are_asked_whether_they_served_twenty_at_a_time() {
        use Lifecycle::{InService, Retained, Terminating, TerminatingWait};
        let mut rollout = stands();
        rollout.departures.insert("i-2".to_owned(), departure());
        let of_a = [("i-1", TerminatingWait), ("i-2", TerminatingWait), ("i-3", InService)];
        let of_b = [("i-4", Retained), ("i-5", Terminating)];
        let another = group("another", &[("i-6", TerminatingWait)]);
        let gone = ("c-pool-c".to_owned(), None);
        let groups = [group("c-pool-a", &of_a), group("c-pool-b", &of_b), another, gone].into();
        let pool = |name: &str| Role::Pool(name.to_owned());
        let found: Vec<_> = rollout.unnoticed(&groups).collect();
        assert_eq!(found, [(pool("a"), "i-1".to_owned()), (pool("b"), "i-4".to_owned())]);
        let many: Vec<String> = (0..30).map(|at| format!("i-{at:02}")).collect();
        let waits: Vec<_> = many.iter().map(|id| (id.as_str(), TerminatingWait)).collect();
        let groups = [group("c-pool-a", &waits)].into();
        let found: Vec<_> = stands().unnoticed(&groups).map(|(_, id)| id).collect();
        assert_eq!(found, many[..20]);
    }

    #[test]
    fn p6_of_many_machines_that_go_at_once_only_those_whose_reports_were_read_are_judged() {
        let mut rollout = stands();
        let many: Vec<String> = (0..50).map(|at| format!("i-{at:02}")).collect();
        let waits: Vec<_> = many.iter().map(|id| (id.as_str(), Lifecycle::TerminatingWait)).collect();
        let observed = Observed { groups: [group("c-pool-a", &waits)].into(), ..Observed::default() };
        for judged in [20, 40, 50] {
            notice(&mut rollout, &observed, NOW);
            assert_eq!(rollout.departures.len(), judged);
        }
    }

    #[test]
    fn p6_a_departing_worker_has_the_limit_for_force_of_its_own_pool() {
        let pool = |name: &str| Role::Pool(name.to_owned());
        for (limits, expected) in [
            (vec![(pool("b"), 600)], None),
            (vec![(pool("a"), 14_400), (pool("b"), 600)], Some(14_400)),
            (vec![(pool("a"), 600), (pool("b"), 14_400)], Some(600)),
        ] {
            let mut rollout = stands();
            rollout.force_after_s = limits.into_iter().collect();
            let groups = [group("c-pool-a", &[("i-1", Lifecycle::TerminatingWait)])].into();
            notice(&mut rollout, &Observed { groups, ..Observed::default() }, NOW);
            assert_eq!(rollout.departures["i-1"].force_after_s, expected);
        }
    }

    #[test]
    fn p8_the_tick_is_armed_for_the_first_machine_on_its_way_out_where_nothing_else_has_it() {
        let with = |mut rollout: Rollout| {
            rollout.departures.insert("i-2".to_owned(), departure());
            rollout
        };
        let mut rolls = stands();
        let active = json!({
            "plan": "p", "specVersion": "v1", "target": "t", "startedAt": NOW, "changeSet": "s", "steps": [], "nodesByHand": 0,
            "stacksByHand": [],
        });
        rolls.put_active(serde_json::from_value(active).unwrap());
        let waits = || [group("c-pool-a", &[("i-1", Lifecycle::TerminatingWait)])].into();
        let serves = || [group("c-pool-a", &[("i-1", Lifecycle::InService)])].into();
        for (mut rollout, groups, arms) in [
            (stands(), waits(), true),
            (stands(), serves(), false),
            (with(stands()), waits(), false),
            (rolls.clone(), waits(), false),
            (with(rolls), waits(), false),
        ] {
            let observed = Observed { groups, ..Observed::default() };
            let effects = notice(&mut rollout, &observed, NOW);
            assert_eq!(effects, if arms { &[Effect::ArmTick][..] } else { &[] }, "{rollout:?}");
        }
    }
}
