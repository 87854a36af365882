//! Downloads a release: over HTTPS from its publisher or a mirror, or from a bucket with the node's own role.

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::unwritable;
use crate::aws::{Aws, MOST_FILE_BYTES, Retry};
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::http;

/// Limit of one try: the largest release has about 60 MB.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct Publisher {
    http: reqwest::Client,
    aws: Aws,
    retry: Retry,
}

impl Publisher {
    /// Public sites, and buckets that the role behind `aws` may read.
    pub fn new(aws: &Aws) -> AgentResult<Self> {
        let http = http::client(http::public()?, PATIENCE)?;
        Ok(Self { http, aws: aws.clone(), retry: Retry { tries: 6, pause: Duration::from_secs(1) } })
    }

    #[cfg(test)]
    pub(super) fn with_http(http: reqwest::Client, aws: &Aws) -> Self {
        Self { http, aws: aws.clone(), retry: Retry { tries: 3, pause: Duration::from_millis(1) } }
    }

    /// Downloads `url` into the file `to` and checks its digest. A wrong digest is retried too, since a mirror may be updating.
    pub(super) async fn fetch(&self, url: &str, sha256: &str, to: &Path) -> AgentResult<()> {
        let mut pause = self.retry.pause;
        for _ in 1..self.retry.tries {
            match self.try_fetch(url, sha256, to).await {
                Err(failure) if failure.transient => {}
                outcome => return outcome,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.try_fetch(url, sha256, to).await
    }

    async fn try_fetch(&self, url: &str, sha256: &str, to: &Path) -> AgentResult<()> {
        match url.strip_prefix("s3://").and_then(|place| place.split_once('/')) {
            Some((bucket, key)) => drop(self.aws.bucket(bucket).download(key, to, MOST_FILE_BYTES).await?),
            None => self.download(url, to).await?,
        }
        let found = digest(to).await?;
        if found == sha256 {
            return Ok(());
        }
        Err(AgentError::transient(
            FailureCode::SoftwareDigest,
            format!("the file at {url} has the SHA-256 {found} instead of {sha256}"),
            "check the mirror (software.baseURL); the expected digest is the publisher's",
        ))
    }

    async fn download(&self, url: &str, to: &Path) -> AgentResult<()> {
        let failed = |why: String| {
            let help =
                "check that nodes can reach it (routes, NAT gateway), or set a mirror: software.baseURL";
            AgentError::transient(FailureCode::SoftwareUnreachable, format!("{url}: {why}"), help)
        };
        let answer =
            self.http.get(url).send().await.map_err(|error| failed(error.without_url().to_string()))?;
        if !answer.status().is_success() {
            return Err(failed(format!("HTTP {}", answer.status().as_u16())));
        }
        let mut file = tokio::fs::File::create(to).await.map_err(|error| unwritable(to, &error))?;
        let mut stream = answer.bytes_stream();
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(|error| failed(format!("it broke off: {}", error.without_url())))?;
            file.write_all(&bytes).await.map_err(|error| unwritable(to, &error))?;
        }
        file.sync_all().await.map_err(|error| unwritable(to, &error))
    }
}

async fn digest(path: &Path) -> AgentResult<String> {
    let unreadable = |error: std::io::Error| unwritable(path, &error);
    let mut file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    let mut sha = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer).await.map_err(unreadable)? {
            0 => break,
            count => sha.update(&buffer[..count]),
        }
    }
    Ok(slipway_core::digest::hex(&sha.finalize()))
}
