//! What a person may write: kube-aws' names wherever the idea lives on (design §3).
//!
//! Everything is optional to serde, so that one missing key does not hide the other findings; what must be there is
//! `required` in the schema, and `shape` reports it. The comment on each key is its description in the schema.
//! A key marked `deprecated` comes from kube-aws and is translated, with the warning that `legacy` holds.

mod addons;
mod custom;
mod etcd;
mod identity;
mod kubernetes;
mod network;
mod nodes;
mod policy;
mod software;
mod storage;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use addons::*;
pub(crate) use custom::*;
pub(crate) use etcd::*;
pub(crate) use identity::*;
pub(crate) use kubernetes::*;
pub(crate) use network::*;
pub(crate) use nodes::*;
pub(crate) use policy::*;
pub(crate) use software::*;
pub(crate) use storage::*;

/// A Kubernetes cluster on EC2, as Slipway launches it and keeps it up to date.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["clusterName", "region", "kubernetesVersion"]))]
#[schemars(title = "cluster.yaml")]
pub(crate) struct Spec {
    /// The cluster's name: a letter, then letters, digits and hyphens; also the folder of the spec and the beginning of each stack's name.
    pub(crate) cluster_name: Option<String>,
    /// The AWS region, such as `eu-west-1`.
    pub(crate) region: Option<String>,
    /// The Kubernetes release, such as `1.37` (newest patch, pinned once) or `1.37.2`.
    pub(crate) kubernetes_version: Option<String>,
    /// An AMI for all nodes, instead of Amazon Linux 2023.
    pub(crate) ami_id: Option<String>,
    /// SSM parameters from which images are taken, one for each processor architecture.
    pub(crate) image: Option<ImageSpec>,
    /// Name of an EC2 key pair for ssh.
    pub(crate) key_name: Option<String>,
    /// Public keys for ssh, written to every node.
    pub(crate) ssh_authorized_keys: Vec<String>,
    /// ARN of the KMS key that seals this cluster's credentials; absent means the key of the Slipway installation.
    pub(crate) kms_key_arn: Option<String>,
    /// Names under which the Kubernetes API is reached.
    pub(crate) api_endpoints: Vec<EndpointSpec>,
    /// The endpoint that the administrator's kubeconfig names; needed with two or more endpoints.
    #[serde(rename = "adminAPIEndpointName")]
    pub(crate) admin_api_endpoint_name: Option<String>,
    /// The DNS name of the API.
    #[serde(rename = "externalDNSName")]
    #[schemars(extend("deprecated" = true))]
    pub(crate) external_dns_name: Option<String>,
    /// The hosted zone of the API's record.
    #[schemars(extend("deprecated" = true))]
    pub(crate) hosted_zone_id: Option<String>,
    /// Whether the API's record is made.
    #[schemars(extend("deprecated" = true))]
    pub(crate) create_record_set: Option<bool>,
    /// An existing VPC of this account. One that another account shares (AWS RAM) cannot be used: the installation's roles reach only this account's subnets.
    pub(crate) vpc: ExistingSpec,
    /// An existing VPC.
    #[schemars(extend("deprecated" = true))]
    pub(crate) vpc_id: Option<String>,
    /// The VPC's range; 10.0.0.0/16 unless given.
    #[serde(rename = "vpcCIDR")]
    pub(crate) vpc_cidr: Option<String>,
    /// The internet gateway of an existing VPC, needed for public subnets that Slipway makes in it.
    pub(crate) internet_gateway: ExistingSpec,
    /// The internet gateway of an existing VPC.
    #[schemars(extend("deprecated" = true))]
    pub(crate) internet_gateway_id: Option<String>,
    /// The zone of the single subnet, where `subnets` is not given.
    pub(crate) availability_zone: Option<String>,
    /// The range of the single subnet, where `subnets` is not given; 10.0.0.0/24 unless given.
    #[serde(rename = "instanceCIDR")]
    pub(crate) instance_cidr: Option<String>,
    /// An existing route table for every subnet that names neither a route table nor a NAT gateway.
    #[schemars(extend("deprecated" = true))]
    pub(crate) route_table_id: Option<String>,
    /// Whether machines get public addresses.
    #[serde(rename = "mapPublicIPs")]
    #[schemars(extend("deprecated" = true))]
    pub(crate) map_public_ips: Option<bool>,
    /// The subnets of the cluster's nodes and load balancers.
    pub(crate) subnets: Vec<SubnetSpec>,
    /// The range of pods; 10.2.0.0/16 unless given. It cannot change once the cluster runs.
    #[serde(rename = "podCIDR")]
    pub(crate) pod_cidr: Option<String>,
    /// The range of services; 10.3.0.0/24 unless given. It cannot change once the cluster runs.
    #[serde(rename = "serviceCIDR")]
    pub(crate) service_cidr: Option<String>,
    /// The address of the cluster's DNS service, inside `serviceCIDR`; its tenth address unless given. It cannot change once the cluster
    /// runs.
    #[serde(rename = "dnsServiceIP")]
    pub(crate) dns_service_ip: Option<String>,
    /// Ranges that may connect to port 22 of every node; none unless given.
    #[serde(rename = "sshAccessAllowedSourceCIDRs")]
    pub(crate) ssh_access_allowed_source_cidrs: Vec<String>,
    /// Whether network policies are enforced.
    #[schemars(extend("deprecated" = true))]
    pub(crate) use_calico: Option<bool>,
    /// The machines that serve the Kubernetes API.
    pub(crate) controller: ControllerSpec,
    /// The machines that hold the cluster's state.
    pub(crate) etcd: EtcdSpec,
    /// The machines that run workloads.
    pub(crate) worker: WorkerSpec,
    /// Settings of the Kubernetes components.
    pub(crate) kubernetes: KubernetesSpec,
    /// Where nodes have the programs from that their image lacks.
    pub(crate) software: SoftwareSpec,
    /// Add-ons that Slipway keeps installed.
    pub(crate) addons: AddonsSpec,
    /// IAM roles that pods take by the token of their service account. Changing it rolls the controllers.
    pub(crate) iam_roles_for_service_accounts: Option<IamRolesSpec>,
    /// How certificates are made and renewed.
    pub(crate) certificates_configuration: CertificatesSpec,
    /// How long certificate authorities live, in days; 3650 unless given.
    #[serde(rename = "tlsCADurationDays")]
    #[schemars(range(min = 1, max = 36500))]
    pub(crate) tls_ca_duration_days: Option<u32>,
    /// How long other certificates live, in days; 365 unless given.
    #[schemars(range(min = 1, max = 36500))]
    pub(crate) tls_cert_duration_days: Option<u32>,
    /// How changes reach the nodes.
    pub(crate) rollout: RolloutSpec,
    /// When what the lock pins is looked up anew.
    pub(crate) upgrades: UpgradesSpec,
    /// Orders to destroy the cluster are refused. It takes effect as soon as the upload is accepted; `false` unless given.
    pub(crate) deletion_protection: bool,
    /// Tags of every stack, and so of everything in it.
    pub(crate) stack_tags: BTreeMap<String, String>,
}

/// SSM parameters that hold image ids.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ImageSpec {
    /// An AMI, used as it is.
    pub(crate) ami_id: Option<String>,
    /// The name of the SSM parameter for each architecture.
    pub(crate) ssm_parameters: SsmParametersSpec,
    /// The name under which the image expects its root volume; unless given, `/dev/sda1` for Canonical's images, `/dev/xvda` for others.
    pub(crate) root_device_name: Option<String>,
}

/// The name of an SSM parameter for each processor architecture.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SsmParametersSpec {
    /// For Graviton.
    pub(crate) arm64: Option<String>,
    /// For Intel and AMD.
    pub(crate) x86_64: Option<String>,
}

/// Something that exists already, by its id.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct IdSpec {
    /// Its id.
    pub(crate) id: Option<String>,
}

/// A switch.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SwitchSpec {
    /// Whether it is on.
    pub(crate) enabled: bool,
}
