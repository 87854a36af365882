//! SNS.

use slipway_tests::iam::{Decision, Request, decide_for};

use super::*;

/// The event inside of what SNS gives to a queue.
fn published(body: &str) -> Value {
    let envelope: Value = serde_json::from_str(body).unwrap();
    serde_json::from_str(envelope["Message"].as_str().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_ask_for_a_person_come_to_the_topic_and_others_do_not() {
    let world = world().await;
    let stack = deployed(&world, "sns", &[("Email", "ops@example.com")], &[]).await;
    let topic = &stack.deployed.outputs["TopicArn"];
    let queue = subscribed(&world, topic).await;
    let template = translate(&path("sns")).await.unwrap();
    let mut wanted = kinds(&template, &template["Resources"]["Rule"]);
    for kind in schemas().keys() {
        world.client().put_event("slipway", &event(kind)).await.unwrap();
    }
    // Somebody else's event of the same kind.
    let others = Event { source: "somebody".to_owned(), ..event("Rollout Failed") };
    world.client().put_event("slipway", &others).await.unwrap();
    let last = Event { detail: json!({"last": true}), ..event("Rollout Failed") };
    world.client().put_event("slipway", &last).await.unwrap();
    let events: Vec<Value> =
        taken(world.client(), &queue, wanted.len() + 1).await.iter().map(|body| published(body)).collect();
    assert_eq!(events.last().unwrap()["detail"], last.detail, "the queue has one message more or less");
    let mut found: Vec<_> = events[..wanted.len()]
        .iter()
        .map(|event| event["detail-type"].as_str().unwrap().to_owned())
        .collect();
    for seen in &events[..wanted.len()] {
        assert_eq!(seen["source"], "slipway");
        assert_eq!(seen["detail"], event(seen["detail-type"].as_str().unwrap()).detail);
    }
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    assert_eq!(world.client().depth(&stack.deployed.references["DeadLetters"]).await.unwrap(), 0);
}

/// EventBridge brings no condition keys to a topic or its key, so each of these is how such a template silently delivers nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_let_eventbridge_in_receives_nothing() {
    let condition =
        "\n            Condition: { StringEquals: { \"aws:SourceAccount\": !Ref AWS::AccountId } }";
    let publish = "            Principal: { Service: events.amazonaws.com }\n            Action: sns:Publish\n            Resource: !Ref Topic";
    let encrypt = "            Principal: { Service: events.amazonaws.com }\n            Action: [kms:Decrypt, kms:GenerateDataKey]\n            Resource: \"*\"";
    for (part, why) in [(publish, "sns:Publish"), (encrypt, "kms:GenerateDataKey")] {
        let world = world().await;
        let stack = broken(&world, "sns", part, &format!("{part}{condition}"), &[]).await;
        let queue = subscribed(&world, &stack.deployed.outputs["TopicArn"]).await;
        world.client().put_event("slipway", &event("Rollout Failed")).await.unwrap();
        let (letter, reason) = dead_letter(&world, &stack).await;
        assert_eq!(letter["detail-type"], "Rollout Failed");
        assert!(reason.contains(why), "{reason}");
        assert_eq!(world.client().depth(&queue).await.unwrap(), 0);
    }
}

/// CloudWatch's alarms of the installation may come into the same topic.
#[tokio::test(flavor = "multi_thread")]
async fn alarms_of_this_account_may_be_published_and_those_of_others_not() {
    let world = world().await;
    let stack = deployed(&world, "sns", &[], &[]).await;
    let topic = &stack.deployed.outputs["TopicArn"];
    let key = world.gateway().key_of(topic).unwrap();
    for (arn, action) in [(topic, "sns:Publish"), (&key, "kms:GenerateDataKey"), (&key, "kms:Decrypt")] {
        let policy = world.gateway().policy_of(arn).unwrap();
        let asked = |account: &str| {
            let context = [("aws:sourceaccount", account), ("aws:securetransport", "true")];
            let context = context.map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
            let request =
                Request { action: action.to_owned(), resource: arn.clone(), context: context.into() };
            matches!(decide_for(&policy, "service:cloudwatch.amazonaws.com", &request), Decision::Allowed(_))
        };
        assert!(asked(ACCOUNT) && !asked("210987654321"), "{action}");
    }
}
