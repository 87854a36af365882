//! Which roles would go to another minor release: what the rules of version skew are about, and so the order in which nodes are replaced.

use serde::{Deserialize, Serialize};

use crate::pki::Role;
use crate::render::Rendering;
use crate::skew;

/// A role whose nodes would run another minor of Kubernetes, or of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MinorChange {
    /// The role.
    pub role: Role,
    /// The exact release that it was launched with.
    pub from: String,
    /// The exact release that is asked for.
    pub to: String,
}

impl MinorChange {
    /// `Kubernetes 1.34 → 1.35`.
    pub(super) fn words(&self) -> String {
        let what = if self.role.member().is_some() { "etcd" } else { "Kubernetes" };
        format!("{what} {} → {}", skew::minor_of(&self.from), skew::minor_of(&self.to))
    }
}

/// The changes from `old` to `new`. An older Slipway, which did not write releases down, is believed to have launched the same minor.
pub(super) fn compare(old: Option<&Rendering>, new: &Rendering) -> Vec<MinorChange> {
    let Some(old) = old else { return Vec::new() };
    let both = new.roles.iter().filter_map(|(role, after)| {
        let (from, to) = (old.roles.get(role)?.version.as_ref()?, after.version.as_ref()?);
        let changes = skew::minor_of(from) != skew::minor_of(to);
        changes.then(|| MinorChange { role: role.clone(), from: from.clone(), to: to.clone() })
    });
    both.collect()
}
