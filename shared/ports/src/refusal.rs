//! What the refusals of AWS' services mean, for whoever calls them by an SDK or without.

use std::error::Error;

use crate::ErrorKind;

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
    "ResourceContention",
    "ScalingActivityInProgress",
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
    "InvalidVolume.NotFound",
    "NoSuchBucket",
    "NoSuchHostedZone",
    "NoSuchKey",
    "NoSuchVersion",
    "NotFound",
    "NotFoundException",
    "ParameterNotFound",
    "ParameterVersionNotFound",
    "ResourceNotFoundException",
];

/// What an error code means for the caller. A code that nobody told us about is judged by the status.
#[must_use]
pub fn kind_of(code: &str, status: u16) -> ErrorKind {
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
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
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
        // EC2's, which the node agent calls.
        assert_eq!(kind_of("RequestLimitExceeded", 400), ErrorKind::Transient);
        assert_eq!(kind_of("VolumeInUse", 400), ErrorKind::Invalid);
    }
}
