//! The world behind the ports, so that flows run in one process without HTTP.

mod bring;
mod commands;
mod groups;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use slipway_core::event::SOURCE;
use slipway_flows::ports::{Stacks, Ticks, why_not_executed};
use slipway_ports::{ErrorKind, PortError, PortResult};
use slipway_rollout::{
    ChangeSetRequest, ChangeSetStatus, ChangeSetView, ResourceFailure, StackStatus, StackView,
};

pub use commands::SimulatedCommands;
pub use groups::SimulatedGroups;

use crate::memory::MemoryBucket;
use crate::schema::Recreation;
use crate::world::{
    Action, ApiError, Change, ChangeSet, ChangeSetKind, ExecutionStatus, NO_CHANGES, NO_UPDATES, OnFailure,
    ScheduleRequest, StackEvent, StackRequest, TemplateSource, World,
};

/// A world that several handles share.
pub type SharedWorld = Arc<Mutex<World>>;

/// The world of a handle. A poisoned lock only means that a test panicked elsewhere.
pub fn lock(world: &SharedWorld) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CloudFormation in this process. It reads its templates from a bucket in memory.
#[derive(Debug, Clone)]
pub struct SimulatedStacks {
    world: SharedWorld,
    templates: MemoryBucket,
}

impl SimulatedStacks {
    /// A handle of `world` that finds templates in `templates`.
    #[must_use]
    pub fn new(world: SharedWorld, templates: MemoryBucket) -> Self {
        Self { world, templates }
    }
}

/// EventBridge Scheduler in this process.
#[derive(Debug, Clone)]
pub struct SimulatedTicks {
    world: SharedWorld,
    target_arn: String,
}

impl SimulatedTicks {
    /// A handle of `world` whose ticks invoke `target_arn`.
    #[must_use]
    pub fn new(world: SharedWorld, target_arn: &str) -> Self {
        Self { world, target_arn: target_arn.to_owned() }
    }
}

fn port_error(operation: &'static str, subject: &str, error: &ApiError) -> PortError {
    let kind = match error.code {
        "Throttling" | "ServiceUnavailable" => ErrorKind::Transient,
        "AccessDenied" => ErrorKind::Denied,
        "ChangeSetNotFound" | "ResourceNotFoundException" => ErrorKind::Missing,
        _ => ErrorKind::Invalid,
    };
    PortError { kind, operation, subject: subject.to_owned(), message: error.to_string() }
}

fn is_missing(error: &ApiError) -> bool {
    error.code == "ChangeSetNotFound"
        || error.code == "ValidationError" && error.message.contains("does not exist")
}

impl Stacks for SimulatedStacks {
    async fn stack(&self, name: &str) -> PortResult<Option<StackView>> {
        match lock(&self.world).shown_stack(name) {
            Ok((id, shown)) => {
                let (status, reason, tags) = (shown.status, shown.reason, shown.tags);
                Ok(Some(StackView { id, status, reason, tags }))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(port_error("cloudformation:DescribeStacks", name, &error)),
        }
    }

    async fn change_set(&self, stack: &str, name: &str) -> PortResult<Option<ChangeSetView>> {
        match lock(&self.world).shown_change_set(stack, name) {
            Ok(change_set) => Ok(Some(view(&change_set))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(port_error("cloudformation:DescribeChangeSet", name, &error)),
        }
    }

    async fn create_change_set(&self, request: &ChangeSetRequest) -> PortResult<()> {
        const OPERATION: &str = "cloudformation:CreateChangeSet";
        let body = self.templates.peek(&request.template_key).ok_or_else(|| PortError {
            kind: ErrorKind::Invalid,
            operation: OPERATION,
            subject: request.template_key.clone(),
            message: "ValidationError: S3 error: The specified key does not exist.".to_owned(),
        })?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let asked = StackRequest {
            stack_name: request.stack.clone(),
            template: Some(TemplateSource { body, from_url: true }),
            tags: Some(request.tags.clone()),
            capabilities: ["CAPABILITY_NAMED_IAM".to_owned()].into(),
            on_failure: request.create.then_some(OnFailure::Rollback),
            ..StackRequest::default()
        };
        let kind = if request.create { ChangeSetKind::Create } else { ChangeSetKind::Update };
        let made = lock(&self.world).create_change_set(&request.name, kind, None, &asked);
        match made {
            Ok(_) => Ok(()),
            Err(error) if error.code == "AlreadyExistsException" => Ok(()),
            Err(error) => {
                let refusal = port_error(OPERATION, &request.stack, &error);
                Err(self.final_unless_busy(&request.stack, refusal).await)
            }
        }
    }

    async fn execute_change_set(&self, stack: &str, name: &str, token: &str) -> PortResult<()> {
        let executed = lock(&self.world).execute_change_set(Some(stack), name, Some(token));
        let Err(error) = executed else { return Ok(()) };
        let refusal = port_error("cloudformation:ExecuteChangeSet", stack, &error);
        match error.code {
            "TokenAlreadyExistsException" | "InvalidChangeSetStatus" | "ChangeSetNotFound" => {
                match self.change_set(stack, name).await?.map(|now| why_not_executed(now.status)) {
                    Some(None) => Ok(()),
                    Some(Some(kind)) => Err(PortError { kind, ..refusal }),
                    None => Err(refusal),
                }
            }
            _ => Err(self.final_unless_busy(stack, refusal).await),
        }
    }

    async fn delete_change_set(&self, stack: &str, name: &str) -> PortResult<()> {
        match lock(&self.world).delete_change_set(Some(stack), name) {
            Ok(()) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(port_error("cloudformation:DeleteChangeSet", stack, &error)),
        }
    }

    async fn delete_stack(&self, id: &str, stands: bool, token: &str) -> PortResult<()> {
        const OPERATION: &str = "cloudformation:DeleteStack";
        let Some(view) = self.stack(id).await? else { return Ok(()) };
        let never_came_to_be = matches!(
            view.status,
            StackStatus::ReviewInProgress
                | StackStatus::CreateInProgress
                | StackStatus::RollbackComplete
                | StackStatus::RollbackFailed
                | StackStatus::CreateFailed
                | StackStatus::DeleteInProgress
                | StackStatus::DeleteComplete
        );
        if !never_came_to_be && !stands {
            return Err(PortError {
                kind: ErrorKind::Invalid,
                operation: OPERATION,
                subject: id.to_owned(),
                message: format!("the stack is {:?}; only one that never came to be is deleted", view.status),
            });
        }
        let deleted = lock(&self.world).delete_stack(id, Some(token));
        let Err(error) = deleted else { return Ok(()) };
        let refusal = port_error(OPERATION, id, &error);
        if error.code == "TokenAlreadyExistsException" {
            let now = self.stack(id).await?.map(|view| view.status);
            return match now {
                None | Some(StackStatus::DeleteInProgress | StackStatus::DeleteComplete) => Ok(()),
                Some(_) => Err(PortError { kind: ErrorKind::Transient, ..refusal }),
            };
        }
        Err(self.final_unless_busy(id, refusal).await)
    }

    async fn failures(&self, name: &str) -> PortResult<Vec<ResourceFailure>> {
        let mut world = lock(&self.world);
        let mut newest_first: Vec<StackEvent> = Vec::new();
        let mut from = 0;
        loop {
            match world.events(name, from) {
                Ok((_, page, next)) => {
                    newest_first.extend(page.into_iter().cloned());
                    match next {
                        Some(next) => from = next,
                        None => break,
                    }
                }
                Err(error) if is_missing(&error) => break,
                Err(error) => return Err(port_error("cloudformation:DescribeStackEvents", name, &error)),
            }
        }
        Ok(failures(&newest_first))
    }
}

/// The failed resources of the newest operation, the first to fail first, without those that were only cancelled.
fn failures(newest_first: &[StackEvent]) -> Vec<ResourceFailure> {
    let begins = |event: &&StackEvent| event.reason.as_deref() == Some("User Initiated");
    let newest = newest_first.iter().position(|event| begins(&event)).unwrap_or(newest_first.len());
    let mut found: Vec<ResourceFailure> = newest_first[..newest]
        .iter()
        .filter(|event| event.status.ends_with("_FAILED") && event.properties.is_some())
        .filter(|event| !event.reason.as_deref().unwrap_or_default().ends_with("cancelled"))
        .map(|event| ResourceFailure {
            logical_id: event.logical_id.clone(),
            resource_type: event.kind.clone(),
            status: event.status.clone(),
            reason: event.reason.clone().unwrap_or_default(),
        })
        .collect();
    found.reverse();
    if found.is_empty() {
        // Only the operation itself failed, for example because an export is in use or an import does not exist.
        let own = newest_first[..newest]
            .iter()
            .rev()
            .find(|event| event.properties.is_none() && event.reason.is_some());
        found.extend(own.map(|event| ResourceFailure {
            logical_id: event.logical_id.clone(),
            resource_type: event.kind.clone(),
            status: event.status.clone(),
            reason: event.reason.clone().unwrap_or_default(),
        }));
    }
    found
}

/// The content of a change set, in the form that `slipway-aws` makes of the API's answer.
fn view(change_set: &ChangeSet) -> ChangeSetView {
    let reason = change_set.reason.as_deref().unwrap_or_default();
    let status = match change_set.status {
        "FAILED" if reason == NO_CHANGES || reason == NO_UPDATES => ChangeSetStatus::NoChanges,
        "FAILED" => ChangeSetStatus::Failed,
        "CREATE_COMPLETE" => match change_set.execution_status {
            ExecutionStatus::Available => ChangeSetStatus::Ready,
            ExecutionStatus::Unavailable => ChangeSetStatus::Pending,
            ExecutionStatus::ExecuteInProgress => ChangeSetStatus::Executing,
            ExecutionStatus::ExecuteComplete => ChangeSetStatus::Executed,
            ExecutionStatus::ExecuteFailed => ChangeSetStatus::ExecuteFailed,
            ExecutionStatus::Obsolete => ChangeSetStatus::Obsolete,
        },
        _ => ChangeSetStatus::Pending,
    };
    ChangeSetView {
        status,
        reason: change_set.reason.clone(),
        replaces: change_set
            .changes
            .iter()
            .filter(|change| is_removed_or_replaced(change))
            .map(|change| change.logical_id.clone())
            .collect(),
    }
}

/// Whether the resource is removed or replaced, or may be replaced because a resource that it refers to is replaced.
fn is_removed_or_replaced(change: &Change) -> bool {
    match change.action {
        Action::Add => false,
        Action::Remove => true,
        Action::Modify => match change.replacement {
            Some("True") => true,
            Some("Conditional") => {
                change.details.iter().any(|detail| detail.recreation == Recreation::Always)
            }
            Some(_) | None => false,
        },
    }
}

impl Ticks for SimulatedTicks {
    async fn arm(&self, cluster: &str) -> PortResult<()> {
        let input = json!({"source": SOURCE, "detail-type": "Rollout Tick", "detail": {"cluster": cluster}});
        let request = ScheduleRequest {
            group: Some("slipway".to_owned()),
            name: format!("slipway-{cluster}"),
            expression: "rate(1 minutes)".to_owned(),
            target_arn: self.target_arn.clone(),
            role_arn: "arn:aws:iam::123456789012:role/slipway-tick".to_owned(),
            input: Some(input.to_string()),
            enabled: true,
            ..ScheduleRequest::default()
        };
        match lock(&self.world).create_schedule(request) {
            Ok(_) => Ok(()),
            Err(error) if error.code == "ConflictException" => Ok(()),
            Err(error) => Err(port_error("scheduler:CreateSchedule", cluster, &error)),
        }
    }

    async fn disarm(&self, cluster: &str) -> PortResult<()> {
        match lock(&self.world).delete_schedule(Some("slipway"), &format!("slipway-{cluster}")) {
            Ok(()) => Ok(()),
            Err(error) if error.code == "ResourceNotFoundException" => Ok(()),
            Err(error) => Err(port_error("scheduler:DeleteSchedule", cluster, &error)),
        }
    }
}
