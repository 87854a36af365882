//! Renews individual certificates; everything else keeps its bytes (P2).

use std::collections::BTreeSet;

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::{Asset, Manifest, manifest, policy};
use slipway_ports::{Crypto, Keys, NewAsset, Objects, PortResult, Signer};

use super::vault::{Half, Vault};
use super::{Credentials, bundles, credentials, record, refuse_other_format, refused, set_roles};
use crate::error::{FlowError, FlowResult};
use crate::store;

/// A certificate to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToRenew {
    /// The asset.
    pub name: String,
    /// The fingerprint to replace. If the inventory has another one, it was renewed meanwhile and is skipped.
    pub fingerprint: Option<String>,
}

/// Renews the certificate `name`, with a new key or with its present one, and seals the bundles that contain it. The other bundles keep
/// their digests.
///
/// # Errors
/// If the certificate does not exist, or is not renewed individually (an authority, or one that the user provides); otherwise as
/// [`super::ensure`].
pub async fn renew<O: Objects, K: Keys, C: Crypto>(
    objects: &O,
    keys: &K,
    crypto: &C,
    cluster: &Cluster,
    name: &str,
    new_key: bool,
    now: Timestamp,
) -> FlowResult<Credentials> {
    let one = ToRenew { name: name.to_owned(), fingerprint: None };
    renew_all(objects, keys, crypto, cluster, &[one], new_key, now).await
}

/// As [`renew`], for several certificates in one version of the inventory: all of them or none.
///
/// # Errors
/// As [`renew`], for any of them.
pub async fn renew_all<O: Objects, K: Keys, C: Crypto>(
    objects: &O,
    keys: &K,
    crypto: &C,
    cluster: &Cluster,
    wanted: &[ToRenew],
    new_key: bool,
    now: Timestamp,
) -> FlowResult<Credentials> {
    let key = keys::manifest(&cluster.name);
    let assets = policy::assets(cluster);
    let mut tried: Option<Credentials> = None;
    for _ in 0..store::TRIES {
        let stored = store::load::<Manifest>(objects, &key).await?;
        if let Some(tried) = tried.take_if(|tried| stored.value.as_ref() == Some(&tried.manifest)) {
            // The answer to our own write was lost: they are renewed.
            return Ok(tried);
        }
        let mut manifest = stored.value.clone().ok_or_else(|| FlowError::Refused {
            problem: format!("the cluster {} has no credentials yet", cluster.name),
            help: "render its spec first".to_owned(),
        })?;
        refuse_other_format(&key, &manifest)?;
        let mut renewed: Vec<&Asset> = Vec::new();
        for one in wanted.iter().filter(|one| is_there_still(one, &manifest)) {
            renewed.push(manifest::to_renew(&assets, &manifest, &one.name, now).map_err(refused)?);
        }
        if renewed.is_empty() {
            return Ok(credentials(cluster, manifest, Vec::new(), BTreeSet::new()));
        }
        let mut vault = Vault::new(objects, keys, crypto, cluster);
        vault.load(&manifest, needs(&renewed, new_key)).await?;
        for asset in &renewed {
            let new = issue(&vault, asset, new_key, now)?;
            record(&mut vault, &mut manifest, asset, new.into())?;
        }
        let made: Vec<String> = renewed.iter().map(|asset| asset.name.clone()).collect();
        // Only the renewed ones: other changes that the spec asks for are made by the next rendering.
        let stands = manifest::to_seal(cluster, &manifest).map_err(refused)?;
        let recipients = policy::recipients(cluster);
        let holds =
            |role: &Role| made.iter().any(|name| recipients.get(name).is_some_and(|all| all.contains(role)));
        let roles: BTreeSet<_> = stands.into_iter().filter(holds).collect();
        bundles::load(&mut vault, &manifest, &roles).await?;
        vault.store(&manifest, &made).await?;
        let mut astray = bundles::Astray::new();
        bundles::seal(&vault, &mut manifest, &roles, &mut astray).await?;
        set_roles(cluster, &mut manifest);
        let written = store::save(objects, &key, &stored, manifest.clone()).await?.is_some();
        let mut done = credentials(cluster, manifest, made, roles);
        done.healed = vault.healed;
        done.healed.extend(astray.into_values().flatten());
        if written {
            tracing::info!(cluster = cluster.name, renewed = ?done.made, new_key, "certificates renewed");
            return Ok(done);
        }
        tried = Some(done);
        tracing::info!(cluster = cluster.name, "somebody else wrote the inventory first; starting over");
    }
    Err(FlowError::Race { key, tries: store::TRIES })
}

fn is_there_still(wanted: &ToRenew, manifest: &Manifest) -> bool {
    let stands = manifest.assets.get(&wanted.name).map(|entry| &entry.fingerprint);
    wanted.fingerprint.is_none() || wanted.fingerprint.as_ref() == stands
}

/// The halves that must be opened to issue `renewed`.
fn needs(renewed: &[&Asset], new_key: bool) -> BTreeSet<(String, Half)> {
    let mut needs = BTreeSet::new();
    for asset in renewed {
        needs.extend(issuer(asset).into_iter().flat_map(Half::both));
        if !new_key {
            needs.insert((asset.name.clone(), Half::Private));
        }
    }
    needs
}

fn issuer(asset: &Asset) -> Option<&str> {
    manifest::profile(asset).and_then(|profile| profile.issuer.as_deref())
}

fn issue<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    asset: &Asset,
    new_key: bool,
    now: Timestamp,
) -> PortResult<NewAsset> {
    let profile = manifest::profile(asset).expect("what is renewed has a profile");
    let signer = issuer(asset).map(|issuer| Signer {
        certificate: vault.public(issuer).to_owned(),
        key: vault.private(issuer).clone(),
    });
    if new_key {
        vault.crypto.issue(profile, signer.as_ref(), now)
    } else {
        vault.crypto.certify(profile, vault.private(&asset.name), signer.as_ref(), now)
    }
}
