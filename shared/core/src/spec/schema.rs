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
