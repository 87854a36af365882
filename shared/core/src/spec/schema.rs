//! The JSON Schema of `cluster.yaml`, from the types of the model.

use std::sync::LazyLock;

use serde_json::Value;

use super::model::Spec;

/// Made once: it is the same for every spec.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(Spec).to_value());

/// The schema that editors and other tools may check a `cluster.yaml` with, as published in `infra/cluster.schema.json`.
#[must_use]
pub fn schema() -> Value {
    SCHEMA.clone()
}

pub(super) fn root() -> &'static Value {
    &SCHEMA
}

/// Whether there is a key at that place: names with dots between them, through no list.
pub(super) fn knows(place: &str) -> bool {
    let root = root();
    let mut at = root;
    place.split('.').all(|name| {
        if let Some(pointer) = at.get("$ref").and_then(Value::as_str) {
            at = pointer.strip_prefix('#').and_then(|pointer| root.pointer(pointer)).unwrap_or(&Value::Null);
        }
        at = at.get("properties").and_then(|known| known.get(name)).unwrap_or(&Value::Null);
        !at.is_null()
    })
}
