//! The content of change sets.

use serde_json::json;

use super::*;
use crate::schema::Recreation;
use crate::world::{Change, NO_CHANGES, NO_UPDATES};

fn changes(world: &mut World, stack: &str, template: &Value) -> Result<Vec<Change>, String> {
    let name = format!("look-{}", world.sequence);
    make(world, stack, &name, ChangeSetKind::Update, &request(stack, template))
        .map_err(|error| error.to_string())?;
    let change_set = world.change_set(Some(stack), &name).unwrap().1.clone();
    match change_set.reason {
        Some(reason) => {
            assert_eq!((change_set.status, change_set.execution_status.name()), ("FAILED", "UNAVAILABLE"));
            Err(reason)
        }
        None => Ok(change_set.changes),
    }
}

fn short(changes: &[Change]) -> Vec<String> {
    changes
        .iter()
        .map(|one| format!("{} {} {}", one.action.name(), one.logical_id, one.replacement.unwrap_or("-")))
        .collect()
}

#[test]
fn p1_the_same_template_has_no_changes() {
    let mut world = world();
    let template = network("10.0.0.0/16", "10.0.0.0/24");
    create(&mut world, "net", &template);
    assert_eq!(changes(&mut world, "net", &template).unwrap_err(), NO_CHANGES);
    let mut described = template.clone();
    described["Description"] = json!("the same, told");
    assert_eq!(changes(&mut world, "net", &described).unwrap_err(), NO_UPDATES);
    let error = world.update_stack(&request("net", &template)).unwrap_err();
    assert_eq!(error.message, "No updates are to be performed.");
}

#[test]
fn p3_adding_changing_replacing_removing_are_said_with_both_values() {
    let mut world = world();
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    let mut target = network("10.0.0.0/16", "10.0.1.0/24");
    target["Resources"]["Vpc"]["Properties"]["EnableDnsSupport"] = json!(true);
    target["Resources"]["Gateway"] = json!({"Type": "AWS::EC2::InternetGateway"});
    target["Resources"].as_object_mut().unwrap().remove("Group");
    let changes = changes(&mut world, "net", &target).unwrap();
    assert_eq!(
        short(&changes),
        ["Add Gateway -", "Remove Group -", "Modify Subnet True", "Modify Vpc False"]
    );
    assert_eq!(changes[1].policy_action, Some("Delete"));
    let subnet = &changes[2];
    assert_eq!(subnet.policy_action, Some("ReplaceAndDelete"));
    let detail = &subnet.details[0];
    assert_eq!(detail.path.as_deref(), Some("/Properties/CidrBlock"));
    assert_eq!((&detail.before, &detail.after), (&Some(json!("10.0.0.0/24")), &Some(json!("10.0.1.0/24"))));
    assert_eq!(
        (detail.recreation, detail.known, detail.source),
        (Recreation::Always, true, "DirectModification")
    );
}

#[test]
fn p3_what_refers_to_a_replaced_resource_may_be_replaced() {
    let mut world = world();
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    let changes = changes(&mut world, "net", &network("10.1.0.0/16", "10.1.0.0/24")).unwrap();
    assert_eq!(short(&changes), ["Modify Group Conditional", "Modify Subnet True", "Modify Vpc True"]);
    let detail = &changes[0].details[0];
    assert_eq!((detail.source, detail.known), ("ResourceReference", false));
    assert_eq!(detail.causing_entity.as_deref(), Some("Vpc"));
    assert_eq!(detail.after, Some(json!("{{changeSet:KNOWN_AFTER_APPLY}}")));
}

#[test]
fn p2_a_new_image_touches_the_group_by_its_template_and_does_not_replace_it() {
    let mut world = world();
    create(&mut world, "pool", &pool("ami-1", 3));
    let changes = changes(&mut world, "pool", &pool("ami-2", 3)).unwrap();
    assert_eq!(short(&changes), ["Modify Nodes Conditional", "Modify Template False"]);
    let detail = &changes[0].details[0];
    assert_eq!(detail.recreation, Recreation::Conditionally);
    assert_eq!(detail.causing_entity.as_deref(), Some("Template.LatestVersionNumber"));
    let alone = self::changes(&mut world, "pool", &pool("ami-1", 4)).unwrap();
    assert_eq!(short(&alone), ["Modify Nodes False"]);
}

#[test]
fn tags_of_the_stack_reach_what_takes_tags() {
    let mut world = world();
    create(&mut world, "pool", &pool("ami-1", 3));
    let mut asked = request("pool", &pool("ami-1", 3));
    asked.tags = Some([("team".to_owned(), "blue".to_owned())].into());
    make(&mut world, "pool", "tags", ChangeSetKind::Update, &asked).unwrap();
    let change_set = world.change_set(Some("pool"), "tags").unwrap().1.clone();
    assert_eq!(short(&change_set.changes), ["Modify Nodes False"]);
    assert!(change_set.changes[0].scope.contains("Tags"));
    world.execute_change_set(Some("pool"), "tags", None).unwrap();
    world.settle();
    assert_eq!(world.live("pool").unwrap().resources["Nodes"].stack_tags["team"], "blue");
}

#[test]
fn a_parameter_is_named_as_the_cause() {
    let template = json!({
        "Parameters": {"Most": {"Type": "Number", "Default": "3"}},
        "Resources": {"Nodes": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {
            "MinSize": "1", "MaxSize": {"Ref": "Most"}, "InstanceId": "i-1"}}}});
    let mut world = world();
    create(&mut world, "pool", &template);
    let mut asked = request("pool", &template);
    asked.parameters = [("Most".to_owned(), Some("5".to_owned()))].into();
    make(&mut world, "pool", "more", ChangeSetKind::Update, &asked).unwrap();
    let change_set = world.change_set(Some("pool"), "more").unwrap().1.clone();
    let detail = &change_set.changes[0].details[0];
    assert_eq!((detail.source, detail.causing_entity.as_deref()), ("ParameterReference", Some("Most")));
}

#[test]
fn a_change_set_is_executed_once_and_the_others_go() {
    let mut world = world();
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    for (name, subnet) in [("a", "10.0.1.0/24"), ("b", "10.0.2.0/24")] {
        let asked = request("net", &network("10.0.0.0/16", subnet));
        make(&mut world, "net", name, ChangeSetKind::Update, &asked).unwrap();
    }
    let again = request("net", &network("10.0.0.0/16", "10.0.3.0/24"));
    let error = world.create_change_set("a", ChangeSetKind::Update, None, &again).unwrap_err();
    assert_eq!(error.code, "AlreadyExistsException");
    world.execute_change_set(Some("net"), "a", Some("one")).unwrap();
    world.execute_change_set(Some("net"), "a", Some("one")).unwrap();
    let error = world.execute_change_set(Some("net"), "a", Some("twice")).unwrap_err();
    assert_eq!(error.code, "InvalidChangeSetStatus");
    assert_eq!(world.execute_change_set(Some("net"), "b", None).unwrap_err().code, "ChangeSetNotFound");
    assert_eq!(world.delete_stack("net", Some("one")).unwrap_err().code, "TokenAlreadyExistsException");
    world.settle();
    assert_eq!(world.change_set(Some("net"), "a").unwrap().1.execution_status.name(), "EXECUTE_COMPLETE");
    let error = world.execute_change_set(Some("net"), "a", Some("late")).unwrap_err();
    assert!(error.message.contains("EXECUTE_COMPLETE"), "{error}");
}

#[test]
fn an_update_by_another_way_makes_a_change_set_obsolete() {
    let mut world = world();
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    let asked = request("net", &network("10.0.0.0/16", "10.0.1.0/24"));
    make(&mut world, "net", "waits", ChangeSetKind::Update, &asked).unwrap();
    world.update_stack(&request("net", &network("10.0.0.0/16", "10.0.2.0/24"))).unwrap();
    world.settle();
    let error = world.execute_change_set(Some("net"), "waits", None).unwrap_err();
    assert_eq!(error.code, "InvalidChangeSetStatus");
    assert!(error.message.contains("OBSOLETE"), "{error}");
    world.delete_change_set(Some("net"), "waits").unwrap();
    world.delete_change_set(Some("net"), "waits").unwrap();
}
