//! The protocol.

use std::time::Duration;

use aws_smithy_async::rt::sleep::default_async_sleep;
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, HttpConnectorSettings};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use serde::Deserialize;
use slipway_core::digest::sha256_hex;
use slipway_ports::refusal::chain;
use slipway_ports::{ErrorKind, PortError, PortResult, Registry};

use crate::reference::{Challenge, Reference, is_digest};

/// A registry that does not answer a connection in this time is down.
const CONNECT: Duration = Duration::from_secs(3);
/// An answer is a few hundred bytes of headers, or a manifest of some kilobytes.
const ANSWER: Duration = Duration::from_secs(10);
/// `registry.k8s.io` sends on to the mirror that is nearest; more than a few hops is a loop.
const MOST_HOPS: u32 = 5;
/// How often a question is put that got no answer.
const ATTEMPTS: u32 = 3;

const OPERATION: &str = "oci:HeadManifest";

/// All that an image may be; indexes first, for a cluster may have nodes of two architectures.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                      application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/// A place that answers for every registry, as `https://mirror.example.com/v2/<path>/<registry>/<repository>/…`, and for every
/// other site, as `https://mirror.example.com/<path>/<host>/…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Scheme and host.
    origin: String,
    /// With a slash at its end, or empty.
    path: String,
}

impl Mirror {
    /// Reads `https://mirror.example.com/path`; `http` for a registry on this machine alone.
    ///
    /// # Errors
    /// Why `url` is none, in words.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| format!("{url:?} has no scheme"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let local = host == "localhost" || host.starts_with("localhost:") || host.starts_with("127.");
        if host.is_empty() || !(scheme == "https" || scheme == "http" && local) {
            return Err(format!("{url:?} must be an https URL (http is for this machine alone)"));
        }
        let path = path.trim_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("{path}/") };
        Ok(Self { origin: format!("{scheme}://{host}"), path })
    }

    fn is_secure(&self) -> bool {
        self.origin.starts_with("https://")
    }
}

/// Asks registries, or the mirror in their place.
#[derive(Debug)]
pub struct OciRegistry {
    connector: Connector,
    mirror: Option<Mirror>,
}

impl OciRegistry {
    /// A client that asks the mirror named by `url`, or, where there is none, each registry itself.
    ///
    /// # Errors
    /// Why `url` is none, in words that begin with `variable`, which it is from.
    pub fn by_mirror(variable: &str, url: Option<&str>) -> Result<Self, String> {
        let mirror =
            url.map(Mirror::parse).transpose().map_err(|problem| format!("{variable}: {problem}"))?;
        Ok(Self::new(mirror))
    }

    /// A client that asks `mirror`, or each image's own registry.
    #[must_use]
    pub fn new(mirror: Option<Mirror>) -> Self {
        let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT).read_timeout(ANSWER).build();
        let mut builder = Connector::builder().connector_settings(settings);
        builder.set_sleep_impl(default_async_sleep());
        Self { connector: builder.tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build(), mirror }
    }

    fn url(&self, image: Reference<'_>) -> String {
        let Reference { host, repository, tag } = image;
        match &self.mirror {
            Some(Mirror { origin, path }) => format!("{origin}/v2/{path}{host}/{repository}/manifests/{tag}"),
            None => format!("https://{host}/v2/{repository}/manifests/{tag}"),
        }
    }

    /// Whether a secret (a token) or a question may go to `url`.
    fn may_ask(&self, url: &str) -> bool {
        url.starts_with("https://") || self.mirror.as_ref().is_some_and(|mirror| !mirror.is_secure())
    }

    async fn digest_of(&self, reference: &str) -> Result<Option<String>, Refusal> {
        let image = Reference::parse(reference)
            .ok_or_else(|| Refusal(ErrorKind::Invalid, "it is not a name of an image".to_owned()))?;
        let url = self.url(image);
        let mut token = None;
        let mut answer = self.ask("HEAD", &url, None).await?;
        if answer.status().as_u16() == 401 {
            token = Some(self.token(&answer, &url).await?);
            answer = self.ask("HEAD", &url, token.as_deref()).await?;
        }
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(None),
            status => return Err(Refusal::status(status, &url)),
        }
        if let Some(digest) = answer.headers().get("docker-content-digest") {
            return Ok(Some(checked(digest)?));
        }
        // The header is optional in the protocol; a digest is the hash of what is behind it.
        let whole = self.ask("GET", &url, token.as_deref()).await?;
        match whole.status().as_u16() {
            200 => Ok(Some(format!("sha256:{}", sha256_hex(&body(whole, &url).await?)))),
            404 => Ok(None),
            status => Err(Refusal::status(status, &url)),
        }
    }

    /// What is published at `url`, or in the mirror under its host and path.
    async fn text_at(&self, url: &str) -> Result<Option<String>, Refusal> {
        let place = url
            .strip_prefix("https://")
            .ok_or_else(|| Refusal(ErrorKind::Invalid, format!("{url} is not https")))?;
        let at = match &self.mirror {
            Some(Mirror { origin, path }) => format!("{origin}/{path}{place}"),
            None => url.to_owned(),
        };
        let answer = self.ask("GET", &at, None).await?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(None),
            status => return Err(Refusal::status(status, &at)),
        }
        let text = String::from_utf8(body(answer, &at).await?);
        text.map(Some).map_err(|_| Refusal(ErrorKind::Invalid, format!("{at} is not a text")))
    }

    /// The token that the registry gives to anybody.
    async fn token(&self, challenge: &HttpResponse, url: &str) -> Result<String, Refusal> {
        #[derive(Deserialize)]
        struct Granted {
            token: Option<String>,
            access_token: Option<String>,
        }
        let denied = |words: &str| Refusal(ErrorKind::Denied, format!("{url} {words}"));
        let header = challenge.headers().get("www-authenticate").and_then(Challenge::parse);
        let realm = header.ok_or_else(|| denied("wants credentials (HTTP 401), and Slipway has none"))?.url();
        let answer = self.ask("GET", &realm, None).await?;
        match answer.status().as_u16() {
            200 => {}
            401 | 403 => return Err(denied("gives no token to those without credentials")),
            status => return Err(Refusal::status(status, &realm)),
        }
        let granted: Option<Granted> = serde_json::from_slice(&body(answer, &realm).await?).ok();
        granted
            .and_then(|granted| granted.token.or(granted.access_token))
            .ok_or_else(|| Refusal(ErrorKind::Transient, format!("{realm} sent no token")))
    }

    /// One request, sent on as the registry says, and tried again while nobody answers.
    async fn ask(&self, method: &str, url: &str, token: Option<&str>) -> Result<HttpResponse, Refusal> {
        let (mut at, mut token) = (url.to_owned(), token);
        for _ in 0..MOST_HOPS {
            let answer = self.try_ask(method, &at, token).await?;
            if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let Some(next) = answer.headers().get("location").and_then(|to| resolved(&at, to)) else {
                return Err(Refusal(ErrorKind::Invalid, format!("{at} sends on to nowhere")));
            };
            if origin(&next) != origin(&at) {
                // A token is for the one who gave it.
                token = None;
            }
            at = next;
        }
        Err(Refusal(ErrorKind::Invalid, format!("{url} sends on in a circle")))
    }

    async fn try_ask(&self, method: &str, url: &str, token: Option<&str>) -> Result<HttpResponse, Refusal> {
        if !self.may_ask(url) {
            return Err(Refusal(ErrorKind::Invalid, format!("{url} is not https")));
        }
        let mut last = Refusal(ErrorKind::Transient, String::new());
        for _ in 0..ATTEMPTS {
            let request = request(method, url, token)?;
            match self.connector.call(request).await {
                Ok(answer) if answer.status().as_u16() < 500 => return Ok(answer),
                Ok(answer) => last = Refusal::status(answer.status().as_u16(), url),
                Err(error) => {
                    last =
                        Refusal(ErrorKind::Transient, format!("{url} cannot be reached: {}", chain(&error)))
                }
            }
        }
        Err(last)
    }
}

impl Registry for OciRegistry {
    async fn digest(&self, reference: &str) -> PortResult<Option<String>> {
        self.digest_of(reference).await.map_err(|refusal| refusal.into_error(OPERATION, reference))
    }

    async fn text(&self, url: &str) -> PortResult<Option<String>> {
        self.text_at(url).await.map_err(|refusal| refusal.into_error("https:Get", url))
    }
}

/// Why there is no answer.
#[derive(Debug)]
struct Refusal(ErrorKind, String);

impl Refusal {
    fn into_error(self, operation: &'static str, subject: &str) -> PortError {
        let Self(kind, message) = self;
        PortError { kind, operation, subject: subject.to_owned(), message }
    }

    fn status(status: u16, url: &str) -> Self {
        let kind = match status {
            401 | 403 => ErrorKind::Denied,
            408 | 429 | 500.. => ErrorKind::Transient,
            _ => ErrorKind::Invalid,
        };
        Self(kind, format!("{url} answers HTTP {status}"))
    }
}

fn request(method: &str, url: &str, token: Option<&str>) -> Result<HttpRequest, Refusal> {
    let invalid = |_| Refusal(ErrorKind::Invalid, format!("{url} is not a URL"));
    let mut request = HttpRequest::new(SdkBody::empty());
    request.set_method(method).map_err(invalid)?;
    request.set_uri(url).map_err(invalid)?;
    let headers = request.headers_mut();
    headers.insert("accept", ACCEPT);
    headers.insert("user-agent", concat!("slipway/", env!("CARGO_PKG_VERSION")));
    if let Some(token) = token {
        headers.try_insert("authorization", format!("Bearer {token}")).map_err(|_| {
            Refusal(ErrorKind::Transient, "the registry sent a token that is not a header".to_owned())
        })?;
    }
    Ok(request)
}

/// The longest body that is read: indexes are some kilobytes, and the specification lets registries stop at 4 MiB.
const MOST_BYTES: usize = 4 << 20;

async fn body(answer: HttpResponse, url: &str) -> Result<Vec<u8>, Refusal> {
    use aws_smithy_types::byte_stream::ByteStream;
    let broken = |why: String| Refusal(ErrorKind::Transient, format!("{url}: {why}"));
    let mut stream = ByteStream::new(answer.into_body());
    let mut bytes = Vec::new();
    while let Some(part) = stream.next().await {
        bytes.extend_from_slice(&part.map_err(|error| broken(chain(&error)))?);
        if bytes.len() > MOST_BYTES {
            return Err(Refusal(ErrorKind::Invalid, format!("{url} sends more than {MOST_BYTES} bytes")));
        }
    }
    Ok(bytes)
}

fn checked(digest: &str) -> Result<String, Refusal> {
    if is_digest(digest) {
        return Ok(digest.to_owned());
    }
    Err(Refusal(
        ErrorKind::Invalid,
        format!("the registry answers with {digest:?}, which is not a sha256 digest"),
    ))
}

/// `https://host` of a URL.
fn origin(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    url[after..].find('/').map_or(url, |slash| &url[..after + slash])
}

/// Where `location` leads from `url`.
fn resolved(url: &str, location: &str) -> Option<String> {
    if location.starts_with("https://") || location.starts_with("http://") {
        return Some(location.to_owned());
    }
    location.starts_with('/').then(|| format!("{}{location}", origin(url)))
}
