//! What happens to the stacks and to their resources.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use slipway_core::diff::{Difference, diff};
use slipway_core::release::{Rendering, Stack, StackKind};

use super::{
    Baseline, PropertyChange, Replacement, ResourceAction, ResourceChange, StackAction, StackPlan,
    update_rules,
};

/// A plan for each stack: those of the new rendering in order, then those that are removed.
pub(super) fn compare(baseline: &Baseline, new: &Rendering) -> Vec<StackPlan> {
    let old = baseline.rendering.as_ref();
    let mut plans: Vec<StackPlan> = new
        .stacks
        .iter()
        .map(|stack| {
            let plan = stack_plan(old.and_then(|old| old.stack(&stack.name)), stack);
            if baseline.orphaned.contains(&stack.name) { back(plan) } else { plan }
        })
        .collect();
    let gone = old.into_iter().flat_map(|old| &old.stacks).filter(|stack| new.stack(&stack.name).is_none());
    plans.extend(gone.map(|stack| {
        // A pool stays if a person had one of its machines skipped. The next rollout deletes it.
        let is_orphaned = baseline.orphaned.contains(&stack.name) && stack.kind != StackKind::Pool;
        let (action, resources) = if is_orphaned {
            (StackAction::Orphaned, Vec::new())
        } else {
            (StackAction::Delete, all(stack, ResourceAction::Remove))
        };
        StackPlan { name: stack.name.clone(), kind: stack.kind, action, resources, other: Vec::new() }
    }));
    plans
}

/// An orphaned stack that the spec has again is updated even if it is unchanged, because it belongs to the cluster again.
fn back(plan: StackPlan) -> StackPlan {
    let mut other = plan.other;
    let (before, after) = (Some(Value::Bool(false)), Some(Value::Bool(true)));
    other.insert(0, Difference { path: "In the spec".to_owned(), before, after });
    StackPlan { action: StackAction::Update, other, ..plan }
}

fn stack_plan(before: Option<&Stack>, after: &Stack) -> StackPlan {
    let plan = |action, resources, other| StackPlan {
        name: after.name.clone(),
        kind: after.kind,
        action,
        resources,
        other,
    };
    let Some(before) = before else {
        return plan(StackAction::Create, all(after, ResourceAction::Add), Vec::new());
    };
    if before.sha256 == after.sha256 && before.tags == after.tags {
        return plan(StackAction::Unchanged, Vec::new(), Vec::new());
    }
    let (old, new) = (parse(before), parse(after));
    let mut other = diff(&without_resources(&old), &without_resources(&new));
    let tags = |stack: &Stack| serde_json::to_value(&stack.tags).expect("a map of strings is JSON");
    other.extend(
        diff(&tags(before), &tags(after))
            .into_iter()
            .map(|found| Difference { path: format!("Tags.{}", found.path), ..found }),
    );
    plan(StackAction::Update, changes(&resources(&old), &resources(&new)), other)
}

/// The template as JSON; Slipway's templates are always objects.
pub(super) fn parse(stack: &Stack) -> Value {
    serde_json::from_str(&stack.body).unwrap_or(Value::Null)
}

fn resources(template: &Value) -> Map<String, Value> {
    template.get("Resources").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn without_resources(template: &Value) -> Value {
    let mut rest = template.as_object().cloned().unwrap_or_default();
    rest.remove("Resources");
    Value::Object(rest)
}

fn type_of(resource: &Value) -> String {
    resource.get("Type").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn all(stack: &Stack, action: ResourceAction) -> Vec<ResourceChange> {
    resources(&parse(stack))
        .iter()
        .map(|(logical_id, resource)| ResourceChange {
            logical_id: logical_id.clone(),
            resource_type: type_of(resource),
            action,
            replacement: Replacement::Never,
            properties: match action {
                ResourceAction::Add => added(resource),
                ResourceAction::Modify | ResourceAction::Remove => Vec::new(),
            },
        })
        .collect()
}

/// All that a new resource has.
fn added(resource: &Value) -> Vec<PropertyChange> {
    let nothing = json!({ "Type": resource["Type"], "Properties": {} });
    let found = diff(&nothing, resource).into_iter();
    let found = found.filter(|found| found.path != "Properties" || found.after.is_some());
    found
        .map(|found| PropertyChange {
            difference: Difference { path: below_properties(&found.path).to_owned(), ..found },
            replacement: Replacement::Never,
            because_of: None,
        })
        .collect()
}

/// The path below `Properties`, or that of another attribute, such as `DeletionPolicy`.
fn below_properties(path: &str) -> &str {
    path.strip_prefix("Properties.").unwrap_or(path)
}

fn changes(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<ResourceChange> {
    let mut found: BTreeMap<String, ResourceChange> = BTreeMap::new();
    for id in old.keys().chain(new.keys()) {
        if let Some(change) = resource_change(id, old.get(id), new.get(id)) {
            found.insert(id.clone(), change);
        }
    }
    spread(new, &mut found);
    found.into_values().collect()
}

fn resource_change(id: &str, old: Option<&Value>, new: Option<&Value>) -> Option<ResourceChange> {
    let change = |resource: &Value, action, replacement, properties| ResourceChange {
        logical_id: id.to_owned(),
        resource_type: type_of(resource),
        action,
        replacement,
        properties,
    };
    match (old, new) {
        (None, None) => None,
        (None, Some(new)) => Some(change(new, ResourceAction::Add, Replacement::Never, added(new))),
        (Some(old), None) => Some(change(old, ResourceAction::Remove, Replacement::Never, Vec::new())),
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) => {
            let kind = type_of(new);
            let properties: Vec<PropertyChange> = diff(old, new)
                .into_iter()
                .map(|difference| {
                    let path = difference.path.strip_prefix("Properties.");
                    let replacement = match (difference.path.as_str(), path) {
                        // CloudFormation does not change the type of a resource under the same name.
                        ("Type", _) => Replacement::Always,
                        (_, Some(path)) => rule(&kind, path),
                        (_, None) => Replacement::Never,
                    };
                    let path = path.map_or_else(|| difference.path.clone(), str::to_owned);
                    PropertyChange {
                        difference: Difference { path, ..difference },
                        replacement,
                        because_of: None,
                    }
                })
                .collect();
            let worst = worst(&properties);
            Some(change(new, ResourceAction::Modify, worst, properties))
        }
    }
}

/// The effect of a change. A type that only a patch can have added has no rules here, so CloudFormation decides.
fn rule(resource_type: &str, path: &str) -> Replacement {
    match update_rules::replacement(resource_type, path).unwrap_or(Replacement::Conditional) {
        // The condition is an UpdatePolicy with AutoScalingReplacingUpdate, which no group of Slipway's has.
        Replacement::Conditional if resource_type == "AWS::AutoScaling::AutoScalingGroup" => {
            Replacement::Never
        }
        rule @ (Replacement::Never | Replacement::Conditional | Replacement::Always) => rule,
    }
}

fn worst(properties: &[PropertyChange]) -> Replacement {
    properties.iter().map(|change| change.replacement).max().unwrap_or(Replacement::Never)
}

/// Adds the indirect changes: a resource that refers to a replaced resource, or to an attribute of a changed one, changes with it
/// although its own text is the same. CloudFormation's change sets list these as well.
fn spread(new: &Map<String, Value>, found: &mut BTreeMap<String, ResourceChange>) {
    loop {
        let mut more: Vec<(String, PropertyChange)> = Vec::new();
        for (id, resource) in new {
            for (path, cause, by_attribute) in references(resource) {
                let Some(change) = found.get(&cause) else { continue };
                let identity = change.replacement;
                if change.action != ResourceAction::Modify
                    || (identity == Replacement::Never && !by_attribute)
                {
                    continue;
                }
                let known = found.get(id).is_some_and(|change| {
                    change.action != ResourceAction::Modify
                        || change.properties.iter().any(|one| one.difference.path == path)
                });
                if known {
                    continue;
                }
                let rule = rule(&type_of(resource), &path);
                // A replaced resource certainly has a new id; an attribute of a changed one may have a new value.
                let ceiling = if identity == Replacement::Always {
                    Replacement::Always
                } else {
                    Replacement::Conditional
                };
                let value = resource.pointer(&format!("/Properties/{}", path.replace('.', "/"))).cloned();
                more.push((
                    id.clone(),
                    PropertyChange {
                        difference: Difference { path, before: value.clone(), after: value },
                        replacement: rule.min(ceiling),
                        because_of: Some(cause),
                    },
                ));
            }
        }
        if more.is_empty() {
            return;
        }
        for (id, property) in more {
            let change = found.entry(id.clone()).or_insert_with(|| ResourceChange {
                logical_id: id.clone(),
                resource_type: new.get(&id).map(type_of).unwrap_or_default(),
                action: ResourceAction::Modify,
                replacement: Replacement::Never,
                properties: Vec::new(),
            });
            if change.properties.iter().any(|one| one.difference.path == property.difference.path) {
                continue;
            }
            change.properties.push(property);
            change.replacement = worst(&change.properties);
        }
    }
}

/// The references in a resource's properties: path, logical id, and whether by `Fn::GetAtt`.
fn references(resource: &Value) -> BTreeSet<(String, String, bool)> {
    let mut found = BTreeSet::new();
    if let Some(properties) = resource.get("Properties") {
        collect(properties, String::new(), &mut found);
    }
    found
}

pub(super) fn collect(value: &Value, path: String, found: &mut BTreeSet<(String, String, bool)>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(id)) = object.get("Ref") {
                found.insert((path, id.clone(), false));
                return;
            }
            match object.get("Fn::GetAtt") {
                Some(Value::Array(parts)) => {
                    if let Some(Value::String(id)) = parts.first() {
                        found.insert((path, id.clone(), true));
                    }
                    return;
                }
                Some(Value::String(text)) => {
                    let id = text.split('.').next().unwrap_or_default();
                    found.insert((path, id.to_owned(), true));
                    return;
                }
                _ => {}
            }
            for (key, below) in object {
                if key == "Fn::Sub" {
                    substitutions(below, &path, found);
                }
                let intrinsic = slipway_core::diff::is_intrinsic(object);
                let next = match (intrinsic, path.is_empty()) {
                    (true, _) => path.clone(),
                    (false, true) => key.clone(),
                    (false, false) => format!("{path}.{key}"),
                };
                collect(below, next, found);
            }
        }
        // The elements of an array have no names, so they belong to the array's path.
        Value::Array(items) => {
            for item in items {
                collect(item, path.clone(), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The names in `${Name}` and `${Name.Attribute}` of an `Fn::Sub`.
fn substitutions(value: &Value, path: &str, found: &mut BTreeSet<(String, String, bool)>) {
    let text = match value {
        Value::String(text) => text.as_str(),
        Value::Array(parts) => parts.first().and_then(Value::as_str).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "",
    };
    for piece in text.split("${").skip(1) {
        let name = piece.split('}').next().unwrap_or_default();
        if !name.starts_with('!') && !name.contains("::") {
            let mut parts = name.splitn(2, '.');
            let id = parts.next().unwrap_or_default();
            found.insert((path.to_owned(), id.to_owned(), parts.next().is_some()));
        }
    }
}
