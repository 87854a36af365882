//! Commands: verbs of the agent that are sent to a machine through a document of Systems Manager.
//!
//! Each document runs one verb of `slipway-node`. `SendCommand` has no idempotency token, so a command carries Slipway's token as its
//! comment: before sending, the sender looks for a command with the token, and later finds the answer by it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::logs::{ALL_UNITS, LogUnit};

/// The verbs of `slipway-node` that have a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// `Slipway-Status`, on any node.
    Status,
    /// `Slipway-Logs`, on any node. Only people send it.
    Logs {
        /// The unit. `None`: all that the node has.
        unit: Option<LogUnit>,
        /// How many lines of each.
        lines: u32,
    },
    /// `Slipway-Refresh`, on any node.
    Refresh {
        /// Digest of the credentials.
        credentials: String,
        /// Whether a process that reads its credentials only at start may be restarted once.
        restart: bool,
    },
    /// `Slipway-Serves`, on a controller.
    Serves {
        /// Machines whose Nodes do not count: a person skipped them, or they are no longer or not yet in service.
        without: BTreeSet<String>,
    },
    /// `Slipway-EtcdHealth`, on a member.
    EtcdHealth,
    /// `Slipway-EtcdMoveLeader`, on a member.
    EtcdMoveLeader,
    /// `Slipway-EtcdSnapshot`, on a member.
    EtcdSnapshot,
    /// `Slipway-EtcdRemove`, on another member.
    EtcdRemove {
        /// The member to remove from the membership: `etcd-4`.
        member: String,
    },
    /// `Slipway-EtcdRetire`, on a member of a cluster that is being destroyed.
    EtcdRetire,
    /// `Slipway-EtcdRestore`, on every member. Only people send it.
    EtcdRestore(Box<RestoreOrder>),
    /// `Slipway-EtcdDefragment`, on a member. Only people send it.
    EtcdDefragment,
    /// `Slipway-Drain`, on a controller.
    Drain {
        /// The node: the machine's id.
        node: String,
        /// Seconds after which the command ends, whether the node is empty or not.
        for_s: u32,
        /// Seconds after which force may be used if all other rules for force hold. `None`: never.
        force_after_s: Option<u32>,
    },
    /// `Slipway-Uncordon`, on a controller.
    Uncordon {
        /// The node: the machine's id.
        node: String,
    },
}

impl Verb {
    /// Name of its document.
    #[must_use]
    pub fn document(&self) -> &'static str {
        match self {
            Self::Status => "Slipway-Status",
            Self::Logs { .. } => "Slipway-Logs",
            Self::Refresh { .. } => "Slipway-Refresh",
            Self::Serves { .. } => "Slipway-Serves",
            Self::EtcdHealth => "Slipway-EtcdHealth",
            Self::EtcdMoveLeader => "Slipway-EtcdMoveLeader",
            Self::EtcdSnapshot => "Slipway-EtcdSnapshot",
            Self::EtcdRemove { .. } => "Slipway-EtcdRemove",
            Self::EtcdRetire => "Slipway-EtcdRetire",
            Self::EtcdRestore { .. } => "Slipway-EtcdRestore",
            Self::EtcdDefragment => "Slipway-EtcdDefragment",
            Self::Drain { .. } => "Slipway-Drain",
            Self::Uncordon { .. } => "Slipway-Uncordon",
        }
    }

    /// `timeoutSeconds` of its document's step in `infra/template.yaml`, after which Run Command ends it.
    #[must_use]
    pub const fn timeout_s(&self) -> u32 {
        match self {
            Self::Status
            | Self::Logs { .. }
            | Self::Serves { .. }
            | Self::EtcdHealth
            | Self::EtcdRetire
            | Self::Uncordon { .. } => 120,
            Self::EtcdMoveLeader | Self::EtcdRemove { .. } => 300,
            Self::Refresh { .. } | Self::EtcdSnapshot | Self::EtcdDefragment => 1_800,
            // Little longer than the longest `for_s`: a hanging command occupies one of the five workers of the machine's SSM agent until
            // then (amazon-ssm-agent, `DefaultCommandWorkersLimit`).
            Self::Drain { .. } => 900,
            Self::EtcdRestore { .. } => 3_600,
        }
    }

    /// The time after which a missing answer will never come: the document's timeout, plus delays of delivery and of the answer.
    #[must_use]
    pub const fn answers_within(&self) -> SignedDuration {
        /// Two minutes for the delivery, and as long until Run Command reports the end.
        const LATE_S: i64 = 240;
        SignedDuration::from_secs(self.timeout_s() as i64 + LATE_S)
    }

    /// The document's parameters.
    #[must_use]
    pub fn parameters(&self) -> BTreeMap<String, String> {
        let map = |list: &[(&str, String)]| -> BTreeMap<String, String> {
            list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        match self {
            Self::Status
            | Self::EtcdHealth
            | Self::EtcdMoveLeader
            | Self::EtcdSnapshot
            | Self::EtcdRetire
            | Self::EtcdDefragment => BTreeMap::new(),
            Self::Logs { unit, lines } => map(&[
                ("Unit", unit.map_or(ALL_UNITS, LogUnit::name).to_owned()),
                ("Lines", lines.to_string()),
            ]),
            Self::Serves { without } => map(&[("Without", listed(without))]),
            Self::EtcdRemove { member } => map(&[("Member", member.clone())]),
            Self::EtcdRestore(order) => map(&[
                ("Snapshot", order.snapshot.clone()),
                ("Token", order.token.clone()),
                ("InitialCluster", initial_cluster(&order.members)),
                ("Bump", order.bump.to_string()),
                ("Sha256", order.sha256.clone().unwrap_or_else(|| ANY.to_owned())),
                ("Stage", order.stage.word().to_owned()),
            ]),
            Self::Refresh { credentials, restart } => map(&[
                ("Credentials", credentials.clone()),
                ("Restart", if *restart { "allowed" } else { "never" }.to_owned()),
            ]),
            Self::Drain { node, for_s, force_after_s } => map(&[
                ("Node", node.clone()),
                ("For", for_s.to_string()),
                ("ForceAfter", force_after_s.map_or_else(|| "never".to_owned(), |s| s.to_string())),
            ]),
            Self::Uncordon { node } => map(&[("Node", node.clone())]),
        }
    }

    /// The node that this verb drains. `None`: it drains none.
    #[must_use]
    pub fn drains(&self) -> Option<&str> {
        match self {
            Self::Drain { node, .. } => Some(node),
            Self::Status
            | Self::Logs { .. }
            | Self::Refresh { .. }
            | Self::Serves { .. }
            | Self::EtcdHealth
            | Self::EtcdMoveLeader
            | Self::EtcdSnapshot
            | Self::EtcdRemove { .. }
            | Self::EtcdRetire
            | Self::EtcdRestore { .. }
            | Self::EtcdDefragment
            | Self::Uncordon { .. } => None,
        }
    }

    /// The verb that a document runs with these parameters: the inverse of [`Self::parameters`].
    ///
    /// # Errors
    /// If the document does not exist, or a parameter is missing or invalid.
    pub fn read(document: &str, parameters: &BTreeMap<String, String>) -> Result<Self, String> {
        let text = |name: &str| {
            parameters.get(name).cloned().ok_or_else(|| format!("{document} has no parameter {name}"))
        };
        let seconds = |name: &str| {
            let value = text(name)?;
            value
                .parse::<u32>()
                .map_err(|_| format!("{name} of {document} is not a number of seconds: {value}"))
        };
        let verb = match document {
            "Slipway-Status" => Self::Status,
            "Slipway-Logs" => Self::Logs {
                unit: match text("Unit")?.as_str() {
                    ALL_UNITS => None,
                    name => Some(
                        LogUnit::named(name)
                            .ok_or_else(|| format!("Unit of {document} is not a unit of a node: {name}"))?,
                    ),
                },
                lines: text("Lines")?.parse().map_err(|_| format!("Lines of {document} is not a number"))?,
            },
            "Slipway-Refresh" => Self::Refresh {
                credentials: text("Credentials")?,
                restart: match text("Restart")?.as_str() {
                    "allowed" => true,
                    "never" => false,
                    other => {
                        return Err(format!("Restart of {document} is neither allowed nor never: {other}"));
                    }
                },
            },
            "Slipway-Serves" => Self::Serves { without: machines(&text("Without")?) },
            "Slipway-EtcdHealth" => Self::EtcdHealth,
            "Slipway-EtcdMoveLeader" => Self::EtcdMoveLeader,
            "Slipway-EtcdSnapshot" => Self::EtcdSnapshot,
            "Slipway-EtcdRemove" => Self::EtcdRemove { member: text("Member")? },
            "Slipway-EtcdRetire" => Self::EtcdRetire,
            "Slipway-EtcdRestore" => {
                let (members, stage) = (text("InitialCluster")?, text("Stage")?);
                let member =
                    |pair: &str| pair.split_once('=').map(|(name, url)| (name.to_owned(), url.to_owned()));
                Self::EtcdRestore(Box::new(RestoreOrder {
                    snapshot: text("Snapshot")?,
                    token: text("Token")?,
                    members: members.split(',').map(member).collect::<Option<_>>().ok_or_else(|| {
                        format!("InitialCluster of {document} is not a list of NAME=URL: {members}")
                    })?,
                    bump: text("Bump")?
                        .parse()
                        .map_err(|_| format!("Bump of {document} is not a number of revisions"))?,
                    sha256: Some(text("Sha256")?).filter(|sha256| sha256 != ANY),
                    stage: RestoreStage::named(&stage)
                        .ok_or_else(|| format!("Stage of {document} is not a stage of a restore: {stage}"))?,
                }))
            }
            "Slipway-EtcdDefragment" => Self::EtcdDefragment,
            "Slipway-Drain" => Self::Drain {
                node: text("Node")?,
                for_s: seconds("For")?,
                force_after_s: match text("ForceAfter")?.as_str() {
                    "never" => None,
                    _ => Some(seconds("ForceAfter")?),
                },
            },
            "Slipway-Uncordon" => Self::Uncordon { node: text("Node")? },
            other => return Err(format!("there is no document {other}")),
        };
        Ok(verb)
    }
}

/// What a member is told of a restore.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreOrder {
    /// The snapshot's time.
    pub snapshot: String,
    /// `--initial-cluster-token`, the same on all members, and never used before.
    pub token: String,
    /// The peer URL of every member, by name.
    pub members: BTreeMap<String, String>,
    /// By how much the snapshot's revisions are raised, the same on all members: to more than any that clients have seen.
    pub bump: u64,
    /// SHA-256 of the database that the snapshot must hold, in hexadecimal digits. `None`: any.
    #[serde(default)]
    pub sha256: Option<String>,
    /// How far it goes.
    pub stage: RestoreStage,
}

/// The value of the parameter `Sha256` that leaves open what the snapshot holds.
pub const ANY: &str = "any";

/// Whether `text` is a SHA-256 in hexadecimal digits.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// How far a member goes with a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestoreStage {
    /// Downloads, verifies and unpacks the snapshot beside the present data, and deletes what it unpacked. etcd runs on.
    Verify,
    /// The same, but keeps it for [`Self::Whole`].
    Prepare,
    /// Prepares what is not prepared yet, replaces the data, and starts etcd.
    Whole,
    /// Deletes what was prepared: the restore is not done.
    Discard,
}

impl RestoreStage {
    /// The value of the document's parameter.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Prepare => "prepare",
            Self::Whole => "whole",
            Self::Discard => "discard",
        }
    }

    /// The stage with that word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        [Self::Verify, Self::Prepare, Self::Whole, Self::Discard]
            .into_iter()
            .find(|stage| stage.word() == word)
    }
}

/// etcd's `--initial-cluster`.
#[must_use]
pub fn initial_cluster(members: &BTreeMap<String, String>) -> String {
    members.iter().map(|(name, url)| format!("{name}={url}")).collect::<Vec<_>>().join(",")
}

/// A set of machines as one value of a parameter: their ids with commas between them, or `none`.
fn listed(machines: &BTreeSet<String>) -> String {
    if machines.is_empty() {
        return "none".to_owned();
    }
    machines.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// The machines that the value of such a parameter lists.
#[must_use]
pub fn machines(text: &str) -> BTreeSet<String> {
    text.split(',').filter(|id| *id != "none").map(str::to_owned).collect()
}

/// One verb to run once on one machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// The token, which is the command's comment of at most 100 characters (`SendCommand`). It contains cluster, generation, step and
    /// attempt, so that the same command is never sent twice.
    pub token: String,
    /// The machine that runs it.
    pub instance: String,
    /// What it runs.
    pub verb: Verb,
}

/// The cluster of a command with this token: the part before the first slash. `None`: the token is not Slipway's.
#[must_use]
pub fn cluster_of_token(token: &str) -> Option<&str> {
    token.split_once('/').map(|(cluster, _)| cluster).filter(|cluster| !cluster.is_empty())
}
