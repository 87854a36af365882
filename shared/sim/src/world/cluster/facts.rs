//! What is so of a cluster, for whoever checks the world from outside.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::super::World;
use super::Etcd;

/// A cluster, as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// By role.
    pub members: BTreeMap<String, MemberFacts>,
    /// The role of who leads.
    pub leader: Option<String>,
    /// The alarm that is raised.
    pub alarm: Option<&'static str>,
    /// When each snapshot was taken.
    pub snapshots: Vec<Timestamp>,
    /// The machines whose API server answers.
    pub api_servers: Vec<String>,
    /// The controllers to which load balancers send: each is healthy in all target groups of its group.
    pub targets: Vec<String>,
    /// No controller has passed its health checks, and all that are checked have failed them: load balancers send to all.
    pub fails_open: bool,
    /// Pods that a workload has, by node, also those that are still ending: `kubectl drain` waits until a pod is gone. The empty name has
    /// those that are nowhere.
    pub pods: BTreeMap<String, usize>,
    /// Nodes to which nothing is scheduled.
    pub cordoned: Vec<String>,
    /// Pods that were lost with their machine.
    pub losses: Vec<Loss>,
    /// How many evictions were granted.
    pub evicted: u64,
    /// How many pods were deleted against their budget.
    pub forced: u64,
}

/// A member of etcd, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFacts {
    /// It has a vote.
    pub voter: bool,
    /// Its process runs and has caught up.
    pub up: bool,
    /// The machine that its process runs on.
    pub machine: Option<String>,
}

/// Pods that went with their machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// When.
    pub at: Timestamp,
    /// The machine.
    pub machine: String,
    /// Its role.
    pub role: String,
    /// How many.
    pub pods: usize,
    /// Somebody had asked for its end; `false`: it died.
    pub asked: bool,
}

/// A pod that an agent had removed from its node, and what was so in that moment, by no judgement of whoever removed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// When.
    pub at: Timestamp,
    /// `namespace/name`.
    pub pod: String,
    /// The machine that it was on.
    pub machine: String,
    /// It was deleted, and its budget not asked.
    pub forced: bool,
    /// A workload makes it again elsewhere; `false`: a DaemonSet's, or one of the kubelet's own.
    pub moves: bool,
    /// Nothing new is scheduled to its node.
    pub cordoned: bool,
    /// How many pods of its workload serve without it, and how many its budget wants at least; `None`: it has no budget, or did not serve.
    pub left: Option<(usize, usize)>,
    /// How old it was.
    pub age: SignedDuration,
    /// Of the other pods of its workload: whether each serves, and for how long that has been so. Of one that was forced alone.
    pub siblings: Vec<(bool, SignedDuration)>,
}

impl World {
    /// Pods that were removed from the nodes of that cluster, the first first.
    #[must_use]
    pub fn removals(&self, name: &str) -> &[Removal] {
        self.fleet.clusters.get(name).map(|cluster| cluster.removals.as_slice()).unwrap_or_default()
    }

    /// Whether etcd of that cluster has a leader, and whether an API server of it answers.
    #[must_use]
    pub fn serves(&self, name: &str) -> (bool, bool) {
        let leads = |cluster: &super::Cluster| cluster.etcd.leader.is_some();
        (self.fleet.clusters.get(name).is_some_and(leads), self.api_serves(name))
    }

    /// The cluster of that name; `None`: no machine of it ever came up.
    #[must_use]
    pub fn cluster_facts(&self, name: &str) -> Option<ClusterFacts> {
        let cluster = self.fleet.clusters.get(name)?;
        let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in cluster.kube.pods.values().filter(|pod| pod.workload.is_some()) {
            *pods.entry(pod.node.as_deref().unwrap_or_default()).or_default() += 1;
        }
        let members = cluster.etcd.members.iter().map(|(role, member)| {
            let facts = MemberFacts {
                voter: !member.learner,
                up: Etcd::is_up(member, self.now),
                machine: member.process.as_ref().map(|process| process.machine.clone()),
            };
            (role.clone(), facts)
        });
        let nodes = cluster.kube.nodes.iter().filter(|(_, node)| node.drain.cordoned);
        Some(ClusterFacts {
            members: members.collect(),
            leader: cluster.etcd.leader.clone(),
            alarm: cluster.etcd.alarm.as_ref().map(|(_, kind)| *kind),
            snapshots: cluster.etcd.snapshots.clone(),
            api_servers: self.api_servers(name),
            targets: self.healthy_targets(name),
            fails_open: self.fails_open(name),
            pods: pods.into_iter().map(|(node, count)| (node.to_owned(), count)).collect(),
            cordoned: nodes.map(|(name, _)| name.clone()).collect(),
            losses: cluster.losses.clone(),
            evicted: cluster.kube.evicted,
            forced: cluster.kube.forced,
        })
    }
}
