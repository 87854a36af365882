//! The sealed bundle of each role: made once for a digest, and kept.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_core::digest::keyed_hex;
use slipway_core::pki::policy::{self, DIGEST_KEY, Part};
use slipway_core::pki::{BundleEntry, Manifest, Role, manifest};
use zeroize::Zeroizing;

use super::refused;
use super::vault::{Half, Vault, context, is_of_key, unwrapped};
use crate::error::{FlowError, FlowResult};
use crate::keys;
use crate::ports::{Condition, Context, Crypto, Keys, Objects, Put, Secret};
use crate::store::AT_A_TIME;
use crate::store::TRIES;

/// Loads what the bundles of `roles` hold, so that whatever is lost or damaged is found before anything is written.
pub(super) async fn load<O: Objects, K: Keys, C: Crypto>(
    vault: &mut Vault<'_, O, K, C>,
    manifest: &Manifest,
    roles: &BTreeSet<Role>,
) -> FlowResult<()> {
    let mut needs = BTreeSet::from([(DIGEST_KEY.to_owned(), Half::Private)]);
    for role in roles {
        for source in policy::bundle(vault.cluster, role).into_iter().flat_map(|file| file.sources) {
            needs.insert((source.asset, half(source.part)));
        }
    }
    vault.load(manifest, needs).await
}

/// Seals the bundles of `roles`, which were loaded, and records them in `manifest`.
pub(super) async fn seal<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    manifest: &mut Manifest,
    roles: &BTreeSet<Role>,
) -> FlowResult<()> {
    let mut files = manifest::bundle_files(vault.cluster, manifest).map_err(refused)?;
    let sealing = roles.iter().map(|role| {
        let files = files.remove(role).unwrap_or_default();
        async move { FlowResult::Ok((role.clone(), seal_one(vault, role, files).await?)) }
    });
    let sealing: Vec<_> = sealing.collect();
    let sealed: Vec<_> = stream::iter(sealing).buffer_unordered(AT_A_TIME).try_collect().await?;
    manifest.bundles.extend(sealed);
    Ok(())
}

fn half(part: Part) -> Half {
    if part.is_secret() { Half::Private } else { Half::Public }
}

async fn seal_one<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    role: &Role,
    files: BTreeMap<String, String>,
) -> FlowResult<BundleEntry> {
    let plaintext = plaintext(vault, role)?;
    let digest = keyed_hex(vault.private(DIGEST_KEY).expose(), plaintext.expose());
    let role = role.to_string();
    let key = keys::credentials(&vault.cluster.name, &role, &digest);
    let context = context(&vault.cluster.name, &role);
    let done = |digest| BundleEntry { digest, files, sealed_under: vault.wanted.clone() };
    for _ in 0..TRIES {
        let (mut bytes, condition) = match vault.objects.get(&key).await? {
            Some(object) => {
                if is_sealed(vault, &key, &context, &plaintext, &object.bytes).await? {
                    return Ok(done(digest));
                }
                (object.bytes, Condition::Unchanged(object.etag))
            }
            None => (Vec::new(), Condition::Absent),
        };
        let data_key = vault.data_key(&role).await?;
        bytes.extend(vault.crypto.seal(&data_key, &context, plaintext.expose())?);
        match vault.objects.put(&key, bytes, condition).await? {
            Put::Written(_) => return Ok(done(digest)),
            Put::Lost => {}
        }
    }
    Err(FlowError::Race { key, tries: TRIES })
}

/// Whether a bundle that is there, perhaps left by a run that died, is sealed under the KMS key that is wanted. It is taken
/// as it is, once all of it that can be opened opens to the same text; under a key that is gone, nothing can be.
async fn is_sealed<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    key: &str,
    context: &Context,
    plaintext: &Secret,
    sealed: &[u8],
) -> FlowResult<bool> {
    let corrupt = |problem: String| FlowError::Corrupt {
        key: key.to_owned(),
        problem,
        cure: "delete the object: it is then sealed again under the same digest, and no node changes"
            .to_owned(),
    };
    let sealings = vault.crypto.sealings(sealed).map_err(|error| corrupt(format!("is {}", error.message)))?;
    for sealing in &sealings {
        let data_key = match vault.keys.unwrap(sealing.wrapped, context).await {
            Ok(data_key) => data_key,
            Err(error) if is_of_key(&error) && sealing.wrapped_by != vault.wanted => continue,
            Err(error) => return Err(unwrapped(error, corrupt)),
        };
        let opened = vault
            .crypto
            .open(&data_key, context, sealing.bytes)
            .map_err(|error| corrupt(format!("cannot be opened: {}", error.message)))?;
        if opened.expose() != plaintext.expose() {
            return Err(corrupt("holds other credentials than its name says".to_owned()));
        }
    }
    Ok(sealings.iter().any(|sealing| sealing.wrapped_by == vault.wanted))
}

fn plaintext<O: Objects, K: Keys, C: Crypto>(vault: &Vault<'_, O, K, C>, role: &Role) -> FlowResult<Secret> {
    let mut texts: BTreeMap<String, Zeroizing<String>> = BTreeMap::new();
    for file in policy::bundle(vault.cluster, role) {
        let mut parts = Vec::with_capacity(file.sources.len());
        for source in &file.sources {
            parts.push(match half(source.part) {
                Half::Public => Zeroizing::new(source.part.content(vault.public(&source.asset))),
                Half::Private => {
                    let text = std::str::from_utf8(vault.private(&source.asset).expose());
                    Zeroizing::new(source.part.content(text.map_err(|_| FlowError::Corrupt {
                        key: keys::manifest(&vault.cluster.name),
                        problem: format!("lists \"{}\", whose secret is not text", source.asset),
                        cure: format!("take \"{}\" out of it, to have it made anew", source.asset),
                    })?))
                }
            });
        }
        let text = match parts.len() {
            1 => parts.remove(0),
            _ => Zeroizing::new(parts.iter().map(|part| part.as_str()).collect()),
        };
        texts.insert(file.path, text);
    }
    let borrowed = texts.iter().map(|(path, text)| (path.clone(), text.as_str())).collect();
    Ok(Secret::new(manifest::plaintext(&borrowed)))
}
