//! Requests: the template and its source, parameters, tags, capabilities; and their validation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::World;
use super::error::{ApiError, ApiResult};
use super::resource::Revision;
use super::scope::StackScope;
use super::template::Template;
use super::{graph, limits};
use crate::schema::{check, resource_type};

/// The common part of `CreateStack`, `UpdateStack` and `CreateChangeSet`.
#[derive(Debug, Clone, Default)]
pub(crate) struct StackRequest {
    pub(crate) stack_name: String,
    /// `None`: the previous template.
    pub(crate) template: Option<TemplateSource>,
    /// `None` as a value: the previous value.
    pub(crate) parameters: BTreeMap<String, Option<String>>,
    /// `None`: the previous tags.
    pub(crate) tags: Option<BTreeMap<String, String>>,
    pub(crate) capabilities: BTreeSet<String>,
    pub(crate) role_arn: Option<String>,
    pub(crate) on_failure: Option<OnFailure>,
    pub(crate) token: Option<String>,
}

/// A template's text.
#[derive(Debug, Clone)]
pub(crate) struct TemplateSource {
    pub(crate) body: String,
    /// Whether it was read from S3, where the size limit is higher.
    pub(crate) from_url: bool,
}

/// `ChangeSetType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeSetKind {
    Create,
    Update,
}

/// `OnFailure`, `OnStackFailure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Rollback,
    Delete,
    DoNothing,
}

impl OnFailure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rollback => "ROLLBACK",
            Self::Delete => "DELETE",
            Self::DoNothing => "DO_NOTHING",
        }
    }

    pub(crate) fn parse(text: &str) -> ApiResult<Self> {
        match text {
            "ROLLBACK" => Ok(Self::Rollback),
            "DELETE" => Ok(Self::Delete),
            "DO_NOTHING" => Ok(Self::DoNothing),
            other => Err(ApiError::validation(format!(
                "1 validation error detected: Value '{other}' at 'onFailure' failed to satisfy constraint: Member must satisfy enum value set: [ROLLBACK, DELETE, DO_NOTHING]"
            ))),
        }
    }
}

/// Types that require `CAPABILITY_IAM`, and the property that requires `CAPABILITY_NAMED_IAM`.
const IAM: [(&str, Option<&str>); 5] = [
    ("AWS::IAM::InstanceProfile", Some("InstanceProfileName")),
    ("AWS::IAM::ManagedPolicy", Some("ManagedPolicyName")),
    ("AWS::IAM::Policy", None),
    ("AWS::IAM::Role", Some("RoleName")),
    ("AWS::IAM::RolePolicy", None),
];

impl TemplateSource {
    /// Reads the template and checks everything that can be checked without parameters' values.
    pub(super) fn read(&self) -> ApiResult<Template> {
        limits::of_body(&self.body, self.from_url)?;
        let template = Template::parse(&self.body)?;
        limits::of_template(&template)?;
        graph::check_acyclic(&template)?;
        Ok(template)
    }
}

impl World {
    /// The revision that `request` asks for, based on the stack's `previous` revision.
    pub(super) fn revision(
        &self,
        request: &StackRequest,
        previous: Option<&Revision>,
    ) -> ApiResult<Revision> {
        let template = match (&request.template, previous) {
            (Some(source), _) => Arc::new(source.read()?),
            (None, Some(previous)) => Arc::clone(&previous.template),
            (None, None) => {
                return Err(ApiError::validation("Either Template URL or Template Body must be specified."));
            }
        };
        let tags = request
            .tags
            .clone()
            .or_else(|| previous.map(|previous| previous.tags.clone()))
            .unwrap_or_default();
        if tags.len() > limits::TAGS {
            return Err(ApiError::validation(format!("Tag limit of {} exceeded", limits::TAGS)));
        }
        let revision = Revision {
            parameters: parameters(&template, request, previous)?,
            capabilities: request.capabilities.clone(),
            template,
            tags,
        };
        self.check_properties(&request.stack_name, &revision)?;
        check_capabilities(&revision)?;
        Ok(revision)
    }

    /// Checks the properties of every resource against the schema of its type, as far as their values are known before anything is
    /// created.
    fn check_properties(&self, stack_name: &str, revision: &Revision) -> ApiResult<()> {
        let scope = StackScope {
            config: &self.config,
            stack_name,
            stack_id: crate::schema::UNKNOWN,
            revision,
            resources: None,
            renewed: BTreeSet::new(),
            touched: BTreeSet::new(),
            exports: None,
            imported: Default::default(),
        };
        let present = scope.present().map_err(ApiError::validation)?;
        let mut problems = Vec::new();
        for (id, definition) in &revision.template.resources {
            if !present.contains(id) {
                continue;
            }
            let properties = scope.properties(definition).map_err(ApiError::validation)?;
            let Some(kind) = resource_type(&definition.kind) else { continue };
            for finding in check(kind, &properties) {
                problems.push(format!("[/Resources/{id}/Properties{}] {}", finding.path, finding.message));
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(ApiError::validation(format!("Properties validation failed: {}", problems.join("; "))))
    }
}

fn parameters(
    template: &Template,
    request: &StackRequest,
    previous: Option<&Revision>,
) -> ApiResult<BTreeMap<String, String>> {
    let strange: Vec<&str> = request
        .parameters
        .keys()
        .map(String::as_str)
        .filter(|key| !template.parameters.contains_key(*key))
        .collect();
    if !strange.is_empty() {
        return Err(ApiError::validation(format!(
            "Parameters: [{}] do not exist in the template",
            strange.join(", ")
        )));
    }
    let mut values = BTreeMap::new();
    let mut missing = Vec::new();
    for (name, declared) in &template.parameters {
        let before = || previous.and_then(|previous| previous.parameters.get(name)).cloned();
        let value = match request.parameters.get(name) {
            Some(Some(value)) => Some(value.clone()),
            Some(None) => before(),
            None => declared.default.clone(),
        };
        match value {
            None => missing.push(name.as_str()),
            Some(value) if !declared.allowed.is_empty() && !declared.allowed.contains(&value) => {
                return Err(ApiError::validation(format!("Parameter '{name}' must be one of AllowedValues")));
            }
            Some(value) if declared.kind == "Number" && value.parse::<f64>().is_err() => {
                return Err(ApiError::validation(format!("Parameter '{name}' must be a number.")));
            }
            Some(value) => {
                values.insert(name.clone(), value);
            }
        }
    }
    if missing.is_empty() {
        return Ok(values);
    }
    Err(ApiError::validation(format!("Parameters: [{}] must have values", missing.join(", "))))
}

/// The capability that `template` requires: `CAPABILITY_NAMED_IAM`, `CAPABILITY_IAM`, or none.
pub(super) fn needed_capability(template: &Template) -> Option<&'static str> {
    let mut needed = None;
    for definition in template.resources.values() {
        let Some((_, name)) = IAM.iter().find(|(kind, _)| *kind == definition.kind) else { continue };
        let named =
            name.is_some_and(|name| definition.properties.get(name).is_some_and(|name| name != &Value::Null));
        if named {
            return Some("CAPABILITY_NAMED_IAM");
        }
        needed = Some("CAPABILITY_IAM");
    }
    needed
}

fn check_capabilities(revision: &Revision) -> ApiResult<()> {
    let has = |name: &str| revision.capabilities.contains(name);
    match needed_capability(&revision.template) {
        Some("CAPABILITY_NAMED_IAM") if !has("CAPABILITY_NAMED_IAM") => {
            Err(ApiError::insufficient_capabilities("CAPABILITY_NAMED_IAM"))
        }
        Some(_) if !has("CAPABILITY_IAM") && !has("CAPABILITY_NAMED_IAM") => {
            Err(ApiError::insufficient_capabilities("CAPABILITY_IAM"))
        }
        _ => Ok(()),
    }
}
