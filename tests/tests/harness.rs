//! Tests of the embedded AWS itself, with a function of their own.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use serde_json::{Value, json};
use slipway_tests::client::{Event, Message};
use slipway_tests::gateway::{Effect, Fault, Refusal};
use slipway_tests::observe::{Observed, Outcome, PATIENCE};
use slipway_tests::tools;
use slipway_tests::world::{Embedded, Settings};

async fn probes() -> Embedded {
    let template = tools::root().join("tests/fixtures/probe.yaml");
    Embedded::start(&template, &Settings { time_scale: 0.001, ..Settings::default() }).await.unwrap()
}

/// Sends `detail` to the bus of the probe function and waits for the try number `number`.
async fn ask(world: &Embedded, detail: Value, number: u32) -> (Outcome, u64) {
    let mark = world.observer().mark();
    let event =
        Event { source: "probe".to_owned(), detail_type: "Ask".to_owned(), detail, resources: Vec::new() };
    world.client().put_event("probes", &event).await.unwrap();
    world.gateway().bell().ring();
    finished(world, mark, number).await
}

async fn finished(world: &Embedded, mark: usize, number: u32) -> (Outcome, u64) {
    let found = world.observer().wait(mark, PATIENCE, |seen| match &seen.what {
        Observed::Finished { attempt, outcome, max_rss_kib, .. } if attempt.number == number => {
            Some((outcome.clone(), *max_rss_kib))
        }
        _ => None,
    });
    found.await.unwrap_or_else(|| panic!("no try {number}: {:#?}", world.observer().since(mark)))
}

async fn dead_letters(world: &Embedded) -> Vec<Message> {
    let url = world.reference("DeadLetters").unwrap();
    for _ in 0..200 {
        let messages = world.client().take(url).await.unwrap();
        if !messages.is_empty() {
            return messages;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Vec::new()
}

fn error_type(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed { error_type, .. } => error_type,
        Outcome::Answered(_) => "none",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_reaches_the_function_that_the_template_names() {
    let world = probes().await;
    let mark = world.observer().mark();
    world.upload("Bucket", "elsewhere/x", b"1".to_vec()).await.unwrap();
    let version = world.upload("Bucket", "up/prod/x", b"22".to_vec()).await.unwrap();
    let (outcome, max_rss_kib) = finished(&world, mark, 1).await;
    let Outcome::Answered(answer) = outcome else { panic!("{outcome:?}") };
    let event = &answer["event"];
    assert_eq!(event["detail"]["object"]["version-id"], json!(version));
    assert_eq!(event["detail"]["object"]["key"], "up/prod/x");
    assert_eq!(event["detail"]["object"]["size"], 2);
    assert!(event["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{event}");
    let headers = &answer["headers"];
    assert_eq!(
        headers["lambda-runtime-invoked-function-arn"],
        "arn:aws:lambda:eu-west-1:123456789012:function:probe"
    );
    assert!(headers["lambda-runtime-deadline-ms"].as_str().unwrap().parse::<u64>().is_ok());
    let names: Vec<&str> =
        answer["environment"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in
        ["AWS_ENDPOINT_URL", "AWS_LAMBDA_FUNCTION_NAME", "AWS_REGION", "LAMBDA_TASK_ROOT", "PROBE_BUCKET"]
    {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "only Lambda's own environment: {names:?}");
    assert!(max_rss_kib > 500, "{max_rss_kib}");
    assert!(world.settle(Duration::from_millis(700), PATIENCE).await);
    let tries = world.observer().since(mark).into_iter();
    assert_eq!(tries.filter(|seen| matches!(seen.what, Observed::Started(_))).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_tried_again_and_then_dead_lettered_by_kind() {
    let world = probes().await;
    for (what, kind) in
        [("fail", "Probe.Asked"), ("crash", "Runtime.ExitError"), ("hang", "Sandbox.Timedout")]
    {
        let (outcome, _) = ask(&world, json!({"do": what}), 2).await;
        assert_eq!(error_type(&outcome), kind);
        let letters = dead_letters(&world).await;
        let [letter] = &letters[..] else { panic!("{what}: {letters:?}") };
        assert!(letter.attributes["ErrorMessage"].contains(kind), "{letter:?}");
        assert!(letter.attributes.contains_key("RequestID"));
        let body: Value = serde_json::from_str(&letter.body).unwrap();
        assert_eq!(body["detail"]["do"], what);
    }
    let (outcome, _) = ask(&world, json!({"do": "answer"}), 1).await;
    assert!(matches!(outcome, Outcome::Answered(_)), "not a new environment after the dead one: {outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_error_is_the_functions_own() {
    let world = probes().await;
    world.lambda().configure("probe", |function| {
        function.launch.environment.insert("PROBE_FAILS_INIT".to_owned(), "1".to_owned());
    });
    let (outcome, _) = ask(&world, json!({"do": "answer"}), 2).await;
    assert_eq!(error_type(&outcome), "Probe.NotConfigured");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_without_a_permission_invokes_nothing() {
    let world = probes().await;
    let mark = world.observer().mark();
    let event = Event {
        source: "stranger".to_owned(),
        detail_type: "Hello".to_owned(),
        detail: json!({}),
        resources: Vec::new(),
    };
    world.client().put_event("probes", &event).await.unwrap();
    let letters = dead_letters(&world).await;
    assert_eq!(letters.first().unwrap().attributes["ERROR_CODE"], "NO_PERMISSIONS");
    let seen = world.observer().since(mark);
    assert!(!seen.iter().any(|seen| matches!(seen.what, Observed::Started(_))), "{seen:#?}");
    assert!(seen.iter().any(|seen| matches!(seen.what, Observed::NotPermitted { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_holds_functions_to_their_role() {
    let world = probes().await;
    let status = |outcome: Outcome| match outcome {
        Outcome::Answered(answer) => answer["status"].as_u64().unwrap(),
        failed @ Outcome::Failed { .. } => panic!("{failed:?}"),
    };
    assert_eq!(status(ask(&world, json!({"do": "put", "key": "allowed/a"}), 1).await.0), 200);
    assert_eq!(status(ask(&world, json!({"do": "put", "key": "other/a"}), 1).await.0), 403);
    assert_eq!(status(ask(&world, json!({"do": "read", "key": "allowed/a"}), 1).await.0), 200);
    // A caller that may not list the bucket gets "forbidden" for a missing object.
    assert_eq!(status(ask(&world, json!({"do": "read", "key": "allowed/none"}), 1).await.0), 403);
    world.gateway().inject(Fault {
        caller: Some("probe".to_owned()),
        action: "s3:PutObject".to_owned(),
        resource: String::new(),
        times: Some(1),
        effect: Effect::Refuse(Refusal::Throttled),
    });
    assert_eq!(status(ask(&world, json!({"do": "put", "key": "allowed/b"}), 1).await.0), 503);
    assert_eq!(status(ask(&world, json!({"do": "put", "key": "allowed/b"}), 1).await.0), 200);
    let calls = world.observer().calls(0);
    assert_eq!(calls.iter().filter(|call| call.refused.is_some()).count(), 3);
    assert_eq!(world.client().versions(world.reference("Bucket").unwrap()).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_call_leaves_time_to_kill_the_function() {
    let world = probes().await;
    world.gateway().inject(Fault {
        caller: None,
        action: "s3:PutObject".to_owned(),
        resource: "allowed/".to_owned(),
        times: Some(1),
        effect: Effect::StallAfter,
    });
    let mark = world.observer().mark();
    let killed = async {
        let stalled = world.observer().wait(mark, PATIENCE, |seen| {
            matches!(&seen.what, Observed::Call(call) if call.action == "s3:PutObject").then_some(())
        });
        stalled.await.unwrap();
        world.lambda().kill("probe")
    };
    let ((outcome, _), killed) =
        tokio::join!(ask(&world, json!({"do": "put", "key": "allowed/a"}), 1), killed);
    assert_eq!((error_type(&outcome), killed), ("Runtime.ExitError", 1));
    let (outcome, _) = finished(&world, mark, 2).await;
    assert!(matches!(outcome, Outcome::Answered(_)), "the second try goes through: {outcome:?}");
    assert_eq!(world.client().versions(world.reference("Bucket").unwrap()).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_can_be_doubled_and_turned_around() {
    let world = probes().await;
    let mark = world.observer().mark();
    world.router().set_copies(2);
    world.router().hold();
    let first = world.upload("Bucket", "up/a/x", b"1".to_vec()).await.unwrap();
    let second = world.upload("Bucket", "up/a/x", b"2".to_vec()).await.unwrap();
    while world.router().held() < 4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.router().release(world.lambda(), true);
    assert!(world.settle(Duration::from_millis(300), PATIENCE).await);
    let versions: Vec<Value> = world
        .observer()
        .since(mark)
        .into_iter()
        .filter_map(|seen| match seen.what {
            Observed::Finished { outcome: Outcome::Answered(answer), .. } => {
                Some(answer["event"]["detail"]["object"]["version-id"].clone())
            }
            _ => None,
        })
        .collect();
    let count = |version: &String| versions.iter().filter(|seen| **seen == json!(version)).count();
    assert_eq!((count(&first), count(&second)), (2, 2), "{versions:?}");
}
