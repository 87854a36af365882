//! The content of a PEM file from elsewhere: an import needs to know which key belongs to which certificate.

use slipway_ports::Secret;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{armor, keys};

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspected {
    /// An X.509 certificate.
    Certificate {
        /// Its subject, such as `CN=kube-ca`.
        subject: String,
        /// Whether it may sign other certificates.
        authority: bool,
        /// The last second at which it is valid, since 1970.
        not_after: i64,
        /// SHA-256 of its public key (SubjectPublicKeyInfo), in hex.
        public_key: String,
    },
    /// A private key.
    Key {
        /// SHA-256 of its public key (SubjectPublicKeyInfo), in hex.
        public_key: String,
    },
    /// An encrypted private key.
    LockedKey,
    /// Something else, or a damaged file. The message contains nothing of it.
    Other(String),
}

/// Inspects the bytes of a file.
#[must_use]
pub fn inspect(bytes: &Secret) -> Inspected {
    let Ok(text) = std::str::from_utf8(bytes.expose()) else {
        return Inspected::Other("it is not text".to_owned());
    };
    // PKCS #8 has a label of its own, the older forms have a header (RFC 1421).
    if text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Inspected::LockedKey;
    }
    if text.contains("PRIVATE KEY-----") {
        return match keys::Key::from_pem(bytes) {
            Ok(key) => Inspected::Key { public_key: slipway_core::digest::sha256_hex(&key.public_der()) },
            Err(problem) => Inspected::Other(problem),
        };
    }
    let der = match armor::decode(&["CERTIFICATE"], text) {
        Ok(der) => der,
        Err(problem) => return Inspected::Other(problem),
    };
    match X509Certificate::from_der(&der) {
        Ok((_, certificate)) => Inspected::Certificate {
            subject: certificate.subject().to_string(),
            authority: certificate.is_ca(),
            not_after: certificate.validity().not_after.timestamp(),
            public_key: slipway_core::digest::sha256_hex(certificate.public_key().raw),
        },
        Err(_) => Inspected::Other("it is not an X.509 certificate".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn p9_what_is_no_pem_is_said_without_any_of_it() {
        let inspected = |text: &str| inspect(&Secret::new(text.as_bytes().to_vec()));
        assert_eq!(inspected("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII\n"), Inspected::LockedKey);
        assert_eq!(
            inspected(
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMII\n"
            ),
            Inspected::LockedKey
        );
        for text in
            ["c2VjcmV0LXRva2Vu", "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n"]
        {
            let Inspected::Other(problem) = inspected(text) else {
                panic!("{text} was recognized as something")
            };
            assert!(!problem.contains("c2Vj"), "{problem}");
        }
    }
}
