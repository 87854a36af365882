//! From an SDK's error to a [`PortError`]: what it means for the caller, and the service's own words.

use std::error::Error;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId;
use slipway_driver::ports::{ErrorKind, PortError};

/// Errors by which a service asks for patience, whatever their HTTP status.
const TRANSIENT: &[&str] = &[
    // Throttling, as the services spell it (the list of the SDK's own retry policy).
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "Throttling",
    "ThrottledException",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
    // Somebody else is at it this moment.
    "ConcurrentModificationException",
    "OperationAborted",
    "OperationInProgressException",
    "OperationStatusCheckFailed",
    // Late, or out of sorts.
    "DependencyTimeoutException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InternalError",
    "InternalFailure",
    "InternalException",
    "KMSInternalException",
    "KeyUnavailableException",
    "RequestExpired",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "ServiceUnavailable",
];

/// Errors that a change of a permission, a key policy or a credential cures.
const DENIED: &[&str] = &[
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "NotAuthorized",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
    // A key that somebody disabled, or whose deletion is scheduled: a person must decide.
    "DisabledException",
    "KMSInvalidStateException",
];

/// Errors by which a service says that what was named does not exist.
const MISSING: &[&str] = &[
    "ChangeSetNotFound",
    "NoSuchBucket",
    "NoSuchKey",
    "NoSuchVersion",
    "NotFound",
    "NotFoundException",
    "ParameterNotFound",
    "ParameterVersionNotFound",
    "ResourceNotFoundException",
];

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
        SdkError::DispatchFailure(failure) => (
            ErrorKind::Transient,
            failure.as_connector_error().map_or_else(String::new, |error| chain(error)),
        ),
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

/// The service's error code; empty if the call failed before a service could say one.
pub(crate) fn code<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> &str {
    error.as_service_error().and_then(ProvideErrorMetadata::code).unwrap_or_default()
}

/// The service's words; empty if the call failed before.
pub(crate) fn words<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> &str {
    error.as_service_error().and_then(ProvideErrorMetadata::message).unwrap_or_default()
}

/// What an error code means for the caller. A code that nobody told us about is judged by the status.
pub(crate) fn kind_of(code: &str, status: u16) -> ErrorKind {
    // Some services send `com.amazonaws.kms#NotFoundException` or `ThrottlingException:http://…`.
    let code = code.rsplit('#').next().unwrap_or(code).split(':').next().unwrap_or(code);
    if TRANSIENT.contains(&code) || status == 429 || status >= 500 {
        ErrorKind::Transient
    } else if DENIED.contains(&code) || status == 401 || status == 403 {
        ErrorKind::Denied
    } else if MISSING.contains(&code) || status == 404 {
        ErrorKind::Missing
    } else {
        ErrorKind::Invalid
    }
}

/// An error and its sources in one line. Only `Display`: the debug form of an SDK's error holds the whole response.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_judged_before_the_status() {
        // S3 sends AccessDenied with 403, KMS with 400; a throttled call comes with 400 or 503.
        assert_eq!(kind_of("AccessDeniedException", 400), ErrorKind::Denied);
        assert_eq!(kind_of("ThrottlingException", 400), ErrorKind::Transient);
        assert_eq!(kind_of("SlowDown", 503), ErrorKind::Transient);
        assert_eq!(kind_of("NoSuchBucket", 404), ErrorKind::Missing);
        assert_eq!(kind_of("com.amazonaws.kms#NotFoundException", 400), ErrorKind::Missing);
        assert_eq!(kind_of("KMSInvalidStateException", 409), ErrorKind::Denied);
        assert_eq!(kind_of("ValidationError", 400), ErrorKind::Invalid);
        assert_eq!(kind_of("SomethingNew", 403), ErrorKind::Denied);
        assert_eq!(kind_of("SomethingNew", 500), ErrorKind::Transient);
    }
}
