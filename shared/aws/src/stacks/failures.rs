//! Why an operation on a stack failed, from its events.

use aws_sdk_cloudformation::types::{ResourceStatus, StackEvent};
use slipway_rollout::ResourceFailure;

/// Whether the event is about the stack itself, and not one of its resources (a nested stack is one of those).
fn is_of_stack(event: &StackEvent) -> bool {
    event.physical_resource_id().is_some() && event.physical_resource_id() == event.stack_id()
}

fn status(event: &StackEvent) -> &str {
    event.resource_status().map_or("", ResourceStatus::as_str)
}

/// Whether the event is the first of an operation. Rollbacks and clean-ups belong to the operation that they end.
pub(super) fn begins_operation(event: &StackEvent) -> bool {
    is_of_stack(event)
        && matches!(
            status(event),
            "CREATE_IN_PROGRESS" | "UPDATE_IN_PROGRESS" | "DELETE_IN_PROGRESS" | "IMPORT_IN_PROGRESS"
        )
}

/// The failures in the events of one operation, which come newest first; the oldest failure comes first.
///
/// Resources that were only cancelled because another one failed are left out. If no resource failed, the stack's own
/// events say why (an export that does not exist, a person who cancelled).
pub(super) fn from_events(events: &[StackEvent]) -> Vec<ResourceFailure> {
    let oldest_first = || events.iter().rev();
    let failure = |event: &StackEvent| ResourceFailure {
        logical_id: event.logical_resource_id().unwrap_or_default().to_owned(),
        resource_type: event.resource_type().unwrap_or_default().to_owned(),
        status: status(event).to_owned(),
        reason: event.resource_status_reason().unwrap_or("CloudFormation gave no reason").to_owned(),
    };
    let of_resources: Vec<ResourceFailure> = oldest_first()
        .filter(|event| !is_of_stack(event) && status(event).ends_with("_FAILED") && !is_cancelled(event))
        .map(failure)
        .collect();
    if !of_resources.is_empty() {
        return of_resources;
    }
    oldest_first()
        .filter(|event| is_of_stack(event) && event.resource_status_reason().is_some())
        .filter(|event| {
            let status = status(event);
            status.ends_with("_FAILED") || status.ends_with("ROLLBACK_IN_PROGRESS")
        })
        .map(failure)
        .collect()
}

/// `Resource creation cancelled` and its like for updates and deletions.
fn is_cancelled(event: &StackEvent) -> bool {
    event.resource_status_reason().is_some_and(|reason| {
        reason.starts_with("Resource ")
            && (reason.trim_end_matches('.').ends_with("cancelled")
                || reason.trim_end_matches('.').ends_with("canceled"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = "arn:aws:cloudformation:eu-west-1:123456789012:stack/a-etcd/1";

    fn event(id: &str, status: &str, reason: Option<&str>) -> StackEvent {
        StackEvent::builder()
            .stack_id(STACK)
            .event_id(format!("{id}-{status}"))
            .stack_name("a-etcd")
            .logical_resource_id(id)
            .physical_resource_id(if id == "a-etcd" { STACK } else { "physical" })
            .resource_type(if id == "a-etcd" { "AWS::CloudFormation::Stack" } else { "AWS::EC2::Volume" })
            .resource_status(status.into())
            .set_resource_status_reason(reason.map(str::to_owned))
            .build()
    }

    fn ids(events: &[StackEvent]) -> Vec<String> {
        from_events(events).into_iter().map(|failure| failure.logical_id).collect()
    }

    #[test]
    fn the_first_to_fail_comes_first_and_the_cancelled_not_at_all() {
        let newest_first = [
            event("a-etcd", "ROLLBACK_COMPLETE", None),
            event("Volume0", "DELETE_FAILED", Some("in use")),
            event(
                "a-etcd",
                "ROLLBACK_IN_PROGRESS",
                Some("The following resource(s) failed to create: [V1, V2]."),
            ),
            event("V2", "CREATE_FAILED", Some("Resource creation cancelled")),
            event("V1", "CREATE_FAILED", Some("You have exceeded your maximum gp3 storage limit")),
            event("a-etcd", "CREATE_IN_PROGRESS", Some("User Initiated")),
        ];
        assert_eq!(ids(&newest_first), ["V1", "Volume0"]);
    }

    #[test]
    fn where_no_resource_failed_the_stack_says_why() {
        let newest_first = [
            event("a-etcd", "ROLLBACK_IN_PROGRESS", Some("No export named a-network-VpcId found.")),
            event("a-etcd", "CREATE_IN_PROGRESS", Some("User Initiated")),
        ];
        let failures = from_events(&newest_first);
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].reason, "No export named a-network-VpcId found.");
    }

    #[test]
    fn a_rollback_does_not_begin_an_operation() {
        assert!(begins_operation(&event("a-etcd", "UPDATE_IN_PROGRESS", None)));
        assert!(!begins_operation(&event("a-etcd", "UPDATE_ROLLBACK_IN_PROGRESS", None)));
        assert!(!begins_operation(&event("V1", "UPDATE_IN_PROGRESS", None)));
    }
}
