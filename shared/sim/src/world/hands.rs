//! What other users do to stacks: people at a console, or other pipelines.

use std::collections::BTreeMap;
use std::sync::Arc;

use slipway_rollout::StackStatus;

use super::error::{ApiError, ApiResult};
use super::operation::OperationKind;
use super::resource::{Output, Resource, ResourceStatus, Revision};
use super::scheduler::ScheduleRequest;
use super::template::{Policy, Template};
use super::{ExecutionStatus, StackRequest, TemplateSource, World};

/// A tag that somebody adds or removes by hand.
const TAG: &str = "changed-by-hand";

/// A stack that somebody deployed by other means. Calls describe it; nothing that is in it happens here.
#[derive(Debug, Clone, Default)]
pub struct ForeignStack {
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
    /// Its outputs.
    pub outputs: BTreeMap<String, String>,
    /// Type and physical id of each resource, by logical id.
    pub resources: BTreeMap<String, (String, String)>,
}

impl World {
    /// From now on there is this stack, with this status. One of that name changes to it.
    pub fn stand_stack(&mut self, name: &str, status: StackStatus, of: &ForeignStack) {
        let known = self.live(name).map(|stack| stack.id.clone());
        let id = known.unwrap_or_else(|| self.add_stack(name, status));
        let now = self.now;
        let resource = |(logical_id, (kind, physical_id)): (&String, &(String, String))| Resource {
            logical_id: logical_id.clone(),
            kind: kind.clone(),
            physical_id: Some(physical_id.clone()),
            status: ResourceStatus::CreateComplete,
            reason: None,
            changed_at: now,
            properties: serde_json::Value::Null,
            attributes: BTreeMap::new(),
            metadata: None,
            stack_tags: BTreeMap::new(),
            deletion_policy: Policy::Retain,
            update_replace_policy: Policy::Retain,
            needs: Default::default(),
        };
        let output = |value: &String| Output { value: value.clone(), description: None, export: None };
        let template = Template {
            body: String::new(),
            description: None,
            parameters: BTreeMap::new(),
            conditions: BTreeMap::new(),
            resources: BTreeMap::new(),
            outputs: BTreeMap::new(),
        };
        let stack = self.stack_mut(&id);
        stack.status = status;
        stack.revision = Some(Revision {
            template: Arc::new(template),
            parameters: of.parameters.clone(),
            tags: BTreeMap::new(),
            capabilities: Default::default(),
        });
        stack.outputs = of.outputs.iter().map(|(name, value)| (name.clone(), output(value))).collect();
        stack.resources = of.resources.iter().map(|one| (one.0.clone(), resource(one))).collect();
    }

    /// From now on there is this schedule of the default group, enabled or not. It does not fire.
    pub fn stand_schedule(&mut self, name: &str, expression: &str, enabled: bool) {
        self.insert_schedule(ScheduleRequest {
            name: name.to_owned(),
            expression: expression.to_owned(),
            enabled,
            ..ScheduleRequest::default()
        });
    }

    /// Somebody deletes a schedule of the default group.
    pub fn delete_schedule_by_hand(&mut self, name: &str) {
        self.record(format!("somebody deletes the schedule {name}"));
        // One that is not there is deleted already.
        drop(self.delete_schedule(None, name));
    }

    /// Somebody updates an existing stack. Until the update is done, the stack accepts no other update ("is in UPDATE_IN_PROGRESS
    /// state and can not be updated"), and earlier change sets are obsolete.
    pub fn change_by_hand(&mut self, name: &str) {
        let Some(stack) = self.live(name).filter(|stack| stack.is_stable()) else { return };
        let id = stack.id.clone();
        let Some(mut revision) = stack.revision.clone() else { return };
        if revision.tags.remove(TAG).is_none() {
            revision.tags.insert(TAG.to_owned(), "yes".to_owned());
        }
        self.record(format!("somebody changes {name} by hand"));
        self.begin(&id, OperationKind::Update { roll_back: true }, Some(revision), None, None);
    }

    /// Somebody updates an existing stack with another template, and leaves its tags.
    ///
    /// # Errors
    /// Those of the API.
    pub fn deploy_by_hand(&mut self, name: &str, body: &str) -> ApiResult<()> {
        self.record(format!("somebody deploys another template as {name}"));
        let request = StackRequest {
            stack_name: name.to_owned(),
            template: Some(TemplateSource { body: body.to_owned(), from_url: true }),
            capabilities: ["CAPABILITY_NAMED_IAM".to_owned()].into(),
            ..StackRequest::default()
        };
        self.update_stack(&request).map(drop)
    }

    /// Somebody deletes the change sets of a stack that were not executed.
    pub fn delete_change_sets_by_hand(&mut self, name: &str) {
        let Some(id) = self.live(name).map(|stack| stack.id.clone()) else { return };
        let open = |status: ExecutionStatus| {
            matches!(
                status,
                ExecutionStatus::Available | ExecutionStatus::Unavailable | ExecutionStatus::Obsolete
            )
        };
        let stack = self.stack_mut(&id);
        let before = stack.change_sets.len();
        stack.change_sets.retain(|one| !open(one.execution_status));
        if stack.change_sets.len() < before {
            self.record(format!("somebody deletes the change sets of {name}"));
        }
    }

    /// `ContinueUpdateRollback`: "Continues rolling back a stack from `UPDATE_ROLLBACK_FAILED` to `UPDATE_ROLLBACK_COMPLETE` state"
    /// (botocore's service model), once the cause of the failure was fixed.
    pub(crate) fn continue_update_rollback(&mut self, name: &str, token: Option<&str>) -> ApiResult<()> {
        self.enter("ContinueUpdateRollback")?;
        let Some(stack) = self.find(name) else {
            return Err(ApiError::validation(format!("Stack [{name}] does not exist")));
        };
        let (id, status, before) = (stack.id.clone(), stack.status, stack.revision.clone());
        if self.token_was_used(token, "ContinueUpdateRollback", &id)? {
            return Ok(());
        }
        if status != StackStatus::UpdateRollbackFailed {
            let status = super::status_name(status);
            return Err(ApiError::validation(format!(
                "Stack:{id} is in {status} state and can not continue rolling back."
            )));
        }
        self.note_token(token, "ContinueUpdateRollback", &id);
        self.install(&id, OperationKind::UpdateRollback, before, token.map(str::to_owned), None);
        self.set_stack_status(&id, StackStatus::UpdateRollbackInProgress, Some("User Initiated".to_owned()));
        Ok(())
    }

    /// Somebody repairs stacks whose rollback failed: the rollback of an update is continued, and a stack that was never created is
    /// deleted.
    pub fn mend_by_hand(&mut self) {
        for (name, status) in self.stacks_there() {
            match status.as_str() {
                "UPDATE_ROLLBACK_FAILED" => {
                    self.record(format!("somebody continues the rollback of {name}"));
                    // If it fails again, somebody repairs it again later.
                    drop(self.continue_update_rollback(&name, None));
                }
                "ROLLBACK_FAILED" => {
                    self.record(format!("somebody deletes {name}, which could not go back"));
                    self.delete_by_hand(&name);
                }
                _ => {}
            }
        }
    }
}
