//! The API's answers as CloudFormation words them.
#![allow(clippy::unwrap_used)]

use slipway_flows::ports::Stacks;
use slipway_ports::ErrorKind;
use slipway_rollout::{ChangeSetRequest, ChangeSetStatus, StackStatus};

use super::CloudFormation;
use crate::testing::{Answer, Server};

const NO_STACK: Answer = (
    400,
    "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>Stack with id a-etcd does not exist</Message></Error></ErrorResponse>",
);
const NO_CHANGE_SET: Answer = (
    404,
    "<ErrorResponse><Error><Code>ChangeSetNotFound</Code><Message>ChangeSet [slipway-1] does not exist</Message></Error></ErrorResponse>",
);
const NOT_EXECUTABLE: Answer = (
    400,
    "<ErrorResponse><Error><Code>InvalidChangeSetStatus</Code><Message>cannot be executed in its current status</Message></Error></ErrorResponse>",
);
const TOKEN_EXISTS: Answer = (
    400,
    "<ErrorResponse><Error><Code>TokenAlreadyExistsException</Code><Message>Token already exists with different operation</Message></Error></ErrorResponse>",
);
const EMPTY: Answer = (200, "<R/>");

fn stacks(answers: &[Answer]) -> (Server, CloudFormation) {
    let server = Server::new(answers);
    let aws = server.aws();
    let stacks = aws.stacks(&aws.bucket("assets"), "arn:aws:iam::1:role/cfn");
    (server, stacks)
}

fn change_set(inside: &str) -> Answer {
    let xml = format!(
        "<DescribeChangeSetResponse><DescribeChangeSetResult>{inside}</DescribeChangeSetResult></DescribeChangeSetResponse>"
    );
    (200, Box::leak(xml.into_boxed_str()))
}

fn stack(inside: &str) -> Answer {
    let xml = format!(
        "<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackId>arn:s/1</StackId><StackName>a-etcd</StackName><CreationTime>2026-11-20T12:00:00Z</CreationTime>{inside}</member></Stacks></DescribeStacksResult></DescribeStacksResponse>"
    );
    (200, Box::leak(xml.into_boxed_str()))
}

fn request(create: bool) -> ChangeSetRequest {
    ChangeSetRequest {
        stack: "a-etcd".to_owned(),
        name: "slipway-1".to_owned(),
        create,
        template_key: "clusters/a/templates/a-etcd/0.json".to_owned(),
        tags: [("slipway:cluster".to_owned(), "a".to_owned())].into(),
    }
}

#[tokio::test]
async fn a_stack_is_described_or_not_there() {
    let (_server, stacks) = stacks(&[
        stack("<StackStatus>ROLLBACK_COMPLETE</StackStatus><StackStatusReason>why</StackStatusReason>"),
        NO_STACK,
        stack("<StackStatus>BRAND_NEW</StackStatus>"),
    ]);
    let view = stacks.stack("a-etcd").await.unwrap().unwrap();
    assert_eq!((view.id.as_str(), view.status), ("arn:s/1", StackStatus::RollbackComplete));
    assert_eq!(view.reason.as_deref(), Some("why"));
    assert_eq!(stacks.stack("a-etcd").await.unwrap(), None);
    let error = stacks.stack("a-etcd").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("BRAND_NEW"), "{error}");
}

#[tokio::test]
async fn a_change_set_says_what_it_replaces_on_all_its_pages() {
    fn change(inside: &str) -> String {
        format!("<member><Type>Resource</Type><ResourceChange>{inside}<Scope/></ResourceChange></member>")
    }
    let detail = |recreation: &str| {
        format!(
            "<Details><member><Target><Attribute>Properties</Attribute><RequiresRecreation>{recreation}</RequiresRecreation></Target></member></Details>"
        )
    };
    let modify = |id: &str, replacement: &str, detail: &str| {
        change(&format!(
            "<Action>Modify</Action><LogicalResourceId>{id}</LogicalResourceId><Replacement>{replacement}</Replacement>{detail}"
        ))
    };
    let first = format!(
        "<Status>CREATE_COMPLETE</Status><ExecutionStatus>AVAILABLE</ExecutionStatus><NextToken>t</NextToken><Changes>{}{}{}{}</Changes>",
        change("<Action>Remove</Action><LogicalResourceId>Removed</LogicalResourceId>"),
        // CloudFormation does not know yet what becomes of it.
        change("<Action>Dynamic</Action><LogicalResourceId>Maybe</LogicalResourceId>"),
        modify("Replaced", "True", ""),
        modify("Kept", "False", ""),
    );
    let second = format!(
        "<Status>CREATE_COMPLETE</Status><ExecutionStatus>AVAILABLE</ExecutionStatus><Changes>{}{}{}</Changes>",
        change("<Action>Add</Action><LogicalResourceId>Added</LogicalResourceId>"),
        modify("Group", "Conditional", &detail("Conditionally")),
        modify("OfAReplaced", "Conditional", &detail("Always")),
    );
    let (server, stacks) = stacks(&[change_set(&first), change_set(&second)]);
    let view = stacks.change_set("a-etcd", "slipway-1").await.unwrap().unwrap();
    assert_eq!(view.status, ChangeSetStatus::Ready);
    assert_eq!(view.replaces, ["Removed", "Maybe", "Replaced", "OfAReplaced"]);
    assert!(server.requests()[1].body.contains("NextToken=t"), "{}", server.requests()[1].body);
}

/// With the fields that the API reference of OperationEvent has.
#[tokio::test]
async fn a_change_set_that_validation_refused_says_what_is_wrong_with_which_resource() {
    const WHY: &str = "The following hook(s)/validation failed: [AWS::EarlyValidation::PropertyValidation]. \
                       To troubleshoot Early Validation errors, use the DescribeEvents API for detailed failure information.";
    let failed = change_set(&format!(
        "<ChangeSetId>arn:aws:cloudformation:eu-west-1:1:changeSet/slipway-1/u</ChangeSetId><Status>FAILED</Status>\
         <ExecutionStatus>UNAVAILABLE</ExecutionStatus><StatusReason>{WHY}</StatusReason>"
    ));
    let event = |inside: &str| format!("<member><EventId>e</EventId>{inside}</member>");
    let validation = |id: &str, mode: &str, reason: &str, path: &str| {
        event(&format!(
            "<EventType>VALIDATION_ERROR</EventType><LogicalResourceId>{id}</LogicalResourceId><ValidationFailureMode>{mode}</ValidationFailureMode>\
             <ValidationStatus>FAILED</ValidationStatus><ValidationStatusReason>{reason}</ValidationStatusReason><ValidationPath>{path}</ValidationPath>"
        ))
    };
    let events = |inside: String| -> Answer {
        let xml = format!(
            "<DescribeEventsResponse><DescribeEventsResult><OperationEvents>{inside}</OperationEvents></DescribeEventsResult></DescribeEventsResponse>"
        );
        (200, Box::leak(xml.into_boxed_str()))
    };
    let path = "/Resources/Volume0/Properties/Iops";
    let mended = [
        validation("Volume0", "FAIL", "expected type Integer", path),
        validation("Volume0", "FAIL", "expected type Integer", path),
        validation("Bucket", "WARN", "the bucket is not empty", "/Resources/Bucket"),
        event(
            "<EventType>HOOK_INVOCATION_ERROR</EventType><LogicalResourceId>Role</LogicalResourceId><HookType>Our::Guard::Hook</HookType>\
             <HookFailureMode>FAIL</HookFailureMode><HookStatusReason>no boundary</HookStatusReason>",
        ),
    ];
    let many = (0..12).map(|at| validation(&format!("V{at}"), "FAIL", "no", "/R")).collect::<String>();
    const DENIED: Answer =
        (403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>");
    let (server, stacks) = stacks(&[
        failed,
        events(mended.concat()),
        failed,
        events(many),
        failed,
        events(String::new()),
        failed,
        DENIED,
    ]);
    let reason = async || stacks.change_set("a-etcd", "slipway-1").await.unwrap().unwrap().reason.unwrap();
    let volume = format!("Volume0: expected type Integer ({path})");
    assert_eq!(reason().await, format!("{WHY} {volume}; Role: no boundary"));
    let told = reason().await;
    assert!(told.contains("V9: no (/R); and 2 more") && !told.contains("V10"), "{told}");
    assert_eq!(reason().await, WHY, "without events");
    assert_eq!(reason().await, WHY, "an installation that was not updated");
    let asked = &server.requests()[1].body;
    for part in
        ["Action=DescribeEvents", "&ChangeSetName=arn%3Aaws%3Acloudformation", "&Filters.FailedEvents=true"]
    {
        assert!(asked.contains(part), "{asked}");
    }
}

#[tokio::test]
async fn a_change_set_without_changes_is_no_failure() {
    let failed = |reason: &str| {
        change_set(&format!(
            "<Status>FAILED</Status><ExecutionStatus>UNAVAILABLE</ExecutionStatus><StatusReason>{reason}</StatusReason>"
        ))
    };
    let pair = |status: &str, execution: &str| {
        change_set(&format!("<Status>{status}</Status><ExecutionStatus>{execution}</ExecutionStatus>"))
    };
    let (_server, stacks) = stacks(&[
        failed(
            "The submitted information didn't contain changes. Submit different information to create a change set.",
        ),
        failed("No updates are to be performed."),
        failed("Template error: unresolved resource dependencies [X]"),
        pair("CREATE_IN_PROGRESS", "UNAVAILABLE"),
        pair("CREATE_COMPLETE", "EXECUTE_IN_PROGRESS"),
        pair("CREATE_COMPLETE", "EXECUTE_FAILED"),
        pair("CREATE_COMPLETE", "OBSOLETE"),
        NO_CHANGE_SET,
        NO_STACK,
    ]);
    for expected in [
        Some(ChangeSetStatus::NoChanges),
        Some(ChangeSetStatus::NoChanges),
        Some(ChangeSetStatus::Failed),
        Some(ChangeSetStatus::Pending),
        Some(ChangeSetStatus::Executing),
        Some(ChangeSetStatus::ExecuteFailed),
        Some(ChangeSetStatus::Obsolete),
        None,
        None,
    ] {
        let view = stacks.change_set("a-etcd", "slipway-1").await.unwrap();
        assert_eq!(view.map(|view| view.status), expected);
    }
}

#[tokio::test]
async fn a_change_set_is_asked_for_by_url_and_role_and_once() {
    let exists = "<ErrorResponse><Error><Code>AlreadyExistsException</Code><Message>exists</Message></Error></ErrorResponse>";
    let created = "<CreateChangeSetResponse><CreateChangeSetResult><Id>i</Id></CreateChangeSetResult></CreateChangeSetResponse>";
    let (server, stacks) = stacks(&[
        (200, created),
        (400, exists),
        (
            400,
            "<ErrorResponse><Error><Code>ValidationError</Code><Message>Template format error</Message></Error></ErrorResponse>",
        ),
        (
            400,
            "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>",
        ),
    ]);
    stacks.create_change_set(&request(true)).await.unwrap();
    stacks.create_change_set(&request(false)).await.unwrap();
    assert_eq!(stacks.create_change_set(&request(true)).await.unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(stacks.create_change_set(&request(true)).await.unwrap_err().kind, ErrorKind::Transient);
    let requests = server.requests();
    for part in [
        "ChangeSetType=CREATE",
        "OnStackFailure=ROLLBACK",
        "Capabilities.member.1=CAPABILITY_NAMED_IAM",
        "RoleARN=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fcfn",
        "Tags.member.1.Key=slipway%3Acluster",
        "TemplateURL=https%3A%2F%2Fassets.s3.eu-west-1.amazonaws.com%2Fclusters%2Fa%2Ftemplates%2Fa-etcd%2F0.json",
    ] {
        assert!(requests[0].body.contains(part), "{part} in {}", requests[0].body);
    }
    assert!(requests[1].body.contains("ChangeSetType=UPDATE"), "{}", requests[1].body);
    assert!(!requests[1].body.contains("OnStackFailure"), "{}", requests[1].body);
}

#[tokio::test]
async fn p8_executing_twice_is_executing_once() {
    let view = |execution: &str| {
        change_set(&format!("<Status>CREATE_COMPLETE</Status><ExecutionStatus>{execution}</ExecutionStatus>"))
    };
    let remembers = stack(
        "<StackStatus>UPDATE_COMPLETE</StackStatus><ChangeSetId>arn:aws:cloudformation:eu-west-1:1:changeSet/slipway-1/u</ChangeSetId>",
    );
    let other = stack(
        "<StackStatus>UPDATE_COMPLETE</StackStatus><ChangeSetId>arn:aws:cloudformation:eu-west-1:1:changeSet/slipway-11/u</ChangeSetId>",
    );
    // Somebody deleted the change set of a creation before it was executed.
    let never_began = stack(
        "<StackStatus>REVIEW_IN_PROGRESS</StackStatus><ChangeSetId>arn:aws:cloudformation:eu-west-1:1:changeSet/slipway-1/u</ChangeSetId>",
    );
    let (_server, stacks) = stacks(&[
        EMPTY,
        NOT_EXECUTABLE,
        view("EXECUTE_IN_PROGRESS"),
        NO_CHANGE_SET,
        NO_CHANGE_SET,
        remembers,
        NOT_EXECUTABLE,
        view("UNAVAILABLE"),
        NOT_EXECUTABLE,
        view("OBSOLETE"),
        NO_CHANGE_SET,
        NO_CHANGE_SET,
        other,
        NO_CHANGE_SET,
        NO_CHANGE_SET,
        never_began,
    ]);
    for expected in [
        None,
        None,
        None,
        Some(ErrorKind::Transient),
        Some(ErrorKind::Missing),
        Some(ErrorKind::Missing),
        Some(ErrorKind::Missing),
    ] {
        let result = stacks.execute_change_set("a-etcd", "slipway-1", "token").await;
        assert_eq!(result.err().map(|error| error.kind), expected);
    }
}

#[tokio::test]
async fn p8_a_token_that_exists_is_an_execution_or_a_deletion_only_if_the_stack_shows_it() {
    let view = |execution: &str| {
        change_set(&format!("<Status>CREATE_COMPLETE</Status><ExecutionStatus>{execution}</ExecutionStatus>"))
    };
    let stands = |status: &str| stack(&format!("<StackStatus>{status}</StackStatus>"));
    let (_server, stacks) = stacks(&[
        TOKEN_EXISTS,
        view("EXECUTE_IN_PROGRESS"),
        TOKEN_EXISTS,
        view("AVAILABLE"),
        NOT_EXECUTABLE,
        view("OBSOLETE"),
        stands("ROLLBACK_COMPLETE"),
        TOKEN_EXISTS,
        stands("DELETE_IN_PROGRESS"),
        stands("ROLLBACK_COMPLETE"),
        TOKEN_EXISTS,
        NO_STACK,
        stands("ROLLBACK_COMPLETE"),
        TOKEN_EXISTS,
        stands("ROLLBACK_COMPLETE"),
    ]);
    for expected in [None, Some(ErrorKind::Transient), Some(ErrorKind::Missing)] {
        let result = stacks.execute_change_set("a-etcd", "slipway-1", "token").await;
        assert_eq!(result.err().map(|error| error.kind), expected);
    }
    for expected in [None, None, Some(ErrorKind::Transient)] {
        let result = stacks.delete_stack("a-etcd", false, "token").await;
        assert_eq!(result.err().map(|error| error.kind), expected);
    }
}

#[tokio::test]
async fn p8_a_stack_that_somebody_changes_meanwhile_is_waited_for() {
    const BUSY: Answer = (
        400,
        "<ErrorResponse><Error><Code>ValidationError</Code><Message>Stack:arn:s/1 is in UPDATE_IN_PROGRESS state and can not be updated.</Message></Error></ErrorResponse>",
    );
    let stands = |status: &str| stack(&format!("<StackStatus>{status}</StackStatus>"));
    let (_server, stacks) = stacks(&[
        BUSY,
        stands("UPDATE_IN_PROGRESS"),
        BUSY,
        stands("UPDATE_IN_PROGRESS"),
        stands("UPDATE_COMPLETE"),
        BUSY,
        stands("UPDATE_IN_PROGRESS"),
        BUSY,
        stands("UPDATE_ROLLBACK_FAILED"),
    ]);
    let created = stacks.create_change_set(&request(false)).await;
    assert_eq!(created.unwrap_err().kind, ErrorKind::Transient);
    let executed = stacks.execute_change_set("a-etcd", "slipway-1", "token").await;
    assert_eq!(executed.unwrap_err().kind, ErrorKind::Transient);
    let deleted = stacks.delete_stack("a-etcd", true, "token").await;
    assert_eq!(deleted.unwrap_err().kind, ErrorKind::Transient);
    let created = stacks.create_change_set(&request(false)).await;
    assert_eq!(created.unwrap_err().kind, ErrorKind::Invalid, "nobody is at work on it");
}

#[tokio::test]
async fn a_stack_that_serves_is_never_deleted() {
    let (server, stacks) = stacks(&[
        stack("<StackStatus>CREATE_COMPLETE</StackStatus>"),
        stack("<StackStatus>ROLLBACK_COMPLETE</StackStatus>"),
        EMPTY,
        NO_STACK,
    ]);
    assert_eq!(stacks.delete_stack("a-etcd", false, "t").await.unwrap_err().kind, ErrorKind::Invalid);
    stacks.delete_stack("a-etcd", false, "t").await.unwrap();
    stacks.delete_stack("a-etcd", false, "t").await.unwrap();
    let requests = server.requests();
    let deletions: Vec<_> = requests.iter().filter(|call| call.body.contains("Action=DeleteStack")).collect();
    let [deletion] = deletions[..] else { panic!("{deletions:?}") };
    assert!(
        deletion.body.contains("&RoleARN=arn%3A"),
        "by the present role, not by the stack's last one: {deletion:?}"
    );
}

#[tokio::test]
async fn p3_what_is_deleted_as_the_rest_of_a_creation_never_came_to_be() {
    for status in [
        "CREATE_COMPLETE",
        "ROLLBACK_IN_PROGRESS",
        "UPDATE_IN_PROGRESS",
        "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
        "UPDATE_COMPLETE",
        "UPDATE_FAILED",
        "UPDATE_ROLLBACK_IN_PROGRESS",
        "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS",
        "UPDATE_ROLLBACK_COMPLETE",
        "UPDATE_ROLLBACK_FAILED",
        "DELETE_FAILED",
        "IMPORT_IN_PROGRESS",
        "IMPORT_COMPLETE",
        "IMPORT_ROLLBACK_IN_PROGRESS",
        "IMPORT_ROLLBACK_COMPLETE",
        "IMPORT_ROLLBACK_FAILED",
    ] {
        let (server, stacks) = stacks(&[stack(&format!("<StackStatus>{status}</StackStatus>")), EMPTY]);
        let deleted = stacks.delete_stack("a-etcd", false, "t").await;
        assert_eq!(deleted.map_err(|error| error.kind), Err(ErrorKind::Invalid), "{status}");
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn only_the_events_of_the_newest_operation_are_read() {
    let event = |id: &str, status: &str, reason: &str| {
        let physical = if id == "a-etcd" { "arn:s/1" } else { "p" };
        format!(
            "<member><StackId>arn:s/1</StackId><StackName>a-etcd</StackName><EventId>{id}{status}</EventId><Timestamp>2026-11-20T12:00:00Z</Timestamp><LogicalResourceId>{id}</LogicalResourceId><PhysicalResourceId>{physical}</PhysicalResourceId><ResourceType>AWS::X</ResourceType><ResourceStatus>{status}</ResourceStatus><ResourceStatusReason>{reason}</ResourceStatusReason></member>"
        )
    };
    let page = |inside: &str, token: &str| {
        let xml = format!(
            "<DescribeStackEventsResponse><DescribeStackEventsResult>{token}<StackEvents>{inside}</StackEvents></DescribeStackEventsResult></DescribeStackEventsResponse>"
        );
        (200, &*Box::leak(xml.into_boxed_str()))
    };
    let (server, stacks) = stacks(&[
        page(&event("a-etcd", "UPDATE_ROLLBACK_COMPLETE", ""), "<NextToken>n</NextToken>"),
        page(
            &[
                event("Second", "UPDATE_FAILED", "boom again"),
                event("First", "UPDATE_FAILED", "boom"),
                event("a-etcd", "UPDATE_IN_PROGRESS", "User Initiated"),
                event("Old", "CREATE_FAILED", "years ago"),
            ]
            .concat(),
            "<NextToken>never-asked-for</NextToken>",
        ),
    ]);
    let failures = stacks.failures("a-etcd").await.unwrap();
    let ids: Vec<&str> = failures.iter().map(|failure| failure.logical_id.as_str()).collect();
    assert_eq!(ids, ["First", "Second"]);
    assert_eq!(server.requests().len(), 2);
}
