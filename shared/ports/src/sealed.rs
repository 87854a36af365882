//! Sealed objects: the encryption contexts that they are sealed under, and how the receiver opens them.

use std::collections::BTreeMap;

use slipway_core::role;

use crate::{Context, Crypto, ErrorKind, Keys, PortError, PortResult, Sealing, Secret};

/// The encryption context under which KMS wraps a data key: `{cluster, role}`.
#[must_use]
pub fn context(cluster: &str, role: &str) -> Context {
    BTreeMap::from([("cluster".to_owned(), cluster.to_owned()), ("role".to_owned(), role.to_owned())])
}

/// The encryption context of the private half of an asset: [`context`] of the vault, plus the object's name.
#[must_use]
pub fn object_context(cluster: &str, asset: &str, fingerprint: &str) -> Context {
    let mut context = context(cluster, "vault");
    context.insert("object".to_owned(), format!("{}/{fingerprint}", role::base(asset)));
    context
}

/// The order in which the sealings of an object are tried: first the one under `wanted`, then the newest first.
#[must_use]
pub fn newest_first<'s, 'a>(sealings: &'s [Sealing<'a>], wanted: &str) -> Vec<&'s Sealing<'a>> {
    let mut order: Vec<_> = sealings.iter().rev().collect();
    order.sort_by_key(|sealing| sealing.wrapped_by != wanted);
    order
}

/// Whether a data key cannot be unwrapped because of the KMS key, which may be disabled, deleted or denied. Another sealing of the same
/// object may be under a usable key.
#[must_use]
pub fn is_of_key(error: &PortError) -> bool {
    match error.kind {
        ErrorKind::Denied | ErrorKind::Missing => true,
        ErrorKind::Transient | ErrorKind::Invalid => false,
    }
}

/// Opens a bundle as a node of `role` does: with one KMS call, as long as the node may use the key under which the bundle was sealed
/// last.
///
/// While a cluster moves from one KMS key to another, a node whose stack was not updated yet may use only the old key. It is denied once,
/// and then opens the older sealing in the bundle.
///
/// # Errors
/// If `sealed` is damaged or belongs to another role or cluster; if KMS denies every key that it is sealed under.
pub async fn open<K: Keys, C: Crypto>(
    keys: &K,
    crypto: &C,
    cluster: &str,
    role: &str,
    sealed: &[u8],
) -> PortResult<Secret> {
    let context = context(cluster, role);
    opened(keys, crypto, &context, &context, sealed).await
}

/// Opens the private half of an asset, as the vault stores it under its fingerprint.
///
/// # Errors
/// As [`open`].
pub async fn open_private<K: Keys, C: Crypto>(
    keys: &K,
    crypto: &C,
    cluster: &str,
    (asset, fingerprint): (&str, &str),
    sealed: &[u8],
) -> PortResult<Secret> {
    let under = object_context(cluster, asset, fingerprint);
    opened(keys, crypto, &context(cluster, "vault"), &under, sealed).await
}

async fn opened<K: Keys, C: Crypto>(
    keys: &K,
    crypto: &C,
    of_key: &Context,
    under: &Context,
    sealed: &[u8],
) -> PortResult<Secret> {
    let sealings = crypto.sealings(sealed)?;
    let mut refusal = None;
    for sealing in newest_first(&sealings, "") {
        match keys.unwrap(sealing.wrapped, of_key).await {
            Ok(data_key) => return crypto.open(&data_key, under, sealing.bytes),
            Err(error) if is_of_key(&error) => {
                refusal.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.expect("a sealed object holds a sealing"))
}
