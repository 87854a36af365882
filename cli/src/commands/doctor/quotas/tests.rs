//! What a cluster needs is what its stacks and groups make, and each lack of room is one finding with its cure.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::commands::doctor::findings::Level;

fn cluster(text: &str) -> Cluster {
    slipway_flows::rendering::check(text.as_bytes(), None, &slipway_flows::patches::PatchSet::default())
        .unwrap_or_else(|found| panic!("{found:#?}"))
        .cluster
}

fn vcpus() -> BTreeMap<String, u32> {
    [
        ("t3.medium", 2),
        ("t4g.medium", 2),
        ("t4g.large", 2),
        ("m7g.large", 2),
        ("m7g.4xlarge", 16),
        ("g5g.xlarge", 4),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into()
}

#[test]
fn the_families_are_those_of_the_quotas() {
    for (name, family) in [
        ("m7g.large", Some(Family::Standard)),
        ("im4gn.large", Some(Family::Standard)),
        ("is4gen.large", Some(Family::Standard)),
        ("i4i.large", Some(Family::Standard)),
        ("inf2.xlarge", Some(Family::Inf)),
        ("h1.2xlarge", Some(Family::Standard)),
        ("hpc7g.4xlarge", Some(Family::Hpc)),
        ("t4g.nano", Some(Family::Standard)),
        ("trn1.2xlarge", Some(Family::Trn)),
        ("d3.xlarge", Some(Family::Standard)),
        ("dl1.24xlarge", Some(Family::Dl)),
        ("gr6.4xlarge", Some(Family::G)),
        ("vt1.3xlarge", Some(Family::G)),
        ("u-6tb1.metal", Some(Family::HighMemory)),
        ("u7i-12tb.224xlarge", Some(Family::HighMemory)),
        ("p5en.48xlarge", Some(Family::P)),
        ("x2gd.large", Some(Family::X)),
        ("f2.6xlarge", Some(Family::F)),
        ("mac2.metal", None),
        ("q9.large", None),
    ] {
        assert_eq!(Family::from_instance_type(name), family, "{name}");
    }
    // Every Linux type that is known here has a quota that is known here, but for those of the first years, which EC2 starts no more.
    let gone = ["mac", "cc1.", "cc2.", "cg1.", "cr1.", "hi1.", "hs1."];
    let unknown: Vec<String> = slipway_spec::instance_types::names()
        .filter(|name| {
            Family::from_instance_type(name).is_none() && !gone.iter().any(|start| name.starts_with(start))
        })
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

fn amount(needs: &Needs, limit: Limit) -> u64 {
    let all = needs.amounts(&vcpus());
    all.iter().filter(|((one, _), _)| *one == limit).map(|(_, amount)| amount.launch).sum()
}

#[test]
fn a_cluster_needs_what_its_stacks_make() {
    let least = Needs::for_cluster(&cluster(include_str!("../../../../../examples/minimal.yaml")));
    let of = |limit| amount(&least, limit);
    assert_eq!(
        (of(Limit::Vpcs), of(Limit::Balancers), of(Limit::NatGateways), of(Limit::Addresses)),
        (1, 1, 0, 0)
    );
    // Two gateways, each with an address of its own that exists; then one without.
    let text = include_str!("../../../../../examples/nat-per-zone.yaml");
    let zones = Needs::for_cluster(&cluster(text));
    assert_eq!((amount(&zones, Limit::NatGateways), amount(&zones, Limit::Addresses)), (2, 0), "{zones:?}");
    assert!(zones.nat_gateways.values().all(|number| *number == 1), "{zones:?}");
    let text = text.replace("    natGateway:\n      eipAllocationId: eipalloc-0123456789abcdef0\n", "");
    let zones = Needs::for_cluster(&cluster(&text));
    assert_eq!((amount(&zones, Limit::NatGateways), amount(&zones, Limit::Addresses)), (2, 1), "{zones:?}");
    let given = Needs::for_cluster(&cluster(include_str!("../../../../../examples/existing-vpc.yaml")));
    assert_eq!((amount(&given, Limit::Vpcs), amount(&given, Limit::Balancers)), (0, 2));
}

fn group(types: &[(&str, u32)], launch: u32, most: u32) -> Needs {
    let types = types.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    Needs { groups: vec![Group { types, spot: false, launch, most }], ..Needs::default() }
}

#[test]
fn of_several_types_the_one_counts_of_which_most_vcpus_may_run() {
    let standard = (Limit::Vcpus(Family::Standard), None);
    let of = |needs: &Needs| needs.amounts(&vcpus())[&standard];
    assert_eq!(of(&group(&[("m7g.large", 1)], 3, 5)), Amount { launch: 6, most: 10 });
    let alike = group(&[("m7g.large", 1), ("m7g.4xlarge", 8)], 4, 16);
    // One m7g.4xlarge for four units.
    assert_eq!(of(&alike), Amount { launch: 16, most: 32 });
    let both = group(&[("m7g.large", 1), ("g5g.xlarge", 1)], 2, 2).amounts(&vcpus());
    assert_eq!(both[&(Limit::Vcpus(Family::G), None)], Amount::fixed(8));
    assert_eq!(both[&standard], Amount::fixed(4));
}

#[test]
fn the_spot_part_of_a_pool_counts_for_the_quota_of_spot_instances() {
    let needs = Needs::for_cluster(&cluster(include_str!("../../../../../examples/spot.yaml")));
    let all: BTreeMap<String, u32> = needs.types().into_iter().map(|name| (name, 2)).collect();
    let amounts = needs.amounts(&all);
    let spot = amounts.get(&(Limit::SpotVcpus("L-34B43A08"), None)).copied().unwrap();
    let on_demand = amounts[&(Limit::Vcpus(Family::Standard), None)];
    // The first two are on demand, and the pool begins with two.
    assert!(spot.launch == 0 && spot.most > 0, "{amounts:?}");
    let whole =
        |of: fn(&Group) -> u32| needs.groups.iter().map(|group| u64::from(of(group)) * 2).sum::<u64>();
    assert_eq!(spot.launch + on_demand.launch, whole(|group| group.launch), "each machine counts once");
    assert_eq!(spot.most + on_demand.most, whole(|group| group.most));
    // Of families that have no such quota nothing is asked.
    let mut hpc = group(&[("hpc7g.4xlarge", 1)], 1, 1);
    hpc.groups[0].spot = true;
    assert_eq!(hpc.amounts(&[("hpc7g.4xlarge".to_owned(), 16)].into()), BTreeMap::new());
}

#[test]
fn only_the_on_demand_part_of_a_pool_counts_for_the_quota_of_on_demand_instances() {
    let mixed = |base, percentage| MixedInstances {
        types: Vec::new(),
        on_demand_base: base,
        on_demand_percentage: percentage,
        on_demand_strategy: None,
        spot_strategy: "lowest-price".to_owned(),
        capacity_rebalance: false,
    };
    assert_eq!(of_mixed(&mixed(0, 0), 10), 0);
    assert_eq!(of_mixed(&mixed(2, 0), 10), 2);
    assert_eq!(of_mixed(&mixed(2, 25), 11), 5);
    assert_eq!(of_mixed(&mixed(20, 100), 10), 10);
}

fn read(launch: u64, most: u64, quota: Read<Option<f64>>, used: Read<f64>) -> QuotasRead {
    QuotasRead {
        about: "cluster.yaml".to_owned(),
        region: "eu-west-1".to_owned(),
        no_types: Ok(BTreeSet::new()),
        no_family: BTreeSet::new(),
        rooms: vec![Room {
            limit: Limit::Vcpus(Family::Standard),
            zone: None,
            needed: Amount { launch, most },
            quota,
            used,
        }],
    }
}

fn one(read: &QuotasRead) -> Finding {
    let [finding] = &of_quotas(read)[..] else { panic!("{read:?}") };
    finding.clone()
}

#[test]
fn each_lack_of_room_is_one_finding_with_its_cure() {
    let fits = one(&read(8, 12, Ok(Some(16.0)), Ok(4.0)));
    assert!(
        fits.level == Level::Ok && fits.message.contains("(vCPUs of on-demand instances: 12)"),
        "{fits:?}"
    );
    let later = one(&read(8, 13, Ok(Some(16.0)), Ok(4.0)));
    assert!(later.level == Level::Warning && later.message.contains("needs 13: "), "{later:?}");
    let full = one(&read(13, 13, Ok(Some(16.0)), Ok(4.0)));
    assert_eq!(full.level, Level::Problem);
    assert!(full.message.ends_with("the quota L-1216C47A is 16, of which 4 are used"), "{full:?}");
    let cure = full.help.unwrap();
    assert!(
        cure.contains("--quota-code L-1216C47A --desired-value 17 --region eu-west-1")
            && cure.starts_with("aws service-quotas request-service-quota-increase --service-code ec2"),
        "{cure}"
    );
    let unread = Unread { why: "denied".to_owned(), help: "allow it".to_owned(), denied: true };
    for unknown in [
        one(&read(1, 1, Err(unread.clone()), Ok(0.0))),
        one(&read(1, 1, Ok(Some(5.0)), Err(unread.clone()))),
        one(&read(1, 1, Ok(None), Ok(0.0))),
        one(&QuotasRead { rooms: Vec::new(), no_types: Err(unread), ..read(1, 1, Ok(None), Ok(0.0)) }),
        one(&QuotasRead {
            rooms: Vec::new(),
            no_family: ["q9.large".to_owned()].into(),
            ..read(1, 1, Ok(None), Ok(0.0))
        }),
    ] {
        assert_eq!(unknown.level, Level::Unknown, "{unknown:?}");
    }
    let missing = QuotasRead {
        rooms: Vec::new(),
        no_types: Ok(["m9x.large".to_owned()].into()),
        ..read(1, 1, Ok(None), Ok(0.0))
    };
    assert!(one(&missing).message.contains("no instance type m9x.large in eu-west-1"));
}
