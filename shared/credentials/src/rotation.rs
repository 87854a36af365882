//! Rotation: the exchange of an authority, or of the key that signs service account tokens, in a running cluster.
//!
//! It has stages, each of which is rolled out and observed on every node before the next one begins: both are trusted and the old one
//! issues; both are trusted and the new one issues; the old one is removed. Nodes of two consecutive stages trust what each other
//! presents. Until the old one is removed, the rotation can be aborted and goes back the same way.
//!
//! These are decisions only: [`gate`] tells when the next stage may begin, [`due`] when a rotation should begin, and [`words`] describes
//! its state. `slipway_flows::credentials::rotation` makes, seals and stores.

mod due;
mod gate;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::cluster::Cluster;
use slipway_core::role::{ROTATABLE, Role, predecessor, successor};
use slipway_core::words::nearest;

use super::manifest::{self, PolicyError};
use super::policy;
use super::{Asset, AssetKind, Manifest, Origin};

pub use due::{ExpiringAuthority, ExpiryReason, due};
pub use gate::{KnownNodes, Next, NodeReport, UnreadableReport, Wait, next};
pub use words::{RotationStatus, manual_steps, next_step_lines, rotation_status, words};

/// The rotation of one asset, as stored in the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rotation {
    /// The present stage.
    pub stage: Stage,
    /// Whether it was aborted: the old authority issues again, and the new one is being removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// When it began.
    pub begun: Timestamp,
    /// When this stage began.
    pub since: Timestamp,
    /// When every node was first seen to have this stage, if the rotation then waits for a time to pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Timestamp>,
    /// The digests of each role's bundles since this stage began: a node that reports one of them has the stage.
    pub digests: BTreeMap<Role, BTreeSet<String>>,
}

/// The stages of a [`Rotation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Both are trusted, and the old one issues.
    Trust,
    /// Both are trusted, and the new one issues.
    Issue,
    /// One of the two is removed: the old one, or the new one after an abort.
    Drop,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trust => "trust",
            Self::Issue => "issue",
            Self::Drop => "drop",
        })
    }
}

impl Rotation {
    /// Whether the next stage removes one of the two: certificates that it signed may still be valid.
    #[must_use]
    pub fn removes_authority(&self) -> bool {
        match self.stage {
            Stage::Trust => self.aborted,
            Stage::Issue => true,
            Stage::Drop => false,
        }
    }
}

/// The roles of nodes that a rotation of `name` affects.
#[must_use]
pub fn affected_roles(cluster: &Cluster, name: &str) -> BTreeSet<Role> {
    let mut roles = policy::recipients(cluster).remove(name).unwrap_or_default();
    roles.remove(&Role::Admin);
    roles
}

/// The successor of `name`, to be made and added to the inventory before [`begin`].
///
/// # Errors
/// If `name` cannot be rotated, if Slipway does not make it, or if it is being rotated already.
pub fn to_start(
    assets: &[Asset],
    manifest: &Manifest,
    name: &str,
    now: Timestamp,
) -> Result<Asset, PolicyError> {
    check_rotatable(name)?;
    let refused = |why: &str, help: String| {
        Err(PolicyError::NotRotatable { name: name.to_owned(), why: why.to_owned(), help })
    };
    let (Some(asset), Some(entry)) =
        (assets.iter().find(|asset| asset.name == name), manifest.assets.get(name))
    else {
        return refused("it was never made", "render the spec first".to_owned());
    };
    if asset.origin != Origin::Generated || entry.origin != Origin::Generated {
        return refused(
            "you imported or provided it, and this version rotates only what Slipway makes",
            "build a cluster with another authority beside this one".to_owned(),
        );
    }
    if let Some(rotation) = manifest.rotations.get(name).filter(|rotation| rotation.stage != Stage::Drop) {
        return refused(
            &format!("it is being rotated since {} (stage {})", rotation.begun, rotation.stage),
            "wait for it, or abort it with --abort".to_owned(),
        );
    }
    if let AssetKind::Certificate(profile) = &asset.kind
        && manifest::not_after(now, profile.days).is_none()
    {
        return Err(PolicyError::TooLong { asset: name.to_owned(), days: profile.days });
    }
    Ok(Asset { name: successor(name), ..asset.clone() })
}

/// Checks that `name` can be rotated.
///
/// # Errors
/// If it cannot be.
pub fn check_rotatable(name: &str) -> Result<(), PolicyError> {
    if ROTATABLE.contains(&name) {
        return Ok(());
    }
    Err(PolicyError::NotRotatable {
        name: name.to_owned(),
        why: match nearest(name, ROTATABLE.into_iter()) {
            Some(near) => format!("it is not an authority; did you mean {near}?"),
            None => "it is not an authority".to_owned(),
        },
        help: format!(
            "name one of {}; a certificate is renewed by `slipway certs renew`",
            ROTATABLE.join(", ")
        ),
    })
}

/// Begins the rotation of `name`, whose successor is in the inventory, with [`Stage::Trust`].
pub fn begin(manifest: &mut Manifest, name: &str, now: Timestamp) {
    let rotation = Rotation {
        stage: Stage::Trust,
        aborted: false,
        begun: now,
        since: now,
        settled: None,
        digests: BTreeMap::new(),
    };
    manifest.rotations.insert(name.to_owned(), rotation);
}

/// Aborts the rotation of `name` in its present stage. [`record_stage`] completes this when bundles are sealed. `false`: it was aborted
/// already.
///
/// # Errors
/// If it is not being rotated, or the old one is removed already.
pub fn abort(manifest: &mut Manifest, name: &str, now: Timestamp) -> Result<bool, PolicyError> {
    check_rotatable(name)?;
    let refused = |why: &str, help: &str| {
        let (name, why, help) = (name.to_owned(), why.to_owned(), help.to_owned());
        Err(PolicyError::NotRotatable { name, why, help })
    };
    let Some(rotation) = manifest.rotations.get(name) else {
        return refused("it is not being rotated, so that there is nothing to go back from", "leave it");
    };
    match (rotation.stage, rotation.aborted) {
        (Stage::Trust | Stage::Drop, true) => return Ok(false),
        // No node presents anything signed by the new one.
        (Stage::Trust, false) => remove_other_authority(manifest, name),
        // Nodes in this stage present certificates of the new one, and all nodes trust both.
        (Stage::Issue, _) => swap(manifest, name, Stage::Trust),
        (Stage::Drop, false) => {
            return refused(
                "the old one is gone: there is nothing to go back to",
                "rotate it once more if it has to go: that is a new rotation",
            );
        }
    }
    if let Some(rotation) = manifest.rotations.get_mut(name) {
        rotation.stage = if rotation.stage == Stage::Issue { Stage::Trust } else { Stage::Drop };
        rotation.aborted = true;
        rotation.since = now;
        rotation.settled = None;
    }
    Ok(true)
}

/// Performs what [`next`] returned. [`record_stage`] completes this when bundles are sealed. `false`: there is nothing to do.
pub fn step(manifest: &mut Manifest, name: &str, next: &Next, now: Timestamp) -> bool {
    let stage = match next {
        Next::Wait(_) => return false,
        Next::Issue => {
            swap(manifest, name, Stage::Issue);
            Stage::Issue
        }
        Next::Drop => {
            remove_other_authority(manifest, name);
            Stage::Drop
        }
        Next::Settle => return settle(manifest, name, Some(now)),
        Next::Unsettle(_) => return settle(manifest, name, None),
        Next::End => return manifest.rotations.remove(name).is_some(),
    };
    if let Some(rotation) = manifest.rotations.get_mut(name) {
        rotation.stage = stage;
        rotation.since = now;
        rotation.settled = None;
    }
    true
}

/// Records the digests of the bundles that have the stage which `name` entered: the present ones, and those that are sealed during the
/// stage.
pub fn record_stage(cluster: &Cluster, manifest: &mut Manifest, name: &str) {
    let digests = affected_roles(cluster, name)
        .into_iter()
        .filter_map(|role| {
            let digest = manifest.bundles.get(&role)?.digest.clone();
            Some((role, BTreeSet::from([digest])))
        })
        .collect();
    if let Some(rotation) = manifest.rotations.get_mut(name) {
        rotation.digests = digests;
    }
}

/// Records the present bundles of the spec's roles as having the present stage of each rotation, except those that are `to_seal`, which
/// [`manifest::record`] adds. A role that comes back into the spec may have a bundle that is as it should be, so that nothing is sealed.
pub fn record_present(cluster: &Cluster, manifest: &mut Manifest, to_seal: &BTreeSet<Role>) {
    let Manifest { rotations, bundles, .. } = manifest;
    for (name, rotation) in rotations {
        for role in affected_roles(cluster, name).difference(to_seal) {
            if let Some(bundle) = bundles.get(role) {
                rotation.digests.entry(role.clone()).or_default().insert(bundle.digest.clone());
            }
        }
    }
}

fn settle(manifest: &mut Manifest, name: &str, settled: Option<Timestamp>) -> bool {
    let Some(rotation) = manifest.rotations.get_mut(name) else { return false };
    rotation.settled = settled;
    true
}

/// Swaps `name` with the one beside it: the new one takes its place in [`Stage::Issue`], the old one after an abort.
fn swap(manifest: &mut Manifest, name: &str, to: Stage) {
    let (from_name, to_name) = match to {
        Stage::Issue => (successor(name), predecessor(name)),
        Stage::Trust | Stage::Drop => (predecessor(name), successor(name)),
    };
    let Some(comes) = manifest.assets.remove(&from_name) else { return };
    if let Some(goes) = manifest.assets.insert(name.to_owned(), comes) {
        manifest.assets.insert(to_name, goes);
    }
}

/// Removes the one beside `name` from what is trusted.
fn remove_other_authority(manifest: &mut Manifest, name: &str) {
    manifest.assets.remove(&successor(name));
    manifest.assets.remove(&predecessor(name));
}
