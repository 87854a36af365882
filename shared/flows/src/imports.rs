//! Reads authorities and leaves that the user provides, from `import/` beside the spec. They are read when a cluster's credentials are
//! first made, checked, and not needed afterwards.
//!
//! All problems are collected and reported as findings about the spec; then nothing is made. An existing authority is never exchanged
//! here: that is a rotation, in stages. A provided leaf may be replaced by another one.
//!
//! A private key in the spec bucket must be encrypted with a passphrase, because that bucket is not for secrets (P9).

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::cluster::{Cluster, OwnAuthority, OwnSource};
use slipway_core::diagnostic::Severity;
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_credentials::manifest::{self, Brought};
use slipway_credentials::{Asset, CertificateProfile, Manifest, Origin, policy};
use slipway_ports::{
    BroughtAuthority, BroughtKey, Crypto, Flaw, Objects, Parameters, PortResult, Secret, SecretParameter,
    Signer,
};
use slipway_spec::Objection;

use crate::credentials::{self, Import, Imported};
use crate::error::FlowResult;

/// The largest file that is read. A chain has some 10 KiB.
pub const MOST_BYTES: u64 = 256 * 1024;

/// A file that the user provides.
#[derive(Debug)]
pub struct ImportFile {
    /// Its bytes.
    pub bytes: Secret,
    /// Why an unencrypted private key is not allowed in it, and what to do. `None`: it is allowed.
    pub exposed: Option<Flaw>,
}

/// The result of looking for a passphrase.
#[derive(Debug)]
pub enum Passphrase {
    /// The passphrase.
    Known(Secret),
    /// There is none, with the reason.
    None(Flaw),
}

/// The files of `import/`, and the passphrases of their keys.
pub trait Imports: Send + Sync {
    /// The file of that name; `None` if it does not exist. `s3:GetObject`.
    fn file(&self, name: &str) -> impl Future<Output = PortResult<Option<ImportFile>>> + Send;
    /// The passphrase of the keys that belong to the authority `name`. `ssm:GetParameter`.
    fn passphrase(
        &self,
        name: &str,
        own: &OwnAuthority,
    ) -> impl Future<Output = PortResult<Passphrase>> + Send;
}

/// `import/` in the spec bucket, and passphrases in SSM.
#[derive(Debug)]
pub struct BucketImports<'a, S, P> {
    /// The cluster whose folder it is.
    pub cluster: &'a str,
    /// The spec bucket.
    pub specs: &'a S,
    /// SSM.
    pub parameters: &'a P,
}

impl<S: Objects, P: Parameters> Imports for BucketImports<'_, S, P> {
    async fn file(&self, name: &str) -> PortResult<Option<ImportFile>> {
        let key = keys::import(self.cluster, name);
        let Some(head) = self.specs.head(&key).await? else { return Ok(None) };
        if head.size > MOST_BYTES {
            // It is too large to be a certificate or key, so it is not read.
            return Ok(Some(ImportFile { bytes: Secret::new(Vec::new()), exposed: None }));
        }
        let object = self.specs.get(&key).await?;
        Ok(object.map(|object| ImportFile {
            bytes: Secret::new(object.bytes),
            exposed: Some(Flaw {
                message: format!("the private key in import/{name} is not encrypted: everyone who may read the bucket can read it"),
                help: format!(
                    "delete it with all its versions, encrypt it with `openssl pkcs8 -topk8 -v2 aes-256-cbc -in {name} -out \
                     {name}.enc`, upload that as import/{name}, put the passphrase into an SSM SecureString and name it as \
                     passphraseParameter"
                ),
            }),
        }))
    }

    async fn passphrase(&self, _: &str, own: &OwnAuthority) -> PortResult<Passphrase> {
        let none = |message: String, help: String| Ok(Passphrase::None(Flaw { message, help }));
        let example = format!("/slipway/{}/ca-passphrase", self.cluster);
        let Some(name) = &own.passphrase_parameter else {
            return none(
                "its key is encrypted, and no passphraseParameter is named".to_owned(),
                format!(
                    "store the passphrase in an SSM SecureString such as `{example}`, and name that parameter here"
                ),
            );
        };
        match self.parameters.secret(name).await? {
            SecretParameter::Secret(text) => Ok(Passphrase::Known(trimmed(&text))),
            SecretParameter::Missing => none(
                format!("there is no SSM parameter {name} in the installation's region"),
                format!("create it: `aws ssm put-parameter --type SecureString --name {name} --value …`"),
            ),
            SecretParameter::Plain => none(
                format!(
                    "the SSM parameter {name} is not a SecureString, so the passphrase is stored unencrypted"
                ),
                "delete it, choose another passphrase for the key, and make the parameter a SecureString"
                    .to_owned(),
            ),
        }
    }
}

/// `text` without the final line break that editors and shells add.
#[must_use]
pub fn trimmed(text: &Secret) -> Secret {
    let bytes = text.expose();
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    Secret::new(bytes[..end].to_vec())
}

/// Reads the assets that `cluster` says are provided and that `manifest` does not have yet. If there are objections, nothing of it may be
/// used.
///
/// # Errors
/// If a call fails.
pub async fn read<I: Imports, O: Objects, C: Crypto>(
    imports: &I,
    assets: &O,
    crypto: &C,
    cluster: &Cluster,
    manifest: &Manifest,
    now: Timestamp,
) -> FlowResult<(Imported, Vec<Objection>)> {
    let (imported, found, keys) = (Imported::new(), Vec::new(), BTreeMap::new());
    let mut reading = Reading { imports, assets, crypto, cluster, manifest, now, imported, found, keys };
    reading.no_longer_brought();
    let assets = policy::assets(cluster);
    for (name, own) in &cluster.certificates.authorities {
        let Some(authority) = reading.authority(name, own).await? else { continue };
        for asset in assets.iter().filter(|asset| asset.origin == Origin::Provided) {
            if manifest::profile(asset).is_some_and(|profile| profile.issuer.as_ref() == Some(name)) {
                reading.leaf(asset, own, &authority).await?;
            }
        }
    }
    reading.one_key_a_name();
    Ok((reading.imported, reading.found))
}

struct Reading<'a, I, O, C> {
    imports: &'a I,
    /// The asset bucket.
    assets: &'a O,
    crypto: &'a C,
    cluster: &'a Cluster,
    manifest: &'a Manifest,
    now: Timestamp,
    imported: Imported,
    found: Vec<Objection>,
    /// The public keys read so far, with the files that contain them.
    keys: BTreeMap<String, Vec<String>>,
}

impl<I: Imports, O: Objects, C: Crypto> Reading<'_, I, O, C> {
    /// Adds an objection to `file`, which is named by the key `key` of the authority `name`.
    fn object(&mut self, code: &'static str, name: &str, key: &str, file: &str, flaw: Flaw) {
        let root = format!("certificatesConfiguration.authorities.{name}");
        let message = if file.is_empty() { flaw.message } else { format!("import/{file}: {}", flaw.message) };
        self.found.push(Objection {
            severity: Severity::Error,
            code,
            paths: vec![format!("{root}.{key}"), format!("{root}.source"), root],
            message,
            help: flaw.help,
        });
    }

    /// Objects if an existing authority was provided and the spec now asks for a generated one.
    fn no_longer_brought(&mut self) {
        let authorities =
            policy::assets(self.cluster).into_iter().filter(|asset| asset.origin == Origin::Generated);
        let authorities =
            authorities.filter(|asset| manifest::profile(asset).is_some_and(|profile| profile.authority));
        for asset in authorities {
            let origin = self.manifest.assets.get(&asset.name).map(|entry| entry.origin);
            if origin.is_some_and(|origin| origin != Origin::Generated) {
                self.exchanged(&asset.name);
            }
        }
    }

    /// Objects if the origin of an existing authority is not the one in the spec.
    fn exchanged(&mut self, name: &str) {
        let origin = self.manifest.assets.get(name).map(|entry| entry.origin).unwrap_or_default();
        let flaw = Flaw {
            message: format!("the cluster has the authority {name} already, and it is {origin}"),
            help: format!(
                "write `source: {origin}`: the authority of a running cluster cannot be replaced by one from another source"
            ),
        };
        self.object("import-rotation", name, "source", "", flaw);
    }

    /// An authority that is valid, as read or as it exists. `None`: it is not, and its leaves need not be checked.
    async fn authority(&mut self, name: &str, own: &OwnAuthority) -> FlowResult<Option<BroughtAuthority>> {
        let wanted_origin = Origin::from(own.source);
        let stands = self.manifest.assets.get(name);
        if stands.is_some_and(|entry| entry.origin != wanted_origin) {
            self.exchanged(name);
            return Ok(None);
        }
        let Some(file) = self.imports.file(&own.certificate).await? else {
            if stands.is_some() {
                return self.kept(name, own.source).await;
            }
            let flaw = Flaw {
                message: format!("the certificate of {name} does not exist"),
                help: format!(
                    "put it at import/{} beside the spec, then upload the spec again",
                    own.certificate
                ),
            };
            self.object("import-missing", name, "certificate", &own.certificate, flaw);
            return Ok(None);
        };
        // An existing authority is only compared: its expiry is checked by the scan.
        let now = stands.is_none().then_some(self.now);
        let authority = match self.crypto.brought_authority(&file.bytes, now) {
            Ok(authority) => authority,
            Err(flaws) => {
                for flaw in flaws {
                    self.object("import-certificate", name, "certificate", &own.certificate, flaw);
                }
                return Ok(None);
            }
        };
        let (facts, fingerprint) = self.crypto.facts(&authority.certificate)?;
        if let Some(entry) = stands {
            let same = entry.fingerprint == fingerprint
                && entry
                    .chain
                    .as_ref()
                    .is_some_and(|chain| chain.sha256 == sha256_hex(authority.chain.as_bytes()));
            if !same {
                let flaw = Flaw {
                    message: format!("it differs from the certificate of {name} that the cluster uses, which was {}", entry.origin),
                    help: "restore the old file, or delete it, because it is not needed any more. This version of Slipway rotates only authorities that it created".to_owned(),
                };
                self.object("import-rotation", name, "certificate", &own.certificate, flaw);
                return Ok(None);
            }
            return Ok(Some(authority));
        }
        self.outlives(name, authority.ends);
        let key = match own.source {
            OwnSource::Provided => None,
            OwnSource::Imported => self.key(name, own, "key", &own.key, &authority.spki_sha256).await?,
        };
        if let Some(key) = &key {
            self.signs(name, own, &authority, key);
        }
        self.keys.entry(authority.spki_sha256.clone()).or_default().push(own.certificate.clone());
        let import = Import {
            certificate: authority.certificate.clone(),
            authority: Some(authority.clone()),
            key,
            facts: Brought { fingerprint, not_after: facts.not_after },
        };
        self.imported.insert(name.to_owned(), import);
        Ok(Some(authority))
    }

    /// An existing authority as stored, to check leaves that are provided from now on.
    async fn kept(&self, name: &str, source: OwnSource) -> FlowResult<Option<BroughtAuthority>> {
        if source == OwnSource::Imported {
            return Ok(None);
        }
        let chain = credentials::chain(self.assets, &self.cluster.name, self.manifest, name).await?;
        Ok(self.crypto.brought_authority(&Secret::new(chain.into_bytes()), None).ok())
    }

    /// Objects if leaves that Slipway issues would outlive the authority `name`.
    fn outlives(&mut self, name: &str, end: Timestamp) {
        let days = self.cluster.certificates.leaf_days;
        let signs = policy::assets(self.cluster).iter().any(|asset| {
            asset.origin == Origin::Generated
                && manifest::profile(asset).is_some_and(|profile| profile.issuer.as_deref() == Some(name))
        });
        if !signs || manifest::not_after(self.now, days).is_some_and(|last| last <= end) {
            return;
        }
        let days_left = (end.as_second() - self.now.as_second()).max(0) / 86_400;
        self.found.push(Objection {
            severity: Severity::Error,
            code: "import-certificate",
            paths: vec![
                "tlsCertDurationDays".to_owned(),
                format!("certificatesConfiguration.authorities.{name}"),
            ],
            message: format!(
                "certificates of {days} days would outlive the authority {name}, which ends {end}"
            ),
            help: match days_left {
                0 => "provide an authority that is valid for longer".to_owned(),
                days_left => format!(
                    "write `tlsCertDurationDays: {days_left}` at most, or provide an authority that is valid for longer"
                ),
            },
        });
    }

    /// Objects if nothing can be issued under an authority although it is valid, for example because its name has an attribute twice. A
    /// certificate for one day is issued as a test and discarded.
    fn signs(&mut self, name: &str, own: &OwnAuthority, authority: &BroughtAuthority, key: &Secret) {
        let assets = policy::assets(self.cluster);
        let mut leaves = assets.iter().filter_map(manifest::profile);
        let Some(leaf) = leaves.find(|profile| profile.issuer.is_some()) else { return };
        let trial = CertificateProfile { days: 1, ..leaf.clone() };
        let signer = Signer { certificate: authority.certificate.clone(), key: key.clone() };
        if let Err(error) = self.crypto.certify(&trial, key, Some(&signer), self.now) {
            let flaw = Flaw {
                message: format!("nothing can be issued under it: {}", error.message),
                help: "provide an authority whose subject has each attribute (O, OU, CN) at most once"
                    .to_owned(),
            };
            self.object("import-certificate", name, "certificate", &own.certificate, flaw);
        }
    }

    /// The key in `file`, if it belongs to the certificate with that public key.
    async fn key(
        &mut self,
        name: &str,
        own: &OwnAuthority,
        path: &str,
        file: &str,
        spki: &str,
    ) -> FlowResult<Option<Secret>> {
        let Some(found) = self.imports.file(file).await? else {
            let flaw = Flaw {
                message: "the private key does not exist".to_owned(),
                help: format!(
                    "put it at import/{file} beside the spec, encrypted with a passphrase, then upload the spec again"
                ),
            };
            self.object("import-missing", name, path, file, flaw);
            return Ok(None);
        };
        let locked = self.crypto.is_locked(&found.bytes);
        let read = if locked {
            match self.imports.passphrase(name, own).await? {
                Passphrase::Known(passphrase) => self.crypto.brought_key(&found.bytes, Some(&passphrase)),
                Passphrase::None(flaw) => {
                    self.object("import-passphrase", name, "passphraseParameter", file, flaw);
                    return Ok(None);
                }
            }
        } else {
            self.crypto.brought_key(&found.bytes, None)
        };
        match (read, found.exposed.filter(|_| !locked)) {
            (Ok(_), Some(flaw)) => self.object("import-plain-key", name, path, "", flaw),
            (Ok(BroughtKey { pem, spki_sha256 }), None) if spki_sha256 == spki => return Ok(Some(pem)),
            (Ok(_), None) => {
                let flaw = Flaw {
                    message: "this is not the key of the certificate beside it".to_owned(),
                    help: "compare them: `openssl pkey -in KEY -pubout` and `openssl x509 -in CERTIFICATE -noout -pubkey` must print the same".to_owned(),
                };
                self.object("import-key", name, path, file, flaw);
            }
            (Err(flaw), _) => self.object("import-key", name, path, file, flaw),
        }
        Ok(None)
    }

    /// A leaf that the owner of the authority issued.
    async fn leaf(
        &mut self,
        asset: &Asset,
        own: &OwnAuthority,
        authority: &BroughtAuthority,
    ) -> FlowResult<()> {
        let Some(profile) = manifest::profile(asset) else { return Ok(()) };
        let issuer = profile.issuer.clone().unwrap_or_default();
        let (file, key_file) = policy::import_files(&asset.name);
        let stands = self.manifest.assets.get(&asset.name);
        let stands_as_asked = stands.is_some_and(|entry| entry.names == manifest::names(&asset.kind));
        let Some(found) = self.imports.file(&file).await? else {
            if !stands_as_asked {
                let mut purposes = Vec::new();
                purposes.extend(profile.server.then_some("serverAuth"));
                purposes.extend(profile.client.then_some("clientAuth"));
                let names: Vec<&str> = profile.sans.iter().map(String::as_str).collect();
                let names = if names.is_empty() {
                    String::new()
                } else {
                    format!(", the names {}", names.join(", "))
                };
                let organizations: String =
                    profile.organizations.iter().map(|name| format!(", O={name}")).collect();
                let flaw = Flaw {
                    message: format!(
                        "the certificate {} is not there, and {issuer} is provided without its key",
                        asset.name
                    ),
                    help: format!(
                        "have it issued for CN={}{organizations}{names}, for {}; its key belongs at import/{key_file}",
                        profile.common_name,
                        purposes.join(" and ")
                    ),
                };
                self.object("import-missing", &issuer, "source", &file, flaw);
            }
            return Ok(());
        };
        // An existing leaf with unchanged requirements is only compared.
        let read = self.crypto.brought_leaf(&found.bytes, profile, authority, self.now);
        let certificate = match read {
            Ok(certificate) => certificate,
            Err(flaws) => {
                let known = stands.filter(|_| stands_as_asked).is_some_and(|entry| {
                    std::str::from_utf8(found.bytes.expose()).is_ok_and(|text| {
                        self.crypto.facts(text).is_ok_and(|(_, fingerprint)| fingerprint == entry.fingerprint)
                    })
                });
                if !known {
                    for flaw in flaws {
                        self.object("import-certificate", &issuer, "source", &file, flaw);
                    }
                }
                return Ok(());
            }
        };
        let (facts, fingerprint) = self.crypto.facts(&certificate)?;
        if stands_as_asked && stands.is_some_and(|entry| entry.fingerprint == fingerprint) {
            return Ok(());
        }
        self.keys.entry(facts.spki_sha256.clone()).or_default().push(file);
        let key = self.key(&issuer, own, "source", &key_file, &facts.spki_sha256).await?;
        let facts = Brought { fingerprint, not_after: facts.not_after };
        self.imported.insert(asset.name.clone(), Import { certificate, authority: None, key, facts });
        Ok(())
    }

    /// Checks that no two certificates share a private key (P9): the holder of one could otherwise act as the other.
    fn one_key_a_name(&mut self) {
        for (spki, mut files) in std::mem::take(&mut self.keys) {
            let known = self.manifest.assets.iter().filter(|(name, _)| !self.imported.contains_key(*name));
            let known = known.filter(|(_, entry)| {
                entry.certificate.as_ref().is_some_and(|facts| facts.spki_sha256 == spki)
            });
            files.extend(known.map(|(name, _)| format!("the cluster's {name}")));
            if files.len() < 2 {
                continue;
            }
            self.found.push(Objection {
                severity: Severity::Error,
                code: "import-key",
                paths: vec!["certificatesConfiguration.authorities".to_owned()],
                message: format!("{} have the same private key", files.join(" and ")),
                help:
                    "create a separate key for each certificate: whoever has a shared key can act as all of them"
                        .to_owned(),
            });
        }
    }
}
