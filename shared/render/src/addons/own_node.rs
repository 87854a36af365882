//! Keeps a service account whose pods run on workers to the Node of its own pod.
//!
//! RBAC cannot say "its own Node", and `NodeRestriction` holds for kubelets alone
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>). Root on a worker reads the tokens of
//! the pods there. Without this policy it could label its own Node as a controller and taint all others, and so get pods that only
//! controllers may run. The API server writes the Node of the pod into each token (`authentication.kubernetes.io/node-name`, GA since 1.32:
//! <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens>), and gives a kubelet
//! tokens for pods of its own Node alone. Kubernetes tests this use of it in `test/e2e/auth/per_node_update.go`, and the form is that of
//! kubernetes-sigs/dra-example-driver (`deployments/helm/dra-example-driver/templates/validatingadmissionpolicy.yaml`).
//!
//! `ValidatingAdmissionPolicy` is GA since 1.30. Its plugin cannot be turned off in a spec.

use serde_json::{Value, json};

use super::Kit;
use super::object::NAMESPACE;

const API: &str = "admissionregistration.k8s.io/v1";

/// What an account may change of its own Node.
pub(super) struct OwnNode {
    /// The service account, which lends its name to the policy.
    pub(super) account: &'static str,
    /// Annotations that begin with this.
    pub(super) annotations: &'static str,
    /// This condition. The kubelet, which has the same Node, writes the rest of the status in any case.
    pub(super) condition: &'static str,
}

impl OwnNode {
    /// The policy and its binding. They belong before the account's role, so that there is no moment without them.
    pub(super) fn objects(&self, kit: &Kit<'_, '_>) -> [Value; 2] {
        let Self { account, annotations, condition } = self;
        let name = format!("{account}-own-node");
        let is_free = format!("key.startsWith('{annotations}')");
        let others = |object: &str| {
            format!("{object}.status.?conditions.orValue([]).filter(one, one.type != '{condition}')")
        };
        let same = |field: &str| format!("object.metadata.?{field} == oldObject.metadata.?{field}");
        let validations = [
            (
                "variables.node == object.metadata.name".to_owned(),
                "it may change only the Node that its own pod runs on".to_owned(),
            ),
            (
                [
                    "object.spec == oldObject.spec".to_owned(),
                    same("labels"),
                    same("finalizers"),
                    same("ownerReferences"),
                ]
                .join(" && "),
                "it may not change labels, taints, finalizers, owners or the spec of a Node".to_owned(),
            ),
            (
                format!(
                    "variables.after.all(key, {is_free} || key in variables.before && variables.before[key] == variables.after[key]) \
                     && variables.before.all(key, {is_free} || key in variables.after)"
                ),
                format!("it may change only annotations that begin with {annotations}"),
            ),
            (
                format!("{} == {}", others("object"), others("oldObject")),
                format!("it may change only the condition {condition}"),
            ),
        ];
        let validations = validations.map(|(expression, why)| {
            json!({ "expression": expression, "message": format!("{account}: {why}"), "reason": "Forbidden" })
        });
        let variables = [
            // Empty if the token belongs to no pod on a node: then it changes no Node.
            ("node", "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')"),
            ("before", "oldObject.metadata.?annotations.orValue({})"),
            ("after", "object.metadata.?annotations.orValue({})"),
        ];
        let policy = json!({
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["UPDATE"],
                "resources": ["nodes", "nodes/status"],
            }] },
            "matchConditions": [{
                "name": "account",
                "expression": format!("request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{account}'"),
            }],
            "variables": variables.map(|(name, expression)| json!({ "name": name, "expression": expression })),
            "validations": validations,
        });
        let binding = json!({ "policyName": name, "validationActions": ["Deny"] });
        [
            kit.cluster_wide(API, "ValidatingAdmissionPolicy", &name, json!({ "spec": policy })),
            kit.cluster_wide(API, "ValidatingAdmissionPolicyBinding", &name, json!({ "spec": binding })),
        ]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::{BTreeMap, BTreeSet};

    use super::super::object::CONTROL_PLANE;
    use super::*;
    use crate::fixture::{cluster, rendered};

    fn objects(kind: &str) -> Vec<Value> {
        let addons = rendered(&cluster()).addons.addons;
        let all = addons.into_iter().flat_map(|addon| addon.objects);
        all.filter(|object| object["kind"] == kind).collect()
    }

    fn text(value: &Value) -> String {
        value.as_str().unwrap().to_owned()
    }

    /// The accounts whose pods may run on workers.
    fn on_workers() -> BTreeSet<String> {
        let workloads = ["DaemonSet", "Deployment"].into_iter().flat_map(objects);
        let pods = workloads.map(|object| object["spec"]["template"]["spec"].clone());
        pods.filter(|pod| pod["nodeSelector"].get(CONTROL_PLANE).is_none())
            .map(|pod| text(&pod["serviceAccountName"]))
            .collect()
    }

    /// What the roles of each account on workers let it change. (Kubernetes' own roles are asked of a real API server, in
    /// `tests/tests/kubernetes/own_node.rs`.)
    fn writes() -> BTreeMap<String, BTreeSet<String>> {
        let roles: BTreeMap<String, Value> = ["ClusterRole", "Role"]
            .into_iter()
            .flat_map(objects)
            .map(|role| (format!("{} {}", role["kind"], role["metadata"]["name"]), role["rules"].clone()))
            .collect();
        let mut writes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for binding in ["ClusterRoleBinding", "RoleBinding"].into_iter().flat_map(objects) {
            let role = &binding["roleRef"];
            let Some(rules) = roles.get(&format!("{} {}", role["kind"], role["name"])) else { continue };
            let account = text(&binding["subjects"][0]["name"]);
            for rule in rules.as_array().unwrap() {
                let reads = |verb: &Value| ["get", "list", "watch"].contains(&verb.as_str().unwrap());
                if !rule["verbs"].as_array().unwrap().iter().all(reads) {
                    let resources = rule["resources"].as_array().unwrap().iter().map(text);
                    writes.entry(account.clone()).or_default().extend(resources);
                }
            }
        }
        let on_workers = on_workers();
        writes.retain(|account, _| on_workers.contains(account));
        writes
    }

    #[test]
    fn what_runs_on_workers_changes_nothing_but_a_node_of_its_own_by_a_policy_that_is_enforced() {
        assert!(on_workers().len() > 5, "{:?}", on_workers());
        let writes = writes();
        assert_eq!(writes.keys().collect::<Vec<_>>(), ["flannel"], "{writes:?}");
        for (account, resources) in writes {
            assert_eq!(resources, BTreeSet::from(["nodes/status".to_owned()]), "{account}");
            let name = format!("{account}-own-node");
            let named = |kind: &str| {
                let found = objects(kind).into_iter().find(|object| object["metadata"]["name"] == name);
                found.unwrap_or_else(|| panic!("{account} has no {kind}"))
            };
            let policy = named("ValidatingAdmissionPolicy");
            let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
            assert!(condition.ends_with(&format!(" == 'system:serviceaccount:kube-system:{account}'")));
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
            let binding = named("ValidatingAdmissionPolicyBinding");
            let spec = json!({ "policyName": name, "validationActions": ["Deny"] });
            assert_eq!(binding["spec"], spec);
        }
    }

    #[test]
    fn a_policy_is_applied_before_the_role_that_it_limits() {
        let addons = rendered(&cluster()).addons;
        let flannel = &addons.addon("flannel").unwrap().objects;
        let at = |kind: &str| flannel.iter().position(|object| object["kind"] == kind).unwrap();
        assert!(at("ValidatingAdmissionPolicyBinding") < at("ClusterRoleBinding"));
    }
}
