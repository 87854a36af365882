//! CloudFormation: stacks through change sets.

mod failures;
mod refused;
#[cfg(test)]
mod tests;
mod view;

use aws_sdk_cloudformation::types::{Capability, ChangeSetType, OnStackFailure, StackEvent, Tag};
use slipway_flows::ports::{Stacks, why_not_executed};
use slipway_ports::{ErrorKind, Objects, PortError, PortResult};
use slipway_rollout::{
    ChangeSetRequest, ChangeSetStatus, ChangeSetView, ResourceFailure, StackStatus, StackView,
};

use crate::S3Bucket;
use crate::error::{code, port_error, words};

/// Pages of events that are read at most: a stack of 500 resources, the limit, that is created and rolled back has
/// some 4,000 events, and a page holds 100.
const MAX_EVENT_PAGES: u32 = 60;

/// Pages of changes that are read at most: a change set of 500 resources, 100 a page.
const MAX_CHANGE_PAGES: u32 = 10;

/// CloudFormation, which reads templates from a bucket and works under a service role of its own.
#[derive(Debug, Clone)]
pub struct CloudFormation {
    client: aws_sdk_cloudformation::Client,
    templates: S3Bucket,
    role_arn: String,
}

impl CloudFormation {
    pub(crate) fn new(client: aws_sdk_cloudformation::Client, templates: S3Bucket, role_arn: String) -> Self {
        Self { client, templates, role_arn }
    }

    /// The stack as the API describes it; `None` if there is none.
    async fn describe(&self, name: &str) -> PortResult<Option<aws_sdk_cloudformation::types::Stack>> {
        match self.client.describe_stacks().stack_name(name).send().await {
            Ok(output) => Ok(output.stacks.unwrap_or_default().into_iter().next()),
            Err(error) if is_no_stack(code(&error), words(&error)) => Ok(None),
            Err(error) => Err(port_error("cloudformation:DescribeStacks", name, &error)),
        }
    }

    /// What it means that a change set could not be executed: it was executed before (the call was repeated after a
    /// crash), it is not ready yet by a late answer, or it has to be made anew.
    async fn why_not_executed(&self, stack: &str, name: &str, refusal: PortError) -> PortResult<()> {
        let Some(view) = self.change_set(stack, name).await? else {
            // CloudFormation forgets the change sets of a stack once one was executed, but the stack remembers which.
            let executed = self.describe(stack).await?.is_some_and(|stack| {
                stack.stack_status().is_some_and(|status| status.as_str() != "REVIEW_IN_PROGRESS")
                    && stack.change_set_id().is_some_and(|id| id.contains(&format!(":changeSet/{name}/")))
            });
            return if executed { Ok(()) } else { Err(refusal) };
        };
        match why_not_executed(view.status) {
            None => Ok(()),
            Some(kind) => Err(PortError { kind, ..refusal }),
        }
    }
}

/// `ValidationError` is CloudFormation's word for many things; its text tells a stack that does not exist.
pub(crate) fn is_no_stack(code: &str, words: &str) -> bool {
    code == "ValidationError" && words.contains("does not exist")
}

impl Stacks for CloudFormation {
    async fn stack(&self, name: &str) -> PortResult<Option<StackView>> {
        let Some(stack) = self.describe(name).await? else { return Ok(None) };
        view::stack(&stack).map(Some).map_err(|message| PortError {
            kind: ErrorKind::Invalid,
            operation: "cloudformation:DescribeStacks",
            subject: name.to_owned(),
            message,
        })
    }

    async fn change_set(&self, stack: &str, name: &str) -> PortResult<Option<ChangeSetView>> {
        const OPERATION: &str = "cloudformation:DescribeChangeSet";
        let subject = || format!("{stack}/{name}");
        let mut seen: Option<ChangeSetView> = None;
        let mut token = None;
        for _ in 0..MAX_CHANGE_PAGES {
            let page = self.client.describe_change_set().stack_name(stack).change_set_name(name);
            let page = match page.set_next_token(token.take()).send().await {
                Ok(page) => page,
                Err(error)
                    if matches!(code(&error), "ChangeSetNotFound" | "ChangeSetNotFoundException")
                        || is_no_stack(code(&error), words(&error)) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(port_error(OPERATION, subject(), &error)),
            };
            let status =
                view::change_set_status(page.status(), page.execution_status(), page.status_reason())
                    .map_err(|message| PortError {
                        kind: ErrorKind::Invalid,
                        operation: OPERATION,
                        subject: subject(),
                        message,
                    })?;
            let Some(status) = status else { return Ok(None) };
            let reason = page.status_reason().map(str::to_owned);
            if status == ChangeSetStatus::Failed {
                let reason = self.reason_with_events(page.change_set_id(), reason).await;
                return Ok(Some(ChangeSetView { status, reason, replaces: Vec::new() }));
            }
            let view = seen.get_or_insert_with(|| ChangeSetView { status, reason, replaces: Vec::new() });
            view.replaces.extend(page.changes().iter().filter_map(view::replaced));
            token = page.next_token().map(str::to_owned);
            if token.is_none() {
                return Ok(seen);
            }
        }
        Err(PortError {
            kind: ErrorKind::Invalid,
            operation: OPERATION,
            subject: subject(),
            message: format!("more than {MAX_CHANGE_PAGES} pages of changes"),
        })
    }

    async fn create_change_set(&self, request: &ChangeSetRequest) -> PortResult<()> {
        let tags = request.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build());
        let call = self
            .client
            .create_change_set()
            .stack_name(&request.stack)
            .change_set_name(&request.name)
            .template_url(self.templates.url(&request.template_key))
            .role_arn(&self.role_arn)
            // Names of roles that a spec gives, so that others can refer to them.
            .capabilities(Capability::CapabilityNamedIam)
            .set_tags(Some(tags.collect()));
        let call = if request.create {
            // What failed to come up is taken down again, and its events stay to say why.
            call.change_set_type(ChangeSetType::Create).on_stack_failure(OnStackFailure::Rollback)
        } else {
            call.change_set_type(ChangeSetType::Update)
        };
        match call.send().await {
            Ok(_) => Ok(()),
            // Its name says which plan it belongs to: the one that exists is ours, asked for before a crash.
            Err(error) if code(&error) == "AlreadyExistsException" => Ok(()),
            Err(error) => {
                let subject = format!("{}/{}", request.stack, request.name);
                let refusal = port_error("cloudformation:CreateChangeSet", subject, &error);
                Err(self.final_unless_busy(&request.stack, refusal).await)
            }
        }
    }

    async fn execute_change_set(&self, stack: &str, name: &str, token: &str) -> PortResult<()> {
        let call = self.client.execute_change_set().stack_name(stack).change_set_name(name);
        let error = match call.client_request_token(token).send().await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let refusal = port_error("cloudformation:ExecuteChangeSet", format!("{stack}/{name}"), &error);
        match code(&error) {
            // A call had the token before; the change set says what became of it.
            "TokenAlreadyExistsException"
            | "InvalidChangeSetStatus"
            | "InvalidChangeSetStatusException"
            | "ChangeSetNotFound"
            | "ChangeSetNotFoundException" => self.why_not_executed(stack, name, refusal).await,
            _ => Err(self.final_unless_busy(stack, refusal).await),
        }
    }

    async fn delete_change_set(&self, stack: &str, name: &str) -> PortResult<()> {
        match self.client.delete_change_set().stack_name(stack).change_set_name(name).send().await {
            Ok(_) => Ok(()),
            Err(error)
                if matches!(code(&error), "ChangeSetNotFound" | "ChangeSetNotFoundException")
                    || is_no_stack(code(&error), words(&error)) =>
            {
                Ok(())
            }
            Err(error) => {
                Err(port_error("cloudformation:DeleteChangeSet", format!("{stack}/{name}"), &error))
            }
        }
    }

    async fn delete_stack(&self, name: &str, stands: bool, token: &str) -> PortResult<()> {
        // Only the state that the trait allows: this call would as readily delete a cluster that serves.
        let Some(view) = self.stack(name).await? else { return Ok(()) };
        match view.status {
            StackStatus::ReviewInProgress
            | StackStatus::CreateInProgress
            | StackStatus::RollbackComplete
            | StackStatus::RollbackFailed
            | StackStatus::CreateFailed
            | StackStatus::DeleteInProgress => {}
            StackStatus::DeleteComplete => return Ok(()),
            StackStatus::CreateComplete
            | StackStatus::RollbackInProgress
            | StackStatus::UpdateInProgress
            | StackStatus::UpdateCompleteCleanupInProgress
            | StackStatus::UpdateComplete
            | StackStatus::UpdateFailed
            | StackStatus::UpdateRollbackInProgress
            | StackStatus::UpdateRollbackCompleteCleanupInProgress
            | StackStatus::UpdateRollbackComplete
            | StackStatus::UpdateRollbackFailed
            | StackStatus::DeleteFailed
            | StackStatus::ImportInProgress
            | StackStatus::ImportComplete
            | StackStatus::ImportRollbackInProgress
            | StackStatus::ImportRollbackComplete
            | StackStatus::ImportRollbackFailed => {
                if !stands {
                    return Err(PortError {
                        kind: ErrorKind::Invalid,
                        operation: "cloudformation:DeleteStack",
                        subject: name.to_owned(),
                        message: format!(
                            "the stack is {:?}; only one that never came to be is deleted",
                            view.status
                        ),
                    });
                }
            }
        }
        // Without a role CloudFormation would use the one that the stack was last changed with, which an update of the installation may have
        // replaced (the API reference of DeleteStack, RoleARN).
        let call = self.client.delete_stack().stack_name(name).role_arn(&self.role_arn);
        match call.client_request_token(token).send().await {
            Ok(_) => Ok(()),
            // A call had the token before. Where the stack shows nothing of it, by a late answer perhaps, it is looked at again.
            Err(error) if code(&error) == "TokenAlreadyExistsException" => {
                let now = self.stack(name).await?.map(|view| view.status);
                let refusal = port_error("cloudformation:DeleteStack", name, &error);
                match now {
                    None | Some(StackStatus::DeleteInProgress | StackStatus::DeleteComplete) => Ok(()),
                    Some(_) => Err(PortError { kind: ErrorKind::Transient, ..refusal }),
                }
            }
            Err(error) if is_no_stack(code(&error), words(&error)) => Ok(()),
            Err(error) => {
                let refusal = port_error("cloudformation:DeleteStack", name, &error);
                Err(self.final_unless_busy(name, refusal).await)
            }
        }
    }

    async fn failures(&self, name: &str) -> PortResult<Vec<ResourceFailure>> {
        let mut events: Vec<StackEvent> = Vec::new();
        let mut token = None;
        for _ in 0..MAX_EVENT_PAGES {
            let page = self.client.describe_stack_events().stack_name(name);
            let page = match page.set_next_token(token.take()).send().await {
                Ok(page) => page,
                Err(error) if is_no_stack(code(&error), words(&error)) => return Ok(Vec::new()),
                Err(error) => return Err(port_error("cloudformation:DescribeStackEvents", name, &error)),
            };
            token = page.next_token().map(str::to_owned);
            for event in page.stack_events.unwrap_or_default() {
                let begins = failures::begins_operation(&event);
                events.push(event);
                if begins {
                    return Ok(failures::from_events(&events));
                }
            }
            if token.is_none() {
                break;
            }
        }
        Ok(failures::from_events(&events))
    }
}
