//! The endpoints, as a client sees them.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};

use super::*;
use crate::{Config, World};

const NETWORK: &str = r#"{"Resources": {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}}},
    "Outputs": {"Vpc": {"Value": {"Ref": "Vpc"}, "Export": {"Name": "a<b"}}}}"#;

struct Client {
    served: Served,
    http: reqwest::Client,
}

impl Client {
    async fn new() -> Self {
        // An S3 that serves one template.
        let s3 = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", s3.local_addr().unwrap());
        let router = Router::new().route("/assets/net.json", axum::routing::get(|| async { NETWORK }));
        tokio::spawn(async move { axum::serve(s3, router).await.unwrap() });
        let world = Arc::new(Mutex::new(World::new(Config::default())));
        let options = Options { speed: 2_000.0, s3_endpoint: Some(endpoint) };
        let served = serve("127.0.0.1:0".parse().unwrap(), world, options).await.unwrap();
        Self { served, http: client() }
    }

    async fn call(&self, action: &str, parameters: &[(&str, &str)]) -> (u16, String) {
        self.call_of("2010-05-15", action, parameters).await
    }

    async fn call_of(&self, version: &str, action: &str, parameters: &[(&str, &str)]) -> (u16, String) {
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let mut body = format!("Action={action}&Version={version}");
        for (key, value) in parameters {
            body.push_str(&format!("&{}={}", encode(key), encode(value)));
        }
        let request = self.http.post(self.served.endpoint());
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
        let response = request.send().await.unwrap();
        assert!(response.headers().contains_key("x-amzn-requestid"));
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn until(&self, action: &str, parameters: &[(&str, &str)], wanted: &str) -> String {
        for _ in 0..500 {
            let (_, text) = self.call(action, parameters).await;
            if text.contains(wanted) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{action} never said {wanted}");
    }

    /// Run Command: status and answer of a call.
    async fn ssm(&self, action: &str, body: &Value) -> (u16, Value) {
        let request = self.http.post(self.served.endpoint()).body(body.to_string());
        let request = request.header("content-type", "application/x-amz-json-1.1");
        let response = request.header("x-amz-target", format!("AmazonSSM.{action}")).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn scheduler(&self, method: Method, path: &str, body: &Value) -> (u16, String, Value) {
        let request = self.http.request(method, format!("{}{path}", self.served.endpoint())).json(body);
        let response = request.send().await.unwrap();
        let code = response.headers().get("x-amzn-errortype").map(|code| code.to_str().unwrap().to_owned());
        (response.status().as_u16(), code.unwrap_or_default(), response.json().await.unwrap())
    }
}

#[tokio::test]
async fn a_stack_lives_its_life_on_the_wire() {
    let mut client = Client::new().await;
    let url = "https://assets.s3.eu-central-1.amazonaws.com/net.json";
    let (status, text) = client
        .call(
            "CreateChangeSet",
            &[
                ("StackName", "net"),
                ("ChangeSetName", "first"),
                ("ChangeSetType", "CREATE"),
                ("TemplateURL", url),
                ("Tags.member.1.Key", "a"),
                ("Tags.member.1.Value", "b & c"),
            ],
        )
        .await;
    assert_eq!(status, 200, "{text}");
    assert!(
        text.starts_with("<CreateChangeSetResponse xmlns=")
            && text.contains("<CreateChangeSetResult><Id>arn:aws:")
    );
    let named = [("StackName", "net"), ("ChangeSetName", "first")];
    let text = client.until("DescribeChangeSet", &named, "<ExecutionStatus>AVAILABLE").await;
    assert!(text.contains("<Action>Add</Action>") && text.contains("<Value>b &amp; c</Value>"), "{text}");
    let arn = text.split_once("<ChangeSetId>").unwrap().1.split_once('<').unwrap().0.to_owned();
    let of_change_set = [("ChangeSetName", &*arn), ("Filters.FailedEvents", "true")];
    let (status, answer) = client.call("DescribeEvents", &of_change_set).await;
    assert!(status == 200 && answer.contains("<OperationEvents></OperationEvents>"), "{answer}");
    assert_eq!(client.call("ExecuteChangeSet", &named).await.0, 200);
    let text = client.until("DescribeStacks", &[("StackName", "net")], "CREATE_COMPLETE").await;
    assert!(text.contains("<ExportName>a&lt;b</ExportName>"), "{text}");
    let (_, text) = client.call("DescribeStackEvents", &[("StackName", "net")]).await;
    assert!(text.find("CREATE_COMPLETE") < text.find("REVIEW_IN_PROGRESS"), "{text}");
    for action in ["ListStackResources", "DescribeStackResources"] {
        assert!(client.call(action, &[("StackName", "net")]).await.1.contains("vpc-0"));
    }
    assert!(client.call("ListExports", &[]).await.1.contains("<Name>a&lt;b</Name>"));
    assert!(client.call("GetTemplate", &[("StackName", "net")]).await.1.contains("AWS::EC2::VPC"));
    assert_eq!(client.call("DeleteStack", &[("StackName", "net")]).await.0, 200);
    client.until("ListStacks", &[("StackStatusFilter.member.1", "DELETE_COMPLETE")], "net").await;

    let mut statuses = Vec::new();
    while let Ok(sent) = client.served.outgoing.try_recv() {
        match sent {
            Outgoing::Event(event) if event.detail_type.contains("Stack") => {
                statuses
                    .push(event.envelope["detail"]["status-details"]["status"].as_str().unwrap().to_owned());
            }
            Outgoing::Event(_) => {}
            Outgoing::Invoke { .. } => panic!("no schedule was made"),
        }
    }
    let life = [
        "REVIEW_IN_PROGRESS",
        "CREATE_IN_PROGRESS",
        "CREATE_COMPLETE",
        "DELETE_IN_PROGRESS",
        "DELETE_COMPLETE",
    ];
    assert_eq!(statuses, life);
}

#[tokio::test]
async fn errors_have_aws_codes_and_statuses() {
    let client = Client::new().await;
    let (status, text) = client.call("DescribeStacks", &[("StackName", "none")]).await;
    assert_eq!(status, 400);
    assert!(
        text.contains("<Code>ValidationError</Code><Message>Stack with id none does not exist</Message>"),
        "{text}"
    );
    let (status, text) = client.call("DescribeType", &[("TypeName", "AWS::EC2::VPC")]).await;
    assert!(status == 400 && text.contains("DescribeType is not modelled"), "{text}");
    let (_, text) = client.call("DescribeStacks", &[("Colour", "red")]).await;
    assert!(text.contains("The parameter Colour is not modelled"), "{text}");
    let base = [("StackName", "net"), ("ChangeSetName", "c"), ("ChangeSetType", "CREATE")];
    let with = |extra: (&'static str, &'static str)| [base[0], base[1], base[2], extra];
    let (_, text) =
        client.call("CreateChangeSet", &with(("TemplateURL", "https://assets.s3.amazonaws.com/no"))).await;
    assert!(text.contains("S3 error: The specified key does not exist."), "{text}");
    let (_, text) = client.call("CreateChangeSet", &with(("TemplateURL", "https://example.com/a/b"))).await;
    assert!(text.contains("TemplateURL must be a supported URL."), "{text}");
    assert_eq!(client.call("CreateChangeSet", &with(("TemplateBody", NETWORK))).await.0, 200);
    let (status, text) =
        client.call("DescribeChangeSet", &[("StackName", "net"), ("ChangeSetName", "x")]).await;
    assert!(status == 404 && text.contains("<Code>ChangeSetNotFound</Code>"), "{text}");
    let (status, text) = client.call("DescribeEvents", &[("StackName", "net"), ("ChangeSetName", "c")]).await;
    assert!(status == 400 && text.contains("must be specified"), "{text}");
    client.served_world_throttles("DescribeStacks");
    let (status, text) = client.call("DescribeStacks", &[]).await;
    assert!(status == 400 && text.contains("<Code>Throttling</Code>"), "{text}");
}

impl Client {
    fn served_world_throttles(&self, action: &str) {
        lock(&self.served.world).throttle(action, 1);
    }
}

#[tokio::test]
async fn a_schedule_is_made_fires_and_goes() {
    let mut client = Client::new().await;
    let body = json!({
        "GroupName": "slipway", "ScheduleExpression": "rate(1 minutes)", "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": "arn:aws:lambda:x", "RoleArn": "arn:aws:iam::x", "Input": "{}",
            "RetryPolicy": {"MaximumRetryAttempts": 0}},
    });
    let path = "/schedules/slipway-prod";
    let (status, _, answer) = client.scheduler(Method::POST, path, &body).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer["ScheduleArn"].as_str().unwrap().ends_with(":schedule/slipway/slipway-prod"));
    let (status, code, _) = client.scheduler(Method::POST, path, &body).await;
    assert_eq!((status, code.as_str()), (409, "ConflictException"));
    let named = format!("{path}?groupName=slipway");
    assert_eq!(client.scheduler(Method::GET, &named, &json!({})).await.2["State"], "ENABLED");
    for _ in 0..2 {
        assert!(matches!(client.served.outgoing.recv().await.unwrap(), Outgoing::Invoke { .. }));
    }
    assert_eq!(client.scheduler(Method::DELETE, &named, &json!({})).await.0, 200);
    let (status, code, _) = client.scheduler(Method::DELETE, &named, &json!({})).await;
    assert_eq!((status, code.as_str()), (404, "ResourceNotFoundException"));
    let mut odd = body.clone();
    odd["Target"]["SqsParameters"] = json!({});
    let (status, code, answer) = client.scheduler(Method::POST, path, &odd).await;
    assert_eq!((status, code.as_str()), (400, "ValidationException"), "{answer}");
}

/// A group of two machines with hooks. The user data says that they are workers.
fn pool() -> String {
    use base64::Engine as _;
    let node = r#"{"agent":null,"assetBucket":"assets","cluster":"prod","config":"c","credentials":"d","format":1,"region":"eu-central-1","role":"etcd-0"}"#;
    let script = format!("cat >node.json <<'NODE'\n{node}\nNODE\n");
    let userdata = base64::engine::general_purpose::STANDARD.encode(script);
    let hook = |name: &str, transition: &str| {
        json!({"LifecycleHookName": name, "LifecycleTransition": format!("autoscaling:EC2_INSTANCE_{transition}"),
            "DefaultResult": "ABANDON", "HeartbeatTimeout": 1800})
    };
    json!({"Resources": {
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {
            "LaunchTemplateData": {"ImageId": "ami-0123456789abcdef0", "InstanceType": "m5.large", "UserData": userdata}}},
        "Nodes": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {
            "AutoScalingGroupName": "prod-etcd-0",
            "MinSize": "1", "MaxSize": "2", "VPCZoneIdentifier": ["subnet-1"],
            "Tags": [
                {"Key": "slipway:cluster", "Value": "prod", "PropagateAtLaunch": true},
                {"Key": "slipway:role", "Value": "etcd-0", "PropagateAtLaunch": true}],
            "LifecycleHookSpecificationList": [hook("slipway-launch", "LAUNCHING"), hook("slipway-terminate", "TERMINATING")],
            "TargetGroupARNs": [TARGETS],
            "LaunchTemplate": {"LaunchTemplateId": {"Ref": "Template"},
                "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}}}},
    }})
    .to_string()
}

const AUTO_SCALING: &str = "2011-01-01";
const LOAD_BALANCING: &str = "2015-12-01";
/// A target group that existed before.
const TARGETS: &str =
    "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/own/0123456789abcdef";

#[tokio::test]
async fn a_group_and_its_machine_live_their_life_on_the_wire() {
    let client = Client::new().await;
    let template = pool();
    let made = client.call("CreateStack", &[("StackName", "prod-etcd"), ("TemplateBody", &template)]).await;
    assert_eq!(made.0, 200, "{}", made.1);
    let describe = async || {
        let name = ("AutoScalingGroupNames.member.1", "prod-etcd-0");
        client.call_of(AUTO_SCALING, "DescribeAutoScalingGroups", &[name]).await.1
    };
    let until = async |wanted: &str| {
        for _ in 0..1_000 {
            let text = describe().await;
            if text.contains(wanted) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never {wanted}: {}", describe().await);
    };
    let text = until("<LifecycleState>InService</LifecycleState>").await;
    for part in [
        "<DesiredCapacity>1</DesiredCapacity>",
        "<Key>slipway:cluster</Key><Value>prod</Value>",
        "<HealthStatus>Healthy</HealthStatus><LaunchTemplate><LaunchTemplateId>lt-",
        "<Version>1</Version>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let id = text.split("<InstanceId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    for (instance, found) in [(id.as_str(), true), ("i-0123456789abcdef0", false)] {
        let of = ("InstanceIds.member.1", instance);
        let (status, text) = client.call_of(AUTO_SCALING, "DescribeAutoScalingInstances", &[of]).await;
        let group =
            format!("<InstanceId>{id}</InstanceId><AutoScalingGroupName>prod-etcd-0</AutoScalingGroupName>");
        assert!(status == 200 && text.contains(&group) == found, "{text}");
    }
    assert!(
        text.contains(&format!("<TargetGroupARNs><member>{TARGETS}</member></TargetGroupARNs>")),
        "{text}"
    );
    let health = async |arn: &str| {
        client.call_of(LOAD_BALANCING, "DescribeTargetHealth", &[("TargetGroupArn", arn)]).await
    };
    let (status, text) = health(TARGETS).await;
    let target = format!(
        "<TargetHealthDescriptions><member><Target><Id>{id}</Id><Port>6443</Port></Target><HealthCheckPort>6443</HealthCheckPort><TargetHealth><State>"
    );
    assert!(status == 200 && text.contains(&target), "{text}");
    let (status, text) = health(&TARGETS.replace("own", "none")).await;
    assert!(status == 400 && text.contains("<Code>TargetGroupNotFound</Code>"), "{text}");
    let (status, text) = client.call_of(LOAD_BALANCING, "DescribeLoadBalancers", &[]).await;
    assert!(status == 400 && text.contains("not modelled"), "{text}");

    let command = json!({"DocumentName": "Slipway-EtcdHealth", "InstanceIds": [id], "Comment": "t-1", "TimeoutSeconds": 120});
    let (status, sent) = client.ssm("SendCommand", &command).await;
    assert_eq!((status, &sent["Command"]["Comment"]), (200, &json!("t-1")), "{sent}");
    let filters = json!([{"key": "DocumentName", "value": "Slipway-EtcdHealth"}]);
    let listed =
        client.ssm("ListCommands", &json!({"InstanceId": id, "Filters": filters, "MaxResults": 50})).await.1;
    assert_eq!(listed["Commands"][0]["CommandId"], sent["Command"]["CommandId"]);
    let asked = json!({"CommandId": sent["Command"]["CommandId"], "InstanceId": id});
    let answer = loop {
        let (_, answer) = client.ssm("GetCommandInvocation", &asked).await;
        match answer["StatusDetails"].as_str().unwrap() {
            "Pending" | "InProgress" => tokio::time::sleep(Duration::from_millis(2)).await,
            _ => break answer,
        }
    };
    assert_eq!((&answer["Status"], &answer["ResponseCode"]), (&json!("Success"), &json!(0)));
    let health: Value = serde_json::from_str(answer["StandardOutputContent"].as_str().unwrap()).unwrap();
    assert_eq!((&health["healthy"], &health["leads"]), (&json!(true), &json!(true)));

    let hook = [
        ("AutoScalingGroupName", "prod-etcd-0"),
        ("LifecycleHookName", "slipway-terminate"),
        ("InstanceId", &id),
    ];
    let complete = [&hook[..], &[("LifecycleActionResult", "CONTINUE")]].concat();
    let (status, text) = client.call_of(AUTO_SCALING, "CompleteLifecycleAction", &complete).await;
    assert!(status == 400 && text.contains("No active Lifecycle Action found with instance ID"), "{text}");
    let asked = [("InstanceId", &*id), ("ShouldDecrementDesiredCapacity", "true")];
    let (status, text) = client.call_of(AUTO_SCALING, "TerminateInstanceInAutoScalingGroup", &asked).await;
    assert!(status == 400 && text.contains("desiredSize equals minSize (1)"), "{text}");
    let asked = [("InstanceId", &*id), ("ShouldDecrementDesiredCapacity", "false")];
    assert_eq!(client.call_of(AUTO_SCALING, "TerminateInstanceInAutoScalingGroup", &asked).await.0, 200);
    // The member's own agent completes its hook within seconds of the world's clock, so a later call finds no active action.
    for (action, query) in
        [("RecordLifecycleActionHeartbeat", &hook[..]), ("CompleteLifecycleAction", &complete)]
    {
        let (status, text) = client.call_of(AUTO_SCALING, action, query).await;
        assert!(status == 200 || text.contains("No active Lifecycle Action found"), "{action}: {text}");
    }
    until("<LifecycleState>InService</LifecycleState>").await;
    assert!(!describe().await.contains(&id), "another one");
    let set = [("AutoScalingGroupName", "prod-etcd-0"), ("DesiredCapacity", "3"), ("HonorCooldown", "false")];
    let (status, text) = client.call_of(AUTO_SCALING, "SetDesiredCapacity", &set).await;
    assert!(status == 400 && text.contains("above max value 2"), "{text}");
}

#[tokio::test]
async fn what_auto_scaling_and_run_command_do_not_have_here_is_refused() {
    let client = Client::new().await;
    let cooldown = [("AutoScalingGroupName", "g"), ("DesiredCapacity", "1"), ("HonorCooldown", "true")];
    for (action, parameters, words) in [
        ("StartInstanceRefresh", &[][..], "not modelled"),
        ("DescribeAutoScalingGroups", &[("Filters.member.1.Name", "tag-key")], "not modelled"),
        ("DescribeAutoScalingInstances", &[], "not modelled"),
        ("SetDesiredCapacity", &cooldown, "not modelled"),
        (
            "TerminateInstanceInAutoScalingGroup",
            &[("InstanceId", "i-1"), ("ShouldDecrementDesiredCapacity", "true")],
            "not found",
        ),
    ] {
        let (status, text) = client.call_of(AUTO_SCALING, action, parameters).await;
        assert!(status == 400 && text.contains(words), "{action}: {text}");
    }
    let send = |more: Value| {
        let mut body =
            json!({"DocumentName": "Slipway-Status", "InstanceIds": ["i-1"], "TimeoutSeconds": 120});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (action, body, code, words) in [
        ("PutParameter", json!({}), "ValidationException", "not modelled"),
        ("SendCommand", send(json!({})), "InvalidInstanceId", "not in a valid state"),
        ("SendCommand", send(json!({"Targets": []})), "ValidationException", "not modelled"),
        (
            "SendCommand",
            send(json!({"DocumentName": "AWS-RunShellScript"})),
            "InvalidDocument",
            "does not exist",
        ),
        ("SendCommand", send(json!({"Parameters": {"Odd": ["1"]}})), "InvalidParameters", "Odd"),
        ("SendCommand", send(json!({"TimeoutSeconds": 1})), "ValidationException", "between 30"),
        (
            "ListCommands",
            json!({"Filters": [{"key": "Status", "value": "Success"}]}),
            "ValidationException",
            "not modelled",
        ),
        ("CancelCommand", json!({"CommandId": "c", "InstanceIds": ["i-1"]}), "InvalidCommandId", "c"),
        (
            "GetCommandInvocation",
            json!({"CommandId": "c", "InstanceId": "i-1"}),
            "InvocationDoesNotExist",
            "c",
        ),
    ] {
        let (status, answer) = client.ssm(action, &body).await;
        assert_eq!((status, answer["__type"].as_str()), (400, Some(code)), "{action} {body}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(words), "{answer}");
    }
}
