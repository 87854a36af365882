//! Issues certificates according to RFC 5280, and reads them.

use std::net::IpAddr;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, SanType, SerialNumber,
};
use slipway_core::digest::{hex, sha256_hex};
use slipway_credentials::manifest::{BACKDATED, capped_expiry, not_after};
use slipway_credentials::{CertificateFacts, CertificateProfile};
use slipway_ports::{NewAsset, PortResult, Signer};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use zeroize::Zeroizing;

use crate::keys::Key;
use crate::{armor, fill, refused};

/// The number of bytes of a serial number. RFC 5280, 4.1.2.2 allows 20; the CA/Browser Forum requires 8 random ones.
const SERIAL_LEN: usize = 16;

/// Makes a key and its certificate.
pub(crate) fn issue(
    profile: &CertificateProfile,
    signer: Option<&Signer>,
    now: Timestamp,
) -> PortResult<NewAsset> {
    certify(profile, &Key::generate(profile.algorithm)?, signer, now)
}

/// Makes a certificate for an existing key.
pub(crate) fn certify(
    profile: &CertificateProfile,
    key: &Key,
    signer: Option<&Signer>,
    now: Timestamp,
) -> PortResult<NewAsset> {
    let fail = |message: String| refused("pki:Issue", &profile.common_name, message);
    let mut params = params(profile, key, now)?;
    let certificate = match signer {
        None => params.self_signed(key.pair()).map_err(|error| fail(error.to_string()))?,
        Some(signer) => {
            params.use_authority_key_identifier_extension = true;
            let authority = armor::decode(&["CERTIFICATE"], &signer.certificate)
                .map_err(|problem| fail(format!("the authority's certificate cannot be read: {problem}")))?;
            let (_, parsed) = X509Certificate::from_der(&authority)
                .map_err(|_| fail("the authority's certificate cannot be read".to_owned()))?;
            let signing_key = Key::from_pem(&signer.key).map_err(fail)?;
            if signing_key.public_der() != parsed.public_key().raw {
                return Err(fail("the authority's key does not belong to its certificate".to_owned()));
            }
            if !parsed.is_ca() {
                return Err(fail(format!("{} is not an authority", parsed.subject())));
            }
            if let Some(end) = cut_at_issuer(profile, now, &parsed)? {
                params.not_after = date(end, profile)?;
            }
            let issuer = Issuer::from_ca_cert_der(&(&authority[..]).into(), signing_key.pair())
                .map_err(|error| fail(error.to_string()))?;
            let certificate =
                params.signed_by(key.pair(), &issuer).map_err(|error| fail(error.to_string()))?;
            refuse_another_issuer(profile, certificate.der(), &parsed)?;
            certificate
        }
    };
    let mut pem = armor::encode("CERTIFICATE", certificate.der());
    Ok(NewAsset { private: key.private_pem(), public: Some(std::mem::take(&mut *pem)) })
}

fn params(profile: &CertificateProfile, key: &Key, now: Timestamp) -> PortResult<CertificateParams> {
    let fail = |message: String| refused("pki:Issue", &profile.common_name, message);
    let mut params = CertificateParams::default();
    params.not_before = date(now.saturating_sub(BACKDATED).unwrap_or(now), profile)?;
    let end = not_after(now, profile.days)
        .ok_or_else(|| fail(format!("{} days from {now} lie beyond the year 9999", profile.days)))?;
    params.not_after = date(end, profile)?;
    params.serial_number = Some(serial()?);
    params.distinguished_name = DistinguishedName::new();
    if profile.organizations.len() > 1 {
        // rcgen keeps one value per attribute type.
        return Err(fail("a subject with more than one organization is not supported".to_owned()));
    }
    for organization in &profile.organizations {
        params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
    }
    params.distinguished_name.push(DnType::CommonName, profile.common_name.as_str());
    for name in &profile.sans {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(
                name.as_str()
                    .try_into()
                    .map_err(|_| fail(format!("{name:?} is neither an address nor a DNS name in ASCII")))?,
            ),
        });
    }
    // `NoCa` would leave out the subject key identifier.
    params.is_ca =
        if profile.authority { IsCa::Ca(BasicConstraints::Constrained(0)) } else { IsCa::ExplicitNoCa };
    params.key_usages = key_usages(profile, key);
    if profile.server {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    if profile.client {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    Ok(params)
}

/// An RSA key may also encipher (TLS 1.2 without forward secrecy); the certificate of an ECDSA key must not say so (RFC 8813).
fn key_usages(profile: &CertificateProfile, key: &Key) -> Vec<KeyUsagePurpose> {
    if profile.authority {
        return vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    }
    if key.is_rsa() {
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment]
    } else {
        vec![KeyUsagePurpose::DigitalSignature]
    }
}

fn date(time: Timestamp, profile: &CertificateProfile) -> PortResult<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(time.as_second()).map_err(|_| {
        refused("pki:Issue", &profile.common_name, format!("{time} is not a date of a certificate"))
    })
}

/// A random positive number of fixed length: its first bit is clear, and its second is set.
fn serial() -> PortResult<SerialNumber> {
    let mut bytes = [0; SERIAL_LEN];
    fill(&mut bytes)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// The expiry of a leaf: no later than that of its issuer.
fn cut_at_issuer(
    profile: &CertificateProfile,
    now: Timestamp,
    authority: &X509Certificate<'_>,
) -> PortResult<Option<Timestamp>> {
    let Some(end) = not_after(now, profile.days) else { return Ok(None) };
    let issuer_end = Timestamp::from_second(authority.validity().not_after.timestamp()).unwrap_or(end);
    capped_expiry(end, issuer_end, now).map(Some).ok_or_else(|| {
        let message = format!(
            "it cannot be issued at {now}: its authority {} ends {}",
            authority.subject(),
            authority.validity().not_after
        );
        refused("pki:Issue", &profile.common_name, message)
    })
}

/// Chains are built by comparing names. rcgen encodes the issuer's name again, and might encode it differently (for example if an imported
/// authority has an attribute twice).
fn refuse_another_issuer(
    profile: &CertificateProfile,
    der: &[u8],
    authority: &X509Certificate<'_>,
) -> PortResult<()> {
    let matches = X509Certificate::from_der(der)
        .is_ok_and(|(_, certificate)| certificate.issuer().as_raw() == authority.subject().as_raw());
    if matches {
        return Ok(());
    }
    let message =
        format!("the authority's name cannot be written as it stands there: {}", authority.subject());
    Err(refused("pki:Issue", &profile.common_name, message))
}

/// Reads a certificate.
pub(crate) fn facts(pem: &str) -> PortResult<(CertificateFacts, String)> {
    let fail = |message: String| refused("pki:Facts", "a certificate", message);
    let der: Zeroizing<Vec<u8>> = armor::decode(&["CERTIFICATE"], pem).map_err(fail)?;
    let (rest, certificate) =
        X509Certificate::from_der(&der).map_err(|_| fail("it is not an X.509 certificate".to_owned()))?;
    if !rest.is_empty() {
        return Err(fail(format!("{} bytes follow the certificate", rest.len())));
    }
    let time = |time: x509_parser::time::ASN1Time| {
        Timestamp::from_second(time.timestamp()).map_err(|_| fail("a date in it cannot be".to_owned()))
    };
    let fingerprint = sha256_hex(&der);
    let self_issued = certificate.subject().as_raw() == certificate.issuer().as_raw();
    let facts = CertificateFacts {
        serial: hex(&certificate.serial.to_bytes_be()),
        not_before: time(certificate.validity().not_before)?,
        not_after: time(certificate.validity().not_after)?,
        spki_sha256: sha256_hex(certificate.public_key().raw),
        issuer_fingerprint: if self_issued { fingerprint.clone() } else { String::new() },
    };
    Ok((facts, fingerprint))
}
