//! Why CloudFormation refused a change set, where `DescribeChangeSet` does not say it.
//!
//! "Pre-deployment validation runs automatically on Create Stack, Update Stack, and Create Change Set operations" (user guide, "Validate stack
//! deployments"). A change set that it refuses has the reason "The following hook(s)/validation failed: […]. To troubleshoot Early Validation
//! errors, use the DescribeEvents API for detailed failure information." (aws-cdk-cli 1000), and what is wrong with which resource is in the
//! events of the change set alone. The rollout deletes the change set, or the stack that it was to create, and the events with it.

use aws_sdk_cloudformation::types::{EventFilter, HookFailureMode, OperationEvent};

use super::CloudFormation;

/// Reasons that are named. A change set that fails for one property often fails for it in each resource of a kind.
const MOST_REASONS: usize = 10;

impl CloudFormation {
    /// `reason`, and after it what the failed events of a change set say. Only the ARN works: with the name, and the stack's name beside it, the call
    /// is refused (cloudformation-cli 1116). An error leaves the reason as it is.
    ///
    /// The events are asked for whatever the reason says, as the CDK does (aws-cdk-cli 1461). `cloudformation:DescribeEvents`.
    pub(super) async fn reason_with_events(
        &self,
        change_set: Option<&str>,
        reason: Option<String>,
    ) -> Option<String> {
        let Some(arn) = change_set else { return reason };
        let failed = EventFilter::builder().failed_events(true).build();
        // One page: it names more than anybody mends at a time.
        let Ok(page) = self.client.describe_events().change_set_name(arn).filters(failed).send().await else {
            return reason;
        };
        let mut reasons: Vec<String> = Vec::new();
        for told in page.operation_events().iter().filter_map(told) {
            if !reasons.contains(&told) {
                reasons.push(told);
            }
        }
        let more = reasons.len().saturating_sub(MOST_REASONS);
        reasons.truncate(MOST_REASONS);
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        let all = reason.into_iter().chain((!reasons.is_empty()).then(|| reasons.join("; ")));
        Some(all.collect::<Vec<_>>().join(" ")).filter(|all| !all.is_empty())
    }
}

/// What an event says of a resource; `None` if it says nothing, or only warns (API reference, OperationEvent).
fn told(event: &OperationEvent) -> Option<String> {
    let warns = |mode: Option<&HookFailureMode>| mode == Some(&HookFailureMode::Warn);
    let of_validation = event.validation_status_reason().filter(|_| !warns(event.validation_failure_mode()));
    let of_hook = event.hook_status_reason().filter(|_| !warns(event.hook_failure_mode()));
    let reason = of_validation.or(of_hook).or_else(|| event.resource_status_reason())?;
    let resource = event.logical_resource_id().map(|id| format!("{id}: ")).unwrap_or_default();
    let path = event.validation_path().map(|path| format!(" ({path})")).unwrap_or_default();
    Some(format!("{resource}{reason}{path}"))
}
