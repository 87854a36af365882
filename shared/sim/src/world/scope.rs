//! The meaning of the names in a template, for one stack at one moment.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Config;
use super::expression::{Scope, UNKNOWN, evaluate, holds};
use super::resource::{Resource, Revision};
use super::template::{Definition, OutputDeclaration};

/// The meaning of the names in a stack's template.
pub(crate) struct StackScope<'a> {
    pub(crate) config: &'a Config,
    pub(crate) stack_name: &'a str,
    pub(crate) stack_id: &'a str,
    pub(crate) revision: &'a Revision,
    /// The existing resources; `None` while a template is only being checked, so that no value is known.
    pub(crate) resources: Option<&'a BTreeMap<String, Resource>>,
    /// Resources that get a new id.
    pub(crate) renewed: BTreeSet<String>,
    /// Resources whose attributes may change.
    pub(crate) touched: BTreeSet<String>,
    /// The value of each export of other stacks; `None` while a template is only being checked.
    pub(crate) exports: Option<&'a BTreeMap<String, String>>,
    /// The exports that were imported.
    pub(crate) imported: RefCell<BTreeSet<String>>,
}

impl StackScope<'_> {
    /// Whether a part of the template with `condition` is included.
    pub(crate) fn applies(&self, condition: Option<&String>) -> Result<bool, String> {
        condition.map_or(Ok(true), |name| self.condition(name))
    }

    /// The computed properties of a resource.
    pub(crate) fn properties(&self, definition: &Definition) -> Result<Value, String> {
        Ok(evaluate(self, &definition.properties)?.unwrap_or_else(|| Value::Object(Map::new())))
    }

    /// The resources of the template whose condition holds.
    pub(crate) fn present(&self) -> Result<BTreeSet<String>, String> {
        let mut present = BTreeSet::new();
        for (id, definition) in &self.revision.template.resources {
            if self.applies(definition.condition.as_ref())? {
                present.insert(id.clone());
            }
        }
        Ok(present)
    }

    /// The value of an output and its export name.
    pub(crate) fn output(&self, declared: &OutputDeclaration) -> Result<(String, Option<String>), String> {
        let text = |value: &Value| {
            let value = evaluate(self, value)?;
            value.ok_or_else(|| "Template error: an output cannot be AWS::NoValue".to_owned()).and_then(|value| {
                super::expression::plain("Outputs", &value).map_err(|_| {
                    "Template format error: The Value field of every Outputs member must evaluate to a String."
                        .to_owned()
                })
            })
        };
        Ok((text(&declared.value)?, declared.export.as_ref().map(text).transpose()?))
    }

    fn live(&self, id: &str) -> Option<&Resource> {
        self.resources?.get(id)
    }
}

impl Scope for StackScope<'_> {
    fn reference(&self, name: &str) -> Result<Value, String> {
        let text = |text: &str| Ok(Value::String(text.to_owned()));
        match name {
            "AWS::AccountId" => return text(&self.config.account),
            "AWS::Region" => return text(&self.config.region),
            "AWS::StackName" => return text(self.stack_name),
            "AWS::StackId" => return text(self.stack_id),
            "AWS::Partition" => return text("aws"),
            "AWS::URLSuffix" => return text("amazonaws.com"),
            "AWS::NotificationARNs" => return Ok(Value::Array(Vec::new())),
            _ => {}
        }
        if let Some(declared) = self.revision.template.parameters.get(name) {
            let value = self.revision.parameters.get(name).cloned().unwrap_or_default();
            return Ok(match declared.kind.as_str() {
                "CommaDelimitedList" => {
                    value.split(',').map(|part| Value::String(part.trim().to_owned())).collect()
                }
                _ => Value::String(value),
            });
        }
        if self.resources.is_none() || self.renewed.contains(name) {
            return text(UNKNOWN);
        }
        match self.live(name).and_then(|resource| resource.physical_id.as_deref()) {
            Some(id) => text(id),
            None => Err(format!(
                "Unresolved resource dependencies [{name}] in the Resources block of the template"
            )),
        }
    }

    fn attribute(&self, resource: &str, attribute: &str) -> Result<Value, String> {
        if self.resources.is_none() || self.renewed.contains(resource) || self.touched.contains(resource) {
            return Ok(Value::String(UNKNOWN.to_owned()));
        }
        let live = self.live(resource).ok_or_else(|| {
            format!("Unresolved resource dependencies [{resource}] in the Resources block of the template")
        })?;
        let pointer = format!("/{}", attribute.replace('.', "/"));
        live.attributes.get(attribute).or_else(|| live.properties.pointer(&pointer)).cloned().ok_or_else(|| {
            format!("Attribute {attribute} of {resource} ({}) is not modelled by the simulated CloudFormation", live.kind)
        })
    }

    fn import(&self, name: &str) -> Result<Value, String> {
        let Some(exports) = self.exports else { return Ok(Value::String(UNKNOWN.to_owned())) };
        self.imported.borrow_mut().insert(name.to_owned());
        let value = exports.get(name).ok_or_else(|| format!("No export named {name} found."))?;
        Ok(Value::String(value.clone()))
    }

    fn condition(&self, name: &str) -> Result<bool, String> {
        let condition = self.revision.template.conditions.get(name).ok_or_else(|| {
            format!("Template format error: Unresolved condition dependency {name} in the Resources block of the template")
        })?;
        holds(self, condition)
    }

    fn zones(&self, region: &str) -> Result<Vec<String>, String> {
        if !region.is_empty() && region != self.config.region {
            return Err(format!(
                "Fn::GetAZs of {region} is not modelled by the simulated CloudFormation: only {}",
                self.config.region
            ));
        }
        Ok(self.config.zones())
    }
}
