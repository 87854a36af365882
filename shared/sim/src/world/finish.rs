//! How operations end: with success, or by a rollback.

use std::collections::BTreeMap;

use slipway_rollout::StackStatus;

use super::operation::OperationKind;
use super::resource::{Output, Resource};
use super::{ExecutionStatus, OnFailure, ResourceStatus, World, physical};

impl World {
    /// Every step has ended, and no failure stopped the operation.
    pub(super) fn finish(&mut self, stack_id: &str) {
        let operation = self.operation_mut(stack_id);
        match operation.kind {
            OperationKind::Create { .. } => match self.adopt(stack_id) {
                Ok(()) => self.end(stack_id, StackStatus::CreateComplete, None),
                Err(reason) => self.failed(stack_id, Some(reason)),
            },
            OperationKind::Update { .. } => match self.adopt(stack_id) {
                Ok(()) => {
                    self.forget_removed(stack_id);
                    self.clean_up(
                        stack_id,
                        StackStatus::UpdateCompleteCleanupInProgress,
                        StackStatus::UpdateComplete,
                    );
                }
                Err(reason) => self.failed(stack_id, Some(reason)),
            },
            OperationKind::UpdateRollback => match self.adopt(stack_id) {
                Ok(()) => {
                    self.forget_removed(stack_id);
                    self.clean_up(
                        stack_id,
                        StackStatus::UpdateRollbackCompleteCleanupInProgress,
                        StackStatus::UpdateRollbackComplete,
                    );
                }
                Err(reason) => self.end(stack_id, StackStatus::UpdateRollbackFailed, Some(reason)),
            },
            // Resources that could not be cleaned up stay, as in AWS after the third try.
            OperationKind::Cleanup { then } => self.end(stack_id, then, None),
            OperationKind::Delete { then } => self.deleted(stack_id, then),
        }
    }

    /// A creation, an update or its rollback has failed: running steps are cancelled, and the stack is rolled back.
    pub(super) fn failed(&mut self, stack_id: &str, reason: Option<String>) {
        self.cancel_running(stack_id);
        let operation = self.operation_mut(stack_id);
        let (kind, token) = (operation.kind, operation.token.clone());
        let change_set = operation.change_set.clone();
        let reason = reason.unwrap_or_else(|| failure_text(&operation.failures));
        match kind {
            OperationKind::Create { on_failure } => {
                // The stack now shows the failed target, so that its template can be read.
                let target = operation.target.clone();
                self.stack_mut(stack_id).revision = target;
                match on_failure {
                    OnFailure::DoNothing => self.end(stack_id, StackStatus::CreateFailed, Some(reason)),
                    OnFailure::Rollback => {
                        let delete = OperationKind::Delete { then: StackStatus::RollbackComplete };
                        self.install(stack_id, delete, None, token, change_set);
                        let reason = format!("{} Rollback requested by user.", reason.trim_end());
                        self.set_stack_status(stack_id, StackStatus::RollbackInProgress, Some(reason));
                    }
                    OnFailure::Delete => {
                        let delete = OperationKind::Delete { then: StackStatus::DeleteComplete };
                        self.install(stack_id, delete, None, token, change_set);
                        let reason = format!("{} Delete requested by user.", reason.trim_end());
                        self.set_stack_status(stack_id, StackStatus::DeleteInProgress, Some(reason));
                    }
                }
            }
            OperationKind::Update { roll_back: false } => {
                self.end(stack_id, StackStatus::UpdateFailed, Some(reason))
            }
            OperationKind::Update { roll_back: true } => {
                self.switch_back(stack_id);
                let before = self.stacks[stack_id].revision.clone();
                let snapshot = std::mem::take(&mut self.operation_mut(stack_id).before);
                self.install(stack_id, OperationKind::UpdateRollback, before, token, change_set);
                self.operation_mut(stack_id).before = snapshot;
                self.set_stack_status(stack_id, StackStatus::UpdateRollbackInProgress, Some(reason));
            }
            OperationKind::UpdateRollback => {
                self.end(stack_id, StackStatus::UpdateRollbackFailed, Some(reason))
            }
            OperationKind::Cleanup { .. } | OperationKind::Delete { .. } => {
                unreachable!("deletions go on with the rest and end in World::finish")
            }
        }
    }

    /// If an update had made a new resource, the stack gets the old resource back, and the new one is deleted later.
    fn switch_back(&mut self, stack_id: &str) {
        let operation = self.operation_mut(stack_id);
        let before = operation.before.clone();
        let mut restored: Vec<Resource> = Vec::new();
        let stack = self.stack_mut(stack_id);
        let mut new_ones: Vec<Resource> = Vec::new();
        for (id, old) in before {
            let Some(current) = stack.resources.get(&id) else { continue };
            if !physical::is_same(current, &old) {
                new_ones.push(current.clone());
                restored.push(old);
            }
        }
        let operation = self.operation_mut(stack_id);
        operation.leftovers.retain(|leftover| !restored.iter().any(|one| physical::is_same(one, leftover)));
        operation.leftovers.extend(new_ones);
        for old in restored {
            self.put(stack_id, old, ResourceStatus::UpdateComplete, None);
        }
    }

    /// The stack takes over the target, with outputs and exports, if these are valid.
    fn adopt(&mut self, stack_id: &str) -> Result<(), String> {
        let exports = self.exports(stack_id);
        let stack = &self.stacks[stack_id];
        let operation = stack.operation.as_ref().expect("only called while an operation runs");
        let target = operation.target.clone().expect("forward operations have a target");
        let mut imported = operation.imported.clone();
        let scope = self.scope(stack, &target, &exports);
        let mut outputs = BTreeMap::new();
        for (name, declared) in &target.template.outputs {
            if scope.applies(declared.condition.as_ref())? {
                let (value, export) = scope.output(declared)?;
                outputs.insert(
                    name.clone(),
                    Output { value, description: declared.description.clone(), export },
                );
            }
        }
        imported.extend(scope.imported.into_inner());
        self.check_exports(stack_id, &outputs)?;
        let stack = self.stack_mut(stack_id);
        stack.outputs = outputs;
        stack.imports = imported;
        stack.revision = Some(target);
        Ok(())
    }

    fn check_exports(&self, stack_id: &str, outputs: &BTreeMap<String, Output>) -> Result<(), String> {
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for output in outputs.values() {
            let Some(name) = output.export.as_deref() else { continue };
            let others = self.all_stacks().filter(|stack| !stack.is_deleted() && stack.id != stack_id);
            for other in others {
                if other.outputs.values().any(|one| one.export.as_deref() == Some(name)) {
                    return Err(format!(
                        "Export with name {name} is already exported by stack {}.",
                        other.name
                    ));
                }
            }
            if seen.insert(name, &output.value).is_some() {
                return Err(format!("Duplicate export name {name} in the Outputs of the template."));
            }
        }
        for output in self.stacks[stack_id].outputs.values() {
            let Some(name) = output.export.as_deref() else { continue };
            let users = self.importers(name, stack_id);
            if users.is_empty() {
                continue;
            }
            let verb = match seen.get(name) {
                None => "deleted",
                Some(value) if *value != output.value => "updated",
                Some(_) => continue,
            };
            return Err(format!("Export {name} cannot be {verb} as it is in use by {}", users.join(", ")));
        }
        Ok(())
    }

    /// Resources that the target no longer has are deleted in the cleanup.
    fn forget_removed(&mut self, stack_id: &str) {
        let operation = self.operation_mut(stack_id);
        let kept: Vec<String> = operation.steps.keys().cloned().collect();
        let gone: Vec<Resource> = self.stacks[stack_id]
            .resources
            .values()
            .filter(|one| !kept.contains(&one.logical_id))
            .cloned()
            .collect();
        self.operation_mut(stack_id).leftovers.extend(gone);
    }

    fn clean_up(&mut self, stack_id: &str, status: StackStatus, then: StackStatus) {
        let operation = self.operation_mut(stack_id);
        let (token, change_set) = (operation.token.clone(), operation.change_set.clone());
        self.install(stack_id, OperationKind::Cleanup { then }, None, token, change_set);
        self.set_stack_status(stack_id, status, None);
    }

    /// The operation is over.
    pub(super) fn end(&mut self, stack_id: &str, status: StackStatus, reason: Option<String>) {
        self.set_stack_status(stack_id, status, reason);
        let Some(operation) = self.stack_mut(stack_id).operation.take() else { return };
        let well = matches!(status, StackStatus::CreateComplete | StackStatus::UpdateComplete);
        let outcome = if well { ExecutionStatus::ExecuteComplete } else { ExecutionStatus::ExecuteFailed };
        let now = self.now;
        let change_set = operation.change_set.and_then(|id| self.change_set_mut(stack_id, &id));
        if let Some(change_set) = change_set
            && change_set.execution_status == ExecutionStatus::ExecuteInProgress
        {
            change_set.turns(now, change_set.status, outcome);
        }
    }
}

/// `The following resource(s) failed to create: [A, B]. `
pub(super) fn failure_text(failures: &[(String, &'static str)]) -> String {
    let mut text = String::new();
    for verb in ["create", "update", "delete"] {
        let ids: Vec<&str> =
            failures.iter().filter(|(_, failed)| *failed == verb).map(|(id, _)| id.as_str()).collect();
        if !ids.is_empty() {
            text.push_str(&format!("The following resource(s) failed to {verb}: [{}]. ", ids.join(", ")));
        }
    }
    text
}
