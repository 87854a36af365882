//! Public keys that verify tokens, as numbers for JSON Web Keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use slipway_core::oidc::{KeyNumbers, VerificationKey};
use slipway_ports::PortResult;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::{armor, refused};

/// Reads a SubjectPublicKeyInfo in PEM.
pub(crate) fn verification_key(pem: &str) -> PortResult<VerificationKey> {
    let fail = |problem: &str| refused("pki:VerificationKey", "a public key", problem.to_owned());
    let der = armor::decode(&["PUBLIC KEY"], pem).map_err(|problem| fail(&problem))?;
    let (rest, info) = SubjectPublicKeyInfo::from_der(&der).map_err(|_| fail("it cannot be read"))?;
    if !rest.is_empty() {
        return Err(fail("something follows the key"));
    }
    let numbers = match info.parsed().map_err(|_| fail("its numbers cannot be read"))? {
        PublicKey::EC(point) => on_curve(&info, point.data()).map_err(fail)?,
        PublicKey::RSA(key) => KeyNumbers::Rsa {
            n: BASE64.encode(trimmed(key.modulus)),
            e: BASE64.encode(trimmed(key.exponent)),
        },
        PublicKey::DSA(_)
        | PublicKey::GostR3410(_)
        | PublicKey::GostR3410_2012(_)
        | PublicKey::Unknown(_) => {
            return Err(fail("it is neither ECDSA nor RSA"));
        }
    };
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &der);
    Ok(VerificationKey { id: BASE64.encode(digest), numbers })
}

/// The coordinates of a point in uncompressed form, in which every library writes a public key.
fn on_curve(info: &SubjectPublicKeyInfo<'_>, point: &[u8]) -> Result<KeyNumbers, &'static str> {
    if info.algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY {
        return Err("it is not an ECDSA key");
    }
    let curve = info.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    let split = |length: usize| match point.split_first() {
        Some((4, both)) if both.len() == 2 * length => {
            let (x, y) = both.split_at(length);
            Ok((BASE64.encode(x), BASE64.encode(y)))
        }
        Some(_) | None => Err("its point is not in the uncompressed form"),
    };
    match curve {
        Some(curve) if curve == OID_EC_P256 => split(32).map(|(x, y)| KeyNumbers::P256 { x, y }),
        Some(curve) if curve == OID_NIST_EC_P384 => split(48).map(|(x, y)| KeyNumbers::P384 { x, y }),
        Some(_) | None => Err("its curve is neither P-256 nor P-384"),
    }
}

/// Without the zeros that DER writes before a number.
fn trimmed(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}
