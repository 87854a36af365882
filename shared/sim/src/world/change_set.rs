//! A change set and its states.

use jiff::Timestamp;

use super::changes::Change;
use super::resource::Revision;
use super::{ChangeSetKind, OnFailure};

/// A change set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChangeSet {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: ChangeSetKind,
    pub(crate) description: Option<String>,
    pub(crate) status: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) execution_status: ExecutionStatus,
    pub(crate) created_at: Timestamp,
    pub(crate) target: Revision,
    pub(crate) role_arn: Option<String>,
    pub(crate) on_failure: Option<OnFailure>,
    pub(crate) changes: Vec<Change>,
    pub(crate) token: Option<String>,
    /// The recent statuses and execution statuses, newest last.
    pub(crate) past: Vec<(Timestamp, &'static str, ExecutionStatus)>,
}

impl ChangeSet {
    /// Sets a new status.
    pub(super) fn turns(&mut self, now: Timestamp, status: &'static str, execution: ExecutionStatus) {
        (self.status, self.execution_status) = (status, execution);
        self.past.push((now, status, execution));
    }
}

/// `ExecutionStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecutionStatus {
    Unavailable,
    Available,
    ExecuteInProgress,
    ExecuteComplete,
    ExecuteFailed,
    Obsolete,
}

impl ExecutionStatus {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "UNAVAILABLE",
            Self::Available => "AVAILABLE",
            Self::ExecuteInProgress => "EXECUTE_IN_PROGRESS",
            Self::ExecuteComplete => "EXECUTE_COMPLETE",
            Self::ExecuteFailed => "EXECUTE_FAILED",
            Self::Obsolete => "OBSOLETE",
        }
    }
}

/// The reason with which a change set without changes fails.
pub(crate) const NO_CHANGES: &str =
    "The submitted information didn't contain changes. Submit different information to create a change set.";
/// The same, if the text of the template differs, but none of its resources.
pub(crate) const NO_UPDATES: &str = "No updates are to be performed.";
