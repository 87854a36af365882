//! A registry of container images on the loopback address: the part of the OCI distribution protocol that pins a tag, with the token that
//! registries give to anybody. It has every image, and the content of an image is its name. It also has the checksums of programs.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use slipway_core::digest::sha256_hex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The behaviour of a registry.
#[derive(Debug, Clone, Default)]
pub struct Manners {
    /// The images (`repository:tag`) and checksums (`host/path`) that it does not have.
    pub lacks: BTreeSet<String>,
    /// It redirects every request to another path first, as `registry.k8s.io` does.
    pub redirects: bool,
    /// It omits the header with the digest, which the protocol allows.
    pub silent: bool,
    /// It gives its token to nobody.
    pub closed: bool,
    /// It answers every request with this status.
    pub fails_with: Option<u16>,
}

/// A running registry.
#[derive(Debug)]
pub struct Registry {
    url: String,
    desk: Arc<Desk>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Desk {
    url: String,
    manners: Manners,
    seen: Mutex<Vec<String>>,
}

const TOKEN: &str = "a-token-for-anybody";

impl Registry {
    /// Starts a registry.
    ///
    /// # Errors
    /// If no port is available.
    pub async fn start(manners: Manners) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let desk = Arc::new(Desk { url: url.clone(), manners, seen: Mutex::default() });
        let app = Router::new()
            .route("/token", get(token))
            .route("/v2/{*path}", get(manifest).head(manifest))
            .route("/elsewhere/{*path}", get(manifest).head(manifest))
            .route("/{*path}", get(checksum))
            .with_state(Arc::clone(&desk));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!(%error, "a registry ended");
            }
        });
        Ok(Self { url, desk, server })
    }

    /// Its URL: a mirror for everything.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The requests: method and path, followed by `with a token` if there was one.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.desk.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The digest of `reference` in this registry.
    #[must_use]
    pub fn digest(reference: &str) -> String {
        format!("sha256:{}", sha256_hex(content(reference).as_bytes()))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn content(reference: &str) -> String {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [],
        "annotations": { "org.opencontainers.image.ref.name": reference },
    })
    .to_string()
}

async fn token(State(desk): State<Arc<Desk>>) -> Response {
    if desk.manners.closed {
        return StatusCode::FORBIDDEN.into_response();
    }
    axum::Json(json!({ "token": TOKEN, "expires_in": 300 })).into_response()
}

/// The checksum that a publisher provides for a program: the digest of the file's name.
async fn checksum(State(desk): State<Arc<Desk>>, Path(path): Path<String>) -> Response {
    desk.seen.lock().unwrap_or_else(PoisonError::into_inner).push(format!("GET /{path}"));
    if let Some(status) = desk.manners.fails_with {
        return StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT).into_response();
    }
    if desk.manners.lacks.contains(&path) {
        return StatusCode::NOT_FOUND.into_response();
    }
    format!("{}\n", sha256_hex(path.as_bytes())).into_response()
}

async fn manifest(
    State(desk): State<Arc<Desk>>,
    Path(path): Path<String>,
    method: Method,
    uri: axum::http::Uri,
    headers: HeaderMap,
) -> Response {
    let known = headers.get(header::AUTHORIZATION).is_some_and(|value| value == &format!("Bearer {TOKEN}"));
    let with = if known { " with a token" } else { "" };
    desk.seen.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{method} {}{with}", uri.path()));
    if let Some(status) = desk.manners.fails_with {
        return StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT).into_response();
    }
    if desk.manners.redirects && uri.path().starts_with("/v2/") {
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, format!("/elsewhere/{path}"))])
            .into_response();
    }
    if !known {
        let challenge =
            format!(r#"Bearer realm="{}/token",service="registry",scope="repository:any:pull""#, desk.url);
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response();
    }
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let reference = path.split_once("/manifests/").map(|(name, tag)| format!("{name}:{tag}"));
    let Some(reference) = reference.filter(|name| !desk.manners.lacks.contains(name)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // To a client that does not accept indexes, a real registry would return the image of one architecture.
    if !accepts.contains("application/vnd.oci.image.index.v1+json") {
        return StatusCode::NOT_ACCEPTABLE.into_response();
    }
    let mut answer = HeaderMap::new();
    if !desk.manners.silent
        && let Ok(digest) = Registry::digest(&reference).parse()
    {
        answer.insert("docker-content-digest", digest);
    }
    (answer, content(&reference)).into_response()
}
