//! A default that the schema promises is what leaving the key out gives.

use std::path::PathBuf;

use serde_json::Value;

use super::super::report::Report;
use super::super::schema::resolve;
use super::super::{Accepted, SPEC, parse, schema, shape, tree};

/// Groups that no example uses; each is accepted.
const MORE: &str = include_str!("data/every-group.yaml");

/// What a key's description says besides its default: beside these keys another holds.
const UNLESS: &[(&str, &[&str])] = &[("worker.nodePools[].instanceType", &["mixedInstances", "spotFleet"])];

/// Each key with a default that says something, by its pattern.
fn promised() -> Vec<(String, Value)> {
    fn walk(root: &Value, group: &Value, path: &str, found: &mut Vec<(String, Value)>) {
        let group = resolve(root, group);
        if let Some(items) = group.get("items") {
            return walk(root, items, &format!("{path}[]"), found);
        }
        for (key, property) in group.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if property.get("deprecated") == Some(&Value::Bool(true)) {
                continue;
            }
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match property.get("default") {
                Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => {}
                Some(Value::String(text)) if text.is_empty() => {}
                Some(default) => found.push((path.clone(), default.clone())),
            }
            walk(root, property, &path, found);
        }
    }
    let root = schema();
    let mut found = Vec::new();
    walk(&root, &root, "", &mut found);
    found
}

/// Every accepted spec that there is, as JSON.
fn bases() -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut texts: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    texts.sort();
    // The whole of it is many specs, so that groups may exclude one another.
    texts.extend(MORE.split("\n---\n").map(str::to_owned));
    texts.iter().map(|text| as_json(text)).collect()
}

fn as_json(text: &str) -> Value {
    let accepted = read(text);
    assert!(accepted.is_some(), "not accepted: {:#?}\n{text}", parse(text.as_bytes(), None));
    let tree = tree::read(text, &SPEC).unwrap();
    shape::read(schema::root(), &tree, &mut Report::new(&tree))
}

fn read(text: &str) -> Option<Accepted> {
    parse(text.as_bytes(), None).ok()
}

/// Calls `visit` with each group in which the last step of `path` may stand.
pub(super) fn places(
    at: &mut Value,
    path: &[&str],
    visit: &mut dyn FnMut(&mut serde_json::Map<String, Value>, &str),
) {
    let Some((step, rest)) = path.split_first() else { return };
    let Some(group) = at.as_object_mut() else { return };
    if rest.is_empty() {
        return visit(group, step);
    }
    match step.strip_suffix("[]") {
        Some(list) => {
            for item in group.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                places(item, rest, visit);
            }
        }
        None => {
            if let Some(below) = group.get_mut(*step) {
                places(below, rest, visit);
            }
        }
    }
}

#[test]
fn leaving_a_key_out_gives_its_default() {
    let (promised, bases) = (promised(), bases());
    assert!(promised.len() > 40, "the descriptions are not understood: {promised:#?}");
    let mut unchecked = Vec::new();
    for (path, default) in promised {
        let steps: Vec<&str> = path.split('.').collect();
        let mut checked = false;
        for base in &bases {
            let (mut without, mut with, mut found) = (base.clone(), base.clone(), false);
            let unless = UNLESS.iter().find(|(key, _)| *key == path).map_or(&[][..], |(_, keys)| *keys);
            places(&mut without, &steps, &mut |group, key| {
                if !unless.iter().any(|other| group.contains_key(*other)) {
                    found = true;
                    group.remove(key);
                }
            });
            places(&mut with, &steps, &mut |group, key| {
                if !unless.iter().any(|other| group.contains_key(*other)) {
                    group.insert(key.to_owned(), default.clone());
                }
            });
            // Where the key must be given, nothing is said about leaving it out.
            let Some(without) = read(&without.to_string()).filter(|_| found) else { continue };
            // Where another key takes its place, it may not be given at all.
            let Some(with) = read(&with.to_string()) else { continue };
            assert!(without.cluster == with.cluster, "`{path}` has another default than {default}");
            checked = true;
        }
        if !checked {
            unchecked.push(path);
        }
    }
    assert!(unchecked.is_empty(), "add their groups to tests/data/every-group.yaml: {unchecked:#?}");
}
