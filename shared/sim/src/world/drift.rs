//! Drift detection: `DetectStackDrift`, `DescribeStackDriftDetectionStatus` and `DescribeStackResourceDrifts`, and what people change by
//! hand so that there is something to detect.
//!
//! After botocore's service model of the three actions and the CloudFormation user guide, "Detect unmanaged configuration changes to stacks
//! and resources with drift detection" and "Detect drift on an entire CloudFormation stack":
//!
//! - Only properties that the template sets are compared. A value of a list that the template does not have is an `ADD`, a property that is
//!   gone a `REMOVE`, any other difference a `NOT_EQUAL`.
//! - Properties that the service never returns are not compared: those are `writeOnlyProperties` of the resource schema. So a launch template
//!   is always in sync (cloudformation-coverage-roadmap 1682, 2001). "CloudFormation does not perform drift detection on the KMSKeyId property of
//!   any resources."
//! - Resources of types that do not support it are not in the answer. Those are the types whose schema has no `read` handler.
//! - A stack has one detection at a time, and only in one of four statuses. No page has the words of these refusals; of the first the
//!   beginning is known from programs that look for it.
//! - `NOT_CHECKED` is the status of a stack that was never looked at; of resources "CloudFormation doesn't currently return this value".

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use slipway_rollout::StackStatus;

use super::error::{ApiError, ApiResult};
use super::resource::Resource;
use super::stack::{Stack, status_name};
use super::task::Task;
use super::{ResourceStatus, World, physical, timing};
use crate::schema::resource_type;

/// The types of this world whose schema has no `read` handler (cfn-lint 1.58.0).
const UNSUPPORTED: [&str; 2] = ["AWS::IAM::Policy", "AWS::Route53::RecordSetGroup"];

/// The value on the side that has none. No page says so; answers that people have published show it.
const NOTHING: &str = "null";

/// What is known of drift.
#[derive(Debug, Clone, Default)]
pub(super) struct Drifts {
    /// By the id of the detection.
    detections: BTreeMap<String, Detection>,
    /// The newest results, by stack and logical id.
    results: BTreeMap<String, BTreeMap<String, ResourceDrift>>,
    /// Resources that cannot be read, and why, by stack's name and logical id.
    unreadable: BTreeMap<(String, String), String>,
    /// Detections never end.
    endless: bool,
}

/// A detection, as `DescribeStackDriftDetectionStatus` shows it.
#[derive(Debug, Clone)]
pub(crate) struct Detection {
    pub(crate) stack: String,
    pub(crate) began_at: Timestamp,
    pub(crate) status: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) drifted: Option<usize>,
}

impl Detection {
    /// `StackDriftStatus`.
    pub(crate) fn stack_status(&self) -> &'static str {
        match (self.status, self.drifted) {
            (RUNNING, _) => "NOT_CHECKED",
            (_, Some(0)) => "IN_SYNC",
            (_, Some(_)) => "DRIFTED",
            (_, None) => "UNKNOWN",
        }
    }
}

const RUNNING: &str = "DETECTION_IN_PROGRESS";
const COMPLETE: &str = "DETECTION_COMPLETE";
const FAILED: &str = "DETECTION_FAILED";

/// `StackDriftStatus` and `LastCheckTimestamp` of a stack.
pub(crate) type DriftInformation = (&'static str, Option<Timestamp>);

/// A resource that was looked at, as `DescribeStackResourceDrifts` shows it.
#[derive(Debug, Clone)]
pub(crate) struct ResourceDrift {
    pub(crate) logical_id: String,
    pub(crate) physical_id: String,
    pub(crate) kind: String,
    pub(crate) status: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) at: Timestamp,
    /// `None`: the resource was deleted, or could not be read.
    pub(crate) expected: Option<Value>,
    pub(crate) actual: Option<Value>,
    pub(crate) differences: Vec<PropertyDifference>,
}

/// A property that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PropertyDifference {
    pub(crate) path: String,
    pub(crate) expected: String,
    pub(crate) actual: String,
    pub(crate) kind: &'static str,
}

impl World {
    /// `DetectStackDrift`. Returns the id of the detection.
    pub(crate) fn detect_stack_drift(&mut self, name: &str) -> ApiResult<String> {
        self.enter("DetectStackDrift")?;
        let missing = || ApiError::validation(format!("Stack [{name}] does not exist"));
        let stack = self.find(name).filter(|stack| !stack.is_deleted()).ok_or_else(missing)?;
        let (id, resources) = (stack.id.clone(), stack.resources.len());
        // "You can perform drift detection on stacks with the following statuses".
        let allowed = matches!(
            stack.status,
            StackStatus::CreateComplete
                | StackStatus::UpdateComplete
                | StackStatus::UpdateRollbackComplete
                | StackStatus::UpdateRollbackFailed
        );
        if !allowed {
            let status = status_name(stack.status);
            return Err(ApiError::validation(format!(
                "Drift detection cannot be performed on stack [{id}] while it is in {status} state"
            )));
        }
        if self.drifts.detections.values().any(|one| one.stack == id && one.status == RUNNING) {
            return Err(ApiError::validation(format!(
                "Drift detection is already in progress for stack [{id}]"
            )));
        }
        let detection = self.uuid();
        let began_at = self.now;
        let running = Detection { stack: id, began_at, status: RUNNING, reason: None, drifted: None };
        self.drifts.detections.insert(detection.clone(), running);
        if !self.drifts.endless {
            let seconds = timing::DRIFT_S + timing::DRIFT_PER_RESOURCE_S * resources as f64;
            self.after_s(seconds, Task::DriftDetected { detection: detection.clone() });
        }
        Ok(detection)
    }

    /// A detection ends: each resource is compared as it is now.
    pub(super) fn drift_detected(&mut self, id: &str) {
        let Some(detection) = self.drifts.detections.get(id) else { return };
        let Some(stack) = self.stacks.get(&detection.stack) else { return };
        let shown: BTreeMap<String, ResourceDrift> = stack
            .resources
            .values()
            .filter_map(|one| Some((one.logical_id.clone(), self.drift_of(stack, one)?)))
            .collect();
        let unknown: Vec<&str> =
            shown.values().filter(|one| one.status == "UNKNOWN").map(|one| one.logical_id.as_str()).collect();
        let drifted = shown.values().filter(|one| matches!(one.status, "MODIFIED" | "DELETED")).count();
        let (status, reason) = match unknown.as_slice() {
            [] => (COMPLETE, None),
            failed => (FAILED, Some(format!("Failed to detect drift on resource [{}]", failed.join(", ")))),
        };
        let stack_id = detection.stack.clone();
        if let Some(detection) = self.drifts.detections.get_mut(id) {
            (detection.status, detection.reason) = (status, reason);
            // "This is NULL until the drift detection operation reaches a status of DETECTION_COMPLETE."
            detection.drifted = (status == COMPLETE).then_some(drifted);
        }
        self.drifts.results.insert(stack_id, shown);
    }

    /// The comparison of a resource; `None` if its type is not supported, or it is not there yet.
    fn drift_of(&self, stack: &Stack, resource: &Resource) -> Option<ResourceDrift> {
        let is_made =
            !matches!(resource.status, ResourceStatus::DeleteComplete | ResourceStatus::DeleteSkipped);
        let physical_id = resource.physical_id.clone().filter(|_| is_made)?;
        if UNSUPPORTED.contains(&resource.kind.as_str()) || resource.properties.is_null() {
            return None;
        }
        let shown = |status, reason| ResourceDrift {
            logical_id: resource.logical_id.clone(),
            physical_id: physical_id.clone(),
            kind: resource.kind.clone(),
            status,
            reason,
            at: self.now,
            expected: None,
            actual: None,
            differences: Vec::new(),
        };
        let place = (stack.name.clone(), resource.logical_id.clone());
        if let Some(reason) = self.drifts.unreadable.get(&place) {
            return Some(shown("UNKNOWN", Some(reason.clone())));
        }
        let Some(thing) = self.things.get(&thing_of(resource)) else { return Some(shown("DELETED", None)) };
        let hidden = resource_type(&resource.kind).map(|kind| kind.write_only.as_slice()).unwrap_or_default();
        let mut differences = Vec::new();
        compare("", &resource.properties, Some(&thing.properties), hidden, &mut differences);
        let status = if differences.is_empty() { "IN_SYNC" } else { "MODIFIED" };
        let expected = Some(resource.properties.clone());
        Some(ResourceDrift {
            expected,
            actual: Some(thing.properties.clone()),
            differences,
            ..shown(status, None)
        })
    }

    /// `DescribeStackDriftDetectionStatus`.
    pub(crate) fn drift_detection(&mut self, id: &str) -> ApiResult<&Detection> {
        self.enter("DescribeStackDriftDetectionStatus")?;
        let missing = || ApiError::validation(format!("Drift detection [{id}] does not exist"));
        self.drifts.detections.get(id).ok_or_else(missing)
    }

    /// `DescribeStackResourceDrifts`: the resources with one of `statuses`, or all.
    pub(crate) fn resource_drifts(
        &mut self,
        name: &str,
        statuses: &[&str],
    ) -> ApiResult<(String, Vec<&ResourceDrift>)> {
        self.enter("DescribeStackResourceDrifts")?;
        let missing = || ApiError::validation(format!("Stack [{name}] does not exist"));
        let id = self.find(name).ok_or_else(missing)?.id.clone();
        let results = self.drifts.results.get(&id).into_iter().flat_map(BTreeMap::values);
        let wanted = results.filter(|one| statuses.is_empty() || statuses.contains(&one.status));
        Ok((id, wanted.collect()))
    }

    /// What `DescribeStacks` says of a stack's drift: what its newest detection found.
    pub(crate) fn drift_information(&self, stack: &str) -> DriftInformation {
        let of_it = self.drifts.detections.values().filter(|one| one.stack == stack);
        let newest = of_it.max_by_key(|one| one.began_at);
        newest.map_or(("NOT_CHECKED", None), |one| (one.stack_status(), Some(one.began_at)))
    }

    /// From now on no drift detection ends.
    pub fn detect_drift_without_end(&mut self) {
        self.drifts.endless = true;
    }

    /// From now on drift detection cannot read a resource of a stack, for that reason; `None`: it can again.
    pub fn hide_from_drift_detection(&mut self, stack: &str, logical_id: &str, reason: Option<&str>) {
        let place = (stack.to_owned(), logical_id.to_owned());
        match reason {
            Some(reason) => self.drifts.unreadable.insert(place, reason.to_owned()),
            None => self.drifts.unreadable.remove(&place),
        };
    }

    /// Somebody sets a property of a resource by hand, in its own service, or removes it. `pointer`: its place below the properties, as RFC
    /// 6901 has it; `-` at the end adds to a list. Of a group, sizes and the version of its launch template take effect.
    ///
    /// # Errors
    /// If there is no such resource or place; or if nobody can: a launch template has versions, which never change.
    pub fn set_by_hand(
        &mut self,
        stack: &str,
        logical_id: &str,
        pointer: &str,
        value: Option<Value>,
    ) -> Result<(), String> {
        let resource = self.resource_by_hand(stack, logical_id)?;
        if resource.kind == "AWS::EC2::LaunchTemplate" {
            return Err(format!("{logical_id} is a launch template: its versions never change"));
        }
        let things = std::sync::Arc::make_mut(&mut self.things);
        let thing = things.get_mut(&thing_of(&resource)).ok_or(format!("{logical_id} does not exist"))?;
        let thing = std::sync::Arc::make_mut(thing);
        let (above, last) = pointer.rsplit_once('/').ok_or(format!("{pointer:?} is not a pointer"))?;
        let no_place = || format!("{logical_id} has nothing at {pointer}");
        match (thing.properties.pointer_mut(above).ok_or_else(no_place)?, value) {
            (Value::Object(map), Some(value)) => drop(map.insert(last.to_owned(), value)),
            (Value::Object(map), None) => drop(map.remove(last).ok_or_else(no_place)?),
            (Value::Array(list), Some(value)) if last == "-" => list.push(value),
            (Value::Array(list), value) => {
                let index: usize = last.parse().map_err(|_| no_place())?;
                if index >= list.len() {
                    return Err(no_place());
                }
                match value {
                    Some(value) => list[index] = value,
                    None => drop(list.remove(index)),
                }
            }
            _ => return Err(no_place()),
        }
        let properties = thing.properties.clone();
        self.record(format!("somebody changes {pointer} of {logical_id} of {stack} by hand"));
        let mut as_it_is = resource;
        as_it_is.properties = properties;
        self.group_is_set(&as_it_is);
        Ok(())
    }

    /// Somebody deletes a resource by hand, in its own service. The stack still lists it.
    ///
    /// # Errors
    /// If there is no such resource; or if it is a group, with whose machines nothing would happen here.
    pub fn delete_resource_by_hand(&mut self, stack: &str, logical_id: &str) -> Result<(), String> {
        let resource = self.resource_by_hand(stack, logical_id)?;
        if resource.kind == "AWS::AutoScaling::AutoScalingGroup" {
            return Err(format!("{logical_id} is a group: the end of its machines is not modelled"));
        }
        self.record(format!("somebody deletes {logical_id} of {stack} by hand"));
        self.forget_thing(&resource);
        Ok(())
    }

    /// Somebody protects a stack from deletion, or removes the protection (`UpdateTerminationProtection`).
    pub fn protect_stack_by_hand(&mut self, name: &str, is_protected: bool) {
        let Some(id) = self.live(name).map(|stack| stack.id.clone()) else { return };
        self.stack_mut(&id).protected = is_protected;
        self.record(format!("somebody sets the termination protection of {name} to {is_protected}"));
    }

    fn resource_by_hand(&self, stack: &str, logical_id: &str) -> Result<Resource, String> {
        let of = self.live(stack).ok_or(format!("there is no stack {stack}"))?;
        let resource = of.resources.get(logical_id).ok_or(format!("{stack} has no {logical_id}"))?;
        Ok(resource.clone())
    }
}

/// Where the world has the resource itself, whatever a stack says of it.
fn thing_of(resource: &Resource) -> (String, String) {
    let id = resource.physical_id.as_deref().unwrap_or_default();
    (resource.kind.clone(), physical::identity(&resource.kind, id, &resource.properties))
}

/// Adds the differences at and below `path`. `hidden`: paths that the service does not return.
fn compare(
    path: &str,
    expected: &Value,
    actual: Option<&Value>,
    hidden: &[String],
    found: &mut Vec<PropertyDifference>,
) {
    let keys: Vec<String> = path.split('/').skip(1).map(str::to_owned).collect();
    let is_key = keys.last().is_some_and(|key| key.eq_ignore_ascii_case("KmsKeyId"));
    if is_key || hidden.iter().any(|rule| crate::schema::within(rule, &keys)) {
        return;
    }
    let differs = |path: String, expected: String, actual: String, kind| PropertyDifference {
        path,
        expected,
        actual,
        kind,
    };
    match (expected, actual) {
        (_, None) => found.push(differs(path.to_owned(), text(expected), NOTHING.to_owned(), "REMOVE")),
        (Value::Object(wanted), Some(Value::Object(is))) => {
            for (key, value) in wanted {
                compare(&format!("{path}/{key}"), value, is.get(key), hidden, found);
            }
        }
        (Value::Array(wanted), Some(Value::Array(is))) => {
            // AWS' schemas say of most lists that their order means nothing, so what both have is not told.
            let mut left: Vec<&Value> = is.iter().collect();
            let mut missing = Vec::new();
            for (index, value) in wanted.iter().enumerate() {
                match left.iter().position(|one| same(value, one)) {
                    Some(at) => drop(left.remove(at)),
                    None => missing.push((index, value)),
                }
            }
            let mut left = left.into_iter();
            for (index, value) in missing {
                compare(&format!("{path}/{index}"), value, left.next(), hidden, found);
            }
            let places = wanted.len()..;
            found.extend(places.zip(left).map(|(index, value)| {
                differs(format!("{path}/{index}"), NOTHING.to_owned(), text(value), "ADD")
            }));
        }
        (expected, Some(actual)) if same(expected, actual) => {}
        (expected, Some(actual)) => {
            found.push(differs(path.to_owned(), text(expected), text(actual), "NOT_EQUAL"))
        }
    }
}

/// Whether two values are the same, where a template may write a number or a boolean as text.
fn same(one: &Value, other: &Value) -> bool {
    let is_plain = |value: &Value| !value.is_object() && !value.is_array();
    one == other || (is_plain(one) && is_plain(other) && text(one) == text(other))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The statuses that a filter may name (botocore, `StackResourceDriftStatus`).
pub(crate) fn drift_statuses() -> BTreeSet<&'static str> {
    ["IN_SYNC", "MODIFIED", "DELETED", "NOT_CHECKED", "UNKNOWN", "UNSUPPORTED"].into()
}
