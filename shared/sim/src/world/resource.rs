//! What a stack deploys, and its resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::template::{Policy, Template};

/// The target of a deployment of a stack.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Revision {
    pub(crate) template: Arc<Template>,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) capabilities: BTreeSet<String>,
}

/// A resource of a stack.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    pub(crate) logical_id: String,
    pub(crate) kind: String,
    pub(crate) physical_id: Option<String>,
    pub(crate) status: ResourceStatus,
    pub(crate) reason: Option<String>,
    pub(crate) changed_at: Timestamp,
    /// Its properties, with all expressions evaluated.
    pub(crate) properties: Value,
    pub(crate) attributes: BTreeMap<String, Value>,
    pub(crate) metadata: Option<Value>,
    /// The stack's tags on the resource.
    pub(crate) stack_tags: BTreeMap<String, String>,
    pub(crate) deletion_policy: Policy,
    pub(crate) update_replace_policy: Policy,
    /// The resources that it depends on; it is deleted before them.
    pub(crate) needs: BTreeSet<String>,
}

/// An output of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) value: String,
    pub(crate) description: Option<String>,
    pub(crate) export: Option<String>,
}

/// `ResourceStatus` of the CloudFormation API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceStatus {
    CreateInProgress,
    CreateComplete,
    CreateFailed,
    UpdateInProgress,
    UpdateComplete,
    UpdateFailed,
    DeleteInProgress,
    DeleteComplete,
    DeleteFailed,
    DeleteSkipped,
}

impl ResourceStatus {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CreateInProgress => "CREATE_IN_PROGRESS",
            Self::CreateComplete => "CREATE_COMPLETE",
            Self::CreateFailed => "CREATE_FAILED",
            Self::UpdateInProgress => "UPDATE_IN_PROGRESS",
            Self::UpdateComplete => "UPDATE_COMPLETE",
            Self::UpdateFailed => "UPDATE_FAILED",
            Self::DeleteInProgress => "DELETE_IN_PROGRESS",
            Self::DeleteComplete => "DELETE_COMPLETE",
            Self::DeleteFailed => "DELETE_FAILED",
            Self::DeleteSkipped => "DELETE_SKIPPED",
        }
    }
}
