//! Flannel: the pod network, VXLAN between nodes on the port that the security groups allow.
//!
//! The controller manager assigns a range to each node (`spec.podCIDR`). Flannel includes its own CNI plugin; the standard plugins that
//! it delegates to (bridge, host-local, portmap, loopback) are installed on the node.

use serde_json::{Value, json};
use slipway_core::cluster::ProxyMode;

use super::Kit;
use super::object::{
    as_root, env_field, host_path, mount, on_linux, read_only, rule, tolerate_everything, with_capabilities,
    with_config,
};
use super::own_node::OwnNode;
use crate::images::Image;
use crate::ports;

const APP: &str = "flannel";

/// At its start it writes its annotations into its own Node, and the condition that the node has its network. Both are patches of
/// `nodes/status` (`AcquireLease` and `CompleteLease` in `pkg/subnet/kube/kube.go`; the prefix is its flag `kube-annotation-prefix`).
const OWN_NODE: OwnNode =
    OwnNode { account: APP, annotations: "flannel.alpha.coreos.com/", condition: "NetworkUnavailable" };

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let (image, plugin) = (kit.image(Image::Flannel), kit.image(Image::FlannelCni));
    let rules = json!([
        rule(&[""], &["nodes"], &["get", "list", "watch"]),
        // Of its own Node alone.
        rule(&[""], &["nodes/status"], &["patch"]),
    ]);
    let config = kit.config_map(
        "kube-flannel-cfg",
        json!({
            "cni-conf.json": cni().to_string(),
            "net-conf.json": network(kit).to_string(),
        }),
    );
    let daemon_set = kit.daemon_set("kube-flannel-ds", APP, pod(kit, &image, &plugin));
    let mut objects = OWN_NODE.objects(kit).to_vec();
    objects.extend([
        kit.service_account(APP),
        kit.cluster_role(APP, rules),
        kit.cluster_role_binding(APP, APP, APP),
        with_config(daemon_set, &config),
        config,
    ]);
    objects
}

fn cni() -> Value {
    json!({
        "name": "cbr0",
        "cniVersion": "1.0.0",
        "plugins": [
            { "type": "flannel", "delegate": { "hairpinMode": true, "isDefaultGateway": true } },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

fn network(kit: &Kit<'_, '_>) -> Value {
    let cluster = kit.context.cluster;
    json!({
        "Network": cluster.network.pod_cidr.to_string(),
        "EnableNFTables": cluster.addons.kube_proxy_mode == ProxyMode::Nftables,
        "Backend": { "Type": "vxlan", "Port": ports::POD_NETWORK },
    })
}

fn pod(kit: &Kit<'_, '_>, image: &str, plugin: &str) -> Value {
    let install = |name: &str, image: &str, from: &str, to: &str, mounts: Value| {
        json!({
            "name": name,
            "image": image,
            "command": ["cp"],
            "args": ["-f", from, to],
            "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
            "securityContext": with_capabilities(&[]),
            "volumeMounts": mounts,
        })
    };
    json!({
        "serviceAccountName": APP,
        "hostNetwork": true,
        "priorityClassName": "system-node-critical",
        "nodeSelector": on_linux(),
        "tolerations": tolerate_everything(),
        "securityContext": as_root(),
        "initContainers": [
            install("install-cni-plugin", plugin, "/flannel", "/opt/cni/bin/flannel", json!([mount("cni-plugin", "/opt/cni/bin")])),
            install(
                "install-cni",
                image,
                "/etc/kube-flannel/cni-conf.json",
                "/etc/cni/net.d/10-flannel.conflist",
                json!([mount("cni", "/etc/cni/net.d"), read_only("config", "/etc/kube-flannel")]),
            ),
        ],
        "containers": [{
            "name": "kube-flannel",
            "image": image,
            "command": ["/opt/bin/flanneld"],
            "args": ["--ip-masq", "--kube-subnet-mgr"],
            "resources": kit.resources(json!({ "cpu": "100m", "memory": "50Mi" }), json!({})),
            // Its image selects the node's variant of iptables at start and writes that into its file system.
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": with_capabilities(&["NET_ADMIN", "NET_RAW"])["capabilities"],
            },
            "env": [
                // Without it, flannel would read its own pod, and would need the right to read every pod.
                env_field("NODE_NAME", "spec.nodeName"),
                { "name": "EVENT_QUEUE_DEPTH", "value": "5000" },
            ],
            "volumeMounts": [
                mount("run", "/run/flannel"),
                read_only("config", "/etc/kube-flannel"),
                mount("xtables-lock", "/run/xtables.lock"),
            ],
        }],
        "volumes": [
            host_path("run", "/run/flannel", "DirectoryOrCreate"),
            host_path("cni-plugin", "/opt/cni/bin", "DirectoryOrCreate"),
            host_path("cni", "/etc/cni/net.d", "DirectoryOrCreate"),
            { "name": "config", "configMap": { "name": "kube-flannel-cfg" } },
            host_path("xtables-lock", "/run/xtables.lock", "FileOrCreate"),
        ],
    })
}
