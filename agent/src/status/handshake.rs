//! A TLS handshake that accepts any certificate, and reports afterwards whether it verifies.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use slipway_core::node::report::ServedCertificate;
use slipway_crypto::verify::verify_single;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::http;

/// The listener is on this machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// The chain that a listener presented, leaf first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    chain: Vec<CertificateDer<'static>>,
}

/// Performs a handshake with `address`, with the certificate and key of `identity` if asked. The error is a message.
pub async fn present(address: SocketAddr, identity: Option<(&Path, &Path)>) -> Result<Presented, String> {
    let recorder = Recorder::new();
    let config = recorder.clone().config(identity)?;
    let name = ServerName::IpAddress(address.ip().into());
    let shaking = async {
        let stream =
            TcpStream::connect(address).await.map_err(|error| format!("the connection failed: {error}"))?;
        // An error after the certificate is ignored: the handshake had proven that the server has the key, or nothing was
        // recorded.
        let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        shaken.map(drop).map_err(|error| format!("the TLS handshake failed: {error}"))
    };
    let shaken = timeout(PATIENCE, shaking).await;
    shaken.map_err(|_| format!("it does not answer within {} s", PATIENCE.as_secs()))??;
    let chain = recorder.recorded();
    if chain.is_empty() { Err("it presents no certificate".to_owned()) } else { Ok(Presented { chain }) }
}

impl Presented {
    /// The certificate's facts, and the problem if it does not verify by `authorities` at `now`, or not for `name`.
    pub fn judge(
        &self,
        authorities: Option<&Path>,
        name: Option<&ServerName<'_>>,
        now: Timestamp,
    ) -> Result<(ServedCertificate, Option<String>), String> {
        let (read, _) = verify_single("served", &self.chain[0], None)?;
        let problem = authorities.and_then(|authorities| self.verify(authorities, name, now).err());
        let facts = read.facts;
        let certificate = ServedCertificate {
            serial: facts.serial,
            fingerprint: facts.fingerprint,
            subject: facts.subject,
            issuer: facts.issuer,
            not_before: facts.not_before,
            not_after: facts.not_after,
            verifies: authorities.is_some() && problem.is_none(),
        };
        Ok((certificate, problem))
    }

    /// The leaf in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        let text = STANDARD.encode(&self.chain[0]);
        let lines: Vec<&str> =
            (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    fn verify(
        &self,
        authorities: &Path,
        name: Option<&ServerName<'_>>,
        now: Timestamp,
    ) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        for certificate in http::certificates(authorities).map_err(|failure| failure.message)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", authorities.display()))?;
        }
        let parsed = ParsedCertificate::try_from(&self.chain[0]).map_err(|error| error.to_string())?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let algorithms = http::provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &roots,
            &self.chain[1..],
            UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
            algorithms,
        )
        .map_err(|error| error.to_string())?;
        name.map_or(Ok(()), |name| verify_server_name(&parsed, name).map_err(|error| error.to_string()))
    }
}

/// Accepts and records every certificate, but checks that the server has its key.
#[derive(Debug, Clone)]
pub struct Recorder {
    provider: Arc<CryptoProvider>,
    chain: Arc<Mutex<Vec<CertificateDer<'static>>>>,
}

impl Recorder {
    #[must_use]
    pub fn new() -> Self {
        Self { provider: http::provider(), chain: Arc::default() }
    }

    /// TLS that accepts any certificate. Only to inspect certificates, and for listeners on the loopback with self-signed ones:
    /// never send a secret over it.
    pub fn config(self, identity: Option<(&Path, &Path)>) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self));
        match identity {
            None => Ok(builder.with_no_client_auth()),
            Some((certificate, key)) => {
                let (certificates, secret) =
                    http::identity(certificate, key).map_err(|failure| failure.message)?;
                builder.with_client_auth_cert(certificates, secret).map_err(|error| error.to_string())
            }
        }
    }

    fn recorded(&self) -> Vec<CertificateDer<'static>> {
        self.chain.lock().map(|chain| chain.clone()).unwrap_or_default()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Ok(mut chain) = self.chain.lock() {
            let presented = std::iter::once(end_entity).chain(intermediates);
            *chain = presented.map(|certificate| certificate.clone().into_owned()).collect();
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
