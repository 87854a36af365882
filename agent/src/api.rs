//! The client of the Kubernetes API, with the node manager's credentials.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error};

use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};

/// The node manager's credentials, which only controllers have.
pub const NODE_MANAGER_KUBECONFIG: &str = "/etc/kubernetes/node-manager.kubeconfig";
/// Written by the kubelet once it has a certificate.
pub const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// The label of workers (slipway-render, `node_config/worker.rs`).
pub(crate) const POOL: &str = "slipway/pool";
/// Nodes of one answer. A Node has some 15 KB.
const PAGE: u32 = 500;
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(60);

/// A client with the node manager's credentials, which controllers have. The credentials are read once, so a caller that runs for long
/// makes a new client.
pub async fn client(root: &Path) -> AgentResult<Client> {
    let help = "run this on a controller; on a controller, `slipway renew --recover` has it fetch its credentials again";
    read(&below(root, NODE_MANAGER_KUBECONFIG), help).await
}

/// A client with the credentials of this machine's kubelet.
pub(crate) async fn kubelet_client(root: &Path) -> AgentResult<Client> {
    read(&below(root, KUBELET_KUBECONFIG), "see `journalctl --unit kubelet` on the node").await
}

async fn read(path: &Path, help: &str) -> AgentResult<Client> {
    let unusable = |error: &dyn std::fmt::Display| {
        AgentError::permanent(
            FailureCode::KubernetesCredentials,
            format!("{}: {error}", path.display()),
            help,
        )
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unusable(&error))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(&error))?;
    // A 429 is the answer to an eviction that a budget forbids, so the client must not retry it by itself.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    Client::try_from(config).map_err(|error| unusable(&error))
}

/// All Nodes.
pub(crate) async fn nodes(client: &Client) -> kube::Result<Vec<Node>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let (mut found, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let some = nodes.list(&page).await?;
        found.extend(some.items);
        match some.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// The failure of a call about `subject`.
pub(crate) fn failed(subject: &str, error: &Error) -> AgentError {
    let message = format!("{subject}: {}", words(error));
    match status(error) {
        // Throttled, starting, or overloaded.
        None | Some(429 | 500..) => AgentError::transient(
            FailureCode::KubernetesUnavailable,
            message,
            "see with `/var/lib/slipway/slipway-node status` whether the API server on this machine is healthy",
        ),
        Some(_) => AgentError::permanent(
            FailureCode::KubernetesRefused,
            message,
            "try the same call with `kubectl` as an administrator to see why the API server refuses it",
        ),
    }
}

/// The HTTP status of a refusal; `None` if no answer arrived.
pub(crate) fn status(error: &Error) -> Option<u16> {
    if let Error::Api(status) = error { Some(status.code) } else { None }
}

/// The API server's message, or the chain of causes if no answer arrived.
pub(crate) fn words(error: &Error) -> String {
    if let Error::Api(status) = error {
        let message = &status.message;
        return if message.is_empty() {
            format!("{} {}", status.code, status.reason)
        } else {
            message.clone()
        };
    }
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let more = cause.to_string();
        if !message.contains(&more) {
            message = format!("{message}: {more}");
        }
        source = cause.source();
    }
    message
}
