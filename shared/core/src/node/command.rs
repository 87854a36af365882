//! What a node is asked: a verb of its agent, by a document of Systems Manager, and what became of that.
//!
//! Each document names one verb of `slipway-node`. `SendCommand` has no idempotency token of its own, so a command carries ours as its
//! comment: whoever sends looks for it first, and whoever asks finds its answer by it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The verbs of `slipway-node` that have a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// `Slipway-Status`, on any node.
    Status,
    /// `Slipway-Refresh`, on any node.
    Refresh {
        /// Digest of the credentials.
        credentials: String,
        /// Whether what a process reads at its start alone may cost it one restart.
        restart: bool,
    },
    /// `Slipway-EtcdHealth`, on a member.
    EtcdHealth,
    /// `Slipway-EtcdMoveLeader`, on a member.
    EtcdMoveLeader,
    /// `Slipway-EtcdSnapshot`, on a member.
    EtcdSnapshot,
    /// `Slipway-EtcdRemove`, on another member.
    EtcdRemove {
        /// Who leaves the membership: `etcd-4`.
        member: String,
    },
    /// `Slipway-EtcdRetire`, on a member of a cluster that is taken away.
    EtcdRetire,
    /// `Slipway-Drain`, on a controller.
    Drain {
        /// The node: the machine's id.
        node: String,
        /// Seconds after which it ends, done or not.
        for_s: u32,
        /// Seconds after which it may use force by all the other rules; `None`: never.
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
            Self::Refresh { .. } => "Slipway-Refresh",
            Self::EtcdHealth => "Slipway-EtcdHealth",
            Self::EtcdMoveLeader => "Slipway-EtcdMoveLeader",
            Self::EtcdSnapshot => "Slipway-EtcdSnapshot",
            Self::EtcdRemove { .. } => "Slipway-EtcdRemove",
            Self::EtcdRetire => "Slipway-EtcdRetire",
            Self::Drain { .. } => "Slipway-Drain",
            Self::Uncordon { .. } => "Slipway-Uncordon",
        }
    }

    /// The document's parameters.
    #[must_use]
    pub fn parameters(&self) -> BTreeMap<String, String> {
        let of = |list: &[(&str, String)]| -> BTreeMap<String, String> {
            list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        match self {
            Self::Status
            | Self::EtcdHealth
            | Self::EtcdMoveLeader
            | Self::EtcdSnapshot
            | Self::EtcdRetire => BTreeMap::new(),
            Self::EtcdRemove { member } => of(&[("Member", member.clone())]),
            Self::Refresh { credentials, restart } => of(&[
                ("Credentials", credentials.clone()),
                ("Restart", if *restart { "allowed" } else { "never" }.to_owned()),
            ]),
            Self::Drain { node, for_s, force_after_s } => of(&[
                ("Node", node.clone()),
                ("For", for_s.to_string()),
                ("ForceAfter", force_after_s.map_or_else(|| "never".to_owned(), |s| s.to_string())),
            ]),
            Self::Uncordon { node } => of(&[("Node", node.clone())]),
        }
    }
}

/// One verb on one machine, asked for once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Ours, and its comment: at most 100 characters (`SendCommand`). Names cluster, generation, step and attempt, so that the same
    /// is never asked twice.
    pub token: String,
    /// The machine that runs it.
    pub instance: String,
    /// What it runs.
    pub verb: Verb,
}

/// The cluster that a command with this token belongs to, if the token is one of ours: what stands before its first slash.
#[must_use]
pub fn cluster_of_token(token: &str) -> Option<&str> {
    token.split_once('/').map(|(cluster, _)| cluster).filter(|cluster| !cluster.is_empty())
}

/// What became of a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandView {
    /// How far it is.
    pub status: CommandStatus,
    /// The JSON object that the verb printed, whole; `None` while there is none, or what came was none.
    pub answer: Option<Value>,
    /// What went wrong, in Run Command's words, or the tail of what was printed where it is no JSON.
    pub problem: Option<String>,
}

/// `StatusDetails` of `GetCommandInvocation`, as far as a rollout tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CommandStatus {
    /// `Pending`, `Delayed`: the machine has not taken it.
    Pending,
    /// `InProgress`, `Cancelling`.
    InProgress,
    /// `Success`.
    Success,
    /// `Failed`, `Cancelled`, `Terminated`: the verb's answer may say why.
    Failed,
    /// `Execution Timed Out`: it ran for too long.
    TimedOut,
    /// `Delivery Timed Out`, `Undeliverable`, `Invalid Platform`, `Access Denied`: it never ran.
    Undelivered,
}
