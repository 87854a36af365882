//! Settings of kubelets, as fields of `KubeletConfiguration`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::{KubernetesVersion, NodePool};

use super::Lowering;
use crate::model::KubeletSpec;
use crate::path::Path;
use crate::programs::{field_since, kubelet_fields};
use crate::text::holds_private_key;

/// 32 TiB, in thousandths of bytes: the memory of the largest machines (docs.aws.amazon.com/ec2, "High-memory instances": `u7in-32tb`).
const MOST_MEMORY: u128 = 32 * (1000 << 40);
const RESERVED: [&str; 4] = ["cpu", "ephemeral-storage", "memory", "pid"];
/// kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction, "Eviction signals".
pub(super) const SIGNALS: [&str; 8] = [
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

/// The thresholds of a kubelet without configuration (the same page, "Hard eviction thresholds").
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
            } else if kubelet_fields().any(|known| known == field) {
                self.kubelet_value(field, value, &path);
            } else {
                let free = kubelet_fields().filter(|known| OWNED.iter().all(|(owned, _)| owned != known));
                let help = self.report.nearest(field, free).map_or_else(
                    || "write one such as `imageGCHighThresholdPercent`, not the flag".to_owned(),
                    |field| format!("did you mean `{field}`?"),
                );
                let message = format!(
                    "`{field}` is not a field of `KubeletConfiguration` in the releases that are launched"
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
        // Specs from before this key have the field in `config`, and are still accepted.
        if let Some(most) = spec.pod_pids_limit
            && fields.insert("podPidsLimit".to_owned(), json!(most)).is_some()
        {
            let message = "the limit is also written as `podPidsLimit` beside `config`";
            let help = "remove it here, and keep the one beside `config`";
            self.report.error("kubelet-field", &place.key("podPidsLimit"), message, help);
        }
        let hard = path.key("evictionHard");
        for (signal, value) in &spec.eviction_hard {
            if !SIGNALS.contains(&signal.as_str()) {
                let message = format!("`{signal}` is not a signal that a kubelet watches");
                let help = format!("write one of `{}`", SIGNALS.join("`, `"));
                self.report.error("eviction-signal", &hard.key(signal), message, help);
            }
            if signal == "memory.available" && quantity(value).is_some_and(|amount| amount > MOST_MEMORY) {
                let message = format!(
                    "`{value}` is more memory than any machine of EC2 has: each pod would be evicted"
                );
                let help = "write one such as `200Mi` or `5%`";
                self.report.error("quantity", &hard.key(signal), message, help);
            }
            let share = value.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
            // "eviction threshold … must be positive" (k8s.io/kubernetes, `pkg/kubelet/eviction/helpers.go`).
            if quantity(value) == Some(0) {
                let message = format!("`{value}` is not a threshold: the kubelet would not start");
                let help = "write one such as `200Mi`, or `0%` for none";
                self.report.error("quantity", &hard.key(signal), message, help);
            } else if quantity(value).is_none() && !share.is_some_and(|share| (0.0..100.0).contains(&share)) {
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
            let message = "a kubelet with a threshold for one signal drops its defaults for all others";
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

    /// Reports fields that a kubelet's release does not know. A pool may run an older minor than the cluster, and the fields of
    /// all kubelets apply to it, too.
    pub(super) fn kubelets_know(&mut self, cluster: Option<KubernetesVersion>, pools: &[NodePool]) {
        let Some(cluster) = cluster else { return };
        let spec = self.spec;
        let raise = "raise `kubernetesVersion`";
        let own: BTreeMap<&str, KubernetesVersion> =
            pools.iter().filter_map(|pool| Some((pool.name.as_str(), pool.kubernetes_version?))).collect();
        let mut oldest = (cluster, None);
        for (index, pool) in spec.worker.node_pools.iter().enumerate() {
            let name = pool.name.as_deref().unwrap_or_default();
            let version = own.get(name).copied().unwrap_or(cluster);
            let place = Path::parse("worker").key("nodePools").index(index).key("kubelet").key("config");
            let (runs, raise) = ((version, Some(name)), "raise the pool's `kubernetesVersion`");
            self.known_to(&pool.kubelet, runs, &place, raise);
            if version.minor < oldest.0.minor {
                oldest = runs;
            }
        }
        let place = Path::parse("controller").key("kubelet").key("config");
        self.known_to(&spec.controller.kubelet, (cluster, None), &place, raise);
        let place = Path::parse("kubernetes").key("kubelet").key("config");
        let apart = oldest
            .1
            .map_or(raise, |_| "write it in the `kubelet` of the controllers or pools whose release has it");
        self.known_to(&spec.kubernetes.kubelet, oldest, &place, apart);
    }

    fn known_to(
        &mut self,
        spec: &KubeletSpec,
        (runs, pool): (KubernetesVersion, Option<&str>),
        at: &Path,
        or: &str,
    ) {
        for field in spec.config.keys() {
            let Some(minor) = field_since(field).filter(|minor| runs.minor < *minor) else { continue };
            let whose = pool.map_or_else(|| "the controllers".to_owned(), |name| format!("pool `{name}`"));
            let message = format!(
                "`{field}` is known to kubelets of 1.{minor} and newer, and those of {whose} are {runs}: they would not start"
            );
            self.report.error("kubelet-field", &at.key(field), message, format!("remove it, or {or}"));
        }
    }

    /// Reports what does not fit together in the settings of the controllers and of each pool.
    pub(super) fn kubelets_agree(&mut self) {
        let spec = self.spec;
        let config_path = |path: Path| path.key("kubelet").key("config");
        let (all, controllers) =
            (with_reserved(&spec.kubernetes.kubelet), with_reserved(&spec.controller.kubelet));
        let all = (&all, config_path(Path::parse("kubernetes")));
        let layers = [all.clone(), (&controllers, config_path(Path::parse("controller")))];
        self.kubelet_agrees(&layers);
        self.kubelet_reserves(&layers);
        for (index, pool) in spec.worker.node_pools.iter().enumerate() {
            let place = config_path(Path::parse("worker").key("nodePools").index(index));
            let own = with_reserved(&pool.kubelet);
            let layers = [all.clone(), (&own, place)];
            self.kubelet_agrees(&layers);
            self.kubelet_reserves(&layers);
        }
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
            if name == "memory" && quantity(value).is_some_and(|amount| amount < 1000 << 20) {
                let message = format!("`{part}` reserves less than one MiB");
                let help = format!(
                    "did you mean `memory={}Mi`? The unit `m` is a thousandth of a byte",
                    value.trim_end_matches('m')
                );
                self.report.warning("quantity", path, message, help);
            }
            reserved.insert(name, value);
        }
        json!(reserved)
    }
}

/// The fields of `config`, with those beside it that others must agree with.
fn with_reserved(spec: &KubeletSpec) -> BTreeMap<String, Value> {
    let mut fields = spec.config.clone();
    for (key, text) in [("systemReserved", &spec.system_reserved), ("kubeReserved", &spec.kube_reserved)] {
        if let Some(text) = text {
            fields.insert(key.to_owned(), json!(text));
        }
    }
    if !spec.eviction_hard.is_empty() {
        fields.insert("evictionHard".to_owned(), json!(spec.eviction_hard));
    }
    fields
}

/// A quantity as Kubernetes writes it, in thousandths; `None` if the text is none.
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
