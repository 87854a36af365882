//! The sealed bundle of this node's role: the copy on this machine, and the object that is stored now.
//!
//! A cluster may move to another KMS key. The stored object then gets a sealing under the new key, and the copies on machines that run do
//! not (docs/adr/0009). So if KMS denies the node the keys of its copy, it fetches the object again, under the same digest. The copy stays as it
//! is: a refresh may be replacing it.

use std::path::Path;

use slipway_core::keys;
use slipway_core::node::NodeFile;
use slipway_crypto::AwsLc;
use slipway_ports::sealed::{self, is_of_key, newest_first};
use slipway_ports::{Context, Crypto as _, DataKey, Keys as _, PortResult, Secret};

use crate::aws::Aws;
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::files;
use crate::node_files::SEALED;

/// Fetches the bundle with that digest.
pub(crate) async fn fetch(aws: &Aws, node: &NodeFile, digest: &str) -> AgentResult<Vec<u8>> {
    let key = keys::credentials(&node.cluster, &node.role, digest);
    let found = aws.bucket(&node.asset_bucket).get(&key).await?;
    found.ok_or_else(|| {
        AgentError::permanent(
            FailureCode::CredentialsMissing,
            format!("there is no s3://{}/{key}", node.asset_bucket),
            "render the cluster again, which seals what is missing, and refresh with the digest that its plan names",
        )
    })
}

/// Opens `copy`, this node's own bundle; or the stored one, if KMS denies every key of the copy.
pub(crate) async fn open_own(aws: &Aws, node: &NodeFile, copy: &[u8]) -> AgentResult<Secret> {
    let open =
        async |sealed: &[u8]| sealed::open(&aws.keys(None), &AwsLc, &node.cluster, &node.role, sealed).await;
    match open(copy).await {
        Err(denied) if is_of_key(&denied) => {
            let stored = fetch(aws, node, &node.credentials).await;
            let Ok(stored) = stored else { return Err(denied.into()) };
            Ok(open(&stored).await?)
        }
        opened => Ok(opened?),
    }
}

/// Whether this node's own credentials are sealed under that key, too: its copy, or the stored object, if the cluster has moved to another key.
pub(crate) async fn is_own_key(root: &Path, aws: &Aws, node: &NodeFile, key: &str) -> AgentResult<bool> {
    let sealed_under = |sealed: &[u8]| {
        AwsLc.sealings(sealed).is_ok_and(|all| all.iter().any(|sealing| sealing.wrapped_by == key))
    };
    if files::read(&below(root, SEALED))?.is_some_and(|copy| sealed_under(&copy)) {
        return Ok(true);
    }
    Ok(fetch(aws, node, &node.credentials).await.is_ok_and(|stored| sealed_under(&stored)))
}

/// A new data key under the KMS key that the node's role may use: the cluster's own, or the installation's. It is among the keys that sealed
/// this node's credentials, and usually sealed them last.
pub(crate) async fn data_key(
    root: &Path,
    aws: &Aws,
    node: &NodeFile,
    context: &Context,
) -> AgentResult<DataKey> {
    let path = below(root, SEALED);
    let copy = files::read(&path)?.ok_or_else(|| {
        AgentError::permanent(
            FailureCode::CredentialsMissing,
            format!("{} is missing", path.display()),
            "run the instance's user data, which fetches it",
        )
    })?;
    let denied = match generate(aws, &copy, context).await {
        Err(error) if is_of_key(&error) => error,
        generated => return Ok(generated?),
    };
    let Ok(stored) = fetch(aws, node, &node.credentials).await else { return Err(denied.into()) };
    Ok(generate(aws, &stored, context).await?)
}

/// A data key under the first key that `sealed` is sealed under and KMS allows, from the newest sealing to the oldest. If the cluster went back
/// to an earlier key, that is not the newest.
async fn generate(aws: &Aws, sealed: &[u8], context: &Context) -> PortResult<DataKey> {
    let sealings = AwsLc.sealings(sealed)?;
    let mut denied = None;
    for sealing in newest_first(&sealings, "") {
        match aws.keys(Some(sealing.wrapped_by.to_owned())).generate(None, context).await {
            Err(error) if is_of_key(&error) => _ = denied.get_or_insert(error),
            generated => return generated,
        }
    }
    Err(denied.expect("a sealed object holds a sealing"))
}
