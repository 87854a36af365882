//! Values of flags beyond their types: words, ranges, and files that the API server must be able to read.

use slipway_core::cluster::HostVolume;

use super::Lowering;
use crate::model::FlagSpec;
use crate::path::Path;

/// The words that flags of kube-apiserver take (k8s.io/apiserver, `pkg/server/options/audit.go`; k8s.io/kubernetes,
/// `pkg/controlplane/reconcilers`).
const WORDS: [(&str, &[&str]); 5] = [
    ("audit-log-format", &["json", "legacy"]),
    ("audit-log-mode", &["batch", "blocking", "blocking-strict"]),
    ("audit-webhook-mode", &["batch", "blocking", "blocking-strict"]),
    ("endpoint-reconciler-type", &["lease", "master-count", "none"]),
    ("tls-min-version", &["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]),
];
/// The suites of Go's crypto/tls, `CipherSuites` and `InsecureCipherSuites`, and the names without a hash that Kubernetes also takes
/// (k8s.io/component-base, `cli/flag/ciphersuites_flag.go`).
const SUITES: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];
/// "--goaway-chance can not be less than 0 or greater than 0.02" (k8s.io/apiserver, `pkg/server/options/server_run_options.go`).
const MOST_GOAWAY: f64 = 0.02;
/// Files that the API server's pod sees, beside its volumes: the user's, if a flag names the folder (`agent/src/kube/static_pod.rs`), and its own.
const SEEN: [&str; 2] = ["/etc/kubernetes/custom/", "/etc/kubernetes/kube-apiserver/"];

/// What to write instead of a value that the program does not take; `None`: it takes it, for all that is known here.
pub(super) fn wanted(name: &str, value: &str) -> Option<String> {
    let one_of = |words: &[&str]| format!("one of `{}`", words.join("`, `"));
    let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
    match name {
        "goaway-chance" => number
            .is_none_or(|chance| !(0.0..=MOST_GOAWAY).contains(&chance))
            .then(|| format!("a number from 0 to {MOST_GOAWAY}")),
        "kube-api-qps" => number.is_none().then(|| "a number".to_owned()),
        "service-node-port-range" => {
            (!is_port_range(value)).then(|| "one such as `30000-32767`, the smaller port first".to_owned())
        }
        "tls-cipher-suites" => value
            .split(',')
            .any(|suite| !SUITES.contains(&suite.trim()))
            .then(|| "suites such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`, joined by commas".to_owned()),
        _ => {
            let (_, words) = WORDS.iter().find(|(known, _)| *known == name)?;
            (!words.contains(&value)).then(|| one_of(words))
        }
    }
}

/// A range of ports as `--service-node-port-range` has it: `a-b`, `a+count`, `a` (k8s.io/apimachinery, `pkg/util/net/port_range.go`: "if high <
/// low" it is refused).
fn is_port_range(text: &str) -> bool {
    let port = |part: &str| part.trim().parse::<u16>().ok();
    if let Some((low, high)) = text.split_once('-') {
        return matches!((port(low), port(high)), (Some(low), Some(high)) if low <= high);
    }
    match text.split_once('+') {
        Some((low, more)) => {
            matches!((port(low), port(more)), (Some(low), Some(more)) if low.checked_add(more).is_some())
        }
        None => port(text).is_some(),
    }
}

impl Lowering<'_, '_, '_> {
    /// Files that flags of the API server name must be in its pod, and somebody must write them.
    pub(super) fn flag_files(&mut self, flags: &[FlagSpec], volumes: &[HostVolume], path: &Path) {
        for (index, flag) in flags.iter().enumerate() {
            let (Some(name), Some(file)) = (&flag.name, &flag.value) else { continue };
            let place = path.index(index).key("value");
            if !name.ends_with("-file") || file.is_empty() || self.report.refused(&path.index(index)) {
                continue;
            }
            let below = |folder: &str| {
                file == folder || file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
            };
            let mounted = volumes.iter().any(|volume| below(&volume.path));
            if !mounted && !SEEN.iter().any(|folder| file.starts_with(folder)) {
                let message = format!(
                    "the API server's pod does not see `{file}`: with a file that it cannot read it does not start"
                );
                let help = "add the folder to `kubernetes.apiServer.volumes`, or write the file below `/etc/kubernetes/custom`";
                self.report.error("flag-file", &place, message, help);
                continue;
            }
            let written = self.spec.controller.custom_files.iter().any(|one| one.path.as_ref() == Some(file));
            if !written && !file.starts_with(SEEN[1]) {
                let message = format!("no entry of `controller.customFiles` writes `{file}`");
                let help = "add it there, unless the image or a unit brings it: with a file that it cannot read the API server does not start";
                self.report.warning("flag-file", &place, message, help);
            }
        }
    }
}
