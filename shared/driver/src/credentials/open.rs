//! How whoever receives a bundle opens it.

use super::vault::{context, is_of_key, newest_first, object_context};
use crate::ports::{Context, Crypto, Keys, PortResult, Secret};

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
