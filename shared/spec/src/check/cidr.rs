//! Ranges: what must lie inside what, and what must not meet. Whole ranges are compared, never first addresses alone
//! (kube-aws takes 10.0.0.0/8 for a part of 10.0.0.0/16).

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use slipway_core::cluster::{Subnet, SubnetSource};

use crate::path::Path;
use crate::report::Report;

struct Range {
    path: Path,
    what: String,
    net: Ipv4Net,
}

/// Addresses that mean something else on every machine (RFC 6890), the metadata service among them.
const RESERVED: [(Ipv4Net, &str); 4] = [
    (Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8), "nobody's"),
    (Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8), "loopback addresses of each machine"),
    (
        Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
        "link-local, among them that of AWS' metadata service",
    ),
    (Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 3), "for multicast, or reserved"),
];

/// Addresses that nobody has on the internet (RFC 1918, RFC 6598, RFC 2544).
const PRIVATE: [Ipv4Net; 5] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15),
];

fn private(net: &Ipv4Net) -> bool {
    PRIVATE.iter().any(|private| private.contains(net))
}

/// Reports every overlap once, at the later range of the list.
pub(crate) fn check(
    report: &mut Report<'_>,
    vpc: Option<Ipv4Net>,
    pods: Option<Ipv4Net>,
    services: Option<Ipv4Net>,
    subnets: &[Subnet],
    paths: &[Path],
) {
    let range = |key: &str, what: &str, net: Option<Ipv4Net>| {
        net.map(|net| Range { path: Path::parse(key), what: what.to_owned(), net })
    };
    let wide = [
        range("vpcCIDR", "the VPC", vpc),
        range("podCIDR", "the range of pods", pods),
        range("serviceCIDR", "the range of services", services),
    ];
    let wide: Vec<Range> = wide.into_iter().flatten().collect();
    for range in &wide {
        if let Some((_, what)) = RESERVED.iter().find(|(reserved, _)| overlap(reserved, &range.net)) {
            report.error(
                "cidr-reserved",
                &range.path,
                format!("{} ({}) holds addresses that are {what}", range.what, range.net),
                "choose a private range, such as a part of 10.0.0.0/8",
            );
        }
    }
    // A VPC may have such a range, which some own.
    for range in wide.iter().filter(|range| !private(&range.net)) {
        if report.refused(&range.path) {
            continue;
        }
        report.warning(
            "cidr-public",
            &range.path,
            format!(
                "{} ({}) holds addresses of the internet: from this cluster nobody reaches their owners",
                range.what, range.net
            ),
            "choose a private range, such as a part of 10.0.0.0/8, unless the addresses are yours",
        );
    }
    disjoint(report, &wide);
    let subnets: Vec<Range> = subnets
        .iter()
        .zip(paths)
        .filter_map(|(subnet, path)| match &subnet.source {
            SubnetSource::Managed { cidr, .. } => Some(Range {
                path: path.key("instanceCIDR"),
                what: format!("the subnet `{}`", subnet.name),
                net: *cidr,
            }),
            SubnetSource::Existing { .. } => None,
        })
        .collect();
    if let Some(vpc) = vpc {
        for subnet in subnets.iter().filter(|subnet| !vpc.contains(&subnet.net)) {
            report.error(
                "cidr-outside-vpc",
                &subnet.path,
                format!("{} ({}) does not lie inside the VPC ({vpc})", subnet.what, subnet.net),
                format!("choose a part of {vpc}, or widen `vpcCIDR`"),
            );
        }
    }
    disjoint(report, &subnets);
}

fn overlap(one: &Ipv4Net, other: &Ipv4Net) -> bool {
    one.contains(other) || other.contains(one)
}

fn disjoint(report: &mut Report<'_>, ranges: &[Range]) {
    for (index, later) in ranges.iter().enumerate() {
        for earlier in &ranges[..index] {
            if overlap(&later.net, &earlier.net) {
                report.error(
                    "cidr-overlap",
                    &later.path,
                    format!("{} ({}) overlaps {} ({})", later.what, later.net, earlier.what, earlier.net),
                    "choose ranges that have no address in common",
                );
            }
        }
    }
}
