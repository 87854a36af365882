//! The API of Kubernetes, as the node manager.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Error};

use crate::failure::{Failure, FailureCode, Outcome};

/// By which the node manager speaks to the API server beside it.
const KUBECONFIG: &str = "etc/kubernetes/node-manager.kubeconfig";
/// An API server that is there answers sooner.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(60);

/// A client by the kubeconfig below `root`. The credentials are read now: whoever goes on for long makes a new one.
///
/// # Errors
/// If there is none, as on a node that is no controller.
pub async fn client(root: &Path) -> Outcome<Client> {
    let path = root.join(KUBECONFIG);
    let unusable = |error: &dyn std::fmt::Display| {
        Failure::lasting(
            FailureCode::KubernetesCredentials,
            format!("{}: {error}", path.display()),
            "run this on a controller; there, `slipway-node refresh` fetches its credentials again",
        )
    };
    let kubeconfig = Kubeconfig::read_from(&path).map_err(|error| unusable(&error))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(&error))?;
    // To an eviction, 429 is the answer, and says that a budget forbids it: nothing to repeat behind our back.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    Client::try_from(config).map_err(|error| unusable(&error))
}

/// What came of a call about `subject`.
pub(crate) fn failed(subject: &str, error: &Error) -> Failure {
    let message = format!("{subject}: {}", words(error));
    match status(error) {
        // Throttled, or something behind it is just starting or full.
        None | Some(429 | 500..) => Failure::passing(
            FailureCode::KubernetesUnavailable,
            message,
            "the API server beside this agent must run: `slipway-node status` tells whether it does",
        ),
        Some(_) => Failure::lasting(
            FailureCode::KubernetesRefused,
            message,
            "the API server says no: `kubectl` as an administrator shows why",
        ),
    }
}

/// The HTTP status of a refusal; `None`: nobody refused, the call did not come through.
pub(crate) fn status(error: &Error) -> Option<u16> {
    if let Error::Api(status) = error { Some(status.code) } else { None }
}

/// The API server's own words, or what kept the call from it.
pub(crate) fn words(error: &Error) -> String {
    if let Error::Api(status) = error {
        let said = &status.message;
        return if said.is_empty() { format!("{} {}", status.code, status.reason) } else { said.clone() };
    }
    let mut said = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let more = cause.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        source = cause.source();
    }
    said
}
