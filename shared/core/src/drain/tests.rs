//! What a drain does and does not do.
#![allow(clippy::unwrap_used, reason = "tests")]

mod always;

use super::*;
use crate::cluster::{Approval, CountOrPercent, PoolRollout, RolloutPolicy};

pub(super) const HOUR: i64 = 3600;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

pub(super) fn named(name: &str) -> ObjectName {
    ObjectName::new("shop", name)
}

pub(super) fn pod(name: &str) -> Pod {
    Pod {
        name: named(name),
        uid: format!("uid-{name}"),
        owner: Owner::Controller,
        created: at(-100 * HOUR),
        finished: false,
        terminating: None,
        empty_dir: false,
        tolerates_cordon: false,
        budgets: BTreeSet::new(),
    }
}

pub(super) fn cordoned() -> NodeState {
    NodeState { cordoned: true, started: Some(at(0)), ..NodeState::default() }
}

fn observed(pods: Vec<Pod>) -> Observed {
    Observed { node: cordoned(), pods, ..Observed::default() }
}

fn six_hours() -> Policy {
    Policy::with(Some(Force::after(SignedDuration::from_hours(6))))
}

fn gentle() -> Policy {
    Policy::with(None)
}

fn sibling(name: &str, healthy: bool, since: Timestamp) -> Sibling {
    Sibling { name: named(name), healthy, since }
}

/// `web-0` on the node, refused at `refused`, beside two siblings elsewhere.
fn refused(refused: Timestamp) -> Observed {
    let mut world = observed(vec![Pod { budgets: [named("web")].into(), ..pod("web-0") }]);
    let pods = vec![
        sibling("web-0", true, at(-100 * HOUR)),
        sibling("web-1", true, at(-100 * HOUR)),
        sibling("web-2", false, at(-100 * HOUR)),
    ];
    world.budgets.insert(named("web"), Budget { allowed: 0, pods });
    world.tries.insert("uid-web-0".to_owned(), Try { at: refused, count: 9, answer: Answer::Budget });
    world
}

#[test]
fn a_drain_begins_by_cordoning_and_touches_nothing_before() {
    let mut world = observed(vec![pod("a")]);
    for node in [
        NodeState::default(),
        NodeState { cordoned: false, ..cordoned() },
        NodeState { started: None, ..cordoned() },
    ] {
        world.node = node;
        let step = decide(&world, &gentle(), at(1));
        assert!(step.begin && !step.done && step.evict.is_empty() && step.force.is_none(), "{step:?}");
    }
    // Not even an empty node is done before nothing new can come.
    world.pods.clear();
    world.node = NodeState::default();
    assert!(!decide(&world, &gentle(), at(1)).done);
}

#[test]
fn what_would_come_back_here_stays_and_the_rest_goes() {
    let world = observed(vec![
        Pod { owner: Owner::DaemonSet, ..pod("a") },
        Pod { owner: Owner::Kubelet, ..pod("b") },
        Pod { finished: true, ..pod("c") },
        Pod { tolerates_cordon: true, created: at(5), ..pod("d") },
        Pod { tolerates_cordon: true, ..pod("e") },
        Pod { owner: Owner::Nobody, empty_dir: true, ..pod("f") },
    ]);
    let step = decide(&world, &gentle(), at(10));
    let stays: Vec<_> = step.skipped.iter().map(|skipped| skipped.why).collect();
    assert_eq!(stays, [Stays::DaemonSet, Stays::Mirror, Stays::Finished, Stays::Returns]);
    let evicted: Vec<_> = step.evict.iter().map(|target| target.name.name.as_str()).collect();
    assert_eq!(evicted, ["e", "f"]);
    assert!(!step.done);
}

/// Otherwise the drain of a machine that hangs would end only with the machine.
#[test]
fn p6_a_pod_that_was_asked_to_go_is_not_waited_for_once_its_kubelet_has_been_silent_for_five_minutes() {
    let with = |terminating: Option<i64>, silent: Option<i64>| {
        let mut world = observed(vec![Pod { terminating: terminating.map(at), ..pod("a") }]);
        world.node.silent = silent.map(at);
        decide(&world, &gentle(), at(1000))
    };
    let gone = with(Some(700), Some(700));
    assert!(gone.done && gone.skipped[0].why == Stays::Silent, "{gone:?}");
    // It may still be on its way, or its kubelet may speak again.
    for (terminating, silent) in
        [(Some(701), Some(0)), (Some(0), Some(701)), (Some(0), None), (Some(1030), Some(0))]
    {
        let waits = with(terminating, silent);
        assert_eq!(waits.waiting[0].cause, Cause::Terminating, "{terminating:?} {silent:?}");
    }
    // Its budget is asked all the same.
    assert_eq!(with(None, Some(0)).evict.len(), 1);
}

/// A kubelet whose container runtime hangs speaks for ever, and stops nothing (kubernetes/kubernetes 75065, 93925).
#[test]
fn p6_a_pod_that_was_asked_to_go_is_not_waited_for_once_its_kubelet_could_run_no_pods_for_a_quarter_of_an_hour()
 {
    let with = |terminating: Option<i64>, unable: Option<i64>| {
        let mut world = observed(vec![Pod { terminating: terminating.map(at), ..pod("a") }]);
        world.node.unable = unable.map(at);
        decide(&world, &gentle(), at(1000))
    };
    let gone = with(Some(700), Some(100));
    assert!(gone.done && gone.skipped[0].why == Stays::Unable, "{gone:?}");
    // Its grace period may be long, or its runtime may only be slow.
    for (terminating, unable) in
        [(Some(701), Some(0)), (Some(0), Some(101)), (Some(0), None), (Some(1030), Some(0))]
    {
        let waits = with(terminating, unable);
        assert_eq!(waits.waiting[0].cause, Cause::Terminating, "{terminating:?} {unable:?}");
    }
    // It is asked to go first, and its budget is asked for that.
    assert_eq!(with(None, Some(0)).evict.len(), 1);
}

#[test]
fn a_pod_made_in_the_second_in_which_the_drain_began_is_evicted() {
    // Kubernetes counts whole seconds: this pod may be from before the cordon. If it comes back, it is younger.
    let mut world = observed(vec![Pod { tolerates_cordon: true, created: at(0), ..pod("a") }]);
    assert_eq!(decide(&world, &gentle(), at(10)).evict.len(), 1);
    world.pods[0].created = at(1);
    assert_eq!(decide(&world, &gentle(), at(10)).skipped[0].why, Stays::Returns);
}

#[test]
fn a_drain_looks_again_after_a_second_if_it_asked_for_something_and_after_five_if_it_only_waits() {
    let pause = |step: Step, now: Timestamp| step.look_again.unwrap().duration_since(now).as_secs();
    let evicts = decide(&observed(vec![pod("a")]), &gentle(), at(10));
    assert!(!evicts.evict.is_empty() && evicts.force.is_none());
    assert_eq!(pause(evicts, at(10)), 1);
    let now = at(6 * HOUR);
    let forces = decide(&refused(now), &six_hours(), now);
    assert!(forces.evict.is_empty() && forces.force.is_some());
    assert_eq!(pause(forces, now), 1);
    let waits = decide(&refused(now), &gentle(), now);
    assert!(waits.evict.is_empty() && waits.force.is_none());
    assert_eq!(pause(waits, now), 5);
}

#[test]
fn pods_that_lose_something_wait_for_a_person_where_the_policy_says_so() {
    let policy = Policy { empty_dir: Treatment::Wait, bare: Treatment::Wait, ..six_hours() };
    let world = observed(vec![
        Pod { owner: Owner::Nobody, ..pod("bare") },
        Pod { empty_dir: true, ..pod("data") },
        Pod { owner: Owner::DaemonSet, empty_dir: true, ..pod("logs") },
    ]);
    let step = decide(&world, &policy, at(100 * HOUR));
    let causes: Vec<_> = step.waiting.iter().map(|waiting| waiting.cause).collect();
    assert_eq!(causes, [Cause::Bare, Cause::EmptyDir]);
    assert!(step.evict.is_empty() && step.force.is_none());
}

#[test]
fn a_refused_pod_is_asked_again_ever_more_seldom_and_at_once_when_its_budget_allows() {
    let seconds: Vec<_> = (1..8).map(|count| back_off(count).as_secs()).collect();
    assert_eq!(seconds, [5, 10, 20, 40, 80, 80, 80]);
    let mut world = refused(at(100));
    assert!(decide(&world, &gentle(), at(179)).evict.is_empty());
    assert_eq!(decide(&world, &gentle(), at(180)).evict.len(), 1);
    world.budgets.get_mut(&named("web")).unwrap().allowed = 1;
    assert!(decide(&world, &gentle(), at(104)).evict.is_empty());
    assert_eq!(decide(&world, &gentle(), at(105)).evict.len(), 1);
}

/// What differs, in words and in deed.
type Case<'c> = (&'static str, &'c dyn Fn(&mut Observed));

#[test]
fn p6_force_waits_until_every_rule_holds() {
    let now = at(6 * HOUR);
    let good = refused(now);
    let force = |world: &Observed| decide(world, &six_hours(), now).force;
    assert_eq!(force(&good).unwrap().name, named("web-0"));
    let cases: [Case<'_>; 10] = [
        ("the drain is younger", &|world| world.node.started = Some(at(1))),
        ("the pod is younger", &|world| world.pods[0].created = at(6 * HOUR - 72 * HOUR + 1)),
        ("a healthy sibling is new", &|world| {
            world.budgets.get_mut(&named("web")).unwrap().pods[1].since = at(5 * HOUR + 1);
        }),
        ("an unhealthy sibling is so only since", &|world| {
            world.budgets.get_mut(&named("web")).unwrap().pods[2].since = at(1);
        }),
        ("another was just forced", &|world| world.node.last_forced = Some(at(6 * HOUR - 299))),
        ("another will have been forced: clocks differ", &|world| {
            world.node.last_forced = Some(at(6 * HOUR + 1))
        }),
        ("nobody asked", &|world| world.tries.clear()),
        ("something else refused", &|world| {
            world.tries.get_mut("uid-web-0").unwrap().answer = Answer::Refused("a webhook".to_owned());
        }),
        ("the budget allows it now", &|world| world.budgets.get_mut(&named("web")).unwrap().allowed = 1),
        ("it terminates", &|world| world.pods[0].terminating = Some(now)),
    ];
    for (case, change) in cases {
        let mut world = good.clone();
        change(&mut world);
        assert_eq!(force(&world), None, "{case}");
    }
    assert_eq!(decide(&good, &gentle(), now).force, None, "the spec allows none");
    // Each of them holds at its very second.
    let mut world = good;
    world.pods[0].created = at(6 * HOUR - 72 * HOUR);
    world.budgets.get_mut(&named("web")).unwrap().pods[1].since = at(5 * HOUR);
    world.budgets.get_mut(&named("web")).unwrap().pods[2].since = at(0);
    world.node.last_forced = Some(at(6 * HOUR - 300));
    assert!(force(&world).is_some());
}

#[test]
fn p6_one_pod_at_a_time_is_forced() {
    let now = at(10 * HOUR);
    let mut world = refused(now);
    world.pods.push(Pod { budgets: [named("web")].into(), ..pod("web-1") });
    world.tries.insert("uid-web-1".to_owned(), Try { at: now, count: 1, answer: Answer::Budget });
    let step = decide(&world, &six_hours(), now);
    assert_eq!(step.force.unwrap().name, named("web-0"));
    assert!(step.waiting[1].why.ends_with("this one's turn comes later"), "{:?}", step.waiting);
}

#[test]
fn what_is_waited_for_is_said_in_words() {
    let said = |world: &Observed, policy: &Policy, now| {
        let step = decide(world, policy, now);
        step.waiting.into_iter().map(|waiting| waiting.why).collect::<Vec<_>>().join("\n")
    };
    let now = at(HOUR);
    let mut world = refused(now);
    insta::assert_snapshot!(said(&world, &gentle(), now), @"the disruption budget shop/web allows no eviction now: 2 of its 3 pods are healthy; the spec allows no force (rollout.drain.forceAfterMinutes)");
    world.pods[0].created = at(0);
    world.node.last_forced = Some(at(HOUR - 60));
    let late = (3..9).map(|n| sibling(&format!("web-{n}"), true, at(HOUR - 60)));
    world.budgets.get_mut(&named("web")).unwrap().pods.extend(late);
    insta::assert_snapshot!(said(&world, &six_hours(), now), @"the disruption budget shop/web allows no eviction now: 8 of its 9 pods are healthy; it may be deleted by force when all of these hold: the drain has lasted 6h (at 2023-11-15T04:13:20Z); it is 72h old (at 2023-11-17T22:13:20Z); shop/web-3 has been healthy for 1h (at 2023-11-15T00:12:20Z); shop/web-4 has been healthy for 1h (at 2023-11-15T00:12:20Z); shop/web-5 has been healthy for 1h (at 2023-11-15T00:12:20Z); no pod of the node has been deleted by force for 5m (at 2023-11-14T23:17:20Z); 3 more pods of the same disruption budget have been unchanged long enough");
    let mut world = refused(now);
    world.pods[0].budgets.insert(named("all"));
    world.tries.get_mut("uid-web-0").unwrap().answer = Answer::TwoBudgets;
    insta::assert_snapshot!(said(&world, &gentle(), now), @"2 disruption budgets select it (shop/all and shop/web), and Kubernetes evicts no such pod: let one of them not select it; the spec allows no force (rollout.drain.forceAfterMinutes)");
    let mut world = observed(vec![
        Pod { terminating: Some(at(HOUR + 30)), ..pod("a") },
        Pod { terminating: Some(at(HOUR - 90)), ..pod("b") },
        pod("c"),
    ]);
    let answer = Answer::Refused("admission webhook \"guard\" denied the request".to_owned());
    world.tries.insert("uid-c".to_owned(), Try { at: now, count: 1, answer });
    insta::assert_snapshot!(said(&world, &gentle(), now), @r#"
    it terminates, and has 30s left
    it should have been gone 1m 30s ago: its kubelet does not answer, or a finalizer holds it
    the API server refuses: admission webhook "guard" denied the request
    "#);
}

#[test]
fn siblings_beyond_the_third_are_counted_and_not_named_healthy_or_not() {
    let now = at(6 * HOUR);
    let said = |siblings: &[bool]| {
        let mut world = refused(now);
        let late = siblings.iter().enumerate();
        let late = late.map(|(n, healthy)| sibling(&format!("late-{n}"), *healthy, at(6 * HOUR - 60)));
        world.budgets.get_mut(&named("web")).unwrap().pods.extend(late);
        decide(&world, &six_hours(), now).waiting.remove(0).why
    };
    for healthy in [true, false] {
        // All three are named, so there is nothing to count.
        let three = said(&[healthy; 3]);
        assert!(three.contains("shop/late-2 has been") && !three.contains("more pods"), "{three}");
        let five = said(&[healthy; 5]);
        assert!(five.contains("shop/late-2 has been") && !five.contains("shop/late-3"), "{five}");
        assert!(
            five.ends_with("; 2 more pods of the same disruption budget have been unchanged long enough"),
            "{five}"
        );
    }
    // Both kinds count towards the three.
    let mixed = said(&[true, false, false, true]);
    assert!(mixed.contains("shop/late-2 has been unhealthy") && !mixed.contains("shop/late-3"), "{mixed}");
    assert!(
        mixed.ends_with("; 1 more pods of the same disruption budget have been unchanged long enough"),
        "{mixed}"
    );
}

#[test]
fn a_pod_that_terminates_is_late_only_after_the_second_in_which_it_should_be_gone() {
    let world = observed(vec![Pod { terminating: Some(at(30)), ..pod("a") }]);
    let said = |now| decide(&world, &gentle(), now).waiting.remove(0).why;
    assert_eq!(said(at(29)), "it terminates, and has 1s left");
    assert_eq!(said(at(30)), "it terminates, and has 0s left");
    assert!(said(at(31)).starts_with("it should have been gone 1s ago: "), "{}", said(at(31)));
}

#[test]
fn the_policy_is_the_specs_and_a_pools_own_comes_first() {
    let mut rollout = RolloutPolicy {
        approval: Approval::Auto,
        max_unavailable: CountOrPercent::Count(1),
        surge: CountOrPercent::Count(0),
        drain_force_after_min: None,
        failure_budget: 1,
        windows: Vec::new(),
        pools: BTreeMap::new(),
    };
    assert_eq!(Policy::from_rollout(&rollout, None), gentle());
    rollout.drain_force_after_min = Some(60);
    let own = PoolRollout { drain_force_after_min: Some(30), ..Default::default() };
    rollout.pools.insert("general".to_owned(), own);
    let minutes = |pool| Policy::from_rollout(&rollout, pool).force.unwrap().after.as_mins();
    assert_eq!((minutes(None), minutes(Some("general")), minutes(Some("batch"))), (60, 30, 60));
    let rules = Force::after(SignedDuration::from_hours(6));
    let hours =
        [rules.after, rules.pod_age, rules.healthy_for, rules.unhealthy_for].map(|long| long.as_hours());
    assert_eq!((hours, rules.interval.as_mins()), ([6, 72, 1, 6], 5));
}
