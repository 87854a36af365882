//! What a worker must know: nothing of controllers, etcd and other pools.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Base, CLUSTER_DOMAIN, Config, Kubelet, PodNetwork};
use crate::cluster::{Cluster, NodePool};
use crate::pki::Role;
use crate::render::context::Context;

/// The label that tells a worker's pool.
const POOL_LABEL: &str = "slipway/pool";

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
pub(in crate::render) fn worker(context: &mut Context<'_>, pool: &NodePool, group: &str) -> Config {
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
pub(in crate::render) fn labels(pool: &NodePool) -> BTreeMap<String, String> {
    let mut labels = pool.node_labels.clone();
    labels.insert(POOL_LABEL.to_owned(), pool.name.clone());
    labels
}

/// The name under which workers reach the API.
fn worker_endpoint(cluster: &Cluster) -> &str {
    let chosen = cluster.api_endpoints.iter().find(|endpoint| endpoint.name == cluster.worker_api_endpoint);
    chosen.map_or("", |endpoint| endpoint.dns_name.as_str())
}
