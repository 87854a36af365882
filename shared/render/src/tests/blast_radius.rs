//! P2: a change touches the stacks and the nodes whose content it changed, and no others.

use std::collections::BTreeMap;

use slipway_core::cluster::{
    Architecture, Backing, Cluster, Component, Content, Custom, CustomFile, Egress, Iam, Image,
    InstanceStore, Mount, PoolRollout, Subnet, SubnetSource, Taint, Tenancy, Volume,
};
use slipway_core::release::Rendering;
use slipway_core::role::Role;

use crate::fixture::{cluster, credentials, lock, pool, rendered, site, volume};
use crate::{Inputs, render};

const ETCD: &[&str] = &["etcd-0", "etcd-1", "etcd-2"];
const POOLS: &[&str] = &["pool-general", "pool-ingress", "pool-spot"];
/// What a person did to the spec.
type Change = Box<dyn FnOnce(&mut Cluster)>;

const NOBODY: &[&str] = &[];

/// What differs between two renderings: stacks by the part of their name after the cluster's, roles by name.
#[derive(Debug, PartialEq, Eq)]
struct Blast {
    stacks: Vec<String>,
    outdated: Vec<String>,
    stale: Vec<String>,
}

impl Blast {
    fn between(before: &Rendering, after: &Rendering) -> Self {
        let bodies = |rendering: &Rendering| -> BTreeMap<String, String> {
            let stacks = rendering.stacks.iter();
            stacks
                .map(|stack| (stack.name.trim_start_matches("prod-").to_owned(), stack.sha256.clone()))
                .collect()
        };
        let machines = |rendering: &Rendering| -> BTreeMap<String, String> {
            let roles = rendering.roles.iter();
            roles.map(|(name, role)| (name.to_string(), format!("{}{}", role.machine, role.config))).collect()
        };
        let secrets = |rendering: &Rendering| -> BTreeMap<String, String> {
            let roles = rendering.roles.iter();
            roles.map(|(name, role)| (name.to_string(), role.credentials_digest.clone())).collect()
        };
        Self {
            stacks: differing(&bodies(before), &bodies(after)),
            outdated: differing(&machines(before), &machines(after)),
            stale: differing(&secrets(before), &secrets(after)),
        }
    }
}

/// Keys that only one has, or that have another value.
fn differing(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).cloned().collect()
}

/// A change of the spec, the stacks that it may touch, and the nodes that it may replace.
#[track_caller]
fn p2(change: impl FnOnce(&mut Cluster), stacks: &[&[&str]], outdated: &[&[&str]]) {
    let before = cluster();
    let mut after = before.clone();
    change(&mut after);
    let blast = Blast::between(&rendered(&before), &rendered(&after));
    assert_eq!(blast.stacks, sorted(stacks), "stacks");
    assert_eq!(blast.outdated, sorted(outdated), "nodes");
}

fn sorted<'a>(groups: &[&[&'a str]]) -> Vec<&'a str> {
    let mut names = groups.concat();
    names.sort_unstable();
    names
}

#[test]
fn p2_sizes_touch_one_stack_and_no_node() {
    p2(|c| c.pools[0].size.max += 1, &[&["pool-general"]], &[NOBODY]);
    p2(|c| c.pools[0].size.min += 1, &[&["pool-general"]], &[NOBODY]);
    p2(|c| c.controller.count = 5, &[&["control-plane"]], &[NOBODY]);
}

#[test]
fn p2_a_pool_that_comes_or_goes_touches_itself() {
    p2(|c| c.pools.push(pool("gpu")), &[&["pool-gpu"]], &[&["pool-gpu"]]);
    p2(|c| drop(c.pools.remove(2)), &[&["pool-ingress"]], &[&["pool-ingress"]]);
}

#[test]
fn p2_what_a_pool_is_touches_its_own_nodes() {
    let mut changes: Vec<Change> = vec![
        Box::new(|c| drop(c.pools[0].node_labels.insert("tier".to_owned(), "gold".to_owned()))),
        Box::new(|c| c.pools[0].instance_type = "m7g.xlarge".to_owned()),
        Box::new(|c| c.pools[0].image = Some(Image::Ami("ami-00000000000000001".to_owned()))),
        Box::new(|c| c.pools[0].root_volume.size_gib = 80),
        Box::new(|c| c.pools[0].security_group_ids.push("sg-00000000000000001".to_owned())),
    ];
    changes.push(Box::new(|c| {
        let (key, effect) = ("gpu".to_owned(), "NoExecute".to_owned());
        c.pools[0].taints.push(Taint { key, value: String::new(), effect });
    }));
    for change in changes {
        p2(change, &[&["pool-general"]], &[&["pool-general"]]);
    }
}

fn mount(path: &str, devices: &[&str], volume: Volume) -> Mount {
    let devices = devices.iter().map(|device| (*device).to_owned()).collect();
    Mount { path: path.to_owned(), devices, volume, file_system: "xfs".to_owned(), create_tmp: false }
}

#[test]
fn p2_what_a_pools_machines_have_touches_its_own_nodes() {
    let disks = || InstanceStore { raid0: true, path: None, file_system: "xfs".to_owned() };
    let changes: Vec<Change> = vec![
        Box::new(|c| c.pools[0].storage.mounts.push(mount("/data", &["/dev/xvdf"], volume(20)))),
        Box::new(|c| c.pools[0].storage.mounts.push(mount("/a", &["/dev/xvdf", "/dev/xvdg"], volume(9)))),
        Box::new(move |c| c.pools[0].storage.instance_store = Some(disks())),
        Box::new(|c| c.pools[0].nvidia = true),
        Box::new(|c| c.pools[0].key_name = Some("other".to_owned())),
        Box::new(|c| c.pools[0].ssh_authorized_keys = Some(vec!["ssh-ed25519 BBBB".to_owned()])),
        Box::new(|c| c.pools[0].api_endpoint = Some("public".to_owned())),
        Box::new(|c| c.pools[0].feature_gates.extend([("Foo".to_owned(), true)])),
    ];
    for change in changes {
        p2(change, &[&["pool-general"]], &[&["pool-general"]]);
    }
}

#[test]
fn p2_each_part_of_a_mount_outdates_its_pool() {
    let mut before = cluster();
    before.pools[0].storage.mounts.push(mount("/data", &["/dev/xvdf"], volume(20)));
    let changes: [fn(&mut Mount); 5] = [
        |mount| mount.path = "/var/data".to_owned(),
        |mount| mount.devices = vec!["/dev/xvdg".to_owned()],
        |mount| mount.volume.size_gib += 1,
        |mount| mount.file_system = "ext4".to_owned(),
        |mount| mount.create_tmp = true,
    ];
    for change in changes {
        let mut after = before.clone();
        change(&mut after.pools[0].storage.mounts[0]);
        let blast = Blast::between(&rendered(&before), &rendered(&after));
        assert_eq!(
            (blast.stacks, blast.outdated),
            (vec!["pool-general".to_owned()], vec!["pool-general".to_owned()])
        );
    }
}

#[test]
fn p2_what_stands_around_a_pool_touches_no_node() {
    p2(|c| c.pools[0].load_balancer_names.push("classic".to_owned()), &[&["pool-general"]], &[NOBODY]);
    p2(
        |c| c.pools[1].mixed_instances.as_mut().unwrap().types[0].weight = Some(3),
        &[&["pool-spot"]],
        &[NOBODY],
    );
    p2(
        |c| c.pools[1].mixed_instances.as_mut().unwrap().capacity_rebalance = false,
        &[&["pool-spot"]],
        &[NOBODY],
    );
    let strategy = Some("lowest-price".to_owned());
    p2(
        |c| c.pools[1].mixed_instances.as_mut().unwrap().on_demand_strategy = strategy,
        &[&["pool-spot"]],
        &[NOBODY],
    );
    p2(
        |c| c.pools[1].mixed_instances.as_mut().unwrap().spot_strategy = "lowest-price".to_owned(),
        &[&["pool-spot"]],
        &[NOBODY],
    );
    let arn =
        "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/more/6d0ecf831eec9f09".to_owned();
    p2(|c| c.pools[0].target_group_arns.push(arn), &[&["pool-general"]], &[NOBODY]);
    p2(|c| c.pools[0].subnets.push("private-b".to_owned()), &[&["pool-general"]], &[NOBODY]);
    p2(|c| c.pools[0].cluster_autoscaler = false, &[&["pool-general"]], &[NOBODY]);
    let policy = "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly".to_owned();
    p2(|c| c.pools[0].iam.managed_policy_arns.push(policy), &[&["pool-general"]], &[NOBODY]);
    p2(|c| c.pools[1].mixed_instances.as_mut().unwrap().on_demand_base = 1, &[&["pool-spot"]], &[NOBODY]);
}

#[test]
fn p2_what_controllers_are_touches_controllers() {
    let changes: Vec<Change> = vec![
        Box::new(|c| c.controller.instance_type = "m7g.xlarge".to_owned()),
        Box::new(|c| c.kubernetes.audit_log = None),
        Box::new(|c| c.kubernetes.encryption_at_rest = false),
        Box::new(|c| c.network.service_cidr = "10.3.0.0/23".parse().unwrap()),
    ];
    for change in changes {
        p2(change, &[&["control-plane"]], &[&["controller"]]);
    }
}

#[test]
fn p2_of_programs_and_images_a_role_is_told_what_it_runs() {
    let all = ["control-plane", "etcd", "pool-general", "pool-ingress", "pool-spot"];
    let roles = ["controller", "etcd-0", "etcd-1", "etcd-2", "pool-general", "pool-ingress", "pool-spot"];
    p2(|c| c.software.source = slipway_core::cluster::SoftwareSource::Image, &[&all], &[&roles]);
    let mirror = Some("mirror.example.com".to_owned());
    p2(|c| c.software.image_repository = mirror, &[&all[..1], &all[2..]], &[&roles[..1], &roles[4..]]);
    p2(|c| c.etcd.version = Some("3.6.17".to_owned()), &[&all[1..2]], &[&roles[1..4]]);
}

#[test]
fn p2_addons_touch_no_node() {
    let quiet: Vec<Change> = vec![
        Box::new(|c| c.addons.metrics_server.enabled = false),
        Box::new(|c| c.addons.network_policy.enabled = false),
        Box::new(|c| c.addons.core_dns.replicas = Some(5)),
        Box::new(|c| c.addons.core_dns.version = Some("v1.13.1".to_owned())),
        Box::new(|c| c.addons.image_repository = Some("mirror.example.com".to_owned())),
        Box::new(|c| c.addons.kube_proxy_mode = slipway_core::cluster::ProxyMode::Nftables),
    ];
    for change in quiet {
        p2(change, &[NOBODY], &[NOBODY]);
    }
    // What uses AWS changes what the controllers may do there.
    p2(|c| c.addons.cluster_autoscaler.enabled = false, &[&["control-plane"]], &[NOBODY]);
    p2(|c| c.addons.ebs_csi_driver.enabled = false, &[&["control-plane"]], &[NOBODY]);
}

#[test]
fn p2_what_etcd_is_touches_etcd() {
    p2(|c| c.etcd.instance_type = "m7g.large".to_owned(), &[&["etcd"]], &[ETCD]);
    p2(|c| c.etcd.version = Some("3.6.1".to_owned()), &[&["etcd"]], &[ETCD]);
    // The data volume grows in place, under the instance.
    p2(|c| c.etcd.members[1].data_volume = volume(40), &[&["etcd"]], &[NOBODY]);
}

#[test]
fn p2_files_units_and_tenancy_touch_their_own_role() {
    let custom = |path: &str| {
        let [user, group] = ["root", "root"].map(str::to_owned);
        let (mode, content) = ("0644".to_owned(), Content::Text("vm.max_map_count=262144\n".to_owned()));
        Custom {
            files: vec![CustomFile { path: path.to_owned(), mode, user, group, content }],
            units: Vec::new(),
        }
    };
    p2(|c| c.controller.custom = custom("/etc/a"), &[&["control-plane"]], &[&["controller"]]);
    p2(|c| c.etcd.custom = custom("/etc/a"), &[&["etcd"]], &[ETCD]);
    p2(|c| c.pools[0].custom = custom("/etc/a"), &[&["pool-general"]], &[&["pool-general"]]);
    p2(|c| c.controller.tenancy = Tenancy::Dedicated, &[&["control-plane"]], &[&["controller"]]);
    p2(|c| c.etcd.tenancy = Tenancy::Dedicated, &[&["etcd"]], &[ETCD]);
    p2(|c| c.pools[0].tenancy = Tenancy::Dedicated, &[&["pool-general"]], &[&["pool-general"]]);
}

#[test]
fn p2_settings_of_components_touch_the_nodes_that_run_them() {
    let flags = || Component { flags: [("v".to_owned(), "2".to_owned())].into(), ..Component::default() };
    let changes: Vec<Change> = vec![
        Box::new(move |c| c.kubernetes.api_server = flags()),
        Box::new(move |c| c.kubernetes.controller_manager = flags()),
        Box::new(move |c| c.kubernetes.scheduler = flags()),
        Box::new(|c| c.kubernetes.admission.enable.push("AlwaysPullImages".to_owned())),
        Box::new(|c| c.kubernetes.admission.pod_security = None),
        Box::new(|c| drop(c.controller.kubelet.insert("maxPods".to_owned(), 20.into()))),
        Box::new(|c| c.controller.feature_gates.extend([("Foo".to_owned(), true)])),
    ];
    for change in changes {
        p2(change, &[&["control-plane"]], &[&["controller"]]);
    }
    let stacks: &[&[&str]] = &[&["control-plane"], POOLS];
    p2(
        |c| drop(c.kubernetes.kubelet.insert("maxPods".to_owned(), 20.into())),
        stacks,
        &[&["controller"], POOLS],
    );
    p2(
        |c| drop(c.pools[0].kubelet.insert("maxPods".to_owned(), 20.into())),
        &[&["pool-general"]],
        &[&["pool-general"]],
    );
}

#[test]
fn p2_the_name_of_a_role_touches_no_node() {
    let named = |strict_name| Iam { role_name: Some("nodes".to_owned()), strict_name, ..Iam::default() };
    p2(|c| c.controller.iam = named(false), &[&["control-plane"]], &[NOBODY]);
    p2(|c| c.pools[0].iam = named(true), &[&["pool-general"]], &[NOBODY]);
}

#[test]
fn p2_a_kubernetes_upgrade_leaves_etcd_alone() {
    let stacks: &[&[&str]] = &[&["control-plane"], POOLS];
    p2(|c| c.kubernetes_version.patch = Some(3), stacks, &[&["controller"], POOLS]);
    p2(|c| c.kubernetes.feature_gates.extend([("Foo".to_owned(), true)]), stacks, &[&["controller"], POOLS]);
}

#[test]
fn p2_ssh_keys_touch_every_node_and_their_order_none() {
    let all: &[&[&str]] = &[&["etcd", "control-plane"], POOLS];
    p2(|c| c.ssh_authorized_keys.push("ssh-ed25519 BBBB".to_owned()), all, &[ETCD, &["controller"], POOLS]);
    p2(|c| c.ssh_authorized_keys.push(c.ssh_authorized_keys[0].clone()), &[NOBODY], &[NOBODY]);
}

#[test]
fn p2_the_way_to_the_api_touches_no_node() {
    p2(
        |c| c.api_endpoints[0].load_balancer.source_cidrs.push("203.0.113.0/24".parse().unwrap()),
        &[&["control-plane"]],
        &[NOBODY],
    );
    p2(|c| drop(c.api_endpoints.remove(0)), &[&["control-plane"]], &[NOBODY]);
    // The certificate carries these: it makes controllers stale, no more.
    p2(|c| c.kubernetes.extra_sans.push("k8s.example.com".to_owned()), &[NOBODY], &[NOBODY]);
}

#[test]
fn p2_a_subnet_touches_the_network_alone() {
    let subnet = Subnet {
        name: "private-d".to_owned(),
        availability_zone: "eu-west-1a".to_owned(),
        private: true,
        source: SubnetSource::Managed {
            cidr: "10.0.20.0/24".parse().unwrap(),
            egress: Egress::ManagedNat { public_subnet: "public-a".to_owned(), eip_allocation_id: None },
        },
    };
    p2(|c| c.network.subnets.push(subnet), &[&["network"]], &[NOBODY]);
}

#[test]
fn p2_tags_and_the_sealing_key_touch_templates_but_no_node() {
    let all: &[&[&str]] = &[&["etcd", "control-plane"], POOLS];
    p2(|c| drop(c.stack_tags.insert("cost".to_owned(), "42".to_owned())), all, &[NOBODY]);
    let key = "arn:aws:kms:eu-west-1:111122223333:key/00000000-0000-0000-0000-000000000000".to_owned();
    p2(|c| c.kms_key_arn = Some(key), all, &[NOBODY]);
}

#[test]
fn p2_policies_of_certificates_and_rollouts_touch_nothing() {
    p2(|c| c.certificates.leaf_days = 30, &[NOBODY], &[NOBODY]);
    p2(|c| c.certificates.rollout_before_expiry = None, &[NOBODY], &[NOBODY]);
    p2(|c| c.rollout.failure_budget = 9, &[NOBODY], &[NOBODY]);
    let after = PoolRollout { after: vec!["general".to_owned()], ..PoolRollout::default() };
    p2(|c| drop(c.rollout.pools.insert("spot".to_owned(), after)), &[NOBODY], &[NOBODY]);
}

#[test]
fn p2_renewed_credentials_make_their_role_stale_and_nobody_outdated() {
    let cluster = cluster();
    let mut renewed = credentials(&cluster);
    renewed.insert(Role::Controller, "c".repeat(64));
    let after = render(&Inputs::new(&cluster, &lock(), &renewed, &site())).unwrap();
    let blast = Blast::between(&rendered(&cluster), &after);
    let expected = Blast {
        stacks: vec!["control-plane".to_owned()],
        outdated: Vec::new(),
        stale: vec!["controller".to_owned()],
    };
    assert_eq!(blast, expected);
}

#[test]
fn p2_a_new_agent_or_image_touches_the_nodes_of_its_architecture() {
    let cluster = cluster();
    let mut newer = lock();
    newer.agent.insert(Architecture::X86_64, "d".repeat(64));
    let after = render(&Inputs::new(&cluster, &newer, &credentials(&cluster), &site())).unwrap();
    // The ingress pool alone is x86_64.
    assert_eq!(Blast::between(&rendered(&cluster), &after).outdated, ["pool-ingress"]);
}

/// Who brings a balancer, and who may come in, is nothing that a node knows of.
#[test]
fn p2_balancers_and_doors_touch_no_node() {
    let arn = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/a/0123456789abcdef";
    p2(
        |c| c.api_endpoints[0].load_balancer.backing = Backing::Balancer(arn.into()),
        &[&["control-plane"]],
        &[NOBODY],
    );
    p2(|c| c.api_endpoints[0].load_balancer.private ^= true, &[&["control-plane"]], &[NOBODY]);
    p2(|c| c.network.ssh_source_cidrs.push("203.0.113.0/24".parse().unwrap()), &[&["network"]], &[NOBODY]);
}
