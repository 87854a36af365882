//! Publishes facts about the cluster in its API: labels of this controller's node, and the authority of the kubelets' serving
//! certificates.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::MANAGER;
use crate::api::{failed, status};
use crate::failure::{Failure, FailureCode, Outcome};

/// As kubeadm sets them (kubernetes `cmd/kubeadm/app/phases/markcontrolplane`). A kubelet may not set the first one on its own node. The
/// second one keeps controllers out of load balancers of Services: the cloud provider would add every node.
const LABELS: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node.kubernetes.io/exclude-from-external-load-balancers"];
/// The metrics server reads it.
const KUBELET_CA: &str = "slipway-kubelet-ca";
const NAMESPACE: &str = "kube-system";

/// Labels this controller's node, if its kubelet has registered it.
pub(super) async fn controller_labels(client: &Client, name: &str) -> Outcome<Value> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found =
        nodes.get_metadata_opt(name).await.map_err(|error| failed(&format!("the node {name}"), &error))?;
    let Some(found) = found else { return Ok(json!({ "name": name, "registered": false })) };
    if let Some(change) = missing_labels(&found.metadata.labels.unwrap_or_default()) {
        // Not by server-side apply, which would recreate a node that was just deleted.
        let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
        if let Err(error) = patched
            && status(&error) != Some(404)
        {
            return Err(failed(&format!("the node {name}"), &error));
        }
    }
    Ok(json!({ "name": name, "registered": true }))
}

fn missing_labels(labels: &BTreeMap<String, String>) -> Option<Value> {
    let missing: BTreeMap<&str, &str> =
        LABELS.into_iter().filter(|label| !labels.contains_key(*label)).map(|label| (label, "")).collect();
    (!missing.is_empty()).then(|| json!({ "metadata": { "labels": missing } }))
}

pub(super) async fn kubelet_authority(client: &Client, path: &Path) -> Outcome<Value> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_gets_the_labels_that_it_lacks_and_is_left_alone_when_it_has_them() {
        let labels = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        let [role, balancers] = LABELS;
        let change = |names: &[&str]| missing_labels(&labels(names));
        assert_eq!(change(&[]), Some(json!({ "metadata": { "labels": { role: "", balancers: "" } } })));
        // As the agents before this label left them.
        assert_eq!(change(&[role, "zone"]), Some(json!({ "metadata": { "labels": { balancers: "" } } })));
        assert_eq!(change(&[role, balancers]), None);
    }
}
