//! The schema as others read it, who see YAML's own types: `1.37` is a number to them, and a key without a value is null.

use serde_json::{Map, Value, json};

use super::resolve;

/// The schema in which each slot lists the types that are accepted there.
pub(super) fn published(root: &Value) -> Value {
    let mut published = root.clone();
    if let Some(named) = published.get_mut("$defs").and_then(Value::as_object_mut) {
        named.values_mut().for_each(|definition| widen(definition, root));
    }
    widen(&mut published, root);
    published
}

/// What a slot without a value may contain.
#[derive(Clone, Copy, PartialEq)]
enum Slot {
    /// The value of a key: a group or a list may be left empty.
    Key,
    /// An item of a list, which must be something.
    Item,
}

/// Every slot of a group, a list or a map.
fn widen(schema: &mut Value, root: &Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    for property in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        slot(property.1, root, Slot::Key);
    }
    for (key, kind) in [("additionalProperties", Slot::Key), ("items", Slot::Item)] {
        if let Some(below) = schema.get_mut(key) {
            slot(below, root, kind);
        }
    }
}

fn slot(schema: &mut Value, root: &Value, kind: Slot) {
    let holds = |name: &str| {
        let resolved = resolve(root, schema);
        kinds(resolved).iter().any(|kind| kind == name)
    };
    let nullable = kind == Slot::Key && (holds("object") || holds("array"));
    widen(schema, root);
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(one) = non_null(schema) {
        schema.remove("anyOf");
        schema.extend(one);
    }
    if let Some(reference) = schema.get("$ref").cloned() {
        if nullable {
            schema.remove("$ref");
            schema.insert("anyOf".to_owned(), json!([{ "$ref": reference }, { "type": "null" }]));
        }
        return;
    }
    let mut wanted = kinds(&Value::Object(schema.clone()));
    wanted.retain(|kind| kind != "null");
    let plain = ["enum", "oneOf", "const", "pattern"].iter().all(|key| !schema.contains_key(*key));
    if plain && wanted.iter().any(|kind| kind == "string") {
        // Where text is expected, any scalar is taken as text, whatever it looks like.
        wanted.extend(["number", "boolean"].map(str::to_owned));
    }
    if nullable {
        wanted.push("null".to_owned());
    }
    match wanted.as_slice() {
        [] => {}
        [one] => drop(schema.insert("type".to_owned(), json!(one))),
        several => drop(schema.insert("type".to_owned(), json!(several))),
    }
}

/// The one choice besides null, if that is all that `anyOf` says.
fn non_null(schema: &Map<String, Value>) -> Option<Map<String, Value>> {
    let choices = schema.get("anyOf")?.as_array()?;
    let mut others = choices.iter().filter(|choice| choice.get("type") != Some(&Value::from("null")));
    let one = others.next()?.as_object()?;
    others.next().is_none().then(|| one.clone())
}

fn kinds(schema: &Value) -> Vec<String> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind.clone()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
