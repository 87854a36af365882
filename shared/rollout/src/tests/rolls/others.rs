//! Changes of groups by others: Auto Scaling balances zones, a cluster autoscaler sets sizes, and a group retains a worker that nobody
//! drained.

use super::*;

fn surging() -> RolloutPolicy {
    RolloutPolicy { surge: CountOrPercent::Count(1), max_unavailable: CountOrPercent::Count(0), ..auto() }
}

impl Yard {
    /// An additional machine of a group is in service that nobody requested.
    fn comes(&mut self, group: &str, id: &str, zone: &'static str) {
        let one =
            Machine { zone, lifecycle: Lifecycle::InService, current: true, until: None, target_from: 0 };
        self.groups.get_mut(group).unwrap().machines.insert(id.to_owned(), one);
    }

    /// The first machine that is drained.
    fn first_drained(&mut self) -> String {
        for _ in 0..60 {
            let drained = self.log.iter().find_map(|line| Some(line.split_once(" drains ")?.1.to_owned()));
            if let Some(id) = drained {
                return id;
            }
            self.wake(None);
        }
        panic!("nobody is drained: {}", self.report.message);
    }
}

#[test]
fn p5_a_controller_that_auto_scaling_launches_to_balance_zones_is_not_taken_for_the_one_more() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &auto());
    yard.deaf = true;
    yard.comes("c-control-plane", "controller.balancing", "b");
    (0..20).for_each(|_| yard.wake(None));
    let went = |yard: &Yard| yard.log.iter().any(|line| line.contains("drains") || line.contains("goes"));
    assert!(
        !went(&yard),
        "three serve and two are wanted, and Auto Scaling terminates one of them: {:?}",
        yard.log
    );
    // Its group removes it again. The requested machine is another one.
    yard.deaf = false;
    yard.groups.get_mut("c-control-plane").unwrap().machines.remove("controller.balancing");
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!((yard.groups["c-control-plane"].desired, went(&yard)), (2, true));
}

#[test]
fn p5_p6_of_machines_that_go_the_first_is_of_the_zone_that_has_most() {
    for (zones, goes) in [(["a", "b"], "controller.1"), (["b", "a"], "controller.0")] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &auto());
        yard.launches_in = "b";
        for (one, zone) in yard.groups.get_mut("c-control-plane").unwrap().machines.values_mut().zip(zones) {
            one.zone = zone;
        }
        assert_eq!(yard.first_drained(), goes, "one more came in zone b");
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    }
    for (zones, goes) in
        [(["a", "b", "b"], "pool-a.1"), (["b", "b", "a"], "pool-a.0"), (["b", "a", "a"], "pool-a.1")]
    {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
        for (one, zone) in yard.groups.get_mut("c-pool-a").unwrap().machines.values_mut().zip(zones) {
            one.zone = zone;
        }
        assert_eq!(yard.first_drained(), goes);
    }
}

#[test]
fn p6_one_too_many_of_a_group_that_an_autoscaler_has_made_smaller_meanwhile_is_replaced_and_nothing_shrinks()
{
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging());
    let id = yard.drains_one_too_many();
    // A drain that is not requested yet would be given up.
    while !yard.log.iter().any(|line| line.ends_with(&format!("drains {id}"))) {
        yard.wake(None);
    }
    // An autoscaler terminates another machine with a decrement, so that no machine is surplus any more.
    let group = yard.groups.get_mut("c-pool-a").unwrap();
    let other =
        group.machines.iter().find(|(one, machine)| **one != id && machine.current).unwrap().0.clone();
    group.machines.remove(&other);
    group.desired -= 1;
    assert_eq!(group.desired, 3);
    yard.stuck.clear();
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(yard.log.contains(&format!("{id} goes")), "another one replaces it: {:?}", yard.log);
    assert_eq!((yard.groups["c-pool-a"].desired, yard.groups["c-pool-a"].machines.len()), (3, 3));
}

#[test]
fn p6_what_an_autoscaler_takes_back_of_the_machines_that_come_first_is_asked_for_again() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging());
    yard.boots = 10_000;
    while yard.groups["c-pool-a"].machines.len() < 4 {
        yard.wake(None);
    }
    // It did not become a node within a quarter of an hour.
    (0..15).for_each(|_| yard.wake(None));
    let group = yard.groups.get_mut("c-pool-a").unwrap();
    group.desired = 3;
    group.machines.retain(|_, one| one.lifecycle == Lifecycle::InService);
    yard.boots = 2;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let sent = yard.log.iter().filter(|line| *line == "c-pool-a wants 4").count();
    assert!(sent >= 2, "{:?}", yard.log);
    let group = &yard.groups["c-pool-a"];
    assert_eq!((group.desired, group.machines.len()), (3, 3), "{:?}", yard.log);
    let drained = yard.log.iter().position(|line| line.contains("drains")).unwrap();
    let last = yard.log[..drained].iter().rposition(|line| line == "c-pool-a wants 4");
    assert!(last.is_some_and(|last| last > 0), "no worker is terminated before it comes: {:?}", yard.log);
}

/// A worker of the pool was terminated as surplus instead, and the group had one fewer than the autoscaler wants.
#[test]
fn p6_what_an_autoscaler_takes_back_of_an_earlier_rollouts_surge_is_not_taken_away_again() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging());
    // The autoscaler keeps the pool above its minimum. The surge comes only after the rollout has failed.
    yard.groups.get_mut("c-pool-a").unwrap().desired = 4;
    yard.boots = 0;
    while yard.groups["c-pool-a"].machines.len() < 4 {
        yard.wake(None);
    }
    yard.launches = false;
    assert_eq!(yard.run(), "failed");
    assert_eq!(yard.groups["c-pool-a"].desired, 5, "{:?}", yard.log);
    yard.launches = true;
    yard.wanted.desired.spec_version = "v3".to_owned();
    while !yard.log.iter().any(|line| line.contains(" drains ")) {
        yard.wake(None);
    }
    let group = yard.groups.get_mut("c-pool-a").unwrap();
    let surge = group.machines.iter().find(|(_, one)| one.current).map(|(id, _)| id.clone()).unwrap();
    group.machines.remove(&surge);
    group.desired = 4;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let group = &yard.groups["c-pool-a"];
    assert_eq!((group.desired, group.machines.len()), (4, 4), "{:?}", yard.log);
    assert!(group.machines.values().all(|one| one.current), "{:?}", yard.log);
}

#[test]
fn p6_a_worker_that_its_group_keeps_since_nobody_drained_it_is_drained_and_terminated_and_none_comes_short() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &|role| *role == Role::Etcd(0), &auto());
    let group = yard.groups.get_mut("c-pool-a").unwrap();
    group.machines.get_mut("pool-a.2").unwrap().lifecycle = Lifecycle::Retained;
    (0..20).for_each(|_| yard.wake(None));
    let of_it: Vec<&str> = yard.in_order().into_iter().filter(|line| line.contains("pool-a.2")).collect();
    assert!(of_it[0].ends_with(" drains pool-a.2"), "{of_it:?}");
    let leaves =
        ["pool-a.2 goes", "pool-a.2 is waited for", "pool-a.2 is drained again", "pool-a.2 is let go"];
    assert_eq!(of_it[1..], leaves);
    assert_eq!(
        yard.groups["c-pool-a"].desired, 3,
        "the retained machine was not part of the desired capacity"
    );
}
