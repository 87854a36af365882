//! Checks a provided leaf against the profile that Slipway would issue it with.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use slipway_credentials::CertificateProfile;
use slipway_ports::{BroughtAuthority, Flaw, Secret};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{certificates, common, flaw};
use crate::armor;

/// Reads a leaf and returns its certificate in PEM. All other certificates in the file must form a chain to `authority`'s root.
pub(crate) fn leaf(
    text: &Secret,
    profile: &CertificateProfile,
    authority: &BroughtAuthority,
    now: Timestamp,
) -> Result<String, Vec<Flaw>> {
    let ders = certificates(text.expose()).map_err(|found| vec![found])?;
    let known = certificates(authority.chain.as_bytes()).map_err(|found| vec![found])?;
    let unreadable = || {
        vec![flaw(
            "it is not an X.509 certificate, or damaged",
            "bring the file as it was written, not a part of it",
        )]
    };
    let Some(Ok((_, leaf))) = ders.first().map(|der| X509Certificate::from_der(der)) else {
        return Err(unreadable());
    };
    let Some(Ok((_, issuer))) = known.first().map(|der| X509Certificate::from_der(der)) else {
        return Err(unreadable());
    };
    let mut found = Vec::new();
    let whose = format!("`{}`", leaf.subject());
    if leaf.is_ca() {
        found.push(flaw(
            format!("{whose} is an authority, and a leaf is wanted"),
            "put the leaf first in the file",
        ));
        return Err(found);
    }
    common(&leaf, &whose, Some(now.as_second()), &mut found);
    if leaf.issuer().as_raw() != issuer.subject().as_raw()
        || leaf.verify_signature(Some(issuer.public_key())).is_err()
    {
        found.push(flaw(
            format!("{whose} was not signed by `{}`", issuer.subject()),
            "have it issued by the authority that the cluster trusts, which is the first in its file",
        ));
    }
    if ders[1..].iter().any(|der| !known.contains(der)) {
        found.push(flaw(
            "it holds certificates besides the leaf that are not in the authority's file",
            "keep the leaf alone: what leads to the root belongs in the authority's file",
        ));
    }
    identity(&leaf, profile, &whose, &mut found);
    purposes(&leaf, profile, &whose, &mut found);
    if !found.is_empty() {
        return Err(found);
    }
    Ok(std::mem::take(&mut *armor::encode("CERTIFICATE", &ders[0])))
}

/// The identity of the leaf: the subject for a client, the alternative names for a server.
fn identity(leaf: &X509Certificate<'_>, profile: &CertificateProfile, whose: &str, found: &mut Vec<Flaw>) {
    if profile.client && !profile.server {
        let texts = |names: &mut dyn Iterator<Item = &x509_parser::x509::AttributeTypeAndValue<'_>>| {
            names.filter_map(|name| name.as_str().ok().map(str::to_owned)).collect::<BTreeSet<String>>()
        };
        let common_names = texts(&mut leaf.subject().iter_common_name());
        if common_names != BTreeSet::from([profile.common_name.clone()]) {
            found.push(flaw(
                format!("{whose} is for another than `{}`", profile.common_name),
                format!("have it issued with the subject CN={}", profile.common_name),
            ));
        }
        // Each organization is a group, which has permissions in the cluster.
        let organizations = texts(&mut leaf.subject().iter_organization());
        let wanted: BTreeSet<String> = profile.organizations.iter().cloned().collect();
        if organizations != wanted {
            let list = |names: &BTreeSet<String>| match names.len() {
                0 => "no organization".to_owned(),
                _ => names.iter().map(|name| format!("O={name}")).collect::<Vec<_>>().join(", "),
            };
            found.push(flaw(
                format!("{whose} has {}, and organizations are groups with rights", list(&organizations)),
                format!("have it issued with {}", list(&wanted)),
            ));
        }
    }
    let names: BTreeSet<String> = leaf
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|names| names.value.general_names.iter().filter_map(shown).collect())
        .unwrap_or_default();
    let missing: Vec<&str> =
        profile.sans.iter().filter(|name| !names.contains(*name)).map(String::as_str).collect();
    if !missing.is_empty() {
        found.push(flaw(
            format!("{whose} lacks the names {}", missing.join(", ")),
            "have it issued with them as subject alternative names",
        ));
    }
}

/// An alternative name in the form of a profile.
fn shown(name: &GeneralName<'_>) -> Option<String> {
    if let GeneralName::DNSName(name) = name {
        return Some(name.to_ascii_lowercase());
    }
    let GeneralName::IPAddress(bytes) = name else { return None };
    if let Ok(four) = <[u8; 4]>::try_from(*bytes) {
        return Some(IpAddr::from(four).to_string());
    }
    <[u8; 16]>::try_from(*bytes).ok().map(|sixteen| IpAddr::from(sixteen).to_string())
}

fn purposes(leaf: &X509Certificate<'_>, profile: &CertificateProfile, whose: &str, found: &mut Vec<Flaw>) {
    let usage = leaf.extended_key_usage().ok().flatten();
    let has = |purpose: fn(&x509_parser::extensions::ExtendedKeyUsage<'_>) -> bool| {
        usage.as_ref().is_some_and(|usage| usage.value.any || purpose(usage.value))
    };
    let mut missing = Vec::new();
    if profile.server && !has(|usage| usage.server_auth) {
        missing.push("serverAuth");
    }
    if profile.client && !has(|usage| usage.client_auth) {
        missing.push("clientAuth");
    }
    if !missing.is_empty() {
        found.push(flaw(
            format!("{whose} is not for {} (extendedKeyUsage)", missing.join(" and ")),
            "have it issued with that purpose",
        ));
    }
    if leaf.key_usage().ok().flatten().is_some_and(|usage| !usage.value.digital_signature()) {
        found.push(flaw(
            format!("{whose} may not sign a handshake (keyUsage lacks digitalSignature)"),
            "have it issued with keyUsage digitalSignature",
        ));
    }
}
