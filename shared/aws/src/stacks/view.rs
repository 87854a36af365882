//! From CloudFormation's answers to what a rollout looks at.

use aws_sdk_cloudformation::types::{
    Change, ChangeAction, ChangeSetStatus as Status, ExecutionStatus, Replacement, RequiresRecreation, Stack,
};
use slipway_rollout::{ChangeSetStatus, StackStatus, StackView};

/// A stack.
///
/// # Errors
/// A message, if its status is one that we do not know.
pub(super) fn stack(stack: &Stack) -> Result<StackView, String> {
    let status = stack.stack_status().map_or("", |status| status.as_str());
    let known: StackStatus = serde_json::from_value(status.into())
        .map_err(|_| format!("the stack is {status:?}, a status that this version does not know"))?;
    Ok(StackView {
        id: stack.stack_id().unwrap_or_default().to_owned(),
        status: known,
        reason: stack.stack_status_reason().map(str::to_owned),
        tags: stack
            .tags()
            .iter()
            .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value()?.to_owned())))
            .collect(),
    })
}

/// What `Status` and `ExecutionStatus` of a change set mean; `None`: it is being deleted, and as good as gone.
///
/// # Errors
/// A message, if either is one that we do not know.
pub(super) fn change_set_status(
    status: Option<&Status>,
    execution: Option<&ExecutionStatus>,
    reason: Option<&str>,
) -> Result<Option<ChangeSetStatus>, String> {
    let unknown = || {
        let name = status.map_or("", |status| status.as_str());
        let execution = execution.map_or("", |execution| execution.as_str());
        format!("the change set is {name:?}/{execution:?}, which this version does not know")
    };
    match status {
        Some(Status::CreatePending | Status::CreateInProgress) => Ok(Some(ChangeSetStatus::Pending)),
        Some(Status::Failed) if says_no_changes(reason.unwrap_or_default()) => {
            Ok(Some(ChangeSetStatus::NoChanges))
        }
        Some(Status::Failed) => Ok(Some(ChangeSetStatus::Failed)),
        Some(Status::DeletePending | Status::DeleteInProgress | Status::DeleteComplete) => Ok(None),
        // Of a nested stack's only; we make none, and it is of no use.
        Some(Status::DeleteFailed) => Ok(Some(ChangeSetStatus::Obsolete)),
        Some(Status::CreateComplete) => match execution {
            Some(ExecutionStatus::Available) => Ok(Some(ChangeSetStatus::Ready)),
            Some(ExecutionStatus::Unavailable) => Ok(Some(ChangeSetStatus::Pending)),
            Some(ExecutionStatus::ExecuteInProgress) => Ok(Some(ChangeSetStatus::Executing)),
            Some(ExecutionStatus::ExecuteComplete) => Ok(Some(ChangeSetStatus::Executed)),
            Some(ExecutionStatus::ExecuteFailed) => Ok(Some(ChangeSetStatus::ExecuteFailed)),
            Some(ExecutionStatus::Obsolete) => Ok(Some(ChangeSetStatus::Obsolete)),
            Some(_) | None => Err(unknown()),
        },
        Some(_) | None => Err(unknown()),
    }
}

/// The two ways in which CloudFormation says that a change set has nothing to do; there is no code for it.
fn says_no_changes(reason: &str) -> bool {
    reason.contains("didn't contain changes") || reason.contains("No updates are to be performed")
}

/// The logical id of a resource that the change removes or replaces.
///
/// `Replacement: Conditional` says two things. Where a property that always needs replacement takes a value that is
/// not known yet (a reference to a resource that is itself replaced), the resource may be replaced, and counts here.
/// Where the property is one that replaces on a condition, it is an Auto Scaling group whose update policy would
/// decide; ours have none (design §6), so that it stays.
pub(super) fn replaced(change: &Change) -> Option<String> {
    let change = change.resource_change()?;
    let may_recreate = || {
        change.details().iter().filter_map(|detail| detail.target()).any(|target| {
            target.requires_recreation().is_some_and(|recreation| *recreation == RequiresRecreation::Always)
        })
    };
    let gone = match change.action() {
        Some(ChangeAction::Remove | ChangeAction::Dynamic) => true,
        Some(ChangeAction::Add | ChangeAction::Import) => false,
        Some(_) | None => match change.replacement() {
            Some(Replacement::True) => true,
            Some(Replacement::Conditional) => may_recreate(),
            Some(Replacement::False) | None => false,
            Some(_) => true,
        },
    };
    gone.then(|| change.logical_resource_id().unwrap_or_default().to_owned())
}
