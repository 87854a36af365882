//! Exports and imports.

use serde_json::json;

use super::*;

fn exporting(cidr: &str, name: &str) -> Value {
    let mut template = network(cidr, &cidr.replace("/16", "/24"));
    template["Outputs"] = json!({"Vpc": {"Value": {"Ref": "Vpc"}, "Export": {"Name": name}}});
    template
}

fn importing(name: &str) -> Value {
    json!({"Resources": {"Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": {
        "GroupDescription": "x", "VpcId": {"Fn::ImportValue": name}}}}})
}

#[test]
fn an_export_reaches_the_stack_that_imports_it() {
    let mut world = world();
    create(&mut world, "net", &exporting("10.0.0.0/16", "net-vpc"));
    create(&mut world, "app", &importing("net-vpc"));
    let vpc = world.physical_ids("net")["Vpc"].clone();
    assert_eq!(world.live("app").unwrap().resources["Group"].properties["VpcId"], json!(vpc));
    let exports = world.list_exports().unwrap();
    assert_eq!(exports.len(), 1);
}

#[test]
fn an_export_in_use_can_neither_change_nor_go() {
    let mut world = world();
    create(&mut world, "net", &exporting("10.0.0.0/16", "net-vpc"));
    create(&mut world, "app", &importing("net-vpc"));
    update(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    assert_eq!(status(&world, "net"), "UPDATE_ROLLBACK_COMPLETE");
    let told = |world: &mut World, words: &str| {
        let story = story(world, "net");
        assert!(story.iter().any(|line| line.contains(words)), "{words}: {story:#?}");
    };
    told(&mut world, "UPDATE_ROLLBACK_IN_PROGRESS Export net-vpc cannot be deleted as it is in use by app");
    update(&mut world, "net", &exporting("10.9.0.0/16", "net-vpc"));
    told(&mut world, "Export net-vpc cannot be updated as it is in use by app");
    world.delete_stack("net", None).unwrap();
    world.settle();
    assert_eq!(status(&world, "net"), "UPDATE_ROLLBACK_COMPLETE");
    told(&mut world, "Delete canceled. Cannot delete export net-vpc as it is in use by app.");
    world.delete_stack("app", None).unwrap();
    world.settle();
    world.delete_stack("net", None).unwrap();
    world.settle();
    assert_eq!(status(&world, "net"), "none");
}

#[test]
fn an_export_has_one_owner() {
    let mut world = world();
    create(&mut world, "net", &exporting("10.0.0.0/16", "net-vpc"));
    create(&mut world, "other", &exporting("10.0.0.0/16", "net-vpc"));
    assert_eq!(status(&world, "other"), "ROLLBACK_COMPLETE");
    let story = story(&mut world, "other");
    let words = "ROLLBACK_IN_PROGRESS Export with name net-vpc is already exported by stack net. Rollback requested by user.";
    assert!(story.iter().any(|line| line.ends_with(words)), "{story:#?}");
}

#[test]
fn an_import_that_nobody_exports_fails() {
    let mut world = world();
    make(&mut world, "app", "first", ChangeSetKind::Create, &request("app", &importing("net-vpc"))).unwrap();
    let change_set = world.change_set(Some("app"), "first").unwrap().1.clone();
    assert_eq!(
        (change_set.status, change_set.reason.as_deref()),
        ("FAILED", Some("No export named net-vpc found."))
    );
    world.delete_stack("app", None).unwrap();
    world.settle();
    world.create_stack(&request("app", &importing("net-vpc"))).unwrap();
    world.settle();
    assert_eq!(status(&world, "app"), "ROLLBACK_COMPLETE");
}
