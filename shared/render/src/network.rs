//! The network stack: VPC, subnets with their routes, security groups, and the private zone of etcd's names.
//!
//! Existing resources (a VPC, subnets, gateways, route tables) are referred to by id and not changed. The API's load balancers are in the
//! control-plane stack: see `endpoints.rs`.

mod egress;
mod security_groups;

use serde_json::{Value, json};
use slipway_core::release::ETCD_HOSTED_ZONE;

pub(super) use egress::nat_addresses;

use slipway_core::cluster::{SubnetSource, Vpc};

use super::cfn::{Resource, Template, reference};
use super::context::{Context, existing, export, subnet_id};

const VPC: &str = "Vpc";

/// Renders the network stack.
pub(super) fn template(context: &mut Context<'_>) -> Template {
    let mut template = Template::new(format!("Network of the Kubernetes cluster {}", context.cluster.name));
    let vpc_id = vpc(context, &mut template);
    subnets(context, &mut template, &vpc_id);
    egress::add(context, &mut template, &vpc_id);
    security_groups::add(context, &mut template, &vpc_id);
    hosted_zone(context, &mut template, &vpc_id);
    template
}

/// Adds the VPC if it is managed, and returns its id.
fn vpc(context: &Context<'_>, template: &mut Template) -> Value {
    match &context.cluster.network.vpc {
        Vpc::Existing { id, .. } => existing(id),
        Vpc::Managed(cidr) => {
            // The private hosted zone of etcd's names needs both DNS settings.
            let vpc = Resource::new("AWS::EC2::VPC")
                .set("CidrBlock", cidr.to_string())
                .set("EnableDnsSupport", true)
                .set("EnableDnsHostnames", true)
                .set("Tags", context.tags("vpc").list());
            let id = reference(&template.add(VPC, vpc));
            template.export(VPC, "The VPC", id.clone(), context.network_export(export::VPC));
            id
        }
    }
}

fn subnets(context: &Context<'_>, template: &mut Template, vpc_id: &Value) {
    for subnet in &context.cluster.network.subnets {
        let SubnetSource::Managed { cidr, .. } = &subnet.source else { continue };
        // Tags by which Kubernetes' load balancer controllers find subnets.
        let role = if subnet.private { "kubernetes.io/role/internal-elb" } else { "kubernetes.io/role/elb" };
        let id = subnet_id(&subnet.name);
        let resource = Resource::new("AWS::EC2::Subnet")
            .set("VpcId", vpc_id.clone())
            .set("CidrBlock", cidr.to_string())
            .set("AvailabilityZone", subnet.availability_zone.as_str())
            .set("MapPublicIpOnLaunch", !subnet.private)
            .set("Tags", context.tags(&subnet.name).with(role, "1").list());
        template.add(&id, resource);
        let description = format!("Subnet {} in {}", subnet.name, subnet.availability_zone);
        template.export(&id, description, reference(&id), context.network_export(&id));
    }
}

/// The zone of the members' names. Each member writes its own record at boot, so a replaced member keeps its name.
fn hosted_zone(context: &Context<'_>, template: &mut Template, vpc_id: &Value) {
    let cluster = context.cluster;
    if cluster.etcd.hosted_zone_id.is_some() {
        return;
    }
    let zone = Resource::new("AWS::Route53::HostedZone")
        .set("Name", format!("{}.", cluster.etcd.internal_domain.trim_end_matches('.')))
        .set(
            "HostedZoneConfig",
            json!({ "Comment": format!("Names of the etcd members of {}", cluster.name) }),
        )
        .set("VPCs", json!([{ "VPCId": vpc_id, "VPCRegion": cluster.region }]))
        .set("HostedZoneTags", context.tags("etcd").list());
    let id = template.add(ETCD_HOSTED_ZONE, zone);
    // Members look each other up before all records exist. Resolvers cache a missing name for a quarter of an hour (the zone's SOA), but
    // a record with an unused address (RFC 5737) only for ten seconds.
    let nobody = Resource::new("AWS::Route53::RecordSet")
        .set("HostedZoneId", reference(&id))
        .set("Name", format!("*.{}.", cluster.etcd.internal_domain.trim_end_matches('.')))
        .set("Type", "A")
        .set("TTL", "10")
        .set("ResourceRecords", json!(["192.0.2.1"]));
    template.add("EtcdNobody", nobody);
    let name = context.network_export(export::ETCD_HOSTED_ZONE);
    template.export(id.as_str(), "Private hosted zone of the etcd members' names", reference(&id), name);
}
