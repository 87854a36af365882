//! Recovers a lost or damaged half of an asset from a bundle that contains it, so that nothing has to be made anew and no node is
//! replaced. What no bundle contains (the key of an authority, the digest key) only a person can restore.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use slipway_core::digest::{keyed_hex, sha256_hex};
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::policy::{DIGEST_KEY, Part};
use slipway_credentials::{BundleEntry, Manifest};
use slipway_ports::sealed::open;
use slipway_ports::{Condition, Crypto, ErrorKind, Keys, Objects, Secret};
use zeroize::Zeroizing;

use super::Healed;
use super::vault::{Half, Vault, check_public, locate};
use crate::error::{FlowError, FlowResult};

impl<O: Objects, K: Keys, C: Crypto> Vault<'_, O, K, C> {
    /// Reads and verifies those of `needs` that are not loaded yet, and recovers what is lost or damaged.
    pub(super) async fn load(
        &mut self,
        manifest: &Manifest,
        needs: BTreeSet<(String, Half)>,
    ) -> FlowResult<()> {
        let damaged = self.read_halves(manifest, needs).await?;
        // Nothing is written while anything cannot be recovered.
        let mut found = Vec::with_capacity(damaged.len());
        for (asset, half, error) in damaged {
            found.push(find(self, manifest, asset, half, error).await?);
        }
        for recovered in found {
            write_back(self, manifest, recovered).await?;
        }
        Ok(())
    }
}

/// A half that was found in a bundle.
struct Recovered {
    asset: String,
    half: Half,
    problem: String,
    text: Secret,
}

/// Searches the bundles that contain the half.
///
/// # Errors
/// `error`, if it is not about a damaged object or no bundle has the half.
async fn find<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    manifest: &Manifest,
    asset: String,
    half: Half,
    error: FlowError,
) -> FlowResult<Recovered> {
    let problem = match &error {
        FlowError::Corrupt { problem, .. } => problem.clone(),
        FlowError::Port(_) | FlowError::Refused { .. } | FlowError::Race { .. } => return Err(error),
    };
    let Some(entry) = manifest.assets.get(&asset) else { return Err(error) };
    let sources = match half {
        Half::Public => {
            [Part::Certificate, Part::PublicKey].map(|part| format!("{part}:{}", entry.fingerprint)).to_vec()
        }
        Half::Private => {
            [Part::PrivateKey, Part::Secret].map(|part| format!("{part}:{}", entry.fingerprint)).to_vec()
        }
        Half::Chain => entry.chain.iter().map(|chain| format!("{}:{}", Part::Chain, chain.sha256)).collect(),
    };
    for (role, bundle) in &manifest.bundles {
        let found =
            bundle.files.iter().find_map(|(path, what)| Some((path, what, block(what, &sources, half)?)));
        let Some((path, what, at)) = found else { continue };
        let Some(mut text) = from_bundle(vault, role, bundle, path, half).await? else { continue };
        if what.contains('+') {
            let pem = String::from_utf8_lossy(text.expose()).into_owned();
            text = Secret::new(nth_block(&pem, at).into_bytes());
        }
        let good = match half {
            Half::Public => std::str::from_utf8(text.expose())
                .is_ok_and(|text| check_public(vault.crypto, entry, text).is_ok()),
            // The bundle's digest, keyed with a secret, proves that this is what was sealed.
            Half::Private => true,
            Half::Chain => {
                entry.chain.as_ref().is_some_and(|chain| chain.sha256 == sha256_hex(text.expose()))
            }
        };
        if good {
            return Ok(Recovered { asset, half, problem, text });
        }
    }
    Err(error)
}

/// The position of the block in a file made from `sources` that comes from `what`. A server's certificate is followed by those up to the
/// root of an imported authority, and several authorities may be trusted.
fn block(what: &str, sources: &[String], half: Half) -> Option<usize> {
    let parts: Vec<&str> = what.split('+').collect();
    let at = parts.iter().position(|part| sources.iter().any(|source| source == part))?;
    let one_block = |part: &&str| {
        [Part::Certificate, Part::PublicKey]
            .iter()
            .any(|kind| part.split(':').next() == Some(&kind.to_string()))
    };
    let whole = parts.len() == 1;
    (whole || half == Half::Public && parts[..at].iter().all(one_block)).then_some(at)
}

/// The block of a PEM file at `at`, counted from 0.
fn nth_block(pem: &str, at: usize) -> String {
    let mut blocks = vec![String::new()];
    for line in pem.split_inclusive('\n') {
        if let Some(block) = blocks.last_mut() {
            block.push_str(line);
        }
        if line.starts_with("-----END ") {
            blocks.push(String::new());
        }
    }
    blocks.into_iter().nth(at).unwrap_or_default()
}

/// The file `path` of a bundle; `None` if the bundle itself is lost or damaged.
async fn from_bundle<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    role: &Role,
    bundle: &BundleEntry,
    path: &str,
    half: Half,
) -> FlowResult<Option<Secret>> {
    #[derive(Deserialize)]
    struct Files {
        files: BTreeMap<String, String>,
    }
    let key = keys::credentials(&vault.cluster.name, &role.to_string(), &bundle.digest);
    let Some(object) = vault.objects.get(&key).await? else { return Ok(None) };
    let opened = open(vault.keys, vault.crypto, &vault.cluster.name, &role.to_string(), &object.bytes).await;
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind == ErrorKind::Transient => return Err(error.into()),
        Err(_) => return Ok(None),
    };
    let authentic = || {
        let digest_key = vault.held(DIGEST_KEY)?;
        Some(keyed_hex(digest_key.expose(), opened.expose()) == bundle.digest)
    };
    if half == Half::Private && authentic() != Some(true) {
        return Ok(None);
    }
    let Ok(Files { files }) = serde_json::from_slice(opened.expose()) else { return Ok(None) };
    let mut files: BTreeMap<String, Zeroizing<String>> =
        files.into_iter().map(|(path, text)| (path, Zeroizing::new(text))).collect();
    Ok(files.remove(path).map(|mut text| Secret::new(std::mem::take(&mut *text).into_bytes())))
}

/// Writes a recovered half to its key.
async fn write_back<O: Objects, K: Keys, C: Crypto>(
    vault: &mut Vault<'_, O, K, C>,
    manifest: &Manifest,
    recovered: Recovered,
) -> FlowResult<()> {
    let Recovered { asset, half, problem, text } = recovered;
    let at = locate(&vault.cluster.name, manifest, &asset, half)?;
    let bytes = match half {
        Half::Public | Half::Chain => text.expose().to_vec(),
        Half::Private => {
            let data_key = vault.data_key("vault").await?;
            let context = vault.seal_context(&asset, &at.entry.fingerprint);
            vault.crypto.seal(&data_key, &context, text.expose())?
        }
    };
    // The key is derived from the content, so every writer writes the same.
    vault.objects.put(&at.key, bytes, Condition::Always).await?;
    tracing::warn!(key = at.key, problem, "a credential was brought back from a bundle");
    vault.keep(&asset, half, &text);
    vault.healed.push(Healed { key: at.key, problem });
    Ok(())
}
