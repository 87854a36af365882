//! What a drain says in the end.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::drain::{Step, Target};

use super::observe::Scene;

/// How many pods are named: Systems Manager keeps 24,000 characters of what is printed.
const NAMED: usize = 30;
/// How long a reason may be.
const LONG: usize = 300;

/// What was done since the verb was called, and how it stands.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) node: String,
    since: Option<String>,
    not_ready: Option<String>,
    evicted: Vec<String>,
    forced: Vec<String>,
    last: Step,
}

impl Report {
    pub(super) fn of(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            since: None,
            not_ready: None,
            evicted: Vec::new(),
            forced: Vec::new(),
            last: Step::default(),
        }
    }

    pub(super) fn see(&mut self, scene: &Scene, step: &Step) {
        self.since = scene.observed.node.started.map(|at| at.to_string());
        self.not_ready.clone_from(&scene.not_ready);
        self.judge(step);
    }

    pub(super) fn judge(&mut self, step: &Step) {
        self.last = step.clone();
    }

    pub(super) fn evicted(&mut self, target: &Target) {
        self.evicted.push(target.name.to_string());
    }

    pub(super) fn forced(&mut self, target: &Target) {
        self.forced.push(target.name.to_string());
    }

    /// The node is empty.
    pub(super) fn done(&self) -> Value {
        self.value(true)
    }

    /// The time is over.
    pub(super) fn waiting(&self) -> Value {
        self.value(false)
    }

    fn value(&self, done: bool) -> Value {
        let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
        for one in &self.last.skipped {
            let why = serde_json::to_value(one.why).unwrap_or_default();
            *skipped.entry(why.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let waiting = self.last.waiting.iter().take(NAMED).map(|waiting| {
            let why: String = waiting.why.chars().take(LONG).collect();
            json!({ "pod": waiting.pod.to_string(), "cause": waiting.cause, "why": why })
        });
        let names = |all: &[String]| json!({ "count": all.len(), "last": all.iter().rev().take(NAMED).collect::<Vec<_>>() });
        json!({
            "node": self.node,
            "done": done,
            "since": self.since,
            "notReady": self.not_ready,
            "evicted": names(&self.evicted),
            "forced": names(&self.forced),
            "skipped": skipped,
            "waiting": waiting.collect::<Vec<_>>(),
            "waitingMore": self.last.waiting.len().saturating_sub(NAMED),
        })
    }
}
