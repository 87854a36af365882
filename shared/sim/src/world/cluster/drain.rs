//! A drain, as the node agent performs it: it looks, asks `slipway_core::drain` what to do, does that, and looks again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::drain::{Answer, Force, Policy, Step, Try, decide};

use super::super::World;

/// How long to wait after a call that did not come through.
const PAUSE: SignedDuration = SignedDuration::from_secs(2);
/// How many pods are named.
const NAMED: usize = 30;

/// A drain that is under way.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    node: String,
    ends_at: Timestamp,
    policy: Policy,
    tries: BTreeMap<String, Try>,
    since: Option<Timestamp>,
    evicted: Vec<String>,
    forced: Vec<String>,
    last: Step,
}

/// How a look at a drain ends.
pub(crate) enum Looked {
    /// It goes on then.
    Again(Timestamp),
    /// This is its answer.
    Answer(Result<Value, Value>),
}

impl Drain {
    pub(crate) fn new(node: &str, ends_at: Timestamp, force_after: Option<i64>) -> Self {
        Self {
            node: node.to_owned(),
            ends_at,
            policy: Policy::with(force_after.map(|after| Force::after(SignedDuration::from_secs(after)))),
            tries: BTreeMap::new(),
            since: None,
            evicted: Vec::new(),
            forced: Vec::new(),
            last: Step::default(),
        }
    }

    /// What the agent prints in the end.
    fn answer(&self, done: bool) -> Value {
        let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
        for one in &self.last.skipped {
            let why = serde_json::to_value(one.why).unwrap_or_default();
            *skipped.entry(why.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let waiting = self.last.waiting.iter().take(NAMED);
        let waiting: Vec<Value> = waiting
            .map(|one| json!({"pod": one.pod.to_string(), "cause": one.cause, "why": one.why}))
            .collect();
        let names = |all: &[String]| json!({"count": all.len(), "last": all.iter().rev().take(NAMED).collect::<Vec<_>>()});
        json!({
            "node": self.node,
            "done": done,
            "since": self.since.map(|at| at.to_string()),
            "notReady": null,
            "evicted": names(&self.evicted),
            "forced": names(&self.forced),
            "skipped": skipped,
            "waiting": waiting,
            "waitingMore": self.last.waiting.len().saturating_sub(NAMED),
        })
    }
}

impl World {
    /// One look of a drain that runs on a controller of `cluster`.
    pub(in crate::world) fn drain_looks(&mut self, cluster: &str, drain: &mut Drain) -> Looked {
        let now = self.now;
        if !self.api_serves(cluster) {
            let at = now + PAUSE;
            if at < drain.ends_at {
                return Looked::Again(at);
            }
            return Looked::Answer(Err(json!({"error": {
                "code": "api.unreachable", "message": "the API server does not answer",
                "help": "look at kube-apiserver on this machine", "passing": true,
            }})));
        }
        let kube = &self.fleet.clusters[cluster].kube;
        let Some(scene) = kube.scene(&drain.node, &drain.tries) else {
            return Looked::Answer(Err(json!({"error": {
                "code": "drain.no-node", "message": format!("the cluster has no node `{}`", drain.node),
                "help": "look at the name; if its machine is gone and its node deleted, there is nothing to drain",
                "passing": false,
            }})));
        };
        let step = decide(&scene, &drain.policy, now);
        drain.since = scene.node.started;
        drain.last = step.clone();
        if step.done {
            return Looked::Answer(Ok(drain.answer(true)));
        }
        if step.begin {
            self.change_node(cluster, &drain.node, |node| {
                node.cordoned = true;
                node.started = Some(now);
            });
        }
        for target in &step.evict {
            let Some(answer) = self.evict(cluster, target) else { continue };
            if answer == Answer::Accepted {
                drain.evicted.push(target.name.to_string());
            }
            let count = drain.tries.get(&target.uid).map_or(1, |before| before.count + 1);
            drain.tries.insert(target.uid.clone(), Try { at: now, count, answer });
        }
        if let Some(target) = &step.force {
            self.change_node(cluster, &drain.node, |node| node.last_forced = Some(now));
            self.force(cluster, target);
            drain.forced.push(target.name.to_string());
        }
        // The same moment once more would be for ever.
        let at = step.look_again.unwrap_or(now).max(now + SignedDuration::from_millis(100));
        if at < drain.ends_at { Looked::Again(at) } else { Looked::Answer(Ok(drain.answer(false))) }
    }

    /// Pods may come to a node again; `false`: the API does not answer, or knows no such node.
    pub(in crate::world) fn uncordon(&mut self, cluster: &str, node: &str) -> bool {
        let known = self.api_serves(cluster) && self.fleet.clusters[cluster].kube.nodes.contains_key(node);
        if known {
            self.change_node(cluster, node, |node| *node = slipway_core::drain::NodeState::default());
            self.schedule_pods(cluster);
        }
        known
    }

    fn change_node(
        &mut self,
        cluster: &str,
        node: &str,
        change: impl FnOnce(&mut slipway_core::drain::NodeState),
    ) {
        let kube = self.fleet.clusters.get_mut(cluster).map(|cluster| &mut cluster.kube);
        if let Some(node) = kube.and_then(|kube| kube.nodes.get_mut(node)) {
            change(&mut node.drain);
        }
    }
}
