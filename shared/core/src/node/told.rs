//! What a node tells of its bootstrap: where it stands, and why it gave up.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{FailureCode, Word};

/// `clusters/<name>/nodes/<role>/<instance>.json`: written by the node, which has nobody else to tell. No secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapReport {
    /// Version of this format.
    pub format: u32,
    /// The instance.
    pub instance: String,
    /// As [`crate::role::Role`] writes itself.
    pub role: String,
    /// SHA-256 of the configuration that it was to come up with.
    pub config: String,
    /// Keyed digest of its credentials.
    pub credentials: String,
    /// The agent's version.
    pub agent: String,
    /// How far it came.
    pub state: BootstrapState,
    /// Whether it may have been in service: its bootstrap is that of a reboot, or has come to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// The step that it is at, or failed at; `None` once it is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<BootstrapFailure>,
    /// When it said so.
    pub at: Timestamp,
}

impl BootstrapReport {
    /// The current format.
    pub const FORMAT: u32 = 1;
}

/// How far a bootstrap came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootstrapState {
    /// At work.
    Working,
    /// The node is up, and its launch hook is settled.
    Healthy,
    /// It cannot come up; its group was told to take it away.
    GivenUp,
}

/// What is in the way of a bootstrap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapFailure {
    /// What kind of failure it is, for machines.
    pub code: Word<FailureCode>,
    /// What is wrong, and where.
    pub message: String,
    /// What to do.
    pub help: String,
}
