//! The content of a folder of certificates and keys, and its problems.
//!
//! This module is pure: the caller reads the [`File`]s and knows the time. [`survey`] reads any files, and recognizes the tool that made
//! the folder: Slipway, kubeadm or kube-aws. [`Survey::verify`] reports all problems at once.

mod check;
mod facts;
mod files;
mod layout;
mod stored;
mod together;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use slipway_core::cluster::Cluster;
use slipway_core::role::Role;
use slipway_credentials::Manifest;

pub use facts::{Extended, Facts, KeyType, Signature, Usage};
pub use files::{Certificate, File, FileContent, KeyFile, OtherFile};
pub use layout::Layout;

use layout::Expectations;
use stored::Stored;

/// A problem of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The severity. A warning is a finding, too.
    pub severity: Severity,
    /// The kind of the problem: `expired`, `twin`, ….
    pub code: &'static str,
    /// The file.
    pub file: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// The severity of a [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Some program refuses the file, or should refuse it.
    Error,
    /// The file works, but not for long, or should not be used.
    Warning,
}

impl Finding {
    fn new(file: &str, code: &'static str, message: String, help: String) -> Self {
        Self { severity: Severity::Error, code, file: file.to_owned(), message, help }
    }

    fn warning(file: &str, code: &'static str, message: String, help: String) -> Self {
        Self { severity: Severity::Warning, ..Self::new(file, code, message, help) }
    }
}

/// The content of a folder.
#[derive(Debug)]
pub struct Survey {
    /// The tool that made the folder.
    pub layout: Layout,
    /// Every certificate, by its file.
    pub certificates: Vec<Certificate>,
    /// Every key, by its file.
    pub keys: Vec<KeyFile>,
    /// Every other file.
    pub others: Vec<OtherFile>,
    /// Files that could not be read, or that too many users can read.
    pub findings: Vec<Finding>,
    /// The inventory of a folder that Slipway made.
    pub manifest: Option<Manifest>,
    /// The path of the inventory.
    inventory: String,
    stored: Stored,
    root: String,
}

/// Names that share one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Twins {
    /// SHA-256 of the public key.
    pub spki_sha256: String,
    /// The names of the certificates and keys.
    pub names: Vec<String>,
}

/// Reads files. No content makes it fail.
#[must_use]
pub fn read_files(files: &[File]) -> Survey {
    let mut sorted = files::Sorted::default();
    let stored = Stored::from_files(files);
    let (manifest, inventory) = inventory(files, &stored, &mut sorted.findings);
    for file in files {
        sorted.take(file);
    }
    sorted.certificates.sort_by(|a, b| (&a.file, a.place).cmp(&(&b.file, b.place)));
    sorted.keys.sort_by(|a, b| a.file.cmp(&b.file));
    if let Some(manifest) = &manifest {
        sorted.others.extend(stored::beside(manifest, &sorted.certificates));
    }
    sorted.others.sort_by(|a, b| a.file.cmp(&b.file));
    let names: BTreeSet<&str> = sorted.certificates.iter().map(|one| one.name.as_str()).collect();
    let keys = sorted.keys.iter().map(|key| key.name.as_str());
    let (layout, root) = Layout::recognize(&names.into_iter().chain(keys).collect(), manifest.is_some());
    Survey {
        layout,
        certificates: sorted.certificates,
        keys: sorted.keys,
        others: sorted.others,
        findings: sorted.findings,
        manifest,
        inventory,
        stored,
        root,
    }
}

/// Reads one certificate in DER and reports the problems that show without other files. `at`: the time against which its dates are checked,
/// and the number of days before its expiry at which that is reported.
///
/// # Errors
/// If it is not a certificate. The message is for people.
pub fn verify_single(
    file: &str,
    der: &[u8],
    at: Option<(Timestamp, u32)>,
) -> Result<(Certificate, Vec<Finding>), String> {
    let facts = Facts::read(der)?;
    let certificate =
        Certificate { file: file.to_owned(), place: 0, name: files::name_of(file), facts, link: false };
    let mut findings = Vec::new();
    check::check_certificate(&certificate, None, at, &mut findings);
    Ok((certificate, findings))
}

/// The bytes of a certificate in PEM.
///
/// # Errors
/// If it is not a certificate. The message is for people.
pub fn der(pem: &str) -> Result<Vec<u8>, String> {
    crate::armor::decode(&["CERTIFICATE"], pem).map(|mut der| std::mem::take(&mut *der))
}

/// Slipway's inventory and its path. Other folders may also have a `manifest.json`: Slipway's can be read as an inventory, or is beside
/// files that are named like Slipway's.
fn inventory(files: &[File], stored: &Stored, findings: &mut Vec<Finding>) -> (Option<Manifest>, String) {
    let help = || "bring the file back, or an earlier version of it".to_owned();
    let (mut problems, mut unread) = (Vec::new(), false);
    for file in files {
        let Some(folder) = file.path.strip_suffix("manifest.json") else { continue };
        if !folder.is_empty() && folder != "pki/" && !folder.ends_with("/pki/") {
            continue;
        }
        let bytes = match &file.found {
            FileContent::Bytes(bytes) => bytes.expose(),
            // Every file that cannot be read is reported elsewhere.
            FileContent::Unreadable(_) => {
                unread = true;
                continue;
            }
        };
        let says = serde_json::from_slice::<serde_json::Value>(bytes).unwrap_or_default();
        let ours = says.get("format").is_some() && says.get("assets").is_some();
        if !ours && !stored.named_as_ours(folder) {
            continue;
        }
        match serde_json::from_slice(bytes) {
            Ok(manifest) => return (Some(manifest), file.path.clone()),
            Err(problem) => {
                let message = format!("the inventory cannot be read: {problem}");
                problems.push(Finding::new(&file.path, "inventory", message, help()));
            }
        }
    }
    if problems.is_empty()
        && !unread
        && let Some(path) = stored.lacks_inventory()
    {
        let message = "this folder contains credentials but no inventory (pki/manifest.json)".to_owned();
        problems.push(Finding::new(&path, "inventory", message, help()));
    }
    findings.extend(problems);
    (None, String::new())
}

impl Survey {
    /// The name that people use for a certificate: in a folder of Slipway its asset, elsewhere its path without the ending.
    #[must_use]
    pub fn name_of(&self, certificate: &Certificate) -> String {
        let name = certificate.name.as_str();
        let short = match self.layout {
            // While one authority replaces another, both are trusted, and the inventory has a name for each.
            Layout::Slipway => match &self.manifest {
                Some(manifest) if self.is_current(certificate) => {
                    layout::entry(manifest, certificate).map_or(name, |(asset, _)| asset)
                }
                Some(_) | None => name.rsplit('/').nth(1).unwrap_or(name),
            },
            Layout::SlipwayNode | Layout::Kubeadm | Layout::KubeAws | Layout::Unknown => self.short(name),
        };
        if certificate.place > 0 { format!("{short} ({})", certificate.place) } else { short.to_owned() }
    }

    /// A name without the folder that all names share.
    fn short<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix(&self.root).unwrap_or(name)
    }

    /// Whether the certificate is in use. A folder of Slipway also keeps earlier ones.
    #[must_use]
    pub fn is_current(&self, certificate: &Certificate) -> bool {
        let Some(manifest) = &self.manifest else { return true };
        // The certificates above an imported authority are in a file with the authority's name.
        let above = |fingerprint: &str| {
            let last = certificate.name.rsplit('/').next().unwrap_or_default();
            last.strip_suffix(".chain") == Some(fingerprint)
        };
        layout::entry(manifest, certificate).is_some_and(|(_, entry)| {
            entry.fingerprint == certificate.facts.fingerprint || above(&entry.fingerprint)
        })
    }

    /// The roles that receive it, according to the inventory.
    #[must_use]
    pub fn roles_of(&self, certificate: &Certificate) -> Vec<Role> {
        let entry = self.manifest.as_ref().filter(|_| self.is_current(certificate));
        let entry = entry.and_then(|manifest| layout::entry(manifest, certificate));
        entry.map(|(_, entry)| entry.roles.iter().cloned().collect()).unwrap_or_default()
    }

    /// All problems at `now`. A certificate is reported from `soon_days` before its expiry. With a spec, the names that the spec requires
    /// must be there.
    #[must_use]
    pub fn verify(&self, cluster: Option<&Cluster>, now: Timestamp, soon_days: u32) -> Vec<Finding> {
        let expectations = Expectations::new(self.layout, &self.root, cluster);
        let mut findings = self.findings.clone();
        let current: Vec<&Certificate> =
            self.certificates.iter().filter(|certificate| self.is_current(certificate)).collect();
        for certificate in &current {
            let expected = expectations.expected_for(certificate);
            check::check_certificate(certificate, expected.as_ref(), Some((now, soon_days)), &mut findings);
        }
        together::chains(self, &current, &expectations, &mut findings);
        together::keys(self, &current, &expectations, &mut findings);
        together::serials(&current, &mut findings);
        together::inventory(self, &expectations, &mut findings);
        if let Some(manifest) = &self.manifest {
            self.stored.check(manifest, &self.inventory, &self.keys, &mut findings);
        }
        for twins in self.twins() {
            let message = format!("ONE KEY, SEVERAL NAMES: {}", twins.names.join(", "));
            let help = "a holder of one of these keys can act as all of these names: issue each certificate again with its own key";
            let file = self.file_of_key(&twins.spki_sha256);
            findings.push(Finding::new(&file, "twin", message, help.to_owned()));
        }
        findings.sort_by(|a, b| {
            (&a.file, a.severity, a.code, &a.message).cmp(&(&b.file, b.severity, b.code, &b.message))
        });
        findings.dedup();
        findings
    }

    /// Keys that belong to more than one name. A renewed authority with the same name and key does not count, nor does a copy of a
    /// certificate.
    #[must_use]
    pub fn twins(&self) -> Vec<Twins> {
        together::twins(self)
    }

    fn file_of_key(&self, spki: &str) -> String {
        let result_of = |embedded: bool| {
            let mut certificates = self.certificates.iter();
            certificates.find(|one| one.facts.spki_sha256 == spki && one.name.contains('#') == embedded)
        };
        let certificate = result_of(false).or_else(|| result_of(true)).map(|one| one.file.clone());
        let key = || self.keys.iter().find(|key| key.spki_sha256.as_deref() == Some(spki));
        certificate.or_else(|| key().map(|key| key.file.clone())).unwrap_or_default()
    }
}
