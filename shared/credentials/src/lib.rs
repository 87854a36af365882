//! Which credentials a cluster has, their names, which authority signs them, and which roles receive them.
//!
//! These are decisions only: `slipway-crypto` makes keys and `slipway-flows` stores them. [`policy`] is the table of all credentials,
//! [`manifest`] compares it with the inventory, [`rotation`] exchanges authorities and signing keys, [`bootstrap`] derives tokens, [`renewal`] renews leaves, and
//! [`gc`] finds unused objects.

pub mod bootstrap;
pub mod gc;
pub mod manifest;
pub mod policy;
pub mod renewal;
pub mod rotation;
#[cfg(test)]
mod tests;
pub mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::cluster::{KeyAlgorithm, OwnSource};
use slipway_core::role::Role;

/// One credential that is made once and kept: a certificate with its key, a key pair, or a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asset {
    /// The name in the table of [`policy`]: `ca`, `apiserver`, `etcd-server-0`, `bootstrap-key`.
    pub name: String,
    /// What it is.
    pub kind: AssetKind,
    /// Who makes it.
    pub origin: Origin,
}

/// Who makes an asset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// Slipway.
    #[default]
    Generated,
    /// The user, who provides it with its key. Slipway issues certificates under it.
    Imported,
    /// The user, who also renews it. Slipway checks and distributes it.
    Provided,
}

impl From<OwnSource> for Origin {
    fn from(source: OwnSource) -> Self {
        match source {
            OwnSource::Imported => Self::Imported,
            OwnSource::Provided => Self::Provided,
        }
    }
}

impl Origin {
    fn is_generated(&self) -> bool {
        *self == Self::Generated
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generated => "generated",
            Self::Imported => "imported",
            Self::Provided => "provided",
        })
    }
}

/// What an [`Asset`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AssetKind {
    /// A certificate and the private key that belongs to it.
    Certificate(CertificateProfile),
    /// A key pair without a certificate (`service-account`).
    KeyPair(KeyAlgorithm),
    /// A random key of 32 bytes, in base64 (the encryption config's key, the digest key).
    RandomKey,
}

/// The content of a certificate, except for serial, dates and key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateProfile {
    /// The asset that signs it. `None`: it is self-signed.
    pub issuer: Option<String>,
    /// Whether it is an authority, which may sign leaves (`pathLenConstraint` 0).
    pub authority: bool,
    /// Subject CN.
    pub common_name: String,
    /// Subject O, in this order.
    pub organizations: Vec<String>,
    /// Extended key usage serverAuth.
    pub server: bool,
    /// Extended key usage clientAuth.
    pub client: bool,
    /// Subject alternative names: DNS names and addresses.
    pub sans: BTreeSet<String>,
    /// The algorithm of its key.
    pub algorithm: KeyAlgorithm,
    /// Days from not-before to not-after, not counting the backdating.
    pub days: u32,
}

/// `pki/manifest.json`: the inventory of a cluster's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// Version of this file's format.
    pub format: u32,
    /// The KMS key under which every private half in [`Self::assets`] is sealed, perhaps besides others.
    pub sealed_under: String,
    /// The existing assets, by name.
    pub assets: BTreeMap<String, Entry>,
    /// In inventories from before each role had a bootstrap token. It is read, and not written again.
    #[serde(default, skip_serializing, rename = "bootstrapTokens")]
    pub former_tokens: Option<String>,
    /// The bundle that each role receives.
    pub bundles: BTreeMap<Role, BundleEntry>,
    /// The digests of earlier bundles with the fingerprints in them, until `slipway certs gc` finds that nothing refers to them. A digest
    /// that is in use and not listed here was made after this version of the inventory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retired: BTreeMap<Role, BTreeMap<String, BTreeSet<String>>>,
    /// When the first leaf of a bundle expires, by role and digest, for current and earlier bundles. A machine with that bundle works
    /// until then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ends: BTreeMap<Role, BTreeMap<String, Timestamp>>,
    /// The rotations in progress, by asset. The second of the two that nodes trust meanwhile is among [`Self::assets`], under the name
    /// that [`trust::second_trusted_name`] returns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rotations: BTreeMap<String, rotation::Rotation>,
}

/// One asset in the [`Manifest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// SHA-256 of the certificate's DER, or of a key pair's public half, or the keyed digest of a secret. It names the stored objects
    /// `pki/<asset>/<fingerprint>.{pem,sealed}`.
    pub fingerprint: String,
    /// Digest of the names that it was made for ([`CertificateProfile`] without algorithm and days). If this changes, the asset is made
    /// anew.
    pub names: String,
    /// The certificate's content. `None`: a key pair or secret.
    pub certificate: Option<CertificateFacts>,
    /// The roles that receive the certificate or its key.
    pub roles: BTreeSet<Role>,
    /// Who makes it.
    #[serde(default, skip_serializing_if = "Origin::is_generated")]
    pub origin: Origin,
    /// For an imported authority: the certificates up to its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainFacts>,
}

impl Entry {
    /// Whether a private half is stored. An authority with origin `Provided` has none.
    #[must_use]
    pub fn has_private_half(&self) -> bool {
        !(self.origin == Origin::Provided && self.chain.is_some())
    }
}

/// The certificates from an imported authority up to its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChainFacts {
    /// SHA-256 of their PEM, starting with the authority's own certificate.
    pub sha256: String,
    /// How many of them, from the first, are not roots. Servers present these in addition to their own certificate.
    pub intermediates: usize,
}

/// The content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateFacts {
    /// Serial number in lower-case hex.
    pub serial: String,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// SHA-256 of the SubjectPublicKeyInfo, lower-case hex.
    pub spki_sha256: String,
    /// Fingerprint of the issuer's certificate. Empty if the certificate was only read, because it does not contain this.
    pub issuer_fingerprint: String,
}

/// The bundle of one role. The sealed bytes are authenticated. A bundle that was lost is sealed again to other bytes under the same
/// digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundleEntry {
    /// Keyed digest of the plaintext, as in the launch template.
    pub digest: String,
    /// The fingerprints in each file of the bundle, as [`manifest::bundle_files`] writes them. While they are unchanged the digest is
    /// too, and nothing is opened or sealed.
    pub files: BTreeMap<String, String>,
    /// The KMS key under which it was last sealed. Another key adds a sealing to the object and does not change the digest.
    pub sealed_under: String,
    /// The etag of the sealed object when it was last verified. An object with another etag is verified again.
    #[serde(default)]
    pub etag: String,
}
