//! metrics-server: resource usage of pods and nodes, for `kubectl top` and horizontal autoscaling.
//!
//! It verifies kubelets' certificates with their authority, which the node manager publishes in the config map `slipway-kubelet-ca`,
//! because pods only know the cluster's main authority.

use serde_json::{Value, json};

use super::Kit;
use super::object::{
    as_user, mount, on_linux, read_only, restricted, rule, selector, spread, tolerate_control_plane,
};
use crate::images::Image;

const APP: &str = "metrics-server";
/// Contains the `ca.crt` of the authority for kubelets' serving certificates.
const KUBELET_CA: &str = "slipway-kubelet-ca";

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let image = kit.image(Image::MetricsServer);
    let replicas = kit.replicas();
    let mut reader = kit.cluster_role(
        "system:aggregated-metrics-reader",
        json!([rule(&["metrics.k8s.io"], &["pods", "nodes"], &["get", "list", "watch"])]),
    );
    for role in ["admin", "edit", "view"] {
        reader["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{role}")] =
            json!("true");
    }
    let rules = json!([
        rule(&[""], &["nodes/metrics"], &["get"]),
        rule(&[""], &["pods", "nodes"], &["get", "list", "watch"]),
    ]);
    let service = kit.namespaced("v1", "Service", APP, json!({ "spec": {
        "selector": selector(APP),
        "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": "https", "appProtocol": "https" }],
    } }));
    let api = kit.cluster_wide(
        "apiregistration.k8s.io/v1",
        "APIService",
        "v1beta1.metrics.k8s.io",
        json!({ "spec": {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        // It generates a self-signed certificate at every start.
        "insecureSkipTLSVerify": true,
        "service": { "name": APP, "namespace": super::object::NAMESPACE },
    } }),
    );
    let mut objects = vec![
        kit.service_account(APP),
        reader,
        kit.cluster_role("system:metrics-server", rules),
        kit.cluster_role_binding("system:metrics-server", "system:metrics-server", APP),
        kit.cluster_role_binding("metrics-server:system:auth-delegator", "system:auth-delegator", APP),
        kit.role_binding("metrics-server-auth-reader", "extension-apiserver-authentication-reader", APP),
        service,
        kit.deployment(APP, APP, replicas, true, pod(kit, &image)),
        api,
    ];
    objects.extend(kit.disruption_budget(APP, APP, replicas));
    objects
}

fn pod(kit: &Kit<'_, '_>, image: &str) -> Value {
    let probe = |path: &str, delay: u16| {
        json!({
            "httpGet": { "path": path, "port": "https", "scheme": "HTTPS" },
            "initialDelaySeconds": delay,
            "periodSeconds": 10,
            "failureThreshold": 3,
        })
    };
    json!({
        "serviceAccountName": APP,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": on_linux(),
        "tolerations": tolerate_control_plane(),
        "topologySpreadConstraints": spread(APP, kit.context.cluster.controller.count),
        "securityContext": as_user(1000),
        "containers": [{
            "name": APP,
            "image": image,
            "args": [
                "--cert-dir=/tmp",
                "--secure-port=10250",
                "--kubelet-preferred-address-types=InternalIP,Hostname",
                "--kubelet-use-node-status-port",
                "--kubelet-certificate-authority=/etc/kubelet-ca/ca.crt",
                "--metric-resolution=15s",
            ],
            "ports": [{ "name": "https", "containerPort": 10250, "protocol": "TCP" }],
            "resources": kit.resources(json!({ "cpu": "100m", "memory": "200Mi" }), json!({})),
            "livenessProbe": probe("/livez", 0),
            "readinessProbe": probe("/readyz", 20),
            "securityContext": restricted(),
            "volumeMounts": [mount("tmp", "/tmp"), read_only("kubelet-ca", "/etc/kubelet-ca")],
        }],
        "volumes": [
            { "name": "tmp", "emptyDir": {} },
            { "name": "kubelet-ca", "configMap": { "name": KUBELET_CA } },
        ],
    })
}
