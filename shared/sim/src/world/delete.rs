//! Deleting stacks, and the remains of an update.

use std::collections::{BTreeMap, BTreeSet};

use slipway_rollout::StackStatus;

use super::error::{ApiError, ApiResult};
use super::finish::failure_text;
use super::operation::{OperationKind, Step, StepState, Work};
use super::resource::Resource;
use super::template::Policy;
use super::{Phase, ResourceStatus, World, constraints, timing};

/// One deletion step per resource; each waits for the resources that need it. `creation_failed`: the resources are deleted because
/// their creation failed, so that `RetainExceptOnCreate` retains nothing.
pub(super) fn removals(resources: Vec<(Resource, bool)>, creation_failed: bool) -> BTreeMap<String, Step> {
    let key =
        |one: &Resource| format!("{} {}", one.logical_id, one.physical_id.as_deref().unwrap_or_default());
    let all: Vec<(String, BTreeSet<String>, String)> =
        resources.iter().map(|(one, _)| (key(one), one.needs.clone(), one.logical_id.clone())).collect();
    resources
        .into_iter()
        .map(|(resource, tracked)| {
            let needed_by = all.iter().filter(|(_, needs, _)| needs.contains(&resource.logical_id));
            let needs =
                needed_by.map(|(key, _, _)| key.clone()).filter(|other| *other != key(&resource)).collect();
            let policy = if tracked { resource.deletion_policy } else { resource.update_replace_policy };
            let retain = match policy {
                Policy::Retain => true,
                Policy::RetainExceptOnCreate => !creation_failed,
                Policy::Delete | Policy::Snapshot => false,
            };
            let key = key(&resource);
            let work = Work::Remove { resource: Box::new(resource), tracked, retain };
            (key, Step { needs, work, state: StepState::Waiting, next: None, since: None })
        })
        .collect()
}

impl World {
    /// `DeleteStack`. Deleting a stack that does not exist succeeds, as in AWS.
    pub(crate) fn delete_stack(&mut self, name: &str, token: Option<&str>) -> ApiResult<()> {
        self.enter("DeleteStack")?;
        let Some(stack) = self.find(name) else { return Ok(()) };
        let (id, status) = (stack.id.clone(), stack.status);
        if self.token_was_used(token, "DeleteStack", &id)? {
            return Ok(());
        }
        match status {
            StackStatus::DeleteComplete | StackStatus::DeleteInProgress => return Ok(()),
            StackStatus::UpdateInProgress
            | StackStatus::UpdateCompleteCleanupInProgress
            | StackStatus::UpdateRollbackInProgress
            | StackStatus::UpdateRollbackCompleteCleanupInProgress
            | StackStatus::ImportInProgress
            | StackStatus::ImportRollbackInProgress => {
                let status = super::status_name(status);
                return Err(ApiError::validation(format!(
                    "Stack [{id}] cannot be deleted while in status {status}"
                )));
            }
            StackStatus::ReviewInProgress
            | StackStatus::CreateInProgress
            | StackStatus::CreateComplete
            | StackStatus::CreateFailed
            | StackStatus::RollbackInProgress
            | StackStatus::RollbackComplete
            | StackStatus::RollbackFailed
            | StackStatus::UpdateComplete
            | StackStatus::UpdateFailed
            | StackStatus::UpdateRollbackComplete
            | StackStatus::UpdateRollbackFailed
            | StackStatus::DeleteFailed
            | StackStatus::ImportComplete
            | StackStatus::ImportRollbackComplete
            | StackStatus::ImportRollbackFailed => {}
        }
        // "Stack [x] cannot be deleted while TerminationProtection is enabled": the user guide, "Protect stacks from being deleted", has a deletion
        // fail and the stack stay as it is.
        if self.stacks[&id].protected {
            return Err(ApiError::validation(format!(
                "Stack [{id}] cannot be deleted while TerminationProtection is enabled"
            )));
        }
        self.note_token(token, "DeleteStack", &id);
        if let Some(reason) = self.export_in_use(&id) {
            self.set_stack_status(&id, status, Some(reason));
            return Ok(());
        }
        if self.stacks[&id].operation.is_some() {
            self.cancel_running(&id);
        }
        self.begin(&id, OperationKind::Delete { then: StackStatus::DeleteComplete }, None, token, None);
        Ok(())
    }

    /// A person deletes the rest of a stack that could not be deleted.
    pub fn delete_by_hand(&mut self, name: &str) {
        // If that fails, the stack's status says why.
        drop(self.delete_stack(name, None));
    }

    /// AWS cancels the deletion and leaves the stack unchanged.
    fn export_in_use(&self, stack_id: &str) -> Option<String> {
        self.stacks[stack_id].outputs.values().filter_map(|output| output.export.as_deref()).find_map(
            |export| {
                let users = self.importers(export, stack_id);
                let list = match users.as_slice() {
                    [] => return None,
                    [one] => one.clone(),
                    [most @ .., last] => format!("{} and {last}", most.join(", ")),
                };
                Some(format!("Delete canceled. Cannot delete export {export} as it is in use by {list}."))
            },
        )
    }

    pub(super) fn start_remove(
        &mut self,
        stack_id: &str,
        key: &str,
        resource: Resource,
        tracked: bool,
        retain: bool,
    ) {
        if retain && resource.physical_id.is_some() {
            self.resource_event(stack_id, &resource, ResourceStatus::DeleteSkipped, None);
            self.untrack(stack_id, &resource, tracked);
            return self.set_done(stack_id, key);
        }
        if resource.physical_id.is_none() {
            self.resource_event(stack_id, &resource, ResourceStatus::DeleteComplete, None);
            self.untrack(stack_id, &resource, tracked);
            return self.set_done(stack_id, key);
        }
        let now = self.now;
        if let Some(step) = self.operation_mut(stack_id).steps.get_mut(key) {
            step.state = StepState::Running;
            step.since = Some(now);
        }
        self.group_empties(&resource);
        let duration_s = timing::delete_s(&resource.kind);
        self.note_removal(stack_id, &resource, tracked, ResourceStatus::DeleteInProgress, None);
        self.schedule_step(stack_id, key, None, duration_s);
    }

    /// The deletion of a resource has ended.
    pub(super) fn removed(&mut self, stack_id: &str, key: &str, resource: &Resource, tracked: bool) {
        let since = self.operation_mut(stack_id).steps.get(key).and_then(|step| step.since);
        let waited = since.map_or(jiff::SignedDuration::ZERO, |since| self.now.duration_since(since));
        let holds = self.group_holds(resource);
        if holds && waited < timing::DELETED_WITHIN {
            return self.schedule_step(stack_id, key, None, timing::STABILISES_S);
        }
        let injected = holds.then(|| super::apply::UNSTABLE.to_owned());
        let injected =
            injected.or_else(|| self.take_failure(Phase::Delete, &resource.logical_id, &resource.kind));
        let asked = OperationKind::Delete { then: StackStatus::DeleteComplete };
        let injected = injected.or_else(|| {
            let rolls_back = OperationKind::Delete { then: StackStatus::RollbackComplete };
            let fails = self.fleet.faults.rollback_fails;
            let struck =
                self.operation_mut(stack_id).kind == rolls_back && self.chance("rollback fails", fails);
            struck.then(|| "Internal Failure (Service: simulated, Status Code: 500)".to_owned())
        });
        let injected = injected.or_else(|| {
            let fails = self.fleet.faults.resource_fails;
            let struck = self.operation_mut(stack_id).kind == asked && self.chance("deletion fails", fails);
            struck.then(|| "Internal Failure (Service: simulated, Status Code: 500)".to_owned())
        });
        if let Some(reason) = injected.or_else(|| constraints::on_delete(self, resource)) {
            self.note_removal(stack_id, resource, tracked, ResourceStatus::DeleteFailed, Some(&reason));
            let operation = self.operation_mut(stack_id);
            operation.failures.push((resource.logical_id.clone(), "delete"));
            if let Some(step) = operation.steps.get_mut(key) {
                step.state = StepState::Failed;
            }
            return;
        }
        self.forget_thing(resource);
        self.unmade(resource);
        self.resource_event(stack_id, resource, ResourceStatus::DeleteComplete, None);
        self.untrack(stack_id, resource, tracked);
        self.set_done(stack_id, key);
    }

    fn note_removal(
        &mut self,
        stack_id: &str,
        resource: &Resource,
        tracked: bool,
        status: ResourceStatus,
        reason: Option<&str>,
    ) {
        if tracked {
            self.put(stack_id, resource.clone(), status, reason);
        } else {
            self.resource_event(stack_id, resource, status, reason);
        }
    }

    fn untrack(&mut self, stack_id: &str, resource: &Resource, tracked: bool) {
        if tracked {
            self.stack_mut(stack_id).resources.remove(&resource.logical_id);
        }
    }

    /// The deletion of every resource was tried.
    pub(super) fn deleted(&mut self, stack_id: &str, then: StackStatus) {
        let failures = self.operation_mut(stack_id).failures.clone();
        if !failures.is_empty() {
            let rolls_back = then == StackStatus::RollbackComplete;
            let status = if rolls_back { StackStatus::RollbackFailed } else { StackStatus::DeleteFailed };
            return self.end(stack_id, status, Some(failure_text(&failures)));
        }
        let now = self.now;
        let stack = self.stack_mut(stack_id);
        stack.outputs.clear();
        stack.imports.clear();
        if then == StackStatus::DeleteComplete {
            stack.deleted_at = Some(now);
        }
        self.end(stack_id, then, None);
        if then == StackStatus::DeleteComplete {
            self.stack_mut(stack_id).change_sets.clear();
        }
    }
}
