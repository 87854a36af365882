//! The bus of another account. Here it is a bus of the same account: moto's accounts are told apart by access keys, and the policies are
//! judged as for another account, by its number.

use slipway_tests::iam::{self, Decision, Request};
use slipway_tests::observe::Observed;

use super::*;

/// What people and functions ask of Slipway. Nobody in another account has a use for it.
const ORDERS: [&str; 10] = [
    "Destroy Requested",
    "Renewal Requested",
    "Rollout Abort",
    "Rollout Approved",
    "Rollout Pause",
    "Rollout Requested",
    "Rollout Resume",
    "Rollout Skip",
    "Scan Requested",
    "Upgrade Requested",
];

#[tokio::test]
async fn every_event_is_an_order_or_is_sent_to_the_other_account() {
    let template = translate(&path("account")).await.unwrap();
    let mut found = kinds(&template, &template["Resources"]["Rule"]);
    found.extend(ORDERS.map(str::to_owned));
    found.sort();
    assert_eq!(found, schemas().into_keys().collect::<Vec<_>>());
}

/// Whoever may send in the installation's account chooses the kinds of events. An order would be obeyed where a function listens to that bus.
#[tokio::test]
async fn the_bus_of_the_other_account_takes_reports_and_no_order() {
    let template = translate(&path("account-bus")).await.unwrap();
    let statement = &template["Resources"]["BusPolicy"]["Properties"]["Statement"];
    let document = json!({ "Statement": [{
        "Sid": "Bus", "Effect": "Allow", "Action": statement["Action"], "Resource": "*", "Condition": statement["Condition"],
    }] });
    let statements = iam::parse(&document).unwrap();
    let takes = |kinds: &[&str]| {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let context = [("events:source", vec!["slipway".to_owned()]), ("events:detail-type", kinds)];
        let asked = Request {
            action: "events:PutEvents".to_owned(),
            resource: "*".to_owned(),
            context: context.map(|(key, values)| (key.to_owned(), values)).into(),
        };
        matches!(iam::decide(&statements, &asked), Decision::Allowed(_))
    };
    for order in ORDERS {
        assert!(!takes(&[order]) && !takes(&["Rollout Step", order]), "{order}");
    }
    assert!(!takes(&["Object Created"]));
    let sent = translate(&path("account")).await.unwrap();
    for report in kinds(&sent, &sent["Resources"]["Rule"]) {
        assert!(takes(&[&report]), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_come_to_the_bus_of_the_other_account_and_orders_do_not() {
    let world = world().await;
    let there = deployed(&world, "account-bus", &[], &[]).await;
    let arn = &there.deployed.outputs["BusArn"];
    assert_eq!(*arn, parameters("account")[0].1, "the test names that bus");
    let here = deployed(&world, "account", &[], &[]).await;
    let queue = there.deployed.taps.iter().find(|(bus, _)| bus == "slipway-events").unwrap().1.clone();
    for kind in ["Rollout Approved", "Destroy Requested", "Rollout Pause", "Rollout Step"] {
        world.client().put_event("slipway", &event(kind)).await.unwrap();
    }
    let came = taken(world.client(), &queue, 1).await;
    let came: Vec<Value> = came.iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    assert_eq!(came.len(), 1, "{came:?}");
    assert_eq!(came[0]["detail-type"], "Rollout Step");
    assert_eq!((&came[0]["source"], &came[0]["detail"]), (&json!("slipway"), &event("Rollout Step").detail));
    assert_eq!(world.client().depth(&here.deployed.references["DeadLetters"]).await.unwrap(), 0);
    assert!(world.settle(Duration::from_millis(400), PATIENCE).await);
    let seen = world.observer().since(0).into_iter();
    let seen =
        seen.filter(|seen| matches!(&seen.what, Observed::Event { bus, .. } if bus == "slipway")).count();
    assert_eq!(seen, 4, "the router shows what is on the first bus");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_knows_another_sender_takes_nothing() {
    let world = world().await;
    let other = [("SenderAccount", "210987654321")];
    world.deploy_beside(&path("account-bus"), "account-bus", &other, &[]).await.unwrap();
    let here = deployed(&world, "account", &[], &[]).await;
    world.client().put_event("slipway", &event("Rollout Failed")).await.unwrap();
    let (letter, reason) = dead_letter(&world, &here).await;
    assert_eq!(letter["detail-type"], "Rollout Failed");
    assert!(reason.contains("does not let"), "{reason}");
}
