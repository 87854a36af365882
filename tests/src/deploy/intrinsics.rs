//! A plain CloudFormation template, and the values of its intrinsic functions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use slipway_sim::world::expression::{Reference, Scope, evaluate, holds, references};

use super::DeployError;
use crate::client::ACCOUNT;

/// A template whose parameters and conditions are known.
#[derive(Debug)]
pub(super) struct Template {
    resources: BTreeMap<String, Value>,
    outputs: BTreeMap<String, Value>,
    /// The values of parameters and pseudo parameters.
    values: BTreeMap<String, Value>,
    conditions: BTreeMap<String, bool>,
}

/// The values of `Ref` and `Fn::GetAtt` of a created resource.
#[derive(Debug, Clone, Default)]
pub(super) struct CreatedResource {
    pub(super) reference: String,
    pub(super) attributes: BTreeMap<&'static str, String>,
}

/// All resources created so far, by logical id.
pub(super) type Stack = BTreeMap<String, CreatedResource>;

impl Template {
    /// Reads a template. Missing parameters take their defaults.
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
            // No condition of our templates refers to another condition; such a reference would be reported as unknown.
            let decided = holds(&Names { template: &read, stack: &Stack::new() }, condition);
            let decided = decided.map_err(|what| DeployError::new(name, &what))?;
            read.conditions.insert(name.clone(), decided);
        }
        Ok(read)
    }

    /// The values of its parameters, as CloudFormation shows them.
    pub(super) fn parameters(&self) -> BTreeMap<String, String> {
        let own = self.values.iter().filter(|(name, _)| !name.starts_with("AWS::"));
        let text = |value: &Value| match value.as_array() {
            Some(parts) => parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            None => value.as_str().unwrap_or_default().to_owned(),
        };
        own.map(|(name, value)| (name.clone(), text(value))).collect()
    }

    /// Whether a resource or output is created, according to its condition.
    fn is_wanted(&self, part: &Value) -> bool {
        let condition = part["Condition"].as_str();
        condition.is_none_or(|name| self.conditions.get(name).copied().unwrap_or(false))
    }

    /// The resources to create, each after its dependencies.
    pub(super) fn in_order(&self) -> Result<Vec<(&str, &Value)>, DeployError> {
        let wanted = self.resources.iter().filter(|(_, resource)| self.is_wanted(resource));
        let wanted: BTreeMap<&str, &Value> = wanted.map(|(id, resource)| (id.as_str(), resource)).collect();
        let (mut order, mut done) = (Vec::new(), BTreeSet::new());
        while order.len() < wanted.len() {
            let before = order.len();
            for (id, resource) in &wanted {
                let mut needs = named_in(&resource["DependsOn"]);
                let named = references(&resource["Properties"]);
                let named = named.map_err(|what| DeployError::new(id, &what))?;
                // Only the unused branch of an `Fn::If` may refer to a resource that is not created; `resolve` refuses all other references
                // to it.
                let created = |name: &String| wanted.contains_key(name.as_str());
                needs.extend(named.into_iter().filter_map(named_resource).filter(created));
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

    /// The values of the outputs.
    pub(super) fn outputs(&self, stack: &Stack) -> Result<BTreeMap<String, String>, DeployError> {
        let resolve = |(name, output): (&String, &Value)| {
            let value = self.resolve(&output["Value"], stack, name)?;
            Ok((name.clone(), value.as_str().unwrap_or_default().to_owned()))
        };
        self.outputs.iter().filter(|(_, output)| self.is_wanted(output)).map(resolve).collect()
    }

    /// `value` with its intrinsic functions evaluated. `place` is for error messages.
    pub(super) fn resolve(&self, value: &Value, stack: &Stack, place: &str) -> Result<Value, DeployError> {
        if value.is_null() {
            return Ok(Value::Null);
        }
        let resolved = evaluate(&Names { template: self, stack }, value);
        Ok(resolved.map_err(|what| DeployError::new(place, &what))?.unwrap_or_default())
    }
}

/// The meaning of names in a template, when `stack` has been created.
struct Names<'a> {
    template: &'a Template,
    stack: &'a Stack,
}

impl Scope for Names<'_> {
    fn reference(&self, name: &str) -> Result<Value, String> {
        let value = self.template.values.get(name).cloned();
        value
            .or_else(|| self.stack.get(name).map(|made| made.reference.clone().into()))
            .ok_or_else(|| format!("reference to unknown `{name}`"))
    }

    fn attribute(&self, resource: &str, attribute: &str) -> Result<Value, String> {
        let value = self.stack.get(resource).and_then(|made| made.attributes.get(attribute));
        value
            .map(|value| value.clone().into())
            .ok_or_else(|| format!("no attribute `{resource}.{attribute}`"))
    }

    fn import(&self, _: &str) -> Result<Value, String> {
        Err("`Fn::ImportValue` is not modelled".to_owned())
    }

    fn condition(&self, name: &str) -> Result<bool, String> {
        self.template.conditions.get(name).copied().ok_or_else(|| format!("no condition `{name}`"))
    }

    fn zones(&self, _: &str) -> Result<Vec<String>, String> {
        Err("`Fn::GetAZs` is not modelled".to_owned())
    }
}

fn entries(section: &Value) -> impl Iterator<Item = (&String, &Value)> {
    section.as_object().into_iter().flatten()
}

fn named_in(depends_on: &Value) -> BTreeSet<String> {
    let list = depends_on.as_array().map_or_else(|| vec![depends_on], |list| list.iter().collect());
    list.into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn named_resource(reference: Reference) -> Option<String> {
    match reference {
        Reference::Name(name) | Reference::Attribute(name, _) => Some(name),
        Reference::Condition(_) | Reference::Import | Reference::Zones => None,
    }
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
        let made = CreatedResource {
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
