//! What a spec is rendered into: stacks, roles of nodes and add-ons, in the form in which a release is stored and compared.

mod canonical;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::allowed::Allowed;
use crate::cluster::GroupSize;
use crate::digest::sha256_hex;
use crate::members::MemberRole;
use crate::role::Role;

/// The label with the name of an object's add-on.
pub const ADDON_LABEL: &str = "slipway/addon";

/// The annotation of an object that only node managers of earlier releases apply, because those of this one do themselves what it is for:
/// they delete it. A cluster keeps the agent that its lock pins, whatever the installation renders, so the object must be there for as long as
/// some lock may pin an earlier one.
pub const EARLIER_AGENTS: &str = "slipway/for-earlier-agents";

/// The prefix of the tag that tells the cluster autoscaler a node label.
pub const LABEL_TAG: &str = "k8s.io/cluster-autoscaler/node-template/label/";

/// Logical id of the hosted zone for etcd members, if the network stack makes it.
pub const ETCD_HOSTED_ZONE: &str = "EtcdHostedZone";

/// The resources of the installation, which all its clusters share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// Name of the asset bucket.
    pub asset_bucket: String,
    /// ARN of the installation's KMS key, used if the spec names none.
    pub kms_key_arn: String,
    /// The region of the functions, which specs must name. `None`: there is no installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Name of the public bucket with the clusters' verification keys. `None`: the installation has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_bucket: Option<String>,
    /// What specs may use besides. `None`: there is no installation that could refuse it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Allowed>,
}

/// Everything that a spec is rendered into. Its id is the SHA-256 of its canonical JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rendering {
    /// Version of this format.
    pub format: u32,
    /// `clusterName`.
    pub cluster: String,
    /// The stacks in launch order.
    pub stacks: Vec<Stack>,
    /// The roles that nodes have.
    pub roles: BTreeMap<Role, NodeRole>,
    /// The add-ons that the node manager applies.
    pub addons: AddonSet,
}

/// One CloudFormation stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stack {
    /// `<cluster>-network`, `-identity`, `-etcd`, `-control-plane`, `-pool-<name>`.
    pub name: String,
    /// Its kind.
    pub kind: StackKind,
    /// The template, canonical JSON.
    pub body: String,
    /// SHA-256 of `body`.
    pub sha256: String,
    /// Tags of the stack, which CloudFormation puts on its resources.
    pub tags: BTreeMap<String, String>,
}

/// The kinds of stack, in launch order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackKind {
    /// VPC, subnets, security groups, endpoints.
    Network,
    /// The OpenID Connect provider of the cluster's service accounts, and the IAM roles that they may assume.
    Identity,
    /// etcd members with their volumes.
    Etcd,
    /// Controllers.
    ControlPlane,
    /// One pool of workers.
    Pool,
}

impl StackKind {
    /// The wave in which the stack is launched. Stacks of one wave do not depend on each other and are processed in parallel; a wave
    /// starts after the previous one.
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

/// What a node of one role is made of, which decides when it must be replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRole {
    /// The stack that contains its launch template.
    pub stack: String,
    /// The size of its group: 1 for an etcd member.
    pub nodes: GroupSize,
    /// The launch template except for the two digests in the user data: image, instance types, volumes, security groups, instance
    /// profile. A node is outdated if it differs.
    pub machine: Value,
    /// The node configuration, without secrets, in canonical JSON. It is stored as `bundles/<role>/config-<digest>`.
    pub config: String,
    /// SHA-256 of `config`. A node is outdated if it differs.
    pub config_digest: String,
    /// Keyed digest of the credentials. A node is only stale if nothing else differs.
    pub credentials_digest: String,
    /// The release that its nodes run: of etcd for a member, of Kubernetes for others. `None`: it is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The etcd member, if the role is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberRole>,
    /// Whether its group counts capacity units instead of machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
}

impl Rendering {
    /// The current format.
    pub const FORMAT: u32 = 1;

    /// Canonical JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        canonical::rendering(self)
    }

    /// SHA-256 of [`Rendering::to_json`].
    #[must_use]
    pub fn id(&self) -> String {
        sha256_hex(self.to_json().as_bytes())
    }

    /// The same release with other credentials for these roles: what it renders to with them, because their digests are in the user data of
    /// their launch templates, and nowhere else (slipway-render, `userdata.rs`).
    #[must_use]
    pub fn with_credentials(mut self, digests: &BTreeMap<Role, String>) -> Self {
        for (role, digest) in digests {
            let Some(node) = self.roles.get_mut(role).filter(|node| node.credentials_digest != *digest)
            else {
                continue;
            };
            let before = std::mem::replace(&mut node.credentials_digest, digest.clone());
            for stack in self.stacks.iter_mut().filter(|stack| stack.name == node.stack) {
                stack.body = stack.body.replace(&before, digest);
                stack.sha256 = sha256_hex(stack.body.as_bytes());
            }
        }
        self
    }

    /// The id of the same release without any credentials: two releases with one such id differ in credentials alone.
    #[must_use]
    pub fn id_without_credentials(&self) -> String {
        let none = self.roles.keys().map(|role| (role.clone(), String::new())).collect();
        let mut other = self.clone().with_credentials(&none);
        // Pools are in the order of the spec, or of their names.
        other.stacks.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        other.id()
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

/// Name of a stack.
pub fn stack_name(cluster: &str, kind: StackKind, pool: &str) -> String {
    match kind {
        StackKind::Network => format!("{cluster}-network"),
        StackKind::Identity => format!("{cluster}-identity"),
        StackKind::Etcd => format!("{cluster}-etcd"),
        StackKind::ControlPlane => format!("{cluster}-control-plane"),
        StackKind::Pool => format!("{cluster}-pool-{pool}"),
    }
}

/// The add-ons of a cluster, in the order in which they are applied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddonSet {
    /// SHA-256 of [`AddonSet::to_json`]. Empty without add-ons.
    pub digest: String,
    /// The add-ons.
    pub addons: Vec<Installed>,
}

/// One add-on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Installed {
    /// The name of the add-on, such as `coredns`.
    pub name: String,
    /// The tag of its own image. Empty: it has none.
    pub version: String,
    /// Its Kubernetes objects, in the order in which they are applied.
    pub objects: Vec<Value>,
}

/// Whether an object of an add-on has the annotation [`EARLIER_AGENTS`].
#[must_use]
pub fn is_for_earlier_agents(object: &Value) -> bool {
    object["metadata"]["annotations"].get(EARLIER_AGENTS).is_some()
}

impl AddonSet {
    /// The current format of [`AddonSet::to_json`].
    pub const FORMAT: u32 = 1;

    /// The set of these add-ons, with its digest.
    #[must_use]
    pub fn new(addons: Vec<Installed>) -> Self {
        let mut set = Self { digest: String::new(), addons };
        set.digest = sha256_hex(set.to_json().as_bytes());
        set
    }

    /// Canonical JSON, as stored in `clusters/<name>/addons/<digest>.json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        canonical::addon_set(Self::FORMAT, &self.addons)
    }

    /// The add-on of that name.
    #[must_use]
    pub fn addon(&self, name: &str) -> Option<&Installed> {
        self.addons.iter().find(|addon| addon.name == name)
    }
}

/// `clusters/<name>/addons.json`: the add-ons that the node managers keep applied. Only the rollout function writes it, and never
/// replaces it by that of an earlier generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddonsPointer {
    /// Version of this format.
    pub format: u32,
    /// SHA-256 of `clusters/<name>/addons/<digest>.json`, which holds the objects.
    pub digest: String,
    /// Id of the release that contains them.
    pub release: String,
    /// The generation of the rollout that wrote this.
    pub generation: u64,
}

impl AddonsPointer {
    /// The current format.
    pub const FORMAT: u32 = 1;
}
