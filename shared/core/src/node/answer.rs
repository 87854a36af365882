//! What each verb of `slipway-node` prints when it succeeds. The agent writes these types, the simulator writes them, and whoever asked
//! reads them: nobody builds or picks apart the JSON by hand.
//!
//! The form on the wire is the form of these types. What a decision needs must be there; all else may be missing, so that an answer of an
//! agent of another release is read as well.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::report::Served;
use super::{EtcdHealth, Failure, NodeStatus, Verb, Word};
use crate::drain::{Cause, Stays, Step};

/// What a verb prints: its answer, or why it has none.
pub type Outcome = Result<Answer, Failure>;

/// The answer of one kind of verb.
pub trait OfVerb: Clone + Sized {
    /// It, if `answer` is of that verb.
    fn of(answer: &Answer) -> Option<Self>;
}

/// Makes the list of answers: for each verb the type of its answer.
macro_rules! answers {
    ($($verb:ident($answer:ty),)+) => {
        /// The answer of a verb: one variant for each [`Verb`].
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum Answer {
            $(
                #[doc = concat!("Of [`Verb::", stringify!($verb), "`].")]
                $verb(Box<$answer>),
            )+
        }

        impl Answer {
            /// Reads what `verb` answered.
            ///
            /// # Errors
            /// If it is not what that verb answers.
            pub fn read(verb: &Verb, value: Value) -> serde_json::Result<Self> {
                match verb {
                    $(Verb::$verb { .. } => serde_json::from_value(value).map(Self::$verb),)+
                }
            }
        }

        $(
            impl From<$answer> for Answer {
                fn from(answer: $answer) -> Self {
                    Self::$verb(Box::new(answer))
                }
            }

            impl OfVerb for $answer {
                fn of(answer: &Answer) -> Option<Self> {
                    if let Answer::$verb(answer) = answer { Some((**answer).clone()) } else { None }
                }
            }
        )+
    };
}

answers! {
    Status(NodeStatus),
    Refresh(Refreshed),
    EtcdHealth(EtcdHealth),
    EtcdMoveLeader(LeaderMoved),
    EtcdSnapshot(SnapshotTaken),
    EtcdRemove(MemberRemoved),
    EtcdRetire(RecordsRetired),
    Drain(Drained),
    Uncordon(Uncordoned),
}

/// The JSON object that is printed for `outcome`.
#[must_use]
pub fn printed(outcome: &Result<impl Serialize, Failure>) -> Value {
    match outcome {
        Ok(answer) => serde_json::to_value(answer).expect("an answer has string keys only"),
        Err(failure) => json!({ "error": failure }),
    }
}

/// Reads what `verb` printed.
///
/// # Errors
/// With what is wrong with it, if it is neither an answer of that verb nor a failure.
pub fn read(verb: &Verb, printed: &str) -> Result<Outcome, Unreadable> {
    let value: Value = serde_json::from_str(printed).map_err(|_| Unreadable::NoJson)?;
    let Value::Object(mut object) = value else { return Err(Unreadable::NoJson) };
    let outcome = match object.remove("error") {
        Some(error) => serde_json::from_value(error).map(Err),
        None => Answer::read(verb, Value::Object(object)).map(Ok),
    };
    outcome.map_err(|error| Unreadable::Unexpected(error.to_string()))
}

/// Why what a verb printed cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is no JSON object: it was cut, or somebody else printed it.
    #[error("it is no JSON object")]
    NoJson,
    /// It is another object than this verb's.
    #[error("{0}")]
    Unexpected(String),
}

/// What `refresh` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refreshed {
    /// Whether any file is another now.
    pub changed: bool,
    /// The digest of the credentials that are in force.
    pub credentials: String,
    /// What each listener presents now whose certificate the bundle brings. One that presented nothing before, as it may wait for
    /// others, may still present nothing.
    #[serde(default)]
    pub served: Vec<Served>,
    /// Which processes were restarted.
    #[serde(default)]
    pub restarted: Vec<String>,
    /// What was done about the kubelet's own certificate; `None` if it was good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletRenewed>,
    /// Whether scanner and rotation were told; if not, the hourly timer tells them.
    #[serde(default)]
    pub published: bool,
}

/// What `refresh` did about a kubelet's own certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletRenewed {
    /// Why no API server would have accepted the old one.
    pub refused: String,
    /// The serial number of the new one.
    pub serial: String,
}

/// What `etcd move-leader` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderMoved {
    /// Whether leadership was moved.
    pub moved: bool,
    /// The number of the member that leads now.
    pub leader: String,
    /// Why leadership was not moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Word<LeaderStays>>,
}

/// Why `etcd move-leader` had nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaderStays {
    /// This member does not lead.
    #[serde(rename = "another member leads")]
    AnotherLeads,
    /// This member is the only voter.
    #[serde(rename = "no other member has a vote")]
    NoOtherVoter,
}

/// What `etcd snapshot` made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotTaken {
    /// When, in the form that `etcd restore` takes.
    pub time: String,
    /// Its key in the asset bucket.
    pub key: String,
    /// Bytes of the database.
    #[serde(default)]
    pub size: u64,
    /// SHA-256 of the database, as etcd has it.
    #[serde(default)]
    pub sha256: String,
    /// The revision that it holds at least.
    #[serde(default)]
    pub revision: u64,
    /// The server's release.
    #[serde(default)]
    pub version: String,
    /// The KMS key under which it is sealed.
    #[serde(default)]
    pub sealed_under: String,
    /// How long it took, in seconds.
    #[serde(default)]
    pub seconds: u64,
}

/// What `etcd restore` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// Whether the data were changed: not if a run before this one did it.
    pub changed: bool,
    /// What was restored.
    #[serde(flatten)]
    pub mark: RestoreMark,
    /// Where the data lie that were there before, if any were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_aside: Option<String>,
    /// How etcd is since it was started with them.
    pub etcd: RestoredEtcd,
    /// Why it does not serve yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a member is that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestoredEtcd {
    /// It reads through a majority.
    Serving,
    /// It was started, and runs: it may wait for a majority.
    Waiting,
}

/// What a member's data were restored from; it lies beside them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreMark {
    /// The snapshot's time.
    pub snapshot: String,
    /// `--initial-cluster-token`.
    pub token: String,
    /// `--initial-cluster`.
    pub initial_cluster: String,
    /// SHA-256 of the database, as etcd has it.
    pub sha256: String,
    /// Whether revisions were raised and older ones marked as compacted. Where they were not, whoever watches must be started
    /// anew: controllers, kubelets, everything with a cache.
    pub bumped: bool,
    /// Whether etcd was started with these data: from then on they are the member's, and nobody makes them again.
    #[serde(default)]
    pub started: bool,
    /// The tokens of restores before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens_before: Vec<String>,
}

/// What `etcd remove` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRemoved {
    /// Whether the member was removed now; `false`: the membership no longer had it.
    pub removed: bool,
    /// Its number, if it was removed now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How many members there are now.
    #[serde(default)]
    pub members: usize,
}

/// What `etcd retire` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordsRetired {
    /// The hosted zone.
    #[serde(default)]
    pub zone: String,
    /// The names whose records were deleted now.
    pub records: Vec<String>,
}

/// What `uncordon` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Uncordoned {
    /// The node: the machine's id.
    pub node: String,
    /// Whether pods are still kept away from it: never.
    pub cordoned: bool,
}

/// How many pods are named: Systems Manager keeps 24,000 characters of what is printed.
const PODS_NAMED: usize = 30;
/// How many characters of a reason are printed.
const REASON_LENGTH: usize = 300;

/// How a drain stands when `drain` ends: the node is empty, or the time is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// The node: the machine's id.
    pub node: String,
    /// Whether the node is empty.
    pub done: bool,
    /// Since when it is being drained, by whoever began.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Why the node is not ready; `None`: it is.
    #[serde(default)]
    pub not_ready: Option<String>,
    /// The pods that this command evicted.
    #[serde(default)]
    pub evicted: PodNames,
    /// The pods that this command deleted by force.
    #[serde(default)]
    pub forced: PodNames,
    /// How many pods may stay, by why.
    #[serde(default)]
    pub skipped: BTreeMap<Word<Stays>, usize>,
    /// The first of the pods that are waited for.
    #[serde(default)]
    pub waiting: Vec<PodWaits>,
    /// How many more are waited for.
    #[serde(default)]
    pub waiting_more: usize,
}

/// Pods to which something was done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNames {
    /// How many.
    pub count: usize,
    /// The last of them, newest first: `namespace/name`.
    pub last: Vec<String>,
}

/// A pod that a drain waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodWaits {
    /// `namespace/name`.
    pub pod: String,
    /// Why it is waited for, for machines.
    pub cause: Word<Cause>,
    /// Why it is waited for, in words.
    pub why: String,
}

/// What a drain has done since its command began, and what it saw last. Whoever drains keeps it, and prints its [`Self::answer`].
#[derive(Debug, Clone)]
pub struct DrainRecord {
    node: String,
    since: Option<Timestamp>,
    not_ready: Option<String>,
    evicted: Vec<String>,
    forced: Vec<String>,
    last: Step,
}

impl DrainRecord {
    /// Nothing was done yet.
    #[must_use]
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            since: None,
            not_ready: None,
            evicted: Vec::new(),
            forced: Vec::new(),
            last: Step::default(),
        }
    }

    /// The node that is drained.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// What a look at the node gave: since when it is drained, why it is not ready, and what is to be done next.
    pub fn see(&mut self, since: Option<Timestamp>, not_ready: Option<&str>, step: &Step) {
        self.since = since;
        self.not_ready = not_ready.map(str::to_owned);
        self.last = step.clone();
    }

    /// The pod was evicted.
    pub fn evicted(&mut self, pod: &crate::drain::ObjectName) {
        self.evicted.push(pod.to_string());
    }

    /// The pod was deleted by force.
    pub fn forced(&mut self, pod: &crate::drain::ObjectName) {
        self.forced.push(pod.to_string());
    }

    /// What is printed in the end: `done` if the node is empty.
    #[must_use]
    pub fn answer(&self, done: bool) -> Drained {
        let mut skipped: BTreeMap<Word<Stays>, usize> = BTreeMap::new();
        for one in &self.last.skipped {
            *skipped.entry(one.why.into()).or_default() += 1;
        }
        let waiting = self.last.waiting.iter().take(PODS_NAMED).map(|one| PodWaits {
            pod: one.pod.to_string(),
            cause: one.cause.into(),
            why: one.why.chars().take(REASON_LENGTH).collect(),
        });
        let names = |all: &[String]| PodNames {
            count: all.len(),
            last: all.iter().rev().take(PODS_NAMED).cloned().collect(),
        };
        Drained {
            node: self.node.clone(),
            done,
            since: self.since,
            not_ready: self.not_ready.clone(),
            evicted: names(&self.evicted),
            forced: names(&self.forced),
            skipped,
            waiting: waiting.collect(),
            waiting_more: self.last.waiting.len().saturating_sub(PODS_NAMED),
        }
    }
}
