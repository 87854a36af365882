//! Settings of the Kubernetes components.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings of the Kubernetes components.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct KubernetesSpec {
    /// Encryption of secrets in etcd.
    pub(crate) encryption_at_rest: EncryptionSpec,
    /// Kube-apiserver.
    pub(crate) api_server: ApiServerSpec,
    /// Kube-controller-manager.
    pub(crate) controller_manager: ControllerManagerSpec,
    /// Kube-scheduler.
    pub(crate) kube_scheduler: SchedulerSpec,
    /// The kubelets of controllers and of every pool.
    pub(crate) kubelet: KubeletSpec,
    /// Feature gates of every component.
    pub(crate) feature_gates: BTreeMap<String, bool>,
}

/// Encryption of secrets in etcd.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EncryptionSpec {
    /// Whether secrets are encrypted when they are written; `true` unless given. Those that were written before stay as they are.
    pub(crate) enabled: Option<bool>,
}

/// kube-apiserver.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApiServerSpec {
    /// DNS names and addresses that its certificate holds besides those of the endpoints.
    #[serde(rename = "certSANs")]
    pub(crate) cert_sans: Vec<String>,
    /// The audit log.
    pub(crate) audit_log: AuditLogSpec,
    /// The OpenID Connect provider by whose tokens people sign in.
    pub(crate) oidc: Option<OidcSpec>,
    /// Admission plugins that are on besides those of the release; `NodeRestriction` always is.
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plugins of the release that are off.
    pub(crate) disable_admission_plugins: Vec<String>,
    /// The Pod Security Standards of namespaces that have no labels `pod-security.kubernetes.io/…` of their own. `kube-system` is exempt.
    pub(crate) pod_security: PodSecuritySpec,
    /// How many events the API server accepts; unlimited unless given.
    pub(crate) event_rate_limits: Vec<EventRateLimitSpec>,
    /// What its container asks for, and may use.
    pub(crate) resources: ComputeResourcesSpec,
    /// Command-line flags for which the spec has no key.
    pub(crate) flags: Vec<FlagSpec>,
    /// Files and folders of the controllers that its container sees, under the same path.
    pub(crate) volumes: Vec<HostVolumeSpec>,
}

/// The audit log.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AuditLogSpec {
    /// Whether it is on; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// Its file, below `/var/log/`, or `-` for the container's output; `/var/log/kube-apiserver/audit.log` unless given. The API server may
    /// write to the whole folder of the file.
    pub(crate) log_path: Option<String>,
    /// For how many days old files are kept; 30 unless given.
    #[schemars(range(min = 1, max = 3650))]
    pub(crate) max_age: Option<u32>,
    /// How many old files are kept; 10 unless given.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) max_backup: Option<u32>,
    /// How large a file becomes, in MiB; 100 unless given.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) max_size: Option<u32>,
    /// A policy of `audit.k8s.io/v1`; unless given, one that leaves out the cluster's own chatter, and records who did what, but never the contents.
    pub(crate) policy: BTreeMap<String, Value>,
}

/// The Pod Security Standards of namespaces without labels of their own.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PodSecuritySpec {
    /// Pods that violate this standard are refused; `baseline` unless given.
    pub(crate) enforce: Option<PodSecurityLevel>,
    /// Pods that violate this standard are marked in the audit log; `restricted` unless given.
    pub(crate) audit: Option<PodSecurityLevel>,
    /// Whoever creates a pod that violates this standard gets a warning; `restricted` unless given.
    pub(crate) warn: Option<PodSecurityLevel>,
}

/// A Pod Security Standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PodSecurityLevel {
    /// Everything is allowed, also to become root of the node.
    Privileged,
    /// What is known to give a pod its node is refused; ordinary workloads run.
    Baseline,
    /// What hardened pods do without is refused, too.
    Restricted,
}

/// An OpenID Connect provider.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["issuerURL", "clientID"]))]
pub(crate) struct OidcSpec {
    /// The provider's URL, with `https`.
    #[serde(rename = "issuerURL")]
    pub(crate) issuer_url: Option<String>,
    /// The audience that tokens are made for.
    #[serde(rename = "clientID")]
    pub(crate) client_id: Option<String>,
    /// The claim that is the user's name; `sub` unless given.
    pub(crate) username_claim: Option<String>,
    /// The prefix of each user's name; `-` for none. Without this key, there is no prefix for the claim `email`, and for others it is the issuer's URL with a hash sign.
    pub(crate) username_prefix: Option<String>,
    /// The claim that lists the user's groups; none unless given.
    pub(crate) groups_claim: Option<String>,
    /// The prefix of each group's name; nothing unless given.
    pub(crate) groups_prefix: Option<String>,
    /// Claims that a token must have, with their values.
    pub(crate) required_claims: BTreeMap<String, String>,
    /// The certificate of the provider's authority, in PEM; those that the system trusts unless given.
    pub(crate) certificate_authority: Option<String>,
}

/// How many events are taken in.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["type", "qps", "burst"]))]
pub(crate) struct EventRateLimitSpec {
    /// What each of these limits applies to.
    #[serde(rename = "type")]
    pub(crate) kind: Option<EventLimitKind>,
    /// Events a second.
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) qps: Option<u32>,
    /// Events at once.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) burst: Option<u32>,
    /// How many of them are counted at a time; 4096 unless given.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) cache_size: Option<u32>,
}

/// What a limit of events is for each of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum EventLimitKind {
    /// All together.
    Server,
    /// Each namespace.
    Namespace,
    /// Each user.
    User,
    /// Each source and object.
    SourceAndObject,
}

/// kube-controller-manager.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ControllerManagerSpec {
    /// How long a node may be silent before it counts as unhealthy, such as `50s`; what the release says unless given.
    pub(crate) node_monitor_grace_period: Option<String>,
    /// What its container asks for, and may use.
    pub(crate) resources: ComputeResourcesSpec,
    /// Command-line flags for which the spec has no key.
    pub(crate) flags: Vec<FlagSpec>,
}

/// kube-scheduler.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SchedulerSpec {
    /// What its container asks for, and may use.
    pub(crate) resources: ComputeResourcesSpec,
    /// Command-line flags for which the spec has no key.
    pub(crate) flags: Vec<FlagSpec>,
}

/// A command-line flag.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["name", "value"]))]
pub(crate) struct FlagSpec {
    /// Its name, without dashes before it.
    pub(crate) name: Option<String>,
    /// Its value.
    pub(crate) value: Option<String>,
}

/// A file or folder of the machine.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["name", "path"]))]
pub(crate) struct HostVolumeSpec {
    /// The volume's name in the pod.
    pub(crate) name: Option<String>,
    /// Where it lies, on the machine and in the container.
    pub(crate) path: Option<String>,
    /// Whether the container may not write to it; `true` unless given.
    pub(crate) read_only: Option<bool>,
}

/// What a container asks for, and may use.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ComputeResourcesSpec {
    /// What is kept free for it.
    pub(crate) requests: ResourceQuotaSpec,
    /// The most that it may use.
    pub(crate) limits: ResourceQuotaSpec,
}

/// Processor and memory.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ResourceQuotaSpec {
    /// Processors, such as `250m` or `2`.
    pub(crate) cpu: Option<String>,
    /// Memory, such as `512Mi`.
    pub(crate) memory: Option<String>,
}

/// Kubelets.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct KubeletSpec {
    /// What is kept free for the system, such as `cpu=100m,memory=100Mi,ephemeral-storage=1Gi`.
    pub(crate) system_reserved: Option<String>,
    /// What is kept free for Kubernetes itself, such as `cpu=100m,memory=100Mi,ephemeral-storage=1Gi`.
    pub(crate) kube_reserved: Option<String>,
    /// The most pods of a node; where nothing is said it is the release's own figure, 110.
    #[schemars(range(min = 1, max = 250))]
    pub(crate) max_pods: Option<u32>,
    /// The most processes and threads of a pod, so that none takes all of its node's; where nothing is said, only the node's own limit holds.
    #[schemars(range(min = 100, max = 4_194_304))]
    pub(crate) pod_pids_limit: Option<u32>,
    /// For each signal, the threshold below which pods are evicted at once, such as `memory.available: 200Mi`.
    pub(crate) eviction_hard: BTreeMap<String, String>,
    /// Other fields of `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`), such as `imageGCHighThresholdPercent`. Slipway itself sets `shutdownGracePeriod: 60s` and `shutdownGracePeriodCriticalPods: 20s`: beside `shutdownGracePeriodByPodPriority`, set both to `0s`.
    pub(crate) config: BTreeMap<String, Value>,
}
