//! Reads templates by `TemplateURL`, from the endpoint that takes the place of S3.

use crate::world::{ApiError, ApiResult, TemplateSource};

/// An HTTP client for plain endpoints.
///
/// If the node agent is built in the same workspace, reqwest has TLS but no crypto provider of its own. Without the provider that
/// is set here, no client could be made.
#[must_use]
pub fn client() -> reqwest::Client {
    // It fails if a provider was set before, which is harmless.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    reqwest::Client::new()
}

/// Reads templates from an S3 endpoint.
#[derive(Debug, Clone)]
pub(super) struct Templates {
    endpoint: Option<String>,
    client: reqwest::Client,
}

impl Templates {
    pub(super) fn new(endpoint: Option<String>) -> Self {
        Self { endpoint: endpoint.map(|one| one.trim_end_matches('/').to_owned()), client: client() }
    }

    /// Fetches the template at an S3 URL.
    pub(super) async fn fetch(&self, url: &str) -> ApiResult<TemplateSource> {
        let endpoint = self
            .endpoint
            .as_deref()
            .ok_or_else(|| ApiError::not_modelled("TemplateURL without an S3 endpoint"))?;
        let place = place(url, endpoint)
            .ok_or_else(|| ApiError::validation("TemplateURL must be a supported URL."))?;
        let failed = |words: &str| {
            ApiError::validation(format!(
                "S3 error: {words}\nFor more information check http://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html"
            ))
        };
        let response = self.client.get(format!("{endpoint}/{place}")).send().await;
        let response = response.map_err(|error| failed(&format!("{error}")))?;
        match response.status().as_u16() {
            200 => {}
            404 => return Err(failed("The specified key does not exist.")),
            403 => return Err(failed("Access Denied")),
            other => return Err(failed(&format!("unexpected status {other}"))),
        }
        let body = response.text().await.map_err(|error| failed(&format!("{error}")))?;
        Ok(TemplateSource { body, from_url: true })
    }
}

/// `bucket/key` of an S3 URL in either style, or of a URL of `endpoint` itself.
fn place(url: &str, endpoint: &str) -> Option<String> {
    if let Some(place) = url.strip_prefix(endpoint) {
        return place.strip_prefix('/').filter(|place| place.contains('/')).map(str::to_owned);
    }
    let (host, path) = url.strip_prefix("https://")?.split_once('/')?;
    let of_s3 = |service: &str| service == "s3" || service.starts_with("s3.") || service.starts_with("s3-");
    let service = host.strip_suffix(".amazonaws.com")?;
    if of_s3(service) {
        return path.contains('/').then(|| path.to_owned());
    }
    let at = service.match_indices('.').map(|(at, _)| at).find(|at| of_s3(&service[at + 1..]))?;
    (!path.is_empty()).then(|| format!("{}/{path}", &service[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_urls_of_either_style_name_the_same_place() {
        let local = |url| place(url, "http://127.0.0.1:5000");
        let there = Some("assets/clusters/a/t.json".to_owned());
        assert_eq!(local("https://assets.s3.eu-central-1.amazonaws.com/clusters/a/t.json"), there);
        assert_eq!(local("https://assets.s3.amazonaws.com/clusters/a/t.json"), there);
        assert_eq!(local("https://s3.eu-central-1.amazonaws.com/assets/clusters/a/t.json"), there);
        assert_eq!(local("http://127.0.0.1:5000/assets/clusters/a/t.json"), there);
        for odd in [
            "https://example.com/a/b",
            "http://127.0.0.1:5000/assets",
            "ftp://x/y",
            "https://s3.amazonaws.com/a",
        ] {
            assert_eq!(local(odd), None, "{odd}");
        }
    }
}
