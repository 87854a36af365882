//! Stacks, their resources and their events.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use slipway_rollout::StackStatus;

use super::change_set::ChangeSet;
use super::operation::Operation;
use super::resource::{Output, Resource, Revision};

/// A stack.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: StackStatus,
    pub(crate) reason: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Option<Timestamp>,
    pub(crate) deleted_at: Option<Timestamp>,
    pub(crate) role_arn: Option<String>,
    /// Whether it is protected from deletion.
    pub(crate) protected: bool,
    /// The deployed revision; `None` until the first operation succeeds (or always, after a failed creation).
    pub(crate) revision: Option<Revision>,
    pub(crate) resources: BTreeMap<String, Resource>,
    pub(crate) outputs: BTreeMap<String, Output>,
    /// The names of other stacks' exports that it uses.
    pub(crate) imports: BTreeSet<String>,
    /// Oldest first.
    pub(crate) events: Vec<StackEvent>,
    pub(crate) change_sets: Vec<ChangeSet>,
    /// The change set that was executed last.
    pub(crate) change_set_id: Option<String>,
    pub(crate) operation: Option<Operation>,
    /// The number of resources that were created in it, so that a replacement gets another id.
    pub(crate) generation: u64,
    /// The recent states in answers, newest last.
    pub(crate) shown: Vec<ShownStack>,
}

/// A stack in an answer of `DescribeStacks`.
#[derive(Debug, Clone)]
pub(crate) struct ShownStack {
    pub(crate) since: Timestamp,
    pub(crate) status: StackStatus,
    pub(crate) reason: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
}

impl Stack {
    /// The stack as an up-to-date answer shows it. One that is no more than a change set has no tags (LocalStack's tests against AWS:
    /// <https://github.com/localstack/localstack/pull/13117>). No documentation says whether one that is being created has them: some have.
    pub(crate) fn show(&self, since: Timestamp) -> ShownStack {
        let creating = self.operation_target().filter(|_| self.id.bytes().fold(0, u8::wrapping_add) % 2 == 0);
        let shown = self.revision.as_ref().or(creating);
        let tags = shown.map(|revision| revision.tags.clone()).unwrap_or_default();
        ShownStack { since, status: self.status, reason: self.reason.clone(), tags }
    }
}

/// An event of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StackEvent {
    pub(crate) event_id: String,
    pub(crate) at: Timestamp,
    pub(crate) logical_id: String,
    pub(crate) physical_id: String,
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    /// JSON of the properties; `None` for the stack itself.
    pub(crate) properties: Option<String>,
    pub(crate) token: Option<String>,
}

/// `CREATE_COMPLETE` and the like, as the API writes it.
pub(crate) fn status_name(status: StackStatus) -> String {
    serde_json::to_value(status).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

impl Stack {
    /// Whether it accepts an update.
    pub(crate) fn is_stable(&self) -> bool {
        matches!(
            self.status,
            StackStatus::CreateComplete | StackStatus::UpdateComplete | StackStatus::UpdateRollbackComplete
        )
    }

    /// The target of the operation in progress.
    pub(crate) fn operation_target(&self) -> Option<&Revision> {
        self.operation.as_ref()?.target.as_ref()
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.status == StackStatus::DeleteComplete
    }
}
