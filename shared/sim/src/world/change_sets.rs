//! Change sets: creating, describing, executing and deleting them.

use slipway_rollout::StackStatus;

use super::change_set::{ChangeSet, ExecutionStatus, NO_CHANGES, NO_UPDATES};
use super::changes::{Change, changes};
use super::error::{ApiError, ApiResult};
use super::operation::OperationKind;
use super::resource::Revision;
use super::scope::StackScope;
use super::stack::Stack;
use super::task::Task;
use super::{ChangeSetKind, OnFailure, StackRequest, World, limits, timing};

impl World {
    /// `CreateChangeSet`. Returns the ids of the change set and of its stack.
    pub(crate) fn create_change_set(
        &mut self,
        name: &str,
        kind: ChangeSetKind,
        description: Option<String>,
        request: &StackRequest,
    ) -> ApiResult<(String, String)> {
        self.enter("CreateChangeSet")?;
        limits::of_name("changeSetName", name)?;
        let existing = self.find(&request.stack_name);
        if existing.is_none() {
            limits::of_name("stackName", &request.stack_name)?;
        }
        if let Some(change_set) =
            existing.and_then(|stack| stack.change_sets.iter().find(|one| one.name == name))
        {
            let stack_id = existing.map(|stack| stack.id.clone()).unwrap_or_default();
            if change_set.token.is_some() && change_set.token == request.token {
                return Ok((change_set.id.clone(), stack_id));
            }
            return Err(ApiError::already_exists(format!(
                "ChangeSet {name} cannot be created due to a mismatch with existing attribute: a change set of that name already exists"
            )));
        }
        match (kind, existing) {
            (ChangeSetKind::Create, Some(stack)) if stack.status != StackStatus::ReviewInProgress => {
                return Err(ApiError::validation(format!(
                    "Stack [{}] already exists and cannot be created again with the changeSet [{name}].",
                    stack.name
                )));
            }
            (ChangeSetKind::Update, None) => {
                return Err(ApiError::validation(format!("Stack [{}] does not exist", request.stack_name)));
            }
            (ChangeSetKind::Update, Some(stack)) => check_updatable(stack)?,
            (ChangeSetKind::Create, Some(_) | None) => {}
        }
        let target = self.revision(request, existing.and_then(|stack| stack.revision.as_ref()))?;
        if kind == ChangeSetKind::Update && request.on_failure == Some(OnFailure::Delete) {
            return Err(ApiError::validation(
                "OnStackFailure DELETE is not valid for change sets of type UPDATE",
            ));
        }
        let stack_id = match existing {
            Some(stack) => stack.id.clone(),
            None => self.add_stack(&request.stack_name, StackStatus::ReviewInProgress),
        };
        let uuid = self.uuid();
        let id = self.arn(&format!("changeSet/{name}/{uuid}"));
        let resources = target.template.resources.len() as f64;
        let created_at = self.now;
        self.stack_mut(&stack_id).change_sets.push(ChangeSet {
            id: id.clone(),
            name: name.to_owned(),
            kind,
            description,
            status: "CREATE_PENDING",
            reason: None,
            execution_status: ExecutionStatus::Unavailable,
            created_at,
            target,
            role_arn: request.role_arn.clone(),
            on_failure: request.on_failure,
            changes: Vec::new(),
            token: request.token.clone(),
            past: vec![(created_at, "CREATE_PENDING", ExecutionStatus::Unavailable)],
        });
        let wait = timing::CHANGE_SET_S + timing::CHANGE_SET_PER_RESOURCE_S * resources;
        self.after_s(1.0_f64.min(wait), Task::ChangeSetBegins { stack: stack_id.clone(), id: id.clone() });
        self.after_s(wait, Task::ChangeSetMade { stack: stack_id.clone(), id: id.clone() });
        Ok((id, stack_id))
    }

    /// A change set leaves `CREATE_PENDING`.
    pub(super) fn change_set_begins(&mut self, stack_id: &str, id: &str) {
        let now = self.now;
        if let Some(change_set) = self.change_set_mut(stack_id, id) {
            change_set.turns(now, "CREATE_IN_PROGRESS", change_set.execution_status);
        }
    }

    /// The changes of a change set are computed.
    pub(super) fn change_set_made(&mut self, stack_id: &str, id: &str) {
        let Some(stack) = self.stacks.get(stack_id) else { return };
        let Some(change_set) = stack.change_sets.iter().find(|one| one.id == id) else { return };
        let outcome = self.work_out(stack, &change_set.target);
        let now = self.now;
        let Some(change_set) = self.change_set_mut(stack_id, id) else { return };
        match outcome {
            Ok(changes) => {
                change_set.changes = changes;
                let is_new = change_set.execution_status == ExecutionStatus::Unavailable;
                let execution = if is_new { ExecutionStatus::Available } else { change_set.execution_status };
                change_set.turns(now, "CREATE_COMPLETE", execution);
            }
            Err(reason) => {
                change_set.turns(now, "FAILED", change_set.execution_status);
                change_set.reason = Some(reason);
            }
        }
    }

    /// The changes that `target` would make to `stack`.
    pub(super) fn work_out(&self, stack: &Stack, target: &Revision) -> Result<Vec<Change>, String> {
        if stack.revision.as_ref().is_some_and(|old| {
            old.template.body == target.template.body
                && old.parameters == target.parameters
                && old.tags == target.tags
        }) {
            return Err(NO_CHANGES.to_owned());
        }
        let exports = self.exports(&stack.id);
        let mut scope = StackScope {
            config: &self.config,
            stack_name: &stack.name,
            stack_id: &stack.id,
            revision: target,
            resources: Some(&stack.resources),
            renewed: Default::default(),
            touched: Default::default(),
            exports: Some(&exports),
            imported: Default::default(),
        };
        let found = changes(&mut scope, stack.revision.as_ref(), &stack.resources)?;
        for output in target.template.outputs.values() {
            if scope.applies(output.condition.as_ref())? {
                scope.output(output)?;
            }
        }
        let outputs_differ =
            stack.revision.as_ref().is_none_or(|old| old.template.outputs != target.template.outputs);
        let tags_differ = stack.revision.as_ref().is_none_or(|old| old.tags != target.tags);
        if found.is_empty() && !outputs_differ && !tags_differ {
            return Err(NO_UPDATES.to_owned());
        }
        Ok(found)
    }

    /// `ExecuteChangeSet`.
    pub(crate) fn execute_change_set(
        &mut self,
        stack: Option<&str>,
        name: &str,
        token: Option<&str>,
    ) -> ApiResult<()> {
        self.enter("ExecuteChangeSet")?;
        let (stack_id, id) = self.locate_change_set(stack, name)?;
        if self.token_was_used(token, "ExecuteChangeSet", &id)? {
            return Ok(());
        }
        let (stack, change_set) = self.stack_and_change_set(&stack_id, &id);
        if change_set.status != "CREATE_COMPLETE" {
            return Err(ApiError::invalid_change_set_status(format!(
                "ChangeSet [{id}] cannot be executed in its current status of [{}]",
                change_set.status
            )));
        }
        if change_set.execution_status != ExecutionStatus::Available {
            return Err(ApiError::invalid_change_set_status(format!(
                "ChangeSet [{id}] cannot be executed in its current execution status of [{}]",
                change_set.execution_status.name()
            )));
        }
        if change_set.kind == ChangeSetKind::Update {
            check_updatable(stack)?;
        }
        let (target, role, on_failure, kind) =
            (change_set.target.clone(), change_set.role_arn.clone(), change_set.on_failure, change_set.kind);
        self.note_token(token, "ExecuteChangeSet", &id);
        let now = self.now;
        let stack = self.stack_mut(&stack_id);
        stack.change_sets.retain(|one| one.id == id);
        let change_set = &mut stack.change_sets[0];
        change_set.turns(now, change_set.status, ExecutionStatus::ExecuteInProgress);
        stack.change_set_id = Some(id.clone());
        stack.role_arn = role.or_else(|| stack.role_arn.take());
        let operation = match kind {
            ChangeSetKind::Create => {
                OperationKind::Create { on_failure: on_failure.unwrap_or(OnFailure::Rollback) }
            }
            ChangeSetKind::Update => {
                OperationKind::Update { roll_back: on_failure != Some(OnFailure::DoNothing) }
            }
        };
        self.begin(&stack_id, operation, Some(target), token, Some(id));
        Ok(())
    }

    /// `DeleteChangeSet`.
    pub(crate) fn delete_change_set(&mut self, stack: Option<&str>, name: &str) -> ApiResult<()> {
        self.enter("DeleteChangeSet")?;
        let (stack_id, id) = match self.locate_change_set(stack, name) {
            Ok(found) => found,
            // As in AWS, deleting a missing change set of an existing stack succeeds.
            Err(_) if stack.is_some_and(|stack| self.find(stack).is_some()) => return Ok(()),
            Err(error) => return Err(error),
        };
        let (_, change_set) = self.stack_and_change_set(&stack_id, &id);
        if change_set.execution_status == ExecutionStatus::ExecuteInProgress {
            return Err(ApiError::invalid_change_set_status(format!(
                "ChangeSet [{id}] cannot be deleted in its current execution status of [EXECUTE_IN_PROGRESS]"
            )));
        }
        self.stack_mut(&stack_id).change_sets.retain(|one| one.id != id);
        Ok(())
    }

    /// `DescribeChangeSet`. Returns the stack and the change set.
    pub(crate) fn change_set(&mut self, stack: Option<&str>, name: &str) -> ApiResult<(&Stack, &ChangeSet)> {
        self.enter("DescribeChangeSet")?;
        let (stack_id, id) = self.locate_change_set(stack, name)?;
        Ok(self.stack_and_change_set(&stack_id, &id))
    }

    /// `DescribeEvents` of a change set.
    pub(crate) fn change_set_events(&mut self, arn: &str) -> ApiResult<()> {
        self.enter("DescribeEvents")?;
        self.locate_change_set(None, arn).map(|_| ())
    }

    /// `ListChangeSets`.
    pub(crate) fn change_sets(&mut self, stack: &str) -> ApiResult<(&Stack, &[ChangeSet])> {
        self.enter("ListChangeSets")?;
        let found = self.find(stack);
        let stack = found.ok_or_else(|| ApiError::validation(format!("Stack [{stack}] does not exist")))?;
        Ok((stack, &stack.change_sets))
    }

    /// Marks the other change sets of a stack as obsolete after something else has changed the stack.
    pub(super) fn make_obsolete(&mut self, stack_id: &str, but: Option<&str>) {
        let now = self.now;
        for change_set in &mut self.stack_mut(stack_id).change_sets {
            let open = matches!(
                change_set.execution_status,
                ExecutionStatus::Available | ExecutionStatus::Unavailable
            );
            if open && change_set.status != "FAILED" && Some(change_set.id.as_str()) != but {
                change_set.turns(now, change_set.status, ExecutionStatus::Obsolete);
            }
        }
    }

    pub(super) fn change_set_mut(&mut self, stack_id: &str, id: &str) -> Option<&mut ChangeSet> {
        self.stack_mut(stack_id).change_sets.iter_mut().find(|one| one.id == id)
    }

    fn stack_and_change_set(&self, stack_id: &str, id: &str) -> (&Stack, &ChangeSet) {
        let stack: &Stack = &self.stacks[stack_id];
        let change_set = stack.change_sets.iter().find(|one| one.id == id);
        (stack, change_set.expect("located right before"))
    }

    fn locate_change_set(&self, stack: Option<&str>, name: &str) -> ApiResult<(String, String)> {
        let by_arn = name.starts_with("arn:");
        if stack.is_none() && !by_arn {
            return Err(ApiError::validation(
                "StackName must be specified if ChangeSetName is not specified as an ARN.",
            ));
        }
        let mut stacks: Vec<&Stack> = Vec::new();
        match stack {
            None => stacks.extend(self.all_stacks()),
            Some(stack) => {
                let found = self.find(stack).or_else(|| self.all_stacks().find(|one| one.name == stack));
                stacks.push(
                    found.ok_or_else(|| ApiError::validation(format!("Stack [{stack}] does not exist")))?,
                );
            }
        }
        let hit = |stack: &&Stack| {
            stack.change_sets.iter().find(|one| one.name == name || one.id == name).map(|one| one.id.clone())
        };
        stacks
            .iter()
            .find_map(|stack| Some((stack.id.clone(), hit(stack)?)))
            .ok_or_else(|| ApiError::change_set_not_found(name))
    }
}

/// Refuses an update of a stack that is busy or broken.
pub(super) fn check_updatable(stack: &Stack) -> ApiResult<()> {
    if stack.is_stable() {
        return Ok(());
    }
    let status = super::status_name(stack.status);
    Err(ApiError::validation(format!("Stack:{} is in {status} state and can not be updated.", stack.id)))
}
