//! kube-network-policies (kubernetes-sigs): enforces the standard network policies beside any pod network.
//!
//! It was preferred to Calico's policy engine with flannel (canal): it is a single daemon set without resource definitions or a
//! datastore, maintained by the Kubernetes project.

use serde_json::{Value, json};

use super::Kit;
use super::object::{env_field, host_path, http_probe, mount, on_linux, rule, tolerate_everything};
use crate::images::Image;

const APP: &str = "kube-network-policies";

/// The port for its metrics in the host network. Its default 9080 is often used by other workloads in the host network.
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
            // It programs nftables and uses the container runtime's NRI socket.
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
