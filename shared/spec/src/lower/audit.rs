//! The audit log of the API server.

use serde_json::Value;
use slipway_core::cluster::{AuditLog, LogFiles};

use super::Lowering;
use crate::model::AuditLogSpec;
use crate::path::Path;
use crate::text::is_dns_name;

/// In a folder of its own, which is all of `/var/log` that the API server may write to.
const AUDIT_LOG: &str = "/var/log/kube-apiserver/audit.log";
/// The stages of a request that a policy may leave out.
const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];
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
        let at = path.key("policy");
        if policy.is_some() {
            self.audit_policy(spec, &at);
        } else if self.report.has(&at) {
            let message = "a policy with nothing in it is taken for none: Slipway's own holds";
            self.report.warning("audit-policy", &at, message, "write `rules`, or remove the key");
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
        self.stages(spec.policy.get("omitStages"), &path.key("omitStages"));
        for (index, rule) in rules.iter().enumerate() {
            self.audit_rule(rule, &path.key("rules").index(index));
        }
    }

    /// What the API server refuses of a rule (k8s.io/apiserver, `pkg/apis/audit/validation`). Keys that it does not know it ignores.
    fn audit_rule(&mut self, rule: &Value, path: &Path) {
        let level = rule.get("level").and_then(|level| level.as_str());
        if !matches!(level, Some("None" | "Metadata" | "Request" | "RequestResponse")) {
            let help = "write `None`, `Metadata`, `Request` or `RequestResponse`";
            self.report.error("audit-policy", &path.key("level"), "this rule has no valid level", help);
        }
        for key in ["users", "userGroups", "verbs", "namespaces"] {
            self.texts(rule.get(key), &path.key(key));
        }
        self.stages(rule.get("omitStages"), &path.key("omitStages"));
        let place = path.key("nonResourceURLs");
        let urls = self.texts(rule.get("nonResourceURLs"), &place);
        for (index, url) in urls.iter().enumerate() {
            let star = url.find('*').is_some_and(|at| at + 1 < url.len());
            if *url != "*" && (!url.starts_with('/') || star) {
                let message = format!("`{url}` is not a URL of a rule");
                let help = "begin it with `/`; a `*` may only stand at its end";
                self.report.error("audit-policy", &place.index(index), message, help);
            }
        }
        let present =
            |key: &str| rule.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if !urls.is_empty() && (present("resources") || present("namespaces")) {
            let message = "a rule is about resources or about other URLs, not both";
            self.report.error("audit-policy", &place, message, "make two rules of it");
        }
        let place = path.key("resources");
        match rule.get("resources") {
            None | Some(Value::Null) => {}
            Some(Value::Array(groups)) => {
                for (index, group) in groups.iter().enumerate() {
                    self.audit_resources(group, &place.index(index));
                }
            }
            Some(_) => self.no_list(&place, "write a list such as `[{group: \"\", resources: [pods]}]`"),
        }
    }

    fn audit_resources(&mut self, group: &Value, path: &Path) {
        let name = group.get("group").and_then(Value::as_str).unwrap_or_default();
        if !name.is_empty()
            && name != "*"
            && (!is_dns_name(name) || name.contains(|letter: char| letter.is_ascii_uppercase()))
        {
            let message = format!("`{name}` is not a group of resources");
            let help = "write the group without its version, such as `rbac.authorization.k8s.io`, or `\"\"` for pods and the like";
            self.report.error("audit-policy", &path.key("group"), message, help);
        }
        let resources = self.texts(group.get("resources"), &path.key("resources"));
        let names = self.texts(group.get("resourceNames"), &path.key("resourceNames"));
        if resources.is_empty() && !names.is_empty() && !self.report.refused(path) {
            let message = "names of resources say nothing without `resources`";
            let help = "add `resources` with their kind, such as `[configmaps]`";
            self.report.error("audit-policy", &path.key("resourceNames"), message, help);
        }
    }

    fn stages(&mut self, value: Option<&Value>, path: &Path) {
        for (index, stage) in
            self.texts(value, path).iter().enumerate().filter(|(_, stage)| !STAGES.contains(stage))
        {
            let help = self.report.nearest(stage, STAGES.into_iter()).map_or_else(
                || format!("write one of `{}`", STAGES.join("`, `")),
                |near| format!("did you mean `{near}`?"),
            );
            let message = format!("`{stage}` is not a stage of a request");
            self.report.error("audit-policy", &path.index(index), message, help);
        }
    }

    /// The texts of a list at `path`; none after refusing it.
    fn texts<'v>(&mut self, value: Option<&'v Value>, path: &Path) -> Vec<&'v str> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Vec::new() };
        let list = value.as_array().filter(|list| list.iter().all(Value::is_string));
        if list.is_none() {
            self.no_list(path, "write a list of texts, such as `[get, list]`");
        }
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn no_list(&mut self, path: &Path, help: &str) {
        self.report.error("audit-policy", path, "this is not the list that the API server reads here", help);
    }
}
