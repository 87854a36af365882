//! Makes the credentials that a cluster lacks, and seals the bundles whose content changed.
//!
//! `pki/manifest.json`, the inventory, serves as the lock. Objects are written first, under names that nothing refers to yet, and then
//! the inventory, on the condition that nobody else wrote it. The loser of that race starts again from what the winner wrote. A run that
//! dies earlier leaves objects that nothing refers to. In each case a cluster has one PKI (P8).

mod bundles;
pub mod gc;
mod recovery;
mod renewal;
pub mod rotation;
mod vault;

pub use renewal::{ToRenew, renew, renew_all};

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::manifest::{self, Brought, FORMAT, PolicyError};
use slipway_credentials::policy::{self, DIGEST_KEY};
use slipway_credentials::rotation as rotation_policy;
use slipway_credentials::{Asset, AssetKind, BundleEntry, ChainFacts, Entry, Manifest, Origin, trust};
use slipway_ports::{BroughtAuthority, Crypto, Keys, NewAsset, Objects, PortResult, Secret, Signer};
use vault::{Half, LoadedAsset, Vault};

use crate::error::{FlowError, FlowResult};
use crate::store;

/// The present credentials of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The digest of each role's bundle, for its launch template.
    pub digests: BTreeMap<Role, String>,
    /// Assets made by this call.
    pub made: Vec<String>,
    /// Roles whose bundle was sealed by this call.
    pub sealed: Vec<Role>,
    /// Stored objects that were lost or damaged, and were restored by this call.
    pub healed: Vec<Healed>,
    /// The inventory.
    pub manifest: Manifest,
}

/// A stored object that was lost or damaged, and was written again with the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Healed {
    /// Its key.
    pub key: String,
    /// What was wrong with it.
    pub problem: String,
}

/// The digests of the bundles that nodes of each role have, or will have.
pub type NodeBundles = BTreeMap<Role, BTreeSet<String>>;

/// Makes the assets that are missing or whose names changed, seals the bundles whose content changed, and returns the digests for the
/// launch templates. If there is nothing to do, it neither calls [`Keys`] nor writes (P1).
///
/// # Errors
/// If a port fails; if a stored object that is needed is lost or damaged; if the spec asks for something that cannot be issued; if others
/// keep changing the inventory.
pub async fn ensure<O: Objects, K: Keys, C: Crypto>(
    objects: &O,
    keys: &K,
    crypto: &C,
    cluster: &Cluster,
    now: Timestamp,
) -> FlowResult<Credentials> {
    ensure_for(objects, keys, crypto, cluster, &NodeBundles::new(), now).await
}

/// As [`ensure`], for a cluster whose nodes have the bundles in `known`. An inventory that is lost, or older than these bundles, is an
/// error, because assets made in its place would lock nodes out or replace them.
///
/// # Errors
/// As [`ensure`].
pub async fn ensure_for<O: Objects, K: Keys, C: Crypto>(
    objects: &O,
    keys: &K,
    crypto: &C,
    cluster: &Cluster,
    known: &NodeBundles,
    now: Timestamp,
) -> FlowResult<Credentials> {
    let imported = Imported::new();
    ensure_with(objects, keys, crypto, cluster, &Constraints { known, imported: &imported }, now).await
}

/// A provided asset that was found valid.
#[derive(Debug)]
pub struct Import {
    /// Its certificate in PEM, alone.
    pub certificate: String,
    /// For an authority: its chain.
    pub authority: Option<BroughtAuthority>,
    /// Its key in PEM, PKCS #8. `None`: an authority whose key the user keeps.
    pub key: Option<Secret>,
    /// Its facts for the inventory.
    pub facts: Brought,
}

/// The provided assets by name, for [`ensure_with`].
pub type Imported = BTreeMap<String, Import>;

/// What [`ensure_with`] has to respect.
#[derive(Debug, Clone, Copy)]
pub struct Constraints<'a> {
    /// The bundles that nodes have.
    pub known: &'a NodeBundles,
    /// The assets that the user provided and [`crate::imports::read`] accepted.
    pub imported: &'a Imported,
}

/// As [`ensure_for`], with all that is `given`.
///
/// # Errors
/// As [`ensure`]; also if an existing asset is not the one that the spec names or the user provided.
pub async fn ensure_with<O: Objects, K: Keys, C: Crypto>(
    objects: &O,
    keys: &K,
    crypto: &C,
    cluster: &Cluster,
    given: &Constraints<'_>,
    now: Timestamp,
) -> FlowResult<Credentials> {
    let &Constraints { known, imported, .. } = given;
    let key = keys::manifest(&cluster.name);
    let mut tried: Option<Credentials> = None;
    for _ in 0..store::TRIES {
        let stored = store::load::<Manifest>(objects, &key).await?;
        if let Some(tried) = tried.take_if(|tried| stored.value.as_ref() == Some(&tried.manifest)) {
            // The answer to our own write was lost, and the retry found what we had written.
            return Ok(tried);
        }
        let Some(mut manifest) = inventory(objects, cluster, stored.value.clone(), given).await? else {
            continue;
        };
        let mut vault = Vault::new(objects, keys, crypto, cluster);
        vault.seal_anew(&manifest).await?;
        manifest.sealed_under.clone_from(&vault.wanted);
        let made = make(&mut vault, &mut manifest, imported, now).await?;
        let mut roles: BTreeSet<_> =
            manifest::to_seal(cluster, &manifest).map_err(refused)?.into_iter().collect();
        roles.extend(manifest::to_seal_under(cluster, &manifest, &vault.wanted));
        let mut healed = bundles_astray(objects, cluster, &manifest, &roles).await?;
        roles.extend(healed.keys().cloned());
        rotation_policy::record_present(cluster, &mut manifest, &roles);
        if made.is_empty() && roles.is_empty() && stored.value.as_ref() == Some(&manifest) {
            return Ok(credentials(cluster, manifest, made, roles));
        }
        bundles::load(&mut vault, &manifest, &roles).await?;
        vault.store(&manifest, &made).await?;
        bundles::seal(&vault, &mut manifest, &roles, &mut healed).await?;
        if let Some(before) = stored.value.as_ref().filter(|before| before.sealed_under != vault.wanted) {
            bundles::seal_earlier(&vault, &manifest, before, known).await?;
        }
        set_roles(cluster, &mut manifest);
        let unchanged = stored.value.as_ref() == Some(&manifest);
        let written = unchanged || store::save(objects, &key, &stored, manifest.clone()).await?.is_some();
        let mut done = credentials(cluster, manifest, made, roles);
        done.healed = vault.healed;
        done.healed.extend(healed.into_values().flatten());
        if written {
            tracing::info!(cluster = cluster.name, made = ?done.made, sealed = done.sealed.len(), "credentials made");
            return Ok(done);
        }
        tried = Some(done);
        tracing::info!(cluster = cluster.name, "somebody else wrote the inventory first; starting over");
    }
    Err(FlowError::Race { key, tries: store::TRIES })
}

/// What [`ensure_with`] would leave, without making, opening or writing anything: it reads the inventory only, and needs no key.
///
/// The digest of a bundle that would be sealed is known only when it is: in its place stands a digest that no bundle has. The roles
/// concerned are [`Credentials::sealed`]. Stored objects that are lost or damaged are not looked for.
///
/// # Errors
/// As [`ensure_with`], except for keys and stored objects.
pub async fn preview_credentials<O: Objects>(
    objects: &O,
    cluster: &Cluster,
    given: &Constraints<'_>,
    now: Timestamp,
) -> FlowResult<Credentials> {
    let key = keys::manifest(&cluster.name);
    let stored = store::load::<Manifest>(objects, &key).await?.value;
    let Some(mut manifest) = inventory(objects, cluster, stored, given).await? else {
        // Somebody makes the inventory at this moment.
        return Err(FlowError::Race { key, tries: 1 });
    };
    let assets = policy::assets(cluster);
    let brought = brought(given.imported);
    let list = manifest::to_make(&assets, &manifest, &brought, now).map_err(refused)?;
    let mut made = Vec::with_capacity(list.len());
    for asset in list.into_iter().map(|made| made.asset) {
        let import = given.imported.get(&asset.name).filter(|_| asset.origin != Origin::Generated);
        let authority = import.and_then(|import| import.authority.as_ref());
        let entry = Entry {
            // No stored asset has it, so that every bundle with the asset differs.
            fingerprint: sha256_hex(format!("{} that is not made yet", asset.name).as_bytes()),
            names: manifest::names(&asset.kind),
            certificate: None,
            roles: BTreeSet::new(),
            origin: asset.origin,
            chain: authority.map(chain_facts),
        };
        manifest.assets.insert(asset.name.clone(), entry);
        made.push(asset.name.clone());
    }
    let mut files = manifest::bundle_files(cluster, &manifest).map_err(refused)?;
    let roles: BTreeSet<Role> = manifest::to_seal(cluster, &manifest).map_err(refused)?.into_iter().collect();
    for role in &roles {
        let bundle = BundleEntry {
            digest: sha256_hex(format!("the credentials of {role} that are not made yet").as_bytes()),
            files: files.remove(role).unwrap_or_default(),
            sealed_under: String::new(),
            etag: String::new(),
        };
        // How a bundle reaches the nodes is decided by what differs from the one before.
        manifest::record(&mut manifest, role, bundle);
    }
    set_roles(cluster, &mut manifest);
    Ok(credentials(cluster, manifest, made, roles))
}

/// The inventory to begin with: the stored one, or a new one for a cluster without credentials. `None`: somebody else made it meanwhile.
async fn inventory<O: Objects>(
    objects: &O,
    cluster: &Cluster,
    stored: Option<Manifest>,
    &Constraints { known, .. }: &Constraints<'_>,
) -> FlowResult<Option<Manifest>> {
    let key = keys::manifest(&cluster.name);
    let manifest = match stored {
        Some(manifest) => manifest,
        None => {
            if !has_no_pki(objects, cluster, &key, known).await? {
                return Ok(None);
            }
            Manifest { format: FORMAT, ..Manifest::default() }
        }
    };
    refuse_other_format(&key, &manifest)?;
    refuse_older(&key, &manifest, known)?;
    Ok(Some(manifest))
}

fn brought(imported: &Imported) -> BTreeMap<String, manifest::Brought> {
    imported.iter().map(|(name, import)| (name.clone(), import.facts.clone())).collect()
}

fn chain_facts(authority: &BroughtAuthority) -> ChainFacts {
    ChainFacts { sha256: sha256_hex(authority.chain.as_bytes()), intermediates: authority.intermediates }
}

/// The certificate or public key of `asset`, verified against the inventory.
///
/// # Errors
/// If the inventory does not list it, or the stored object is lost or differs.
pub async fn public_half<O: Objects, C: Crypto>(
    objects: &O,
    crypto: &C,
    cluster: &str,
    manifest: &Manifest,
    asset: &str,
) -> FlowResult<String> {
    vault::read_public(objects, crypto, cluster, manifest, asset).await
}

/// The certificates from an imported authority up to its root, verified against the inventory.
///
/// # Errors
/// As [`public_half`]; also if the authority was not imported.
pub async fn chain<O: Objects>(
    objects: &O,
    cluster: &str,
    manifest: &Manifest,
    asset: &str,
) -> FlowResult<String> {
    vault::read_chain(objects, cluster, manifest, asset).await
}

/// Makes and records the assets that [`manifest::to_make`] lists, and returns their names. The private halves stay in the vault's memory.
async fn make<O: Objects, K: Keys, C: Crypto>(
    vault: &mut Vault<'_, O, K, C>,
    manifest: &mut Manifest,
    imported: &Imported,
    now: Timestamp,
) -> FlowResult<Vec<String>> {
    let assets = policy::assets(vault.cluster);
    let brought = brought(imported);
    let list = manifest::to_make(&assets, manifest, &brought, now).map_err(refused)?;
    let names: BTreeSet<&str> = list.iter().map(|made| made.asset.name.as_str()).collect();
    let mut needs = BTreeSet::new();
    for made in list.iter().filter(|made| made.asset.origin == Origin::Generated) {
        match manifest::profile(made.asset) {
            Some(profile) => {
                let issuers = profile.issuer.iter().filter(|issuer| !names.contains(issuer.as_str()));
                needs.extend(issuers.flat_map(|issuer| Half::both(issuer)));
            }
            None if names.contains(DIGEST_KEY) => {}
            None => needs.extend([(DIGEST_KEY.to_owned(), Half::Private)]),
        }
    }
    vault.load(manifest, needs).await?;
    for asset in list.iter().map(|made| made.asset) {
        let new = match imported.get(&asset.name).filter(|_| asset.origin != Origin::Generated) {
            Some(import) => LoadedAsset {
                public: Some(import.certificate.clone()),
                private: import.key.clone(),
                authority: import.authority.clone(),
            },
            None => produce(vault, asset, now)?.into(),
        };
        record(vault, manifest, asset, new)?;
    }
    Ok(list.into_iter().map(|made| made.asset.name.clone()).collect())
}

fn produce<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    asset: &Asset,
    now: Timestamp,
) -> PortResult<NewAsset> {
    match manifest::profile(asset) {
        None => vault.crypto.make(&asset.kind),
        Some(profile) => {
            let signer = profile.issuer.as_ref().map(|issuer| Signer {
                certificate: vault.public(issuer).to_owned(),
                key: vault.private(issuer).clone(),
            });
            vault.crypto.issue(profile, signer.as_ref(), now)
        }
    }
}

/// Adds a new asset to the inventory and to the vault's memory.
fn record<O: Objects, K: Keys, C: Crypto>(
    vault: &mut Vault<'_, O, K, C>,
    manifest: &mut Manifest,
    asset: &Asset,
    new: LoadedAsset,
) -> FlowResult<()> {
    let entry = entry(vault, manifest, asset, &new)?;
    manifest.assets.insert(asset.name.clone(), entry);
    vault.hold(&asset.name, new);
    Ok(())
}

/// The inventory's entry for a new asset.
fn entry<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    manifest: &Manifest,
    asset: &Asset,
    made: &LoadedAsset,
) -> FlowResult<Entry> {
    let public = || made.public.as_deref().unwrap_or_default();
    let (fingerprint, certificate) = match &asset.kind {
        AssetKind::Certificate(profile) => {
            let (mut facts, fingerprint) = vault.crypto.facts(public())?;
            if let Some(issuer) = &profile.issuer {
                facts.issuer_fingerprint.clone_from(&manifest.assets[issuer].fingerprint);
            }
            (fingerprint, Some(facts))
        }
        AssetKind::KeyPair(_) => {
            let fingerprint = manifest::key_pair_fingerprint(public());
            (fingerprint.expect("a key pair that was just made has a public half in PEM"), None)
        }
        AssetKind::RandomKey => {
            let secret = made.private.as_ref().map_or(&[][..], Secret::expose);
            let key = if asset.name == DIGEST_KEY { secret } else { vault.private(DIGEST_KEY).expose() };
            (manifest::secret_fingerprint(key, secret), None)
        }
    };
    Ok(Entry {
        fingerprint,
        names: manifest::names(&asset.kind),
        certificate,
        roles: BTreeSet::new(),
        origin: asset.origin,
        chain: made.authority.as_ref().map(chain_facts),
    })
}

/// The roles whose sealed bundle is missing from the bucket or was changed there, and that are not sealed anyway, each with the problem
/// as far as it is visible from outside. The bundle is sealed again under the same digest, which replaces no node.
async fn bundles_astray<O: Objects>(
    objects: &O,
    cluster: &Cluster,
    manifest: &Manifest,
    sealing: &BTreeSet<Role>,
) -> FlowResult<BTreeMap<Role, Option<Healed>>> {
    let roles = policy::roles(cluster).into_iter().filter(|role| !sealing.contains(role));
    let heads = roles.filter_map(|role| {
        let bundle = manifest.bundles.get(&role)?;
        let key = keys::credentials(&cluster.name, &role.to_string(), &bundle.digest);
        Some(async move {
            PortResult::Ok(match objects.head(&key).await? {
                Some(head) if head.etag == bundle.etag => None,
                Some(_) => Some((role, None)),
                None => Some((role, Some(Healed { key, problem: "is lost".to_owned() }))),
            })
        })
    });
    let astray: Vec<_> = stream::iter(heads).buffered(store::AT_A_TIME).try_collect().await?;
    Ok(astray.into_iter().flatten().collect())
}

/// Records in each entry which roles receive it.
fn set_roles(cluster: &Cluster, manifest: &mut Manifest) {
    let mut recipients = trust::recipients(cluster, manifest);
    for (name, entry) in &mut manifest.assets {
        entry.roles = recipients.remove(name).unwrap_or_default();
    }
}

fn credentials(
    cluster: &Cluster,
    manifest: Manifest,
    made: Vec<String>,
    sealed: BTreeSet<Role>,
) -> Credentials {
    let roles = policy::roles(cluster);
    let bundles = manifest.bundles.iter().filter(|(role, _)| roles.contains(role));
    Credentials {
        digests: bundles.map(|(role, bundle)| (role.clone(), bundle.digest.clone())).collect(),
        made,
        sealed: sealed.into_iter().collect(),
        healed: Vec::new(),
        manifest,
    }
}

/// Whether the cluster has no PKI yet. Without an inventory either none was made, or the inventory was lost; a plan proves the latter,
/// because plans are made after the PKI. `false`: another run made the inventory meanwhile.
async fn has_no_pki<O: Objects>(
    objects: &O,
    cluster: &Cluster,
    key: &str,
    known: &NodeBundles,
) -> FlowResult<bool> {
    if known.is_empty() && objects.head(&keys::desired(&cluster.name)).await?.is_none() {
        return Ok(true);
    }
    // The pointer may be that of a concurrent run, which wrote the inventory before it.
    if objects.head(key).await?.is_some() {
        return Ok(false);
    }
    Err(lost_inventory(key))
}

/// The inventory of a cluster that has credentials is missing.
pub(crate) fn lost_inventory(key: &str) -> FlowError {
    FlowError::Corrupt {
        key: key.to_owned(),
        problem: "is lost, and other stored credentials were made with it".to_owned(),
        help: "restore its last version (a versioned bucket keeps it); it is not created again, because other authorities \
               would lock out every node and every user that there is"
            .to_owned(),
    }
}

/// Refuses an inventory that does not list the bundles in use: it is an old version that was restored, or that of another cluster.
fn refuse_older(key: &str, manifest: &Manifest, known: &NodeBundles) -> FlowResult<()> {
    let digests = known.iter().flat_map(|(role, digests)| digests.iter().map(move |digest| (role, digest)));
    for (role, digest) in digests {
        if !manifest::lists_bundle(manifest, role, digest) {
            return Err(FlowError::Corrupt {
                key: key.to_owned(),
                problem: format!(
                    "does not know the bundle {digest} that {role} runs: it is older than that, or of another cluster"
                ),
                help: format!(
                    "bring back its newest version (a versioned bucket keeps it); if it is lost and {role} is to go back to \
                     earlier credentials, say so by adding \"{digest}\": [] under \"retired\", \"{role}\""
                ),
            });
        }
    }
    Ok(())
}

fn refuse_other_format(key: &str, manifest: &Manifest) -> FlowResult<()> {
    if manifest.format == FORMAT {
        return Ok(());
    }
    Err(FlowError::Corrupt {
        key: key.to_owned(),
        problem: format!("has format {}, and this release of Slipway knows {FORMAT}", manifest.format),
        help: "use the release that wrote it, or a newer one".to_owned(),
    })
}

fn refused(error: PolicyError) -> FlowError {
    FlowError::Refused { problem: error.to_string(), help: error.help() }
}
