//! CoreDNS: the cluster's DNS service, at the address that kubelets configure in pods.

use serde_json::{Value, json};

use super::Kit;
use super::object::{
    as_user, http_probe, on_linux, read_only, rule, spread, tolerate_control_plane, with_capabilities,
};
use crate::images::Image;
use crate::node_config::CLUSTER_DOMAIN;

const APP: &str = "kube-dns";

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let image = kit.image(Image::CoreDns);
    let replicas = kit.replicas();
    let rules = json!([
        rule(&[""], &["services", "pods", "namespaces"], &["list", "watch"]),
        rule(&["discovery.k8s.io"], &["endpointslices"], &["list", "watch"]),
    ]);
    let mut objects = vec![
        kit.service_account("coredns"),
        kit.cluster_role("system:coredns", rules),
        kit.cluster_role_binding("system:coredns", "system:coredns", "coredns"),
        kit.config_map("coredns", json!({ "Corefile": corefile(kit) })),
        service(kit),
        kit.deployment("coredns", APP, replicas, true, pod(kit, &image)),
    ];
    objects.extend(kit.disruption_budget("coredns", APP, replicas));
    objects
}

/// Other software relies on the name `kube-dns`.
fn service(kit: &Kit<'_, '_>) -> Value {
    let port = |name: &str, protocol: &str, port: u16| json!({ "name": name, "protocol": protocol, "port": port, "targetPort": port });
    let spec = json!({
        "clusterIP": kit.context.cluster.network.dns_service_ip.to_string(),
        "selector": { "k8s-app": APP },
        "ports": [port("dns", "UDP", 53), port("dns-tcp", "TCP", 53), port("metrics", "TCP", 9153)],
    });
    let mut service = kit.namespaced("v1", "Service", "kube-dns", json!({ "spec": spec }));
    service["metadata"]["labels"]["k8s-app"] = json!(APP);
    service["metadata"]["labels"]["kubernetes.io/name"] = json!("CoreDNS");
    service
}

/// The configuration file, which CoreDNS reloads itself.
fn corefile(kit: &Kit<'_, '_>) -> String {
    let addons = &kit.context.cluster.addons;
    let mut lines: Vec<String> = Vec::new();
    let mut push = |text: &str| lines.push(text.to_owned());
    push(".:53 {");
    push("    errors");
    // Time for all kube-proxies to remove the pod from the service.
    push("    health {\n        lameduck 5s\n    }");
    push("    ready");
    for line in addons.core_dns_extra.iter().flat_map(|text| text.lines()) {
        push(&format!("    {line}"));
    }
    push(&format!("    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{"));
    push("        pods insecure");
    push("        fallthrough in-addr.arpa ip6.arpa");
    push("        ttl 30");
    push("    }");
    push("    prometheus :9153");
    push("    forward . /etc/resolv.conf {\n        max_concurrent 1000\n    }");
    push("    cache 30");
    push("    loop");
    push("    reload");
    push("    loadbalance");
    push("}");
    for line in addons.core_dns_zones.iter().flat_map(|text| text.lines()) {
        push(line);
    }
    lines.join("\n") + "\n"
}

fn pod(kit: &Kit<'_, '_>, image: &str) -> Value {
    json!({
        "serviceAccountName": "coredns",
        // The node's resolver; otherwise CoreDNS would forward to itself.
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": on_linux(),
        "tolerations": tolerate_control_plane(),
        "topologySpreadConstraints": spread(APP, kit.context.cluster.controller.count),
        "securityContext": as_user(65532),
        "containers": [{
            "name": "coredns",
            "image": image,
            "args": ["-conf", "/etc/coredns/Corefile"],
            "resources": kit.resources(json!({ "cpu": "100m", "memory": "70Mi" }), json!({ "memory": "170Mi" })),
            "ports": [
                { "name": "dns", "containerPort": 53, "protocol": "UDP" },
                { "name": "dns-tcp", "containerPort": 53, "protocol": "TCP" },
                { "name": "metrics", "containerPort": 9153, "protocol": "TCP" },
            ],
            "livenessProbe": http_probe("/health", 8080),
            "readinessProbe": { "httpGet": { "path": "/ready", "port": 8181 }, "periodSeconds": 5 },
            "securityContext": with_capabilities(&["NET_BIND_SERVICE"]),
            "volumeMounts": [read_only("config", "/etc/coredns")],
        }],
        "volumes": [{ "name": "config", "configMap": { "name": "coredns" } }],
    })
}
