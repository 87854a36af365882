//! Settings of the API server, the controller manager and the scheduler.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use slipway_core::cluster::{Component, HostVolume, Kubernetes, Oidc};

use super::Lowering;
use crate::duration::nanoseconds;
use crate::model::{ComputeResourcesSpec, FlagSpec, HostVolumeSpec, OidcSpec};
use crate::path::Path;
use crate::text::holds_private_key;
use crate::text::{is_dns_label, is_dns_name};

const SLIPWAYS: &str = "remove it: Slipway sets this flag itself";
const GONE: &str = "remove it: the flag is gone from Kubernetes";
const GATES: &str = "write `kubernetes.featureGates`";

/// One MiB, and 64 processors, in thousandths.
const LEAST_MEMORY: u128 = 1000 << 20;
const MOST_PROCESSORS: u128 = 64_000;

type Owned = &'static [(&'static str, &'static str)];

/// A flag, or the beginning of several where it ends in `*`, and what to do instead.
const API_SERVER: Owned = &[
    (
        "oidc-signing-algs",
        "remove it: every asymmetric algorithm is accepted; write the rest in `kubernetes.apiServer.oidc`",
    ),
    ("oidc-*", "write `kubernetes.apiServer.oidc`"),
    ("authentication-config", "write `kubernetes.apiServer.oidc`"),
    ("audit-log-max*", "write `kubernetes.apiServer.auditLog`"),
    ("audit-log-path", "write `kubernetes.apiServer.auditLog.logPath`"),
    ("audit-policy-file", "write `kubernetes.apiServer.auditLog.policy`"),
    ("enable-admission-plugins", "write `kubernetes.apiServer.enableAdmissionPlugins`"),
    ("disable-admission-plugins", "write `kubernetes.apiServer.disableAdmissionPlugins`"),
    ("admission-control-config-file", "write `kubernetes.apiServer.podSecurity` or `eventRateLimits`"),
    (
        "admission-control",
        "write `kubernetes.apiServer.enableAdmissionPlugins`: the flag is gone from Kubernetes",
    ),
    ("encryption-provider-config*", "write `kubernetes.encryptionAtRest`"),
    ("service-cluster-ip-range", "write `serviceCIDR`"),
    ("service-account-*", "write `iamRolesForServiceAccounts`: Slipway sets this flag itself"),
    ("api-audiences", SLIPWAYS),
    ("advertise-address", SLIPWAYS),
    ("allow-privileged", SLIPWAYS),
    ("authorization-*", SLIPWAYS),
    (
        "anonymous-auth",
        "remove it: load balancers ask for `/readyz` without credentials, and would consider every controller unhealthy; RBAC lets anonymous callers see health and version only",
    ),
    ("bind-address", SLIPWAYS),
    ("client-ca-file", SLIPWAYS),
    ("cloud-*", SLIPWAYS),
    ("enable-bootstrap-token-auth", SLIPWAYS),
    ("etcd-*", SLIPWAYS),
    ("kubelet-c*", SLIPWAYS),
    ("proxy-client-*", SLIPWAYS),
    ("requestheader-*", SLIPWAYS),
    ("secure-port", SLIPWAYS),
    ("tls-cert-file", SLIPWAYS),
    ("tls-private-key-file", SLIPWAYS),
    ("token-auth-file", SLIPWAYS),
    ("feature-gates", GATES),
    ("target-ram-mb", GONE),
    ("insecure-*", GONE),
    ("port", GONE),
];
const CONTROLLER_MANAGER: Owned = &[
    ("node-monitor-grace-period", "write `kubernetes.controllerManager.nodeMonitorGracePeriod`"),
    (
        "pod-eviction-timeout",
        "remove it, for it is gone from Kubernetes; write the flags `default-not-ready-toleration-seconds` and `default-unreachable-toleration-seconds` in `kubernetes.apiServer.flags`",
    ),
    ("cluster-cidr", "write `podCIDR`"),
    ("service-cluster-ip-range", "write `serviceCIDR`"),
    ("allocate-node-cidrs", SLIPWAYS),
    ("authentication-kubeconfig", SLIPWAYS),
    ("authorization-kubeconfig", SLIPWAYS),
    ("bind-address", SLIPWAYS),
    ("client-ca-file", SLIPWAYS),
    ("cloud-*", SLIPWAYS),
    ("cluster-name", SLIPWAYS),
    ("cluster-signing-*", SLIPWAYS),
    ("kubeconfig", SLIPWAYS),
    ("leader-elect", SLIPWAYS),
    ("requestheader-*", SLIPWAYS),
    ("root-ca-file", SLIPWAYS),
    ("secure-port", SLIPWAYS),
    ("service-account-private-key-file", SLIPWAYS),
    ("tls-cert-file", SLIPWAYS),
    ("tls-private-key-file", SLIPWAYS),
    ("use-service-account-credentials", SLIPWAYS),
    ("feature-gates", GATES),
    ("address", GONE),
    ("port", GONE),
    ("enable-taint-manager", GONE),
    ("horizontal-pod-autoscaler-use-rest-clients", GONE),
];
const SCHEDULER: Owned = &[
    ("authentication-kubeconfig", SLIPWAYS),
    ("authorization-kubeconfig", SLIPWAYS),
    ("bind-address", SLIPWAYS),
    ("client-ca-file", SLIPWAYS),
    (
        "config",
        "remove it: the scheduler's container sees no file of yours; run a second scheduler in the cluster for other profiles",
    ),
    ("kubeconfig", SLIPWAYS),
    ("leader-elect", SLIPWAYS),
    ("requestheader-*", SLIPWAYS),
    ("secure-port", SLIPWAYS),
    ("tls-cert-file", SLIPWAYS),
    ("tls-private-key-file", SLIPWAYS),
    ("feature-gates", GATES),
    ("address", GONE),
    ("port", GONE),
    ("policy-config*", GONE),
    ("algorithm-provider", GONE),
];

impl Lowering<'_, '_, '_> {
    pub(super) fn kubernetes(&mut self) -> Kubernetes {
        let spec = &self.spec.kubernetes;
        let path = Path::parse("kubernetes");
        let api = path.key("apiServer");
        let names = api.key("certSANs");
        for (index, name) in spec.api_server.cert_sans.iter().enumerate() {
            let help = "write a DNS name or an address, without scheme and port";
            if name.parse::<IpAddr>().is_ok() {
                continue;
            }
            // No top-level domain is a number (RFC 3696, section 2): this is an address that is none.
            let number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
            if !is_dns_name(name) {
                let message = format!("`{name}` cannot stand in a certificate");
                self.report.error("dns-name", &names.index(index), message, help);
            } else if name.rsplit('.').next().is_some_and(number) {
                let message = format!("`{name}` is neither an address nor the name of anything");
                self.report.warning("dns-name", &names.index(index), message, help);
            }
        }
        self.feature_gates(&spec.feature_gates, &path.key("featureGates"));
        let mut api_server = self.component(
            &spec.api_server.flags,
            &spec.api_server.resources,
            ("kube-apiserver", API_SERVER),
            &api,
        );
        api_server.volumes = self.host_volumes(&spec.api_server.volumes, &api.key("volumes"));
        self.flag_files(&spec.api_server.flags, &api_server.volumes, &api.key("flags"));
        let (manager, place) = (&spec.controller_manager, path.key("controllerManager"));
        let mut controller_manager = self.component(
            &manager.flags,
            &manager.resources,
            ("kube-controller-manager", CONTROLLER_MANAGER),
            &place,
        );
        if let Some(period) = &manager.node_monitor_grace_period {
            let length = nanoseconds(period);
            if length.is_none_or(|length| length <= 0) {
                let above = if length.is_some() { " above zero" } else { "" };
                let message = format!("`{period}` is not a duration{above}");
                let help = "write one such as `50s` or `2m`";
                self.report.error("duration", &place.key("nodeMonitorGracePeriod"), message, help);
            }
            controller_manager.flags.insert("node-monitor-grace-period".to_owned(), period.clone());
        }
        let (scheduler, place) = (&spec.kube_scheduler, path.key("kubeScheduler"));
        Kubernetes {
            encryption_at_rest: spec.encryption_at_rest.enabled.unwrap_or(true),
            extra_sans: spec.api_server.cert_sans.clone(),
            audit_log: self.audit_log(&spec.api_server.audit_log, &api.key("auditLog")),
            feature_gates: spec.feature_gates.clone(),
            oidc: spec.api_server.oidc.as_ref().and_then(|oidc| self.oidc(oidc, &api.key("oidc"))),
            admission: self.admission(&api),
            api_server,
            controller_manager,
            scheduler: self.component(
                &scheduler.flags,
                &scheduler.resources,
                ("kube-scheduler", SCHEDULER),
                &place,
            ),
            kubelet: self.kubelet(&spec.kubelet, &path.key("kubelet")),
        }
    }

    /// How gates are written. Which ones there are changes with each release: [`Lowering::gates_known`].
    pub(super) fn feature_gates(&mut self, gates: &BTreeMap<String, bool>, path: &Path) {
        for name in gates.keys() {
            if !name.starts_with(|letter: char| letter.is_ascii_uppercase())
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric())
            {
                let help = "write one as the release's notes have it, such as `InPlacePodVerticalScaling`";
                let message = format!("`{name}` cannot be a feature gate");
                self.report.error("feature-gate", &path.key(name), message, help);
            }
        }
    }

    fn oidc(&mut self, spec: &OidcSpec, path: &Path) -> Option<Oidc> {
        let (issuer, client) = (spec.issuer_url.as_deref()?, spec.client_id.as_deref()?);
        let place = issuer.strip_prefix("https://").map(|rest| rest.split('/').next().unwrap_or_default());
        let parts =
            place.map(|place| place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))));
        let host = parts
            .filter(|(_, port)| port.is_none_or(|port| port.is_empty() || port.parse::<u16>().is_ok()))
            .map(|(host, _)| host);
        let blank = |text: &str| text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
        if !host.is_some_and(is_dns_name) || issuer.contains(['?', '#', '@']) || blank(issuer) {
            let message = format!("`{issuer}` is not the URL of an issuer");
            let help =
                "write one such as `https://accounts.example.com`: with `https`, without query and fragment";
            self.report.error("oidc-issuer", &path.key("issuerURL"), message, help);
        }
        for (key, value) in [
            ("clientID", Some(client)),
            ("usernameClaim", spec.username_claim.as_deref()),
            ("groupsClaim", spec.groups_claim.as_deref()),
        ] {
            if value.is_some_and(|value| value.is_empty() || blank(value)) {
                self.report.error(
                    "oidc-claim",
                    &path.key(key),
                    format!("`{key}` is empty or contains white space"),
                    "write one word",
                );
            }
        }
        // Whoever signs in with a prefix of Kubernetes' own could be anybody in the cluster.
        for (key, value) in [("usernamePrefix", &spec.username_prefix), ("groupsPrefix", &spec.groups_prefix)]
        {
            if value.as_deref().is_some_and(|value| value.starts_with("system:")) {
                let message = "names that begin with `system:` are Kubernetes' own";
                self.report.error("oidc-prefix", &path.key(key), message, "choose another, such as `oidc:`");
            }
        }
        if spec.groups_prefix.is_some() && spec.groups_claim.is_none() {
            let message = "`groupsPrefix` has no effect without `groupsClaim`";
            self.report.error(
                "missing-key",
                &path.key("groupsPrefix"),
                message,
                "add `groupsClaim`, or remove it",
            );
        }
        if let Some(pem) = &spec.certificate_authority {
            let place = path.key("certificateAuthority");
            if holds_private_key(pem) {
                let help =
                    "take it out and make a new one, for this one was readable; a certificate is enough";
                self.report.error("secret-in-spec", &place, "there is a private key in this", help);
            } else if !holds_certificate(pem) {
                let help = "write the certificate in PEM, below `certificateAuthority: |`";
                self.report.error("certificate", &place, "this is not a certificate in PEM", help);
            }
        }
        let username_claim = spec.username_claim.clone().unwrap_or_else(|| "sub".to_owned());
        let username_prefix = match spec.username_prefix.as_deref() {
            Some("-") => String::new(),
            Some(prefix) => prefix.to_owned(),
            None if username_claim == "email" => String::new(),
            None => format!("{issuer}#"),
        };
        let groups_prefix = spec.groups_prefix.clone().unwrap_or_default();
        Some(Oidc {
            issuer_url: issuer.to_owned(),
            client_id: client.to_owned(),
            username_claim,
            username_prefix,
            groups: spec.groups_claim.clone().map(|claim| (claim, groups_prefix)),
            required_claims: spec.required_claims.clone(),
            certificate_authority: spec.certificate_authority.clone(),
        })
    }

    /// Flags and resources of the component at `path`.
    fn component(
        &mut self,
        flags: &[FlagSpec],
        resources: &ComputeResourcesSpec,
        (program, owned): (&str, Owned),
        path: &Path,
    ) -> Component {
        let mut component = Component::default();
        for (index, flag) in flags.iter().enumerate() {
            let path = path.key("flags").index(index);
            let (Some(name), Some(value)) = (&flag.name, &flag.value) else { continue };
            let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            let place = path.key("name");
            if name.is_empty() || name.starts_with('-') || !name.bytes().all(word) {
                let message = format!("`{name}` cannot be a flag's name");
                self.report.error(
                    "flag-name",
                    &place,
                    message,
                    "write it in small letters, without dashes before it",
                );
            } else if let Some((_, help)) = owned.iter().find(|(owned, _)| matches(owned, name)) {
                self.report.error(
                    "flag-owned",
                    &place,
                    format!("the flag `{name}` cannot be given here"),
                    *help,
                );
            } else {
                self.flag_value(program, name, value, &path);
            }
            if value.contains(char::is_control) {
                let message = format!("the value of `{name}` has more than one line");
                self.report.error("flag-value", &path.key("value"), message, "write it in one line");
            }
            if component.flags.insert(name.clone(), value.clone()).is_some() {
                let message = format!("the flag `{name}` is given twice");
                self.report.error(
                    "duplicate-name",
                    &place,
                    message,
                    "keep one, with all values joined by commas",
                );
            }
        }
        component.resources = self.resources(resources, &path.key("resources"));
        component
    }

    /// Of a component or an add-on.
    pub(super) fn resources(
        &mut self,
        spec: &ComputeResourcesSpec,
        path: &Path,
    ) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut resources: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (group, quota) in [("requests", &spec.requests), ("limits", &spec.limits)] {
            for (key, value) in [("cpu", &quota.cpu), ("memory", &quota.memory)] {
                let Some(value) = value else { continue };
                if super::kubelet::quantity(value).is_none() {
                    let message = format!("`{value}` is not a quantity");
                    let help = "write one such as `250m`, `2`, `512Mi` or `1Gi`";
                    self.report.error("quantity", &path.key(group).key(key), message, help);
                }
                self.magnitude(group, key, value, &path.key(group).key(key));
                resources.entry(group.to_owned()).or_default().insert(key.to_owned(), value.clone());
            }
        }
        for key in ["cpu", "memory"] {
            let amount = |group: &str| {
                resources
                    .get(group)
                    .and_then(|quota| quota.get(key))
                    .and_then(|text| super::kubelet::quantity(text))
            };
            if let (Some(request), Some(limit)) = (amount("requests"), amount("limits"))
                && request > limit
            {
                let message = format!("`{key}` asks for more than its limit allows");
                let help = "write a request that is not above the limit";
                self.report.error("quantity", &path.key("requests").key(key), message, help);
            }
        }
        resources
    }

    /// Quantities that are right, and meant otherwise: `m` is a thousandth, and `512m` of memory half a byte.
    fn magnitude(&mut self, group: &str, key: &str, text: &str, path: &Path) {
        let Some(amount) = super::kubelet::quantity(text) else { return };
        // None at all stands for no limit.
        if key == "memory" && amount > 0 && amount < LEAST_MEMORY {
            let message = format!("`{text}` of memory is less than one MiB");
            let unit = if text.ends_with('m') {
                "The unit `m` is a thousandth of a byte"
            } else {
                "Without `Mi` the number counts smaller units"
            };
            let help = format!("did you mean `{}Mi`? {unit}", digits_of(text));
            // runc cannot start a process within such a limit; a request of no memory is granted.
            if group == "limits" {
                self.report.error("quantity", path, message, help);
            } else {
                self.report.warning("quantity", path, message, help);
            }
        } else if key == "cpu" && amount >= MOST_PROCESSORS {
            let message = format!("`{text}` asks for {} processors", amount / 1000);
            let help = format!(
                "did you mean `{}m`? Without `m` the number counts whole processors",
                digits_of(text)
            );
            self.report.warning("quantity", path, message, help);
        }
    }

    fn host_volumes(&mut self, specs: &[HostVolumeSpec], path: &Path) -> Vec<HostVolume> {
        let mut volumes: Vec<HostVolume> = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            let place = path.index(index);
            let (Some(name), Some(from)) = (&spec.name, &spec.path) else { continue };
            if !is_dns_label(name) || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                let help = "write small letters, digits and hyphens";
                self.report.error(
                    "volume-name",
                    &place.key("name"),
                    format!("`{name}` cannot name a volume"),
                    help,
                );
            }
            self.custom_path(from, &place.key("path"));
            self.above_ours(from, &place.key("path"));
            if volumes.iter().any(|other| other.name == *name || other.path == *from) {
                let message = format!("the volume `{name}`, or its path, is given twice");
                self.report.error("duplicate-name", &place.key("name"), message, "keep one of them");
            }
            volumes.push(HostVolume {
                name: name.clone(),
                path: from.clone(),
                read_only: spec.read_only.unwrap_or(true),
            });
        }
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        volumes
    }
}

/// Whether the flag is the owned one, or begins like it.
fn matches(owned: &str, name: &str) -> bool {
    owned.strip_suffix('*').map_or(owned == name, |beginning| name.starts_with(beginning))
}

/// A quantity without its unit.
fn digits_of(quantity: &str) -> &str {
    quantity.trim_end_matches(|letter: char| letter.is_ascii_alphabetic())
}

/// Whether there is a certificate in the PEM, as far as can be told without reading it: a block with something in base64 that begins as
/// DER does.
fn holds_certificate(pem: &str) -> bool {
    pem.split("-----BEGIN CERTIFICATE-----").skip(1).any(|rest| {
        let Some((body, _)) = rest.split_once("-----END CERTIFICATE-----") else { return false };
        let body: String = body.split_whitespace().collect();
        BASE64_STANDARD.decode(body).is_ok_and(|der| der.first() == Some(&0x30))
    })
}
