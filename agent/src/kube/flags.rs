//! Flags, and whose they are.
//!
//! `testdata/flags.txt` is the table of those that are set, and of the minors that know them: of the newest four, all. When one comes or
//! goes, that table and a test say so, and what is set goes by the minor.

use std::collections::BTreeMap;

/// A component that is a static pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    ApiServer,
    ControllerManager,
    Scheduler,
}

impl Program {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

/// The names of all of them, and of their manifests.
pub const STATIC_PODS: [&str; 3] =
    [Program::ApiServer.name(), Program::ControllerManager.name(), Program::Scheduler.name()];

/// Flags without their dashes, each with its values: one that is given several times has several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    pub(super) fn set(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.0.insert(name.to_owned(), vec![value.to_string()]);
        self
    }

    /// Each value under a flag of its own.
    pub(super) fn set_all(&mut self, name: &str, values: &[String]) -> &mut Self {
        self.0.insert(name.to_owned(), values.to_vec());
        self
    }

    /// Values with commas between them; nothing where there are none.
    pub(super) fn set_list(&mut self, name: &str, values: &[String]) -> &mut Self {
        if values.is_empty() { self } else { self.set(name, values.join(",")) }
    }

    /// `--feature-gates`; nothing where none is said.
    pub(super) fn set_gates(&mut self, gates: &BTreeMap<String, bool>) -> &mut Self {
        let gates: Vec<String> = gates.iter().map(|(gate, on)| format!("{gate}={on}")).collect();
        self.set_list("feature-gates", &gates)
    }

    /// What the spec says goes over what we say: it may say nothing that must be ours.
    pub(super) fn set_users(&mut self, flags: &BTreeMap<String, String>) -> &mut Self {
        for (name, value) in flags {
            self.set(name, value);
        }
        self
    }

    /// `--name=value`, in order of names.
    pub(super) fn arguments(&self) -> Vec<String> {
        let flags = self.0.iter();
        flags.flat_map(|(name, values)| values.iter().map(move |value| format!("--{name}={value}"))).collect()
    }
}
