//! What a rollout observes of CloudFormation, and what it requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A change set that should exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeSetRequest {
    /// Name of the stack.
    pub stack: String,
    /// Name of the change set, derived from plan and step.
    pub name: String,
    /// Whether to create the stack or to update it.
    pub create: bool,
    /// Key of the template in the asset bucket.
    pub template_key: String,
    /// Tags of the stack.
    pub tags: BTreeMap<String, String>,
}

/// A stack as CloudFormation describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackView {
    /// Its ARN, which identifies this stack and no later one with the same name.
    pub id: String,
    /// Its status.
    pub status: StackStatus,
    /// CloudFormation's own reason, if it gives one.
    pub reason: Option<String>,
    /// Its tags: `slipway:cluster` names the owner.
    pub tags: BTreeMap<String, String>,
}

/// `StackStatus` of the CloudFormation API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the names are CloudFormation's")]
pub enum StackStatus {
    ReviewInProgress,
    CreateInProgress,
    CreateComplete,
    CreateFailed,
    RollbackInProgress,
    RollbackComplete,
    RollbackFailed,
    UpdateInProgress,
    UpdateCompleteCleanupInProgress,
    UpdateComplete,
    UpdateFailed,
    UpdateRollbackInProgress,
    UpdateRollbackCompleteCleanupInProgress,
    UpdateRollbackComplete,
    UpdateRollbackFailed,
    DeleteInProgress,
    DeleteComplete,
    DeleteFailed,
    ImportInProgress,
    ImportComplete,
    ImportRollbackInProgress,
    ImportRollbackComplete,
    ImportRollbackFailed,
}

/// As CloudFormation spells it.
impl std::fmt::Display for StackStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// A change set as CloudFormation describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeSetView {
    /// Whether it can be executed.
    pub status: ChangeSetStatus,
    /// CloudFormation's own reason.
    pub reason: Option<String>,
    /// Logical ids of the resources that it would replace or remove.
    pub replaces: Vec<String>,
}

/// The meaning of a change set's `Status` and `ExecutionStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeSetStatus {
    /// It is being created.
    Pending,
    /// It can be executed.
    Ready,
    /// `FAILED` because there is nothing to change: success.
    NoChanges,
    /// `FAILED` for another reason.
    Failed,
    /// `EXECUTE_IN_PROGRESS`.
    Executing,
    /// `EXECUTE_COMPLETE`.
    Executed,
    /// `EXECUTE_FAILED`: the stack was rolled back.
    ExecuteFailed,
    /// `OBSOLETE`: something else has changed the stack since.
    Obsolete,
}

/// A resource that CloudFormation could not create, change or delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFailure {
    /// Logical id in the template.
    pub logical_id: String,
    /// `AWS::EC2::VPC`.
    pub resource_type: String,
    /// `CREATE_FAILED` and the like.
    pub status: String,
    /// CloudFormation's own reason.
    pub reason: String,
}

impl StackStatus {
    /// Whether the newest operation failed, so that its events contain the reason.
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::CreateFailed
            | Self::RollbackInProgress
            | Self::RollbackComplete
            | Self::RollbackFailed
            | Self::UpdateFailed
            | Self::UpdateRollbackInProgress
            | Self::UpdateRollbackCompleteCleanupInProgress
            | Self::UpdateRollbackComplete
            | Self::UpdateRollbackFailed
            | Self::DeleteFailed
            | Self::ImportRollbackInProgress
            | Self::ImportRollbackComplete
            | Self::ImportRollbackFailed => true,
            Self::ReviewInProgress
            | Self::CreateInProgress
            | Self::CreateComplete
            | Self::UpdateInProgress
            | Self::UpdateCompleteCleanupInProgress
            | Self::UpdateComplete
            | Self::DeleteInProgress
            | Self::DeleteComplete
            | Self::ImportInProgress
            | Self::ImportComplete => false,
        }
    }
}
