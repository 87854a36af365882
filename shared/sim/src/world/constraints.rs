//! What the services behind the resources refuse, so that a wrong order or a wrong value in a template shows.
//!
//! A resource that a template only names (an existing VPC, subnet or role) is assumed to exist. This world holds only what its
//! stacks created.

use std::collections::BTreeSet;

use base64::Engine as _;
use ipnet::Ipv4Net;
use serde_json::Value;

use super::resource::Resource;
use super::{Thing, World};

/// EC2's limit for user data, before base64.
const USER_DATA_BYTES: usize = 16_384;

/// EC2's limit for the description of a security group's rule, and the characters that are allowed besides letters and digits
/// (`IpRange`). The schemas state this only for a group's description.
const RULE_DESCRIPTION_CHARACTERS: usize = 255;
const RULE_DESCRIPTION_MARKS: &str = " ._-:/()#,@[]+=&;{}!$*";

/// Why the service refuses to create `new`.
pub(super) fn on_create(world: &World, new: &Resource) -> Option<String> {
    let view = View { world, resource: new };
    match new.kind.as_str() {
        "AWS::EC2::SecurityGroup" | "AWS::EC2::SecurityGroupEgress" | "AWS::EC2::SecurityGroupIngress" => {
            view.rule_descriptions()
        }
        "AWS::EC2::Subnet" => view.subnet(),
        "AWS::EC2::Route" => view.route(),
        "AWS::EC2::NatGateway" => view.nat_gateway(),
        "AWS::EC2::LaunchTemplate" => view.launch_template(),
        "AWS::ElasticLoadBalancingV2::LoadBalancer" => view.load_balancer(),
        "AWS::AutoScaling::AutoScalingGroup" => view.group(),
        "AWS::IAM::InstanceProfile" => view.instance_profile(),
        "AWS::Route53::RecordSet" => view.record(),
        _ => None,
    }
}

/// Why the service refuses to change a resource in place to `next`.
pub(super) fn on_update(world: &World, next: &Resource) -> Option<String> {
    let view = View { world, resource: next };
    match next.kind.as_str() {
        "AWS::EC2::SecurityGroup" | "AWS::EC2::SecurityGroupEgress" | "AWS::EC2::SecurityGroupIngress" => {
            view.rule_descriptions()
        }
        "AWS::EC2::LaunchTemplate" => view.launch_template(),
        "AWS::AutoScaling::AutoScalingGroup" => view.group(),
        "AWS::IAM::InstanceProfile" => view.instance_profile(),
        _ => None,
    }
}

/// Why the service refuses to delete `old`.
pub(super) fn on_delete(world: &World, old: &Resource) -> Option<String> {
    let view = View { world, resource: old };
    let id = old.physical_id.as_deref()?;
    let used = |kind: &str, property: &str| view.things(kind).any(|(_, thing)| mentions(thing, property, id));
    match old.kind.as_str() {
        "AWS::EC2::VPC" => (used("AWS::EC2::Subnet", "VpcId") || used("AWS::EC2::SecurityGroup", "VpcId"))
            .then(|| format!("The vpc '{id}' has dependencies and cannot be deleted.")),
        "AWS::EC2::Subnet" => (used("AWS::EC2::NatGateway", "SubnetId")
            || used("AWS::ElasticLoadBalancingV2::LoadBalancer", "Subnets"))
        .then(|| format!("The subnet '{id}' has dependencies and cannot be deleted.")),
        "AWS::EC2::VPCGatewayAttachment" => {
            let vpc = text(&old.properties, "VpcId")?;
            let inside = view.things("AWS::EC2::NatGateway").any(|(_, nat)| {
                text(&nat.properties, "SubnetId").and_then(|subnet| view.vpc_of(subnet)) == Some(vpc)
                    && text(&nat.properties, "ConnectivityType") != Some("private")
            });
            inside.then(|| {
                format!("Network {vpc} has some mapped public address(es). Please unmap those public address(es) before detaching the gateway.")
            })
        }
        "AWS::EC2::SecurityGroup" => {
            let rules = [
                ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
                ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
            ];
            rules
                .iter()
                .any(|(kind, property)| used(kind, property))
                .then(|| format!("resource {id} has a dependent object"))
        }
        "AWS::IAM::Role" => used("AWS::IAM::InstanceProfile", "Roles")
            .then(|| "Cannot delete entity, must remove roles from instance profile first.".to_owned()),
        "AWS::Route53::HostedZone" => (used("AWS::Route53::RecordSet", "HostedZoneId")
            || world.has_records(id))
        .then(|| {
            "The specified hosted zone contains non-required resource record sets and so cannot be deleted."
                .to_owned()
        }),
        _ => None,
    }
}

/// Whether a change of a property that replaces a resource conditionally does so in this case.
pub(super) fn conditional_replacement(current: &Resource, next: &Resource, path: &[String]) -> bool {
    match (current.kind.as_str(), path.first().map(String::as_str)) {
        // Only a replacing update policy creates a new group, and templates with one are refused.
        ("AWS::AutoScaling::AutoScalingGroup", _) => false,
        // A change from dedicated to default is done in place.
        ("AWS::EC2::VPC", Some("InstanceTenancy")) => {
            text(&next.properties, "InstanceTenancy") == Some("dedicated")
        }
        // A subnet can get a block in place, but not change it.
        ("AWS::EC2::Subnet", Some("Ipv6CidrBlock")) => current.properties.get("Ipv6CidrBlock").is_some(),
        _ => true,
    }
}

struct View<'a> {
    world: &'a World,
    resource: &'a Resource,
}

fn text<'a>(properties: &'a Value, key: &str) -> Option<&'a str> {
    properties.get(key).and_then(Value::as_str)
}

fn integer(properties: &Value, key: &str) -> Option<i64> {
    let value = properties.get(key)?;
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn mentions(thing: &Thing, property: &str, id: &str) -> bool {
    match thing.properties.get(property) {
        Some(Value::String(one)) => one == id,
        Some(Value::Array(many)) => many.iter().any(|one| one == id),
        _ => false,
    }
}

impl<'a> View<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        text(&self.resource.properties, key)
    }

    fn things(&self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Thing)> {
        let from = self.world.things.range((kind.to_owned(), String::new())..);
        from.take_while(move |((of, _), _)| of == kind).map(|((_, id), thing)| (id.as_str(), thing.as_ref()))
    }

    fn thing(&self, kind: &str, id: &str) -> Option<&'a Thing> {
        self.world.things.get(&(kind.to_owned(), id.to_owned())).map(AsRef::as_ref)
    }

    fn vpc_of(&self, subnet: &str) -> Option<&'a str> {
        text(&self.thing("AWS::EC2::Subnet", subnet)?.properties, "VpcId")
    }

    /// Whether a VPC of this world has no internet gateway.
    fn is_closed(&self, vpc: &str) -> bool {
        self.thing("AWS::EC2::VPC", vpc).is_some()
            && !self.things("AWS::EC2::VPCGatewayAttachment").any(|(_, thing)| {
                thing.ready
                    && text(&thing.properties, "VpcId") == Some(vpc)
                    && text(&thing.properties, "InternetGatewayId").is_some()
            })
    }

    fn subnet(&self) -> Option<String> {
        let zones = self.world.config.zones();
        if let Some(zone) = self.text("AvailabilityZone").filter(|zone| !zones.iter().any(|one| one == zone))
        {
            return Some(format!(
                "Value ({zone}) for parameter availabilityZone is invalid. Subnets can currently only be created in the following availability zones: {}.",
                zones.join(", ")
            ));
        }
        let vpc = self.text("VpcId")?;
        let cidr: Ipv4Net = self.text("CidrBlock")?.parse().ok()?;
        let parent = self.thing("AWS::EC2::VPC", vpc).and_then(|thing| text(&thing.properties, "CidrBlock"));
        if parent
            .and_then(|parent| parent.parse::<Ipv4Net>().ok())
            .is_some_and(|parent| !parent.contains(&cidr))
        {
            return Some(format!("The CIDR '{cidr}' is invalid."));
        }
        let taken =
            self.things("AWS::EC2::Subnet").filter(|(_, one)| text(&one.properties, "VpcId") == Some(vpc));
        let others = taken.filter_map(|(_, one)| text(&one.properties, "CidrBlock")?.parse::<Ipv4Net>().ok());
        let clash = others.into_iter().any(|other| other.contains(&cidr) || cidr.contains(&other));
        clash.then(|| format!("The CIDR '{cidr}' conflicts with another subnet"))
    }

    fn route(&self) -> Option<String> {
        let (table, gateway) = (self.text("RouteTableId")?, self.text("GatewayId")?);
        let vpc = text(&self.thing("AWS::EC2::RouteTable", table)?.properties, "VpcId")?;
        self.thing("AWS::EC2::InternetGateway", gateway)?;
        let attached = self.things("AWS::EC2::VPCGatewayAttachment").any(|(_, thing)| {
            thing.ready
                && text(&thing.properties, "VpcId") == Some(vpc)
                && text(&thing.properties, "InternetGatewayId") == Some(gateway)
        });
        (!attached).then(|| {
            format!("route table {table} and network gateway {gateway} belong to different networks")
        })
    }

    fn nat_gateway(&self) -> Option<String> {
        let vpc = self.vpc_of(self.text("SubnetId")?)?;
        let public = self.text("ConnectivityType") != Some("private");
        (public && self.is_closed(vpc)).then(|| format!("Network {vpc} has no Internet gateway attached"))
    }

    /// The descriptions of the rules in a group, and of a rule that is its own resource.
    fn rule_descriptions(&self) -> Option<String> {
        let refused = |text: &&str| {
            text.chars().count() > RULE_DESCRIPTION_CHARACTERS
                || !text.chars().all(|c| c.is_ascii_alphanumeric() || RULE_DESCRIPTION_MARKS.contains(c))
        };
        let lists = ["SecurityGroupIngress", "SecurityGroupEgress"];
        let inner = lists.iter().filter_map(|key| self.resource.properties.get(*key)?.as_array()).flatten();
        let mut rules = inner.chain([&self.resource.properties]).filter_map(|rule| text(rule, "Description"));
        rules.find(refused).map(|_| {
            "Invalid rule description. Valid descriptions are strings less than 256 characters from the following set: a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*".to_owned()
        })
    }

    fn launch_template(&self) -> Option<String> {
        let encoded =
            self.resource.properties.pointer("/LaunchTemplateData/UserData").and_then(Value::as_str)?;
        match base64::engine::general_purpose::STANDARD.decode(encoded) {
            Err(_) => Some("Invalid BASE64 encoding of user data.".to_owned()),
            Ok(bytes) if bytes.len() > USER_DATA_BYTES => {
                Some(format!("User data is limited to {USER_DATA_BYTES} bytes"))
            }
            Ok(_) => None,
        }
    }

    fn load_balancer(&self) -> Option<String> {
        let subnets: Vec<&str> = match self.resource.properties.get("Subnets") {
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => return None,
        };
        let mut zones = BTreeSet::new();
        for subnet in &subnets {
            let zone = self
                .thing("AWS::EC2::Subnet", subnet)
                .and_then(|one| text(&one.properties, "AvailabilityZone"));
            if zone.is_some_and(|zone| !zones.insert(zone)) {
                return Some(
                    "A load balancer cannot be attached to multiple subnets in the same Availability Zone"
                        .to_owned(),
                );
            }
        }
        let vpc = subnets.iter().find_map(|subnet| self.vpc_of(subnet))?;
        let public = self.text("Scheme") != Some("internal");
        (public && self.is_closed(vpc)).then(|| format!("VPC {vpc} has no internet gateway"))
    }

    fn group(&self) -> Option<String> {
        let properties = &self.resource.properties;
        let (least, most) = (integer(properties, "MinSize")?, integer(properties, "MaxSize")?);
        if least > most {
            return Some(format!("Min bound, {least}, must be less than or equal to max bound, {most}"));
        }
        if let Some(desired) =
            integer(properties, "DesiredCapacity").filter(|count| !(least..=most).contains(count))
        {
            return Some(format!(
                "Desired capacity:{desired} must be between the specified min size:{least} and max size:{most}"
            ));
        }
        let plain = properties.get("LaunchTemplate");
        let mixed = properties.pointer("/MixedInstancesPolicy/LaunchTemplate/LaunchTemplateSpecification");
        let template = plain.or(mixed)?;
        let version = text(template, "Version")?;
        let latest = self.world.latest_version(text(template, "LaunchTemplateId")?)?;
        let exists = version.starts_with('$')
            || version.parse::<u64>().is_ok_and(|version| (1..=latest).contains(&version));
        (!exists).then(|| {
            format!("You must use a valid fully-formed launch template. Could not find launch template version {version}.")
        })
    }

    fn instance_profile(&self) -> Option<String> {
        let roles = self.resource.properties.get("Roles").and_then(Value::as_array).map_or(0, Vec::len);
        (roles > 1).then(|| "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1".to_owned())
    }

    fn record(&self) -> Option<String> {
        let name = self.text("Name")?.trim_end_matches('.').to_lowercase();
        let zone = self.thing("AWS::Route53::HostedZone", self.text("HostedZoneId")?)?;
        let zone = text(&zone.properties, "Name")?.trim_end_matches('.').to_lowercase();
        let inside = name == zone || name.ends_with(&format!(".{zone}"));
        (!inside).then(|| format!("RRSet with DNS name {name}. is not permitted in zone {zone}."))
    }
}

impl World {
    /// The newest version of a launch template that a stack made.
    fn latest_version(&self, id: &str) -> Option<u64> {
        let resources = self
            .stacks
            .values()
            .filter(|stack| !stack.is_deleted())
            .flat_map(|stack| stack.resources.values());
        let mut templates = resources.filter(|one| one.kind == "AWS::EC2::LaunchTemplate");
        let template = templates.find(|one| one.physical_id.as_deref() == Some(id))?;
        template.attributes.get("LatestVersionNumber")?.as_str()?.parse().ok()
    }
}
