//! The operation in progress on a stack: its kind and its steps.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use slipway_rollout::StackStatus;

use super::OnFailure;
use super::resource::{Resource, Revision};

/// The operation in progress on a stack.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(super) number: u64,
    pub(super) kind: OperationKind,
    pub(super) token: Option<String>,
    /// The target state of the stack; `None` if things are only deleted.
    pub(super) target: Option<Revision>,
    pub(super) steps: BTreeMap<String, Step>,
    /// The logical ids that failed, and in which phase: `create`, `update`, `delete`.
    pub(super) failures: Vec<(String, &'static str)>,
    /// The resources before the operation.
    pub(super) before: BTreeMap<String, Resource>,
    /// The resources to delete after a successful update.
    pub(super) leftovers: Vec<Resource>,
    pub(super) imported: BTreeSet<String>,
    pub(super) change_set: Option<String>,
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Create {
        on_failure: OnFailure,
    },
    Update {
        roll_back: bool,
    },
    /// Goes back to the revision before.
    UpdateRollback,
    /// Deletes what an update no longer needs, and ends with the status `then`.
    Cleanup {
        then: StackStatus,
    },
    /// Deletes everything, and ends with the status `then`: a deletion, or the rollback of a creation.
    Delete {
        then: StackStatus,
    },
}

/// A step of an operation.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) needs: BTreeSet<String>,
    pub(super) work: Work,
    pub(super) state: StepState,
    /// The state of the resource after the step.
    pub(super) next: Option<Box<Resource>>,
    /// Since when the step has waited for a group to stabilise.
    pub(super) since: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) enum Work {
    /// Brings a resource to its target state.
    Apply,
    /// Deletes a resource; `tracked`: the stack still lists it.
    Remove { resource: Box<Resource>, tracked: bool, retain: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepState {
    Waiting,
    Running,
    Done,
    Failed,
}
