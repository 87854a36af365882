//! Simulated cryptography: keys and certificates that follow from a seed, so that a run can be repeated byte for byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use slipway_core::digest::sha256_hex;
use slipway_core::oidc::{KeyNumbers, VerificationKey};
use slipway_credentials::manifest::BACKDATED;
use slipway_credentials::{AssetKind, CertificateFacts, CertificateProfile};
use slipway_ports::{
    BroughtAuthority, BroughtKey, Context, Crypto, DataKey, ErrorKind, ExaminedCertificate, Flaw, NewAsset,
    PortError, PortResult, Sealing, Secret, Signer,
};

/// A [`Crypto`] that protects nothing: a certificate is JSON in PEM armour, and a sealed object contains its plain text. What a
/// certificate says, who may open a sealed object, and that no two keys are equal, is as with real cryptography. It cannot read
/// what real programs made.
#[derive(Debug, Clone, Default)]
pub struct SeededCrypto {
    seed: u64,
    made: Arc<AtomicU64>,
}

/// A certificate that this implementation made.
#[derive(Serialize, Deserialize)]
struct Certificate {
    facts: CertificateFacts,
    /// It is self-signed.
    root: bool,
    common_name: String,
}

const CERTIFICATE: &str = "CERTIFICATE";
const PUBLIC_KEY: &str = "PUBLIC KEY";

impl SeededCrypto {
    /// Makes an implementation whose keys all follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, made: Arc::default() }
    }

    /// A copy that continues independently from here.
    #[must_use]
    pub fn fork(&self) -> Self {
        let made = self.made.load(Ordering::SeqCst);
        Self { seed: self.seed, made: Arc::new(AtomicU64::new(made)) }
    }

    /// 32 bytes that were never returned before.
    fn bytes(&self) -> [u8; 32] {
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        Sha256::digest(format!("crypto {} {number}", self.seed)).into()
    }

    fn private(&self) -> Secret {
        Secret::new(armored("PRIVATE KEY", &self.bytes()).into_bytes())
    }
}

fn armored(label: &str, bytes: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(bytes))
}

fn disarmored(label: &str, text: &str) -> PortResult<Vec<u8>> {
    let inner = text.trim().strip_prefix(&format!("-----BEGIN {label}-----"));
    let inner = inner.and_then(|rest| rest.strip_suffix(&format!("-----END {label}-----")));
    let bytes = inner.and_then(|inner| STANDARD.decode(inner.trim()).ok());
    bytes.ok_or_else(|| refused("it is nothing that this simulation made"))
}

fn refused(message: &str) -> PortError {
    PortError {
        kind: ErrorKind::Invalid,
        operation: "simulated:Crypto",
        subject: "what was given".to_owned(),
        message: message.to_owned(),
    }
}

fn not_modelled() -> Flaw {
    Flaw {
        message: "what somebody else made is not modelled by this simulation".to_owned(),
        help: "simulate a cluster whose credentials Slipway makes".to_owned(),
    }
}

fn tag(key: &[u8], context: &Context, plain: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(key);
    for (name, value) in context {
        hash.update(format!("{}:{name}={}:{value};", name.len(), value.len()));
    }
    hash.update(plain);
    hash.finalize().into()
}

fn counted(bytes: &[u8], into: &mut Vec<u8>) {
    into.extend((bytes.len() as u32).to_be_bytes());
    into.extend(bytes);
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// The parts of the first sealed key and text (who wrapped the key, the wrapped key, tag and text), and what comes after them.
fn parts(sealed: &[u8]) -> Option<([&[u8]; 3], &[u8])> {
    let (name, rest) = take(sealed)?;
    let (wrapped, rest) = take(rest)?;
    let (body, rest) = take(rest)?;
    Some(([name, wrapped, body], rest))
}

impl Crypto for SeededCrypto {
    fn make(&self, kind: &AssetKind) -> PortResult<NewAsset> {
        let made = |text: String| NewAsset { private: Secret::new(text.into_bytes()), public: None };
        match kind {
            AssetKind::Certificate(_) => Err(refused("a certificate is issued by its authority, not made")),
            AssetKind::KeyPair(_) => {
                let public = armored(PUBLIC_KEY, &self.bytes());
                Ok(NewAsset { private: self.private(), public: Some(public) })
            }
            AssetKind::RandomKey => Ok(made(STANDARD.encode(self.bytes()))),
        }
    }

    fn issue(
        &self,
        profile: &CertificateProfile,
        signer: Option<&Signer>,
        now: Timestamp,
    ) -> PortResult<NewAsset> {
        let private = self.private();
        let certified = self.certify(profile, &private, signer, now)?;
        Ok(NewAsset { private, public: certified.public })
    }

    fn certify(
        &self,
        profile: &CertificateProfile,
        key: &Secret,
        signer: Option<&Signer>,
        now: Timestamp,
    ) -> PortResult<NewAsset> {
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let asked = now + SignedDuration::from_hours(24 * i64::from(profile.days));
        let not_after = match signer {
            Some(signer) => asked.min(self.facts(&signer.certificate)?.0.not_after),
            None => asked,
        };
        let certificate = Certificate {
            facts: CertificateFacts {
                serial: sha256_hex(&self.bytes())[..32].to_owned(),
                not_before: now - BACKDATED,
                not_after,
                spki_sha256: sha256_hex(key.expose()),
                issuer_fingerprint: String::new(),
            },
            root: signer.is_none(),
            common_name: profile.common_name.clone(),
        };
        let json = serde_json::to_vec(&certificate).map_err(|error| refused(&error.to_string()))?;
        Ok(NewAsset { private: key.clone(), public: Some(armored(CERTIFICATE, &json)) })
    }

    fn facts(&self, pem: &str) -> PortResult<(CertificateFacts, String)> {
        let json = disarmored(CERTIFICATE, pem)?;
        let read: Certificate = serde_json::from_slice(&json).map_err(|error| refused(&error.to_string()))?;
        let (mut facts, fingerprint) = (read.facts, sha256_hex(&json));
        if read.root {
            facts.issuer_fingerprint.clone_from(&fingerprint);
        }
        Ok((facts, fingerprint))
    }

    fn examine(&self, _key: &str, bytes: &[u8]) -> Result<ExaminedCertificate, Flaw> {
        let text = String::from_utf8_lossy(bytes);
        let (facts, fingerprint) = self.facts(&text).map_err(|_| not_modelled())?;
        Ok(ExaminedCertificate { facts, fingerprint, flaws: Vec::new() })
    }

    fn verification_key(&self, pem: &str) -> PortResult<VerificationKey> {
        let bytes = disarmored(PUBLIC_KEY, pem)?;
        let number =
            |label: &str| URL_SAFE_NO_PAD.encode(Sha256::digest([label.as_bytes(), &bytes].concat()));
        Ok(VerificationKey { id: number("id"), numbers: KeyNumbers::P256 { x: number("x"), y: number("y") } })
    }

    fn brought_authority(
        &self,
        _text: &Secret,
        _now: Option<Timestamp>,
    ) -> Result<BroughtAuthority, Vec<Flaw>> {
        Err(vec![not_modelled()])
    }

    fn brought_leaf(
        &self,
        _text: &Secret,
        _profile: &CertificateProfile,
        _authority: &BroughtAuthority,
        _now: Timestamp,
    ) -> Result<String, Vec<Flaw>> {
        Err(vec![not_modelled()])
    }

    fn brought_key(&self, _text: &Secret, _passphrase: Option<&Secret>) -> Result<BroughtKey, Flaw> {
        Err(not_modelled())
    }

    fn is_locked(&self, _text: &Secret) -> bool {
        false
    }

    fn seal(&self, key: &DataKey, context: &Context, plain: &[u8]) -> PortResult<Vec<u8>> {
        let mut body = tag(key.plain.expose(), context, plain).to_vec();
        body.extend(plain);
        let mut sealed = Vec::new();
        counted(key.wrapped_by.as_bytes(), &mut sealed);
        counted(&key.wrapped, &mut sealed);
        counted(&body, &mut sealed);
        Ok(sealed)
    }

    fn sealings<'a>(&self, sealed: &'a [u8]) -> PortResult<Vec<Sealing<'a>>> {
        let (mut found, mut remaining) = (Vec::new(), sealed);
        while !remaining.is_empty() {
            let ([name, wrapped, _], rest) = parts(remaining).ok_or_else(|| refused("it is truncated"))?;
            let wrapped_by =
                std::str::from_utf8(name).map_err(|_| refused("its key's name is not a text"))?;
            found.push(Sealing { wrapped_by, wrapped, bytes: &remaining[..remaining.len() - rest.len()] });
            remaining = rest;
        }
        if found.is_empty() { Err(refused("it is empty")) } else { Ok(found) }
    }

    fn open(&self, key: &Secret, context: &Context, sealing: &[u8]) -> PortResult<Secret> {
        let body = parts(sealing).map(|([_, _, body], _)| body);
        let (sealed_by, plain) =
            body.and_then(|body| body.split_first_chunk::<32>()).ok_or_else(|| refused("it is truncated"))?;
        if *sealed_by == tag(key.expose(), context, plain) {
            Ok(Secret::new(plain.to_vec()))
        } else {
            Err(refused("it was made under another key or another context"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_was_sealed_opens_under_its_key_and_context_alone_and_one_seed_makes_the_same_twice() {
        let crypto = SeededCrypto::new(7);
        let context = Context::from([("cluster".to_owned(), "prod".to_owned())]);
        let key =
            DataKey { wrapped_by: "arn".to_owned(), plain: Secret::new(vec![1; 32]), wrapped: vec![2; 4] };
        let sealed = crypto.seal(&key, &context, b"text").unwrap();
        let both = [sealed.clone(), sealed].concat();
        let sealings = crypto.sealings(&both).unwrap();
        assert_eq!((sealings.len(), sealings[1].wrapped_by), (2, "arn"));
        let open = |key: &Secret, context: &Context| crypto.open(key, context, sealings[1].bytes);
        assert_eq!(open(&key.plain, &context).unwrap().expose(), b"text");
        assert!(open(&Secret::new(vec![3; 32]), &context).is_err());
        assert!(open(&key.plain, &Context::new()).is_err());

        let random = |crypto: &SeededCrypto| crypto.make(&AssetKind::RandomKey).unwrap().private;
        let (one, other) = (SeededCrypto::new(7), SeededCrypto::new(7));
        assert_eq!(random(&one).expose(), random(&other).expose());
        assert_ne!(random(&one).expose(), random(&one.fork()).expose());
    }
}
