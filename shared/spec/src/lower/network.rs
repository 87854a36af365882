//! VPC, subnets and the other ranges.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use slipway_core::cluster::{Egress, Existing, Network, Subnet, SubnetSource, Vpc};

use super::Lowering;
use crate::check::cidr;
use crate::path::Path;

const VPC_CIDR: &str = "10.0.0.0/16";
const POD_CIDR: &str = "10.2.0.0/16";
const SERVICE_CIDR: &str = "10.3.0.0/24";
/// The DNS service's place in the service range, as with kube-aws and kubeadm.
const DNS_OFFSET: u32 = 10;

/// A network that may have errors. Other parts resolve names against it all the same.
pub(super) struct Draft {
    pub(super) vpc: Option<Vpc>,
    pub(super) internet_gateway_id: Option<Existing>,
    /// Those about which everything is known.
    pub(super) subnets: Vec<Subnet>,
    /// Where each of `subnets` is written.
    pub(super) paths: Vec<Path>,
    /// Some subnet was refused: a name that is not found may be that one's.
    pub(super) incomplete: bool,
    pub(super) pod_cidr: Option<Ipv4Net>,
    service_cidr: Option<Ipv4Net>,
    dns_service_ip: Option<Ipv4Addr>,
    ssh_source_cidrs: Vec<Ipv4Net>,
}

impl Draft {
    pub(super) fn finish(self) -> Option<Network> {
        Some(Network {
            vpc: self.vpc?,
            internet_gateway_id: self.internet_gateway_id,
            subnets: self.subnets,
            pod_cidr: self.pod_cidr?,
            service_cidr: self.service_cidr?,
            dns_service_ip: self.dns_service_ip?,
            ssh_source_cidrs: self.ssh_source_cidrs,
        })
    }

    pub(super) fn subnet(&self, name: &str) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| subnet.name == name)
    }

    /// Names of the private subnets, or of the public ones.
    pub(super) fn names(&self, private: bool) -> Vec<String> {
        self.subnets
            .iter()
            .filter(|subnet| subnet.private == private)
            .map(|subnet| subnet.name.clone())
            .collect()
    }

    /// The subnets of nodes by default: the private ones, or the public ones if there are none.
    pub(super) fn names_for_nodes(&self) -> Vec<String> {
        let private = self.names(true);
        if private.is_empty() { self.names(false) } else { private }
    }
}

impl Lowering<'_, '_, '_> {
    pub(super) fn network(&mut self, region: Option<&str>) -> Draft {
        let spec = self.spec;
        let vpc_id = self.existing_or(&spec.vpc, "vpc", spec.vpc_id.as_deref(), "vpcId", "vpc");
        let internet_gateway_id = self.existing_or(
            &spec.internet_gateway,
            "internetGateway",
            spec.internet_gateway_id.as_deref(),
            "internetGatewayId",
            "igw",
        );
        let vpc = self.vpc(vpc_id);
        let pod_cidr =
            self.range(spec.pod_cidr.as_deref(), POD_CIDR, "podCIDR", 8..=24, "each node takes a /24 of it");
        let service_cidr = self.range(
            spec.service_cidr.as_deref(),
            SERVICE_CIDR,
            "serviceCIDR",
            12..=28,
            "kube-apiserver takes no more than a /12",
        );
        let mut draft = Draft {
            vpc,
            internet_gateway_id,
            subnets: Vec::new(),
            paths: Vec::new(),
            incomplete: false,
            pod_cidr,
            service_cidr,
            dns_service_ip: None,
            ssh_source_cidrs: self.ssh_source_cidrs(),
        };
        draft.dns_service_ip = self.dns_service_ip(draft.service_cidr);
        self.subnets(region, &mut draft);
        self.gateway_in_use(&draft);
        cidr::check(
            self.report,
            draft.vpc.as_ref().map(Vpc::cidr),
            draft.pod_cidr,
            draft.service_cidr,
            &draft.subnets,
            &draft.paths,
        );
        draft
    }

    /// A gateway that no subnet of ours leads to is a mistake, though one without consequence.
    fn gateway_in_use(&mut self, draft: &Draft) {
        let used = draft.subnets.iter().any(|subnet| {
            matches!(&subnet.source, SubnetSource::Managed { egress: Egress::InternetGateway, .. })
        });
        if draft.internet_gateway_id.is_some() && !used && !draft.incomplete {
            self.report.warning(
                "no-effect",
                &Path::parse("internetGateway"),
                "no subnet is routed to this gateway: those that exist, and those with a `routeTable`, keep their own routes",
                "remove it",
            );
        }
    }

    /// From where ssh is let in.
    fn ssh_source_cidrs(&mut self) -> Vec<Ipv4Net> {
        let path = Path::parse("sshAccessAllowedSourceCIDRs");
        let texts = &self.spec.ssh_access_allowed_source_cidrs;
        let ranges: Vec<Ipv4Net> = texts
            .iter()
            .enumerate()
            .filter_map(|(index, text)| self.cidr(text, &path.index(index)))
            .collect();
        if ranges.iter().any(|range| range.prefix_len() == 0) {
            self.report.warning(
                "ssh-open-to-all",
                &path,
                "port 22 of every node is open to everybody",
                "name the ranges of your own networks, or remove the key: Session Manager needs no open port",
            );
        }
        ranges
    }

    fn vpc(&mut self, id: Option<Existing>) -> Option<Vpc> {
        const SIZES: std::ops::RangeInclusive<u8> = 16..=28;
        const WHY: &str = "a VPC takes no other";
        let path = Path::parse("vpcCIDR");
        match (id, self.spec.vpc_cidr.as_deref()) {
            (None, cidr) => Some(Vpc::Managed(self.range(cidr, VPC_CIDR, "vpcCIDR", SIZES, WHY)?)),
            (Some(id), Some(cidr)) => {
                Some(Vpc::Existing { id, cidr: self.cidr_sized(cidr, &path, SIZES, WHY)? })
            }
            (Some(_), None) => {
                if !self.report.has(&path) {
                    let help = "add `vpcCIDR` with the VPC's range: subnets and the other ranges are checked against it";
                    self.report.error(
                        "missing-key",
                        &Path::parse("vpc"),
                        "the range of the existing VPC is not given",
                        help,
                    );
                }
                None
            }
        }
    }

    fn range(
        &mut self,
        text: Option<&str>,
        default: &str,
        key: &str,
        sizes: std::ops::RangeInclusive<u8>,
        why: &str,
    ) -> Option<Ipv4Net> {
        self.cidr_sized(text.unwrap_or(default), &Path::parse(key), sizes, why)
    }

    fn dns_service_ip(&mut self, service: Option<Ipv4Net>) -> Option<Ipv4Addr> {
        let path = Path::parse("dnsServiceIP");
        let service = service?;
        let Some(text) = self.spec.dns_service_ip.as_deref() else {
            return Some(Ipv4Addr::from(u32::from(service.network()) + DNS_OFFSET));
        };
        let Ok(ip) = text.parse::<Ipv4Addr>() else {
            self.report.error(
                "dns-service-ip",
                &path,
                format!("`{text}` is not an IPv4 address"),
                format!("write an address of {service}"),
            );
            return None;
        };
        let first = Ipv4Addr::from(u32::from(service.network()) + 1);
        let why = if !service.contains(&ip) {
            format!("`{ip}` lies outside the service range {service}")
        } else if ip == first {
            format!("`{ip}` is the first address of the service range, which is the API's own")
        } else if ip == service.network() || ip == service.broadcast() {
            format!("`{ip}` is an edge of the service range {service}")
        } else {
            return Some(ip);
        };
        let proposed = Ipv4Addr::from(u32::from(service.network()) + DNS_OFFSET);
        self.report.error("dns-service-ip", &path, why, format!("write `{proposed}`, or remove the line"));
        None
    }
}
