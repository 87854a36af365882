//! The order in which resources have to be created.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{ApiError, ApiResult};
use super::expression::{Reference, references};
use super::template::{Definition, Template};

/// The logical ids that `definition` depends on, by `DependsOn`, `Ref`, `Fn::GetAtt`, `Fn::Sub`.
pub(crate) fn needs(template: &Template, definition: &Definition) -> BTreeSet<String> {
    let mut found = definition.depends_on.clone();
    // Malformed expressions were refused when the template was read.
    for reference in references(&definition.properties).unwrap_or_default() {
        match reference {
            Reference::Name(name) | Reference::Attribute(name, _) => {
                if template.resources.contains_key(&name) {
                    found.insert(name);
                }
            }
            Reference::Condition(_) | Reference::Import | Reference::Zones => {}
        }
    }
    found
}

/// The dependencies of every resource of `template`.
pub(crate) fn dependencies(template: &Template) -> BTreeMap<String, BTreeSet<String>> {
    template.resources.iter().map(|(id, definition)| (id.clone(), needs(template, definition))).collect()
}

/// The resources in an order in which each comes after its dependencies.
pub(crate) fn order(template: &Template) -> Vec<String> {
    let mut open = dependencies(template);
    let mut done: Vec<String> = Vec::new();
    while !open.is_empty() {
        let ready: Vec<String> = open
            .iter()
            .filter(|(_, needs)| needs.iter().all(|need| !open.contains_key(need)))
            .map(|(id, _)| id.clone())
            .collect();
        if ready.is_empty() {
            break;
        }
        for id in ready {
            open.remove(&id);
            done.push(id);
        }
    }
    done
}

/// Refuses a template in which resources wait for each other.
pub(super) fn check_acyclic(template: &Template) -> ApiResult<()> {
    let ordered: BTreeSet<String> = order(template).into_iter().collect();
    let mut left: BTreeMap<String, BTreeSet<String>> =
        dependencies(template).into_iter().filter(|(id, _)| !ordered.contains(id)).collect();
    // A resource that only depends on a circle is not part of it: remove resources that no remaining resource depends on.
    loop {
        let needed: BTreeSet<String> = left.values().flatten().cloned().collect();
        let before = left.len();
        left.retain(|id, _| needed.contains(id));
        if left.len() == before {
            break;
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let circle = left.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(ApiError::validation(format!("Circular dependency between resources: [{circle}]")))
}
