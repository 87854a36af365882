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
use crate::failure::{AgentError, AgentResult, FailureCode};

/// As kubeadm sets it (kubernetes `cmd/kubeadm/app/phases/markcontrolplane`). A kubelet may not set it on its own node.
pub(crate) const ROLE: &str = "node-role.kubernetes.io/control-plane";
/// Keeps controllers out of load balancers of Services: the cloud provider would add every node. It counts whatever its value is
/// (k8s.io/cloud-provider `controllers/service/controller.go`, `nodeIncludedPredicate`), so no value in a spec could switch it off. kubeadm sets
/// it when a node joins, and whoever wants controllers as targets removes it: so it is set together with [`ROLE`] and not restored.
const NO_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The metrics server reads it.
const KUBELET_CA: &str = "slipway-kubelet-ca";
const NAMESPACE: &str = "kube-system";

/// Labels this controller's node, if its kubelet has registered it.
pub(super) async fn controller_labels(client: &Client, name: &str) -> AgentResult<Value> {
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

/// The labels of a node that has none of ours yet.
fn missing_labels(labels: &BTreeMap<String, String>) -> Option<Value> {
    let is_marked = labels.contains_key(ROLE);
    (!is_marked).then(|| json!({ "metadata": { "labels": { ROLE: "", NO_BALANCERS: "" } } }))
}

pub(super) async fn kubelet_authority(client: &Client, path: &Path) -> AgentResult<Value> {
    let pem = std::fs::read_to_string(path).map_err(|error| {
        AgentError::permanent(
            FailureCode::ManageUnreadable,
            format!("{}: {error}", path.display()),
            "order `slipway renew --recover`, which has nodes fetch their credentials again",
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
    fn a_new_controller_gets_its_labels_and_the_one_against_balancers_may_be_removed() {
        let change = |names: &[&str]| {
            missing_labels(&names.iter().map(|name| ((*name).to_owned(), String::new())).collect())
        };
        let both = Some(json!({ "metadata": { "labels": { ROLE: "", NO_BALANCERS: "" } } }));
        assert_eq!(change(&[]), both);
        assert_eq!(change(&["zone", NO_BALANCERS]), both);
        assert_eq!(change(&[ROLE, NO_BALANCERS]), None);
        assert_eq!(change(&[ROLE]), None, "somebody removed it");
    }
}
