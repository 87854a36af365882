//! What manifests have in common: metadata, RBAC, workloads, and settings of pods.

use serde_json::{Map, Value, json};
use slipway_core::canonical::canonical_json;
use slipway_core::digest::sha256_hex;
use slipway_core::release::ADDON_LABEL;

use super::Kit;

/// The namespace of add-ons.
pub(super) const NAMESPACE: &str = "kube-system";

/// The label of controllers. The node manager sets it, and kubelets may not set it on their own node. That is why add-ons with AWS
/// permissions may be scheduled by it.
pub(super) const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The annotation that replaces pods when their configuration changes.
const CONFIG_DIGEST: &str = "slipway/config-digest";

impl Kit<'_, '_> {
    /// An object with Slipway's labels. `rest` is everything besides `metadata`. A cluster-scoped object has no namespace.
    fn object(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        rest: Value,
    ) -> Value {
        let mut metadata = json!({ "name": name, "labels": self.labels() });
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        let mut object = Map::from_iter([
            ("apiVersion".to_owned(), json!(api_version)),
            ("kind".to_owned(), json!(kind)),
            ("metadata".to_owned(), metadata),
        ]);
        if let Value::Object(rest) = rest {
            object.extend(rest);
        }
        Value::Object(object)
    }

    /// An object in [`NAMESPACE`].
    pub(super) fn namespaced(&self, api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
        self.object(api_version, kind, Some(NAMESPACE), name, rest)
    }

    /// An object of the whole cluster.
    pub(super) fn cluster_wide(&self, api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
        self.object(api_version, kind, None, name, rest)
    }

    fn labels(&self) -> Value {
        json!({ ADDON_LABEL: self.name.as_str(), "app.kubernetes.io/managed-by": "slipway", "app.kubernetes.io/name": self.name.as_str() })
    }

    pub(super) fn service_account(&self, name: &str) -> Value {
        self.namespaced("v1", "ServiceAccount", name, json!({}))
    }

    pub(super) fn config_map(&self, name: &str, data: Value) -> Value {
        self.namespaced("v1", "ConfigMap", name, with(json!({}), "data", data))
    }

    pub(super) fn cluster_role(&self, name: &str, rules: Value) -> Value {
        self.cluster_wide(RBAC, "ClusterRole", name, with(json!({}), "rules", rules))
    }

    /// Grants the permissions of the cluster role `role` to a service account.
    pub(super) fn cluster_role_binding(&self, name: &str, role: &str, account: &str) -> Value {
        self.cluster_wide(RBAC, "ClusterRoleBinding", name, binding("ClusterRole", role, account))
    }

    /// Grants the permissions of the cluster role `role` to a group.
    pub(super) fn cluster_role_binding_of_group(&self, name: &str, role: &str, group: &str) -> Value {
        let subject = json!({ "kind": "Group", "apiGroup": RBAC_GROUP, "name": group });
        self.cluster_wide(RBAC, "ClusterRoleBinding", name, bound("ClusterRole", role, &subject))
    }

    pub(super) fn role(&self, name: &str, rules: Value) -> Value {
        self.namespaced(RBAC, "Role", name, with(json!({}), "rules", rules))
    }

    /// Grants the permissions of the role `role` in [`NAMESPACE`] to a service account.
    pub(super) fn role_binding(&self, name: &str, role: &str, account: &str) -> Value {
        self.namespaced(RBAC, "RoleBinding", name, binding("Role", role, account))
    }

    /// A budget that allows one pod of a deployment to be unavailable. `None` for a single replica, because the budget would block every
    /// drain.
    pub(super) fn disruption_budget(&self, name: &str, app: &str, replicas: u32) -> Option<Value> {
        let spec = json!({ "maxUnavailable": 1, "selector": { "matchLabels": selector(app) } });
        (replicas > 1)
            .then(|| self.namespaced("policy/v1", "PodDisruptionBudget", name, json!({ "spec": spec })))
    }

    /// A pod on each node that `pod` may be scheduled to, of which a tenth is replaced at a time.
    pub(super) fn daemon_set(&self, name: &str, app: &str, pod: Value) -> Value {
        let spec = json!({
            "revisionHistoryLimit": 3,
            "selector": { "matchLabels": selector(app) },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "10%" } },
        });
        let spec = with(spec, "template", self.template(app, pod));
        self.namespaced("apps/v1", "DaemonSet", name, with(json!({}), "spec", spec))
    }

    /// `replicas` pods, replaced one at a time. `surge`: whether a new pod may run beside the old one.
    pub(super) fn deployment(&self, name: &str, app: &str, replicas: u32, surge: bool, pod: Value) -> Value {
        let spec = json!({
            "replicas": replicas,
            "revisionHistoryLimit": 3,
            "selector": { "matchLabels": selector(app) },
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": if surge {
                    json!({ "maxSurge": 1, "maxUnavailable": 0 })
                } else {
                    json!({ "maxSurge": 0, "maxUnavailable": 1 })
                },
            },
        });
        let spec = with(spec, "template", self.template(app, pod));
        self.namespaced("apps/v1", "Deployment", name, with(json!({}), "spec", spec))
    }

    fn template(&self, app: &str, pod: Value) -> Value {
        let mut labels = self.labels();
        labels["k8s-app"] = json!(app);
        with(json!({ "metadata": { "labels": labels } }), "spec", pod)
    }

    /// Requests and limits of the add-on's own container: those of the spec override `requests` and `limits`. If the spec sets only one
    /// of a pair, the default of the other is dropped, because no pod might satisfy both.
    pub(super) fn resources(&self, requests: Value, limits: Value) -> Value {
        let mut resources = json!({ "requests": requests, "limits": limits });
        let requested = self.settings().map(|addon| &addon.resources);
        for (group, other) in [("requests", "limits"), ("limits", "requests")] {
            for (name, quantity) in requested.and_then(|requested| requested.get(group)).into_iter().flatten()
            {
                resources[group][name] = json!(quantity);
                let both = requested
                    .and_then(|requested| requested.get(other))
                    .is_some_and(|other| other.contains_key(name));
                if let (false, Some(default)) = (both, resources[other].as_object_mut()) {
                    default.remove(name);
                }
            }
        }
        if let Some(groups) = resources.as_object_mut() {
            groups.retain(|_, group| group.as_object().is_some_and(|group| !group.is_empty()));
        }
        resources
    }
}

/// `object` with one more key. Inside of `json!` the value would be copied, at each depth anew.
fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

pub(super) const RBAC: &str = "rbac.authorization.k8s.io/v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

fn binding(kind: &str, role: &str, account: &str) -> Value {
    bound(kind, role, &json!({ "kind": "ServiceAccount", "name": account, "namespace": NAMESPACE }))
}

fn bound(kind: &str, role: &str, subject: &Value) -> Value {
    json!({
        "roleRef": { "apiGroup": RBAC_GROUP, "kind": kind, "name": role },
        "subjects": [subject],
    })
}

/// The selector of an app's pods. A selector cannot be changed later, so it contains only the app's name.
pub(super) fn selector(app: &str) -> Value {
    json!({ "k8s-app": app })
}

/// One RBAC rule.
pub(super) fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
}

/// One RBAC rule, for objects of these names only.
pub(super) fn rule_for(group: &str, resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs })
}

/// Makes a change of `config` replace the pods of `workload`, for programs that do not reload their configuration.
pub(super) fn with_config(mut workload: Value, config: &Value) -> Value {
    let digest = sha256_hex(canonical_json(&config["data"]).as_bytes());
    workload["spec"]["template"]["metadata"]["annotations"] = json!({ CONFIG_DIGEST: digest });
    workload
}

/// The node selector for controllers.
pub(super) fn on_controllers() -> Value {
    json!({ "kubernetes.io/os": "linux", CONTROL_PLANE: "" })
}

/// The node selector for Linux.
pub(super) fn on_linux() -> Value {
    json!({ "kubernetes.io/os": "linux" })
}

/// The tolerations of pods that run on every node, whatever its state.
pub(super) fn tolerate_everything() -> Value {
    json!([{ "operator": "Exists" }])
}

/// The tolerations of pods that are needed before there are workers, so that they may run on controllers.
pub(super) fn tolerate_control_plane() -> Value {
    json!([
        { "key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule" },
        { "key": "CriticalAddonsOnly", "operator": "Exists" },
    ])
}

/// Spreads the pods of `app` over zones as far as possible, and over nodes if the cluster has several `controllers`.
///
/// During a launch the first controller is the only node for a while. Both replicas would be placed there and stay, as the documentation of
/// kubeadm warns ("Creating Highly Available Clusters with kubeadm"). So the second one waits for the second node.
pub(super) fn spread(app: &str, controllers: u32) -> Value {
    let over = |key: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": selector(app) },
            // Old and new pods of an update are counted separately.
            "matchLabelKeys": ["pod-template-hash"],
        })
    };
    let mut over_nodes = over("kubernetes.io/hostname");
    if controllers >= 2 {
        over_nodes["whenUnsatisfiable"] = json!("DoNotSchedule");
        over_nodes["minDomains"] = json!(2);
        // A node that takes no pods, such as a cordoned one, holds no pod back.
        over_nodes["nodeTaintsPolicy"] = json!("Honor");
    }
    json!([over("topology.kubernetes.io/zone"), over_nodes])
}

/// Prevents two pods of `app` on one node, because they use the same host ports.
pub(super) fn apart(app: &str) -> Value {
    json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "labelSelector": { "matchLabels": selector(app) }, "topologyKey": "kubernetes.io/hostname" },
    ] } })
}

/// The security context of a container without privileges.
pub(super) fn restricted() -> Value {
    with_capabilities(&[])
}

/// As [`restricted`], with additional capabilities.
pub(super) fn with_capabilities(add: &[&str]) -> Value {
    let mut capabilities = json!({ "drop": ["ALL"] });
    if !add.is_empty() {
        capabilities["add"] = json!(add);
    }
    json!({ "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": capabilities })
}

/// The security context of a pod with an unprivileged user, with the runtime's default seccomp profile.
pub(super) fn as_user(id: u32) -> Value {
    json!({ "runAsNonRoot": true, "runAsUser": id, "runAsGroup": id, "seccompProfile": { "type": "RuntimeDefault" } })
}

/// The security context of a pod with user root, with the runtime's default seccomp profile.
pub(super) fn as_root() -> Value {
    json!({ "seccompProfile": { "type": "RuntimeDefault" } })
}

/// A probe by HTTP.
pub(super) fn http_probe(path: &str, port: impl Into<Value>) -> Value {
    json!({ "httpGet": { "path": path, "port": port.into() }, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 5 })
}

/// An environment variable with a field of the pod.
pub(super) fn env_field(name: &str, path: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
}

/// A directory or file of the node. `kind` is Kubernetes' `type`.
pub(super) fn host_path(name: &str, path: &str, kind: &str) -> Value {
    json!({ "name": name, "hostPath": { "path": path, "type": kind } })
}

/// A mount of the volume `name`.
pub(super) fn mount(name: &str, path: &str) -> Value {
    json!({ "name": name, "mountPath": path })
}

/// A read-only mount.
pub(super) fn read_only(name: &str, path: &str) -> Value {
    json!({ "name": name, "mountPath": path, "readOnly": true })
}

/// Environment variables that make a pod in a controller's host network use the API server on the same machine, without depending on a
/// service, a load balancer or another controller.
pub(super) fn api_beside() -> Vec<Value> {
    vec![
        json!({ "name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1" }),
        json!({ "name": "KUBERNETES_SERVICE_PORT", "value": crate::ports::API_SERVER.to_string() }),
    ]
}
