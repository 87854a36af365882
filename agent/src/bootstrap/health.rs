//! Whether this node is healthy.

use slipway_core::node::{EtcdHealth, NodeConfig};

use super::Bootstrap;
use crate::etcd::health::health;
use crate::etcd::join::promote;
use crate::etcd::local_member::LocalMember;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::commands::Commands;
use crate::status;
use crate::status::listeners::components;
use crate::status::registration::registration;

/// A member that lacks at most this many log entries counts as caught up. etcd itself promotes a learner at nine tenths.
const BEHIND: u64 = 10;

impl<C: Commands> Bootstrap<C> {
    pub(super) async fn healthy(&self) -> AgentResult<()> {
        match &self.config {
            NodeConfig::Etcd(config) => {
                let local = LocalMember { root: self.host.root.clone(), config: (**config).clone() };
                let mut found = health(&local).await?;
                // A joining member starts as a learner and gets its vote here: one that the configuration has join, and a founder that was
                // removed and joins again.
                if found.learner || config.etcd.initial_cluster_state.is_some() {
                    promote(&local).await?;
                    found = health(&local).await?;
                }
                if is_up(&found) {
                    return Ok(());
                }
                Err(waiting("etcd", &found.problems.join("; "), "journalctl --unit etcd"))
            }
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => {
                for component in components(&self.host.root, &self.config) {
                    let found = status::component_health(&component).await;
                    if let Some(problem) = found.problem {
                        return Err(waiting(component.name.as_str(), &problem, "journalctl --unit kubelet"));
                    }
                }
                let name = &self.instance.id;
                let node = registration(&self.host.root, &self.config, name).await;
                match node.and_then(|node| node.problem) {
                    Some(problem) => {
                        Err(waiting(&format!("the Node {name}"), &problem, "journalctl --unit kubelet"))
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// Whether this member has a vote, serves reads through a majority, and has caught up. [`EtcdHealth::healthy`] also needs every
/// other member to be healthy, which matters before another one is taken down. A member that waited for that would be abandoned
/// because another one is down.
pub(crate) fn is_up(found: &EtcdHealth) -> bool {
    found.serving && !found.learner && found.raft_lag.is_none_or(|entries| entries <= BEHIND)
}

fn waiting(what: &str, problem: &str, log_command: &str) -> AgentError {
    AgentError::transient(
        FailureCode::NodeUnhealthy,
        format!("{what} is not healthy yet: {problem}"),
        format!("see `{log_command}` on the node"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_a_member_is_up_though_another_one_is_down_and_not_before_it_has_caught_up() {
        let up = EtcdHealth {
            serving: true,
            raft_lag: Some(3),
            problems: vec!["etcd-2 does not answer".to_owned()],
            ..EtcdHealth::default()
        };
        assert!(!up.healthy && is_up(&up));
        assert!(is_up(&EtcdHealth { raft_lag: None, ..up.clone() }), "the leader is being elected");
        assert!(!is_up(&EtcdHealth { raft_lag: Some(11), ..up.clone() }));
        assert!(!is_up(&EtcdHealth { learner: true, ..up.clone() }));
        assert!(!is_up(&EtcdHealth { serving: false, ..up }));
    }
}
