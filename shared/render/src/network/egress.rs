//! How traffic leaves the subnets: internet gateway, NAT gateways, route tables.

use std::collections::BTreeMap;

use serde_json::Value;
use slipway_core::cluster::{Egress, Existing, SubnetSource, Vpc};

use crate::RenderError;
use crate::cfn::{Resource, Template, get_att, logical_id, reference};
use crate::context::{Context, existing, subnet_id};

const ANYWHERE: &str = "0.0.0.0/0";
const INTERNET_GATEWAY: &str = "InternetGateway";
const ATTACHMENT: &str = "InternetGatewayAttachment";
const PUBLIC_ROUTE_TABLE: &str = "PublicRouteTable";

/// The internet gateway for public subnets.
struct Gateway {
    id: Value,
    /// Logical id of the attachment that routes and addresses depend on. `None`: it is attached already.
    attachment: Option<&'static str>,
}

/// A managed NAT gateway. There is one in each public subnet that private subnets use.
struct Nat<'a> {
    public_subnet: &'a str,
    eip_allocation_id: Option<&'a Existing>,
}

/// Logical id of the Elastic IP of the NAT gateway in `public_subnet`, if Slipway makes it.
fn eip_id(public_subnet: &str) -> String {
    logical_id("NatAddress", public_subnet)
}

/// Adds gateways, route tables, routes and associations.
pub(super) fn add(context: &mut Context<'_>, template: &mut Template, vpc_id: &Value) {
    let managed = managed_subnets(context);
    let gateway = internet_gateway(context, template, vpc_id, &managed);
    for nat in nat_gateways(context, &managed) {
        nat_gateway(context, template, &nat, gateway.as_ref());
    }
    if let Some(gateway) = &gateway {
        let table = route_table(context, template, vpc_id, PUBLIC_ROUTE_TABLE.to_owned(), "public");
        let route = Resource::new("AWS::EC2::Route")
            .set("RouteTableId", reference(&table))
            .set("DestinationCidrBlock", ANYWHERE)
            .set("GatewayId", gateway.id.clone())
            .depends_on(gateway.attachment);
        template.add("PublicRoute", route);
    }
    let mut tables: Vec<Value> = gateway.iter().map(|_| reference(PUBLIC_ROUTE_TABLE)).collect();
    for (name, egress) in managed {
        let table = match &egress {
            Egress::InternetGateway => reference(PUBLIC_ROUTE_TABLE),
            Egress::RouteTable { id } => existing(id),
            Egress::ManagedNat { public_subnet, .. } => {
                let table =
                    private_table(context, template, vpc_id, &name, reference(&nat_id(public_subnet)));
                tables.push(table.clone());
                table
            }
            Egress::ExistingNat { id } => {
                let table = private_table(context, template, vpc_id, &name, existing(id));
                tables.push(table.clone());
                table
            }
        };
        let association = Resource::new("AWS::EC2::SubnetRouteTableAssociation")
            .set("SubnetId", reference(&subnet_id(&name)))
            .set("RouteTableId", table);
        template.add(logical_id("RouteTableAssociation", &name), association);
    }
    s3_endpoint(context, template, vpc_id, tables);
}

/// A gateway endpoint for S3, which is free and avoids the NAT gateways: nodes download their agent and bundles through it. In an
/// existing VPC this is the user's decision.
fn s3_endpoint(context: &Context<'_>, template: &mut Template, vpc_id: &Value, route_tables: Vec<Value>) {
    let Vpc::Managed(_) = context.cluster.network.vpc else { return };
    if route_tables.is_empty() {
        return;
    }
    let endpoint = Resource::new("AWS::EC2::VPCEndpoint")
        .set("VpcEndpointType", "Gateway")
        .set("ServiceName", format!("com.amazonaws.{}.s3", context.cluster.region))
        .set("VpcId", vpc_id.clone())
        .set("RouteTableIds", route_tables);
    template.add("S3Endpoint", endpoint);
}

/// The public addresses of managed NAT gateways as CIDRs, by logical id of their output. Workers in private subnets reach a public API
/// endpoint from these.
pub(crate) fn nat_addresses(context: &Context<'_>) -> Vec<String> {
    let managed = managed_subnets(context);
    let mut nats: BTreeMap<&str, bool> = BTreeMap::new();
    for egress in managed.values() {
        if let Egress::ManagedNat { public_subnet, eip_allocation_id } = egress {
            *nats.entry(public_subnet).or_default() |= eip_allocation_id.is_some();
        }
    }
    nats.into_iter().filter(|(_, existing)| !existing).map(|(subnet, _)| eip_id(subnet)).collect()
}

fn managed_subnets(context: &Context<'_>) -> BTreeMap<String, Egress> {
    let subnets = context.cluster.network.subnets.iter();
    subnets
        .filter_map(|subnet| match &subnet.source {
            SubnetSource::Existing { .. } => None,
            SubnetSource::Managed { egress, .. } => Some((subnet.name.clone(), egress.clone())),
        })
        .collect()
}

/// The internet gateway, if a managed subnet needs one.
fn internet_gateway(
    context: &mut Context<'_>,
    template: &mut Template,
    vpc_id: &Value,
    managed: &BTreeMap<String, Egress>,
) -> Option<Gateway> {
    let first_public = managed.iter().find(|(_, egress)| matches!(egress, Egress::InternetGateway))?.0;
    let network = &context.cluster.network;
    let id = match (&network.internet_gateway_id, &network.vpc) {
        // The user has attached an existing gateway to the existing VPC.
        (Some(id), Vpc::Existing { .. }) => {
            return Some(Gateway { id: existing(id), attachment: None });
        }
        (Some(id), Vpc::Managed(_)) => existing(id),
        (None, Vpc::Existing { id: vpc, .. }) => {
            // A VPC can have only one internet gateway, and it is not known whether an existing VPC has one.
            let (vpc, subnet) = (vpc.to_string(), first_public.clone());
            context.errors.push(RenderError::NoInternetGateway { vpc, subnet });
            return None;
        }
        (None, Vpc::Managed(_)) => {
            let resource =
                Resource::new("AWS::EC2::InternetGateway").set("Tags", context.tags("internet").list());
            reference(&template.add(INTERNET_GATEWAY, resource))
        }
    };
    let attachment = Resource::new("AWS::EC2::VPCGatewayAttachment")
        .set("VpcId", vpc_id.clone())
        .set("InternetGatewayId", id.clone());
    template.add(ATTACHMENT, attachment);
    Some(Gateway { id, attachment: Some(ATTACHMENT) })
}

/// The managed NAT gateways, sorted by subnet.
fn nat_gateways<'a>(context: &mut Context<'_>, managed: &'a BTreeMap<String, Egress>) -> Vec<Nat<'a>> {
    let mut nats: BTreeMap<&str, Option<&Existing>> = BTreeMap::new();
    for egress in managed.values() {
        let Egress::ManagedNat { public_subnet, eip_allocation_id } = egress else { continue };
        let address = nats.entry(public_subnet).or_default();
        match (*address, eip_allocation_id.as_ref()) {
            (Some(first), Some(second)) if first != second => {
                let (first, second) = (first.to_string(), second.to_string());
                let subnet = public_subnet.clone();
                context.errors.push(RenderError::TwoNatAddresses { subnet, first, second });
            }
            (None, given) => *address = given,
            (Some(_), _) => {}
        }
    }
    nats.into_iter()
        .map(|(public_subnet, eip_allocation_id)| Nat { public_subnet, eip_allocation_id })
        .collect()
}

fn nat_id(public_subnet: &str) -> String {
    logical_id("NatGateway", public_subnet)
}

fn nat_gateway(context: &Context<'_>, template: &mut Template, nat: &Nat<'_>, gateway: Option<&Gateway>) {
    let attachment = gateway.and_then(|gateway| gateway.attachment);
    let name = format!("nat-{}", nat.public_subnet);
    let allocation = match nat.eip_allocation_id {
        Some(id) => existing(id),
        None => {
            let address = Resource::new("AWS::EC2::EIP")
                .set("Domain", "vpc")
                .set("Tags", context.tags(&name).list())
                .depends_on(attachment);
            let id = template.add(eip_id(nat.public_subnet), address);
            let description = format!("Public address of the NAT gateway in {}", nat.public_subnet);
            template.export(id.as_str(), description, reference(&id), context.network_export(&id));
            get_att(&id, "AllocationId")
        }
    };
    let subnet = match &context.cluster.subnet(nat.public_subnet).source {
        SubnetSource::Existing { id } => existing(id),
        SubnetSource::Managed { .. } => reference(&subnet_id(nat.public_subnet)),
    };
    let resource = Resource::new("AWS::EC2::NatGateway")
        .set("AllocationId", allocation)
        .set("SubnetId", subnet)
        .set("Tags", context.tags(&name).list())
        .depends_on(attachment);
    template.add(nat_id(nat.public_subnet), resource);
}

fn route_table(
    context: &Context<'_>,
    template: &mut Template,
    vpc_id: &Value,
    id: String,
    name: &str,
) -> String {
    let table = Resource::new("AWS::EC2::RouteTable")
        .set("VpcId", vpc_id.clone())
        .set("Tags", context.tags(name).list());
    template.add(id, table)
}

/// The route table of a private subnet, with a route to a NAT gateway.
fn private_table(
    context: &Context<'_>,
    template: &mut Template,
    vpc_id: &Value,
    subnet: &str,
    nat: Value,
) -> Value {
    let table = route_table(context, template, vpc_id, logical_id("RouteTable", subnet), subnet);
    let route = Resource::new("AWS::EC2::Route")
        .set("RouteTableId", reference(&table))
        .set("DestinationCidrBlock", ANYWHERE)
        .set("NatGatewayId", nat);
    template.add(logical_id("Route", subnet), route);
    reference(&table)
}
