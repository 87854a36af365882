//! The public documents of a cluster's service account issuer, which are published before a token needs them.
//!
//! A key that is published early does no harm, because no token is signed with it yet. A missing key makes tokens unverifiable. So the
//! documents are published as soon as the credentials exist, whether or not the plan is approved.

use slipway_core::cluster::Cluster;
use slipway_core::release::Site;
use slipway_core::{keys, oidc};
use slipway_credentials::{Manifest, trust};
use slipway_ports::{Condition, Crypto, Objects, Put};

use crate::credentials;
use crate::error::{FlowError, FlowResult};
use crate::store::TRIES;

/// The documents of `cluster`'s issuer by their keys in the issuer bucket, in the order in which to write them; empty if the issuer is
/// not used.
///
/// # Errors
/// If a public key is lost, or not the one in the inventory.
pub async fn documents<A: Objects, C: Crypto>(
    assets: &A,
    crypto: &C,
    cluster: &Cluster,
    manifest: &Manifest,
    site: &Site,
) -> FlowResult<Vec<(String, Vec<u8>)>> {
    let enabled = cluster.iam_roles.as_ref().is_some_and(|roles| roles.enabled);
    let Some(issuer) = oidc::issuer(cluster, site).filter(|_| enabled) else { return Ok(Vec::new()) };
    let mut public_keys = Vec::new();
    for asset in trust::service_account_keys(manifest) {
        let pem = credentials::public_half(assets, crypto, &cluster.name, manifest, &asset).await?;
        public_keys.push(crypto.verification_key(&pem)?);
    }
    Ok(vec![
        (keys::jwks(&cluster.name), oidc::jwks(&public_keys)),
        (keys::discovery(&cluster.name), oidc::discovery(&issuer, &public_keys)),
    ])
}

/// Writes those of `documents` that are missing or different in the issuer bucket, and returns whether there were any.
///
/// # Errors
/// If the port fails, or others keep writing.
pub async fn publish(issuer: &impl Objects, documents: Vec<(String, Vec<u8>)>) -> FlowResult<bool> {
    let mut wrote = false;
    for (key, bytes) in documents {
        wrote |= bring(issuer, &key, bytes).await?;
    }
    Ok(wrote)
}

async fn bring(issuer: &impl Objects, key: &str, bytes: Vec<u8>) -> FlowResult<bool> {
    for _ in 0..TRIES {
        let condition = match issuer.get(key).await? {
            Some(object) if object.bytes == bytes => return Ok(false),
            Some(object) => Condition::Unchanged(object.etag),
            None => Condition::Absent,
        };
        if let Put::Written(_) = issuer.put(key, bytes.clone(), condition).await? {
            return Ok(true);
        }
    }
    Err(FlowError::Race { key: key.to_owned(), tries: TRIES })
}
