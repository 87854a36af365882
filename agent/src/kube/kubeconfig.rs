//! Kubeconfigs that contain no secret: they name the credentials' files, which clients read again when they change.

use serde_json::{Value, json};

use super::{json as text, pki};

/// With the client certificate `name`.
pub(super) fn with_certificate(server: &str, name: &str) -> String {
    let user = json!({
        "client-certificate": pki(&format!("{name}.pem")),
        "client-key": pki(&format!("{name}-key.pem")),
    });
    kubeconfig(server, &user)
}

/// With the bootstrap token, for a kubelet's first certificate.
pub(super) fn with_bootstrap_token(server: &str) -> String {
    kubeconfig(server, &json!({ "tokenFile": pki("bootstrap-token") }))
}

fn kubeconfig(server: &str, user: &Value) -> String {
    text(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "default",
            "cluster": { "server": server, "certificate-authority": pki("ca.pem") },
        }],
        "users": [{ "name": "default", "user": user }],
        "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default" } }],
        "current-context": "default",
    }))
}
