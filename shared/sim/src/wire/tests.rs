//! The wire, as a client sees it.
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
        // S3, as far as one template goes.
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
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let mut body = format!("Action={action}&Version=2010-05-15");
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
    let (status, text) = client.call("DetectStackDrift", &[("StackName", "none")]).await;
    assert!(status == 400 && text.contains("DetectStackDrift is not modelled"), "{text}");
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
