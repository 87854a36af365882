//! The failure of an invocation, as Lambda reports it.

use lambda_runtime::Diagnostic;
use slipway_flows::FlowError;

/// A failed invocation. Its type is Lambda's `errorType` and the `errorType` of the log line, which the alarms of `infra/template.yaml`
/// match:
///
/// | type | what to do |
/// |---|---|
/// | `Slipway.<service>.Transient`, `Slipway.Transient` | nothing: it is retried |
/// | `Slipway.<service>.Denied` | correct the permission or key policy that the message names, then send the dead letters again (docs/runbook.md) or upload
/// again |
/// | `Slipway.<service>.Missing` | create what the message names, then send the dead letters again or upload again |
/// | `Slipway.<service>.Invalid` | read the service's message |
/// | `Slipway.Corrupt` | restore an earlier version of the object |
/// | `Slipway.Refused` | do what the message says |
/// | `Slipway.Environment.Invalid` | set the variables that the message names |
/// | `Slipway.Event.Malformed` | correct the sender of the event |
/// | `Slipway.Panic` | report the defect |
/// | `Slipway.LeftUndone` | a line of its own: an event or a clean-up was refused for good, and is not tried again; read the service's message |
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct InvocationError {
    kind: String,
    message: String,
}

impl InvocationError {
    /// The environment is incomplete or wrong.
    #[must_use]
    pub fn environment(problem: impl ToString) -> Self {
        Self { kind: "Slipway.Environment.Invalid".to_owned(), message: problem.to_string() }
    }

    /// The event is not one that the function's rules should let through.
    ///
    /// It is retried twice like any failure, at little cost, and then becomes a dead letter with an alarm. If it were only logged, the
    /// event would be lost, and nobody would notice that rule and function disagree.
    #[must_use]
    pub fn malformed(problem: impl ToString) -> Self {
        Self { kind: "Slipway.Event.Malformed".to_owned(), message: problem.to_string() }
    }

    /// Lambda's `errorType`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Lambda's `errorMessage`.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Logs the failure of a tick that is left to the next tick, and says so as the invocation's result: Lambda would try it again twice, at the same
    /// time as the next ticks, and then keep it as a dead letter (developer guide, "How Lambda handles errors and retries with asynchronous
    /// invocation"). The line is of the same type as any failure's, for `RolloutNeedsPerson`; `RolloutTickFailed` counts it by its
    /// message (infra/template.yaml).
    #[must_use]
    pub fn left_to_the_next_tick(&self) -> String {
        tracing::error!(errorType = self.kind, errorMessage = self.message, "tick failed");
        "the next tick tries again".to_owned()
    }

    pub(crate) fn log(&self) {
        tracing::error!(errorType = self.kind, errorMessage = self.message, "failed");
    }
}

impl From<FlowError> for InvocationError {
    fn from(error: FlowError) -> Self {
        Self { kind: error.kind(), message: error.to_string() }
    }
}

impl From<InvocationError> for Diagnostic {
    fn from(failure: InvocationError) -> Self {
        Self { error_type: failure.kind, error_message: failure.message }
    }
}

#[cfg(test)]
mod tests {
    use slipway_ports::{ErrorKind, PortError};

    use super::*;

    #[test]
    fn an_alarm_can_tell_a_denial_from_bad_luck() {
        let failure_of = |kind| {
            let message = "AccessDeniedException: no (HTTP 400)".to_owned();
            let subject = "arn:key".to_owned();
            let error = PortError { kind, operation: "kms:Decrypt", subject, message };
            Diagnostic::from(InvocationError::from(FlowError::Port(error)))
        };
        assert_eq!(failure_of(ErrorKind::Denied).error_type, "Slipway.kms.Denied");
        assert_eq!(failure_of(ErrorKind::Transient).error_type, "Slipway.kms.Transient");
        assert_eq!(
            failure_of(ErrorKind::Denied).error_message,
            "kms:Decrypt of arn:key failed: AccessDeniedException: no (HTTP 400)"
        );
    }
}
