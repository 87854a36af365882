//! The network, the names of the API, and what stands behind them.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// One name under which the Kubernetes API is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiEndpoint {
    /// `name`, unique among the endpoints.
    pub name: String,
    /// `dnsName`, also a name in the API server's certificate.
    pub dns_name: String,
    /// The load balancer in front of the controllers.
    pub load_balancer: LoadBalancer,
}

/// What stands behind an endpoint's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// Ours, or one that exists, or none.
    pub backing: Backing,
    /// `false`: it is reached from the internet. Said of a managed balancer alone.
    pub private: bool,
    /// Names of the subnets it stands in, resolved: of a managed balancer, never empty, all public or all private.
    pub subnets: Vec<String>,
    /// The Route 53 hosted zone in which a record is made; `None` leaves the record to the user.
    pub hosted_zone_id: Option<Existing>,
    /// `loadBalancer.dnsName`: where the record leads to, if the balancer is not ours.
    pub dns_name: Option<String>,
    /// `apiAccessAllowedSourceCIDRs`: at our balancer's security group, or, where a balancer that exists has none, at the
    /// controllers'. Perhaps empty.
    pub source_cidrs: Vec<Ipv4Net>,
    /// `securityGroupIds`: besides our own, of a managed balancer; else the groups that the balancer has, which controllers
    /// let in.
    pub security_group_ids: Vec<String>,
}

/// Who brings the load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Backing {
    /// The control-plane stack makes it.
    Managed,
    /// `loadBalancer.id`: a network load balancer that exists gets our listener and target group. Its ARN.
    Balancer(Existing),
    /// `managed: false` with `targetGroup.arns`: controllers register there.
    TargetGroups(Vec<String>),
    /// `managed: false`: a name in the API server's certificate, and no more.
    Nothing,
}

/// Something that none of our stacks made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Existing {
    /// `id`.
    Id(String),
    /// `idFromStackOutput`: the id is what another stack of the account exports under this name.
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

/// The VPC and what lies in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Ours, or one that exists.
    pub vpc: Vpc,
    /// `internetGateway.id`, when one exists already.
    pub internet_gateway_id: Option<Existing>,
    /// All subnets, in the order of the spec, with unique names.
    pub subnets: Vec<Subnet>,
    pub pod_cidr: Ipv4Net,
    pub service_cidr: Ipv4Net,
    /// `dnsServiceIP`, inside `service_cidr`.
    pub dns_service_ip: Ipv4Addr,
    /// `sshAccessAllowedSourceCIDRs`: from where port 22 of every node is reached; empty means from nowhere.
    pub ssh_source_cidrs: Vec<Ipv4Net>,
}

/// The VPC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Vpc {
    /// Made by the network stack, with this range.
    Managed(Ipv4Net),
    /// `vpc.id`, with its range as the spec states it.
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
    /// Without a route to an internet gateway of its own.
    pub private: bool,
    /// Ours, or one that exists.
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
    /// A private subnet: through a NAT gateway made in the named public subnet (same zone where there is one).
    ManagedNat {
        /// The public subnet that holds the gateway; gateways are shared by subnet.
        public_subnet: String,
        /// `natGateway.eipAllocationId`: an Elastic IP that exists.
        eip_allocation_id: Option<Existing>,
    },
    /// `natGateway.id`: a NAT gateway that exists.
    ExistingNat {
        /// `nat-…`.
        id: Existing,
    },
    /// `routeTable.id`: a route table that exists and is taken as it is.
    RouteTable {
        /// `rtb-…`.
        id: Existing,
    },
}
