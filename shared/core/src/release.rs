//! What a spec turns into: the stacks, what a node of each role is, and the add-ons, as a release is stored and compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical::canonical_json;
use crate::cluster::GroupSize;
use crate::digest::sha256_hex;
use crate::members::MemberRole;
use crate::role::Role;

/// The label that names an object's add-on.
pub const ADDON_LABEL: &str = "slipway/addon";

/// What goes before a label's key in its tag.
pub const LABEL_TAG: &str = "k8s.io/cluster-autoscaler/node-template/label/";

/// Logical id of the zone of the members' names, if it is ours.
pub const ETCD_HOSTED_ZONE: &str = "EtcdHostedZone";

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
    /// SHA-256 of [`AddonSet::to_json`]; empty where an older Slipway rendered no add-ons.
    pub digest: String,
    /// The add-ons.
    pub addons: Vec<Installed>,
}

/// One add-on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Installed {
    /// [`AddonName::as_str`].
    pub name: String,
    /// The tag of its own image; empty for one that has none.
    pub version: String,
    /// Its Kubernetes objects, in the order in which they are applied.
    pub objects: Vec<Value>,
}

impl AddonSet {
    /// The current format of [`AddonSet::to_json`].
    pub const FORMAT: u32 = 1;

    /// The set of these, with its digest.
    #[must_use]
    pub fn new(addons: Vec<Installed>) -> Self {
        let mut set = Self { digest: String::new(), addons };
        set.digest = sha256_hex(set.to_json().as_bytes());
        set
    }

    /// What is stored as `clusters/<name>/addons/<digest>.json`: canonical JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let addons = serde_json::to_value(&self.addons).expect("manifests have string keys only");
        canonical_json(&json!({ "format": Self::FORMAT, "addons": addons }))
    }

    /// The add-on of that name.
    #[must_use]
    pub fn addon(&self, name: &str) -> Option<&Installed> {
        self.addons.iter().find(|addon| addon.name == name)
    }
}

/// `clusters/<name>/addons.json`: the add-ons that the node managers keep applied. Only the rollout function writes it, and
/// never one of an earlier generation over one of a later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddonsPointer {
    /// Version of this format.
    pub format: u32,
    /// SHA-256 of `clusters/<name>/addons/<digest>.json`, which holds the objects.
    pub digest: String,
    /// Id of the release that they are from.
    pub release: String,
    /// The rollout that switched to them.
    pub generation: u64,
}

impl AddonsPointer {
    /// The current format.
    pub const FORMAT: u32 = 1;
}
