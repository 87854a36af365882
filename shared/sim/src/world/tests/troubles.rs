//! Lost agents, late answers, groups with weights, and recommendations to replace a Spot machine.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::groups::{GROUP, desired, details, pass, send, zones};
use super::*;
use crate::world::{Details, FleetFaults, Termination};

const TARGETS: &str =
    "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/pool/0123456789abcdef";

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

#[test]
fn an_agent_that_is_not_reached_goes_on_and_tells_how_it_ended_once_it_is() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    let machine = world.machines()[0].id.clone();
    let ids = [send(&mut world, &machine, 0)];
    pass(&mut world, 10);
    world.lose_agent(&machine, minutes(12), false);
    let next = [send(&mut world, &machine, 1)];
    pass(&mut world, 650);
    // It drained for ten minutes in vain, and cannot report the result.
    assert_eq!(details(&mut world, &machine, &ids), [(Details::InProgress, true)]);
    assert_eq!(details(&mut world, &machine, &next), [(Details::DeliveryTimedOut, false)]);
    pass(&mut world, 120);
    assert_eq!(details(&mut world, &machine, &ids), [(Details::Failed, true)]);
    let serves = world.machines();
    assert!(serves.len() == 1 && serves[0].id == machine, "{serves:?}");
}

#[test]
fn what_is_taken_back_stops_once_its_agent_is_reached_again() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    let machine = world.machines()[0].id.clone();
    let ids = [send(&mut world, &machine, 0)];
    pass(&mut world, 10);
    world.lose_agent(&machine, minutes(5), false);
    world.cancel_command(&ids[0]).unwrap();
    pass(&mut world, 200);
    assert_eq!(details(&mut world, &machine, &ids), [(Details::Cancelling, true)]);
    pass(&mut world, 110);
    assert_eq!(details(&mut world, &machine, &ids), [(Details::Cancelled, true)]);
}

#[test]
fn what_a_stack_is_shown_as_may_be_behind() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 3));
    pass(&mut world, 60);
    world.set_fleet_faults(FleetFaults { stale_stacks: 1.0, ..FleetFaults::default() });
    let shown = |world: &mut World| super::super::status_name(world.shown_stack("p").unwrap().1.status);
    world.change_by_hand("p");
    assert_eq!(
        (shown(&mut world).as_str(), status(&world, "p").as_str()),
        ("CREATE_COMPLETE", "UPDATE_IN_PROGRESS")
    );
    world.settle();
    pass(&mut world, 31);
    assert_eq!(shown(&mut world), "UPDATE_COMPLETE");
    // A new stack is not visible yet, nor is its change set.
    world.create_change_set("first", ChangeSetKind::Create, None, &request("q", &pool("ami-1", 1))).unwrap();
    assert!(world.shown_stack("q").unwrap_err().message.ends_with("does not exist"));
    assert_eq!(world.shown_change_set("q", "first").unwrap_err().code, "ChangeSetNotFound");
    world.settle();
    pass(&mut world, 31);
    assert_eq!(world.shown_change_set("q", "first").unwrap().status, "CREATE_COMPLETE");
}

#[test]
fn what_a_target_is_shown_as_may_be_behind() {
    let mut world = world();
    let mut template = zones(1, 1, 3);
    template["Resources"]["Nodes"]["Properties"]["TargetGroupARNs"] = json!([TARGETS]);
    create(&mut world, "p", &template);
    pass(&mut world, 600);
    world.set_fleet_faults(FleetFaults { stale_targets: 1.0, ..FleetFaults::default() });
    let shown = |world: &mut World| -> Vec<&str> {
        world.target_health(TARGETS).unwrap().into_iter().map(|target| target.state).collect()
    };
    assert_eq!(shown(&mut world), ["unhealthy"]);
    let instance = world.machines()[0].id.clone();
    world.terminate_instance(&Termination { instance, shrink: false }).unwrap();
    assert_eq!(shown(&mut world), ["unhealthy"], "it is removed from its target group at this moment");
    world.set_fleet_faults(FleetFaults::default());
    assert_eq!(shown(&mut world), ["draining"]);
}

/// A group of machines that count for one unit or for two.
fn weighted(min: u32, desired: u32, max: u32) -> Value {
    let mut template = zones(min, desired, max);
    let group = &mut template["Resources"]["Nodes"]["Properties"];
    let launch = group["LaunchTemplate"].take();
    group["MixedInstancesPolicy"] = json!({"LaunchTemplate": {"LaunchTemplateSpecification": launch, "Overrides": [
        {"InstanceType": "m7i.large", "WeightedCapacity": "1"},
        {"InstanceType": "m7i.xlarge", "WeightedCapacity": "2"},
    ]}});
    group.as_object_mut().unwrap().remove("LaunchTemplate");
    template
}

#[test]
fn a_group_with_weights_launches_until_its_units_are_reached_and_may_exceed_them() {
    let mut world = world();
    create(&mut world, "p", &weighted(2, 9, 20));
    let machines = world.machines();
    let units: u32 = machines.iter().map(|machine| machine.weight).sum();
    let weights: std::collections::BTreeSet<u32> = machines.iter().map(|machine| machine.weight).collect();
    assert!((9..=10).contains(&units) && weights.len() == 2, "{machines:?}");
    assert_eq!(world.group_facts(GROUP).unwrap().desired as usize, machines.len());
    let heavy = machines.iter().find(|machine| machine.weight == 2).unwrap();
    world.terminate_instance(&Termination { instance: heavy.id.clone(), shrink: true }).unwrap();
    assert_eq!(desired(&mut world), 7);
    pass(&mut world, 600);
    let left: u32 = world.machines().iter().map(|machine| machine.weight).sum();
    assert!((7..=8).contains(&left), "{left}");
    // The minimum is 2, so a machine of two units cannot be terminated with a decrement from 3.
    world.set_desired_capacity(GROUP, 3).unwrap();
    pass(&mut world, 600);
    let left = world.machines();
    if let Some(heavy) = left.iter().find(|machine| machine.weight == 2) {
        let asked = Termination { instance: heavy.id.clone(), shrink: true };
        assert!(world.terminate_instance(&asked).unwrap_err().message.contains("equals minSize"));
    }
}

#[test]
fn a_machine_at_risk_is_replaced_before_any_interruption_where_the_group_says_so() {
    for replaces in [false, true] {
        let mut world = world();
        let mut template = zones(1, 1, 2);
        template["Resources"]["Nodes"]["Properties"]["CapacityRebalance"] = json!(replaces);
        create(&mut world, "p", &template);
        let id = world.machines()[0].id.clone();
        world.recommend_to_replace(&id, None);
        pass(&mut world, 60);
        assert_eq!(world.machines().len(), 1 + usize::from(replaces));
        pass(&mut world, 1_200);
        let serve: Vec<_> = world.machines().into_iter().filter(|one| one.serves).collect();
        assert!(serve.len() == 1 && (serve[0].id != id) == replaces, "{replaces}: {serve:?}");
    }
}

#[test]
fn an_interruption_may_follow_a_recommendation_much_later() {
    let mut world = world();
    create(&mut world, "p", &zones(1, 1, 2));
    let id = world.machines()[0].id.clone();
    world.recommend_to_replace(&id, Some(minutes(30)));
    pass(&mut world, 31 * 60);
    assert_eq!(world.machines()[0].id, id);
    pass(&mut world, 1_200);
    let now = world.machines();
    assert!(now.len() == 1 && now[0].id != id, "{now:?}");
}
