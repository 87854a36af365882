//! Draining a node: which pods are evicted, which may stay, which are waited for and why, and when a pod may be deleted although its
//! disruption budget forbids the eviction (P6).
//!
//! [`decide`] is called again and again: by the agent with what the API server says, by the simulator with what its world says. What must
//! outlive a process (when the drain began, when a pod was last deleted by force) is stored in annotations of the node: see
//! [`NodeState`].

mod decide;
mod rules;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use decide::{back_off, decide};
pub use rules::{Force, Policy, Treatment};
pub use words::lasting;

/// The node annotation with the time at which the drain began. Without it, or on a node that is not cordoned, a drain starts from the
/// beginning.
pub const STARTED: &str = "slipway/drain-started";
/// The node annotation with the time at which a pod of the node was last deleted by force.
pub const LAST_FORCED: &str = "slipway/last-forced";

/// The name of a namespaced object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name in that namespace.
    pub name: String,
}

impl ObjectName {
    /// `name` in `namespace`.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Everything that a decision depends on, besides policy and time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// The node.
    pub node: NodeState,
    /// Its pods, in any order.
    pub pods: Vec<Pod>,
    /// The disruption budgets that select these pods.
    pub budgets: BTreeMap<ObjectName, Budget>,
    /// Results of earlier eviction attempts, by the pod's UID. It may be lost: then each eviction is attempted once more.
    pub tries: BTreeMap<String, Try>,
}

/// The drain state that the node itself records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeState {
    /// Nothing new is scheduled to it.
    pub cordoned: bool,
    /// [`STARTED`].
    pub started: Option<Timestamp>,
    /// [`LAST_FORCED`].
    pub last_forced: Option<Timestamp>,
    /// Since when its kubelet has been silent, if it is: its condition Ready is `Unknown`.
    pub silent: Option<Timestamp>,
    /// Since when its kubelet has said that it can run no pods, if it does: its condition Ready is `False`.
    pub unable: Option<Timestamp>,
}

/// A pod on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace and name.
    pub name: ObjectName,
    /// Its UID.
    pub uid: String,
    /// What recreates it.
    pub owner: Owner,
    /// When it was created.
    pub created: Timestamp,
    /// It has succeeded or failed, and runs no longer.
    pub finished: bool,
    /// It is being deleted, and should be gone by this time.
    pub terminating: Option<Timestamp>,
    /// It has an `emptyDir`, whose data is lost with it.
    pub empty_dir: bool,
    /// It tolerates cordoned nodes, so it can be scheduled to one.
    pub tolerates_cordon: bool,
    /// The budgets that select it.
    pub budgets: BTreeSet<ObjectName>,
}

/// What recreates a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A controller, on another node.
    Controller,
    /// A DaemonSet, on the same node.
    DaemonSet,
    /// The node's kubelet, from a file. In the API it is a mirror pod.
    Kubelet,
    /// Nothing: it is a bare pod.
    Nobody,
}

/// A disruption budget.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    /// How many of its pods may be disrupted now.
    pub allowed: u32,
    /// All of its pods that run or should run, on any node.
    pub pods: Vec<Sibling>,
}

/// A pod of a budget, and its health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// Its namespace and name.
    pub name: ObjectName,
    /// It is healthy.
    pub healthy: bool,
    /// Since when it has been healthy, unhealthy or terminating.
    pub since: Timestamp,
}

/// The last eviction attempt for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    /// When.
    pub at: Timestamp,
    /// The number of attempts so far, from 1.
    pub count: u32,
    /// Its result.
    pub answer: Answer,
}

/// The API server's answer to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The pod is being deleted.
    Accepted,
    /// A disruption budget does not allow it now.
    Budget,
    /// Two budgets select the pod, and the eviction API supports one only.
    TwoBudgets,
    /// Another error, in the API server's words.
    Refused(String),
}

/// A pod to act on: this pod, not another one of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its namespace and name.
    pub name: ObjectName,
    /// Its UID.
    pub uid: String,
}

/// What to do next. Lists are in the order of the pods' names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// Cordon the node, write [`STARTED`], and decide again. Nothing else is in this step.
    pub begin: bool,
    /// Request the eviction of these pods.
    pub evict: Vec<Target>,
    /// Write [`LAST_FORCED`] into the node, and then delete this pod with its own grace period.
    pub force: Option<Target>,
    /// The pods that are still on the node, including those to be evicted now.
    pub waiting: Vec<Waiting>,
    /// The pods that may stay.
    pub skipped: Vec<Skipped>,
    /// The node is empty: nothing is in `waiting`.
    pub done: bool,
    /// When to decide again at the latest.
    pub look_again: Option<Timestamp>,
}

/// A pod that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The pod.
    pub pod: ObjectName,
    /// Why, as a code.
    pub cause: Cause,
    /// Why, for people.
    pub why: String,
}

/// Why a pod is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It is evicted in this step.
    Evicting,
    /// It is being deleted.
    Terminating,
    /// A budget does not allow its eviction.
    Budget,
    /// Two budgets select it: a person must change one of them.
    TwoBudgets,
    /// The API server refuses for another reason.
    Refused,
    /// It is deleted by force in this step.
    Forcing,
    /// Nothing recreates it, and the policy is to wait until a person deletes it.
    Bare,
    /// Its data would be lost, and the policy is to wait until a person deletes it.
    EmptyDir,
}

/// A pod that may stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The pod.
    pub pod: ObjectName,
    /// Why.
    pub why: Stays,
}

/// Why a pod may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stays {
    /// Its DaemonSet would recreate it on this node.
    DaemonSet,
    /// Its kubelet would recreate it.
    Mirror,
    /// It runs no longer.
    Finished,
    /// It tolerates cordoned nodes and was created after the drain began, so it would be scheduled here again.
    Returns,
    /// It should have been gone for minutes, and the kubelet that would say so has been silent for as long.
    Silent,
    /// It should have been gone for minutes, and its kubelet has said for a quarter of an hour that it can run no pods, so it can stop none.
    Unable,
}

/// The time from one instant to another. Negative if `to` is earlier, as with clocks that differ.
fn between(from: Timestamp, to: Timestamp) -> SignedDuration {
    to.duration_since(from)
}
