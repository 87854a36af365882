//! Which credentials a cluster has, what they are called, who signs them and who receives them (design §5).
//!
//! Policy alone: keys are made by `slipway-crypto`, kept by `slipway-flows`. [`policy`] is the table of design §5,
//! [`manifest`] compares it with what there is, [`rotation`] exchanges what others are known by, [`gc`] finds what of it nobody
//! needs any more.

pub mod gc;
pub mod manifest;
pub mod policy;
pub mod renewal;
pub mod rotation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::cluster::{KeyAlgorithm, OwnSource};
use slipway_core::role::Role;

/// One thing that is made once and kept: a certificate with its key, a key pair, or a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asset {
    /// The name in the table of design §5: `ca`, `apiserver`, `etcd-server-0`, `bootstrap-token`.
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
    /// Somebody else; it was brought with its key, and issues by Slipway's hand.
    Imported,
    /// Somebody else, who renews it, too: Slipway checks and distributes it.
    Provided,
}

impl Origin {
    /// As the spec says it.
    #[must_use]
    pub fn of(source: OwnSource) -> Self {
        match source {
            OwnSource::Imported => Self::Imported,
            OwnSource::Provided => Self::Provided,
        }
    }

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
    /// A kubelet bootstrap token, `[a-z0-9]{6}.[a-z0-9]{16}`.
    BootstrapToken,
    /// A random key of 32 bytes, in base64 (`encryption-config`'s key, the digest key).
    RandomKey,
}

/// What a certificate says. Serial, dates and key come from the issuer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateProfile {
    /// The asset that signs it; `None`: itself.
    pub issuer: Option<String>,
    /// May sign leaves (`pathLenConstraint` 0).
    pub authority: bool,
    /// Subject CN.
    pub common_name: String,
    /// Subject O, in this order.
    pub organizations: Vec<String>,
    /// EKU serverAuth.
    pub server: bool,
    /// EKU clientAuth.
    pub client: bool,
    /// Subject alternative names: DNS names and addresses.
    pub sans: BTreeSet<String>,
    /// The key.
    pub algorithm: KeyAlgorithm,
    /// Days from not-before to not-after, without the backdating.
    pub days: u32,
}

/// `pki/manifest.json`: the inventory of a cluster's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// Version of this file's format.
    pub format: u32,
    /// The KMS key under which every private half of [`Self::assets`] is sealed, if under others as well.
    pub sealed_under: String,
    /// What exists, by asset name.
    pub assets: BTreeMap<String, Entry>,
    /// The bundle that each role receives.
    pub bundles: BTreeMap<Role, BundleEntry>,
    /// The digests of earlier bundles, with the fingerprints behind them, until `slipway certs gc` finds that nobody refers
    /// to them. A digest that runs and is not known here was made after this inventory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retired: BTreeMap<Role, BTreeMap<String, BTreeSet<String>>>,
    /// When the first leaf in each of these bundles ends, by role and digest: of those that roles receive, and of earlier ones. It says until
    /// when a machine is good that was made for that digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ends: BTreeMap<Role, BTreeMap<String, Timestamp>>,
    /// What is being exchanged, by asset. The other one of the two that nodes know for a while is among [`Self::assets`], as
    /// [`rotation::beside`] calls it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rotations: BTreeMap<String, rotation::Rotation>,
}

/// One asset in the [`Manifest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// SHA-256 of the certificate's DER; of a key pair, of its public half; of a secret, a keyed digest. Names the
    /// stored objects `pki/<asset>/<fingerprint>.{pem,sealed}`.
    pub fingerprint: String,
    /// Digest of the names it was made for ([`CertificateProfile`] without algorithm and days): it is made anew
    /// when this changes.
    pub names: String,
    /// What a certificate says of itself; `None` for a key pair or secret.
    pub certificate: Option<CertificateFacts>,
    /// Who receives the certificate or its key.
    pub roles: BTreeSet<Role>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Origin::is_generated")]
    pub origin: Origin,
    /// Of an authority that was brought: the certificates that lead to its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainFacts>,
}

impl Entry {
    /// Whether a private key or secret is kept of it: an authority that is provided comes without.
    #[must_use]
    pub fn has_private_half(&self) -> bool {
        !(self.origin == Origin::Provided && self.chain.is_some())
    }
}

/// The certificates from an authority up to its root, as they were brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChainFacts {
    /// SHA-256 of their PEM, the authority's own first.
    pub sha256: String,
    /// How many of them, from the first, are no root: what a server presents besides its own certificate.
    pub intermediates: usize,
}

/// What is read from a certificate.
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
    /// Fingerprint of the issuer's certificate; empty where it was read from a certificate that somebody else
    /// signed, which does not say.
    pub issuer_fingerprint: String,
}

/// The bundle of one role. The sealed bytes authenticate themselves, and a bundle that was lost is sealed again to others
/// under the same digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundleEntry {
    /// Keyed digest of the plaintext: what the launch template carries.
    pub digest: String,
    /// The fingerprints behind each file of the bundle, as [`manifest::bundle_files`] writes them: while this is
    /// unchanged, so is the digest, and nothing is opened or sealed again.
    pub files: BTreeMap<String, String>,
    /// The KMS key under which it was sealed last. Another one adds a sealing to the object, and changes no digest.
    pub sealed_under: String,
    /// The etag of the sealed object when it was last known to be good: another one is looked at again.
    #[serde(default)]
    pub etag: String,
}
