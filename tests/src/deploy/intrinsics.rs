//! A plain CloudFormation template, and what its intrinsic functions come to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::DeployError;
use crate::client::ACCOUNT;

/// A template with its parameters and conditions decided.
#[derive(Debug)]
pub(super) struct Template {
    resources: BTreeMap<String, Value>,
    outputs: BTreeMap<String, Value>,
    /// `Ref` of parameters and pseudo parameters.
    values: BTreeMap<String, Value>,
    conditions: BTreeMap<String, bool>,
}

/// What a created resource answers to `Ref` and `Fn::GetAtt`.
#[derive(Debug, Clone, Default)]
pub(super) struct Made {
    pub(super) reference: String,
    pub(super) attributes: BTreeMap<&'static str, String>,
}

/// Everything created so far, by logical id.
pub(super) type Stack = BTreeMap<String, Made>;

impl Template {
    /// Reads a template. Parameters that are not given take their defaults.
    pub(super) fn new(
        template: &Value,
        region: &str,
        stack_name: &str,
        parameters: &BTreeMap<&str, &str>,
    ) -> Result<Self, DeployError> {
        for key in template.as_object().into_iter().flat_map(Map::keys) {
            let known = [
                "AWSTemplateFormatVersion",
                "Description",
                "Parameters",
                "Conditions",
                "Resources",
                "Outputs",
            ];
            if !known.contains(&key.as_str()) {
                return Err(DeployError::new("template", &format!("section `{key}` is not modelled")));
            }
        }
        let mut values = BTreeMap::new();
        for (name, declared) in entries(&template["Parameters"]) {
            let given = parameters.get(name.as_str()).map(|value| Value::from(*value));
            let value = given
                .or_else(|| declared.get("Default").cloned())
                .ok_or_else(|| DeployError::new(name, "parameter without a default and not given"))?;
            let allowed = declared["AllowedValues"].as_array();
            if allowed.is_some_and(|allowed| !allowed.contains(&value)) {
                return Err(DeployError::new(name, &format!("{value} is not among its AllowedValues")));
            }
            let text = value.as_str().unwrap_or_default();
            values.insert(
                name.clone(),
                match declared["Type"].as_str() {
                    Some("CommaDelimitedList") if text.is_empty() => Value::Array(Vec::new()),
                    Some("CommaDelimitedList") => {
                        text.split(',').map(|item| Value::from(item.trim())).collect()
                    }
                    Some("String" | "Number") => value,
                    other => {
                        return Err(DeployError::new(
                            name,
                            &format!("parameter type {other:?} is not modelled"),
                        ));
                    }
                },
            );
        }
        if let Some(unknown) = parameters.keys().find(|name| !values.contains_key(**name)) {
            return Err(DeployError::new(unknown, "the template has no such parameter"));
        }
        for (name, value) in [
            ("AWS::Region", region),
            ("AWS::AccountId", ACCOUNT),
            ("AWS::Partition", "aws"),
            ("AWS::URLSuffix", "amazonaws.com"),
            ("AWS::StackName", stack_name),
        ] {
            values.insert(name.to_owned(), Value::from(value));
        }
        let section =
            |name: &str| entries(&template[name]).map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut read = Self {
            resources: section("Resources"),
            outputs: section("Outputs"),
            values,
            conditions: BTreeMap::new(),
        };
        for (name, condition) in entries(&template["Conditions"]) {
            // Ours name no other condition; one that did would be found unknown here.
            let holds = read.resolve(condition, &Stack::new(), name)?;
            read.conditions.insert(name.clone(), holds == Value::Bool(true));
        }
        Ok(read)
    }

    /// The resources to create, each after those that it names.
    pub(super) fn in_order(&self) -> Result<Vec<(&str, &Value)>, DeployError> {
        let wanted: BTreeMap<&str, &Value> = self
            .resources
            .iter()
            .filter(|(_, resource)| {
                let condition = resource["Condition"].as_str();
                condition.is_none_or(|name| self.conditions.get(name).copied().unwrap_or(false))
            })
            .map(|(id, resource)| (id.as_str(), resource))
            .collect();
        let (mut order, mut done) = (Vec::new(), BTreeSet::new());
        while order.len() < wanted.len() {
            let before = order.len();
            for (id, resource) in &wanted {
                let mut needs = BTreeSet::new();
                self.named_by(&resource["Properties"], &mut needs);
                named_in(&resource["DependsOn"], &mut needs);
                if !done.contains(id) && needs.iter().all(|need| done.contains(need.as_str())) {
                    order.push((*id, *resource));
                    done.insert(*id);
                }
            }
            if order.len() == before {
                let left: Vec<_> = wanted.keys().filter(|id| !done.contains(*id)).collect();
                let reason =
                    format!("these name each other in a circle, or something that does not exist: {left:?}");
                return Err(DeployError::new("Resources", &reason));
            }
        }
        Ok(order)
    }

    /// The outputs' values.
    pub(super) fn outputs(&self, stack: &Stack) -> Result<BTreeMap<String, String>, DeployError> {
        let resolve = |(name, output): (&String, &Value)| {
            let value = self.resolve(&output["Value"], stack, name)?;
            Ok((name.clone(), value.as_str().unwrap_or_default().to_owned()))
        };
        let holds = |output: &Value| {
            let condition = output["Condition"].as_str();
            condition.is_none_or(|name| self.conditions.get(name).copied().unwrap_or(false))
        };
        self.outputs.iter().filter(|(_, output)| holds(output)).map(resolve).collect()
    }

    /// `value` with its intrinsic functions replaced by what they come to. `place` is for errors.
    pub(super) fn resolve(&self, value: &Value, stack: &Stack, place: &str) -> Result<Value, DeployError> {
        let at = |value: &Value| self.resolve(value, stack, place);
        let fail = |what: String| DeployError::new(place, &what);
        match value {
            Value::Array(items) => {
                let items: Result<Vec<_>, _> = items.iter().map(at).collect();
                Ok(items?.into_iter().filter(|item| !is_no_value(item)).collect())
            }
            Value::Object(map) if map.len() == 1 => {
                let (function, argument) = map.iter().next().expect("its length is one");
                match function.as_str() {
                    "Ref" => self
                        .reference(argument, stack)
                        .map_err(|name| fail(format!("Ref to unknown `{name}`"))),
                    "Fn::GetAtt" => {
                        let path = dotted(argument);
                        attribute(&path, stack).ok_or_else(|| fail(format!("no attribute `{path}`")))
                    }
                    "Fn::Sub" => self.substitute(argument, stack, place),
                    "Fn::Join" => {
                        let parts = at(&argument[1])?;
                        let parts = parts.as_array().ok_or_else(|| fail("Fn::Join of no list".to_owned()))?;
                        let texts: Vec<_> = parts.iter().filter_map(Value::as_str).collect();
                        Ok(texts.join(argument[0].as_str().unwrap_or_default()).into())
                    }
                    "Fn::If" => {
                        let name = argument[0].as_str().unwrap_or_default();
                        let holds = self.conditions.get(name);
                        let holds = holds.ok_or_else(|| fail(format!("no condition `{name}`")))?;
                        at(&argument[if *holds { 1 } else { 2 }])
                    }
                    "Fn::Equals" => Ok((at(&argument[0])? == at(&argument[1])?).into()),
                    "Fn::Not" => Ok((at(&argument[0])? == Value::Bool(false)).into()),
                    other if other.starts_with("Fn::") || other == "Condition" && argument.is_string() => {
                        Err(fail(format!("`{other}` is not modelled")))
                    }
                    _ => self.resolve_map(map, stack, place),
                }
            }
            Value::Object(map) => self.resolve_map(map, stack, place),
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => Ok(plain.clone()),
        }
    }

    fn resolve_map(
        &self,
        map: &Map<String, Value>,
        stack: &Stack,
        place: &str,
    ) -> Result<Value, DeployError> {
        let mut resolved = Map::new();
        for (key, value) in map {
            let value = self.resolve(value, stack, &format!("{place}.{key}"))?;
            if !is_no_value(&value) {
                resolved.insert(key.clone(), value);
            }
        }
        Ok(Value::Object(resolved))
    }

    fn reference(&self, name: &Value, stack: &Stack) -> Result<Value, String> {
        let name = name.as_str().unwrap_or_default();
        if name == "AWS::NoValue" {
            return Ok(no_value());
        }
        let value = self.values.get(name).cloned();
        value
            .or_else(|| stack.get(name).map(|made| made.reference.clone().into()))
            .ok_or_else(|| name.to_owned())
    }

    fn substitute(&self, argument: &Value, stack: &Stack, place: &str) -> Result<Value, DeployError> {
        let Some(text) = argument.as_str() else {
            return Err(DeployError::new(place, "Fn::Sub with a map is not modelled"));
        };
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) =
                after.split_once('}').ok_or_else(|| DeployError::new(place, "`${` without `}`"))?;
            out.push_str(before);
            let value = if name.contains('.') {
                attribute(name, stack).ok_or_else(|| name.to_owned())
            } else {
                self.reference(&name.into(), stack)
            };
            let value =
                value.map_err(|name| DeployError::new(place, &format!("Fn::Sub of unknown `{name}`")))?;
            out.push_str(value.as_str().unwrap_or_default());
            rest = after;
        }
        out.push_str(rest);
        Ok(out.into())
    }

    /// The resources that `value` names. Branches of `Fn::If` that are not taken name nothing.
    fn named_by(&self, value: &Value, names: &mut BTreeSet<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.named_by(item, names)),
            Value::Object(map) => {
                for (key, value) in map {
                    match (key.as_str(), value) {
                        ("Ref", Value::String(name)) => self.note(name, names),
                        ("Fn::GetAtt", path) => {
                            let path = dotted(path);
                            self.note(path.split('.').next().unwrap_or_default(), names);
                        }
                        ("Fn::Sub", Value::String(text)) => {
                            let inside = text.split("${").skip(1).filter_map(|part| part.split_once('}'));
                            inside.for_each(|(name, _)| {
                                self.note(name.split('.').next().unwrap_or_default(), names)
                            });
                        }
                        ("Fn::If", Value::Array(parts)) => {
                            let holds = parts
                                .first()
                                .and_then(Value::as_str)
                                .and_then(|name| self.conditions.get(name));
                            let taken = if holds.copied().unwrap_or(false) { 1 } else { 2 };
                            parts.get(taken).into_iter().for_each(|part| self.named_by(part, names));
                        }
                        (_, value) => self.named_by(value, names),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn note(&self, name: &str, names: &mut BTreeSet<String>) {
        if !self.values.contains_key(name) && name != "AWS::NoValue" {
            names.insert(name.to_owned());
        }
    }
}

fn entries(section: &Value) -> impl Iterator<Item = (&String, &Value)> {
    section.as_object().into_iter().flatten()
}

fn named_in(depends_on: &Value, names: &mut BTreeSet<String>) {
    let list = depends_on.as_array().map_or_else(|| vec![depends_on], |list| list.iter().collect());
    names.extend(list.into_iter().filter_map(Value::as_str).map(str::to_owned));
}

/// `A.Arn` and `["A", "Arn"]` are the same.
fn dotted(path: &Value) -> String {
    let parts =
        path.as_array().map(|parts| parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("."));
    parts.or_else(|| path.as_str().map(str::to_owned)).unwrap_or_default()
}

fn attribute(path: &str, stack: &Stack) -> Option<Value> {
    let (id, name) = path.split_once('.')?;
    stack.get(id)?.attributes.get(name).map(|value| value.clone().into())
}

/// Stands for `AWS::NoValue` until what holds it drops it.
fn no_value() -> Value {
    serde_json::json!({"AWS::NoValue": true})
}

fn is_no_value(value: &Value) -> bool {
    *value == no_value()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn template(value: Value) -> Template {
        Template::new(&value, "eu-central-1", "slipway", &BTreeMap::new()).unwrap()
    }

    #[test]
    fn functions_come_to_values() {
        let template = template(json!({
            "Parameters": {"P": {"Type": "String", "Default": ""}, "L": {"Type": "CommaDelimitedList", "Default": ""}},
            "Conditions": {"Has": {"Fn::Not": [{"Fn::Equals": [{"Fn::Join": ["", {"Ref": "L"}]}, ""]}]}},
        }));
        let made = Made {
            reference: "bucket-1".to_owned(),
            attributes: BTreeMap::from([("Arn", "arn:bucket-1".to_owned())]),
        };
        let stack = Stack::from([("B".to_owned(), made)]);
        let resolved = template.resolve(
            &json!({"a": [{"Fn::Sub": "${B.Arn}/x/${AWS::Region}"}, {"Fn::If": ["Has", 1, {"Ref": "AWS::NoValue"}]}],
                    "b": {"Fn::GetAtt": ["B", "Arn"]}, "c": {"Ref": "AWS::NoValue"}}),
            &stack,
            "here",
        );
        assert_eq!(resolved.unwrap(), json!({"a": ["arn:bucket-1/x/eu-central-1"], "b": "arn:bucket-1"}));
    }

    #[test]
    fn what_is_unknown_is_an_error() {
        let template = template(json!({}));
        for value in [json!({"Ref": "Nobody"}), json!({"Fn::Cidr": []}), json!({"Fn::Sub": "${Nobody.Arn}"})]
        {
            assert!(template.resolve(&value, &Stack::new(), "here").is_err(), "{value}");
        }
        let circle = json!({"Resources": {
            "A": {"Properties": {"x": {"Ref": "B"}}}, "B": {"Properties": {"x": {"Ref": "A"}}}}});
        assert!(super::tests::template(circle).in_order().is_err());
    }
}
