//! Values of fields of `KubeletConfiguration`: types, ranges, words, and what must fit together. A kubelet that reads anything else exits at
//! once, on every node (k8s.io/kubernetes, `pkg/kubelet/apis/config/validation/validation.go`, at 1.34 to 1.37 alike).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Lowering;
use super::kubelet::SIGNALS;
use crate::duration::nanoseconds;
use crate::path::Path;
use crate::programs::{Type, kubelet_field};

/// The least and the most of a number.
const RANGES: [(&str, i64, i64); 20] = [
    ("containerLogMaxFiles", 2, i32::MAX as i64),
    ("containerLogMaxWorkers", 1, i32::MAX as i64),
    ("eventBurst", 0, i32::MAX as i64),
    ("eventRecordQPS", 0, i32::MAX as i64),
    ("imageGCHighThresholdPercent", 0, 100),
    ("imageGCLowThresholdPercent", 0, 100),
    ("iptablesDropBit", 0, 31),
    ("iptablesMasqueradeBit", 0, 31),
    ("kubeAPIBurst", 0, i32::MAX as i64),
    ("kubeAPIQPS", 0, i32::MAX as i64),
    ("maxOpenFiles", 0, i64::MAX),
    ("maxParallelImagePulls", 1, i32::MAX as i64),
    ("nodeLeaseDurationSeconds", 0, i32::MAX as i64),
    ("nodeStatusMaxImages", -1, i32::MAX as i64),
    ("oomScoreAdj", -1000, 1000),
    ("podsPerCore", 0, i32::MAX as i64),
    ("registryBurst", 0, i32::MAX as i64),
    ("registryPullQPS", 0, i32::MAX as i64),
    ("shutdownGracePeriodByPodPriority[].shutdownGracePeriodSeconds", 0, i64::MAX),
    ("tracing.samplingRatePerMillion", 0, 1_000_000),
];
const MS: i128 = 1_000_000;
const S: i128 = 1000 * MS;
/// The least and the most of a duration other than zero, which stands for the default or for none.
const DURATIONS: [(&str, &str, i128, i128); 7] = [
    ("containerLogMonitorInterval", "`3s` or more", 3 * S, i128::MAX),
    ("cpuCFSQuotaPeriod", "`1ms` to `1s`", MS, S),
    ("crashLoopBackOff.maxContainerRestartPeriod", "`1s` to `300s`", S, 300 * S),
    ("imageMaximumGCAge", "`0s` or more", 0, i128::MAX),
    ("imageMinimumGCAge", "`0s` or more", 0, i128::MAX),
    ("shutdownGracePeriod", "`0s`, or `1s` and more", S, i128::MAX),
    ("shutdownGracePeriodCriticalPods", "`0s`, or `1s` and more", S, i128::MAX),
];
/// The words that a field takes. Without one it has its default, and so it has with an empty one.
const WORDS: [(&str, &[&str]); 12] = [
    ("configMapAndSecretChangeDetectionStrategy", &["Get", "Cache", "Watch"]),
    ("cpuManagerPolicy", &["none", "static"]),
    (
        "enforceNodeAllocatable[]",
        &[
            "none",
            "pods",
            "system-reserved",
            "kube-reserved",
            "system-reserved-compressible",
            "kube-reserved-compressible",
        ],
    ),
    ("hairpinMode", &["hairpin-veth", "promiscuous-bridge", "none"]),
    (
        "imagePullCredentialsVerificationPolicy",
        &["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"],
    ),
    ("logging.format", &["text", "json"]),
    ("memoryManagerPolicy", &["None", "Static"]),
    ("memoryReservationPolicy", &["None", "TieredReservation"]),
    ("memorySwap.swapBehavior", &["NoSwap", "LimitedSwap"]),
    ("tlsMinVersion", &["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]),
    ("topologyManagerPolicy", &["none", "best-effort", "restricted", "single-numa-node"]),
    ("topologyManagerScope", &["container", "pod"]),
];
/// What holds where a spec says nothing: of the agent (`agent/src/kube/kubelet.rs`), then of the kubelet (`v1beta1/defaults.go`).
const DEFAULTS: [(&str, &str); 5] = [
    ("shutdownGracePeriod", "\"60s\""),
    ("shutdownGracePeriodCriticalPods", "\"20s\""),
    ("imageGCHighThresholdPercent", "85"),
    ("imageGCLowThresholdPercent", "80"),
    ("imageMinimumGCAge", "\"2m\""),
];
/// The parts of a machine that a kubelet enforces only within a control group that is named.
const GROUPS: [(&str, &str); 4] = [
    ("system-reserved", "systemReservedCgroup"),
    ("system-reserved-compressible", "systemReservedCgroup"),
    ("kube-reserved", "kubeReservedCgroup"),
    ("kube-reserved-compressible", "kubeReservedCgroup"),
];

/// The settings of a kind of nodes: of all kubelets, then their own, each with its place.
pub(super) type Layers<'a> = [(&'a BTreeMap<String, Value>, Path)];

impl Lowering<'_, '_, '_> {
    /// The value of a field, or of a part of it, at `path`; `field` is its name in the table.
    pub(super) fn kubelet_value(&mut self, field: &str, value: &Value, path: &Path) {
        // With nothing for a value a field has its default.
        if value.is_null() {
            return;
        }
        let Some(kind) = kubelet_field(field) else { return };
        let whole =
            |least: i64, most: i64| value.as_i64().is_some_and(|number| (least..=most).contains(&number));
        let (right, wanted) = match kind {
            Type::Bool => (value.is_boolean(), "`true` or `false`, without quotes"),
            Type::Text => (value.is_string(), "a text, in quotes if it looks like a number"),
            Type::Int32 => (whole(i32::MIN.into(), i32::MAX.into()), "a whole number, without quotes"),
            Type::Int64 => (value.is_i64() || value.is_u64(), "a whole number, without quotes"),
            Type::Uint32 => (whole(0, u32::MAX.into()), "a whole number from 0, without quotes"),
            Type::Float => (value.is_number(), "a number, without quotes"),
            Type::Duration => (
                value.as_str().is_some_and(|text| nanoseconds(text).is_some()),
                "a duration of hours, minutes and seconds, such as `36h` or `1m30s`: there are no days",
            ),
            Type::List => (value.is_array(), "a list"),
            Type::Group => (value.is_object(), "a group of keys"),
            Type::Texts => (
                value.as_object().is_some_and(|map| map.values().all(Value::is_string)),
                "names with texts; numbers in quotes",
            ),
            Type::Other => (true, ""),
        };
        if !right {
            let shown =
                if value.is_array() || value.is_object() { "this".to_owned() } else { format!("`{value}`") };
            let message = format!("a kubelet does not accept {shown} for `{field}` and would not start");
            self.report.error("kubelet-value", path, message, format!("write {wanted}"));
            return;
        }
        self.kubelet_limits(field, value, path);
        if let (Type::List, Some(items)) = (kind, value.as_array()) {
            for (index, item) in items.iter().enumerate() {
                self.kubelet_value(&format!("{field}[]"), item, &path.index(index));
            }
        }
        if let (Type::Group, Some(map)) = (kind, value.as_object()) {
            for (key, inner) in map {
                let name = format!("{field}.{key}");
                if kubelet_field(&name).is_none() {
                    let message =
                        format!("`{name}` is not a field of `KubeletConfiguration`: a kubelet ignores it");
                    let help = "see the fields in the reference of `kubelet.config.k8s.io/v1beta1`";
                    self.report.warning("kubelet-field", &path.key(key), message, help);
                }
                self.kubelet_value(&name, inner, &path.key(key));
            }
        }
    }

    /// What a value of the right type must also be.
    fn kubelet_limits(&mut self, field: &str, value: &Value, path: &Path) {
        let refused: Option<String> = if let Some((_, least, most)) = RANGES.iter().find(|one| one.0 == field)
        {
            let within = value.as_i64().is_none_or(|number| (*least..=*most).contains(&number));
            let most = if *most < i32::MAX.into() { format!("to {most}") } else { "or more".to_owned() };
            (!within).then(|| format!("write {least} {most}"))
        } else if let Some((_, words, least, most)) = DURATIONS.iter().find(|one| one.0 == field) {
            let length = value.as_str().and_then(nanoseconds).filter(|length| *length != 0);
            length.filter(|length| !(*least..=*most).contains(length)).map(|_| format!("write {words}"))
        } else if let Some((_, words)) = WORDS.iter().find(|one| one.0 == field) {
            let unknown = value.as_str().filter(|word| !word.is_empty() && !words.contains(word));
            unknown.map(|word| {
                self.report.nearest(word, words.iter().copied()).map_or_else(
                    || format!("write one of `{}`", words.join("`, `")),
                    |near| format!("did you mean `{near}`?"),
                )
            })
        } else {
            match field {
                "runOnce" => {
                    (value == &json!(true)).then(|| "remove it: no kubelet runs once any more".to_owned())
                }
                "memoryThrottlingFactor" => value
                    .as_f64()
                    .filter(|factor| *factor <= 0.0 || *factor > 1.0)
                    .map(|_| "write a number above 0, and 1 at most".to_owned()),
                "containerLogMaxSize" => value
                    .as_str()
                    .filter(|text| !text.is_empty() && !is_quantity(text))
                    .map(|_| "write a quantity such as `10Mi`".to_owned()),
                _ => None,
            }
        };
        if let Some(help) = refused {
            let message =
                format!("`{}` is not a valid value of `{field}`: the kubelet would not start", shown(value));
            self.report.error("kubelet-value", path, message, help);
        }
        if matches!(field, "evictionSoft" | "evictionSoftGracePeriod" | "evictionMinimumReclaim")
            && let Some(map) = value.as_object()
        {
            for signal in map.keys().filter(|signal| !SIGNALS.contains(&signal.as_str())) {
                let message = format!("`{signal}` is not a signal that a kubelet watches");
                let help = format!("write one of `{}`", SIGNALS.join("`, `"));
                self.report.error("eviction-signal", &path.key(signal), message, help);
            }
        }
    }

    /// What must fit together in the settings of one kind of nodes, of which the last layer is their own.
    pub(super) fn kubelet_agrees(&mut self, layers: &Layers<'_>) {
        let value_of = |field: &str| {
            layers
                .iter()
                .rev()
                .find_map(|(fields, place)| Some((fields.get(field)?.clone(), place.key(field))))
        };
        let value = |field: &str| {
            let default =
                || DEFAULTS.iter().find(|(field_name, _)| *field_name == field)?.1.parse::<Value>().ok();
            value_of(field).map(|(value, _)| value).filter(|value| !value.is_null()).or_else(default)
        };
        let length = |field: &str| value(field)?.as_str().and_then(nanoseconds);
        let number = |field: &str| value(field)?.as_i64();
        let text = |field: &str| value(field).map(|value| shown(&value)).unwrap_or_default();
        // The first of the fields that somebody wrote.
        let place = |fields: &[&str]| fields.iter().find_map(|field| value_of(field)).map(|(_, place)| place);
        let (grace, critical) = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods");
        let (high, low) = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent");
        let (oldest, youngest) = ("imageMaximumGCAge", "imageMinimumGCAge");
        let mut found: Vec<(&[&str], String, String)> = Vec::new();
        let (all, critical_pods) = (length(grace).unwrap_or(0), length(critical).unwrap_or(0));
        let by_priority = "shutdownGracePeriodByPodPriority";
        if value(by_priority).is_some_and(|list| list.as_array().is_some_and(|list| !list.is_empty()))
            && (all > 0 || critical_pods > 0)
        {
            found.push((
                &["shutdownGracePeriodByPodPriority"],
                format!("`{by_priority}` and `{grace}` ({}) cannot both hold", text(grace)),
                format!("add `{grace}: 0s` and `{critical}: 0s`, which are `60s` and `20s` unless given"),
            ));
        } else if critical_pods > all {
            found.push((
                &["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"],
                format!(
                    "`{critical}` ({}) is a part of `{grace}` ({}), and longer than that",
                    text(critical),
                    text(grace)
                ),
                "write both; they are `20s` and `60s` unless given".to_owned(),
            ));
        }
        if let (Some(above), Some(below)) = (number(high), number(low))
            && below >= above
        {
            found.push((
                &["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"],
                format!("`{low}` ({below}) must be less than `{high}` ({above})"),
                "write both; they are 80 and 85 unless given".to_owned(),
            ));
        }
        if let (Some(most), Some(least)) = (length(oldest), length(youngest))
            && most > 0
            && most <= least
        {
            found.push((
                &["imageMaximumGCAge", "imageMinimumGCAge"],
                format!(
                    "`{oldest}` ({}) must be longer than `{youngest}` ({})",
                    text(oldest),
                    text(youngest)
                ),
                format!("write a longer `{oldest}`; `{youngest}` is `2m` unless given"),
            ));
        }
        if value("serializeImagePulls") == Some(json!(true))
            && number("maxParallelImagePulls").is_some_and(|most| most > 1)
        {
            found.push((
                &["maxParallelImagePulls"],
                "with `serializeImagePulls: true` no images are pulled in parallel".to_owned(),
                "remove one of the two".to_owned(),
            ));
        }
        let soft = value("evictionSoft").and_then(|soft| soft.as_object().cloned()).unwrap_or_default();
        let periods = value("evictionSoftGracePeriod").unwrap_or_default();
        if let Some(signal) = soft.keys().find(|signal| periods.get(signal.as_str()).is_none()) {
            found.push((
                &["evictionSoft"],
                format!("nothing says how long `{signal}` may be below its soft threshold"),
                format!("add `evictionSoftGracePeriod: {{{signal}: 1m30s}}`"),
            ));
        }
        let enforced = value("enforceNodeAllocatable").unwrap_or_default();
        let enforced: Vec<&str> =
            enforced.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let unnamed = |field: &str| value(field).is_none_or(|name| name == json!(""));
        if let Some((what, group)) =
            GROUPS.iter().find(|(what, group)| enforced.contains(what) && unnamed(group))
        {
            found.push((
                &["enforceNodeAllocatable"],
                format!("`{what}` is enforced by `{group}`, which is not given"),
                format!("add `{group}` with the control group, or remove `{what}`"),
            ));
        }
        for (fields, message, help) in found {
            let Some(place) = place(fields).filter(|place| !self.report.refused(place)) else { continue };
            self.report.error(
                "kubelet-value",
                &place,
                format!("{message}: the kubelet would not start"),
                help,
            );
        }
    }
}

/// A text without its quotes.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether Kubernetes reads the text as a quantity (k8s.io/apimachinery, `pkg/api/resource/quantity.go`).
pub(super) fn is_quantity(text: &str) -> bool {
    let unsigned = text.trim_start_matches(['+', '-']);
    let end =
        unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
    let (number, unit) = unsigned.split_at(end);
    let exponent = unit.strip_prefix(['e', 'E']).is_some_and(|power| power.parse::<i16>().is_ok());
    text.len() - unsigned.len() <= 1
        && number.bytes().any(|byte| byte.is_ascii_digit())
        && number.matches('.').count() <= 1
        && (exponent
            || ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
                .contains(&unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_of_a_field_with_a_type_that_fits() {
        for (field, ..) in RANGES {
            assert!(matches!(kubelet_field(field), Some(Type::Int32 | Type::Int64)), "{field}");
        }
        for (field, ..) in DURATIONS {
            assert_eq!(kubelet_field(field), Some(Type::Duration), "{field}");
        }
        for (field, _) in WORDS {
            assert_eq!(kubelet_field(field), Some(Type::Text), "{field}");
        }
    }

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for text in ["10Mi", "1", "1.5Gi", ".5", "1e3", "1E3", "1E", "-1", "100n"] {
            assert!(is_quantity(text), "{text}");
        }
        for text in ["10MB", "1 Gi", "", "Mi", "1.1.1", "--1", "1gi", "1e"] {
            assert!(!is_quantity(text), "{text}");
        }
    }
}
