//! Renders a cluster into CloudFormation stacks with their user data, and a configuration for each role.
//!
//! The same arguments give the same bytes on any machine at any time (P1): there is no clock and no randomness, and maps are sorted.

//!
//! [`render`] is the entry point. `cfn` implements CloudFormation's language; `network`, `etcd`, `control_plane` and `pool` render a
//! stack each, with the parts in `node_config`, `launch_template`, `userdata`, `groups`, `iam` and `endpoints`.

pub mod addons;
mod cfn;
mod context;
mod control_plane;
pub mod endpoints;
mod error;
mod etcd;
mod groups;
mod iam;
mod identity;
pub mod images;
mod launch_template;
pub mod limits;
pub mod lock;
mod missing;
mod network;
mod node_config;
mod pool;
mod ports;
pub mod software;
mod userdata;

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use cfn::Template;
use context::Context;
use serde_json::Value;
use slipway_core::canonical::canonical_json;
use slipway_core::cluster::Cluster;
use slipway_core::diagnostic::Diagnostic;
use slipway_core::digest::sha256_hex;
use slipway_core::release::{Rendering, Site, Stack, StackKind};
use slipway_core::role::Role;
use slipway_spec::patch::{Applied, Patch, Target};

use crate::lock::Lock;
pub use error::RenderError;

/// The inputs of [`render`]. Its output depends on nothing else (P1).
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The checked spec.
    pub cluster: &'a Cluster,
    /// The pinned versions and digests.
    pub lock: &'a Lock,
    /// The keyed digest of each role's credentials bundle.
    pub credentials: &'a BTreeMap<Role, String>,
    /// The resources of the installation.
    pub site: &'a Site,
    /// The user's changes of what is rendered, in the order in which they are applied.
    pub patches: &'a [Patch],
}

impl<'a> Inputs<'a> {
    /// The mandatory inputs; there are no patches.
    #[must_use]
    pub const fn new(
        cluster: &'a Cluster,
        lock: &'a Lock,
        credentials: &'a BTreeMap<Role, String>,
        site: &'a Site,
    ) -> Self {
        Self { cluster, lock, credentials, site, patches: &[] }
    }
}

/// Renders `inputs.cluster`.
///
/// # Errors
/// All reasons at once: what the lock does not pin, missing credentials, exceeded limits of AWS.
pub fn render(inputs: &Inputs<'_>) -> Result<Rendering, Vec<RenderError>> {
    render_with_warnings(inputs).map(|(rendering, _)| rendering)
}

/// As [`render`], with warnings about patches that have no effect.
///
/// # Errors
/// As [`render`].
pub fn render_with_warnings(inputs: &Inputs<'_>) -> Result<(Rendering, Vec<Diagnostic>), Vec<RenderError>> {
    render_patched(inputs, Applied::new(inputs.patches)).map_err(|(errors, _)| errors)
}

/// Errors and warnings about patches on a cluster, before lock and credentials exist. `test` operations are checked by the rendering,
/// which knows the values. Only what a patch is for is rendered.
#[must_use]
pub fn check_patches(cluster: &Cluster, patches: &[Patch]) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
    let unknown = || "unknown".to_owned();
    let site = Site {
        asset_bucket: unknown(),
        kms_key_arn: unknown(),
        region: None,
        issuer_bucket: Some(unknown()),
        allowed: None,
    };
    let (lock, credentials) = (Lock::default(), BTreeMap::new());
    let inputs = Inputs { patches, ..Inputs::new(cluster, &lock, &credentials, &site) };
    let mut context = Context::new(&inputs, Applied::without_tests(patches));
    let patch = |context: &mut Context<'_>, kind, pool: &str, template| {
        let name = context.stack_name(kind, pool);
        patched(context, &name, template);
    };
    let members: Vec<Role> = cluster.etcd.members.iter().map(|member| Role::Etcd(member.index)).collect();
    let etcd: Vec<Target<'_>> = members.iter().map(Target::Node).chain([Target::Stack("etcd")]).collect();
    if context.patches.concern(&[Target::Stack("network")]) {
        let template = network::template(&mut context);
        patch(&mut context, StackKind::Network, "", template.into_value());
    }
    let addon_roles = addons::permissions(&context);
    if let Some(identity) = identity::template(&mut context, addon_roles) {
        patch(&mut context, StackKind::Identity, "", identity.into_value());
    }
    if context.patches.concern(&etcd) {
        let (template, _) = etcd::template(&mut context);
        patch(&mut context, StackKind::Etcd, "", template.into_value());
    }
    if context.patches.concern(&[Target::Node(&Role::Controller), Target::Stack("control-plane")]) {
        let (template, _) = control_plane::template(&mut context);
        patch(&mut context, StackKind::ControlPlane, "", template.into_value());
    }
    for pool in &cluster.pools {
        let (role, stack) = (Role::Pool(pool.name.clone()), format!("pool-{}", pool.name));
        if context.patches.concern(&[Target::Node(&role), Target::Stack(&stack)]) {
            let (template, _) = pool::template(&mut context, pool);
            patch(&mut context, StackKind::Pool, &pool.name, template.into_value());
        }
    }
    // What the lock does not pin is no error of a patch.
    let (mut errors, warnings) = context.patches.finish();
    errors.sort_by_key(ToString::to_string);
    errors.dedup();
    (errors, warnings)
}

/// Errors and warnings.
type Findings = (Vec<RenderError>, Vec<Diagnostic>);

fn render_patched(
    inputs: &Inputs<'_>,
    patches: Applied<'_>,
) -> Result<(Rendering, Vec<Diagnostic>), Findings> {
    let cluster = inputs.cluster;
    let mut context = Context::new(inputs, patches);
    let mut stacks = Vec::with_capacity(4 + cluster.pools.len());
    let mut roles = BTreeMap::new();

    let network = network::template(&mut context);
    stacks.push(stack(&mut context, StackKind::Network, "", network));
    let addon_roles = addons::permissions(&context);
    if let Some(identity) = identity::template(&mut context, addon_roles) {
        stacks.push(stack(&mut context, StackKind::Identity, "", identity));
    }
    let (etcd, members) = etcd::template(&mut context);
    stacks.push(stack(&mut context, StackKind::Etcd, "", etcd));
    roles.extend(members);
    let (control_plane, controllers) = control_plane::template(&mut context);
    stacks.push(stack(&mut context, StackKind::ControlPlane, "", control_plane));
    roles.extend([controllers]);
    for pool in &cluster.pools {
        let (template, workers) = pool::template(&mut context, pool);
        stacks.push(stack(&mut context, StackKind::Pool, &pool.name, template));
        roles.extend([workers]);
    }

    for (role, node) in &roles {
        context.errors.extend(limits::check_config(&node.stack, &role.to_string(), node.config.len()));
    }
    let addons = addons::render(&mut context);
    for (role, changed) in context.patched_machines {
        if let Some(node) = roles.get_mut(&role) {
            node.machine["patched"] = changed;
        }
    }
    let mut errors = context.errors;
    let (refused, warnings) = context.patches.finish();
    errors.extend(refused.into_iter().map(Box::new).map(RenderError::Patch));
    if errors.is_empty() {
        let cluster = cluster.name.clone();
        return Ok((Rendering { format: Rendering::FORMAT, cluster, stacks, roles, addons }, warnings));
    }
    // Several roles may report the same error.
    errors.sort_by_key(ToString::to_string);
    errors.dedup();
    Err((errors, warnings))
}

/// Finishes a stack: applies patches, and checks AWS' limits.
fn stack(context: &mut Context<'_>, kind: StackKind, pool: &str, template: Template) -> Stack {
    let name = context.stack_name(kind, pool);
    for id in template.collisions() {
        context.errors.push(RenderError::LogicalIdCollision { stack: name.clone(), id: id.clone() });
    }
    let value = patched(context, &name, template.into_value());
    let body = canonical_json(&value);
    let mut tags = context.cluster.stack_tags.clone();
    tags.insert("slipway:cluster".to_owned(), context.cluster.name.clone());
    context.errors.extend(limits::check(&name, &value, body.len(), tags.len()));
    Stack { sha256: sha256_hex(body.as_bytes()), name, kind, body, tags }
}

/// Applies patches to the template. Changes of a launch template make its nodes outdated.
fn patched(context: &mut Context<'_>, stack: &str, rendered: Value) -> Value {
    if context.patches.is_empty() {
        return rendered;
    }
    let mut value = rendered.clone();
    let own = stack.strip_prefix(&format!("{}-", context.cluster.name)).unwrap_or(stack);
    context.patches.apply(Target::Stack(own), &mut value);
    if value != rendered {
        context.patched_machines.extend(launch_template::patched(&rendered, &value));
    }
    value
}
