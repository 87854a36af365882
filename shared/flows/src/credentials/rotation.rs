//! Rotates authorities, and the key that signs service account tokens, in stages (`slipway_credentials::rotation` decides which and
//! when).
//!
//! Each stage is one conditional write of the inventory, after everything that it names was stored. An interrupted run leaves objects
//! that nothing refers to, and the next run finds the stage either begun or not. Nodes get the change by a rollout of a plan that a
//! rendering makes from the new digests.

mod seen;

use std::collections::BTreeSet;

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::manifest::{self, PolicyError, Reason};
use slipway_credentials::rotation::{self, KnownNodes, Next, Rotation, Wait};
use slipway_credentials::{Manifest, policy};
use slipway_ports::{Crypto, Keys, Objects};

use super::vault::{Half, Vault};
use super::{Healed, bundles, produce, record, refuse_other_format, refused, set_roles};
use crate::error::{FlowError, FlowResult};
use crate::store;

pub use seen::{Machines, report, see};
pub(crate) use seen::{deployed_releases, machines, machines_with_leaves};

/// The result of a step of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The asset.
    pub name: String,
    /// What was done.
    pub did: Did,
    /// The state of the rotation now. `None`: it has ended.
    pub stands: Option<Rotation>,
    /// What it waits for.
    pub waits: Vec<Wait>,
    /// Assets that were made.
    pub made: Vec<String>,
    /// Roles whose bundle changed.
    pub sealed: Vec<Role>,
    /// Stored objects that were lost or damaged, and were restored.
    pub healed: Vec<Healed>,
    /// The inventory after the step.
    pub manifest: Manifest,
}

/// What was done for a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// It began: the new one is trusted as well.
    Begun,
    /// The new one issues.
    Issues,
    /// One of the two was removed.
    Dropped,
    /// It was aborted and goes back.
    WentBack,
    /// The beginning of the waiting time was recorded or cleared.
    Noted,
    /// It is over.
    Ended,
    /// Nothing: it waits.
    Waits,
}

impl Rotated {
    /// Whether nodes have to get other credentials now.
    #[must_use]
    pub fn changes_nodes(&self) -> bool {
        self.sealed.iter().any(|role| *role != Role::Admin)
    }
}

/// Begins the next stage of every rotation of a cluster if the state of its nodes allows it, and begins the rotations that the spec's
/// policy asks for. Called once in each scan. Rotations that are due and cannot begin are reported elsewhere ([`rotation::due`]).
///
/// # Errors
/// As [`super::ensure`].
pub async fn advance<O: Objects, K: Keys, C: Crypto>(
    objects: &O,
    keys: &K,
    crypto: &C,
    cluster: &Cluster,
    seen: &KnownNodes,
    now: Timestamp,
) -> FlowResult<Vec<Rotated>> {
    let key = keys::manifest(&cluster.name);
    let Some(manifest) = store::load::<Manifest>(objects, &key).await?.value else { return Ok(Vec::new()) };
    refuse_other_format(&key, &manifest)?;
    let mut rotated = Vec::new();
    for name in manifest.rotations.keys() {
        rotated.push(change(objects, keys, crypto, cluster, name, now, Request::Continue(seen)).await?);
    }
    let due = rotation::due(&manifest, &cluster.certificates, now);
    for due in due.into_iter().filter(|due| due.start) {
        tracing::info!(cluster = cluster.name, %due, "a rotation begins");
        rotated.push(change(objects, keys, crypto, cluster, &due.name, now, Request::Start).await?);
    }
    Ok(rotated)
}

/// A request to change a rotation.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// Start it: make the successor, and make every role that trusts the asset trust both.
    Start,
    /// Abort it in its present stage. Nothing is done if it was aborted already.
    Abort,
    /// Begin the next stage, if the state of the nodes allows it.
    Continue(&'a KnownNodes),
}

/// Changes the rotation of `name` as requested.
///
/// # Errors
/// If it cannot be rotated, is provided by the user, or is in a stage that does not allow the request; otherwise as [`super::ensure`].
pub async fn change<O: Objects, K: Keys, C: Crypto>(
    objects: &O,
    keys: &K,
    crypto: &C,
    cluster: &Cluster,
    name: &str,
    now: Timestamp,
    request: Request<'_>,
) -> FlowResult<Rotated> {
    rotation::check_rotatable(name).map_err(refused)?;
    let key = keys::manifest(&cluster.name);
    let mut tried: Option<Rotated> = None;
    for _ in 0..store::TRIES {
        let stored = store::load::<Manifest>(objects, &key).await?;
        if let Some(tried) = tried.take_if(|tried| stored.value.as_ref() == Some(&tried.manifest)) {
            // The answer to our own write was lost: it is done.
            return Ok(tried);
        }
        let mut manifest = stored.value.clone().ok_or_else(|| FlowError::Refused {
            problem: format!("the cluster {} has no credentials yet", cluster.name),
            help: "render its spec first".to_owned(),
        })?;
        refuse_other_format(&key, &manifest)?;
        let mut vault = Vault::new(objects, keys, crypto, cluster);
        let Turn { did, waits, mut made } = turn(&mut vault, &mut manifest, name, now, request)?;
        let mut roles = BTreeSet::new();
        let mut astray = bundles::Astray::new();
        match did {
            Did::Waits => {}
            Did::Noted | Did::Ended => {}
            Did::Begun | Did::Issues | Did::Dropped | Did::WentBack => {
                made.extend(reissue(&mut vault, &mut manifest, name, now).await?);
                // Only the roles that this affects: other changes that the spec asks for are made by the next rendering.
                let reached = policy::recipients(cluster).remove(name).unwrap_or_default();
                let changed = manifest::to_seal(cluster, &manifest).map_err(refused)?;
                roles = changed.into_iter().filter(|role| reached.contains(role)).collect();
                bundles::load(&mut vault, &manifest, &roles).await?;
                vault.store(&manifest, &made).await?;
                bundles::seal(&vault, &mut manifest, &roles, &mut astray).await?;
                rotation::record_stage(cluster, &mut manifest, name);
                set_roles(cluster, &mut manifest);
            }
        }
        let unchanged = stored.value.as_ref() == Some(&manifest);
        let written = unchanged || store::save(objects, &key, &stored, manifest.clone()).await?.is_some();
        let healed = vault.healed.into_iter().chain(astray.into_values().flatten()).collect();
        let stands = manifest.rotations.get(name).cloned();
        let sealed = roles.into_iter().collect();
        let rotated = Rotated { name: name.to_owned(), did, stands, waits, made, sealed, healed, manifest };
        if written {
            tracing::info!(cluster = cluster.name, rotation = name, ?did, "rotation looked after");
            return Ok(rotated);
        }
        tried = Some(rotated);
        tracing::info!(cluster = cluster.name, "somebody else wrote the inventory first; starting over");
    }
    Err(FlowError::Race { key, tries: store::TRIES })
}

/// The result of one attempt on one version of the inventory.
struct Turn {
    did: Did,
    waits: Vec<Wait>,
    made: Vec<String>,
}

fn turn<O: Objects, K: Keys, C: Crypto>(
    vault: &mut Vault<'_, O, K, C>,
    manifest: &mut Manifest,
    name: &str,
    now: Timestamp,
    request: Request<'_>,
) -> FlowResult<Turn> {
    let done = |did| Ok(Turn { did, waits: Vec::new(), made: Vec::new() });
    let seen = match request {
        Request::Start => {
            let assets = policy::assets(vault.cluster);
            let asset = rotation::to_start(&assets, manifest, name, now).map_err(refused)?;
            let new = produce(vault, &asset, now)?;
            record(vault, manifest, &asset, new.into())?;
            rotation::begin(manifest, name, now);
            return Ok(Turn { did: Did::Begun, waits: Vec::new(), made: vec![asset.name] });
        }
        Request::Abort => {
            let went = rotation::abort(manifest, name, now).map_err(refused)?;
            return done(if went { Did::WentBack } else { Did::Waits });
        }
        Request::Continue(seen) => seen,
    };
    let Some(next) = rotation::next(vault.cluster, manifest, name, seen, now) else {
        return Err(refused(PolicyError::NotRotatable {
            name: name.to_owned(),
            why: "it is not being rotated".to_owned(),
            help: format!("begin it: `slipway rotate-ca {name}`"),
        }));
    };
    rotation::step(manifest, name, &next, now);
    match next {
        Next::Issue => done(Did::Issues),
        Next::Drop => done(Did::Dropped),
        Next::Settle => done(Did::Noted),
        Next::End => done(Did::Ended),
        Next::Unsettle(waits) => Ok(Turn { did: Did::Noted, waits, made: Vec::new() }),
        Next::Wait(waits) => Ok(Turn { did: Did::Waits, waits, made: Vec::new() }),
    }
}

/// Issues anew the certificates that an authority other than the present `name` has signed, and returns their names.
async fn reissue<O: Objects, K: Keys, C: Crypto>(
    vault: &mut Vault<'_, O, K, C>,
    manifest: &mut Manifest,
    name: &str,
    now: Timestamp,
) -> FlowResult<Vec<String>> {
    let assets = policy::assets(vault.cluster);
    let signed_by = |asset: &slipway_credentials::Asset| {
        manifest::profile(asset).is_some_and(|profile| profile.issuer.as_deref() == Some(name))
    };
    let signed: Vec<_> = assets.into_iter().filter(signed_by).collect();
    let list = manifest::to_make(&signed, manifest, &Default::default(), now).map_err(refused)?;
    let list: Vec<_> =
        list.into_iter().filter(|made| made.reason == Reason::IssuerChanged).map(|made| made.asset).collect();
    if list.is_empty() {
        return Ok(Vec::new());
    }
    vault.load(manifest, Half::both(name).into()).await?;
    for asset in &list {
        let new = produce(vault, asset, now)?;
        record(vault, manifest, asset, new.into())?;
    }
    Ok(list.into_iter().map(|asset| asset.name.clone()).collect())
}
