//! The few calls of AWS that a node makes, signed by aws-sigv4 over the one HTTP client: the SDKs are megabytes and minutes.
//!
//! - [`Endpoints`]: where the services answer; the environment may say otherwise, and is read in `main` alone.
//! - [`Imds`]: who this instance is, and its role's credentials.
//! - [`Aws`]: a client of one region. `objects`, `keys`, `volumes`, `instances`, `records` and `groups` have its calls.
//!
//! Whatever is throttled, breaks off or answers 5xx is tried again with growing pauses: each call is one that may be repeated.
//! What fails for good says which statement of the node's policy allows it.

mod endpoints;
mod error;
mod groups;
mod identity;
mod instances;
mod keys;
mod objects;
mod records;
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

use crate::failure::{Failure, Outcome};
use crate::http;
pub use endpoints::Endpoints;
pub(crate) use error::code_of;
pub use groups::{Hook, HookResult};
pub use identity::{Imds, Instance};
pub use instances::Machine;
pub use keys::NodeKeys;
pub use objects::BucketOfAssets;
pub use records::Record;
pub(crate) use records::zone_of;
pub use volumes::Volume;

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

/// How often a call is tried.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// All tries, the first one too.
    pub tries: u32,
    /// The pause before the second; each next is twice as long.
    pub pause: Duration,
}

impl Default for Retry {
    /// Some twelve seconds in all.
    fn default() -> Self {
        Self { tries: 7, pause: Duration::from_millis(200) }
    }
}

/// Bounds one request; an object of a few megabytes on a slow day.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bounds one request that carries a snapshot.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(3600);
/// Credentials are taken anew so long before they end.
const BEFORE_THE_END: Duration = Duration::from_secs(300);

/// What a request carries.
pub(crate) enum Body<'a> {
    /// Bytes, which are signed.
    Bytes(&'a [u8]),
    /// A file, which is streamed: TLS alone vouches for it, as AWS' own tools do with what does not fit into memory.
    File(&'a std::path::Path),
}

/// One call.
pub(crate) struct Call<'a> {
    /// As IAM names it: `s3:GetObject`.
    pub(crate) operation: &'static str,
    /// What it is about.
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
    ///
    /// # Errors
    /// If the HTTP client cannot be made.
    pub fn new(endpoints: &Endpoints, region: &str) -> Outcome<Self> {
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

    /// The same with other patience.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self.imds = self.imds.with_retry(retry);
        self
    }

    /// What the metadata service tells.
    #[must_use]
    pub fn imds(&self) -> &Imds {
        &self.imds
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The base of a service's URLs.
    pub(crate) fn base(&self, service: Service) -> String {
        self.endpoints.base(service, &self.region)
    }

    /// A call that answers with a small text.
    pub(crate) async fn text(&self, call: &Call<'_>) -> PortResult<String> {
        let response = self.send(call).await?;
        let broken = |error: reqwest::Error| {
            call.error(ErrorKind::Transient, format!("the answer broke off: {}", error.without_url()))
        };
        response.text().await.map_err(broken)
    }

    /// Makes a call, as often as it takes.
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
            // A role's credentials are exchanged before they end; a clock that is off can make them end early.
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
        // Without the URL, which an error would repeat: the subject names what it was about.
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
            call.error(ErrorKind::Invalid, format!("it cannot be signed: {error}"))
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

    /// The role's credentials, taken anew before they end.
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

/// The value of a query parameter or a part of a path, percent-encoded as RFC 3986 has it.
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

/// A call of a query API: `Action=…&Version=…&…`.
pub(crate) fn form(pairs: &[(&str, &str)]) -> String {
    let pairs =
        pairs.iter().map(|(name, value)| format!("{}={}", encoded(name, false), encoded(value, false)));
    pairs.collect::<Vec<_>>().join("&")
}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Self {
        error::failure(&error)
    }
}
