//! Creation, update, rollback.

use serde_json::json;

use super::*;
use crate::Phase;
use crate::world::Outgoing;

#[test]
fn a_create_change_set_goes_from_review_to_complete_and_takes_its_time() {
    let mut world = world();
    let asked = request("net", &network("10.0.0.0/16", "10.0.0.0/24"));
    world.create_change_set("first", ChangeSetKind::Create, None, &asked).unwrap();
    assert_eq!(status(&world, "net"), "REVIEW_IN_PROGRESS");
    assert_eq!(world.change_set(Some("net"), "first").unwrap().1.status, "CREATE_PENDING");
    world.settle();
    assert_eq!(world.change_set(Some("net"), "first").unwrap().1.status, "CREATE_COMPLETE");
    world.execute_change_set(Some("net"), "first", Some("token-1")).unwrap();
    assert_eq!(status(&world, "net"), "CREATE_IN_PROGRESS");
    let begun = world.now();
    world.settle();
    assert_eq!(status(&world, "net"), "CREATE_COMPLETE");
    assert!(world.now().duration_since(begun).as_secs() > 10);
    assert_eq!(
        story(&mut world, "net"),
        [
            "net REVIEW_IN_PROGRESS User Initiated",
            "net CREATE_IN_PROGRESS User Initiated",
            "Vpc CREATE_IN_PROGRESS",
            "Vpc CREATE_IN_PROGRESS Resource creation Initiated",
            "Vpc CREATE_COMPLETE",
            "Group CREATE_IN_PROGRESS",
            "Subnet CREATE_IN_PROGRESS",
            "Group CREATE_IN_PROGRESS Resource creation Initiated",
            "Subnet CREATE_IN_PROGRESS Resource creation Initiated",
            "Group CREATE_COMPLETE",
            "Subnet CREATE_COMPLETE",
            "net CREATE_COMPLETE",
        ]
    );
    let ids = world.physical_ids("net");
    assert!(ids["Vpc"].starts_with("vpc-0") && ids["Vpc"].len() == 21, "{ids:?}");
}

#[test]
fn one_seed_is_one_world() {
    let run = |seed| {
        let mut world = World::new(Config { seed, ..Config::default() });
        create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
        update(&mut world, "net", &network("10.0.0.0/16", "10.0.1.0/24"));
        format!("{:?} {:?}", world.physical_ids("net"), world.drain())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_failed_creation_cancels_its_siblings_and_rolls_back() {
    let mut world = world();
    let template = json!({"Resources": {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Gateway": {"Type": "AWS::EC2::InternetGateway"},
        "Key": {"Type": "AWS::KMS::Key", "DeletionPolicy": "Retain", "Properties": {}},
        "Bad": {"Type": "AWS::EC2::Volume", "Properties": {"AvailabilityZone": "eu-central-1a", "Size": 8}},
    }});
    world.fail("Bad", "VolumeLimitExceeded", 1);
    create(&mut world, "net", &template);
    assert!(!world.faults_pending());
    assert_eq!(status(&world, "net"), "ROLLBACK_COMPLETE");
    let story = story(&mut world, "net");
    let has = |line: &str| assert!(story.iter().any(|one| one == line), "{line}: {story:#?}");
    has("Bad CREATE_FAILED VolumeLimitExceeded");
    has("Vpc CREATE_FAILED Resource creation cancelled");
    has(
        "net ROLLBACK_IN_PROGRESS The following resource(s) failed to create: [Bad, Gateway, Key, Vpc]. Rollback requested by user.",
    );
    has("Key DELETE_SKIPPED");
    has("Bad DELETE_COMPLETE");
    assert_eq!(world.existing().iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["AWS::KMS::Key"]);
    let again = request("net", &template);
    let error = world.create_change_set("again", ChangeSetKind::Update, None, &again).unwrap_err();
    assert!(error.message.ends_with("is in ROLLBACK_COMPLETE state and can not be updated."), "{error}");
    world.delete_stack("net", None).unwrap();
    world.settle();
    assert_eq!(status(&world, "net"), "none");
    create(&mut world, "net", &template);
    assert_eq!(status(&world, "net"), "CREATE_COMPLETE");
}

#[test]
fn on_failure_says_what_becomes_of_a_failed_creation() {
    for (on_failure, wanted) in [(OnFailure::DoNothing, "CREATE_FAILED"), (OnFailure::Delete, "none")] {
        let mut world = world();
        world.fail("AWS::EC2::Subnet", "no", 1);
        let asked = with_on_failure(request("net", &network("10.0.0.0/16", "10.0.0.0/24")), on_failure);
        make(&mut world, "net", "first", ChangeSetKind::Create, &asked).unwrap();
        world.execute_change_set(Some("net"), "first", None).unwrap();
        world.settle();
        assert_eq!(status(&world, "net"), wanted);
    }
}

#[test]
fn a_replacement_is_made_before_the_old_one_goes() {
    let mut world = world();
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    let before = world.physical_ids("net");
    update(&mut world, "net", &network("10.0.0.0/16", "10.0.1.0/24"));
    let after = world.physical_ids("net");
    assert_eq!(before["Vpc"], after["Vpc"]);
    assert_ne!(before["Subnet"], after["Subnet"]);
    let events = events(&mut world, "net");
    let from = events.iter().position(|event| event.status == "UPDATE_IN_PROGRESS").unwrap();
    let tail: Vec<String> = events[from..]
        .iter()
        .map(|event| {
            let which = match event.physical_id.as_str() {
                id if id == before["Subnet"] => "old",
                id if id == after["Subnet"] => "new",
                _ => "",
            };
            format!("{} {} {which}", event.logical_id, event.status)
        })
        .collect();
    assert_eq!(
        tail,
        [
            "net UPDATE_IN_PROGRESS ",
            "Subnet UPDATE_IN_PROGRESS old",
            "Subnet UPDATE_IN_PROGRESS new",
            "Subnet UPDATE_COMPLETE new",
            "net UPDATE_COMPLETE_CLEANUP_IN_PROGRESS ",
            "Subnet DELETE_IN_PROGRESS old",
            "Subnet DELETE_COMPLETE old",
            "net UPDATE_COMPLETE ",
        ]
    );
}

#[test]
fn a_new_launch_template_version_changes_the_group_in_place() {
    let mut world = world();
    create(&mut world, "pool", &pool("ami-1", 3));
    let before = world.physical_ids("pool");
    update(&mut world, "pool", &pool("ami-2", 3));
    assert_eq!(world.physical_ids("pool"), before);
    let resources = &world.live("pool").unwrap().resources;
    assert_eq!(resources["Template"].attributes["LatestVersionNumber"], "2");
    assert_eq!(resources["Nodes"].properties["LaunchTemplate"]["Version"], "2");
}

#[test]
fn a_failed_update_goes_back_to_what_was() {
    let mut world = world();
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    let (before, existed) = (world.physical_ids("net"), world.existing());
    let mut target = network("10.0.0.0/16", "10.0.1.0/24");
    target["Resources"]["Gateway"] = json!({"Type": "AWS::EC2::InternetGateway"});
    target["Resources"]["Late"] = json!({"Type": "AWS::EC2::Volume", "DependsOn": ["Gateway", "Subnet"],
        "Properties": {"AvailabilityZone": "eu-central-1a", "Size": 8}});
    world.fail("Late", "no room", 1);
    update(&mut world, "net", &target);
    assert_eq!(status(&world, "net"), "UPDATE_ROLLBACK_COMPLETE");
    assert_eq!((world.physical_ids("net"), world.existing()), (before, existed));
    let story = story(&mut world, "net");
    let at =
        |line: &str| story.iter().position(|one| one == line).unwrap_or_else(|| panic!("{line}: {story:#?}"));
    let back = at("net UPDATE_ROLLBACK_IN_PROGRESS The following resource(s) failed to create: [Late].");
    let cleanup = at("net UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS");
    assert!(
        at("Late CREATE_FAILED no room") < back && back < cleanup && cleanup < at("Gateway DELETE_COMPLETE")
    );
    let change_set = world.live("net").unwrap().change_sets[0].clone();
    assert_eq!(change_set.execution_status.name(), "EXECUTE_FAILED");
    update(&mut world, "net", &target);
    assert_eq!(status(&world, "net"), "UPDATE_COMPLETE");
}

#[test]
fn what_was_updated_in_place_is_updated_back() {
    let mut world = world();
    create(&mut world, "pool", &pool("ami-1", 3));
    world.fail("Nodes", "no capacity", 1);
    update(&mut world, "pool", &pool("ami-2", 5));
    assert_eq!(status(&world, "pool"), "UPDATE_ROLLBACK_COMPLETE");
    let resources = &world.live("pool").unwrap().resources;
    assert_eq!(resources["Template"].properties["LaunchTemplateData"]["ImageId"], "ami-1");
    assert_eq!(resources["Template"].attributes["LatestVersionNumber"], "3");
    assert_eq!(resources["Nodes"].properties["MaxSize"], "3");
    assert_eq!(resources["Nodes"].status.name(), "UPDATE_COMPLETE");
}

#[test]
fn a_rollback_that_fails_leaves_the_stack_stuck() {
    let mut world = world();
    create(&mut world, "pool", &pool("ami-1", 3));
    world.fail("Nodes", "no capacity", 1);
    world.fail_during(Phase::Rollback, "Template", "still no", 1);
    update(&mut world, "pool", &pool("ami-2", 5));
    assert_eq!(status(&world, "pool"), "UPDATE_ROLLBACK_FAILED");
    let error = world.update_stack(&request("pool", &pool("ami-3", 3))).unwrap_err();
    assert!(error.message.contains("UPDATE_ROLLBACK_FAILED"), "{error}");
}

#[test]
fn a_named_resource_cannot_be_replaced_under_its_name() {
    let group = |port: u32| {
        json!({"Resources": {"Api": {"Type": "AWS::ElasticLoadBalancingV2::TargetGroup", "Properties": {
            "Name": "prod-api", "Port": port, "Protocol": "TCP", "VpcId": "vpc-1"}}}})
    };
    let mut world = world();
    create(&mut world, "api", &group(443));
    let error_free = world.physical_ids("api");
    update(&mut world, "api", &group(6443));
    assert_eq!(status(&world, "api"), "UPDATE_ROLLBACK_COMPLETE");
    assert_eq!(world.physical_ids("api"), error_free);
    assert!(
        story(&mut world, "api").iter().any(|line| line.contains("custom-named resource requires replacing"))
    );
}

#[test]
fn the_bus_learns_of_every_status_in_aws_words() {
    let mut world = world();
    let asked = request("net", &network("10.0.0.0/16", "10.0.0.0/24"));
    make(&mut world, "net", "first", ChangeSetKind::Create, &asked).unwrap();
    world.execute_change_set(Some("net"), "first", Some("token-1")).unwrap();
    world.settle();
    let mut sent = Vec::new();
    for outgoing in world.drain() {
        match outgoing {
            Outgoing::Event(event) => sent.push(event),
            Outgoing::Invoke { .. } => panic!("no schedule was made"),
        }
    }
    let last = sent.last().unwrap();
    assert_eq!(last.detail_type, "CloudFormation Stack Status Change");
    let envelope = &last.envelope;
    assert_eq!(envelope["source"], "aws.cloudformation");
    assert_eq!(
        envelope["detail"]["status-details"],
        json!({"status": "CREATE_COMPLETE", "status-reason": ""})
    );
    assert_eq!(envelope["detail"]["client-request-token"], "token-1");
    let stack_id = envelope["detail"]["stack-id"].as_str().unwrap();
    assert!(stack_id.starts_with("arn:aws:cloudformation:eu-central-1:123456789012:stack/net/"));
    let of_resources =
        sent.iter().filter(|event| event.detail_type == "CloudFormation Resource Status Change").count();
    assert_eq!(of_resources, 9);
    assert!(world.drain().is_empty());
}

#[test]
fn a_record_that_moves_to_another_zone_keeps_its_id_and_stands_once() {
    let record = |zone: &str| {
        json!({"Resources": {"Record": {"Type": "AWS::Route53::RecordSet", "Properties": {
            "HostedZoneId": zone, "Name": "api.example.com.", "Type": "A", "TTL": "60",
            "ResourceRecords": ["192.0.2.1"]}}}})
    };
    let mut world = world();
    create(&mut world, "names", &record("Z1111111111"));
    let before = world.existing();
    update(&mut world, "names", &record("Z2222222222"));
    assert_eq!(world.physical_ids("names").len(), 1, "the stack lost its record");
    let after = world.existing();
    assert!(after.len() == 1 && after != before, "{after:?}");
    // The group is changed back when the update fails.
    world.fail("Last", "no", 1);
    let mut broken = record("Z1111111111");
    broken["Resources"]["Last"] = json!({"Type": "AWS::EC2::VPC", "DependsOn": "Record",
        "Properties": {"CidrBlock": "10.0.0.0/16"}});
    update(&mut world, "names", &broken);
    assert_eq!(status(&world, "names"), "UPDATE_ROLLBACK_COMPLETE");
    assert_eq!(world.physical_ids("names").len(), 1);
    assert_eq!(world.existing(), after);
}

#[test]
fn a_description_that_ec2_does_not_take_fails_the_stack() {
    let group = |rule: &str| {
        let mut template = network("10.0.0.0/16", "10.0.0.0/24");
        let properties = &mut template["Resources"]["Group"]["Properties"];
        properties["SecurityGroupIngress"] = json!([{"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "CidrIp": "10.0.0.0/8", "Description": rule}]);
        template
    };
    let told = |template: &Value| {
        let mut world = world();
        create(&mut world, "s", template);
        (status(&world, "s"), story(&mut world, "s").join("\n"))
    };
    assert_eq!(told(&group("a-z, A-Z: 0.9 (#@[]+=&;{}!$*)/_")).0, "CREATE_COMPLETE");
    let (status, story) = told(&group("each other's"));
    assert!(status == "ROLLBACK_COMPLETE" && story.contains("Invalid rule description"), "{story}");
    let (status, story) = told(&group(&"a".repeat(256)));
    assert!(status == "ROLLBACK_COMPLETE" && story.contains("less than 256"), "{story}");
}
