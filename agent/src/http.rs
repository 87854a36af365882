//! The one HTTP client: rustls over aws-lc-rs, with its trusted authorities and its identity.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::failure::{AgentError, AgentResult, FailureCode};

#[must_use]
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// TLS that trusts the authorities in a file and presents the certificate in `identity` (certificate, key). The files are read
/// once: after a refresh of credentials, make a new client.
pub fn mutual(authorities: &Path, identity: Option<(&Path, &Path)>) -> AgentResult<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(|error| unreadable(authorities, &error))?;
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unreadable(authorities, &error))?
        .with_root_certificates(roots);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let (certificates, secret) = self::identity(certificate, key)?;
            builder
                .with_client_auth_cert(certificates, secret)
                .map_err(|error| unreadable(certificate, &error))
        }
    }
}

/// TLS that trusts the system's authorities: for AWS.
pub fn public() -> AgentResult<ClientConfig> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    let refused = |message: String| {
        AgentError::permanent(
            FailureCode::HttpAuthorities,
            message,
            "install the package ca-certificates in the image",
        )
    };
    if added == 0 {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(refused(format!(
            "this machine has no public certificate authorities: {}",
            errors.join("; ")
        )));
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Limit of one connection with its handshake, within the limit of the request. Where nobody answers, another try helps more than waiting.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// An HTTP client over `tls`; `patience` limits each request.
pub fn client(tls: ClientConfig, patience: Duration) -> AgentResult<reqwest::Client> {
    let builder = reqwest::Client::builder().use_preconfigured_tls(tls).timeout(patience).no_proxy();
    let builder = builder.connect_timeout(CONNECT_WITHIN);
    builder.build().map_err(|error| {
        AgentError::permanent(
            FailureCode::HttpClient,
            format!("no HTTP client: {error}"),
            "report this: it is a defect",
        )
    })
}

/// A certificate chain and its key.
pub fn identity(
    certificate: &Path,
    key: &Path,
) -> AgentResult<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
    Ok((certificates(certificate)?, secret))
}

pub fn certificates(path: &Path) -> AgentResult<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, &error))?.collect();
    found.map_err(|error| unreadable(path, &error))
}

/// The innermost cause is the useful one: "connection refused", not "error sending request".
pub(crate) fn innermost_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> AgentError {
    AgentError::permanent(
        FailureCode::CredentialsUnreadable,
        format!("{}: {error}", path.display()),
        "order `slipway renew --recover`, which has nodes fetch their credentials again",
    )
}
