//! The instance metadata service, version 2: the identity of this instance, and its role's credentials.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use jiff::Timestamp;
use reqwest::{Client, Method};
use serde::Deserialize;
use slipway_core::node::MachineArns;
use slipway_ports::refusal::chain;
use slipway_ports::{ErrorKind, PortError, PortResult};
use zeroize::Zeroizing;

use super::error::port_error;
use super::{Endpoints, Retry};
use crate::failure::AgentResult;

/// The service runs on the machine's own host and answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// The error of a path that does not exist.
const ABSENT: &str = "HTTP 404";
const TOKEN_TTL_S: &str = "300";

#[derive(Debug, Clone)]
pub struct Imds {
    http: Client,
    base: String,
    retry: Retry,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: String,
    pub arn: String,
    pub availability_zone: String,
    pub local_ipv4: String,
}

/// The role's credentials. They are not printed, and are wiped from memory.
#[derive(Debug, Clone)]
pub(super) struct RoleCredentials(Credentials);

impl RoleCredentials {
    pub(super) fn last_for(&self, time: Duration) -> bool {
        self.0.expiry().is_none_or(|end| end > SystemTime::now() + time)
    }

    pub(super) fn identity<I: From<Credentials>>(&self) -> I {
        self.0.clone().into()
    }
}

/// The needed parts of the instance identity document ("Instance identity documents for Amazon EC2 instances", EC2 user guide).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityDocument {
    account_id: String,
    region: String,
}

/// Borrowed from the answer's text, which is wiped.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer<'a> {
    access_key_id: &'a str,
    secret_access_key: &'a str,
    token: &'a str,
    expiration: Timestamp,
}

impl Imds {
    pub(super) fn new(http: Client, endpoints: &Endpoints) -> Self {
        Self { http, base: endpoints.metadata().to_owned(), retry: Retry::default() }
    }

    pub(super) fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    pub async fn instance(&self) -> AgentResult<Instance> {
        let id = self.metadata("instance-id").await?;
        Ok(Instance {
            arn: self.machine_arns().await?.arn_of(&id),
            id,
            availability_zone: self.metadata("placement/availability-zone").await?,
            local_ipv4: self.metadata("local-ipv4").await?,
        })
    }

    /// Of which region and account this instance is.
    async fn machine_arns(&self) -> PortResult<MachineArns> {
        const DOCUMENT: &str = "dynamic/instance-identity/document";
        let text = self.patiently(DOCUMENT).await?;
        let document: IdentityDocument = serde_json::from_str(&text).map_err(|error| {
            let message = format!("the answer is not an identity document: {error}");
            port_error("imds:Get", DOCUMENT, ErrorKind::Transient, message)
        })?;
        Ok(MachineArns::new(&document.region, &document.account_id))
    }

    /// The value at `path`; `None` if there is none.
    pub async fn find(&self, path: &str) -> AgentResult<Option<String>> {
        match self.once(&format!("meta-data/{path}")).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.message == ABSENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn credentials(&self) -> PortResult<RoleCredentials> {
        const FOLDER: &str = "iam/security-credentials/";
        let roles = self.metadata(FOLDER).await?;
        let role = roles.lines().next().unwrap_or_default();
        let path = format!("{FOLDER}{role}");
        let text = Zeroizing::new(self.metadata(&path).await?);
        // A parser's error may quote the text.
        let answer: Answer<'_> = serde_json::from_str(&text).map_err(|_| {
            port_error("imds:Get", &path, ErrorKind::Transient, "the answer holds no credentials yet")
        })?;
        Ok(RoleCredentials(Credentials::new(
            answer.access_key_id,
            answer.secret_access_key,
            Some(answer.token.to_string()),
            Some(answer.expiration.into()),
            "imds",
        )))
    }

    async fn metadata(&self, path: &str) -> PortResult<String> {
        self.patiently(&format!("meta-data/{path}")).await
    }

    /// One value. Credentials may appear some seconds after the instance started; until then they are missing.
    async fn patiently(&self, path: &str) -> PortResult<String> {
        let mut pause = self.retry.pause;
        let mut tries = 1;
        loop {
            match self.once(path).await {
                Ok(text) => return Ok(text),
                Err(error) if tries >= self.retry.tries => return Err(error),
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            tries += 1;
        }
    }

    async fn once(&self, path: &str) -> PortResult<String> {
        let token = self
            .request(Method::PUT, "api/token", ("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL_S))
            .await?;
        self.request(Method::GET, path, ("x-aws-ec2-metadata-token", &token)).await
    }

    async fn request(&self, method: Method, path: &str, header: (&str, &str)) -> PortResult<String> {
        let failed =
            |message: String| -> PortError { port_error("imds:Get", path, ErrorKind::Transient, message) };
        let url = format!("{}/latest/{path}", self.base);
        // Plain HTTP: the request does not leave the host.
        let answer = self.http.request(method, url).timeout(PATIENCE).header(header.0, header.1).send().await;
        let answer = answer.map_err(|error| failed(format!("no answer: {}", chain(&error.without_url()))))?;
        if !answer.status().is_success() {
            return Err(failed(format!("HTTP {}", answer.status().as_u16())));
        }
        answer.text().await.map_err(|error| failed(format!("the answer broke off: {}", error.without_url())))
    }
}
