//! The quotas that a launch needs: what a cluster of a spec takes of them, and whether the account has room for it.
//!
//! The codes of quotas are those that Service Quotas itself shows (`aws service-quotas list-service-quotas --service-code ec2`, also `vpc` and
//! `elasticloadbalancing`). AWS' pages name the quotas: "Amazon EC2 instance type quotas" (EC2 instance types guide), "Amazon VPC quotas" (VPC
//! user guide), "Quotas for your Network Load Balancers" (user guide for Network Load Balancers).

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::{Backing, Cluster, Egress, MixedInstances, NodePool, SubnetSource, Vpc};

use super::findings::{Finding, Read, Unread, ok, problem, unknown, warning};

/// A quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Limit {
    /// The vCPUs of running on-demand instances of these families.
    Vcpus(Family),
    /// The vCPUs of spot instances of the families whose quota has this code.
    SpotVcpus(&'static str),
    Addresses,
    Vpcs,
    /// In each zone.
    NatGateways,
    Balancers,
}

/// Families of instance types that have a quota together, "each … for one or more instance families" (EC2 user guide, "On-Demand Instance
/// quotas").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// A, C, D, H, I, M, R, T, Z.
    Standard,
    Dl,
    F,
    /// G and VT.
    G,
    HighMemory,
    Hpc,
    Inf,
    P,
    Trn,
    X,
}

impl Family {
    /// The families that the type `name` belongs to. `None`: one without such a quota, as Macs, or one that is not known yet.
    fn from_instance_type(name: &str) -> Option<Self> {
        let letters: String = name.chars().take_while(char::is_ascii_alphabetic).collect();
        Some(match letters.as_str() {
            "a" | "c" | "d" | "h" | "i" | "im" | "is" | "m" | "r" | "t" | "z" => Self::Standard,
            "dl" => Self::Dl,
            "f" => Self::F,
            "g" | "gr" | "vt" => Self::G,
            "u" => Self::HighMemory,
            "hpc" => Self::Hpc,
            "inf" => Self::Inf,
            "p" => Self::P,
            "trn" => Self::Trn,
            "x" => Self::X,
            _ => return None,
        })
    }

    /// The code of the quota of its spot instances ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests" and so on). `None`: these
    /// families have none.
    const fn spot_code(self) -> Option<&'static str> {
        match self {
            Self::Standard => Some("L-34B43A08"),
            Self::Dl => Some("L-85EED4F7"),
            Self::F => Some("L-88CF9481"),
            Self::G => Some("L-3819A6DF"),
            Self::Inf => Some("L-B5D1601B"),
            Self::P => Some("L-7212CCBC"),
            Self::Trn => Some("L-6B0D517C"),
            Self::X => Some("L-E3A00192"),
            Self::HighMemory | Self::Hpc => None,
        }
    }
}

impl Limit {
    /// The service and the code by which Service Quotas knows it.
    pub(super) const fn code(self) -> (&'static str, &'static str) {
        match self {
            Self::Vcpus(family) => (
                "ec2",
                match family {
                    Family::Standard => "L-1216C47A",
                    Family::Dl => "L-6E869C2A",
                    Family::F => "L-74FC7D96",
                    Family::G => "L-DB2E81BA",
                    Family::HighMemory => "L-43DA4232",
                    Family::Hpc => "L-F7808C92",
                    Family::Inf => "L-1945791B",
                    Family::P => "L-417A185B",
                    Family::Trn => "L-2C3B7624",
                    Family::X => "L-7295265B",
                },
            ),
            Self::SpotVcpus(code) => ("ec2", code),
            Self::Addresses => ("ec2", "L-0263D0A3"),
            Self::Vpcs => ("vpc", "L-F678F1CE"),
            Self::NatGateways => ("vpc", "L-FE5A380F"),
            Self::Balancers => ("elasticloadbalancing", "L-69A177A2"),
        }
    }

    const fn things(self) -> &'static str {
        match self {
            Self::Vcpus(_) => "vCPUs of on-demand instances",
            Self::SpotVcpus(_) => "vCPUs of spot instances",
            Self::Addresses => "Elastic IP addresses",
            Self::Vpcs => "VPCs",
            Self::NatGateways => "NAT gateways",
            Self::Balancers => "Network Load Balancers",
        }
    }
}

/// The on-demand machines of a group, or its spot instances.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    /// Its types, with the capacity units that each counts for. A group of several may be of any of them.
    types: Vec<(String, u32)>,
    spot: bool,
    launch: u32,
    most: u32,
}

/// How much is needed for the launch, and how much at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Amount {
    pub(super) launch: u64,
    pub(super) most: u64,
}

impl Amount {
    const fn fixed(number: u64) -> Self {
        Self { launch: number, most: number }
    }

    const fn plus(self, more: Self) -> Self {
        Self { launch: self.launch + more.launch, most: self.most + more.most }
    }
}

/// What a cluster needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Needs {
    groups: Vec<Group>,
    addresses: u64,
    vpcs: u64,
    /// By zone.
    nat_gateways: BTreeMap<String, u64>,
    balancers: u64,
}

impl Needs {
    pub(super) fn for_cluster(cluster: &Cluster) -> Self {
        let one = |name: &str, launch: u32, most: u32| Group {
            types: vec![(name.to_owned(), 1)],
            spot: false,
            launch,
            most,
        };
        let members = u32::try_from(cluster.etcd.members.len()).unwrap_or(u32::MAX);
        let controllers = cluster.controller.count;
        let mut groups = vec![
            one(&cluster.etcd.instance_type, members, members),
            // Only a single controller gets another one beside it before it goes (P5).
            one(&cluster.controller.instance_type, controllers, controllers + u32::from(controllers == 1)),
        ];
        groups.extend(cluster.pools.iter().flat_map(|pool| of_pool(cluster, pool)));

        // One gateway in each public subnet that a private one leaves by.
        let mut gateways: BTreeMap<&str, bool> = BTreeMap::new();
        for subnet in &cluster.network.subnets {
            let SubnetSource::Managed { egress, .. } = &subnet.source else { continue };
            let Egress::ManagedNat { public_subnet, eip_allocation_id } = egress else { continue };
            *gateways.entry(public_subnet).or_default() |= eip_allocation_id.is_some();
        }
        let mut nat_gateways: BTreeMap<String, u64> = BTreeMap::new();
        for subnet in gateways.keys() {
            *nat_gateways.entry(cluster.subnet(subnet).availability_zone.clone()).or_default() += 1;
        }
        let managed = |backing: &Backing| matches!(backing, Backing::Managed);
        let balancers =
            cluster.api_endpoints.iter().filter(|endpoint| managed(&endpoint.load_balancer.backing));
        Self {
            groups,
            addresses: gateways.values().filter(|given| !**given).count() as u64,
            vpcs: u64::from(matches!(cluster.network.vpc, Vpc::Managed(_))),
            nat_gateways,
            balancers: balancers.count() as u64,
        }
    }

    /// All instance types.
    pub(super) fn types(&self) -> BTreeSet<String> {
        self.groups.iter().flat_map(|group| &group.types).map(|(name, _)| name.clone()).collect()
    }

    /// What is needed of each quota, by zone where it counts in zones. `vcpus`: those of each type.
    pub(super) fn amounts(&self, vcpus: &BTreeMap<String, u32>) -> BTreeMap<(Limit, Option<String>), Amount> {
        let mut amounts: BTreeMap<(Limit, Option<String>), Amount> = BTreeMap::new();
        let mut add = |limit: Limit, zone: Option<String>, more: Amount| {
            let amount = amounts.entry((limit, zone)).or_default();
            *amount = amount.plus(more);
        };
        for group in &self.groups {
            // Of several types the one counts of which most vCPUs may run.
            let mut families: BTreeMap<Family, Amount> = BTreeMap::new();
            for (name, weight) in &group.types {
                let (Some(family), Some(vcpus)) = (Family::from_instance_type(name), vcpus.get(name)) else {
                    continue;
                };
                let vcpus_of = |units: u32| u64::from(units.div_ceil((*weight).max(1))) * u64::from(*vcpus);
                let largest = families.entry(family).or_default();
                largest.launch = largest.launch.max(vcpus_of(group.launch));
                largest.most = largest.most.max(vcpus_of(group.most));
            }
            for (family, amount) in families {
                let limit = match group.spot {
                    false => Some(Limit::Vcpus(family)),
                    true => family.spot_code().map(Limit::SpotVcpus),
                };
                limit.into_iter().for_each(|limit| add(limit, None, amount));
            }
        }
        add(Limit::Addresses, None, Amount::fixed(self.addresses));
        add(Limit::Vpcs, None, Amount::fixed(self.vpcs));
        for (zone, number) in &self.nat_gateways {
            add(Limit::NatGateways, Some(zone.clone()), Amount::fixed(*number));
        }
        add(Limit::Balancers, None, Amount::fixed(self.balancers));
        amounts.retain(|_, amount| amount.most > 0);
        amounts
    }
}

/// Its on-demand machines, and its spot instances.
fn of_pool(cluster: &Cluster, pool: &NodePool) -> [Group; 2] {
    let on_demand = |units: u32| match &pool.mixed_instances {
        None => units,
        Some(mixed) => of_mixed(mixed, units),
    };
    let types = match &pool.mixed_instances {
        Some(mixed) if !mixed.types.is_empty() => {
            mixed.types.iter().map(|one| (one.instance_type.clone(), one.weight.unwrap_or(1))).collect()
        }
        Some(_) | None => vec![(pool.instance_type.clone(), 1)],
    };
    // A weighted group never surges.
    let surge =
        if pool.is_weighted() { 0 } else { cluster.rollout.pace(&pool.name).max_surge(pool.size.max) };
    let (launch, most) = (pool.size.min, pool.size.max.saturating_add(surge));
    let (least, largest) = (on_demand(launch), on_demand(most));
    [
        Group { types: types.clone(), spot: false, launch: least, most: largest },
        Group { types, spot: true, launch: launch - least, most: most - largest },
    ]
}

/// The on-demand part of `units`: "onDemandBaseCapacity" first, then a percentage of the rest, rounded up.
fn of_mixed(mixed: &MixedInstances, units: u32) -> u32 {
    let base = mixed.on_demand_base.min(units);
    base + (units - base).saturating_mul(mixed.on_demand_percentage).div_ceil(100)
}

/// What was read of one quota.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) limit: Limit,
    /// The zone in which it counts.
    pub(super) zone: Option<String>,
    pub(super) needed: Amount,
    /// How much the account may have. `None`: Service Quotas does not list it in this region.
    pub(super) quota: Read<Option<f64>>,
    pub(super) used: Read<f64>,
}

/// What was read of the quotas for a spec.
#[derive(Debug)]
pub(super) struct QuotasRead {
    /// The file of the spec.
    pub(super) about: String,
    pub(super) region: String,
    /// Instance types that the region does not have, or why they could not be looked up.
    pub(super) no_types: Read<BTreeSet<String>>,
    /// Types whose quota is not known.
    pub(super) no_family: BTreeSet<String>,
    pub(super) rooms: Vec<Room>,
}

/// Those of the types whose quota is not known.
pub(super) fn without_family(types: &BTreeSet<String>) -> BTreeSet<String> {
    types.iter().filter(|name| Family::from_instance_type(name).is_none()).cloned().collect()
}

pub(super) fn of_quotas(read: &QuotasRead) -> Vec<Finding> {
    let about = format!("{}: quotas", read.about);
    let mut all = Vec::new();
    match &read.no_types {
        Ok(none) => all.extend(none.iter().map(|name| {
            problem(
                &read.about,
                format!("EC2 has no instance type {name} in {}", read.region),
                format!(
                    "choose one of: aws ec2 describe-instance-types --region {} --query InstanceTypes[].InstanceType",
                    read.region
                ),
            )
        })),
        Err(unread) => all.push(unknown(format!("{about}: vCPUs"), unread)),
    }
    all.extend(read.no_family.iter().map(|name| {
        let help = "see the list of AWS: aws service-quotas list-service-quotas --service-code ec2";
        let why = format!("it is not known which quota {name} counts for");
        unknown(&about, &Unread { why, help: help.to_owned(), denied: false })
    }));
    all.extend(read.rooms.iter().filter_map(|room| of_room(&about, &read.region, room)));
    if all.is_empty() && !read.rooms.is_empty() {
        let each = read.rooms.iter().map(|room| format!("{}: {}", room.limit.things(), room.needed.most));
        all.push(ok(
            about,
            format!("there is room for what it needs at most ({})", each.collect::<Vec<_>>().join(", ")),
        ));
    }
    all
}

/// `None`: there is room for all.
fn of_room(about: &str, region: &str, room: &Room) -> Option<Finding> {
    let (service, code) = room.limit.code();
    let things = match &room.zone {
        Some(zone) => format!("{} in {zone}", room.limit.things()),
        None => room.limit.things().to_owned(),
    };
    let about = format!("{about}: {things}");
    let (quota, used) = match (&room.quota, &room.used) {
        (Ok(Some(quota)), Ok(used)) => (*quota, *used),
        (Ok(None), _) => {
            let why = format!("Service Quotas has no quota {code} in {region}");
            let help = format!("aws service-quotas list-service-quotas --service-code {service}");
            return Some(unknown(about, &Unread { why, help, denied: false }));
        }
        (Err(unread), _) | (_, Err(unread)) => return Some(unknown(about, unread)),
    };
    let fits = |needed: u64| used + needed as f64 <= quota;
    if fits(room.needed.most) {
        return None;
    }
    let wanted = used + room.needed.most as f64;
    let help = format!(
        "aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} --desired-value {wanted} --region {region}"
    );
    let state = format!("the quota {code} is {quota}, of which {used} are used");
    let Amount { launch, most } = room.needed;
    Some(if fits(launch) {
        let message = format!(
            "the quota is enough for the launch, but a rollout with all pools at their maximum needs {most}: {state}"
        );
        warning(about, message, help)
    } else {
        problem(about, format!("the launch needs {launch}, for which there is no room: {state}"), help)
    })
}

#[cfg(test)]
mod tests;
