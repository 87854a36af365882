//! The kubelet: its configuration, its unit, and its bootstrap.
//!
//! It requests its first certificate with the bootstrap token, and renews it by itself. It does not wait for it: on controllers
//! static pods must start before any API answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use slipway_core::node::Kubelet;

use super::containerd::ENDPOINT;
use super::flags::{Flags, TLS_CIPHER_SUITES, TLS_MIN_VERSION};
use super::{Facts, json as text, kubeconfig, pki};
use crate::api::KUBELET_KUBECONFIG;
use crate::image_credentials;
use crate::machine::{File, Setup, Unit};
use crate::static_pods::MANIFESTS;

const CONFIG: &str = "/etc/kubernetes/kubelet.json";
/// Which images the kubelet asks a plugin for a password.
const IMAGE_CREDENTIALS: &str = "/etc/kubernetes/image-credentials.json";
const BOOTSTRAP: &str = "/etc/kubernetes/bootstrap.kubeconfig";
/// Needed by the bridge, by overlay file systems and by kube-proxy, which writes `nf_conntrack_max` at its start and exits if
/// nothing has loaded the module (kubernetes `cmd/kube-proxy/app/conntrack.go`, kops PR 17968).
const KERNEL_MODULES: [&str; 3] = ["br_netfilter", "nf_conntrack", "overlay"];
const MODULES: &str = "/etc/modules-load.d/kubernetes.conf";
const SYSCTL: &str = "/etc/sysctl.d/90-kubernetes.conf";
/// `fs.inotify`: the kernel allows a user 128 instances, and all containers of root share them; a node full of pods needs more. Not
/// `max_user_watches`: the kernel derives it from the memory, from 8192 to 1048576 (linux `fs/notify/inotify/inotify_user.c`,
/// `inotify_user_setup`), and a fixed number would be less than that on large machines.
///
/// From `kernel.keys` on: what the kubelet would set itself. With `protectKernelDefaults` it only compares, and does not start with any
/// other value (kubernetes `pkg/kubelet/cm/container_manager_linux.go`, `setupKernelTunables`; the values are in
/// `k8s.io/component-helpers/node/util/sysctl/sysctl.go`, the same from 1.34 to 1.36). The unit loads this file before each start of the
/// kubelet, so a file of the image with other values is overridden.
const SYSCTLS: &str = "net.bridge.bridge-nf-call-iptables = 1
net.ipv4.ip_forward = 1
fs.inotify.max_user_instances = 8192
kernel.keys.root_maxbytes = 25000000
kernel.keys.root_maxkeys = 1000000
kernel.panic = 10
kernel.panic_on_oops = 1
vm.overcommit_memory = 1
vm.panic_on_oom = 0
";
/// The kubelet delays a shutdown by an inhibitor of logind, and does without graceful shutdown if logind allows it less time than
/// `shutdownGracePeriod`. It then writes `99-kubelet.conf` itself (kubernetes `pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go`), but
/// the last file by name wins, and Debian's and Ubuntu's package unattended-upgrades has `unattended-upgrades-logind-maxdelay.conf` with
/// 30 s.
const LOGIND: &str = "/etc/systemd/logind.conf.d/zz-slipway.conf";

pub(super) struct Settings<'c> {
    /// The program in the unit.
    pub(super) program: String,
    pub(super) kubelet: &'c Kubelet,
    pub(super) feature_gates: &'c BTreeMap<String, bool>,
    pub(super) api_server: &'c str,
    pub(super) static_pods: bool,
}

pub(super) fn setup(settings: &Settings<'_>, facts: &Facts) -> Setup {
    let configuration = configuration(settings, facts);
    let mut files = vec![
        File::public(MODULES, KERNEL_MODULES.join("\n") + "\n"),
        File::public(SYSCTL, SYSCTLS),
        File::private(BOOTSTRAP, kubeconfig::with_bootstrap_token(settings.api_server)),
        File::private(CONFIG, text(&configuration)),
        File::public(IMAGE_CREDENTIALS, text(&image_credentials::configuration())),
    ];
    if let Some(delay) = configuration["shutdownGracePeriod"].as_str().and_then(timespan) {
        files.push(File::public(LOGIND, format!("[Login]\nInhibitDelayMaxSec={delay}\n")));
    }
    Setup {
        files,
        units: vec![Unit { name: "kubelet.service".to_owned(), content: Some(unit(settings, facts)) }],
    }
}

fn configuration(settings: &Settings<'_>, facts: &Facts) -> Value {
    let kubelet = settings.kubelet;
    let mut configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            // The API server presents a client certificate of the cluster's authority.
            "x509": { "clientCAFile": pki("ca.pem") },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "systemd",
        "clusterDNS": [kubelet.cluster_dns],
        "clusterDomain": kubelet.cluster_domain,
        "containerRuntimeEndpoint": ENDPOINT,
        // It compares the kernel's settings with what it needs, and changes none: `SYSCTLS` has them.
        "protectKernelDefaults": true,
        "providerID": facts.provider_id(),
        "readOnlyPort": 0,
        "registerWithTaints": kubelet.taints,
        "resolvConf": facts.resolv_conf,
        "rotateCertificates": true,
        // The node manager approves the requests.
        "serverTLSBootstrap": true,
        // A machine that shuts down first stops its pods.
        "shutdownGracePeriod": "60s",
        "shutdownGracePeriodCriticalPods": "20s",
        "tlsCipherSuites": TLS_CIPHER_SUITES,
        "tlsMinVersion": TLS_MIN_VERSION,
    });
    if settings.static_pods {
        configuration["staticPodPath"] = json!(MANIFESTS);
    }
    if !settings.feature_gates.is_empty() {
        configuration["featureGates"] = json!(settings.feature_gates);
    }
    for (field, value) in &kubelet.configuration {
        configuration[field] = value.clone();
    }
    configuration
}

/// A duration of Go's as a time span of systemd's, which has other names for units: `1m30s` is `1min 30s`. `None` for zero, which
/// switches graceful shutdown off, and for what is no duration.
fn timespan(duration: &str) -> Option<String> {
    let (mut parts, mut rest, mut is_zero) = (Vec::new(), duration, true);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit = &after[..after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len())];
        let name = match unit {
            "h" | "s" | "ms" | "us" => unit,
            "m" => "min",
            _ => return None,
        };
        is_zero &= number.parse::<f64>().ok()? == 0.0;
        parts.push(format!("{number}{name}"));
        rest = &after[unit.len()..];
    }
    (!is_zero).then(|| parts.join(" "))
}

fn flags(settings: &Settings<'_>, facts: &Facts) -> Flags {
    let mut flags = Flags::default();
    flags
        .set("bootstrap-kubeconfig", BOOTSTRAP)
        .set("cert-dir", "/var/lib/kubelet/pki")
        .set("cloud-provider", "external")
        .set("config", CONFIG)
        .set("hostname-override", facts.node_name())
        .set("image-credential-provider-bin-dir", image_credentials::FOLDER)
        .set("image-credential-provider-config", IMAGE_CREDENTIALS)
        .set("kubeconfig", KUBELET_KUBECONFIG)
        .set("node-ip", facts.address);
    let labels = settings.kubelet.node_labels.iter();
    let labels: Vec<String> = labels.map(|(label, value)| format!("{label}={value}")).collect();
    flags.set_list("node-labels", &labels);
    flags
}

fn unit(settings: &Settings<'_>, facts: &Facts) -> String {
    let mut unit = format!(
        "[Unit]
Description=kubelet: the node agent of Kubernetes
Wants=network-online.target
After=network-online.target containerd.service
StartLimitIntervalSec=0

[Service]
# It fails where the kernel has them built in, and in containers; both need nothing.
ExecStartPre=-modprobe --all {}
ExecStartPre=-sysctl --load={SYSCTL}
# By this signal logind reads {LOGIND}.
ExecStartPre=-systemctl kill --signal=HUP systemd-logind.service
ExecStart={}",
        KERNEL_MODULES.join(" "),
        settings.program
    );
    for argument in flags(settings, facts).arguments() {
        let _ = write!(unit, " \\\n    {argument}");
    }
    unit.push_str(
        "
Restart=always
RestartSec=5
CPUAccounting=yes
MemoryAccounting=yes

[Install]
WantedBy=multi-user.target
",
    );
    unit
}

#[cfg(test)]
mod tests {
    use super::{LOGIND, SYSCTLS, timespan};

    #[test]
    fn a_node_allows_more_inotify_instances_and_leaves_the_watches_to_the_kernel() {
        assert!(SYSCTLS.contains("fs.inotify.max_user_instances = 8192\n"));
        assert!(!SYSCTLS.contains("max_user_watches"));
    }

    /// `desiredState` in `setupKernelTunables` of the kubelet, which does not start with other values.
    #[test]
    fn a_kubelet_that_protects_the_kernels_settings_finds_those_that_it_wants() {
        for (name, value) in [
            ("vm.overcommit_memory", 1),
            ("vm.panic_on_oom", 0),
            ("kernel.panic", 10),
            ("kernel.panic_on_oops", 1),
            ("kernel.keys.root_maxkeys", 1_000_000),
            ("kernel.keys.root_maxbytes", 25 * 1_000_000),
        ] {
            assert!(SYSCTLS.lines().any(|line| line == format!("{name} = {value}")), "{name} = {value}");
        }
    }

    #[test]
    fn logind_is_given_the_kubelets_grace_period_in_its_own_units() {
        let spans = ["60s", "1m30s", "2h", "1.5m", "1500ms"].map(timespan);
        let expected = ["60s", "1min 30s", "2h", "1.5min", "1500ms"].map(|span| Some(span.to_owned()));
        assert_eq!(spans, expected);
        for none in ["0s", "0", "0h0m0s", "", "soon", "60", "5d"] {
            assert_eq!(timespan(none), None, "{none}");
        }
    }

    #[test]
    fn the_drop_in_comes_after_those_of_the_kubelet_and_of_unattended_upgrades() {
        let (_, name) = LOGIND.rsplit_once('/').expect("it is a path");
        for other in ["99-kubelet.conf", "unattended-upgrades-logind-maxdelay.conf"] {
            assert!(name > other, "{name} is read before {other}");
        }
    }
}
