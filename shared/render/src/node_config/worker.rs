//! A worker's configuration.

use std::collections::BTreeMap;

use slipway_core::cluster::{Cluster, NetworkProvider, NodePool};
use slipway_core::node::{Kubelet, PodNetwork, WorkerConfig};
use slipway_core::role::Role;

use super::machine::machine;
use super::{CLUSTER_DOMAIN, Config, base, in_order, over, pod_network};
use crate::context::Context;

/// The label with a worker's pool.
const POOL_LABEL: &str = "slipway/pool";

/// The configuration of every worker of `pool`.
pub(crate) fn worker(context: &mut Context<'_>, pool: &NodePool, group: &str) -> Config {
    let cluster = context.cluster;
    let kubernetes_version = context.kubernetes_version(cluster.version_of(pool));
    let mut taints = pool.taints.clone();
    taints.sort();
    let role = Role::Pool(pool.name.clone());
    let mut base = base(context, &role, group);
    if let Some(keys) = &pool.ssh_authorized_keys {
        base.ssh_authorized_keys = in_order(keys);
    }
    let feature_gates = over(&cluster.kubernetes.feature_gates, &pool.feature_gates);
    let content = WorkerConfig {
        base,
        custom: pool.custom.clone(),
        kubernetes_version,
        api_server: format!("https://{}", worker_endpoint(cluster, pool)),
        kubelet: Kubelet {
            cluster_dns: cluster.network.dns_service_ip.to_string(),
            cluster_domain: CLUSTER_DOMAIN.to_owned(),
            node_labels: labels(pool),
            taints,
            configuration: over(&cluster.kubernetes.kubelet, &pool.kubelet),
        },
        pod_network: PodNetwork {
            external: cluster.addons.network == NetworkProvider::None,
            ..pod_network(cluster)
        },
        feature_gates,
        machine: machine(pool),
    };
    Config::new(context, &role, &content)
}

/// The labels of a pool's nodes: those of the spec, and the pool's name.
pub(crate) fn labels(pool: &NodePool) -> BTreeMap<String, String> {
    let mut labels = pool.node_labels.clone();
    labels.insert(POOL_LABEL.to_owned(), pool.name.clone());
    labels
}

/// The DNS name by which workers reach the API.
fn worker_endpoint<'c>(cluster: &'c Cluster, pool: &NodePool) -> &'c str {
    let name = pool.api_endpoint.as_ref().unwrap_or(&cluster.worker_api_endpoint);
    let chosen = cluster.api_endpoints.iter().find(|endpoint| endpoint.name == *name);
    chosen.map_or("", |endpoint| endpoint.dns_name.as_str())
}
