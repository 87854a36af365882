//! kube-apiserver: its flags and the files that they name.

use serde_json::{Value, json};
use slipway_core::node::{ControlPlane, ControllerConfig};
use slipway_core::oidc;

use super::flags::Flags;
use super::static_pod::{Probes, StaticPod, Volume};
use super::{FRONT_PROXY_CLIENT, Facts, json as text};
use crate::machine::File;
use crate::static_pods::Program;

const AUTHENTICATION: &str = "authentication.json";
const ADMISSION: &str = "admission.json";
const AUDIT_POLICY: &str = "audit-policy.json";

/// Paths that need no credentials: load balancers and the kubelet probe them.
const ANONYMOUS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// The path of a file in the folder that its pod mounts.
fn file(name: &str) -> String {
    Program::ApiServer.file(name)
}

/// Its files besides the credentials.
pub(super) fn files(config: &ControllerConfig) -> Vec<File> {
    let plane = &config.control_plane;
    let mut files = vec![File::public(file(AUTHENTICATION), text(&authentication(plane)))];
    if let Some(configuration) = admission(plane, "configuration") {
        files.push(File::public(file(ADMISSION), text(configuration)));
    }
    if let Some(policy) = plane.audit_log.as_ref().and_then(|log| log.get("policy")) {
        files.push(File::public(file(AUDIT_POLICY), text(policy)));
    }
    files
}

/// The spec's authentication, with anonymous access to the health paths only: `--anonymous-auth` could only allow everything or
/// nothing.
fn authentication(plane: &ControlPlane) -> Value {
    let mut authentication = plane.authentication.clone().unwrap_or_else(|| {
        json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [] })
    });
    let conditions = ANONYMOUS.map(|path| json!({ "path": path }));
    authentication["anonymous"] = json!({ "enabled": true, "conditions": conditions });
    authentication
}

fn admission<'p>(plane: &'p ControlPlane, key: &str) -> Option<&'p Value> {
    plane.admission.as_ref().and_then(|admission| admission.get(key))
}

fn plugins(plane: &ControlPlane, key: &str) -> Vec<String> {
    let names = admission(plane, key).and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) fn pod<'c>(config: &'c ControllerConfig, facts: &Facts) -> StaticPod<'c> {
    let plane = &config.control_plane;
    let mut flags = Flags::default();
    addresses(&mut flags, plane, facts);
    callers(&mut flags, plane);
    tokens(&mut flags, plane);
    storage(&mut flags, plane);
    let mut volumes = vec![
        // The authority of an OpenID Connect provider may be a public one. On Amazon Linux one of these folders links to the
        // other.
        Volume::folder("slipway-certificates", "/etc/ssl/certs", true),
        Volume::folder("slipway-authorities", "/etc/pki", true),
    ];
    volumes.extend(audit(&mut flags, plane));
    flags
        .set("profiling", false)
        .set_tls()
        .set_gates(&config.feature_gates)
        .set_users(&plane.api_server.flags);
    StaticPod {
        program: Program::ApiServer,
        flags,
        probes: Probes { port: plane.bind_port, live: "/livez", ready: Some("/readyz") },
        cpu: "250m",
        volumes,
        component: &plane.api_server,
    }
}

/// Its own address, and how it reaches kubelets and extension servers.
fn addresses(flags: &mut Flags, plane: &ControlPlane, facts: &Facts) {
    flags
        .set("advertise-address", facts.address)
        .set("allow-privileged", true)
        .set("secure-port", plane.bind_port)
        .set("service-cluster-ip-range", &plane.service_cidr)
        .set("tls-cert-file", file("apiserver.pem"))
        .set("tls-private-key-file", file("apiserver-key.pem"))
        // No DNS knows the kubelets' names, which are instance ids.
        .set("kubelet-preferred-address-types", "InternalIP,InternalDNS,Hostname")
        // client-ca.pem has every authority that has signed kubelets; kubelet-ca.pem only the one that signs now.
        .set("kubelet-certificate-authority", file("client-ca.pem"))
        .set("kubelet-client-certificate", file("apiserver-kubelet-client.pem"))
        .set("kubelet-client-key", file("apiserver-kubelet-client-key.pem"))
        .set("proxy-client-cert-file", file(&format!("{FRONT_PROXY_CLIENT}.pem")))
        .set("proxy-client-key-file", file(&format!("{FRONT_PROXY_CLIENT}-key.pem")));
}

/// Authentication, authorization and admission.
fn callers(flags: &mut Flags, plane: &ControlPlane) {
    flags
        .set("authorization-mode", "Node,RBAC")
        .set("authentication-config", file(AUTHENTICATION))
        // The node manager makes the tokens.
        .set("enable-bootstrap-token-auth", true)
        // The authorities of the cluster and of the kubelets.
        .set("client-ca-file", file("client-ca.pem"))
        .set("requestheader-allowed-names", FRONT_PROXY_CLIENT)
        .set("requestheader-client-ca-file", file("front-proxy-ca.pem"))
        .set("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .set("requestheader-group-headers", "X-Remote-Group")
        .set("requestheader-username-headers", "X-Remote-User");
    let mut enabled = plugins(plane, "enable");
    if enabled.is_empty() {
        enabled.push("NodeRestriction".to_owned());
    }
    flags
        .set_list("enable-admission-plugins", &enabled)
        .set_list("disable-admission-plugins", &plugins(plane, "disable"));
    if admission(plane, "configuration").is_some() {
        flags.set("admission-control-config-file", file(ADMISSION));
    }
}

/// Tokens of service accounts: which key signs, and which are accepted.
fn tokens(flags: &mut Flags, plane: &ControlPlane) {
    flags
        .set("service-account-key-file", file("service-account.pub.pem"))
        .set("service-account-signing-key-file", file("service-account-key.pem"));
    match &plane.service_account_tokens {
        None => {
            flags.set("service-account-issuer", oidc::LOCAL_ISSUER);
        }
        Some(tokens) => {
            flags
                .set_all("service-account-issuer", &tokens.issuers)
                .set_list("api-audiences", &tokens.audiences);
            if let Some(uri) = &tokens.jwks_uri {
                flags.set("service-account-jwks-uri", uri);
            }
        }
    }
}

fn storage(flags: &mut Flags, plane: &ControlPlane) {
    flags
        .set_list("etcd-servers", &plane.etcd_servers)
        .set("etcd-cafile", file("etcd-ca.pem"))
        .set("etcd-certfile", file("apiserver-etcd-client.pem"))
        .set("etcd-keyfile", file("apiserver-etcd-client-key.pem"))
        // Also with encryption switched off, to read what was encrypted before.
        .set("encryption-provider-config", file("encryption-config.yaml"))
        .set("encryption-provider-config-automatic-reload", true);
}

/// The audit log; returns the volume for its folder, if it is a file.
fn audit(flags: &mut Flags, plane: &ControlPlane) -> Option<Volume> {
    let log = plane.audit_log.as_ref()?;
    let path = log["path"].as_str()?;
    flags.set("audit-policy-file", file(AUDIT_POLICY)).set("audit-log-path", path);
    for (flag, key) in [
        ("audit-log-maxage", "maxAgeDays"),
        ("audit-log-maxbackup", "maxBackups"),
        ("audit-log-maxsize", "maxSizeMiB"),
    ] {
        if let Some(amount) = log[key].as_u64() {
            flags.set(flag, amount);
        }
    }
    // The whole folder, because log rotation renames files in it.
    let (folder, _) = path.rsplit_once('/')?;
    Some(Volume::folder("slipway-audit-log", folder, false))
}
