//! Operations on a stack: each a set of steps that wait for each other, taken side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use slipway_core::rollout::StackStatus;

use super::changes::differences;
use super::graph;
use super::scope::StackScope;
use super::stack::{Resource, Revision, Stack};
use super::{OnFailure, Phase, ResourceStatus, World, constraints, physical, timing};
use crate::schema::{Recreation, check, resource_type};

/// Something that happens at a time.
#[derive(Debug, Clone)]
pub(super) enum Task {
    ChangeSetBegins {
        stack: String,
        id: String,
    },
    ChangeSetMade {
        stack: String,
        id: String,
    },
    /// An operation takes its first steps.
    Pump {
        stack: String,
        operation: u64,
    },
    /// A resource has been asked for: it has an id now.
    Initiated {
        stack: String,
        operation: u64,
        step: String,
    },
    /// A step has come to its end.
    Finished {
        stack: String,
        operation: u64,
        step: String,
    },
    /// A schedule fires.
    Fire {
        group: String,
        name: String,
        made: u64,
    },
}

/// What is being done to a stack.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(super) number: u64,
    pub(super) kind: OperationKind,
    pub(super) token: Option<String>,
    /// What the stack is to be; `None` where things are only deleted.
    pub(super) target: Option<Revision>,
    pub(super) steps: BTreeMap<String, Step>,
    /// Logical ids that failed, and what at: `create`, `update`, `delete`.
    pub(super) failures: Vec<(String, &'static str)>,
    /// The resources as they were.
    pub(super) before: BTreeMap<String, Resource>,
    /// What is to be deleted once all is well.
    pub(super) leftovers: Vec<Resource>,
    pub(super) imported: BTreeSet<String>,
    pub(super) change_set: Option<String>,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Create {
        on_failure: OnFailure,
    },
    Update {
        roll_back: bool,
    },
    /// Back to the revision before.
    UpdateRollback,
    /// Deletes what is left over, and ends in `then`.
    Cleanup {
        then: StackStatus,
    },
    /// Deletes everything, and ends in `then`: a deletion, or the rollback of a creation.
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
    /// What the resource will be when the step is done.
    pub(super) next: Option<Box<Resource>>,
}

#[derive(Debug, Clone)]
pub(super) enum Work {
    /// Makes a resource what the target says.
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
            Task::Fire { group, name, made } => self.fire(group, name, made),
        }
    }

    fn is_current(&self, stack: &str, number: u64) -> bool {
        self.stacks[stack].operation.as_ref().is_some_and(|operation| operation.number == number)
    }

    pub(super) fn operation_mut(&mut self, stack_id: &str) -> &mut Operation {
        self.stack_mut(stack_id).operation.as_mut().expect("only called while an operation runs")
    }

    /// Begins an operation: the stack says so at once, the first step is taken a little later.
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

    /// Puts an operation in place and schedules its first step.
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

    /// Lays out the steps, on the first call, and takes every one that waits for nothing any more.
    fn pump(&mut self, stack_id: &str) {
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

    /// A failed creation or update stops at once; deletions go on with the rest.
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
        let step = |needs, work| Step { needs, work, state: StepState::Waiting, next: None };
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
                        .is_some_and(|one| one.physical_id == resource.physical_id)
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

    /// Computes what the resource is to be, and begins to create, change or replace it.
    fn start_apply(&mut self, stack_id: &str, id: &str) {
        let (next, problem) = match self.wanted(stack_id, id) {
            Ok(next) => (next, None),
            Err((next, reason)) => (next, Some(reason)),
        };
        let rolling_back = self.operation_mut(stack_id).kind == OperationKind::UpdateRollback;
        let current = self.stacks[stack_id].resources.get(id).cloned();
        let Some(current) = current else {
            let mut next = next;
            next.status = ResourceStatus::CreateInProgress;
            self.put(stack_id, next.clone(), ResourceStatus::CreateInProgress, None);
            let duration_s = timing::create_s(&next.kind);
            self.set_running(stack_id, id, next);
            return match problem {
                Some(reason) => self.step_failed(stack_id, id, &reason),
                None => self.schedule_step(stack_id, id, Some(timing::INITIATE_S), duration_s),
            };
        };
        let mut next = Resource {
            physical_id: current.physical_id.clone(),
            attributes: current.attributes.clone(),
            ..next
        };
        // What was being changed when the update failed is changed back even where nothing shows.
        let forced = rolling_back
            && matches!(current.status, ResourceStatus::UpdateFailed | ResourceStatus::UpdateInProgress);
        let found = differences(&current.properties, &next.properties);
        let takes_tags = resource_type(&next.kind).is_some_and(|kind| kind.tag_property.is_some());
        let retagged = takes_tags && current.stack_tags != next.stack_tags;
        if found.is_empty() && !retagged && !forced && problem.is_none() {
            next.status = current.status;
            next.reason.clone_from(&current.reason);
            next.changed_at = current.changed_at;
            self.stack_mut(stack_id).resources.insert(id.to_owned(), next);
            return self.set_done(stack_id, id);
        }
        let kind = next.kind.clone();
        let paths: Vec<Vec<String>> = found.iter().map(|(path, _, _)| path.clone()).collect();
        let replace = replaces(&current, &next, &paths);
        let problem = problem
            .or_else(|| refusal(&current, &next, &paths, replace))
            .or_else(|| if replace { None } else { constraints::on_update(self, &next) });
        let mut shown = current.clone();
        shown.status = ResourceStatus::UpdateInProgress;
        let words = "Requested update requires the creation of a new physical resource; hence creating one.";
        self.put(stack_id, shown, ResourceStatus::UpdateInProgress, replace.then_some(words));
        if replace {
            next.physical_id = None;
            next.attributes.clear();
        }
        self.set_running(stack_id, id, next);
        match problem {
            Some(reason) => self.step_failed(stack_id, id, &reason),
            None if replace => {
                self.schedule_step(stack_id, id, Some(timing::INITIATE_S), timing::create_s(&kind))
            }
            None => self.schedule_step(stack_id, id, None, timing::update_s(&kind)),
        }
    }

    /// What the target says of a resource; with an error, what is known of it all the same.
    fn wanted(&mut self, stack_id: &str, id: &str) -> Result<Resource, (Resource, String)> {
        let exports = self.exports(stack_id);
        let stack = &self.stacks[stack_id];
        let operation = stack.operation.as_ref().expect("only called while an operation runs");
        let target = operation.target.as_ref().expect("forward operations have a target");
        let definition = &target.template.resources[id];
        let scope = self.scope(stack, target, &exports);
        let computed = scope.properties(definition);
        let imported = scope.imported.into_inner();
        let needs = graph::needs(&target.template, definition);
        let mut resource = Resource {
            logical_id: id.to_owned(),
            kind: definition.kind.clone(),
            physical_id: None,
            status: ResourceStatus::CreateComplete,
            reason: None,
            changed_at: self.now,
            properties: Value::Object(serde_json::Map::new()),
            attributes: BTreeMap::new(),
            metadata: definition.metadata.clone(),
            stack_tags: target.tags.clone(),
            deletion_policy: definition.deletion_policy,
            update_replace_policy: definition.update_replace_policy,
            needs,
        };
        let stack = self.stack_mut(stack_id);
        stack.imports.extend(imported.iter().cloned());
        self.operation_mut(stack_id).imported.extend(imported);
        match computed {
            Err(reason) => Err((resource, reason)),
            Ok(properties) => {
                resource.properties = properties;
                let kind = resource_type(&resource.kind).expect("templates with unknown types are refused");
                match check(kind, &resource.properties).first() {
                    None => Ok(resource),
                    Some(finding) => {
                        let reason = format!(
                            "Properties validation failed for resource {id} with message: #{}: {}",
                            finding.path, finding.message
                        );
                        Err((resource, reason))
                    }
                }
            }
        }
    }

    /// The resource receives its id, if the service accepts it.
    fn initiated(&mut self, stack_id: &str, key: &str) {
        let Some(step) = self.operation_mut(stack_id).steps.get(key) else { return };
        let Some(mut next) = step.next.as_deref().cloned() else { return };
        let replaced =
            self.stacks[stack_id].resources.get(key).filter(|one| one.physical_id.is_some()).cloned();
        let stack = self.stack_mut(stack_id);
        stack.generation += 1;
        let generation = stack.generation;
        let made = physical::make(self, stack_id, &next, generation);
        let refused = match &made {
            Ok(made) => self
                .collision(&next, &made.id, replaced.as_ref())
                .or_else(|| constraints::on_create(self, &next)),
            Err(reason) => Some(reason.clone()),
        };
        let (Ok(made), None) = (made, refused.clone()) else {
            return self.after_failure(stack_id, key, &refused.unwrap_or_default());
        };
        next.physical_id = Some(made.id);
        self.note_thing(&next, false);
        next.attributes = made.attributes;
        let status = if replaced.is_some() {
            ResourceStatus::UpdateInProgress
        } else {
            ResourceStatus::CreateInProgress
        };
        next.status = status;
        self.operation_mut(stack_id).leftovers.extend(replaced);
        self.put(stack_id, next.clone(), status, Some("Resource creation Initiated"));
        self.set_running(stack_id, key, next);
    }

    /// A name that is taken cannot be given again.
    fn collision(&self, next: &Resource, id: &str, replaced: Option<&Resource>) -> Option<String> {
        let identity = physical::identity(&next.kind, id, &next.properties);
        if !self.things.contains_key(&(next.kind.clone(), identity.clone())) {
            return None;
        }
        let name_of = |old: &Resource| {
            physical::identity(&old.kind, old.physical_id.as_deref().unwrap_or_default(), &old.properties)
        };
        if replaced.is_some_and(|old| name_of(old) == identity) {
            return Some(format!(
                "CloudFormation cannot update a stack when a custom-named resource requires replacing. Rename {identity} and update the stack again."
            ));
        }
        Some(format!(
            "Resource of type '{}' with identifier '{identity}' already exists. (HandlerErrorCode: AlreadyExists)",
            next.kind
        ))
    }

    fn finished(&mut self, stack_id: &str, key: &str) {
        let Some(step) = self.operation_mut(stack_id).steps.get(key) else { return };
        match step.work.clone() {
            Work::Remove { resource, tracked, .. } => self.removed(stack_id, key, &resource, tracked),
            Work::Apply => {
                let Some(mut next) = step.next.as_deref().cloned() else { return };
                let phase = match self.operation_mut(stack_id).kind {
                    OperationKind::UpdateRollback => Phase::Rollback,
                    _ => Phase::Forward,
                };
                if let Some(reason) = self.take_failure(phase, key, &next.kind) {
                    return self.after_failure(stack_id, key, &reason);
                }
                let created = !self.operation_mut(stack_id).before.contains_key(key);
                let status =
                    if created { ResourceStatus::CreateComplete } else { ResourceStatus::UpdateComplete };
                let current = self.stacks[stack_id].resources[key].clone();
                if current.physical_id == next.physical_id && current.properties != next.properties {
                    super::attributes::update(&mut next, &current);
                }
                self.forget_thing(&current);
                self.note_thing(&next, true);
                next.status = status;
                self.put(stack_id, next, status, None);
                self.set_done(stack_id, key);
            }
        }
        self.pump(stack_id);
    }

    fn note_thing(&mut self, resource: &Resource, ready: bool) {
        let id = resource.physical_id.as_deref().unwrap_or_default();
        let identity = physical::identity(&resource.kind, id, &resource.properties);
        let thing = super::Thing { properties: resource.properties.clone(), ready };
        self.things.insert((resource.kind.clone(), identity), thing);
    }

    pub(super) fn forget_thing(&mut self, resource: &Resource) {
        let id = resource.physical_id.as_deref().unwrap_or_default();
        let identity = physical::identity(&resource.kind, id, &resource.properties);
        self.things.remove(&(resource.kind.clone(), identity));
    }

    fn after_failure(&mut self, stack_id: &str, key: &str, reason: &str) {
        self.step_failed(stack_id, key, reason);
        self.failed(stack_id, None);
    }

    /// Stores a resource in its stack with a new status, and tells everybody.
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

    fn step_failed(&mut self, stack_id: &str, key: &str, reason: &str) {
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

    /// Ends what is under way: what runs is cancelled.
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

    fn set_running(&mut self, stack_id: &str, key: &str, next: Resource) {
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

/// Whether CloudFormation makes a new resource for what changes.
fn replaces(current: &Resource, next: &Resource, paths: &[Vec<String>]) -> bool {
    let Some(kind) = resource_type(&next.kind) else { return false };
    paths.iter().any(|path| match kind.recreation(path) {
        Recreation::Never => false,
        Recreation::Always => true,
        Recreation::Conditionally => constraints::conditional_replacement(current, next, path),
    })
}

/// Why an update in place cannot be.
fn refusal(current: &Resource, next: &Resource, paths: &[Vec<String>], replace: bool) -> Option<String> {
    let kind = resource_type(&next.kind)?;
    let fixed =
        paths.iter().filter_map(|path| path.first()).find(|name| kind.not_updatable.contains(*name))?;
    (!replace).then(|| {
        format!("Updates are not supported for property - {fixed} of {} {}", current.kind, current.logical_id)
    })
}
