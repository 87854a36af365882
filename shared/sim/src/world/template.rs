//! Templates: their parts, and the errors that can be found before anything is created.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::error::{ApiError, ApiResult};
use super::expression::{Reference, references};
use crate::schema::resource_type;

/// A parsed template. Its maps are sorted: nothing depends on the order of the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    pub(crate) body: String,
    pub(crate) description: Option<String>,
    pub(crate) parameters: BTreeMap<String, ParameterDeclaration>,
    pub(crate) conditions: BTreeMap<String, Value>,
    pub(crate) resources: BTreeMap<String, Definition>,
    pub(crate) outputs: BTreeMap<String, OutputDeclaration>,
}

/// A parameter that a template declares.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParameterDeclaration {
    pub(crate) kind: String,
    pub(crate) default: Option<String>,
    pub(crate) allowed: Vec<String>,
    pub(crate) description: Option<String>,
    pub(crate) no_echo: bool,
}

/// A resource that a template defines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Definition {
    pub(crate) kind: String,
    pub(crate) properties: Value,
    pub(crate) depends_on: BTreeSet<String>,
    pub(crate) condition: Option<String>,
    pub(crate) deletion_policy: Policy,
    pub(crate) update_replace_policy: Policy,
    pub(crate) metadata: Option<Value>,
}

/// `DeletionPolicy`, `UpdateReplacePolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Delete,
    Retain,
    RetainExceptOnCreate,
    Snapshot,
}

/// An output that a template declares.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutputDeclaration {
    pub(crate) value: Value,
    pub(crate) description: Option<String>,
    pub(crate) condition: Option<String>,
    pub(crate) export: Option<Value>,
}

impl Policy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
            Self::RetainExceptOnCreate => "RetainExceptOnCreate",
            Self::Snapshot => "Snapshot",
        }
    }
}

impl Template {
    /// Reads a template and checks everything that can be checked without parameters' values.
    pub(crate) fn parse(body: &str) -> ApiResult<Self> {
        let value: Value = serde_json::from_str(body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            ApiError::validation(format!(
                "Template format error: JSON not well-formed. (line {line}, column {column}) (the simulated CloudFormation reads JSON alone)"
            ))
        })?;
        let top = object(&value, "Template format error: unsupported structure.")?;
        let known = [
            "AWSTemplateFormatVersion",
            "Conditions",
            "Description",
            "Metadata",
            "Outputs",
            "Parameters",
            "Resources",
        ];
        if let Some(key) =
            ["Mappings", "Transform", "Rules", "Hooks"].iter().find(|key| top.contains_key(**key))
        {
            return Err(ApiError::not_modelled(&format!("The template section {key}")));
        }
        let odd: Vec<&str> = top.keys().map(String::as_str).filter(|key| !known.contains(key)).collect();
        if !odd.is_empty() {
            return Err(ApiError::validation(format!(
                "Invalid template property or properties [{}]",
                odd.join(", ")
            )));
        }
        if top.get("AWSTemplateFormatVersion").is_some_and(|version| version != "2010-09-09") {
            return Err(ApiError::validation(
                "Template format error: AWSTemplateFormatVersion must be 2010-09-09",
            ));
        }
        let template = Self {
            body: body.to_owned(),
            description: top.get("Description").and_then(Value::as_str).map(str::to_owned),
            parameters: section(top, "Parameters")?.iter().map(parameter).collect::<ApiResult<_>>()?,
            conditions: section(top, "Conditions")?.clone().into_iter().collect(),
            resources: section(top, "Resources")?.iter().map(definition).collect::<ApiResult<_>>()?,
            outputs: section(top, "Outputs")?.iter().map(output).collect::<ApiResult<_>>()?,
        };
        template.check_names()?;
        template.check_types()?;
        template.check_references()?;
        Ok(template)
    }

    fn check_names(&self) -> ApiResult<()> {
        let parts = [
            ("Resource", self.resources.keys().collect::<Vec<_>>()),
            ("Parameter", self.parameters.keys().collect()),
            ("Output", self.outputs.keys().collect()),
        ];
        for (part, names) in parts {
            if let Some(name) = names.iter().find(|name| !name.chars().all(|c| c.is_ascii_alphanumeric())) {
                let message = format!("Template format error: {part} name {name} is non alphanumeric.");
                return Err(ApiError::validation(message));
            }
        }
        if self.resources.is_empty() {
            return Err(ApiError::validation(
                "Template format error: At least one Resources member must be defined.",
            ));
        }
        Ok(())
    }

    fn check_types(&self) -> ApiResult<()> {
        let unknown: BTreeSet<&str> = self
            .resources
            .values()
            .map(|definition| definition.kind.as_str())
            .filter(|kind| resource_type(kind).is_none())
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let list = unknown.into_iter().collect::<Vec<_>>().join(", ");
        Err(ApiError::validation(format!("Template format error: Unrecognized resource types: [{list}]")))
    }

    fn check_references(&self) -> ApiResult<()> {
        let mut unresolved = BTreeSet::new();
        for (id, definition) in &self.resources {
            let found = references(&definition.properties).map_err(ApiError::validation)?;
            unresolved.extend(self.unresolved(found, definition.condition.as_ref())?);
            unresolved
                .extend(definition.depends_on.iter().filter(|on| !self.resources.contains_key(*on)).cloned());
            if definition.depends_on.contains(id) {
                return Err(ApiError::validation(format!("Circular dependency between resources: [{id}]")));
            }
        }
        refuse_unresolved(&unresolved, "Resources")?;
        for (name, output) in &self.outputs {
            let found = references(&output.value).map_err(ApiError::validation)?;
            unresolved.extend(self.unresolved(found, output.condition.as_ref())?);
            let export = output.export.as_ref().map(references).transpose().map_err(ApiError::validation)?;
            let fixed = |reference: &Reference| matches!(reference, Reference::Name(name) if !self.resources.contains_key(name));
            if export.is_some_and(|found| !found.iter().all(fixed)) {
                return Err(ApiError::validation(format!(
                    "Template format error: Output {name} is malformed. The Name field of Export must not depend on \
                     any resources, imported values, or Fn::GetAZs."
                )));
            }
        }
        refuse_unresolved(&unresolved, "Outputs")?;
        for condition in self.conditions.values() {
            let found = references(condition).map_err(ApiError::validation)?;
            let resource = |reference: &Reference| match reference {
                Reference::Name(name) => !self.is_parameter(name),
                Reference::Attribute(..) | Reference::Import | Reference::Zones => true,
                Reference::Condition(name) => !self.conditions.contains_key(name),
            };
            if let Some(bad) = found.iter().find(|reference| resource(reference)) {
                return Err(ApiError::validation(format!(
                    "Template format error: Unresolved dependencies [{bad:?}]. Cannot reference resources in the Conditions block of the template"
                )));
            }
        }
        Ok(())
    }

    fn is_parameter(&self, name: &str) -> bool {
        self.parameters.contains_key(name) || PSEUDO.contains(&name)
    }

    /// References to names that the template does not define. An attribute that a type does not have is an error at once.
    fn unresolved(
        &self,
        found: BTreeSet<Reference>,
        condition: Option<&String>,
    ) -> ApiResult<BTreeSet<String>> {
        let mut unresolved = BTreeSet::new();
        let conditions = condition.cloned().map(Reference::Condition);
        for reference in found.into_iter().chain(conditions) {
            match reference {
                Reference::Name(name) if self.is_parameter(&name) || self.resources.contains_key(&name) => {}
                Reference::Name(name) => {
                    unresolved.insert(name);
                }
                Reference::Attribute(id, attribute) => match self.resources.get(&id) {
                    None => {
                        unresolved.insert(id);
                    }
                    Some(definition) => {
                        let has = resource_type(&definition.kind)
                            .is_some_and(|kind| kind.attributes().contains(&*attribute));
                        if !has {
                            return Err(ApiError::validation(format!(
                                "Template error: resource {id} does not support attribute type {attribute} in Fn::GetAtt"
                            )));
                        }
                    }
                },
                Reference::Condition(name) if !self.conditions.contains_key(&name) => {
                    return Err(ApiError::validation(format!(
                        "Template format error: Unresolved condition dependency {name} in the Resources block of the template"
                    )));
                }
                Reference::Condition(_) | Reference::Import | Reference::Zones => {}
            }
        }
        Ok(unresolved)
    }
}

/// The parameters that CloudFormation itself provides.
pub(crate) const PSEUDO: [&str; 8] = [
    "AWS::AccountId",
    "AWS::NoValue",
    "AWS::NotificationARNs",
    "AWS::Partition",
    "AWS::Region",
    "AWS::StackId",
    "AWS::StackName",
    "AWS::URLSuffix",
];

fn refuse_unresolved(names: &BTreeSet<String>, block: &str) -> ApiResult<()> {
    if names.is_empty() {
        return Ok(());
    }
    let list = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(ApiError::validation(format!(
        "Template format error: Unresolved resource dependencies [{list}] in the {block} block of the template"
    )))
}

fn object<'a>(value: &'a Value, message: &str) -> ApiResult<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| ApiError::validation(message))
}

fn section<'a>(top: &'a Map<String, Value>, name: &str) -> ApiResult<&'a Map<String, Value>> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    match top.get(name) {
        None => Ok(&NONE),
        Some(value) => object(value, &format!("Template format error: [/{name}] must be an object")),
    }
}

/// Refuses unknown keys in a part of a template.
fn only(part: &str, object: &Map<String, Value>, known: &[&str]) -> ApiResult<()> {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(ApiError::validation(format!("Invalid template {part} property '{key}'"))),
    }
}

fn string(object: &Map<String, Value>, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn parameter((name, value): (&String, &Value)) -> ApiResult<(String, ParameterDeclaration)> {
    let declared = object(value, &format!("Template format error: [/Parameters/{name}] must be an object"))?;
    let known = ["AllowedValues", "ConstraintDescription", "Default", "Description", "NoEcho", "Type"];
    if let Some(key) = ["AllowedPattern", "MaxLength", "MaxValue", "MinLength", "MinValue"]
        .iter()
        .find(|key| declared.contains_key(**key))
    {
        return Err(ApiError::not_modelled(&format!("{key} of a parameter")));
    }
    only("parameter", declared, &known)?;
    let kind = string(declared, "Type").ok_or_else(|| {
        ApiError::validation(format!(
            "Template format error: Every Parameters object must contain a Type member. ({name})"
        ))
    })?;
    if !["CommaDelimitedList", "Number", "String"].contains(&kind.as_str()) {
        return Err(ApiError::not_modelled(&format!("The parameter type {kind}")));
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let allowed = declared.get("AllowedValues").and_then(Value::as_array);
    Ok((
        name.clone(),
        ParameterDeclaration {
            kind,
            default: declared.get("Default").map(text),
            allowed: allowed.into_iter().flatten().map(text).collect(),
            description: string(declared, "Description"),
            no_echo: declared.get("NoEcho").map(text).as_deref() == Some("true"),
        },
    ))
}

fn definition((id, value): (&String, &Value)) -> ApiResult<(String, Definition)> {
    let defined = object(
        value,
        &format!("Template format error: Every Resources object must contain a Type member. ({id})"),
    )?;
    if let Some(key) = ["CreationPolicy", "UpdatePolicy"].iter().find(|key| defined.contains_key(**key)) {
        return Err(ApiError::not_modelled(&format!("{key} of a resource")));
    }
    let known =
        ["Condition", "DeletionPolicy", "DependsOn", "Metadata", "Properties", "Type", "UpdateReplacePolicy"];
    only("resource", defined, &known)?;
    let kind = string(defined, "Type").ok_or_else(|| {
        ApiError::validation(format!(
            "Template format error: [/Resources/{id}] Every Resources object must contain a Type member."
        ))
    })?;
    let properties = defined.get("Properties").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    object(&properties, &format!("Template format error: [/Resources/{id}/Properties] must be an object"))?;
    let depends_on = match defined.get("DependsOn") {
        None => BTreeSet::new(),
        Some(Value::String(one)) => BTreeSet::from([one.clone()]),
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(_) => {
            return Err(ApiError::validation(format!(
                "Template format error: DependsOn of {id} must be a string or list of strings."
            )));
        }
    };
    let policy = |key: &str, extra: bool| match string(defined, key).as_deref() {
        None if !defined.contains_key(key) => Ok(Policy::Delete),
        Some("Delete") => Ok(Policy::Delete),
        Some("Retain") => Ok(Policy::Retain),
        Some("RetainExceptOnCreate") if extra => Ok(Policy::RetainExceptOnCreate),
        Some("Snapshot") if kind == "AWS::EC2::Volume" => Ok(Policy::Snapshot),
        _ => Err(ApiError::validation(format!(
            "Template format error: Unrecognized {key} value for resource {id}"
        ))),
    };
    Ok((
        id.clone(),
        Definition {
            deletion_policy: policy("DeletionPolicy", true)?,
            update_replace_policy: policy("UpdateReplacePolicy", false)?,
            condition: string(defined, "Condition"),
            metadata: defined.get("Metadata").cloned(),
            kind,
            properties,
            depends_on,
        },
    ))
}

fn output((name, value): (&String, &Value)) -> ApiResult<(String, OutputDeclaration)> {
    let declared = object(value, &format!("Template format error: Output {name} is malformed."))?;
    only("output", declared, &["Condition", "Description", "Export", "Value"])?;
    let value = declared.get("Value").cloned().ok_or_else(|| {
        ApiError::validation(format!("Template format error: Output {name} is malformed. Every Outputs member must contain a Value object"))
    })?;
    let export = match declared.get("Export") {
        None => None,
        Some(export) => {
            let export = object(export, &format!("Template format error: Output {name} is malformed."))?;
            only("export", export, &["Name"])?;
            Some(export.get("Name").cloned().ok_or_else(|| {
                ApiError::validation(format!(
                    "Template format error: Output {name} is malformed. The Export object must contain a Name"
                ))
            })?)
        }
    };
    Ok((
        name.clone(),
        OutputDeclaration {
            value,
            description: string(declared, "Description"),
            condition: string(declared, "Condition"),
            export,
        },
    ))
}
