//! What the cluster is told of its own: that this node is a controller's, and whom to believe when a kubelet answers.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::MANAGER;
use crate::api::{failed, status};
use crate::failure::{Failure, FailureCode, Outcome};

/// A kubelet may not give its own node this label.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// What the metrics server reads, for one.
const KUBELET_CA: &str = "slipway-kubelet-ca";
const NAMESPACE: &str = "kube-system";

/// Labels this controller's node, once its kubelet has registered it.
pub(super) async fn label(client: &Client, name: &str) -> Outcome<Value> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found =
        nodes.get_metadata_opt(name).await.map_err(|error| failed(&format!("the node {name}"), &error))?;
    let Some(found) = found else { return Ok(json!({ "name": name, "registered": false })) };
    if !found.metadata.labels.is_some_and(|labels| labels.contains_key(CONTROL_PLANE)) {
        // Not by server-side apply, which would make a node that was deleted a moment ago.
        let change = json!({ "metadata": { "labels": { CONTROL_PLANE: "" } } });
        let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
        if let Err(error) = patched
            && status(&error) != Some(404)
        {
            return Err(failed(&format!("the node {name}"), &error));
        }
    }
    Ok(json!({ "name": name, "registered": true }))
}

/// Publishes the authority of the kubelets, as it lies on this controller.
pub(super) async fn publish(client: &Client, path: &Path) -> Outcome<Value> {
    let pem = std::fs::read_to_string(path).map_err(|error| {
        Failure::lasting(
            FailureCode::ManageUnreadable,
            format!("{}: {error}", path.display()),
            "run `slipway-node refresh`, which fetches this node's credentials again",
        )
    })?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": KUBELET_CA, "namespace": NAMESPACE },
        "data": { "ca.crt": pem },
    });
    let params = PatchParams::apply(MANAGER).force();
    let applied = maps.patch(KUBELET_CA, &params, &Patch::Apply(&object)).await;
    applied.map_err(|error| failed(&format!("{NAMESPACE}/{KUBELET_CA}"), &error))?;
    Ok(json!({ "configMap": format!("{NAMESPACE}/{KUBELET_CA}") }))
}
