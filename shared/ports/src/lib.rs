//! What the flows and the node agent need from the world: one narrow trait a capability, each mirrored by the IAM actions it
//! costs.
//!
//! Production (`slipway-aws`, `slipway-crypto`, `slipway-registry`), the command line (a directory), the simulator and the agent each
//! implement those that they need. [`refusal`] says what a service that says no means by it, [`sealed`] opens what was sealed.

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

    /// The bytes. Look twice at where they go.
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

/// A call that did not work.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {subject} failed: {message}")]
pub struct PortError {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// The call, as AWS names it: `s3:PutObject`.
    pub operation: &'static str,
    /// What it was about: a key, an ARN, a stack's name.
    pub subject: String,
    /// The service's own words, with its error code and request id.
    pub message: String,
}

/// What to do about a [`PortError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Throttled, timed out, unreachable: the same call may work later.
    Transient,
    /// A permission or a key policy says no; a person must change it.
    Denied,
    /// What was named does not exist (a bucket, a key); a person must make it.
    Missing,
    /// The service refuses the content: a template, a parameter.
    Invalid,
}

/// An error of a port.
pub type PortResult<T> = Result<T, PortError>;

/// An object as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// For `If-Match`.
    pub etag: String,
    /// Version id, in a versioned bucket; empty elsewhere.
    pub version: String,
}

/// On what a write depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// `If-None-Match: *`.
    Absent,
    /// `If-Match: <etag>`.
    Unchanged(String),
    /// None: for content-addressed objects alone, where every writer writes the same.
    Always,
}

/// How a conditional write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// Written; the new etag.
    Written(String),
    /// Somebody else was first: read again.
    Lost,
}

/// A bucket.
pub trait Objects: Send + Sync {
    /// The newest version of `key`; `None` if there is none. `s3:GetObject`.
    fn get(&self, key: &str) -> impl Future<Output = PortResult<Option<Object>>> + Send;
    /// That version of `key`. `s3:GetObjectVersion`.
    fn get_version(
        &self,
        key: &str,
        version: &str,
    ) -> impl Future<Output = PortResult<Option<Object>>> + Send;
    /// Version id, size in bytes and etag of the newest version of `key`; `None` if there is none. `s3:GetObject`.
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

/// What is known of an object without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Version id; empty in a bucket without versions.
    pub version: String,
    /// Size in bytes.
    pub size: u64,
    /// As of [`Object::etag`].
    pub etag: String,
}

/// A bucket whose keys can be listed.
pub trait Listing: Send + Sync {
    /// The objects whose keys begin with `prefix`, in the order of their keys, `most` at most. `s3:ListBucket`.
    fn list(&self, prefix: &str, most: usize) -> impl Future<Output = PortResult<Vec<Listed>>> + Send;
}

/// An object as a list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// As of [`Object::etag`].
    pub etag: String,
    /// Size in bytes.
    pub size: u64,
    /// When it was written last.
    pub modified: Timestamp,
}

/// A bucket whose folders can be listed, a page at a time.
pub trait Folders: Send + Sync {
    /// The names of the folders right below `prefix`, which ends with a slash: those that come after the folder `after`, in the
    /// order of their keys, as many as one call gives; none: there are no more. `s3:ListBucket`.
    fn folders_after(
        &self,
        prefix: &str,
        after: Option<&str>,
    ) -> impl Future<Output = PortResult<Vec<String>>> + Send;
}

/// A bucket from which objects can be taken away. No function may: only a person who collects what is unused.
pub trait Removal: Send + Sync {
    /// Deletes `key`; none is success. A versioned bucket keeps what it was. `s3:DeleteObject`.
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
    /// What the key `arn` (`None`: Slipway's own) is called in sealed bytes and in the inventory; no call.
    fn name(&self, arn: Option<&str>) -> String;
    /// A new data key under `context`, from the key `arn` or, with `None`, Slipway's own. `kms:GenerateDataKey`.
    fn generate(
        &self,
        arn: Option<&str>,
        context: &Context,
    ) -> impl Future<Output = PortResult<DataKey>> + Send;
    /// The data key behind `wrapped`, if `context` is the one that it was made under. `kms:Decrypt`.
    fn unwrap(&self, wrapped: &[u8], context: &Context) -> impl Future<Output = PortResult<Secret>> + Send;
}

/// SSM parameters.
pub trait Parameters: Send + Sync {
    /// The value of a public or own parameter; `None` if there is none. `ssm:GetParameter`.
    fn value(&self, name: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
    /// The value of a parameter that is a secret. `ssm:GetParameter`.
    fn secret(&self, name: &str) -> impl Future<Output = PortResult<SecretParameter>> + Send;
}

/// What became of asking for a secret.
#[derive(Debug)]
pub enum SecretParameter {
    /// A SecureString, opened.
    Secret(Secret),
    /// A parameter of that name is there in plain, so that its value is no secret.
    Plain,
    /// There is none of that name.
    Missing,
}

/// What projects have published: images, and what they say beside their programs.
pub trait Registry: Send + Sync {
    /// The digest (`sha256:…`) that the tag of `reference` (`registry.k8s.io/coredns/coredns:v1.14.6`) has; `None` if the
    /// registry has no such image. No AWS call: HTTPS, without credentials.
    fn digest(&self, reference: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
    /// The short text that is published at `url`, such as a checksum; `None` if nothing is there. No AWS call: HTTPS, without
    /// credentials.
    fn text(&self, url: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
}

/// What was made: a private part, and what anybody may see.
#[derive(Debug)]
pub struct Made {
    /// PEM of a private key, or the secret's text.
    pub private: Secret,
    /// PEM of a certificate or public key; `None` for a plain secret.
    pub public: Option<String>,
}

/// The certificate and key that sign.
#[derive(Debug, Clone)]
pub struct Signer {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: Secret,
}

/// What is wrong with something that was brought, without any of it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// A certificate that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it says; [`CertificateFacts::issuer_fingerprint`] is empty: it does not say.
    pub facts: CertificateFacts,
    /// SHA-256 of its DER.
    pub fingerprint: String,
    /// What is wrong with it.
    pub flaws: Vec<Flaw>,
}

/// An authority that somebody else made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroughtAuthority {
    /// Its certificate alone, PEM.
    pub certificate: String,
    /// SHA-256 of its public key (SubjectPublicKeyInfo), in hex.
    pub spki_sha256: String,
    /// Its certificate and those above it, each one's issuer after it, PEM.
    pub chain: String,
    /// How many of the chain, from the first, are no root.
    pub intermediates: usize,
    /// When the first of the chain ends.
    pub ends: Timestamp,
}

/// A private key that somebody else made.
#[derive(Debug)]
pub struct BroughtKey {
    /// PKCS #8, PEM, without a passphrase.
    pub pem: Secret,
    /// SHA-256 of its public key (SubjectPublicKeyInfo), in hex.
    pub spki_sha256: String,
}

/// Cryptography with randomness: in production aws-lc-rs and rcgen, in the simulator a seeded stand-in.
pub trait Crypto: Send + Sync {
    /// Makes an asset that is no certificate.
    ///
    /// # Errors
    /// If the library refuses; the message names the algorithm, never key material.
    fn make(&self, kind: &AssetKind) -> PortResult<Made>;
    /// Makes a key and a certificate for it, valid from five minutes before `now`, and no longer than the signer's. `signer: None`
    /// signs itself.
    ///
    /// # Errors
    /// As [`Crypto::make`]; also if the signer's ends too soon.
    fn issue(
        &self,
        profile: &CertificateProfile,
        signer: Option<&Signer>,
        now: Timestamp,
    ) -> PortResult<Made>;
    /// Makes a certificate for a key that there is, in PEM; otherwise as [`Crypto::issue`]. What its key is for follows the
    /// key, not the profile's algorithm.
    ///
    /// # Errors
    /// As [`Crypto::issue`]; also if `key` cannot be read. The message shows nothing of it.
    fn certify(
        &self,
        profile: &CertificateProfile,
        key: &Secret,
        signer: Option<&Signer>,
        now: Timestamp,
    ) -> PortResult<Made>;
    /// Reads a certificate; the second value is its fingerprint, SHA-256 of its DER.
    ///
    /// # Errors
    /// If `pem` is no certificate.
    fn facts(&self, pem: &str) -> PortResult<(CertificateFacts, String)>;
    /// Reads a certificate that lies at `key`, and says what is wrong with it besides its dates and its names.
    ///
    /// # Errors
    /// If `bytes` are no certificate, or more than one.
    fn look(&self, key: &str, bytes: &[u8]) -> Result<Seen, Flaw>;
    /// Reads a public key, as AWS and others are to know it.
    ///
    /// # Errors
    /// If `pem` is no public key, or of a kind that signs no tokens.
    fn verification_key(&self, pem: &str) -> PortResult<VerificationKey>;
    /// Reads an authority's file: its certificate first, then those above it. Dates are looked at as of `now`; `None`: not.
    ///
    /// # Errors
    /// Everything that speaks against issuing under it, or against relying on it.
    fn brought_authority(&self, text: &Secret, now: Option<Timestamp>)
    -> Result<BroughtAuthority, Vec<Flaw>>;
    /// Reads a leaf that is to do what `profile` says; its certificate alone, PEM.
    ///
    /// # Errors
    /// Everything in which it is another than the profile, or not `authority`'s.
    fn brought_leaf(
        &self,
        text: &Secret,
        profile: &CertificateProfile,
        authority: &BroughtAuthority,
        now: Timestamp,
    ) -> Result<String, Vec<Flaw>>;
    /// Reads a private key, in any of the forms that OpenSSL writes.
    ///
    /// # Errors
    /// If it is none, or the passphrase does not open it.
    fn brought_key(&self, text: &Secret, passphrase: Option<&Secret>) -> Result<BroughtKey, Flaw>;
    /// Whether a file's private key is under a passphrase.
    fn is_locked(&self, text: &Secret) -> bool;
    /// Seals `plain` under a data key into one [`Sealing`]: AES-256-GCM, `context` as additional data, the wrapped key and
    /// the name of the key that wrapped it carried along.
    ///
    /// # Errors
    /// As [`Crypto::make`].
    fn seal(&self, key: &DataKey, context: &Context, plain: &[u8]) -> PortResult<Vec<u8>>;
    /// The sealings that a sealed object holds, one after the other, oldest first: the same text, sealed under one KMS key
    /// and then under another. There is at least one.
    ///
    /// # Errors
    /// If `sealed` is not of our format: truncated, or something else.
    fn sealings<'a>(&self, sealed: &'a [u8]) -> PortResult<Vec<Sealing<'a>>>;
    /// Opens one sealing, as [`Crypto::seal`] made it.
    ///
    /// # Errors
    /// If it was tampered with, truncated, or made under another key or context.
    fn open(&self, key: &Secret, context: &Context, sealing: &[u8]) -> PortResult<Secret>;
}

/// A text sealed under one data key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealing<'a> {
    /// The key that wrapped the data key, as [`Keys::name`] has it. Authenticated once it opens.
    pub wrapped_by: &'a str,
    /// The wrapped data key.
    pub wrapped: &'a [u8],
    /// All of it, for [`Crypto::open`].
    pub bytes: &'a [u8],
}
