//! The API's endpoints: for each a network load balancer with a security group and an alias record, or for an existing load balancer the
//! parts that Slipway makes.
//!
//! They are part of the control-plane stack and not of the network stack, because an export in use cannot change: with load balancers in
//! the network stack, an endpoint could not become private or be removed while the controllers' group imports its target group. In one
//! stack, one update changes both.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use slipway_core::cluster::{ApiEndpoint, Backing, Existing, LoadBalancer};
use slipway_core::digest::sha256_hex;

use super::cfn::{Resource, Template, get_att, logical_id, reference};
use super::context::{Context, existing, export};
use super::{network, ports};

/// The TTL of kube-aws' records.
const RECORD_TTL_S: u32 = 300;

/// Adds all endpoints and returns the target groups for the controllers' group.
pub(super) fn add(context: &Context<'_>, template: &mut Template) -> Vec<Value> {
    let mut endpoints: Vec<&ApiEndpoint> = context.cluster.api_endpoints.iter().collect();
    endpoints.sort_by_key(|endpoint| &endpoint.name);
    let mut target_groups = Vec::new();
    let mut doors = BTreeSet::new();
    for endpoint in endpoints {
        match &endpoint.load_balancer.backing {
            Backing::Managed => target_groups.push(managed(context, template, endpoint)),
            Backing::Balancer(arn) => target_groups.push(on_existing(context, template, endpoint, arn)),
            Backing::TargetGroups(arns) => target_groups.extend(arns.iter().map(|arn| json!(arn))),
            Backing::Nothing => {}
        }
        if endpoint.load_balancer.backing != Backing::Managed {
            doors.extend(own_doors(context, &endpoint.load_balancer));
            given_record(template, endpoint);
        }
    }
    for door in doors {
        door.add(context, template);
    }
    // Two endpoints may share a target group, and the group may list it only once.
    let mut seen: Vec<Value> = Vec::new();
    target_groups.retain(|one| {
        !seen.contains(one) && {
            seen.push(one.clone());
            true
        }
    });
    target_groups
}

/// The logical id of the load balancer that Slipway makes for the endpoint, if it does.
#[must_use]
pub fn balancer_id(endpoint: &ApiEndpoint) -> Option<String> {
    let kind = balancer_kind(&endpoint.load_balancer);
    (endpoint.load_balancer.backing == Backing::Managed)
        .then(|| logical_id(&format!("{kind}LoadBalancer"), &endpoint.name))
}

/// The endpoint's record if Slipway makes one: its logical id, its hosted zone and its name.
#[must_use]
pub fn record_of(endpoint: &ApiEndpoint) -> Option<(String, Value, String)> {
    let balancer = &endpoint.load_balancer;
    let zone = balancer.hosted_zone_id.as_ref()?;
    let made = balancer.backing == Backing::Managed || balancer.dns_name.is_some();
    made.then(|| (logical_id("Record", &endpoint.name), existing(zone), endpoint.dns_name.clone()))
}

fn balancer_kind(balancer: &LoadBalancer) -> &'static str {
    if balancer.private { "Internal" } else { "" }
}

/// A managed load balancer. Its scheme cannot change and a target group belongs to one load balancer. Public and private ones therefore
/// have different logical ids, so that the new one is created before the old one is deleted.
fn managed(context: &Context<'_>, template: &mut Template, endpoint: &ApiEndpoint) -> Value {
    let name = &endpoint.name;
    let balancer = &endpoint.load_balancer;
    let group = security_group(context, template, endpoint);
    let mut groups = vec![get_att(&group, "GroupId")];
    let mut given = balancer.security_group_ids.clone();
    given.sort();
    given.dedup();
    groups.extend(given.into_iter().map(Value::from));

    let kind = balancer_kind(balancer);
    let tags = context.tags(&format!("api-{name}")).list();
    let load_balancer = Resource::new("AWS::ElasticLoadBalancingV2::LoadBalancer")
        .set("Type", "network")
        .set("Scheme", if balancer.private { "internal" } else { "internet-facing" })
        .set("Subnets", json!(context.subnet_ids(&balancer.subnets)))
        .set("SecurityGroups", json!(groups))
        // Otherwise a zone whose controller is down would not answer, although other zones could.
        .set(
            "LoadBalancerAttributes",
            json!([{ "Key": "load_balancing.cross_zone.enabled", "Value": "true" }]),
        )
        .set("Tags", tags.clone());
    let load_balancer = template.add(logical_id(&format!("{kind}LoadBalancer"), name), load_balancer);
    let target_group = target_group(context, template, kind, name, tags);
    listener(template, kind, name, reference(&load_balancer), &target_group);
    if let Some(zone) = &balancer.hosted_zone_id {
        let record = record(endpoint, zone).set("Type", "A").set(
            "AliasTarget",
            json!({
                "DNSName": get_att(&load_balancer, "DNSName"),
                "HostedZoneId": get_att(&load_balancer, "CanonicalHostedZoneID"),
                // There is no alternative target to fail over to.
                "EvaluateTargetHealth": false,
            }),
        );
        template.add(logical_id("Record", name), record);
    }
    template.output(
        logical_id("EndpointTarget", name),
        format!("What {} must be an alias of", endpoint.dns_name),
        get_att(&load_balancer, "DNSName"),
    );
    reference(&target_group)
}

/// A listener and target group at an existing load balancer. Both are replaced if the load balancer changes.
fn on_existing(
    context: &Context<'_>,
    template: &mut Template,
    endpoint: &ApiEndpoint,
    arn: &Existing,
) -> Value {
    let name = &endpoint.name;
    let kind = format!("At{}", &sha256_hex(arn.to_string().as_bytes())[..8]);
    let tags = context.tags(&format!("api-{name}")).list();
    let target_group = target_group(context, template, &kind, name, tags);
    listener(template, &kind, name, existing(arn), &target_group);
    reference(&target_group)
}

fn listener(template: &mut Template, kind: &str, name: &str, load_balancer: Value, target_group: &str) {
    let listener = Resource::new("AWS::ElasticLoadBalancingV2::Listener")
        .set("LoadBalancerArn", load_balancer)
        .set("Port", ports::API_PUBLIC)
        .set("Protocol", "TCP")
        .set("DefaultActions", json!([{ "Type": "forward", "TargetGroupArn": reference(target_group) }]));
    template.add(logical_id(&format!("{kind}Listener"), name), listener);
}

fn record(endpoint: &ApiEndpoint, zone: &Existing) -> Resource {
    Resource::new("AWS::Route53::RecordSet")
        .set("HostedZoneId", existing(zone))
        .set("Name", format!("{}.", endpoint.dns_name.trim_end_matches('.')))
}

/// A record that points to a load balancer of the user's: a CNAME, because an alias would need that balancer's hosted zone. It has the
/// logical id of an alias, because Route 53 allows no CNAME beside another record of that name, and CloudFormation changes one into the
/// other in place.
fn given_record(template: &mut Template, endpoint: &ApiEndpoint) {
    let balancer = &endpoint.load_balancer;
    if let (Some(zone), Some(target)) = (&balancer.hosted_zone_id, &balancer.dns_name) {
        let record = record(endpoint, zone)
            .set("Type", "CNAME")
            .set("TTL", RECORD_TTL_S.to_string())
            .set("ResourceRecords", json!([format!("{}.", target.trim_end_matches('.'))]));
        template.add(logical_id("Record", &endpoint.name), record);
    }
}

/// A source from which an existing load balancer reaches the controllers, for their own security group.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Door {
    /// The balancer's security group.
    Group(String),
    /// The addresses of clients, which a balancer without security groups passes through, or its own for health checks.
    Range(String),
}

/// The sources of one endpoint. Several endpoints may need the same, and EC2 accepts each rule once.
fn own_doors(context: &Context<'_>, balancer: &LoadBalancer) -> Vec<Door> {
    let mut doors: Vec<Door> = balancer.security_group_ids.iter().cloned().map(Door::Group).collect();
    doors.extend(balancer.source_cidrs.iter().map(|cidr| Door::Range(cidr.to_string())));
    let checked = balancer.security_group_ids.is_empty() && balancer.backing != Backing::Nothing;
    let vpc = context.cluster.network.vpc.cidr();
    if checked && !balancer.source_cidrs.iter().any(|cidr| cidr.contains(&vpc)) {
        doors.push(Door::Range(vpc.to_string()));
    }
    doors
}

impl Door {
    fn add(&self, context: &Context<'_>, template: &mut Template) {
        let (id, source, from) = match self {
            Self::Group(group) => ("ControllerFromGroup", "SourceSecurityGroupId", group),
            Self::Range(cidr) => ("ControllerFromRange", "CidrIp", cidr),
        };
        let ingress = Resource::new("AWS::EC2::SecurityGroupIngress")
            .set("GroupId", context.network_value(export::CONTROLLER_SECURITY_GROUP))
            .set(source, from.as_str())
            .set("IpProtocol", "tcp")
            .set("FromPort", ports::API_SERVER)
            .set("ToPort", ports::API_SERVER)
            .set("Description", "Load balancer that Slipway did not make");
        template.add(logical_id(id, from), ingress);
    }
}

/// Controllers listen on 6443. A target is healthy when its API server is ready, which includes its etcd.
fn target_group(
    context: &Context<'_>,
    template: &mut Template,
    kind: &str,
    name: &str,
    tags: Value,
) -> String {
    let resource = Resource::new("AWS::ElasticLoadBalancingV2::TargetGroup")
        .set("VpcId", context.vpc_id())
        .set("TargetType", "instance")
        .set("Protocol", "TCP")
        .set("Port", ports::API_SERVER)
        .set("HealthCheckProtocol", "HTTPS")
        .set("HealthCheckPort", ports::API_SERVER.to_string())
        .set("HealthCheckPath", "/readyz")
        .set("Matcher", json!({ "HttpCode": "200" }))
        .set("HealthCheckIntervalSeconds", 10)
        .set("HealthyThresholdCount", 2)
        .set("UnhealthyThresholdCount", 2)
        .set(
            "TargetGroupAttributes",
            json!([
                // Watches never end by themselves. After a minute they are closed, and clients reconnect elsewhere.
                { "Key": "deregistration_delay.timeout_seconds", "Value": "60" },
                { "Key": "deregistration_delay.connection_termination.enabled", "Value": "true" },
                // The audit log should contain the client's address, not the load balancer's.
                { "Key": "preserve_client_ip.enabled", "Value": "true" },
            ]),
        )
        .set("Tags", tags);
    template.add(logical_id(&format!("{kind}TargetGroup"), name), resource)
}

/// Who may use the endpoint: the spec's ranges, and always the cluster's own nodes. Nodes reach a private load balancer from their own
/// addresses, and a public one from those of the NAT gateways. The address of an existing Elastic IP or NAT gateway is not known here, so
/// the spec must list it.
fn security_group(context: &Context<'_>, template: &mut Template, endpoint: &ApiEndpoint) -> String {
    let name = &endpoint.name;
    let balancer = &endpoint.load_balancer;
    let mut sources = balancer.source_cidrs.clone();
    sources.sort();
    sources.dedup();
    let mut ingress: Vec<Value> = sources
        .iter()
        .map(|cidr| {
            tcp_443(json!({ "CidrIp": cidr.to_string(), "Description": "apiAccessAllowedSourceCIDRs" }))
        })
        .collect();
    let open_to_all = sources.iter().any(|cidr| cidr.prefix_len() == 0);
    if !balancer.private && !open_to_all {
        for eip in network::nat_addresses(context) {
            let address = json!({ "Fn::Sub": ["${Address}/32", { "Address": context.network_value(&eip) }] });
            ingress.push(tcp_443(json!({ "CidrIp": address, "Description": "Nodes behind a NAT gateway" })));
        }
    }
    if !open_to_all {
        for group in [export::CONTROLLER_SECURITY_GROUP, export::WORKER_SECURITY_GROUP] {
            let source = context.network_value(group);
            ingress.push(tcp_443(json!({ "SourceSecurityGroupId": source, "Description": "Nodes" })));
        }
    }
    // A router on the way that cannot forward a large packet says so from its own address, which may be any (Elastic Load Balancing, "Update
    // the security groups for your Network Load Balancer", recommended rules). Without that, large answers hang on a VPN.
    ingress.push(json!({
        "IpProtocol": "icmp",
        "FromPort": 3,
        "ToPort": 4,
        "CidrIp": "0.0.0.0/0",
        "Description": "Path MTU discovery: fragmentation needed",
    }));
    let description = format!("API endpoint {name} of the Kubernetes cluster {}", context.cluster.name);
    let group = Resource::new("AWS::EC2::SecurityGroup")
        .set("VpcId", context.vpc_id())
        .set("GroupDescription", description)
        .set("SecurityGroupIngress", json!(ingress))
        .set("Tags", context.tags(&format!("api-{name}")).list());
    let group = template.add(logical_id("EndpointSecurityGroup", name), group);
    let to_controllers = Resource::new("AWS::EC2::SecurityGroupIngress")
        .set("GroupId", context.network_value(export::CONTROLLER_SECURITY_GROUP))
        .set("SourceSecurityGroupId", get_att(&group, "GroupId"))
        .set("IpProtocol", "tcp")
        .set("FromPort", ports::API_SERVER)
        .set("ToPort", ports::API_SERVER)
        .set("Description", "API endpoint and its health check");
    template.add(logical_id("ControllerFromEndpoint", name), to_controllers);
    group
}

fn tcp_443(mut rule: Value) -> Value {
    rule["IpProtocol"] = json!("tcp");
    rule["FromPort"] = json!(ports::API_PUBLIC);
    rule["ToPort"] = json!(ports::API_PUBLIC);
    rule
}
