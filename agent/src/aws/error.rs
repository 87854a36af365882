//! From a service's error to a failure that says what to do.

use slipway_ports::{ErrorKind, PortError};

use crate::failure::{AgentError, FailureCode};

/// Code and message of an error answer: XML from S3, EC2, Route 53 and Auto Scaling; JSON from KMS and ECR.
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
        // Route 53 answers a refused batch of changes with a document whose name is the code.
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

/// The service's error code: the messages of refusals begin with it.
pub(crate) fn code_of(error: &PortError) -> &str {
    error.message.split(':').next().unwrap_or_default()
}

/// The statement of the node's policy that allows `operation`, by its name in the rendered stacks.
fn statement(operation: &str) -> Option<&'static str> {
    Some(match operation {
        "s3:GetObject" => "ReadOwnBundles",
        "s3:PutObject" => "ReportOwnState",
        "kms:Decrypt" => "OpenOwnCredentials, SealOwnSnapshots, OpenFormerCredentials or OpenFormerSnapshots",
        "kms:GenerateDataKey" => "SealOwnSnapshots",
        "ecr:GetAuthorizationToken" => "LogInToRegistries",
        "ec2:DescribeVolumes" => "FindOwnVolume",
        "ec2:AttachVolume" => "AttachOwnVolume or AttachToOwnMachine",
        "route53:ChangeResourceRecordSets" => "SetOwnRecord or TakeRecordsBack",
        "route53:ListResourceRecordSets" => "FindRecords",
        "autoscaling:CompleteLifecycleAction" | "autoscaling:RecordLifecycleActionHeartbeat" => {
            "SettleOwnLifecycleHooks"
        }
        "autoscaling:SetInstanceHealth" => "ReplaceUnreadyWorkers",
        _ => return None,
    })
}

pub(super) fn failure(error: &PortError) -> AgentError {
    let message = error.to_string();
    match error.kind {
        ErrorKind::Transient => AgentError::transient(
            FailureCode::AwsUnreachable,
            message,
            "it is tried again; if it stays, check routes, security groups and VPC endpoints between this node and the service",
        ),
        ErrorKind::Denied => AgentError::permanent(FailureCode::AwsDenied, message, denied(error.operation)),
        ErrorKind::Missing => AgentError::permanent(
            FailureCode::AwsMissing,
            message,
            "the named resource does not exist: render the cluster again, or restore the resource",
        ),
        ErrorKind::Invalid => AgentError::permanent(
            FailureCode::AwsRefused,
            message,
            "the service rejects the request as invalid: if nobody changed the stacks by hand, report this",
        ),
    }
}

fn denied(operation: &str) -> String {
    match statement(operation) {
        Some(statement) => format!(
            "the statement {statement} of the node's role must allow {operation}: check that the node's stack is up to date, that an \
             instance profile of your own has the statement, and that no key policy, bucket policy or service control policy denies it"
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
        assert_eq!((failure.code, failure.transient), (FailureCode::AwsDenied, false));
        assert!(failure.help.contains("OpenOwnCredentials"), "{}", failure.help);
        assert_eq!(code_of(&error), "AccessDeniedException");
    }
}
