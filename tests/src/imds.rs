//! The instance metadata service, version 2, as one instance uses it.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::ACCOUNT;

/// The role's secret, for tests that check whether it leaks.
pub const SECRET: &str = "s3cr3t/of+the/instance=role";

const TOKEN: &str = "a-session-token-of-imds";

/// A metadata service on the loopback address. Dropping this value stops it.
#[derive(Debug)]
pub struct Imds {
    url: String,
    told: Arc<Metadata>,
    task: JoinHandle<()>,
}

/// The values below `/latest/`.
#[derive(Debug)]
struct Metadata(Mutex<BTreeMap<String, String>>);

impl Imds {
    /// Serves the metadata of the instance `id` at `address` in `zone`, whose calls are signed with `access_key`.
    ///
    /// # Errors
    /// If no port is available.
    pub async fn start(id: &str, zone: &str, address: &str, access_key: &str) -> io::Result<Self> {
        let credentials = json!({
            "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": access_key, "SecretAccessKey": SECRET,
            "Token": "session+token/==", "LastUpdated": "2026-11-20T12:00:00Z", "Expiration": "2099-01-01T00:00:00Z",
        });
        let region = zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        let identity = json!({ "accountId": ACCOUNT, "region": region, "instanceId": id });
        let told = [
            ("dynamic/instance-identity/document", identity.to_string()),
            ("meta-data/instance-id", id.to_owned()),
            ("meta-data/placement/availability-zone", zone.to_owned()),
            ("meta-data/local-ipv4", address.to_owned()),
            ("meta-data/iam/security-credentials/", "node-role".to_owned()),
            ("meta-data/iam/security-credentials/node-role", credentials.to_string()),
        ];
        let told = told.map(|(path, value)| (path.to_owned(), value));
        let told = Arc::new(Metadata(Mutex::new(told.into())));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let app = Router::new().fallback(answer).with_state(Arc::clone(&told));
        let task = tokio::spawn(async move {
            // The server ends with its task.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { url, told, task })
    }

    /// Sets the metadata at `path`; `None` removes it.
    pub fn set(&self, path: &str, value: Option<&str>) {
        let path = format!("meta-data/{path}");
        let mut told = self.told.0.lock().unwrap_or_else(PoisonError::into_inner);
        match value {
            Some(value) => _ = told.insert(path, value.to_owned()),
            None => _ = told.remove(&path),
        }
    }

    /// `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Imds {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request without a token is refused: that would be version 1.
async fn answer(
    State(told): State<Arc<Metadata>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> (StatusCode, String) {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if method == Method::PUT && uri.path() == "/latest/api/token" {
        return match header("x-aws-ec2-metadata-token-ttl-seconds") {
            Some(_) => (StatusCode::OK, TOKEN.to_owned()),
            None => (StatusCode::BAD_REQUEST, String::new()),
        };
    }
    if header("x-aws-ec2-metadata-token") != Some(TOKEN) {
        return (StatusCode::UNAUTHORIZED, String::new());
    }
    let told = told.0.lock().unwrap_or_else(PoisonError::into_inner);
    let found = uri.path().strip_prefix("/latest/").and_then(|path| told.get(path));
    found.map_or((StatusCode::NOT_FOUND, String::new()), |value| (StatusCode::OK, value.clone()))
}
