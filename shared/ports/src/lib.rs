//! What the flows and the node agent need from the outside: one narrow trait for each capability, with the IAM actions that it needs.
//!
//! Production (`slipway-aws`, `slipway-crypto`, `slipway-registry`), the command line (a local directory), the simulator and the agent
//! each implement those that they need. [`refusal`] classifies errors of AWS services, [`sealed`] opens sealed objects.

pub mod refusal;
pub mod sealed;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;

use jiff::Timestamp;
use slipway_core::oidc::VerificationKey;
use slipway_credentials::{AssetKind, CertificateFacts, CertificateProfile};
use zeroize::Zeroizing;

/// Bytes that are wiped when dropped and never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of secret bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes. Check carefully where they go.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {subject} failed: {message}")]
pub struct PortError {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// The call, as AWS names it: `s3:PutObject`.
    pub operation: &'static str,
    /// What the call was about: a key, an ARN, a stack's name.
    pub subject: String,
    /// The service's message, with its error code and request id.
    pub message: String,
}

/// What to do about a [`PortError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Throttled, timed out or unreachable: a retry may succeed.
    Transient,
    /// A permission or key policy denies the call; a person must change it.
    Denied,
    /// The named resource (a bucket, a key) does not exist; a person must create it.
    Missing,
    /// The service rejects the content: a template or parameter.
    Invalid,
}

/// The result of a port's call.
pub type PortResult<T> = Result<T, PortError>;

/// An object as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// For `If-Match`.
    pub etag: String,
    /// Version id in a versioned bucket; otherwise empty.
    pub version: String,
}

/// The condition of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// `If-None-Match: *`.
    Absent,
    /// `If-Match: <etag>`.
    Unchanged(String),
    /// Unconditional, only for content-addressed objects, for which every writer writes the same bytes.
    Always,
}

/// The result of a conditional write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// The object was written; its new etag.
    Written(String),
    /// Another writer was first: read the object again.
    Lost,
}

/// The most that any bucket reads of an object: four times what the largest of Slipway's objects, a template or a bundle of 1 MB, could grow
/// to by mistake, and little enough for a function of 128 MB. A larger one is [`ErrorKind::Invalid`].
pub const MOST_OBJECT_BYTES: u64 = 16 << 20;

impl Object {
    /// The object, if it has `most` bytes at most.
    #[must_use]
    pub fn within(self, most: u64) -> Bounded {
        if self.bytes.len() as u64 <= most {
            Bounded::Read(self)
        } else {
            Bounded::TooLarge { etag: self.etag }
        }
    }
}

/// An object that was read within a bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounded {
    /// It is within the bound.
    Read(Object),
    /// It has more bytes than that, and was not read.
    TooLarge {
        /// As in [`Object::etag`], for whoever writes it anew.
        etag: String,
    },
}

/// A bucket.
pub trait Objects: Send + Sync {
    /// The newest version of `key`; `None` if there is none. `s3:GetObject`.
    fn get(&self, key: &str) -> impl Future<Output = PortResult<Option<Object>>> + Send;
    /// As [`Objects::get`], but of more than `most` bytes nothing is kept: for keys that a node may write. `s3:GetObject`.
    fn get_at_most(&self, key: &str, most: u64) -> impl Future<Output = PortResult<Option<Bounded>>> + Send {
        // For buckets that only their owner writes. Others refuse before they read.
        async move { Ok(self.get(key).await?.map(|object| object.within(most))) }
    }
    /// That version of `key`. `s3:GetObjectVersion`.
    fn get_version(
        &self,
        key: &str,
        version: &str,
    ) -> impl Future<Output = PortResult<Option<Object>>> + Send;
    /// Version id, size in bytes and etag of the newest version of `key`; `None` if it does not exist. `s3:GetObject`.
    fn head(&self, key: &str) -> impl Future<Output = PortResult<Option<Head>>> + Send;
    /// Writes `key` under `condition`. `s3:PutObject`.
    fn put(
        &self,
        key: &str,
        bytes: Vec<u8>,
        condition: Condition,
    ) -> impl Future<Output = PortResult<Put>> + Send;
    /// The https URL at which CloudFormation reads `key`; no call.
    fn url(&self, key: &str) -> String;
}

/// The metadata of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Version id; empty in an unversioned bucket.
    pub version: String,
    /// Size in bytes.
    pub size: u64,
    /// As in [`Object::etag`].
    pub etag: String,
}

/// A bucket whose keys can be listed.
pub trait Listing: Send + Sync {
    /// The objects whose keys begin with `prefix`, in key order, at most `most`. `s3:ListBucket`.
    fn list(&self, prefix: &str, most: usize) -> impl Future<Output = PortResult<Vec<Listed>>> + Send;
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// As in [`Object::etag`].
    pub etag: String,
    /// Size in bytes.
    pub size: u64,
    /// When it was written last.
    pub modified: Timestamp,
}

/// A bucket whose folders can be listed page by page.
pub trait Folders: Send + Sync {
    /// The next page of the names of the folders directly below `prefix`, which ends with a slash: those after the folder `after`, in key
    /// order. Empty: there are no more. `s3:ListBucket`.
    fn folders_after(
        &self,
        prefix: &str,
        after: Option<&str>,
    ) -> impl Future<Output = PortResult<Vec<String>>> + Send;
}

/// A bucket whose objects can be deleted. Of the functions only the scan may, and only scheduled snapshots; a person may who collects unused
/// objects.
pub trait Removal: Send + Sync {
    /// Deletes `key`; it succeeds if the object does not exist. A versioned bucket keeps the old version. `s3:DeleteObject`.
    fn remove(&self, key: &str) -> impl Future<Output = PortResult<()>> + Send;
}

/// The encryption context: `{cluster, role}`, matched exactly by KMS on decryption.
pub type Context = BTreeMap<String, String>;

/// A data key, plain and wrapped.
#[derive(Debug)]
pub struct DataKey {
    /// The key that wrapped it, as [`Keys::name`] has it.
    pub wrapped_by: String,
    /// 32 bytes for AES-256-GCM.
    pub plain: Secret,
    /// The same, encrypted by KMS under its context.
    pub wrapped: Vec<u8>,
}

/// KMS, or a local key file.
pub trait Keys: Send + Sync {
    /// The name of the key `arn` (`None`: the installation's key) in sealed bytes and in the inventory; no call.
    fn name(&self, arn: Option<&str>) -> String;
    /// A new data key under `context`, from the key `arn`, or from the installation's key with `None`. `kms:GenerateDataKey`.
    fn generate(
        &self,
        arn: Option<&str>,
        context: &Context,
    ) -> impl Future<Output = PortResult<DataKey>> + Send;
    /// Decrypts `wrapped` to its data key. `context` must be the one that it was generated under. `kms:Decrypt`.
    fn unwrap(&self, wrapped: &[u8], context: &Context) -> impl Future<Output = PortResult<Secret>> + Send;
}

/// SSM parameters.
pub trait Parameters: Send + Sync {
    /// The value of a public parameter or of one of the account's; `None` if it does not exist. `ssm:GetParameter`.
    fn value(&self, name: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
    /// The value of a secret parameter. `ssm:GetParameter`.
    fn secret(&self, name: &str) -> impl Future<Output = PortResult<SecretParameter>> + Send;
}

/// The result of reading a secret parameter.
#[derive(Debug)]
pub enum SecretParameter {
    /// A SecureString, decrypted.
    Secret(Secret),
    /// The parameter exists but is not a SecureString, so its value is no secret.
    Plain,
    /// The parameter does not exist.
    Missing,
}

/// Images and checksums that projects publish.
pub trait Registry: Send + Sync {
    /// The digest (`sha256:…`) of the tag in `reference` (`registry.k8s.io/coredns/coredns:v1.14.6`); `None` if the registry has no such
    /// image. HTTPS without credentials, no AWS call.
    fn digest(&self, reference: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
    /// The short text published at `url`, such as a checksum; `None` if there is none. HTTPS without credentials, no AWS call.
    fn text(&self, url: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
}

/// A new asset: its private and its public half.
#[derive(Debug)]
pub struct NewAsset {
    /// PEM of a private key, or the secret's text.
    pub private: Secret,
    /// PEM of a certificate or public key; `None` for a plain secret.
    pub public: Option<String>,
}

/// The certificate and key of an authority that signs.
#[derive(Debug, Clone)]
pub struct Signer {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: Secret,
}

/// What is wrong with a file that the user provides, without quoting the file, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// A certificate that was examined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExaminedCertificate {
    /// Its content. [`CertificateFacts::issuer_fingerprint`] is empty, because a certificate does not contain it.
    pub facts: CertificateFacts,
    /// SHA-256 of its DER.
    pub fingerprint: String,
    /// What is wrong with it.
    pub flaws: Vec<Flaw>,
}

/// An authority that the user provides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroughtAuthority {
    /// Its certificate alone, PEM.
    pub certificate: String,
    /// SHA-256 of its public key (SubjectPublicKeyInfo), in hex.
    pub spki_sha256: String,
    /// Its certificate followed by those above it, each followed by its issuer, PEM.
    pub chain: String,
    /// How many certificates of the chain, from the first, are not roots.
    pub intermediates: usize,
    /// When the first certificate of the chain expires.
    pub ends: Timestamp,
}

/// A private key that the user provides.
#[derive(Debug)]
pub struct BroughtKey {
    /// PKCS #8, PEM, without a passphrase.
    pub pem: Secret,
    /// SHA-256 of its public key (SubjectPublicKeyInfo), in hex.
    pub spki_sha256: String,
}

/// Cryptography with randomness: aws-lc-rs and rcgen in production, a seeded substitute in the simulator.
pub trait Crypto: Send + Sync {
    /// Makes an asset that is not a certificate.
    ///
    /// # Errors
    /// If the library refuses; the message names the algorithm, never key material.
    fn make(&self, kind: &AssetKind) -> PortResult<NewAsset>;
    /// Makes a key with a certificate, valid from five minutes before `now` and no longer than the signer's. `signer: None`: it is
    /// self-signed.
    ///
    /// # Errors
    /// As [`Crypto::make`]; also if the signer's certificate expires too soon.
    fn issue(
        &self,
        profile: &CertificateProfile,
        signer: Option<&Signer>,
        now: Timestamp,
    ) -> PortResult<NewAsset>;
    /// Makes a certificate for an existing key, in PEM; otherwise as [`Crypto::issue`]. The algorithm is that of the key, not that of the
    /// profile.
    ///
    /// # Errors
    /// As [`Crypto::issue`]; also if `key` cannot be read. The message quotes nothing of it.
    fn certify(
        &self,
        profile: &CertificateProfile,
        key: &Secret,
        signer: Option<&Signer>,
        now: Timestamp,
    ) -> PortResult<NewAsset>;
    /// Reads a certificate; the second value is its fingerprint, SHA-256 of its DER.
    ///
    /// # Errors
    /// If `pem` is no certificate.
    fn facts(&self, pem: &str) -> PortResult<(CertificateFacts, String)>;
    /// Examines the certificate stored at `key`, and reports what is wrong with it besides its dates and names.
    ///
    /// # Errors
    /// If `bytes` are no certificate, or more than one.
    fn examine(&self, key: &str, bytes: &[u8]) -> Result<ExaminedCertificate, Flaw>;
    /// Reads a public key in the form in which it is published for AWS and others.
    ///
    /// # Errors
    /// If `pem` is no public key, or of a type that cannot sign tokens.
    fn verification_key(&self, pem: &str) -> PortResult<VerificationKey>;
    /// Reads an authority's file: its own certificate first, then those above it. Dates are checked at `now`; `None`: they are not
    /// checked.
    ///
    /// # Errors
    /// All reasons not to issue certificates under it, or not to trust it.
    fn brought_authority(&self, text: &Secret, now: Option<Timestamp>)
    -> Result<BroughtAuthority, Vec<Flaw>>;
    /// Reads the certificate of a leaf for `profile`, PEM.
    ///
    /// # Errors
    /// All differences from the profile, and if `authority` did not sign it.
    fn brought_leaf(
        &self,
        text: &Secret,
        profile: &CertificateProfile,
        authority: &BroughtAuthority,
        now: Timestamp,
    ) -> Result<String, Vec<Flaw>>;
    /// Reads a private key in any form that OpenSSL writes.
    ///
    /// # Errors
    /// If it is no private key, or the passphrase does not decrypt it.
    fn brought_key(&self, text: &Secret, passphrase: Option<&Secret>) -> Result<BroughtKey, Flaw>;
    /// Whether a file's private key is encrypted with a passphrase.
    fn is_locked(&self, text: &Secret) -> bool;
    /// Seals `plain` under a data key into one [`Sealing`]: AES-256-GCM with `context` as additional data. The wrapped data key and the
    /// name of the key that wrapped it are included.
    ///
    /// # Errors
    /// As [`Crypto::make`].
    fn seal(&self, key: &DataKey, context: &Context, plain: &[u8]) -> PortResult<Vec<u8>>;
    /// The sealings of a sealed object, oldest first: the same text, sealed under one KMS key and then under another. There is at least
    /// one.
    ///
    /// # Errors
    /// If `sealed` is truncated or not of Slipway's format.
    fn sealings<'a>(&self, sealed: &'a [u8]) -> PortResult<Vec<Sealing<'a>>>;
    /// Opens one sealing made by [`Crypto::seal`].
    ///
    /// # Errors
    /// If it was modified, truncated, or made under another key or context.
    fn open(&self, key: &Secret, context: &Context, sealing: &[u8]) -> PortResult<Secret>;
}

/// A text sealed under one data key, as part of a sealed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealing<'a> {
    /// The name of the key that wrapped the data key, as [`Keys::name`] returns it. Authenticated only when the sealing is opened.
    pub wrapped_by: &'a str,
    /// The wrapped data key.
    pub wrapped: &'a [u8],
    /// The whole sealing, for [`Crypto::open`].
    pub bytes: &'a [u8],
}
