//! Nodes and workloads: which pods run where, and what happens to them when a node goes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::drain::{NodeState, ObjectName, Owner};

use super::super::World;
use super::super::machine::{Machine, State};
use super::super::task::ClusterTask;

/// The time from scheduling a pod to its first answer.
const STARTS_S: (f64, f64) = (4.0, 25.0);
/// How often the simulator checks whether the termination of a pod on a silent node is known.
const UNSAID_S: f64 = 30.0;
/// How long after the end of a pod's grace period nobody has to wait any more for its kubelet to say that it has stopped (docs/nodes.md).
const UNHEARD: SignedDuration = SignedDuration::from_mins(5);

/// Pods that were lost together with their machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// When.
    pub at: Timestamp,
    /// The machine.
    pub machine: String,
    /// Its role.
    pub role: String,
    /// How many pods.
    pub pods: usize,
    /// Somebody had terminated the machine; `false`: it died.
    pub terminated: bool,
}

/// The content of the API servers of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kube {
    /// By name, which is the machine's id.
    pub(crate) nodes: BTreeMap<String, Node>,
    /// By UID.
    pub(crate) pods: BTreeMap<String, Pod>,
    pub(crate) workloads: Vec<Workload>,
    /// The role whose nodes may also run the pods of another role, if that role has no node left.
    elsewhere: BTreeMap<String, String>,
    /// The number of pods that were created.
    made: u64,
    pub(crate) evicted: u64,
    pub(crate) forced: u64,
}

/// A node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// `controller`, `pool-general`.
    pub(crate) role: String,
    /// Its kubelet reports, or was silent for less than the grace period of the node controller.
    pub(crate) ready: bool,
    /// Since when it has not been `ready`, whatever its kubelet did meanwhile.
    pub(crate) unready: Option<Timestamp>,
    pub(crate) drain: NodeState,
    /// An agent that drains the node has annotated it with `cluster-autoscaler.kubernetes.io/scale-down-disabled=true`.
    pub(crate) scale_down_disabled: bool,
    /// A cluster autoscaler has tainted the node (`ToBeDeletedByClusterAutoscaler`): no pod is scheduled to it.
    pub(crate) tainted: bool,
}

/// What the condition Ready of a node says of its kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kubelet {
    /// `True`.
    Well,
    /// `Unknown`.
    Silent,
    /// `False`.
    Unable,
}

/// A workload that keeps a number of pods on the nodes of one role.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) name: ObjectName,
    pub(crate) role: String,
    pub(crate) replicas: usize,
    /// How many of its pods may be missing; `None` if it has no budget.
    pub(crate) max_missing: Option<usize>,
    pub(crate) empty_dir: bool,
}

/// A pod.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: ObjectName,
    pub(crate) uid: String,
    /// The workload that creates it again; `None`: it belongs to a DaemonSet or is a static pod.
    pub(crate) workload: Option<usize>,
    pub(crate) owner: Owner,
    pub(crate) node: Option<String>,
    pub(crate) created: Timestamp,
    pub(crate) healthy: bool,
    /// Since when it has been healthy, or unhealthy.
    pub(crate) since: Timestamp,
    pub(crate) terminating: Option<Timestamp>,
}

impl Pod {
    /// Whether its grace period has been over for so long that nobody has to wait for it any more. A kubelet that speaks stops a pod in time; of
    /// one that is silent nobody would ever hear that it has.
    pub(super) fn is_unheard_of(&self, now: Timestamp) -> bool {
        self.terminating.is_some_and(|until| now.duration_since(until) >= UNHEARD)
    }
}

impl Node {
    /// Whether pods can be scheduled to the node.
    pub(crate) fn is_open(&self) -> bool {
        !self.drain.cordoned && !self.tainted
    }
}

impl World {
    /// A kubelet registers its node.
    pub(super) fn node_joins(&mut self, cluster: &str, machine: &Machine) {
        let role = machine.role().to_owned();
        let kube = self.kube(cluster);
        if kube.nodes.contains_key(&machine.id) {
            return;
        }
        kube.nodes.insert(machine.id.clone(), Node { role: role.clone(), ready: true, ..Node::default() });
        self.pod(
            cluster,
            "kube-system",
            &format!("flannel-{}", machine.id),
            None,
            Owner::DaemonSet,
            Some(machine),
        );
        if role == "controller" {
            let name = format!("kube-apiserver-{}", machine.id);
            self.pod(cluster, "kube-system", &name, None, Owner::Kubelet, Some(machine));
        }
        // Workloads are deployed once the pool is whole; CoreDNS comes with the first controller.
        let nodes = self.kube(cluster).nodes.values().filter(|node| node.role == role).count();
        let wanted = self.wanted_machines(&machine.group).max(1) as usize;
        if nodes >= if role == "controller" { 1 } else { wanted } {
            self.deploy(cluster, &role, &machine.group);
        }
        self.schedule_pods(cluster);
    }

    /// Lets the pods of `role` run on the nodes of `other`, too, as a user would before removing a pool.
    pub fn let_pods_go_to(&mut self, cluster: &str, role: &str, other: &str) {
        self.kube(cluster).elsewhere.insert(role.to_owned(), other.to_owned());
        self.schedule_pods(cluster);
    }

    /// Whether the pods of `role` may run on the nodes of `other`.
    pub fn may_run_on(&self, cluster: &str, role: &str, other: &str) -> bool {
        let elsewhere = self.fleet.clusters.get(cluster).and_then(|found| found.kube.elsewhere.get(role));
        role == other || elsewhere.is_some_and(|elsewhere| elsewhere == other)
    }

    fn kube(&mut self, cluster: &str) -> &mut Kube {
        &mut self.fleet.clusters.entry(cluster.to_owned()).or_default().kube
    }

    /// Creates the workloads of a role, as its users would.
    fn deploy(&mut self, cluster: &str, role: &str, group: &str) {
        if self.kube(cluster).workloads.iter().any(|workload| workload.role == role) {
            return;
        }
        let nodes = self.wanted_machines(group).max(1) as usize;
        let stubborn = self.fleet.faults.stubborn_budget;
        let names: &[&str] = if role == "controller" { &["coredns"] } else { &["shop", "search", "batch"] };
        for name in names {
            let replicas = match *name {
                "coredns" => 2,
                "shop" => nodes + 1,
                "search" => nodes.div_ceil(2) + 1,
                _ => nodes.div_ceil(3),
            };
            let max_missing = match *name {
                "batch" => None,
                _ if self.chance("stubborn budget", stubborn) => Some(0),
                _ => Some((replicas / 4).max(1)),
            };
            let namespace = if role == "controller" { "kube-system" } else { role };
            let workload = Workload {
                name: ObjectName::new(namespace, *name),
                role: role.to_owned(),
                replicas,
                max_missing,
                empty_dir: *name == "batch",
            };
            self.kube(cluster).workloads.push(workload);
        }
        self.replenish(cluster);
    }

    /// Creates missing pods of every workload at once.
    pub(super) fn replenish(&mut self, cluster: &str) {
        if self.refuses_writes(cluster) {
            return;
        }
        let kube = self.kube(cluster);
        let mut missing = Vec::new();
        for (index, workload) in kube.workloads.iter().enumerate() {
            let pods =
                kube.pods.values().filter(|pod| pod.workload == Some(index) && pod.terminating.is_none());
            missing.push((index, workload.name.clone(), workload.replicas.saturating_sub(pods.count())));
        }
        for (index, name, count) in missing {
            for _ in 0..count {
                let number = self.kube(cluster).made;
                let pod = format!("{}-{number}", name.name);
                self.pod(cluster, &name.namespace, &pod, Some(index), Owner::Controller, None);
            }
        }
    }

    fn pod(
        &mut self,
        cluster: &str,
        namespace: &str,
        name: &str,
        workload: Option<usize>,
        owner: Owner,
        on: Option<&Machine>,
    ) {
        let now = self.now;
        let kube = self.kube(cluster);
        kube.made += 1;
        let pod = Pod {
            name: ObjectName::new(namespace, name),
            uid: format!("{:08}", kube.made),
            workload,
            owner,
            node: on.map(|machine| machine.id.clone()),
            created: now,
            healthy: on.is_some(),
            since: now,
            terminating: None,
        };
        kube.pods.insert(pod.uid.clone(), pod);
    }

    /// Schedules pods without a node to the node of their role with the fewest pods, if a node accepts pods.
    pub(super) fn schedule_pods(&mut self, cluster: &str) {
        let serves = self.api_serves(cluster) || self.kube(cluster).nodes.len() == 1;
        if !serves || self.refuses_writes(cluster) {
            return;
        }
        let now = self.now;
        let machines = self.fleet.machines.values().filter(|machine| machine.silent || machine.jammed);
        let unfit: BTreeSet<String> = machines.map(|machine| machine.id.clone()).collect();
        let room = self.fleet.room;
        let kube = self.kube(cluster);
        let mut load: BTreeMap<String, usize> = BTreeMap::new();
        let mut of_workloads: BTreeMap<String, usize> = BTreeMap::new();
        for pod in kube.pods.values() {
            if let Some(node) = &pod.node {
                *load.entry(node.clone()).or_default() += 1;
                *of_workloads.entry(node.clone()).or_default() += usize::from(pod.workload.is_some());
            }
        }
        let pending: Vec<(String, String)> = kube
            .pods
            .values()
            .filter(|pod| pod.node.is_none())
            .filter_map(|pod| Some((pod.uid.clone(), kube.workloads.get(pod.workload?)?.role.clone())))
            .collect();
        let mut placed = Vec::new();
        for (uid, role) in pending {
            let least = |role: &String| {
                let has_room = |name: &String, node: &Node| {
                    let pods = of_workloads.get(name).copied().unwrap_or_default();
                    node.role == "controller" || room.is_none_or(|room| pods < room)
                };
                let open = kube.nodes.iter().filter(|(name, node)| {
                    node.role == *role && node.is_open() && !unfit.contains(*name) && has_room(name, node)
                });
                open.map(|(name, _)| name.clone())
                    .min_by_key(|name| (load.get(name).copied().unwrap_or_default(), name.clone()))
            };
            let Some(node) = least(&role).or_else(|| kube.elsewhere.get(&role).and_then(least)) else {
                continue;
            };
            *load.entry(node.clone()).or_default() += 1;
            *of_workloads.entry(node.clone()).or_default() += 1;
            if let Some(pod) = kube.pods.get_mut(&uid) {
                pod.node = Some(node);
                pod.created = now;
            }
            placed.push(uid);
        }
        for uid in placed {
            let seconds = self.draw_s("pod starts", STARTS_S.0, STARTS_S.1);
            self.cluster_after_s(seconds, ClusterTask::PodReady { cluster: cluster.to_owned(), pod: uid });
        }
    }

    pub(super) fn pod_ready(&mut self, cluster: &str, uid: &str) {
        let now = self.now;
        if let Some(pod) = self.kube(cluster).pods.get_mut(uid)
            && pod.node.is_some()
            && !pod.healthy
            && pod.terminating.is_none()
        {
            pod.healthy = true;
            pod.since = now;
        }
    }

    pub(super) fn pod_gone(&mut self, cluster: &str, uid: &str) {
        let node = self.kube(cluster).pods.get(uid).and_then(|pod| pod.node.clone());
        let machine = node.and_then(|node| self.fleet.machines.get(&node));
        if machine.is_some_and(|machine| machine.silent || machine.jammed) {
            // Only the node's kubelet can stop the pod, and report that it has stopped.
            let task = ClusterTask::PodGone { cluster: cluster.to_owned(), pod: uid.to_owned() };
            return self.cluster_after_s(UNSAID_S, task);
        }
        self.kube(cluster).pods.remove(uid);
        if self.fleet.room.is_some() {
            self.schedule_pods(cluster);
        }
    }

    /// Makes a node and its pods `Ready` or not.
    pub(in crate::world) fn node_is(&mut self, machine: &Machine, kubelet: Kubelet) {
        let (now, is_ready) = (self.now, kubelet == Kubelet::Well);
        let Some(cluster) = machine.cluster().map(str::to_owned) else { return };
        if let Some(node) = self.kube(&cluster).nodes.get_mut(&machine.id) {
            node.ready = is_ready;
            node.unready = if is_ready { None } else { node.unready.or(Some(now)) };
            node.drain.silent = (kubelet == Kubelet::Silent).then_some(now);
            node.drain.unable = (kubelet == Kubelet::Unable).then_some(now);
        }
        let on_it = |pod: &&mut Pod| pod.node.as_deref() == Some(machine.id.as_str());
        for pod in self.kube(&cluster).pods.values_mut().filter(on_it) {
            if pod.healthy != is_ready {
                (pod.healthy, pod.since) = (is_ready, now);
            }
        }
        if is_ready {
            self.schedule_pods(&cluster);
        }
    }

    /// The machine of a node stops: its pods are lost, and created again elsewhere.
    pub(super) fn node_leaves(&mut self, cluster: &str, machine: &Machine) {
        let now = self.now;
        let kube = self.kube(cluster);
        if kube.nodes.remove(&machine.id).is_none() {
            return;
        }
        let on_it: BTreeSet<String> = kube
            .pods
            .values()
            .filter(|pod| pod.node.as_deref() == Some(machine.id.as_str()))
            .map(|pod| pod.uid.clone())
            .collect();
        // P6 is about workers. Nobody drains a controller that Auto Scaling terminates by itself; it shuts its API server down
        // alone.
        let by_itself = machine.role() == "controller" && !machine.asked_to_go;
        let asked = machine.state == State::TerminatingProceed && !by_itself;
        // The machine was terminated before its terminating pods had stopped.
        let lost = on_it.iter().map(|uid| &kube.pods[uid]).filter(|pod| !pod.is_unheard_of(now));
        let lost = lost.filter(|pod| pod.workload.is_some() && (asked || pod.terminating.is_none()));
        let lost = lost.count();
        kube.pods.retain(|uid, _| !on_it.contains(uid));
        if lost > 0 {
            let loss = Loss {
                at: now,
                machine: machine.id.clone(),
                role: machine.role().to_owned(),
                pods: lost,
                terminated: asked,
            };
            self.fleet.clusters.entry(cluster.to_owned()).or_default().losses.push(loss);
            self.record(format!("{lost} pods of {} are lost with it", machine.id));
        }
        self.replenish(cluster);
        self.schedule_pods(cluster);
    }
}
