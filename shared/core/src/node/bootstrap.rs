//! A node's report about its bootstrap: the state, and why it gave up.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{FailureCode, Word};

/// `clusters/<name>/nodes/<role>/<instance>.json`, written by the node. It contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapReport {
    /// Version of this format.
    pub format: u32,
    /// The instance.
    pub instance: String,
    /// As [`crate::role::Role`] writes itself.
    pub role: String,
    /// SHA-256 of the configuration that it was made with.
    pub config: String,
    /// Keyed digest of its credentials.
    pub credentials: String,
    /// The agent's version.
    pub agent: String,
    /// How far the bootstrap is.
    pub state: BootstrapState,
    /// Whether the machine may have been in service: this bootstrap follows a reboot, is about to complete its launch hook, or has ended
    /// successfully.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// The current step, or the step that failed. `None`: the node is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The present failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<BootstrapFailure>,
    /// When the report was written.
    pub at: Timestamp,
}

impl BootstrapReport {
    /// The current format.
    pub const FORMAT: u32 = 1;
    /// The most that is read of one. Reports have some hundred bytes, and with a failure some kilobytes.
    pub const MOST_BYTES: u64 = 64 * 1024;
}

/// How far a bootstrap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootstrapState {
    /// In progress.
    Working,
    /// The node is healthy, and its launch hook is completed.
    Healthy,
    /// The bootstrap failed, and the launch hook was abandoned so that the group replaces the machine.
    GivenUp,
}

/// Why a bootstrap does not proceed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapFailure {
    /// The kind of failure, for programs.
    pub code: Word<FailureCode>,
    /// What is wrong, and where.
    pub message: String,
    /// What to do.
    pub help: String,
}
