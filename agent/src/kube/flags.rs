//! Command-line flags of the programs.
//!
//! `testdata/flags.txt` lists the flags that are set and the minor releases that know them. If a flag comes or goes with a
//! release, a test fails, and the flag must depend on the minor.

use std::collections::BTreeMap;

use super::{FRONT_PROXY_CLIENT, pki};

/// Values by flag, without dashes. A repeated flag has several values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    pub(super) fn set(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.0.insert(name.to_owned(), vec![value.to_string()]);
        self
    }

    /// What the controller manager and the scheduler have in common: they serve on the loopback, and one of several is the leader.
    pub(super) fn of_leader_elected(kubeconfig: &str) -> Self {
        let mut flags = Self::default();
        flags
            .set("kubeconfig", kubeconfig)
            .set("authentication-kubeconfig", kubeconfig)
            .set("authorization-kubeconfig", kubeconfig)
            .set("bind-address", "127.0.0.1")
            // Set here, it need not ask the API server, which may not answer yet.
            .set("client-ca-file", pki("ca.pem"))
            .set("requestheader-allowed-names", FRONT_PROXY_CLIENT)
            .set("requestheader-client-ca-file", pki("front-proxy-ca.pem"))
            .set("leader-elect", true)
            .set("profiling", false);
        flags
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
