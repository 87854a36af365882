//! Whether the node is healthy, as seen from itself.

use std::time::Duration;

use slipway_core::node::{EtcdHealth, NodeConfig};
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
/// So many entries of the log a member may lack and count as caught up: etcd itself promotes a learner at nine tenths.
const BEHIND: u64 = 10;
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
                if is_up(&found) {
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

/// Whether the member does its own part: it has a vote, reads through a majority, and has what the leader had a moment before. That
/// each of its fellows is well too is [`EtcdHealth::healthy`], and matters before somebody else goes: a member that waited for it
/// would be given up because another one is down.
fn is_up(found: &EtcdHealth) -> bool {
    found.serving && !found.learner && found.behind.is_none_or(|entries| entries <= BEHIND)
}

fn waiting(what: &str, problem: &str, look: &str) -> Failure {
    Failure::passing(
        "node.unhealthy",
        format!("{what} is not healthy yet: {problem}"),
        format!("see `{look}` on the node"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_a_member_is_up_though_another_one_is_down_and_not_before_it_has_caught_up() {
        let up = EtcdHealth {
            serving: true,
            behind: Some(3),
            problems: vec!["etcd-2 does not answer".to_owned()],
            ..EtcdHealth::default()
        };
        assert!(!up.healthy && is_up(&up));
        assert!(is_up(&EtcdHealth { behind: None, ..up.clone() }), "the leader is being elected");
        assert!(!is_up(&EtcdHealth { behind: Some(11), ..up.clone() }));
        assert!(!is_up(&EtcdHealth { learner: true, ..up.clone() }));
        assert!(!is_up(&EtcdHealth { serving: false, ..up }));
    }
}
