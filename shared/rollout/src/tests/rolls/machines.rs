//! Controllers and workers.

use super::*;
use slipway_core::node::{HowUnanswered, Unanswered};

#[test]
fn p5_one_more_controller_comes_before_one_is_drained_and_goes() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "c-control-plane wants 3",
        "controller.1 drains controller.0",
        "controller.0 goes, and none comes",
        "c-control-plane wants 3",
        "controller.new2 drains controller.1",
        "controller.1 goes, and none comes",
    ];
    assert_eq!(yard.in_order(), log);
    assert_eq!(yard.groups["c-control-plane"].desired, 2);

    let one = Size { controllers: 1, ..SMALL };
    let mut yard = Yard::new(&one, Change::Machines, &is_controller, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "c-control-plane wants 2",
        "controller.new1 drains controller.0",
        "controller.0 goes, and none comes",
    ];
    assert_eq!(yard.in_order(), log);
}

/// A target is healthy only after several health checks, and until then the load balancer of a single controller has no target.
#[test]
fn p5_no_controller_goes_before_all_that_stay_are_healthy_targets() {
    let is_down = |line: &str| line.contains("goes") || line.contains("restarts");
    for (controllers, change) in
        [(1, Change::Machines), (2, Change::Machines), (2, Change::Credentials), (1, Change::Credentials)]
    {
        let size = Size { controllers, ..SMALL };
        let mut yard = Yard { checks: 4, ..Yard::new(&size, change, &is_controller, &auto()) };
        let mut waited = false;
        for _ in 0..200 {
            let before: BTreeSet<String> = yard.targets("c-control-plane");
            let done = yard.log.len();
            yard.wake(None);
            for line in yard.log[done..].iter().filter(|line| is_down(line)) {
                let goes = line.split(' ').next().unwrap();
                let stay = yard.groups["c-control-plane"].machines.iter();
                let mut stay = stay.filter(|(id, one)| *id != goes && one.lifecycle == Lifecycle::InService);
                assert!(stay.all(|(id, _)| before.contains(id)), "{line}: {before:?}");
            }
            waited |= yard
                .report
                .message
                .contains("is not a healthy target: initial (Elb.InitialHealthChecking) in c-api");
            if yard.state.active().is_none() {
                break;
            }
        }
        assert_eq!(yard.report.state.as_str(), "succeeded", "{}", yard.report.message);
        // At the end all controllers in service are healthy targets.
        assert_eq!(yard.targets("c-control-plane").len(), controllers as usize);
        assert_eq!(waited, change == Change::Machines || controllers > 1, "{controllers}");
    }
}

#[test]
fn of_the_controllers_group_alone_and_while_nothing_has_expired_the_health_of_targets_is_asked_for() {
    let sent = |change, whom: Whom<'_>, hours: i64| {
        let mut yard = Yard::new(&SMALL, change, whom, &auto()).ends_in(hours);
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        yard.targets_asked.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(sent(Change::Machines, &is_controller, 1_000), ["c-control-plane"]);
    assert_eq!(sent(Change::Credentials, &is_controller, 1), ["c-control-plane"]);
    assert_eq!(sent(Change::Credentials, &is_controller, -1), [""; 0]);
    assert_eq!(sent(Change::Machines, &is_worker, 1_000), [""; 0]);
    assert_eq!(sent(Change::Machines, &is_member, 1_000), [""; 0]);
}

#[test]
fn p5_a_controller_that_its_load_balancer_never_takes_for_healthy_ends_it_and_none_goes() {
    for size in [SMALL, Size { controllers: 1, ..SMALL }] {
        let mut yard = Yard { checks: 10_000, ..Yard::new(&size, Change::Machines, &is_controller, &auto()) };
        assert_eq!(yard.run(), "failed");
        let why = "controller.new1 is not a healthy target: initial (Elb.InitialHealthChecking) in c-api";
        assert!(yard.report.message.contains(why), "{}", yard.report.message);
        assert!(!yard.log.iter().any(|line| line.contains("goes")), "{:?}", yard.log);
    }
    // If certificates have expired, other controllers are neither waited for nor asked.
    let expired = Yard::new(&SMALL, Change::Credentials, &is_controller, &auto()).ends_in(-1);
    let mut yard = Yard { checks: 10_000, ..expired };
    (0..20).for_each(|_| yard.wake(None));
    assert_eq!(yard.in_order(), ["controller.0 takes new, restarts", "controller.1 takes new, restarts"]);
    assert_eq!(yard.report.state.as_str(), "succeeded", "{}", yard.report.message);
}

#[test]
fn p5_controllers_take_credentials_one_after_the_other_and_a_single_one_is_not_started_anew() {
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_controller, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["controller.0 takes new, restarts", "controller.1 takes new, restarts"]);
    let one = Size { controllers: 1, ..SMALL };
    let mut yard = Yard::new(&one, Change::Credentials, &is_controller, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["controller.0 takes new"]);
    // A controller that does not answer blocks the others, and the rollout fails.
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_controller, &auto());
    yard.silent.insert("controller.1".to_owned());
    assert_eq!(yard.run(), "failed");
    assert!(yard.report.message.contains("controller.1 does not answer"), "{}", yard.report.message);
    assert_eq!(yard.in_order(), [""; 0]);
    for failing in [2, 3] {
        let mut yard = Yard::new(&SMALL, Change::Credentials, &is_controller, &auto());
        yard.failing.insert("Slipway-Refresh", failing);
        let ends = if failing < 3 { "succeeded" } else { "failed" };
        assert_eq!(yard.run(), ends, "{failing}: {}", yard.report.message);
    }
}

#[test]
fn p5_a_controller_that_does_not_come_or_cannot_be_drained_ends_it_and_none_goes() {
    let mut yard = Yard { boots: 10_000, ..Yard::new(&SMALL, Change::Machines, &is_controller, &auto()) };
    assert_eq!(yard.run(), "failed");
    let why = "no new controller came within 60 minutes";
    assert!(yard.report.message.contains(why), "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["c-control-plane wants 3"]);

    let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &auto());
    yard.stuck.insert("controller.0".to_owned());
    (0..15).for_each(|_| yard.wake(None));
    yard.pace = 10;
    assert_eq!(yard.run(), "failed");
    assert!(yard.report.message.contains("controller.0 could not be drained"), "{}", yard.report.message);
    assert!(yard.report.message.contains("shop/app: its budget"), "{}", yard.report.message);
    assert!(!yard.log.iter().any(|line| line.contains("goes")), "{:?}", yard.log);
    assert_eq!(yard.log.last().unwrap(), "controller.0 takes pods again");
}

#[test]
fn p6_workers_go_as_many_at_once_as_may_be_missing_and_the_first_alone() {
    let five = Size { workers: 5, ..SMALL };
    let wide = RolloutPolicy { max_unavailable: CountOrPercent::Count(2), ..auto() };
    let mut yard = Yard::new(&five, Change::Machines, &is_worker, &wide);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let goes = |log: &[String]| -> Vec<String> {
        log.iter().filter(|line| line.contains(" drains ") || line.ends_with(" goes")).cloned().collect()
    };
    let log = [
        "controller.0 drains pool-a.0",
        "pool-a.0 goes",
        "controller.1 drains pool-a.1",
        "controller.0 drains pool-a.2",
        "pool-a.1 goes",
        "pool-a.2 goes",
        "controller.1 drains pool-a.3",
        "controller.0 drains pool-a.4",
        "pool-a.3 goes",
        "pool-a.4 goes",
    ];
    assert_eq!(goes(&yard.log), log);
    let mut yard = Yard::new(&five, Change::Credentials, &is_worker, &wide);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let taken: Vec<&str> = yard.in_order();
    assert_eq!(taken.len(), 5, "{taken:?}");
    assert!(taken.iter().all(|line| line.ends_with("takes new, restarts")), "{taken:?}");
}

#[test]
fn p6_where_none_may_be_missing_more_come_first_and_as_many_go_in_the_end() {
    let five = Size { workers: 5, ..SMALL };
    let none = RolloutPolicy {
        max_unavailable: CountOrPercent::Count(0),
        surge: CountOrPercent::Count(2),
        ..auto()
    };
    let mut yard = Yard::new(&five, Change::Machines, &is_worker, &none);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let leaves =
        |line: &&str| ["let go", "drained again", "waited for"].iter().any(|what| line.contains(what));
    let changes: Vec<&str> = yard.in_order().into_iter().filter(|line| !leaves(line)).collect();
    assert_eq!(
        changes,
        [
            "c-pool-a wants 6",
            "controller.0 drains pool-a.0",
            "pool-a.0 goes",
            "c-pool-a wants 7",
            "controller.1 drains pool-a.1",
            "pool-a.1 goes",
            "controller.0 drains pool-a.2",
            "pool-a.2 goes",
            "controller.1 drains pool-a.3",
            "pool-a.3 goes, and none comes",
            "controller.0 drains pool-a.4",
            "pool-a.4 goes, and none comes",
        ]
    );
    assert_eq!((yard.groups["c-pool-a"].desired, yard.groups["c-pool-a"].machines.len()), (5, 5));
}

#[test]
fn p6_a_worker_that_cannot_be_emptied_stays_and_takes_pods_again() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
    yard.stuck.insert("pool-a.0".to_owned());
    yard.pace = 10;
    (0..60).for_each(|_| yard.wake(None));
    assert!(yard.report.message.contains("drains pool-a.0, which waits for shop/app: its budget"));
    assert_eq!(yard.run(), "failed");
    assert!(
        yard.report.message.contains("pool-a.0 could not be drained within 24 hours"),
        "{}",
        yard.report.message
    );
    assert!(!yard.log.iter().any(|line| line.contains("goes")), "{:?}", yard.log.last());
    assert_eq!(yard.log.last().unwrap(), "pool-a.0 takes pods again");
    // After the canary, as many workers may fail as the failure budget allows.
    let lenient = RolloutPolicy { failure_budget: 1, ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &lenient);
    yard.stuck.insert("pool-a.1".to_owned());
    yard.pace = 10;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(
        yard.log.contains(&"pool-a.2 goes".to_owned()) && !yard.log.contains(&"pool-a.1 goes".to_owned())
    );
    let strict = RolloutPolicy { failure_budget: 0, ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &strict);
    yard.stuck.insert("pool-a.1".to_owned());
    yard.pace = 10;
    assert_eq!(yard.run(), "failed");
    assert!(!yard.log.contains(&"pool-a.2 goes".to_owned()));
    // A third failure is no coincidence.
    for failing in [2, 3] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
        yard.failing.insert("Slipway-Drain", failing);
        assert_eq!(yard.run(), if failing < 3 { "succeeded" } else { "failed" }, "{}", yard.report.message);
    }
}

#[test]
fn p6_a_worker_that_auto_scaling_takes_down_is_drained_kept_alive_and_let_go() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &|role| *role == Role::Etcd(0), &auto());
    yard.stuck.insert("pool-a.2".to_owned());
    yard.groups.get_mut("c-pool-a").unwrap().machines.get_mut("pool-a.2").unwrap().lifecycle =
        Lifecycle::TerminatingWait;
    (0..45).for_each(|_| yard.wake(None));
    let kept = yard.log.iter().filter(|line| *line == "pool-a.2 is waited for").count();
    assert!((4..=5).contains(&kept), "{kept}: {:?}", yard.log);
    assert!(!yard.log.contains(&"pool-a.2 is let go".to_owned()));
    yard.stuck.clear();
    (0..12).for_each(|_| yard.wake(None));
    assert!(yard.log.contains(&"pool-a.2 is let go".to_owned()), "{:?}", yard.log);
    assert!(yard.state.departures.is_empty() && !yard.log.contains(&"pool-a.2 goes".to_owned()));
}

/// Auto Scaling's answers may be late: if an answer showed a machine in its hook as in service, its drain was forgotten and requested
/// again.
#[test]
fn p8_a_worker_in_its_terminate_hook_is_not_forgotten_for_one_late_answer() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &|role| *role == Role::Etcd(0), &auto());
    yard.stuck.insert("pool-a.2".to_owned());
    let is_known = |yard: &mut Yard, lifecycle| {
        yard.groups.get_mut("c-pool-a").unwrap().machines.get_mut("pool-a.2").unwrap().lifecycle = lifecycle;
        yard.wake(None);
        yard.state.departures.contains_key("pool-a.2")
    };
    assert!(is_known(&mut yard, Lifecycle::TerminatingWait));
    assert!(is_known(&mut yard, Lifecycle::InService), "one answer may be late");
    assert!(is_known(&mut yard, Lifecycle::TerminatingWait));
    // If it is still so after minutes, it is true.
    let known: Vec<bool> = (0..3).map(|_| is_known(&mut yard, Lifecycle::InService)).collect();
    assert_eq!(known.last(), Some(&false), "{known:?}");
}

#[test]
fn p6_a_machine_more_that_a_failed_roll_left_is_taken_away_by_the_next() {
    let five = Size { workers: 5, ..SMALL };
    let surging = RolloutPolicy { surge: CountOrPercent::Count(1), ..auto() };
    let mut yard = Yard::new(&five, Change::Machines, &is_worker, &surging);
    yard.stuck.insert("pool-a.0".to_owned());
    yard.pace = 10;
    assert_eq!(yard.run(), "failed");
    let words = "pool-a has 1 machine more than planned, until it is rolled again";
    assert!(yard.report.message.contains(words), "{}", yard.report.message);
    assert_eq!(yard.groups["c-pool-a"].desired, 6);
    yard.stuck.clear();
    let wanted = yard.wanted.clone();
    let again =
        Wanted { desired: Desired { spec_version: "v3".to_owned(), ..wanted.desired.clone() }, ..wanted };
    yard.wanted = again;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.groups["c-pool-a"].desired, 5, "{:?}", yard.log);
}

/// Until a command is answered, no further one is sent.
fn nobody_answers(yard: &mut Yard, document: &str) {
    let sent = yard.state.departures.values().filter_map(|one| one.command());
    let tokens: Vec<String> = sent
        .filter(|one| one.command.verb.document() == document)
        .map(|one| one.command.token.clone())
        .collect();
    for token in tokens {
        yard.answers.insert(token, CommandView::InProgress);
    }
}

#[test]
fn p6_one_controller_runs_three_drains_at_a_time_and_all_of_them_twenty() {
    for (controllers, in_all) in [(1, 3), (2, 6), (8, 20)] {
        let size = Size { controllers, workers: 30, ..SMALL };
        let mut yard = Yard::new(&size, Change::Machines, &|role| *role == Role::Etcd(0), &auto());
        let workers = yard.groups.get_mut("c-pool-a").unwrap().machines.values_mut();
        workers.for_each(|one| one.lifecycle = Lifecycle::TerminatingWait);
        for _ in 0..8 {
            yard.wake(None);
            nobody_answers(&mut yard, "Slipway-Drain");
        }
        let of = |index| {
            let drains = format!("controller.{index} drains");
            yard.log.iter().filter(|line| line.starts_with(&drains)).count()
        };
        let each: Vec<usize> = (0..controllers).map(of).collect();
        assert!(each.iter().all(|drains| *drains <= 3), "{each:?}");
        assert_eq!(each.iter().sum::<usize>(), in_all, "{each:?}");
    }
}

#[test]
fn p10_one_controller_is_asked_to_have_one_machine_take_pods_again_at_a_time_whatever_it_drains() {
    let size = Size { workers: 10, ..SMALL };
    let wide = RolloutPolicy { max_unavailable: CountOrPercent::Count(6), ..auto() };
    let mut yard = Yard::new(&size, Change::Machines, &is_worker, &wide);
    while yard.state.departures.len() < 6 {
        yard.wake(None);
        let proved = yard.log.iter().any(|line| line == "pool-a.0 goes");
        yard.stuck.extend((1..10).filter(|_| proved).map(|index| format!("pool-a.{index}")));
    }
    let uncordons = |yard: &Yard| yard.log.iter().filter(|line| line.contains("takes pods again")).count();
    for minute in 0..5 {
        yard.wake((minute == 0).then_some(Order::Abort { plan: None }));
        nobody_answers(&mut yard, "Slipway-Uncordon");
    }
    assert_eq!(uncordons(&yard), 2, "one command per controller: {:?}", yard.log);
}

#[test]
fn p6_a_drain_that_run_command_never_delivered_is_no_try() {
    for (how, ends) in [(HowUnanswered::Undelivered, "succeeded"), (HowUnanswered::Failed, "failed")] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
        let mut lost = 0;
        for _ in 0..60 {
            yard.wake(None);
            let sent = yard.state.departures.values().filter_map(|one| one.command());
            let drains = sent.filter(|one| matches!(one.command.verb, Verb::Drain { .. }));
            let tokens: Vec<String> = drains.map(|one| one.command.token.clone()).collect();
            for token in tokens.into_iter().take(8usize.saturating_sub(lost)) {
                lost += 1;
                let view = Unanswered { how, problem: None };
                yard.answers.insert(token, CommandView::Unanswered(view));
            }
        }
        if yard.state.active().is_some() {
            yard.run();
        }
        let last = yard.state.last.as_ref().unwrap();
        assert_eq!(RolloutState::from(last.result).as_str(), ends, "{}", last.message);
        assert!(lost >= 3, "{lost}");
    }
}
