//! Steps that create, change or replace a resource.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::changes::differences;
use super::graph;
use super::operation::{OperationKind, Work};
use super::resource::Resource;
use super::{Phase, ResourceStatus, World, attributes, constraints, physical, timing};
use crate::schema::{Recreation, check, resource_type};

const GROUP: &str = "AWS::AutoScaling::AutoScalingGroup";
/// CloudFormation's message for a group that does not stabilise.
pub(super) const UNSTABLE: &str = "Group did not stabilize. Last scaling activity: Launching a new EC2 instance. Status Reason: \
                                   Instance failed to complete user's Lifecycle Action.";

impl World {
    /// Computes the target state of a resource, and begins to create, change or replace it.
    pub(super) fn start_apply(&mut self, stack_id: &str, id: &str) {
        let (next, problem) = self.wanted(stack_id, id);
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
        // A resource that was being changed when the update failed is changed back, even if no difference shows.
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

    /// The target state of a resource, and the problem with it, if there is one.
    fn wanted(&mut self, stack_id: &str, id: &str) -> (Resource, Option<String>) {
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
            Err(reason) => (resource, Some(reason)),
            Ok(properties) => {
                resource.properties = properties;
                let kind = resource_type(&resource.kind).expect("templates with unknown types are refused");
                match check(kind, &resource.properties).first() {
                    None => (resource, None),
                    Some(finding) => {
                        let reason = format!(
                            "Properties validation failed for resource {id} with message: #{}: {}",
                            finding.path, finding.message
                        );
                        (resource, Some(reason))
                    }
                }
            }
        }
    }

    /// The resource gets its id, if the service accepts it.
    pub(super) fn initiated(&mut self, stack_id: &str, key: &str) {
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
        if next.kind == GROUP {
            // Auto Scaling has the new group from now on; CloudFormation waits until its machines are in service.
            self.applied(&next);
            self.stabilises_from_now(stack_id, key);
        }
        self.set_running(stack_id, key, next);
    }

    /// A name that is in use cannot be given to a second resource.
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

    pub(super) fn finished(&mut self, stack_id: &str, key: &str) {
        let Some(step) = self.operation_mut(stack_id).steps.get(key) else { return };
        let since = step.since;
        match step.work.clone() {
            Work::Remove { resource, tracked, .. } => self.removed(stack_id, key, &resource, tracked),
            Work::Apply => {
                let Some(mut next) = step.next.as_deref().cloned() else { return };
                let phase = match self.operation_mut(stack_id).kind {
                    OperationKind::UpdateRollback => Phase::Rollback,
                    OperationKind::Create { .. }
                    | OperationKind::Update { .. }
                    | OperationKind::Cleanup { .. }
                    | OperationKind::Delete { .. } => Phase::Forward,
                };
                if since.is_some() && !self.group_is_stable(&next) {
                    return self.still_stabilises(stack_id, key, since, timing::CREATED_WITHIN);
                }
                if let Some(reason) = self.take_failure(phase, key, &next.kind) {
                    return self.after_failure(stack_id, key, &reason);
                }
                let created = !self.operation_mut(stack_id).before.contains_key(key);
                let status =
                    if created { ResourceStatus::CreateComplete } else { ResourceStatus::UpdateComplete };
                let current = self.stacks[stack_id].resources[key].clone();
                if current.physical_id == next.physical_id && current.properties != next.properties {
                    attributes::update(&mut next, &current);
                }
                self.forget_thing(&current);
                self.note_thing(&next, true);
                next.status = status;
                if since.is_none() {
                    self.applied(&next);
                }
                self.put(stack_id, next, status, None);
                self.set_done(stack_id, key);
            }
        }
        self.pump(stack_id);
    }

    fn stabilises_from_now(&mut self, stack_id: &str, key: &str) {
        let now = self.now;
        if let Some(step) = self.operation_mut(stack_id).steps.get_mut(key) {
            step.since = Some(now);
        }
    }

    /// A group has not stabilised yet: CloudFormation checks again later, or gives up after the timeout.
    fn still_stabilises(
        &mut self,
        stack_id: &str,
        key: &str,
        since: Option<Timestamp>,
        within: SignedDuration,
    ) {
        let waited = since.map_or(SignedDuration::ZERO, |since| self.now.duration_since(since));
        if waited < within {
            return self.schedule_step(stack_id, key, None, timing::STABILISES_S);
        }
        self.after_failure(stack_id, key, UNSTABLE);
    }

    fn note_thing(&mut self, resource: &Resource, ready: bool) {
        let id = resource.physical_id.as_deref().unwrap_or_default();
        let identity = physical::identity(&resource.kind, id, &resource.properties);
        let thing = super::Thing { properties: resource.properties.clone(), ready };
        Arc::make_mut(&mut self.things).insert((resource.kind.clone(), identity), Arc::new(thing));
    }

    pub(super) fn forget_thing(&mut self, resource: &Resource) {
        let id = resource.physical_id.as_deref().unwrap_or_default();
        let identity = physical::identity(&resource.kind, id, &resource.properties);
        Arc::make_mut(&mut self.things).remove(&(resource.kind.clone(), identity));
    }

    fn after_failure(&mut self, stack_id: &str, key: &str, reason: &str) {
        self.step_failed(stack_id, key, reason);
        self.failed(stack_id, None);
    }
}

/// Whether the change of these paths makes CloudFormation create a new resource.
fn replaces(current: &Resource, next: &Resource, paths: &[Vec<String>]) -> bool {
    let Some(kind) = resource_type(&next.kind) else { return false };
    paths.iter().any(|path| match kind.recreation(path) {
        Recreation::Never => false,
        Recreation::Always => true,
        Recreation::Conditionally => constraints::conditional_replacement(current, next, path),
    })
}

/// Why an update in place is not possible.
fn refusal(current: &Resource, next: &Resource, paths: &[Vec<String>], replace: bool) -> Option<String> {
    let kind = resource_type(&next.kind)?;
    let fixed =
        paths.iter().filter_map(|path| path.first()).find(|name| kind.not_updatable.contains(*name))?;
    (!replace).then(|| {
        format!("Updates are not supported for property - {fixed} of {} {}", current.kind, current.logical_id)
    })
}
