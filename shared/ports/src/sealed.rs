//! Sealed objects: the contexts that they are sealed under, and how whoever receives one opens it.

use std::collections::BTreeMap;

use slipway_core::role;

use crate::{Context, Crypto, ErrorKind, Keys, PortError, PortResult, Sealing, Secret};

/// `{cluster, role}`, under which KMS wraps a data key.
#[must_use]
pub fn context(cluster: &str, role: &str) -> Context {
    BTreeMap::from([("cluster".to_owned(), cluster.to_owned()), ("role".to_owned(), role.to_owned())])
}

/// The context under which a private half is sealed: [`context`] of the vault, and which object it is.
#[must_use]
pub fn object_context(cluster: &str, asset: &str, fingerprint: &str) -> Context {
    let mut context = context(cluster, "vault");
    context.insert("object".to_owned(), format!("{}/{fingerprint}", role::base(asset)));
    context
}

/// In which order the sealings of an object are tried: that of the key that is wanted, then the newest first.
#[must_use]
pub fn newest_first<'s, 'a>(sealings: &'s [Sealing<'a>], wanted: &str) -> Vec<&'s Sealing<'a>> {
    let mut order: Vec<_> = sealings.iter().rev().collect();
    order.sort_by_key(|sealing| sealing.wrapped_by != wanted);
    order
}

/// Whether a key, rather than what it wrapped, is why a data key is not unwrapped: not ours to use, disabled, gone.
/// Another sealing of the same object may have a better one.
#[must_use]
pub fn is_of_key(error: &PortError) -> bool {
    match error.kind {
        ErrorKind::Denied | ErrorKind::Missing => true,
        ErrorKind::Transient | ErrorKind::Invalid => false,
    }
}

/// The text of a bundle of `role`, as a node opens it: with one call of KMS, as long as it may use the key under which the
/// bundle was sealed last.
///
/// While a cluster moves from one KMS key to another, a node whose stack was not updated yet may use the old one alone: it is
/// refused once, and opens what the bundle holds beside.
///
/// # Errors
/// If `sealed` is damaged, or another role's or cluster's; if KMS refuses every key that it is sealed under.
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

/// The private half of an asset, out of what the vault keeps under its fingerprint.
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
