//! The AWS clients of a process: one configuration, one pool of connections.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_s3::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::{SharedHttpClient, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::shared::IntoShared as _;
use aws_types::service_config::ServiceConfigKey;

use crate::calls::LoggedClient;
use crate::{AutoScaling, CloudFormation, EventBus, KmsKeys, RunCommand, S3Bucket, Schedules, SsmParameters};

/// How often a call is tried in all. With the backoff below, a service that throttles for some five seconds is
/// outlived; for longer, the event goes back to its queue, which waits better than a function that is paid by time.
const ATTEMPTS: u32 = 4;

/// The most that the backoff between two attempts may grow to.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// An AWS endpoint that does not answer a connection in this time is down.
const CONNECT: Duration = Duration::from_secs(3);

/// One attempt: `CreateChangeSet` with a template of 1 MB, the slowest of our calls, takes some seconds.
const ATTEMPT: Duration = Duration::from_secs(15);

/// A whole call with its retries: less than half of the rollout function's 55 seconds (`Timeout`, infra/template.yaml), so that a hanging service
/// is reported as such, and not as a function that timed out, also if another call took as long before.
const OPERATION: Duration = Duration::from_secs(25);

/// As [`ATTEMPT`] and [`OPERATION`], for a person: the node agent's megabytes go out by a line of 1 Mbit/s, and whoever waits
/// can see it. An upload that stands still is given up by the SDK long before.
const BY_A_SLOW_LINE: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(300));

/// What a process needs to speak to AWS, made once.
#[derive(Debug, Clone)]
pub struct Aws {
    config: SdkConfig,
    s3: aws_sdk_s3::Client,
    region: String,
}

/// What a person names at a terminal.
#[derive(Debug, Clone, Default)]
pub struct Terminal {
    /// The profile.
    pub profile: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Receives a line for each call, without secrets.
    pub calls: Option<fn(&str)>,
}

/// No region is configured.
#[derive(Debug, thiserror::Error)]
#[error("no AWS region is configured; set AWS_REGION, or `region` in the profile that AWS_PROFILE names")]
pub struct NoRegion;

/// A client that speaks TLS, through the proxy that `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` name, as other tools of AWS do.
fn https() -> SharedHttpClient {
    let proxy = ProxyConfig::from_env();
    // One for each pair of time limits, as the SDK does it: each reads the system's root certificates anew.
    let connectors: Mutex<HashMap<_, SharedHttpConnector>> = Mutex::default();
    http_client_fn(move |settings, components| {
        let key = (settings.connect_timeout(), settings.read_timeout());
        let mut connectors = connectors.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let connector = Connector::builder()
                .proxy_config(proxy.clone())
                .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
                .connector_settings(settings.clone());
            match components.sleep_impl() {
                Some(sleep) => SharedHttpConnector::new(connector.sleep_impl(sleep).build()),
                None => SharedHttpConnector::new(connector.build()),
            }
        };
        connectors.entry(key).or_insert_with(make).clone()
    })
}

impl Aws {
    /// Takes credentials, region and endpoints from where every AWS tool takes them: environment, profile, role.
    /// `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>` are obeyed; nothing else turns a call to another address. It goes through the proxy
    /// that the environment names, which sees no more than the host.
    ///
    /// # Errors
    /// If no region is configured.
    pub async fn from_env() -> Result<Self, NoRegion> {
        Self::patient_for(ATTEMPT, OPERATION, Terminal::default()).await
    }

    /// As [`Aws::from_env`], for a person's commands, whose line may be slow. What `terminal` names counts before the environment.
    ///
    /// # Errors
    /// If no region is configured.
    pub async fn at_a_terminal(terminal: Terminal) -> Result<Self, NoRegion> {
        let (attempt, operation) = BY_A_SLOW_LINE;
        Self::patient_for(attempt, operation, terminal).await
    }

    /// An AWS in which everything is at one address and an access key is all that a caller shows: an emulator on loopback.
    ///
    /// # Errors
    /// If `region` is empty.
    pub fn emulated(url: &str, region: &str, access_key: &str) -> Result<Self, NoRegion> {
        let credentials = Credentials::new(access_key, "secret", None, None, "emulator");
        let region = (!region.is_empty()).then(|| Region::new(region.to_owned()));
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(region)
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(url)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(RetryConfig::standard())
            .build();
        Self::new(config)
    }

    async fn patient_for(
        attempt: Duration,
        operation: Duration,
        terminal: Terminal,
    ) -> Result<Self, NoRegion> {
        let retry = RetryConfig::standard().with_max_attempts(ATTEMPTS).with_max_backoff(MAX_BACKOFF);
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT)
            .operation_attempt_timeout(attempt)
            .operation_timeout(operation)
            .build();
        // One client for all services: a client of its own would each read the system's root certificates anew.
        let http = https();
        let http = match terminal.calls {
            Some(log_line) => LoggedClient::new(http, log_line).into_shared(),
            None => http,
        };
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http.clone())
            .retry_config(retry)
            .timeout_config(timeouts);
        if let Some(profile) = &terminal.profile {
            loader = loader.profile_name(profile);
        }
        if let Some(region) = terminal.region {
            loader = loader.region(Region::new(region));
        }
        let config = loader.load().await;
        let Some(profile) = terminal.profile else { return Self::new(config) };
        // The SDK would take access keys in the environment first, although the profile was named at this very command.
        let by =
            ProviderConfig::without_region().with_region(config.region().cloned()).with_http_client(http);
        let credentials =
            ProfileFileCredentialsProvider::builder().configure(&by).profile_name(profile).build();
        let credentials = SharedCredentialsProvider::new(credentials);
        Self::new(config.into_builder().credentials_provider(credentials).build())
    }

    /// As [`Aws::from_env`], with a configuration made elsewhere.
    ///
    /// # Errors
    /// If it has no region.
    pub fn new(config: SdkConfig) -> Result<Self, NoRegion> {
        let region = config.region().ok_or(NoRegion)?.to_string();
        // A stand-in for S3 on one address knows no bucket by its host name. S3 itself is always spoken to by the
        // bucket's host name, as AWS wants it.
        let path_style = has_s3_endpoint(&config);
        let s3 = aws_sdk_s3::config::Builder::from(&config).force_path_style(path_style).build();
        Ok(Self { s3: aws_sdk_s3::Client::from_conf(s3), region, config })
    }

    /// The bucket `name`.
    #[must_use]
    pub fn bucket(&self, name: &str) -> S3Bucket {
        S3Bucket::new(self.s3.clone(), name.to_owned(), self.region.clone())
    }

    /// KMS, with `own_key` where a cluster names no key of its own.
    #[must_use]
    pub fn keys(&self, own_key: &str) -> KmsKeys {
        KmsKeys::new(self.kms(), own_key.to_owned())
    }

    /// SSM's Parameter Store.
    #[must_use]
    pub fn parameters(&self) -> SsmParameters {
        SsmParameters::new(aws_sdk_ssm::Client::new(&self.config))
    }

    /// The event bus `name`.
    #[must_use]
    pub fn bus(&self, name: &str) -> EventBus {
        EventBus::new(self.events(), name.to_owned())
    }

    /// CloudFormation, which reads templates from `templates` and works under the service role `role_arn`.
    #[must_use]
    pub fn stacks(&self, templates: &S3Bucket, role_arn: &str) -> CloudFormation {
        CloudFormation::new(self.cloudformation(), templates.clone(), role_arn.to_owned())
    }

    pub(crate) fn config(&self) -> &SdkConfig {
        &self.config
    }

    pub(crate) fn cloudformation(&self) -> aws_sdk_cloudformation::Client {
        aws_sdk_cloudformation::Client::new(&self.config)
    }

    pub(crate) fn events(&self) -> aws_sdk_eventbridge::Client {
        aws_sdk_eventbridge::Client::new(&self.config)
    }

    pub(crate) fn kms(&self) -> aws_sdk_kms::Client {
        aws_sdk_kms::Client::new(&self.config)
    }

    /// Auto Scaling, and the load balancers behind which it puts machines.
    #[must_use]
    pub fn groups(&self) -> AutoScaling {
        AutoScaling::new(
            aws_sdk_autoscaling::Client::new(&self.config),
            aws_sdk_elasticloadbalancingv2::Client::new(&self.config),
        )
    }

    /// Run Command.
    #[must_use]
    pub fn commands(&self) -> RunCommand {
        RunCommand::new(aws_sdk_ssm::Client::new(&self.config))
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Ticks in the schedule group `group` that invoke the function `target_arn` under the role `role_arn`.
    #[must_use]
    pub fn ticks(&self, group: &str, role_arn: &str, target_arn: &str) -> Schedules {
        let client = aws_sdk_scheduler::Client::new(&self.config);
        Schedules::new(client, group.to_owned(), role_arn.to_owned(), target_arn.to_owned())
    }
}

/// Whether the environment or the profile names an address for S3; the SDK's own rule, which it does not tell:
/// `AWS_ENDPOINT_URL_S3` (`s3.endpoint_url`), or else `AWS_ENDPOINT_URL`.
fn has_s3_endpoint(config: &SdkConfig) -> bool {
    let key = ServiceConfigKey::builder()
        .service_id("S3")
        .env("AWS_ENDPOINT_URL")
        .profile("endpoint_url")
        .build()
        .expect("all three parts of the key are given");
    config.endpoint_url().is_some()
        || config.service_config().is_some_and(|services| services.load_config(key).is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_ports::Objects;

    use super::*;

    fn config() -> aws_types::sdk_config::Builder {
        SdkConfig::builder().behavior_version(BehaviorVersion::latest())
    }

    #[test]
    fn without_a_region_there_is_an_error_that_says_so() {
        let error = Aws::new(config().build()).unwrap_err();
        assert!(error.to_string().contains("AWS_REGION"), "{error}");
    }

    #[test]
    fn cloudformation_is_given_the_regional_https_address_of_the_bucket_whatever_stands_in_for_s3() {
        let url = |region: &str, bucket: &str, endpoint: Option<&str>| {
            let mut config = config().region(Region::new(region.to_owned()));
            config.set_endpoint_url(endpoint.map(str::to_owned));
            Aws::new(config.build()).unwrap().bucket(bucket).url("clusters/a/templates/a-etcd/0.json")
        };
        let expected = "https://assets.s3.eu-west-1.amazonaws.com/clusters/a/templates/a-etcd/0.json";
        assert_eq!(url("eu-west-1", "assets", None), expected);
        assert_eq!(url("eu-west-1", "assets", Some("http://127.0.0.1:5000")), expected);
        assert_eq!(
            url("cn-north-1", "my.assets", None),
            "https://s3.cn-north-1.amazonaws.com.cn/my.assets/clusters/a/templates/a-etcd/0.json"
        );
    }
}
