//! Which roles would go to another minor release: what the rules of version skew are about, and so the order in which nodes are replaced.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use slipway_core::cluster::RolloutPolicy;
use slipway_core::release::Rendering;
use slipway_core::role::Role;

use super::Baseline;
use crate::skew;

/// A role whose nodes would run another minor of Kubernetes, or of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MinorChange {
    /// The role.
    pub role: Role,
    /// The exact release that it was launched with; of several that its nodes may be of, one of another minor than is asked for.
    pub from: String,
    /// The exact release that is asked for.
    pub to: String,
}

impl MinorChange {
    /// `Kubernetes 1.34 → 1.35`.
    #[must_use]
    pub fn words(&self) -> String {
        let what = if self.role.member().is_some() { "etcd" } else { "Kubernetes" };
        format!("{what} {} → {}", skew::minor_of(&self.from), skew::minor_of(&self.to))
    }
}

/// The changes from what stands to `new`. An older Slipway, which did not write releases down, is believed to have launched the same minor.
pub(super) fn compare(baseline: &Baseline, new: &Rendering) -> Vec<MinorChange> {
    let Some(old) = &baseline.rendering else { return Vec::new() };
    let both = new.roles.iter().filter_map(|(role, after)| {
        let (deployed, to) = (old.roles.get(role)?, after.version.as_ref()?);
        let older = baseline.behind.get(role).into_iter().flat_map(|releases| releases.values().flatten());
        let mut runs = older.chain([deployed]).filter_map(|node| node.version.as_ref());
        let from = runs.find(|from| skew::minor_of(from) != skew::minor_of(to))?;
        Some(MinorChange { role: role.clone(), from: from.clone(), to: to.clone() })
    });
    both.collect()
}

/// Pools whose nodes would stay of an earlier minor, since a rollout may take none of them away and bring none first: how old their kubelets
/// are would be known to nobody.
pub(super) fn unseen(baseline: &Baseline, new: &Rendering, policy: &RolloutPolicy) -> Vec<String> {
    let weighted = |role: &Role| new.roles.get(role).is_some_and(|node| node.weighted);
    let stays = |change: &MinorChange| match &change.role {
        Role::Pool(name) => !policy.pace(name).can_move(weighted(&change.role)),
        Role::Etcd(_) | Role::Controller | Role::Admin => false,
    };
    let found: BTreeSet<(String, String)> = compare(baseline, new)
        .into_iter()
        .filter(stays)
        .map(|change| (change.role.to_string(), change.words()))
        .collect();
    let words = |(role, change): (String, String)| {
        format!(
            "{role} is to go from {change}, and none of its nodes may be missing, nor can another come first \
             (write `rollout: {{maxUnavailable: 1}}` for that pool)"
        )
    };
    found.into_iter().map(words).collect()
}
