//! Settings of kubelets, as fields of `KubeletConfiguration`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Lowering;
use crate::patch::holds_private_key;
use crate::spec::model::KubeletSpec;
use crate::spec::path::Path;

const RESERVED: [&str; 4] = ["cpu", "ephemeral-storage", "memory", "pid"];
/// kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction, "Eviction signals".
const SIGNALS: [&str; 8] = [
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
];

const SLIPWAYS: &str = "remove it: Slipway sets this field itself";
/// Fields that are Slipway's, or have a key of their own.
const OWNED: [(&str, &str); 33] = [
    ("apiVersion", "remove it: it is `kubelet.config.k8s.io/v1beta1`"),
    ("kind", "remove it: it is `KubeletConfiguration`"),
    ("systemReserved", "write `systemReserved` beside `config`"),
    ("kubeReserved", "write `kubeReserved` beside `config`"),
    ("maxPods", "write `maxPods` beside `config`"),
    ("evictionHard", "write `evictionHard` beside `config`"),
    ("featureGates", "write `kubernetes.featureGates`, or the pool's `featureGates`"),
    ("registerWithTaints", "write the pool's `taints`"),
    ("clusterDNS", "write `dnsServiceIP`"),
    ("podCIDR", "write `podCIDR` at the top of the spec"),
    ("address", SLIPWAYS),
    ("authentication", SLIPWAYS),
    ("authorization", SLIPWAYS),
    ("cgroupDriver", SLIPWAYS),
    ("clusterDomain", SLIPWAYS),
    ("containerRuntimeEndpoint", SLIPWAYS),
    ("enableServer", SLIPWAYS),
    ("healthzBindAddress", SLIPWAYS),
    ("healthzPort", SLIPWAYS),
    ("imageServiceEndpoint", SLIPWAYS),
    ("port", SLIPWAYS),
    ("providerID", SLIPWAYS),
    ("readOnlyPort", SLIPWAYS),
    ("registerNode", SLIPWAYS),
    ("resolvConf", SLIPWAYS),
    ("rotateCertificates", SLIPWAYS),
    ("serverTLSBootstrap", SLIPWAYS),
    ("staticPodPath", SLIPWAYS),
    ("staticPodURL", SLIPWAYS),
    ("staticPodURLHeader", SLIPWAYS),
    ("tlsCertFile", SLIPWAYS),
    ("tlsPrivateKeyFile", SLIPWAYS),
    ("volumePluginDir", SLIPWAYS),
];

/// The other fields of `KubeletConfiguration`, of the releases that are launched (k8s.io/kubelet/config/v1beta1, 1.34 to 1.37). The
/// kubelet reads strictly: with a field that it does not know it does not start.
const FIELDS: &str = "allowedUnsafeSysctls cgroupRoot cgroupsPerQOS configMapAndSecretChangeDetectionStrategy containerLogMaxFiles \
    containerLogMaxSize containerLogMaxWorkers containerLogMonitorInterval contentType cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy \
    cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff defaultPodSysctls enableContentionProfiling \
    enableControllerAttachDetach enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler enableSystemLogHandler \
    enableSystemLogQuery enforceNodeAllocatable eventBurst eventRecordQPS evictionMaxPodGracePeriod evictionMinimumReclaim \
    evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod failCgroupV1 failSwapOn fileCheckFrequency hairpinMode \
    httpCheckFrequency imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge \
    imagePullCredentialsVerificationPolicy iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kubeAPIBurst kubeAPIQPS \
    kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation logging makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls \
    memoryManagerPolicy memoryReservationPolicy memorySwap memoryThrottlingFactor mergeDefaultEvictionSettings \
    nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj podLogsDir \
    podPidsLimit podsPerCore preloadedImagesVerificationAllowlist protectKernelDefaults qosReserved registryBurst registryPullQPS \
    reservedMemory reservedSystemCPUs runOnce runtimeRequestTimeout seccompDefault serializeImagePulls \
    showHiddenMetricsForVersion shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods \
    singleProcessOOMKill streamingConnectionIdleTimeout syncFrequency systemCgroups systemReservedCgroup tlsCipherSuites \
    tlsCurvePreferences tlsMinVersion topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope tracing \
    userNamespaces volumeStatsAggPeriod";

/// What a kubelet evicts at unless it is told anything (the same page, "Hard eviction thresholds").
const EVICTED_AT: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

impl Lowering<'_, '_, '_> {
    /// The fields that the spec sets, at `path`.
    pub(super) fn kubelet(&mut self, spec: &KubeletSpec, path: &Path) -> BTreeMap<String, Value> {
        let place = path.key("config");
        let mut fields = BTreeMap::new();
        for (field, value) in &spec.config {
            let path = place.key(field);
            if let Some((_, help)) = OWNED.iter().find(|(owned, _)| owned == field) {
                let message = format!("`{field}` cannot be set here");
                self.report.error("kubelet-field", &path, message, *help);
            } else if !FIELDS.split_whitespace().any(|known| known == field) {
                let help = self.report.nearest(field, FIELDS.split_whitespace()).map_or_else(
                    || "write one such as `imageGCHighThresholdPercent`, not the flag".to_owned(),
                    |field| format!("did you mean `{field}`?"),
                );
                let message = format!(
                    "`{field}` is no field of `KubeletConfiguration` in the releases that are launched"
                );
                self.report.error("kubelet-field", &path, message, help);
            }
            if holds_private_key(&value.to_string()) {
                let help = "take it out and make a new one, for this one was readable";
                self.report.error("secret-in-spec", &path, "there is a private key in this", help);
            }
            fields.insert(field.clone(), value.clone());
        }
        for (key, text) in [("systemReserved", &spec.system_reserved), ("kubeReserved", &spec.kube_reserved)]
        {
            if let Some(text) = text {
                fields.insert(key.to_owned(), self.reserved(text, &path.key(key)));
            }
        }
        if let Some(most) = spec.max_pods {
            fields.insert("maxPods".to_owned(), json!(most));
        }
        let hard = path.key("evictionHard");
        for (signal, value) in &spec.eviction_hard {
            if !SIGNALS.contains(&signal.as_str()) {
                let message = format!("`{signal}` is no signal that a kubelet watches");
                let help = format!("write one of `{}`", SIGNALS.join("`, `"));
                self.report.error("eviction-signal", &hard.key(signal), message, help);
            }
            let share = value.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
            if quantity(value).is_none() && !share.is_some_and(|share| (0.0..100.0).contains(&share)) {
                let message = format!("`{value}` is neither a quantity nor a percentage");
                self.report.error(
                    "quantity",
                    &hard.key(signal),
                    message,
                    "write one such as `200Mi` or `10%`",
                );
            }
        }
        let merged = fields.get("mergeDefaultEvictionSettings") == Some(&Value::Bool(true));
        let lost = EVICTED_AT.iter().filter(|(signal, _)| !spec.eviction_hard.contains_key(*signal));
        let lost: Vec<String> = lost.map(|(signal, at)| format!("{signal}: {at}")).collect();
        if !spec.eviction_hard.is_empty() && !lost.is_empty() && !merged {
            let message = "a kubelet that is told one threshold forgets its own of all others";
            let help = format!(
                "add those that are to stay (its own are `{}`), or `config: {{mergeDefaultEvictionSettings: true}}`",
                lost.join("`, `")
            );
            self.report.warning("eviction-defaults", &hard, message, help);
        }
        if !spec.eviction_hard.is_empty() {
            fields.insert("evictionHard".to_owned(), json!(spec.eviction_hard));
        }
        fields
    }

    /// `cpu=100m,memory=100Mi`, as kube-aws and the kubelet's flag have it.
    fn reserved(&mut self, text: &str, path: &Path) -> Value {
        let mut reserved = BTreeMap::new();
        for part in text.split(',') {
            let pair = part.trim().split_once('=').filter(|(name, value)| {
                RESERVED.contains(name) && quantity(value).is_some() && !reserved.contains_key(*name)
            });
            let Some((name, value)) = pair else {
                let message = format!("`{part}` reserves nothing that is known, or reserves it again");
                let help =
                    format!("write pairs such as `cpu=100m,memory=100Mi`, of `{}`", RESERVED.join("`, `"));
                self.report.error("quantity", path, message, help);
                continue;
            };
            reserved.insert(name, value);
        }
        json!(reserved)
    }
}

/// A quantity of Kubernetes', in thousandths; `None` for what is none.
pub(super) fn quantity(text: &str) -> Option<u128> {
    const UNITS: [(&str, u128); 13] = [
        ("Ki", 1000 << 10),
        ("Mi", 1000 << 20),
        ("Gi", 1000 << 30),
        ("Ti", 1000 << 40),
        ("Pi", 1000 << 50),
        ("m", 1),
        ("k", 1_000_000),
        ("M", 1_000_000_000),
        ("G", 1_000_000_000_000),
        ("T", 1_000_000_000_000_000),
        ("P", 1_000_000_000_000_000_000),
        ("E", 1_000_000_000_000_000_000_000),
        ("", 1000),
    ];
    let (unit, thousandths) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let digits = &text[..text.len() - unit.len()];
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || whole.len() > 15
        || fraction.len() > 9
        || !all_digits(whole)
        || !all_digits(fraction)
    {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let fraction = fraction.parse::<u128>().unwrap_or(0);
    Some((whole.parse::<u128>().ok()? * scale + fraction) * thousandths / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_kubernetes_own() {
        assert_eq!((quantity("250m"), quantity("2"), quantity("0.5")), (Some(250), Some(2000), Some(500)));
        assert_eq!(quantity("1Ki"), Some(1_024_000));
        assert!(quantity("1500m") > quantity("1") && quantity("1Gi") > quantity("1G"));
        for text in ["", "m", "1.5.5", "-1", "1 Gi", "1gi", "1e3", ".5"] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }
}
