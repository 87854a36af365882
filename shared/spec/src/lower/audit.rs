//! The audit log of the API server.

use slipway_core::cluster::{AuditLog, LogFiles};

use super::Lowering;
use crate::model::AuditLogSpec;
use crate::path::Path;

/// In a folder of its own, which is all of `/var/log` that the API server may write to.
const AUDIT_LOG: &str = "/var/log/kube-apiserver/audit.log";
const AUDIT_FILES: LogFiles = LogFiles { max_age_days: 30, max_backups: 10, max_size_mib: 100 };

impl Lowering<'_, '_, '_> {
    pub(super) fn audit_log(&mut self, spec: &AuditLogSpec, path: &Path) -> Option<AuditLog> {
        let place = spec.log_path.as_deref().unwrap_or(AUDIT_LOG);
        let clean = |rest: &str| rest.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if place != "-" && !place.strip_prefix("/var/log/").is_some_and(clean) {
            let message = format!("`{place}` is not a place for the audit log");
            let help = "write a file below `/var/log/`, or `-` for the container's output";
            self.report.error("file-path", &path.key("logPath"), message, help);
        }
        let given = [("maxAge", spec.max_age), ("maxBackup", spec.max_backup), ("maxSize", spec.max_size)];
        let files = if place == "-" {
            for (key, _) in given.iter().filter(|(_, value)| value.is_some()) {
                let message = format!("`logPath: \"-\"` writes no files, so `{key}` has no effect");
                self.report.error(
                    "given-twice",
                    &path.key(key),
                    message,
                    "remove it, or give `logPath` a file",
                );
            }
            None
        } else {
            let files = LogFiles {
                max_age_days: spec.max_age.unwrap_or(AUDIT_FILES.max_age_days),
                max_backups: spec.max_backup.unwrap_or(AUDIT_FILES.max_backups),
                max_size_mib: spec.max_size.unwrap_or(AUDIT_FILES.max_size_mib),
            };
            self.audit_room(files, spec, path);
            Some(files)
        };
        let policy = (!spec.policy.is_empty()).then(|| spec.policy.clone());
        if policy.is_some() {
            self.audit_policy(spec, &path.key("policy"));
        }
        spec.enabled.unwrap_or(true).then(|| AuditLog { path: place.to_owned(), files, policy })
    }

    /// The logs lie on the root volume, which must not fill up with them.
    fn audit_room(&mut self, files: LogFiles, spec: &AuditLogSpec, path: &Path) {
        let root_gib = self.spec.controller.root_volume.size.unwrap_or(super::volumes::ROOT_GIB);
        let (needed, room) = (
            (u64::from(files.max_backups) + 1) * u64::from(files.max_size_mib),
            u64::from(root_gib) * 1024 / 2,
        );
        if spec.enabled.unwrap_or(true) && needed > room {
            // What somebody wrote. The defaults alone need little, so that the volume was written.
            let place = if spec.max_backup.is_some() {
                path.key("maxBackup")
            } else if spec.max_size.is_some() {
                path.key("maxSize")
            } else {
                Path::parse("controller.rootVolume.size")
            };
            let message = format!(
                "audit logs of {needed} MiB in all would take more than half of the controllers' root volume of {root_gib} GiB"
            );
            let help = "keep fewer or smaller files by `kubernetes.apiServer.auditLog`, or write a larger `controller.rootVolume.size`";
            self.report.error("audit-log-size", &place, message, help);
        }
    }

    fn audit_policy(&mut self, spec: &AuditLogSpec, path: &Path) {
        for (key, wanted) in [("apiVersion", "audit.k8s.io/v1"), ("kind", "Policy")] {
            if spec.policy.get(key).and_then(|value| value.as_str()) != Some(wanted) {
                let message = format!("the audit policy's `{key}` is not `{wanted}`");
                self.report.error(
                    "audit-policy",
                    &path.key(key),
                    message,
                    format!("write `{key}: {wanted}`"),
                );
            }
        }
        let rules = spec.policy.get("rules").and_then(|rules| rules.as_array());
        let Some(rules) = rules.filter(|rules| !rules.is_empty()) else {
            let help = "add `rules`, such as `[{level: Metadata}]`";
            self.report.error("audit-policy", &path.key("rules"), "the audit policy has no rules", help);
            return;
        };
        for (index, rule) in rules.iter().enumerate() {
            let level = rule.get("level").and_then(|level| level.as_str());
            if !matches!(level, Some("None" | "Metadata" | "Request" | "RequestResponse")) {
                let place = path.key("rules").index(index).key("level");
                let help = "write `None`, `Metadata`, `Request` or `RequestResponse`";
                self.report.error("audit-policy", &place, "this rule has no valid level", help);
            }
        }
    }
}
