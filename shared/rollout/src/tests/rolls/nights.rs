//! Sequences of events that an operator of Auto Scaling and etcd has seen at night.

use super::*;
use crate::nodes::Task;

fn surging() -> RolloutPolicy {
    RolloutPolicy { surge: CountOrPercent::Count(1), max_unavailable: CountOrPercent::Count(0), ..auto() }
}

#[test]
fn p6_no_worker_goes_for_one_that_was_to_come_first_and_that_nobody_asked_for() {
    let mut yard = Yard::new(&Size { workers: 1, ..SMALL }, Change::Machines, &is_worker, &surging());
    yard.deaf = true;
    (0..12).for_each(|_| yard.wake(None));
    let went = |yard: &Yard| yard.log.iter().any(|line| line.contains("drains") || line.contains("goes"));
    assert!(!went(&yard), "{:?}", yard.log);
    yard.deaf = false;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!((went(&yard), yard.groups["c-pool-a"].desired), (true, 1));
}

#[test]
fn p6_a_pool_with_weights_is_whole_only_when_its_units_are() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
    yard.launches = false;
    yard.wake(None);
    for step in &mut yard.state.active_mut().unwrap().nodes.steps {
        if let Task::Workers(workers) = &mut step.task {
            workers.weighted = true;
        }
    }
    assert_eq!(yard.run(), "failed", "{:?}", yard.log);
    let gone: Vec<&String> = yard.log.iter().filter(|line| line.contains("goes")).collect();
    assert_eq!(gone, ["pool-a.0 goes"], "its canary has no successor");
    assert!(yard.report.message.contains("it is not whole after 60 minutes"), "{}", yard.report.message);
}

#[test]
fn p7_what_fails_at_once_is_tried_again_only_after_minutes() {
    for (whom, role) in
        [(&is_member as Whom<'_>, "etcd-0"), (&is_controller, "controller"), (&is_worker, "pool-a")]
    {
        let mut yard = Yard::new(&SMALL, Change::Credentials, whom, &auto());
        // Its machine is gone, and its group shows that only four minutes later.
        yard.failing.insert("Slipway-Refresh", 1_000);
        let fails = |yard: &Yard| 1_000 - yard.failing["Slipway-Refresh"];
        while fails(&yard) == 0 {
            yard.wake(None);
        }
        (0..4).for_each(|_| yard.wake(None));
        assert!((1..=2).contains(&fails(&yard)), "{role}: {}", fails(&yard));
        assert!(yard.report.message.contains("retries in a few minutes"), "{}", yard.report.message);
        yard.failing.clear();
        assert_eq!(yard.run(), "succeeded", "{role}: {}", yard.report.message);
    }
    // But not forever.
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &auto());
    yard.failing.insert("Slipway-Refresh", 1_000);
    assert_eq!(yard.run(), "failed");
    assert_eq!(yard.failing["Slipway-Refresh"], 997);
}

#[test]
fn p7_several_workers_that_never_take_their_credentials_are_given_up() {
    let policy = RolloutPolicy { max_unavailable: CountOrPercent::Count(2), ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_worker, &policy);
    while !yard.log.iter().any(|line| line.contains("takes new")) {
        yard.wake(None);
    }
    yard.failing.insert("Slipway-Refresh", 1_000);
    assert_eq!(yard.run(), "failed", "{:?}", yard.log);
    assert!(yard.report.message.contains("refreshing pool-a.1 failed 3 times"), "{}", yard.report.message);
    assert_eq!(yard.failing["Slipway-Refresh"], 1_000 - 2 * 3);
}

#[test]
fn p6_drains_that_never_end_leave_room_for_others() {
    let size = Size { controllers: 1, workers: 5, ..SMALL };
    let mut yard = Yard::new(&size, Change::Machines, &|role| *role == Role::Etcd(0), &auto());
    for number in 0..5 {
        let id = format!("pool-a.{number}");
        if number < 4 {
            yard.stuck.insert(id.clone());
        }
        let group = yard.groups.get_mut("c-pool-a").unwrap();
        group.machines.get_mut(&id).unwrap().lifecycle = Lifecycle::TerminatingWait;
    }
    (0..30).for_each(|_| yard.wake(None));
    assert!(yard.log.contains(&"pool-a.4 is let go".to_owned()), "{:?}", yard.log);
    // Each of the others had its turns.
    for number in 0..4 {
        let drains = format!("controller.0 drains pool-a.{number}");
        assert!(yard.log.iter().filter(|line| **line == drains).count() >= 2, "{drains}: {:?}", yard.log);
    }
}

#[test]
fn p10_a_machine_that_cannot_be_told_to_take_pods_again_is_told_until_it_does() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
    yard.stuck.insert("pool-a.0".to_owned());
    (0..10).for_each(|_| yard.wake(None));
    yard.failing.insert("Slipway-Uncordon", 60);
    yard.wake(Some(Order::Abort { plan: None }));
    (0..120).for_each(|_| yard.wake(None));
    assert!(yard.state.active().is_none() && !yard.state.departures.is_empty(), "it is not forgotten");
    let words = "pool-a.0 stays cordoned, because uncordoning it failed (it does not want to)";
    assert!(yard.report.message.contains(words), "{}", yard.report.message);
    // Where the agent is: it is not in anybody's `PATH` (docs/runbook.md).
    let cure = "run `/var/lib/slipway/slipway-node uncordon pool-a.0` on a controller";
    assert!(yard.report.message.contains(cure), "{}", yard.report.message);
    assert!(yard.failing["Slipway-Uncordon"] > 15, "hours later it is tried less often");
    (0..300).for_each(|_| yard.wake(None));
    assert_eq!(yard.log.last().unwrap(), "pool-a.0 takes pods again");
    assert!(yard.state.departures.is_empty());
}

/// A window that opens in the 10th minute of the roll for `length` minutes, once a day.
fn in_ten_minutes(length: u16) -> RolloutPolicy {
    let start_minute = (minute_of_day(1_000_000) + 10) % 1_440;
    let window = MaintenanceWindow { days: Vec::new(), start_minute, length_min: length };
    RolloutPolicy { windows: vec![window], ..auto() }
}

#[test]
fn p4_a_machine_that_dies_while_a_window_is_waited_for_has_an_hour_to_be_replaced() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &|role| *role == Role::Etcd(0), &in_ten_minutes(30));
    // The day's window is over before the roll begins.
    yard.now += 60 * 60;
    (0..180).for_each(|_| yard.wake(None));
    assert!(yard.report.message.contains("window"), "{}", yard.report.message);
    yard.boots = 20;
    let group = yard.groups.get_mut("c-etcd-0").unwrap();
    group.machines.get_mut("etcd-0.0").unwrap().lifecycle = Lifecycle::Terminating;
    (0..15).for_each(|_| yard.wake(None));
    assert_eq!(yard.report.state.as_str(), "running", "{}", yard.report.message);
    // The machine that Auto Scaling launched for it is as planned already.
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(!yard.log.iter().any(|line| line.contains("goes")), "{:?}", yard.log);
}

#[test]
fn p5_a_controller_that_was_drained_within_a_window_goes_after_it() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &in_ten_minutes(10));
    yard.stuck.insert("controller.0".to_owned());
    (0..25).for_each(|_| yard.wake(None));
    assert!(yard.log.contains(&"controller.1 drains controller.0".to_owned()), "{:?}", yard.log);
    yard.stuck.clear();
    (0..20).for_each(|_| yard.wake(None));
    assert!(yard.log.contains(&"controller.0 goes, and none comes".to_owned()), "{:?}", yard.log);
    // The next one begins in the next window.
    assert!(!yard.log.iter().any(|line| line.contains("drains controller.1")), "{:?}", yard.log);
}

#[test]
fn p6_one_too_many_that_auto_scaling_takes_down_itself_leaves_one_too_many() {
    let mut yard = Yard::new(&Size { workers: 2, ..SMALL }, Change::Machines, &is_worker, &surging());
    let id = yard.drains_one_too_many();
    let group = yard.groups.get_mut("c-pool-a").unwrap();
    group.machines.get_mut(&id).unwrap().lifecycle = Lifecycle::TerminatingWait;
    yard.wake(None);
    yard.stuck.clear();
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.groups["c-pool-a"].desired, 2, "{:?}", yard.log);
}

/// If a late answer does not show the controller that is being drained, the drain must not be forgotten: the node would be cordoned after
/// it was uncordoned.
#[test]
fn p10_a_controller_that_one_late_answer_does_not_show_takes_pods_again_after_its_drain() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &auto());
    let drains = |yard: &Yard| yard.log.iter().any(|line| line.contains("drains controller.0"));
    while !drains(&yard) {
        yard.wake(None);
    }
    let shows = |yard: &mut Yard, lifecycle| {
        let group = yard.groups.get_mut("c-control-plane").unwrap();
        group.machines.get_mut("controller.0").unwrap().lifecycle = lifecycle;
    };
    shows(&mut yard, Lifecycle::Pending);
    yard.answers.retain(|_, answer| !matches!(answer, CommandView::Answered(Answer::Drain(_))));
    yard.wake(None);
    shows(&mut yard, Lifecycle::InService);
    let sent = yard.state.departures.get("controller.0").and_then(|one| one.command());
    assert!(sent.is_some_and(|sent| matches!(sent.command.verb, Verb::Drain { .. })), "{:?}", yard.log);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
}

/// P7, P10: a failed one is tried again once its certificates expire soon, and an aborted one never. Before that only what is urgent begins after an abort.
#[test]
fn p7_p10_a_renewal_of_what_runs_begins_after_another_rollout_as_that_has_ended() {
    let renews = |role: &Role| !is_worker(role);
    let now = Timestamp::from_second(1_000_000).unwrap();
    let (soon, later) = (10, 24 * 30);
    let ended_ago = |hours: i64| now - jiff::SignedDuration::from_hours(hours);
    for (result, is_same, hours_ago, in_hours, begins) in [
        (RolloutResult::Failed, true, 12, soon, true),
        (RolloutResult::Failed, true, 11, soon, false),
        (RolloutResult::Failed, true, 12, later, false),
        (RolloutResult::Failed, false, 0, later, true),
        (RolloutResult::Aborted, true, 100, soon, false),
        (RolloutResult::Aborted, false, 0, soon, true),
        (RolloutResult::Aborted, false, 100, later, false),
        (RolloutResult::Succeeded, false, 0, later, true),
        (RolloutResult::Superseded, false, 0, later, true),
    ] {
        let mut yard = Yard::new(&SMALL, Change::Credentials, &renews, &auto()).ends_in(in_hours);
        yard.wanted.plan.left_behind = Some(BTreeMap::new());
        let last = Ended {
            plan: "another".to_owned(),
            spec_version: "another".to_owned(),
            target: "another".to_owned(),
            of_what_runs: is_same,
            result,
            message: String::new(),
            ended_at: ended_ago(hours_ago),
            steps: Vec::new(),
            unserved: false,
        };
        let stopped = StoppedRenewal {
            spec_version: "another".to_owned(),
            changes: yard.wanted.release.id_without_credentials(),
            aborted: result == RolloutResult::Aborted,
            at: ended_ago(hours_ago),
        };
        let stopped_renewal = is_same.then_some(stopped);
        let state = Rollout { last: Some(last), stopped_renewal, ..yard.state.clone() };
        let (desired, plan, release) = (&yard.wanted.desired, &yard.wanted.plan, &yard.wanted.release);
        let what = format!("{result:?}, the same: {is_same}, {hours_ago} h ago, expires in {in_hours} h");
        assert_eq!(state.may_renew(desired, plan, release, now), begins, "{what}");
        let observed = Observed { desired: Some(yard.wanted.clone()), ..Observed::default() };
        assert_eq!(decide(&state, &observed, now).next.active().is_some(), begins, "{what}");
    }
}

/// What a renewal leaves behind is still unfinished when it is over, and no spec that can be gone back to.
#[test]
fn p7_what_a_renewal_of_what_runs_leaves_behind_stays_unfinished() {
    for leaves in [false, true] {
        let renews = |role: &Role| !is_worker(role);
        let mut yard = Yard::new(&SMALL, Change::Credentials, &renews, &auto());
        let (worker, releases) = (Role::Pool("a".to_owned()), BTreeSet::from(["before".to_owned()]));
        let behind = BTreeMap::from([(worker, releases)]);
        let behind = if leaves { behind } else { BTreeMap::new() };
        yard.state.earlier.clone_from(&behind);
        yard.wanted.plan.earlier.clone_from(&behind);
        yard.wanted.plan.left_behind = Some(behind.clone());
        let good = yard.state.rollback_targets.clone();
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        assert_eq!(yard.state.earlier, behind);
        assert_eq!(yard.state.rollback_targets == good, leaves, "{:?}", yard.state.rollback_targets);
    }
}

/// P10: an upload that was stopped does not begin again with other credentials, and does with another configuration.
#[test]
fn p10_an_upload_that_was_aborted_or_failed_begins_again_only_if_it_changes_something_else() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
    yard.wake(None);
    yard.wake(Some(Order::Abort { plan: None }));
    assert_eq!(yard.run(), "aborted", "{}", yard.report.message);
    let aborted = yard.wanted.release.clone();
    let none =
        |release: &Rendering| release.roles.keys().map(|role| (role.clone(), "k9".to_owned())).collect();
    let renewed = aborted.clone().with_credentials(&none(&aborted));
    assert_ne!(renewed.id(), aborted.id());
    let version = yard.wanted.desired.spec_version.clone();
    let mut patched = renewed.clone();
    patched.roles.values_mut().for_each(|node| node.config_digest = "patched".to_owned());
    yard.uploads(renewed, &version, &auto());
    yard.wake(None);
    assert!(yard.state.active().is_none(), "{}", yard.report.message);
    yard.uploads(patched, &version, &auto());
    yard.wake(None);
    assert!(yard.state.active().is_some(), "{}", yard.report.message);
}

/// A stage of a rotation, or a renewal, of an upload whose rollout failed or was aborted.
#[test]
fn p7_p10_a_plan_that_only_brings_credentials_is_held_up_by_its_own_abort_alone() {
    let mut yard = Yard::new(&SMALL, Change::Credentials, &|_| true, &auto());
    assert!(yard.wanted.plan.brings_credentials, "{}", yard.wanted.plan.to_text());
    let (version, changes) =
        (yard.wanted.desired.spec_version.clone(), yard.wanted.release.id_without_credentials());
    let now = Timestamp::from_second(yard.now).unwrap();
    let renewal = |spec_version: &str, aborted| {
        let spec_version = spec_version.to_owned();
        Some(StoppedRenewal { spec_version, changes: changes.clone(), aborted, at: now })
    };
    yard.state.stopped = Some(Stopped { spec_version: version.clone(), changes: changes.clone() });
    for (stopped_renewal, begins) in [
        (None, true),
        (renewal(&version, false), true),
        (renewal(&version, true), false),
        (renewal("v9", true), true),
    ] {
        let what = format!("{stopped_renewal:?}");
        let state = Rollout { stopped_renewal, ..yard.state.clone() };
        let observed = Observed { desired: Some(yard.wanted.clone()), ..Observed::default() };
        assert_eq!(decide(&state, &observed, now).next.active().is_some(), begins, "{what}");
    }
}

/// The state knows of which upload each deployed release is, and which renewal a person aborted, until something else begins.
#[test]
fn p7_p10_what_a_rollout_was_of_is_known_when_others_have_failed_since() {
    let renews = |role: &Role| !is_worker(role);
    let mut yard = Yard::new(&SMALL, Change::Credentials, &renews, &auto());
    let (plan, target) = (yard.wanted.plan.id.clone(), yard.wanted.plan.to.clone());
    yard.wake(None);
    yard.wake(Some(Order::Abort { plan: None }));
    assert_eq!(yard.run(), "aborted", "{}", yard.report.message);
    let aborted = yard.state.stopped_renewal.clone();
    assert!(aborted.as_ref().is_some_and(|stopped| stopped.aborted), "{aborted:?}");
    assert_eq!((&yard.state.uploads[&target].plan, &yard.state.stopped), (&plan, &None));
    // An upload that is refused has not begun.
    let patched = release(&SMALL, Some((Change::Machines, &is_worker)));
    yard.uploads(patched.clone(), "v8", &auto());
    yard.wanted.plan.objections = vec!["a minor release back".to_owned()];
    yard.wake(None);
    assert!(yard.last_is(RolloutResult::Failed), "{}", yard.report.message);
    assert_eq!(yard.state.stopped_renewal, aborted);
    yard.uploads(patched, "v9", &auto());
    yard.wake(None);
    assert!(yard.state.active().is_some(), "{}", yard.report.message);
    assert_eq!(yard.state.stopped_renewal, None);
}
