//! Kubeconfigs that contain no secret: they name the credentials' files, which clients read again when they change.

use serde_json::{Value, json};

use slipway_credentials::policy::KUBERNETES_DIR;

use super::{json as text, pki};

/// With the client certificate `name`, whose files are in `folder`.
pub(super) fn with_certificate(server: &str, folder: &str, name: &str) -> String {
    let user = json!({
        "client-certificate": format!("{folder}/{name}.pem"),
        "client-key": format!("{folder}/{name}-key.pem"),
    });
    kubeconfig(server, folder, &user)
}

/// With the bootstrap token, for a kubelet's first certificate.
pub(super) fn with_bootstrap_token(server: &str) -> String {
    kubeconfig(server, KUBERNETES_DIR, &json!({ "tokenFile": pki("bootstrap-token") }))
}

fn kubeconfig(server: &str, folder: &str, user: &Value) -> String {
    text(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "default",
            "cluster": { "server": server, "certificate-authority": format!("{folder}/ca.pem") },
        }],
        "users": [{ "name": "default", "user": user }],
        "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default" } }],
        "current-context": "default",
    }))
}
