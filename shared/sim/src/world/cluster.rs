//! The programs on the machines of a cluster: etcd, API servers, kubelets and pods, as far as a rollout depends on them.

mod drain;
mod etcd;
mod expiry;
mod facts;
mod kube;
mod load;
mod pods;
mod quota;
mod restore;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::repair::{Ledger, Watch};

pub(crate) use drain::{Drain, DrainRound};
pub(crate) use etcd::{DATABASE, Etcd};
pub use facts::{ClusterFacts, MemberFacts, Removal};
pub use kube::Loss;
pub(crate) use kube::{Kube, Kubelet, Node};
pub(crate) use load::NodeLoad;
pub(crate) use restore::time as snapshot_time;

use super::World;
use super::machine::{Machine, Power, Reported};
use super::task::{ClusterTask, Task};

/// The help of failures that nobody here can mend.
pub(super) const HELP: &str = "see docs/runbook.md";
/// The port of an API server.
pub(super) const API_PORT: u32 = 6443;

/// A cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster {
    pub(crate) etcd: Etcd,
    pub(crate) kube: Kube,
    pub(crate) losses: Vec<Loss>,
    /// Pods that agents removed from their nodes.
    pub(crate) removals: Vec<Removal>,
    /// The nodes from which a person took the cordon of a drain, in order.
    pub(crate) uncordoned: Vec<String>,
    /// What each controller has seen of workers that are not Ready, and the repairs that were begun.
    pub(crate) watches: BTreeMap<String, Watch>,
    pub(crate) repairs: Ledger,
    /// The workers that were reported as unhealthy.
    pub(crate) reported: Vec<Reported>,
}

/// How long the programs of a machine take to start once they may.
const CONTROLLER_S: (f64, f64) = (20.0, 45.0);
const KUBELET_S: (f64, f64) = (8.0, 25.0);

impl World {
    pub(super) fn run_cluster(&mut self, task: ClusterTask) {
        match task {
            ClusterTask::EtcdSettles { cluster } => self.etcd_changed(&cluster),
            ClusterTask::EtcdReturns { machine } => self.etcd_returns(&machine),
            ClusterTask::PodReady { cluster, pod } => self.pod_ready(&cluster, &pod),
            ClusterTask::PodGone { cluster, pod } => self.pod_gone(&cluster, &pod),
            ClusterTask::Uncordoned { cluster, node } => self.uncordon_by_hand(&cluster, &node),
        }
    }

    fn cluster_after_s(&mut self, seconds: f64, task: ClusterTask) {
        self.after_s(seconds, Task::Cluster(task));
    }

    /// The agent of a machine continues as far as it can. Returns whether the machine's programs are healthy.
    pub(super) fn joins_its_cluster(&mut self, id: &str) -> bool {
        let Some(machine) = self.fleet.machines.get(id).cloned() else { return false };
        let Some(cluster) = machine.cluster().map(str::to_owned) else { return true };
        let role = machine.role().to_owned();
        self.fleet.clusters.entry(cluster.clone()).or_default();
        if role.starts_with("etcd-") {
            return self.etcd_joins(&cluster, &role, &machine);
        }
        let (can_start, long) = if role == "controller" {
            (self.fleet.clusters[&cluster].etcd.leader.is_some(), CONTROLLER_S)
        } else {
            (self.api_serves(&cluster), KUBELET_S)
        };
        if !can_start {
            return false;
        }
        match machine.starts {
            None => {
                let seconds = self.draw_s("components", long.0, long.1);
                let at = self.now + SignedDuration::from_secs_f64(seconds * self.config.pace);
                if let Some(machine) = self.fleet.machines.get_mut(id) {
                    machine.starts = Some(at);
                }
                false
            }
            Some(at) if at > self.now => false,
            // The kubelet cannot register its node.
            Some(_) if self.refuses_writes(&cluster) => false,
            Some(_) => {
                self.node_joins(&cluster, &machine);
                true
            }
        }
    }

    /// A running machine stops: etcd loses a member's process, the API loses a server, pods lose their node.
    pub(super) fn machine_stopped(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id).cloned() else { return };
        let Some(cluster) = machine.cluster().map(str::to_owned) else { return };
        if !self.fleet.clusters.contains_key(&cluster) {
            return;
        }
        self.process_stops(&machine);
        self.node_leaves(&cluster, &machine);
    }

    /// A machine is gone, so its volumes are detached.
    pub(super) fn let_go_of_volume(&mut self, machine: &Machine) {
        let Some(cluster) = machine.cluster().and_then(|name| self.fleet.clusters.get_mut(name)) else {
            return;
        };
        if let Some(member) = cluster.etcd.members.get_mut(machine.role())
            && member.attached.as_deref() == Some(machine.id.as_str())
        {
            member.attached = None;
        }
    }

    /// Whether an API server of that cluster answers.
    pub(super) fn api_serves(&self, cluster: &str) -> bool {
        !self.api_servers(cluster).is_empty()
    }

    /// The machines whose API server answers, in the order of their ids.
    pub(super) fn api_servers(&self, cluster: &str) -> Vec<String> {
        if !self.has_leader(cluster) {
            return Vec::new();
        }
        let serves = self.controllers(cluster).filter(|machine| self.runs_api_server(machine));
        serves.map(|machine| machine.id.clone()).collect()
    }

    /// Whether a controller's API server answers. It is ready (`/readyz`) only if its etcd is available.
    pub(super) fn is_api_server(&self, machine: &Machine) -> bool {
        self.runs_api_server(machine) && machine.cluster().is_some_and(|cluster| self.has_leader(cluster))
    }

    fn has_leader(&self, cluster: &str) -> bool {
        self.fleet.clusters.get(cluster).is_some_and(|one| one.etcd.leader.is_some())
    }

    fn runs_api_server(&self, machine: &Machine) -> bool {
        machine.power == Power::Up
            && machine.ready
            && !machine.expired
            && !machine.silent
            && machine.restarting.is_none_or(|until| until <= self.now)
    }

    fn controllers(&self, cluster: &str) -> impl Iterator<Item = &Machine> {
        let machines = self.fleet.machines.values();
        machines.filter(move |machine| machine.cluster() == Some(cluster) && machine.role() == "controller")
    }

    /// The machines of a cluster's API to which load balancers send requests, in the order of their ids.
    fn healthy_targets(&self, cluster: &str) -> Vec<String> {
        let healthy = self.controllers(cluster).filter(|machine| self.is_healthy_target(machine));
        healthy.map(|machine| machine.id.clone()).collect()
    }

    /// Whether every target of a cluster's API has failed its health checks.
    fn fails_open(&self, cluster: &str) -> bool {
        self.controllers(cluster).all(|machine| self.has_failed_checks(machine))
    }
}

/// The seconds from one instant to a later one.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}
