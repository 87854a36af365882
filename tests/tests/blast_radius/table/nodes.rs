//! Controllers and etcd members.

use serde_json::json;

use super::super::case::{Case, case};
use super::custom;

const KEY: &str = "arn:aws:kms:eu-west-1:111122223333:key/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const POLICY: &str = "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly";
const PROFILE: &str = "arn:aws:iam::111122223333:instance-profile/mine";

pub(super) fn cases() -> Vec<Case> {
    let controllers = custom("controller", "control-plane", "controller replaced");
    [controller(), controllers, etcd(), members(), custom("etcd", "etcd", "etcd replaced")].concat()
}

fn controller() -> Vec<Case> {
    let replaced = |key: &str, to| case(key, to, "control-plane", "controller replaced");
    let around = |key: &str, to| case(key, to, "control-plane", "");
    vec![
        around("controller.count", json!(5)),
        around("controller.autoScalingGroup.minSize", json!(5))
            .along("controller.count", json!(null))
            .along("controller.autoScalingGroup.maxSize", json!(5)),
        replaced("controller.tenancy", json!("dedicated")),
        replaced("controller.featureGates", json!({ "Example": true })),
        case("controller.iam.role.strictName", json!(true), "control-plane (replaces IAM::Role)", "")
            .given("controller.iam.role.name", json!("control")),
        replaced("controller.instanceType", json!("m7i.xlarge")),
        replaced("controller.rootVolume.size", json!(80)),
        replaced("controller.rootVolume.type", json!("gp2")),
        replaced("controller.rootVolume.iops", json!(4000)),
        replaced("controller.rootVolume.throughput", json!(250)),
        replaced("controller.rootVolume.kmsKeyArn", json!(KEY)),
        case("controller.rootVolume.encrypted", json!(true), "", "").because("it always is"),
        replaced("controller.securityGroupIds", json!(["sg-0123456789abcdef0"])),
        replaced("controller.nodeLabels", json!({ "tier": "control" })),
        case("controller.count", json!(3), "not begun: control-plane", "controller may lose nodes undrained")
            .given("controller.count", json!(5))
            .because("Auto Scaling terminates what is above the new maximum"),
        case(
            "controller.subnets[].name",
            json!("private-a"),
            "not begun: control-plane",
            "controller may lose nodes undrained",
        )
        .because("Auto Scaling balances the zones anew"),
        case(
            "controller.subnets[1]",
            json!({ "name": "private-b" }),
            "control-plane",
            "controller may have nodes replaced by Auto Scaling",
        )
        .given("controller.subnets[].name", json!("private-a"))
        .because("Auto Scaling balances the zones anew: it launches controllers in the new one, then terminates others"),
        around("controller.iam.role.managedPolicies[].arn", json!(POLICY)),
        case("controller.iam.role.name", json!("control"), "control-plane (replaces IAM::Role)", ""),
        replaced("controller.iam.instanceProfile.arn", json!(PROFILE)),
    ]
}

fn etcd() -> Vec<Case> {
    let scheduled = |key: &str, to| {
        case(key, to, "", "")
            .because("members read the schedule, which the next scan writes; the scan deletes old ones")
    };
    let replaced = |key: &str, to| case(key, to, "etcd", "etcd replaced");
    let around = |key: &str, to| case(key, to, "etcd", "");
    vec![
        case("etcd.count", json!(5), "etcd, control-plane", "etcd-3 new, etcd-4 new, controller replaced"),
        replaced("etcd.tenancy", json!("dedicated")),
        case("etcd.iam.role.strictName", json!(true), "etcd (replaces IAM::Role)", "")
            .given("etcd.iam.role.name", json!("store")),
        replaced("etcd.instanceType", json!("m7i.xlarge")),
        replaced("etcd.version", json!("3.6.5")),
        replaced("etcd.quota", json!(8)),
        scheduled("etcd.snapshots.enabled", json!(false)),
        scheduled("etcd.snapshots.everyHours", json!(1)),
        scheduled("etcd.snapshots.keep.allDays", json!(14)),
        scheduled("etcd.snapshots.keep.dailyDays", json!(90)),
        scheduled("etcd.snapshots.keep.atLeast", json!(20)),
        case("etcd.version", json!("3.7.3"), "etcd", "etcd replaced")
            .given("etcd.version", json!("3.6.16"))
            .because("one minor up; there is no way back"),
        replaced("etcd.rootVolume.size", json!(80)),
        replaced("etcd.rootVolume.type", json!("gp2")),
        replaced("etcd.rootVolume.iops", json!(4000)),
        replaced("etcd.rootVolume.throughput", json!(250)),
        replaced("etcd.rootVolume.kmsKeyArn", json!(KEY)),
        case("etcd.rootVolume.encrypted", json!(true), "", "").because("it always is"),
        around("etcd.dataVolume.size", json!(80)).because("it grows in place"),
        around("etcd.dataVolume.type", json!("gp2")),
        around("etcd.dataVolume.iops", json!(4000)),
        around("etcd.dataVolume.throughput", json!(250)),
        case("etcd.dataVolume.kmsKeyArn", json!(KEY), "not begun: etcd", "etcd replaced")
            .because("a volume keeps its key: each member leaves and joins anew with another"),
        case("etcd.dataVolume.encrypted", json!(true), "", "").because("it always is"),
        replaced("etcd.securityGroupIds", json!(["sg-0123456789abcdef0"])),
        case(
            "etcd.subnets[].name",
            json!("private-c"),
            "not begun: etcd",
            "etcd-0 replaced, etcd-1 replaced",
        )
        .because("in another zone they need other volumes: they leave and join anew"),
        around("etcd.iam.role.managedPolicies[].arn", json!(POLICY)),
        case("etcd.iam.role.name", json!("store"), "etcd (replaces IAM::Role)", ""),
        replaced("etcd.iam.instanceProfile.arn", json!(PROFILE)),
        case(
            "etcd.internalDomainName",
            json!("prod.store.internal"),
            "not begun: network (replaces Route53::HostedZone, Route53::RecordSet), etcd, control-plane",
            "etcd replaced, controller replaced",
        )
        .because("each member gets another address"),
    ]
}

fn members() -> Vec<Case> {
    let volume = |key: &str, to| case(key, to, "etcd", "");
    let renamed = "its fellows and the controllers are told its new address";
    vec![
        case(
            "etcd.nodes[].name",
            json!("store-0"),
            "not begun: etcd, control-plane",
            "etcd-0 replaced, controller replaced",
        )
        .because(renamed),
        case(
            "etcd.nodes[].fqdn",
            json!("first.prod.etcd.internal"),
            "not begun: etcd, control-plane",
            "etcd-0 replaced, controller replaced",
        )
        .given("etcd.internalDomainName", json!("prod.etcd.internal"))
        .because(renamed),
        case("etcd.nodes[].subnet.name", json!("private-b"), "not begun: etcd", "etcd-0 replaced")
            .because("in another zone it needs another volume: it leaves and joins anew"),
        volume("etcd.nodes[].dataVolume.size", json!(80)),
        volume("etcd.nodes[].dataVolume.type", json!("gp2")),
        volume("etcd.nodes[].dataVolume.iops", json!(4000)),
        volume("etcd.nodes[].dataVolume.throughput", json!(250)),
        case("etcd.nodes[].dataVolume.kmsKeyArn", json!(KEY), "not begun: etcd", "etcd-0 replaced")
            .because("a volume keeps its key: it leaves and joins anew with another"),
        case("etcd.nodes[].dataVolume.encrypted", json!(true), "", "").because("it always is"),
        case(
            "etcd.hostedZone.id",
            json!("Z0123456789ETCDZONE01"),
            "refused: etcd.hostedZone.id: the names of the etcd members that run are in the zone that Slipway made, and the hosted zone Z0123456789ETCDZONE01 is asked for: nobody would find them there",
            "",
        )
            .because("members know their zone from the start: it is chosen before the launch")
            .given("etcd.internalDomainName", json!("prod.etcd.internal")),
        case("etcd.topology", json!("external"), "", "").because("it is what it was"),
    ]
}
