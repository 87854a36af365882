//! Deploys a SAM template into the embedded AWS, so that a wiring error in it fails here.
//!
//! The SAM translator that AWS itself runs makes plain CloudFormation of it; what follows creates every resource in
//! its order. A type, a property or an intrinsic function that is not known here is an error: nothing passes by being
//! ignored. What is only recorded says so, with the reason, in `resources::RECORDED`.

mod intrinsics;
mod resources;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::process::Command;

use crate::client::{Client, ClientError};
use crate::gateway::Gateway;
use crate::iam::Statement;
use crate::lambda::Lambda;
use crate::router::Route;
use crate::tools;
use intrinsics::{Stack, Template};
use resources::Deployer;

/// Why a template cannot be deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// Something in it is wrong, or not modelled here.
    #[error("{place}: {what}")]
    Template {
        /// Logical id and property.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The SAM translator refuses it.
    #[error("the SAM translator refuses {path}: {said}")]
    Translator {
        /// The template.
        path: PathBuf,
        /// Its words.
        said: String,
    },
    /// moto refuses a resource.
    #[error("{place} cannot be created")]
    Create {
        /// Logical id.
        place: String,
        /// Its words.
        #[source]
        source: ClientError,
    },
}

impl DeployError {
    fn new(place: &str, what: &str) -> Self {
        Self::Template { place: place.to_owned(), what: what.to_owned() }
    }
}

/// Where a template is deployed, and how its functions run.
#[derive(Debug)]
pub struct Target<'a> {
    /// The operator's client of the embedded AWS.
    pub client: &'a Client,
    /// Learns the functions' access keys, roles and the resources' policies.
    pub gateway: &'a Gateway,
    /// Learns the functions.
    pub lambda: &'a Lambda,
    /// `AWS::StackName`.
    pub stack_name: &'a str,
    /// Parameters of the template.
    pub parameters: BTreeMap<&'a str, &'a str>,
    /// Variables that every function gets besides the template's (`RUST_LOG` overrides).
    pub extra_environment: BTreeMap<String, String>,
    /// Folder in which functions run.
    pub work_folder: &'a Path,
}

/// A deployed template.
#[derive(Debug)]
pub struct Deployed {
    /// `Ref` of every resource, by logical id.
    pub references: BTreeMap<String, String>,
    /// ARN of every resource that has one.
    pub arns: BTreeMap<String, String>,
    /// Outputs by name.
    pub outputs: BTreeMap<String, String>,
    /// From rules to functions.
    pub routes: Vec<Route>,
    /// Bus and queue of what is said on it.
    pub taps: Vec<(String, String)>,
    /// Roles that services assume, by ARN: Scheduler's.
    pub roles: BTreeMap<String, Assumable>,
    /// What was only recorded: logical id, type, why.
    pub recorded: Vec<(String, String, &'static str)>,
}

/// A role, for services that assume it.
#[derive(Debug, Clone)]
pub struct Assumable {
    /// Who may assume it.
    pub trusts: Vec<Statement>,
    /// What it grants.
    pub statements: Vec<Statement>,
    /// ARNs of the template's schedule groups, on whose behalf Scheduler assumes it.
    pub schedule_groups: Vec<String>,
}

/// Translates a SAM template to plain CloudFormation.
///
/// # Errors
/// With the translator's words if it refuses.
pub async fn translate(path: &Path) -> Result<Value, DeployError> {
    let fail = |said: String| DeployError::Translator { path: path.to_owned(), said };
    let python = tools::python().map_err(|error| fail(error.to_string()))?;
    let script = tools::root().join("tests/scripts/transform.py");
    let output = Command::new(python).arg(script).arg(path).output().await;
    let output = output.map_err(|error| fail(error.to_string()))?;
    if !output.status.success() {
        return Err(fail(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| fail(error.to_string()))
}

/// Creates everything that the plain template names.
///
/// # Errors
/// At the first thing that is wrong, not modelled here, or refused.
pub async fn deploy(template: &Value, target: &Target<'_>) -> Result<Deployed, DeployError> {
    let template = Template::new(template, target.client.region(), target.stack_name, &target.parameters)?;
    let mut deployer = Deployer::new(target);
    let mut stack = Stack::new();
    for (id, resource) in template.in_order()? {
        let known = [
            "Type",
            "Properties",
            "DependsOn",
            "Condition",
            "Metadata",
            "DeletionPolicy",
            "UpdateReplacePolicy",
        ];
        let unknown =
            resource.as_object().and_then(|map| map.keys().find(|key| !known.contains(&key.as_str())));
        if let Some(key) = unknown {
            return Err(DeployError::new(id, &format!("attribute `{key}` is not modelled")));
        }
        let properties = template.resolve(&resource["Properties"], &stack, id)?;
        let made = deployer.create(id, resource, properties).await?;
        stack.insert(id.to_owned(), made);
    }
    let outputs = template.outputs(&stack)?;
    deployer.finish().await?;
    let groups = deployer.recorded.iter().filter(|(_, kind, _)| kind == "AWS::Scheduler::ScheduleGroup");
    let schedule_groups: Vec<String> =
        groups.filter_map(|(id, _, _)| stack.get(id)?.attributes.get("Arn").cloned()).collect();
    Ok(Deployed {
        references: stack.iter().map(|(id, made)| (id.clone(), made.reference.clone())).collect(),
        arns: stack
            .iter()
            .filter_map(|(id, made)| Some((id.clone(), made.attributes.get("Arn")?.clone())))
            .collect(),
        outputs,
        routes: deployer.routes,
        taps: deployer.taps,
        roles: deployer
            .roles
            .into_values()
            .map(|role| {
                let (trusts, statements) = (role.trusts, role.statements);
                (role.arn, Assumable { trusts, statements, schedule_groups: schedule_groups.clone() })
            })
            .collect(),
        recorded: deployer.recorded,
    })
}
