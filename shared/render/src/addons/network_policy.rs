//! kube-network-policies (kubernetes-sigs): enforces the standard network policies beside any pod network.
//!
//! Chosen over Calico's policy engine beside flannel (canal): one daemon set, no resource definitions of its own, no
//! datastore, kept by the Kubernetes project itself.

use serde_json::{Value, json};

use super::Kit;
use super::object::{env_field, host_path, http_probe, mount, on_linux, rule, tolerate_everything};
use crate::images::Image;

const APP: &str = "kube-network-policies";

/// Its metrics, on the node's own network; 9080, its own choice, is a port that workloads with host network like too.
const METRICS: u16 = 19080;

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let image = kit.image(Image::NetworkPolicies);
    let rules = json!([
        rule(&[""], &["pods", "namespaces"], &["list", "watch"]),
        rule(&["networking.k8s.io"], &["networkpolicies"], &["list", "watch"]),
    ]);
    vec![
        kit.service_account(APP),
        kit.cluster_role(APP, rules),
        kit.cluster_role_binding(APP, APP, APP),
        kit.daemon_set(APP, APP, pod(kit, &image)),
    ]
}

fn pod(kit: &Kit<'_, '_>, image: &str) -> Value {
    json!({
        "serviceAccountName": APP,
        "hostNetwork": true,
        "priorityClassName": "system-node-critical",
        "nodeSelector": on_linux(),
        "tolerations": tolerate_everything(),
        "containers": [{
            "name": APP,
            "image": image,
            "args": [
                "/bin/netpol",
                "--hostname-override=$(NODE_NAME)",
                "--nfqueue-id=98",
                format!("--metrics-bind-address=:{METRICS}"),
                "--v=2",
            ],
            "env": [env_field("NODE_NAME", "spec.nodeName")],
            "resources": kit.resources(json!({ "cpu": "100m", "memory": "50Mi" }), json!({})),
            "livenessProbe": http_probe("/metrics", METRICS),
            // It programs nftables and enters the runtime's notification socket.
            "securityContext": { "privileged": true },
            "volumeMounts": [
                mount("nri-plugin", "/var/run/nri"),
                { "name": "netns", "mountPath": "/var/run/netns", "mountPropagation": "HostToContainer" },
            ],
        }],
        "volumes": [
            host_path("nri-plugin", "/var/run/nri", "DirectoryOrCreate"),
            host_path("netns", "/var/run/netns", "DirectoryOrCreate"),
        ],
    })
}
