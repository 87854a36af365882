//! The content of a certificate as plain values, so that it is parsed only once.

use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use slipway_core::digest::{hex, sha256_hex};
use slipway_core::page::clean;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry as oid;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

/// The content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// The whole subject, such as `O=system:masters, CN=kube-admin`.
    pub subject: String,
    /// The whole name of the issuer.
    pub issuer: String,
    /// The subject's CN.
    pub common_name: Option<String>,
    /// The subject's O, in the order of the certificate.
    pub organizations: Vec<String>,
    /// Subject alternative names: DNS names in lower case, addresses, and all others with their kind before them.
    pub sans: Vec<String>,
    /// The serial number in lower-case hex.
    pub serial: String,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity. A time that a timestamp cannot express becomes the last timestamp.
    pub not_after: Timestamp,
    /// The public key.
    pub key: KeyType,
    /// How it was signed.
    pub signature: Signature,
    /// SHA-256 of SubjectPublicKeyInfo.
    pub spki_sha256: String,
    /// SHA-256 of the whole certificate.
    pub fingerprint: String,
    /// Whether it may sign other certificates.
    pub authority: bool,
    /// The maximum number of authorities between it and a leaf.
    pub path_length: Option<u32>,
    /// Key usage, if the certificate has it.
    pub usage: Option<Usage>,
    /// Extended key usage, if the certificate has it; without it everything is allowed.
    pub extended: Option<Extended>,
    /// Unknown critical extensions: a program that does not know one must refuse the certificate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<String>,
    /// Whether subject and issuer are the same name.
    pub self_issued: bool,
    #[serde(skip)]
    pub(super) serial_fault: Option<&'static str>,
    #[serde(skip)]
    pub(super) der: Vec<u8>,
    /// The name in DER, which is compared to build chains.
    #[serde(skip)]
    pub(super) subject_raw: Vec<u8>,
    #[serde(skip)]
    pub(super) issuer_raw: Vec<u8>,
}

/// The type of a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyType {
    /// RSA with this number of bits.
    Rsa(usize),
    /// A curve of NIST with this number of bits.
    Ecdsa(u32),
    /// Ed25519.
    Ed25519,
    /// Anything else, by its object identifier.
    Other(String),
}

impl KeyType {
    /// Why nobody should rely on the key; `None` if it is strong.
    pub(super) fn weakness(&self) -> Option<String> {
        match self {
            Self::Rsa(bits) if *bits < 2048 => {
                Some(format!("an RSA key of {bits} bits is too short: at least 2048 bits are required"))
            }
            Self::Other(what) => {
                Some(format!("Go's TLS does not accept its key ({what}): use ECDSA, RSA or Ed25519"))
            }
            Self::Rsa(_) | Self::Ecdsa(_) | Self::Ed25519 => None,
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA {bits}"),
            Self::Ecdsa(bits) => write!(f, "ECDSA P-{bits}"),
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

/// The algorithm of a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// An algorithm without a known weakness.
    Sound(String),
    /// An algorithm whose signatures can be forged: SHA-1, MD5.
    Broken(&'static str),
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound(name) => f.write_str(name),
            Self::Broken(name) => f.write_str(name),
        }
    }
}

/// The key usages that are checked here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// `digitalSignature`.
    pub digital_signature: bool,
    /// `keyEncipherment`.
    pub key_encipherment: bool,
    /// `keyCertSign`.
    pub cert_sign: bool,
}

/// The extended key usages that are checked here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Extended {
    /// `serverAuth`, or any.
    pub server: bool,
    /// `clientAuth`, or any.
    pub client: bool,
}

macro_rules! as_text {
    ($($of:ty),*) => {$(
        impl Serialize for $of {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
as_text!(KeyType, Signature);

impl Facts {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// The message is for people and contains nothing of `der`.
    pub fn read(der: &[u8]) -> Result<Self, String> {
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|_| "it is not an X.509 certificate".to_owned())?;
        if !rest.is_empty() {
            return Err(format!("{} bytes follow the certificate", rest.len()));
        }
        let subject = certificate.subject();
        let mut facts = Self {
            subject: clean(&subject.to_string()),
            issuer: clean(&certificate.issuer().to_string()),
            common_name: subject.iter_common_name().next().and_then(|name| name.as_str().ok()).map(clean),
            organizations: subject
                .iter_organization()
                .filter_map(|name| name.as_str().ok())
                .map(clean)
                .collect(),
            sans: Vec::new(),
            serial: hex(match certificate.raw_serial() {
                [0, rest @ ..] if !rest.is_empty() => rest,
                all => all,
            }),
            serial_fault: serial_fault(certificate.raw_serial()),
            not_before: timestamp(certificate.validity().not_before.timestamp()),
            not_after: timestamp(certificate.validity().not_after.timestamp()),
            key: key_type(certificate.public_key()),
            signature: signature(&certificate.signature_algorithm),
            spki_sha256: sha256_hex(certificate.public_key().raw),
            fingerprint: sha256_hex(der),
            authority: false,
            path_length: None,
            usage: None,
            extended: None,
            foreign: Vec::new(),
            self_issued: subject.as_raw() == certificate.issuer().as_raw(),
            der: der.to_vec(),
            subject_raw: subject.as_raw().to_vec(),
            issuer_raw: certificate.issuer().as_raw().to_vec(),
        };
        for extension in certificate.extensions() {
            facts.take(extension.parsed_extension(), extension.critical, || extension.oid.to_id_string())?;
        }
        Ok(facts)
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "a library's enum, which may grow")]
    fn take(
        &mut self,
        extension: &ParsedExtension<'_>,
        critical: bool,
        name: impl Fn() -> String,
    ) -> Result<(), String> {
        match extension {
            ParsedExtension::BasicConstraints(constraints) => {
                self.authority = constraints.ca;
                self.path_length = constraints.path_len_constraint;
            }
            ParsedExtension::KeyUsage(usage) => {
                self.usage = Some(Usage {
                    digital_signature: usage.digital_signature(),
                    key_encipherment: usage.key_encipherment(),
                    cert_sign: usage.key_cert_sign(),
                });
            }
            ParsedExtension::ExtendedKeyUsage(usage) => {
                self.extended = Some(Extended {
                    server: usage.any || usage.server_auth,
                    client: usage.any || usage.client_auth,
                });
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                self.sans.extend(names.general_names.iter().map(san));
            }
            ParsedExtension::ParseError { .. } => {
                return Err(format!("its extension {} is damaged", name()));
            }
            ParsedExtension::UnsupportedExtension { .. } if critical => self.foreign.push(name()),
            _ => {}
        }
        Ok(())
    }

    /// Whether `issuer`'s key signed this certificate; `None` if that cannot be checked, because the algorithm is unknown, or AWS-LC
    /// refuses it or the key as too weak.
    pub(super) fn signed_by(&self, issuer: &Self) -> Option<bool> {
        if matches!(self.signature, Signature::Broken(_)) || issuer.key.weakness().is_some() {
            return None;
        }
        let (_, own) = X509Certificate::from_der(&self.der).ok()?;
        let (_, theirs) = X509Certificate::from_der(&issuer.der).ok()?;
        match own.verify_signature(Some(theirs.public_key())) {
            Ok(()) => Some(true),
            Err(x509_parser::error::X509Error::SignatureUnsupportedAlgorithm) => None,
            Err(_) => Some(false),
        }
    }

    /// Whole days until the expiry; negative after it, 0 on the last day.
    #[must_use]
    pub fn days_left(&self, now: Timestamp) -> i64 {
        (self.not_after.as_second() - now.as_second()).div_euclid(86_400)
    }
}

/// RFC 5280, 4.1.2.2: positive, and of at most 20 bytes.
fn serial_fault(raw: &[u8]) -> Option<&'static str> {
    match raw {
        [] => Some("is missing"),
        _ if raw.iter().all(|byte| *byte == 0) => Some("is 0, which no certificate may have"),
        [first, ..] if first & 0x80 != 0 => Some("is negative"),
        _ if raw.len() > 20 => Some("is longer than 20 bytes"),
        _ => None,
    }
}

fn timestamp(second: i64) -> Timestamp {
    let clamped = second.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(clamped).unwrap_or_default()
}

#[allow(clippy::wildcard_enum_match_arm, reason = "a library's enum, which may grow")]
fn san(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => clean(&name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.map_or_else(|_| format!("damaged address {}", hex(bytes)), |address| address.to_string())
        }
        GeneralName::URI(text) => format!("URI:{}", clean(text)),
        GeneralName::RFC822Name(text) => format!("email:{}", clean(text)),
        _ => "a name of another kind".to_owned(),
    }
}

fn key_type(key: &SubjectPublicKeyInfo<'_>) -> KeyType {
    let algorithm = &key.algorithm.algorithm;
    let other = || KeyType::Other(algorithm.to_id_string());
    if *algorithm == oid::OID_PKCS1_RSAENCRYPTION {
        return match key.parsed() {
            Ok(x509_parser::public_key::PublicKey::RSA(rsa)) => {
                let significant = rsa.modulus.iter().skip_while(|byte| **byte == 0);
                let bytes = significant.clone().count();
                let spare = significant.clone().next().map_or(0, |first| first.leading_zeros() as usize);
                KeyType::Rsa((bytes * 8).saturating_sub(spare))
            }
            Ok(_) | Err(_) => other(),
        };
    }
    if *algorithm == oid::OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        return match curve {
            Some(curve) if curve == oid::OID_EC_P256 => KeyType::Ecdsa(256),
            Some(curve) if curve == oid::OID_NIST_EC_P384 => KeyType::Ecdsa(384),
            Some(curve) if curve == oid::OID_NIST_EC_P521 => KeyType::Ecdsa(521),
            Some(curve) => KeyType::Other(format!("the curve {}", curve.to_id_string())),
            None => other(),
        };
    }
    if *algorithm == oid::OID_SIG_ED25519 { KeyType::Ed25519 } else { other() }
}

/// `ecdsa-with-SHA1`, which the registry does not know: 1.2.840.10045.4.1.
const ECDSA_WITH_SHA1: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];

fn signature(algorithm: &AlgorithmIdentifier<'_>) -> Signature {
    let found = &algorithm.algorithm;
    if *found == oid::OID_PKCS1_SHA1WITHRSA || *found == oid::OID_SHA1_WITH_RSA {
        return Signature::Broken("SHA-1 with RSA");
    }
    if *found == oid::OID_SIG_DSA_WITH_SHA1 {
        return Signature::Broken("SHA-1 with DSA");
    }
    if found.as_bytes() == ECDSA_WITH_SHA1 {
        return Signature::Broken("SHA-1 with ECDSA");
    }
    if *found == oid::OID_PKCS1_MD5WITHRSAENC || *found == oid::OID_MD5_WITH_RSA {
        return Signature::Broken("MD5 with RSA");
    }
    let named = [
        (oid::OID_SIG_ECDSA_WITH_SHA256, "SHA-256 with ECDSA"),
        (oid::OID_SIG_ECDSA_WITH_SHA384, "SHA-384 with ECDSA"),
        (oid::OID_SIG_ECDSA_WITH_SHA512, "SHA-512 with ECDSA"),
        (oid::OID_PKCS1_SHA256WITHRSA, "SHA-256 with RSA"),
        (oid::OID_PKCS1_SHA384WITHRSA, "SHA-384 with RSA"),
        (oid::OID_PKCS1_SHA512WITHRSA, "SHA-512 with RSA"),
        (oid::OID_PKCS1_RSASSAPSS, "RSA-PSS"),
        (oid::OID_SIG_ED25519, "Ed25519"),
    ];
    let name = named.iter().find(|(oid, _)| oid == found).map(|(_, name)| (*name).to_owned());
    Signature::Sound(name.unwrap_or_else(|| found.to_id_string()))
}
