//! Admission: plugins, limits of events, and the standards that pods keep to.

use std::collections::BTreeSet;

use slipway_core::cluster::{Admission, EventRateLimit, PodSecurity};

use super::{Lowering, word};
use crate::model::{EventRateLimitSpec, PodSecurityLevel};
use crate::path::Path;

/// What the plugin itself takes for a cache that is not given.
const EVENT_CACHE: u32 = 4096;

/// The plugins of the releases that are launched (`kube-apiserver --help`, 1.34 to 1.37).
const PLUGINS: [&str; 36] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NamespaceLifecycle",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "PodNodeSelector",
    "PodSecurity",
    "PodTolerationRestriction",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];
/// What a cluster of Slipway's cannot be without.
const NEEDED: [&str; 5] = [
    "NamespaceLifecycle",
    "NodeRestriction",
    "ServiceAccount",
    "TaintNodesByCondition",
    // Keeps add-ons on workers to their own Nodes (`own_node` in slipway-render).
    "ValidatingAdmissionPolicy",
];

const POD_SECURITY: &str = "PodSecurity";

impl Lowering<'_, '_, '_> {
    pub(super) fn admission(&mut self, path: &Path) -> Admission {
        let spec = &self.spec.kubernetes.api_server;
        let off_path = path.key("disableAdmissionPlugins");
        let enable =
            self.plugins(&spec.enable_admission_plugins, &path.key("enableAdmissionPlugins"), |name| {
                match name {
                    "AlwaysDeny" => {
                        Some("remove it: nothing would ever be created, the cluster's own parts included")
                    }
                    "EventRateLimit" => Some("write `eventRateLimits`, which turns it on"),
                    "ImagePolicyWebhook" => {
                        Some("remove it: use a `ValidatingWebhookConfiguration` in the cluster")
                    }
                    _ => None,
                }
            });
        let disable = self.plugins(&spec.disable_admission_plugins, &off_path, |name| {
            NEEDED
                .contains(&name)
                .then_some("remove it: nodes or pods would not be safe, or not start, without it")
        });
        for (index, name) in spec.disable_admission_plugins.iter().enumerate() {
            if spec.enable_admission_plugins.contains(name) {
                let message =
                    format!("`{name}` is in `enableAdmissionPlugins` and in `disableAdmissionPlugins`");
                self.report.error("given-twice", &off_path.index(index), message, "keep it in one of them");
            }
        }
        let limits = spec.event_rate_limits.iter().filter_map(event_limit).collect();
        let pod_security = self.pod_security(&disable, path);
        Admission { enable, disable, event_rate_limits: limits, pod_security }
    }

    fn plugins(
        &mut self,
        names: &[String],
        path: &Path,
        refused: impl Fn(&str) -> Option<&'static str>,
    ) -> Vec<String> {
        for (index, name) in names.iter().enumerate() {
            let path = path.index(index);
            if !PLUGINS.contains(&name.as_str()) {
                let help = self.report.nearest(name, PLUGINS.into_iter()).map_or_else(
                    || "write one as `kube-apiserver --help` names it".to_owned(),
                    |plugin| format!("did you mean `{plugin}`?"),
                );
                let message =
                    format!("`{name}` is not an admission plugin of the releases that are launched");
                self.report.error("admission-plugin", &path, message, help);
            } else if let Some(help) = refused(name) {
                self.report.error("admission-plugin", &path, format!("`{name}` cannot be here"), help);
            }
        }
        let names: BTreeSet<String> =
            names.iter().filter(|name| *name != "NodeRestriction").cloned().collect();
        names.into_iter().collect()
    }

    /// `None` if the plugin is off.
    fn pod_security(&mut self, disable: &[String], path: &Path) -> Option<PodSecurity> {
        let spec = &self.spec.kubernetes.api_server.pod_security;
        let given = [("enforce", spec.enforce), ("audit", spec.audit), ("warn", spec.warn)];
        if disable.iter().any(|plugin| plugin == POD_SECURITY) {
            for (key, _) in given.iter().filter(|(_, level)| level.is_some()) {
                let message =
                    format!("`disableAdmissionPlugins` turns `{POD_SECURITY}` off, so `{key}` has no effect");
                let help = format!("remove it, or remove `{POD_SECURITY}` from `disableAdmissionPlugins`");
                self.report.error("given-twice", &path.key("podSecurity").key(key), message, help);
            }
            return None;
        }
        let level = |given: Option<PodSecurityLevel>, default| word(given.unwrap_or(default));
        Some(PodSecurity {
            enforce: level(spec.enforce, PodSecurityLevel::Baseline),
            audit: level(spec.audit, PodSecurityLevel::Restricted),
            warn: level(spec.warn, PodSecurityLevel::Restricted),
        })
    }
}

fn event_limit(spec: &EventRateLimitSpec) -> Option<EventRateLimit> {
    Some(EventRateLimit {
        kind: word(spec.kind?),
        qps: spec.qps?,
        burst: spec.burst?,
        cache_size: spec.cache_size.unwrap_or(EVENT_CACHE),
    })
}
