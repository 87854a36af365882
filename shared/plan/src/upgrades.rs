//! The roles that change to another minor release. Version skew rules are about these, so they determine the order in which nodes are
//! replaced.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use slipway_core::cluster::RolloutPolicy;
use slipway_core::release::Rendering;
use slipway_core::role::Role;

use super::Baseline;
use crate::skew;

/// A role whose nodes change to another minor of Kubernetes or of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MinorChange {
    /// The role.
    pub role: Role,
    /// The exact present release. If its nodes may have several, one whose minor differs from the new one.
    pub from: String,
    /// The exact new release.
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

/// The changes from what is deployed to `new`. A role whose release is unknown is assumed to be of the same minor.
pub(super) fn compare(baseline: &Baseline, new: &Rendering) -> Vec<MinorChange> {
    let Some(old) = &baseline.rendering else { return Vec::new() };
    let both = new.roles.iter().filter_map(|(role, after)| {
        let (deployed, to) = (old.roles.get(role)?, after.version.as_ref()?);
        let older = baseline.earlier.get(role).into_iter().flat_map(|releases| releases.values().flatten());
        let mut runs = older.chain([deployed]).filter_map(|node| node.version.as_ref());
        let from = runs.find(|from| skew::minor_of(from) != skew::minor_of(to))?;
        Some(MinorChange { role: role.clone(), from: from.clone(), to: to.clone() })
    });
    both.collect()
}

/// Pools whose nodes would keep an earlier minor because the policy lets a rollout neither remove a node nor add one first. The age of
/// their kubelets would then be unknown.
pub(super) fn unseen(baseline: &Baseline, new: &Rendering, policy: &RolloutPolicy) -> Vec<String> {
    let weighted = |role: &Role| new.roles.get(role).is_some_and(|node| node.weighted);
    let stays = |change: &MinorChange| match &change.role {
        Role::Pool(name) => !policy.pace(name).can_replace(weighted(&change.role)),
        Role::Etcd(_) | Role::Controller | Role::Admin => false,
    };
    let found: BTreeSet<(String, String)> = compare(baseline, new)
        .into_iter()
        .filter(stays)
        .map(|change| (change.role.to_string(), change.words()))
        .collect();
    let words = |(role, change): (String, String)| {
        format!(
            "{role} would change from {change}, but its nodes cannot be replaced: none may be missing, and the pool cannot surge \
             (write `rollout: {{maxUnavailable: 1}}` for that pool)"
        )
    };
    found.into_iter().map(words).collect()
}
