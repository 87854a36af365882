//! Drift detection.

use serde_json::{Value, json};

use super::super::World;
use super::super::drift::ResourceDrift;
use super::{create, network, pool, request, update, world};

/// Waits for a detection, and returns the status that it ends with.
fn detect(world: &mut World, stack: &str) -> (&'static str, &'static str) {
    let id = world.detect_stack_drift(stack).unwrap();
    assert_eq!(world.drift_detection(&id).unwrap().status, "DETECTION_IN_PROGRESS", "it takes time");
    let again = world.detect_stack_drift(stack).unwrap_err();
    assert!(again.message.starts_with("Drift detection is already in progress for stack"), "{again}");
    while world.drift_detection(&id).unwrap().status == "DETECTION_IN_PROGRESS" {
        let next = world.next_event_at().unwrap();
        world.advance(next);
    }
    let ended = world.drift_detection(&id).unwrap();
    (ended.status, ended.stack_status())
}

fn drift(world: &mut World, stack: &str, logical_id: &str) -> ResourceDrift {
    let (_, all) = world.resource_drifts(stack, &[]).unwrap();
    all.into_iter().find(|one| one.logical_id == logical_id).unwrap().clone()
}

/// The network, with a load balancer's security group and a rule.
fn open() -> Value {
    let mut template = network("10.0.0.0/16", "10.0.1.0/24");
    template["Resources"]["Group"]["Properties"]["SecurityGroupIngress"] =
        json!([{"IpProtocol": "tcp", "FromPort": "443", "ToPort": 443, "CidrIp": "0.0.0.0/0"}]);
    template
}

#[test]
fn an_untouched_stack_is_in_sync_and_one_that_was_changed_by_hand_is_not() {
    let mut world = world();
    create(&mut world, "net", &open());
    assert_eq!(world.drift_information("net"), ("NOT_CHECKED", None));
    assert!(world.resource_drifts("net", &[]).unwrap().1.is_empty(), "nothing was checked yet");
    assert_eq!(detect(&mut world, "net"), ("DETECTION_COMPLETE", "IN_SYNC"));
    let (_, all) = world.resource_drifts("net", &[]).unwrap();
    assert!(all.len() == 3 && all.iter().all(|one| one.status == "IN_SYNC" && one.expected.is_some()));

    // A value of a list that the template does not have, a property that it sets, and one that it does not set.
    let rule = json!({"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0"});
    world.set_by_hand("net", "Group", "/SecurityGroupIngress/-", Some(rule)).unwrap();
    world.set_by_hand("net", "Group", "/SecurityGroupIngress/0/ToPort", Some(json!(8443))).unwrap();
    world.set_by_hand("net", "Vpc", "/EnableDnsSupport", Some(json!(false))).unwrap();
    world.delete_resource_by_hand("net", "Subnet").unwrap();
    assert_eq!(
        drift(&mut world, "net", "Group").status,
        "IN_SYNC",
        "that is the answer of the last detection"
    );
    assert_eq!(detect(&mut world, "net"), ("DETECTION_COMPLETE", "DRIFTED"));
    let group = drift(&mut world, "net", "Group");
    let differences: Vec<(&str, &str, &str, &str)> = group
        .differences
        .iter()
        .map(|one| (one.path.as_str(), one.expected.as_str(), one.actual.as_str(), one.kind))
        .collect();
    assert_eq!(group.status, "MODIFIED");
    assert_eq!(differences[0], ("/SecurityGroupIngress/0/ToPort", "443", "8443", "NOT_EQUAL"));
    assert_eq!(
        (differences[1].0, differences[1].1, differences[1].3),
        ("/SecurityGroupIngress/1", "null", "ADD")
    );
    assert!(differences.len() == 2 && differences[1].2.contains("22"), "{differences:?}");
    assert_eq!(drift(&mut world, "net", "Vpc").status, "IN_SYNC", "only what the template sets is compared");
    let subnet = drift(&mut world, "net", "Subnet");
    assert_eq!((subnet.status, subnet.expected), ("DELETED", None));

    world.set_by_hand("net", "Group", "/SecurityGroupIngress", None).unwrap();
    detect(&mut world, "net");
    let group = drift(&mut world, "net", "Group");
    assert_eq!((group.differences[0].kind, group.differences[0].actual.as_str()), ("REMOVE", "null"));
    let only = world.resource_drifts("net", &["DELETED"]).unwrap().1;
    assert_eq!(only.iter().map(|one| one.logical_id.as_str()).collect::<Vec<_>>(), ["Subnet"]);
}

#[test]
fn an_update_with_the_same_template_does_not_repair_drift() {
    let mut world = world();
    create(&mut world, "net", &open());
    world.set_by_hand("net", "Group", "/SecurityGroupIngress", None).unwrap();
    let none = world.update_stack(&request("net", &open())).unwrap_err();
    assert_eq!(none.message, "No updates are to be performed.");
    // An update of something else does not, either.
    let mut other = open();
    other["Resources"]["Vpc"]["Properties"]["EnableDnsSupport"] = json!(true);
    update(&mut world, "net", &other);
    detect(&mut world, "net");
    assert_eq!(drift(&mut world, "net", "Group").status, "MODIFIED");
}

#[test]
fn of_a_group_sizes_and_template_are_compared_and_of_a_launch_template_nothing() {
    let mut world = world();
    create(&mut world, "p", &pool("ami-1", 3));
    world.set_by_hand("p", "Nodes", "/MaxSize", Some(json!("5"))).unwrap();
    world.set_by_hand("p", "Nodes", "/LaunchTemplate/Version", Some(json!("$Latest"))).unwrap();
    let name = world.physical_ids("p")["Nodes"].clone();
    let shown = world.groups(std::slice::from_ref(&name)).unwrap().remove(0).group;
    assert_eq!((shown.max, shown.template.unwrap().version.as_str()), (5, "$Latest"));
    world.set_by_hand("p", "Template", "/LaunchTemplateData/ImageId", Some(json!("ami-2"))).unwrap_err();
    detect(&mut world, "p");
    let group = drift(&mut world, "p", "Nodes");
    let paths: Vec<(&str, &str)> =
        group.differences.iter().map(|one| (one.path.as_str(), one.expected.as_str())).collect();
    assert_eq!(paths, [("/LaunchTemplate/Version", "1"), ("/MaxSize", "3")]);
    assert_eq!(drift(&mut world, "p", "Template").status, "IN_SYNC");
}

#[test]
fn what_cannot_be_looked_at_is_told() {
    let mut world = world();
    assert!(world.detect_stack_drift("none").unwrap_err().message.contains("does not exist"));
    assert!(world.drift_detection("none").unwrap_err().message.contains("does not exist"));
    create(&mut world, "net", &open());
    let denied = "You are not authorized to perform: ec2:DescribeSubnets";
    world.hide_from_drift_detection("net", "Subnet", Some(denied));
    assert_eq!(detect(&mut world, "net"), ("DETECTION_FAILED", "UNKNOWN"));
    let subnet = drift(&mut world, "net", "Subnet");
    assert_eq!((subnet.status, subnet.reason.as_deref()), ("UNKNOWN", Some(denied)));
    assert_eq!(drift(&mut world, "net", "Vpc").status, "IN_SYNC", "the others were looked at");
    world.change_by_hand("net");
    let busy = world.detect_stack_drift("net").unwrap_err();
    assert!(busy.message.contains("UPDATE_IN_PROGRESS"), "{busy}");
}

#[test]
fn a_protected_stack_is_not_deleted() {
    let mut world = world();
    create(&mut world, "net", &open());
    world.protect_stack_by_hand("net", true);
    assert!(world.delete("net").unwrap_err().message.contains("TerminationProtection"));
    world.protect_stack_by_hand("net", false);
    world.delete("net").unwrap();
}
