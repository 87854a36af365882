//! What is counted in the templates of a rendering, and what is said not to be.

use std::collections::BTreeSet;

use serde_json::json;
use slipway_core::release::{AddonSet, StackKind};
use slipway_render::fixture;

use super::*;
use crate::tests::stack;

fn machine(instance_type: &str) -> Charge {
    Charge::Machine { instance_type: instance_type.to_owned(), dedicated: false }
}

fn gp3() -> Charge {
    Charge::Storage { volume_type: "gp3".to_owned() }
}

/// How much of a charge a stack has, if it has no other choice.
fn amount(counted: &Counted, of: &str, charge: &Charge) -> Option<Amount> {
    let only =
        |item: &&Item| item.stack == of && item.choices.len() == 1 && item.choices[0].charge == *charge;
    counted.items.iter().find(only).map(|item| item.choices[0].amount)
}

fn rendering(templates: &[(&str, Value)]) -> Rendering {
    Rendering {
        format: Rendering::FORMAT,
        cluster: "prod".to_owned(),
        stacks: templates.iter().map(|(name, template)| stack(name, StackKind::Pool, template)).collect(),
        roles: BTreeMap::new(),
        addons: AddonSet::default(),
    }
}

/// A group with a launch template.
fn group(group: Value, data: Value) -> Counted {
    let mut group = group;
    group["VPCZoneIdentifier"] = json!([]);
    count(&rendering(&[(
        "prod-pool-a",
        json!({ "Resources": {
            "LaunchTemplate": { "Type": "AWS::EC2::LaunchTemplate", "Properties": { "LaunchTemplateData": data } },
            "Group": { "Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": group },
        } }),
    )]))
}

#[test]
fn a_cluster_of_three_zones_is_counted_as_it_is_rendered() {
    let counted = count(&fixture::rendered(&fixture::cluster()));
    assert_eq!(counted.uncounted, []);
    let fixed = |number| Some(Amount::fixed(number));
    // A gateway in each of three zones, each with an address; a public load balancer in three zones, and one inside.
    assert_eq!(amount(&counted, "prod-network", &Charge::NatGateway), fixed(3));
    assert_eq!(amount(&counted, "prod-network", &Charge::PublicAddress), fixed(3));
    assert_eq!(amount(&counted, "prod-network", &Charge::HostedZone), fixed(1));
    assert_eq!(amount(&counted, "prod-control-plane", &Charge::NetworkLoadBalancer), fixed(2));
    assert_eq!(amount(&counted, "prod-control-plane", &Charge::PublicAddress), fixed(3));
    // The root of each member, and its data.
    let cluster = fixture::cluster();
    let (member, root) = (&cluster.etcd.instance_type, u64::from(cluster.etcd.root_volume.size_gib));
    assert_eq!(amount(&counted, "prod-etcd", &machine(member)), fixed(3));
    assert_eq!(amount(&counted, "prod-etcd", &gp3()), fixed(3 * (root + 20)));
    assert_eq!(amount(&counted, "prod-etcd", &Charge::Iops { volume_type: "gp3".to_owned() }), None);
    assert_eq!(
        amount(&counted, "prod-pool-general", &machine("m7g.large")),
        Some(Amount { least: 2, most: 6 })
    );
    assert_eq!(amount(&counted, "prod-pool-general", &gp3()), Some(Amount { least: 100, most: 300 }));
    // Only this pool is in a public subnet.
    assert_eq!(amount(&counted, "prod-pool-general", &Charge::PublicAddress), None);
    assert_eq!(
        amount(&counted, "prod-pool-ingress", &Charge::PublicAddress),
        Some(Amount { least: 2, most: 6 })
    );
}

#[test]
fn a_weighted_pool_of_spot_instances_is_counted_in_machines_of_each_type() {
    let counted = count(&fixture::rendered(&fixture::cluster()));
    let item = counted.items.iter().find(|item| item.spot).unwrap();
    let choice = |name, least, most| Choice { charge: machine(name), amount: Amount { least, most } };
    assert_eq!(item.stack, "prod-pool-spot");
    assert_eq!(item.choices, [choice("m7g.large", 2, 6), choice("m7g.xlarge", 1, 3)]);
    // One machine of the large type has one root volume.
    assert_eq!(amount(&counted, "prod-pool-spot", &gp3()), Some(Amount { least: 50, most: 300 }));
}

#[test]
fn the_base_and_a_percentage_of_the_rest_are_on_demand() {
    let policy = |distribution: Value| {
        json!({ "MinSize": "4", "MaxSize": "10", "MixedInstancesPolicy": {
            "LaunchTemplate": { "LaunchTemplateSpecification": { "LaunchTemplateId": { "Ref": "LaunchTemplate" } },
                "Overrides": [{ "InstanceType": "a" }] },
            "InstancesDistribution": distribution } })
    };
    let of = |distribution: Value| -> Vec<(bool, u64, u64)> {
        let counted = group(policy(distribution), json!({}));
        counted
            .items
            .iter()
            .map(|item| (item.spot, item.choices[0].amount.least, item.choices[0].amount.most))
            .collect()
    };
    let half = json!({ "OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": 50 });
    assert_eq!(of(half), [(false, 3, 6), (true, 1, 4)]);
    // The defaults of Auto Scaling.
    assert_eq!(of(json!({})), [(false, 4, 10)]);
}

#[test]
fn of_a_volume_only_what_it_does_not_include_is_charged() {
    let with = |ebs: Value| {
        let counted = group(
            json!({ "MinSize": "2", "MaxSize": "2", "LaunchTemplate": { "LaunchTemplateId": { "Ref": "LaunchTemplate" } } }),
            json!({ "InstanceType": "a", "BlockDeviceMappings": [{ "DeviceName": "x", "Ebs": ebs }] }),
        );
        let volumes = counted.items.iter().filter(|item| item.choices[0].charge != machine("a"));
        let each: Vec<(Charge, u64)> =
            volumes.map(|item| (item.choices[0].charge.clone(), item.choices[0].amount.least)).collect();
        (each, counted.uncounted.len())
    };
    let storage = |volume_type: &str| Charge::Storage { volume_type: volume_type.to_owned() };
    let iops = |volume_type: &str| Charge::Iops { volume_type: volume_type.to_owned() };
    let throughput = Charge::Throughput { volume_type: "gp3".to_owned() };
    let all = json!({ "VolumeSize": 10, "VolumeType": "gp3", "Iops": 4000, "Throughput": 250 });
    assert_eq!(with(all), (vec![(gp3(), 20), (iops("gp3"), 2000), (throughput, 250)], 0));
    let included = json!({ "VolumeSize": "10", "VolumeType": "gp3", "Iops": 3000, "Throughput": 125 });
    assert_eq!(with(included), (vec![(gp3(), 20)], 0));
    let io1 = json!({ "VolumeSize": 10, "VolumeType": "io1", "Iops": 100 });
    assert_eq!(with(io1), (vec![(storage("io1"), 20), (iops("io1"), 200)], 0));
    assert_eq!(with(json!({ "VolumeSize": 10 })), (vec![(storage("gp2"), 20)], 0));
    // What is not clear is said.
    let tiers = json!({ "VolumeSize": 10, "VolumeType": "io2", "Iops": 40_000 });
    assert_eq!(with(tiers), (vec![(storage("io2"), 20)], 1));
    assert_eq!(with(json!({ "VolumeSize": { "Ref": "x" } })), (vec![], 1));
}

#[test]
fn what_is_not_known_is_named_and_not_left_out() {
    let spec = json!({ "MinSize": "1", "MaxSize": "1", "LaunchTemplate": { "LaunchTemplateId": { "Ref": "LaunchTemplate" } } });
    let host = group(spec.clone(), json!({ "InstanceType": "a", "Placement": { "Tenancy": "host" } }));
    assert_eq!(host.uncounted.len(), 1, "{host:?}");
    assert!(group(spec, json!({})).uncounted[0].why.contains("no instance type"));
    let patched = json!({ "Resources": {
        "Table": { "Type": "AWS::DynamoDB::Table", "Properties": {} },
        "Endpoint": { "Type": "AWS::EC2::VPCEndpoint", "Properties": { "VpcEndpointType": "Interface" } },
        "Gateway": { "Type": "AWS::EC2::VPCEndpoint", "Properties": { "ServiceName": "s3" } },
        "Group": { "Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": { "MinSize": "1", "MaxSize": "1",
            "VPCZoneIdentifier": ["subnet-1"], "LaunchTemplate": { "LaunchTemplateId": { "Ref": "Template" } } } },
        "Template": { "Type": "AWS::EC2::LaunchTemplate", "Properties": { "LaunchTemplateData": { "InstanceType": "a" } } },
    } });
    let counted = count(&rendering(&[("prod-network", patched)]));
    let named: BTreeSet<&str> = counted.uncounted.iter().map(|one| one.resource.as_str()).collect();
    assert_eq!(named, ["Endpoint", "Group", "Table"].into());
}
