//! Renders a cluster: CloudFormation stacks with their userdata, and each role's configuration (design §6).
//!
//! The same arguments give the same bytes on any machine at any time (P1): no clock, no randomness, sorted
//! maps.

//!
//! [`render`] is the way in. `cfn` is CloudFormation's language; `network`, `etcd`, `control_plane` and
//! `pool` are a stack each; `node_config`, `launch_template`, `userdata`, `groups`, `iam` and `endpoints`
//! what stacks are made of.

pub mod addons;
mod cfn;
mod context;
mod control_plane;
mod endpoints;
mod error;
mod etcd;
mod groups;
mod iam;
mod identity;
mod launch_template;
pub mod limits;
mod network;
mod node_config;
mod pool;
mod ports;
mod userdata;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::{Cluster, GroupSize};
use crate::digest::sha256_hex;
use crate::lock::Lock;
use crate::members::MemberRole;
use crate::patch::{Applied, Patch, Target};
use crate::pki::Role;
use crate::spec::Diagnostic;
pub use addons::{AddonSet, Installed, LABEL as ADDON_LABEL};
use cfn::Template;
pub(crate) use cfn::canonical_json;
use context::Context;
pub use context::stack_name;
pub use error::RenderError;
pub use network::ETCD_HOSTED_ZONE;
pub(crate) use node_config::SCRATCH;
pub(crate) use pool::LABEL_TAG;

/// Where the functions keep things; the same for all clusters of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// Name of the asset bucket.
    pub asset_bucket: String,
    /// ARN of Slipway's own KMS key, used where the spec names none.
    pub kms_key_arn: String,
    /// The region that the functions work in, and that a spec must therefore name; `None` where there is no installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Name of the bucket that anyone may read the clusters' public keys from; `None` where the installation has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_bucket: Option<String>,
}

/// The whole of what a spec turns into. Its id is the SHA-256 of its JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rendering {
    /// Version of this format.
    pub format: u32,
    /// `clusterName`.
    pub cluster: String,
    /// The stacks in the order in which they are launched.
    pub stacks: Vec<Stack>,
    /// What a node of each role is.
    pub roles: BTreeMap<Role, NodeRole>,
    /// What the node manager keeps applied; empty in what an older Slipway rendered.
    #[serde(default)]
    pub addons: AddonSet,
}

/// One CloudFormation stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stack {
    /// `<cluster>-network`, `-identity`, `-etcd`, `-control-plane`, `-pool-<name>`.
    pub name: String,
    /// Which of the five.
    pub kind: StackKind,
    /// The template, canonical JSON.
    pub body: String,
    /// SHA-256 of `body`.
    pub sha256: String,
    /// Tags of the stack, which CloudFormation puts on its resources.
    pub tags: BTreeMap<String, String>,
}

/// The kinds of stack, in the order in which they are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackKind {
    /// VPC, subnets, security groups, endpoints.
    Network,
    /// What AWS knows of the cluster's service accounts, and the roles that they may take.
    Identity,
    /// etcd members with their volumes.
    Etcd,
    /// Controllers.
    ControlPlane,
    /// One pool of workers.
    Pool,
}

impl StackKind {
    /// Stacks of one wave need nothing of each other and are worked on side by side; a later wave waits for the earlier.
    #[must_use]
    pub const fn wave(self) -> u8 {
        match self {
            Self::Network | Self::Identity => 0,
            Self::Etcd => 1,
            Self::ControlPlane => 2,
            Self::Pool => 3,
        }
    }
}

/// What a node of one role is, and so when it must be replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRole {
    /// The stack that its launch template is in.
    pub stack: String,
    /// How many nodes: 1 for an etcd member.
    pub nodes: GroupSize,
    /// Everything of the launch template but the userdata's two digests (image, instance types, volumes,
    /// security groups, profile): a node is outdated when it differs.
    pub machine: Value,
    /// The node configuration without secrets, canonical JSON: stored as `bundles/<role>/config-<digest>`.
    pub config: String,
    /// SHA-256 of `config`: a node is outdated when it differs.
    pub config_digest: String,
    /// Keyed digest of the credentials: a node is stale, no more, when this alone differs.
    pub credentials_digest: String,
    /// The exact release that its nodes run: of etcd for a member, of Kubernetes for the others. `None`: an older release of
    /// Slipway did not write it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What there is to know of an etcd member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberRole>,
    /// Whether its group counts units of capacity, not machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
}

/// What [`render`] reads. Nothing else decides what comes out (P1).
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The checked spec.
    pub cluster: &'a Cluster,
    /// What the outside world decided.
    pub lock: &'a Lock,
    /// The keyed digest of each role's credentials bundle.
    pub credentials: &'a BTreeMap<Role, String>,
    /// Where the functions keep things.
    pub site: &'a Site,
    /// What the cluster's owner changes in what was rendered, in the order in which it is applied.
    pub patches: &'a [Patch],
}

impl<'a> Inputs<'a> {
    /// What every cluster has; the rest is empty.
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
/// All reasons at once: what the lock does not pin, credentials that are not there, AWS' limits.
pub fn render(inputs: &Inputs<'_>) -> Result<Rendering, Vec<RenderError>> {
    render_with_warnings(inputs).map(|(rendering, _)| rendering)
}

/// As [`render`], with what a person should know: patches that do nothing.
///
/// # Errors
/// As [`render`].
pub fn render_with_warnings(inputs: &Inputs<'_>) -> Result<(Rendering, Vec<Diagnostic>), Vec<RenderError>> {
    render_patched(inputs, Applied::new(inputs.patches)).map_err(|(errors, _)| errors)
}

/// What is wrong with patches on a cluster, and what a person should know of them, before the lock and the credentials
/// are there. `test` operations are left to the rendering itself, which knows the values.
#[must_use]
pub fn check_patches(cluster: &Cluster, patches: &[Patch]) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
    let unknown = || "unknown".to_owned();
    let site = Site {
        asset_bucket: unknown(),
        kms_key_arn: unknown(),
        region: None,
        issuer_bucket: Some(unknown()),
    };
    let (lock, credentials) = (Lock::default(), BTreeMap::new());
    let inputs = Inputs { patches, ..Inputs::new(cluster, &lock, &credentials, &site) };
    match render_patched(&inputs, Applied::without_tests(patches)) {
        Ok((_, warnings)) => (Vec::new(), warnings),
        // What the lock does not pin is no matter of the patches.
        Err((errors, warnings)) => {
            let of_patch = |error| if let RenderError::Patch(found) = error { Some(*found) } else { None };
            (errors.into_iter().filter_map(of_patch).collect(), warnings)
        }
    }
}

/// Both the errors and the warnings.
type Findings = (Vec<RenderError>, Vec<Diagnostic>);

fn render_patched(
    inputs: &Inputs<'_>,
    patches: Applied<'_>,
) -> Result<(Rendering, Vec<Diagnostic>), Findings> {
    let &Inputs { cluster, lock, credentials, site, patches: _ } = inputs;
    let patched_machines = BTreeMap::new();
    let mut context =
        Context { cluster, lock, credentials, site, patches, patched_machines, errors: Vec::new() };
    let mut stacks = Vec::with_capacity(4 + cluster.pools.len());
    let mut roles = BTreeMap::new();

    let network = network::template(&mut context);
    stacks.push(stack(&mut context, StackKind::Network, "", &network));
    if let Some(identity) = identity::template(&mut context) {
        stacks.push(stack(&mut context, StackKind::Identity, "", &identity));
    }
    let (etcd, members) = etcd::template(&mut context);
    stacks.push(stack(&mut context, StackKind::Etcd, "", &etcd));
    roles.extend(members);
    let (control_plane, controllers) = control_plane::template(&mut context);
    stacks.push(stack(&mut context, StackKind::ControlPlane, "", &control_plane));
    roles.extend([controllers]);
    for pool in &cluster.pools {
        let (template, workers) = pool::template(&mut context, pool);
        stacks.push(stack(&mut context, StackKind::Pool, &pool.name, &template));
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
    // Several roles may lack the same thing.
    errors.sort_by_key(ToString::to_string);
    errors.dedup();
    Err((errors, warnings))
}

/// Finishes a stack: patches it, and checks it against AWS' limits.
fn stack(context: &mut Context<'_>, kind: StackKind, pool: &str, template: &Template) -> Stack {
    let name = context.stack_name(kind, pool);
    let value = patched(context, &name, template.value());
    let body = canonical_json(&value);
    for id in template.collisions() {
        context.errors.push(RenderError::LogicalIdCollision { stack: name.clone(), id: id.clone() });
    }
    let mut tags = context.cluster.stack_tags.clone();
    tags.insert("slipway:cluster".to_owned(), context.cluster.name.clone());
    context.errors.extend(limits::check(&name, &value, body.len(), tags.len()));
    Stack { sha256: sha256_hex(body.as_bytes()), name, kind, body, tags }
}

/// The template with what patches change in it. What they change of a machine makes its nodes outdated.
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

impl Rendering {
    /// The current format.
    pub const FORMAT: u32 = 1;

    /// Canonical JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        canonical_json(&serde_json::to_value(self).expect("a rendering has string keys only"))
    }

    /// SHA-256 of [`Rendering::to_json`]: equal ids, equal bytes.
    #[must_use]
    pub fn id(&self) -> String {
        sha256_hex(self.to_json().as_bytes())
    }

    /// The stack of that name.
    #[must_use]
    pub fn stack(&self, name: &str) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.name == name)
    }
}

impl Stack {
    /// The key of the template in the asset bucket.
    #[must_use]
    pub fn template_key(&self, cluster: &str) -> String {
        format!("clusters/{cluster}/templates/{}/{}.json", self.name, self.sha256)
    }
}
