//! The kubelet: its configuration, its unit, and how it comes to be somebody.
//!
//! It asks for its first certificate with the bootstrap token and keeps it new by itself. It does not wait for it: static
//! pods start before any API answers, as they must on controllers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use slipway_core::node::Kubelet;

use super::containerd::ENDPOINT;
use super::flags::Flags;
use super::static_pod::MANIFESTS;
use super::{Facts, json as text, kubeconfig, pki};
use crate::machine::{File, Furniture, Unit};

const CONFIG: &str = "/etc/kubernetes/kubelet.json";
const BOOTSTRAP: &str = "/etc/kubernetes/bootstrap.kubeconfig";
pub(super) const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// What the bridge, containers' layers and kube-proxy need of the kernel. kube-proxy writes `nf_conntrack_max` first of all, and exits where
/// nothing has loaded the module (kubernetes `cmd/kube-proxy/app/conntrack.go`, kops PR 17968).
const KERNEL_MODULES: [&str; 3] = ["br_netfilter", "nf_conntrack", "overlay"];
const MODULES: &str = "/etc/modules-load.d/kubernetes.conf";
const SYSCTL: &str = "/etc/sysctl.d/90-kubernetes.conf";

/// What it is told.
pub(super) struct Settings<'c> {
    /// How its unit names it.
    pub(super) program: String,
    pub(super) kubelet: &'c Kubelet,
    pub(super) feature_gates: &'c BTreeMap<String, bool>,
    pub(super) api_server: &'c str,
    pub(super) static_pods: bool,
}

/// Its files and its unit.
pub(super) fn furniture(settings: &Settings<'_>, facts: &Facts) -> Furniture {
    Furniture {
        files: vec![
            File::public(MODULES, KERNEL_MODULES.join("\n") + "\n"),
            File::public(SYSCTL, "net.bridge.bridge-nf-call-iptables = 1\nnet.ipv4.ip_forward = 1\n"),
            File::public(BOOTSTRAP, kubeconfig::with_bootstrap_token(settings.api_server)),
            File::public(CONFIG, text(&configuration(settings, facts))),
        ],
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
            // The API server's own client certificate is of the cluster's authority.
            "x509": { "clientCAFile": pki("ca.pem") },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "systemd",
        "clusterDNS": [kubelet.cluster_dns],
        "clusterDomain": kubelet.cluster_domain,
        "containerRuntimeEndpoint": ENDPOINT,
        "providerID": facts.provider_id(),
        "readOnlyPort": 0,
        "registerWithTaints": kubelet.taints,
        "resolvConf": facts.resolv_conf,
        "rotateCertificates": true,
        // Approved by the node manager, for nodes that are who they say.
        "serverTLSBootstrap": true,
        // A machine that is stopped gives its pods the time to stop too.
        "shutdownGracePeriod": "60s",
        "shutdownGracePeriodCriticalPods": "20s",
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

fn flags(settings: &Settings<'_>, facts: &Facts) -> Flags {
    let mut flags = Flags::default();
    flags
        .set("bootstrap-kubeconfig", BOOTSTRAP)
        .set("cert-dir", "/var/lib/kubelet/pki")
        .set("cloud-provider", "external")
        .set("config", CONFIG)
        .set("hostname-override", facts.node_name())
        .set("kubeconfig", KUBECONFIG)
        .set("node-ip", facts.address);
    let labels = settings.kubelet.node_labels.iter();
    let labels: Vec<String> = labels.map(|(label, value)| format!("{label}={value}")).collect();
    flags.set_list("node-labels", &labels);
    flags
}

fn unit(settings: &Settings<'_>, facts: &Facts) -> String {
    let mut unit = format!(
        "[Unit]
Description=Kubernetes' agent on this node
Wants=network-online.target
After=network-online.target containerd.service
StartLimitIntervalSec=0

[Service]
# Where the kernel has them built in, or is a container's host's, there is nothing to load.
ExecStartPre=-modprobe --all {}
ExecStartPre=-sysctl --load={SYSCTL}
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
