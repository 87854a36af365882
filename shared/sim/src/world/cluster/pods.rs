//! What an API server tells of pods and budgets, and what it does about an eviction.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use slipway_core::drain::{self, Answer, Budget, ObjectName, Owner, Sibling, Target, Try};

use super::super::World;
use super::ClusterTask;
use super::kube::{Kube, Pod};

/// The grace that pods ask for.
const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// How long they take to end.
const ENDS_S: (f64, f64) = (1.0, 30.0);

impl Kube {
    /// A node's scene, as an agent sees it; `None`: there is no such node.
    pub(super) fn scene(&self, node: &str, tries: &BTreeMap<String, Try>) -> Option<drain::Observed> {
        let found = self.nodes.get(node)?;
        let pods: Vec<drain::Pod> = self
            .pods
            .values()
            .filter(|pod| pod.node.as_deref() == Some(node))
            .map(|pod| self.shown(pod))
            .collect();
        let names: BTreeSet<ObjectName> = pods.iter().flat_map(|pod| pod.budgets.clone()).collect();
        Some(drain::Observed {
            node: found.drain.clone(),
            budgets: names.into_iter().filter_map(|name| Some((name.clone(), self.budget(&name)?))).collect(),
            tries: tries
                .iter()
                .filter(|(uid, _)| self.pods.contains_key(*uid))
                .map(|(a, b)| (a.clone(), b.clone()))
                .collect(),
            pods,
        })
    }

    fn shown(&self, pod: &Pod) -> drain::Pod {
        let workload = pod.workload.and_then(|index| self.workloads.get(index));
        let budget = workload.filter(|workload| workload.may_miss.is_some());
        drain::Pod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            owner: pod.owner,
            created: pod.created,
            finished: false,
            terminating: pod.terminating,
            empty_dir: workload.is_some_and(|workload| workload.empty_dir),
            tolerates_cordon: matches!(pod.owner, Owner::DaemonSet),
            budgets: budget.map(|workload| workload.name.clone()).into_iter().collect(),
        }
    }

    /// A workload's budget bears its name.
    fn budget(&self, name: &ObjectName) -> Option<Budget> {
        let index = self.workloads.iter().position(|workload| workload.name == *name)?;
        let may_miss = self.workloads[index].may_miss?;
        let of_it: Vec<&Pod> = self.pods.values().filter(|pod| pod.workload == Some(index)).collect();
        let is_well = |pod: &&&Pod| pod.healthy && pod.terminating.is_none();
        let healthy = of_it.iter().filter(is_well).count();
        let wanted = self.workloads[index].replicas.saturating_sub(may_miss);
        let allowed = healthy.saturating_sub(wanted);
        let pods = of_it
            .iter()
            .map(|pod| Sibling { name: pod.name.clone(), healthy: is_well(&pod), since: pod.since })
            .collect();
        Some(Budget { allowed: u32::try_from(allowed).unwrap_or(u32::MAX), pods })
    }
}

impl World {
    /// An eviction is asked for.
    pub(super) fn evict(&mut self, cluster: &str, target: &Target) -> Option<Answer> {
        let kube = &self.fleet.clusters.get(cluster)?.kube;
        let pod = kube.pods.get(&target.uid)?;
        if pod.terminating.is_some() {
            return Some(Answer::Accepted);
        }
        let workload = pod.workload.and_then(|index| kube.workloads.get(index));
        let allowed = match workload {
            Some(workload) if workload.may_miss.is_some() => {
                // A pod that does not serve is nobody's loss.
                !pod.healthy || kube.budget(&workload.name).is_none_or(|budget| budget.allowed > 0)
            }
            Some(_) | None => true,
        };
        if !allowed {
            return Some(Answer::Budget);
        }
        self.end_pod(cluster, &target.uid);
        if let Some(cluster) = self.fleet.clusters.get_mut(cluster) {
            cluster.kube.evicted += 1;
        }
        Some(Answer::Accepted)
    }

    /// A pod is deleted, whatever its budget says.
    pub(super) fn force(&mut self, cluster: &str, target: &Target) {
        self.end_pod(cluster, &target.uid);
        if let Some(cluster) = self.fleet.clusters.get_mut(cluster) {
            cluster.kube.forced += 1;
        }
    }

    fn end_pod(&mut self, cluster: &str, uid: &str) {
        let now = self.now;
        let Some(kube) = self.fleet.clusters.get_mut(cluster).map(|cluster| &mut cluster.kube) else {
            return;
        };
        let Some(pod) = kube.pods.get_mut(uid) else { return };
        pod.terminating = Some(now + GRACE);
        pod.since = now;
        let seconds = self.draw_s("pod ends", ENDS_S.0, ENDS_S.1);
        self.cluster_after_s(
            seconds,
            ClusterTask::PodGone { cluster: cluster.to_owned(), pod: uid.to_owned() },
        );
        self.replenish(cluster);
        self.schedule_pods(cluster);
    }
}
