//! The network, the DNS names of the API, and the load balancers behind them.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// One name by which the Kubernetes API is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiEndpoint {
    /// `name`, unique among the endpoints.
    pub name: String,
    /// `dnsName`, also a name in the API server's certificate.
    pub dns_name: String,
    /// The load balancer in front of the controllers.
    pub load_balancer: LoadBalancer,
}

/// The load balancer behind an endpoint's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// Made by Slipway, existing, or none.
    pub backing: Backing,
    /// `false`: reachable from the internet. Only for a managed load balancer.
    pub private: bool,
    /// Names of its subnets, resolved, all public or all private. Never empty for a managed load balancer.
    pub subnets: Vec<String>,
    /// The Route 53 hosted zone in which a record is made. `None`: the user makes the record.
    pub hosted_zone_id: Option<Existing>,
    /// `loadBalancer.dnsName`: the target of the record if Slipway does not make the load balancer.
    pub dns_name: Option<String>,
    /// `apiAccessAllowedSourceCIDRs`: allowed by the managed balancer's security group. For an existing balancer without security groups,
    /// allowed by the controllers' group. May be empty.
    pub source_cidrs: Vec<Ipv4Net>,
    /// `securityGroupIds`. For a managed balancer: groups that it gets besides Slipway's own. Otherwise: the groups that the balancer
    /// has; controllers admit them.
    pub security_group_ids: Vec<String>,
}

/// Who provides the load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Backing {
    /// The control-plane stack makes it.
    Managed,
    /// `loadBalancer.id`: the ARN of an existing network load balancer. The control-plane stack adds a listener and a target group to it.
    Balancer(Existing),
    /// `managed: false` with `targetGroup.arns`: controllers register in these target groups.
    TargetGroups(Vec<String>),
    /// `managed: false` without target groups: the name is only in the API server's certificate.
    Nothing,
}

/// A resource that no stack of the cluster makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Existing {
    /// `id`.
    Id(String),
    /// `idFromStackOutput`: another stack of the account exports the id under this name.
    Export(String),
}

impl From<&str> for Existing {
    fn from(id: &str) -> Self {
        Self::Id(id.to_owned())
    }
}

impl From<String> for Existing {
    fn from(id: String) -> Self {
        Self::Id(id)
    }
}

impl fmt::Display for Existing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(name) | Self::Export(name) => f.write_str(name),
        }
    }
}

/// The VPC and its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Made by the network stack, or existing.
    pub vpc: Vpc,
    /// `internetGateway.id`, if one exists already.
    pub internet_gateway_id: Option<Existing>,
    /// All subnets, in the order of the spec, with unique names.
    pub subnets: Vec<Subnet>,
    pub pod_cidr: Ipv4Net,
    pub service_cidr: Ipv4Net,
    /// `dnsServiceIP`, inside `service_cidr`.
    pub dns_service_ip: Ipv4Addr,
    /// `sshAccessAllowedSourceCIDRs`: ranges that may reach port 22 of every node. Empty: none may.
    pub ssh_source_cidrs: Vec<Ipv4Net>,
}

/// The VPC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Vpc {
    /// Made by the network stack, with this range.
    Managed(Ipv4Net),
    /// `vpc.id`, with its range as stated in the spec.
    Existing {
        /// `vpc-…`.
        id: Existing,
        /// `vpcCIDR`.
        cidr: Ipv4Net,
    },
}

impl Vpc {
    /// The VPC's range.
    #[must_use]
    pub fn cidr(&self) -> Ipv4Net {
        match self {
            Self::Managed(cidr) | Self::Existing { cidr, .. } => *cidr,
        }
    }
}

/// One subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    pub name: String,
    /// `availabilityZone`, such as `eu-west-1a`.
    pub availability_zone: String,
    /// Whether it lacks a direct route to an internet gateway.
    pub private: bool,
    /// Made by the network stack, or existing.
    pub source: SubnetSource,
}

/// Where a subnet comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SubnetSource {
    /// `id` is given: used as it is.
    Existing {
        /// `subnet-…`.
        id: Existing,
    },
    /// Made by the network stack.
    Managed {
        /// `instanceCIDR`.
        cidr: Ipv4Net,
        /// How its traffic leaves the VPC.
        egress: Egress,
    },
}

/// How a managed subnet's traffic leaves the VPC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Egress {
    /// A public subnet: its route table leads to the internet gateway.
    InternetGateway,
    /// A private subnet: through a NAT gateway made in the named public subnet, if possible in the same zone.
    ManagedNat {
        /// The public subnet that holds the gateway. Each public subnet has at most one.
        public_subnet: String,
        /// `natGateway.eipAllocationId`: an Elastic IP that exists.
        eip_allocation_id: Option<Existing>,
    },
    /// `natGateway.id`: a NAT gateway that exists.
    ExistingNat {
        /// `nat-…`.
        id: Existing,
    },
    /// `routeTable.id`: an existing route table, which is not changed.
    RouteTable {
        /// `rtb-…`.
        id: Existing,
    },
}
