//! CloudFormation's intrinsic functions: their references and their values.

use std::collections::BTreeSet;

use base64::Engine as _;
use serde_json::{Map, Value};

use super::cidr;

pub(super) use crate::schema::UNKNOWN;

/// The meaning of names in an expression. Errors are in CloudFormation's words.
pub trait Scope {
    /// `Ref`.
    fn reference(&self, name: &str) -> Result<Value, String>;
    /// `Fn::GetAtt`.
    fn attribute(&self, resource: &str, attribute: &str) -> Result<Value, String>;
    /// `Fn::ImportValue`.
    fn import(&self, name: &str) -> Result<Value, String>;
    /// A condition of the template.
    fn condition(&self, name: &str) -> Result<bool, String>;
    /// `Fn::GetAZs`; the empty string is the stack's own region.
    fn zones(&self, region: &str) -> Result<Vec<String>, String>;
}

/// What an expression refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// `Ref`, or `${Name}`.
    Name(String),
    /// `Fn::GetAtt`, or `${Name.Attribute}`.
    Attribute(String, String),
    /// A condition of the template.
    Condition(String),
    /// `Fn::ImportValue`, whatever it imports.
    Import,
    /// `Fn::GetAZs`.
    Zones,
}

/// Its name and argument, if `object` is an intrinsic function.
pub(crate) fn function(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let (name, argument) = object.iter().next()?;
    let is = object.len() == 1
        && (name == "Ref" || name == "Condition" && argument.is_string() || name.starts_with("Fn::"));
    is.then_some((name.as_str(), argument))
}

/// Everything that `value` refers to.
///
/// # Errors
/// A malformed function.
pub fn references(value: &Value) -> Result<BTreeSet<Reference>, String> {
    let mut found = BTreeSet::new();
    collect(value, &mut found)?;
    Ok(found)
}

fn collect(value: &Value, found: &mut BTreeSet<Reference>) -> Result<(), String> {
    let inner = match value {
        Value::Object(object) => match function(object) {
            Some(("Ref", name)) => {
                found.insert(Reference::Name(text("Ref", name)?.to_owned()));
                return Ok(());
            }
            Some(("Condition", name)) => {
                found.insert(Reference::Condition(text("Condition", name)?.to_owned()));
                return Ok(());
            }
            Some(("Fn::GetAtt", argument)) => {
                let (resource, attribute) = get_att(argument)?;
                found.insert(Reference::Attribute(resource, attribute));
                return Ok(());
            }
            Some(("Fn::Sub", argument)) => {
                let (template, variables) = sub(argument)?;
                for piece in pieces(template)? {
                    match piece {
                        Piece::Text(_) => {}
                        Piece::Name(name) if variables.is_some_and(|map| map.contains_key(&name)) => {}
                        Piece::Name(name) => {
                            found.insert(match name.split_once('.') {
                                Some((id, attribute)) => {
                                    Reference::Attribute(id.to_owned(), attribute.to_owned())
                                }
                                None => Reference::Name(name),
                            });
                        }
                    }
                }
                return variables.into_iter().flat_map(Map::values).try_for_each(|one| collect(one, found));
            }
            Some(("Fn::If", argument)) => {
                let [condition, ..] = arguments::<3>("Fn::If", argument)?;
                found.insert(Reference::Condition(text("Fn::If", condition)?.to_owned()));
                argument
            }
            Some(("Fn::ImportValue", argument)) => {
                found.insert(Reference::Import);
                argument
            }
            Some(("Fn::GetAZs", argument)) => {
                found.insert(Reference::Zones);
                argument
            }
            Some((name, argument)) if KNOWN.contains(&name) => argument,
            Some((name, _)) => {
                return Err(format!(
                    "Template error: {name} is not a function that the simulated CloudFormation models"
                ));
            }
            None => return object.values().try_for_each(|inner| collect(inner, found)),
        },
        Value::Array(items) => return items.iter().try_for_each(|inner| collect(inner, found)),
        Value::String(text) if text.contains("{{resolve:") => {
            return Err(format!(
                "Template error: the dynamic reference in {text} is not modelled by the simulated CloudFormation"
            ));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
    };
    collect(inner, found)
}

/// Functions whose arguments are treated like any other value.
const KNOWN: [&str; 9] = [
    "Fn::And",
    "Fn::Base64",
    "Fn::Cidr",
    "Fn::Equals",
    "Fn::Join",
    "Fn::Not",
    "Fn::Or",
    "Fn::Select",
    "Fn::Split",
];

/// The value of `value`; `None` is `AWS::NoValue`, which removes its key or element.
///
/// # Errors
/// The reason why a value cannot be computed, in CloudFormation's words.
pub fn evaluate(scope: &impl Scope, value: &Value) -> Result<Option<Value>, String> {
    match value {
        Value::Object(object) => match function(object) {
            Some((name, argument)) => call(scope, name, argument),
            None => {
                let mut out = Map::new();
                for (key, inner) in object {
                    if let Some(inner) = evaluate(scope, inner)? {
                        out.insert(key.clone(), inner);
                    }
                }
                Ok(Some(Value::Object(out)))
            }
        },
        Value::Array(items) => {
            let mut out = Vec::new();
            for inner in items {
                out.extend(evaluate(scope, inner)?);
            }
            Ok(Some(Value::Array(out)))
        }
        Value::Null => Err("Template format error: null values are not allowed in templates".to_owned()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Some(value.clone())),
    }
}

fn call(scope: &impl Scope, name: &str, argument: &Value) -> Result<Option<Value>, String> {
    let value = match name {
        "Ref" => match text(name, argument)? {
            "AWS::NoValue" => return Ok(None),
            name => scope.reference(name)?,
        },
        "Fn::If" => {
            let [condition, yes, no] = arguments(name, argument)?;
            let holds = scope.condition(text(name, condition)?)?;
            return evaluate(scope, if holds { yes } else { no });
        }
        "Fn::GetAtt" => {
            let (resource, attribute) = get_att(argument)?;
            scope.attribute(&resource, &attribute)?
        }
        "Fn::Sub" => Value::String(substitute(scope, argument)?),
        "Fn::Join" => {
            let [delimiter, items] = arguments(name, argument)?;
            let items = list(scope, name, items)?;
            let items = items.iter().map(|item| plain(name, item)).collect::<Result<Vec<_>, _>>()?;
            Value::String(items.join(text(name, delimiter)?))
        }
        "Fn::Select" => {
            let [index, items] = arguments(name, argument)?;
            let index = plain(name, &some(scope, name, index)?)?;
            let items = some(scope, name, items)?;
            select(&index, &items)?
        }
        "Fn::Split" => {
            let [delimiter, source] = arguments(name, argument)?;
            let source = plain(name, &some(scope, name, source)?)?;
            if source.contains(UNKNOWN) {
                Value::String(UNKNOWN.to_owned())
            } else {
                source.split(text(name, delimiter)?).map(|part| Value::String(part.to_owned())).collect()
            }
        }
        "Fn::Base64" => {
            let source = plain(name, &some(scope, name, argument)?)?;
            if source.contains(UNKNOWN) {
                Value::String(UNKNOWN.to_owned())
            } else {
                Value::String(base64::engine::general_purpose::STANDARD.encode(source))
            }
        }
        "Fn::ImportValue" => scope.import(&plain(name, &some(scope, name, argument)?)?)?,
        "Fn::GetAZs" => {
            let region = plain(name, &some(scope, name, argument)?)?;
            scope.zones(&region)?.into_iter().map(Value::String).collect()
        }
        "Fn::Cidr" => {
            let parts = list(scope, name, argument)?;
            let parts = parts.iter().map(|part| plain(name, part)).collect::<Result<Vec<_>, _>>()?;
            if parts.iter().any(|part| part.contains(UNKNOWN)) {
                Value::String(UNKNOWN.to_owned())
            } else {
                cidr::blocks(&parts)?.into_iter().map(Value::String).collect()
            }
        }
        "Condition" | "Fn::Equals" | "Fn::And" | "Fn::Or" | "Fn::Not" => {
            return Err(format!("Template error: {name} is only allowed in the Conditions section"));
        }
        other => {
            return Err(format!(
                "Template error: {other} is not a function that the simulated CloudFormation models"
            ));
        }
    };
    Ok(Some(value))
}

/// Whether a condition holds.
///
/// # Errors
/// As [`evaluate`].
pub fn holds(scope: &impl Scope, value: &Value) -> Result<bool, String> {
    let Some((name, argument)) = value.as_object().and_then(function) else {
        return Err("Template format error: every Conditions member must be a condition function".to_owned());
    };
    let all = || argument.as_array().cloned().unwrap_or_default();
    match name {
        "Condition" => scope.condition(text(name, argument)?),
        "Fn::Equals" => {
            let [left, right] = arguments(name, argument)?;
            Ok(plain(name, &some(scope, name, left)?)? == plain(name, &some(scope, name, right)?)?)
        }
        "Fn::And" => all().iter().try_fold(true, |so_far, one| Ok(so_far & holds(scope, one)?)),
        "Fn::Or" => all().iter().try_fold(false, |so_far, one| Ok(so_far | holds(scope, one)?)),
        "Fn::Not" => {
            let [one] = arguments(name, argument)?;
            Ok(!holds(scope, one)?)
        }
        other => Err(format!("Template error: {other} is not a condition function")),
    }
}

fn substitute(scope: &impl Scope, argument: &Value) -> Result<String, String> {
    let (template, variables) = sub(argument)?;
    let mut out = String::new();
    for piece in pieces(template)? {
        match piece {
            Piece::Text(text) => out.push_str(&text),
            Piece::Name(name) => {
                let value = match (variables.and_then(|map| map.get(&name)), name.split_once('.')) {
                    (Some(value), _) => some(scope, "Fn::Sub", value)?,
                    (None, Some((resource, attribute))) => scope.attribute(resource, attribute)?,
                    (None, None) => scope.reference(&name)?,
                };
                out.push_str(&plain("Fn::Sub", &value)?);
            }
        }
    }
    Ok(out)
}

fn select(index: &str, items: &Value) -> Result<Value, String> {
    match items {
        // The elements of an unknown list are unknown, too.
        Value::String(text) if text.contains(UNKNOWN) => Ok(Value::String(UNKNOWN.to_owned())),
        Value::Array(items) => {
            let at: usize =
                index.parse().map_err(|_| format!("Template error: Fn::Select cannot use {index} as an index"))?;
            items
                .get(at)
                .cloned()
                .ok_or_else(|| format!("Template error: Fn::Select cannot select nonexistent value at index {at}"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err("Template error: Fn::Select requires a list argument with two elements: an integer index and a list".to_owned())
        }
    }
}

enum Piece {
    Text(String),
    Name(String),
}

/// `text ${Name} ${!literal}`.
fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, after_it) = after
            .split_once('}')
            .ok_or_else(|| "Template error: a substitution in Fn::Sub has no closing brace".to_owned())?;
        found.push(Piece::Text(before.to_owned()));
        found.push(match inside.strip_prefix('!') {
            Some(literal) => Piece::Text(format!("${{{literal}}}")),
            None => Piece::Name(inside.trim().to_owned()),
        });
        rest = after_it;
    }
    found.push(Piece::Text(rest.to_owned()));
    Ok(found)
}

/// The template of `Fn::Sub`, and the variables that it defines.
type Substitution<'a> = (&'a str, Option<&'a Map<String, Value>>);

fn sub(argument: &Value) -> Result<Substitution<'_>, String> {
    let wrong = || {
        "Template error: One or more Fn::Sub intrinsic functions don't specify expected arguments. Specify a string \
         as first argument, and an optional second argument to specify a mapping of values to replace in the string"
            .to_owned()
    };
    match argument {
        Value::String(template) => Ok((template, None)),
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(template), Value::Object(map)] => Ok((template, Some(map))),
            _ => Err(wrong()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(wrong()),
    }
}

fn get_att(argument: &Value) -> Result<(String, String), String> {
    let parts = match argument {
        Value::String(text) => text.split_once('.'),
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(resource), Value::String(attribute)] => {
                Some((resource.as_str(), attribute.as_str()))
            }
            _ => None,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    let (resource, attribute) = parts
        .ok_or("Template error: every Fn::GetAtt object requires two non-empty parameters, the resource name and the resource attribute")?;
    Ok((resource.to_owned(), attribute.to_owned()))
}

fn arguments<'a, const N: usize>(name: &str, argument: &'a Value) -> Result<&'a [Value; N], String> {
    argument
        .as_array()
        .and_then(|parts| parts.as_slice().try_into().ok())
        .ok_or_else(|| format!("Template error: every {name} object requires {N} arguments"))
}

fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| {
        format!("Template error: every {name} object must have a string where it names something")
    })
}

fn some(scope: &impl Scope, name: &str, value: &Value) -> Result<Value, String> {
    evaluate(scope, value)?.ok_or_else(|| format!("Template error: AWS::NoValue is not allowed in {name}"))
}

fn list(scope: &impl Scope, name: &str, value: &Value) -> Result<Vec<Value>, String> {
    match some(scope, name, value)? {
        Value::Array(items) => Ok(items),
        Value::String(text) if text.contains(UNKNOWN) => Ok(vec![Value::String(text)]),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(format!("Template error: every {name} object requires a list"))
        }
    }
}

/// A scalar as text, as CloudFormation converts it.
pub(crate) fn plain(name: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(format!("Template error: every value in {name} must resolve to a string"))
        }
    }
}
