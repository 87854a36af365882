//! Deploys a SAM template into the embedded AWS, so that an error in its wiring fails a test.
//!
//! The SAM translator that AWS itself runs turns it into plain CloudFormation. This module then creates every resource in order. An unknown
//! type, property or intrinsic function is an error, so that nothing is ignored silently. `resources::RECORDED` lists the types that are
//! only recorded, with the reasons.

mod intrinsics;
mod resources;
mod rules;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::process::Command;

use crate::client::{Client, ClientError};
use crate::gateway::Gateway;
use crate::iam::Statement;
use crate::lambda::Lambda;
use crate::relay::{Destination, Relay};
use crate::router::Route;
use crate::tools;
use intrinsics::{Stack, Template};
use resources::Deployer;

/// Why a template cannot be deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The template is wrong, or has something that is not modelled here.
    #[error("{place}: {what}")]
    Template {
        /// Logical id and property.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The SAM translator refuses the template.
    #[error("the SAM translator refuses {path}: {said}")]
    Translator {
        /// The template.
        path: PathBuf,
        /// The translator's message.
        said: String,
    },
    /// moto refuses a resource.
    #[error("{place} cannot be created")]
    Create {
        /// Logical id.
        place: String,
        /// moto's message.
        #[source]
        source: ClientError,
    },
}

impl DeployError {
    fn new(place: &str, what: &str) -> Self {
        Self::Template { place: place.to_owned(), what: what.to_owned() }
    }
}

/// Where and how a template is deployed.
#[derive(Debug)]
pub struct Target<'a> {
    /// The operator's client of the embedded AWS.
    pub client: &'a Client,
    /// Gets the functions' access keys, the roles and the resources' policies.
    pub gateway: &'a Gateway,
    /// Gets the functions.
    pub lambda: &'a Lambda,
    /// `AWS::StackName`.
    pub stack_name: &'a str,
    /// Parameters of the template.
    pub parameters: BTreeMap<&'a str, &'a str>,
    /// Environment variables of every function in addition to the template's (`RUST_LOG` replaces the template's).
    pub extra_environment: BTreeMap<String, String>,
    /// The working directory of functions.
    pub work_folder: &'a Path,
}

/// A deployed template.
#[derive(Debug)]
pub struct Deployed {
    /// The value of `Ref` of every resource, by logical id.
    pub references: BTreeMap<String, String>,
    /// The type of every resource.
    pub kinds: BTreeMap<String, String>,
    /// The values of its parameters.
    pub parameters: BTreeMap<String, String>,
    /// The ARN of every resource that has one.
    pub arns: BTreeMap<String, String>,
    /// Outputs by name.
    pub outputs: BTreeMap<String, String>,
    /// The routes from rules to functions.
    pub routes: Vec<Route>,
    /// The rules whose target is no function.
    pub relays: Vec<Relay>,
    /// API destinations, by ARN.
    pub destinations: BTreeMap<String, Destination>,
    /// Pairs of a bus and the queue that receives all of its events.
    pub taps: Vec<(String, String)>,
    /// The roles that services assume, by ARN: Scheduler's.
    pub roles: BTreeMap<String, Assumable>,
    /// The statements of managed policies, by ARN.
    pub policies: BTreeMap<String, Vec<Statement>>,
    /// The resources that were only recorded: logical id, type, reason.
    pub recorded: Vec<(String, String, &'static str)>,
}

/// A role that a service can assume.
#[derive(Debug, Clone)]
pub struct Assumable {
    /// The trust policy.
    pub trusts: Vec<Statement>,
    /// The permissions.
    pub statements: Vec<Statement>,
    /// ARNs of the template's schedule groups, on whose behalf Scheduler assumes the role.
    pub schedule_groups: Vec<String>,
}

/// Translates a SAM template to plain CloudFormation.
///
/// # Errors
/// If the translator refuses the template, with its message.
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

/// Creates all resources of the plain template.
///
/// # Errors
/// At the first resource that is wrong, not modelled here, or refused.
pub async fn deploy(template: &Value, target: &Target<'_>) -> Result<Deployed, DeployError> {
    let template = Template::new(template, target.client.region(), target.stack_name, &target.parameters)?;
    let mut deployer = Deployer::new(target);
    let (mut stack, mut kinds) = (Stack::new(), BTreeMap::new());
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
        kinds.insert(id.to_owned(), resource["Type"].as_str().unwrap_or_default().to_owned());
    }
    let outputs = template.outputs(&stack)?;
    deployer.finish().await?;
    let groups = deployer.recorded.iter().filter(|(_, kind, _)| kind == "AWS::Scheduler::ScheduleGroup");
    let schedule_groups: Vec<String> =
        groups.filter_map(|(id, _, _)| stack.get(id)?.attributes.get("Arn").cloned()).collect();
    Ok(Deployed {
        kinds,
        parameters: template.parameters(),
        references: stack.iter().map(|(id, made)| (id.clone(), made.reference.clone())).collect(),
        arns: stack
            .iter()
            .filter_map(|(id, made)| Some((id.clone(), made.attributes.get("Arn")?.clone())))
            .collect(),
        outputs,
        routes: deployer.routes,
        relays: deployer.relays,
        destinations: deployer.destinations,
        taps: deployer.taps,
        roles: deployer
            .roles
            .into_values()
            .map(|role| {
                let (trusts, statements) = (role.trusts, role.statements);
                (role.arn, Assumable { trusts, statements, schedule_groups: schedule_groups.clone() })
            })
            .collect(),
        policies: deployer.policies,
        recorded: deployer.recorded,
    })
}
