//! Pools: what their machines have, and how their groups are made up.

use std::fmt::Write as _;

use slipway_core::cluster::{Image, InstanceStore, NodePool};

use super::*;

/// The pool `general` with more keys, as the spec says it.
fn pool(keys: &str) -> NodePool {
    let mut accepted = parse(format!("{BASE}{keys}").as_bytes(), None)
        .unwrap_or_else(|findings| panic!("{keys}\n{}", findings_text(&findings)));
    accepted.cluster.pools.remove(0)
}

#[test]
fn volumes_come_out_in_the_order_in_which_they_are_mounted() {
    let keys = "    volumeMounts:\n    - {device: /dev/xvdg, size: 20, path: /data/inner, createTmp: true, filesystem: ext4}\n    - {device: /dev/xvdf, size: 200, path: /data, type: sc1}\n    raid0Mounts:\n    - {devices: [/dev/xvdi, /dev/xvdh], size: 30, iops: 4000, path: /data-of-two}\n";
    let mounts = pool(keys).storage.mounts;
    let told: Vec<_> = mounts
        .iter()
        .map(|of| {
            let volume = (of.volume.size_gib, of.volume.kind.as_str(), of.volume.iops);
            (of.path.as_str(), of.devices.join(" "), volume, of.file_system.as_str(), of.create_tmp)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("/data", "/dev/xvdf".to_owned(), (200, "sc1", None), "xfs", false),
            ("/data-of-two", "/dev/xvdi /dev/xvdh".to_owned(), (30, "gp3", Some(4000)), "xfs", false),
            ("/data/inner", "/dev/xvdg".to_owned(), (20, "gp3", None), "ext4", true),
        ]
    );
}

#[test]
fn disks_hold_images_unless_they_have_a_path() {
    let of = |keys: &str| pool(&format!("    instanceType: i4i.4xlarge\n{keys}")).storage.instance_store;
    let store = InstanceStore { raid0: true, path: None, file_system: "xfs".to_owned() };
    assert_eq!(of("    ephemeralStorage: {}\n"), Some(store.clone()));
    assert_eq!(of("    ephemeralStorage: {enabled: false}\n"), None);
    let apart = InstanceStore { raid0: false, path: Some("/mnt/disks".to_owned()), ..store.clone() };
    assert_eq!(of("    ephemeralStorage: {raid0: false, path: /mnt/disks}\n"), Some(apart));
    let old = InstanceStore { file_system: "ext4".to_owned(), ..store };
    assert_eq!(of("    ephemeralImageStorage: {enabled: true, disk: xvdb, filesystem: ext4}\n"), Some(old));
    assert_eq!(of("    ephemeralImageStorage: {enabled: false}\n"), None);
    // Of a type that is not known nothing is said but that.
    assert_eq!(
        parse(format!("{BASE}    instanceType: m99gd.large\n    ephemeralStorage: {{}}\n").as_bytes(), None)
            .unwrap()
            .warnings
            .len(),
        1
    );
}

#[test]
fn pools_with_gpus_have_what_pods_need() {
    let gpu = pool("    instanceType: g5g.xlarge\n    gpu: {nvidia: {enabled: true, taint: true}}\n");
    assert!(gpu.nvidia);
    assert_eq!(gpu.root_volume.size_gib, 100);
    assert_eq!(gpu.node_labels["nvidia.com/gpu.present"], "true");
    assert_eq!(gpu.node_labels["k8s.amazonaws.com/accelerator"], "nvidia");
    let taints: Vec<_> =
        gpu.taints.iter().map(|of| format!("{}={}:{}", of.key, of.value, of.effect)).collect();
    assert_eq!(taints, ["nvidia.com/gpu=present:NoSchedule"]);
    let Some(Image::SsmParameter(names)) = gpu.image else { panic!("{:?}", gpu.image) };
    assert!(names.values().all(|name| name.starts_with("/aws/service/deeplearning/ami/")), "{names:?}");

    // What is written stands.
    let own = pool(
        "    instanceType: g5.xlarge\n    amiId: ami-0123456789abcdef0\n    rootVolume: {size: 60}\n    gpu: {nvidia: {enabled: true, taint: true}}\n    nodeLabels: {k8s.amazonaws.com/accelerator: nvidia-a10g}\n    taints: [{key: nvidia.com/gpu, value: \"true\", effect: NoSchedule}]\n",
    );
    assert_eq!(own.image, Some(Image::Ami("ami-0123456789abcdef0".to_owned())));
    assert_eq!((own.root_volume.size_gib, own.taints.len()), (60, 1));
    assert_eq!(own.node_labels["k8s.amazonaws.com/accelerator"], "nvidia-a10g");

    let plain = pool("    instanceType: g5.xlarge\n    gpu: {nvidia: {enabled: false}}\n");
    assert!(
        !plain.nvidia && plain.node_labels.is_empty() && plain.taints.is_empty() && plain.image.is_none()
    );
}

#[test]
fn what_kube_aws_said_of_balancers_is_taken() {
    let arn = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/a/0123456789abcdef";
    let keys = format!(
        "    securityGroupIds: [sg-00000001]\n    loadBalancer: {{enabled: true, names: [manually-managed], securityGroupIds: [sg-00000002]}}\n    targetGroup: {{enabled: true, arns: [\"{arn}\"], securityGroupIds: [sg-00000003]}}\n"
    );
    let both = pool(&keys);
    assert_eq!(both.load_balancer_names, ["manually-managed"]);
    assert_eq!(both.target_group_arns, [arn]);
    assert_eq!(both.security_group_ids, ["sg-00000001", "sg-00000003", "sg-00000002"]);
    let off = pool(&keys.replace("enabled: true", "enabled: false"));
    assert!(off.load_balancer_names.is_empty() && off.target_group_arns.is_empty());
    assert_eq!(off.security_group_ids, ["sg-00000001"]);
}

#[test]
fn mixed_instances_below_the_group_are_on_only_if_they_say_so() {
    let group = |keys: &str| {
        format!(
            "    autoScalingGroup:\n      minSize: 1\n      maxSize: 4\n      mixedInstances:\n        instanceTypes: [m7g.large, m6g.large]\n{keys}"
        )
    };
    assert_eq!(pool(&group("")).mixed_instances, None);
    let mixed = pool(&group(
        "        enabled: true\n        onDemandAllocationStrategy: prioritized\n        spotAllocationStrategy: lowest-price\n",
    ))
    .mixed_instances
    .unwrap();
    assert_eq!(mixed.types.len(), 2);
    assert_eq!(mixed.on_demand_strategy, None, "EC2's own default is not rendered");
    assert_eq!((mixed.spot_strategy.as_str(), mixed.capacity_rebalance), ("lowest-price", true));
    let keys = "    mixedInstances: {instanceTypes: [m7g.large], capacityRebalance: false}\n";
    assert!(!pool(keys).mixed_instances.unwrap().capacity_rebalance);
    let keys = "    mixedInstances: {instanceTypes: [m7g.large], onDemandPercentageAboveBaseCapacity: 100}\n";
    assert!(!pool(keys).mixed_instances.unwrap().capacity_rebalance);
}

/// Pool → those that it waits for, of pools written as `name zone-letters strategy`.
fn order(strategy: &str, pools: &[&str]) -> Vec<String> {
    let (head, _) = BASE.split_once("worker:\n").unwrap();
    let mut text = format!("{head}worker:\n{strategy}  nodePools:\n");
    for pool in pools {
        let words: Vec<&str> = pool.split(' ').collect();
        let subnets: Vec<String> =
            words[1].chars().map(|letter| format!("{{name: private-{letter}}}")).collect();
        writeln!(text, "  - name: {}\n    subnets: [{}]", words[0], subnets.join(", ")).unwrap();
        if let Some(own) = words.get(2) {
            writeln!(text, "    nodePoolRollingStrategy: {own}").unwrap();
        }
    }
    let cluster = parse(text.as_bytes(), None).unwrap().cluster;
    let rollouts = cluster.rollout.pools.iter();
    rollouts.map(|(name, rollout)| format!("{name}: {}", rollout.after.join(" "))).collect()
}

#[test]
fn pools_wait_for_one_another_as_their_strategy_says() {
    let pools = ["one b", "two a", "three b", "four c", "five a"];
    assert_eq!(order("", &pools), [""; 0]);
    assert_eq!(
        order("  nodePoolRollingStrategy: Sequential\n", &pools),
        ["five: one two three four", "four: one two three", "three: one two", "two: one"]
    );
    let zones = "  nodePoolRollingStrategy: AvailabilityZone\n";
    assert_eq!(order(zones, &pools), ["four: one two three five", "one: two five", "three: two five"]);
    // A pool in two zones comes between them.
    assert_eq!(order(zones, &["one b", "two ab", "three a"]), ["one: two three", "two: three"]);
    // Each its own: those that go by zones do not wait for the others, those that go in order do.
    assert_eq!(
        order(zones, &["one b", "two a Parallel", "three a", "four a Sequential"]),
        ["four: one two three", "one: three"]
    );
}

#[test]
fn a_pool_may_be_rolled_otherwise() {
    let keys = "    rollout: {maxUnavailable: 50%, surge: 2, drain: {forceAfterMinutes: 30}}\n";
    let cluster = parse(format!("{BASE}{keys}").as_bytes(), None).unwrap().cluster;
    let json = serde_json::to_value(&cluster.rollout).unwrap();
    assert_eq!(
        json["pools"],
        serde_json::json!({"general": {
            "maxUnavailable": {"percent": 50},
            "surge": {"count": 2},
            "drainForceAfterMin": 30,
        }})
    );
}
