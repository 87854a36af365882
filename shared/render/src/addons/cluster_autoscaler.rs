//! The cluster autoscaler: scales the groups of pools that enable it. It finds them by their tags.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Kit;
use super::object::{
    apart, as_user, http_probe, on_controllers, restricted, rule, rule_for, tolerate_control_plane,
};
use crate::images::Image;

const APP: &str = "cluster-autoscaler";

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let image = kit.image(Image::ClusterAutoscaler);
    let replicas = kit.replicas_on_controllers();
    let aws = kit.aws("cluster-autoscaler");
    let leases = json!([
        rule(&["coordination.k8s.io"], &["leases"], &["create"]),
        rule_for("coordination.k8s.io", "leases", &[APP], &["get", "update"]),
        rule(&[""], &["configmaps"], &["create", "list", "watch"]),
        rule_for(
            "",
            "configmaps",
            &["cluster-autoscaler-status", "cluster-autoscaler-priority-expander"],
            &["get", "update", "delete", "watch"],
        ),
    ]);
    let mut objects = vec![
        kit.service_account(APP),
        kit.cluster_role(APP, rules()),
        kit.cluster_role_binding(APP, APP, APP),
        kit.role(APP, leases),
        kit.role_binding(APP, APP, APP),
        aws.apply(kit.deployment(APP, APP, replicas, false, pod(kit, &image))),
    ];
    objects.extend(kit.disruption_budget(APP, APP, replicas));
    objects
}

fn rules() -> Value {
    const LOOK: [&str; 3] = ["get", "list", "watch"];
    json!([
        rule(&[""], &["events"], &["create", "patch"]),
        rule(&["events.k8s.io"], &["events"], &["create", "patch"]),
        rule(&[""], &["pods/eviction"], &["create"]),
        rule(&[""], &["pods/status"], &["update"]),
        rule(&[""], &["nodes"], &["get", "list", "watch", "update", "delete"]),
        rule(
            &[""],
            &[
                "namespaces",
                "pods",
                "services",
                "replicationcontrollers",
                "persistentvolumeclaims",
                "persistentvolumes"
            ],
            &LOOK,
        ),
        rule(&["apps"], &["statefulsets", "replicasets", "daemonsets"], &LOOK),
        rule(&["batch"], &["jobs", "cronjobs"], &LOOK),
        rule(&["policy"], &["poddisruptionbudgets"], &LOOK),
        rule(
            &["storage.k8s.io"],
            &["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
            &LOOK,
        ),
        rule(&["resource.k8s.io"], &["deviceclasses", "resourceclaims", "resourceslices"], &LOOK),
    ])
}

/// Flags for which Slipway has a better default than the autoscaler. Flags in the spec override them.
fn flags(kit: &Kit<'_, '_>) -> Vec<String> {
    let name = &kit.context.cluster.name;
    let mut flags = BTreeMap::from([
        // Equal pools in several zones, which examples recommend, grow evenly.
        ("balance-similar-node-groups", "true".to_owned()),
        ("expander", "least-waste".to_owned()),
        ("skip-nodes-with-local-storage", "false".to_owned()),
        ("stderrthreshold", "info".to_owned()),
        ("v", "2".to_owned()),
    ]);
    let options = &kit.context.cluster.addons.cluster_autoscaler_options;
    flags.extend(options.iter().map(|(flag, value)| (flag.as_str(), value.clone())));
    let own = [
        "--cloud-provider=aws".to_owned(),
        format!("--cluster-name={name}"),
        format!(
            "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/{name}"
        ),
    ];
    own.into_iter().chain(flags.into_iter().map(|(flag, value)| format!("--{flag}={value}"))).collect()
}

fn pod(kit: &Kit<'_, '_>, image: &str) -> Value {
    json!({
        "serviceAccountName": APP,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": on_controllers(),
        "tolerations": tolerate_control_plane(),
        "affinity": apart(APP),
        "securityContext": as_user(65532),
        "containers": [{
            "name": APP,
            "image": image,
            "command": ["./cluster-autoscaler"],
            "args": flags(kit),
            "env": [{ "name": "AWS_REGION", "value": kit.context.cluster.region }],
            "ports": [{ "name": "http", "containerPort": 8085, "protocol": "TCP" }],
            "resources": kit.resources(json!({ "cpu": "100m", "memory": "300Mi" }), json!({})),
            "livenessProbe": http_probe("/health-check", "http"),
            "securityContext": restricted(),
        }],
    })
}
