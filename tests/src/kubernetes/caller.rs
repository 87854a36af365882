//! A client of the API server or of etcd.

use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use slipway_node::http;

/// A caller with a certificate, a token or neither.
#[derive(Debug, Clone)]
pub struct Caller {
    server: String,
    client: reqwest::Client,
    token: Option<String>,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// JSON, or text if it is not JSON.
    pub body: Value,
}

impl Caller {
    pub(super) fn new(
        server: &str,
        authority: &Path,
        identity: Option<(&Path, &Path)>,
        token: Option<&str>,
    ) -> Self {
        let tls = http::mutual(authority, identity).expect("credentials can be read");
        let client = http::client(tls, Duration::from_secs(30)).expect("there is a client");
        Self { server: server.to_owned(), client, token: token.map(str::to_owned) }
    }

    /// GET.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn get(&self, path: &str) -> reqwest::Result<Answer> {
        self.send(Method::GET, path, None).await
    }

    /// POST.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> reqwest::Result<Answer> {
        self.send(Method::POST, path, Some(("application/json", body))).await
    }

    /// PUT.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn put(&self, path: &str, body: &Value) -> reqwest::Result<Answer> {
        self.send(Method::PUT, path, Some(("application/json", body))).await
    }

    /// PATCH with a merge patch.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn merge(&self, path: &str, body: &Value) -> reqwest::Result<Answer> {
        self.send(Method::PATCH, path, Some(("application/merge-patch+json", body))).await
    }

    /// PATCH with a strategic merge patch, as clients of Kubernetes' own library send it.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn strategic(&self, path: &str, body: &Value) -> reqwest::Result<Answer> {
        self.send(Method::PATCH, path, Some(("application/strategic-merge-patch+json", body))).await
    }

    /// DELETE.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn delete(&self, path: &str) -> reqwest::Result<Answer> {
        self.send(Method::DELETE, path, None).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> reqwest::Result<Answer> {
        let mut request = self.client.request(method, format!("{}{path}", self.server));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some((kind, body)) = body {
            request = request.header("Content-Type", kind).body(body.to_string());
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, body })
    }
}
