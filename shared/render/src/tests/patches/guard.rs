//! What a patch may do to no other cluster, and not to its own quorum: one test for each rule.

use serde_json::{Value, json};

use super::{findings_text, good, refused, resource, template, with};
use crate::fixture::{cluster, rendered};

/// Each of the changes is refused for the one thing that stands beside it.
fn each_refused(target: &str, cases: &[(Value, &str)]) {
    for (merge, what) in cases {
        let said = refused(target, merge);
        assert!(said.lines().any(|line| line.ends_with(what)), "{merge}\n{said}, not {what}");
    }
}

fn new(kind: &str, properties: Value) -> Value {
    resource("Mine", json!({ "Type": kind, "Properties": properties }))
}

const INGRESS: &str = "AWS::EC2::SecurityGroupIngress";
const EGRESS: &str = "AWS::EC2::SecurityGroupEgress";
const GROUP: &str = "AWS::EC2::SecurityGroup";

#[test]
fn a_patch_brings_in_few_types_and_says_which() {
    for kind in ["EC2::Volume", "EC2::Route", "EC2::VPCEndpoint", "Route53::RecordSet", "CloudWatch::Alarm"] {
        let text =
            format!("target: {{stack: network}}\nmerge: {}\n", new(&format!("AWS::{kind}"), json!({})));
        let found = with(&[("x.yaml", &text)]).unwrap_err();
        assert_eq!((found.len(), found[0].code.as_str()), (1, "patch-refused"), "{found:?}");
        let help = found[0].help.as_deref().unwrap();
        assert!([GROUP, INGRESS, EGRESS].iter().all(|kind| help.contains(kind)), "{help}");
    }
}

#[test]
fn a_patch_reaches_no_other_cluster_by_reference() {
    let rule =
        |group: Value| new(INGRESS, json!({ "GroupId": group, "CidrIp": "0.0.0.0/0", "IpProtocol": "-1" }));
    let import = |name: &str| json!({ "Fn::ImportValue": name });
    let group = "`GroupId` of `Mine`";
    each_refused(
        "stack: pool-general",
        &[
            (rule(json!("sg-0123456789abcdef0")), group),
            (rule(json!(["sg-0123456789abcdef0"])), group),
            (rule(import("other-network-EtcdSecurityGroup")), group),
            (rule(import("prod-network-b-network-EtcdSecurityGroup")), group),
            (rule(json!({ "Fn::ImportValue": { "Fn::Sub": "other-network-EtcdSecurityGroup" } })), group),
            (rule(json!({ "Ref": "AWS::StackName" })), group),
            (new(INGRESS, json!({ "GroupName": "default" })), "`GroupName` of `Mine`"),
            (new(GROUP, json!({ "VpcId": "vpc-0123456789abcdef0" })), "`VpcId` of `Mine`"),
        ],
    );
    each_refused(
        "stack: network",
        &[
            (
                resource("EtcdFromEtcdTcp2380", json!({ "Properties": { "GroupId": "sg-1" } })),
                "`GroupId` of `EtcdFromEtcdTcp2380`",
            ),
            (
                resource("PublicRouteTable", json!({ "Properties": { "VpcId": "vpc-1" } })),
                "`VpcId` of `PublicRouteTable`",
            ),
        ],
    );
    for own in [
        json!({ "Ref": "Group2" }),
        json!({ "Fn::GetAtt": ["Group2", "GroupId"] }),
        import("prod-network-EtcdSecurityGroup"),
    ] {
        let mut merge = rule(own);
        merge["Resources"]["Group2"] = json!({ "Type": GROUP, "Properties": {
            "GroupDescription": "mine", "VpcId": import("prod-network-Vpc"),
        } });
        good(&format!("target: {{stack: pool-general}}\nmerge: {merge}\n"));
    }
}

#[test]
fn a_parameter_is_no_way_to_another_cluster() {
    let mut merge = new(INGRESS, json!({ "GroupId": { "Ref": "Which" } }));
    merge["Parameters"] = json!({ "Which": { "Type": "String", "Default": "sg-1" } });
    each_refused("stack: network", &[(merge, "`GroupId` of `Mine`")]);
}

#[test]
fn no_data_of_another_cluster_come_by_a_snapshot() {
    let ebs = json!([{ "DeviceName": "/dev/sdz", "Ebs": { "SnapshotId": "snap-1", "Encrypted": true } }]);
    let data = json!({ "Properties": { "LaunchTemplateData": { "BlockDeviceMappings": ebs } } });
    each_refused(
        "stack: pool-general",
        &[(resource("LaunchTemplate", data), "`SnapshotId` of `LaunchTemplate`")],
    );
}

#[test]
fn no_tag_makes_a_thing_another_clusters() {
    let group = |tag: Value| new(GROUP, json!({ "GroupDescription": "mine", "Tags": [tag] }));
    each_refused(
        "stack: network",
        &[
            (group(json!({ "Key": "slipway:cluster", "Value": "b" })), "the tag `slipway:cluster` of `Mine`"),
            (
                group(json!({ "Key": "kubernetes.io/cluster/b", "Value": "owned" })),
                "the tag `kubernetes.io/cluster/b` of `Mine`",
            ),
            (
                group(json!({ "Key": { "Fn::Sub": "slipway:cluster" }, "Value": "b" })),
                "a tag of `Mine` whose key is not plain text",
            ),
        ],
    );
    let add = |path: &str, value: Value| {
        findings_text(&[(
            "x.yaml",
            &format!("target: {{stack: pool-general}}\nops: [{{op: add, path: {path}, value: {value}}}]\n"),
        )])
    };
    let said = add(
        "/Resources/Group/Properties/Tags/-",
        json!({ "Key": "slipway:role", "Value": "etcd-0", "PropagateAtLaunch": true }),
    );
    assert!(said.contains("patch-refused") && said.contains("the tag `slipway:role` of `Group`"), "{said}");
    let said = add(
        "/Resources/LaunchTemplate/Properties/LaunchTemplateData/TagSpecifications/-",
        json!({ "ResourceType": "network-interface", "Tags": [{ "Key": "slipway:role", "Value": "etcd-0" }] }),
    );
    assert!(
        said.contains("patch-refused") && said.contains("the tag `slipway:role` of `LaunchTemplate`"),
        "{said}"
    );
}

#[test]
fn what_no_plan_foresees_is_refused() {
    each_refused(
        "stack: etcd",
        &[
            (resource("DataVolume0", json!({ "Condition": "Never" })), "`Condition` of `DataVolume0`"),
            (
                resource("Group0", json!({ "Metadata": { "Fn::Transform": { "Name": "AWS::Include" } } })),
                "`Fn::Transform`",
            ),
            (json!({ "Outputs": { "Fn::Transform": { "Name": "AWS::Include" } } }), "`Fn::Transform`"),
        ],
    );
}

#[test]
fn exports_stay_what_they_are_and_none_comes() {
    each_refused(
        "stack: network",
        &[
            (
                json!({ "Outputs": { "EtcdSecurityGroup": { "Value": "sg-1" } } }),
                "the export `prod-network-EtcdSecurityGroup` would say something else",
            ),
            (
                json!({ "Outputs": { "Mine": { "Value": "x", "Export": { "Name": "b-network-Vpc" } } } }),
                "the export \"b-network-Vpc\" would be new",
            ),
        ],
    );
}

#[test]
fn etcds_quorum_survives_patches() {
    let group = |properties: Value| resource("Group0", json!({ "Properties": properties }));
    let machine =
        |data: Value| resource("LaunchTemplate0", json!({ "Properties": { "LaunchTemplateData": data } }));
    let volume = |properties: Value| resource("DataVolume0", json!({ "Properties": properties }));
    let device = json!([{ "DeviceName": "/dev/sdf", "Ebs": { "VolumeSize": 1, "Encrypted": true } }]);
    each_refused(
        "stack: etcd",
        &[
            (group(json!({ "MaxInstanceLifetime": 86400 })), "`MaxInstanceLifetime` of `Group0`"),
            (group(json!({ "AvailabilityZones": ["a"] })), "`AvailabilityZones` of `Group0`"),
            (group(json!({ "CapacityRebalance": true })), "`CapacityRebalance` of `Group0`"),
            (group(json!({ "MixedInstancesPolicy": {} })), "`MixedInstancesPolicy` of `Group0`"),
            (
                machine(json!({ "InstanceMarketOptions": { "MarketType": "spot" } })),
                "`InstanceMarketOptions` of `LaunchTemplate0`",
            ),
            (machine(json!({ "NetworkInterfaces": [] })), "`NetworkInterfaces` of `LaunchTemplate0`"),
            (machine(json!({ "BlockDeviceMappings": device })), "the volume `/dev/sdf` of `LaunchTemplate0`"),
            (volume(json!({ "Size": 1 })), "`Size` of `DataVolume0`"),
            (volume(json!({ "KmsKeyId": "k" })), "`KmsKeyId` of `DataVolume0`"),
            (volume(json!({ "AvailabilityZone": "z" })), "`AvailabilityZone` of `DataVolume0`"),
            (volume(json!({ "SnapshotId": "snap-1" })), "`SnapshotId` of `DataVolume0`"),
        ],
    );
    let spot = json!({ "Properties": { "LaunchTemplateData": { "InstanceMarketOptions": { "MarketType": "spot" } } } });
    let spot = resource("LaunchTemplate", spot);
    each_refused("stack: control-plane", &[(spot.clone(), "`InstanceMarketOptions` of `LaunchTemplate`")]);
    good(&format!("target: {{stack: pool-general}}\nmerge: {spot}\n"));
}

#[test]
fn the_ways_between_members_stay_open() {
    let egress = |group: &str| new(EGRESS, json!({ "GroupId": { "Ref": group }, "IpProtocol": "-1" }));
    each_refused(
        "stack: network",
        &[
            (
                resource("EtcdFromEtcdTcp2380", Value::Null),
                "`EtcdFromEtcdTcp2380` (AWS::EC2::SecurityGroupIngress) would be gone",
            ),
            (
                resource("EtcdFromEtcdTcp2380", json!({ "Properties": { "ToPort": 1 } })),
                "`ToPort` of `EtcdFromEtcdTcp2380`",
            ),
            (
                resource("EtcdSecurityGroup", json!({ "Properties": { "SecurityGroupEgress": [] } })),
                "`SecurityGroupEgress` of `EtcdSecurityGroup`",
            ),
            (egress("EtcdSecurityGroup"), "`GroupId` of `Mine`"),
        ],
    );
    let mut own = egress("Group2");
    own["Resources"]["Group2"] =
        json!({ "Type": GROUP, "Properties": { "GroupDescription": "x", "VpcId": { "Ref": "Vpc" } } });
    good(&format!("target: {{stack: network}}\nmerge: {own}\n"));
}

#[test]
fn what_nodes_agree_on_cannot_be_patched() {
    for (node, pointer) in [
        ("etcd-0", "/etcd/clientPort"),
        ("etcd-0", "/etcd/peerPort"),
        ("etcd-0", "/etcd/initialCluster"),
        ("etcd-0", "/etcd/joinEndpoints"),
        ("etcd-0", "/dataVolume"),
        ("controller", "/custom"),
        ("controller", "/controlPlane/bindPort"),
        ("controller", "/controlPlane/etcdServers"),
        ("controller", "/controlPlane/serviceCidr"),
        ("controller", "/controlPlane/encryptionAtRest"),
        ("controller", "/controlPlane/serviceAccountTokens"),
        ("controller", "/controlPlane/authentication"),
        ("controller", "/controlPlane/apiServer"),
        ("controller", "/controlPlane/controllerManager"),
        ("controller", "/controlPlane/scheduler"),
    ] {
        let merge = pointer
            .rsplit('/')
            .filter(|key| !key.is_empty())
            .fold(json!({ "x": 1 }), |below, key| json!({ key: below }));
        let said = refused(&format!("node: {node}"), &merge);
        assert!(said.contains(&format!("`{pointer}`")), "{said}");
    }
}

/// What ends the TLS of the API reads every token, and what writes logs writes into any bucket that takes those of load balancers.
#[test]
fn the_way_to_the_api_stays_its_own() {
    let control_plane = template(&rendered(&cluster()), "prod-control-plane");
    let id = |kind: &str| -> String {
        let kind = format!("AWS::ElasticLoadBalancingV2::{kind}");
        let resources = control_plane["Resources"].as_object().unwrap();
        resources.iter().find(|(_, resource)| resource["Type"] == kind).unwrap().0.clone()
    };
    let (listener, balancer, targets) = (id("Listener"), id("LoadBalancer"), id("TargetGroup"));
    let of = |id: &str, properties: Value| resource(id, json!({ "Properties": properties }));
    let other = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/payroll/1";
    let attribute = |key: &str, value: &str| {
        of(&balancer, json!({ "LoadBalancerAttributes": [{ "Key": key, "Value": value }] }))
    };
    let cases = [
        (of(&listener, json!({ "Protocol": "TLS" })), format!("`Protocol` of `{listener}`")),
        (
            of(
                &listener,
                json!({ "Certificates": [{ "CertificateArn": "arn:aws:acm:eu-west-1:123456789012:certificate/1" }] }),
            ),
            format!("`CertificateArn` of `{listener}`"),
        ),
        (of(&listener, json!({ "Certificates": [{}] })), format!("`Certificates` of `{listener}`")),
        (
            of(&listener, json!({ "DefaultActions": [{ "Type": "forward", "TargetGroupArn": other }] })),
            format!("`TargetGroupArn` of `{listener}`"),
        ),
        (of(&listener, json!({ "Port": 80 })), format!("`Port` of `{listener}`")),
        (of(&balancer, json!({ "Subnets": ["subnet-1"] })), format!("`Subnets` of `{balancer}`")),
        (
            of(&balancer, json!({ "Scheme": "internal", "SecurityGroups": ["sg-1"] })),
            format!("`SecurityGroups` of `{balancer}`"),
        ),
        (
            attribute("access_logs.s3.bucket", "payroll"),
            format!("the attribute `access_logs.s3.bucket` of `{balancer}`"),
        ),
        (
            of(
                &balancer,
                json!({ "LoadBalancerAttributes": [{ "Key": { "Fn::Join": ["", ["access_logs.s3", ".enabled"]] }, "Value": "true" }] }),
            ),
            format!("an attribute of `{balancer}` whose key is not plain text"),
        ),
        (
            of(&targets, json!({ "Targets": [{ "Id": "i-0123456789abcdef0" }] })),
            format!("`Targets` of `{targets}`"),
        ),
        (of(&targets, json!({ "TargetType": "ip" })), format!("`TargetType` of `{targets}`")),
    ];
    for (merge, what) in cases {
        each_refused("stack: control-plane", &[(merge, &what)]);
    }
    for merge in [
        attribute("load_balancing.cross_zone.enabled", "false"),
        attribute("deletion_protection.enabled", "true"),
        of(
            &listener,
            json!({ "ListenerAttributes": [{ "Key": "tcp.idle_timeout.seconds", "Value": "600" }] }),
        ),
        of(&targets, json!({ "HealthCheckIntervalSeconds": 5, "UnhealthyThresholdCount": 3 })),
    ] {
        good(&format!("target: {{stack: control-plane}}\nmerge: {merge}\n"));
    }
}
