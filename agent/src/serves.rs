//! `serves`: whether the whole cluster serves, as a controller sees it (P11). It changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use slipway_core::node::report::ComponentName;
use slipway_core::node::{ClusterServes, ControllerConfig, NodeConfig, NodesReady, PartHealth};
use slipway_credentials::policy::KUBERNETES_DIR;
use tokio::time::timeout;

use crate::api;
use crate::credentials::below;
use crate::etcd::client::EtcdClient;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::status::{self, listeners, registration};
use crate::{manage, node_files};

/// A member that does not answer within this time does not serve.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(15);
/// All Nodes are listed within this time, or not at all. The verb has two minutes.
const NODES_TIMEOUT: Duration = Duration::from_secs(60);
/// Nodes of one answer. A Node has some 15 KB.
const PAGE: u32 = 500;
/// A node manager passes every 20 s, and a pass that hangs is ended after five minutes (`manage::units`): twice that is no coincidence.
const PASSED: SignedDuration = SignedDuration::from_mins(10);
/// The label of workers (slipway-render, `node_config/worker.rs`).
const POOL: &str = "slipway/pool";

/// Whether the cluster of this controller serves. The Nodes of `without` do not count.
pub async fn serves(root: &Path, without: &BTreeSet<String>) -> AgentResult<ClusterServes> {
    let NodeConfig::Controller(config) = node_files::config(root)?.0 else {
        return Err(AgentError::lasting(
            FailureCode::Usage,
            "this node is no controller, and cannot say whether the cluster serves",
            "run this on a controller",
        ));
    };
    let (api_server, etcd, nodes) =
        tokio::join!(api_server(root, &config), etcd(root, &config), nodes(root, &config, without));
    Ok(ClusterServes {
        api_server,
        node_manager: node_manager(manage::last_pass(root), Timestamp::now()),
        etcd,
        nodes,
    })
}

async fn api_server(root: &Path, config: &ControllerConfig) -> PartHealth {
    let components = listeners::components(root, &NodeConfig::Controller(Box::new(config.clone())));
    match components.iter().find(|component| component.name == ComponentName::ApiServer) {
        Some(component) => PartHealth::new(status::component_health(component).await.problem),
        None => PartHealth::new(Some("this node has no API server".to_owned())),
    }
}

/// Whether a node manager works whose last pass ended at that time.
fn node_manager(passed: Result<Timestamp, String>, now: Timestamp) -> PartHealth {
    let problem = match passed {
        // A clock that was set back makes a pass seem to come from the future.
        Ok(at) if now.duration_since(at) <= PASSED => None,
        Ok(at) => Some(format!("its last pass ended {} minutes ago", now.duration_since(at).as_mins())),
        Err(why) => Some(format!("no pass has ended since the machine was started: {why}")),
    };
    PartHealth::new(problem)
}

/// The members of etcd, each asked to read through a majority; empty if nobody knows them.
async fn etcd(root: &Path, config: &ControllerConfig) -> BTreeMap<String, PartHealth> {
    let pki = below(root, KUBERNETES_DIR);
    let identity = (pki.join("apiserver-etcd-client.pem"), pki.join("apiserver-etcd-client-key.pem"));
    let Ok(client) = EtcdClient::with(&pki.join("etcd-ca.pem"), (&identity.0, &identity.1)) else {
        return BTreeMap::new();
    };
    let mut members = Vec::new();
    for url in &config.control_plane.etcd_servers {
        if let Ok(Ok(found)) = timeout(MEMBER_TIMEOUT, client.endpoint(url).members()).await {
            members = found.members;
            break;
        }
    }
    let asked = members.iter().map(|member| async {
        let name =
            if member.name.is_empty() { crate::etcd::wire::hex(member.id) } else { member.name.clone() };
        let problem = match member.client_urls.first() {
            None => Some("it has not started yet".to_owned()),
            Some(_) if member.is_learner => Some("it is a learner without a vote".to_owned()),
            Some(url) => match timeout(MEMBER_TIMEOUT, client.endpoint(url).serves()).await {
                Ok(answer) => answer.err().map(|why| why.to_string()),
                Err(_) => Some(format!("it did not answer within {} s", MEMBER_TIMEOUT.as_secs())),
            },
        };
        (name, PartHealth::new(problem))
    });
    join_all(asked).await.into_iter().collect()
}

/// The Nodes by role; `None` if the API server does not list them.
async fn nodes(
    root: &Path,
    config: &ControllerConfig,
    without: &BTreeSet<String>,
) -> Option<BTreeMap<String, NodesReady>> {
    let nodes = timeout(NODES_TIMEOUT, list(root)).await.ok()??;
    Some(counted(nodes, config.pod_network.external, without))
}

async fn list(root: &Path) -> Option<Vec<Node>> {
    let nodes: Api<Node> = Api::all(api::client(root).await.ok()?);
    let (mut found, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let some = nodes.list(&page).await.ok()?;
        found.extend(some.items);
        match some.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Some(found),
        }
    }
}

/// Counts Nodes by the role of their machines. Nodes of others, which no group of the cluster has, do not count.
fn counted(
    nodes: Vec<Node>,
    external_network: bool,
    without: &BTreeSet<String>,
) -> BTreeMap<String, NodesReady> {
    let counted = nodes.into_iter().filter_map(|node| {
        let labels = node.metadata.labels.as_ref()?;
        let role = match labels.get(POOL) {
            Some(pool) => format!("pool-{pool}"),
            None if labels.contains_key(manage::CONTROLLER_LABEL) => "controller".to_owned(),
            None => return None,
        };
        let name = node.metadata.name.clone().unwrap_or_default();
        let problem = registration::problem(&name, node, external_network);
        Some((role, name, problem))
    });
    NodesReady::by_role(counted, without)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, labels: Value, conditions: Value) -> Node {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    #[test]
    fn p11_nodes_are_counted_by_pool_and_only_those_whose_pods_have_a_network_are_ready() {
        let ready = json!({"type": "Ready", "status": "True"});
        let network = json!({"type": "NetworkUnavailable", "status": "False"});
        let pool = || json!({"slipway/pool": "a"});
        let nodes = || {
            vec![
                node("i-1", pool(), json!([ready, network])),
                node("i-2", pool(), json!([ready])),
                node(
                    "i-3",
                    pool(),
                    json!([{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped"}]),
                ),
                node("i-4", json!({"node-role.kubernetes.io/control-plane": ""}), json!([ready, network])),
                node("somebody-elses", json!({}), json!([])),
            ]
        };
        let seen = counted(nodes(), false, &BTreeSet::new());
        assert_eq!(seen.keys().collect::<Vec<_>>(), ["controller", "pool-a"]);
        assert_eq!((seen["controller"].registered, seen["controller"].ready), (1, 1));
        let workers = &seen["pool-a"];
        assert_eq!((workers.registered, workers.ready), (3, 1));
        let named: Vec<&str> = workers.not_ready.iter().map(|one| one.node.as_str()).collect();
        assert_eq!(named, ["i-2", "i-3"]);
        assert!(workers.not_ready[1].why.contains("Kubelet stopped"));
        // The user installs the pod network, and perhaps later.
        assert_eq!(counted(nodes(), true, &BTreeSet::new())["pool-a"].ready, 3);
        let without = BTreeSet::from(["i-1".to_owned(), "i-3".to_owned()]);
        let others = &counted(nodes(), false, &without)["pool-a"];
        assert_eq!((others.registered, others.ready, others.not_ready.len()), (1, 0, 1));
    }

    #[test]
    fn p11_a_node_manager_works_if_a_pass_has_ended_within_ten_minutes() {
        let now = Timestamp::from_second(10_000).unwrap();
        let ago = |minutes| Ok(now - SignedDuration::from_mins(minutes));
        assert!(node_manager(ago(10), now).healthy && node_manager(ago(-5), now).healthy);
        assert_eq!(node_manager(ago(11), now).problem.unwrap(), "its last pass ended 11 minutes ago");
        assert!(!node_manager(Err("no such file".to_owned()), now).healthy);
    }

    #[tokio::test]
    async fn p11_a_mark_of_a_pass_is_read_where_the_node_manager_wrote_it() {
        let root = tempfile::tempdir().unwrap();
        assert!(manage::last_pass(root.path()).is_err());
        let at = Timestamp::from_second(10_000).unwrap();
        std::fs::create_dir_all(root.path().join("run/slipway-manage")).unwrap();
        manage::has_passed(root.path(), at);
        assert_eq!(manage::last_pass(root.path()), Ok(at));
    }
}
