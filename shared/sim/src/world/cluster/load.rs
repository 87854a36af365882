//! The load of nodes, for the cluster autoscaler: see `fleet/autoscaler.rs`.

use std::collections::BTreeMap;

use super::super::World;
use super::kube::Pod;

/// The load of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodeLoad {
    /// Pods of workloads, including those that are still terminating.
    pub(crate) pods: usize,
    cordoned: bool,
    pub(crate) tainted: bool,
    /// The node is annotated with `cluster-autoscaler.kubernetes.io/scale-down-disabled=true`.
    pub(crate) scale_down_disabled: bool,
}

impl NodeLoad {
    /// Whether pods can be scheduled to the node.
    pub(crate) fn is_open(&self) -> bool {
        !self.cordoned && !self.tainted
    }
}

impl World {
    /// The nodes of a role of a cluster.
    pub(in crate::world) fn node_loads(&self, cluster: &str, role: &str) -> BTreeMap<String, NodeLoad> {
        let Some(kube) = self.fleet.clusters.get(cluster).map(|found| &found.kube) else {
            return BTreeMap::new();
        };
        let of_role = kube.nodes.iter().filter(|(_, node)| node.role == role);
        let loads = of_role.map(|(name, node)| {
            let (cordoned, tainted) = (node.drain.cordoned, node.tainted);
            let pods = self.workload_pods(cluster, name).count();
            let scale_down_disabled = node.scale_down_disabled;
            (name.clone(), NodeLoad { pods, cordoned, tainted, scale_down_disabled })
        });
        loads.collect()
    }

    /// The number of pods of a role's workloads that are on no node.
    pub(in crate::world) fn pending_pods(&self, cluster: &str, role: &str) -> usize {
        let Some(kube) = self.fleet.clusters.get(cluster).map(|found| &found.kube) else { return 0 };
        let of_role = |pod: &&Pod| {
            let workload = pod.workload.and_then(|index| kube.workloads.get(index));
            workload.is_some_and(|workload| workload.role == role)
        };
        kube.pods.values().filter(of_role).filter(|pod| pod.node.is_none()).count()
    }

    /// Whether each pod on a node may be evicted now, and none has local data.
    pub(in crate::world) fn may_all_be_evicted(&self, cluster: &str, node: &str) -> bool {
        let Some(kube) = self.fleet.clusters.get(cluster).map(|found| &found.kube) else { return false };
        self.workload_pods(cluster, node).all(|pod| {
            let workload = pod.workload.and_then(|index| kube.workloads.get(index));
            kube.allows(pod) && workload.is_none_or(|workload| !workload.empty_dir)
        })
    }

    /// Evicts the pods on a node, as far as their budgets allow. Returns whether some were not evicted.
    pub(in crate::world) fn evicts_all(&mut self, cluster: &str, node: &str) -> bool {
        let pods = self.workload_pods(cluster, node).filter(|pod| pod.terminating.is_none());
        let pods: Vec<Pod> = pods.cloned().collect();
        let (refuses_writes, mut refused) = (self.refuses_writes(cluster), false);
        for pod in pods {
            let kube = self.fleet.clusters.get(cluster).map(|found| &found.kube);
            if !refuses_writes && kube.is_some_and(|kube| kube.allows(&pod)) {
                self.end_pod(cluster, &pod.uid);
            } else {
                refused = true;
            }
        }
        refused
    }

    /// Adds or removes the taint of a node.
    pub(in crate::world) fn taint(&mut self, cluster: &str, node: &str, tainted: bool) {
        if self.refuses_writes(cluster) {
            return;
        }
        let kube = self.fleet.clusters.get_mut(cluster).map(|found| &mut found.kube);
        if let Some(node) = kube.and_then(|kube| kube.nodes.get_mut(node)) {
            node.tainted = tainted;
        }
        self.schedule_pods(cluster);
    }

    /// Sets how many pods of workloads fit on each worker's node from now on. `None` means no limit and removes the taints: a
    /// cluster autoscaler removes the taints that an earlier one has left (`cleanUpIfRequired` in its `core/static_autoscaler.go`).
    pub(in crate::world) fn set_room(&mut self, room: Option<usize>) {
        self.fleet.room = room;
        let clusters: Vec<String> = self.fleet.clusters.keys().cloned().collect();
        for cluster in clusters {
            if let Some(found) = self.fleet.clusters.get_mut(&cluster).filter(|_| room.is_none()) {
                found.kube.nodes.values_mut().for_each(|node| node.tainted = false);
            }
            self.schedule_pods(&cluster);
        }
    }

    fn workload_pods(&self, cluster: &str, node: &str) -> impl Iterator<Item = &Pod> {
        let pods = self.fleet.clusters.get(cluster).into_iter().flat_map(|found| found.kube.pods.values());
        pods.filter(move |pod| pod.workload.is_some() && pod.node.as_deref() == Some(node))
    }
}
