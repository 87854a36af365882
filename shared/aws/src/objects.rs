//! A bucket of S3.

use aws_sdk_s3::error::SdkError;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::operation::list_objects_v2::builders::ListObjectsV2FluentBuilder;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::EncodingType;
use jiff::Timestamp;
use slipway_ports::{
    Bounded, Condition, ErrorKind, Folders, Head, Listed, Listing, MOST_OBJECT_BYTES, Object, Objects,
    PortError, PortResult, Put, Removal,
};

use crate::error::{code, port_error};

/// A bucket of S3. Its writes under a condition rest on `If-None-Match: *` and `If-Match`.
#[derive(Debug, Clone)]
pub struct S3Bucket {
    client: aws_sdk_s3::Client,
    name: String,
    region: String,
    /// How others than us are to take what we write; `None` where nobody else reads.
    public: Option<Public>,
}

/// How a document that anyone may read is served.
#[derive(Debug, Clone, Copy)]
struct Public {
    content_type: &'static str,
    cache_control: &'static str,
}

impl S3Bucket {
    pub(crate) fn new(client: aws_sdk_s3::Client, name: String, region: String) -> Self {
        Self { client, name, region, public: None }
    }

    /// The same bucket, into which JSON is written for anyone to read, and to keep for a minute: no longer, so that a key
    /// that was just added is soon known.
    #[must_use]
    pub fn public_json(self) -> Self {
        let public = Public { content_type: "application/json", cache_control: "public, max-age=60" };
        Self { public: Some(public), ..self }
    }

    pub(crate) fn client(&self) -> &aws_sdk_s3::Client {
        &self.client
    }

    /// The bucket's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the folders right below `prefix`, which ends with a slash. `s3:ListBucket`.
    ///
    /// # Errors
    /// If S3 refuses, or cannot be reached.
    pub async fn folders(&self, prefix: &str) -> PortResult<Vec<String>> {
        let mut pages = self.listing(prefix).delimiter("/").into_paginator().send();
        let mut folders = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| port_error("s3:ListBucket", self.subject(prefix), &error))?;
            folders.extend(folders_of(page, prefix));
        }
        Ok(folders)
    }

    /// A request for the keys that begin with `prefix`, encoded: nodes choose keys, and no parser of XML reads `U+FFFE` and most control
    /// characters, so one such key would make the whole answer unreadable. See [`decoded`].
    fn listing(&self, prefix: &str) -> ListObjectsV2FluentBuilder {
        let request = self.client.list_objects_v2().bucket(&self.name).prefix(prefix);
        request.encoding_type(EncodingType::Url)
    }

    /// How errors name an object.
    fn subject(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }

    async fn read(&self, operation: &'static str, key: &str, output: GetObjectOutput) -> PortResult<Object> {
        match self.read_at_most(MOST_OBJECT_BYTES, operation, key, output).await? {
            Bounded::Read(object) => Ok(object),
            Bounded::TooLarge { .. } => Err(PortError {
                kind: ErrorKind::Invalid,
                operation,
                subject: self.subject(key),
                message: format!(
                    "the object has more than {MOST_OBJECT_BYTES} bytes, which are not read: find out who wrote it, and bring back an \
                     earlier version"
                ),
            }),
        }
    }

    async fn read_at_most(
        &self,
        most: u64,
        operation: &'static str,
        key: &str,
        output: GetObjectOutput,
    ) -> PortResult<Bounded> {
        let is_larger = |length: u64| length > most;
        let etag = output.e_tag().unwrap_or_default().to_owned();
        if output.content_length().and_then(|length| u64::try_from(length).ok()).is_some_and(is_larger) {
            return Ok(Bounded::TooLarge { etag });
        }
        let version = output.version_id().unwrap_or_default().to_owned();
        let (mut body, mut bytes) = (output.body, Vec::new());
        while let Some(part) = body.next().await {
            // The connection may break in the middle of a body, after the SDK's own retries.
            let part = part.map_err(|error| PortError {
                kind: ErrorKind::Transient,
                operation,
                subject: self.subject(key),
                message: format!("the body broke off: {error}"),
            })?;
            // An answer need not say its length.
            if is_larger(bytes.len() as u64 + part.len() as u64) {
                return Ok(Bounded::TooLarge { etag });
            }
            bytes.extend_from_slice(&part);
        }
        Ok(Bounded::Read(Object { bytes, etag, version }))
    }

    /// A HEAD has no body, so that its 404 does not say what is missing: the object, or the bucket.
    async fn must_exist(&self) -> PortResult<()> {
        match self.client.head_bucket().bucket(&self.name).send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(port_error("s3:ListBucket", format!("s3://{}", self.name), &error)),
        }
    }
}

impl Objects for S3Bucket {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        const OPERATION: &str = "s3:GetObject";
        match self.client.get_object().bucket(&self.name).key(key).send().await {
            Ok(output) => self.read(OPERATION, key, output).await.map(Some),
            Err(error) if code(&error) == "NoSuchKey" => Ok(None),
            Err(error) => Err(port_error(OPERATION, self.subject(key), &error)),
        }
    }

    async fn get_at_most(&self, key: &str, most: u64) -> PortResult<Option<Bounded>> {
        const OPERATION: &str = "s3:GetObject";
        match self.client.get_object().bucket(&self.name).key(key).send().await {
            Ok(output) => self.read_at_most(most, OPERATION, key, output).await.map(Some),
            Err(error) if code(&error) == "NoSuchKey" => Ok(None),
            Err(error) => Err(port_error(OPERATION, self.subject(key), &error)),
        }
    }

    async fn get_version(&self, key: &str, version: &str) -> PortResult<Option<Object>> {
        const OPERATION: &str = "s3:GetObjectVersion";
        match self.client.get_object().bucket(&self.name).key(key).version_id(version).send().await {
            Ok(output) => self.read(OPERATION, key, output).await.map(Some),
            // Deleted for good by somebody, or by a lifecycle rule.
            Err(error) if matches!(code(&error), "NoSuchKey" | "NoSuchVersion") => Ok(None),
            Err(error) => {
                Err(port_error(OPERATION, format!("{} (version {version})", self.subject(key)), &error))
            }
        }
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        match self.client.head_object().bucket(&self.name).key(key).send().await {
            Ok(output) => Ok(Some(Head {
                version: output.version_id().unwrap_or_default().to_owned(),
                size: output.content_length().and_then(|size| u64::try_from(size).ok()).unwrap_or_default(),
                etag: output.e_tag().unwrap_or_default().to_owned(),
            })),
            Err(error) if error.as_service_error().is_some_and(|error| error.is_not_found()) => {
                self.must_exist().await.map(|()| None)
            }
            Err(error) => Err(port_error("s3:GetObject", self.subject(key), &error)),
        }
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: Condition) -> PortResult<Put> {
        let conditional = condition != Condition::Always;
        let request = self.client.put_object().bucket(&self.name).key(key).body(ByteStream::from(bytes));
        let request = match condition {
            Condition::Absent => request.if_none_match("*"),
            Condition::Unchanged(etag) => request.if_match(etag),
            Condition::Always => request,
        };
        let request = match self.public {
            Some(Public { content_type, cache_control }) => {
                request.content_type(content_type).cache_control(cache_control)
            }
            None => request,
        };
        match request.send().await {
            Ok(output) => Ok(Put::Written(output.e_tag().unwrap_or_default().to_owned())),
            Err(error) if conditional && is_lost(&error) => Ok(Put::Lost),
            Err(error) => Err(port_error("s3:PutObject", self.subject(key), &error)),
        }
    }

    /// The address of the object at AWS, whatever address this process reaches S3 by: CloudFormation, and the condition
    /// in IAM on what it may read, know no other.
    fn url(&self, key: &str) -> String {
        let (name, region, key) = (&self.name, &self.region, escape(key));
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        // The certificate of S3 covers one label: a name with dots has no host name of its own.
        if name.contains('.') {
            format!("https://s3.{region}.{suffix}/{name}/{key}")
        } else {
            format!("https://{name}.s3.{region}.{suffix}/{key}")
        }
    }
}

impl Listing for S3Bucket {
    async fn list(&self, prefix: &str, most: usize) -> PortResult<Vec<Listed>> {
        let mut pages = self.listing(prefix).into_paginator().send();
        let mut listed = Vec::new();
        while listed.len() < most
            && let Some(page) = pages.next().await
        {
            let page = page.map_err(|error| port_error("s3:ListBucket", self.subject(prefix), &error))?;
            let encoding = page.encoding_type;
            listed.extend(page.contents.unwrap_or_default().into_iter().map(|object| {
                Listed {
                    size: object.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default(),
                    key: decoded(encoding.as_ref(), object.key.unwrap_or_default()),
                    etag: object.e_tag.unwrap_or_default(),
                    // Without a date an object is as young as can be, and nothing happens to it.
                    modified: object
                        .last_modified
                        .and_then(|at| Timestamp::from_second(at.secs()).ok())
                        .unwrap_or(Timestamp::MAX),
                }
            }));
        }
        listed.truncate(most);
        Ok(listed)
    }
}

impl Folders for S3Bucket {
    async fn folders_after(&self, prefix: &str, after: Option<&str>) -> PortResult<Vec<String>> {
        // All keys of the folder `after` come before this: `0` follows the slash.
        let start = after.map(|after| format!("{prefix}{after}0"));
        let request = self.listing(prefix).delimiter("/").set_start_after(start);
        let mut pages = request.into_paginator().send();
        // Keys right below `prefix` count for a page as folders do ("returns up to 1,000 objects": API_ListObjectsV2, MaxKeys,
        // CommonPrefixes): a page may have none of these although others follow.
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| port_error("s3:ListBucket", self.subject(prefix), &error))?;
            let folders = folders_of(page, prefix);
            if !folders.is_empty() {
                return Ok(folders);
            }
        }
        Ok(Vec::new())
    }
}

impl Removal for S3Bucket {
    async fn remove(&self, key: &str) -> PortResult<()> {
        match self.client.delete_object().bucket(&self.name).key(key).send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(port_error("s3:DeleteObject", self.subject(key), &error)),
        }
    }
}

/// Whether a conditional write was lost: the condition does not hold (412), another write to the same key is under
/// way (409), or the object that was to be unchanged is gone (404, and its key is what is missing, not the bucket).
fn is_lost<E>(error: &SdkError<E, aws_sdk_s3::config::http::HttpResponse>) -> bool
where
    E: aws_sdk_s3::error::ProvideErrorMetadata,
{
    matches!(code(error), "PreconditionFailed" | "ConditionalRequestConflict" | "NoSuchKey")
        || error.raw_response().is_some_and(|response| response.status().as_u16() == 412)
}

/// The names of the folders on a page of those right below `prefix`.
fn folders_of(page: ListObjectsV2Output, prefix: &str) -> Vec<String> {
    let encoding = page.encoding_type;
    let found = page.common_prefixes.unwrap_or_default().into_iter();
    let found = found.filter_map(|folder| Some(decoded(encoding.as_ref(), folder.prefix?)));
    found.filter_map(|folder| Some(folder.strip_prefix(prefix)?.trim_end_matches('/').to_owned())).collect()
}

/// A key or a prefix of a list. An answer that says `EncodingType: url` has them encoded, together with the delimiter and `StartAfter`; a
/// continuation token is never encoded (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>). The encoding is that of
/// forms, in which `+` is a space: `decode_list_object_v2` in botocore/handlers.py decodes with `unquote_plus`.
fn decoded(encoding: Option<&EncodingType>, text: String) -> String {
    if encoding != Some(&EncodingType::Url) {
        return text;
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => ((high << 4) | low, after),
                _ => (b'%', &rest[1..]),
            },
            (b'+', after) => (b' ', after),
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Percent-encodes a key for a URL, as RFC 3986 has it: unreserved characters and the slashes stay.
fn escape(key: &str) -> String {
    let mut url = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{Answer, Server};

    const NO_KEY: Answer = (404, "<Error><Code>NoSuchKey</Code><Message>no key</Message></Error>");
    const NO_BUCKET: Answer = (404, "<Error><Code>NoSuchBucket</Code><Message>no bucket</Message></Error>");
    const DENIED: Answer = (403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>");
    const LOST: Answer = (412, "<Error><Code>PreconditionFailed</Code><Message>lost</Message></Error>");
    const RACE: Answer =
        (409, "<Error><Code>ConditionalRequestConflict</Code><Message>race</Message></Error>");

    fn bucket(answers: &[Answer]) -> (Server, S3Bucket) {
        let server = Server::new(answers);
        let bucket = server.aws().bucket("assets");
        (server, bucket)
    }

    #[tokio::test]
    async fn an_object_comes_with_its_etag_and_version() {
        let (_server, bucket) = bucket(&[(200, "hello")]);
        let object = bucket.get("k").await.unwrap().unwrap();
        assert_eq!((object.bytes.as_slice(), object.etag.as_str()), (b"hello".as_slice(), "\"e1\""));
        assert_eq!(object.version, "v1");
    }

    #[tokio::test]
    async fn of_what_is_larger_than_was_asked_for_nothing_is_kept() {
        let (_server, bucket) = bucket(&[(200, "hello"), (200, "hello"), NO_KEY]);
        let Some(Bounded::Read(object)) = bucket.get_at_most("k", 5).await.unwrap() else { panic!("none") };
        assert_eq!(object.bytes, b"hello");
        assert_eq!(
            bucket.get_at_most("k", 4).await.unwrap(),
            Some(Bounded::TooLarge { etag: "\"e1\"".to_owned() })
        );
        assert_eq!(bucket.get_at_most("k", 4).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_missing_key_is_none_and_a_missing_bucket_is_an_error() {
        let (_server, bucket) = bucket(&[NO_KEY, NO_BUCKET, NO_KEY]);
        assert_eq!(bucket.get("k").await.unwrap(), None);
        let error = bucket.get("k").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Missing);
        assert_eq!(
            error.to_string(),
            "s3:GetObject of s3://assets/k failed: NoSuchBucket: no bucket (HTTP 404) [request req-1]"
        );
        assert_eq!(bucket.get_version("k", "v9").await.unwrap(), None);
    }

    #[tokio::test]
    async fn head_tells_a_missing_object_from_a_missing_bucket() {
        let (server, bucket) = bucket(&[(200, "12345"), (404, ""), (200, ""), (404, ""), (404, "")]);
        assert_eq!(
            bucket.head("k").await.unwrap(),
            Some(Head { version: "v1".into(), size: 5, etag: "\"e1\"".into() })
        );
        assert_eq!(bucket.head("k").await.unwrap(), None);
        assert_eq!(bucket.head("k").await.unwrap_err().kind, ErrorKind::Missing);
        let lines: Vec<String> = server.requests().into_iter().map(|request| request.line).collect();
        assert!(lines.iter().all(|line| line.starts_with("HEAD /assets")), "{lines:?}");
    }

    #[tokio::test]
    async fn a_lost_condition_is_lost_and_a_denial_is_not() {
        let (server, bucket) = bucket(&[(200, ""), LOST, RACE, NO_KEY, NO_BUCKET, DENIED]);
        let absent = Condition::Absent;
        let unchanged = Condition::Unchanged("\"e0\"".to_owned());
        let write = |condition: &Condition| bucket.put("k", b"x".to_vec(), condition.clone());
        assert_eq!(write(&absent).await.unwrap(), Put::Written("\"e1\"".to_owned()));
        assert_eq!(write(&absent).await.unwrap(), Put::Lost);
        assert_eq!(write(&unchanged).await.unwrap(), Put::Lost);
        assert_eq!(write(&unchanged).await.unwrap(), Put::Lost);
        assert_eq!(write(&absent).await.unwrap_err().kind, ErrorKind::Missing);
        assert_eq!(write(&absent).await.unwrap_err().kind, ErrorKind::Denied);
        let requests = server.requests();
        assert!(requests[0].headers.contains(&"if-none-match: *".to_owned()), "{:?}", requests[0]);
        assert!(requests[2].headers.contains(&"if-match: \"e0\"".to_owned()), "{:?}", requests[2]);
    }

    const PAGE_1: Answer = (
        200,
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken>\
         <Contents><Key>a/1</Key><ETag>&quot;e1&quot;</ETag><Size>5</Size></Contents></ListBucketResult>",
    );
    const PAGE_2: Answer = (
        200,
        "<ListBucketResult><IsTruncated>false</IsTruncated>\
         <Contents><Key>a/2</Key><ETag>&quot;e2&quot;</ETag><Size>6</Size>\
         <LastModified>2026-11-20T12:00:00.000Z</LastModified></Contents>\
         <Contents><Key>a/3</Key><ETag>&quot;e3&quot;</ETag><Size>7</Size></Contents></ListBucketResult>",
    );

    #[tokio::test]
    async fn a_list_is_read_page_by_page_and_no_further_than_asked() {
        let (server, bucket) = bucket(&[PAGE_1, PAGE_2, PAGE_1, PAGE_1, PAGE_2, DENIED]);
        let keys = async |most: usize| -> Vec<String> {
            bucket.list("a/", most).await.unwrap().into_iter().map(|one| one.key).collect()
        };
        assert_eq!(keys(9).await, ["a/1", "a/2", "a/3"]);
        assert_eq!(keys(1).await, ["a/1"]);
        assert_eq!(server.requests().len(), 3, "a page more than was asked for");
        assert_eq!(keys(2).await, ["a/1", "a/2"]);
        let second = &server.requests()[1].line;
        assert!(second.contains("prefix=a%2F") && second.contains("continuation-token=more"), "{second}");
        let error = bucket.list("a/", 9).await.unwrap_err();
        assert_eq!((error.kind, error.operation), (ErrorKind::Denied, "s3:ListBucket"));
    }

    /// Every character that a worker, who chooses the keys below its role's folder, may put into one.
    #[tokio::test]
    async fn p7_no_key_makes_a_list_unreadable() {
        const ENCODED: Answer = (
            200,
            "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>\
             <Contents><Key>a/b+c%2Bd%25%1b%EF%BF%BE%c3%A9%</Key></Contents><Contents><Key>a/%2</Key></Contents>\
             <Contents><Key>a/%zz%</Key></Contents><CommonPrefixes><Prefix>a/x+%EF%BF%BF/</Prefix></CommonPrefixes>\
             </ListBucketResult>",
        );
        // A server that does not encode does not say that it did.
        const AS_IT_IS: Answer = (
            200,
            "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a/b+c%2B</Key></Contents>\
             </ListBucketResult>",
        );
        let (server, bucket) = bucket(&[ENCODED, ENCODED, ENCODED, AS_IT_IS]);
        let keys = async || -> Vec<String> {
            bucket.list("a/", 9).await.unwrap().into_iter().map(|one| one.key).collect()
        };
        assert_eq!(keys().await, ["a/b c+d%\u{1b}\u{fffe}é%", "a/%2", "a/%zz%"]);
        assert_eq!(bucket.folders("a/").await.unwrap(), ["x \u{ffff}"]);
        assert_eq!(bucket.folders_after("a/", Some("b c")).await.unwrap(), ["x \u{ffff}"]);
        assert_eq!(keys().await, ["a/b+c%2B"]);
        let lines: Vec<String> = server.requests().into_iter().map(|request| request.line).collect();
        assert!(lines.iter().all(|line| line.contains("encoding-type=url")), "{lines:?}");
    }

    #[tokio::test]
    async fn folders_are_named_without_what_is_above_them() {
        const FOLDERS: Answer = (
            200,
            "<ListBucketResult><IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>clusters/a/</Prefix>\
             </CommonPrefixes><CommonPrefixes><Prefix>clusters/b-c/</Prefix></CommonPrefixes></ListBucketResult>",
        );
        let (server, bucket) = bucket(&[FOLDERS, DENIED]);
        assert_eq!(bucket.folders("clusters/").await.unwrap(), ["a", "b-c"]);
        assert!(server.requests()[0].line.contains("delimiter=%2F"), "{}", server.requests()[0].line);
        assert_eq!(bucket.folders("clusters/").await.unwrap_err().kind, ErrorKind::Denied);
    }

    #[tokio::test]
    async fn folders_come_a_page_at_a_time_and_none_twice() {
        const PAGE: Answer = (
            200,
            "<ListBucketResult><IsTruncated>true</IsTruncated><CommonPrefixes><Prefix>clusters/a/</Prefix>\
             </CommonPrefixes></ListBucketResult>",
        );
        let (server, bucket) = bucket(&[PAGE, (200, "<ListBucketResult></ListBucketResult>"), DENIED]);
        assert_eq!(bucket.folders_after("clusters/", None).await.unwrap(), ["a"]);
        assert_eq!(bucket.folders_after("clusters/", Some("a")).await.unwrap(), [""; 0]);
        let requests = server.requests();
        assert!(!requests[0].line.contains("start-after"), "{}", requests[0].line);
        assert!(requests[1].line.contains("start-after=clusters%2Fa0"), "{}", requests[1].line);
        assert_eq!(bucket.folders_after("clusters/", None).await.unwrap_err().kind, ErrorKind::Denied);
    }

    #[tokio::test]
    async fn folders_behind_a_page_of_keys_are_found() {
        const KEYS: Answer = (
            200,
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken>\
             <Contents><Key>clusters/0</Key></Contents></ListBucketResult>",
        );
        const FOLDERS: Answer = (
            200,
            "<ListBucketResult><IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>clusters/a/</Prefix>\
             </CommonPrefixes></ListBucketResult>",
        );
        let (server, bucket) = bucket(&[KEYS, FOLDERS, KEYS, DENIED]);
        assert_eq!(bucket.folders_after("clusters/", None).await.unwrap(), ["a"]);
        let second = &server.requests()[1].line;
        assert!(second.contains("continuation-token=more"), "{second}");
        assert_eq!(bucket.folders_after("clusters/", None).await.unwrap_err().kind, ErrorKind::Denied);
    }

    #[tokio::test]
    async fn a_listed_etag_is_the_one_that_is_read() {
        let (_server, bucket) = bucket(&[PAGE_2, (200, "hello")]);
        let listed = bucket.list("a/", 9).await.unwrap();
        assert_eq!(
            listed[0],
            Listed {
                key: "a/2".to_owned(),
                etag: "\"e2\"".to_owned(),
                size: 6,
                modified: "2026-11-20T12:00:00Z".parse().unwrap(),
            }
        );
        assert_eq!(listed[1].modified, Timestamp::MAX, "without a date, as young as can be");
        assert_eq!(bucket.get("a/2").await.unwrap().unwrap().etag, "\"e1\"", "in quotes as well");
    }

    #[tokio::test]
    async fn what_anyone_may_read_says_what_it_is_and_for_how_long() {
        let server = Server::new(&[(200, ""), (200, "")]);
        let ours = server.aws().bucket("issuer");
        ours.put("k", b"{}".to_vec(), Condition::Absent).await.unwrap();
        ours.public_json().put("k", b"{}".to_vec(), Condition::Absent).await.unwrap();
        let [private, public] = &server.requests()[..] else { panic!("two requests") };
        let header =
            |headers: &[String], name: &str| headers.iter().find(|line| line.starts_with(name)).cloned();
        assert_eq!(header(&public.headers, "content-type").unwrap(), "content-type: application/json");
        assert_eq!(header(&public.headers, "cache-control").unwrap(), "cache-control: public, max-age=60");
        assert_eq!(header(&private.headers, "cache-control"), None);
    }

    #[tokio::test]
    async fn p9_an_error_never_holds_a_body() {
        let broken = "<Error><Code>InternalError</Code><Secret>hunter2</Secret></Error>";
        let (_server, bucket) = bucket(&[(500, broken), (200, "x")]);
        let error = bucket.get("k").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transient);
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }

    #[tokio::test]
    async fn nobody_at_the_address_is_transient() {
        let (server, bucket) = bucket(&[(200, "")]);
        bucket.get("k").await.unwrap();
        let error = bucket.get("k").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transient, "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}
