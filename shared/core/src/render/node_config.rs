//! The configuration of a node: all that its agent must know and that is not secret.
//!
//! Its digest decides whether a node is outdated, so each role's configuration holds what that role uses and
//! nothing else (P2). Left out on purpose, as the certificates in the credentials carry them: the API's names
//! and extra SANs. Left out of etcd's: everything of Kubernetes. Left out of a worker's: everything of
//! controllers, etcd and other pools.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cfn::canonical_json;
use super::context::Context;
use super::groups::Hooks;
use super::ports;
use crate::cluster::{Addons, Cluster, EtcdMember, NodePool, Taint};
use crate::digest::sha256_hex;
use crate::members::MemberPin;
use crate::patch::Target;
use crate::pki::Role;

/// The label that tells a worker's pool.
pub(super) const POOL_LABEL: &str = "slipway/pool";

/// A configuration and its digest.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) text: String,
    pub(super) digest: String,
}

impl Config {
    /// `content` with what patches change in it.
    fn new(context: &mut Context<'_>, role: &Role, content: &impl Serialize) -> Self {
        let mut value = serde_json::to_value(content).expect("a node configuration has string keys only");
        context.patches.apply(Target::Node(role), &mut value);
        let text = canonical_json(&value);
        let digest = sha256_hex(text.as_bytes());
        Self { text, digest }
    }
}

/// What every node's configuration begins with.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Base {
    format: u32,
    cluster: String,
    role: String,
    region: String,
    ssh_authorized_keys: Vec<String>,
    /// The Auto Scaling group and the hooks that the agent settles.
    auto_scaling_group: String,
    launch_hook: &'static str,
    terminate_hook: &'static str,
}

impl Base {
    fn new(cluster: &Cluster, role: String, auto_scaling_group: &str) -> Self {
        let mut ssh_authorized_keys = cluster.ssh_authorized_keys.clone();
        ssh_authorized_keys.sort();
        ssh_authorized_keys.dedup();
        Self {
            format: 1,
            cluster: cluster.name.clone(),
            role,
            region: cluster.region.clone(),
            ssh_authorized_keys,
            auto_scaling_group: auto_scaling_group.to_owned(),
            launch_hook: Hooks::LAUNCH,
            terminate_hook: Hooks::TERMINATE,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EtcdConfig {
    #[serde(flatten)]
    base: Base,
    etcd: EtcdSettings,
    data_volume: DataVolume,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EtcdSettings {
    version: String,
    name: String,
    dns_name: String,
    client_port: u16,
    peer_port: u16,
    /// For a member without data. One that has data knows its fellows from there.
    initial_cluster: BTreeMap<String, String>,
    /// `existing`: with an empty volume it joins, as a learner first; absent: it founds the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_cluster_state: Option<&'static str>,
    initial_cluster_token: String,
}

/// Where the data lie: the node finds the volume by its tags, which its role limits it to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DataVolume {
    tags: BTreeMap<&'static str, String>,
    device: &'static str,
    file_system: &'static str,
    mount_point: &'static str,
}

/// The configuration of one etcd member. Of its fellows it holds what was settled for it, and nothing that changes with them.
pub(super) fn etcd(context: &mut Context<'_>, member: &EtcdMember, pin: &MemberPin, group: &str) -> Config {
    let version = context.etcd_version();
    let cluster = context.cluster;
    let role = Role::Etcd(member.index).to_string();
    let content = EtcdConfig {
        base: Base::new(cluster, role.clone(), group),
        etcd: EtcdSettings {
            version,
            name: member.name.clone(),
            dns_name: member.dns_name.clone(),
            client_port: ports::ETCD_CLIENT,
            peer_port: ports::ETCD_PEER,
            initial_cluster: pin.initial_cluster.clone(),
            initial_cluster_state: pin.joins.then_some("existing"),
            initial_cluster_token: cluster.name.clone(),
        },
        data_volume: DataVolume {
            tags: BTreeMap::from([
                ("slipway:cluster", cluster.name.clone()),
                ("slipway:role", role),
                ("slipway:volume", pin.volume.tag()),
            ]),
            device: "/dev/sdf",
            file_system: "ext4",
            mount_point: "/var/lib/etcd",
        },
    };
    Config::new(context, &Role::Etcd(member.index), &content)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kubelet {
    cluster_dns: String,
    cluster_domain: &'static str,
    node_labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodNetwork {
    pod_cidr: String,
    vxlan_port: u16,
}

impl PodNetwork {
    fn new(cluster: &Cluster) -> Self {
        Self { pod_cidr: cluster.network.pod_cidr.to_string(), vxlan_port: ports::POD_NETWORK }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ControllerConfig {
    #[serde(flatten)]
    base: Base,
    kubernetes_version: String,
    /// A controller's components use the API server beside them: a load balancer does not send a connection
    /// back to where it came from, and a controller must not depend on its fellows to start.
    api_server: String,
    kubelet: Kubelet,
    pod_network: PodNetwork,
    feature_gates: BTreeMap<String, bool>,
    control_plane: ControlPlane,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ControlPlane {
    bind_port: u16,
    etcd_servers: Vec<String>,
    service_cidr: String,
    encryption_at_rest: bool,
    audit_log: bool,
    addons: AddonSettings,
}

/// What the node manager on the controllers applies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AddonSettings {
    cluster_autoscaler: bool,
    metrics_server: bool,
    network_policy: bool,
}

impl From<Addons> for AddonSettings {
    fn from(Addons { cluster_autoscaler, metrics_server, network_policy }: Addons) -> Self {
        Self { cluster_autoscaler, metrics_server, network_policy }
    }
}

/// The configuration of every controller.
pub(super) fn controller(context: &mut Context<'_>, group: &str) -> Config {
    let cluster = context.cluster;
    let kubernetes_version = context.kubernetes_version(cluster.kubernetes_version);
    let members = cluster.etcd.members.iter();
    let content = ControllerConfig {
        base: Base::new(cluster, "controller".to_owned(), group),
        kubernetes_version,
        api_server: format!("https://127.0.0.1:{}", ports::API_SERVER),
        kubelet: Kubelet {
            cluster_dns: cluster.network.dns_service_ip.to_string(),
            cluster_domain: CLUSTER_DOMAIN,
            node_labels: cluster.controller.node_labels.clone(),
            taints: vec![Taint {
                key: "node-role.kubernetes.io/control-plane".to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            }],
        },
        pod_network: PodNetwork::new(cluster),
        feature_gates: cluster.kubernetes.feature_gates.clone(),
        control_plane: ControlPlane {
            bind_port: ports::API_SERVER,
            etcd_servers: members
                .map(|member| format!("https://{}:{}", member.dns_name, ports::ETCD_CLIENT))
                .collect(),
            service_cidr: cluster.network.service_cidr.to_string(),
            encryption_at_rest: cluster.kubernetes.encryption_at_rest,
            audit_log: cluster.kubernetes.audit_log,
            addons: cluster.addons.into(),
        },
    };
    Config::new(context, &Role::Controller, &content)
}

/// The domain of service names. No key of the spec changes it: certificates and the world's manifests expect
/// it.
const CLUSTER_DOMAIN: &str = "cluster.local";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkerConfig {
    #[serde(flatten)]
    base: Base,
    kubernetes_version: String,
    api_server: String,
    kubelet: Kubelet,
    pod_network: PodNetwork,
    feature_gates: BTreeMap<String, bool>,
}

/// The configuration of every worker of `pool`.
pub(super) fn worker(context: &mut Context<'_>, pool: &NodePool, group: &str) -> Config {
    let cluster = context.cluster;
    let kubernetes_version = context.kubernetes_version(cluster.version_of(pool));
    let mut taints = pool.taints.clone();
    taints.sort();
    let content = WorkerConfig {
        base: Base::new(cluster, format!("pool-{}", pool.name), group),
        kubernetes_version,
        api_server: format!("https://{}", worker_endpoint(cluster)),
        kubelet: Kubelet {
            cluster_dns: cluster.network.dns_service_ip.to_string(),
            cluster_domain: CLUSTER_DOMAIN,
            node_labels: labels(pool),
            taints,
        },
        pod_network: PodNetwork::new(cluster),
        feature_gates: cluster.kubernetes.feature_gates.clone(),
    };
    Config::new(context, &Role::Pool(pool.name.clone()), &content)
}

/// The labels of a pool's nodes: the spec's, and ours that tells the pool.
pub(super) fn labels(pool: &NodePool) -> BTreeMap<String, String> {
    let mut labels = pool.node_labels.clone();
    labels.insert(POOL_LABEL.to_owned(), pool.name.clone());
    labels
}

/// The name under which workers reach the API.
fn worker_endpoint(cluster: &Cluster) -> &str {
    let chosen = cluster.api_endpoints.iter().find(|endpoint| endpoint.name == cluster.worker_api_endpoint);
    chosen.map_or("", |endpoint| endpoint.dns_name.as_str())
}
