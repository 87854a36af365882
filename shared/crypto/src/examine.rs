//! A single certificate for the scan: its content, and the problems that show without other certificates.

use slipway_credentials::CertificateFacts;
use slipway_ports::{ExaminedCertificate, Flaw};

use crate::verify;

/// See [`slipway_ports::Crypto::examine`].
pub(crate) fn examine(key: &str, bytes: &[u8]) -> Result<ExaminedCertificate, Flaw> {
    let help = "bring back an earlier version of the object (the bucket keeps them), or issue it anew";
    let flaw = |message: String| Flaw { message, help: help.to_owned() };
    let pem = std::str::from_utf8(bytes).map_err(|_| flaw("it is not text, and so not PEM".to_owned()))?;
    let der = verify::der(pem).map_err(flaw)?;
    // The scan judges dates by its own thresholds.
    let (certificate, findings) = verify::verify_single(key, &der, None).map_err(flaw)?;
    let facts = certificate.facts;
    Ok(ExaminedCertificate {
        fingerprint: facts.fingerprint,
        facts: CertificateFacts {
            serial: facts.serial,
            not_before: facts.not_before,
            not_after: facts.not_after,
            spki_sha256: facts.spki_sha256,
            issuer_fingerprint: String::new(),
        },
        flaws: findings
            .into_iter()
            .map(|finding| Flaw { message: finding.message, help: finding.help })
            .collect(),
    })
}
