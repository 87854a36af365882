//! Commands: verbs of the agent that are sent to a machine through a document of Systems Manager, and their results.
//!
//! Each document runs one verb of `slipway-node`. `SendCommand` has no idempotency token, so a command carries Slipway's token as its
//! comment: before sending, the sender looks for a command with the token, and later finds the answer by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::answer::{self, Answer, MOST_WORDS, Unreadable};
use super::logs::{ALL_UNITS, LogUnit};
use super::{FailureCode, VerbFailure};
use crate::words::harmless;

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
    EtcdRestore {
        /// The snapshot's time.
        snapshot: String,
        /// `--initial-cluster-token`, the same on all members, and never used before.
        token: String,
        /// The peer URL of every member, by name.
        members: BTreeMap<String, String>,
        /// By how much the snapshot's revisions are raised, the same on all members: to more than any that clients have seen.
        bump: u64,
        /// SHA-256 of the database that the snapshot must hold, in hexadecimal digits. `None`: any.
        #[serde(default)]
        sha256: Option<String>,
        /// How far it goes.
        stage: RestoreStage,
    },
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
            Self::EtcdRestore { snapshot, token, members, bump, sha256, stage } => map(&[
                ("Snapshot", snapshot.clone()),
                ("Token", token.clone()),
                ("InitialCluster", initial_cluster(members)),
                ("Bump", bump.to_string()),
                ("Sha256", sha256.clone().unwrap_or_else(|| ANY.to_owned())),
                ("Stage", stage.word().to_owned()),
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
                Self::EtcdRestore {
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
                }
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

/// The state of a [`Command`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandView {
    /// The machine has not received it.
    Pending,
    /// The machine is running it.
    InProgress,
    /// The verb succeeded, and this is its answer.
    Answered(Answer),
    /// The verb failed, and says why.
    Failed(VerbFailure),
    /// It has ended without an answer that could be read.
    Unanswered(Unanswered),
}

impl CommandView {
    /// Reads what Run Command reports about a command that runs `verb`.
    #[must_use]
    pub fn read(verb: &Verb, invocation: &Invocation<'_>) -> Self {
        let how = match invocation.status {
            CommandStatus::Pending => return Self::Pending,
            CommandStatus::InProgress => return Self::InProgress,
            CommandStatus::Success => HowUnanswered::Succeeded,
            CommandStatus::Failed if invocation.was_not_understood() => HowUnanswered::NotUnderstood,
            CommandStatus::Failed => HowUnanswered::Failed,
            CommandStatus::TimedOut => HowUnanswered::TimedOut,
            CommandStatus::Undelivered => HowUnanswered::Undelivered,
        };
        let unanswered = |unreadable: Option<&Unreadable>| {
            Self::Unanswered(Unanswered { how, problem: invocation.problem(unreadable) })
        };
        match (answer::read(verb, invocation.printed), how) {
            (Ok(Ok(answer)), HowUnanswered::Succeeded) if answer.is_of(verb) => Self::Answered(answer),
            (Ok(Ok(_)), HowUnanswered::Succeeded) => {
                Self::Unanswered(Unanswered { how, problem: Some("it answered for another node".to_owned()) })
            }
            // Run Command ended it while it was finishing by itself, so it is unknown whether it did everything that the answer says.
            (
                Ok(Ok(_)),
                HowUnanswered::Failed
                | HowUnanswered::NotUnderstood
                | HowUnanswered::TimedOut
                | HowUnanswered::Undelivered,
            ) => unanswered(None),
            (Ok(Err(failure)), _) => Self::Failed(failure),
            (Err(unreadable), _) => unanswered(Some(&unreadable)),
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        match self {
            Self::Pending | Self::InProgress => false,
            Self::Answered(_) | Self::Failed(_) | Self::Unanswered(_) => true,
        }
    }

    /// Whether the verb failed with that code.
    #[must_use]
    pub fn failed_with(&self, code: FailureCode) -> bool {
        match self {
            Self::Failed(failure) => failure.is(code),
            Self::Pending | Self::InProgress | Self::Answered(_) | Self::Unanswered(_) => false,
        }
    }
}

/// A command that ended without a readable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// How it ended.
    pub how: HowUnanswered,
    /// Run Command's description of the problem, and what was printed instead of an answer. `None`: nothing is known.
    pub problem: Option<String>,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.how {
            HowUnanswered::Succeeded => "it gave no answer that can be read",
            HowUnanswered::Failed => "it gave no answer",
            HowUnanswered::NotUnderstood => "its agent is older than this verb",
            HowUnanswered::Undelivered => "Run Command did not reach it",
            HowUnanswered::TimedOut => "it took too long",
        })?;
        self.problem.iter().try_for_each(|problem| write!(f, ": {problem}"))
    }
}

/// How a command without an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowUnanswered {
    /// The exit status says that the verb succeeded, but its output cannot be read.
    Succeeded,
    /// It failed or was cancelled.
    Failed,
    /// The agent does not know the verb or an option of it: it is older than that, and did nothing.
    NotUnderstood,
    /// It timed out while running.
    TimedOut,
    /// It never ran.
    Undelivered,
}

/// What `GetCommandInvocation` reports about a command on one machine.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'t> {
    /// How far it is.
    pub status: CommandStatus,
    /// `StatusDetails` as the service words it.
    pub details: &'t str,
    /// `ResponseCode`: the exit status of the command; negative while it has none.
    pub response_code: i32,
    /// `StandardOutputContent`.
    pub printed: &'t str,
    /// `StandardErrorContent`.
    pub errors: &'t str,
}

/// How many characters of standard output `GetCommandInvocation` returns at most.
const MOST_OUTPUT: usize = 24_000;

/// The exit status of an agent that was called wrongly: clap's (`clap::error::Error::exit_code`). A verb that fails ends with 1, after it has
/// printed why.
const USAGE: i32 = 2;

/// How clap begins its message about a verb or an option that the agent does not know (`clap_builder` 4, `src/error/format.rs`: the kinds
/// `InvalidSubcommand` and `UnknownArgument`). It begins others, such as `invalid value`, if the agent knows both and the value is wrong.
const UNKNOWN: [&str; 2] = ["error: unrecognized subcommand ", "error: unexpected argument "];

impl Invocation<'_> {
    /// Whether the agent did not know the verb or an option of it.
    fn was_not_understood(&self) -> bool {
        let is_unknown = |line: &str| UNKNOWN.iter().any(|words| line.trim_start().starts_with(words));
        self.response_code == USAGE && self.printed.trim().is_empty() && self.errors.lines().any(is_unknown)
    }

    /// Why there is no answer, in words. `unreadable`: what is wrong with the output.
    fn problem(&self, unreadable: Option<&Unreadable>) -> Option<String> {
        let mut problem = Vec::new();
        if self.status != CommandStatus::Success {
            problem.push(if self.details.is_empty() { "Failed".to_owned() } else { self.details.to_owned() });
            if self.response_code > 0 {
                problem.push(format!("it ended with status {}", self.response_code));
            }
        }
        // Agents end truncated output with `--output truncated--`.
        let cut =
            self.printed.chars().count() >= MOST_OUTPUT || self.printed.trim_end().ends_with("truncated--");
        match (self.printed, unreadable) {
            ("", _) if self.status == CommandStatus::Success => problem.push("it printed nothing".to_owned()),
            ("", _) | (_, None) => {}
            (_, Some(_)) if cut => problem.push(format!("its answer was cut after {MOST_OUTPUT} characters")),
            (_, Some(Unreadable::NoJson)) => {
                problem.push(format!("it printed no answer, but: {}", harmless(tail(self.printed))));
            }
            (_, Some(Unreadable::Unexpected(why))) => {
                problem.push(format!("its answer cannot be understood: {why}"));
            }
        }
        if unreadable.is_some() && !self.errors.trim().is_empty() {
            problem.push(harmless(tail(self.errors)).into_owned());
        }
        (!problem.is_empty()).then(|| problem.join("; "))
    }
}

/// The last characters of `text`, at most [`MOST_WORDS`]: the end of unreadable output says most.
fn tail(text: &str) -> &str {
    let text = text.trim();
    let from = text.char_indices().rev().nth(MOST_WORDS - 1).map_or(0, |(index, _)| index);
    &text[from..]
}

/// `StatusDetails` of `GetCommandInvocation`, as far as a rollout distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandStatus {
    /// `Pending`, `Delayed`: the machine has not received it.
    Pending,
    /// `InProgress`, `Cancelling`.
    InProgress,
    /// `Success`.
    Success,
    /// `Failed`, `Cancelled`, `Terminated`: the verb's answer may say why.
    Failed,
    /// `Execution Timed Out`: it timed out while running.
    TimedOut,
    /// `Delivery Timed Out`, `Undeliverable`, `Invalid Platform`, `Access Denied`: it never ran.
    Undelivered,
}

#[cfg(test)]
mod tests;
