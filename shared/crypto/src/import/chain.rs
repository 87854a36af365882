//! The certificate of an authority and those above it: first the one that issues, then the issuer of each.
//!
//! Nodes trust the issuing certificate itself, which Go accepts as a trust anchor although another certificate signed it. If they trusted
//! the root, everyone with a certificate under that root could sign in to the cluster. The other certificates are for clients that know
//! only the root: servers present the chain to it.

use jiff::Timestamp;
use slipway_ports::{BroughtAuthority, Flaw, Secret};
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};

use super::{certificates, common, flaw, spki};
use crate::armor;

/// The maximum number of certificates in a chain.
const MOST: usize = 8;

/// Reads the certificates of an authority, and checks that it can sign leaves that are valid from `now` on; `None`: dates are not checked.
pub(crate) fn authority(text: &Secret, now: Option<Timestamp>) -> Result<BroughtAuthority, Vec<Flaw>> {
    let ders = certificates(text.expose()).map_err(|found| vec![found])?;
    if ders.len() > MOST {
        let message = format!("it holds {} certificates", ders.len());
        let help = format!("keep the issuing one and those above it, {MOST} at most");
        return Err(vec![flaw(message, help)]);
    }
    let parsed: Option<Vec<X509Certificate<'_>>> = ders
        .iter()
        .map(|der| {
            X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, read)| read)
        })
        .collect();
    let Some(parsed) = parsed else {
        let help = "bring the file as it was written, not a part of it";
        return Err(vec![flaw("it is not an X.509 certificate, or damaged", help)]);
    };
    let mut found = Vec::new();
    let now_s = now.map(Timestamp::as_second);
    issuing(&parsed[0], now_s, &mut found);
    above(&parsed, now_s, &mut found);
    if !found.is_empty() {
        return Err(found);
    }
    let blocks = ders.iter().map(|der| std::mem::take(&mut *armor::encode("CERTIFICATE", der)));
    let blocks: Vec<String> = blocks.collect();
    let first = parsed.iter().map(|one| one.validity().not_after.timestamp()).min().unwrap_or_default();
    let ends = Timestamp::from_second(first).unwrap_or(Timestamp::MAX);
    let root = parsed.last().is_some_and(is_self_issued);
    Ok(BroughtAuthority {
        certificate: blocks[0].clone(),
        spki_sha256: spki(&parsed[0]),
        intermediates: blocks.len() - usize::from(root),
        chain: blocks.concat(),
        ends,
    })
}

fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

fn named(certificate: &X509Certificate<'_>) -> String {
    format!("`{}`", certificate.subject())
}

/// Flaws of the certificate that issues leaves.
fn issuing(certificate: &X509Certificate<'_>, now_s: Option<i64>, found: &mut Vec<Flaw>) {
    let whose = named(certificate);
    if !certificate.is_ca() {
        found.push(flaw(
            format!("{whose} is a leaf, no authority (it says CA:FALSE, or nothing)"),
            "bring the certificate of the authority itself, first in the file",
        ));
        return;
    }
    common(certificate, &whose, now_s, found);
    if certificate.key_usage().ok().flatten().is_some_and(|usage| !usage.value.key_cert_sign()) {
        found.push(flaw(
            format!("{whose} may not sign certificates (keyUsage lacks keyCertSign)"),
            "have it issued with keyUsage keyCertSign and cRLSign",
        ));
    }
    if let Some(usage) = certificate.extended_key_usage().ok().flatten()
        && !usage.value.any
        && !(usage.value.server_auth && usage.value.client_auth)
    {
        found.push(flaw(
            format!("the extendedKeyUsage of {whose} lacks serverAuth or clientAuth, and the certificates that it signs need both"),
            "have it issued without extendedKeyUsage, or with serverAuth and clientAuth",
        ));
    }
    let constrained = |read: &ParsedExtension<'_>| matches!(read, ParsedExtension::NameConstraints(_));
    if certificate.iter_extensions().any(|extension| constrained(extension.parsed_extension())) {
        found.push(flaw(
            format!("{whose} may sign certain names alone (nameConstraints), and a cluster has names such as kubernetes.default.svc and the addresses of its services"),
            "bring an authority without nameConstraints: an intermediate of its own for the cluster is the usual way",
        ));
    }
}

/// Flaws of the certificates above it.
fn above(chain: &[X509Certificate<'_>], now_s: Option<i64>, found: &mut Vec<Flaw>) {
    for (index, pair) in chain.windows(2).enumerate() {
        let [below, this] = pair else { continue };
        let whose = named(this);
        let signed = below.issuer().as_raw() == this.subject().as_raw()
            && below.verify_signature(Some(this.public_key())).is_ok();
        if !signed {
            found.push(flaw(
                format!("{whose} comes after {}, which it did not sign", named(below)),
                "order the certificates: the one whose key you bring first, then its issuer, and so on up to the root",
            ));
            return;
        }
        let depth = index + 1;
        let bound = this.basic_constraints().ok().flatten();
        if !this.is_ca() {
            found.push(flaw(format!("{whose} is not an authority"), "leave it out of the file"));
        }
        if let Some(most) = bound.and_then(|bound| bound.value.path_len_constraint)
            && usize::try_from(most).is_ok_and(|most| most < depth)
        {
            found.push(flaw(
                format!("{whose} allows {most} authorities below it (pathlen), and the file has {depth}"),
                "have the authority issued by one whose path length allows it, or leave this certificate and those above it out of the file: then the authority itself is what is trusted",
            ));
        }
        let mut flaws = Vec::new();
        common(this, &whose, now_s, &mut flaws);
        found.extend(flaws.into_iter().map(|one| Flaw {
            help: "leave it and those above it out of the file: then the authority itself is what is trusted".to_owned(),
            ..one
        }));
    }
}
