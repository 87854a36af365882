//! What a service's refusal means, and what to do about it.

use slipway_ports::{ErrorKind, PortError};

use crate::failure::{Failure, FailureCode};

/// The code and the words of a refusal: XML of S3, EC2, Route 53, Auto Scaling; JSON of KMS.
pub(super) fn refusal(body: &str) -> (String, String) {
    let mut code = None;
    let mut message = None;
    if let Ok(document) = roxmltree::Document::parse(body) {
        for node in document.descendants() {
            let slot = match node.tag_name().name() {
                "Code" => &mut code,
                "Message" => &mut message,
                _ => continue,
            };
            if slot.is_none() {
                *slot = node.text().map(str::to_owned);
            }
        }
        // Route 53's own form for a batch of changes that is refused: the code is the document's name.
        let name = document.root_element().tag_name().name();
        code = code.or_else(|| (name == "InvalidChangeBatch").then(|| name.to_owned()));
    } else if let Ok(value) = serde_json::from_str::<serde_json::Value>(body) {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        code = text("__type").map(|code| code.rsplit('#').next().unwrap_or_default().to_owned());
        message = text("message").or_else(|| text("Message"));
    }
    (code.unwrap_or_else(|| "no error code".to_owned()), message.unwrap_or_else(|| "no message".to_owned()))
}

pub(super) fn port_error(
    operation: &'static str,
    subject: &str,
    kind: ErrorKind,
    message: impl Into<String>,
) -> PortError {
    PortError { kind, operation, subject: subject.to_owned(), message: message.into() }
}

/// The service's error code, with which the message of a refusal begins.
pub(crate) fn code_of(error: &PortError) -> &str {
    error.message.split(':').next().unwrap_or_default()
}

/// The statement of the node's policy that allows an operation, as rendering names it.
fn statement(operation: &str) -> Option<&'static str> {
    Some(match operation {
        "s3:GetObject" => "ReadOwnBundles",
        "s3:PutObject" => "ReportOwnState",
        "kms:Decrypt" => "OpenOwnCredentials",
        "kms:GenerateDataKey" => "SealOwnSnapshots",
        "ec2:DescribeVolumes" => "FindOwnVolume",
        "ec2:AttachVolume" => "AttachOwnVolume",
        "route53:ChangeResourceRecordSets" => "SetOwnRecord or TakeRecordsBack",
        "route53:ListResourceRecordSets" => "FindRecords",
        "autoscaling:CompleteLifecycleAction" | "autoscaling:RecordLifecycleActionHeartbeat" => {
            "SettleOwnLifecycleHooks"
        }
        _ => return None,
    })
}

/// For whoever reads a node's log.
pub(super) fn failure(error: &PortError) -> Failure {
    let message = error.to_string();
    match error.kind {
        ErrorKind::Transient => Failure::passing(
            FailureCode::AwsUnreachable,
            message,
            "it passes by itself, or the node has no way to the endpoint: look at routes, security groups and VPC endpoints",
        ),
        ErrorKind::Denied => Failure::lasting(FailureCode::AwsDenied, message, denied(error.operation)),
        ErrorKind::Missing => Failure::lasting(
            FailureCode::AwsMissing,
            message,
            "what is named does not exist (any more): render the cluster again, or bring it back",
        ),
        ErrorKind::Invalid => Failure::lasting(
            FailureCode::AwsRefused,
            message,
            "the service will not have it as it is: if nobody changed anything by hand, report this",
        ),
    }
}

fn denied(operation: &str) -> String {
    match statement(operation) {
        Some(statement) => format!(
            "the statement {statement} of the node's role allows {operation}: see that its stack is up to date, that an instance \
             profile of your own has it too, and that no key policy, bucket policy or organisation's policy says no"
        ),
        None => format!("let the node's role call {operation}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read_in_each_protocol() {
        let s3 =
            "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";
        assert_eq!(refusal(s3), ("AccessDenied".to_owned(), "Access Denied".to_owned()));
        let ec2 = "<Response><Errors><Error><Code>VolumeInUse</Code><Message>vol-1 is attached</Message></Error></Errors></Response>";
        assert_eq!(refusal(ec2).0, "VolumeInUse");
        let kms = r#"{"__type":"com.amazonaws.kms#AccessDeniedException","Message":"no"}"#;
        assert_eq!(refusal(kms), ("AccessDeniedException".to_owned(), "no".to_owned()));
        assert_eq!(refusal("<html>bad gateway").0, "no error code");
    }

    #[test]
    fn what_is_denied_names_the_statement_that_allows_it() {
        let error = port_error("kms:Decrypt", "a data key", ErrorKind::Denied, "AccessDeniedException: no");
        let failure = failure(&error);
        assert_eq!((failure.code, failure.passing), (FailureCode::AwsDenied, false));
        assert!(failure.help.contains("OpenOwnCredentials"), "{}", failure.help);
        assert_eq!(code_of(&error), "AccessDeniedException");
    }
}
