//! The API's answers as Auto Scaling words them.
#![allow(clippy::unwrap_used)]

use slipway_flows::ports::Groups;
use slipway_ports::ErrorKind;
use slipway_rollout::fleet::{Lifecycle, TargetHealth, TargetState, TemplateVersion};

use super::AutoScaling;
use crate::testing::{Answer, Server};

const EMPTY: Answer = (200, "<R/>");
const TERMINATED: Answer = (
    200,
    "<TerminateInstanceInAutoScalingGroupResponse><TerminateInstanceInAutoScalingGroupResult><Activity><ActivityId>a</ActivityId><AutoScalingGroupName>a-pool-x</AutoScalingGroupName><Cause>c</Cause><StartTime>2026-11-20T12:00:00Z</StartTime><StatusCode>InProgress</StatusCode></Activity></TerminateInstanceInAutoScalingGroupResult></TerminateInstanceInAutoScalingGroupResponse>",
);

fn groups(answers: &[Answer]) -> (Server, AutoScaling) {
    let server = Server::new(answers);
    let groups = server.aws().groups();
    (server, groups)
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn refusal(code: &str, words: &str) -> Answer {
    (
        400,
        leak(format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{words}</Message></Error></ErrorResponse>"
        )),
    )
}

fn machine(id: &str, state: &str) -> String {
    format!(
        "<member><InstanceId>{id}</InstanceId><AvailabilityZone>eu-west-1a</AvailabilityZone><LifecycleState>{state}</LifecycleState><HealthStatus>Healthy</HealthStatus><LaunchTemplate><LaunchTemplateId>lt-1</LaunchTemplateId><LaunchTemplateName>n</LaunchTemplateName><Version>3</Version></LaunchTemplate><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member>"
    )
}

/// A group of name `a-pool-x`.
fn group(inside: &str) -> Answer {
    let xml = format!(
        "<DescribeAutoScalingGroupsResponse><DescribeAutoScalingGroupsResult><AutoScalingGroups><member><AutoScalingGroupName>a-pool-x</AutoScalingGroupName><AutoScalingGroupARN>arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:1:autoScalingGroupName/a-pool-x</AutoScalingGroupARN><MinSize>1</MinSize><MaxSize>9</MaxSize><DesiredCapacity>3</DesiredCapacity>{inside}</member></AutoScalingGroups></DescribeAutoScalingGroupsResult></DescribeAutoScalingGroupsResponse>"
    );
    (200, leak(xml))
}

const NO_GROUP: Answer = (
    200,
    "<DescribeAutoScalingGroupsResponse><DescribeAutoScalingGroupsResult><AutoScalingGroups/></DescribeAutoScalingGroupsResult></DescribeAutoScalingGroupsResponse>",
);

#[tokio::test]
async fn a_group_is_told_with_its_machines_and_each_with_what_it_was_launched_from() {
    let template =
        "<LaunchTemplate><LaunchTemplateId>lt-1</LaunchTemplateId><Version>4</Version></LaunchTemplate>";
    let mixed = "<MixedInstancesPolicy><LaunchTemplate><LaunchTemplateSpecification><LaunchTemplateId>lt-2</LaunchTemplateId><Version>7</Version></LaunchTemplateSpecification></LaunchTemplate></MixedInstancesPolicy>";
    let states = [
        ("Pending:Wait", Lifecycle::Pending),
        ("InService", Lifecycle::InService),
        ("Terminating:Wait", Lifecycle::TerminatingWait),
        ("Terminating:Proceed", Lifecycle::Terminating),
        ("Terminating:Retained", Lifecycle::Retained),
        ("Standby", Lifecycle::Elsewhere),
        ("Warmed:Running", Lifecycle::Elsewhere),
        ("BrandNew", Lifecycle::Elsewhere),
    ];
    let machines: String =
        states.iter().enumerate().map(|(n, (state, _))| machine(&format!("i-{n}"), state)).collect();
    let untold = machine("i-untold", "InService").replace("<HealthStatus>Healthy</HealthStatus>", "");
    let tags = "<Tags><member><Key>slipway:cluster</Key><Value>a</Value></member></Tags>";
    // An ARN that was attached as one may be told as the other, too.
    let attached = "<TargetGroupARNs><member>arn:1</member></TargetGroupARNs><TrafficSources><member><Identifier>arn:1</Identifier><Type>elbv2</Type></member><member><Identifier>arn:2</Identifier><Type>elbv2</Type></member><member><Identifier>classic</Identifier><Type>elb</Type></member></TrafficSources>";
    let (server, groups) = groups(&[
        group(&format!("{template}<Instances>{machines}{untold}</Instances>{tags}{attached}")),
        group(mixed),
        NO_GROUP,
    ]);
    let seen = groups.group("a-pool-x").await.unwrap().unwrap();
    assert_eq!((seen.desired, seen.min, seen.max), (3, 1, 9));
    assert_eq!(seen.template, Some(TemplateVersion { id: "lt-1".to_owned(), version: "4".to_owned() }));
    assert_eq!(seen.tags["slipway:cluster"], "a");
    assert_eq!(seen.target_groups.iter().collect::<Vec<_>>(), ["arn:1", "arn:2"]);
    for (n, (state, lifecycle)) in states.iter().enumerate() {
        let machine = &seen.machines[&format!("i-{n}")];
        assert_eq!(machine.lifecycle, *lifecycle, "{state}");
        assert_eq!((machine.zone.as_str(), machine.healthy), ("eu-west-1a", true));
        assert_eq!(machine.target, TargetHealth::NotAsked);
        assert_eq!(machine.template.as_ref().unwrap().version, "3");
    }
    assert!(!seen.machines["i-untold"].healthy, "Auto Scaling does not say that it is");
    let seen = groups.group("a-pool-x").await.unwrap().unwrap();
    assert_eq!(seen.template, Some(TemplateVersion { id: "lt-2".to_owned(), version: "7".to_owned() }));
    assert_eq!(groups.group("a-pool-x").await.unwrap(), None);
    assert!(server.requests()[0].body.contains("AutoScalingGroupNames.member.1=a-pool-x"));
}

/// An answer as botocore's model of `DescribeTargetHealth` has it: states, and the reasons that each may have.
#[tokio::test]
async fn p5_a_target_is_healthy_when_its_load_balancer_says_so_and_in_no_other_state() {
    let target = |id: &str, port: u32, health: &str| {
        format!(
            "<member><Target><Id>{id}</Id><Port>{port}</Port></Target><HealthCheckPort>6443</HealthCheckPort><TargetHealth>{health}</TargetHealth><AdministrativeOverride><State>no_override</State></AdministrativeOverride></member>"
        )
    };
    let not = |state: &str| TargetState::NotHealthy(state.to_owned());
    let cases = [
        ("<State>healthy</State>", TargetState::Healthy),
        (
            "<State>initial</State><Reason>Elb.RegistrationInProgress</Reason>",
            not("initial (Elb.RegistrationInProgress)"),
        ),
        (
            "<State>initial</State><Reason>Elb.InitialHealthChecking</Reason><Description>d</Description>",
            not("initial (Elb.InitialHealthChecking)"),
        ),
        (
            "<State>unhealthy</State><Reason>Target.FailedHealthChecks</Reason>",
            not("unhealthy (Target.FailedHealthChecks)"),
        ),
        (
            "<State>unhealthy.draining</State><Reason>Target.FailedHealthChecks</Reason>",
            not("unhealthy.draining (Target.FailedHealthChecks)"),
        ),
        ("<State>unused</State><Reason>Target.NotInUse</Reason>", TargetState::NotInUse),
        ("<State>unused</State><Reason>Target.InvalidState</Reason>", not("unused (Target.InvalidState)")),
        (
            "<State>draining</State><Reason>Target.DeregistrationInProgress</Reason>",
            not("draining (Target.DeregistrationInProgress)"),
        ),
        (
            "<State>unavailable</State><Reason>Elb.InternalError</Reason>",
            not("unavailable (Elb.InternalError)"),
        ),
        ("<State>brand-new</State>", not("brand-new")),
    ];
    let mut members: String =
        cases.iter().enumerate().map(|(n, (health, _))| target(&format!("i-{n}"), 6443, health)).collect();
    // By another port it is ill: then it is.
    members.push_str(&target("i-two", 6443, cases[0].0));
    members.push_str(&target("i-two", 443, cases[3].0));
    members.push_str(&target("i-two", 444, cases[0].0));
    let answer = |members: &str| -> Answer {
        let text = format!(
            "<DescribeTargetHealthResponse><DescribeTargetHealthResult><TargetHealthDescriptions>{members}</TargetHealthDescriptions></DescribeTargetHealthResult></DescribeTargetHealthResponse>"
        );
        (200, leak(text))
    };
    let (server, groups) = groups(&[
        answer(&members),
        answer(""),
        refusal("TargetGroupNotFound", "One or more target groups not found"),
        refusal("Throttling", "Rate exceeded"),
        answer("<member><Target><Id>i-1</Id></Target></member>"),
    ]);
    let seen = groups.targets("arn:api").await.unwrap().unwrap();
    for (n, (health, state)) in cases.iter().enumerate() {
        assert_eq!(seen[&format!("i-{n}")], *state, "{health}");
    }
    assert_eq!(seen["i-two"], not("unhealthy (Target.FailedHealthChecks)"));
    assert!(groups.targets("arn:api").await.unwrap().unwrap().is_empty());
    assert_eq!(groups.targets("arn:api").await.unwrap(), None);
    for kind in [ErrorKind::Transient, ErrorKind::Invalid] {
        assert_eq!(groups.targets("arn:api").await.unwrap_err().kind, kind);
    }
    let body = &server.requests()[0].body;
    assert!(
        body.contains("Action=DescribeTargetHealth") && body.contains("TargetGroupArn=arn%3Aapi"),
        "{body}"
    );
}

#[tokio::test]
async fn p8_terminating_twice_takes_one_machine_and_shrinks_once() {
    let machines = format!(
        "<Instances>{}{}</Instances>",
        machine("i-1", "InService"),
        machine("i-2", "Terminating:Wait")
    );
    let seen = group(&machines);
    let leaving = group(&format!("<Instances>{}</Instances>", machine("i-1", "Terminating:Wait")));
    let gone =
        refusal("ValidationError", "Instance Id not found - No managed instance found for instance ID: i-1");
    let floor = refusal("ValidationError", "Currently, desiredSize equals minSize (1).");
    let (server, groups) = groups(&[
        seen,
        TERMINATED,
        seen,
        seen,
        NO_GROUP,
        // Another had the same to do: it goes between the look and the call.
        seen,
        gone,
        NO_GROUP,
        seen,
        floor,
        leaving,
        // Nobody had, and it stays: a person made the group as small as it may be.
        seen,
        floor,
        seen,
        seen,
        refusal("ScalingActivityInProgress", "busy"),
    ]);
    groups.terminate("a-pool-x", "i-1", Some(1)).await.unwrap();
    groups.terminate("a-pool-x", "i-2", Some(1)).await.unwrap();
    groups.terminate("a-pool-x", "i-3", Some(1)).await.unwrap();
    groups.terminate("a-pool-x", "i-1", Some(1)).await.unwrap();
    groups.terminate("a-pool-x", "i-1", None).await.unwrap();
    groups.terminate("a-pool-x", "i-1", Some(1)).await.unwrap();
    let kind = async || groups.terminate("a-pool-x", "i-1", Some(1)).await.unwrap_err().kind;
    assert_eq!(kind().await, ErrorKind::Invalid);
    assert_eq!(kind().await, ErrorKind::Transient);
    let calls: Vec<String> = server
        .requests()
        .into_iter()
        .map(|request| request.body)
        .filter(|body| body.contains("Action=TerminateInstanceInAutoScalingGroup"))
        .collect();
    assert_eq!(calls.len(), 5);
    assert!(calls[0].contains("InstanceId=i-1&ShouldDecrementDesiredCapacity=true"), "{}", calls[0]);
    assert!(calls[1].contains("ShouldDecrementDesiredCapacity=false"), "{}", calls[1]);
}

/// A call that got no answer may have been received, and the second one would make the group smaller once more.
#[tokio::test]
async fn p8_a_termination_that_got_no_answer_is_not_repeated_before_the_group_is_looked_at() {
    let seen = group(&format!("<Instances>{}</Instances>", machine("i-1", "InService")));
    let server = Server::new(&[(500, ""), seen, (500, ""), TERMINATED]);
    let groups = server.aws_that_retries().groups();
    let error = groups.terminate("a-pool-x", "i-1", Some(1)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Transient);
    let calls: Vec<String> = server.requests().into_iter().map(|request| request.body).collect();
    let of = |action: &str| calls.iter().filter(|body| body.contains(&format!("Action={action}&"))).count();
    assert_eq!(of("DescribeAutoScalingGroups"), 2, "the SDK repeats what changes nothing: {calls:?}");
    assert_eq!(of("TerminateInstanceInAutoScalingGroup"), 1, "{calls:?}");
}

#[tokio::test]
async fn p8_a_hook_that_waits_for_nothing_is_settled() {
    let nothing = refusal("ValidationError", "No active Lifecycle Action found with instance ID i-1");
    let unknown = refusal("ValidationError", "Lifecycle hook not found");
    let throttled = refusal("Throttling", "Rate exceeded");
    let denied = refusal("AccessDenied", "no");
    let (server, groups) =
        groups(&[EMPTY, nothing, unknown, EMPTY, nothing, throttled, NO_GROUP, EMPTY, NO_GROUP, denied]);
    groups.complete_termination("g", "i-1").await.unwrap();
    groups.complete_termination("g", "i-1").await.unwrap();
    assert_eq!(groups.complete_termination("g", "i-1").await.unwrap_err().kind, ErrorKind::Invalid);
    groups.prolong_termination("g", "i-1").await.unwrap();
    groups.prolong_termination("g", "i-1").await.unwrap();
    assert_eq!(groups.prolong_termination("g", "i-1").await.unwrap_err().kind, ErrorKind::Transient);
    groups.raise_desired("g", 4).await.unwrap();
    assert_eq!(groups.raise_desired("g", 4).await.unwrap_err().kind, ErrorKind::Denied);

    let bodies: Vec<String> = server.requests().into_iter().map(|request| request.body).collect();
    for part in [
        "Action=CompleteLifecycleAction",
        "LifecycleHookName=slipway-terminate",
        "LifecycleActionResult=CONTINUE",
    ] {
        assert!(bodies[0].contains(part), "{}", bodies[0]);
    }
    assert!(bodies[3].contains("Action=RecordLifecycleActionHeartbeat"), "{}", bodies[3]);
    for part in ["Action=SetDesiredCapacity", "DesiredCapacity=4", "HonorCooldown=false"] {
        assert!(bodies[7].contains(part), "{}", bodies[7]);
    }
}

#[tokio::test]
async fn p6_a_group_that_somebody_made_larger_meanwhile_is_not_made_smaller() {
    let (server, groups) = groups(&[group(""), group(""), EMPTY]);
    let sets = || server.requests().iter().filter(|one| one.body.contains("SetDesiredCapacity")).count();
    groups.raise_desired("a-pool-x", 3).await.unwrap();
    assert_eq!(sets(), 0, "it wants three already");
    groups.raise_desired("a-pool-x", 4).await.unwrap();
    assert_eq!(sets(), 1);
}

/// The answer for one machine: its group, if it is in one.
fn machine_of(group: Option<(&str, &str)>) -> Answer {
    let member = group.map(|(id, group)| {
        format!(
            "<member><InstanceId>{id}</InstanceId><AutoScalingGroupName>{group}</AutoScalingGroupName><AvailabilityZone>eu-west-1a</AvailabilityZone><LifecycleState>InService</LifecycleState><HealthStatus>HEALTHY</HealthStatus><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member>"
        )
    });
    let member = member.unwrap_or_default();
    (
        200,
        leak(format!(
            "<DescribeAutoScalingInstancesResponse><DescribeAutoScalingInstancesResult><AutoScalingInstances>{member}</AutoScalingInstances></DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>"
        )),
    )
}

#[tokio::test]
async fn p6_the_group_of_a_machine_is_what_auto_scaling_says_of_that_machine() {
    let (server, groups) = groups(&[
        machine_of(Some(("i-1", "a-pool-x"))),
        machine_of(None),
        machine_of(Some(("i-2", "a-pool-x"))),
        refusal("AccessDenied", "no"),
    ]);
    assert_eq!(groups.group_of("i-1").await.unwrap().as_deref(), Some("a-pool-x"));
    assert_eq!(groups.group_of("i-1").await.unwrap(), None);
    assert_eq!(groups.group_of("i-1").await.unwrap(), None, "another machine's group");
    let error = groups.group_of("i-1").await.unwrap_err();
    assert_eq!(
        (error.kind, error.operation),
        (ErrorKind::Denied, "autoscaling:DescribeAutoScalingInstances")
    );
    drop(server);
}

/// As botocore describes `SuspendedProcess` of `DescribeAutoScalingGroups`. AWS suspends processes by itself, too, with another reason.
#[tokio::test]
async fn p4_a_group_whose_process_launch_is_suspended_is_told_apart() {
    let suspended = |process: &str| {
        let reason = "<SuspensionReason>User suspended at 2026-11-27T12:00:00Z</SuspensionReason>";
        format!(
            "<SuspendedProcesses><member><ProcessName>{process}</ProcessName>{reason}</member></SuspendedProcesses>"
        )
    };
    for (inside, launch_suspended) in
        [(suspended("Launch"), true), (suspended("AZRebalance"), false), (String::new(), false)]
    {
        let (_server, groups) = groups(&[group(&inside)]);
        let found = groups.group("a-pool-x").await.unwrap().unwrap();
        assert_eq!(found.launch_suspended, launch_suspended, "{inside}");
    }
}
