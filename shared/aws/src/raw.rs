//! Calls to services of which a few questions are asked, so that no SDK of theirs is built: CloudWatch, EC2, IAM, the Price List,
//! Service Quotas and STS. The SDKs' own machinery signs them, retries them and ends them in time (`aws-smithy-runtime`); only what an SDK generates is written here.

use std::collections::BTreeMap;

use aws_config::retry::RetryConfig;
use aws_runtime::auth::sigv4::{self, SigV4AuthScheme};
use aws_runtime::auth::{SigV4OperationSigningConfig, SigningOptions};
use aws_runtime::retries::classifiers::AwsErrorCodeClassifier;
use aws_sdk_s3::error::ErrorMetadata;
use aws_sdk_s3::primitives::SdkBody;
use aws_smithy_runtime::client::orchestrator::operation::Operation;
use aws_smithy_runtime::client::retries::classifiers::{HttpStatusCodeClassifier, TransientErrorClassifier};
use aws_smithy_runtime_api::client::auth::static_resolver::StaticAuthSchemeOptionResolver;
use aws_smithy_runtime_api::client::auth::{
    AuthSchemeOptionResolverParams, SharedAuthScheme, SharedAuthSchemeOptionResolver,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse, OrchestratorError};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;
use aws_smithy_runtime_api::client::runtime_plugin::StaticRuntimePlugin;
use aws_smithy_runtime_api::http::Request;
use aws_smithy_types::config_bag::Layer;
use aws_types::SigningName;
use aws_types::region::{Region, SigningRegion};
use aws_types::service_config::ServiceConfigKey;
use roxmltree::{Document, Node};
use slipway_ports::{ErrorKind, PortError, PortResult};

use crate::Aws;
use crate::error::port_error;

/// A service without an SDK here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    CloudWatch,
    Ec2,
    Iam,
    Pricing,
    Quotas,
    Sts,
}

impl Service {
    /// Its name in signatures, and in the address of a region's endpoint.
    const fn signing_name(self) -> &'static str {
        match self {
            Self::CloudWatch => "monitoring",
            Self::Ec2 => "ec2",
            Self::Iam => "iam",
            Self::Pricing => "pricing",
            Self::Quotas => "servicequotas",
            Self::Sts => "sts",
        }
    }

    /// Its name in AWS' service models, from which `AWS_ENDPOINT_URL_<SERVICE>` is derived.
    const fn id(self) -> &'static str {
        match self {
            Self::CloudWatch => "CloudWatch",
            Self::Ec2 => "EC2",
            Self::Iam => "IAM",
            Self::Pricing => "Pricing",
            Self::Quotas => "Service Quotas",
            Self::Sts => "STS",
        }
    }

    /// The version of its query API, and none for JSON (botocore's service models).
    const fn query_version(self) -> Option<&'static str> {
        match self {
            Self::CloudWatch => Some("2010-08-01"),
            Self::Ec2 => Some("2016-11-15"),
            Self::Iam => Some("2010-05-08"),
            Self::Sts => Some("2011-06-15"),
            Self::Pricing | Self::Quotas => None,
        }
    }

    /// The region that signs, and AWS' own endpoint. IAM has one endpoint in each partition ("AWS Identity and Access Management endpoints and
    /// quotas", AWS general reference). The Price List has few, each with the prices of all regions of its partition (botocore's
    /// `endpoints.json`; "AWS Billing and Cost Management endpoints and quotas", AWS general reference).
    fn place(self, region: &str) -> (String, String) {
        let china = region.starts_with("cn-");
        let suffix = if china { "amazonaws.com.cn" } else { "amazonaws.com" };
        match self {
            Self::Iam if china => ("cn-north-1".to_owned(), format!("https://iam.cn-north-1.{suffix}")),
            Self::Iam if region.starts_with("us-gov-") => {
                ("us-gov-west-1".to_owned(), format!("https://iam.us-gov.{suffix}"))
            }
            Self::Iam => ("us-east-1".to_owned(), format!("https://iam.{suffix}")),
            Self::Pricing => {
                let region = match region {
                    _ if china => "cn-northwest-1",
                    _ if region.starts_with("eu-") => "eu-central-1",
                    _ if region.starts_with("ap-") => "ap-south-1",
                    _ => "us-east-1",
                };
                (region.to_owned(), format!("https://api.pricing.{region}.{suffix}"))
            }
            Self::CloudWatch | Self::Ec2 | Self::Quotas | Self::Sts => {
                (region.to_owned(), format!("https://{}.{region}.{suffix}", self.signing_name()))
            }
        }
    }
}

/// The parameters of a call of a query API.
pub(crate) type Parameters = Vec<(String, String)>;

/// `NAME.1=…`, `NAME.2=…` and so on.
pub(crate) fn numbered<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> Parameters {
    let values = values.into_iter().zip(1..);
    values.map(|(value, number)| (format!("{name}.{number}"), value.to_owned())).collect()
}

impl Aws {
    /// Calls a query API: `operation` as IAM names it. The answer is XML.
    pub(crate) async fn query(
        &self,
        service: Service,
        operation: &'static str,
        subject: &str,
        parameters: &[(String, String)],
    ) -> PortResult<String> {
        let version = service.query_version().unwrap_or_default();
        let mut form = format!("Action={}&Version={version}", action(operation));
        for (name, value) in parameters {
            form.push_str(&format!("&{}={}", encoded(name), encoded(value)));
        }
        let headers = BTreeMap::from([("content-type", "application/x-www-form-urlencoded".to_owned())]);
        self.raw(service, operation, subject, headers, form).await
    }

    /// Calls an API of JSON 1.1, whose operations have the prefix `target`.
    pub(crate) async fn json(
        &self,
        service: Service,
        target: &str,
        operation: &'static str,
        subject: &str,
        body: &serde_json::Value,
    ) -> PortResult<serde_json::Value> {
        let headers = BTreeMap::from([
            ("content-type", "application/x-amz-json-1.1".to_owned()),
            ("x-amz-target", format!("{target}.{}", action(operation))),
        ]);
        let text = self.raw(service, operation, subject, headers, body.to_string()).await?;
        serde_json::from_str(&text).map_err(|_| unreadable(operation, subject))
    }

    async fn raw(
        &self,
        service: Service,
        operation: &'static str,
        subject: &str,
        headers: BTreeMap<&'static str, String>,
        body: String,
    ) -> PortResult<String> {
        let refused = |why: &str| PortError {
            kind: ErrorKind::Denied,
            operation,
            subject: subject.to_owned(),
            message: format!("NoCredentials: {why}"),
        };
        let config = self.config();
        let (signing_region, own) = service.place(self.region());
        let url = match self.stand_in(service) {
            Some(stand_in) => stand_in,
            None => {
                own_endpoint(service, own, config.use_fips(), config.use_dual_stack()).map_err(|message| {
                    PortError { kind: ErrorKind::Invalid, operation, subject: subject.to_owned(), message }
                })?
            }
        };
        let provider = config.credentials_provider().ok_or_else(|| refused("nobody is signed in"))?;
        let http = config.http_client().ok_or_else(|| refused("there is no HTTP client"))?;
        let mut layer = Layer::new("signature");
        layer.store_put(AuthSchemeOptionResolverParams::new(()));
        layer.store_put(SigV4OperationSigningConfig {
            region: Some(SigningRegion::from(Region::new(signing_region))),
            region_set: None,
            name: Some(SigningName::from_static(service.signing_name())),
            signing_options: SigningOptions::default(),
        });
        let resolver = StaticAuthSchemeOptionResolver::new(vec![sigv4::SCHEME_ID]);
        let mut components = RuntimeComponentsBuilder::new("signature")
            .with_auth_scheme(SharedAuthScheme::new(SigV4AuthScheme::new()))
            .with_auth_scheme_option_resolver(Some(SharedAuthSchemeOptionResolver::new(resolver)))
            .with_identity_cache(config.identity_cache());
        components.set_identity_resolver(sigv4::SCHEME_ID, provider);
        components.set_sleep_impl(config.sleep_impl());
        components.set_time_source(config.time_source());
        let signed =
            StaticRuntimePlugin::new().with_config(layer.freeze()).with_runtime_components(components);
        let mut call = Operation::builder()
            .service_name(service.id())
            .operation_name(action(operation))
            .http_client(http)
            .endpoint_url(&url)
            .standard_retry(&config.retry_config().cloned().unwrap_or_else(RetryConfig::standard))
            .retry_classifier(TransientErrorClassifier::<ErrorMetadata>::new())
            .retry_classifier(AwsErrorCodeClassifier::<ErrorMetadata>::new())
            .retry_classifier(HttpStatusCodeClassifier::default())
            .runtime_plugin(signed);
        if let Some(version) = config.behavior_version() {
            call = call.behavior_version(version);
        }
        if let Some(timeouts) = config.timeout_config() {
            call = call.timeout_config(timeouts.clone());
        }
        let call = call.serializer(move |body: String| request(&headers, body)).deserializer(read).build();
        call.invoke(body).await.map_err(|error| port_error(operation, subject, &error))
    }

    /// The address that replaces the service's own, as the SDKs look for it.
    fn stand_in(&self, service: Service) -> Option<String> {
        let key = ServiceConfigKey::builder()
            .service_id(service.id())
            .env("AWS_ENDPOINT_URL")
            .profile("endpoint_url")
            .build()
            .expect("all three parts of the key are given");
        let config = self.config();
        let named = config.service_config().and_then(|services| services.load_config(key));
        named.or_else(|| config.endpoint_url().map(str::to_owned))
    }
}

/// `own`, unless the environment or the profile wants an endpoint of another kind: the SDKs have a list of these, and nothing may be sent anywhere
/// else meanwhile ("FIPS endpoints" and "Service-specific endpoints", AWS SDKs and Tools reference guide).
///
/// # Errors
/// A message that names the variable to set.
fn own_endpoint(
    service: Service,
    own: String,
    fips: Option<bool>,
    dual_stack: Option<bool>,
) -> Result<String, String> {
    let wanted =
        [(fips, "AWS_USE_FIPS_ENDPOINT", "FIPS"), (dual_stack, "AWS_USE_DUALSTACK_ENDPOINT", "dual-stack")];
    let Some((_, variable, kind)) = wanted.into_iter().find(|(wanted, ..)| *wanted == Some(true)) else {
        return Ok(own);
    };
    let named = service.id().to_uppercase().replace(' ', "_");
    Err(format!(
        "{variable} is set (or its like in the profile), and Slipway knows no {kind} endpoint of {}: set AWS_ENDPOINT_URL_{named} to its address",
        service.id()
    ))
}

/// The operation without its service.
fn action(operation: &'static str) -> &'static str {
    operation.split_once(':').map_or(operation, |(_, action)| action)
}

/// Percent-encodes a form's name or value.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn request(
    headers: &BTreeMap<&'static str, String>,
    body: String,
) -> Result<HttpRequest, Box<dyn std::error::Error + Send + Sync>> {
    let length = body.len();
    let mut request = Request::new(SdkBody::from(body));
    request.set_method("POST")?;
    request.set_uri("/")?;
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.clone());
    }
    request.headers_mut().insert("content-length", length.to_string());
    Ok(request)
}

fn read(response: &HttpResponse) -> Result<String, OrchestratorError<ErrorMetadata>> {
    let text = response.body().bytes().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    if response.status().is_success() {
        return Ok(text);
    }
    let (code, message) = refusal(&text);
    let mut error = ErrorMetadata::builder();
    if let Some(code) = code {
        error = error.code(code);
    }
    if let Some(message) = message {
        error = error.message(message);
    }
    Err(OrchestratorError::operation(error.build()))
}

/// Code and message of an error, in XML or JSON.
fn refusal(text: &str) -> (Option<String>, Option<String>) {
    if let Ok(document) = Document::parse(text) {
        let first = |name: &str| {
            document.descendants().find(|node| node.tag_name().name() == name).and_then(|node| node.text())
        };
        return (first("Code").map(str::to_owned), first("Message").map(str::to_owned));
    }
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let field = |name: &str| value[name].as_str().map(str::to_owned);
    let code = field("__type").map(|code| code.rsplit('#').next().unwrap_or_default().to_owned());
    (code, field("message").or_else(|| field("Message")))
}

/// It worked, in an answer that cannot be read.
pub(crate) fn unreadable(operation: &'static str, subject: &str) -> PortError {
    PortError {
        kind: ErrorKind::Transient,
        operation,
        subject: subject.to_owned(),
        message: "an answer that cannot be read".to_owned(),
    }
}

/// The elements of the list `name`: its `member`s, or EC2's `item`s.
pub(crate) fn list<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Vec<Node<'a, 'i>> {
    let lists = node.descendants().filter(|node| node.tag_name().name() == name);
    lists.flat_map(|list| list.children().filter(Node::is_element)).collect()
}

/// The text of the child `name`.
pub(crate) fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children().find(|child| child.tag_name().name() == name).and_then(|child| child.text())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_service_has_its_endpoint_in_each_partition() {
        for (service, region, signed_for, url) in [
            (Service::CloudWatch, "eu-west-1", "eu-west-1", "https://monitoring.eu-west-1.amazonaws.com"),
            (
                Service::Quotas,
                "cn-north-1",
                "cn-north-1",
                "https://servicequotas.cn-north-1.amazonaws.com.cn",
            ),
            (Service::Pricing, "eu-west-1", "eu-central-1", "https://api.pricing.eu-central-1.amazonaws.com"),
            (Service::Pricing, "sa-east-1", "us-east-1", "https://api.pricing.us-east-1.amazonaws.com"),
            (
                Service::Pricing,
                "cn-north-1",
                "cn-northwest-1",
                "https://api.pricing.cn-northwest-1.amazonaws.com.cn",
            ),
            (Service::Iam, "eu-west-1", "us-east-1", "https://iam.amazonaws.com"),
            (Service::Iam, "cn-northwest-1", "cn-north-1", "https://iam.cn-north-1.amazonaws.com.cn"),
            (Service::Iam, "us-gov-east-1", "us-gov-west-1", "https://iam.us-gov.amazonaws.com"),
        ] {
            assert_eq!(service.place(region), (signed_for.to_owned(), url.to_owned()), "{region}");
        }
    }

    #[tokio::test]
    async fn an_endpoint_of_another_kind_than_we_know_is_not_replaced_by_one_that_we_know() {
        let config = |fips, dual_stack, url: Option<&str>| {
            let credentials =
                aws_sdk_s3::config::Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
            let mut config = aws_config::SdkConfig::builder()
                .behavior_version(aws_config::BehaviorVersion::latest())
                .region(Region::new("us-gov-west-1"))
                .credentials_provider(aws_sdk_s3::config::SharedCredentialsProvider::new(credentials))
                .http_client(aws_smithy_http_client::Builder::new().build_http())
                .retry_config(RetryConfig::disabled())
                .use_fips(fips)
                .use_dual_stack(dual_stack);
            config.set_endpoint_url(url.map(str::to_owned));
            Aws::new(config.build()).unwrap()
        };
        let names = [("fips", "AWS_USE_FIPS_ENDPOINT"), ("dual", "AWS_USE_DUALSTACK_ENDPOINT")];
        for (kind, variable) in names {
            let error = config(kind == "fips", kind == "dual", None).caller().await.unwrap_err();
            assert_eq!((error.kind, error.operation), (ErrorKind::Invalid, "sts:GetCallerIdentity"));
            for words in [variable, "AWS_ENDPOINT_URL_STS"] {
                assert!(error.message.contains(words), "{error}");
            }
        }
        // With an address, that is where it goes: nobody is there.
        let error = config(true, true, Some("http://127.0.0.1:1")).caller().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transient, "{error}");
        let told = own_endpoint(Service::Quotas, String::new(), Some(true), None).unwrap_err();
        assert!(told.contains("AWS_ENDPOINT_URL_SERVICE_QUOTAS"), "{told}");
    }

    #[test]
    fn an_error_is_read_in_each_of_the_formats_that_services_have() {
        for text in [
            "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>",
            "<Response><Errors><Error><Code>AccessDenied</Code><Message>no</Message></Error></Errors></Response>",
            r#"{"__type": "com.amazonaws.servicequotas#AccessDenied", "message": "no"}"#,
            r#"{"__type": "AccessDenied", "Message": "no"}"#,
        ] {
            assert_eq!(refusal(text), (Some("AccessDenied".to_owned()), Some("no".to_owned())), "{text}");
        }
        assert_eq!(refusal("gateway timeout"), (None, None));
    }
}
