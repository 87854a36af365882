//! The sealed bundle of each role. It is made once for a digest, and kept.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_core::digest::keyed_hex;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::policy::{self, DIGEST_KEY, Part};
use slipway_credentials::{BundleEntry, Entry, Manifest, manifest, trust};
use slipway_ports::sealed::{context, is_of_key, open};
use slipway_ports::{Condition, Context, Crypto, ErrorKind, Keys, Objects, Put, Sealing, Secret};
use zeroize::Zeroizing;

use super::vault::{Half, Vault, cannot_be_unwrapped};
use super::{Healed, NodeBundles, refused};
use crate::error::{FlowError, FlowResult};
use crate::store::{AT_A_TIME, TRIES};

/// Loads the content of the bundles of `roles`, so that lost or damaged objects are found before anything is written.
pub(super) async fn load<O: Objects, K: Keys, C: Crypto>(
    vault: &mut Vault<'_, O, K, C>,
    manifest: &Manifest,
    roles: &BTreeSet<Role>,
) -> FlowResult<()> {
    let mut needs = BTreeSet::from([(DIGEST_KEY.to_owned(), Half::Private)]);
    for role in roles {
        let files = trust::bundle(vault.cluster, manifest, role);
        for source in files.into_iter().flat_map(|file| file.sources) {
            needs.insert((source.asset, half(source.part)));
        }
    }
    vault.load(manifest, needs).await
}

/// The problem found in the bundle of each role, if any.
pub(super) type Astray = BTreeMap<Role, Option<Healed>>;

/// Seals the bundles of `roles`, whose content was loaded, and records them in `manifest`. A damaged bundle is overwritten, because its
/// content is known.
pub(super) async fn seal<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    manifest: &mut Manifest,
    roles: &BTreeSet<Role>,
    astray: &mut Astray,
) -> FlowResult<()> {
    let mut files = manifest::bundle_files(vault.cluster, manifest).map_err(refused)?;
    let of_chain =
        |(name, entry): (&String, &Entry)| Some((name.clone(), entry.chain.as_ref()?.intermediates));
    let intermediates: BTreeMap<String, usize> = manifest.assets.iter().filter_map(of_chain).collect();
    let intermediates = &intermediates;
    let sealing =
        roles.iter().map(|role| {
            let files = files.remove(role).unwrap_or_default();
            let manifest = &*manifest;
            async move {
                FlowResult::Ok((role.clone(), seal_one(vault, manifest, role, files, intermediates).await?))
            }
        });
    let sealing: Vec<_> = sealing.collect();
    let sealed: Vec<_> = stream::iter(sealing).buffer_unordered(AT_A_TIME).try_collect().await?;
    for (role, (bundle, damaged)) in sealed {
        if let Some(healed) = damaged {
            tracing::warn!(key = healed.key, problem = healed.problem, "a damaged bundle was sealed again");
            astray.insert(role.clone(), Some(healed));
        }
        manifest::record(manifest, &role, bundle);
    }
    Ok(())
}

/// Adds a sealing under the wanted KMS key to earlier bundles that nodes still have: for a moment during a stack's update, its
/// permissions may name the new key while its launch template still names the earlier bundle. Lost or damaged ones are skipped, because
/// their content is no longer known.
pub(super) async fn seal_earlier<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    manifest: &Manifest,
    before: &Manifest,
    known: &NodeBundles,
) -> FlowResult<()> {
    let mut earlier: BTreeSet<(Role, String)> =
        before.bundles.iter().map(|(role, bundle)| (role.clone(), bundle.digest.clone())).collect();
    for (role, digests) in known {
        earlier.extend(digests.iter().map(|digest| (role.clone(), digest.clone())));
    }
    let newest = policy::roles(vault.cluster).into_iter().filter_map(|role| {
        let digest = manifest.bundles.get(&role)?.digest.clone();
        Some((role, digest))
    });
    for newest in newest {
        earlier.remove(&newest);
    }
    let sealing = earlier.into_iter().map(|(role, digest)| seal_as_it_is(vault, role.to_string(), digest));
    stream::iter(sealing).buffer_unordered(AT_A_TIME).try_collect::<()>().await
}

async fn seal_as_it_is<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    role: String,
    digest: String,
) -> FlowResult<()> {
    let key = keys::credentials(&vault.cluster.name, &role, &digest);
    let context = context(&vault.cluster.name, &role);
    for _ in 0..TRIES {
        let Some(object) = vault.objects.get(&key).await? else { return Ok(()) };
        let is_wanted = |one: &Sealing<'_>| one.wrapped_by == vault.wanted;
        match vault.crypto.sealings(&object.bytes) {
            Ok(sealings) if !sealings.iter().any(is_wanted) => {}
            Ok(_) | Err(_) => return Ok(()),
        }
        let plaintext = match open(vault.keys, vault.crypto, &vault.cluster.name, &role, &object.bytes).await
        {
            Ok(plaintext) => plaintext,
            Err(error) if error.kind == ErrorKind::Transient => return Err(error.into()),
            Err(error) => {
                tracing::warn!(
                    key,
                    error = error.message,
                    "an earlier bundle cannot be sealed under another key"
                );
                return Ok(());
            }
        };
        let data_key = vault.data_key(&role).await?;
        let mut bytes = object.bytes;
        bytes.extend(vault.crypto.seal(&data_key, &context, plaintext.expose())?);
        if let Put::Written(_) = vault.objects.put(&key, bytes, Condition::Unchanged(object.etag)).await? {
            return Ok(());
        }
    }
    Err(FlowError::Race { key, tries: TRIES })
}

fn half(part: Part) -> Half {
    match part {
        Part::Intermediates | Part::Chain => Half::Chain,
        Part::Certificate | Part::PublicKey => Half::Public,
        Part::PrivateKey
        | Part::Secret
        | Part::RoleToken
        | Part::EncryptionConfig
        | Part::EncryptionConfigOff => Half::Private,
    }
}

/// The first `count` blocks of a PEM file.
pub(super) fn first_blocks(pem: &str, count: usize) -> String {
    pem.split_inclusive("-----END CERTIFICATE-----\n").take(count).collect()
}

async fn seal_one<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    manifest: &Manifest,
    role: &Role,
    files: BTreeMap<String, String>,
    intermediates: &BTreeMap<String, usize>,
) -> FlowResult<(BundleEntry, Option<Healed>)> {
    let before = manifest.bundles.get(role);
    let plaintext = plaintext(vault, manifest, role, intermediates)?;
    let digest = keyed_hex(vault.private(DIGEST_KEY).expose(), plaintext.expose());
    refuse_silent_roll(vault, role, &files, &digest, before)?;
    let role = role.to_string();
    let key = keys::credentials(&vault.cluster.name, &role, &digest);
    let context = context(&vault.cluster.name, &role);
    let done = |etag| BundleEntry { digest, files, sealed_under: vault.wanted.clone(), etag };
    let mut damaged = None;
    for _ in 0..TRIES {
        let (mut bytes, condition) = match vault.objects.get(&key).await? {
            Some(object) => match examine(vault, &context, &plaintext, &object.bytes).await? {
                BundleState::Sealed => return Ok((done(object.etag), damaged)),
                BundleState::UnderOthers => (object.bytes, Condition::Unchanged(object.etag)),
                BundleState::Damaged(problem) => {
                    damaged = Some(Healed { key: key.clone(), problem });
                    (Vec::new(), Condition::Unchanged(object.etag))
                }
            },
            None => (Vec::new(), Condition::Absent),
        };
        let data_key = vault.data_key(&role).await?;
        bytes.extend(vault.crypto.seal(&data_key, &context, plaintext.expose())?);
        match vault.objects.put(&key, bytes, condition).await? {
            Put::Written(etag) => return Ok((done(etag), damaged)),
            Put::Lost => {}
        }
    }
    Err(FlowError::Race { key, tries: TRIES })
}

/// Checks that the same files gave the same digest. If they did not, something other than the files changed, and the nodes with that
/// digest would be replaced although nobody asked for it.
fn refuse_silent_roll<O, K, C>(
    vault: &Vault<'_, O, K, C>,
    role: &Role,
    files: &BTreeMap<String, String>,
    digest: &str,
    before: Option<&BundleEntry>,
) -> FlowResult<()> {
    match before {
        Some(before) if before.files == *files && before.digest != digest => Err(FlowError::Corrupt {
            key: keys::manifest(&vault.cluster.name),
            problem: format!(
                "lists the digest {} for the bundle of {role}, but the files that it lists have the digest {digest}",
                before.digest
            ),
            help: format!(
                "bring back an earlier version of the object (a versioned bucket keeps them), or take \"{role}\" out of its \
                 \"bundles\": its nodes are then refreshed with what is listed"
            ),
        }),
        Some(_) | None => Ok(()),
    }
}

/// The object found at the key of a bundle.
enum BundleState {
    /// The bundle, sealed under the wanted KMS key.
    Sealed,
    /// The bundle, sealed only under other KMS keys.
    UnderOthers,
    /// Something else, with a description of the problem.
    Damaged(String),
}

/// Examines an existing bundle, perhaps of an interrupted run. It is accepted if every sealing that can be opened has the same text.
/// Sealings under a deleted key cannot be opened.
async fn examine<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    context: &Context,
    plaintext: &Secret,
    sealed: &[u8],
) -> FlowResult<BundleState> {
    let sealings = match vault.crypto.sealings(sealed) {
        Ok(sealings) => sealings,
        Err(error) => return Ok(BundleState::Damaged(format!("is {}", error.message))),
    };
    for sealing in &sealings {
        let data_key = match vault.keys.unwrap(sealing.wrapped, context).await {
            Ok(data_key) => data_key,
            Err(error) if is_of_key(&error) && sealing.wrapped_by != vault.wanted => continue,
            Err(error) if error.kind == ErrorKind::Invalid => {
                return Ok(BundleState::Damaged(cannot_be_unwrapped(&error)));
            }
            Err(error) => return Err(error.into()),
        };
        match vault.crypto.open(&data_key, context, sealing.bytes) {
            Ok(opened) if opened.expose() == plaintext.expose() => {}
            Ok(_) => {
                return Ok(BundleState::Damaged("holds other credentials than its name says".to_owned()));
            }
            Err(error) => return Ok(BundleState::Damaged(format!("cannot be opened: {}", error.message))),
        }
    }
    let wanted = sealings.iter().any(|sealing| sealing.wrapped_by == vault.wanted);
    Ok(if wanted { BundleState::Sealed } else { BundleState::UnderOthers })
}

fn plaintext<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    manifest: &Manifest,
    role: &Role,
    intermediates: &BTreeMap<String, usize>,
) -> FlowResult<Secret> {
    let mut texts: BTreeMap<String, Zeroizing<String>> = BTreeMap::new();
    for file in trust::bundle(vault.cluster, manifest, role) {
        let mut parts = Vec::with_capacity(file.sources.len());
        for source in &file.sources {
            parts.push(match half(source.part) {
                Half::Public => Zeroizing::new(source.part.content(role, vault.public(&source.asset))),
                Half::Chain => {
                    let chain = vault.chain(&source.asset);
                    let count = intermediates.get(&source.asset).copied().unwrap_or_default();
                    let shown = (source.part == Part::Intermediates).then(|| first_blocks(chain, count));
                    Zeroizing::new(source.part.content(role, shown.as_deref().unwrap_or(chain)))
                }
                Half::Private => {
                    let text = std::str::from_utf8(vault.private(&source.asset).expose());
                    Zeroizing::new(source.part.content(
                        role,
                        text.map_err(|_| FlowError::Corrupt {
                            key: keys::manifest(&vault.cluster.name),
                            problem: format!("lists \"{}\", whose secret is not text", source.asset),
                            help: format!(
                                "remove the entry \"{}\", so that it is created again",
                                source.asset
                            ),
                        })?,
                    ))
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
