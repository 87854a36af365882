//! The facts about a cluster, for a checker outside of the world.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::super::World;
use super::Etcd;
use super::kube::Loss;

/// The state of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// By role.
    pub members: BTreeMap<String, MemberFacts>,
    /// The role of the leader.
    pub leader: Option<String>,
    /// The alarm that is raised.
    pub alarm: Option<&'static str>,
    /// When each snapshot was taken.
    pub snapshots: Vec<Timestamp>,
    /// How often a member's data were replaced by a snapshot's.
    pub restored: u32,
    /// The machines whose API server answers.
    pub api_servers: Vec<String>,
    /// The controllers to which load balancers send requests: each is healthy in all target groups of its group.
    pub targets: Vec<String>,
    /// No controller has passed its health checks, and all that are checked have failed them, so load balancers send requests to
    /// all.
    pub fails_open: bool,
    /// The number of pods of workloads by node, including pods that are still terminating, because `kubectl drain` waits until a
    /// pod is gone; without those whose kubelet has been silent for minutes after they should have been. The empty name stands for pods
    /// without a node.
    pub pods: BTreeMap<String, usize>,
    /// The cordoned nodes.
    pub cordoned: Vec<String>,
    /// Pods that were lost with their machine.
    pub losses: Vec<Loss>,
    /// The number of evictions that were granted.
    pub evicted: u64,
    /// The number of pods that were deleted against their budget.
    pub forced: u64,
}

/// The state of a member of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFacts {
    /// It has a vote.
    pub voter: bool,
    /// Its process runs and has caught up.
    pub up: bool,
    /// The machine that its process runs on.
    pub machine: Option<String>,
}

/// A pod that an agent removed from its node, and the facts at that moment. The agent's own judgement is not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// When.
    pub at: Timestamp,
    /// `namespace/name`.
    pub pod: String,
    /// The machine that it ran on.
    pub machine: String,
    /// The pod was deleted without asking its budget.
    pub forced: bool,
    /// A workload creates the pod again elsewhere; `false`: it is a DaemonSet's or a static pod.
    pub moves: bool,
    /// Its node was cordoned.
    pub cordoned: bool,
    /// How many pods of its workload serve without it, and how many its budget wants at least; `None` if it has no budget or did
    /// not serve.
    pub remaining: Option<(usize, usize)>,
    /// The age of the pod.
    pub age: SignedDuration,
    /// For each other pod of its workload, whether it serves, and for how long that has been so. Only for a pod that was forced.
    pub siblings: Vec<(bool, SignedDuration)>,
}

impl World {
    /// The pods that were removed from the nodes of that cluster, in order.
    #[must_use]
    pub fn removals(&self, name: &str) -> &[Removal] {
        self.fleet.clusters.get(name).map(|cluster| cluster.removals.as_slice()).unwrap_or_default()
    }

    /// The nodes from which a person took the cordon of a drain, in order.
    #[must_use]
    pub fn uncordoned(&self, name: &str) -> &[String] {
        self.fleet.clusters.get(name).map(|cluster| cluster.uncordoned.as_slice()).unwrap_or_default()
    }

    /// Whether etcd of that cluster has a leader, and whether one of its API servers answers.
    #[must_use]
    pub fn serves(&self, name: &str) -> (bool, bool) {
        let leads = |cluster: &super::Cluster| cluster.etcd.leader.is_some();
        (self.fleet.clusters.get(name).is_some_and(leads), self.api_serves(name))
    }

    /// The cluster with that name; `None` if none of its machines ever started.
    #[must_use]
    pub fn cluster_facts(&self, name: &str) -> Option<ClusterFacts> {
        let cluster = self.fleet.clusters.get(name)?;
        let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
        let counts = |pod: &&super::kube::Pod| pod.workload.is_some() && !pod.is_unheard_of(self.now);
        for pod in cluster.kube.pods.values().filter(counts) {
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
            restored: cluster.etcd.restored,
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
