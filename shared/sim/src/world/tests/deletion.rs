//! Deletion.

use serde_json::json;

use super::*;
use crate::Phase;

#[test]
fn deletion_goes_against_the_order_of_creation_and_keeps_what_is_retained() {
    let mut world = world();
    let mut template = network("10.0.0.0/16", "10.0.0.0/24");
    template["Resources"]["Data"] = json!({"Type": "AWS::EC2::Volume", "DeletionPolicy": "Retain",
        "Properties": {"AvailabilityZone": "eu-central-1a", "Size": 8}});
    create(&mut world, "net", &template);
    let volume = world.physical_ids("net")["Data"].clone();
    let id = world.live("net").unwrap().id.clone();
    world.delete_stack("net", Some("t")).unwrap();
    assert_eq!(status(&world, "net"), "DELETE_IN_PROGRESS");
    world.delete_stack("net", Some("t")).unwrap();
    world.settle();
    assert_eq!(status(&world, "net"), "none");
    let story = story(&mut world, &id);
    let at =
        |line: &str| story.iter().position(|one| one == line).unwrap_or_else(|| panic!("{line}: {story:#?}"));
    assert!(at("Subnet DELETE_COMPLETE") < at("Vpc DELETE_IN_PROGRESS"));
    assert!(at("Group DELETE_COMPLETE") < at("Vpc DELETE_IN_PROGRESS"));
    at("Data DELETE_SKIPPED");
    assert_eq!(story.last().unwrap(), "net DELETE_COMPLETE");
    assert_eq!(world.existing().into_iter().collect::<Vec<_>>(), [("AWS::EC2::Volume".to_owned(), volume)]);
    assert_eq!(world.stacks(Some(&id)).unwrap()[0].0.status, slipway_rollout::StackStatus::DeleteComplete);
    assert!(world.stacks(Some("net")).unwrap_err().message.contains("does not exist"));
}

#[test]
fn a_deletion_that_fails_says_what_is_left_and_can_be_tried_again() {
    let mut world = world();
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    world.fail_during(Phase::Delete, "Subnet", "has dependencies", 1);
    world.delete_stack("net", None).unwrap();
    world.settle();
    assert_eq!(status(&world, "net"), "DELETE_FAILED");
    assert_eq!(world.physical_ids("net").keys().collect::<Vec<_>>(), ["Subnet", "Vpc"]);
    assert_eq!(
        world.live("net").unwrap().reason.as_deref(),
        Some("The following resource(s) failed to delete: [Subnet]. ")
    );
    world.delete_stack("net", None).unwrap();
    world.settle();
    assert_eq!(status(&world, "net"), "none");
    assert!(world.existing().is_empty());
}

#[test]
fn a_removed_resource_goes_in_the_cleanup() {
    let mut world = world();
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    let mut less = network("10.0.0.0/16", "10.0.0.0/24");
    less["Resources"].as_object_mut().unwrap().remove("Group");
    update(&mut world, "net", &less);
    assert_eq!(world.physical_ids("net").keys().collect::<Vec<_>>(), ["Subnet", "Vpc"]);
    let story = story(&mut world, "net");
    let cleanup = story.iter().position(|line| line.contains("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")).unwrap();
    assert_eq!(
        story[cleanup + 1..],
        ["Group DELETE_IN_PROGRESS", "Group DELETE_COMPLETE", "net UPDATE_COMPLETE"]
    );
}

#[test]
fn a_stack_in_review_goes_at_once_and_one_in_creation_is_stopped() {
    let mut world = world();
    let asked = request("net", &network("10.0.0.0/16", "10.0.0.0/24"));
    make(&mut world, "net", "first", ChangeSetKind::Create, &asked).unwrap();
    world.delete_stack("net", None).unwrap();
    world.settle();
    assert_eq!(status(&world, "net"), "none");
    world.create_stack(&asked).unwrap();
    let at = world.now() + jiff::SignedDuration::from_secs(5);
    world.advance(at);
    world.delete_stack("net", None).unwrap();
    world.settle();
    assert_eq!(status(&world, "net"), "none");
    assert!(world.existing().is_empty());
    world.delete_stack("nobody", None).unwrap();
}
