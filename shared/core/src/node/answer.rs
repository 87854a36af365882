//! What each verb of `slipway-node` prints when it succeeds. The agent and the simulator write these types, and the sender of the command
//! reads them. Nothing builds or parses the JSON by hand.
//!
//! The JSON is that of these types. Only fields that a decision needs are mandatory, so that the answers of agents of other releases can
//! be read as well.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::report::Served;
use super::serves::ClusterServes;
use super::{Defragmented, EtcdHealth, MachineLogs, NodeStatus, Verb, VerbFailure, Word};
use crate::drain::{Cause, Stays, Step};
use crate::words::harmless;

/// What a verb prints: its answer, or why it failed.
pub type VerbOutcome = Result<Answer, VerbFailure>;

/// A type that is the answer of one verb.
pub trait VerbAnswer: Clone + Sized {
    /// The answer, if `answer` is that of this verb.
    fn from_answer(answer: &Answer) -> Option<Self>;
}

/// Defines [`Answer`] from the list of verbs with the types of their answers.
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
            /// How many verbs there are.
            pub const VERBS: usize = [$(stringify!($verb)),+].len();

            /// Reads the answer of `verb`.
            ///
            /// # Errors
            /// If it is not an answer of that verb.
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

            impl VerbAnswer for $answer {
                fn from_answer(answer: &Answer) -> Option<Self> {
                    if let Answer::$verb(answer) = answer { Some((**answer).clone()) } else { None }
                }
            }
        )+
    };
}

impl Answer {
    /// Whether it is of the node that `verb` names, if it names one. Somebody else's command for another node says nothing about this one.
    #[must_use]
    pub fn is_of(&self, verb: &Verb) -> bool {
        if let (Self::Drain(answer), Verb::Drain { node, .. }) = (self, verb) {
            return answer.node == *node;
        }
        if let (Self::Uncordon(answer), Verb::Uncordon { node }) = (self, verb) {
            return answer.node == *node;
        }
        true
    }
}

answers! {
    Status(NodeStatus),
    Logs(MachineLogs),
    Refresh(Refreshed),
    Serves(ClusterServes),
    EtcdHealth(EtcdHealth),
    EtcdMoveLeader(LeaderMoved),
    EtcdSnapshot(SnapshotTaken),
    EtcdRemove(MemberRemoved),
    EtcdRetire(RecordsRetired),
    EtcdRestore(Restored),
    EtcdDefragment(Defragmented),
    Drain(Drained),
    Uncordon(Uncordoned),
}

/// The JSON object to print for `outcome`.
#[must_use]
pub fn printed(outcome: &Result<impl Serialize, VerbFailure>) -> Value {
    match outcome {
        Ok(answer) => serde_json::to_value(answer).expect("an answer has string keys only"),
        Err(failure) => json!({ "error": failure }),
    }
}

/// How many characters of a machine's words are kept: of a text, and of a list of texts together.
pub(super) const MOST_WORDS: usize = 600;

/// Reads what `verb` printed. Whoever is root on the machine prints what it likes, and rollouts, events and chats quote it: no text is longer
/// than [`MOST_WORDS`], and none does anything to a terminal.
///
/// # Errors
/// What is wrong, if it is neither an answer of that verb nor a failure.
pub fn read(verb: &Verb, printed: &str) -> Result<VerbOutcome, Unreadable> {
    let value: Value = serde_json::from_str(printed).map_err(|_| Unreadable::NoJson)?;
    let Value::Object(mut object) = tamed(value) else { return Err(Unreadable::NoJson) };
    let outcome = match object.remove("error") {
        Some(error) => serde_json::from_value(error).map(Err),
        None => Answer::read(verb, Value::Object(object)).map(Ok),
    };
    // What serde says quotes the value.
    outcome.map_err(|error| Unreadable::Unexpected(tame(&error.to_string(), MOST_WORDS)))
}

/// A machine's words: the first `most` characters, without any that does something to a terminal.
fn tame(words: &str, most: usize) -> String {
    harmless(words).chars().take(most).collect()
}

/// `value` with every text in it, keys too, made short and harmless.
fn tamed(value: Value) -> Value {
    match value {
        Value::String(words) => Value::String(tame(&words, MOST_WORDS)),
        Value::Array(items) => {
            let mut characters_left = MOST_WORDS;
            let fits = |item: &Value| {
                // Texts in a list are joined where they are shown.
                let length = item.as_str().map_or(0, |words| words.chars().count());
                let fits = length <= characters_left;
                characters_left = characters_left.saturating_sub(length);
                fits
            };
            Value::Array(items.into_iter().map(tamed).take_while(fits).collect())
        }
        Value::Object(object) => Value::Object(
            object.into_iter().map(|(key, value)| (tame(&key, MOST_WORDS), tamed(value))).collect(),
        ),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

/// Why the output of a verb cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is no JSON object: it was truncated, or something else printed it.
    #[error("it is not a JSON object")]
    NoJson,
    /// It is a JSON object of another form than this verb's answer.
    #[error("{0}")]
    Unexpected(String),
}

/// What `refresh` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refreshed {
    /// Whether any file changed.
    pub changed: bool,
    /// The digest of the credentials in use.
    pub credentials: String,
    /// The certificate that each listener now presents, if the bundle contains it. A listener that presented none before may still
    /// present none, for example while it waits for other members.
    #[serde(default)]
    pub served: Vec<Served>,
    /// The processes that were restarted.
    #[serde(default)]
    pub restarted: Vec<String>,
    /// What was done about the kubelet's own certificate. `None`: it was good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletRenewed>,
    /// Whether the node's status was published for the scan function. If not, the hourly timer publishes it.
    #[serde(default)]
    pub published: bool,
}

/// What `refresh` did about a kubelet's own certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletRenewed {
    /// Why API servers would have refused the old certificate.
    pub refused: String,
    /// The serial number of the new certificate.
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
    /// The time of the snapshot, in the form that `etcd restore` takes.
    pub time: String,
    /// Its key in the asset bucket.
    pub key: String,
    /// The size of the database in bytes.
    #[serde(default)]
    pub size: u64,
    /// SHA-256 of the database, computed by etcd.
    #[serde(default)]
    pub sha256: String,
    /// The lowest revision that it can contain.
    #[serde(default)]
    pub revision: u64,
    /// The release of the etcd server.
    #[serde(default)]
    pub version: String,
    /// The KMS key with which it is sealed.
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
    /// Whether the data was replaced. `false`: an earlier run had done it.
    pub changed: bool,
    /// What was restored.
    #[serde(flatten)]
    pub mark: RestoreMark,
    /// Where the previous data was moved, if there was any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_aside: Option<String>,
    /// How far it is.
    pub etcd: RestoredEtcd,
    /// Why it is not serving yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of a member that is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestoredEtcd {
    /// It can read through a majority.
    Serving,
    /// It runs; it may be waiting for a majority.
    Waiting,
    /// Its data are as before: the snapshot was only verified, or prepared.
    Unchanged,
}

/// The snapshot that a member's data was restored from. It is stored beside the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreMark {
    /// The snapshot's time.
    pub snapshot: String,
    /// `--initial-cluster-token`.
    pub token: String,
    /// `--initial-cluster`.
    pub initial_cluster: String,
    /// SHA-256 of the database, computed by etcd.
    pub sha256: String,
    /// Whether revisions were raised and older ones marked as compacted. If not, everything with a watch or cache must be restarted:
    /// controllers, kubelets and other clients.
    pub bumped: bool,
    /// By how much they were raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bump: Option<u64>,
    /// What speaks against it being the snapshot that its time and place say. Whoever ordered it named its SHA-256, or it was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Whether it is a snapshot of an etcd of that name that was deleted, as far as the schedule of snapshots tells.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_earlier_etcd: bool,
    /// Whether etcd was started with this data. From then on the data is the member's, and is not restored again.
    #[serde(default)]
    pub started: bool,
    /// The tokens of earlier restores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens_before: Vec<String>,
}

impl RestoreMark {
    /// Of a restore that has not begun.
    #[must_use]
    pub const fn new(snapshot: String, token: String, initial_cluster: String) -> Self {
        Self {
            snapshot,
            token,
            initial_cluster,
            sha256: String::new(),
            bumped: false,
            bump: None,
            doubts: Vec::new(),
            of_earlier_etcd: false,
            started: false,
            tokens_before: Vec::new(),
        }
    }
}

/// What `etcd remove` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRemoved {
    /// Whether the member was removed now. `false`: it was no longer in the membership.
    pub removed: bool,
    /// Its number, if it was removed now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The number of members now.
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
    /// The names of the records that were deleted now.
    pub records: Vec<String>,
}

/// What `uncordon` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Uncordoned {
    /// The node: the machine's id.
    pub node: String,
    /// Whether the node is still cordoned: always `false`.
    pub cordoned: bool,
}

/// How many pods are named: Systems Manager keeps 24,000 characters of the output.
const PODS_NAMED: usize = 30;
/// How many characters of a reason are printed.
const REASON_LENGTH: usize = 300;

/// The state of a drain when the `drain` command ends: the node is empty, or the command's time is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// The node: the machine's id.
    pub node: String,
    /// Whether the node is empty.
    pub done: bool,
    /// Since when the node is being drained, possibly by an earlier command.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Why the node is not ready. `None`: it is ready.
    #[serde(default)]
    pub not_ready: Option<String>,
    /// The pods that this command evicted.
    #[serde(default)]
    pub evicted: PodNames,
    /// The pods that this command deleted by force.
    #[serde(default)]
    pub forced: PodNames,
    /// How many pods may stay, by reason.
    #[serde(default)]
    pub skipped: BTreeMap<Word<Stays>, usize>,
    /// The pods that are waited for, up to a limit.
    #[serde(default)]
    pub waiting: Vec<PodWaits>,
    /// How many more are waited for beyond those in `waiting`.
    #[serde(default)]
    pub waiting_more: usize,
}

/// A number of pods with some of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNames {
    /// How many.
    pub count: usize,
    /// The names of the last ones, newest first: `namespace/name`.
    pub last: Vec<String>,
}

/// A pod that a drain waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodWaits {
    /// `namespace/name`.
    pub pod: String,
    /// Why it is waited for, as a code.
    pub cause: Word<Cause>,
    /// Why it is waited for, in words.
    pub why: String,
}

/// What a drain has done since its command began, and what it saw last. The drain loop updates it, and prints its [`Self::answer`].
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
    /// A drain that has done nothing yet.
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

    /// Records an observation of the node: since when it is drained, why it is not ready, and the next step.
    pub fn see(&mut self, since: Option<Timestamp>, not_ready: Option<&str>, step: &Step) {
        self.since = since;
        self.not_ready = not_ready.map(str::to_owned);
        self.last = step.clone();
    }

    /// Records that the pod was evicted.
    pub fn evicted(&mut self, pod: &crate::drain::ObjectName) {
        self.evicted.push(pod.to_string());
    }

    /// Records that the pod was deleted by force.
    pub fn forced(&mut self, pod: &crate::drain::ObjectName) {
        self.forced.push(pod.to_string());
    }

    /// The answer to print at the end. `done`: the node is empty.
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
