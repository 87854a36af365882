//! Exports of a stack that other stacks use. CloudFormation refuses to remove such an export or to change its value, and it does so in
//! the middle of the update, so the plan checks it beforehand.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use slipway_core::release::{Rendering, Stack, StackKind};

use super::{Baseline, Replacement, StackPlan, stacks};

/// An export that a plan removes or changes while other stacks use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportInUse {
    /// The stack that exports it.
    pub stack: String,
    /// The export's name.
    pub export: String,
    /// A description from the stack: `Subnet private-a in eu-west-1a`.
    pub what: String,
    /// Whether it is removed; otherwise its value changes.
    pub removed: bool,
    /// The stacks that use it.
    pub used_by: Vec<String>,
    /// Those of them that no spec can change, because an earlier rollout orphaned them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphaned: Vec<String>,
}

impl ExportInUse {
    /// What it is, and the first of the stacks that use it.
    pub(super) fn words(&self) -> String {
        let users: Vec<&str> = self.used_by.iter().map(String::as_str).collect();
        format!("{} (used by {})", self.what, few(&users))
    }
}

/// The first names, and how many more there are.
pub(super) fn few(names: &[&str]) -> String {
    const MOST: usize = 3;
    let first = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(MOST);
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// One export of a template.
struct Export {
    what: String,
    value: Value,
}

/// The exports that `plans` remove or change although deployed stacks use them.
pub(super) fn in_use(baseline: &Baseline, new: &Rendering, plans: &[StackPlan]) -> Vec<ExportInUse> {
    let Some(old) = &baseline.rendering else { return Vec::new() };
    // A stack that is no longer in the spec is orphaned, or exports nothing.
    let changed = old.stacks.iter().filter_map(|before| {
        let after = new.stack(&before.name).filter(|after| after.sha256 != before.sha256)?;
        Some((before, after))
    });
    let changed: Vec<(&Stack, &Stack)> = changed.collect();
    if changed.is_empty() {
        return Vec::new();
    }
    let imports: Vec<(&str, BTreeSet<String>)> =
        old.stacks.iter().map(|stack| (stack.name.as_str(), imports(stack))).collect();
    let mut found = Vec::new();
    for (before, after) in changed {
        let replaced = replaced(&before.name, plans);
        let stay = exports(after);
        for (name, export) in exports(before) {
            let removed = match stay.get(&name) {
                None => true,
                Some(after) if after.value != export.value || refers_to(&after.value, &replaced) => false,
                Some(_) => continue,
            };
            let users =
                imports.iter().filter(|(stack, names)| *stack != before.name && names.contains(&name));
            let used_by: Vec<String> = users.map(|(stack, _)| (*stack).to_owned()).collect();
            if !used_by.is_empty() {
                let stack = before.name.clone();
                // A removed pool is deleted by a rollout of its own.
                let is_pool = |user: &str| old.stack(user).is_some_and(|stack| stack.kind == StackKind::Pool);
                let orphaned =
                    used_by.iter().filter(|user| baseline.orphaned.contains(*user) && !is_pool(user));
                let orphaned = orphaned.cloned().collect();
                found.push(ExportInUse {
                    stack,
                    export: name,
                    what: export.what,
                    removed,
                    used_by,
                    orphaned,
                });
            }
        }
    }
    found
}

/// Logical ids of the resources that are certainly replaced.
fn replaced(stack: &str, plans: &[StackPlan]) -> BTreeSet<String> {
    let of_stack = plans.iter().filter(|plan| plan.name == stack).flat_map(|plan| &plan.resources);
    of_stack
        .filter(|change| change.replacement == Replacement::Always)
        .map(|change| change.logical_id.clone())
        .collect()
}

fn refers_to(value: &Value, ids: &BTreeSet<String>) -> bool {
    let mut references = BTreeSet::new();
    stacks::collect(value, String::new(), &mut references);
    references.iter().any(|(_, id, _)| ids.contains(id))
}

fn exports(stack: &Stack) -> BTreeMap<String, Export> {
    let template = stacks::parse(stack);
    let outputs = template.get("Outputs").and_then(Value::as_object);
    let all = outputs.into_iter().flatten().filter_map(|(id, output)| {
        let name = output.pointer("/Export/Name")?.as_str()?.to_owned();
        let what = output.get("Description").and_then(Value::as_str).unwrap_or(id).to_owned();
        Some((name, Export { what, value: output.get("Value").cloned().unwrap_or_default() }))
    });
    all.collect()
}

fn imports(stack: &Stack) -> BTreeSet<String> {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(name)) = object.get("Fn::ImportValue") {
                    found.insert(name.clone());
                }
                object.values().for_each(|below| walk(below, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    walk(&stacks::parse(stack), &mut found);
    found
}
