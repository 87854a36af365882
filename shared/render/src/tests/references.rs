//! A checker of references that knows nothing of how templates are made: every `Ref`, `Fn::GetAtt`, `Fn::Sub`
//! and `DependsOn` finds its resource, every `Fn::ImportValue` an export of an earlier stack.

use std::collections::BTreeSet;

use serde_json::Value;
use slipway_core::release::Rendering;

use crate::fixture::{cluster, rendered};

/// Everything in `rendering` that refers to nothing.
pub(super) fn dangling(rendering: &Rendering) -> Vec<String> {
    let mut exports = BTreeSet::new();
    let mut found = Vec::new();
    for stack in &rendering.stacks {
        let template: Value = serde_json::from_str(&stack.body).unwrap();
        let ids: BTreeSet<String> = template["Resources"].as_object().unwrap().keys().cloned().collect();
        let mut check = Check { stack: &stack.name, ids: &ids, exports: &exports, found: &mut found };
        check.value(&template["Resources"]);
        check.value(&template["Outputs"]);
        for output in template["Outputs"].as_object().into_iter().flat_map(|outputs| outputs.values()) {
            if let Some(name) = output["Export"]["Name"].as_str() {
                assert!(
                    name.starts_with(&format!("{}-", stack.name)),
                    "export {name} is not named for its stack"
                );
                assert!(exports.insert(name.to_owned()), "export {name} exists twice");
            }
        }
    }
    found
}

struct Check<'a> {
    stack: &'a str,
    ids: &'a BTreeSet<String>,
    exports: &'a BTreeSet<String>,
    found: &'a mut Vec<String>,
}

impl Check<'_> {
    fn value(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.value(item)),
            Value::Object(map) => {
                for (key, inner) in map {
                    match key.as_str() {
                        "Ref" => self.id(inner.as_str().unwrap()),
                        "Fn::GetAtt" => self.id(inner[0].as_str().unwrap()),
                        "DependsOn" => {
                            inner.as_array().unwrap().iter().for_each(|id| self.id(id.as_str().unwrap()));
                        }
                        "Fn::ImportValue" => self.import(inner.as_str().unwrap()),
                        "Fn::Sub" => self.sub(inner),
                        _ => self.value(inner),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn id(&mut self, id: &str) {
        if !id.starts_with("AWS::") && !self.ids.contains(id) {
            self.found.push(format!("{}: {id}", self.stack));
        }
    }

    fn import(&mut self, name: &str) {
        if !self.exports.contains(name) {
            self.found.push(format!("{}: import of {name}", self.stack));
        }
    }

    fn sub(&mut self, argument: &Value) {
        let (text, variables) = argument
            .as_str()
            .map_or_else(|| (argument[0].as_str().unwrap(), argument[1].as_object()), |text| (text, None));
        for variable in text.split("${").skip(1).map(|rest| rest.split('}').next().unwrap()) {
            match variables.and_then(|variables| variables.get(variable)) {
                Some(value) => self.value(value),
                None => self.id(variable.split('.').next().unwrap()),
            }
        }
    }
}

#[test]
fn nothing_dangles_in_the_production_example() {
    assert_eq!(dangling(&rendered(&cluster())), Vec::<String>::new());
}

#[test]
fn the_checker_sees_what_dangles() {
    let mut rendering = rendered(&cluster());
    rendering.stacks.remove(0);
    assert!(!dangling(&rendering).is_empty(), "imports without the network stack");
    let mut rendering = rendered(&cluster());
    rendering.stacks[0].body = rendering.stacks[0].body.replace(r#"{"Ref":"Vpc"}"#, r#"{"Ref":"Gone"}"#);
    assert!(dangling(&rendering).iter().any(|found| found.ends_with("Gone")));
}
