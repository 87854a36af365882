//! The production example in moto: the resources of EC2, IAM, Route 53 and Auto Scaling.
//!
//! `tests/scripts/launch_in_moto.py` lists what moto cannot do. Properties of the templates alone are tested in the core; these tests need
//! a second implementation, which shows that the created resources are the intended ones.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use serde_json::{Value, json};
use slipway_core::release::Rendering;
use slipway_tests::moto::Moto;
use slipway_tests::tools;
use slipway_tests::workshop::{Workshop, example};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::userdata;

async fn launch(rendering: &Rendering, region: &str, zone: &str) -> Value {
    let moto = Moto::start(&[]).await.unwrap();
    let stacks: Vec<Value> = rendering
        .stacks
        .iter()
        .map(|stack| json!({"name": stack.name, "template": serde_json::from_str::<Value>(&stack.body).unwrap()}))
        .collect();
    let mut child = Command::new(tools::python().unwrap())
        .arg(tools::root().join("tests/scripts/launch_in_moto.py"))
        .args([moto.url(), region, zone])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json!(stacks).to_string().as_bytes()).await.unwrap();
    let ended = child.wait_with_output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).unwrap()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn physical<'a>(told: &'a Value, stack: &str, id: &str) -> &'a str {
    text(&told["ids"][format!("production-{stack}")][id])
}

/// The permitted sources of a security group: port, and the id of the group or the range.
fn ingress(told: &Value, group: &str) -> BTreeSet<(u64, String)> {
    let groups = list(&told["securityGroups"]);
    let found = groups.iter().find(|one| one["GroupId"] == group).unwrap();
    let mut all = BTreeSet::new();
    for permission in list(&found["IpPermissions"]) {
        if permission["IpProtocol"] == "icmp" {
            // Path MTU discovery, from wherever.
            assert_eq!(
                (&permission["FromPort"], &permission["ToPort"]),
                (&json!(3), &json!(4)),
                "{permission}"
            );
            continue;
        }
        assert_eq!(permission["FromPort"], permission["ToPort"], "{permission}");
        let port = permission["FromPort"].as_u64().unwrap();
        let from_groups = list(&permission["UserIdGroupPairs"]).iter().map(|pair| text(&pair["GroupId"]));
        let from_ranges = list(&permission["IpRanges"]).iter().map(|range| text(&range["CidrIp"]));
        all.extend(from_groups.chain(from_ranges).map(|source| (port, source.to_owned())));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_created_is_what_was_meant() {
    let spec = example("production");
    let workshop = Workshop::for_spec(&spec);
    let rendering = workshop.render(&spec).await.rendering;
    let told = launch(&rendering, &workshop.region(), "Z0123456789ABCDEFGHIJ").await;

    nodes_take_no_role_but_their_own(&told);
    machines_are_locked_down_and_know_their_zone(&told);
    doors_are_open_to_whom_they_are_meant(&told);
    names_lead_to_the_balancer(&told);
    groups_stand_where_their_volumes_are(&told);
}

/// P9: a profile for each role of nodes, with one IAM role, whose policy IAM accepts and which names no bundles of other roles.
fn nodes_take_no_role_but_their_own(told: &Value) {
    let roles = told["roles"].as_object().unwrap();
    assert_eq!(roles.len(), 7, "three members, controllers, three pools");
    let mut bundles = BTreeSet::new();
    for (whose, role) in roles {
        assert_eq!(role["path"], "/slipway/", "{whose}");
        let policy = role["policies"][0].to_string();
        let own: Vec<&str> =
            policy.split("/bundles/").skip(1).map(|rest| rest.split('/').next().unwrap()).collect();
        assert_eq!(own.len(), 1, "{whose} reads {own:?}");
        assert!(bundles.insert(own[0].to_owned()), "{whose} can read another role's bundles");
    }
    let profiles: BTreeMap<&str, &str> = list(&told["profiles"])
        .iter()
        .map(|profile| {
            let roles = list(&profile["Roles"]);
            assert_eq!(roles.len(), 1, "{profile}");
            (text(&profile["Arn"]), text(&roles[0]["RoleName"]))
        })
        .collect();
    let used: BTreeSet<&str> = told["launchTemplates"]
        .as_object()
        .unwrap()
        .values()
        .map(|data| profiles[text(&data["IamInstanceProfile"]["Arn"])])
        .collect();
    let named: BTreeSet<&str> = roles.values().map(|role| text(&role["name"])).collect();
    assert_eq!(used, named, "every role has nodes, and every node has one of the roles");
}

/// Only IMDSv2, encrypted root volumes, the role's own security group, and user data with all values filled in.
fn machines_are_locked_down_and_know_their_zone(told: &Value) {
    let zone = physical(told, "network", "EtcdHostedZone");
    for (whose, data) in told["launchTemplates"].as_object().unwrap() {
        let metadata = &data["MetadataOptions"];
        assert_eq!(metadata["HttpTokens"], "required", "{whose}");
        assert_eq!(metadata["HttpPutResponseHopLimit"], 1, "{whose}");
        for device in list(&data["BlockDeviceMappings"]) {
            assert_eq!(device["Ebs"]["Encrypted"], true, "{whose}");
        }
        let (group, etcd) = match whose.as_str() {
            name if name.starts_with("production-etcd.") => ("EtcdSecurityGroup", true),
            name if name.starts_with("production-control-plane.") => ("ControllerSecurityGroup", false),
            _ => ("WorkerSecurityGroup", false),
        };
        assert_eq!(data["SecurityGroupIds"], json!([physical(told, "network", group)]), "{whose}");
        let script = userdata::decoded(text(&data["UserData"]));
        let node = userdata::node_file(&script);
        assert_eq!(node.get("zone"), etcd.then(|| json!(zone)).as_ref(), "{whose}");
    }
}

/// Only controllers and members reach etcd, and the world reaches only the load balancer of the endpoint.
fn doors_are_open_to_whom_they_are_meant(told: &Value) {
    let of = |id| physical(told, "network", id);
    let (etcd, controller) = (of("EtcdSecurityGroup"), of("ControllerSecurityGroup"));
    let worker = of("WorkerSecurityGroup");
    let from = |port: u64, who: &str| (port, who.to_owned());
    assert_eq!(
        ingress(told, etcd),
        BTreeSet::from([from(2379, etcd), from(2379, controller), from(2380, etcd)])
    );
    assert_eq!(
        ingress(told, worker),
        BTreeSet::from([
            from(8472, controller),
            from(8472, worker),
            from(10250, controller),
            from(10250, worker)
        ])
    );
    let world: Vec<(u64, String)> = list(&told["securityGroups"])
        .iter()
        .flat_map(|group| ingress(told, text(&group["GroupId"])))
        .filter(|(_, source)| source.contains('/'))
        .collect();
    assert_eq!(world, [from(443, "0.0.0.0/0")]);
}

/// The endpoint's name is an alias of its load balancer, and the members' zone exists.
fn names_lead_to_the_balancer(told: &Value) {
    let records = list(&told["records"]);
    let record = records.iter().find(|record| record["Name"] == "api.production.example.com.").unwrap();
    assert_eq!((&record["Type"], &record["zone"]), (&json!("A"), &json!("example.com.")));
    let balancers = list(&told["balancers"]);
    assert_eq!(balancers.len(), 1);
    assert_eq!(record["AliasTarget"]["DNSName"], balancers[0]["DNSName"]);
    assert!(records.iter().any(|record| record["zone"] == "production.etcd.internal."));
}

/// Each group has its minimum number of machines, and a member's machine is in the zone of its volume.
fn groups_stand_where_their_volumes_are(told: &Value) {
    let groups: BTreeMap<&str, &Value> =
        list(&told["groups"]).iter().map(|group| (text(&group["AutoScalingGroupName"]), group)).collect();
    let sizes: BTreeMap<&str, usize> =
        groups.iter().map(|(name, group)| (*name, list(&group["Instances"]).len())).collect();
    let expected = [
        ("production-control-plane", 3),
        ("production-etcd-0", 1),
        ("production-etcd-1", 1),
        ("production-etcd-2", 1),
        ("production-pool-batch-c", 4),
        ("production-pool-general-a", 2),
        ("production-pool-general-b", 2),
    ];
    assert_eq!(sizes, BTreeMap::from(expected));
    let zones = |of: &str, id: &str, key: &str| {
        let found = list(&told[of]).iter().find(|one| one[key] == id).unwrap();
        text(&found["AvailabilityZone"])
    };
    let mut used = BTreeSet::new();
    for index in 0..3 {
        let volume = zones("volumes", physical(told, "etcd", &format!("DataVolume{index}")), "VolumeId");
        let group = groups[format!("production-etcd-{index}").as_str()];
        let subnet = zones("subnets", text(&group["VPCZoneIdentifier"]), "SubnetId");
        assert_eq!(volume, subnet, "member {index} cannot attach its volume");
        used.insert(volume);
    }
    assert_eq!(used.len(), 3, "members share a zone");
}
