//! S3: a node reads its role's bundles, and writes its own reports and snapshots.

use std::path::Path;

use futures_util::StreamExt as _;
use reqwest::Method;
use slipway_ports::{ErrorKind, PortResult};
use tokio::io::AsyncWriteExt as _;

use super::endpoints::Service;
use super::error::port_error;
use super::{Aws, Body, Call, LONG_PATIENCE, code_of};

#[derive(Debug, Clone)]
pub struct BucketOfAssets {
    aws: Aws,
    name: String,
}

impl Aws {
    #[must_use]
    pub fn bucket(&self, name: &str) -> BucketOfAssets {
        BucketOfAssets { aws: self.clone(), name: name.to_owned() }
    }
}

impl BucketOfAssets {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `s3:GetObject`; `None` if S3 says that there is none. A node may not list the bucket, so S3 denies it a missing object:
    /// that is an error.
    pub async fn get(&self, key: &str) -> PortResult<Option<Vec<u8>>> {
        let subject = self.subject(key);
        let response = match self.aws.send(&self.reading(&subject, key)).await {
            Ok(response) => response,
            Err(error) if error.kind == ErrorKind::Missing && error.message.starts_with("NoSuchKey") => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let bytes = response.bytes().await.map_err(|error| {
            let message = format!("the answer broke off: {}", error.without_url());
            port_error("s3:GetObject", &subject, ErrorKind::Transient, message)
        })?;
        Ok(Some(bytes.to_vec()))
    }

    /// `s3:GetObject` into a file, without holding the object in memory; returns its length. The file at `to` is overwritten, so
    /// download to a temporary name and rename it after it was checked.
    pub async fn download(&self, key: &str, to: &Path) -> PortResult<u64> {
        let subject = self.subject(key);
        let failed = |message: String| port_error("s3:GetObject", &subject, ErrorKind::Transient, message);
        let call = Call { patience: LONG_PATIENCE, ..self.reading(&subject, key) };
        let mut stream = self.aws.send(&call).await?.bytes_stream();
        let unwritable = |error: std::io::Error| failed(format!("{}: {error}", to.display()));
        let mut file = tokio::fs::File::create(to).await.map_err(unwritable)?;
        let mut length = 0;
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(|error| failed(format!("it broke off: {}", error.without_url())))?;
            file.write_all(&bytes).await.map_err(unwritable)?;
            length += bytes.len() as u64;
        }
        file.sync_all().await.map_err(unwritable)?;
        Ok(length)
    }

    /// `s3:PutObject`.
    pub async fn put(&self, key: &str, bytes: &[u8]) -> PortResult<()> {
        self.write(key, Body::Bytes(bytes), &[]).await
    }

    /// `s3:PutObject` of a file of at most 5 GiB, unless the key exists; `false` if it exists or is just being written.
    pub async fn upload_new(&self, key: &str, from: &Path) -> PortResult<bool> {
        match self.write(key, Body::File(from), &[("if-none-match", "*")]).await {
            Ok(()) => Ok(true),
            Err(error) if matches!(code_of(&error), "PreconditionFailed" | "ConditionalRequestConflict") => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn write(&self, key: &str, body: Body<'_>, headers: &[(&'static str, &str)]) -> PortResult<()> {
        let subject = self.subject(key);
        let url = self.aws.endpoints.object(&self.name, key, &self.aws.region);
        let call = Call {
            method: Method::PUT,
            body,
            headers: headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            patience: LONG_PATIENCE,
            ..Call::new("s3:PutObject", &subject, Service::S3, url)
        };
        self.aws.send(&call).await.map(drop)
    }

    fn reading<'a>(&self, subject: &'a str, key: &str) -> Call<'a> {
        let url = self.aws.endpoints.object(&self.name, key, &self.aws.region);
        Call { method: Method::GET, ..Call::new("s3:GetObject", subject, Service::S3, url) }
    }

    fn subject(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }
}
