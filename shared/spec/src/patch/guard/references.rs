//! References of a template to itself that lead nowhere: CloudFormation would refuse the whole stack.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Refusal;

/// References in `after` without a target, except those that `before` already had.
pub(super) fn dangling(before: &Value, after: &Value) -> Vec<Refusal> {
    let known = missing(before);
    missing(after)
        .into_iter()
        .filter(|name| !known.contains(name))
        .map(|name| {
            let help = "add it, or take the reference out as well";
            Refusal::new(format!("something would refer to `{name}`, which there would not be"), help)
        })
        .collect()
}

fn missing(template: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(template, &mut names);
    let depends = template.get("Resources").and_then(Value::as_object).into_iter().flatten();
    for (_, resource) in depends {
        match resource.get("DependsOn") {
            Some(Value::String(name)) => drop(names.insert(name.clone())),
            Some(Value::Array(list)) => {
                names.extend(list.iter().filter_map(Value::as_str).map(str::to_owned))
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {}
        }
    }
    let has = |group: &str, name: &str| template.get(group).and_then(|group| group.get(name)).is_some();
    names.retain(|name| !name.starts_with("AWS::") && !has("Resources", name) && !has("Parameters", name));
    names
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, below) in object {
                match (key.as_str(), below) {
                    ("Ref", Value::String(name)) if object.len() == 1 => drop(names.insert(name.clone())),
                    ("Fn::GetAtt", Value::String(name)) => {
                        names.extend(name.split('.').next().map(str::to_owned));
                    }
                    ("Fn::GetAtt", Value::Array(parts)) => {
                        names.extend(parts.first().and_then(Value::as_str).map(str::to_owned));
                    }
                    ("Fn::Sub", Value::String(text)) => names.extend(substituted(text)),
                    ("Fn::Sub", Value::Array(parts)) => {
                        let own = |name: &String| parts.get(1).and_then(|own| own.get(name)).is_none();
                        let text = parts.first().and_then(Value::as_str).unwrap_or_default();
                        names.extend(substituted(text).filter(own));
                        collect(below, names);
                    }
                    _ => collect(below, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The names within `${…}`.
fn substituted(text: &str) -> impl Iterator<Item = String> {
    text.split("${").skip(1).filter_map(|piece| {
        let name = piece.split('}').next()?.split('.').next()?;
        (!name.starts_with('!')).then(|| name.to_owned())
    })
}
