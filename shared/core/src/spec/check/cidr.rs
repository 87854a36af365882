//! Ranges: what must lie inside what, and what must not meet. Whole ranges are compared, never first addresses alone
//! (kube-aws takes 10.0.0.0/8 for a part of 10.0.0.0/16).

use ipnet::Ipv4Net;

use crate::cluster::{Subnet, SubnetSource};
use crate::spec::path::Path;
use crate::spec::report::Report;

struct Range {
    path: Path,
    what: String,
    net: Ipv4Net,
}

/// Reports every overlap once, at the range that stands later in the list.
pub(crate) fn check(
    report: &mut Report<'_>,
    vpc: Option<Ipv4Net>,
    pods: Option<Ipv4Net>,
    services: Option<Ipv4Net>,
    subnets: &[Subnet],
    paths: &[Path],
) {
    let range = |key: &str, what: &str, net: Option<Ipv4Net>| {
        net.map(|net| Range { path: Path::of(key), what: what.to_owned(), net })
    };
    let wide = [
        range("vpcCIDR", "the VPC", vpc),
        range("podCIDR", "the range of pods", pods),
        range("serviceCIDR", "the range of services", services),
    ];
    disjoint(report, &wide.into_iter().flatten().collect::<Vec<_>>());
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

fn disjoint(report: &mut Report<'_>, ranges: &[Range]) {
    for (index, later) in ranges.iter().enumerate() {
        for earlier in &ranges[..index] {
            if later.net.contains(&earlier.net) || earlier.net.contains(&later.net) {
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
