//! Emptying a node: which pods are evicted, which are let be, which are waited for and why, and when one may be deleted
//! though its budget forbids it (P6).
//!
//! [`decide`] is asked again and again, by the agent with what the API server says and by the simulator with what its
//! world says. What must outlive a process (since when the node is drained, when a pod was last deleted by force) is part
//! of the node: see [`NodeState`].

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

/// The annotation of a node that says since when it is drained. Without it, or on a node that is not cordoned, a drain
/// begins anew.
pub const STARTED: &str = "slipway/drain-started";
/// The annotation of a node that says when a pod of it was last deleted by force.
pub const LAST_FORCED: &str = "slipway/last-forced";

/// An object of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
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

/// All that a decision depends on, besides policy and time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// The node.
    pub node: NodeState,
    /// Its pods, in any order.
    pub pods: Vec<Pod>,
    /// The budgets that the pods name.
    pub budgets: BTreeMap<ObjectName, Budget>,
    /// What became of earlier tries, by the pod's UID. It may be forgotten: each pod is then asked for once more.
    pub tries: BTreeMap<String, Try>,
}

/// What a node says of its own drain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeState {
    /// Nothing new is scheduled to it.
    pub cordoned: bool,
    /// [`STARTED`].
    pub started: Option<Timestamp>,
    /// [`LAST_FORCED`].
    pub last_forced: Option<Timestamp>,
}

/// A pod on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: ObjectName,
    /// Which of those that ever bore the name.
    pub uid: String,
    /// Who makes it again.
    pub owner: Owner,
    /// When it was made.
    pub created: Timestamp,
    /// It has succeeded or failed, and runs no more.
    pub finished: bool,
    /// It is being deleted, and should be gone by then.
    pub terminating: Option<Timestamp>,
    /// It keeps data that are lost with it.
    pub empty_dir: bool,
    /// A node that is cordoned does not keep it away.
    pub tolerates_cordon: bool,
    /// The budgets that select it.
    pub budgets: BTreeSet<ObjectName>,
}

/// Who makes a pod again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A controller, elsewhere.
    Controller,
    /// A DaemonSet, on this very node.
    DaemonSet,
    /// The node's kubelet, from a file: it only mirrors the pod into the API.
    Kubelet,
    /// Nobody: it is lost.
    Nobody,
}

/// A disruption budget.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    /// How many of its pods may go now.
    pub allowed: u32,
    /// All of its pods that run or should, wherever they are.
    pub pods: Vec<Sibling>,
}

/// A pod of a budget, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// Its name.
    pub name: ObjectName,
    /// It serves.
    pub healthy: bool,
    /// For how long it has been so, or being deleted.
    pub since: Timestamp,
}

/// The last try at a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    /// When.
    pub at: Timestamp,
    /// How many there have been; 1 is the first.
    pub count: u32,
    /// What came of it.
    pub answer: Answer,
}

/// What the API server said to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The pod goes.
    Accepted,
    /// A budget does not allow it now.
    Budget,
    /// Two budgets select the pod, and the API server cannot count for both.
    TwoBudgets,
    /// Something else, in its own words.
    Refused(String),
}

/// A pod to do something to: that one, and no other of its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its name.
    pub name: ObjectName,
    /// Which one.
    pub uid: String,
}

/// What to do next. Lists are in the order of the pods' names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// Cordon the node, write [`STARTED`] into it, and decide again: nothing else is in this step.
    pub begin: bool,
    /// Ask for the eviction of these.
    pub evict: Vec<Target>,
    /// Write [`LAST_FORCED`] into the node, and when that is done delete this one, with the grace that it asks for.
    pub force: Option<Target>,
    /// What is on the node still, those that are to be evicted now included.
    pub waiting: Vec<Waiting>,
    /// What may stay.
    pub skipped: Vec<Skipped>,
    /// The node is empty: nothing is in `waiting`.
    pub done: bool,
    /// When to look again, though nothing may have happened by then.
    pub look_again: Option<Timestamp>,
}

/// A pod that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The pod.
    pub pod: ObjectName,
    /// Why, for machines.
    pub cause: Cause,
    /// Why, in words.
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
    /// It has two budgets: a person must mend that.
    TwoBudgets,
    /// The API server refuses for another reason.
    Refused,
    /// It is deleted by force in this step.
    Forcing,
    /// Nobody makes it again, and the policy says to wait until a person has seen to it.
    Bare,
    /// Its data would be lost, and the policy says to wait until a person has seen to it.
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
    /// Its DaemonSet would make it again, here.
    DaemonSet,
    /// Its kubelet would make it again.
    Mirror,
    /// It runs no more.
    Finished,
    /// It tolerates cordoned nodes and came after the drain began: it would come back for ever.
    Returns,
}

/// From one instant to another; negative if they are the other way round, as between clocks that differ.
fn between(from: Timestamp, to: Timestamp) -> SignedDuration {
    to.duration_since(from)
}
