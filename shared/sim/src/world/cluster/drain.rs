//! A drain, as the node agent performs it: observe, ask `slipway_core::drain` what to do, do it, and observe again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::drain::{Answer, Force, Policy, Try, decide};
use slipway_core::node::{DrainRecord, Drained, FailureCode, VerbFailure};

use super::super::World;
use super::super::task::ClusterTask;
use super::HELP;
use super::kube::Node;
use super::quota::NO_SPACE_LEFT;

/// How long to wait after a call that failed.
const PAUSE: SignedDuration = SignedDuration::from_secs(2);
/// When a person uncordons a node that was cordoned for a drain.
const UNCORDONED_S: (f64, f64) = (1.0, 180.0);

/// A drain in progress.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    node: String,
    ends_at: Timestamp,
    policy: Policy,
    tries: BTreeMap<String, Try>,
    record: DrainRecord,
}

/// The result of one observation of a drain.
pub(crate) enum DrainRound {
    /// The drain continues at that time.
    Again(Timestamp),
    /// The drain has ended with this answer.
    Answer(Result<Drained, VerbFailure>),
}

impl Drain {
    pub(crate) fn new(node: &str, ends_at: Timestamp, force_after_s: Option<u32>) -> Self {
        Self {
            node: node.to_owned(),
            ends_at,
            policy: Policy::with(
                force_after_s.map(|after_s| Force::after(SignedDuration::from_secs(after_s.into()))),
            ),
            tries: BTreeMap::new(),
            record: DrainRecord::new(node),
        }
    }
}

fn unavailable() -> VerbFailure {
    VerbFailure::transient(FailureCode::KubernetesUnavailable, "the API server does not answer", HELP)
}

/// The API server answers a write with a 500 (`agent/src/api.rs`).
fn no_space() -> VerbFailure {
    VerbFailure::transient(FailureCode::KubernetesUnavailable, NO_SPACE_LEFT, HELP)
}

fn unknown(node: &str) -> VerbFailure {
    VerbFailure::permanent(FailureCode::DrainNoNode, format!("the cluster has no node `{node}`"), HELP)
}

impl World {
    /// Performs one round of a drain that runs on a controller of `cluster`.
    pub(in crate::world) fn drain_round(&mut self, cluster: &str, drain: &mut Drain) -> DrainRound {
        let now = self.now;
        if !self.api_serves(cluster) {
            let at = now + PAUSE;
            if at < drain.ends_at {
                return DrainRound::Again(at);
            }
            return DrainRound::Answer(Err(unavailable()));
        }
        let refuses_writes = self.refuses_writes(cluster);
        let kube = &self.fleet.clusters[cluster].kube;
        let Some(scene) = kube.scene(&drain.node, &drain.tries) else {
            return DrainRound::Answer(Err(unknown(&drain.node)));
        };
        let step = decide(&scene, &drain.policy, now);
        drain.record.see(scene.node.started, None, &step);
        if step.done {
            return DrainRound::Answer(Ok(drain.record.answer(true)));
        }
        if refuses_writes && (step.begin || step.force.is_some()) {
            let at = now + PAUSE;
            return if at < drain.ends_at {
                DrainRound::Again(at)
            } else {
                DrainRound::Answer(Err(no_space()))
            };
        }
        if step.begin {
            self.may_be_uncordoned(cluster, &drain.node);
            self.change_node(cluster, &drain.node, |node| {
                node.scale_down_disabled = true;
                node.drain.cordoned = true;
                node.drain.started = Some(now);
            });
        }
        for target in &step.evict {
            let Some(answer) = self.evict(cluster, target) else { continue };
            if answer == Answer::Accepted {
                drain.record.evicted(&target.name);
            }
            let count = drain.tries.get(&target.uid).map_or(1, |before| before.count + 1);
            drain.tries.insert(target.uid.clone(), Try { at: now, count, answer });
        }
        if let Some(target) = &step.force {
            self.change_node(cluster, &drain.node, |node| node.drain.last_forced = Some(now));
            self.force(cluster, target);
            drain.record.forced(&target.name);
        }
        // Without a delay the drain would never advance the time.
        let at = step.look_again.unwrap_or(now).max(now + SignedDuration::from_millis(100));
        if at < drain.ends_at {
            DrainRound::Again(at)
        } else {
            DrainRound::Answer(Ok(drain.record.answer(false)))
        }
    }

    /// Uncordons a node.
    pub(in crate::world) fn uncordon(&mut self, cluster: &str, node: &str) -> Result<(), VerbFailure> {
        if !self.api_serves(cluster) {
            return Err(unavailable());
        }
        if !self.fleet.clusters[cluster].kube.nodes.contains_key(node) {
            return Err(unknown(node));
        }
        if self.refuses_writes(cluster) {
            return Err(no_space());
        }
        self.change_node(cluster, node, |node| {
            node.scale_down_disabled = false;
            let (silent, unable) = (node.drain.silent, node.drain.unable);
            node.drain = slipway_core::drain::NodeState { silent, unable, ..Default::default() };
        });
        self.schedule_pods(cluster);
        Ok(())
    }

    /// A person will uncordon the next worker that is cordoned for a drain.
    pub fn uncordon_next_by_hand(&mut self) {
        self.fleet.uncordons += 1;
    }

    /// Nobody uncordons workers any more.
    pub fn uncordon_none_by_hand(&mut self) {
        self.fleet.uncordons = 0;
    }

    /// A node is cordoned now. If a person waits for that, the person uncordons it a while later.
    fn may_be_uncordoned(&mut self, cluster: &str, node: &str) {
        let is_worker =
            self.fleet.clusters[cluster].kube.nodes.get(node).is_some_and(|node| node.role != "controller");
        if self.fleet.uncordons == 0 || !is_worker {
            return;
        }
        self.fleet.uncordons -= 1;
        let seconds = self.draw_s("a person uncordons", UNCORDONED_S.0, UNCORDONED_S.1);
        let task = ClusterTask::Uncordoned { cluster: cluster.to_owned(), node: node.to_owned() };
        self.cluster_after_s(seconds, task);
    }

    /// A person uncordons a node (`kubectl uncordon`), which leaves the annotations of the drain.
    pub(super) fn uncordon_by_hand(&mut self, cluster: &str, name: &str) {
        let found = self.fleet.clusters.get(cluster).and_then(|found| found.kube.nodes.get(name));
        let is_cordoned = found.is_some_and(|node| node.drain.cordoned);
        if !is_cordoned || !self.api_serves(cluster) || self.refuses_writes(cluster) {
            return;
        }
        self.change_node(cluster, name, |node| node.drain.cordoned = false);
        if let Some(found) = self.fleet.clusters.get_mut(cluster) {
            found.uncordoned.push(name.to_owned());
        }
        self.record(format!("somebody uncordons {name}"));
        self.schedule_pods(cluster);
    }

    fn change_node(&mut self, cluster: &str, node: &str, change: impl FnOnce(&mut Node)) {
        let kube = self.fleet.clusters.get_mut(cluster).map(|cluster| &mut cluster.kube);
        if let Some(node) = kube.and_then(|kube| kube.nodes.get_mut(node)) {
            change(node);
        }
    }
}
