//! Settings of the Kubernetes components.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings of the Kubernetes components.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kubernetes {
    /// `encryptionAtRest.enabled`.
    pub encryption_at_rest: bool,
    /// `apiServer.certSANs`: further names in the API server's certificate.
    pub extra_sans: Vec<String>,
    /// `apiServer.auditLog`. `None`: off.
    pub audit_log: Option<AuditLog>,
    /// `featureGates`, for every component.
    pub feature_gates: BTreeMap<String, bool>,
    pub oidc: Option<Oidc>,
    /// Admission plugins.
    pub admission: Admission,
    pub api_server: Component,
    pub controller_manager: Component,
    /// `kubeScheduler`.
    pub scheduler: Component,
    /// `kubelet`: fields of `KubeletConfiguration`.
    pub kubelet: BTreeMap<String, Value>,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditLog {
    /// A file below `/var/log`, or `-` for standard output.
    pub path: String,
    /// How log files are rotated. `None`: the log goes to standard output.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub files: Option<LogFiles>,
    /// The user's audit policy.
    #[serde(skip)]
    pub policy: Option<BTreeMap<String, Value>>,
}

/// How log files are rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFiles {
    /// `maxAge`.
    pub max_age_days: u32,
    pub max_backups: u32,
    /// `maxSize`.
    #[serde(rename = "maxSizeMiB")]
    pub max_size_mib: u32,
}

/// An OpenID Connect provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oidc {
    pub issuer_url: String,
    pub client_id: String,
    pub username_claim: String,
    /// `usernamePrefix`, resolved; may be empty.
    pub username_prefix: String,
    /// `groupsClaim` and `groupsPrefix`.
    pub groups: Option<(String, String)>,
    pub required_claims: BTreeMap<String, String>,
    pub certificate_authority: Option<String>,
}

/// Admission plugins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Admission {
    /// `enableAdmissionPlugins`, sorted; `NodeRestriction`, which is always on, is not among them.
    pub enable: Vec<String>,
    /// `disableAdmissionPlugins`, sorted.
    pub disable: Vec<String>,
    pub event_rate_limits: Vec<EventRateLimit>,
    /// `None`: the plugin is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurity>,
}

/// The Pod Security Standards (`privileged`, `baseline`, `restricted`) of namespaces without labels of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSecurity {
    /// Other pods are refused.
    pub enforce: String,
    /// Pods that violate this standard are marked in the audit log.
    pub audit: String,
    /// Clients that create a pod that violates this standard get a warning.
    pub warn: String,
}

/// A limit on the rate of events that the API server accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRateLimit {
    /// `Server`, `Namespace`, `User` or `SourceAndObject`.
    #[serde(rename = "type")]
    pub kind: String,
    pub qps: u32,
    pub burst: u32,
    pub cache_size: u32,
}

/// What the spec says about a component that runs as a static pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Component {
    /// Flags, without leading dashes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub flags: BTreeMap<String, String>,
    /// `requests` and `limits` of `cpu` and `memory`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, BTreeMap<String, String>>,
    /// Files and folders of the machine to mount, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<HostVolume>,
}

impl Component {
    /// Whether the spec sets nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty() && self.resources.is_empty() && self.volumes.is_empty()
    }
}

/// A file or folder of the machine that is mounted into a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostVolume {
    pub name: String,
    pub path: String,
    pub read_only: bool,
}
