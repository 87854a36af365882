//! Whether the node is healthy, as seen from itself.

use std::time::Duration;

use slipway_core::node::NodeConfig;
use slipway_core::pki::policy::KUBERNETES_DIR;

use super::Bootstrap;
use crate::credentials::below;
use crate::etcd::health::health;
use crate::etcd::join::promote;
use crate::etcd::place::Place;
use crate::failure::{Failure, Outcome};
use crate::http;
use crate::machine::commands::Commands;

const PATIENCE: Duration = Duration::from_secs(5);
/// The kubelet's `healthzPort`.
const KUBELET: &str = "http://127.0.0.1:10248/healthz";

impl<C: Commands> Bootstrap<C> {
    pub(super) async fn healthy(&self) -> Outcome<()> {
        match &self.config {
            NodeConfig::Etcd(config) => {
                let place = Place { root: self.host.root.clone(), config: (**config).clone() };
                if config.etcd.initial_cluster_state.is_some() {
                    // It comes as a learner, and is nobody's fellow before it has a vote.
                    promote(&place).await?;
                }
                let found = health(&place).await?;
                if found.healthy {
                    return Ok(());
                }
                Err(waiting("etcd", &found.problems.join("; "), "journalctl --unit etcd"))
            }
            NodeConfig::Controller(config) => {
                let port = config.control_plane.bind_port;
                self.answers("the API server", &format!("https://127.0.0.1:{port}/readyz")).await?;
                self.answers("the kubelet", KUBELET).await
            }
            NodeConfig::Worker(_) => self.answers("the kubelet", KUBELET).await,
        }
    }

    /// Whether `url` on this machine answers with success.
    async fn answers(&self, what: &str, url: &str) -> Outcome<()> {
        let pki = below(&self.host.root, KUBERNETES_DIR);
        let client = http::client(http::mutual(&pki.join("ca.pem"), None)?, PATIENCE)?;
        match client.get(url).send().await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => {
                Err(waiting(what, &format!("HTTP {}", answer.status().as_u16()), "journalctl --unit kubelet"))
            }
            Err(error) => Err(waiting(what, &error.without_url().to_string(), "journalctl --unit kubelet")),
        }
    }
}

fn waiting(what: &str, problem: &str, look: &str) -> Failure {
    Failure::passing(
        "node.unhealthy",
        format!("{what} is not healthy yet: {problem}"),
        format!("see `{look}` on the node"),
    )
}
