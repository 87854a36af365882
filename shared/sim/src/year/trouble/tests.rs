//! What other users do to a running cluster.
#![allow(clippy::unwrap_used)]

use jiff::SignedDuration;
use slipway_flows::rollout::Waker;
use slipway_rollout::Order;

use super::super::account::Woken;
use super::super::base::Base;
use super::super::shapes::{Change, NAME};
use super::super::trial::Trial;
use super::*;
use crate::ports::lock;
use crate::world::{CommandRequest, MachineFacts, Service};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn engine(base: &Base) -> Engine<'static> {
    let mut engine = Trial::new(1, 0.0).begins(base, None);
    // No rollout begins.
    engine.queue.clear();
    engine
}

fn pass(engine: &mut Engine<'_>, minutes: i64) {
    let until = engine.now() + MINUTE * i32::try_from(minutes).unwrap();
    engine.run_until(until);
}

fn of_role(engine: &Engine<'_>, role: &str) -> Vec<MachineFacts> {
    let machines = engine.with_world(World::machines).into_iter();
    machines.filter(|one| one.role.starts_with(role) && !one.leaving).collect()
}

fn tick_succeeds(engine: &Engine<'_>) -> bool {
    let (life, now) = (crate::mortal::Life::unending(), engine.now());
    engine.account.invoke(&Woken::Rollout(Waker::Tick), &life, now, None).is_ok()
}

#[test]
fn a_function_fails_while_s3_is_down_and_goes_on_after_it() {
    let base = Base::small(1, 1, Change::Members);
    let mut engine = engine(&base);
    assert!(tick_succeeds(&engine));
    engine.strike(Strike::Outage { service: Service::Storage, long: MINUTE * 30 });
    assert!(!tick_succeeds(&engine));
    pass(&mut engine, 31);
    assert!(tick_succeeds(&engine));
}

#[test]
fn what_eventbridge_is_to_deliver_waits_for_the_end_of_its_outage_and_ticks_do_not() {
    let base = Base::small(1, 1, Change::Members);
    let mut engine = engine(&base);
    engine.strike(Strike::Outage { service: Service::Bus, long: MINUTE * 30 });
    engine.send(Woken::Rollout(Waker::Look), true);
    engine.send(Woken::Rollout(Waker::Tick), true);
    let waits = |engine: &Engine<'_>| {
        let now = engine.now();
        let mut all: Vec<i64> = engine.queue.keys().map(|(at, _)| at.duration_since(now).as_mins()).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(waits(&engine), [0, 30]);
}

#[test]
fn a_machine_that_boots_while_s3_is_down_for_long_is_given_up_and_another_comes() {
    let base = Base::small(1, 1, Change::Members);
    let mut engine = engine(&base);
    let first = of_role(&engine, "pool-");
    engine.strike(Strike::Outage { service: Service::Storage, long: MINUTE * 20 });
    engine.strikes(|world| world.kill_machine(&first[0].id));
    pass(&mut engine, 15);
    let said = engine.transcript.iter().filter(|(_, line)| line.ends_with("is given up before it served"));
    assert_eq!(said.count(), 1, "{:#?}", engine.transcript);
    pass(&mut engine, 30);
    let now = of_role(&engine, "pool-");
    assert!(now.len() == 2 && now.iter().all(|one| one.ready), "{now:?}");
}

#[test]
fn a_snapshot_needs_s3_and_kms() {
    let base = Base::small(1, 1, Change::Members);
    for service in [Service::Storage, Service::Keys] {
        let mut engine = engine(&base);
        engine.strike(Strike::Outage { service, long: MINUTE * 10 });
        let member = of_role(&engine, "etcd-").remove(0).id;
        let taken = |engine: &Engine<'_>| {
            engine.with_world(|world| world.cluster_facts(NAME).unwrap().snapshots.len())
        };
        let before = taken(&engine);
        for expected in [0, 1] {
            send(&engine, "Slipway-EtcdSnapshot", &member, &[]);
            pass(&mut engine, 11);
            assert_eq!(taken(&engine) - before, expected, "{service:?}");
        }
    }
}

#[test]
fn a_member_that_its_fellows_do_not_reach_is_no_member_to_them_and_a_machine_in_service_to_others() {
    let base = Base::small(3, 1, Change::Members);
    let mut engine = engine(&base);
    let facts = |engine: &Engine<'_>| engine.with_world(|world| world.cluster_facts(NAME).unwrap());
    let leader = facts(&engine).leader.unwrap();
    let machine = facts(&engine).members[&leader].machine.clone().unwrap();
    engine.strikes(|world| world.isolate_member(&machine, MINUTE * 10));
    pass(&mut engine, 9);
    let now = facts(&engine);
    assert!(!now.members[&leader].up && now.leader.as_ref().is_some_and(|other| *other != leader), "{now:?}");
    assert!(of_role(&engine, &leader)[0].serves && !now.api_servers.is_empty());
    pass(&mut engine, 2);
    assert!(facts(&engine).members[&leader].up);
}

#[test]
fn one_member_alone_is_cut_off_from_nobody() {
    let base = Base::small(1, 1, Change::Members);
    let mut engine = engine(&base);
    let machine = of_role(&engine, "etcd-").remove(0).id;
    engine.strikes(|world| world.isolate_member(&machine, MINUTE * 10));
    assert!(engine.with_world(|world| world.cluster_facts(NAME).unwrap().members["etcd-0"].up));
}

fn send(engine: &Engine<'_>, document: &str, machine: &str, parameters: &[(&str, &str)]) {
    let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let request = CommandRequest {
        document: document.to_owned(),
        parameters: parameters.collect(),
        instance: machine.to_owned(),
        comment: document.to_owned(),
        timeout_s: 120,
    };
    lock(&engine.account.world).send_command(request).unwrap();
}

/// All pods fit on two workers, and not on one.
#[test]
fn an_autoscaler_grows_a_pool_for_pods_that_fit_nowhere_and_later_takes_what_nobody_needs() {
    let base = Base::small(1, 1, Change::Members);
    let mut engine = engine(&base);
    engine.strike(Strike::Autoscale);
    let (workers, controller) = (of_role(&engine, "pool-"), of_role(&engine, "controller").remove(0).id);
    let wants = |engine: &Engine<'_>| {
        engine.with_world(|world| world.group_facts(&workers[0].group).unwrap().desired)
    };
    pass(&mut engine, 30);
    assert_eq!(wants(&engine), 2, "nothing is to be done");
    send(&engine, "Slipway-Drain", &controller, &[("Node", &workers[0].id), ("For", "600")]);
    pass(&mut engine, 3);
    assert_eq!(wants(&engine), 3, "{:#?}", engine.transcript);
    pass(&mut engine, 60);
    // The drained node is annotated, so the autoscaler leaves it.
    assert_eq!(wants(&engine), 3, "{:#?}", engine.transcript);
    send(&engine, "Slipway-Uncordon", &controller, &[("Node", &workers[0].id)]);
    pass(&mut engine, 30);
    let left = of_role(&engine, "pool-");
    assert!(
        wants(&engine) == 2 && left.iter().all(|one| one.id != workers[0].id),
        "{:#?}",
        engine.transcript
    );
}

#[test]
fn an_autoscaler_ends_a_machine_that_becomes_no_node_and_never_one_below_the_least() {
    let base = Base::small(1, 1, Change::Members);
    let mut engine = engine(&base);
    let group = of_role(&engine, "pool-")[0].group.clone();
    engine.strike(Strike::Autoscale);
    engine.strikes(|world| {
        world.set_fate(&group, [crate::world::Fate::Dead; 9]);
        world.others_grow(&group);
    });
    pass(&mut engine, 60);
    let wants = engine.with_world(|world| world.group_facts(&group).unwrap().desired);
    assert_eq!((wants, of_role(&engine, "pool-").len()), (2, 2), "{:#?}", engine.transcript);
}

/// EC2 interrupts a worker with pods in a group that launches its successor at the notice, or does not, and in a cluster that is paused,
/// or is not.
#[test]
fn p6_p10_a_worker_that_ec2_interrupts_is_drained_within_two_minutes_also_while_paused() {
    for (replaces, paused) in [(false, false), (true, false), (false, true), (true, true)] {
        let base = Base::small(1, 1, Change::Members);
        let mut engine = engine(&base);
        let worker = of_role(&engine, "pool-").remove(0);
        let facts = |engine: &Engine<'_>| engine.with_world(|world| world.cluster_facts(NAME).unwrap());
        assert!(facts(&engine).pods[&worker.id] > 0);
        if paused {
            let now = engine.now();
            engine.checker.paused(now);
            engine.send(Woken::Rollout(Waker::Order { order: Order::Pause, at: Some(now) }), true);
            pass(&mut engine, 1);
        }
        engine.strikes(|world| {
            world.set_capacity_rebalance(&worker.group, replaces);
            world.reclaim_machine(&worker.id);
        });
        engine.go_on(engine.now());
        pass(&mut engine, 3);
        let what = format!("replaces: {replaces}, paused: {paused}: {:#?}", engine.transcript);
        let gone = engine.with_world(World::machines).into_iter().find(|one| one.id == worker.id);
        assert!(gone.is_none_or(|one| one.power == Power::Down), "it was interrupted: {what}");
        assert!(facts(&engine).losses.is_empty(), "{:?}: {what}", facts(&engine).losses);
        // Another worker takes its place, and nothing remains once the cluster goes on.
        pass(&mut engine, 30);
        let now = of_role(&engine, "pool-");
        assert!(now.len() == 2 && now.iter().all(|one| one.ready && one.id != worker.id), "{now:?}: {what}");
        if paused {
            let now = engine.now();
            engine.checker.resumed(now);
            engine.send(Woken::Rollout(Waker::Order { order: Order::Resume, at: Some(now) }), true);
        }
        pass(&mut engine, 30);
        let what = format!("replaces: {replaces}, paused: {paused}: {:#?}", engine.transcript);
        assert!(engine.account.rollout().unwrap().departures.is_empty(), "{what}");
        assert!(engine.checker.violations.is_empty(), "{:?}: {what}", engine.checker.violations);
    }
}

/// EC2 notices nothing. Its pods are evicted, and nobody hears that they have stopped.
#[test]
fn p6_a_worker_that_hangs_is_drained_as_far_as_it_can_be_and_replaced_and_none_if_all_of_them_do() {
    let base = Base::small(1, 2, Change::Members);
    let hung = |percent: usize| {
        let mut engine = engine(&base);
        engine.strike(Strike::Repair);
        let before = of_role(&engine, "pool-");
        engine.strike(Strike::Silence { choice: 0, percent, long: MINUTE * 600 });
        let silent = before.into_iter().filter(|one| {
            engine.with_world(|world| world.machines().iter().any(|now| now.id == one.id && now.silent))
        });
        let silent: Vec<String> = silent.map(|one| one.id).collect();
        let reported = |engine: &Engine<'_>| engine.with_world(|world| world.reported(NAME).len());
        pass(&mut engine, 15);
        assert_eq!(reported(&engine), 0, "{:#?}", engine.transcript);
        pass(&mut engine, 75);
        assert_eq!(engine.checker.violations, [], "{:#?}", engine.transcript);
        (silent, reported(&engine), of_role(&engine, "pool-"), engine.transcript)
    };
    let (silent, reported, workers, transcript) = hung(0);
    assert_eq!((silent.len(), reported, workers.len()), (1, 1, 2), "{transcript:#?}");
    let well = workers.iter().all(|one| one.ready && !one.silent && one.id != silent[0]);
    assert!(well, "{workers:#?} {transcript:#?}");
    let (silent, reported, workers, transcript) = hung(100);
    assert_eq!((silent.len(), reported), (2, 0), "{transcript:#?}");
    assert!(workers.iter().all(|one| silent.contains(&one.id)), "{transcript:#?}");
}

/// Its container runtime hangs: the kubelet says that it is not Ready, and its pods are terminating for ever.
#[test]
fn p6_a_worker_whose_kubelet_speaks_and_can_stop_no_pods_is_drained_as_far_as_it_can_be_and_replaced() {
    let base = Base::small(1, 2, Change::Members);
    let mut engine = engine(&base);
    engine.strike(Strike::Repair);
    engine.strike(Strike::Jam { choice: 0, long: MINUTE * 600 });
    let reported = |engine: &Engine<'_>| -> Vec<String> {
        engine.with_world(|world| world.reported(NAME).iter().map(|one| one.machine.clone()).collect())
    };
    pass(&mut engine, 15);
    assert_eq!(reported(&engine), [""; 0], "{:#?}", engine.transcript);
    pass(&mut engine, 75);
    assert_eq!(engine.checker.violations, [], "{:#?}", engine.transcript);
    let (reported, workers) = (reported(&engine), of_role(&engine, "pool-"));
    assert_eq!((reported.len(), workers.len()), (1, 2), "{workers:#?} {:#?}", engine.transcript);
    assert!(workers.iter().all(|one| one.ready && one.id != reported[0]), "{:#?}", engine.transcript);
}
