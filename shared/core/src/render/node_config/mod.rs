//! The configuration of a node: all that its agent must know and that is not secret.
//!
//! Its digest decides whether a node is outdated, so each role's configuration holds what that role uses and
//! nothing else (P2). Left out on purpose, as the certificates in the credentials carry them: the API's names
//! and extra SANs. Left out of etcd's: everything of Kubernetes. Left out of a worker's: everything of
//! controllers, etcd and other pools.

mod components;
mod controller;
mod etcd;
mod machine;
pub(crate) use machine::SCRATCH;
mod worker;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::cfn::canonical_json;
use super::context::Context;
use super::groups::Hooks;
use super::ports;
use crate::cluster::{Cluster, Taint};
use crate::digest::sha256_hex;
use crate::patch::Target;
use crate::pki::Role;
pub(super) use controller::controller;
pub(super) use etcd::etcd;
pub(super) use worker::{labels, worker};

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
        Self {
            format: 1,
            cluster: cluster.name.clone(),
            role,
            region: cluster.region.clone(),
            ssh_authorized_keys: in_order(&cluster.ssh_authorized_keys),
            auto_scaling_group: auto_scaling_group.to_owned(),
            launch_hook: Hooks::LAUNCH,
            terminate_hook: Hooks::TERMINATE,
        }
    }
}

/// Keys whose order in the spec means nothing.
fn in_order(keys: &[String]) -> Vec<String> {
    let mut keys = keys.to_vec();
    keys.sort();
    keys.dedup();
    keys
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kubelet {
    cluster_dns: String,
    cluster_domain: &'static str,
    node_labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    /// Fields of `KubeletConfiguration`, over Slipway's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    configuration: BTreeMap<String, Value>,
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

/// What is said of some nodes, over what is said of all.
fn over<T: Clone>(all: &BTreeMap<String, T>, some: &BTreeMap<String, T>) -> BTreeMap<String, T> {
    let mut both = all.clone();
    both.extend(some.iter().map(|(key, value)| (key.clone(), value.clone())));
    both
}

/// The domain of service names. No key of the spec changes it: certificates and the world's manifests expect
/// it.
pub(super) const CLUSTER_DOMAIN: &str = "cluster.local";
