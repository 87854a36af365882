//! Node-local DNS: a cache on every node that listens on the address of the DNS service there, so that kubelets and pods need no change.

use serde_json::{Value, json};

use super::Kit;
use super::object::{as_root, host_path, mount, on_linux, read_only, tolerate_everything, with_capabilities};
use crate::images::Image;
use crate::node_config::CLUSTER_DOMAIN;

const APP: &str = "node-local-dns";
/// The link-local address that Kubernetes' documentation suggests. It is used on the node only.
const ADDRESS: &str = "169.254.20.10";

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let image = kit.image(Image::NodeLocalDns);
    vec![
        kit.service_account(APP),
        upstream(kit),
        kit.config_map(APP, json!({ "Corefile": corefile(kit) })),
        kit.daemon_set(APP, APP, pod(kit, &image)),
    ]
}

/// CoreDNS under a second address, because the cache uses the first.
fn upstream(kit: &Kit<'_, '_>) -> Value {
    let port = |name: &str, protocol: &str| json!({ "name": name, "protocol": protocol, "port": 53, "targetPort": 53 });
    let spec = json!({ "selector": { "k8s-app": "kube-dns" }, "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")] });
    kit.namespaced("v1", "Service", "kube-dns-upstream", json!({ "spec": spec }))
}

/// The cache replaces `__PILLAR__…__` by the address of `kube-dns-upstream` and the node's resolvers.
fn corefile(kit: &Kit<'_, '_>) -> String {
    let bind = format!("{ADDRESS} {}", kit.context.cluster.network.dns_service_ip);
    let zone = |name: &str, cache: &str, forward: &str, more: &str| {
        format!(
            "{name}:53 {{\n    errors\n    {cache}\n    reload\n    loop\n    bind {bind}\n    {forward}\n    prometheus :9253\n{more}}}\n"
        )
    };
    let cluster = "forward . __PILLAR__CLUSTER__DNS__ {\n        force_tcp\n    }";
    let cache = "cache {\n        success 9984 30\n        denial 9984 5\n    }";
    let health = format!("    health {ADDRESS}:8080\n");
    [
        zone(CLUSTER_DOMAIN, cache, cluster, &health),
        zone("in-addr.arpa", "cache 30", cluster, ""),
        zone("ip6.arpa", "cache 30", cluster, ""),
        zone(".", "cache 30", "forward . __PILLAR__UPSTREAM__SERVERS__", ""),
    ]
    .concat()
}

fn pod(kit: &Kit<'_, '_>, image: &str) -> Value {
    json!({
        "serviceAccountName": APP,
        "hostNetwork": true,
        "dnsPolicy": "Default",
        "priorityClassName": "system-node-critical",
        "nodeSelector": on_linux(),
        "tolerations": tolerate_everything(),
        "securityContext": as_root(),
        "containers": [{
            "name": "node-cache",
            "image": image,
            "args": [
                "-localip",
                format!("{ADDRESS},{}", kit.context.cluster.network.dns_service_ip),
                "-conf",
                "/etc/Corefile",
                "-upstreamsvc",
                "kube-dns-upstream",
            ],
            "resources": kit.resources(json!({ "cpu": "25m", "memory": "32Mi" }), json!({})),
            "ports": [
                { "name": "dns", "containerPort": 53, "protocol": "UDP" },
                { "name": "dns-tcp", "containerPort": 53, "protocol": "TCP" },
                { "name": "metrics", "containerPort": 9253, "protocol": "TCP" },
            ],
            "livenessProbe": {
                "httpGet": { "host": ADDRESS, "path": "/health", "port": 8080 },
                "initialDelaySeconds": 60,
                "timeoutSeconds": 5,
            },
            // It writes /etc/Corefile from the template, and its image may use the legacy variant of iptables, which opens a raw socket.
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": with_capabilities(&["NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"])["capabilities"],
            },
            "volumeMounts": [mount("xtables-lock", "/run/xtables.lock"), read_only("config", "/etc/coredns")],
        }],
        "volumes": [
            host_path("xtables-lock", "/run/xtables.lock", "FileOrCreate"),
            { "name": "config", "configMap": {
                "name": APP,
                "items": [{ "key": "Corefile", "path": "Corefile.base" }],
            } },
        ],
    })
}
