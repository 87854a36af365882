//! Reads imported certificates and keys, and checks them against their profile.
//!
//! All problems are reported at once, in messages that contain the help and nothing of the files.

mod chain;
mod key;
mod leaf;

use slipway_core::digest::sha256_hex;
use slipway_ports::Flaw;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_EC_P256, OID_NIST_EC_P384};
use x509_parser::public_key::PublicKey;

pub(crate) use chain::authority;
pub(crate) use key::{is_locked, key};
pub(crate) use leaf::leaf;

/// Browsers, Go and NIST SP 800-131A refuse RSA keys with fewer bits.
const LEAST_RSA_BITS: usize = 2048;

fn flaw(message: impl Into<String>, help: impl Into<String>) -> Flaw {
    Flaw { message: message.into(), help: help.into() }
}

/// The certificates of a file in order, as DER. A private key among them is a flaw.
fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, Flaw> {
    const HELP: &str =
        "write it with `openssl x509 -in FILE -outform PEM`, beginning with -----BEGIN CERTIFICATE-----";
    let text = std::str::from_utf8(text).map_err(|_| flaw("it is not PEM: it is not text", HELP))?;
    let blocks = crate::armor::blocks(text).map_err(|problem| flaw(problem, HELP))?;
    if blocks.iter().any(|block| block.label.ends_with("PRIVATE KEY")) {
        return Err(flaw(
            "it holds a private key",
            "take the key out of it, into the file for keys; where others could read this one, make a new key",
        ));
    }
    if let Some(other) = blocks.iter().find(|block| block.label != "CERTIFICATE") {
        let label = other.label;
        return Err(flaw(format!("it holds a block `{label}`, and certificates alone belong there"), HELP));
    }
    blocks
        .iter()
        .map(|block| block.der().map(|der| der.to_vec()).map_err(|problem| flaw(problem, HELP)))
        .collect()
}

/// Flaws that any certificate may have: its dates, its key, and its signature.
fn common(certificate: &X509Certificate<'_>, whose: &str, now_s: Option<i64>, found: &mut Vec<Flaw>) {
    let validity = certificate.validity();
    if now_s.is_some_and(|now_s| validity.not_after.timestamp() <= now_s) {
        found.push(flaw(
            format!("{whose} expired {}", validity.not_after),
            "bring one that is valid: renew it where it was made",
        ));
    }
    if now_s.is_some_and(|now_s| validity.not_before.timestamp() > now_s) {
        found.push(flaw(
            format!("{whose} is not valid before {}", validity.not_before),
            "wait until then, or bring one that is valid",
        ));
    }
    if let Some(problem) = weak_key(certificate) {
        found.push(flaw(
            format!("{whose} has {problem}"),
            "bring one with an ECDSA key on P-256 or P-384, or an RSA key of 2048 bits or more",
        ));
    }
    if let Some(hash) = weak_hash(certificate) {
        found.push(flaw(
            format!("{whose} is signed with {hash}, which Kubernetes and etcd do not accept"),
            "have it issued again, signed with SHA-256 or better",
        ));
    }
}

fn weak_key(certificate: &X509Certificate<'_>) -> Option<String> {
    let info = certificate.public_key();
    match info.parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() < LEAST_RSA_BITS => {
            Some(format!("an RSA key of {} bits", key.key_size()))
        }
        Ok(PublicKey::RSA(_)) => None,
        Ok(PublicKey::EC(_)) => {
            let curve = info.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
            match curve {
                Some(curve) if curve == OID_EC_P256 || curve == OID_NIST_EC_P384 => None,
                Some(_) | None => Some("an ECDSA key on a curve other than P-256 and P-384".to_owned()),
            }
        }
        Ok(
            PublicKey::DSA(_)
            | PublicKey::GostR3410(_)
            | PublicKey::GostR3410_2012(_)
            | PublicKey::Unknown(_),
        )
        | Err(_) => Some("a key that is neither ECDSA nor RSA".to_owned()),
    }
}

/// The hash of a signature, if it is broken. Object identifiers of RFC 3279 and RFC 4055.
fn weak_hash(certificate: &X509Certificate<'_>) -> Option<&'static str> {
    match certificate.signature_algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.2" => Some("MD2"),
        "1.2.840.113549.1.1.4" => Some("MD5"),
        "1.2.840.113549.1.1.5" | "1.2.840.10045.4.1" | "1.2.840.10040.4.3" | "1.3.14.3.2.29" => Some("SHA-1"),
        _ => None,
    }
}

/// The digest of the public key, as the inventory has it.
fn spki(certificate: &X509Certificate<'_>) -> String {
    sha256_hex(certificate.public_key().raw)
}
