//! Cryptography for Slipway: keys, certificates and sealed bundles, with rcgen over AWS-LC and x509-parser.
//!
//! [`AwsLc`] implements [`Crypto`]. `slipway_credentials` decides which certificates there are and who receives them;
//! `slipway_flows::credentials` decides where they are stored.
//!
//! **What is wiped.** Private keys, secrets and data keys are in buffers that are zeroed when they are dropped: ours (`Zeroizing`,
//! [`Secret`]), rcgen's copy of a key's PKCS #8 (`keys::Key` wipes it), and AWS-LC's, which cleanses memory that it frees. **What is not
//! wiped:** values that the compiler copies to the stack or a register, and pages that the kernel swaps out (a Lambda function has no
//! swap).

mod armor;
mod certificates;
mod examine;
mod import;
mod inspect;
mod keys;
mod requests;
mod seal;
mod secrets;
pub mod stream;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timeline;
mod tokens;
pub mod verify;

pub use inspect::{Inspected, inspect};
pub use requests::{CertificateRequest, certificate_request};

use jiff::Timestamp;
use slipway_core::oidc::VerificationKey;
use slipway_credentials::{AssetKind, CertificateFacts, CertificateProfile};
use slipway_ports::{
    BroughtAuthority, BroughtKey, Context, Crypto, DataKey, ErrorKind, ExaminedCertificate, Flaw, NewAsset,
    PortError, PortResult, Sealing, Secret, Signer,
};

/// [`Crypto`] with AWS-LC and the operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct AwsLc;

impl Crypto for AwsLc {
    fn make(&self, kind: &AssetKind) -> PortResult<NewAsset> {
        match kind {
            AssetKind::Certificate(profile) => Err(refused(
                "pki:Make",
                &profile.common_name,
                "a certificate is issued by its authority, not made".to_owned(),
            )),
            AssetKind::KeyPair(algorithm) => {
                let key = keys::Key::generate(*algorithm)?;
                Ok(NewAsset { private: key.private_pem(), public: Some(key.public_pem()) })
            }
            AssetKind::RandomKey => Ok(NewAsset { private: secrets::random_key()?, public: None }),
        }
    }

    fn issue(
        &self,
        profile: &CertificateProfile,
        signer: Option<&Signer>,
        now: Timestamp,
    ) -> PortResult<NewAsset> {
        certificates::issue(profile, signer, now)
    }

    fn certify(
        &self,
        profile: &CertificateProfile,
        key: &Secret,
        signer: Option<&Signer>,
        now: Timestamp,
    ) -> PortResult<NewAsset> {
        let key = keys::Key::from_pem(key)
            .map_err(|problem| refused("pki:Issue", &profile.common_name, problem))?;
        certificates::certify(profile, &key, signer, now)
    }

    fn facts(&self, pem: &str) -> PortResult<(CertificateFacts, String)> {
        certificates::facts(pem)
    }

    fn examine(&self, key: &str, bytes: &[u8]) -> Result<ExaminedCertificate, Flaw> {
        examine::examine(key, bytes)
    }

    fn verification_key(&self, pem: &str) -> PortResult<VerificationKey> {
        tokens::verification_key(pem)
    }

    fn brought_authority(
        &self,
        text: &Secret,
        now: Option<Timestamp>,
    ) -> Result<BroughtAuthority, Vec<Flaw>> {
        import::authority(text, now)
    }

    fn brought_leaf(
        &self,
        text: &Secret,
        profile: &CertificateProfile,
        authority: &BroughtAuthority,
        now: Timestamp,
    ) -> Result<String, Vec<Flaw>> {
        import::leaf(text, profile, authority, now)
    }

    fn brought_key(&self, text: &Secret, passphrase: Option<&Secret>) -> Result<BroughtKey, Flaw> {
        import::key(text, passphrase)
    }

    fn is_locked(&self, text: &Secret) -> bool {
        import::is_locked(text)
    }

    fn seal(&self, key: &DataKey, context: &Context, plain: &[u8]) -> PortResult<Vec<u8>> {
        seal::seal(key, context, plain)
    }

    fn sealings<'a>(&self, sealed: &'a [u8]) -> PortResult<Vec<Sealing<'a>>> {
        seal::sealings(sealed)
    }

    fn open(&self, key: &Secret, context: &Context, sealing: &[u8]) -> PortResult<Secret> {
        seal::open(key, context, sealing)
    }
}

/// An error of this crate. All are permanent: the same input fails again in the same way.
fn refused(operation: &'static str, subject: &str, message: String) -> PortError {
    PortError { kind: ErrorKind::Invalid, operation, subject: subject.to_owned(), message }
}

/// Random bytes of the operating system, from AWS-LC's generator.
fn fill(bytes: &mut [u8]) -> PortResult<()> {
    aws_lc_rs::rand::fill(bytes)
        .map_err(|_| refused("pki:Random", "the operating system", "no randomness to be had".to_owned()))
}
