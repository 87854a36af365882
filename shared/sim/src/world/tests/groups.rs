//! Groups that CloudFormation waits for, zones out of balance, late answers, and changes by other users.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::world::Termination;
use crate::world::{CommandRequest, Details, Fate, FleetFaults, Process, Service, State};

pub(super) const GROUP: &str = "pool";

/// A group of three zones with these sizes.
pub(super) fn zones(min: u32, desired: u32, max: u32) -> Value {
    let mut template = pool("ami-1", max);
    let group = &mut template["Resources"]["Nodes"]["Properties"];
    group["AutoScalingGroupName"] = json!(GROUP);
    group["MinSize"] = json!(min.to_string());
    group["DesiredCapacity"] = json!(desired.to_string());
    group["VPCZoneIdentifier"] = json!(["subnet-1", "subnet-2", "subnet-3"]);
    template
}

fn begin(world: &mut World, stack: &str, template: &Value) {
    make(world, stack, "first", ChangeSetKind::Create, &request(stack, template)).unwrap();
    world.execute_change_set(Some(stack), "first", None).unwrap();
}

pub(super) fn pass(world: &mut World, seconds: i64) {
    world.advance(world.now() + SignedDuration::from_secs(seconds));
}

/// The number of machines that count in each zone, largest first.
fn spread(world: &World) -> Vec<usize> {
    let mut counts: Vec<usize> = world.zones_in_use(GROUP).into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

pub(super) fn desired(world: &mut World) -> u32 {
    world.groups(&[GROUP.to_owned()]).unwrap()[0].group.desired
}

#[test]
fn a_stack_is_created_only_once_its_group_has_its_machines_in_service() {
    let mut world = world();
    begin(&mut world, "p", &zones(2, 2, 3));
    pass(&mut world, 30);
    assert_eq!(status(&world, "p"), "CREATE_IN_PROGRESS");
    world.settle();
    assert_eq!(status(&world, "p"), "CREATE_COMPLETE");
    let machines = world.machines();
    assert!(machines.len() == 2 && machines.iter().all(|one| one.serves), "{machines:?}");
}

#[test]
fn a_group_whose_machines_never_serve_fails_its_stack_after_six_hours() {
    let mut world = world();
    world.set_fate(GROUP, [Fate::Dead]);
    begin(&mut world, "p", &zones(1, 1, 2));
    pass(&mut world, 5 * 3_600);
    assert_eq!(status(&world, "p"), "CREATE_IN_PROGRESS");
    world.settle();
    assert_eq!(status(&world, "p"), "ROLLBACK_COMPLETE");
    let said = story(&mut world, "p");
    assert!(
        said.iter().any(|line| line.starts_with("Nodes CREATE_FAILED Group did not stabilize")),
        "{said:?}"
    );
    assert_eq!(world.machines(), []);
}

#[test]
fn a_stack_that_waits_for_its_group_may_be_deleted() {
    let mut world = world();
    world.set_fate(GROUP, [Fate::Dead]);
    begin(&mut world, "p", &zones(1, 1, 2));
    pass(&mut world, 600);
    world.delete("p").unwrap();
    world.settle();
    assert_eq!((status(&world, "p").as_str(), world.machines().len()), ("none", 0));
}

#[test]
fn a_terminate_with_a_decrement_has_zones_brought_back_into_balance_one_launch_ahead() {
    let mut world = world();
    world.set_fleet_faults(FleetFaults { rebalances: 1.0, ..FleetFaults::default() });
    create(&mut world, "p", &zones(3, 4, 4));
    assert_eq!(spread(&world), [2, 1, 1]);
    let doubled = |world: &World| {
        let counts = world.zones_in_use(GROUP);
        let machines = world.machines();
        machines.into_iter().find(|one| counts[&one.zone] == 1).map(|one| one.id)
    };
    let instance = doubled(&world).unwrap();
    world.terminate_instance(&Termination { instance, shrink: true }).unwrap();
    let mut most = 0;
    for _ in 0..600 {
        pass(&mut world, 1);
        most = most.max(spread(&world).into_iter().sum());
    }
    // Meanwhile there is one more than desired.
    assert_eq!((spread(&world), most, desired(&mut world)), (vec![1, 1, 1], 4, 3));
}

#[test]
fn answers_may_be_behind_and_each_was_true_once() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 3));
    world.set_fleet_faults(FleetFaults { stale_groups: 1.0, ..FleetFaults::default() });
    world.others_grow(GROUP);
    pass(&mut world, 60);
    assert_eq!(desired(&mut world), 2);
    world.set_desired_capacity(GROUP, 3).unwrap();
    assert_eq!(desired(&mut world), 2);
    pass(&mut world, 31);
    assert_eq!(desired(&mut world), 3);
}

#[test]
fn nobody_shrinks_a_group_below_its_least_and_a_protected_machine_is_not_chosen() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 2, 3));
    let ids: Vec<String> = world.machines().into_iter().map(|one| one.id).collect();
    world.protect(&ids[0], true);
    world.set_desired_capacity(GROUP, 1).unwrap();
    pass(&mut world, 300);
    let left: Vec<String> = world.machines().into_iter().map(|one| one.id).collect();
    assert_eq!(left, ids[..1]);
    world.others_shrink(GROUP, 0);
    let asked = Termination { instance: ids[0].clone(), shrink: true };
    let refused = world.terminate_instance(&asked).unwrap_err();
    assert!(refused.message.contains("desiredSize equals minSize (1)"), "{refused}");
    assert_eq!((desired(&mut world), world.machines().len()), (1, 1));
}

#[test]
fn while_launching_is_suspended_no_machine_comes_for_one_that_was_lost() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    let id = world.machines()[0].id.clone();
    world.suspend(GROUP, Process::Launch, true);
    world.kill_machine(&id);
    pass(&mut world, 1_200);
    assert_eq!(world.machines(), []);
    world.suspend(GROUP, Process::Launch, false);
    pass(&mut world, 300);
    assert_eq!(world.machines().iter().filter(|one| one.serves).count(), 1);
}

#[test]
fn a_spot_machine_goes_after_two_minutes_and_its_successor_comes_at_the_notice_where_the_group_says_so() {
    for replaces in [false, true] {
        let mut world = world();
        let mut template = zones(1, 1, 2);
        template["Resources"]["Nodes"]["Properties"]["CapacityRebalance"] = json!(replaces);
        create(&mut world, "p", &template);
        let id = world.machines()[0].id.clone();
        world.reclaim_machine(&id);
        pass(&mut world, 60);
        let now = world.machines();
        let stays = now.iter().any(|one| one.id == id && !one.leaving);
        let comes = now.iter().any(|one| one.id != id);
        assert_eq!((stays, comes), (!replaces, replaces));
        pass(&mut world, 1_200);
        let serve: Vec<_> = world.machines().into_iter().filter(|one| one.serves).collect();
        assert!(serve.len() == 1 && serve[0].id != id, "{serve:?}");
    }
}

/// Sends a drain, which takes its full time if no API server answers.
pub(super) fn send(world: &mut World, instance: &str, number: usize) -> String {
    let parameters = [("Node", "n"), ("For", "600")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    let request = CommandRequest {
        document: "Slipway-Drain".to_owned(),
        parameters: parameters.into(),
        instance: instance.to_owned(),
        comment: format!("test/{number}"),
        timeout_s: 120,
    };
    world.send_command(request).unwrap()
}

pub(super) fn details(world: &mut World, instance: &str, ids: &[String]) -> Vec<(Details, bool)> {
    let of = |id: &String| {
        let sent = world.sent(id, instance).unwrap();
        (sent.details, sent.started_at.is_some())
    };
    ids.iter().map(of).collect()
}

#[test]
fn an_agent_runs_five_commands_takes_five_more_and_refuses_the_next_until_its_time_is_over() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    let machine = world.machines()[0].id.clone();
    let ids: Vec<String> = (0..11).map(|number| send(&mut world, &machine, number)).collect();
    pass(&mut world, 10);
    let count = |all: &[(Details, bool)], what| all.iter().filter(|one| **one == what).count();
    let now = details(&mut world, &machine, &ids);
    let (running, taken) =
        (count(&now, (Details::InProgress, true)), count(&now, (Details::InProgress, false)));
    assert_eq!((running, taken, count(&now, (Details::Pending, false))), (5, 5, 1), "{now:?}");
    pass(&mut world, 120);
    assert_eq!(count(&details(&mut world, &machine, &ids), (Details::DeliveryTimedOut, false)), 1);
    // The first five are over after ten minutes, and the next begin.
    pass(&mut world, 500);
    let now = details(&mut world, &machine, &ids);
    assert_eq!(
        (count(&now, (Details::Failed, true)), count(&now, (Details::InProgress, true))),
        (5, 5),
        "{now:?}"
    );
}

#[test]
fn a_silent_machine_takes_no_command_and_one_that_speaks_again_in_time_does() {
    for (long, ends) in [(300, Details::DeliveryTimedOut), (60, Details::InProgress)] {
        let mut world = world();
        create(&mut world, "p", &zones(1, 1, 2));
        let machine = world.machines()[0].id.clone();
        world.hang_machine(&machine, SignedDuration::from_secs(long), None);
        let id = send(&mut world, &machine, 0);
        pass(&mut world, 130);
        assert_eq!(world.sent(&id, &machine).unwrap().details, ends);
    }
}

#[test]
fn a_machine_whose_status_check_fails_is_replaced() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    let machine = world.machines()[0].id.clone();
    let minutes = SignedDuration::from_mins;
    world.hang_machine(&machine, minutes(60), Some(minutes(5)));
    pass(&mut world, 240);
    assert!(world.machines()[0].serves);
    pass(&mut world, 600);
    let now = world.machines();
    assert!(now.len() == 1 && now[0].serves && now[0].id != machine, "{now:?}");
}

#[test]
fn a_service_that_is_down_answers_nothing_until_it_is_back() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    world.outage(Service::AutoScaling, SignedDuration::from_mins(5));
    assert_eq!(world.groups(&[]).unwrap_err().code, "ServiceUnavailable");
    assert!(world.stacks(Some("p")).is_ok());
    pass(&mut world, 300);
    assert_eq!(world.groups(&[]).unwrap()[0].machines[0].state, State::InService);
}

#[test]
fn a_stack_that_is_changed_by_hand_is_busy_and_its_open_change_sets_are_obsolete() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    let asked = request("p", &zones(1, 1, 3));
    make(&mut world, "p", "ours", ChangeSetKind::Update, &asked).unwrap();
    world.change_by_hand("p");
    let refused = world.create_change_set("next", ChangeSetKind::Update, None, &asked).unwrap_err();
    assert!(refused.message.ends_with("is in UPDATE_IN_PROGRESS state and can not be updated."), "{refused}");
    world.settle();
    assert_eq!(status(&world, "p"), "UPDATE_COMPLETE");
    assert_eq!(world.execute_change_set(Some("p"), "ours", None).unwrap_err().code, "InvalidChangeSetStatus");
}

#[test]
fn a_rollback_that_failed_is_continued_by_hand() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    world.fail("Nodes", "the service is ill", 1);
    world.fail_during(crate::world::Phase::Rollback, "Nodes", "it still is", 1);
    update(&mut world, "p", &zones(1, 1, 3));
    assert_eq!(status(&world, "p"), "UPDATE_ROLLBACK_FAILED");
    assert!(world.continue_update_rollback("q", None).is_err());
    world.mend_by_hand();
    world.settle();
    assert_eq!(status(&world, "p"), "UPDATE_ROLLBACK_COMPLETE");
    assert!(world.continue_update_rollback("p", None).is_err());
    assert_eq!(world.group_facts(GROUP).unwrap().max, 2);
}
