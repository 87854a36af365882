//! Compares the simulated AWS with moto, through our own adapters. Where moto behaves like AWS, both must answer alike. For all other
//! calls, [`DIFFERENT`] has both answers, and the AWS page that shows that the simulated one is right.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use slipway_aws::Aws;
use slipway_core::node::{Command, CommandView, HowUnanswered, Verb};
use slipway_flows::ports::{Commands as _, Groups as _, Stacks as _, Ticks as _};
use slipway_ports::{Condition, ErrorKind, Objects as _, PortResult, Put};
use slipway_rollout::fleet::{GroupView, Lifecycle};
use slipway_rollout::{ChangeSetRequest, ChangeSetStatus, StackStatus};
use slipway_sim::wire::{Options, serve};
use slipway_sim::{Config, World};
use slipway_tests::client::{ACCOUNT, Client};
use slipway_tests::moto::Moto;
use slipway_tests::observe::PATIENCE;

const REGION: &str = "eu-west-1";
const STACK: &str = "prod-pool-general";
const GROUP: &str = "prod-pool-general";

/// The call, the answer of the simulated AWS, the answer of moto, and AWS' own page (below https://docs.aws.amazon.com/).
const DIFFERENT: &[(&str, &str, &str, &str)] = &[
    // moto executes no commands.
    (
        "whether it printed an answer",
        "true",
        "false",
        "systems-manager/latest/APIReference/API_GetCommandInvocation.html",
    ),
    // `InvalidInstanceId`.
    (
        "sending to a machine that is not there",
        "Invalid",
        "()",
        "systems-manager/latest/APIReference/API_SendCommand.html",
    ),
    // `ValidationError`; moto fails with HTTP 500.
    (
        "ending a hook that is not there",
        "Invalid",
        "Transient",
        "autoscaling/ec2/APIReference/CommonErrors.html",
    ),
    (
        "prolonging a hook that is not there",
        "Invalid",
        "Transient",
        "autoscaling/ec2/APIReference/CommonErrors.html",
    ),
    (
        "a size of a group that is not there",
        "Invalid",
        "Transient",
        "autoscaling/ec2/APIReference/CommonErrors.html",
    ),
    // A group stays within its limits.
    ("growing over the maximum", "Invalid", "()", "autoscaling/ec2/userguide/asg-capacity-limits.html"),
    ("taking the last", "Invalid", "()", "autoscaling/ec2/userguide/asg-capacity-limits.html"),
];

/// The answers to each call, in order.
type Answers = Vec<(String, String)>;

/// Polls until there is a result.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let looks = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("never: {what}"))
}

fn note<T: Debug>(told: &mut Answers, call: &str, answer: PortResult<T>) {
    let answer = answer.map_or_else(|error| format!("{:?}", error.kind), |answer| format!("{answer:?}"));
    told.push((call.to_owned(), answer));
}

/// A group without its generated names.
fn shape(group: Option<GroupView>) -> Option<String> {
    let group = group?;
    let machines = group.machines.iter().map(|(id, one)| {
        let version = one.template.as_ref().map(|one| one.version.clone());
        (id.starts_with("i-"), one.zone.clone(), one.lifecycle, one.healthy, version)
    });
    let machines: Vec<_> = machines.collect();
    let template = group.template.map(|one| (one.id.starts_with("lt-"), one.version));
    Some(format!(
        "{} of {} to {} by {template:?} with {:?}: {machines:?}",
        group.desired, group.min, group.max, group.tags
    ))
}

/// Makes every call of a rollout to the endpoint `url`. The template is in moto's S3.
async fn story(url: &str, s3: &str, subnet: &str) -> Answers {
    let aws = Aws::emulated(url, REGION, "AKIACONTRACT").unwrap();
    let (templates, s3) = (aws.bucket("assets"), Client::new(s3, REGION, "OPERATOR"));
    let (stacks, groups, commands) = (
        aws.stacks(&templates, "arn:aws:iam::123456789012:role/cloudformation"),
        aws.groups(),
        aws.commands(),
    );
    let ticks = aws.ticks(
        "slipway",
        "arn:aws:iam::123456789012:role/tick",
        &format!("arn:aws:lambda:{REGION}:{ACCOUNT}:function:slipway-rollout"),
    );
    let mut told = Answers::new();

    note(&mut told, "a stack that is not there", stacks.stack("none").await);
    note(&mut told, "a change set of a stack that is not there", stacks.change_set("none", "one").await);
    note(&mut told, "failures of a stack that is not there", stacks.failures("none").await);
    for call in ["arming", "arming again"] {
        note(&mut told, call, ticks.arm("prod").await);
    }
    for call in ["disarming", "disarming again"] {
        note(&mut told, call, ticks.disarm("prod").await);
    }

    let template = json!({"Resources": {
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {
            "LaunchTemplateData": {"ImageId": "ami-0123456789abcdef0", "InstanceType": "m5.large"}}},
        "Nodes": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {
            "AutoScalingGroupName": GROUP, "MinSize": "1", "MaxSize": "2", "DesiredCapacity": "1",
            "VPCZoneIdentifier": [subnet],
            "Tags": [{"Key": "slipway:cluster", "Value": "prod", "PropagateAtLaunch": true}],
            "LaunchTemplate": {"LaunchTemplateId": {"Ref": "Template"},
                "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}}}},
    }});
    s3.put_object("assets", "template.json", template.to_string().into_bytes()).await.unwrap();
    let request = ChangeSetRequest {
        stack: STACK.to_owned(),
        name: "one".to_owned(),
        create: true,
        template_key: "template.json".to_owned(),
        tags: [("slipway:cluster".to_owned(), "prod".to_owned())].into(),
    };
    note(&mut told, "asking for a change set", stacks.create_change_set(&request).await);
    let ready = until("the change set", || async {
        let seen = stacks.change_set(STACK, "one").await.unwrap()?;
        (seen.status != ChangeSetStatus::Pending).then_some(seen)
    });
    note(&mut told, "the change set", Ok(ready.await));
    // No page says whether a new stack already shows its tags: the simulated one does not, moto's does, and our code does not read them.
    let seen = stacks.stack(STACK).await.map(|seen| seen.map(|seen| seen.status));
    note(&mut told, "the stack before", seen);
    note(&mut told, "executing it", stacks.execute_change_set(STACK, "one", "token").await);
    let made = until("the stack", || async {
        let seen = stacks.stack(STACK).await.unwrap()?;
        let over = seen.status == StackStatus::CreateComplete;
        over.then_some((seen.status, seen.tags))
    });
    note(&mut told, "the stack", Ok(made.await));
    note(&mut told, "executing it again", stacks.execute_change_set(STACK, "one", "token").await);
    note(&mut told, "deleting it", stacks.delete_change_set(STACK, "one").await);

    let serving = async |count: usize| {
        until("machines that serve", || async {
            let seen = groups.group(GROUP).await.unwrap()?;
            let serve = seen.machines.values().all(|one| one.lifecycle == Lifecycle::InService);
            (serve && seen.machines.len() == count).then_some(seen)
        })
        .await
    };
    note(&mut told, "a group that is not there", groups.group("none").await.map(shape));
    let arn = format!("arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:targetgroup/none/0123456789abcdef");
    note(&mut told, "targets of a target group that is not there", groups.targets(&arn).await);
    note(&mut told, "the group", Ok(shape(Some(serving(1).await))));
    note(&mut told, "the group of no machine", groups.group_of("i-0123456789abcdef0").await);
    note(&mut told, "growing", groups.raise_desired(GROUP, 2).await);
    let grown = serving(2).await;
    let first = grown.machines.keys().next().unwrap().clone();
    note(&mut told, "the group of a machine", groups.group_of(&first).await);
    note(&mut told, "the group grown", Ok(shape(Some(grown))));

    let verb = Command { token: "t-1".to_owned(), instance: first.clone(), verb: Verb::Status };
    note(&mut told, "what nobody sent", commands.answer(&verb).await);
    note(&mut told, "sending", commands.send(&verb).await);
    note(&mut told, "sending again", commands.send(&verb).await);
    let over = until("the answer", || async {
        let seen = commands.answer(&verb).await.unwrap()?;
        seen.is_over().then_some(seen)
    });
    let over = over.await;
    let how = match &over {
        CommandView::Unanswered(ended) => ended.how,
        CommandView::Answered(_) => HowUnanswered::Succeeded,
        CommandView::Failed(_) | CommandView::Pending | CommandView::InProgress => HowUnanswered::Failed,
    };
    note(&mut told, "how it ended", Ok(how));
    let printed = matches!(over, CommandView::Answered(_) | CommandView::Failed(_));
    note(&mut told, "whether it printed an answer", Ok(printed));
    let nobody = "00000000-0000-4000-8000-000000000000";
    note(&mut told, "the token of what nobody sent", commands.token(nobody).await);
    let strange = Command { instance: "i-0123456789abcdef0".to_owned(), ..verb.clone() };
    note(&mut told, "what nobody sent a machine that is not there", commands.answer(&strange).await);
    note(&mut told, "sending to a machine that is not there", commands.send(&strange).await);

    note(&mut told, "ending a hook that is not there", groups.complete_termination(GROUP, &first).await);
    note(&mut told, "prolonging a hook that is not there", groups.prolong_termination(GROUP, &first).await);
    note(&mut told, "taking one", groups.terminate(GROUP, &first, Some(0)).await);
    let left = serving(1).await;
    assert!(!left.machines.contains_key(&first));
    note(&mut told, "the group that has shrunk", Ok(shape(Some(left.clone()))));
    note(&mut told, "taking it again", groups.terminate(GROUP, &first, Some(0)).await);
    let last = left.machines.keys().next().unwrap();
    note(&mut told, "a size of a group that is not there", groups.raise_desired("none", 1).await);
    note(&mut told, "growing over the maximum", groups.raise_desired(GROUP, 3).await);
    note(&mut told, "taking the last", groups.terminate(GROUP, last, Some(0)).await);
    told
}

/// Creates a bucket with versioning. Returns the operator's client.
async fn with_bucket(moto: &Moto) -> Client {
    let operator = moto.operator(REGION);
    operator.create_bucket("assets").await;
    operator.keep_versions("assets").await;
    operator
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulated_aws_and_moto_answer_alike_where_moto_is_right() {
    let moto = Moto::start(&[]).await.unwrap();
    let operator = with_bucket(&moto).await;
    // The simulated CloudFormation reads it without a signature.
    let anyone = json!({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::assets/*"}]});
    operator.s3(Method::PUT, "assets", "policy", anyone.to_string().into_bytes()).await.unwrap();
    let http = slipway_sim::wire::client();
    let group = format!("{}/schedule-groups/slipway", moto.url());
    let made =
        http.post(group).header("authorization", operator.authorization("scheduler")).body("{}").send();
    made.await.unwrap().error_for_status().unwrap();
    let asked = http.post(moto.url()).header("authorization", operator.authorization("ec2"));
    let asked = asked.header("content-type", "application/x-www-form-urlencoded");
    let subnets = asked.body("Action=DescribeSubnets&Version=2016-11-15").send().await.unwrap();
    let subnets = subnets.text().await.unwrap();
    let subnet = subnets.split("<subnetId>").nth(1).unwrap().split('<').next().unwrap();

    let config = Config { account: ACCOUNT.to_owned(), region: REGION.to_owned(), ..Config::default() };
    let world = Arc::new(Mutex::new(World::new(config)));
    let options = Options { speed: 2_000.0, s3_endpoint: Some(moto.url().to_owned()) };
    let served = serve("127.0.0.1:0".parse().unwrap(), world, options).await.unwrap();
    let (ours, theirs) =
        (story(&served.endpoint(), moto.url(), subnet).await, story(moto.url(), moto.url(), subnet).await);
    let mut differ = Vec::new();
    for ((call, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        println!(
            "{call}: {ours}{}",
            if ours == theirs { String::new() } else { format!(" | moto: {theirs}") }
        );
        if ours != theirs {
            differ.push((call.as_str(), ours.as_str(), theirs.as_str()));
        }
    }
    let known: Vec<_> = DIFFERENT.iter().map(|(call, ours, theirs, _)| (*call, *ours, *theirs)).collect();
    assert_eq!(differ, known);
}

/// P8 relies on this: S3 lets one of two writers win, however close they are. moto alone does not.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_writers_under_one_condition_one_wins() {
    let moto = Moto::start(&[]).await.unwrap();
    with_bucket(&moto).await;
    let bucket = Aws::emulated(moto.url(), REGION, "AKIACONTRACT").unwrap().bucket("assets");
    let bucket = Arc::new(bucket);
    let mut condition = Condition::Absent;
    for round in 0..100_u8 {
        let writers = (0..8_u8).map(|writer| {
            let (bucket, condition) = (Arc::clone(&bucket), condition.clone());
            tokio::spawn(async move { bucket.put("key", vec![round, writer], condition).await.unwrap() })
        });
        let mut won = Vec::new();
        for writer in writers.collect::<Vec<_>>() {
            match writer.await.unwrap() {
                Put::Written(etag) => won.push(etag),
                Put::Lost => {}
            }
        }
        let [etag] = &won[..] else { panic!("{} of 8 writers won in round {round}", won.len()) };
        condition = Condition::Unchanged(etag.clone());
    }
}

/// The SDK retries a call that is throttled once, and the caller does not notice; a call that is throttled for a while is a transient
/// error.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_throttled_once_works_and_one_that_goes_on_being_may_work_later() {
    let config = Config { account: ACCOUNT.to_owned(), region: REGION.to_owned(), ..Config::default() };
    let world = Arc::new(Mutex::new(World::new(config)));
    let options = Options { speed: 1.0, s3_endpoint: None };
    let served = serve("127.0.0.1:0".parse().unwrap(), Arc::clone(&world), options).await.unwrap();
    let aws = Aws::emulated(&served.endpoint(), REGION, "AKIACONTRACT").unwrap();
    let stacks = aws.stacks(&aws.bucket("assets"), "arn:aws:iam::123456789012:role/cloudformation");
    let (groups, commands) = (aws.groups(), aws.commands());
    let nobody = "00000000-0000-4000-8000-000000000000";
    for (times, works) in [(1, true), (100, false)] {
        for action in ["DescribeStacks", "DescribeAutoScalingGroups", "ListCommands"] {
            world.lock().unwrap().throttle(action, times);
        }
        let (stack, group, token) =
            tokio::join!(stacks.stack("none"), groups.group("none"), commands.token(nobody));
        let ends = [
            stack.map(|seen| seen.is_none()),
            group.map(|seen| seen.is_none()),
            token.map(|seen| seen.is_none()),
        ];
        for end in ends {
            match end {
                Ok(nothing) => assert!(works && nothing, "throttled {times} times"),
                Err(error) => {
                    assert!(
                        !works && error.kind == ErrorKind::Transient,
                        "throttled {times} times: {error:?}"
                    );
                    assert!(error.message.contains("Rate exceeded"), "{error:?}");
                }
            }
        }
    }
}
