//! A cluster for tests: three controllers, three members, three pools in three zones, like
//! `examples/production.yaml` but with more of what can go wrong: two endpoints, mixed architectures, targets.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    clippy::must_use_candidate,
    clippy::missing_panics_doc,
    reason = "tests"
)]

use std::collections::BTreeMap;

use slipway_core::cluster::*;
use slipway_core::role::Role;
use slipway_core::snapshots::ScheduledSnapshots;

use super::{Inputs, Rendering, Site, render};
use crate::lock::Lock;

const ZONES: [&str; 3] = ["eu-west-1a", "eu-west-1b", "eu-west-1c"];

pub fn site() -> Site {
    Site {
        asset_bucket: "slipway-assets-example".to_owned(),
        kms_key_arn: "arn:aws:kms:eu-west-1:111122223333:key/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".to_owned(),
        region: None,
        issuer_bucket: None,
        allowed: None,
    }
}

pub fn lock() -> Lock {
    pinned(&cluster(), bare_lock())
}

fn bare_lock() -> Lock {
    Lock {
        format: Lock::FORMAT,
        kubernetes: BTreeMap::from([("1.34".to_owned(), "1.34.2".to_owned())]),
        etcd: BTreeMap::from([("1.34".to_owned(), "3.6.6".to_owned())]),
        images: BTreeMap::from([
            (parameter(Architecture::Arm64), "ami-0a1b2c3d4e5f60001".to_owned()),
            (parameter(Architecture::X86_64), "ami-0a1b2c3d4e5f60002".to_owned()),
        ]),
        agent: BTreeMap::from([
            (Architecture::Arm64, "a".repeat(64)),
            (Architecture::X86_64, "b".repeat(64)),
        ]),
        ..Lock::default()
    }
}

fn parameter(architecture: Architecture) -> String {
    let kernel = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default";
    format!("{kernel}-{}", architecture.as_str())
}

/// All add-ons that can be combined, so that each is rendered.
fn addons() -> Addons {
    let on = || Addon { enabled: true, ..Addon::default() };
    Addons {
        image_repository: None,
        kube_proxy: on(),
        kube_proxy_mode: ProxyMode::Iptables,
        network: NetworkProvider::Flannel,
        flannel: on(),
        network_policy: on(),
        cloud_controller_manager: on(),
        core_dns: on(),
        core_dns_extra: None,
        core_dns_zones: None,
        node_local_dns: on(),
        ebs_csi_driver: on(),
        default_storage_class: true,
        metrics_server: on(),
        cluster_autoscaler: on(),
        cluster_autoscaler_options: BTreeMap::new(),
    }
}

/// Pins what `lock` lacks for `cluster`. The digest of an image is that of its name.
pub fn pinned(cluster: &Cluster, lock: Lock) -> Lock {
    let mut lock = lock;
    let missing = lock.missing(cluster);
    lock.pin_known(&missing);
    let images = missing.parameters.into_iter();
    lock.images.extend(images.map(|name| (name, "ami-0123456789abcdef0".to_owned())));
    let digests = missing.addon_images.into_iter();
    lock.addon_images.extend(digests.map(|reference| {
        let digest = format!("sha256:{}", slipway_core::digest::sha256_hex(reference.as_bytes()));
        (reference, digest)
    }));
    let programs = missing.program_files.into_keys();
    lock.program_files.extend(programs.map(|url| {
        let digest = slipway_core::digest::sha256_hex(url.as_bytes());
        (url, digest)
    }));
    lock
}

pub fn credentials(cluster: &Cluster) -> BTreeMap<Role, String> {
    let members = cluster.etcd.members.iter().map(|member| Role::Etcd(member.index));
    let pools = cluster.pools.iter().map(|pool| Role::Pool(pool.name.clone()));
    let roles = members.chain([Role::Controller]).chain(pools);
    roles.map(|role| (role.clone(), slipway_core::digest::sha256_hex(role.to_string().as_bytes()))).collect()
}

pub fn rendered(cluster: &Cluster) -> Rendering {
    render(&Inputs::new(cluster, &pinned(cluster, lock()), &credentials(cluster), &site())).unwrap()
}

pub fn volume(size_gib: u32) -> Volume {
    Volume { size_gib, kind: "gp3".to_owned(), iops: None, throughput: None, kms_key_arn: None }
}

pub fn pool(name: &str) -> NodePool {
    NodePool {
        name: name.to_owned(),
        instance_type: "m7g.large".to_owned(),
        kubernetes_version: None,
        image: None,
        root_device: None,
        key_name: None,
        ssh_authorized_keys: None,
        api_endpoint: None,
        root_volume: volume(50),
        storage: Storage::default(),
        nvidia: false,
        subnets: vec!["private-a".to_owned()],
        size: GroupSize { min: 2, max: 6 },
        mixed_instances: None,
        cluster_autoscaler: false,
        security_group_ids: Vec::new(),
        target_group_arns: Vec::new(),
        load_balancer_names: Vec::new(),
        iam: Iam::default(),
        node_labels: BTreeMap::new(),
        taints: Vec::new(),
        feature_gates: BTreeMap::new(),
        kubelet: BTreeMap::new(),
        tenancy: Tenancy::Default,
        custom: Custom::default(),
        repair: Repair::default(),
    }
}

fn subnets() -> Vec<Subnet> {
    let mut subnets = Vec::new();
    for (index, zone) in ZONES.iter().enumerate() {
        let letter = zone.chars().last().unwrap();
        let public = format!("public-{letter}");
        subnets.push(Subnet {
            name: public.clone(),
            availability_zone: (*zone).to_owned(),
            private: false,
            source: SubnetSource::Managed {
                cidr: format!("10.0.{index}.0/24").parse().unwrap(),
                egress: Egress::InternetGateway,
            },
        });
        subnets.push(Subnet {
            name: format!("private-{letter}"),
            availability_zone: (*zone).to_owned(),
            private: true,
            source: SubnetSource::Managed {
                cidr: format!("10.0.{}.0/24", 10 + index).parse().unwrap(),
                egress: Egress::ManagedNat { public_subnet: public, eip_allocation_id: None },
            },
        });
    }
    subnets
}

fn endpoint(name: &str, dns_name: &str, private: bool, source: &str) -> ApiEndpoint {
    let prefix = if private { "private" } else { "public" };
    ApiEndpoint {
        name: name.to_owned(),
        dns_name: dns_name.to_owned(),
        load_balancer: LoadBalancer {
            backing: Backing::Managed,
            private,
            subnets: ["a", "b", "c"].map(|letter| format!("{prefix}-{letter}")).to_vec(),
            hosted_zone_id: Some("Z0123456789ABCDEFGHIJ".into()),
            dns_name: None,
            source_cidrs: vec![source.parse().unwrap()],
            security_group_ids: Vec::new(),
        },
    }
}

fn pools() -> Vec<NodePool> {
    let general = NodePool { cluster_autoscaler: true, ..pool("general") };
    let spot = NodePool {
        subnets: ["a", "b", "c"].map(|letter| format!("private-{letter}")).to_vec(),
        mixed_instances: Some(MixedInstances {
            types: [("m7g.large", 1), ("m7g.xlarge", 2)]
                .map(|(name, weight)| WeightedType { instance_type: name.to_owned(), weight: Some(weight) })
                .to_vec(),
            on_demand_base: 0,
            on_demand_percentage: 0,
            on_demand_strategy: None,
            spot_strategy: "price-capacity-optimized".to_owned(),
            capacity_rebalance: true,
        }),
        node_labels: BTreeMap::from([("lifecycle".to_owned(), "spot".to_owned())]),
        taints: vec![Taint {
            key: "spot".to_owned(),
            value: "true".to_owned(),
            effect: "NoSchedule".to_owned(),
        }],
        ..pool("spot")
    };
    let ingress = NodePool {
        instance_type: "c7i.large".to_owned(),
        subnets: vec!["public-c".to_owned()],
        target_group_arns: vec![
            "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/ingress/6d0ecf831eec9f09"
                .to_owned(),
        ],
        ..pool("ingress")
    };
    vec![general, spot, ingress]
}

pub fn cluster() -> Cluster {
    let members = ["a", "b", "c"].iter().enumerate().map(|(index, letter)| EtcdMember {
        index: u32::try_from(index).unwrap(),
        name: format!("etcd-{index}"),
        dns_name: format!("etcd-{index}.prod.etcd.internal"),
        subnet: format!("private-{letter}"),
        data_volume: Volume { iops: Some(3000), throughput: Some(125), ..volume(20) },
    });
    Cluster {
        name: "prod".to_owned(),
        region: "eu-west-1".to_owned(),
        kubernetes_version: KubernetesVersion { major: 1, minor: 34, patch: None },
        image: Image::SsmParameter(
            [Architecture::Arm64, Architecture::X86_64].map(|one| (one, parameter(one))).into(),
        ),
        root_device: None,
        key_name: Some("ops".to_owned()),
        ssh_authorized_keys: vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample ops@example.com".to_owned()],
        kms_key_arn: None,
        api_endpoints: vec![
            endpoint("public", "api.prod.example.com", false, "198.51.100.0/24"),
            endpoint("internal", "api.prod.internal.example.com", true, "10.0.0.0/16"),
        ],
        admin_api_endpoint: "public".to_owned(),
        worker_api_endpoint: "internal".to_owned(),
        network: Network {
            vpc: Vpc::Managed("10.0.0.0/16".parse().unwrap()),
            internet_gateway_id: None,
            subnets: subnets(),
            pod_cidr: "10.2.0.0/16".parse().unwrap(),
            service_cidr: "10.3.0.0/24".parse().unwrap(),
            ssh_source_cidrs: Vec::new(),
            dns_service_ip: "10.3.0.10".parse().unwrap(),
        },
        controller: Controller {
            count: 3,
            instance_type: "m7g.large".to_owned(),
            root_volume: volume(30),
            subnets: ["a", "b", "c"].map(|letter| format!("private-{letter}")).to_vec(),
            security_group_ids: Vec::new(),
            iam: Iam::default(),
            node_labels: BTreeMap::new(),
            kubelet: BTreeMap::new(),
            feature_gates: BTreeMap::new(),
            tenancy: Tenancy::Default,
            custom: Custom::default(),
        },
        etcd: Etcd {
            instance_type: "m7g.medium".to_owned(),
            version: None,
            quota_gib: None,
            root_volume: volume(30),
            internal_domain: "prod.etcd.internal".to_owned(),
            hosted_zone_id: None,
            members: members.collect(),
            security_group_ids: Vec::new(),
            iam: Iam::default(),
            tenancy: Tenancy::Default,
            custom: Custom::default(),
            snapshots: Some(ScheduledSnapshots::default()),
        },
        pools: pools(),
        kubernetes: Kubernetes {
            encryption_at_rest: true,
            audit_log: Some(AuditLog {
                path: "/var/log/kube-apiserver/audit.log".to_owned(),
                files: None,
                policy: None,
            }),
            admission: Admission {
                pod_security: Some(PodSecurity {
                    enforce: "baseline".to_owned(),
                    audit: "restricted".to_owned(),
                    warn: "restricted".to_owned(),
                }),
                ..Admission::default()
            },
            ..Kubernetes::default()
        },
        software: Software::default(),
        addons: addons(),
        iam_roles: None,
        certificates: Certificates {
            key_algorithm: KeyAlgorithm::EcdsaP256,
            ca_days: 3650,
            leaf_days: 365,
            authorities: BTreeMap::new(),
            rollout_before_expiry: Some(RolloutBeforeExpiry {
                days: 7,
                strategy: RenewalStrategy::Refresh,
                emergency_days: 3,
            }),
            ca_rotation_days: None,
        },
        rollout: RolloutPolicy {
            approval: Approval::Auto,
            max_unavailable: CountOrPercent::Count(1),
            surge: CountOrPercent::Count(1),
            drain_force_after_min: None,
            failure_budget: 1,
            windows: Vec::new(),
            pools: BTreeMap::new(),
        },
        upgrades: None,
        deletion_protection: false,
        stack_tags: BTreeMap::from([("team".to_owned(), "platform".to_owned())]),
    }
}

#[cfg(test)]
/// A rendering in progress, for tests of parts.
pub(crate) fn context<'a>(
    cluster: &'a Cluster,
    lock: &'a Lock,
    credentials: &'a BTreeMap<Role, String>,
    site: &'a Site,
) -> super::Context<'a> {
    let inputs = super::Inputs::new(cluster, lock, credentials, site);
    super::Context::new(&inputs, slipway_spec::patch::Applied::new(&[]))
}
