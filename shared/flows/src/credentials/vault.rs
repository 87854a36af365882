//! The stored halves of assets: the public half in plain, the private half sealed under the role `vault`, which no node may decrypt.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_core::cluster::Cluster;
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_credentials::manifest::key_pair_fingerprint;
use slipway_credentials::policy::DIGEST_KEY;
use slipway_credentials::{Entry, Manifest};
use slipway_ports::sealed::{context, is_of_key, newest_first, object_context};
use slipway_ports::{
    BroughtAuthority, Condition, Context, Crypto, DataKey, ErrorKind, Keys, NewAsset, Object, Objects,
    PortError, PortResult, Put, Sealing, Secret,
};

use super::Healed;
use crate::error::{FlowError, FlowResult};
use crate::store::{AT_A_TIME, TRIES};

/// A half of an asset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Half {
    /// Certificate or public key.
    Public,
    /// Private key or secret.
    Private,
    /// For an imported authority: its certificate and all above it.
    Chain,
}

/// A half of an asset that was lost or damaged, and how reading it failed.
pub(super) type Damaged = (String, Half, FlowError);

/// An asset in memory.
#[derive(Debug)]
pub(super) struct LoadedAsset {
    /// Certificate or public key.
    pub(super) public: Option<String>,
    /// Private key or secret. `None`: an authority whose key the user keeps.
    pub(super) private: Option<Secret>,
    /// For an imported authority: its chain.
    pub(super) authority: Option<BroughtAuthority>,
}

impl From<NewAsset> for LoadedAsset {
    fn from(made: NewAsset) -> Self {
        Self { public: made.public, private: Some(made.private), authority: None }
    }
}

impl Half {
    /// Both halves of `asset`.
    pub(super) fn both(asset: &str) -> [(String, Self); 2] {
        [(asset.to_owned(), Self::Public), (asset.to_owned(), Self::Private)]
    }
}

/// The stored assets of a cluster, read when they are needed and kept until the flow ends.
pub(super) struct Vault<'a, O, K, C> {
    pub(super) objects: &'a O,
    pub(super) keys: &'a K,
    pub(super) crypto: &'a C,
    pub(super) cluster: &'a Cluster,
    publics: BTreeMap<String, String>,
    privates: BTreeMap<String, Secret>,
    chains: BTreeMap<String, String>,
    /// Data keys by their wrapped form, so that each is unwrapped once.
    data_keys: BTreeMap<Vec<u8>, Secret>,
    /// The KMS key under which the spec wants everything sealed.
    pub(super) wanted: String,
    /// Stored objects that were lost or damaged, and were restored.
    pub(super) healed: Vec<Healed>,
}

impl<'a, O: Objects, K: Keys, C: Crypto> Vault<'a, O, K, C> {
    pub(super) fn new(objects: &'a O, keys: &'a K, crypto: &'a C, cluster: &'a Cluster) -> Self {
        Self {
            objects,
            keys,
            crypto,
            cluster,
            publics: BTreeMap::new(),
            privates: BTreeMap::new(),
            chains: BTreeMap::new(),
            data_keys: BTreeMap::new(),
            wanted: keys.name(cluster.kms_key_arn.as_deref()),
            healed: Vec::new(),
        }
    }

    /// The public half of an asset that was made or loaded.
    pub(super) fn public(&self, asset: &str) -> &str {
        self.publics.get(asset).expect("a flow loads what it reads")
    }

    /// The private half of an asset that was made or loaded.
    pub(super) fn private(&self, asset: &str) -> &Secret {
        self.privates.get(asset).expect("a flow loads what it reads")
    }

    /// The private half of an asset, if it was made or loaded.
    pub(super) fn held(&self, asset: &str) -> Option<&Secret> {
        self.privates.get(asset)
    }

    /// The chain of an imported authority that was loaded.
    pub(super) fn chain(&self, asset: &str) -> &str {
        self.chains.get(asset).expect("a flow loads what it reads")
    }

    /// Keeps a new asset in memory.
    pub(super) fn hold(&mut self, asset: &str, made: LoadedAsset) {
        if let Some(public) = made.public {
            self.publics.insert(asset.to_owned(), public);
        }
        if let Some(private) = made.private {
            self.privates.insert(asset.to_owned(), private);
        }
        if let Some(authority) = made.authority {
            self.chains.insert(asset.to_owned(), authority.chain);
        }
    }

    fn holds(&self, (asset, half): &(String, Half)) -> bool {
        match half {
            Half::Public => self.publics.contains_key(asset),
            Half::Private => self.privates.contains_key(asset),
            Half::Chain => self.chains.contains_key(asset),
        }
    }

    /// The context under which a private half is sealed. In addition to KMS' context it contains the asset and its fingerprint, so that
    /// objects cannot be exchanged for each other.
    pub(super) fn seal_context(&self, asset: &str, fingerprint: &str) -> Context {
        object_context(&self.cluster.name, asset, fingerprint)
    }

    /// A new data key for `role`, from the wanted KMS key.
    pub(super) async fn data_key(&self, role: &str) -> PortResult<DataKey> {
        self.keys.generate(self.cluster.kms_key_arn.as_deref(), &context(&self.cluster.name, role)).await
    }

    /// Adds a sealing under the wanted KMS key to every private half in the inventory that has none: one data key for all of them.
    /// Existing sealings are kept, so that two runs with different keys leave objects that both can open.
    pub(super) async fn seal_anew(&mut self, manifest: &Manifest) -> FlowResult<()> {
        if manifest.assets.is_empty() || manifest.sealed_under == self.wanted {
            return Ok(());
        }
        let (objects, cluster) = (self.objects, self.cluster.name.as_str());
        let sealed = manifest.assets.iter().filter(|(_, entry)| entry.has_private_half());
        let mut remaining: Vec<String> = sealed.map(|(asset, _)| asset.clone()).collect();
        self.load(manifest, remaining.iter().map(|asset| (asset.clone(), Half::Private)).collect()).await?;
        let mut data_key = None;
        for _ in 0..TRIES {
            let reads = remaining.into_iter().map(|asset| async move {
                let at = locate(cluster, manifest, &asset, Half::Private)?;
                let object = read(objects, &at).await?;
                FlowResult::Ok((at, object))
            });
            let found: Vec<_> = stream::iter(reads).buffer_unordered(AT_A_TIME).try_collect().await?;
            let mut writes = Vec::new();
            for (at, Object { mut bytes, etag, .. }) in found {
                if at.sealings(self.crypto, &bytes)?.iter().any(|one| one.wrapped_by == self.wanted) {
                    continue;
                }
                let data_key = match &mut data_key {
                    Some(data_key) => data_key,
                    none => none.insert(self.data_key("vault").await?),
                };
                let context = self.seal_context(&at.asset, &at.entry.fingerprint);
                bytes.extend(self.crypto.seal(data_key, &context, self.private(&at.asset).expose())?);
                writes.push((at.asset, at.key, bytes, etag));
            }
            let writes = writes.into_iter().map(|(asset, key, bytes, etag)| async move {
                let put = objects.put(&key, bytes, Condition::Unchanged(etag)).await?;
                FlowResult::Ok((put == Put::Lost).then_some(asset))
            });
            let lost: Vec<_> = stream::iter(writes).buffer_unordered(AT_A_TIME).try_collect().await?;
            remaining = lost.into_iter().flatten().collect();
            if remaining.is_empty() {
                return Ok(());
            }
        }
        Err(FlowError::Race { key: keys::manifest(cluster), tries: TRIES })
    }

    /// Writes both halves of new assets, with one data key for all of them.
    pub(super) async fn store(&self, manifest: &Manifest, names: &[String]) -> FlowResult<()> {
        if names.is_empty() {
            return Ok(());
        }
        let data_key = self.data_key("vault").await?;
        let mut writes = Vec::with_capacity(2 * names.len());
        for name in names {
            let fingerprint = &manifest.assets[name].fingerprint;
            if let Some(private) = self.privates.get(name) {
                let context = self.seal_context(name, fingerprint);
                let sealed = self.crypto.seal(&data_key, &context, private.expose())?;
                writes.push((keys::private_half(&self.cluster.name, name, fingerprint), sealed));
            }
            if let Some(chain) = self.chains.get(name) {
                let key = keys::chain(&self.cluster.name, name, fingerprint);
                writes.push((key, chain.clone().into_bytes()));
            }
            if let Some(public) = self.publics.get(name) {
                let key = keys::public_half(&self.cluster.name, name, fingerprint);
                writes.push((key, public.clone().into_bytes()));
            }
        }
        let objects = self.objects;
        let writes = writes
            .into_iter()
            .map(|(key, bytes)| async move { objects.put(&key, bytes, Condition::Always).await.map(drop) });
        stream::iter(writes).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
        Ok(())
    }

    /// Reads and verifies those of `needs` that are not loaded yet. Returns those that are lost or damaged.
    pub(super) async fn read_halves(
        &mut self,
        manifest: &Manifest,
        mut needs: BTreeSet<(String, Half)>,
    ) -> FlowResult<Vec<Damaged>> {
        needs.retain(|need| !self.holds(need));
        let (objects, crypto, cluster) = (self.objects, self.crypto, self.cluster.name.as_str());
        let (chains, needs): (Vec<_>, Vec<_>) = needs.into_iter().partition(|(_, half)| *half == Half::Chain);
        let mut damaged = Vec::new();
        for (asset, _) in chains {
            match read_chain(objects, cluster, manifest, &asset).await {
                Ok(text) => drop(self.chains.insert(asset, text)),
                Err(error) => damaged.push((asset, Half::Chain, error)),
            }
        }
        let (publics, privates): (Vec<_>, Vec<_>) =
            needs.into_iter().partition(|(_, half)| *half == Half::Public);

        let reads = publics.into_iter().map(|(asset, _)| async move {
            let text = read_public(objects, crypto, cluster, manifest, &asset).await;
            (asset, text)
        });
        let publics: Vec<_> = stream::iter(reads).buffer_unordered(AT_A_TIME).collect().await;
        let reads = privates.into_iter().map(|(asset, _)| async move {
            let object = match locate(cluster, manifest, &asset, Half::Private) {
                Ok(at) => read(objects, &at).await,
                Err(error) => Err(error),
            };
            (asset, object)
        });
        let sealed: Vec<_> = stream::iter(reads).buffer_unordered(AT_A_TIME).collect().await;

        for (asset, object) in sealed {
            let secret = match object {
                Ok(object) => {
                    self.open(&locate(cluster, manifest, &asset, Half::Private)?, &object.bytes).await
                }
                Err(error) => Err(error),
            };
            match secret {
                Ok(secret) => drop(self.privates.insert(asset, secret)),
                Err(error) => damaged.push((asset, Half::Private, error)),
            }
        }
        for (asset, text) in publics {
            match text {
                Ok(text) => drop(self.publics.insert(asset, text)),
                Err(error) => damaged.push((asset, Half::Public, error)),
            }
        }
        let private = damaged.iter().any(|(_, half, _)| *half == Half::Private);
        if private && self.held(DIGEST_KEY).is_none() && manifest.assets.contains_key(DIGEST_KEY) {
            // The digest key proves whether the content of a bundle is what was sealed.
            let at = locate(cluster, manifest, DIGEST_KEY, Half::Private)?;
            let object = read(objects, &at).await?;
            let digest_key = self.open(&at, &object.bytes).await?;
            self.privates.insert(DIGEST_KEY.to_owned(), digest_key);
        }
        Ok(damaged)
    }

    /// Keeps a recovered half of an asset in memory.
    pub(super) fn keep(&mut self, asset: &str, half: Half, text: &Secret) {
        match half {
            Half::Public => {
                let text = String::from_utf8_lossy(text.expose()).into_owned();
                self.publics.insert(asset.to_owned(), text);
            }
            Half::Private => drop(self.privates.insert(asset.to_owned(), text.clone())),
            Half::Chain => {
                let text = String::from_utf8_lossy(text.expose()).into_owned();
                self.chains.insert(asset.to_owned(), text);
            }
        }
    }

    async fn open(&mut self, at: &Located<'_>, sealed: &[u8]) -> FlowResult<Secret> {
        let sealings = at.sealings(self.crypto, sealed)?;
        let context = context(&self.cluster.name, "vault");
        let mut refusal = None;
        for sealing in newest_first(&sealings, &self.wanted) {
            if !self.data_keys.contains_key(sealing.wrapped) {
                match self.keys.unwrap(sealing.wrapped, &context).await {
                    Ok(data_key) => self.data_keys.insert(sealing.wrapped.to_vec(), data_key),
                    Err(error) if is_of_key(&error) => {
                        refusal.get_or_insert(error);
                        continue;
                    }
                    Err(error) if error.kind == ErrorKind::Invalid => {
                        return Err(at.corrupt(cannot_be_unwrapped(&error)));
                    }
                    Err(error) => return Err(error.into()),
                };
            }
            let context = self.seal_context(&at.asset, &at.entry.fingerprint);
            return self
                .crypto
                .open(&self.data_keys[sealing.wrapped], &context, sealing.bytes)
                .map_err(|error| at.corrupt(format!("cannot be opened: {}", error.message)));
        }
        Err(refusal.expect("a sealed object holds a sealing").into())
    }
}

/// The description of sealed bytes whose data key KMS rejects as invalid.
pub(super) fn cannot_be_unwrapped(error: &PortError) -> String {
    format!("contains a data key that cannot be unwrapped: {}", error.message)
}

/// The location of a half of an asset.
pub(super) struct Located<'m> {
    pub(super) key: String,
    asset: String,
    pub(super) entry: &'m Entry,
    manifest_key: String,
}

impl Located<'_> {
    /// The sealings in the bytes that were read.
    fn sealings<'b>(&self, crypto: &impl Crypto, sealed: &'b [u8]) -> FlowResult<Vec<Sealing<'b>>> {
        crypto.sealings(sealed).map_err(|error| self.corrupt(format!("is {}", error.message)))
    }

    /// Nothing is made anew automatically, because that would replace nodes. The help says how to do it, and which nodes are affected.
    fn corrupt(&self, problem: String) -> FlowError {
        let roles: Vec<_> = self.entry.roles.iter().map(ToString::to_string).collect();
        let whom = if roles.is_empty() { "no node's own".to_owned() } else { roles.join(", ") };
        let authority = self
            .entry
            .certificate
            .as_ref()
            .is_some_and(|facts| facts.issuer_fingerprint == self.entry.fingerprint);
        let also = if authority { ", and every certificate that it signed" } else { "" };
        FlowError::Corrupt {
            key: self.key.clone(),
            problem,
            help: format!(
                "bring back the object's last good version (the bucket keeps them), or take \"{}\" out of {}: it is then made \
                 anew{also}, which changes the credentials of: {whom}",
                self.asset, self.manifest_key
            ),
        }
    }
}

pub(super) fn locate<'m>(
    cluster: &str,
    manifest: &'m Manifest,
    asset: &str,
    half: Half,
) -> FlowResult<Located<'m>> {
    let manifest_key = keys::manifest(cluster);
    let Some(entry) = manifest.assets.get(asset) else {
        return Err(FlowError::Corrupt {
            key: manifest_key,
            problem: format!("does not list \"{asset}\", on which other entries depend"),
            help: "bring back an earlier version of the object (the bucket keeps them)".to_owned(),
        });
    };
    let key = match half {
        Half::Public => keys::public_half(cluster, asset, &entry.fingerprint),
        Half::Private => keys::private_half(cluster, asset, &entry.fingerprint),
        Half::Chain => keys::chain(cluster, asset, &entry.fingerprint),
    };
    Ok(Located { key, asset: asset.to_owned(), entry, manifest_key })
}

async fn read<O: Objects>(objects: &O, at: &Located<'_>) -> FlowResult<Object> {
    match objects.get(&at.key).await? {
        Some(object) => Ok(object),
        None => Err(at.corrupt("is lost".to_owned())),
    }
}

/// Reads the chain of an imported authority and verifies it against the inventory.
pub(super) async fn read_chain<O: Objects>(
    objects: &O,
    cluster: &str,
    manifest: &Manifest,
    asset: &str,
) -> FlowResult<String> {
    let at = locate(cluster, manifest, asset, Half::Chain)?;
    let bytes = read(objects, &at).await?.bytes;
    if at.entry.chain.as_ref().map(|chain| chain.sha256.as_str()) != Some(&sha256_hex(&bytes)) {
        return Err(at.corrupt("is another than the inventory says".to_owned()));
    }
    String::from_utf8(bytes).map_err(|_| at.corrupt("is not text".to_owned()))
}

/// Reads a public half and verifies it against the inventory's fingerprint.
pub(super) async fn read_public<O: Objects, C: Crypto>(
    objects: &O,
    crypto: &C,
    cluster: &str,
    manifest: &Manifest,
    asset: &str,
) -> FlowResult<String> {
    let at = locate(cluster, manifest, asset, Half::Public)?;
    let bytes = read(objects, &at).await?.bytes;
    let text = String::from_utf8(bytes).map_err(|_| at.corrupt("is not text".to_owned()))?;
    check_public(crypto, at.entry, &text).map_err(|problem| at.corrupt(problem))?;
    Ok(text)
}

/// Verifies a public half against the inventory's fingerprint; the error says what is wrong.
pub(super) fn check_public<C: Crypto>(crypto: &C, entry: &Entry, text: &str) -> Result<(), String> {
    let fingerprint = if entry.certificate.is_some() {
        crypto.facts(text).map_err(|error| format!("cannot be read: {}", error.message))?.1
    } else {
        key_pair_fingerprint(text).ok_or_else(|| "is not a public key in PEM".to_owned())?
    };
    if fingerprint == entry.fingerprint {
        Ok(())
    } else {
        Err("is another than the inventory says".to_owned())
    }
}
