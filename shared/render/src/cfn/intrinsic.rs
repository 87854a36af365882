//! Intrinsic functions.

use serde_json::{Map, Value, json};

/// `Ref`: a resource's primary identifier.
pub(crate) fn reference(id: &str) -> Value {
    json!({ "Ref": id })
}

/// `Fn::GetAtt`.
pub(crate) fn get_att(id: &str, attribute: &str) -> Value {
    json!({ "Fn::GetAtt": [id, attribute] })
}

/// `Fn::Sub` of a text with `${…}` in it.
pub(crate) fn sub(text: impl Into<String>) -> Value {
    json!({ "Fn::Sub": text.into() })
}

/// `Fn::ImportValue` of another stack's export.
pub(crate) fn import_value(export: impl Into<String>) -> Value {
    json!({ "Fn::ImportValue": export.into() })
}

/// `Fn::Join` without a separator.
pub(crate) fn join(parts: Vec<Value>) -> Value {
    object("Fn::Join", Value::Array(vec!["".into(), Value::Array(parts)]))
}

/// `Fn::Base64`, which EC2 requires for user data.
pub(crate) fn base64(value: Value) -> Value {
    object("Fn::Base64", value)
}

/// `json!` would copy the value.
fn object(function: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(function.to_owned(), value)]))
}
