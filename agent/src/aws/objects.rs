//! S3: a node reads its role's bundles, and writes its own reports and snapshots.

use std::path::Path;

use futures_util::StreamExt as _;
use reqwest::{Method, Response};
use slipway_core::digest::sha256_hex;
use slipway_credentials::AssetKind;
use slipway_crypto::AwsLc;
use slipway_ports::{Bounded, Condition, Crypto as _, ErrorKind, MOST_OBJECT_BYTES, Object, PortResult, Put};
use tokio::io::AsyncWriteExt as _;

use super::endpoints::Service;
use super::error::port_error;
use super::{Aws, Body, Call, LONG_PATIENCE, PATIENCE, code_of};

/// The bytes that one `PutObject` can store ([`BucketOfAssets::upload_new`]): no snapshot and no program has more. Whoever may write to a
/// bucket must not be able to fill the disk of a machine.
pub const MOST_FILE_BYTES: u64 = 5 << 30;

/// The metadata of an object that tells which upload wrote it.
const MARK: &str = "x-amz-meta-slipway-upload";

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
        Ok(self.object(key).await?.map(|object| object.bytes))
    }

    /// As [`Self::get`], with what a conditional write needs.
    pub async fn object(&self, key: &str) -> PortResult<Option<Object>> {
        match self.object_at_most(key, MOST_OBJECT_BYTES).await? {
            None => Ok(None),
            Some(Bounded::Read(object)) => Ok(Some(object)),
            Some(Bounded::TooLarge { .. }) => {
                let message = format!("it has more than {MOST_OBJECT_BYTES} bytes, which are not read");
                Err(port_error("s3:GetObject", &self.subject(key), ErrorKind::Invalid, message))
            }
        }
    }

    /// As [`Self::object`], but of more than `most` bytes nothing is kept.
    pub async fn object_at_most(&self, key: &str, most: u64) -> PortResult<Option<Bounded>> {
        let subject = self.subject(key);
        let mut response = match self.aws.send(&self.reading(&subject, key)).await {
            Ok(response) => response,
            Err(error) if error.kind == ErrorKind::Missing && error.message.starts_with("NoSuchKey") => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let etag = etag(&response);
        let is_larger = |length: u64| length > most;
        if response.content_length().is_some_and(is_larger) {
            return Ok(Some(Bounded::TooLarge { etag }));
        }
        let mut bytes = Vec::new();
        loop {
            let part = response.chunk().await.map_err(|error| {
                let message = format!("the answer broke off: {}", error.without_url());
                port_error("s3:GetObject", &subject, ErrorKind::Transient, message)
            })?;
            let Some(part) = part else { break };
            // An answer need not say its length.
            if is_larger(bytes.len() as u64 + part.len() as u64) {
                return Ok(Some(Bounded::TooLarge { etag }));
            }
            bytes.extend_from_slice(&part);
        }
        Ok(Some(Bounded::Read(Object { bytes, etag, version: String::new() })))
    }

    /// `s3:GetObject` into a file, without holding the object in memory; returns its length. The file at `to` is overwritten, so
    /// download to a temporary name and rename it after it was checked. An object of more than `most` bytes is refused.
    pub async fn download(&self, key: &str, to: &Path, most: u64) -> PortResult<u64> {
        let subject = self.subject(key);
        let failed = |message: String| port_error("s3:GetObject", &subject, ErrorKind::Transient, message);
        let call = Call { patience: LONG_PATIENCE, ..self.reading(&subject, key) };
        let response = self.aws.send(&call).await?;
        let too_large = || {
            let message = format!("it has more than {most} bytes, which are not downloaded");
            port_error("s3:GetObject", &subject, ErrorKind::Invalid, message)
        };
        if response.content_length().is_some_and(|length| length > most) {
            return Err(too_large());
        }
        let mut stream = response.bytes_stream();
        let unwritable = |error: std::io::Error| failed(format!("{}: {error}", to.display()));
        let mut file = tokio::fs::File::create(to).await.map_err(unwritable)?;
        let mut length = 0;
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(|error| failed(format!("it broke off: {}", error.without_url())))?;
            length += bytes.len() as u64;
            // An answer need not say its length.
            if length > most {
                return Err(too_large());
            }
            file.write_all(&bytes).await.map_err(unwritable)?;
        }
        file.sync_all().await.map_err(unwritable)?;
        Ok(length)
    }

    /// `s3:PutObject`.
    pub async fn put(&self, key: &str, bytes: &[u8]) -> PortResult<()> {
        self.write(key, Body::Bytes(bytes), &[]).await.map(drop)
    }

    /// `s3:PutObject` under a condition.
    pub async fn put_if(&self, key: &str, bytes: &[u8], condition: &Condition) -> PortResult<Put> {
        let headers: &[(&'static str, &str)] = match condition {
            Condition::Absent => &[("if-none-match", "*")],
            Condition::Unchanged(etag) => &[("if-match", etag)],
            Condition::Always => &[],
        };
        match self.write(key, Body::Bytes(bytes), headers).await {
            Ok(etag) => Ok(Put::Written(etag)),
            // The object that was to be unchanged may be gone: then its key is missing.
            Err(error) if is_lost(code_of(&error)) || code_of(&error) == "NoSuchKey" => Ok(Put::Lost),
            Err(error) => Err(error),
        }
    }

    /// `s3:PutObject` of a file of at most 5 GiB, unless the key exists; `false` if it exists or is just being written.
    ///
    /// If the answer to an upload is lost, the retry finds the key taken by that very upload. So each upload has a mark of its own, which S3
    /// keeps with the object.
    pub async fn upload_new(&self, key: &str, from: &Path) -> PortResult<bool> {
        let random = AwsLc.make(&AssetKind::RandomKey)?.private;
        let mark = sha256_hex(random.expose());
        match self.write(key, Body::File(from), &[("if-none-match", "*"), (MARK, &mark)]).await {
            Ok(_) => Ok(true),
            Err(error) if is_lost(code_of(&error)) => self.has_mark(key, &mark).await,
            Err(error) => Err(error),
        }
    }

    /// Whether the object has that mark. If not, another upload is under way, or was broken off.
    async fn has_mark(&self, key: &str, mark: &str) -> PortResult<bool> {
        let head = self.head(key).await?;
        Ok(head.is_some_and(|response| response.headers().get(MARK).is_some_and(|kept| kept == mark)))
    }

    /// Whether there is an object that this node may read.
    pub async fn exists(&self, key: &str) -> PortResult<bool> {
        Ok(self.head(key).await?.is_some())
    }

    /// `HeadObject`, which needs `s3:GetObject`. A node may not list the bucket, so S3 denies it an object that does not exist.
    async fn head(&self, key: &str) -> PortResult<Option<Response>> {
        let subject = self.subject(key);
        let call = Call { method: Method::HEAD, ..self.reading(&subject, key) };
        match self.aws.send(&call).await {
            Ok(response) => Ok(Some(response)),
            Err(error) if matches!(error.kind, ErrorKind::Missing | ErrorKind::Denied) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the new etag.
    async fn write(&self, key: &str, body: Body<'_>, headers: &[(&'static str, &str)]) -> PortResult<String> {
        let subject = self.subject(key);
        let url = self.aws.endpoints.object(&self.name, key, &self.aws.region);
        let patience = match body {
            Body::Bytes(_) => PATIENCE,
            Body::File(_) => LONG_PATIENCE,
        };
        let call = Call {
            method: Method::PUT,
            body,
            headers: headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            patience,
            ..Call::new("s3:PutObject", &subject, Service::S3, url)
        };
        self.aws.send(&call).await.map(|response| etag(&response))
    }

    fn reading<'a>(&self, subject: &'a str, key: &str) -> Call<'a> {
        let url = self.aws.endpoints.object(&self.name, key, &self.aws.region);
        Call { method: Method::GET, ..Call::new("s3:GetObject", subject, Service::S3, url) }
    }

    fn subject(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }
}

/// Whether the condition of a write does not hold (412), or another write to the same key is under way (409).
fn is_lost(code: &str) -> bool {
    matches!(code, "PreconditionFailed" | "ConditionalRequestConflict")
}

fn etag(response: &Response) -> String {
    let header = response.headers().get("etag").and_then(|value| value.to_str().ok());
    header.unwrap_or_default().to_owned()
}
