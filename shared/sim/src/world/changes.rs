//! The changes of a change set, resource by resource and property by property.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::expression::{Reference, UNKNOWN, function, references};
use super::graph;
use super::resource::{Resource, Revision};
use super::scope::StackScope;
use super::template::{Definition, Policy};
use crate::schema::{Recreation, ResourceType, resource_type};

/// A change of one resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) action: Action,
    pub(crate) logical_id: String,
    pub(crate) physical_id: Option<String>,
    pub(crate) kind: String,
    /// For a modification: `True`, `Conditional`, `False`.
    pub(crate) replacement: Option<&'static str>,
    pub(crate) scope: BTreeSet<&'static str>,
    pub(crate) details: Vec<Detail>,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    /// What happens to the old resource: `Delete`, `Retain`, …
    pub(crate) policy_action: Option<&'static str>,
}

/// What happens to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Add,
    Modify,
    Remove,
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "Add",
            Self::Modify => "Modify",
            Self::Remove => "Remove",
        }
    }
}

/// A change of one value of a resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Detail {
    /// `Properties`, `Tags`, `Metadata`, `DeletionPolicy`, `UpdateReplacePolicy`.
    pub(crate) attribute: &'static str,
    /// The property at the top, for `Properties`.
    pub(crate) name: Option<String>,
    /// `/Properties/LaunchTemplateData/ImageId`.
    pub(crate) path: Option<String>,
    pub(crate) recreation: Recreation,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    /// Whether the value is known before the change is executed.
    pub(crate) known: bool,
    pub(crate) source: &'static str,
    /// The parameter, resource or attribute that causes the change.
    pub(crate) causing_entity: Option<String>,
}

impl Detail {
    pub(crate) fn change_type(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "Add",
            (Some(_), None) => "Remove",
            (Some(_), Some(_)) => "Modify",
        }
    }
}

/// The changes from the present state to `scope.revision`, by logical id. They also record in `scope` which resources are replaced
/// and touched.
///
/// # Errors
/// The reason why the change set fails, in CloudFormation's words.
pub(crate) fn changes(
    scope: &mut StackScope<'_>,
    old: Option<&Revision>,
    standing: &BTreeMap<String, Resource>,
) -> Result<Vec<Change>, String> {
    let present = scope.present()?;
    let mut found = BTreeMap::new();
    for id in graph::order(&scope.revision.template) {
        if !present.contains(&id) {
            continue;
        }
        let definition = scope.revision.template.resources[&id].clone();
        let Some(resource) = standing.get(&id) else {
            scope.renewed.insert(id.clone());
            let after = scope.properties(&definition)?;
            found.insert(id.clone(), addition(&id, &definition, after));
            continue;
        };
        if resource.kind != definition.kind {
            return Err(format!(
                "Update of resource type is not permitted. The new template modifies resource type of the following resources: [{id}]"
            ));
        }
        let after = scope.properties(&definition)?;
        let raw = old.and_then(|old| old.template.resources.get(&id)).map(|old| &old.properties);
        let Some(change) = modification(scope.revision, raw, resource, &definition, &after) else { continue };
        if change.replacement != Some("False") {
            scope.renewed.insert(id.clone());
        }
        if change.scope.contains("Properties") {
            scope.touched.insert(id.clone());
        }
        found.insert(id, change);
    }
    for (id, resource) in standing {
        if !present.contains(id) {
            found.insert(id.clone(), removal(resource));
        }
    }
    Ok(found.into_values().collect())
}

fn addition(id: &str, definition: &Definition, after: Value) -> Change {
    Change {
        action: Action::Add,
        logical_id: id.to_owned(),
        physical_id: None,
        kind: definition.kind.clone(),
        replacement: None,
        scope: BTreeSet::new(),
        details: Vec::new(),
        before: None,
        after: Some(after),
        policy_action: None,
    }
}

fn removal(resource: &Resource) -> Change {
    Change {
        action: Action::Remove,
        logical_id: resource.logical_id.clone(),
        physical_id: resource.physical_id.clone(),
        kind: resource.kind.clone(),
        replacement: None,
        scope: BTreeSet::new(),
        details: Vec::new(),
        before: Some(resource.properties.clone()),
        after: None,
        policy_action: Some(match resource.deletion_policy {
            Policy::Delete => "Delete",
            Policy::Retain | Policy::RetainExceptOnCreate => "Retain",
            Policy::Snapshot => "Snapshot",
        }),
    }
}

fn modification(
    revision: &Revision,
    raw_old: Option<&Value>,
    resource: &Resource,
    definition: &Definition,
    after: &Value,
) -> Option<Change> {
    let kind = resource_type(&resource.kind)?;
    let mut details = Vec::new();
    for (path, before, after) in differences(&resource.properties, after) {
        details.push(property_detail(kind, revision, raw_old, definition, path, before, after));
    }
    let plain = |attribute, before: Option<Value>, after: Option<Value>| Detail {
        attribute,
        name: None,
        path: None,
        recreation: Recreation::Never,
        before,
        after,
        known: true,
        source: "DirectModification",
        causing_entity: None,
    };
    if kind.tag_property.is_some() && resource.stack_tags != revision.tags {
        let tags = |tags: &BTreeMap<String, String>| serde_json::to_value(tags).ok();
        details.push(plain("Tags", tags(&resource.stack_tags), tags(&revision.tags)));
    }
    if resource.metadata != definition.metadata {
        details.push(plain("Metadata", resource.metadata.clone(), definition.metadata.clone()));
    }
    let policies = [
        ("DeletionPolicy", resource.deletion_policy, definition.deletion_policy),
        ("UpdateReplacePolicy", resource.update_replace_policy, definition.update_replace_policy),
    ];
    for (attribute, before, after) in policies {
        if before != after {
            let value = |policy: Policy| Some(Value::String(policy.name().to_owned()));
            details.push(plain(attribute, value(before), value(after)));
        }
    }
    if details.is_empty() {
        return None;
    }
    let replacement = details.iter().map(replacement).max().unwrap_or(0);
    let replaced = replacement == 2;
    Some(Change {
        action: Action::Modify,
        logical_id: resource.logical_id.clone(),
        physical_id: resource.physical_id.clone(),
        kind: resource.kind.clone(),
        replacement: Some(["False", "Conditional", "True"][replacement]),
        scope: details.iter().map(|detail| detail.attribute).collect(),
        details,
        before: Some(resource.properties.clone()),
        after: Some(after.clone()),
        policy_action: replaced.then_some(match resource.update_replace_policy {
            Policy::Delete => "ReplaceAndDelete",
            Policy::Retain | Policy::RetainExceptOnCreate => "ReplaceAndRetain",
            Policy::Snapshot => "ReplaceAndSnapshot",
        }),
    })
}

/// The rule of the API reference for `Replacement`: a static change of a property that always needs recreation is `True`; a dynamic
/// change of it, or a change of a property that needs recreation conditionally, is `Conditional`.
fn replacement(detail: &Detail) -> usize {
    match (detail.recreation, detail.known) {
        (Recreation::Never, _) => 0,
        (Recreation::Conditionally, _) | (Recreation::Always, false) => 1,
        (Recreation::Always, true) => 2,
    }
}

fn property_detail(
    kind: &ResourceType,
    revision: &Revision,
    raw_old: Option<&Value>,
    definition: &Definition,
    path: Vec<String>,
    before: Option<Value>,
    after: Option<Value>,
) -> Detail {
    let raw_new = raw_at(&definition.properties, &path);
    let rewritten = raw_new != raw_old.and_then(|raw| raw_at(raw, &path));
    let unknown = after.as_ref().is_some_and(|after| after.to_string().contains(UNKNOWN));
    let (source, causing_entity) =
        if rewritten { ("DirectModification", None) } else { cause(revision, raw_new) };
    Detail {
        attribute: if path.first() == kind.tag_property.as_ref() { "Tags" } else { "Properties" },
        name: path.first().cloned(),
        recreation: kind.recreation(&path),
        path: Some(format!("/Properties/{}", path.join("/"))),
        before,
        after,
        known: rewritten || !unknown,
        source,
        causing_entity,
    }
}

/// Why an expression has a new value although its text is the same.
fn cause(revision: &Revision, raw: Option<&Value>) -> (&'static str, Option<String>) {
    let found = raw.map(references).and_then(Result::ok).unwrap_or_default();
    for reference in found {
        match reference {
            Reference::Name(name) if revision.template.parameters.contains_key(&name) => {
                return ("ParameterReference", Some(name));
            }
            Reference::Name(name) if revision.template.resources.contains_key(&name) => {
                return ("ResourceReference", Some(name));
            }
            Reference::Attribute(id, attribute) => {
                return ("ResourceAttribute", Some(format!("{id}.{attribute}")));
            }
            Reference::Name(_) | Reference::Condition(_) | Reference::Import | Reference::Zones => {}
        }
    }
    ("DirectModification", None)
}

/// The template's text at `path`, or the function that computes the value there.
fn raw_at<'a>(properties: &'a Value, path: &[String]) -> Option<&'a Value> {
    let mut here = properties;
    for key in path {
        here = match here {
            Value::Object(object) if function(object).is_some() => return Some(here),
            Value::Object(object) => object.get(key)?,
            Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Some(here),
        };
    }
    Some(here)
}

type Difference = (Vec<String>, Option<Value>, Option<Value>);

/// Every path at which two computed values differ, with both values.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    part(&mut Vec::new(), Some(before), Some(after), &mut found);
    found
}

fn part(path: &mut Vec<String>, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    let mut deeper = |key: String, before: Option<&Value>, after: Option<&Value>| {
        path.push(key);
        part(path, before, after, found);
        path.pop();
    };
    match (before, after) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                deeper(key.clone(), left.get(key), right.get(key));
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                deeper(index.to_string(), left.get(index), right.get(index));
            }
        }
        _ => found.push((path.clone(), before.cloned(), after.cloned())),
    }
}
