//! Whether the folder has all files that the inventory names, and whether they are whole, as far as that can be checked without a key.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::KeyAlgorithm;
use slipway_core::digest::sha256_hex;
use slipway_core::page::clean;
use slipway_credentials::{AssetKind, Manifest, manifest};

use super::files::{Certificate, File, FileContent, KeyFile, OtherFile, sealed};
use super::{Finding, layout};
use crate::seal;

/// The files of Slipway's own layout other than certificates and keys.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Every file, whatever its content.
    paths: BTreeSet<String>,
    /// Sealed files that cannot be parsed, and why.
    broken: BTreeMap<String, String>,
    /// The digests of chains.
    chains: BTreeMap<String, String>,
}

impl Stored {
    pub(super) fn from_files(files: &[File]) -> Self {
        let mut stored = Self::default();
        for file in files {
            let path = clean(&file.path);
            stored.paths.insert(path.clone());
            let FileContent::Bytes(bytes) = &file.found else { continue };
            if path.ends_with(".chain.pem") {
                stored.chains.insert(path, sha256_hex(bytes.expose()));
            } else if sealed(&path)
                && let Err(error) = seal::sealings(bytes.expose())
            {
                stored.broken.insert(path, error.message);
            }
        }
        stored
    }

    /// Whether the files in `folder` are named like Slipway's: `<asset>/<fingerprint>.sealed`.
    pub(super) fn named_as_ours(&self, folder: &str) -> bool {
        self.paths.iter().filter_map(|path| path.strip_prefix(folder)).any(is_ours)
    }

    /// The path of the missing inventory, if the files are named like Slipway's.
    pub(super) fn lacks_inventory(&self) -> Option<String> {
        let folder = |path: &String| {
            let (above, _) = path.match_indices("pki/").find(|(at, found)| {
                (*at == 0 || path[..*at].ends_with('/')) && is_ours(&path[at + found.len()..])
            })?;
            Some(format!("{}pki/manifest.json", &path[..above]))
        };
        self.paths.iter().find_map(folder)
    }

    /// All files that `manifest` at the path `at` names and that are missing or damaged.
    pub(super) fn check(&self, manifest: &Manifest, at: &str, keys: &[KeyFile], findings: &mut Vec<Finding>) {
        let pki = at.strip_suffix("manifest.json").unwrap_or_default();
        for (asset, entry) in &manifest.assets {
            let folder = slipway_core::role::base(asset);
            let path = |ending: &str| format!("{pki}{folder}/{}{ending}", entry.fingerprint);
            let lost = |path: &str| !self.paths.contains(path);
            if entry.has_private_half() && lost(&path(".sealed")) {
                let what =
                    if entry.certificate.is_some() || is_pair(entry) { "private key" } else { "secret" };
                missing(&path(".sealed"), asset, what, findings);
            }
            if is_pair(entry) {
                self.public_key(&path(".pem"), asset, &entry.fingerprint, keys, findings);
            }
            let Some(chain) = &entry.chain else { continue };
            match self.chains.get(&path(".chain.pem")) {
                Some(found) if *found == chain.sha256 => {}
                Some(_) => {
                    let message = format!("it is not the chain that the inventory lists for {asset}");
                    findings.push(Finding::new(&path(".chain.pem"), "inventory", message, BACK.to_owned()));
                }
                None if lost(&path(".chain.pem")) => {
                    missing(&path(".chain.pem"), asset, "chain", findings);
                }
                None => {}
            }
        }
        // If the folder of the inventory itself was given, the bundles are outside of it.
        let base = pki.strip_suffix("pki/");
        for (role, bundle) in manifest.bundles.iter().filter(|_| base.is_some()) {
            let path = format!("{}bundles/{role}/credentials-{}", base.unwrap_or_default(), bundle.digest);
            if !self.paths.contains(&path) {
                let message = format!("the inventory lists the sealed bundle of {role}, which is not here");
                findings.push(Finding::new(&path, "inventory", message, SEALED_AGAIN.to_owned()));
            }
        }
        for (path, why) in &self.broken {
            let help = if path.ends_with(".sealed") { BACK } else { SEALED_AGAIN };
            findings.push(Finding::new(path, "damaged", format!("it is {why}"), help.to_owned()));
        }
    }

    fn public_key(
        &self,
        path: &str,
        asset: &str,
        fingerprint: &str,
        keys: &[KeyFile],
        findings: &mut Vec<Finding>,
    ) {
        if !self.paths.contains(path) {
            missing(path, asset, "public key", findings);
            return;
        }
        let mut found = keys.iter().filter(|key| key.file == path);
        if found.any(|key| key.private || key.spki_sha256.as_deref() != Some(fingerprint)) {
            let message = format!("it is not the public key that the inventory lists for {asset}");
            findings.push(Finding::new(path, "inventory", message, BACK.to_owned()));
        }
    }
}

const BACK: &str = "bring the file back from where you keep a copy (in AWS the bucket keeps its last version); without it \
     nothing that needs it is rendered";
const SEALED_AGAIN: &str = "slipway render (in AWS, the next upload of the spec) seals it again, as long as the spec has its \
     role; otherwise bring the file back";

fn missing(path: &str, asset: &str, what: &str, findings: &mut Vec<Finding>) {
    let message = format!("the inventory lists {asset}, and its {what} is not here");
    findings.push(Finding::new(path, "inventory", message, BACK.to_owned()));
}

fn is_pair(entry: &slipway_credentials::Entry) -> bool {
    entry.names == manifest::names(&AssetKind::KeyPair(KeyAlgorithm::EcdsaP256))
}

/// Whether a path below `pki/` has the form of Slipway's.
fn is_ours(path: &str) -> bool {
    let Some((asset, name)) = path.split_once('/') else { return false };
    let named = name.strip_suffix(".sealed");
    let hex = |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    !asset.is_empty() && named.is_some_and(hex)
}

/// Certificates of Slipway's folder that are not in use any more, or that the inventory does not know. They are listed, but not checked.
pub(super) fn beside(manifest: &Manifest, certificates: &[Certificate]) -> Vec<OtherFile> {
    let mut found: Vec<OtherFile> = Vec::new();
    for certificate in certificates {
        let (what, known) = match layout::entry(manifest, certificate) {
            None => ("a certificate that the inventory does not know".to_owned(), false),
            Some((asset, entry)) => {
                let named = certificate.name.rsplit('/').next().unwrap_or_default();
                // A certificate that differs from its file name is a finding.
                if certificate.name.ends_with(".chain")
                    || named != certificate.facts.fingerprint
                    || named == entry.fingerprint
                {
                    continue;
                }
                (format!("an earlier certificate of {asset}"), true)
            }
        };
        if !found.iter().any(|other| other.file == certificate.file) {
            found.push(OtherFile { file: certificate.file.clone(), what, known });
        }
    }
    found
}
