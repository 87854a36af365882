//! Each call to AWS as a line, for a person who asked for it: what was called, its result and how long it took. Headers, query and body are
//! not shown, because they have signatures, tokens and contents.

use std::time::Instant;

use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// A client that logs each call.
#[derive(Debug, Clone)]
pub(crate) struct LoggedClient<C> {
    inner: C,
    log_line: fn(&str),
}

impl<C> LoggedClient<C> {
    pub(crate) fn new(inner: C, log_line: fn(&str)) -> Self {
        Self { inner, log_line }
    }
}

impl HttpClient for LoggedClient<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(LoggedClient::new(inner, self.log_line))
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.inner.connector_metadata()
    }
}

impl HttpConnector for LoggedClient<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (call, log_line, begun) = (words(&request), self.log_line, Instant::now());
        let answer = self.inner.call(request);
        HttpConnectorFuture::new(async move {
            let answer = answer.await;
            let result = match &answer {
                Ok(response) => {
                    let ids = ["x-amzn-requestid", "x-amz-request-id"];
                    let id = ids.iter().find_map(|name| response.headers().get(*name));
                    let id = id.map(|id| format!(", request {id}")).unwrap_or_default();
                    format!("{}{id}", response.status().as_u16())
                }
                Err(error) if error.is_timeout() => "no answer in time".to_owned(),
                Err(error) if error.is_io() => "no connection".to_owned(),
                Err(_) => "failed".to_owned(),
            };
            log_line(&format!("{call}: {result}, {} ms", begun.elapsed().as_millis()));
            answer
        })
    }
}

/// What is called: the method and the address without its query, and the operation where those do not name it.
fn words(request: &HttpRequest) -> String {
    let uri = request.uri().split(['?', '#']).next().unwrap_or_default();
    let target = request.headers().get("x-amz-target").map(|target| {
        let operation = target.rsplit('.').next().unwrap_or_default();
        operation.to_owned()
    });
    // Services with the query protocol name it first in the body.
    let of_body = || {
        let body = request.body().bytes()?.strip_prefix(b"Action=")?;
        let name = body.iter().take_while(|byte| byte.is_ascii_alphanumeric()).map(|byte| char::from(*byte));
        Some(name.collect::<String>())
    };
    let operation = target.or_else(of_body).map(|name| format!(" {name}")).unwrap_or_default();
    format!("{} {uri}{operation}", request.method())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use aws_sdk_s3::primitives::SdkBody;
    use aws_smithy_runtime_api::http::Request;

    use super::*;

    fn request(uri: &str, header: Option<(&'static str, &'static str)>, body: &'static str) -> HttpRequest {
        let mut request = Request::new(SdkBody::from(body));
        request.set_uri(uri).unwrap();
        request.set_method("POST").unwrap();
        if let Some((name, value)) = header {
            request.headers_mut().insert(name, value);
        }
        request
    }

    #[test]
    fn p9_a_call_is_told_without_anything_that_could_be_a_secret() {
        let secret = "hunter2";
        for (request, words_of_it) in [
            (
                request(
                    "https://kms.eu-west-1.amazonaws.com/",
                    Some(("x-amz-target", "TrentService.Decrypt")),
                    "{\"a\": \"hunter2\"}",
                ),
                "POST https://kms.eu-west-1.amazonaws.com/ Decrypt",
            ),
            (
                request(
                    "https://cloudformation.eu-west-1.amazonaws.com/",
                    None,
                    "Action=DescribeStacks&StackName=hunter2",
                ),
                "POST https://cloudformation.eu-west-1.amazonaws.com/ DescribeStacks",
            ),
            (
                request(
                    "https://b.s3.amazonaws.com/key?X-Amz-Signature=hunter2",
                    Some(("authorization", "hunter2")),
                    "hunter2",
                ),
                "POST https://b.s3.amazonaws.com/key",
            ),
        ] {
            let told = words(&request);
            assert_eq!(told, words_of_it);
            assert!(!told.contains(secret));
        }
    }
}
