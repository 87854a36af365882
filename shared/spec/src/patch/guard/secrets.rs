//! References to secrets that a patch puts together from pieces, so that its text does not contain them.

use serde_json::Value;

use super::Refusal;
use crate::patch::secrets::REFERENCES;

/// The refusal of references that `after` composes and `before` did not.
pub(super) fn composed(before: &Value, after: &Value) -> Option<Refusal> {
    let help = "templates are no place for secrets: let the workload read it with a role of its own";
    let found = composes(after, after) && !composes(before, before);
    found.then(|| Refusal::new("a reference to a secret that is put together from pieces", help))
}

/// Whether a function within `value` could come to such a reference.
fn composes(template: &Value, value: &Value) -> bool {
    let below = || match value {
        Value::Object(object) => object.values().any(|below| composes(template, below)),
        Value::Array(items) => items.iter().any(|below| composes(template, below)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    let is_function =
        value.as_object().is_some_and(|object| object.keys().any(|key| key.starts_with("Fn::")));
    let refers = |text: &str| REFERENCES.iter().any(|reference| text.contains(reference));
    is_function && refers(&text(template, value)) || below()
}

/// What a value comes to, as far as it can be known. What cannot be known is empty, and functions that choose come to all that they could.
fn text(template: &Value, value: &Value) -> String {
    let all = |values: &mut dyn Iterator<Item = &Value>| -> String {
        values.map(|value| text(template, value)).collect()
    };
    let parameter = |name: &str| {
        let default = template.get("Parameters")?.get(name)?.get("Default")?;
        Some(default.as_str().map_or_else(|| default.to_string(), str::to_owned))
    };
    match value {
        Value::String(plain) => plain.clone(),
        Value::Object(object) => {
            if let Some(name) = object.get("Ref").and_then(Value::as_str) {
                return parameter(name).unwrap_or_default();
            }
            if let Some([Value::String(delimiter), items]) = pair(object.get("Fn::Join")) {
                let items = items.as_array().map_or_else(
                    || vec![text(template, items)],
                    |items| items.iter().map(|item| text(template, item)).collect(),
                );
                return items.join(delimiter);
            }
            if let Some(sub) = object.get("Fn::Sub") {
                let (pattern, own) = match sub.as_array() {
                    Some(parts) => (parts.first().and_then(Value::as_str), parts.get(1)),
                    None => (sub.as_str(), None),
                };
                let named = |name: &str| {
                    let own = own.and_then(|own| own.get(name)).map(|value| text(template, value));
                    own.or_else(|| parameter(name)).unwrap_or_default()
                };
                return substituted(pattern.unwrap_or_default(), named);
            }
            all(&mut object.values())
        }
        Value::Array(items) => all(&mut items.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

fn pair(value: Option<&Value>) -> Option<&[Value; 2]> {
    value?.as_array()?.as_slice().try_into().ok()
}

/// `pattern` with each `${name}` replaced.
fn substituted(pattern: &str, named: impl Fn(&str) -> String) -> String {
    let mut pieces = pattern.split("${");
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once('}') {
            Some((name, rest)) => {
                whole.push_str(&named(name));
                whole.push_str(rest);
            }
            None => whole.push_str(piece),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(value: Value) -> bool {
        let parameters = json!({ "Open": { "Default": "{{res" }, "Kind": { "Default": "secretsmanager" } });
        let after =
            json!({ "Parameters": parameters, "Resources": { "A": { "Properties": { "B": value } } } });
        composed(&json!({}), &after).is_some()
    }

    #[test]
    fn a_reference_in_pieces_is_refused() {
        for value in [
            json!({ "Fn::Join": ["", ["{{resolve:secrets", "manager:password}}"]] }),
            json!({ "Fn::Join": [":", ["{{resolve", "ssm-secure", "password}}"]] }),
            json!({ "Fn::Join": ["", [{ "Ref": "Open" }, "olve:", { "Ref": "Kind" }, ":password}}"]] }),
            json!({ "Fn::Sub": "{{resolve:${Kind}:password}}" }),
            json!({ "Fn::Sub": ["{{resolve:${a}${b}:password}}", { "a": "ssm-", "b": "secure" }] }),
            json!({ "Fn::Join": ["", [{ "Fn::Join": ["", ["{", "{resolve:"]] }, { "Fn::Sub": "${Kind}:x}}" }]] }),
            json!({ "Fn::Join": ["", ["{{resolve:", { "Fn::Select": [0, ["secretsmanager"]] }, ":x}}"]] }),
            json!([{ "Deep": { "Fn::Sub": "{{resolve:${Kind}:x}}" } }]),
        ] {
            assert!(refused(value.clone()), "{value}");
        }
    }

    #[test]
    fn other_functions_stay_allowed() {
        for value in [
            json!({ "Fn::Join": ["", ["arn:aws:s3:::", { "Ref": "Bucket" }]] }),
            json!({ "Fn::Sub": "${AWS::StackName}-x" }),
            json!({ "Fn::Join": [",", ["{{resolve:ssm:public}}"]] }),
        ] {
            assert!(!refused(value.clone()), "{value}");
        }
    }
}
