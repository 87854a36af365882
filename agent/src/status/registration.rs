//! Whether the cluster has accepted this machine as a node, asked with the kubelet's own credentials.
//!
//! A kubelet that runs is not yet a node: its request for a certificate may be denied, the API may be unreachable, or the pod network may
//! not work. A launch hook that was completed before would let a rollout replace a whole pool by machines that run no pods.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use slipway_core::node::NodeConfig;
use slipway_core::node::report::NodeRegistration;
use tokio::time::timeout;

use crate::api;

const TIMEOUT: Duration = Duration::from_secs(10);

/// What the cluster says of the Node `name`, which is this machine's; `None` on an etcd member.
pub(crate) async fn registration(root: &Path, config: &NodeConfig, name: &str) -> Option<NodeRegistration> {
    let network = match config {
        NodeConfig::Etcd(_) => return None,
        NodeConfig::Controller(config) => &config.pod_network,
        NodeConfig::Worker(config) => &config.pod_network,
    };
    let found = timeout(TIMEOUT, find(root, name)).await;
    let found = found
        .unwrap_or_else(|_| Err(format!("the API server did not answer within {} s", TIMEOUT.as_secs())));
    Some(judge(name, found, network.external))
}

async fn find(root: &Path, name: &str) -> Result<Option<Node>, String> {
    let client = api::kubelet_client(root).await.map_err(|failure| {
        format!(
            "the kubelet has no certificate yet, as the API server was not reached or its request was not approved: {}",
            failure.message
        )
    })?;
    Api::<Node>::all(client).get_opt(name).await.map_err(|error| api::words(&error))
}

/// `external`: the user installs the pod network, so that the Node need not be Ready.
fn judge(name: &str, found: Result<Option<Node>, String>, external: bool) -> NodeRegistration {
    let mut registration = NodeRegistration { name: name.to_owned(), ..NodeRegistration::default() };
    let node = match found {
        Ok(Some(node)) => node,
        Ok(None) => {
            registration.problem = Some("the kubelet has not registered it".to_owned());
            return registration;
        }
        Err(problem) => {
            registration.problem = Some(problem);
            return registration;
        }
    };
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    registration.registered = true;
    registration.ready = ready.as_ref().is_some_and(|ready| ready.status == "True");
    if !registration.ready && !external {
        let why = ready
            .and_then(|ready| ready.message)
            .unwrap_or_else(|| "its kubelet has not said why".to_owned());
        registration.problem = Some(format!("it is not Ready: {why}"));
    }
    registration
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn node(conditions: &Value) -> Node {
        serde_json::from_value(
            json!({ "metadata": { "name": "i-1" }, "status": { "conditions": conditions } }),
        )
        .unwrap()
    }

    #[test]
    fn a_machine_whose_node_cannot_run_pods_has_a_problem_in_words() {
        let no_network = "container runtime network not ready: cni plugin not initialized";
        let conditions = |status: &str, message: &str| json!([{ "type": "DiskPressure", "status": "False" }, { "type": "Ready", "status": status, "message": message }]);
        let ready =
            judge("i-1", Ok(Some(node(&conditions("True", "kubelet is posting ready status")))), false);
        assert_eq!((ready.registered, ready.ready, ready.problem), (true, true, None));
        for status in ["False", "Unknown"] {
            let broken = judge("i-1", Ok(Some(node(&conditions(status, no_network)))), false);
            assert_eq!((broken.registered, broken.ready), (true, false));
            assert!(broken.problem.unwrap().contains("cni plugin not initialized"));
        }
        assert!(judge("i-1", Ok(Some(node(&json!([])))), false).problem.is_some(), "it has just registered");
        for found in [Ok(None), Err("Unauthorized".to_owned())] {
            let absent = judge("i-1", found, false);
            assert!(!absent.registered && absent.problem.is_some());
        }
    }

    #[test]
    fn where_the_user_brings_the_network_a_node_need_only_register() {
        let waiting =
            node(&json!([{ "type": "Ready", "status": "False", "message": "cni plugin not initialized" }]));
        let registered = judge("i-1", Ok(Some(waiting)), true);
        assert_eq!((registered.registered, registered.ready, registered.problem), (true, false, None));
        assert!(judge("i-1", Ok(None), true).problem.is_some());
    }

    #[tokio::test]
    async fn a_kubelet_without_a_certificate_is_no_node() {
        let root = tempfile::tempdir().unwrap();
        let worker = NodeConfig::read(include_str!("../kube/testdata/worker.json")).unwrap();
        let found = registration(root.path(), &worker, "i-1").await.unwrap();
        assert!(!found.registered && found.problem.unwrap().contains("no certificate"));
    }
}
