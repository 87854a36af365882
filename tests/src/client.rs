//! A small client for the AWS APIs that the harness uses, in plain HTTP.
//!
//! It does not use the SDK, which only `shared/aws` may use; two implementations check each other. moto checks no signatures and reads only
//! the service's name from the `Authorization` header.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::{HeaderMap, Method};
use serde_json::{Value, json};
use slipway_core::node::MachineArns;

/// The account of moto.
pub const ACCOUNT: &str = "123456789012";

/// The ARN of the machine with that id, in the account and the region of the tests.
#[must_use]
pub fn machine_arn(instance: &str) -> String {
    MachineArns::new("eu-west-1", ACCOUNT).arn_of(instance)
}
/// The maximum number of messages that SQS returns at once.
pub const AT_ONCE: usize = 10;

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The service refused the call.
    #[error("{operation}: HTTP {status}: {body}")]
    Refused {
        /// The operation.
        operation: String,
        /// The HTTP status.
        status: u16,
        /// The service's message.
        body: String,
    },
    /// There was no answer.
    #[error("{operation} did not come to an answer")]
    Transport {
        /// The operation.
        operation: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The answer does not have the form that the API documents.
    #[error("{operation} answered something else than expected: {body}")]
    Shape {
        /// The operation.
        operation: String,
        /// The answer.
        body: String,
    },
}

/// A client for one region of one endpoint, as one principal.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    endpoint: String,
    region: String,
    access_key: String,
}

/// A version of an object in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Key.
    pub key: String,
    /// Version id.
    pub version: String,
    /// Whether it is the newest.
    pub is_latest: bool,
}

impl Client {
    /// A client of `endpoint` in `region` that signs with `access_key`.
    #[must_use]
    pub fn new(endpoint: &str, region: &str, access_key: &str) -> Self {
        Self {
            http: slipway_sim::wire::client(),
            endpoint: endpoint.to_owned(),
            region: region.to_owned(),
            access_key: access_key.to_owned(),
        }
    }

    /// The endpoint that it calls.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Calls a JSON API: `target` is `AmazonSQS.SendMessage`, `service` the signing name.
    ///
    /// # Errors
    /// If the service refuses.
    pub async fn json(&self, service: &str, target: &str, body: Value) -> Result<Value, ClientError> {
        let version = if service == "sqs" { "1.0" } else { "1.1" };
        let request = self
            .http
            .post(&self.endpoint)
            .header("content-type", format!("application/x-amz-json-{version}"))
            .header("x-amz-target", target)
            .header("authorization", self.authorization(service))
            .body(body.to_string());
        let (_, bytes) = send(target, request).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|_| shape(target, &bytes))
    }

    /// The version of the API of SNS.
    pub const SNS: &'static str = "2010-03-31";

    /// Calls CloudFormation with these parameters. Returns the answer, which is XML.
    ///
    /// # Errors
    /// If the service refuses.
    pub async fn cloudformation(
        &self,
        action: &str,
        parameters: &[(&str, &str)],
    ) -> Result<String, ClientError> {
        self.query("cloudformation", "2010-05-15", action, parameters).await
    }

    /// Calls a service that takes forms, with the version of its API. Returns the answer, which is XML.
    ///
    /// # Errors
    /// If the service refuses.
    pub async fn query(
        &self,
        service: &str,
        version: &str,
        action: &str,
        parameters: &[(&str, &str)],
    ) -> Result<String, ClientError> {
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", action)
            .append_pair("Version", version)
            .extend_pairs(parameters)
            .finish();
        let request = self
            .http
            .post(&self.endpoint)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("authorization", self.authorization(service))
            .body(body);
        let (_, bytes) = send(action, request).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Calls S3. `path` begins with the bucket's name and is already percent-encoded; `query` has no `?`.
    ///
    /// # Errors
    /// If the service refuses.
    pub async fn s3(
        &self,
        method: Method,
        path: &str,
        query: &str,
        body: Vec<u8>,
    ) -> Result<(HeaderMap, Vec<u8>), ClientError> {
        let question = if query.is_empty() { "" } else { "?" };
        let operation = format!("s3 {method} /{path}{question}{query}");
        let request = self
            .http
            .request(method, format!("{}/{path}{question}{query}", self.endpoint))
            .header("authorization", self.authorization("s3"))
            .body(body);
        send(&operation, request).await
    }

    /// Writes an object. Returns its version id.
    ///
    /// # Errors
    /// If the service refuses, or the bucket has no versioning.
    pub async fn put_object(&self, bucket: &str, key: &str, bytes: Vec<u8>) -> Result<String, ClientError> {
        let path = format!("{bucket}/{key}");
        let (headers, _) = self.s3(Method::PUT, &path, "", bytes).await?;
        let version = headers.get("x-amz-version-id").and_then(|value| value.to_str().ok());
        version.map(str::to_owned).ok_or_else(|| shape(&path, b"no x-amz-version-id"))
    }

    /// Deletes a version of an object permanently. moto sends an event to EventBridge when the last version is deleted, but none for a
    /// deletion marker, unlike S3.
    ///
    /// # Errors
    /// If the service refuses.
    pub async fn delete_version(&self, bucket: &str, key: &str, version: &str) -> Result<(), ClientError> {
        let query = format!("versionId={version}");
        self.s3(Method::DELETE, &format!("{bucket}/{key}"), &query, Vec::new()).await.map(drop)
    }

    /// Reads an object; `None` if there is none.
    ///
    /// # Errors
    /// If the service refuses.
    pub async fn object(&self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>, ClientError> {
        match self.s3(Method::GET, &format!("{bucket}/{key}"), "", Vec::new()).await {
            Ok((_, bytes)) => Ok(Some(bytes)),
            Err(ClientError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every version of every object in a bucket.
    ///
    /// # Errors
    /// If the service refuses, or the listing is truncated (more than a thousand versions).
    pub async fn versions(&self, bucket: &str) -> Result<Vec<Version>, ClientError> {
        let (_, bytes) = self.s3(Method::GET, bucket, "versions", Vec::new()).await?;
        let text = String::from_utf8_lossy(&bytes);
        let document = roxmltree::Document::parse(&text).map_err(|_| shape("ListObjectVersions", &bytes))?;
        let child = |node: roxmltree::Node<'_, '_>, name: &str| {
            let found = node.children().find(|child| child.tag_name().name() == name);
            found.and_then(|node| node.text().map(str::to_owned)).unwrap_or_default()
        };
        if child(document.root_element(), "IsTruncated") == "true" {
            return Err(shape("ListObjectVersions", b"more than one page"));
        }
        let nodes = document.descendants().filter(|node| node.tag_name().name() == "Version");
        let mut versions: Vec<_> = nodes
            .map(|node| Version {
                key: child(node, "Key"),
                version: child(node, "VersionId"),
                is_latest: child(node, "IsLatest") == "true",
            })
            .collect();
        versions.sort();
        Ok(versions)
    }

    /// Puts one event on a bus.
    ///
    /// # Errors
    /// If the service refuses it.
    pub async fn put_event(&self, bus: &str, event: &Event) -> Result<(), ClientError> {
        let entry = json!({
            "EventBusName": bus, "Source": event.source, "DetailType": event.detail_type,
            "Detail": event.detail.to_string(), "Resources": event.resources,
        });
        let answer = self.json("events", "AWSEvents.PutEvents", json!({"Entries": [entry]})).await?;
        if answer["FailedEntryCount"] == 0 {
            Ok(())
        } else {
            Err(shape("PutEvents", answer.to_string().as_bytes()))
        }
    }

    /// Takes up to [`AT_ONCE`] messages from a queue and deletes them. Returns their bodies and message attributes.
    ///
    /// # Errors
    /// If the service refuses.
    pub async fn take(&self, queue_url: &str) -> Result<Vec<Message>, ClientError> {
        let request = json!({
            "QueueUrl": queue_url, "MaxNumberOfMessages": AT_ONCE, "MessageAttributeNames": ["All"],
            "WaitTimeSeconds": 0,
        });
        let answer = self.json("sqs", "AmazonSQS.ReceiveMessage", request).await?;
        let found = answer["Messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let gone: Vec<Value> = found
            .iter()
            .enumerate()
            .map(|(id, message)| json!({"Id": id.to_string(), "ReceiptHandle": message["ReceiptHandle"]}))
            .collect();
        let request = json!({"QueueUrl": queue_url, "Entries": gone});
        self.json("sqs", "AmazonSQS.DeleteMessageBatch", request).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let attributes = |message: &Value| {
            let attributes = message["MessageAttributes"].as_object().into_iter().flatten();
            attributes.map(|(name, value)| (name.clone(), text(&value["StringValue"]))).collect()
        };
        let messages = found.iter();
        Ok(messages
            .map(|message| Message { body: text(&message["Body"]), attributes: attributes(message) })
            .collect())
    }

    /// The names of all queues that have messages, by a call that only moto has.
    ///
    /// # Errors
    /// If moto refuses.
    pub async fn waiting(&self) -> Result<BTreeSet<String>, ClientError> {
        let request = self.http.get(format!("{}/slipway/waiting", self.endpoint));
        let (_, bytes) = send("waiting queues", request).await?;
        serde_json::from_slice(&bytes).map_err(|_| shape("waiting queues", &bytes))
    }

    /// From now on state machines run, and call AWS at `endpoint` with the access key `key`, by a call that only moto has.
    ///
    /// # Errors
    /// If moto refuses.
    pub async fn state_machines_call(&self, endpoint: &str, key: &str) -> Result<(), ClientError> {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("endpoint", endpoint), ("key", key)])
            .finish();
        let request = self.http.get(format!("{}/slipway/state-machines?{query}", self.endpoint));
        send("state machines", request).await.map(drop)
    }

    /// The number of messages in a queue.
    ///
    /// # Errors
    /// If the service refuses.
    pub async fn depth(&self, queue_url: &str) -> Result<u64, ClientError> {
        let request = json!({"QueueUrl": queue_url, "AttributeNames": ["ApproximateNumberOfMessages"]});
        let answer = self.json("sqs", "AmazonSQS.GetQueueAttributes", request).await?;
        let number = answer["Attributes"]["ApproximateNumberOfMessages"].as_str();
        number
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| shape("GetQueueAttributes", answer.to_string().as_bytes()))
    }

    /// The URL of a queue by its name.
    #[must_use]
    pub fn queue_url(&self, name: &str) -> String {
        format!("{}/{ACCOUNT}/{name}", self.endpoint)
    }

    /// The `Authorization` header with the parts that moto, the gateway and the simulated services read: access key, region and service.
    #[must_use]
    pub fn authorization(&self, service: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential={}/20260101/{}/{service}/aws4_request, SignedHeaders=host, Signature=0",
            self.access_key, self.region
        )
    }
}

/// An event to put on a bus.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// `source`.
    pub source: String,
    /// `detail-type`.
    pub detail_type: String,
    /// `detail`.
    pub detail: Value,
    /// `resources`.
    pub resources: Vec<String>,
}

/// A message of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its body.
    pub body: String,
    /// Its string attributes.
    pub attributes: BTreeMap<String, String>,
}

async fn send(
    operation: &str,
    request: reqwest::RequestBuilder,
) -> Result<(HeaderMap, Vec<u8>), ClientError> {
    let transport = |source| ClientError::Transport { operation: operation.to_owned(), source };
    let response = request.send().await.map_err(transport)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let bytes = response.bytes().await.map_err(transport)?.to_vec();
    if status.is_success() {
        return Ok((headers, bytes));
    }
    let body = String::from_utf8_lossy(&bytes).into_owned();
    Err(ClientError::Refused { operation: operation.to_owned(), status: status.as_u16(), body })
}

fn shape(operation: &str, body: &[u8]) -> ClientError {
    ClientError::Shape {
        operation: operation.to_owned(),
        body: String::from_utf8_lossy(body).chars().take(2000).collect(),
    }
}
