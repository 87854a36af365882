//! The pages of `docs/` that are made from the types.

pub(crate) mod kube_aws;
mod reference;

use serde_json::Value;

/// `docs/cluster-yaml.md`: every key with its type, default, meaning and constraints.
#[must_use]
pub fn cluster_yaml() -> String {
    reference::page(super::schema::root())
}

/// `docs/from-kube-aws.md`: what became of each key of kube-aws.
#[must_use]
pub fn from_kube_aws() -> String {
    kube_aws::page()
}

/// Follows `$ref`, and the `anyOf` by which something optional says "or null".
pub(crate) fn resolve<'s>(root: &'s Value, mut schema: &'s Value) -> &'s Value {
    loop {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            schema = root.pointer(&name[1..]).expect("our own definition");
        } else if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
            schema = choices.iter().find(|choice| choice["type"] != "null").expect("something or null");
        } else {
            return schema;
        }
    }
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
