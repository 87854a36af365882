//! From an SDK's error to a [`PortError`]: what it means for the caller, and the service's own words.

use std::error::Error;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId;
use slipway_ports::refusal::{chain, kind_of};
use slipway_ports::{ErrorKind, PortError};

/// Describes a failed call of `operation` (as IAM names it: `s3:PutObject`) about `subject`.
pub(crate) fn port_error<E>(
    operation: &'static str,
    subject: impl Into<String>,
    error: &SdkError<E, HttpResponse>,
) -> PortError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let (kind, mut message) = match error {
        SdkError::ServiceError(service) => {
            let status = service.raw().status().as_u16();
            if service.err().code().is_none() && status < 300 {
                // It worked, in an answer that the SDK cannot read.
                return PortError {
                    kind: ErrorKind::Transient,
                    operation,
                    subject: subject.into(),
                    message: format!("an answer that cannot be read (HTTP {status})"),
                };
            }
            let code = service.err().code().unwrap_or("no error code");
            let words = service.err().message().unwrap_or("no message");
            (kind_of(code, status), format!("{code}: {words} (HTTP {status})"))
        }
        // Nothing came back, or nothing that can be read: the call may have worked, and all of ours may be repeated.
        SdkError::TimeoutError(_) => (ErrorKind::Transient, "no answer in time".to_owned()),
        SdkError::DispatchFailure(failure) => {
            unsent(failure.as_connector_error().map_or_else(String::new, |error| chain(error)))
        }
        SdkError::ResponseError(response) => (
            ErrorKind::Transient,
            format!("an answer that cannot be read (HTTP {})", response.raw().status().as_u16()),
        ),
        // The request never left: no credentials, or a parameter that the SDK itself refuses.
        SdkError::ConstructionFailure(_) => {
            (ErrorKind::Invalid, error.source().map_or_else(String::new, chain))
        }
        _ => (ErrorKind::Transient, chain(error)),
    };
    if let Some(id) = error.request_id() {
        message.push_str(&format!(" [request {id}]"));
    }
    PortError { kind, operation, subject: subject.into(), message }
}

/// What a request means that got no answer, by its words: one that nobody could sign will get none either.
fn unsent(words: String) -> (ErrorKind, String) {
    if let Some(at) = words.find(NOBODY) {
        let list = attempted(&words[at + NOBODY.len()..]);
        return (ErrorKind::Denied, format!("NoCredentials: {NOBODY}{list}"));
    }
    match PROVIDER.iter().find_map(|text| words.find(text)) {
        Some(at) => (ErrorKind::Denied, format!("NoCredentials: {}", attempted(&words[at..]))),
        None => (ErrorKind::Transient, words),
    }
}

/// The SDK's words where a provider that was named has no credentials (aws-credential-types, `provider/error.rs`): a profile that does not
/// exist, a program that failed, a session that has ended.
const PROVIDER: [&str; 3] = [
    "the credential provider was not enabled",
    "the credentials provider was not properly configured",
    "an error occurred while loading credentials",
];

/// The SDK's words where none of its providers has credentials.
const NOBODY: &str = "no credentials found in chain";

/// Its list of what it looked at, on one line.
fn attempted(list: &str) -> String {
    list.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
        // Its heading is a line of its own.
        .replacen(":; ", ": ", 1)
}

/// The service's error code; empty if the call failed before a service could say one.
pub(crate) fn code<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> &str {
    error.as_service_error().and_then(ProvideErrorMetadata::code).unwrap_or_default()
}

/// The service's words; empty if the call failed before.
pub(crate) fn words<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> &str {
    error.as_service_error().and_then(ProvideErrorMetadata::message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_flows::ports::Groups;

    use super::*;
    use crate::testing::Server;

    /// The call may have been performed: nobody was refused.
    #[tokio::test]
    async fn an_answer_that_broke_off_is_no_refusal() {
        let server = Server::that_breaks_off((200, "<R"));
        let error = server.aws().groups().complete_termination("a-pool-x", "i-1").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transient, "{error}");
        assert!(error.message.contains("an answer that cannot be read"), "{error}");
    }

    #[test]
    fn a_request_that_nobody_could_sign_is_not_tried_again_and_one_that_got_no_answer_is() {
        let words =
            "other: no credentials found in chain. Attempted:\n  Environment: not set\n  Profile: none";
        let message =
            "NoCredentials: no credentials found in chain. Attempted: Environment: not set; Profile: none";
        assert_eq!(unsent(words.to_owned()), (ErrorKind::Denied, message.to_owned()));
        assert_eq!(unsent("timed out".to_owned()), (ErrorKind::Transient, "timed out".to_owned()));
        for said in PROVIDER {
            let told = format!("NoCredentials: {said}: profile `a` was not defined");
            assert_eq!(
                unsent(format!("other: {said}: profile `a` was not defined")),
                (ErrorKind::Denied, told)
            );
        }
    }
}
