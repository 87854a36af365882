//! What a rendering makes that AWS charges for by the hour or the month, counted from its templates as they are deployed, patches included.
//!
//! Nothing here knows a price. What is charged by use is not counted: data, requests, capacity units of load balancers, snapshots.

mod machines;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use slipway_core::release::{Rendering, Stack};

/// Something that AWS charges for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Charge {
    /// An instance, by the hour.
    Machine {
        /// Its type.
        instance_type: String,
        /// Whether it runs on hardware of its own.
        dedicated: bool,
    },
    /// A GiB of EBS, by the month.
    Storage {
        /// `gp3` and so on.
        volume_type: String,
    },
    /// An IOPS of EBS beyond those that its volume includes, by the month.
    Iops {
        /// `gp3` and so on.
        volume_type: String,
    },
    /// A MiB/s of EBS beyond those that its volume includes, by the month.
    Throughput {
        /// `gp3`.
        volume_type: String,
    },
    /// A NAT gateway, by the hour.
    NatGateway,
    /// A Network Load Balancer, by the hour.
    NetworkLoadBalancer,
    /// A public IPv4 address in use, by the hour.
    PublicAddress,
    /// A hosted zone, by the month.
    HostedZone,
    /// A KMS key, by the month.
    Key,
    /// An alarm of CloudWatch, by the month.
    Alarm,
}

/// How many there are: with each group at its smallest size, and at its largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Amount {
    /// With the smallest sizes.
    pub least: u64,
    /// With the largest sizes.
    pub most: u64,
}

impl Amount {
    /// As many in any case.
    #[must_use]
    pub const fn fixed(number: u64) -> Self {
        Self { least: number, most: number }
    }

    const fn plus(self, more: Self) -> Self {
        Self { least: self.least + more.least, most: self.most + more.most }
    }

    const fn times(self, number: u64) -> Self {
        Self { least: self.least * number, most: self.most * number }
    }
}

/// One of the ways in which something may come: a pool of several instance types consists of any of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// What is charged.
    pub charge: Charge,
    /// How many, if all are of this.
    pub amount: Amount,
}

/// Something that a stack has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// The stack.
    pub stack: String,
    /// It is what one of these says, or a mixture of them.
    pub choices: Vec<Choice>,
    /// Whether it consists of spot instances, whose price changes and is at most that on demand, unless the spec gives a price.
    pub spot: bool,
}

/// Something for which it is not known how it is charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Uncounted {
    /// The stack.
    pub stack: String,
    /// The logical id in its template.
    pub resource: String,
    /// What is not counted, and why.
    pub why: String,
}

/// What a rendering makes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Counted {
    /// What is charged, by the stacks in launch order.
    pub items: Vec<Item>,
    /// What could not be counted.
    pub uncounted: Vec<Uncounted>,
}

/// Resources without a charge of their own. Launch templates and addresses are counted where they are used.
const FREE: &[&str] = &[
    "AWS::EC2::EIP",
    "AWS::EC2::InternetGateway",
    "AWS::EC2::LaunchTemplate",
    "AWS::EC2::Route",
    "AWS::EC2::RouteTable",
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::Subnet",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPC",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::ElasticLoadBalancingV2::Listener",
    "AWS::ElasticLoadBalancingV2::TargetGroup",
    "AWS::IAM::InstanceProfile",
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::OIDCProvider",
    "AWS::IAM::Policy",
    "AWS::IAM::Role",
    "AWS::Route53::RecordSet",
];

/// Counts what `rendering` makes.
#[must_use]
pub fn count(rendering: &Rendering) -> Counted {
    let templates: Vec<(&Stack, Value)> = rendering
        .stacks
        .iter()
        .map(|stack| (stack, serde_json::from_str(&stack.body).unwrap_or_default()))
        .collect();
    let subnets = public_subnets(&templates);
    let mut counted = Counted::default();
    for (stack, template) in &templates {
        let of_stack = rendering.roles.values().filter(|role| role.stack == stack.name);
        let largest = of_stack.map(|role| u64::from(role.nodes.max)).max();
        let mut count =
            Count { stack: &stack.name, template, subnets: &subnets, largest, into: &mut counted };
        for (id, resource) in object(&template["Resources"]) {
            count.resource(id, resource);
        }
    }
    counted
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// The subnets that the stacks export, by the name of the export: whether instances get a public address there.
fn public_subnets(templates: &[(&Stack, Value)]) -> BTreeMap<String, bool> {
    let mut subnets = BTreeMap::new();
    for (_, template) in templates {
        for (_, output) in object(&template["Outputs"]) {
            let (Some(name), Some(id)) = (output["Export"]["Name"].as_str(), output["Value"]["Ref"].as_str())
            else {
                continue;
            };
            let resource = &template["Resources"][id];
            if resource["Type"] == "AWS::EC2::Subnet" {
                let public = resource["Properties"]["MapPublicIpOnLaunch"] == true;
                subnets.insert(name.to_owned(), public);
            }
        }
    }
    subnets
}

/// The counting of one stack.
struct Count<'a> {
    stack: &'a str,
    template: &'a Value,
    subnets: &'a BTreeMap<String, bool>,
    /// The largest size of its groups as the spec has it: a group also has room for the machines that a rollout adds. Patches change no sizes.
    largest: Option<u64>,
    into: &'a mut Counted,
}

impl Count<'_> {
    fn resource(&mut self, id: &str, resource: &Value) {
        let properties = &resource["Properties"];
        match resource["Type"].as_str().unwrap_or_default() {
            "AWS::AutoScaling::AutoScalingGroup" => self.group(id, properties),
            "AWS::EC2::Volume" => {
                let volume = Volume::from_properties(properties, "Size");
                self.volume(id, volume, Amount::fixed(1));
            }
            "AWS::EC2::NatGateway" => {
                self.add(Charge::NatGateway, Amount::fixed(1));
                if properties["ConnectivityType"] != "private" {
                    self.add(Charge::PublicAddress, Amount::fixed(1));
                }
            }
            "AWS::ElasticLoadBalancingV2::LoadBalancer" if properties["Type"] == "network" => {
                self.add(Charge::NetworkLoadBalancer, Amount::fixed(1));
                // One in each of its zones.
                let zones =
                    ["Subnets", "SubnetMappings"].map(|key| properties[key].as_array().map_or(0, Vec::len));
                if properties["Scheme"] != "internal" {
                    self.add(
                        Charge::PublicAddress,
                        Amount::fixed(zones.into_iter().max().unwrap_or(0) as u64),
                    );
                }
            }
            "AWS::Route53::HostedZone" => self.add(Charge::HostedZone, Amount::fixed(1)),
            // "There is no additional charge for using gateway endpoints" (VPC user guide, "Gateway endpoints").
            "AWS::EC2::VPCEndpoint"
                if properties["VpcEndpointType"].as_str().unwrap_or("Gateway") == "Gateway" => {}
            kind if FREE.contains(&kind) => {}
            kind => self.unknown(id, format!("it is not known how AWS charges for {kind}")),
        }
    }

    fn unknown(&mut self, id: &str, why: String) {
        self.into.uncounted.push(Uncounted { stack: self.stack.to_owned(), resource: id.to_owned(), why });
    }

    fn add(&mut self, charge: Charge, amount: Amount) {
        self.add_any(vec![Choice { charge, amount }], false);
    }

    /// What is the same in one stack is one item.
    fn add_any(&mut self, choices: Vec<Choice>, spot: bool) {
        if choices.iter().all(|choice| choice.amount.most == 0) {
            return;
        }
        let charges = |item: &[Choice]| item.iter().map(|choice| choice.charge.clone()).collect::<Vec<_>>();
        let same = self.into.items.iter_mut().find(|item| {
            item.stack == self.stack && item.spot == spot && charges(&item.choices) == charges(&choices)
        });
        match same {
            Some(item) => {
                for (old, new) in item.choices.iter_mut().zip(choices) {
                    old.amount = old.amount.plus(new.amount);
                }
            }
            None => self.into.items.push(Item { stack: self.stack.to_owned(), choices, spot }),
        }
    }

    /// `number` volumes.
    fn volume(&mut self, id: &str, volume: Option<Volume>, number: Amount) {
        let Some(volume) = volume else {
            return self.unknown(id, "the size of a volume is not a number".to_owned());
        };
        let volume_type = volume.volume_type.clone();
        self.add(Charge::Storage { volume_type: volume_type.clone() }, number.times(volume.size_gib));
        match volume.extra_iops() {
            Ok(iops) => self.add(Charge::Iops { volume_type: volume_type.clone() }, number.times(iops)),
            Err(why) => self.unknown(id, why),
        }
        self.add(Charge::Throughput { volume_type }, number.times(volume.extra_throughput()));
    }
}

/// A volume of EBS.
#[derive(Debug)]
struct Volume {
    volume_type: String,
    size_gib: u64,
    iops: u64,
    throughput: u64,
}

/// Templates have numbers, also as texts.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

impl Volume {
    /// `size`: the property's name.
    fn from_properties(properties: &Value, size: &str) -> Option<Self> {
        Some(Self {
            // EC2's default (API reference, EbsBlockDevice and CreateVolume).
            volume_type: properties["VolumeType"].as_str().unwrap_or("gp2").to_owned(),
            size_gib: number(&properties[size])?,
            iops: number(&properties["Iops"]).unwrap_or_default(),
            throughput: number(&properties["Throughput"]).unwrap_or_default(),
        })
    }

    /// The IOPS that are charged: of gp3 those beyond 3,000, of io1 and io2 all ("Amazon EBS pricing").
    fn extra_iops(&self) -> Result<u64, String> {
        match self.volume_type.as_str() {
            "gp3" => Ok(self.iops.saturating_sub(3_000)),
            "io1" => Ok(self.iops),
            // From there on an IOPS costs less.
            "io2" if self.iops > 32_000 => Err(format!("{} IOPS of io2, whose price has tiers", self.iops)),
            "io2" => Ok(self.iops),
            _ => Ok(0),
        }
    }

    /// The MiB/s that are charged: of gp3 those beyond 125.
    fn extra_throughput(&self) -> u64 {
        if self.volume_type == "gp3" { self.throughput.saturating_sub(125) } else { 0 }
    }
}
