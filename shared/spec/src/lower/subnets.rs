//! The subnets, how each reaches the internet, and the names by which nodes and load balancers refer to them.

use std::collections::BTreeMap;

use slipway_core::cluster::{Egress, Existing, Subnet, SubnetSource, Vpc};

use super::existing::Named;
use super::network::Draft;
use super::{Lowering, fold};
use crate::model::{SubnetRef, SubnetSpec};
use crate::path::Path;
use crate::regions;
use crate::text::is_name;

/// kube-aws' single subnet.
const INSTANCE_CIDR: &str = "10.0.0.0/24";

impl Lowering<'_, '_, '_> {
    pub(super) fn subnets(&mut self, region: Option<&str>, draft: &mut Draft) {
        let spec = self.spec;
        let root = Path::parse("subnets");
        let single;
        let specs: &[SubnetSpec] = if spec.subnets.is_empty() && !self.report.refused(&root) {
            let zone = Path::parse("availabilityZone");
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
                        &Path::parse(key),
                        message,
                        "remove it: each of `subnets` has its own",
                    );
                }
            }
            &spec.subnets
        };
        self.common_settings(draft);
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
        self.existing_once(specs, &root);
        if !draft.incomplete {
            self.nat_gateways(draft);
        }
    }

    /// A subnet lies in one zone (docs.aws.amazon.com/vpc, "Subnet basics"): under two names it would be taken for two.
    fn existing_once(&mut self, specs: &[SubnetSpec], root: &Path) {
        for key in ["id", "idFromStackOutput"] {
            let id = |spec: &SubnetSpec| {
                if key == "id" { spec.id.clone() } else { spec.id_from_stack_output.clone() }
            };
            for (index, spec) in specs.iter().enumerate() {
                let Some(own) = id(spec) else { continue };
                let Some(first) = specs.iter().take(index).position(|other| id(other).as_ref() == Some(&own))
                else {
                    continue;
                };
                let message = format!("`{own}` is also the subnet `{}`", name_of(&specs[first], first));
                let help = "name another one here, or remove it: one subnet lies in one availability zone";
                self.report.error("duplicate-id", &root.index(index).key(key), message, help);
            }
        }
    }

    /// `routeTableId` and `mapPublicIPs`, which kube-aws had for all subnets at once.
    fn common_settings(&mut self, draft: &Draft) {
        let path = Path::parse("routeTableId");
        let table = Named {
            id: self.spec.route_table_id.as_deref(),
            id_path: path.clone(),
            export: None,
            export_path: path.clone(),
        };
        let given = self.existing(&table, "rtb").is_some();
        if given && matches!(draft.vpc, Some(Vpc::Managed(_))) {
            self.report.error(
                "existing-in-new-vpc",
                &path,
                "an existing route table cannot lie in a VPC that is yet to be made",
                "add `vpc: {id: …}` with the VPC in which it lies",
            );
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
                format!("`{zone}` is not an availability zone of {region}"),
                format!("write one such as `{region}a`"),
            );
        }
        let named = Named::at(path, &spec.id, &spec.id_from_stack_output);
        let source = match self.existing(&named, "subnet") {
            Some(id) => Some(self.existing_subnet(spec, id, &named, path, draft)),
            None => self.managed_subnet(spec, path, draft),
        };
        Some(Subnet { name, availability_zone: zone?, private: self.is_private(spec), source: source? })
    }

    /// kube-aws' `mapPublicIPs: false` makes every subnet private.
    fn is_private(&self, spec: &SubnetSpec) -> bool {
        spec.private || self.spec.map_public_ips == Some(false)
    }

    fn existing_subnet(
        &mut self,
        spec: &SubnetSpec,
        id: Existing,
        named: &Named<'_>,
        path: &Path,
        draft: &Draft,
    ) -> SubnetSource {
        if matches!(draft.vpc, Some(Vpc::Managed(_))) {
            let help = "add `vpc: {id: …}` with the VPC in which it lies";
            self.report.error(
                "subnet-without-vpc",
                named.path(),
                "an existing subnet cannot lie in a VPC that is yet to be made",
                help,
            );
        }
        let settings = [
            ("instanceCIDR", spec.instance_cidr.is_some()),
            ("natGateway", self.report.has(&path.key("natGateway"))),
            ("routeTable", self.report.has(&path.key("routeTable"))),
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
        SubnetSource::Existing { id }
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
        let private = self.is_private(spec);
        let nat = &spec.nat_gateway;
        let nat_path = path.key("natGateway");
        let nat_id = self.existing(&Named::at(&nat_path, &nat.id, &nat.id_from_stack_output), "nat");
        let address = Named {
            id: nat.eip_allocation_id.as_deref(),
            id_path: nat_path.key("eipAllocationId"),
            export: nat.eip_allocation_id_from_stack_output.as_deref(),
            export_path: nat_path.key("eipAllocationIdFromStackOutput"),
        };
        let address = self.existing(&address, "eipalloc");
        let table = &spec.route_table;
        let table =
            self.existing(&Named::at(&path.key("routeTable"), &table.id, &table.id_from_stack_output), "rtb");
        let has_nat = nat_id.is_some() || address.is_some();
        if has_nat && !private {
            let help =
                "write `private: true` if its machines reach the internet through a gateway, else remove it";
            self.report.error(
                "nat-of-public-subnet",
                &nat_path,
                "a public subnet needs no NAT gateway",
                help,
            );
        }
        if nat_id.is_some() && address.is_some() {
            let help = "keep `id` for a gateway that exists, or `eipAllocationId` for one to be made";
            self.report.error(
                "given-twice",
                &nat_path,
                "the NAT gateway both exists and is to be made",
                help,
            );
        }
        for (given, key, what) in
            [(table.is_some(), "routeTable", "route table"), (nat_id.is_some(), "natGateway", "NAT gateway")]
        {
            if given && matches!(draft.vpc, Some(Vpc::Managed(_))) {
                self.report.error(
                    "existing-in-new-vpc",
                    &path.key(key),
                    format!("an existing {what} cannot lie in a VPC that is yet to be made"),
                    "add `vpc: {id: …}` with the VPC in which it lies",
                );
            }
        }
        if has_nat && table.is_some() {
            let help = "keep `routeTable` for a table that exists, or `natGateway` to have one made";
            self.report.error(
                "given-twice",
                &nat_path,
                "the subnet has a route table and a NAT gateway",
                help,
            );
        }
        let table = table.or_else(|| self.common_route_table().filter(|_| !has_nat));
        let egress = match (table, private, nat_id) {
            (Some(id), _, _) => Egress::RouteTable { id },
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
            (None, true, Some(id)) => Egress::ExistingNat { id },
            // Which public subnet holds the gateway is settled when all subnets are known.
            (None, true, None) => {
                Egress::ManagedNat { public_subnet: String::new(), eip_allocation_id: address }
            }
        };
        Some(SubnetSource::Managed { cidr: cidr?, egress })
    }

    /// kube-aws' `routeTableId`, which stands for the table of each subnet.
    fn common_route_table(&self) -> Option<Existing> {
        self.spec.route_table_id.as_deref().map(Existing::from)
    }

    /// Gives each NAT gateway its public subnet: one in the same zone, so that no traffic crosses zones, else the first.
    fn nat_gateways(&mut self, draft: &mut Draft) {
        let public: Vec<(String, String)> = draft
            .subnets
            .iter()
            .filter(|subnet| !subnet.private)
            .map(|subnet| (subnet.availability_zone.clone(), subnet.name.clone()))
            .collect();
        let mut addresses: BTreeMap<String, Existing> = BTreeMap::new();
        for (subnet, path) in draft.subnets.iter_mut().zip(&draft.paths) {
            let zone = &subnet.availability_zone;
            let SubnetSource::Managed {
                egress: Egress::ManagedNat { public_subnet, eip_allocation_id }, ..
            } = &mut subnet.source
            else {
                continue;
            };
            let Some((_, name)) =
                public.iter().find(|(subnet_zone, _)| subnet_zone == zone).or(public.first())
            else {
                self.report.error(
                    "no-public-subnet",
                    path,
                    format!("the private subnet `{}` has no route to the internet", subnet.name),
                    "add a public subnet for its NAT gateway, or give `natGateway: {id: …}` or `routeTable: {id: …}`",
                );
                continue;
            };
            public_subnet.clone_from(name);
            let Some(address) = eip_allocation_id else { continue };
            let path = path.key("natGateway");
            if let Some(first) = addresses.get(name).filter(|first| *first != address) {
                let message = format!(
                    "the NAT gateway in `{name}` is to have two addresses, `{first}` and `{address}`"
                );
                let help =
                    "name one address for it, or add a public subnet in this zone for a gateway of its own";
                self.report.error("nat-address", &path, message, help);
            } else if let Some((other, _)) =
                addresses.iter().find(|(other, taken)| *taken == address && *other != name)
            {
                let message = format!("`{address}` is the address of the NAT gateway in `{other}` already");
                let help = "name another address: each gateway has its own";
                self.report.error("nat-address", &path, message, help);
            }
            addresses.insert(name.clone(), address.clone());
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
                let help = self.report.nearest(name, known.iter().copied()).map_or_else(
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
