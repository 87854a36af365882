//! What the error codes of AWS services mean, for callers with and without an SDK.

use std::error::Error;

use crate::ErrorKind;

/// Error codes that call for a retry, whatever their HTTP status.
const TRANSIENT: &[&str] = &[
    // Throttling, in the services' different spellings (from the list of the SDK's retry policy).
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
    // Another request is changing the same resource.
    "ConcurrentModificationException",
    "OperationAborted",
    "OperationInProgressException",
    "OperationStatusCheckFailed",
    "ResourceContention",
    "ScalingActivityInProgress",
    // Timeouts and internal errors.
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

/// Error codes that a change of a permission, a key policy or a credential resolves.
const DENIED: &[&str] = &[
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "NotAuthorized",
    // Of an entry of `PutEvents`: the bus' policy, or the role's, does not let this source or detail type through (API_PutEventsResultEntry,
    // `ErrorCode`).
    "NotAuthorizedForDetailTypeException",
    "NotAuthorizedForSourceException",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
    // A key that is disabled or scheduled for deletion: a person must decide.
    "DisabledException",
    "KMSInvalidStateException",
];

/// Error codes that say that a named resource does not exist.
const MISSING: &[&str] = &[
    "ChangeSetNotFound",
    "InvalidVolume.NotFound",
    "NoSuchBucket",
    "NoSuchEntity",
    "NoSuchEntityException",
    "NoSuchHostedZone",
    "NoSuchKey",
    "NoSuchResourceException",
    "NoSuchVersion",
    "NotFound",
    "NotFoundException",
    "ParameterNotFound",
    "ParameterVersionNotFound",
    "ResourceNotFoundException",
];

/// What an error code means for the caller. An unknown code is judged by the HTTP status.
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

/// An error and its sources in one line. It uses `Display` only, because the debug form of an SDK error contains the whole response.
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
