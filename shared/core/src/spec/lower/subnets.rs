//! The subnets, how each reaches the internet, and the names by which nodes and load balancers refer to them.

use super::network::Draft;
use super::text::is_name;
use super::{Lowering, fold};
use crate::cluster::{Egress, Subnet, SubnetSource, Vpc};
use crate::spec::model::{SubnetRef, SubnetSpec};
use crate::spec::path::Path;
use crate::spec::regions;
use crate::spec::shape::nearest;

/// kube-aws' single subnet.
const INSTANCE_CIDR: &str = "10.0.0.0/24";

impl Lowering<'_, '_, '_> {
    pub(super) fn subnets(&mut self, region: Option<&str>, draft: &mut Draft) {
        let spec = self.spec;
        let root = Path::of("subnets");
        let single;
        let specs: &[SubnetSpec] = if spec.subnets.is_empty() && !self.report.refused(&root) {
            let zone = Path::of("availabilityZone");
            if self.report.has(&root) || spec.availability_zone.is_none() {
                draft.incomplete = true;
                if !self.report.refused(&zone) {
                    let help = "add `subnets`, each with `availabilityZone` and `instanceCIDR`, or `availabilityZone` for a single one";
                    self.report.error("missing-key", &root, "the cluster has no subnet", help);
                }
                return;
            }
            single = [SubnetSpec {
                availability_zone: spec.availability_zone.clone(),
                instance_cidr: Some(spec.instance_cidr.clone().unwrap_or_else(|| INSTANCE_CIDR.to_owned())),
                ..SubnetSpec::default()
            }];
            &single
        } else {
            for (key, given) in [
                ("availabilityZone", spec.availability_zone.is_some()),
                ("instanceCIDR", spec.instance_cidr.is_some()),
            ] {
                if given {
                    let message = format!("`{key}` is for a cluster without `subnets`");
                    self.report.error(
                        "given-twice",
                        &Path::of(key),
                        message,
                        "remove it: each of `subnets` has its own",
                    );
                }
            }
            &spec.subnets
        };
        draft.incomplete = self.report.refused(&root);
        let alone = spec.subnets.is_empty();
        for (index, subnet) in specs.iter().enumerate() {
            let path = if alone { Path::default() } else { root.index(index) };
            match self.subnet(subnet, index, &path, region, draft) {
                Some(subnet) => {
                    draft.subnets.push(subnet);
                    draft.paths.push(path);
                }
                None => draft.incomplete = true,
            }
        }
        let names: Vec<(String, Path)> = specs
            .iter()
            .enumerate()
            .map(|(index, subnet)| (name_of(subnet, index), root.index(index).key("name")))
            .collect();
        self.unique(names.iter().map(|(name, path)| (name.as_str(), path.clone())), "subnet", fold);
        if !draft.incomplete {
            self.nat_gateways(draft);
        }
    }

    fn subnet(
        &mut self,
        spec: &SubnetSpec,
        index: usize,
        path: &Path,
        region: Option<&str>,
        draft: &Draft,
    ) -> Option<Subnet> {
        let name = name_of(spec, index);
        if !is_name(&name) {
            self.report.error(
                "name-syntax",
                &path.key("name"),
                format!("`{name}` cannot be a subnet's name"),
                "begin with a letter, go on with letters, digits and hyphens, 63 at most",
            );
        }
        let zone = spec.availability_zone.clone();
        if let (Some(zone), Some(region)) = (&zone, region)
            && !regions::holds(region, zone)
        {
            self.report.error(
                "unknown-zone",
                &path.key("availabilityZone"),
                format!("`{zone}` is no availability zone of {region}"),
                format!("write one such as `{region}a`"),
            );
        }
        let source = match &spec.id {
            Some(id) => self.existing_subnet(spec, id, path, draft),
            None => self.managed_subnet(spec, path, draft),
        };
        Some(Subnet { name, availability_zone: zone?, private: spec.private, source: source? })
    }

    fn existing_subnet(
        &mut self,
        spec: &SubnetSpec,
        id: &str,
        path: &Path,
        draft: &Draft,
    ) -> Option<SubnetSource> {
        self.id(Some(&(path.key("id"), id.to_owned())), "subnet");
        if matches!(draft.vpc, Some(Vpc::Managed(_))) {
            let help = "add `vpc: {id: …}` with the VPC in which it lies";
            self.report.error(
                "subnet-without-vpc",
                &path.key("id"),
                "an existing subnet cannot lie in a VPC that is yet to be made",
                help,
            );
        }
        let settings = [
            ("instanceCIDR", spec.instance_cidr.is_some()),
            ("natGateway", spec.nat_gateway.id.is_some() || spec.nat_gateway.eip_allocation_id.is_some()),
            ("routeTable", spec.route_table.id.is_some()),
        ];
        for (key, _) in settings.into_iter().filter(|(_, given)| *given) {
            let message = format!("`{key}` has no effect on an existing subnet");
            self.report.warning(
                "no-effect",
                &path.key(key),
                message,
                "remove it: a subnet with `id` is used as it is",
            );
        }
        Some(SubnetSource::Existing { id: id.to_owned() })
    }

    fn managed_subnet(&mut self, spec: &SubnetSpec, path: &Path, draft: &Draft) -> Option<SubnetSource> {
        let cidr_path = path.key("instanceCIDR");
        let cidr = match &spec.instance_cidr {
            Some(text) => self.cidr_sized(text, &cidr_path, 16..=28, "a subnet takes no other"),
            None => {
                if !self.report.has(&cidr_path)
                    && !self.report.refused(&cidr_path)
                    && !self.report.refused_itself(path)
                {
                    let help = "add `instanceCIDR` for a subnet to be made, or `id` for one that exists";
                    self.report.error("missing-key", path, "the subnet has neither a range nor an id", help);
                }
                None
            }
        };
        let nat = &spec.nat_gateway;
        self.id(nat.id.clone().map(|id| (path.key("natGateway").key("id"), id)).as_ref(), "nat");
        self.id(
            nat.eip_allocation_id
                .clone()
                .map(|id| (path.key("natGateway").key("eipAllocationId"), id))
                .as_ref(),
            "eipalloc",
        );
        self.id(spec.route_table.id.clone().map(|id| (path.key("routeTable").key("id"), id)).as_ref(), "rtb");
        let has_nat = nat.id.is_some() || nat.eip_allocation_id.is_some();
        if has_nat && !spec.private {
            let help =
                "write `private: true` if its machines reach the internet through a gateway, else remove it";
            self.report.error(
                "nat-of-public-subnet",
                &path.key("natGateway"),
                "a public subnet needs no NAT gateway",
                help,
            );
        }
        if nat.id.is_some() && nat.eip_allocation_id.is_some() {
            let help = "keep `id` for a gateway that exists, or `eipAllocationId` for one to be made";
            self.report.error(
                "given-twice",
                &path.key("natGateway"),
                "the NAT gateway both exists and is to be made",
                help,
            );
        }
        if has_nat && spec.route_table.id.is_some() {
            let help = "keep `routeTable` for a table that exists, or `natGateway` to have one made";
            self.report.error(
                "given-twice",
                &path.key("natGateway"),
                "the subnet has a route table and a NAT gateway",
                help,
            );
        }
        let egress = match (&spec.route_table.id, spec.private, &nat.id) {
            (Some(id), _, _) => Egress::RouteTable { id: id.clone() },
            (None, false, _) => {
                if matches!(draft.vpc, Some(Vpc::Existing { .. })) && draft.internet_gateway_id.is_none() {
                    let help = "add `internetGateway: {id: …}`, or give the subnet a `routeTable` that leads to it, or make it `private`";
                    self.report.error(
                        "no-internet-gateway",
                        path,
                        "a public subnet in an existing VPC needs its internet gateway",
                        help,
                    );
                }
                Egress::InternetGateway
            }
            (None, true, Some(id)) => Egress::ExistingNat { id: id.clone() },
            // Which public subnet holds the gateway is settled when all subnets are known.
            (None, true, None) => Egress::ManagedNat {
                public_subnet: String::new(),
                eip_allocation_id: nat.eip_allocation_id.clone(),
            },
        };
        Some(SubnetSource::Managed { cidr: cidr?, egress })
    }

    /// Gives each NAT gateway its public subnet: one in the same zone, so that no traffic crosses zones, else the first.
    fn nat_gateways(&mut self, draft: &mut Draft) {
        let public: Vec<(String, String)> = draft
            .subnets
            .iter()
            .filter(|subnet| !subnet.private)
            .map(|subnet| (subnet.availability_zone.clone(), subnet.name.clone()))
            .collect();
        for (subnet, path) in draft.subnets.iter_mut().zip(&draft.paths) {
            let zone = &subnet.availability_zone;
            let SubnetSource::Managed { egress: Egress::ManagedNat { public_subnet, .. }, .. } =
                &mut subnet.source
            else {
                continue;
            };
            match public.iter().find(|(of, _)| of == zone).or(public.first()) {
                Some((_, name)) => public_subnet.clone_from(name),
                None => self.report.error(
                    "no-public-subnet",
                    path,
                    format!("the private subnet `{}` has no way out", subnet.name),
                    "add a public subnet for its NAT gateway, or give `natGateway: {id: …}` or `routeTable: {id: …}`",
                ),
            }
        }
    }

    /// Names of subnets at `path`, resolved; `default` where none are given.
    pub(super) fn subnet_names(
        &mut self,
        refs: &[SubnetRef],
        path: &Path,
        default: Vec<String>,
        network: &Draft,
    ) -> Vec<String> {
        if refs.is_empty() {
            if self.report.has(path) && !self.report.refused(path) {
                self.report.error(
                    "empty-list",
                    path,
                    "no subnet is named",
                    "name at least one, or remove the key for the default",
                );
            }
            return default;
        }
        let mut names: Vec<String> = Vec::new();
        for (index, name) in refs.iter().enumerate() {
            let Some(name) = &name.name else { continue };
            let path = path.index(index).key("name");
            if network.subnet(name).is_none() && !network.incomplete {
                let known: Vec<&str> = network.subnets.iter().map(|subnet| subnet.name.as_str()).collect();
                let help = nearest(name, known.iter().copied()).map_or_else(
                    || format!("write one of `{}`", known.join("`, `")),
                    |near| format!("did you mean `{near}`?"),
                );
                self.report.error("unknown-subnet", &path, format!("there is no subnet `{name}`"), help);
            } else if names.contains(name) {
                self.report.error(
                    "duplicate-name",
                    &path,
                    format!("the subnet `{name}` is named twice"),
                    "name it once",
                );
            } else {
                names.push(name.clone());
            }
        }
        names
    }

    /// Public and private subnets in one group would leave some nodes without the addresses that others have.
    pub(super) fn one_kind(&mut self, names: &[String], path: &Path, network: &Draft) {
        let mut kinds = names.iter().filter_map(|name| network.subnet(name)).map(|subnet| subnet.private);
        if let Some(first) = kinds.next()
            && kinds.any(|private| private != first)
        {
            self.report.error(
                "mixed-subnets",
                path,
                "public and private subnets are mixed here",
                "name subnets of one kind",
            );
        }
    }
}

fn name_of(spec: &SubnetSpec, index: usize) -> String {
    spec.name.clone().unwrap_or_else(|| format!("Subnet{index}"))
}
