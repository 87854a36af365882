//! The few AWS calls that a node makes, signed by aws-sigv4 over the one HTTP client. The SDKs would add megabytes to the binary
//! and minutes to the build.
//!
//! - [`Endpoints`]: URLs of the services. The environment can override them, and only `main` reads it.
//! - [`Imds`]: the identity of this instance, and its role's credentials.
//! - [`Aws`]: a client of one region. Its calls are in `objects`, `keys`, `volumes`, `instances`, `records`, `registry` and `groups`.
//!
//! Each call is idempotent, so throttling, broken connections and 5xx answers are retried with growing pauses. The failure of a
//! call that is denied names the statement of the node's policy that allows it.

mod endpoints;
mod error;
mod groups;
mod identity;
mod instances;
mod keys;
mod objects;
mod records;
mod registry;
mod volumes;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use reqwest::{Method, Response};
use slipway_ports::refusal::{chain, kind_of};
use slipway_ports::{ErrorKind, PortError, PortResult};
use tokio::sync::Mutex;

use crate::failure::{AgentError, AgentResult};
use crate::http;
pub use endpoints::Endpoints;
pub(crate) use error::code_of;
pub use groups::{Hook, HookResult};
pub use identity::{Imds, Instance};
pub use instances::Machine;
pub use keys::NodeKeys;
pub use objects::{BucketOfAssets, MOST_FILE_BYTES};
pub use records::Record;
pub(crate) use records::zone_of;
pub use volumes::{Volume, of_stack};

use endpoints::Service;
use error::{port_error, refusal};
use identity::RoleCredentials;

/// A client of one region, with the instance role's credentials.
#[derive(Debug, Clone)]
pub struct Aws {
    http: reqwest::Client,
    imds: Imds,
    endpoints: Arc<Endpoints>,
    region: String,
    credentials: Arc<Mutex<Option<RoleCredentials>>>,
    retry: Retry,
}

#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// Including the first one.
    pub tries: u32,
    /// Before the second try; it doubles each time.
    pub pause: Duration,
}

impl Default for Retry {
    /// About twelve seconds in all.
    fn default() -> Self {
        Self { tries: 7, pause: Duration::from_millis(200) }
    }
}

/// Limit of one request: an object of a few megabytes over a slow network.
const PATIENCE: Duration = Duration::from_secs(60);
/// Limit of one request that carries a snapshot.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(3600);
/// Credentials are fetched again this long before they expire.
const BEFORE_THE_END: Duration = Duration::from_secs(300);

pub(crate) enum Body<'a> {
    Bytes(&'a [u8]),
    /// Streamed and not part of the signature, as AWS' own tools do for large bodies: TLS protects it.
    File(&'a std::path::Path),
}

pub(crate) struct Call<'a> {
    /// As IAM names it: `s3:GetObject`.
    pub(crate) operation: &'static str,
    /// What the call is about, for messages.
    pub(crate) subject: &'a str,
    pub(crate) service: Service,
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body<'a>,
    pub(crate) patience: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new(operation: &'static str, subject: &'a str, service: Service, url: String) -> Self {
        Self {
            operation,
            subject,
            service,
            method: Method::POST,
            url,
            headers: Vec::new(),
            body: Body::Bytes(&[]),
            patience: PATIENCE,
        }
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> PortError {
        port_error(self.operation, self.subject, kind, message)
    }
}

impl Aws {
    /// A client of `region`, which trusts the system's authorities.
    pub fn new(endpoints: &Endpoints, region: &str) -> AgentResult<Self> {
        let http = http::client(http::public()?, LONG_PATIENCE)?;
        Ok(Self {
            imds: Imds::new(http.clone(), endpoints),
            http,
            endpoints: Arc::new(endpoints.clone()),
            region: region.to_owned(),
            credentials: Arc::default(),
            retry: Retry::default(),
        })
    }

    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self.imds = self.imds.with_retry(retry);
        self
    }

    #[must_use]
    pub fn imds(&self) -> &Imds {
        &self.imds
    }

    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The base of a service's URLs.
    pub(crate) fn base(&self, service: Service) -> String {
        self.endpoints.base(service, &self.region)
    }

    /// Makes a call whose answer is a short text.
    pub(crate) async fn text(&self, call: &Call<'_>) -> PortResult<String> {
        let response = self.send(call).await?;
        let broken = |error: reqwest::Error| {
            call.error(ErrorKind::Transient, format!("the answer broke off: {}", error.without_url()))
        };
        response.text().await.map_err(broken)
    }

    /// Makes a call, and retries transient errors.
    pub(crate) async fn send(&self, call: &Call<'_>) -> PortResult<Response> {
        let mut pause = self.retry.pause;
        let mut tries = 1;
        loop {
            let error = match self.send_once(call).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if error.kind != ErrorKind::Transient || tries >= self.retry.tries {
                return Err(error);
            }
            // Credentials are renewed before they expire, but a wrong clock can make them expire early.
            if code_of(&error).starts_with("ExpiredToken") {
                *self.credentials.lock().await = None;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            tries += 1;
        }
    }

    async fn send_once(&self, call: &Call<'_>) -> PortResult<Response> {
        let credentials = self.credentials().await?;
        let mut request = self.http.request(call.method.clone(), &call.url).timeout(call.patience);
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        for (name, value) in self.signature(call, &credentials)? {
            request = request.header(name, value);
        }
        request = match call.body {
            Body::Bytes(bytes) => request.body(bytes.to_vec()),
            Body::File(path) => {
                let unreadable = |error: std::io::Error| {
                    call.error(ErrorKind::Invalid, format!("{}: {error}", path.display()))
                };
                let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
                let length = file.metadata().await.map_err(unreadable)?.len();
                request.header("content-length", length).body(file)
            }
        };
        // Without the URL: the subject already says what the call was about.
        let response = request.send().await.map_err(|error| {
            call.error(ErrorKind::Transient, format!("no answer: {}", chain(&error.without_url())))
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let words = response.text().await.unwrap_or_default();
        let (code, message) = refusal(&words);
        Err(call
            .error(kind_of(&code, status.as_u16()), format!("{code}: {message} (HTTP {})", status.as_u16())))
    }

    /// The headers that sign `call`.
    fn signature(
        &self,
        call: &Call<'_>,
        credentials: &RoleCredentials,
    ) -> PortResult<Vec<(&'static str, String)>> {
        let refused = |error: &dyn std::fmt::Display| {
            call.error(ErrorKind::Invalid, format!("the request cannot be signed: {error}"))
        };
        let is_s3 = call.service == Service::S3;
        let mut settings = SigningSettings::default();
        if is_s3 {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        }
        let identity = credentials.identity();
        let region = self.endpoints.signing_region(call.service, &self.region);
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(region)
            .name(call.service.signing_name())
            .time(SystemTime::now())
            .settings(settings)
            .build()
            .map_err(|error| refused(&error))?
            .into();
        let body = match call.body {
            Body::Bytes(bytes) => SignableBody::Bytes(bytes),
            Body::File(_) => SignableBody::UnsignedPayload,
        };
        let headers = call.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let signable = SignableRequest::new(call.method.as_str(), call.url.as_str(), headers, body)
            .map_err(|error| refused(&error))?;
        let (instructions, _) = sign(signable, &parameters).map_err(|error| refused(&error))?.into_parts();
        let (headers, _) = instructions.into_parts();
        Ok(headers.into_iter().map(|header| (header.name(), header.value().to_owned())).collect())
    }

    /// The role's credentials, fetched again before they expire.
    async fn credentials(&self) -> PortResult<RoleCredentials> {
        let mut kept = self.credentials.lock().await;
        if let Some(credentials) = kept.as_ref()
            && credentials.last_for(BEFORE_THE_END)
        {
            return Ok(credentials.clone());
        }
        let fresh = self.imds.credentials().await?;
        *kept = Some(fresh.clone());
        Ok(fresh)
    }
}

/// Percent-encodes a query value or a path as in RFC 3986.
fn encoded(text: &str, keep_slashes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if keep_slashes => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The body of a call to a query API: `Action=…&Version=…&…`.
pub(crate) fn form(pairs: &[(&str, &str)]) -> String {
    let pairs =
        pairs.iter().map(|(name, value)| format!("{}={}", encoded(name, false), encoded(value, false)));
    pairs.collect::<Vec<_>>().join("&")
}

impl From<PortError> for AgentError {
    fn from(error: PortError) -> Self {
        error::failure(&error)
    }
}
