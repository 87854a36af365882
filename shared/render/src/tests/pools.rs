//! What a pool's spec becomes: from the text of a `cluster.yaml` to its stack and its node's configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use slipway_core::cluster::{Architecture, Cluster, Image, NetworkProvider};
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;
use slipway_spec::parse;

use super::of_type;
use crate::fixture::{self, credentials, lock, site};
use crate::lock::Lock;
use crate::{Inputs, render};

const BASE: &str = "clusterName: prod\nregion: eu-west-1\nkubernetesVersion: 1.37.1\navailabilityZone: eu-west-1a\nexternalDNSName: api.example.com\n";

/// A lock that has everything that `cluster` may ask for, each machine image with an id of its own.
fn pinned(cluster: &Cluster) -> Lock {
    let images = Lock::default().missing(cluster).parameters.into_iter().enumerate();
    let images = images.map(|(at, name)| (name, format!("ami-{at:017}"))).collect();
    fixture::pinned(cluster, Lock { images, ..lock() })
}

/// The cluster with these pools, rendered.
fn rendered_with(keys: &str) -> (Cluster, Rendering) {
    let cluster = match parse(format!("{BASE}{keys}").as_bytes(), None) {
        Ok(accepted) => accepted.cluster,
        Err(findings) => panic!("{keys}\n{findings:#?}"),
    };
    let rendered =
        render(&Inputs::new(&cluster, &pinned(&cluster), &credentials(&cluster), &site())).unwrap();
    (cluster, rendered)
}

fn pool(keys: &str) -> (Value, NodeRole, Value) {
    let (_, rendering) = rendered_with(&format!("worker:\n  nodePools:\n  - name: one\n{keys}"));
    let template = serde_json::from_str(&rendering.stack("prod-pool-one").unwrap().body).unwrap();
    let role = rendering.roles[&Role::Pool("one".to_owned())].clone();
    let config = serde_json::from_str(&role.config).unwrap();
    (template, role, config)
}

fn only<'t>(template: &'t Value, kind: &str) -> &'t Value {
    let found = of_type(template, kind);
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}

fn launch_template(template: &Value) -> &Value {
    &only(template, "AWS::EC2::LaunchTemplate")["Properties"]["LaunchTemplateData"]
}

fn group(template: &Value) -> &Value {
    &only(template, "AWS::AutoScaling::AutoScalingGroup")["Properties"]
}

#[test]
fn a_plain_pool_is_told_nothing_of_what_it_has_not() {
    let (template, role, config) = pool("");
    for key in ["mounts", "instanceStore", "gpu"] {
        assert_eq!(config[key], Value::Null, "{key}");
    }
    for key in ["volumes", "rootDevice", "keyName"] {
        assert_eq!(role.machine[key], Value::Null, "{key}");
    }
    assert_eq!(launch_template(&template)["BlockDeviceMappings"].as_array().unwrap().len(), 1);
    // Never set: it belongs to the autoscaler, or to the rollout.
    assert_eq!(group(&template)["DesiredCapacity"], Value::Null);
}

#[test]
fn volumes_are_attached_encrypted_and_mounted_where_they_were_asked_for() {
    let (template, role, config) = pool(
        "    volumeMounts:\n    - {device: /dev/xvdg, size: 20, path: /data/inner, createTmp: true, filesystem: ext4}\n    - {device: /dev/xvdf, size: 200, path: /data, type: st1}\n    raid0Mounts:\n    - {devices: [/dev/xvdi, /dev/xvdh], size: 30, type: io2, iops: 4000, path: /fast}\n",
    );
    let mappings = &launch_template(&template)["BlockDeviceMappings"];
    let gone = |kind: &str, size: u32| json!({"VolumeType": kind, "VolumeSize": size, "Encrypted": true, "DeleteOnTermination": true});
    let mut fast = gone("io2", 30);
    fast["Iops"] = json!(4000);
    let named = |name: &str, ebs: &Value| json!({"DeviceName": name, "Ebs": ebs});
    assert_eq!(
        *mappings,
        json!([
            named("/dev/xvda", &gone("gp3", 30)),
            named("/dev/xvdf", &gone("st1", 200)),
            named("/dev/xvdg", &gone("gp3", 20)),
            named("/dev/xvdh", &fast),
            named("/dev/xvdi", &fast),
        ])
    );
    assert_eq!(
        config["mounts"],
        json!([
            {"devices": ["/dev/xvdf"], "path": "/data", "fileSystem": "xfs"},
            {"devices": ["/dev/xvdg"], "path": "/data/inner", "fileSystem": "ext4", "createTmp": true},
            {"devices": ["/dev/xvdi", "/dev/xvdh"], "path": "/fast", "fileSystem": "xfs"},
        ])
    );
    assert_eq!(role.machine["volumes"]["/dev/xvdh"], json!({"type": "io2", "sizeGiB": 30, "iops": 4000}));
}

#[test]
fn disks_of_the_machine_need_no_mapping() {
    let (template, _, config) =
        pool("    instanceType: i4i.4xlarge\n    ephemeralStorage: {raid0: false, path: /mnt/disks}\n");
    assert_eq!(launch_template(&template)["BlockDeviceMappings"].as_array().unwrap().len(), 1);
    assert_eq!(config["instanceStore"], json!({"raid0": false, "fileSystem": "xfs", "path": "/mnt/disks"}));
    let (_, _, config) = pool("    instanceType: i4i.4xlarge\n    ephemeralStorage: {}\n");
    let holds = json!(["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]);
    assert_eq!(config["instanceStore"], json!({"raid0": true, "fileSystem": "xfs", "holds": holds}));
}

#[test]
fn gpus_bring_an_image_with_the_driver_for_their_architecture() {
    for (instance_type, architecture) in
        [("g5g.xlarge", Architecture::Arm64), ("g6.xlarge", Architecture::X86_64)]
    {
        let keys = format!(
            "worker:\n  nodePools:\n  - name: one\n    instanceType: {instance_type}\n    gpu: {{nvidia: {{enabled: true}}}}\n"
        );
        let (cluster, rendering) = rendered_with(&keys);
        let name = format!(
            "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
            architecture.as_str()
        );
        let lock = pinned(&cluster);
        let role = &rendering.roles[&Role::Pool("one".to_owned())];
        assert_eq!(role.machine["imageId"], json!(lock.images[&name]));
        assert_eq!(role.machine["rootVolume"]["sizeGiB"], 100);
        let config: Value = serde_json::from_str(&role.config).unwrap();
        assert_eq!(config["gpu"], "nvidia");
        assert_eq!(config["kubelet"]["nodeLabels"]["nvidia.com/gpu.present"], "true");
        // The controllers' image is that of before, and the other architecture's is not asked for.
        assert_ne!(rendering.roles[&Role::Controller].machine["imageId"], role.machine["imageId"]);
        assert_eq!(lock.images.keys().filter(|name| name.contains("deeplearning")).count(), 1);
    }
}

/// kube-aws' pools did not inherit it, and drifted.
#[test]
fn the_clusters_image_and_root_device_are_the_pools_too() {
    let pools =
        "worker:\n  nodePools:\n  - name: one\n  - name: own\n    image: {amiId: ami-0123456789abcdef1}\n";
    let (cluster, rendering) = rendered_with(&format!(
        "amiId: ami-0123456789abcdef0\nimage: {{rootDeviceName: /dev/sda1}}\n{pools}"
    ));
    assert_eq!(cluster.image, Image::Ami("ami-0123456789abcdef0".to_owned()));
    let mut seen = BTreeMap::new();
    for (role, node) in &rendering.roles {
        let stack: Value = serde_json::from_str(&rendering.stack(&node.stack).unwrap().body).unwrap();
        let data = of_type(&stack, "AWS::EC2::LaunchTemplate")[0]["Properties"]["LaunchTemplateData"].clone();
        assert_eq!(data["ImageId"], node.machine["imageId"], "{role}");
        seen.insert(
            role.to_string(),
            (
                data["ImageId"].clone(),
                data["BlockDeviceMappings"][0]["DeviceName"].clone(),
                node.machine["rootDevice"].clone(),
            ),
        );
    }
    let all = (json!("ami-0123456789abcdef0"), json!("/dev/sda1"), json!("/dev/sda1"));
    let own = (json!("ami-0123456789abcdef1"), json!("/dev/xvda"), Value::Null);
    for (role, wanted) in [("controller", &all), ("etcd-0", &all), ("pool-one", &all), ("pool-own", &own)] {
        assert_eq!(&seen[role], wanted, "{role}");
    }
}

#[test]
fn images_of_canonicals_have_another_root_device() {
    let parameter = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id";
    let device = |keys: &str| {
        let (template, _, _) = pool(keys);
        launch_template(&template)["BlockDeviceMappings"][0]["DeviceName"].clone()
    };
    let image =
        format!("    instanceType: m7i.large\n    image: {{ssmParameters: {{x86_64: {parameter}}}}}\n");
    assert_eq!(device(&image), "/dev/sda1");
    assert_eq!(device("    instanceType: m7i.large\n"), "/dev/xvda");
}

#[test]
fn what_is_said_of_a_pool_goes_before_what_is_said_of_all() {
    let (_, rendering) = rendered_with(
        "keyName: all\nsshAuthorizedKeys: [ssh-ed25519 AAAA]\nkubernetes: {featureGates: {A: true, B: true}}\nworker:\n  nodePools:\n  - name: one\n    keyName: mine\n    sshAuthorizedKeys: [ssh-ed25519 CCCC, ssh-ed25519 BBBB]\n    featureGates: {B: false, C: true}\n  - name: two\n",
    );
    let config = |name: &str| -> Value {
        serde_json::from_str(&rendering.roles[&Role::Pool(name.to_owned())].config).unwrap()
    };
    let machine = |name: &str| rendering.roles[&Role::Pool(name.to_owned())].machine["keyName"].clone();
    assert_eq!((machine("one"), machine("two")), (json!("mine"), json!("all")));
    assert_eq!(config("one")["sshAuthorizedKeys"], json!(["ssh-ed25519 BBBB", "ssh-ed25519 CCCC"]));
    assert_eq!(config("two")["sshAuthorizedKeys"], json!(["ssh-ed25519 AAAA"]));
    assert_eq!(config("one")["featureGates"], json!({"A": true, "B": false, "C": true}));
    assert_eq!(config("two")["featureGates"], json!({"A": true, "B": true}));
}

#[test]
fn balancers_are_the_groups_and_their_security_groups_the_machines() {
    let (template, role, _) = pool(
        "    loadBalancer: {names: [zwei, eins, zwei], securityGroupIds: [sg-00000002]}\n    targetGroup: {securityGroupIds: [sg-00000001]}\n    securityGroupIds: [sg-00000002]\n",
    );
    assert_eq!(group(&template)["LoadBalancerNames"], json!(["eins", "zwei"]));
    assert_eq!(group(&template)["TargetGroupARNs"], Value::Null);
    let groups = role.machine["securityGroups"].as_array().unwrap();
    assert_eq!(groups[1..], [json!("sg-00000001"), json!("sg-00000002")]);
}

#[test]
fn the_autoscaler_learns_what_a_node_would_be_before_there_is_one() {
    let tags = |keys: &str| -> BTreeMap<String, String> {
        let (template, ..) = pool(&format!(
            "    autoScalingGroup: {{minSize: 0, maxSize: 3}}\n    autoscaling: {{clusterAutoscaler: {{enabled: true}}}}\n{keys}addons: {{clusterAutoscaler: {{enabled: true}}}}\n"
        ));
        let tags = group(&template)["Tags"].as_array().unwrap().clone();
        tags.iter()
            .filter_map(|tag| {
                let key = tag["Key"].as_str()?.strip_prefix("k8s.io/cluster-autoscaler/")?;
                assert_eq!(tag["PropagateAtLaunch"], false, "{key}");
                Some((key.to_owned(), tag["Value"].as_str()?.to_owned()))
            })
            .collect()
    };
    let plain = tags(
        "    rootVolume: {size: 64}\n    nodeLabels: {example.com/tier: low}\n    taints: [{key: example.com/x, value: y, effect: NoSchedule}]\n",
    );
    let expected = [
        ("enabled", "true"),
        ("node-template/label/example.com/tier", "low"),
        ("node-template/label/slipway/pool", "one"),
        ("node-template/resources/ephemeral-storage", "64Gi"),
        ("node-template/taint/example.com/x", "y:NoSchedule"),
        ("prod", "owned"),
    ];
    assert_eq!(plain, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let gpu = tags(
        "    instanceType: g5.xlarge\n    ephemeralStorage: {}\n    gpu: {nvidia: {enabled: true, taint: true}}\n",
    );
    assert_eq!(gpu["node-template/label/k8s.amazonaws.com/accelerator"], "nvidia");
    assert_eq!(gpu["node-template/taint/nvidia.com/gpu"], "present:NoSchedule");
    // Scratch space lies on the disks, whose size the table does not vouch for.
    assert!(!gpu.contains_key("node-template/resources/ephemeral-storage"));
}

#[test]
fn weights_and_strategies_reach_the_group() {
    let (template, ..) = pool(
        "    autoScalingGroup: {minSize: 8, maxSize: 64}\n    mixedInstances:\n      onDemandBaseCapacity: 4\n      onDemandPercentageAboveBaseCapacity: 10\n      onDemandAllocationStrategy: lowest-price\n      spotAllocationStrategy: capacity-optimized\n      capacityRebalance: false\n      overrides: [{instanceType: m7i.large, weightedCapacity: 1}, {instanceType: m7i.xlarge, weightedCapacity: 2}]\n",
    );
    let group = group(&template);
    assert_eq!((&group["MinSize"], &group["MaxSize"]), (&json!("8"), &json!("64")));
    assert_eq!(group["CapacityRebalance"], Value::Null);
    let policy = &group["MixedInstancesPolicy"];
    assert_eq!(
        policy["InstancesDistribution"],
        json!({
            "OnDemandBaseCapacity": 4,
            "OnDemandPercentageAboveBaseCapacity": 10,
            "OnDemandAllocationStrategy": "lowest-price",
            "SpotAllocationStrategy": "capacity-optimized",
        })
    );
    assert_eq!(
        policy["LaunchTemplate"]["Overrides"],
        json!([
            {"InstanceType": "m7i.large", "WeightedCapacity": "1"},
            {"InstanceType": "m7i.xlarge", "WeightedCapacity": "2"},
        ])
    );
}

#[test]
fn workers_learn_that_the_user_brings_the_pod_network_and_controllers_do_without() {
    let external = |provider| {
        let mut cluster = fixture::cluster();
        cluster.addons.network = provider;
        let roles = fixture::rendered(&cluster).roles;
        let told = roles.iter().filter(|(_, node)| node.config.contains("\"external\":true"));
        told.map(|(role, _)| matches!(role, Role::Pool(_))).collect::<BTreeSet<bool>>()
    };
    assert_eq!(external(NetworkProvider::None), BTreeSet::from([true]), "workers alone");
    assert_eq!(external(NetworkProvider::Flannel), BTreeSet::new());
}
