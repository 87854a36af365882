//! Deletes stored credentials and configurations that nothing refers to any more (`slipway_credentials::gc` decides which).
//!
//! It lists them, a person agrees, and it lists them again before it deletes anything. A final check restores what a concurrent render
//! came to need. If that check does not happen, the next render seals the bundle again under the same digest. Last, the inventory forgets
//! the retired bundles that are gone.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_core::status::Desired;
use slipway_credentials::Manifest;
use slipway_credentials::gc::{self, Reason, Referred, Stored, Verdict};
use slipway_ports::{Listed, Listing, Objects, Removal};
use slipway_rollout::Rollout;

use crate::error::{FlowError, FlowResult};
use crate::store::{self, AT_A_TIME, TRIES};

/// The digests that the nodes of a cluster report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// All nodes reported.
    Reported(Referred),
    /// Not all nodes reported, so any release that was ever rendered may be in use.
    Unknown,
}

/// The maximum number of objects listed in a cluster's folder.
const MOST: usize = 1_000_000;

/// The digests that are in use: by deployed and planned releases, by releases being deployed, and by nodes.
///
/// # Errors
/// If a port fails, or such a release is lost or damaged, because it may refer to anything.
pub async fn referred<A: Objects + Listing>(
    assets: &A,
    cluster: &str,
    nodes: &Nodes,
) -> FlowResult<Referred> {
    let rollout = store::load::<Rollout>(assets, &keys::rollout(cluster)).await?.value;
    let desired = store::load::<Desired>(assets, &keys::desired(cluster)).await?.value;
    let mut releases: BTreeSet<String> = desired.into_iter().map(|desired| desired.target).collect();
    if let Some(rollout) = rollout {
        releases.extend(rollout.addons_release().map(str::to_owned));
        releases.extend(rollout.active().map(|active| active.target.clone()));
        releases.extend(rollout.deployed.into_values().chain(rollout.orphaned.into_values()));
    }
    let mut referred = match nodes {
        Nodes::Reported(referred) => referred.clone(),
        Nodes::Unknown => {
            let prefix = keys::release(cluster, "");
            let prefix = prefix.trim_end_matches(".json");
            let listed = assets.list(prefix, MOST).await?;
            let ids = listed.iter().filter_map(|one| one.key.strip_prefix(prefix)?.strip_suffix(".json"));
            releases.extend(ids.map(str::to_owned));
            Referred::default()
        }
    };
    let loads = releases.into_iter().map(|id| async move {
        let key = keys::release(cluster, &id);
        let release = store::load::<Rendering>(assets, &key).await?.value;
        release.ok_or_else(|| FlowError::Corrupt {
            key,
            problem: "is lost, and what is deployed or planned refers to it".to_owned(),
            help: "bring back a version of the object (the bucket keeps them), or upload the spec again"
                .to_owned(),
        })
    });
    let releases: Vec<Rendering> = stream::iter(loads).buffer_unordered(AT_A_TIME).try_collect().await?;
    releases.iter().for_each(|release| referred.add_release(release));
    Ok(referred)
}

/// Decides about each object in a cluster's `pki/` and `bundles/`. Nothing is changed.
///
/// # Errors
/// If a port fails, or the inventory is lost or damaged, because it may name anything.
pub async fn verdicts<A: Objects + Listing>(
    assets: &A,
    cluster: &str,
    referred: &Referred,
    young: SignedDuration,
    now: Timestamp,
) -> FlowResult<Vec<Verdict>> {
    // In this order: an object written between the two calls is seen as unused but young, and one written before as named.
    let stored = list(assets, cluster).await?;
    let manifest = inventory(assets, cluster).await?;
    Ok(gc::decide(&manifest, &stored, referred, young, now))
}

/// Deletes what [`verdicts`] decided to delete, and returns it.
///
/// `referred` is called again before and after the deletion, because a render may run at the same time.
///
/// # Errors
/// As [`verdicts`]. What was deleted before the error was unused, and another call deletes the rest.
pub async fn collect<A: Objects + Listing + Removal, F: Future<Output = FlowResult<Referred>>>(
    assets: &A,
    cluster: &str,
    referred: impl Fn() -> F,
    young: SignedDuration,
    now: Timestamp,
) -> FlowResult<Vec<Verdict>> {
    let verdicts = verdicts(assets, cluster, &referred().await?, young, now).await?;
    let going = verdicts.into_iter().filter(|verdict| verdict.goes);
    let takes = going.map(|verdict| async move {
        let key = key(cluster, &verdict.name);
        let object = assets.get(&key).await?;
        assets.remove(&key).await?;
        FlowResult::Ok(object.map(|object| (verdict, object.bytes)))
    });
    let taken: Vec<_> = stream::iter(takes).buffered(AT_A_TIME).try_collect().await?;
    let taken: Vec<(Verdict, Vec<u8>)> = taken.into_iter().flatten().collect();

    // Restores what a concurrent run came to need.
    let since = referred().await?;
    let manifest = inventory(assets, cluster).await?;
    let as_if: Vec<Stored> = taken
        .iter()
        .map(|(verdict, _)| Stored {
            name: verdict.name.clone(),
            modified: Timestamp::MIN,
            size: verdict.size,
        })
        .collect();
    let verdicts_now = gc::decide(&manifest, &as_if, &since, young, now);
    let mut gone = Vec::with_capacity(taken.len());
    for ((verdict, bytes), verdict_now) in taken.into_iter().zip(verdicts_now) {
        if verdict_now.reason == Reason::Unused {
            gone.push(verdict);
        } else {
            store::keep(assets, &key(cluster, &verdict.name), bytes).await?;
        }
    }
    forget(assets, cluster, &since).await?;
    Ok(gone)
}

/// Removes earlier bundles that are deleted and unused from the inventory.
async fn forget<A: Objects + Listing>(assets: &A, cluster: &str, referred: &Referred) -> FlowResult<()> {
    let manifest_key = keys::manifest(cluster);
    for _ in 0..TRIES {
        let read = store::load::<Manifest>(assets, &manifest_key).await?;
        let Some(manifest) = &read.value else { return Ok(()) };
        let standing = list(assets, cluster).await?.into_iter().map(|object| object.name).collect();
        let lean = gc::without_deleted_bundles(manifest, referred, &standing);
        if lean == *manifest || store::save(assets, &manifest_key, &read, lean).await?.is_some() {
            return Ok(());
        }
    }
    Err(FlowError::Race { key: manifest_key, tries: TRIES })
}

async fn inventory<A: Objects>(assets: &A, cluster: &str) -> FlowResult<Manifest> {
    let key = keys::manifest(cluster);
    let manifest = store::load::<Manifest>(assets, &key).await?.value;
    let manifest = manifest.ok_or_else(|| FlowError::Corrupt {
        key: key.clone(),
        problem: "does not exist, and without it everything looks unused".to_owned(),
        help: "restore its last version (a versioned bucket keeps it), or render the cluster first"
            .to_owned(),
    })?;
    super::refuse_other_format(&key, &manifest)?;
    Ok(manifest)
}

fn key(cluster: &str, name: &str) -> String {
    format!("clusters/{cluster}/{name}")
}

async fn list<A: Listing>(assets: &A, cluster: &str) -> FlowResult<Vec<Stored>> {
    let folder = key(cluster, "");
    let mut stored = Vec::new();
    for part in ["pki/", "bundles/"] {
        let listed = assets.list(&format!("{folder}{part}"), MOST).await?;
        stored.extend(listed.into_iter().filter_map(|Listed { key, size, modified, .. }| {
            let name = key.strip_prefix(&folder)?.to_owned();
            Some(Stored { name, modified, size })
        }));
    }
    Ok(stored)
}
