//! The checked model of one cluster: every default applied, every reference resolved.
//!
//! Only `slipway-spec` makes a [`Cluster`], so code that holds one need not validate it again. What a person may write is wider
//! (`slipway_spec::model`) and is lowered into this.
#![allow(
    missing_docs,
    reason = "a field with the name of a key of the spec means what the schema says of that key"
)]

mod custom;
mod kubernetes;
mod network;
mod pools;
mod rollout;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::snapshots::ScheduledSnapshots;

pub use custom::{Content, Custom, CustomFile, CustomUnit, DropIn};
pub use kubernetes::{
    Admission, AuditLog, Component, EventRateLimit, HostVolume, Kubernetes, LogFiles, Oidc, PodSecurity,
};
pub use network::{ApiEndpoint, Backing, Egress, Existing, LoadBalancer, Network, Subnet, SubnetSource, Vpc};
pub use pools::{GroupSize, MixedInstances, NodePool, Repair, RepairMode, Taint, WeightedType};
pub use rollout::{
    Approval, CountOrPercent, Day, MaintenanceWindow, Pace, PoolRollout, RolloutPolicy, Upgrades,
};
pub use storage::{InstanceStore, Mount, Storage};

/// The IAM path of every role and instance profile that Slipway makes: CloudFormation's service role may make no others
/// (`infra/template.yaml`). A path and not a name prefix, because CloudFormation shortens the names that it generates.
pub const IAM_PATH: &str = "/slipway/";

/// One Kubernetes cluster as its spec describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// `clusterName`: also the folder in the buckets and the first part of each stack's name.
    pub name: String,
    /// `region`; a region that exists.
    pub region: String,
    /// `kubernetesVersion`. Without a patch, the lock pins one.
    pub kubernetes_version: KubernetesVersion,
    /// Where node images come from; pools may override it.
    pub image: Image,
    /// `image.rootDeviceName`. `None`: the usual name for such an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_device: Option<String>,
    /// `keyName`: an EC2 key pair for ssh.
    pub key_name: Option<String>,
    /// `sshAuthorizedKeys`, written to each node.
    pub ssh_authorized_keys: Vec<String>,
    /// `kmsKeyArn`: the key that seals this cluster's credentials. `None`: the installation's key.
    pub kms_key_arn: Option<String>,
    /// `apiEndpoints`, at least one.
    pub api_endpoints: Vec<ApiEndpoint>,
    /// `adminAPIEndpointName`, resolved: the endpoint of the administrator's kubeconfig.
    pub admin_api_endpoint: String,
    /// `worker.apiEndpointName`, resolved: the endpoint through which workers reach the API.
    pub worker_api_endpoint: String,
    /// VPC, subnets, CIDRs.
    pub network: Network,
    pub controller: Controller,
    pub etcd: Etcd,
    /// `worker.nodePools`, in the order of the spec.
    pub pools: Vec<NodePool>,
    pub kubernetes: Kubernetes,
    #[serde(default)]
    pub software: Software,
    pub addons: Addons,
    /// `iamRolesForServiceAccounts`. `None`: the spec does not mention it.
    pub iam_roles: Option<IamRoles>,
    /// `certificatesConfiguration` and `tls*DurationDays`.
    pub certificates: Certificates,
    pub rollout: RolloutPolicy,
    /// `upgrades`. `None`: only `slipway upgrade` has pins looked up anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<Upgrades>,
    /// `deletionProtection`: orders to destroy the cluster are not obeyed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletion_protection: bool,
    /// `stackTags`, put on each stack and, by CloudFormation, on each resource.
    pub stack_tags: BTreeMap<String, String>,
}

/// A Kubernetes version such as `1.34` or `1.34.2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KubernetesVersion {
    /// Always 1 so far.
    pub major: u16,
    /// The minor release; version skew is counted in minors.
    pub minor: u16,
    /// `None`: the newest patch that the lock finds.
    pub patch: Option<u16>,
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// A processor architecture, named as AWS names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Architecture {
    /// AWS Graviton.
    #[serde(rename = "arm64")]
    Arm64,
    /// Intel and AMD.
    #[serde(rename = "x86_64")]
    X86_64,
}

impl Architecture {
    /// The architecture of an EC2 instance type: Graviton families carry a `g` after the generation
    /// (`m7g`, `c6gn`, `r8gd`, `t4g`), `a1` was the first, and NVIDIA's Grace (`p6e-gb200`) is Arm's too.
    #[must_use]
    pub fn of_instance_type(instance_type: &str) -> Self {
        let family = instance_type.split('.').next().unwrap_or_default();
        let after_generation = family.trim_start_matches(|c: char| !c.is_ascii_digit());
        let capabilities = after_generation.trim_start_matches(|c: char| c.is_ascii_digit());
        let grace =
            family.split_once("-gb").is_some_and(|(_, chip)| chip.bytes().all(|c| c.is_ascii_digit()));
        if family == "a1" || grace || capabilities.starts_with('g') { Self::Arm64 } else { Self::X86_64 }
    }

    /// The name in Go and in release archives.
    #[must_use]
    pub fn as_go(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86_64 => "amd64",
        }
    }

    /// `arm64` or `x86_64`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86_64 => "x86_64",
        }
    }
}

/// Where nodes get their programs from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Software {
    pub source: SoftwareSource,
    /// `baseURL`, without a trailing slash. `None`: each publisher's own site.
    pub base_url: Option<String>,
    pub image_repository: Option<String>,
}

/// Who puts the programs onto a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SoftwareSource {
    /// The agent downloads the publishers' releases and checks their digests.
    #[default]
    Release,
    /// They are in the machine image already.
    Image,
}

/// Where a node's image comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Image {
    /// `amiId`: used as it is.
    Ami(String),
    /// SSM public parameters, one for each architecture, which the lock resolves once.
    SsmParameter(BTreeMap<Architecture, String>),
}

impl Image {
    /// Whether `text` has the form of an image's id. The value of an SSM parameter becomes part of plans and templates, and whoever uploads a
    /// spec chooses the parameter.
    #[must_use]
    pub fn is_id(text: &str) -> bool {
        text.strip_prefix("ami-").is_some_and(|digits| {
            (8..=17).contains(&digits.len())
                && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    }

    /// The text by which CloudFormation looks up the SSM parameter `name` itself, where Slipway cannot: `slipway render` works without AWS.
    #[must_use]
    pub fn reference(name: &str) -> String {
        format!("{{{{resolve:ssm:{name}}}}}")
    }
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Size in GiB.
    pub size_gib: u32,
    /// `gp3`, `io1`, `io2`, ….
    pub kind: String,
    /// Provisioned I/O operations per second.
    pub iops: Option<u32>,
    /// MiB per second, for gp3 only.
    pub throughput: Option<u32>,
    /// A KMS key of the user's. `None`: the account's default key for EBS. Every volume is encrypted.
    pub kms_key_arn: Option<String>,
}

/// IAM settings of a role of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Iam {
    /// `iam.role.name`: the role's full name is `<stack>-<name>`, at most 64 characters. `None`: CloudFormation names it.
    pub role_name: Option<String>,
    /// `iam.role.strictName`: `role_name` is the whole name, except that an etcd member's number is appended.
    pub strict_name: bool,
    /// `iam.role.managedPolicies[].arn`.
    pub managed_policy_arns: Vec<String>,
    /// `iam.instanceProfile.arn`: used instead of a profile that Slipway makes.
    pub instance_profile_arn: Option<String>,
}

/// Whose hardware a machine runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TenancySpec")]
pub enum Tenancy {
    /// Shared with other accounts.
    #[default]
    Default,
    /// Shared with no other account: dedicated instances.
    Dedicated,
}

/// The controllers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// The number of controllers.
    pub count: u32,
    /// EC2 instance type.
    pub instance_type: String,
    pub root_volume: Volume,
    /// Names of subnets, resolved; never empty.
    pub subnets: Vec<String>,
    /// Security groups besides Slipway's own.
    pub security_group_ids: Vec<String>,
    pub iam: Iam,
    pub node_labels: BTreeMap<String, String>,
    /// `kubelet`: fields of `KubeletConfiguration`; they override those of `kubernetes.kubelet`.
    pub kubelet: BTreeMap<String, serde_json::Value>,
    /// `featureGates`, in addition to those of all components.
    pub feature_gates: BTreeMap<String, bool>,
    pub tenancy: Tenancy,
    /// `customFiles` and `customSystemdUnits`.
    pub custom: Custom,
}

/// The etcd members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etcd {
    /// EC2 instance type.
    pub instance_type: String,
    /// `etcd.version`. `None`: the lock pins it.
    pub version: Option<String>,
    /// `etcd.quota`: how large the database may grow, in GiB; `None` is etcd's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_gib: Option<u32>,
    pub root_volume: Volume,
    /// The domain of the members' names, such as `prod.etcd.internal`.
    pub internal_domain: String,
    /// `hostedZone.id`: an existing private zone for the members' records. `None`: the network stack makes one for `internal_domain`.
    pub hosted_zone_id: Option<String>,
    /// 1, 3 or 5 members, each with its subnet. `members[n]` has index n.
    pub members: Vec<EtcdMember>,
    /// Security groups besides Slipway's own.
    pub security_group_ids: Vec<String>,
    pub iam: Iam,
    pub tenancy: Tenancy,
    /// `customFiles` and `customSystemdUnits`.
    pub custom: Custom,
    /// `etcd.snapshots`. `None`: none is taken on a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<ScheduledSnapshots>,
}

/// One etcd member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdMember {
    /// Counted from 0. The member's role is `etcd-<index>`.
    pub index: u32,
    /// etcd's own name for it: `nodes[].name`, or `etcd-<index>`.
    pub name: String,
    /// Full DNS name, such as `etcd-0.prod.etcd.internal`.
    pub dns_name: String,
    /// Name of its subnet, which determines the zone of its volume.
    pub subnet: String,
    /// The data volume, which outlives the instance.
    pub data_volume: Volume,
}

/// Add-ons that the node manager applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addons {
    /// `imageRepository`: a mirror that images are pulled from, `<mirror>/<registry>/<repository>`.
    pub image_repository: Option<String>,
    pub kube_proxy: Addon,
    /// `kubeProxy.mode`.
    pub kube_proxy_mode: ProxyMode,
    /// `network.provider`.
    pub network: NetworkProvider,
    /// `network`, where the provider is flannel.
    pub flannel: Addon,
    /// `networkPolicy` (kube-aws: `useCalico`): network policies are enforced.
    pub network_policy: Addon,
    pub cloud_controller_manager: Addon,
    pub core_dns: Addon,
    /// `coreDns.extraCoreDNSConfig`: lines for the server block of the root zone.
    pub core_dns_extra: Option<String>,
    /// `coreDns.additionalZoneCoreDNSConfig`: whole server blocks of other zones.
    pub core_dns_zones: Option<String>,
    pub node_local_dns: Addon,
    pub ebs_csi_driver: Addon,
    pub default_storage_class: bool,
    pub metrics_server: Addon,
    pub cluster_autoscaler: Addon,
    /// `clusterAutoscaler.options`: flags without their dashes.
    pub cluster_autoscaler_options: BTreeMap<String, String>,
}

/// Settings that every add-on has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Addon {
    /// Whether it is installed.
    pub enabled: bool,
    /// `version`: the tag of its own image. `None`: the tag that the lock pins.
    pub version: Option<String>,
    /// `replicas`, for an add-on that is a Deployment.
    pub replicas: Option<u32>,
    /// `requests` and `limits` of its own container → `cpu`, `memory` → quantity. What is absent has the add-on's default.
    pub resources: BTreeMap<String, BTreeMap<String, String>>,
}

/// Who makes the pod network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "NetworkProviderSpec")]
pub enum NetworkProvider {
    /// Flannel, over VXLAN.
    Flannel,
    /// Nobody: nodes stay not ready until you install one. Security groups let VXLAN on UDP 8472 pass.
    None,
}

/// How kube-proxy sends traffic on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ProxyModeSpec")]
pub enum ProxyMode {
    /// By iptables.
    Iptables,
    /// By nftables, which scales to more services; it has replaced IPVS.
    Nftables,
}

/// IAM roles that pods assume with the token of their service account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IamRoles {
    /// Whether tokens are issued under the public issuer. If not, the public issuer is only accepted: the intermediate stage, in which
    /// all API servers of a running cluster learn to accept it before any of them issues such tokens.
    pub enabled: bool,
    /// `roles`, in the order of the spec, with unique names.
    pub roles: Vec<ServiceAccountRole>,
}

/// An IAM role that one service account may assume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccountRole {
    /// `name`: part of the role's full name.
    pub name: String,
    /// Namespace of the service account.
    pub namespace: String,
    pub service_account: String,
    /// `managedPolicies[].arn`, at least one.
    pub managed_policy_arns: Vec<String>,
}

/// How certificates are made and renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates {
    pub key_algorithm: KeyAlgorithm,
    /// `tlsCADurationDays`.
    pub ca_days: u32,
    /// `tlsCertDurationDays`.
    pub leaf_days: u32,
    /// `rolloutBeforeExpiry`. `None`: off.
    pub rollout_before_expiry: Option<RolloutBeforeExpiry>,
    /// `caRotationDays`. `None`: off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_rotation_days: Option<u32>,
    /// `authorities`: those that Slipway does not make, by asset name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub authorities: BTreeMap<String, OwnAuthority>,
}

/// An authority that Slipway does not make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnAuthority {
    /// Whether its key is imported.
    pub source: OwnSource,
    /// The file of its certificates, in `import/`.
    pub certificate: String,
    /// The file of its key, in `import/`. Unused if `source` is `Provided`.
    pub key: String,
    /// The SSM parameter with the passphrase of its key, or of the keys of the certificates that it signed.
    pub passphrase_parameter: Option<String>,
}

/// How an authority that Slipway does not make is provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OwnSource {
    /// With its key: Slipway issues certificates under it.
    Imported,
    /// Without its key: the certificates that it signed are provided as well.
    Provided,
}

/// When and how leaves are renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutBeforeExpiry {
    /// How many days before the certificate ends.
    pub days: u32,
    /// In place, or by replacing nodes.
    pub strategy: RenewalStrategy,
    /// This many days before a certificate ends, neither maintenance windows nor approval delay its renewal. 0: only once it has expired.
    #[serde(default)]
    pub emergency_days: u32,
}

/// How renewed certificates reach the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RenewalStrategySpec")]
pub enum RenewalStrategy {
    /// Nodes are replaced, one at a time.
    Rollout,
    /// Nodes take the new certificates in place.
    Refresh,
}

/// The key of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KeyAlgorithmSpec")]
pub enum KeyAlgorithm {
    /// ECDSA on P-256.
    #[serde(rename = "ECDSA-P256")]
    EcdsaP256,
    /// ECDSA on P-384.
    #[serde(rename = "ECDSA-P384")]
    EcdsaP384,
    /// RSA with 2048 bits.
    #[serde(rename = "RSA-2048")]
    Rsa2048,
    /// RSA with 3072 bits.
    #[serde(rename = "RSA-3072")]
    Rsa3072,
    /// RSA with 4096 bits.
    #[serde(rename = "RSA-4096")]
    Rsa4096,
}

/// The AWS partition of `region`: `aws`, `aws-cn` or `aws-us-gov`.
#[must_use]
pub fn partition_of(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "aws-cn"
    } else if region.starts_with("us-gov-") {
        "aws-us-gov"
    } else {
        "aws"
    }
}

impl Cluster {
    /// The subnet of that name. Names in a [`Cluster`] are resolved, so one exists.
    ///
    /// # Panics
    /// If `name` does not come from this cluster.
    #[must_use]
    pub fn subnet(&self, name: &str) -> &Subnet {
        self.network
            .subnets
            .iter()
            .find(|subnet| subnet.name == name)
            .expect("subnet names were resolved when the spec was checked")
    }

    /// The first address of the service range, which is the API's address inside the cluster.
    #[must_use]
    pub fn api_service_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network.service_cidr.network()) + 1)
    }

    /// The processor architectures of the cluster's machines.
    #[must_use]
    pub fn architectures(&self) -> BTreeSet<Architecture> {
        let pools = self.pools.iter().map(|pool| pool.instance_type.as_str());
        let own = [self.controller.instance_type.as_str(), self.etcd.instance_type.as_str()];
        own.into_iter().chain(pools).map(Architecture::of_instance_type).collect()
    }

    /// The Kubernetes version of a pool's kubelets.
    #[must_use]
    pub fn version_of(&self, pool: &NodePool) -> KubernetesVersion {
        pool.kubernetes_version.unwrap_or(self.kubernetes_version)
    }

    /// The maximum size of a pool's group: while the pool is rolled, its surge is added. The cluster autoscaler reads the group's limit
    /// and would use it at any time, so a pool that it scales surges only below the spec's maximum. The same holds for a weighted group.
    #[must_use]
    pub fn most_of(&self, pool: &NodePool) -> u32 {
        if pool.cluster_autoscaler || pool.is_weighted() {
            return pool.size.max;
        }
        pool.size.max.saturating_add(self.rollout.pace(&pool.name).max_surge(pool.size.max))
    }

    /// The AWS partition of the region: `aws`, `aws-cn` or `aws-us-gov`.
    #[must_use]
    pub fn partition(&self) -> &'static str {
        partition_of(&self.region)
    }

    /// The domain of AWS' endpoints and service principals in the region.
    #[must_use]
    pub fn dns_suffix(&self) -> &'static str {
        match self.partition() {
            "aws-cn" => "amazonaws.com.cn",
            _ => "amazonaws.com",
        }
    }

    /// The image of a pool.
    #[must_use]
    pub fn image_of<'a>(&'a self, pool: &'a NodePool) -> &'a Image {
        pool.image.as_ref().unwrap_or(&self.image)
    }

    /// The name of a pool's root device if the spec names one. It belongs to the image: a pool with its own image does not inherit the
    /// cluster's.
    #[must_use]
    pub fn root_device_of<'a>(&'a self, pool: &'a NodePool) -> Option<&'a str> {
        let name = if pool.image.is_some() { &pool.root_device } else { &self.root_device };
        name.as_deref()
    }
}
