//! Renders the configurations of nodes, whose types are in [`slipway_core::node`].

mod components;
mod controller;
mod etcd;
mod machine;
mod worker;

use std::collections::BTreeMap;

use serde::Serialize;
use slipway_core::canonical::canonical_json;
use slipway_core::cluster::Cluster;
use slipway_core::digest::sha256_hex;
use slipway_core::node::{Base, LAUNCH_HOOK, PodNetwork, TERMINATE_HOOK};
use slipway_core::role::Role;
use slipway_spec::patch::Target;

use super::context::Context;
use super::ports;
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
    /// `content` with the changes of patches.
    fn new(context: &mut Context<'_>, role: &Role, content: &impl Serialize) -> Self {
        let mut value = serde_json::to_value(content).expect("a node configuration has string keys only");
        context.patches.apply(Target::Node(role), &mut value);
        let text = canonical_json(&value);
        let digest = sha256_hex(text.as_bytes());
        Self { text, digest }
    }
}

/// The fields that every node's configuration has.
fn base(context: &mut Context<'_>, role: &Role, auto_scaling_group: &str) -> Base {
    let software = context.software(role);
    let images = context.system_images(role);
    let cluster = context.cluster;
    Base {
        format: 1,
        cluster: cluster.name.clone(),
        role: role.to_string(),
        region: cluster.region.clone(),
        ssh_authorized_keys: in_order(&cluster.ssh_authorized_keys),
        auto_scaling_group: auto_scaling_group.to_owned(),
        launch_hook: LAUNCH_HOOK.to_owned(),
        terminate_hook: TERMINATE_HOOK.to_owned(),
        software,
        images,
    }
}

/// The keys in a fixed order, because their order in the spec means nothing.
fn in_order(keys: &[String]) -> Vec<String> {
    let mut keys = keys.to_vec();
    keys.sort();
    keys.dedup();
    keys
}

fn pod_network(cluster: &Cluster) -> PodNetwork {
    PodNetwork {
        pod_cidr: cluster.network.pod_cidr.to_string(),
        vxlan_port: ports::POD_NETWORK,
        external: false,
    }
}

/// The settings of some nodes, which override those of all.
fn over<T: Clone>(all: &BTreeMap<String, T>, some: &BTreeMap<String, T>) -> BTreeMap<String, T> {
    let mut both = all.clone();
    both.extend(some.iter().map(|(key, value)| (key.clone(), value.clone())));
    both
}

/// The domain of service names. The spec cannot change it, because certificates and common manifests expect it.
pub(super) const CLUSTER_DOMAIN: &str = "cluster.local";
