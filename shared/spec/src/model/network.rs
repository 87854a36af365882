//! Endpoints and subnets.

use schemars::JsonSchema;
use serde::Deserialize;

/// One name under which the Kubernetes API is reached.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["name", "dnsName"]))]
pub(crate) struct EndpointSpec {
    /// The endpoint's name, unique in the cluster.
    pub(crate) name: Option<String>,
    /// The DNS name, which also goes into the API server's certificate.
    pub(crate) dns_name: Option<String>,
    /// The load balancer in front of the controllers.
    pub(crate) load_balancer: LoadBalancerSpec,
}

/// A network load balancer: made by Slipway, or an existing one (`id`), or none (`managed: false`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LoadBalancerSpec {
    /// The ARN of an existing network load balancer, whose port 443 is free: it gets a listener and a target group.
    pub(crate) id: Option<String>,
    /// The name under which another stack exports that ARN, instead of `id`.
    pub(crate) id_from_stack_output: Option<String>,
    /// Whether Slipway makes the load balancer; with `false` the name goes into the API server's certificate, and you point it to the controllers.
    pub(crate) managed: Option<bool>,
    /// The DNS name of the existing load balancer, to which the record in `hostedZone` leads.
    pub(crate) dns_name: Option<String>,
    /// Existing target groups in which the controllers are registered, instead of a load balancer that Slipway makes.
    pub(crate) target_group: ApiTargetGroupSpec,
    /// Whether it is reached only from inside the VPC; `false` unless given.
    pub(crate) private: bool,
    /// The kind of load balancer; only `network` is made.
    #[serde(rename = "type")]
    pub(crate) kind: Option<LoadBalancerKind>,
    /// The subnets of the load balancer; unless given, all public ones, or all private ones if it is private.
    pub(crate) subnets: Vec<SubnetRef>,
    /// The Route 53 hosted zone in which the record is made.
    pub(crate) hosted_zone: ExistingSpec,
    /// Whether Slipway makes the DNS record; `true` wherever a hosted zone is given.
    pub(crate) record_set_managed: Option<bool>,
    /// The record's time to live.
    #[serde(rename = "recordSetTTL")]
    #[schemars(extend("deprecated" = true))]
    pub(crate) record_set_ttl: Option<u32>,
    /// The hosted zone of the record.
    #[schemars(extend("deprecated" = true))]
    pub(crate) hosted_zone_id: Option<String>,
    /// Whether the record is made.
    #[schemars(extend("deprecated" = true))]
    pub(crate) create_record_set: Option<bool>,
    /// Ranges that may reach the API; everywhere unless given.
    #[serde(rename = "apiAccessAllowedSourceCIDRs")]
    pub(crate) api_access_allowed_source_cidrs: Option<Vec<String>>,
    /// Security groups of the load balancer: besides Slipway's own, or those that an existing one has, which controllers then let in.
    pub(crate) security_group_ids: Vec<String>,
}

/// Target groups that exist.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApiTargetGroupSpec {
    /// ARNs of target groups of instances, with TCP to port 6443.
    pub(crate) arns: Vec<String>,
}

/// Something that exists already, by its id or by the name under which another stack exports it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExistingSpec {
    /// Its id.
    pub(crate) id: Option<String>,
    /// The name under which another stack of this account and region exports its id, instead of `id`.
    pub(crate) id_from_stack_output: Option<String>,
}

/// The kind of a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum LoadBalancerKind {
    /// A network load balancer.
    Network,
    /// A classic load balancer, which AWS retires.
    Classic,
}

/// A subnet by its name.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub(crate) struct SubnetRef {
    /// The name of one of `subnets`.
    pub(crate) name: Option<String>,
}

/// One subnet, made by Slipway or existing.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["availabilityZone"]))]
pub(crate) struct SubnetSpec {
    /// The name by which others refer to it; `Subnet0`, `Subnet1`, … unless given.
    pub(crate) name: Option<String>,
    /// The id of an existing subnet of this account, which is used as it is.
    pub(crate) id: Option<String>,
    /// The name under which another stack exports the id of an existing subnet, instead of `id`.
    pub(crate) id_from_stack_output: Option<String>,
    /// The availability zone, such as `eu-west-1a`.
    pub(crate) availability_zone: Option<String>,
    /// The range of a subnet that Slipway makes.
    #[serde(rename = "instanceCIDR")]
    pub(crate) instance_cidr: Option<String>,
    /// Whether it cannot be reached from the internet; `false` unless given.
    pub(crate) private: bool,
    /// How a private subnet reaches the internet; a NAT gateway in a public subnet of its zone unless given.
    pub(crate) nat_gateway: NatGatewaySpec,
    /// An existing route table, taken as it is.
    pub(crate) route_table: ExistingSpec,
}

/// A NAT gateway.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NatGatewaySpec {
    /// An existing NAT gateway.
    pub(crate) id: Option<String>,
    /// The name under which another stack exports the id of an existing NAT gateway, instead of `id`.
    pub(crate) id_from_stack_output: Option<String>,
    /// An existing Elastic IP for the gateway that Slipway makes.
    pub(crate) eip_allocation_id: Option<String>,
    /// The name under which another stack exports the allocation id of such an Elastic IP, instead of `eipAllocationId`.
    pub(crate) eip_allocation_id_from_stack_output: Option<String>,
}
