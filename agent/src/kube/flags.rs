//! Command-line flags of the programs.
//!
//! `testdata/flags.txt` lists the flags that are set and the minor releases that know them. If a flag comes or goes with a
//! release, a test fails, and the flag must depend on the minor.

use std::collections::BTreeMap;

use super::{FRONT_PROXY_CLIENT, KUBECONFIG};
use crate::static_pods::Program;

/// The oldest TLS that servers accept.
pub(super) const TLS_MIN_VERSION: &str = "VersionTLS12";
/// What they accept of TLS 1.2: both lists of the CIS benchmark have these (1.2.29 and 4.2.12), and Go's own choice also has suites with CBC
/// and SHA-1. They need no keeping: TLS 1.2 gets no new suites, and Go lets nobody choose those of TLS 1.3 (crypto/tls, `Config.CipherSuites`).
pub(super) const TLS_CIPHER_SUITES: [&str; 4] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
];

/// Values by flag, without dashes. A repeated flag has several values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    pub(super) fn set(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.0.insert(name.to_owned(), vec![value.to_string()]);
        self
    }

    /// What the controller manager and the scheduler have in common: they serve on the loopback, and one of several is the leader.
    pub(super) fn of_leader_elected(program: Program) -> Self {
        let kubeconfig = program.file(KUBECONFIG);
        let mut flags = Self::default();
        flags
            .set("kubeconfig", &kubeconfig)
            .set("authentication-kubeconfig", &kubeconfig)
            .set("authorization-kubeconfig", kubeconfig)
            .set("bind-address", "127.0.0.1")
            // Set here, it need not ask the API server, which may not answer yet.
            .set("client-ca-file", program.file("ca.pem"))
            .set("requestheader-allowed-names", FRONT_PROXY_CLIENT)
            .set("requestheader-client-ca-file", program.file("front-proxy-ca.pem"))
            .set("leader-elect", true)
            .set("profiling", false)
            .set_tls();
        flags
    }

    /// Which TLS the program serves.
    pub(super) fn set_tls(&mut self) -> &mut Self {
        self.set("tls-min-version", TLS_MIN_VERSION).set("tls-cipher-suites", TLS_CIPHER_SUITES.join(","))
    }

    /// Repeats the flag for each value.
    pub(super) fn set_all(&mut self, name: &str, values: &[String]) -> &mut Self {
        self.0.insert(name.to_owned(), values.to_vec());
        self
    }

    /// One flag with comma-separated values; none if there are none.
    pub(super) fn set_list(&mut self, name: &str, values: &[String]) -> &mut Self {
        if values.is_empty() { self } else { self.set(name, values.join(",")) }
    }

    /// `--feature-gates`, if there are any.
    pub(super) fn set_gates(&mut self, gates: &BTreeMap<String, bool>) -> &mut Self {
        let gates: Vec<String> = gates.iter().map(|(gate, on)| format!("{gate}={on}")).collect();
        self.set_list("feature-gates", &gates)
    }

    /// The spec's flags override ours. Its checks refuse those that must not change.
    pub(super) fn set_users(&mut self, flags: &BTreeMap<String, String>) -> &mut Self {
        for (name, value) in flags {
            self.set(name, value);
        }
        self
    }

    /// `--name=value`, sorted by name.
    pub(super) fn arguments(&self) -> Vec<String> {
        let flags = self.0.iter();
        flags.flat_map(|(name, values)| values.iter().map(move |value| format!("--{name}={value}"))).collect()
    }
}
