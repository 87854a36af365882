//! What an API server says about pods and budgets, and how it handles an eviction.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::drain::{self, Answer, Budget, ObjectName, Owner, Sibling, Target, Try};

use super::super::World;
use super::super::task::ClusterTask;
use super::Removal;
use super::kube::{Kube, Pod};
use super::quota::NO_SPACE_LEFT;

/// The termination grace period of pods.
const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// How long pods take to stop.
const ENDS_S: (f64, f64) = (1.0, 30.0);

impl Kube {
    /// What an agent observes of a node; `None` if there is no such node.
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
        let budget = workload.filter(|workload| workload.max_missing.is_some());
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

    /// The facts about a pod at the moment when it is told to stop; `None` if it is already terminating or has no node.
    fn removal(&self, uid: &str, forced: bool, now: Timestamp) -> Option<Removal> {
        let pod = self.pods.get(uid).filter(|pod| pod.terminating.is_none())?;
        let machine = pod.node.clone()?;
        let workload = pod.workload.and_then(|index| self.workloads.get(index));
        let others = self.pods.iter().filter(|(other, one)| *other != uid && one.workload == pod.workload);
        let others = others.map(|(_, one)| (one.healthy && one.terminating.is_none(), one.since));
        let left = workload.filter(|_| pod.healthy).and_then(|workload| {
            let wanted = workload.replicas.saturating_sub(workload.max_missing?);
            Some((others.clone().filter(|(serves, _)| *serves).count(), wanted))
        });
        let siblings = others.filter(|_| forced && workload.is_some());
        Some(Removal {
            at: now,
            pod: pod.name.to_string(),
            cordoned: self.nodes.get(&machine).is_some_and(|node| node.drain.cordoned),
            machine,
            forced,
            moves: workload.is_some(),
            remaining: left,
            age: now.duration_since(pod.created),
            siblings: siblings.map(|(serves, since)| (serves, now.duration_since(since))).collect(),
        })
    }

    /// Whether the budget of a pod allows its eviction.
    pub(super) fn allows(&self, pod: &Pod) -> bool {
        let workload = pod.workload.and_then(|index| self.workloads.get(index));
        match workload.filter(|workload| workload.max_missing.is_some()) {
            // Evicting a pod that does not serve makes nothing worse.
            Some(workload) => {
                !pod.healthy || self.budget(&workload.name).is_none_or(|budget| budget.allowed > 0)
            }
            None => true,
        }
    }

    /// The budget of a workload, which has the workload's name.
    fn budget(&self, name: &ObjectName) -> Option<Budget> {
        let index = self.workloads.iter().position(|workload| workload.name == *name)?;
        let max_missing = self.workloads[index].max_missing?;
        let of_it: Vec<&Pod> = self.pods.values().filter(|pod| pod.workload == Some(index)).collect();
        let is_well = |pod: &&&Pod| pod.healthy && pod.terminating.is_none();
        let healthy = of_it.iter().filter(is_well).count();
        let wanted = self.workloads[index].replicas.saturating_sub(max_missing);
        let allowed = healthy.saturating_sub(wanted);
        let pods = of_it
            .iter()
            .map(|pod| Sibling { name: pod.name.clone(), healthy: is_well(&pod), since: pod.since })
            .collect();
        Some(Budget { allowed: u32::try_from(allowed).unwrap_or(u32::MAX), pods })
    }
}

impl World {
    /// Handles an eviction request.
    pub(super) fn evict(&mut self, cluster: &str, target: &Target) -> Option<Answer> {
        let kube = &self.fleet.clusters.get(cluster)?.kube;
        let pod = kube.pods.get(&target.uid)?;
        if pod.terminating.is_some() {
            return Some(Answer::Accepted);
        }
        let allowed = kube.allows(pod);
        if !allowed {
            return Some(Answer::Budget);
        }
        if self.refuses_writes(cluster) {
            return Some(Answer::Refused(NO_SPACE_LEFT.to_owned()));
        }
        self.keep_removal(cluster, &target.uid, false);
        self.end_pod(cluster, &target.uid);
        if let Some(cluster) = self.fleet.clusters.get_mut(cluster) {
            cluster.kube.evicted += 1;
        }
        Some(Answer::Accepted)
    }

    /// Deletes a pod regardless of its budget.
    pub(super) fn force(&mut self, cluster: &str, target: &Target) {
        self.keep_removal(cluster, &target.uid, true);
        self.end_pod(cluster, &target.uid);
        if let Some(cluster) = self.fleet.clusters.get_mut(cluster) {
            cluster.kube.forced += 1;
        }
        self.record(format!("{} is deleted by force", target.name));
    }

    /// Records that an agent removed a pod.
    fn keep_removal(&mut self, cluster: &str, uid: &str, forced: bool) {
        let now = self.now;
        let Some(found) = self.fleet.clusters.get_mut(cluster) else { return };
        found.removals.extend(found.kube.removal(uid, forced, now));
    }

    /// Tells a pod to stop.
    pub(super) fn end_pod(&mut self, cluster: &str, uid: &str) {
        let now = self.now;
        let Some(kube) = self.fleet.clusters.get_mut(cluster).map(|found| &mut found.kube) else { return };
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
