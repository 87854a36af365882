//! Whether the cluster has accepted this machine as a node, asked with the kubelet's own credentials.
//!
//! A kubelet that runs is not yet a node: its request for a certificate may be denied, the API may be unreachable, or the pod network may
//! not work. A launch hook that was completed before would let a rollout replace a whole pool by machines that run no pods.
//!
//! A controller need only register. It is Ready once the pod network runs, which is an add-on: `manage` of a controller applies it, and its
//! images come from a registry. The launch of the control plane must not wait for that, above all where this is the only controller.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::Api;
use slipway_core::node::NodeConfig;
use slipway_core::node::report::NodeRegistration;
use tokio::time::timeout;

use crate::api;

const TIMEOUT: Duration = Duration::from_secs(10);

/// What the cluster says of the Node `name`, which is this machine's; `None` on an etcd member.
pub(crate) async fn registration(root: &Path, config: &NodeConfig, name: &str) -> Option<NodeRegistration> {
    let needed = Needed::for_config(config)?;
    let found = timeout(TIMEOUT, find(root, name)).await;
    let found = found
        .unwrap_or_else(|_| Err(format!("the API server did not answer within {} s", TIMEOUT.as_secs())));
    Some(judge(name, found, needed))
}

/// How far a Node must be for its machine to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needed {
    /// The Node exists.
    Registered,
    /// The Node is Ready, or all that is missing is the pod network, which the user installs, and perhaps later.
    ReadyButForNetwork,
    /// The Node is Ready, and flannel says that it runs there.
    ///
    /// Ready alone does not show that: the kubelet takes a network for ready once there is a file in `/etc/cni/net.d`, which an init container
    /// of flannel writes before flannel itself has reached the API or made its device. When it has, and its rules are in place, it sets the
    /// condition `NetworkUnavailable` to `False` (flannel `pkg/subnet/kube/kube.go`, `CompleteLease`). Nobody else sets it: with an external
    /// cloud provider only a route controller would, and ours makes no routes.
    ReadyWithFlannel,
}

impl Needed {
    /// `None` on an etcd member, which has no Node.
    fn for_config(config: &NodeConfig) -> Option<Self> {
        match config {
            NodeConfig::Etcd(_) => None,
            NodeConfig::Controller(_) => Some(Self::Registered),
            NodeConfig::Worker(config) if config.pod_network.external => Some(Self::ReadyButForNetwork),
            NodeConfig::Worker(_) => Some(Self::ReadyWithFlannel),
        }
    }
}

/// What the kubelet writes as the message of the condition Ready if all that is missing is the pod network, with the reason
/// KubeletNotReady (Kubernetes `pkg/kubelet/kubelet.go`, `updateRuntimeUp`). If there are more reasons, the message is a list in brackets
/// (`pkg/kubelet/nodestatus/setters.go`, `ReadyCondition`, which aggregates the errors).
const NO_NETWORK: &str = "container runtime network not ready";

/// Whether a Node is not Ready for the only reason that it has no pod network. `Unknown` says that its kubelet has stopped
/// (Kubernetes `pkg/controller/nodelifecycle`).
fn lacks_only_network(ready: &NodeCondition) -> bool {
    ready.status == "False" && ready.message.as_deref().is_some_and(|why| why.starts_with(NO_NETWORK))
}

/// Why pods cannot run on a Node. `None`: they can, or will be able to when the user has installed the pod network.
pub(crate) fn problem(name: &str, node: Node, external_network: bool) -> Option<String> {
    let needed = if external_network { Needed::ReadyButForNetwork } else { Needed::ReadyWithFlannel };
    judge(name, Ok(Some(node)), needed).problem
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

fn judge(name: &str, found: Result<Option<Node>, String>, needed: Needed) -> NodeRegistration {
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
    let condition = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    registration.registered = true;
    registration.ready = condition("Ready").is_some_and(|ready| ready.status == "True");
    registration.problem = match needed {
        Needed::Registered => None,
        Needed::ReadyButForNetwork if condition("Ready").is_some_and(lacks_only_network) => None,
        Needed::ReadyButForNetwork | Needed::ReadyWithFlannel if !registration.ready => {
            let why = condition("Ready").and_then(|ready| ready.message.as_deref());
            Some(format!("it is not Ready: {}", why.unwrap_or("its kubelet has not said why")))
        }
        Needed::ReadyButForNetwork => None,
        Needed::ReadyWithFlannel => match condition("NetworkUnavailable") {
            Some(network) if network.status == "False" => None,
            Some(network) => {
                let why = network.message.as_deref().unwrap_or("nobody has said why");
                Some(format!("its pod network is unavailable: {why}"))
            }
            None => Some(
                "flannel does not run on it yet: it has not set the condition NetworkUnavailable to False; see the pods of kube-flannel-ds"
                    .to_owned(),
            ),
        },
    };
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

    /// As the kubelet writes it with containerd.
    const CNI: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns \
                       error: cni plugin not initialized";

    /// As flannel writes it when it runs.
    fn flannel_is_up() -> Value {
        json!({ "type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp", "message": "Flannel is running on this node" })
    }

    fn ready(status: &str, message: &str) -> Value {
        json!({ "type": "Ready", "status": status, "message": message })
    }

    fn judged(conditions: &Value, needed: Needed) -> (bool, bool, Option<String>) {
        let NodeRegistration { registered, ready, problem, .. } =
            judge("i-1", Ok(Some(node(conditions))), needed);
        (registered, ready, problem)
    }

    #[test]
    fn a_worker_whose_node_cannot_run_pods_has_a_problem_in_words() {
        let worker = |conditions: Value| judged(&conditions, Needed::ReadyWithFlannel);
        let posting = ready("True", "kubelet is posting ready status");
        let pressure = json!({ "type": "DiskPressure", "status": "False" });
        assert_eq!(worker(json!([pressure, posting, flannel_is_up()])), (true, true, None));
        for status in ["False", "Unknown"] {
            let (registered, is_ready, problem) = worker(json!([pressure, ready(status, CNI)]));
            assert_eq!((registered, is_ready), (true, false));
            assert!(problem.unwrap().contains("cni plugin not initialized"));
        }
        assert!(worker(json!([])).2.is_some(), "it has just registered");
        for found in [Ok(None), Err("Unauthorized".to_owned())] {
            let absent = judge("i-1", found, Needed::ReadyWithFlannel);
            assert!(!absent.registered && absent.problem.is_some());
        }
    }

    #[test]
    fn a_worker_does_not_count_before_flannel_says_that_it_runs_there() {
        let posting = ready("True", "kubelet is posting ready status");
        let (_, is_ready, problem) = judged(&json!([posting]), Needed::ReadyWithFlannel);
        assert!(is_ready && problem.unwrap().contains("flannel does not run on it yet"));
        let unavailable = json!({ "type": "NetworkUnavailable", "status": "True", "message": "no route" });
        let (_, _, problem) = judged(&json!([posting, unavailable]), Needed::ReadyWithFlannel);
        assert_eq!(problem.unwrap(), "its pod network is unavailable: no route");
    }

    /// The only controller applies the add-ons without which it is not Ready.
    #[test]
    fn a_controller_need_only_register_and_so_a_worker_whose_network_the_user_brings() {
        let controller = NodeConfig::read(include_str!("../kube/testdata/controller.json")).unwrap();
        assert_eq!(Needed::for_config(&controller), Some(Needed::Registered));
        let flannel = include_str!("../kube/testdata/worker.json");
        assert_eq!(Needed::for_config(&NodeConfig::read(flannel).unwrap()), Some(Needed::ReadyWithFlannel));
        let mut none: Value = serde_json::from_str(flannel).unwrap();
        none["podNetwork"]["external"] = json!(true);
        let none = NodeConfig::read(&none.to_string()).unwrap();
        assert_eq!(Needed::for_config(&none), Some(Needed::ReadyButForNetwork));

        let waiting = json!([ready("False", CNI)]);
        assert_eq!(judged(&waiting, Needed::Registered), (true, false, None));
        for needed in [Needed::Registered, Needed::ReadyButForNetwork] {
            assert!(judge("i-1", Ok(None), needed).problem.is_some());
        }
    }

    #[test]
    fn p11_where_the_user_brings_the_network_a_node_may_lack_it_and_nothing_else() {
        let problem = |conditions: Value| judged(&conditions, Needed::ReadyButForNetwork).2;
        assert_eq!(problem(json!([ready("True", "kubelet is posting ready status")])), None);
        assert_eq!(problem(json!([ready("False", CNI)])), None);
        let stopped = "Kubelet stopped posting node status.";
        assert_eq!(problem(json!([ready("Unknown", stopped)])), Some(format!("it is not Ready: {stopped}")));
        // It stopped before it had a network: the controller manager leaves no message of the kubelet.
        assert!(problem(json!([ready("Unknown", CNI)])).is_some());
        let several = format!("[container runtime is down, {CNI}]");
        for why in ["container runtime is down", "node is shutting down", &several] {
            assert_eq!(problem(json!([ready("False", why)])), Some(format!("it is not Ready: {why}")));
        }
        assert!(problem(json!([])).is_some());
    }

    #[tokio::test]
    async fn a_kubelet_without_a_certificate_is_no_node() {
        let root = tempfile::tempdir().unwrap();
        let worker = NodeConfig::read(include_str!("../kube/testdata/worker.json")).unwrap();
        let found = registration(root.path(), &worker, "i-1").await.unwrap();
        assert!(!found.registered && found.problem.unwrap().contains("no certificate"));
    }
}
