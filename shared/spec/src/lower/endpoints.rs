//! The names of the API and the load balancers behind them.

use std::net::IpAddr;

use slipway_core::cluster::{ApiEndpoint, Backing};

use super::network::Draft;
use super::{Lowering, fold};
use crate::model::{EndpointSpec, ExistingSpec, LoadBalancerSpec};
use crate::path::Path;
use crate::text::{is_dns_name, is_name};

impl Lowering<'_, '_, '_> {
    pub(super) fn endpoints(&mut self, network: &Draft) -> Vec<ApiEndpoint> {
        let spec = self.spec;
        let root = Path::parse("apiEndpoints");
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
                    &Path::parse(key),
                    message,
                    "write `apiEndpoints[].loadBalancer.hostedZone.id` instead",
                );
            }
        }
        if spec.api_endpoints.is_empty() {
            if !self.report.refused(&root) && !self.report.refused(&Path::parse("externalDNSName")) {
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
        let named = |key: &'static str, field: fn(&EndpointSpec) -> Option<&str>| {
            let root = root.clone();
            spec.api_endpoints
                .iter()
                .enumerate()
                .filter_map(move |(index, endpoint)| Some((field(endpoint)?, root.index(index).key(key))))
        };
        self.unique(named("name", |endpoint| endpoint.name.as_deref()), "endpoint", fold);
        self.unique(
            named("dnsName", |endpoint| endpoint.dns_name.as_deref()),
            "DNS name",
            str::to_ascii_lowercase,
        );
        self.balancers_once(&root);
        endpoints
    }

    /// Each endpoint on an existing load balancer needs a listener on port 443, and a load balancer can have only one.
    fn balancers_once(&mut self, root: &Path) {
        let endpoints = &self.spec.api_endpoints;
        for (index, endpoint) in endpoints.iter().enumerate() {
            let balancer_id = |endpoint: &EndpointSpec| {
                let balancer = &endpoint.load_balancer;
                (balancer.id.clone(), balancer.id_from_stack_output.clone())
            };
            let named = balancer_id(endpoint);
            let Some(first) = endpoints.iter().take(index).find(|other| balancer_id(other) == named) else {
                continue;
            };
            let key = match &named {
                (Some(_), _) => "id",
                (None, Some(_)) => "idFromStackOutput",
                (None, None) => continue,
            };
            let first = first.name.as_deref().unwrap_or_default();
            self.report.error(
                "load-balancer-choice",
                &root.index(index).key("loadBalancer").key(key),
                format!("the endpoint `{first}` already uses port 443 of this load balancer"),
                format!(
                    "write `managed: false` here in its place, and `dnsName` with the balancer's own name if a record is to be made: both names then lead to the listener of `{first}`"
                ),
            );
        }
    }

    /// `externalDNSName`, `hostedZoneId`, `createRecordSet`: one endpoint called `default`.
    fn legacy_endpoint(&mut self, dns_name: &str, network: &Draft) -> Option<ApiEndpoint> {
        let spec = self.spec;
        if self.report.has(&Path::parse("apiEndpoints")) {
            let help = "keep `apiEndpoints`, with that name among them";
            self.report.error(
                "given-twice",
                &Path::parse("externalDNSName"),
                "`externalDNSName` and `apiEndpoints` are both given",
                help,
            );
            return None;
        }
        let record = spec.create_record_set;
        if record == Some(true) && spec.hosted_zone_id.is_none() {
            self.report.error(
                "record-without-zone",
                &Path::parse("createRecordSet"),
                "the record is to be made, but no hosted zone is given",
                "add `hostedZoneId`, or write `createRecordSet: false` and make the record yourself",
            );
        }
        let endpoint = EndpointSpec {
            name: Some("default".to_owned()),
            dns_name: Some(dns_name.to_owned()),
            load_balancer: LoadBalancerSpec {
                hosted_zone: ExistingSpec { id: spec.hosted_zone_id.clone(), id_from_stack_output: None },
                record_set_managed: record.filter(|wanted| !wanted),
                ..LoadBalancerSpec::default()
            },
        };
        if !is_dns_name(dns_name) {
            self.dns_name(dns_name, &Path::parse("externalDNSName"));
            return None;
        }
        self.endpoint(&endpoint, &Path::default(), network)
    }

    pub(super) fn dns_name(&mut self, name: &str, path: &Path) {
        let help = "write a name such as `api.example.com`: letters, digits and hyphens between the dots, no scheme, no port";
        self.report.error("dns-name", path, format!("`{name}` is not a DNS name"), help);
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
        if let (Some(name), Some(balancer)) = (spec.dns_name.as_deref(), &load_balancer) {
            // `externalDNSName` stands at the top of the spec.
            let place = if path.0.is_empty() { Path::parse("externalDNSName") } else { path.key("dnsName") };
            self.leads_to_balancer(name, &balancer.backing, &place);
        }
        Some(ApiEndpoint {
            name: spec.name.clone()?,
            dns_name: spec.dns_name.clone()?,
            load_balancer: load_balancer?,
        })
    }

    /// Whether a name can lead to the endpoint's balancer. The addresses of a network load balancer are of AWS' choice; the other names mean
    /// something else on a machine (RFC 6761, "localhost.") or in a pod (kubernetes.io/docs/concepts/services-networking/dns-pod-service).
    fn leads_to_balancer(&mut self, name: &str, backing: &Backing, path: &Path) {
        let plain = name.trim_end_matches('.').to_ascii_lowercase();
        let inside = ["kubernetes", "kubernetes.default", "localhost"].contains(&plain.as_str())
            || [".localhost", ".svc", ".svc.cluster.local"].iter().any(|end| plain.ends_with(end));
        let what = if plain.parse::<IpAddr>().is_ok() {
            "an address"
        } else if inside {
            "a name that means something else on each machine or in each pod"
        } else {
            return;
        };
        let help = "write a name of your own such as `api.example.com`, in a zone in which its record is, or can be made";
        if *backing == Backing::Managed {
            let message =
                format!("`{name}` is {what}: it can never lead to the load balancer that Slipway makes");
            self.report.error("dns-name", path, message, help);
        } else {
            self.report.warning(
                "dns-name",
                path,
                format!("`{name}` is {what}, and nodes look for the API there"),
                help,
            );
        }
    }

    pub(super) fn endpoint_for_admin(&mut self, endpoints: &[ApiEndpoint]) -> Option<String> {
        let what = "the administrator's kubeconfig names";
        self.chosen_endpoint(
            self.spec.admin_api_endpoint_name.as_deref(),
            &Path::parse("adminAPIEndpointName"),
            what,
            endpoints,
        )
    }

    pub(super) fn endpoint_for_workers(&mut self, endpoints: &[ApiEndpoint]) -> Option<String> {
        self.chosen_endpoint(
            self.spec.worker.api_endpoint_name.as_deref(),
            &Path::parse("worker.apiEndpointName"),
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
            Some(name) if known.contains(&name) => {
                self.reachable(name, path, who, endpoints);
                Some(name.to_owned())
            }
            Some(name) => {
                if known.len() >= written {
                    let help = self.report.nearest(name, known.iter().copied()).map_or_else(
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
            None => known.first().map(|name| {
                self.reachable(name, &Path::parse("apiEndpoints").index(0), who, endpoints);
                (*name).to_owned()
            }),
        }
    }

    /// Warns of a name that nothing of ours leads anywhere.
    fn reachable(&mut self, name: &str, path: &Path, who: &str, endpoints: &[ApiEndpoint]) {
        let of_name = endpoints.iter().find(|endpoint| endpoint.name == name);
        if of_name.is_some_and(|endpoint| endpoint.load_balancer.backing == Backing::Nothing) {
            self.report.warning(
                "endpoint-without-balancer",
                path,
                format!("{who} `{name}`, for which Slipway sets up no load balancer"),
                "make sure that port 443 of that name leads to port 6443 of the controllers, whose addresses change; or give it a `loadBalancer.id` or `targetGroup`",
            );
        }
    }
}
