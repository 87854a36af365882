//! Settings of the API server: authentication, admission, audit log.

use serde_json::{Value, json};
use slipway_core::cluster::{Admission, AuditLog, Oidc, PodSecurity};

/// The namespace of all add-ons and static pods.
const SYSTEM: &str = "kube-system";
/// Limits each kubelet to its own node and pods, which is all that Slipway's kubelets need.
const NODE_RESTRICTION: &str = "NodeRestriction";

/// `AuthenticationConfiguration`, stable since 1.34, the oldest supported release. It replaces the `--oidc-*` flags, accepts all
/// asymmetric algorithms, and is reloaded when it changes.
pub(super) fn authentication(oidc: &Oidc) -> Value {
    let mut issuer = json!({ "url": oidc.issuer_url, "audiences": [oidc.client_id] });
    if let Some(certificate) = &oidc.certificate_authority {
        issuer["certificateAuthority"] = json!(certificate);
    }
    let mut mappings =
        json!({ "username": { "claim": oidc.username_claim, "prefix": oidc.username_prefix } });
    if let Some((claim, prefix)) = &oidc.groups {
        mappings["groups"] = json!({ "claim": claim, "prefix": prefix });
    }
    let mut jwt = json!({ "issuer": issuer, "claimMappings": mappings });
    if !oidc.required_claims.is_empty() {
        let rules = oidc.required_claims.iter();
        let rules = rules.map(|(claim, value)| json!({ "claim": claim, "requiredValue": value }));
        jwt["claimValidationRules"] = rules.collect();
    }
    // Whoever may name users or groups in the provider could be an administrator, whom RBAC does not bind
    // (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration).
    jwt["userValidationRules"] = json!([
        {
            "expression": "!user.username.startsWith('system:')",
            "message": "names that begin with system: are Kubernetes' own",
        },
        {
            "expression": "user.groups.all(group, !group.startsWith('system:'))",
            "message": "groups that begin with system: are Kubernetes' own",
        },
    ]);
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [jwt],
    })
}

/// The plugins that the spec enables and disables, and the configuration of those that have one. `None`: the release decides.
pub(super) fn admission(admission: &Admission) -> Option<Value> {
    if *admission == Admission::default() {
        return None;
    }
    let mut enable = admission.enable.clone();
    enable.push(NODE_RESTRICTION.to_owned());
    let mut plugins = Vec::new();
    if !admission.event_rate_limits.is_empty() {
        enable.push("EventRateLimit".to_owned());
        plugins.push(json!({
            "name": "EventRateLimit",
            "configuration": {
                "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
                "kind": "Configuration",
                "limits": admission.event_rate_limits,
            },
        }));
    }
    plugins.extend(admission.pod_security.as_ref().map(pod_security));
    enable.sort();
    enable.dedup();
    let mut settings = json!({ "disable": admission.disable, "enable": enable });
    if !plugins.is_empty() {
        settings["configuration"] = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": plugins,
        });
    }
    Some(settings)
}

/// What pods may be where a namespace has no labels of its own (kubernetes.io/docs/tasks/configure-pod-container/enforce-standards-admission-controller).
/// The plugin is on in every release, and without this configuration allows everything. All add-ons and static pods are in `kube-system`;
/// some of them need the node's network, devices or folders.
fn pod_security(levels: &PodSecurity) -> Value {
    json!({
        "name": "PodSecurity",
        "configuration": {
            "apiVersion": "pod-security.admission.config.k8s.io/v1",
            "kind": "PodSecurityConfiguration",
            "defaults": {
                "enforce": levels.enforce, "enforce-version": "latest",
                "audit": levels.audit, "audit-version": "latest",
                "warn": levels.warn, "warn-version": "latest",
            },
            "exemptions": { "namespaces": [SYSTEM], "runtimeClasses": [], "usernames": [] },
        },
    })
}

/// The audit log with its policy.
pub(super) fn audit_log(log: &AuditLog) -> Value {
    let mut settings = serde_json::to_value(log).expect("an audit log has string keys only");
    settings["policy"] = log.policy.as_ref().map_or_else(default_policy, |policy| json!(policy));
    settings
}

/// Records who did what, and whether it was allowed, without the contents: not only secrets and tokens are secret, but often also
/// ConfigMaps, the environment of pods and custom resources. It leaves out the routine requests of components, and what nodes read that is
/// not secret.
fn default_policy() -> Value {
    let core = |resources: &[&str]| json!([{ "group": "", "resources": resources }]);
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*"] },
            {
                "level": "None",
                "users": ["system:kube-proxy"],
                "verbs": ["watch"],
                "resources": [
                    { "group": "", "resources": ["endpoints", "services"] },
                    { "group": "discovery.k8s.io", "resources": ["endpointslices"] },
                ],
            },
            {
                "level": "None",
                "userGroups": ["system:nodes"],
                "verbs": ["get", "patch", "update"],
                "resources": [
                    { "group": "", "resources": ["nodes", "nodes/status", "pods/status"] },
                    { "group": "coordination.k8s.io", "resources": ["leases"] },
                ],
            },
            {
                "level": "None",
                "users": [
                    "system:apiserver",
                    "system:kube-controller-manager",
                    "system:kube-scheduler",
                ],
                "verbs": ["get", "list", "watch", "update"],
                "resources": [
                    { "group": "coordination.k8s.io", "resources": ["leases"] },
                    { "group": "", "resources": ["endpoints", "namespaces"] },
                ],
            },
            { "level": "None", "resources": [
                { "group": "", "resources": ["events"] },
                { "group": "events.k8s.io", "resources": ["events"] },
            ] },
            { "level": "Metadata", "resources": [
                { "group": "", "resources": ["configmaps", "secrets", "serviceaccounts/token"] },
                { "group": "authentication.k8s.io", "resources": ["tokenreviews"] },
            ] },
            { "level": "Metadata", "resources": core(&["pods/attach", "pods/exec", "pods/portforward", "pods/proxy"]) },
            { "level": "None", "userGroups": ["system:nodes"], "verbs": ["get", "list", "watch"] },
            { "level": "Metadata" },
        ],
    })
}
