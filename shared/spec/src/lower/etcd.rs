//! The etcd members: how many, where, and under which names.

use std::collections::BTreeMap;

use slipway_core::cluster::{Etcd, EtcdMember, KubernetesVersion, Volume};
use slipway_core::snapshots::{Retention, ScheduledSnapshots};
use slipway_core::versions;

use super::Lowering;
use super::balancers::is_zone_id;
use super::network::Draft;
use crate::model::{
    EtcdNodeSpec, EtcdSpec, EtcdTopology, MemberVolumeSpec, SnapshotsSpec, VolumeKind, VolumeSpec,
};
use crate::path::Path;
use crate::text::{is_dns_label, is_dns_name};

const DATA_GIB: u32 = 30;
/// Domains of AWS' services, and of the names of machines (docs.aws.amazon.com/vpc, "DNS attributes for your VPC").
const OF_AWS: [&str; 3] = ["amazonaws.com", "amazonaws.com.cn", "api.aws"];
const OF_MACHINES: [&str; 2] = ["compute.internal", "ec2.internal"];
/// What etcd takes without a quota (etcd.io/docs, "System limits").
const QUOTA_GIB: u32 = 2;
/// The largest quota of which every snapshot surely fits into one call of S3, which takes 5 GiB: a file may grow a little beyond its quota.
const SNAPSHOT_QUOTA_GIB: u32 = 4;
/// Members beyond five slow every write and save nothing (etcd.io, "FAQ: what is maximum cluster size").
const COUNTS: [u32; 3] = [1, 3, 5];

/// The subnets that members may be in, and the domain of their names.
struct Place<'a> {
    subnets: &'a [String],
    domain: &'a str,
    network: &'a Draft,
}

impl Lowering<'_, '_, '_> {
    pub(super) fn etcd(
        &mut self,
        cluster: Option<&str>,
        version: Option<KubernetesVersion>,
        network: &Draft,
    ) -> Option<Etcd> {
        let spec = &self.spec.etcd;
        let path = Path::parse("etcd");
        if spec.topology == Some(EtcdTopology::Stacked) {
            self.report.error(
                "etcd-stacked",
                &path.key("topology"),
                "etcd on the controllers (`stacked`) is not supported yet",
                "remove the line: etcd runs on machines of its own, and `count: 1` is enough for a small cluster",
            );
        }
        let count = self.etcd_count(spec, &path);
        let subnets_path = path.key("subnets");
        let subnets = self.subnet_names(&spec.subnets, &subnets_path, network.names_for_nodes(), network);
        self.one_kind(&subnets, &subnets_path, network);
        self.security_groups(&spec.security_group_ids, &path.key("securityGroupIds"));
        self.etcd_version(spec.version.as_deref(), version);
        self.etcd_environment(spec, &path);
        let hosted_zone_id = self.etcd_zone(spec, &path);
        let internal_domain = self.etcd_domain(spec, cluster, &path.key("internalDomainName"));
        // Settings of all members are checked once, those of one member with the member.
        let common = self.volume(&spec.data_volume, DATA_GIB, &path.key("dataVolume"))?;
        self.etcd_disk(common.size_gib, &path.key("dataVolume"));
        self.etcd_snapshot_size();
        let place =
            Place { subnets: &subnets, domain: internal_domain.as_deref().unwrap_or_default(), network };
        let members = self.members(count, &common, &place)?;
        Some(Etcd {
            instance_type: self.instance_type(spec.instance_type.as_deref(), &path),
            version: spec.version.clone(),
            quota_gib: spec.quota,
            root_volume: self.root_volume(
                &spec.root_volume,
                self.image_of_cluster(),
                &path.key("rootVolume"),
            )?,
            internal_domain: internal_domain?,
            hosted_zone_id,
            members,
            security_group_ids: spec.security_group_ids.clone(),
            // Each member has a role of its own, so that it reads its own bundle alone.
            iam: self.iam(
                &spec.iam,
                cluster.map(|cluster| format!("{cluster}-etcd")),
                "-0",
                &path.key("iam"),
            ),
            tenancy: spec.tenancy.unwrap_or_default(),
            custom: self.custom(&spec.custom_files, &spec.custom_systemd_units, &path),
            snapshots: self.snapshots(&spec.snapshots, &path.key("snapshots")),
        })
    }

    fn snapshots(&mut self, spec: &SnapshotsSpec, path: &Path) -> Option<ScheduledSnapshots> {
        let default = Retention::default();
        let all_days = spec.keep.all_days.unwrap_or(default.all_days);
        let daily_days = spec.keep.daily_days.unwrap_or(default.daily_days.max(all_days));
        if daily_days < all_days {
            let message = format!(
                "all snapshots are kept for {all_days} days, so keeping the last one of each day for {daily_days} days has no effect"
            );
            let help = format!("write {all_days} or more, or a smaller `allDays`");
            self.report.error("etcd-snapshots", &path.key("keep").key("dailyDays"), message, help);
        }
        let every_hours = spec.every_hours.unwrap_or(ScheduledSnapshots::default().every_hours);
        let at_least = spec.keep.at_least.unwrap_or(default.at_least);
        let keep = Retention { all_days, daily_days, at_least };
        spec.enabled.unwrap_or(true).then_some(ScheduledSnapshots { every_hours, keep })
    }

    /// Whether the database has room. With a full disk etcd stops, which its quota is to prevent; beside the database the volume has the
    /// log, snapshots and, while a member defragments, a second copy (etcd.io/docs, "Maintenance": "Space quota", "Defragmentation").
    fn etcd_disk(&mut self, size_gib: u32, volume: &Path) {
        let spec = &self.spec.etcd;
        let quota_gib = spec.quota.unwrap_or(QUOTA_GIB);
        let own = if spec.quota.is_some() { "" } else { ", etcd's own limit" };
        let help = format!("write a `dataVolume.size` of {} or more, or a smaller `quota`", 2 * quota_gib);
        let place = volume.key("size");
        let place = if self.report.has(&place) { place } else { Path::parse("etcd.quota") };
        if size_gib <= quota_gib {
            let message = format!(
                "etcd's database may grow to {quota_gib} GiB{own}, and its volume has {size_gib} GiB: etcd stops once the disk is full"
            );
            if spec.quota.is_some() {
                self.report.error("etcd-disk", &place, message, help);
            } else {
                self.report.warning("etcd-disk", &place, message, help);
            }
        } else if size_gib < 2 * quota_gib {
            let message = format!(
                "etcd's database may grow to {quota_gib} GiB{own}, and its volume of {size_gib} GiB has no room for a copy: a database of that size cannot be defragmented"
            );
            self.report.warning("etcd-disk", &place, message, help);
        }
    }

    /// Whether a full database can be stored: a snapshot is as large as the database's file, and S3 takes 5 GiB in one call. A warning, because
    /// clusters with such a quota run, and a spec that is refused stops renewals.
    fn etcd_snapshot_size(&mut self) {
        let Some(quota_gib) = self.spec.etcd.quota.filter(|quota| *quota > SNAPSHOT_QUOTA_GIB) else {
            return;
        };
        let message = format!(
            "etcd's database may grow to {quota_gib} GiB, and no snapshot of more than 5 GiB can be stored: without one, no member is replaced or gets new certificates"
        );
        let help = format!(
            "write a `quota` of {SNAPSHOT_QUOTA_GIB} or less; the scan reports a database file of 4.5 GiB and more"
        );
        self.report.warning("etcd-snapshot-size", &Path::parse("etcd.quota"), message, help);
    }

    fn etcd_count(&mut self, spec: &EtcdSpec, path: &Path) -> u32 {
        let named = u32::try_from(spec.nodes.len()).unwrap_or(u32::MAX);
        let count = spec.count.unwrap_or(named.max(1));
        if !COUNTS.contains(&count) {
            let message = match count {
                0 => "a cluster without etcd cannot store its state".to_owned(),
                2 | 4 => format!(
                    "{count} etcd members survive as few failures as {}, because most of them have to run",
                    count - 1
                ),
                _ => format!("{count} etcd members are slower than 5, and hardly safer"),
            };
            let at = path.key(if spec.count.is_some() { "count" } else { "nodes" });
            self.report.error("etcd-count", &at, message, "write 1, 3 or 5");
        } else if named > count {
            let message = format!("`nodes` describes {named} members, and `count` asks for {count}");
            let help = format!("remove the surplus entries, or write `count: {named}`");
            self.report.error("etcd-nodes", &path.key("nodes"), message, help);
        }
        count
    }

    fn etcd_zone(&mut self, spec: &EtcdSpec, path: &Path) -> Option<String> {
        let path = path.key("hostedZone");
        let Some(id) = &spec.hosted_zone.id else {
            if self.report.has(&path) && !self.report.refused(&path) {
                let help = "add its `id`, or remove the key: a zone is made then";
                self.report.error("id-syntax", &path, "the hosted zone is not named", help);
            }
            return None;
        };
        let id = id.strip_prefix("/hostedzone/").unwrap_or(id);
        if !is_zone_id(id) {
            self.report.error(
                "id-syntax",
                &path.key("id"),
                format!("`{id}` is not the id of a hosted zone"),
                "write one such as `Z0123456789ABC`",
            );
        }
        if spec.internal_domain_name.is_none() {
            self.report.error(
                "etcd-domain",
                &path,
                "`etcd.hostedZone` is given, but not `etcd.internalDomainName`, which says what the names in it end with",
                "add `internalDomainName`: the zone's domain, or one below it that no other cluster uses",
            );
        }
        Some(id.to_owned())
    }

    fn etcd_domain(&mut self, spec: &EtcdSpec, cluster: Option<&str>, path: &Path) -> Option<String> {
        let Some(domain) = &spec.internal_domain_name else {
            return cluster.map(|cluster| format!("{}.etcd.internal", cluster.to_ascii_lowercase()));
        };
        let domain = plain(domain);
        if !is_dns_name(&domain) || !domain.contains('.') {
            self.report.error(
                "dns-name",
                path,
                format!("`{domain}` is not a domain for a private zone"),
                "write a name such as `prod.etcd.internal`, which exists in this VPC alone",
            );
        }
        self.hides(&domain, path);
        Some(domain)
    }

    /// Within its VPC a private zone answers for all names below its domain, also for those that it does not have
    /// (docs.aws.amazon.com/Route53, "Considerations when working with a private hosted zone").
    fn hides(&mut self, domain: &str, path: &Path) {
        if self.report.has(&Path::parse("etcd.hostedZone")) {
            return;
        }
        let spec = self.spec;
        let below = |name: &str| {
            let name = plain(name);
            name == domain || name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
        };
        let endpoints = spec.api_endpoints.iter().filter_map(|endpoint| endpoint.dns_name.as_deref());
        let mut names = endpoints.chain(spec.external_dns_name.as_deref());
        let help = "write a domain that has no other names, such as `prod.etcd.internal`: a private zone is made for it, and hides all others below it in the VPC";
        if let Some(name) = names.find(|name| below(name)) {
            let message = format!(
                "a private zone for `{domain}` would hide {name} from the nodes, which reach the API by it"
            );
            self.report.error("etcd-domain", path, message, help);
        } else if OF_AWS.iter().any(|aws_domain| {
            domain == *aws_domain || domain.strip_suffix(aws_domain).is_some_and(|rest| rest.ends_with('.'))
        }) {
            let message = format!("a private zone for `{domain}` would hide names of AWS from the nodes");
            self.report.error("etcd-domain", path, message, help);
        } else if OF_MACHINES.iter().any(|ec2_domain| {
            domain == *ec2_domain || domain.strip_suffix(ec2_domain).is_some_and(|rest| rest.ends_with('.'))
        }) {
            let message =
                format!("a private zone for `{domain}` would hide the names that EC2 gives to machines");
            self.report.warning("etcd-domain", path, message, help);
        }
    }

    /// One member in each subnet in turn, unless it names its own; warns where the loss of one zone would cost the quorum.
    fn members(&mut self, count: u32, common: &Volume, place: &Place<'_>) -> Option<Vec<EtcdMember>> {
        let nodes = &self.spec.etcd.nodes;
        let root = Path::parse("etcd.nodes");
        let most = COUNTS[COUNTS.len() - 1];
        let nothing = EtcdNodeSpec::default();
        let mut members = Vec::new();
        for (index, subnet) in (0..count.min(most)).zip(place.subnets.iter().cycle()) {
            let at = index as usize;
            let node = nodes.get(at).unwrap_or(&nothing);
            let name = self.member_name(node, index, &root.index(at).key("name"));
            members.push(EtcdMember {
                index,
                dns_name: self.member_dns_name(node, &name, place.domain, &root.index(at)),
                name,
                subnet: self.member_subnet(node, subnet, &root.index(at).key("subnet"), place.network),
                data_volume: self.member_volume(node, common, &root.index(at).key("dataVolume"))?,
            });
        }
        let at = |member: &EtcdMember, key: &str| root.index(member.index as usize).key(key);
        self.unique(
            members.iter().map(|it| (it.name.as_str(), at(it, "name"))),
            "member",
            str::to_ascii_lowercase,
        );
        // Members with the same name also have the same DNS name, which is not reported again.
        if !self.report.refused(&root) {
            self.unique(
                members.iter().map(|it| (it.dns_name.as_str(), at(it, "fqdn"))),
                "DNS name",
                str::to_owned,
            );
        }
        self.members_zones(&members, count, place.network);
        Some(members)
    }

    fn member_name(&mut self, node: &EtcdNodeSpec, index: u32, path: &Path) -> String {
        let name = node.name.clone().unwrap_or_else(|| format!("etcd-{index}"));
        if !is_dns_label(&name) {
            self.report.error(
                "name-syntax",
                path,
                format!("`{name}` cannot be a member's name"),
                "write letters, digits and hyphens, 63 at most: it begins the member's DNS name",
            );
        }
        name
    }

    fn member_dns_name(&mut self, node: &EtcdNodeSpec, name: &str, domain: &str, path: &Path) -> String {
        let Some(fqdn) = &node.fqdn else {
            let whole = format!("{}.{domain}", plain(name));
            if is_dns_label(name) && is_dns_name(domain) && !is_dns_name(&whole) {
                let message = format!("the member's DNS name would have {} characters", whole.len());
                let help = "shorten it, or the domain: DNS takes 253";
                self.report.error("dns-name", &path.key("name"), message, help);
            }
            return whole;
        };
        let (whole, path) = (plain(fqdn), path.key("fqdn"));
        if !is_dns_name(&whole) {
            let help = "write a name such as `etcd-0.prod.etcd.internal`";
            self.report.error("dns-name", &path, format!("`{whole}` is not a DNS name"), help);
        } else if !domain.is_empty() && !whole.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')) {
            self.report.error(
                "etcd-domain",
                &path,
                format!("`{whole}` does not lie in `{domain}`, where the members' records are kept"),
                "write a name below it, or set `etcd.internalDomainName` to the domain that holds all of them",
            );
        }
        whole
    }

    fn member_subnet(&mut self, node: &EtcdNodeSpec, next: &str, path: &Path, network: &Draft) -> String {
        let Some(name) = node.subnet.as_ref().and_then(|subnet| subnet.name.as_deref()) else {
            return next.to_owned();
        };
        if network.subnet(name).is_none() && !network.incomplete {
            let known: Vec<&str> = network.subnets.iter().map(|one| one.name.as_str()).collect();
            let help = format!("write one of `{}`", known.join("`, `"));
            self.report.error(
                "unknown-subnet",
                &path.key("name"),
                format!("there is no subnet `{name}`"),
                help,
            );
        }
        name.to_owned()
    }

    fn member_volume(&mut self, node: &EtcdNodeSpec, common: &Volume, path: &Path) -> Option<Volume> {
        if !self.report.has(path) {
            return Some(common.clone());
        }
        let volume =
            self.volume(&inherited(&node.data_volume, &self.spec.etcd.data_volume), DATA_GIB, path)?;
        if node.data_volume.size.is_some() {
            self.etcd_disk(volume.size_gib, path);
        }
        Some(volume)
    }

    fn members_zones(&mut self, members: &[EtcdMember], count: u32, network: &Draft) {
        let nodes = Path::parse("etcd.nodes");
        if self.report.has(&nodes) && !self.report.refused(&Path::parse("etcd.subnets")) {
            let places: Vec<String> = members.iter().map(|member| member.subnet.clone()).collect();
            self.one_kind(&places, &nodes, network);
        }
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        for subnet in members.iter().filter_map(|member| network.subnet(&member.subnet)) {
            *zones.entry(&subnet.availability_zone).or_default() += 1;
        }
        let may_fail = members.len().saturating_sub(members.len() / 2 + 1);
        let widest = zones.iter().max_by_key(|(_, members)| **members);
        if let Some((zone, there)) =
            widest.filter(|(_, there)| **there > may_fail && count > 1 && COUNTS.contains(&count))
        {
            let written = ["etcd.nodes", "etcd.subnets"]
                .map(Path::parse)
                .into_iter()
                .find(|path| self.report.has(path));
            let path = written.unwrap_or_else(|| Path::parse("etcd.count"));
            let message = format!(
                "{there} of {} etcd members stand in {zone}: without that zone the cluster has no quorum",
                members.len()
            );
            self.report.warning("etcd-zones", &path, message, "name subnets in three zones");
        }
    }

    fn etcd_version(&mut self, text: Option<&str>, kubernetes: Option<KubernetesVersion>) {
        let Some(text) = text else { return };
        let path = Path::parse("etcd.version");
        let parts: Option<Vec<u16>> = text.split('.').map(|part| part.parse().ok()).collect();
        let wanted = kubernetes.and_then(versions::etcd);
        match parts.as_deref() {
            Some([3, 5..=7, _]) => {
                let minor =
                    |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u16>().ok());
                if let Some(wanted) = wanted.filter(|wanted| minor(text) < minor(wanted)) {
                    let message = format!(
                        "etcd {text} is older than the {wanted} that this Kubernetes release is tested with"
                    );
                    self.report.warning(
                        "etcd-version",
                        &path,
                        message,
                        "remove the line, unless etcd is to be upgraded later",
                    );
                }
            }
            Some(_) | None => {
                let help = format!(
                    "write one such as `{}`, or remove the line",
                    wanted.unwrap_or(versions::NEWEST.etcd)
                );
                self.report.error(
                    "etcd-version",
                    &path,
                    format!("`{text}` is not an etcd release that is supported"),
                    help,
                );
            }
        }
    }
}

/// DNS names compare without case and without the root's dot.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// A member's volume: its own settings, and for the rest those of all. Operations and throughput belong to a kind of volume: who
/// names another kind does not inherit them.
fn inherited(own: &MemberVolumeSpec, all: &VolumeSpec) -> VolumeSpec {
    let of_all = all.kind.unwrap_or(VolumeKind::Gp3);
    let same_kind = own.kind.is_none_or(|kind| kind == of_all);
    let speed = if same_kind { all.clone() } else { VolumeSpec::default() };
    VolumeSpec {
        size: own.size.or(all.size),
        kind: own.kind.or(all.kind),
        iops: own.iops.or(speed.iops),
        throughput: own.throughput.or(speed.throughput),
        kms_key_arn: own.kms_key_arn.clone().or_else(|| all.kms_key_arn.clone()),
        encrypted: own.encrypted,
    }
}
