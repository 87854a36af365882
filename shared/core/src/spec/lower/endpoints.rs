//! The names of the API and the load balancers behind them.

use ipnet::Ipv4Net;

use super::network::Draft;
use super::text::{is_dns_name, is_id, is_name};
use super::{Lowering, fold};
use crate::cluster::{ApiEndpoint, LoadBalancer};
use crate::spec::model::{EndpointSpec, IdSpec, LoadBalancerKind, LoadBalancerSpec};
use crate::spec::path::Path;
use crate::spec::shape::nearest;

impl Lowering<'_, '_, '_> {
    pub(super) fn endpoints(&mut self, network: &Draft) -> Vec<ApiEndpoint> {
        let spec = self.spec;
        let root = Path::of("apiEndpoints");
        if let Some(name) = &spec.external_dns_name {
            return self.legacy_endpoint(name, network).into_iter().collect();
        }
        for (key, given) in [
            ("hostedZoneId", spec.hosted_zone_id.is_some()),
            ("createRecordSet", spec.create_record_set.is_some()),
        ] {
            if given {
                let message = format!("`{key}` belongs to `externalDNSName`, which is not given");
                self.report.error(
                    "no-effect",
                    &Path::of(key),
                    message,
                    "write `apiEndpoints[].loadBalancer.hostedZone.id` instead",
                );
            }
        }
        if spec.api_endpoints.is_empty() {
            if !self.report.refused(&root) && !self.report.refused(&Path::of("externalDNSName")) {
                let help = "add `apiEndpoints: [{name: default, dnsName: api.example.com}]`";
                self.report.error(
                    "missing-key",
                    &root,
                    "nothing says under which name the API is reached",
                    help,
                );
            }
            return Vec::new();
        }
        let endpoints: Vec<ApiEndpoint> = spec
            .api_endpoints
            .iter()
            .enumerate()
            .filter_map(|(index, endpoint)| self.endpoint(endpoint, &root.index(index), network))
            .collect();
        let named = |key: &'static str, of: fn(&EndpointSpec) -> Option<&str>| {
            let root = root.clone();
            spec.api_endpoints
                .iter()
                .enumerate()
                .filter_map(move |(index, endpoint)| Some((of(endpoint)?, root.index(index).key(key))))
        };
        self.unique(named("name", |endpoint| endpoint.name.as_deref()), "endpoint", fold);
        self.unique(
            named("dnsName", |endpoint| endpoint.dns_name.as_deref()),
            "DNS name",
            str::to_ascii_lowercase,
        );
        endpoints
    }

    /// `externalDNSName`, `hostedZoneId`, `createRecordSet`: one endpoint called `default`.
    fn legacy_endpoint(&mut self, dns_name: &str, network: &Draft) -> Option<ApiEndpoint> {
        let spec = self.spec;
        if self.report.has(&Path::of("apiEndpoints")) {
            let help = "keep `apiEndpoints`, with that name among them";
            self.report.error(
                "given-twice",
                &Path::of("externalDNSName"),
                "`externalDNSName` and `apiEndpoints` are both given",
                help,
            );
            return None;
        }
        let record = spec.create_record_set;
        if record == Some(true) && spec.hosted_zone_id.is_none() {
            self.report.error(
                "record-without-zone",
                &Path::of("createRecordSet"),
                "the record is to be made, but no hosted zone is given",
                "add `hostedZoneId`, or write `createRecordSet: false` and make the record yourself",
            );
        }
        let endpoint = EndpointSpec {
            name: Some("default".to_owned()),
            dns_name: Some(dns_name.to_owned()),
            load_balancer: LoadBalancerSpec {
                hosted_zone: IdSpec { id: spec.hosted_zone_id.clone() },
                record_set_managed: record.filter(|wanted| !wanted),
                ..LoadBalancerSpec::default()
            },
        };
        if !is_dns_name(dns_name) {
            self.dns_name(dns_name, &Path::of("externalDNSName"));
            return None;
        }
        self.endpoint(&endpoint, &Path::default(), network)
    }

    fn dns_name(&mut self, name: &str, path: &Path) {
        let help = "write a name such as `api.example.com`: letters, digits and hyphens between the dots, no scheme, no port";
        self.report.error("dns-name", path, format!("`{name}` is no DNS name"), help);
    }

    fn endpoint(&mut self, spec: &EndpointSpec, path: &Path, network: &Draft) -> Option<ApiEndpoint> {
        if let Some(name) = spec.name.as_deref().filter(|name| !is_name(name)) {
            self.report.error(
                "name-syntax",
                &path.key("name"),
                format!("`{name}` cannot be an endpoint's name"),
                "begin with a letter, go on with letters, digits and hyphens, 63 at most",
            );
        }
        if let Some(name) = spec.dns_name.as_deref().filter(|name| !is_dns_name(name)) {
            self.dns_name(name, &path.key("dnsName"));
        }
        let load_balancer = self.load_balancer(&spec.load_balancer, &path.key("loadBalancer"), network);
        Some(ApiEndpoint {
            name: spec.name.clone()?,
            dns_name: spec.dns_name.clone()?,
            load_balancer: load_balancer?,
        })
    }

    fn load_balancer(
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
        let source_cidrs = self.source_cidrs(
            spec.api_access_allowed_source_cidrs.as_deref(),
            &path.key("apiAccessAllowedSourceCIDRs"),
        );
        Some(LoadBalancer {
            private: spec.private,
            subnets: self.load_balancer_subnets(spec, path, network),
            hosted_zone_id: self.hosted_zone(spec, path),
            source_cidrs: source_cidrs?,
            security_group_ids: spec.security_group_ids.clone(),
        })
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

    /// The zone in which the record is made; `None` where the user makes it.
    fn hosted_zone(&mut self, spec: &LoadBalancerSpec, path: &Path) -> Option<String> {
        let id = match (&spec.hosted_zone.id, &spec.hosted_zone_id) {
            (Some(_), Some(_)) => {
                let message = "`hostedZoneId` and `hostedZone.id` say the same";
                self.report.error("given-twice", &path.key("hostedZoneId"), message, "keep `hostedZone.id`");
                None
            }
            (id, old) => id.as_ref().or(old.as_ref()),
        };
        let key = if path.0.len() == 1 { Path::of("hostedZoneId") } else { path.key("hostedZone").key("id") };
        let bare = id.map(|id| id.strip_prefix("/hostedzone/").unwrap_or(id));
        if let Some(id) = bare.filter(|id| !is_zone_id(id)) {
            self.report.error(
                "id-syntax",
                &key,
                format!("`{id}` is no hosted zone's id"),
                "write one such as `Z0123456789ABC`",
            );
        }
        let wanted = spec.record_set_managed.or(spec.create_record_set);
        if wanted == Some(true) && id.is_none() {
            let named =
                if spec.record_set_managed.is_some() { "recordSetManaged" } else { "createRecordSet" };
            self.report.error(
                "record-without-zone",
                &path.key(named),
                "the record is to be made, but no hosted zone is given",
                "add `hostedZone: {id: …}`, or write `recordSetManaged: false` and make the record yourself",
            );
        }
        bare.filter(|_| wanted != Some(false)).map(str::to_owned)
    }

    fn source_cidrs(&mut self, spec: Option<&[String]>, path: &Path) -> Option<Vec<Ipv4Net>> {
        let Some(texts) = spec else { return Some(vec![Ipv4Net::default()]) };
        if texts.is_empty() {
            self.report.error(
                "empty-list",
                path,
                "nobody may reach the API",
                "name at least one range, or remove the key for everywhere",
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
                format!("`{id}` is no security group's id"),
                help,
            );
        }
    }

    pub(super) fn endpoint_for_admin(&mut self, endpoints: &[ApiEndpoint]) -> Option<String> {
        let what = "the administrator's kubeconfig names";
        self.chosen_endpoint(
            self.spec.admin_api_endpoint_name.as_deref(),
            &Path::of("adminAPIEndpointName"),
            what,
            endpoints,
        )
    }

    pub(super) fn endpoint_for_workers(&mut self, endpoints: &[ApiEndpoint]) -> Option<String> {
        self.chosen_endpoint(
            self.spec.worker.api_endpoint_name.as_deref(),
            &Path::of("worker.apiEndpointName"),
            "workers go through",
            endpoints,
        )
    }

    pub(super) fn chosen_endpoint(
        &mut self,
        name: Option<&str>,
        path: &Path,
        who: &str,
        endpoints: &[ApiEndpoint],
    ) -> Option<String> {
        let written = self.spec.api_endpoints.len();
        let known: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
        match name {
            Some(name) if known.contains(&name) => Some(name.to_owned()),
            Some(name) => {
                if known.len() >= written {
                    let help = nearest(name, known.iter().copied()).map_or_else(
                        || format!("write one of `{}`", known.join("`, `")),
                        |near| format!("did you mean `{near}`?"),
                    );
                    self.report.error(
                        "unknown-endpoint",
                        path,
                        format!("there is no endpoint `{name}`"),
                        help,
                    );
                }
                None
            }
            None if written > 1 => {
                let mut names: Vec<&str> =
                    self.spec.api_endpoints.iter().filter_map(|endpoint| endpoint.name.as_deref()).collect();
                names.dedup();
                let message = format!("nothing says which of the {written} endpoints {who}");
                let help = format!("add `{path}` with one of `{}`", names.join("`, `"));
                self.report.error("endpoint-choice", path, message, help);
                None
            }
            None => known.first().map(|name| (*name).to_owned()),
        }
    }
}

/// Route 53 ids are capital letters and digits, 32 at most.
pub(super) fn is_zone_id(id: &str) -> bool {
    (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}
