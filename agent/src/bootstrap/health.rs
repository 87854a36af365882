//! Whether the node is healthy, as seen from itself.

use slipway_core::node::{EtcdHealth, NodeConfig};

use super::Bootstrap;
use crate::etcd::health::health;
use crate::etcd::join::promote;
use crate::etcd::place::Place;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::machine::commands::Commands;
use crate::status;
use crate::status::listeners::components;

/// So many entries of the log a member may lack and count as caught up: etcd itself promotes a learner at nine tenths.
const BEHIND: u64 = 10;

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
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => {
                for component in components(&self.host.root, &self.config) {
                    let found = status::ask(&component).await;
                    if let Some(problem) = found.problem {
                        return Err(waiting(component.name.as_str(), &problem, "journalctl --unit kubelet"));
                    }
                }
                Ok(())
            }
        }
    }
}

/// Whether the member does its own part: it has a vote, reads through a majority, and has what the leader had a moment before. That
/// each of its fellows is well too is [`EtcdHealth::healthy`], and matters before somebody else goes: a member that waited for it
/// would be given up because another one is down.
pub(crate) fn is_up(found: &EtcdHealth) -> bool {
    found.serving && !found.learner && found.behind.is_none_or(|entries| entries <= BEHIND)
}

fn waiting(what: &str, problem: &str, look: &str) -> Failure {
    Failure::passing(
        FailureCode::NodeUnhealthy,
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
