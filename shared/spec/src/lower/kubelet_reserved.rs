//! What a kubelet reserves and enforces, and how often it reports: settings that are right each by itself, and fit no kubelet together.
//!
//! Sources in k8s.io/kubernetes: `pkg/kubelet/apis/config/validation/validation.go`, `pkg/kubelet/cm/cpumanager/cpu_manager.go` ("the static policy
//! requires systemreserved.cpu + kubereserved.cpu to be greater than zero"), `pkg/kubelet/cm/memorymanager/memory_manager.go`
//! (`validateReservedMemory`).

use serde_json::{Value, json};

use super::Lowering;
use super::kubelet::quantity;
use super::kubelet_values::Layers;
use crate::duration::nanoseconds;
use crate::path::Path;

const S: i128 = 1_000_000_000;
/// Of the kubelet (`v1beta1/defaults.go`), and of the controller manager since 1.32.
const LEASE_S: i64 = 40;
const MONITORED_S: i128 = 50;

impl Lowering<'_, '_, '_> {
    /// `layers` have `systemReserved`, `kubeReserved` and `evictionHard` beside the fields of `config`.
    pub(super) fn kubelet_reserves(&mut self, layers: &Layers<'_>) {
        let place = |field: &str| {
            let written = layers.iter().rev().find(|(fields, _)| fields.contains_key(field));
            written.map(|(_, place)| place.key(field))
        };
        let value = |field: &str| {
            let written = layers.iter().rev().find_map(|(fields, _)| fields.get(field));
            written.filter(|value| !value.is_null()).cloned()
        };
        let named = |field: &str| value(field).is_some_and(|name| name != json!(""));
        let is = |field: &str, word: &str| value(field) == Some(json!(word));
        let mut found: Vec<(&str, String, String)> = Vec::new();
        if is("cpuManagerPolicy", "static") && !named("reservedSystemCPUs") && !reserves(&value, "cpu") {
            found.push((
                "cpuManagerPolicy",
                "`cpuManagerPolicy: static` needs processors that are reserved for the machine itself"
                    .to_owned(),
                "add `kubeReserved: cpu=500m` beside `config`, or `reservedSystemCPUs`".to_owned(),
            ));
        }
        let reserved_memory =
            value("reservedMemory").is_some_and(|list| list.as_array().is_some_and(|list| !list.is_empty()));
        if is("memoryManagerPolicy", "Static") && !reserved_memory && holds_memory_back(&value) {
            found.push((
                "memoryManagerPolicy",
                "`memoryManagerPolicy: Static` needs `reservedMemory`".to_owned(),
                "add `reservedMemory`, in all as much as `kubeReserved`, `systemReserved` and the hard eviction threshold of memory (`100Mi` unless \
                 given)"
                    .to_owned(),
            ));
        }
        if named("systemCgroups") && !named("cgroupRoot") {
            found.push((
                "systemCgroups",
                "`systemCgroups` needs `cgroupRoot`".to_owned(),
                "add `cgroupRoot: /`, or remove it".to_owned(),
            ));
        }
        let group = ["systemReservedCgroup", "kubeReservedCgroup"].into_iter().find(|group| named(group));
        if let Some(group) = group.filter(|_| named("reservedSystemCPUs")) {
            found.push((
                "reservedSystemCPUs",
                format!("`reservedSystemCPUs` and `{group}` cannot both hold"),
                "remove one of the two".to_owned(),
            ));
        }
        let enforced = value("enforceNodeAllocatable").unwrap_or_else(|| json!(["pods"]));
        let enforced: Vec<&str> =
            enforced.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some((message, help)) = not_together(&enforced) {
            found.push(("enforceNodeAllocatable", message, help));
        }
        if value("cgroupsPerQOS") == Some(json!(false))
            && let Some(what) = enforced.iter().find(|what| **what != "none")
        {
            found.push((
                "cgroupsPerQOS",
                format!("`enforceNodeAllocatable` ({what}) needs `cgroupsPerQOS`"),
                "add `enforceNodeAllocatable: [none]`, which is `[pods]` unless given, or remove the line"
                    .to_owned(),
            ));
        }
        for (field, message, help) in found {
            let Some(place) = place(field).filter(|place| !self.report.refused(place)) else { continue };
            let message = format!("{message}: the kubelet would not start");
            self.report.error("kubelet-value", &place, message, help);
        }
        let lease =
            value("nodeLeaseDurationSeconds").and_then(|lease| lease.as_i64()).filter(|lease| *lease > 0);
        self.reports_in_time(lease, place("nodeLeaseDurationSeconds"));
    }

    /// A kubelet renews its lease after a quarter of the lease's time (k8s.io/kubernetes, `pkg/kubelet/kubelet.go`,
    /// `nodeLeaseRenewIntervalFraction`), and the controller manager wants several of these within its grace period: "must be N times more".
    fn reports_in_time(&mut self, lease: Option<i64>, written: Option<Path>) {
        let key = Path::parse("kubernetes.controllerManager.nodeMonitorGracePeriod");
        let grace = self.spec.kubernetes.controller_manager.node_monitor_grace_period.as_deref();
        let length = grace.map_or(Some(MONITORED_S * S), nanoseconds).filter(|length| *length > 0);
        let lease = lease.unwrap_or(LEASE_S);
        if length.is_none_or(|length| i128::from(lease) * S <= length) {
            return;
        }
        let message = format!(
            "kubelets report every {} s, a quarter of `nodeLeaseDurationSeconds` ({lease}), which is less than four times within \
             `nodeMonitorGracePeriod` ({}): nodes that are well may become NotReady, and lose their pods",
            lease / 4,
            grace.unwrap_or("50s")
        );
        let help = format!(
            "write `nodeMonitorGracePeriod: {lease}s` or more, or a shorter lease; they are 50 and 40 s unless given"
        );
        self.report.warning("node-heartbeat", &written.unwrap_or(key), message, help);
    }
}

/// Whether `systemReserved` or `kubeReserved` have some of it.
fn reserves(value: &impl Fn(&str) -> Option<Value>, what: &str) -> bool {
    ["systemReserved", "kubeReserved"].into_iter().filter_map(value).any(|text| {
        let text = text.as_str().unwrap_or_default().to_owned();
        let mut pairs = text.split(',').filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, amount)| name == what && quantity(amount) != Some(0))
    })
}

/// Whether a kubelet keeps memory from pods, of which `reservedMemory` has to say where it is.
fn holds_memory_back(value: &impl Fn(&str) -> Option<Value>) -> bool {
    let threshold = match value("evictionHard") {
        None => true,
        Some(hard) => hard.get("memory.available").is_some_and(|least| *least != json!("0%")),
    };
    threshold || reserves(value, "memory")
}

/// Words of `enforceNodeAllocatable` that exclude each other.
fn not_together(enforced: &[&str]) -> Option<(String, String)> {
    if enforced.contains(&"none") && enforced.len() > 1 {
        let help = "write `[none]`, or the others without it".to_owned();
        return Some(("`none` excludes all others in `enforceNodeAllocatable`".to_owned(), help));
    }
    let twice = enforced.iter().enumerate().find(|(index, what)| enforced[..*index].contains(what));
    if let Some((_, what)) = twice {
        return Some((format!("`enforceNodeAllocatable` has `{what}` twice"), "keep one".to_owned()));
    }
    let both = enforced.iter().find(|what| enforced.contains(&format!("{what}-compressible").as_str()))?;
    let message =
        format!("`{both}` and `{both}-compressible` exclude each other in `enforceNodeAllocatable`");
    Some((message, "keep one of the two".to_owned()))
}
