//! The load balancers behind the API's names: ours, existing ones, target groups, or none.

use std::collections::BTreeSet;

use ipnet::Ipv4Net;
use slipway_core::cluster::{ApiEndpoint, Backing, Controller, Existing, LoadBalancer};

use super::Lowering;
use super::existing::Named;
use super::network::Draft;
use crate::model::{LoadBalancerKind, LoadBalancerSpec};
use crate::path::Path;
use crate::text::{arn, is_dns_name, is_id};

impl Lowering<'_, '_, '_> {
    pub(super) fn load_balancer(
        &mut self,
        spec: &LoadBalancerSpec,
        path: &Path,
        network: &Draft,
    ) -> Option<LoadBalancer> {
        if spec.kind == Some(LoadBalancerKind::Classic) {
            let help = "write `type: network`, or remove the line";
            self.report.error("retired-value", &path.key("type"), "classic load balancers are retired", help);
        }
        self.security_groups(&spec.security_group_ids, &path.key("securityGroupIds"));
        let backing = self.backing(spec, path);
        let managed = backing == Backing::Managed;
        let source_cidrs = self.source_cidrs(spec, &backing, path);
        if let Some(name) = spec.dns_name.as_deref().filter(|name| !is_dns_name(name)) {
            self.dns_name(name, &path.key("dnsName"));
        }
        Some(LoadBalancer {
            private: spec.private,
            subnets: if managed { self.load_balancer_subnets(spec, path, network) } else { Vec::new() },
            hosted_zone_id: self.hosted_zone(spec, &backing, path),
            dns_name: spec.dns_name.clone(),
            source_cidrs: source_cidrs?,
            security_group_ids: spec.security_group_ids.clone(),
            backing,
        })
    }

    /// Who brings the balancer; says which settings belong to another kind.
    fn backing(&mut self, spec: &LoadBalancerSpec, path: &Path) -> Backing {
        let named = Named::at(path, &spec.id, &spec.id_from_stack_output);
        if named.given() {
            if spec.managed == Some(true) {
                let message =
                    format!("`{}` names a load balancer that exists, so it is not made", named.path());
                self.report.error(
                    "load-balancer-choice",
                    &path.key("managed"),
                    message,
                    "remove one of the two",
                );
            }
            self.not_with(path, named.path(), &["private", "subnets", "targetGroup"]);
            if let Some(text) = &spec.id {
                self.balancer_arn(text, &named.id_path);
            }
            return self.named(&named).map_or(Backing::Nothing, Backing::Balancer);
        }
        let arns_path = path.key("targetGroup").key("arns");
        if spec.managed == Some(false) {
            self.not_with(path, &path.key("managed"), &["private", "subnets"]);
            let arns = &spec.target_group.arns;
            self.target_group_arns(arns, &arns_path);
            return if arns.is_empty() { Backing::Nothing } else { Backing::TargetGroups(arns.clone()) };
        }
        if !spec.target_group.arns.is_empty() {
            let message = "controllers are in the target group of the load balancer that Slipway makes";
            let help = "write `managed: false` beside it to register the controllers in these target groups, or remove `targetGroup.arns`";
            self.report.error("load-balancer-choice", &arns_path, message, help);
        }
        if spec.dns_name.is_some() {
            let message = "the load balancer that Slipway makes has a name of AWS' choice";
            let help = "remove it, or name the existing load balancer by its `id`";
            self.report.error("load-balancer-choice", &path.key("dnsName"), message, help);
        }
        Backing::Managed
    }

    /// Settings that a balancer which is not ours has already, one way or the other.
    fn not_with(&mut self, path: &Path, because: &Path, keys: &[&str]) {
        for key in keys {
            let at = path.key(key);
            if self.report.has(&at) {
                let message = format!(
                    "`{key}` is for a load balancer that Slipway makes, and `{because}` says otherwise"
                );
                self.report.error("load-balancer-choice", &at, message, "remove one of the two");
            }
        }
    }

    /// An existing balancer must be able to pass TLS through, and have a listener of ours.
    fn balancer_arn(&mut self, text: &str, path: &Path) {
        const EXAMPLE: &str =
            "arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/name/0123456789abcdef";
        let found = arn(text, "elasticloadbalancing");
        if found.is_some_and(|arn| arn.resource.starts_with("loadbalancer/net/")) {
            self.same_region(text, path);
            return;
        }
        let (message, help) = match found {
            Some(arn) if arn.resource.starts_with("loadbalancer/app/") => (
                format!("`{text}` is an application load balancer, which cannot pass the API's TLS through"),
                "name a network load balancer".to_owned(),
            ),
            _ => (
                format!("`{text}` is not an ARN of a network load balancer"),
                format!(
                    "write one such as `{EXAMPLE}`; classic load balancers are retired, and have a name instead"
                ),
            ),
        };
        self.report.error("arn-syntax", path, message, help);
    }

    /// Target groups at `path`. One that is named twice is rendered once.
    pub(super) fn target_group_arns(&mut self, arns: &[String], path: &Path) {
        for (index, text) in arns.iter().enumerate() {
            self.target_group_arn(text, &path.index(index));
        }
    }

    fn target_group_arn(&mut self, text: &str, path: &Path) {
        if arn(text, "elasticloadbalancing").is_some_and(|arn| arn.resource.starts_with("targetgroup/")) {
            self.same_region(text, path);
            return;
        }
        let help = "write one such as `arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/name/0123456789abcdef`";
        self.report.error("arn-syntax", path, format!("`{text}` is not an ARN of a target group"), help);
    }

    fn same_region(&mut self, text: &str, path: &Path) {
        let Some(arn) = arn(text, "elasticloadbalancing") else { return };
        let arn_region = arn.region;
        if self.same_partition(Some(arn), path)
            && let Some(region) = self.spec.region.as_deref().filter(|region| *region != arn_region)
        {
            self.report.error(
                "other-region",
                path,
                format!("it lies in `{arn_region}`, the cluster in `{region}`"),
                format!("name one of `{region}`"),
            );
        }
    }

    fn load_balancer_subnets(
        &mut self,
        spec: &LoadBalancerSpec,
        path: &Path,
        network: &Draft,
    ) -> Vec<String> {
        let subnets_path = path.key("subnets");
        // A network load balancer takes one subnet a zone (elasticloadbalancing `CreateLoadBalancer`).
        let mut zones: Vec<&str> = Vec::new();
        let mut default = network.names(spec.private);
        default.retain(|name| {
            network.subnet(name).is_some_and(|subnet| {
                let new = !zones.contains(&subnet.availability_zone.as_str());
                zones.push(&subnet.availability_zone);
                new
            })
        });
        let (own, other) = if spec.private { ("private", "public") } else { ("public", "private") };
        if spec.subnets.is_empty() && default.is_empty() && !network.incomplete {
            let help = format!("add {own} subnets, or write `private: {}`", !spec.private);
            self.report.error(
                "load-balancer-subnets",
                path,
                format!("the load balancer needs {own} subnets, and there are only {other} ones"),
                help,
            );
        }
        let names = self.subnet_names(&spec.subnets, &subnets_path, default, network);
        let mut taken: Vec<(&str, &str)> = Vec::new();
        for subnet in names.iter().filter_map(|name| network.subnet(name)) {
            if !spec.private && subnet.private {
                let help = "name public subnets, or write `private: true`";
                self.report.error(
                    "load-balancer-subnets",
                    &subnets_path,
                    format!("`{}` is private: nothing reaches it from the internet", subnet.name),
                    help,
                );
            }
            if let Some((_, first)) = taken.iter().find(|(zone, _)| *zone == subnet.availability_zone) {
                let message = format!("`{first}` and `{}` lie in the same zone", subnet.name);
                self.report.error(
                    "load-balancer-subnets",
                    &subnets_path,
                    message,
                    "name one subnet for each zone: a network load balancer takes no more",
                );
            }
            taken.push((&subnet.availability_zone, &subnet.name));
        }
        if spec.private {
            self.one_kind(&names, &subnets_path, network);
        }
        names
    }

    /// A controller in a zone that the balancer is not enabled for gets no traffic and never counts as healthy, so that a rollout waits for
    /// it in vain ("If you register targets in an Availability Zone but do not enable the Availability Zone, these registered targets do not
    /// receive traffic": ELB user guide, "How Elastic Load Balancing works"). Auto Scaling spreads the controllers evenly, so it is certain
    /// only where they are more than the zones that fit.
    pub(super) fn balancers_reach(
        &mut self,
        endpoints: &[ApiEndpoint],
        controller: &Controller,
        network: &Draft,
    ) {
        if network.incomplete || self.report.refused(&Path::parse("subnets")) {
            return;
        }
        let zones = |names: &[String]| -> BTreeSet<&str> {
            let found = names.iter().filter_map(|name| network.subnet(name));
            found.map(|subnet| subnet.availability_zone.as_str()).collect()
        };
        let wanted = zones(&controller.subnets);
        for endpoint in endpoints {
            let balancer = &endpoint.load_balancer;
            let has = zones(&balancer.subnets);
            let missing: Vec<&str> = wanted.difference(&has).copied().collect();
            if balancer.backing != Backing::Managed || has.is_empty() || missing.is_empty() {
                continue;
            }
            let mut written = self.spec.api_endpoints.iter();
            let index = written.position(|one| one.name.as_deref() == Some(&endpoint.name));
            let path = index.map_or_else(
                || Path::parse("externalDNSName"),
                |index| Path::parse("apiEndpoints").index(index).key("loadBalancer").key("subnets"),
            );
            if self.report.refused(&path) {
                continue;
            }
            let fit = wanted.intersection(&has).count();
            let named = missing.join("`, `");
            let kind = if balancer.private { "private" } else { "public" };
            let help = format!(
                "give the load balancer a {kind} subnet in each zone of the controllers, here in `{named}`; or write `controller: {{subnets: …}}` \
                 with subnets in its own zones only{}",
                if balancer.private { "" } else { "; or make it `private: true`" }
            );
            let certain = usize::try_from(controller.count).is_ok_and(|count| count > fit);
            let message = format!(
                "the load balancer of `{}` has no subnet in `{named}`, where controllers {}: it sends them no traffic, and a rollout waits \
                 for them in vain",
                endpoint.name,
                if certain { "stand" } else { "may stand" }
            );
            if certain {
                self.report.error("load-balancer-zones", &path, message, help);
            } else {
                self.report.warning("load-balancer-zones", &path, message, help);
            }
        }
    }

    /// The zone in which the record is made; `None` where the user makes it.
    fn hosted_zone(&mut self, spec: &LoadBalancerSpec, backing: &Backing, path: &Path) -> Option<Existing> {
        let zone = &spec.hosted_zone;
        let group = path.key("hostedZone");
        let mut named = Named::at(&group, &zone.id, &zone.id_from_stack_output);
        if let Some(old) = &spec.hosted_zone_id {
            if named.given() {
                let new = if zone.id.is_some() { "hostedZone.id" } else { "hostedZone.idFromStackOutput" };
                let message = format!("`hostedZoneId` and `{new}` say the same");
                self.report.error("given-twice", &path.key("hostedZoneId"), message, format!("keep `{new}`"));
                return None;
            }
            named = Named { id: Some(old), id_path: path.key("hostedZoneId"), ..named };
        }
        // `externalDNSName` has the zone beside it, under kube-aws' name.
        if path.0.len() == 1 {
            named.id_path = Path::parse("hostedZoneId");
        }
        named.id = named.id.map(|id| id.strip_prefix("/hostedzone/").unwrap_or(id));
        if let Some(id) = named.id.filter(|id| !is_zone_id(id)) {
            self.report.error(
                "id-syntax",
                &named.id_path,
                format!("`{id}` is not the id of a hosted zone"),
                "write one such as `Z0123456789ABC`",
            );
        }
        let wanted = spec.record_set_managed.or(spec.create_record_set);
        let given = self.named(&named);
        if wanted == Some(true) && given.is_none() {
            let key = if spec.record_set_managed.is_some() { "recordSetManaged" } else { "createRecordSet" };
            self.report.error(
                "record-without-zone",
                &path.key(key),
                "the record is to be made, but no hosted zone is given",
                "add `hostedZone: {id: …}`, or write `recordSetManaged: false` and make the record yourself",
            );
        }
        let zone = given.filter(|_| wanted != Some(false));
        if *backing != Backing::Managed && zone.is_some() && spec.dns_name.is_none() {
            self.report.error(
                "record-without-target",
                named.path(),
                "the record is to be made in `hostedZone`, but nothing says where it leads: the DNS name of a load balancer that exists is not known here",
                "add `dnsName` with the load balancer's own name, or write `recordSetManaged: false` and make the record yourself",
            );
        }
        zone
    }

    /// Who is let in, apart from the cluster's own nodes.
    fn source_cidrs(
        &mut self,
        spec: &LoadBalancerSpec,
        backing: &Backing,
        path: &Path,
    ) -> Option<Vec<Ipv4Net>> {
        let groups = !spec.security_group_ids.is_empty();
        let path = path.key("apiAccessAllowedSourceCIDRs");
        let Some(texts) = &spec.api_access_allowed_source_cidrs else {
            let closed = match backing {
                Backing::Managed => false,
                // The balancer's groups say who comes in.
                Backing::Balancer(_) | Backing::TargetGroups(_) => groups,
                Backing::Nothing => true,
            };
            if !closed && *backing != Backing::Managed {
                self.report.warning(
                    "open-to-everyone",
                    &path,
                    "the controllers' port 6443 is open to 0.0.0.0/0, even without the load balancer: the spec does not say who may reach it",
                    "add `securityGroupIds` with the load balancer's own groups, or name the ranges here; `[0.0.0.0/0]` if that is meant",
                );
            }
            return Some(if closed { Vec::new() } else { vec![Ipv4Net::default()] });
        };
        if *backing != Backing::Managed && groups && !texts.is_empty() {
            let message = "`securityGroupIds` names the groups of the load balancer, which say who comes in";
            let help = "remove one of the two: ranges are for a load balancer without security groups";
            self.report.error("load-balancer-choice", &path, message, help);
        }
        if texts.is_empty() && !groups && !spec.private {
            self.report.error(
                "empty-list",
                &path,
                "nobody may reach the API",
                "name at least one range, or add `securityGroupIds` that let somebody in, or remove the key for everywhere",
            );
            return None;
        }
        texts.iter().enumerate().map(|(index, text)| self.cidr(text, &path.index(index))).collect()
    }

    /// Ids of security groups at `path`.
    pub(super) fn security_groups(&mut self, ids: &[String], path: &Path) {
        for (index, id) in ids.iter().enumerate().filter(|(_, id)| !is_id(id, "sg")) {
            let help = "write an id such as `sg-0123456789abcdef0`";
            self.report.error(
                "id-syntax",
                &path.index(index),
                format!("`{id}` is not the id of a security group"),
                help,
            );
        }
    }
}

/// Route 53 ids are capital letters and digits, 32 at most.
pub(super) fn is_zone_id(id: &str) -> bool {
    (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}
