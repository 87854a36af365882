//! The part of CloudFormation's language that Slipway needs: templates, resources, outputs and intrinsic functions.
//!
//! Maps are sorted and the JSON is canonical, so equal templates are equal bytes (P1).

mod intrinsic;
mod logical_id;
mod tags;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

pub(crate) use intrinsic::{base64, get_att, import_value, join, reference, sub};
pub(crate) use logical_id::logical_id;
pub(crate) use tags::Tags;

/// A template under construction.
#[derive(Debug)]
pub(crate) struct Template {
    description: String,
    resources: BTreeMap<String, Resource>,
    outputs: BTreeMap<String, Output>,
    collisions: Vec<String>,
}

/// One resource of a [`Template`].
#[derive(Debug)]
pub(crate) struct Resource {
    kind: &'static str,
    properties: Map<String, Value>,
    depends_on: Vec<String>,
    on_delete: Option<Removal>,
}

/// `DeletionPolicy` and `UpdateReplacePolicy`. Both have the same value, because data is as valuable when a resource is replaced.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Removal {
    /// A final snapshot is taken and kept.
    Snapshot,
}

/// One output of a [`Template`].
#[derive(Debug)]
struct Output {
    description: String,
    value: Value,
    export: Option<String>,
}

impl Template {
    /// An empty template.
    pub(crate) fn new(description: impl Into<String>) -> Self {
        Self {
            description: description.into(),
            resources: BTreeMap::new(),
            outputs: BTreeMap::new(),
            collisions: Vec::new(),
        }
    }

    /// Adds a resource and returns its logical id, for references to it.
    pub(crate) fn add(&mut self, id: impl Into<String>, resource: Resource) -> String {
        let id = id.into();
        if self.resources.insert(id.clone(), resource).is_some() {
            self.collisions.push(id.clone());
        }
        id
    }

    /// Adds an output for people to read.
    pub(crate) fn output(&mut self, id: impl Into<String>, description: impl Into<String>, value: Value) {
        self.insert_output(id.into(), Output { description: description.into(), value, export: None });
    }

    /// Adds an output that other stacks import as `export`.
    pub(crate) fn export(
        &mut self,
        id: impl Into<String>,
        description: impl Into<String>,
        value: Value,
        export: String,
    ) {
        let output = Output { description: description.into(), value, export: Some(export) };
        self.insert_output(id.into(), output);
    }

    fn insert_output(&mut self, id: String, output: Output) {
        if self.outputs.insert(id.clone(), output).is_some() {
            self.collisions.push(id);
        }
    }

    /// Logical ids that were used twice. Ids of named things end with a hash, so this takes a hash collision.
    pub(crate) fn collisions(&self) -> &[String] {
        &self.collisions
    }

    /// The template as a value; `canonical_json` makes its text.
    pub(crate) fn into_value(self) -> Value {
        let mut template = json!({
            "AWSTemplateFormatVersion": "2010-09-09",
            "Description": self.description,
        });
        // `json!` would copy them.
        template["Resources"] =
            self.resources.into_iter().map(|(id, resource)| (id, resource.into_value())).collect();
        if !self.outputs.is_empty() {
            template["Outputs"] =
                self.outputs.into_iter().map(|(id, output)| (id, output.into_value())).collect();
        }
        template
    }
}

impl Resource {
    /// A resource of that type without properties.
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, properties: Map::new(), depends_on: Vec::new(), on_delete: None }
    }

    /// Sets a property.
    pub(crate) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.properties.insert(name.to_owned(), value.into());
        self
    }

    /// Sets a property if there is a value for it.
    pub(crate) fn set_some<T: Into<Value>>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Adds a dependency on a resource that no property refers to.
    pub(crate) fn depends_on(mut self, id: Option<&str>) -> Self {
        self.depends_on.extend(id.map(str::to_owned));
        self
    }

    /// Sets what happens to its data when it is deleted or replaced.
    pub(crate) fn on_delete(mut self, removal: Removal) -> Self {
        self.on_delete = Some(removal);
        self
    }

    fn into_value(mut self) -> Value {
        let mut resource = json!({ "Type": self.kind });
        if !self.properties.is_empty() {
            resource["Properties"] = Value::Object(self.properties);
        }
        if !self.depends_on.is_empty() {
            self.depends_on.sort();
            resource["DependsOn"] = self.depends_on.into();
        }
        if let Some(removal) = self.on_delete {
            let policy = match removal {
                Removal::Snapshot => "Snapshot",
            };
            resource["DeletionPolicy"] = json!(policy);
            resource["UpdateReplacePolicy"] = json!(policy);
        }
        resource
    }
}

impl Output {
    fn into_value(self) -> Value {
        let mut output = json!({ "Description": self.description });
        output["Value"] = self.value;
        if let Some(export) = self.export {
            output["Export"] = json!({ "Name": export });
        }
        output
    }
}
