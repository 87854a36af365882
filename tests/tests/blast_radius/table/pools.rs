//! Node pools.

use serde_json::{Value, json};

use super::super::case::{Case, case, each};
use super::{custom, kubelet};

const KEY: &str = "arn:aws:kms:eu-west-1:111122223333:key/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const POLICY: &str = "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly";
const PROFILE: &str = "arn:aws:iam::111122223333:instance-profile/mine";
const TARGETS: &str = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/web/6d0ecf831eec9f09";

pub(super) fn cases() -> Vec<Case> {
    let pool = ("worker.nodePools[0]", "pool-general", "pool-general replaced");
    [group(), machine(), storage(), custom(pool.0, pool.1, pool.2), kubelet(pool.0, pool.1, pool.2), mixed()]
        .concat()
}

fn replaced(key: &str, to: serde_json::Value) -> Case {
    case(key, to, "pool-general", "pool-general replaced")
}

fn around(key: &str, to: serde_json::Value) -> Case {
    case(key, to, "pool-general", "")
}

fn group() -> Vec<Case> {
    vec![
        case("worker.nodePoolRollingStrategy", json!("Parallel"), "", ""),
        case(
            "worker.nodePools[2]",
            json!({ "name": "more", "count": 2, "subnets": [{ "name": "private-c" }] }),
            "pool-more is new",
            "pool-more new",
        ),
        case("worker.nodePools[1]", json!(null), "pool-spot goes", "pool-spot gone"),
        case(
            "worker.nodePools[].name",
            json!("other"),
            "pool-other is new, pool-general goes",
            "pool-other new, pool-general gone",
        ),
        around("worker.nodePools[].autoScalingGroup.minSize", json!(3)),
        around("worker.nodePools[].autoScalingGroup.maxSize", json!(9)),
        around("worker.nodePools[].autoscaling.clusterAutoscaler.enabled", json!(true))
            .given("addons.clusterAutoscaler.enabled", json!(true)),
        case(
            "worker.nodePools[].autoScalingGroup.maxSize",
            json!(5),
            "pool-general",
            "pool-general may lose nodes undrained",
        )
        .given("worker.nodePools[].autoScalingGroup.maxSize", json!(9))
        .because("Auto Scaling terminates what is above the new maximum"),
        case(
            "worker.nodePools[].subnets[].name",
            json!("private-c"),
            "not begun: pool-general",
            "pool-general may lose nodes undrained",
        )
        .because("Auto Scaling balances the zones anew: begun where `rollout.approval` is `manual`, once somebody has read it"),
        case(
            "worker.nodePools[].subnets[1]",
            json!({ "name": "private-c" }),
            "pool-general",
            "pool-general may have nodes replaced by Auto Scaling",
        )
        .because("Auto Scaling balances the zones anew: it launches nodes in the new one, then terminates others"),
        around("worker.nodePools[].loadBalancer.names", json!(["classic"])),
        around("worker.nodePools[].loadBalancer.enabled", json!(false))
            .given("worker.nodePools[].loadBalancer.names", json!(["classic"])),
        replaced("worker.nodePools[].loadBalancer.securityGroupIds", json!(["sg-0123456789abcdef0"]))
            .given("worker.nodePools[].loadBalancer.names", json!(["classic"])),
        replaced("worker.nodePools[].targetGroup.securityGroupIds", json!(["sg-0123456789abcdef0"]))
            .given("worker.nodePools[].targetGroup.arns", json!([TARGETS])),
        case("worker.nodePools[].nodePoolRollingStrategy", json!("Parallel"), "", ""),
        case("worker.nodePools[].rollout.maxUnavailable", json!(2), "", ""),
        case("worker.nodePools[].rollout.surge", json!("10%"), "pool-general", ""),
        case("worker.nodePools[].rollout.drain.forceAfterMinutes", json!(60), "", ""),
        case("worker.nodePools[].repair.mode", json!("on"), "control-plane", ""),
        case("worker.nodePools[].repair.mode", json!("off"), "", ""),
        case("worker.nodePools[].repair.afterMinutes", json!(30), "", ""),
        around("worker.nodePools[].targetGroup.arns", json!([TARGETS])),
        around("worker.nodePools[].targetGroup.enabled", json!(false))
            .given("worker.nodePools[].targetGroup.arns", json!([TARGETS])),
        around("worker.nodePools[].iam.role.managedPolicies[].arn", json!(POLICY)),
        case("worker.nodePools[].iam.role.name", json!("work"), "pool-general (replaces IAM::Role)", ""),
        case("worker.nodePools[].count", json!(3), "pool-general", "").existing(),
    ]
}

fn machine() -> Vec<Case> {
    vec![
        replaced("worker.nodePools[].instanceType", json!("m7i.xlarge")),
        case("worker.nodePools[].kubernetesVersion", json!("1.36"), "pool-general", "pool-general replaced")
            .given("worker.nodePools[].kubernetesVersion", json!("1.35")),
        replaced("worker.nodePools[].apiEndpointName", json!("public")),
        replaced("worker.nodePools[].keyName", json!("others")),
        replaced("worker.nodePools[].sshAuthorizedKeys", json!([])),
        replaced("worker.nodePools[].tenancy", json!("dedicated")),
        replaced("worker.nodePools[].featureGates", json!({ "Example": true })),
        case("worker.nodePools[].iam.role.strictName", json!(true), "pool-general (replaces IAM::Role)", "")
            .given("worker.nodePools[].iam.role.name", json!("work")),
        replaced("worker.nodePools[].image.rootDeviceName", json!("/dev/sda1"))
            .given("worker.nodePools[].image.amiId", json!("ami-0123456789abcdef1")),
        replaced("worker.nodePools[].gpu.nvidia.enabled", json!(true))
            .given("worker.nodePools[].instanceType", json!("g6.xlarge")),
        replaced("worker.nodePools[].gpu.nvidia.taint", json!(true))
            .given("worker.nodePools[].instanceType", json!("g6.xlarge"))
            .given("worker.nodePools[].gpu.nvidia.enabled", json!(true)),
        replaced("worker.nodePools[].amiId", json!("ami-0123456789abcdef1")),
        replaced("worker.nodePools[].image.amiId", json!("ami-0123456789abcdef1")),
        replaced("worker.nodePools[].image.ssmParameters.x86_64", json!("/my/image-x86"))
            .along("worker.nodePools[].image.ssmParameters.arm64", json!("/my/image-arm")),
        replaced("worker.nodePools[].rootVolume.size", json!(80)),
        replaced("worker.nodePools[].rootVolume.type", json!("gp2")),
        replaced("worker.nodePools[].rootVolume.iops", json!(4000)),
        replaced("worker.nodePools[].rootVolume.throughput", json!(250)),
        replaced("worker.nodePools[].rootVolume.kmsKeyArn", json!(KEY)),
        case("worker.nodePools[].rootVolume.encrypted", json!(true), "", "").because("it always is"),
        replaced("worker.nodePools[].securityGroupIds", json!(["sg-0123456789abcdef0"])),
        replaced("worker.nodePools[].iam.instanceProfile.arn", json!(PROFILE)),
        replaced("worker.nodePools[].nodeLabels", json!({ "tier": "web" })),
        replaced(
            "worker.nodePools[].taints",
            json!([{ "key": "tier", "value": "web", "effect": "NoSchedule" }]),
        ),
    ]
}

fn storage() -> Vec<Case> {
    let mount = json!({ "type": "gp3", "size": 100, "device": "/dev/xvdf", "path": "/data" });
    let common = || {
        vec![
            ("size", json!(200)),
            ("type", json!("gp2")),
            ("iops", json!(4000)),
            ("throughput", json!(250)),
            ("kmsKeyArn", json!(KEY)),
            ("filesystem", json!("ext4")),
            ("createTmp", json!(true)),
            ("path", json!("/other")),
        ]
    };
    let raid = json!({ "type": "gp3", "size": 100, "devices": ["/dev/xvdf", "/dev/xvdg"], "path": "/data" });
    let nvme = json!({ "raid0": true });
    let all = |group: &str, given: &Value, changes| {
        each(group, given, changes, "pool-general", "pool-general replaced")
    };
    let same = |group: &str, given: &Value, key: &str, to: Value| {
        each(group, given, vec![(key, to)], "", "").into_iter().map(|case| case.because("it always is"))
    };
    let mut mounts = all("worker.nodePools[].volumeMounts[0]", &mount, common());
    mounts.extend(all("worker.nodePools[].volumeMounts[0]", &mount, vec![("device", json!("/dev/xvdg"))]));
    mounts.extend(same("worker.nodePools[].volumeMounts[0]", &mount, "encrypted", json!(true)));
    mounts.extend(all("worker.nodePools[].raid0Mounts[0]", &raid, common()));
    let devices = json!(["/dev/xvdf", "/dev/xvdg", "/dev/xvdh"]);
    mounts.extend(all("worker.nodePools[].raid0Mounts[0]", &raid, vec![("devices", devices)]));
    mounts.extend(same("worker.nodePools[].raid0Mounts[0]", &raid, "encrypted", json!(true)));
    let disks = vec![("path", json!("/fast")), ("filesystem", json!("ext4")), ("enabled", json!(false))];
    let apart = json!({ "raid0": true, "path": "/fast" });
    mounts.push(
        replaced("worker.nodePools[].ephemeralStorage.raid0", json!(false))
            .given("worker.nodePools[].ephemeralStorage", apart)
            .given("worker.nodePools[].instanceType", json!("m6id.large")),
    );
    let on_disks = all("worker.nodePools[].ephemeralStorage", &nvme, disks);
    mounts.extend(
        on_disks.into_iter().map(|case| case.given("worker.nodePools[].instanceType", json!("m6id.large"))),
    );
    mounts
}

fn mixed() -> Vec<Case> {
    let spot = |key: &str, to| case(key, to, "pool-spot", "");
    let split = |key: &str, to| {
        case(key, to, "pool-spot", "pool-spot may have nodes replaced by Auto Scaling").because(
            "Auto Scaling gradually replaces nodes until the shares of on-demand and Spot instances fit",
        )
    };
    vec![
        case("worker.nodePools[1].mixedInstances.enabled", json!(false), "pool-spot", "pool-spot replaced")
            .because("some may be of a type that it no longer names"),
        split("worker.nodePools[1].mixedInstances.onDemandBaseCapacity", json!(2)),
        split("worker.nodePools[1].mixedInstances.onDemandPercentageAboveBaseCapacity", json!(50)),
        spot("worker.nodePools[1].mixedInstances.spotAllocationStrategy", json!("capacity-optimized")),
        spot("worker.nodePools[1].mixedInstances.capacityRebalance", json!(false)),
        spot("worker.nodePools[1].mixedInstances.onDemandAllocationStrategy", json!("lowest-price")),
        spot("worker.nodePools[1].mixedInstances.overrides[].weightedCapacity", json!(3)),
        spot(
            "worker.nodePools[1].mixedInstances.overrides[2]",
            json!({ "instanceType": "m6i.xlarge", "weightedCapacity": 2 }),
        )
        .because("the nodes that it has are of a type that it still names"),
        case(
            "worker.nodePools[1].mixedInstances.overrides[].instanceType",
            json!("m6i.large"),
            "pool-spot",
            "pool-spot replaced",
        ),
        case(
            "worker.nodePools[].mixedInstances.instanceTypes",
            json!(["m7i.large", "m6i.large"]),
            "pool-general",
            "pool-general may have nodes replaced by Auto Scaling",
        )
        .because("the nodes that it has are on demand, and it is to have Spot instances"),
        case(
            "worker.nodePools[].mixedInstances",
            json!({ "instanceTypes": ["m7i.large", "m6i.large"], "onDemandPercentageAboveBaseCapacity": 100 }),
            "pool-general",
            "",
        )
        .because("the nodes that it has are of a type that it still names, and on demand"),
    ]
}
