//! Opens sealed objects with the key of their place, to check whether they open and what they contain.

use std::path::Path;

use slipway_core::digest::keyed_hex;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::Manifest;
use slipway_credentials::policy::DIGEST_KEY;
use slipway_crypto::AwsLc;
use slipway_crypto::verify::{File, FileContent};
use slipway_flows::error::FlowError;
use slipway_ports::{ErrorKind, Keys, Objects, PortError, Secret};

use crate::failure::CliError;
use crate::local::{LocalKeys, Workspace};

/// As [`open`], for a directory of `slipway render` with its local.key. `false`: there is no key.
pub(super) async fn open_folder(dir: &Path, files: &mut Vec<File>) -> Result<bool, CliError> {
    let workspace = Workspace::open_read_only(dir)?;
    let Some((cluster, folder)) = workspace.folder() else { return Ok(false) };
    let local = match LocalKeys::read(AwsLc, &workspace.key_file()) {
        Ok(Some(local)) => local,
        Ok(None) => return Ok(false),
        Err(failure) => {
            replace_with_problem(files, "local.key".to_owned(), failure.to_string());
            return Ok(false);
        }
    };
    open(&folder, &local, cluster, files).await?;
    Ok(true)
}

/// Adds the sealed private keys of a cluster's folder to `files`, each beside its certificate. A key that cannot be opened is reported
/// instead.
pub(super) async fn open<O: Objects, K: Keys>(
    objects: &O,
    keys: &K,
    cluster: &str,
    files: &mut Vec<File>,
) -> Result<(), FlowError> {
    let Ok(Some(manifest)) = objects.get(&keys::manifest(cluster)).await else { return Ok(()) };
    // The survey reports an inventory that cannot be read.
    let Ok(manifest) = serde_json::from_slice::<Manifest>(&manifest.bytes) else { return Ok(()) };
    let mut digest_key = None;
    for (asset, entry) in manifest.assets.iter().filter(|(_, entry)| entry.has_private_half()) {
        let key = keys::private_half(cluster, asset, &entry.fingerprint);
        let opened = match read(objects, &key).await {
            // The survey reports a missing object.
            Ok(None) => continue,
            Ok(Some(sealed)) => {
                let identity = (asset.as_str(), entry.fingerprint.as_str());
                problem(slipway_ports::sealed::open_private(keys, &AwsLc, cluster, identity, &sealed).await)?
            }
            Err(problem) => Err(problem),
        };
        match opened {
            Ok(secret) if asset == DIGEST_KEY => digest_key = Some(secret),
            Ok(secret) => {
                let path = relative(cluster, &key).replace(".sealed", "-key.pem");
                // Tokens and other secrets are no keys.
                if secret.expose().starts_with(b"-----BEGIN ") {
                    files.push(File { path, found: FileContent::Bytes(secret), mode: 0o600, link: false });
                }
            }
            Err(problem) => replace_with_problem(files, relative(cluster, &key), problem),
        }
    }
    for (role, bundle) in &manifest.bundles {
        let key = keys::credentials(cluster, &role.to_string(), &bundle.digest);
        let identity = (key.as_str(), bundle.digest.as_str());
        if let Some(problem) =
            bundle_problem(objects, keys, cluster, role, identity, digest_key.as_ref()).await?
        {
            replace_with_problem(files, relative(cluster, &key), problem);
        }
    }
    Ok(())
}

/// What is wrong with a role's bundle.
async fn bundle_problem<O: Objects, K: Keys>(
    objects: &O,
    keys: &K,
    cluster: &str,
    role: &Role,
    (key, digest): (&str, &str),
    digest_key: Option<&Secret>,
) -> Result<Option<String>, PortError> {
    let sealed = match read(objects, key).await {
        Ok(None) => return Ok(None),
        Ok(Some(sealed)) => sealed,
        Err(problem) => return Ok(Some(problem)),
    };
    let plain =
        problem(slipway_ports::sealed::open(keys, &AwsLc, cluster, &role.to_string(), &sealed).await)?;
    Ok(match plain {
        Err(problem) => Some(problem),
        Ok(plain) => {
            let other = digest_key.is_some_and(|key| keyed_hex(key.expose(), plain.expose()) != digest);
            other.then(|| "it holds other credentials than its name says".to_owned())
        }
    })
}

/// An object that does not open is a finding. A denied or failed call is an error, because it would affect every object.
fn problem<T>(opened: Result<T, PortError>) -> Result<Result<T, String>, PortError> {
    match opened {
        Err(error) if matches!(error.kind, ErrorKind::Denied | ErrorKind::Transient) => Err(error),
        other => Ok(other.map_err(words)),
    }
}

async fn read(objects: &impl Objects, key: &str) -> Result<Option<Vec<u8>>, String> {
    objects.get(key).await.map(|object| object.map(|object| object.bytes)).map_err(words)
}

fn words(error: PortError) -> String {
    error.message
}

/// The path as the listing names it.
fn relative(cluster: &str, key: &str) -> String {
    key.strip_prefix(&format!("clusters/{cluster}/")).unwrap_or(key).to_owned()
}

fn replace_with_problem(files: &mut Vec<File>, path: String, problem: String) {
    files.retain(|file| file.path != path);
    files.push(File { path, found: FileContent::Unreadable(problem), mode: 0, link: false });
}
