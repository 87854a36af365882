//! A mirror of registries and of publishers, as an air-gapped user keeps one: what `tests/cluster/software.sh` has put together.
//!
//! In its folder, `files/<host>/<path>` is what is published there; `images/tags/<registry>/<repository>/<tag>` says the digest of that tag's
//! manifest, and `images/blobs/<hex>` is what a digest stands for (OCI distribution: manifests and blobs by digest).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The media type of a manifest of one image.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A mirror. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Depot {
    folder: Arc<PathBuf>,
}

impl Depot {
    /// Of a folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder: Arc::new(folder) }
    }

    /// Serves it on a port of the loopback: its URL. Until the task is dropped.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn serve(&self) -> io::Result<(String, JoinHandle<()>)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let app = Router::new()
            .fallback(|State(depot): State<Self>, method: Method, uri: Uri| async move {
                depot.answer(&method, uri.path()).await
            })
            .with_state(self.clone());
        let task = tokio::spawn(async move {
            // It ends with the task.
            let _ = axum::serve(listener, app).await;
        });
        Ok((url, task))
    }

    /// Answers a request.
    pub async fn answer(&self, method: &Method, path: &str) -> Response {
        if path.split('/').any(|part| part == "..") {
            return StatusCode::BAD_REQUEST.into_response();
        }
        let Some(image) = path.strip_prefix("/v2/") else {
            let file = self.folder.join("files").join(path.trim_start_matches('/'));
            return send(method, &file, "application/octet-stream", None).await;
        };
        if image.is_empty() {
            return "{}".into_response();
        }
        let images = self.folder.join("images");
        if let Some((_, digest)) = image.split_once("/blobs/") {
            return send(method, &blob(&images, digest), "application/octet-stream", Some(digest)).await;
        }
        let Some((repository, reference)) = image.split_once("/manifests/") else {
            return StatusCode::NOT_FOUND.into_response();
        };
        if reference.starts_with("sha256:") {
            return send(method, &blob(&images, reference), MANIFEST, Some(reference)).await;
        }
        match tokio::fs::read_to_string(images.join("tags").join(repository).join(reference)).await {
            Ok(digest) => {
                let digest = digest.trim();
                send(method, &blob(&images, digest), MANIFEST, Some(digest)).await
            }
            Err(_) => StatusCode::NOT_FOUND.into_response(),
        }
    }
}

fn blob(images: &Path, digest: &str) -> PathBuf {
    images.join("blobs").join(digest.trim_start_matches("sha256:"))
}

async fn send(method: &Method, file: &Path, kind: &'static str, digest: Option<&str>) -> Response {
    let Ok(bytes) = tokio::fs::read(file).await else { return StatusCode::NOT_FOUND.into_response() };
    let length = bytes.len();
    let mut response =
        Response::builder().header(header::CONTENT_TYPE, kind).header(header::CONTENT_LENGTH, length);
    if let Some(digest) = digest {
        response = response.header("docker-content-digest", digest);
    }
    let body = if *method == Method::HEAD { Body::empty() } else { Body::from(bytes) };
    response.body(body).unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
