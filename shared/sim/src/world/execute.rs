//! Operations on a stack: sets of steps that wait for each other and run in parallel.

use std::collections::{BTreeMap, BTreeSet};

use slipway_rollout::StackStatus;

use super::graph;
use super::operation::{Operation, OperationKind, Step, StepState, Work};
use super::resource::{Resource, Revision};
use super::scope::StackScope;
use super::stack::Stack;
use super::task::Task;
use super::{ResourceStatus, World, physical, timing};

impl World {
    pub(super) fn run(&mut self, task: Task) {
        match task {
            Task::ChangeSetBegins { stack, id } => self.change_set_begins(&stack, &id),
            Task::ChangeSetMade { stack, id } => self.change_set_made(&stack, &id),
            Task::Pump { stack, operation } => {
                if self.is_current(&stack, operation) {
                    self.pump(&stack);
                }
            }
            Task::Initiated { stack, operation, step } => {
                if self.is_current(&stack, operation) {
                    self.initiated(&stack, &step);
                }
            }
            Task::Finished { stack, operation, step } => {
                if self.is_current(&stack, operation) {
                    self.finished(&stack, &step);
                }
            }
            Task::DriftDetected { detection } => self.drift_detected(&detection),
            Task::Fleet(task) => self.run_fleet(task),
            Task::Cluster(task) => self.run_cluster(task),
            Task::Command(task) => self.run_command(task),
            Task::Fire { group, name, made } => self.fire(group, name, made),
        }
    }

    fn is_current(&self, stack: &str, number: u64) -> bool {
        self.stacks[stack].operation.as_ref().is_some_and(|operation| operation.number == number)
    }

    pub(super) fn operation_mut(&mut self, stack_id: &str) -> &mut Operation {
        self.stack_mut(stack_id).operation.as_mut().expect("only called while an operation runs")
    }

    /// Begins an operation: the stack's status changes at once, and the first step starts a little later.
    pub(super) fn begin(
        &mut self,
        stack_id: &str,
        kind: OperationKind,
        target: Option<Revision>,
        token: Option<&str>,
        change_set: Option<String>,
    ) {
        let (status, reason) = match kind {
            OperationKind::Create { .. } => (StackStatus::CreateInProgress, "User Initiated"),
            OperationKind::Update { .. } => (StackStatus::UpdateInProgress, "User Initiated"),
            OperationKind::Delete { .. } => (StackStatus::DeleteInProgress, "User Initiated"),
            OperationKind::UpdateRollback | OperationKind::Cleanup { .. } => {
                unreachable!("these follow an operation: see World::follow")
            }
        };
        self.make_obsolete(stack_id, change_set.as_deref());
        self.install(stack_id, kind, target, token.map(str::to_owned), change_set);
        let now = self.now;
        let stack = self.stack_mut(stack_id);
        if matches!(kind, OperationKind::Update { .. }) {
            stack.updated_at = Some(now);
        }
        self.set_stack_status(stack_id, status, Some(reason.to_owned()));
    }

    /// Stores an operation and schedules its first step.
    pub(super) fn install(
        &mut self,
        stack_id: &str,
        kind: OperationKind,
        target: Option<Revision>,
        token: Option<String>,
        change_set: Option<String>,
    ) {
        self.sequence += 1;
        let number = self.sequence;
        let stack = self.stack_mut(stack_id);
        let leftovers = stack.operation.take().map(|old| old.leftovers).unwrap_or_default();
        let before = stack.resources.clone();
        stack.operation = Some(Operation {
            number,
            kind,
            token,
            target,
            steps: BTreeMap::new(),
            failures: Vec::new(),
            before,
            leftovers,
            imported: BTreeSet::new(),
            change_set,
        });
        self.after_s(timing::BEGIN_S, Task::Pump { stack: stack_id.to_owned(), operation: number });
    }

    /// Makes the steps on the first call, and starts every step that waits for nothing any more.
    pub(super) fn pump(&mut self, stack_id: &str) {
        if self.operation_mut(stack_id).steps.is_empty() {
            match self.lay_out(stack_id) {
                Ok(steps) => self.operation_mut(stack_id).steps = steps,
                Err(reason) => return self.failed(stack_id, Some(reason)),
            }
        }
        loop {
            let operation = self.operation_mut(stack_id);
            let steps = &operation.steps;
            let done = |need: &String| steps.get(need).is_none_or(|step| step.state == StepState::Done);
            let ready = steps
                .iter()
                .find(|(_, step)| step.state == StepState::Waiting && step.needs.iter().all(done))
                .map(|(key, _)| key.clone());
            let Some(key) = ready else { break };
            self.start(stack_id, &key);
            if self.gave_up(stack_id) {
                return self.failed(stack_id, None);
            }
        }
        let running =
            self.operation_mut(stack_id).steps.values().any(|step| step.state == StepState::Running);
        if !running {
            self.finish(stack_id);
        }
    }

    /// A failed creation or update stops at once; a deletion continues with the other resources.
    fn gave_up(&mut self, stack_id: &str) -> bool {
        let operation = self.operation_mut(stack_id);
        let forward = match operation.kind {
            OperationKind::Create { .. } | OperationKind::Update { .. } | OperationKind::UpdateRollback => {
                true
            }
            OperationKind::Cleanup { .. } | OperationKind::Delete { .. } => false,
        };
        forward && !operation.failures.is_empty()
    }

    fn lay_out(&mut self, stack_id: &str) -> Result<BTreeMap<String, Step>, String> {
        let stack = &self.stacks[stack_id];
        let operation = stack.operation.as_ref().expect("only called while an operation runs");
        let step = |needs, work| Step { needs, work, state: StepState::Waiting, next: None, since: None };
        match operation.kind {
            OperationKind::Create { .. } | OperationKind::Update { .. } | OperationKind::UpdateRollback => {
                let target = operation.target.as_ref().expect("forward operations have a target");
                let present = self.scope(stack, target, &BTreeMap::new()).present()?;
                let dependencies = graph::dependencies(&target.template);
                Ok(dependencies
                    .into_iter()
                    .filter(|(id, _)| present.contains(id))
                    .map(|(id, needs)| (id, step(needs, Work::Apply)))
                    .collect())
            }
            OperationKind::Cleanup { .. } => {
                let tracked = |resource: &Resource| {
                    stack
                        .resources
                        .get(&resource.logical_id)
                        .is_some_and(|one| physical::is_same(one, resource))
                };
                let all: Vec<(Resource, bool)> = operation
                    .leftovers
                    .iter()
                    .map(|resource| (resource.clone(), tracked(resource)))
                    .collect();
                Ok(super::delete::removals(all, false))
            }
            OperationKind::Delete { then } => {
                let all = stack.resources.values().map(|resource| (resource.clone(), true)).collect();
                Ok(super::delete::removals(all, then == StackStatus::RollbackComplete))
            }
        }
    }

    pub(super) fn scope<'a>(
        &'a self,
        stack: &'a Stack,
        revision: &'a Revision,
        exports: &'a BTreeMap<String, String>,
    ) -> StackScope<'a> {
        StackScope {
            config: &self.config,
            stack_name: &stack.name,
            stack_id: &stack.id,
            revision,
            resources: Some(&stack.resources),
            renewed: BTreeSet::new(),
            touched: BTreeSet::new(),
            exports: Some(exports),
            imported: Default::default(),
        }
    }

    fn start(&mut self, stack_id: &str, key: &str) {
        match self.operation_mut(stack_id).steps[key].work.clone() {
            Work::Apply => self.start_apply(stack_id, key),
            Work::Remove { resource, tracked, retain } => {
                self.start_remove(stack_id, key, *resource, tracked, retain)
            }
        }
    }

    /// Stores a resource in its stack with a new status, and publishes the status.
    pub(super) fn put(
        &mut self,
        stack_id: &str,
        mut resource: Resource,
        status: ResourceStatus,
        reason: Option<&str>,
    ) {
        resource.status = status;
        resource.reason = reason.map(str::to_owned);
        resource.changed_at = self.now;
        self.resource_event(stack_id, &resource, status, reason);
        self.stack_mut(stack_id).resources.insert(resource.logical_id.clone(), resource);
    }

    pub(super) fn step_failed(&mut self, stack_id: &str, key: &str, reason: &str) {
        let created = !self.operation_mut(stack_id).before.contains_key(key);
        let (status, verb) = if created {
            (ResourceStatus::CreateFailed, "create")
        } else {
            (ResourceStatus::UpdateFailed, "update")
        };
        let operation = self.operation_mut(stack_id);
        operation.failures.push((key.to_owned(), verb));
        if let Some(step) = operation.steps.get_mut(key) {
            step.state = StepState::Failed;
        }
        let resource = self.stacks[stack_id].resources[key].clone();
        self.put(stack_id, resource, status, Some(reason));
    }

    /// Cancels all running steps.
    pub(super) fn cancel_running(&mut self, stack_id: &str) {
        let running: Vec<String> = self
            .operation_mut(stack_id)
            .steps
            .iter()
            .filter(|(_, step)| step.state == StepState::Running)
            .map(|(key, _)| key.clone())
            .collect();
        for key in running {
            let created = !self.operation_mut(stack_id).before.contains_key(&key);
            let words = if created { "Resource creation cancelled" } else { "Resource update cancelled" };
            self.step_failed(stack_id, &key, words);
        }
    }

    pub(super) fn set_running(&mut self, stack_id: &str, key: &str, next: Resource) {
        if let Some(step) = self.operation_mut(stack_id).steps.get_mut(key) {
            step.state = StepState::Running;
            step.next = Some(Box::new(next));
        }
    }

    pub(super) fn set_done(&mut self, stack_id: &str, key: &str) {
        if let Some(step) = self.operation_mut(stack_id).steps.get_mut(key) {
            step.state = StepState::Done;
        }
    }

    pub(super) fn schedule_step(
        &mut self,
        stack_id: &str,
        key: &str,
        initiate_s: Option<f64>,
        duration_s: f64,
    ) {
        let operation = self.operation_mut(stack_id).number;
        let (stack, step) = (stack_id.to_owned(), key.to_owned());
        if let Some(seconds) = initiate_s {
            self.after_s(seconds, Task::Initiated { stack: stack.clone(), operation, step: step.clone() });
        }
        self.after_s(duration_s, Task::Finished { stack, operation, step });
    }
}
