//! AWS' cloud controller manager: labels nodes with zone, type and addresses, deletes nodes whose machine is gone, and creates load
//! balancers for services.
//!
//! It runs in the host network of the controllers: until it has initialized a node, the node is not ready and has no pod network.

use serde_json::{Value, json};

use super::Kit;
use super::object::{CONTROL_PLANE, api_beside, as_user, on_controllers, restricted, rule, rule_for};
use crate::images::Image;

const APP: &str = "aws-cloud-controller-manager";
const ACCOUNT: &str = "cloud-controller-manager";

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let image = kit.image(Image::CloudControllerManager);
    let aws = kit.aws("cloud-controller-manager");
    vec![
        kit.service_account(ACCOUNT),
        kit.cluster_role("system:cloud-controller-manager", rules()),
        kit.cluster_role_binding(
            "system:cloud-controller-manager",
            "system:cloud-controller-manager",
            ACCOUNT,
        ),
        // The API server's configuration for authenticating requests to its metrics endpoint.
        kit.role_binding(
            "cloud-controller-manager:apiserver-authentication-reader",
            "extension-apiserver-authentication-reader",
            ACCOUNT,
        ),
        kit.role(
            ACCOUNT,
            json!([
                rule_for("coordination.k8s.io", "leases", &["cloud-controller-manager"], &["get", "update"],),
                rule(&["coordination.k8s.io"], &["leases"], &["create"])
            ]),
        ),
        kit.role_binding(ACCOUNT, ACCOUNT, ACCOUNT),
        aws.apply(kit.daemon_set(APP, APP, pod(kit, &image))),
    ]
}

/// The permissions of its node and service controllers, under one service account. With a service account for each controller it would
/// need permission to create tokens for the others.
fn rules() -> Value {
    json!([
        rule(&[""], &["events"], &["create", "patch", "update"]),
        rule(&[""], &["nodes"], &["get", "list", "watch", "update", "patch", "delete"]),
        rule(&[""], &["nodes/status"], &["patch"]),
        rule(&[""], &["services"], &["get", "list", "watch", "update", "patch"]),
        rule(&[""], &["services/status"], &["update", "patch"]),
    ])
}

fn pod(kit: &Kit<'_, '_>, image: &str) -> Value {
    json!({
        "serviceAccountName": ACCOUNT,
        "hostNetwork": true,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": on_controllers(),
        "tolerations": [
            { "key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule" },
            { "key": "node.cloudprovider.kubernetes.io/uninitialized", "operator": "Exists", "effect": "NoSchedule" },
            { "key": "node.kubernetes.io/not-ready", "operator": "Exists" },
        ],
        "securityContext": as_user(65532),
        "containers": [{
            "name": APP,
            "image": image,
            "args": [
                "--v=2",
                "--cloud-provider=aws",
                format!("--cluster-name={}", kit.context.cluster.name),
                "--configure-cloud-routes=false",
                "--allocate-node-cidrs=false",
                "--use-service-account-credentials=false",
                "--leader-elect=true",
            ],
            "env": api_beside(),
            "resources": kit.resources(json!({ "cpu": "100m", "memory": "64Mi" }), json!({})),
            "livenessProbe": { "httpGet": { "path": "/healthz", "port": 10258, "scheme": "HTTPS", "host": "127.0.0.1" },
                "initialDelaySeconds": 20, "timeoutSeconds": 15, "failureThreshold": 8 },
            "securityContext": restricted(),
        }],
    })
}
