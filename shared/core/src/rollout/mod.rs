//! What a rollout is, what it sees of the world, and what it does next (design §9).
//!
//! For now a rollout launches and updates stacks, in order; replacing nodes comes on top of the same shape.

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
    /// Create the stack, or update it.
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
    /// Its status.
    pub status: StackStatus,
    /// CloudFormation's own reason, if it gives one.
    pub reason: Option<String>,
    /// Its tags; `slipway:template` names the SHA-256 of the template that was last asked for.
    pub tags: BTreeMap<String, String>,
}

/// `StackStatus` of the CloudFormation API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// What a change set's `Status` and `ExecutionStatus` mean for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeSetStatus {
    /// Being made.
    Pending,
    /// May be executed.
    Ready,
    /// `FAILED` because there is nothing to change: success.
    NoChanges,
    /// `FAILED` for another reason.
    Failed,
    /// Executed already, or being executed.
    Executed,
    /// `OBSOLETE`: the stack was changed by something else since.
    Obsolete,
}

/// A resource that CloudFormation could not make, change or delete.
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
