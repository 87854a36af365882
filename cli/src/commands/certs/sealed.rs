//! Opens what is sealed in a directory of ours, where its local.key is at hand: whether it opens, and what is in it.

use std::path::Path;

use slipway_core::digest::keyed_hex;
use slipway_core::pki::policy::DIGEST_KEY;
use slipway_core::pki::{Manifest, Role};
use slipway_driver::ports::{Objects as _, PortError, Secret};
use slipway_driver::{credentials, keys};
use slipway_pki::AwsLc;
use slipway_pki::verify::{File, Found};

use crate::failure::Failure;
use crate::local::{Folder, LocalKeys, Workspace};

/// Adds to `files` the private keys that lie sealed in `dir`, each beside its certificate; what does not open is told in the place
/// of its file. `false`: there is no key to open them with.
pub(super) async fn open(dir: &Path, files: &mut Vec<File>) -> Result<bool, Failure> {
    let workspace = Workspace::look(dir)?;
    let Some((cluster, folder)) = workspace.folder() else { return Ok(false) };
    let local = match LocalKeys::read(AwsLc, &workspace.key_file()) {
        Ok(Some(local)) => local,
        Ok(None) => return Ok(false),
        Err(failure) => {
            tell(files, "local.key".to_owned(), failure.to_string());
            return Ok(false);
        }
    };
    let Ok(Some(manifest)) = folder.get(&keys::manifest(cluster)).await else { return Ok(true) };
    // One that cannot be read is told by the survey.
    let Ok(manifest) = serde_json::from_slice::<Manifest>(&manifest.bytes) else { return Ok(true) };
    let mut digest_key = None;
    for (asset, entry) in manifest.assets.iter().filter(|(_, entry)| entry.has_private_half()) {
        let key = keys::private_half(cluster, asset, &entry.fingerprint);
        let opened = match read(&folder, &key).await {
            // What is not there is told by the survey.
            Ok(None) => continue,
            Ok(Some(sealed)) => {
                let of = (asset.as_str(), entry.fingerprint.as_str());
                credentials::open_private(&local, &AwsLc, cluster, of, &sealed).await.map_err(words)
            }
            Err(problem) => Err(problem),
        };
        match opened {
            Ok(secret) if asset == DIGEST_KEY => digest_key = Some(secret),
            Ok(secret) => {
                let path = relative(cluster, &key).replace(".sealed", "-key.pem");
                // Tokens and other secrets are no keys.
                if secret.expose().starts_with(b"-----BEGIN ") {
                    files.push(File { path, found: Found::Bytes(secret), mode: 0o600, link: false });
                }
            }
            Err(problem) => tell(files, relative(cluster, &key), problem),
        }
    }
    for (role, bundle) in &manifest.bundles {
        let key = keys::credentials(cluster, &role.to_string(), &bundle.digest);
        let problem =
            bundle_problem(&local, &folder, cluster, role, (&key, &bundle.digest), digest_key.as_ref()).await;
        if let Some(problem) = problem {
            tell(files, relative(cluster, &key), problem);
        }
    }
    Ok(true)
}

/// What is wrong with a role's bundle.
async fn bundle_problem(
    local: &LocalKeys<AwsLc>,
    folder: &Folder,
    cluster: &str,
    role: &Role,
    (key, digest): (&str, &str),
    digest_key: Option<&Secret>,
) -> Option<String> {
    let sealed = match read(folder, key).await {
        Ok(None) => return None,
        Ok(Some(sealed)) => sealed,
        Err(problem) => return Some(problem),
    };
    let plain = credentials::open(local, &AwsLc, cluster, &role.to_string(), &sealed).await;
    match plain {
        Err(error) => Some(words(error)),
        Ok(plain) => {
            let other = digest_key.is_some_and(|of| keyed_hex(of.expose(), plain.expose()) != digest);
            other.then(|| "it holds other credentials than its name says".to_owned())
        }
    }
}

async fn read(folder: &Folder, key: &str) -> Result<Option<Vec<u8>>, String> {
    folder.get(key).await.map(|object| object.map(|object| object.bytes)).map_err(words)
}

fn words(error: PortError) -> String {
    error.message
}

/// As the walk names it.
fn relative(cluster: &str, key: &str) -> String {
    key.strip_prefix(&format!("clusters/{cluster}/")).unwrap_or(key).to_owned()
}

fn tell(files: &mut Vec<File>, path: String, problem: String) {
    files.retain(|file| file.path != path);
    files.push(File { path, found: Found::Not(problem), mode: 0, link: false });
}
