//! References to secrets that a patch puts together from pieces, so that its text does not contain them.

use serde_json::Value;

use super::Refusal;
use crate::patch::secrets::REFERENCES;

/// In the place of what cannot be known: what a resource, another stack or a parameter without a default says.
const UNKNOWN: char = '\u{0}';

/// The refusal of references that `after` composes and `before` did not.
pub(super) fn composed(before: &Value, after: &Value) -> Option<Refusal> {
    let help = "templates must not contain secrets: let the workload read it with a role of its own";
    let mut known = Vec::new();
    composing(before, before, &mut known);
    let mut found = Vec::new();
    composing(after, after, &mut found);
    let is_new = found.iter().any(|one| !known.contains(one));
    is_new.then(|| Refusal::new("a reference to a secret that is put together from pieces", help))
}

/// The functions within `value` that could come to such a reference.
fn composing<'v>(template: &Value, value: &'v Value, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(object) => {
            let is_function = object.keys().any(|key| key.starts_with("Fn::"));
            if is_function && may_refer(&text(template, value)) {
                found.push(value);
            }
            object.values().for_each(|below| composing(template, below, found));
        }
        Value::Array(items) => items.iter().for_each(|below| composing(template, below, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a text has such a reference, or the beginning of one that goes on with something unknown.
fn may_refer(text: &str) -> bool {
    let may_continue = |rest: &[u8]| {
        REFERENCES.iter().any(|reference| {
            let same = rest.iter().zip(reference.as_bytes()).take_while(|(one, other)| one == other).count();
            same < reference.len() && rest.get(same) == Some(&(UNKNOWN as u8))
        })
    };
    REFERENCES.iter().any(|reference| text.contains(reference))
        || text.match_indices('{').any(|(at, _)| may_continue(&text.as_bytes()[at..]))
}

/// What a value comes to, as far as it can be known.
fn text(template: &Value, value: &Value) -> String {
    let all = |values: &mut dyn Iterator<Item = &Value>| -> String {
        values.map(|value| text(template, value)).collect()
    };
    let named = |name: &str| {
        if name.starts_with("AWS::") {
            // Names and numbers, none of which is a part of a reference.
            return String::new();
        }
        let default = template.get("Parameters").and_then(|all| all.get(name)?.get("Default"));
        default.map_or_else(
            || UNKNOWN.to_string(),
            |default| default.as_str().map_or_else(|| default.to_string(), str::to_owned),
        )
    };
    match value {
        Value::String(plain) => plain.clone(),
        Value::Object(object) => {
            if let Some(name) = object.get("Ref").and_then(Value::as_str) {
                return named(name);
            }
            if let Some([Value::String(delimiter), list]) = pair(object.get("Fn::Join"))
                && let Some(items) = items(template, list)
            {
                return items.join(delimiter);
            }
            if let Some([Value::Number(index), list]) = pair(object.get("Fn::Select"))
                && let Some(items) = items(template, list)
            {
                let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
                return index.and_then(|index| items.get(index).cloned()).unwrap_or_default();
            }
            if let Some(sub) = object.get("Fn::Sub") {
                let (pattern, own) = match sub.as_array() {
                    Some(parts) => (parts.first().and_then(Value::as_str), parts.get(1)),
                    None => (sub.as_str(), None),
                };
                let named = |name: &str| {
                    let own = own.and_then(|own| own.get(name)).map(|value| text(template, value));
                    own.unwrap_or_else(|| named(name))
                };
                return substituted(pattern.unwrap_or_default(), named);
            }
            let all = all(&mut object.values());
            match object.keys().any(|key| key.starts_with("Fn::")) {
                // Nobody knows what comes of it, not even of the pieces that are here.
                true => format!("{UNKNOWN}{all}{UNKNOWN}"),
                false => all,
            }
        }
        Value::Array(items) => all(&mut items.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// The items of a list.
fn items(template: &Value, list: &Value) -> Option<Vec<String>> {
    if let Some([Value::String(delimiter), source]) = pair(list.get("Fn::Split")) {
        let source = text(template, source);
        return Some(source.split(delimiter.as_str()).map(str::to_owned).collect());
    }
    Some(list.as_array()?.iter().map(|item| text(template, item)).collect())
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
                match name.strip_prefix('!') {
                    Some(literal) => whole.push_str(&format!("${{{literal}}}")),
                    None => whole.push_str(&named(name)),
                }
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
            json!({ "Fn::Join": ["", { "Fn::Split": ["|", "{{resolve:|secretsmanager:payroll}}"] }] }),
            json!({ "Fn::Join": ["", ["{{resolve:", { "Fn::Select": [1, ["decoy", "secretsmanager"]] }, ":x}}"]] }),
            json!({ "Fn::Sub": "{{resolve:${Topic.TopicName}:payroll}}" }),
            json!({ "Fn::Sub": ["{${rest}", { "rest": { "Fn::ImportValue": "theirs" } }] }),
            json!({ "Fn::Join": ["", ["{{", { "Fn::FindInMap": ["Map", "a", "b"] }]] }),
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
            json!({ "Fn::Sub": "{{resolve:ssm:/${AWS::StackName}/image}}" }),
            json!({ "Fn::Sub": "{ \"bucket\": \"${Bucket}\" }" }),
        ] {
            assert!(!refused(value.clone()), "{value}");
        }
    }
}
