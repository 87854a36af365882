//! A person is asked about a plan, and the answer approves exactly that plan. moto runs the state machine; its calls come through the gateway,
//! which holds them to the permissions of its role.

use slipway_tests::installation::Installation;
use slipway_tests::observe::Observed;

use super::*;

/// How long nothing may happen where nothing should.
const WHILE: Duration = Duration::from_secs(3);

/// What SNS brings: subject and text.
async fn question(world: &Embedded, queue: &str) -> (String, String) {
    let bodies = taken(world.client(), queue, 1).await;
    let [body] = bodies.as_slice() else { panic!("asked more than once: {bodies:?}") };
    let envelope: Value = serde_json::from_str(body).unwrap();
    (envelope["Subject"].as_str().unwrap().to_owned(), envelope["Message"].as_str().unwrap().to_owned())
}

/// The token in the line of a question that begins with that command of Step Functions.
fn token<'a>(text: &'a str, command: &str) -> &'a str {
    let line = text.lines().find(|line| line.starts_with(&format!("aws stepfunctions {command} "))).unwrap();
    line.split(" --task-token ").nth(1).unwrap()
}

async fn answer(world: &Embedded, operation: &str, request: Value) {
    let target = format!("AWSStepFunctions.{operation}");
    world.client().json("states", &target, request).await.unwrap();
}

/// The approvals on the bus.
fn approvals(world: &Embedded) -> Vec<Value> {
    let seen = world.observer().since(0).into_iter();
    let events = seen.filter_map(|seen| match seen.what {
        Observed::Event { bus, event } if bus == "slipway" => Some(event),
        _ => None,
    });
    events.filter(|event| event["detail-type"] == "Rollout Approved").collect()
}

/// Waits for the state of the only execution to be another one than running.
async fn ended(world: &Embedded, stack: &Beside) -> String {
    let machine = &stack.deployed.outputs["ApprovalArn"];
    let listed = tokio::time::timeout(PATIENCE, async {
        loop {
            let request = json!({"stateMachineArn": machine});
            let listed =
                world.client().json("states", "AWSStepFunctions.ListExecutions", request).await.unwrap();
            let [one] = listed["executions"].as_array().unwrap().as_slice() else { panic!("{listed}") };
            if one["status"] != "RUNNING" {
                return one["status"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    listed.await.expect("the execution does not end")
}

fn plan_ready(needs_approval: bool) -> Event {
    let mut event = event("Plan Ready");
    event.detail["needsApproval"] = json!(needs_approval);
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_approves_the_plan_that_was_asked_about_whatever_it_says() {
    let world = world().await;
    let stack = deployed(&world, "approval", &[("Email", "ops@example.com")], &[]).await;
    let queue = subscribed(&world, &stack.deployed.outputs["TopicArn"]).await;
    // Nobody is asked about a plan that begins by itself.
    world.client().put_event("slipway", &plan_ready(false)).await.unwrap();
    let asked = plan_ready(true);
    world.client().put_event("slipway", &asked).await.unwrap();
    let (subject, text) = question(&world, &queue).await;
    assert!(subject.contains("the-cluster") && subject.len() <= 100, "{subject}");
    let summary = asked.detail["summary"].as_str().unwrap();
    // What comes from the event is in no command that somebody copies.
    let region = format!("--region {} ", world.region());
    for words in ["the-plan", "the-cluster", summary, "slipway approve --cluster NAME", &region] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(approvals(&world), Vec::<Value>::new());
    let evil = json!({"detail": {"cluster": "other", "plan": "evil"}, "plan": "evil"}).to_string();
    let token = token(&text, "send-task-success --task-output true");
    answer(&world, "SendTaskSuccess", json!({"taskToken": token, "output": evil})).await;
    assert_eq!(ended(&world, &stack).await, "SUCCEEDED");
    assert!(world.settle(Duration::from_millis(400), PATIENCE).await);
    let [approval] = approvals(&world).try_into().unwrap();
    assert_eq!(approval["source"], "slipway");
    assert_eq!(approval["detail"], json!({"cluster": "the-cluster", "plan": "the-plan"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_declines_or_does_not_answer_approves_nothing() {
    for declines in [true, false] {
        let world = world().await;
        let patience = if declines { "604800" } else { "1" };
        let stack = deployed(&world, "approval", &[("Patience", patience)], &[]).await;
        let queue = subscribed(&world, &stack.deployed.outputs["TopicArn"]).await;
        world.client().put_event("slipway", &plan_ready(true)).await.unwrap();
        let (_, text) = question(&world, &queue).await;
        if declines {
            let token = token(&text, "send-task-failure --error Declined");
            answer(&world, "SendTaskFailure", json!({"taskToken": token, "error": "Declined"})).await;
        }
        // Neither is a failure of the state machine, on which somebody may have an alarm.
        assert_eq!(ended(&world, &stack).await, "SUCCEEDED");
        tokio::time::sleep(WHILE).await;
        assert_eq!(approvals(&world), Vec::<Value>::new());
    }
}

/// A mistyped error, or a call that fails for a moment, does not end the question. (In AWS the second one has a token of its own; moto
/// gives out the first one again.)
#[tokio::test(flavor = "multi_thread")]
async fn another_error_than_declined_asks_again() {
    let world = world().await;
    let stack = deployed(&world, "approval", &[], &[]).await;
    let queue = subscribed(&world, &stack.deployed.outputs["TopicArn"]).await;
    world.client().put_event("slipway", &plan_ready(true)).await.unwrap();
    let (_, first) = question(&world, &queue).await;
    let token = token(&first, "send-task-failure --error Declined");
    answer(&world, "SendTaskFailure", json!({"taskToken": token, "error": "Decline"})).await;
    let (_, again) = question(&world, &queue).await;
    assert!(again.starts_with("The plan the-plan of the cluster the-cluster "), "{again}");
    assert_eq!(approvals(&world), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_permission_of_its_role_nothing_is_approved() {
    for (from, to, action) in [
        (
            "\"events:detail-type\": Rollout Approved",
            "\"events:detail-type\": Rollout Pause",
            "events:PutEvents",
        ),
        ("Action: sns:Publish", "Action: sns:Subscribe", "sns:Publish"),
        ("Action: [kms:Decrypt, kms:GenerateDataKey]", "Action: [kms:Decrypt]", "sns:Publish"),
    ] {
        let world = world().await;
        let stack = broken(&world, "approval", from, to, &[]).await;
        let queue = subscribed(&world, &stack.deployed.outputs["TopicArn"]).await;
        world.client().put_event("slipway", &plan_ready(true)).await.unwrap();
        if action == "events:PutEvents" {
            let (_, text) = question(&world, &queue).await;
            let token = token(&text, "send-task-success --task-output true");
            answer(&world, "SendTaskSuccess", json!({"taskToken": token, "output": "true"})).await;
        }
        let refused = world.observer().wait(0, PATIENCE, |seen| match &seen.what {
            Observed::Call(call) if call.action == action => call.refused.clone(),
            _ => None,
        });
        let reason = refused.await.unwrap();
        assert!(reason.contains("not authorized"), "{reason}");
        assert_eq!(approvals(&world), Vec::<Value>::new());
    }
}

/// With Slipway itself: the upload is planned, a person is asked, and the answer starts the rollout.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_starts_the_rollout_of_an_upload_that_waits() {
    let slipway = Installation::start(&Settings::default()).await.unwrap();
    let world = slipway.world();
    let stack = deployed(world, "approval", &[], &[]).await;
    let queue = subscribed(world, &stack.deployed.outputs["TopicArn"]).await;
    let mark = world.observer().mark();
    let spec = std::fs::read_to_string(tools::root().join("examples/minimal.yaml")).unwrap();
    slipway.upload("minimal", format!("{spec}\nrollout:\n  approval: manual\n")).await.unwrap();
    let (_, planned) = slipway.event(mark, &["Plan Ready"], PATIENCE).await.unwrap();
    let (_, text) = question(world, &queue).await;
    assert!(text.contains(planned["plan"].as_str().unwrap()), "{text}");
    assert!(world.settle(Duration::from_millis(400), PATIENCE).await);
    assert!(slipway.event(mark, &["Rollout Started"], WHILE).await.is_none(), "nobody has answered");
    let token = token(&text, "send-task-success --task-output true");
    answer(world, "SendTaskSuccess", json!({"taskToken": token, "output": "true"})).await;
    let (_, started) = slipway.event(mark, &["Rollout Started"], PATIENCE).await.unwrap();
    assert_eq!(started["plan"], planned["plan"]);
}
