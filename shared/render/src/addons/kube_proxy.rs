//! kube-proxy: makes services reachable from every node.
//!
//! It starts before any service address works, so it uses the API endpoint, as kubelets do. On controllers it uses the API server on the
//! same machine, because a load balancer does not return a connection to the machine that it came from. So there are two daemon sets with
//! the same configuration. It authenticates with its service account token; the kubeconfig contains no secret.

use serde_json::{Value, json};
use slipway_core::cluster::{Cluster, ProxyMode};

use super::Kit;
use super::object::{
    CONTROL_PLANE, env_field, host_path, http_probe, mount, on_linux, read_only, tolerate_everything,
    with_config,
};
use crate::images::Image;
use crate::ports;

const APP: &str = "kube-proxy";
const ACCOUNT_FILES: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let image = kit.image(Image::KubeProxy);
    let cluster = kit.context.cluster;
    let config = kit.config_map(APP, json!({
        "config.conf": configuration(kit).to_string(),
        "kubeconfig-worker": kubeconfig(&format!("https://{}", endpoint(cluster))).to_string(),
        "kubeconfig-controller": kubeconfig(&format!("https://127.0.0.1:{}", ports::API_SERVER)).to_string(),
    }));
    let workers = json!({ "key": CONTROL_PLANE, "operator": "DoesNotExist" });
    let controllers = json!({ "key": CONTROL_PLANE, "operator": "Exists" });
    let on_workers = kit.daemon_set("kube-proxy", APP, pod(kit, &image, "kubeconfig-worker", &workers));
    // The selectors must differ, because each set would otherwise adopt the other's pods.
    let on_controllers = kit.daemon_set(
        "kube-proxy-controllers",
        "kube-proxy-controllers",
        pod(kit, &image, "kubeconfig-controller", &controllers),
    );
    let daemon_sets = [with_config(on_workers, &config), with_config(on_controllers, &config)];
    let account = kit.service_account(APP);
    let binding = kit.cluster_role_binding("slipway:kube-proxy", "system:node-proxier", APP);
    [account, binding, config].into_iter().chain(daemon_sets).collect()
}

/// The DNS name by which workers reach the API.
fn endpoint(cluster: &Cluster) -> &str {
    let chosen = cluster.api_endpoints.iter().find(|endpoint| endpoint.name == cluster.worker_api_endpoint);
    chosen.map_or("", |endpoint| endpoint.dns_name.as_str())
}

fn configuration(kit: &Kit<'_, '_>) -> Value {
    let cluster = kit.context.cluster;
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": "0.0.0.0",
        "clientConnection": { "kubeconfig": "/var/lib/kube-proxy/kubeconfig" },
        "clusterCIDR": cluster.network.pod_cidr.to_string(),
        "healthzBindAddress": "0.0.0.0:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": match cluster.addons.kube_proxy_mode {
            ProxyMode::Iptables => "iptables",
            ProxyMode::Nftables => "nftables",
        },
    })
}

/// JSON is valid YAML, and its indentation cannot be wrong.
fn kubeconfig(server: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "default", "cluster": {
            "certificate-authority": format!("{ACCOUNT_FILES}/ca.crt"),
            "server": server,
        } }],
        "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default" } }],
        "current-context": "default",
        "users": [{ "name": "default", "user": { "tokenFile": format!("{ACCOUNT_FILES}/token") } }],
    })
}

fn pod(kit: &Kit<'_, '_>, image: &str, kubeconfig: &str, nodes: &Value) -> Value {
    json!({
        "serviceAccountName": APP,
        "hostNetwork": true,
        "priorityClassName": "system-node-critical",
        "nodeSelector": on_linux(),
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [nodes] }],
        } } },
        "tolerations": tolerate_everything(),
        "containers": [{
            "name": APP,
            "image": image,
            "command": [
                "/usr/local/bin/kube-proxy",
                "--config=/var/lib/kube-proxy/config.conf",
                "--hostname-override=$(NODE_NAME)",
            ],
            "env": [env_field("NODE_NAME", "spec.nodeName")],
            "resources": kit.resources(json!({ "cpu": "50m", "memory": "64Mi" }), json!({})),
            "livenessProbe": http_probe("/livez", 10256),
            // It sets kernel parameters and loads modules.
            "securityContext": { "privileged": true },
            "volumeMounts": [
                read_only("config", "/var/lib/kube-proxy"),
                mount("xtables-lock", "/run/xtables.lock"),
                read_only("lib-modules", "/lib/modules"),
            ],
        }],
        "volumes": [
            { "name": "config", "configMap": { "name": APP, "items": [
                { "key": "config.conf", "path": "config.conf" },
                { "key": kubeconfig, "path": "kubeconfig" },
            ] } },
            host_path("xtables-lock", "/run/xtables.lock", "FileOrCreate"),
            host_path("lib-modules", "/lib/modules", "Directory"),
        ],
    })
}
