//! The schema says everything that the code knows of a key.

use super::super::{legacy, schema};

/// Each property of the schema by its pattern, with its own schema.
pub(super) fn properties(schema: &serde_json::Value) -> Vec<(String, serde_json::Value)> {
    fn walk(
        root: &serde_json::Value,
        at: &serde_json::Value,
        path: &str,
        found: &mut Vec<(String, serde_json::Value)>,
    ) {
        if let Some(name) = at.get("$ref").and_then(serde_json::Value::as_str) {
            return walk(root, root.pointer(&name[1..]).unwrap(), path, found);
        }
        for choice in at.get("anyOf").and_then(serde_json::Value::as_array).into_iter().flatten() {
            walk(root, choice, path, found);
        }
        if let Some(items) = at.get("items") {
            walk(root, items, &format!("{path}[]"), found);
        }
        for (key, property) in
            at.get("properties").and_then(serde_json::Value::as_object).into_iter().flatten()
        {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            found.push((path.clone(), property.clone()));
            walk(root, property, &path, found);
        }
    }
    let mut found = Vec::new();
    walk(schema, schema, "", &mut found);
    found
}

#[test]
fn every_key_is_described() {
    for (path, property) in properties(&schema()) {
        let described = property
            .get("description")
            .and_then(serde_json::Value::as_str)
            .is_some_and(|text| text.len() > 5);
        assert!(described, "{path} has no description");
    }
}

#[test]
fn every_translated_key_is_in_the_schema_and_says_what_to_write() {
    let deprecated: Vec<String> = properties(&schema())
        .into_iter()
        .filter(|(_, property)| property.get("deprecated") == Some(&true.into()))
        .map(|(path, _)| path)
        .collect();
    let mut noted: Vec<&str> = legacy::TRANSLATED.iter().map(|note| note.pattern).collect();
    noted.sort_unstable();
    let mut sorted = deprecated.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, noted);
}

#[test]
fn no_retired_key_is_in_the_schema() {
    let known: Vec<String> = properties(&schema()).into_iter().map(|(path, _)| path).collect();
    for note in legacy::retired_keys() {
        assert!(!known.contains(&note.pattern.to_owned()), "{} is both known and retired", note.pattern);
    }
}
