//! An authority, or the key that signs service accounts' tokens, is exchanged while everything runs (design §8).
//!
//! In stages, of which each is rolled out and seen on every node before the next: both are trusted and the old one issues; both
//! are trusted and the new one issues; the old one is gone. What nodes of two stages that follow each other present to each other
//! is trusted by both. Until the old one is gone, the same way leads back.
//!
//! Everything here is policy: [`gate`] says when a stage may follow, [`due`] when an exchange should begin, [`words`] how
//! it stands. `slipway_flows::credentials::rotation` makes, seals and stores.

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
use slipway_core::role::{KUBELET_CA, ROTATABLE, Role, SERVICE_ACCOUNT, predecessor, successor};
use slipway_core::words::nearest;

use super::manifest::{self, PolicyError};
use super::policy::{self, BundleFile, KUBERNETES_DIR, Part, Source};
use super::{Asset, AssetKind, Entry, Manifest, Origin};

pub use due::{Due, Why, due};
pub use gate::{Heard, Next, Seen, Wait, next};
pub use words::{Told, after, lines, told, words};

/// The exchange of one asset, as the inventory keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rotation {
    /// How far it is.
    pub stage: Stage,
    /// It goes back: what issued before issues again, or is about to be all that there is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// When it began.
    pub begun: Timestamp,
    /// When this stage began.
    pub since: Timestamp,
    /// When every node was seen to have this stage, where time is waited for from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Timestamp>,
    /// The digests that the bundles of each role have had since this stage began: a node that reports one of them has the stage.
    pub digests: BTreeMap<Role, BTreeSet<String>>,
}

/// How far a [`Rotation`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Both are trusted, and the old one issues.
    Trust,
    /// Both are trusted, and the new one issues.
    Issue,
    /// One of the two is gone: the old one, or the new one of an exchange that was aborted.
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
    /// Whether two are trusted while the one that issued last is about to go: what it signed may live on.
    #[must_use]
    pub fn lets_one_go(&self) -> bool {
        match self.stage {
            Stage::Trust => self.aborted,
            Stage::Issue => true,
            Stage::Drop => false,
        }
    }
}

/// What the inventory calls the other one of the two that are trusted; `None` while there is one.
#[must_use]
pub fn beside(manifest: &Manifest, name: &str) -> Option<String> {
    [predecessor(name), successor(name)].into_iter().find(|other| manifest.assets.contains_key(other))
}

/// What the inventory says of what is stored in the folder `asset` under `fingerprint`.
#[must_use]
pub fn stored<'m>(manifest: &'m Manifest, asset: &str, fingerprint: &str) -> Option<(&'m String, &'m Entry)> {
    let names = [asset.to_owned(), successor(asset), predecessor(asset)];
    let found = names.iter().filter_map(|name| manifest.assets.get_key_value(name));
    found.into_iter().find(|(_, entry)| entry.fingerprint == fingerprint)
}

/// The public keys of which one may have signed a token that is still valid, by the names of their assets.
#[must_use]
pub fn service_account_keys(manifest: &Manifest) -> Vec<String> {
    let other = beside(manifest, SERVICE_ACCOUNT);
    std::iter::once(SERVICE_ACCOUNT.to_owned()).chain(other).collect()
}

/// What `role` receives, sorted by path: [`policy::bundle`], and beside what is trusted what is trusted too for a while.
///
/// The older of two comes first, whichever issues: who holds neither's key nor what it signed has the same bytes in both stages.
#[must_use]
pub fn bundle(cluster: &Cluster, manifest: &Manifest, role: &Role) -> Vec<BundleFile> {
    let mut files = policy::bundle(cluster, role);
    for file in &mut files {
        if !is_signer(role, &file.path) {
            let sources = std::mem::take(&mut file.sources);
            file.sources = sources.into_iter().flat_map(|source| trusted(manifest, source)).collect();
        }
    }
    files
}

/// kube-controller-manager takes one certificate to sign with and no more; whom kubelets' certificates may be of besides lies in the
/// file of all that sign clients.
fn is_signer(role: &Role, path: &str) -> bool {
    *role == Role::Controller && path.strip_prefix(KUBERNETES_DIR) == Some(&format!("/{KUBELET_CA}.pem"))
}

fn trusted(manifest: &Manifest, source: Source) -> Vec<Source> {
    let shown = match source.part {
        Part::Certificate | Part::PublicKey => ROTATABLE.contains(&source.asset.as_str()),
        Part::Chain
        | Part::Intermediates
        | Part::PrivateKey
        | Part::Secret
        | Part::TokensCsv
        | Part::EncryptionConfig
        | Part::EncryptionConfigOff => false,
    };
    if !shown {
        return vec![source];
    }
    let of = |asset: String| Source { asset, part: source.part };
    let (older, newer) = (predecessor(&source.asset), successor(&source.asset));
    if manifest.assets.contains_key(&older) {
        vec![of(older), source]
    } else if manifest.assets.contains_key(&newer) {
        vec![source.clone(), of(newer)]
    } else {
        vec![source]
    }
}

/// Which roles receive any part of each asset, as [`policy::recipients`] has it, with what is trusted for a while.
#[must_use]
pub fn recipients(cluster: &Cluster, manifest: &Manifest) -> BTreeMap<String, BTreeSet<Role>> {
    let mut recipients: BTreeMap<String, BTreeSet<Role>> = BTreeMap::new();
    for role in policy::roles(cluster) {
        for source in bundle(cluster, manifest, &role).into_iter().flat_map(|file| file.sources) {
            recipients.entry(source.asset).or_default().insert(role.clone());
        }
    }
    recipients
}

/// The nodes' roles that a rotation of `name` reaches.
#[must_use]
pub fn reached(cluster: &Cluster, name: &str) -> BTreeSet<Role> {
    let mut roles = policy::recipients(cluster).remove(name).unwrap_or_default();
    roles.remove(&Role::Admin);
    roles
}

/// What takes the place of `name`, to be made and entered into the inventory before [`begin`].
///
/// # Errors
/// If it is nothing that is rotated, or not ours to make; if it is being rotated already.
pub fn to_start(
    assets: &[Asset],
    manifest: &Manifest,
    name: &str,
    now: Timestamp,
) -> Result<Asset, PolicyError> {
    known(name)?;
    let refused = |why: &str, cure: String| {
        Err(PolicyError::NotRotatable { name: name.to_owned(), why: why.to_owned(), cure })
    };
    let (Some(asset), Some(entry)) =
        (assets.iter().find(|asset| asset.name == name), manifest.assets.get(name))
    else {
        return refused("it was never made", "render the spec first".to_owned());
    };
    if asset.origin != Origin::Generated || entry.origin != Origin::Generated {
        return refused(
            "you brought it, and this version exchanges only what Slipway makes",
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

/// Refuses what is nothing that is rotated.
///
/// # Errors
/// See there.
pub fn known(name: &str) -> Result<(), PolicyError> {
    if ROTATABLE.contains(&name) {
        return Ok(());
    }
    Err(PolicyError::NotRotatable {
        name: name.to_owned(),
        why: match nearest(name, ROTATABLE.into_iter()) {
            Some(near) => format!("it is no authority; did you mean {near}?"),
            None => "it is no authority".to_owned(),
        },
        cure: format!(
            "name one of {}; a certificate is renewed by `slipway certs renew`",
            ROTATABLE.join(", ")
        ),
    })
}

/// Begins the rotation of `name`, whose successor is in the inventory: stage [`Stage::Trust`].
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

/// Goes back from wherever the rotation of `name` is; [`entered`] completes it when bundles are sealed. `false`: it goes back already.
///
/// # Errors
/// If it is not being rotated, or the old one is gone.
pub fn abort(manifest: &mut Manifest, name: &str, now: Timestamp) -> Result<bool, PolicyError> {
    known(name)?;
    let refused = |why: &str, cure: &str| {
        let (name, why, cure) = (name.to_owned(), why.to_owned(), cure.to_owned());
        Err(PolicyError::NotRotatable { name, why, cure })
    };
    let Some(rotation) = manifest.rotations.get(name) else {
        return refused("it is not being rotated, so that there is nothing to go back from", "leave it");
    };
    match (rotation.stage, rotation.aborted) {
        (Stage::Trust | Stage::Drop, true) => return Ok(false),
        // Nobody presents anything of the new one.
        (Stage::Trust, false) => shed(manifest, name),
        // Whoever has this stage presents what the new one signed, to nodes that trust both.
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

/// Does what [`next`] said; [`entered`] completes it when bundles are sealed. `false`: nothing is to be done.
pub fn step(manifest: &mut Manifest, name: &str, next: &Next, now: Timestamp) -> bool {
    let stage = match next {
        Next::Wait(_) => return false,
        Next::Issue => {
            swap(manifest, name, Stage::Issue);
            Stage::Issue
        }
        Next::Drop => {
            shed(manifest, name);
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

/// Records what the bundles are that have the stage which `name` entered: those of now, and what will be sealed while it lasts.
pub fn entered(cluster: &Cluster, manifest: &mut Manifest, name: &str) {
    let digests = reached(cluster, name)
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

fn settle(manifest: &mut Manifest, name: &str, settled: Option<Timestamp>) -> bool {
    let Some(rotation) = manifest.rotations.get_mut(name) else { return false };
    rotation.settled = settled;
    true
}

/// The one that was beside takes the place of `name`: the new one for [`Stage::Issue`], the old one on the way back.
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

/// The one beside is trusted no more.
fn shed(manifest: &mut Manifest, name: &str) {
    manifest.assets.remove(&successor(name));
    manifest.assets.remove(&predecessor(name));
}
