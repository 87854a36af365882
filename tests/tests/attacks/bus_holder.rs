//! Somebody who may put events on the bus, and the functions themselves.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use slipway_core::keys;
use slipway_flows::rendering::RenderOutcome;
use slipway_rollout::{Given, Order, Rollout, after_order};
use slipway_tests::client::{ACCOUNT, Client};
use slipway_tests::gateway::Principal;
use slipway_tests::iam;
use slipway_tests::observe::{Observed, PATIENCE};
use slipway_tests::workshop::{Workshop, example};

use crate::{installation, is_allowed, request, role};

/// The orders of people.
const ORDERS: [&str; 6] = [
    "Rollout Approved",
    "Rollout Pause",
    "Rollout Resume",
    "Rollout Abort",
    "Rollout Skip",
    "Destroy Requested",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_function_may_approve_a_plan_or_destroy_a_cluster() {
    let world = installation().await;
    for id in ["RenderRole", "RolloutRole", "ScanRole"] {
        let may = |bus: &str, kind: &str| {
            let context = [("events:source", "slipway"), ("events:detail-type", kind)];
            let asked = request("events:PutEvents", &world.deployed().arns[bus], &context);
            is_allowed(&iam::decide(role(&world, id), &asked))
        };
        for order in ORDERS {
            assert!(!may("Bus", order) && !may("DestroyBus", order), "{id}: {order}");
        }
        assert!(!may("DestroyBus", "Plan Ready"), "{id}");
    }
    let may = |id: &str, kind: &str| {
        let context = [("events:source", "slipway"), ("events:detail-type", kind)];
        is_allowed(&iam::decide(
            role(&world, id),
            &request("events:PutEvents", &world.deployed().arns["Bus"], &context),
        ))
    };
    assert!(may("RenderRole", "Plan Ready") && may("ScanRole", "Certificate Renewed"));
    assert!(may("RolloutRole", "Rollout Succeeded"));
    assert!(!may("RenderRole", "Rollout Succeeded") && !may("ScanRole", "Plan Ready"));
    // One call may carry several events, and then has several values of each key.
    let may = |kinds: &[&str]| {
        let context: Vec<(&str, &str)> = kinds
            .iter()
            .flat_map(|kind| [("events:source", "slipway"), ("events:detail-type", *kind)])
            .collect();
        let asked = request("events:PutEvents", &world.deployed().arns["Bus"], &context);
        is_allowed(&iam::decide(role(&world, "RenderRole"), &asked))
    };
    assert!(may(&["Plan Ready", "Rollout Requested"]));
    assert!(!may(&["Plan Ready", "Rollout Approved"]), "an order among events of its own");
    assert!(!may(&[]), "neither key");
}

/// Whoever may publish on the bus `slipway`, with any detail-type, wakes nobody by an order to destroy.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_to_destroy_counts_only_on_a_bus_of_its_own() {
    let world = installation().await;
    let statements = iam::parse(&json!({"Statement": [{
        "Sid": "Bus", "Effect": "Allow", "Action": "events:PutEvents", "Resource": world.deployed().arns["Bus"],
    }]}))
    .unwrap();
    let arn = format!("arn:aws:iam::{ACCOUNT}:role/chat");
    world.gateway().know("AKIACHAT", Principal { name: "chat".to_owned(), arn, statements });
    let chat = Client::new(world.gateway().url(), world.region(), "AKIACHAT");
    let put = async |bus: &str| {
        let entry = json!({
            "EventBusName": bus, "Source": "slipway", "DetailType": "Destroy Requested",
            "Detail": json!({"cluster": "minimal"}).to_string(),
        });
        chat.json("events", "AWSEvents.PutEvents", json!({"Entries": [entry]})).await
    };
    let mark = world.observer().mark();
    put("slipway").await.unwrap();
    let denied = put("slipway-destroy").await.unwrap_err();
    assert!(format!("{denied:?}").contains("AccessDenied"), "{denied:?}");
    assert!(world.settle(Duration::from_millis(400), PATIENCE).await);
    let woken = world
        .observer()
        .since(mark)
        .into_iter()
        .any(|seen| matches!(seen.what, Observed::Routed { .. } | Observed::Started(_)));
    assert!(!woken, "a function was woken");
    // With the permission for the other bus it does wake the rollout function.
    let operator = world.client();
    let entry = json!({
        "EventBusName": "slipway-destroy", "Source": "slipway", "DetailType": "Destroy Requested",
        "Detail": json!({"cluster": "minimal"}).to_string(),
    });
    operator.json("events", "AWSEvents.PutEvents", json!({"Entries": [entry]})).await.unwrap();
    let routed = world.observer().wait(mark, PATIENCE, |seen| match &seen.what {
        Observed::Routed { rule, .. } => Some(rule.clone()),
        _ => None,
    });
    assert!(routed.await.unwrap().contains("AskedToDestroy"));
}

/// Even with the permission for that bus.
#[tokio::test]
async fn an_order_to_destroy_a_protected_cluster_is_not_obeyed() {
    let text = example("minimal");
    let protected = format!("{text}\ndeletionProtection: true\n");
    let workshop = Workshop::launched(&text).await;
    let destroyed = |now: Timestamp| {
        let state: Rollout = workshop.read(&keys::rollout(&workshop.name)).unwrap();
        let order = Order::Destroy { without_snapshot: true };
        let next = after_order(&state, &Given::received(order, now, now), workshop.desired().as_ref(), now);
        (next.is_going(), next.ignored)
    };
    assert!(destroyed(workshop.now).0, "not protected");
    // It is nothing that a plan would bring, and counts nevertheless.
    let outcome = workshop.outcome(&protected).await;
    assert!(matches!(outcome, RenderOutcome::Unchanged), "{outcome:?}");
    let (going, ignored) = destroyed(workshop.now);
    let ignored = ignored.unwrap();
    assert!(!going && ignored.message.contains("deletionProtection"), "{ignored:?}");
    assert!(ignored.help.contains("upload a spec without"), "{ignored:?}");
    // And it is taken off in the same way.
    let outcome = workshop.outcome(&text).await;
    assert!(matches!(outcome, RenderOutcome::Unchanged), "{outcome:?}");
    assert!(destroyed(workshop.now).0);
}
