//! The answer of `slipway-node serves`: whether the cluster serves, as one of its controllers sees it (P11).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The most Nodes that are named. The answer must fit into the 24,000 characters that Run Command returns.
const MOST_NAMED: usize = 50;
/// The longest reason, in characters. A condition's message may have kilobytes.
const LONGEST: usize = 160;

/// Whether the cluster serves, as one controller sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterServes {
    /// Whether the API server on this machine answers `/readyz`.
    pub api_server: PartHealth,
    /// Whether the controller manager on this machine answers `/healthz`, also while another one leads. While none works, the Nodes of dead
    /// machines stay Ready.
    pub controller_manager: PartHealth,
    /// Whether the scheduler on this machine answers `/healthz`, also while another one leads.
    pub scheduler: PartHealth,
    /// Whether the node manager on this machine has completed a pass lately in which nothing failed.
    pub node_manager: PartHealth,
    /// The members of etcd by name: a healthy one has a vote, and reads through a majority while no alarm is raised. Empty: the membership is not known, since no
    /// member serves.
    pub etcd: BTreeMap<String, PartHealth>,
    /// The Nodes, by the role of their machines (`controller`, `pool-general`). `None`: the API server did not list them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<BTreeMap<String, NodesReady>>,
}

/// Whether a part of the cluster is healthy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartHealth {
    /// Whether it is.
    pub healthy: bool,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl PartHealth {
    /// Healthy if there is no problem.
    #[must_use]
    pub fn new(problem: Option<String>) -> Self {
        Self { healthy: problem.is_none(), problem: problem.map(|words| short(&words)) }
    }
}

/// The Nodes of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesReady {
    /// How many are registered.
    pub registered: u32,
    /// How many of them are Ready, and have their pod network. If the user installs the pod network (`network.provider: none`), those
    /// count as well that are not Ready only because they have none.
    pub ready: u32,
    /// The first of those that are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<NotReady>,
    /// How many more there are.
    #[serde(default)]
    pub not_ready_more: u32,
}

/// A Node that is not Ready.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotReady {
    /// Its name, which is the id of its machine.
    pub node: String,
    /// Why.
    #[serde(default)]
    pub why: String,
}

impl NodesReady {
    /// Counts Nodes: each with the role of its machine, its name, and why it is not Ready. Those of `without` do not count.
    #[must_use]
    pub fn by_role(
        nodes: impl IntoIterator<Item = (String, String, Option<String>)>,
        without: &BTreeSet<String>,
    ) -> BTreeMap<String, Self> {
        let mut roles: BTreeMap<String, Self> = BTreeMap::new();
        let mut named = 0;
        for (role, node, problem) in nodes.into_iter().filter(|(_, node, _)| !without.contains(node)) {
            let of_role = roles.entry(role).or_default();
            of_role.registered += 1;
            match problem {
                None => of_role.ready += 1,
                Some(why) if named < MOST_NAMED => {
                    named += 1;
                    of_role.not_ready.push(NotReady { node, why: short(&why) });
                }
                Some(_) => of_role.not_ready_more += 1,
            }
        }
        roles
    }
}

fn short(words: &str) -> String {
    words.chars().take(LONGEST).collect()
}
