//! Drains: budgets are kept, an interrupted drain continues, and force is used only if all of its rules hold.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_node::failure::{AgentError, FailureCode};
use slipway_tests::kubernetes::Kubernetes;
use slipway_tests::workshop::example;

use super::fleet::Fleet;

const SHOP: &str = "shop";
const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

async fn ask(cluster: &Kubernetes, words: &str) -> Result<Value, AgentError> {
    let mut line = vec!["--root", cluster.root().to_str().unwrap()];
    line.extend(words.split(' '));
    slipway_node::answer(&line).await
}

fn template(app: &str, more: &Value) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": false,
        "containers": [{ "name": "main", "image": "example.com/none:1" }],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "metadata": { "labels": { "app": app } }, "spec": spec })
}

async fn deployment(fleet: &Fleet, app: &str, replicas: usize, more: &Value) {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": app },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": app } },
            "template": template(app, more),
        },
    });
    fleet.make(&format!("/apis/apps/v1/namespaces/{SHOP}/deployments"), &object).await;
}

async fn budget(fleet: &Fleet, name: &str, app: &str, rule: &Value) {
    let mut spec = json!({ "selector": { "matchLabels": { "app": app } } });
    spec.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
    let object = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name }, "spec": spec,
    });
    fleet.make(&format!("/apis/policy/v1/namespaces/{SHOP}/poddisruptionbudgets"), &object).await;
}

async fn cordon(fleet: &Fleet, node: &str, cordoned: bool) {
    let change = json!({ "spec": { "unschedulable": cordoned } });
    let answer = fleet.caller.merge(&format!("/api/v1/nodes/{node}"), &change).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Waits until all pods of the namespace are on `from` and ready; then `to` is opened, too.
async fn settled(fleet: &Fleet, apps: &[(&str, usize)], from: &str, to: &str) {
    for (app, replicas) in apps {
        fleet.watch(SHOP, app, *replicas).await.end().await;
        for pod in fleet.pods(SHOP, Some(app)).await {
            assert_eq!(pod["spec"]["nodeName"], from, "{app}");
        }
    }
    cordon(fleet, to, false).await;
}

async fn shop(fleet: &Fleet, closed: &str) {
    cordon(fleet, closed, true).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SHOP } });
    fleet.make("/api/v1/namespaces", &namespace).await;
    let account = format!("/api/v1/namespaces/{SHOP}/serviceaccounts/default");
    fleet
        .until("there is a service account", async || fleet.caller.get(&account).await.unwrap().status == 200)
        .await;
}

fn annotation(node: &Value, key: &str) -> Option<String> {
    node["metadata"]["annotations"][key].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn p6_a_drain_keeps_every_budget_goes_on_where_it_was_killed_and_ends() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let fleet = Fleet::start(&cluster, &["old", "new"]).await;
    shop(&fleet, "new").await;
    deployment(&fleet, "web", 6, &json!({})).await;
    budget(&fleet, "web", "web", &json!({ "minAvailable": 5 })).await;
    let scratch = json!({ "volumes": [{ "name": "scratch", "emptyDir": {} }] });
    deployment(&fleet, "api", 4, &scratch).await;
    budget(&fleet, "api", "api", &json!({ "maxUnavailable": "25%" })).await;
    deployment(&fleet, "free", 2, &json!({})).await;
    let daemon = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "daemon" },
        "spec": { "selector": { "matchLabels": { "app": "daemon" } }, "template": template("daemon", &json!({})) },
    });
    fleet.make(&format!("/apis/apps/v1/namespaces/{SHOP}/daemonsets"), &daemon).await;
    for (name, annotations) in
        [("bare", json!({})), ("mirror", json!({ "kubernetes.io/config.mirror": "x" }))]
    {
        let mut pod = template(name, &json!({ "nodeName": "old" }));
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["annotations"] = annotations;
        fleet.make(&format!("/api/v1/namespaces/{SHOP}/pods"), &pod).await;
    }
    settled(&fleet, &[("web", 6), ("api", 4), ("free", 2)], "old", "new").await;
    let watches = [fleet.watch(SHOP, "web", 6).await, fleet.watch(SHOP, "api", 4).await];

    // The agent is killed repeatedly at any point; it remembers only what is stored on the node.
    let mut started = None;
    for life in 0..40 {
        let asked =
            tokio::time::timeout(Duration::from_millis(400 + 130 * life), ask(&cluster, "drain old")).await;
        if let Ok(answer) = asked {
            answer.unwrap();
            break;
        }
        let node = fleet.node("old").await;
        assert_eq!(node["spec"]["unschedulable"], true);
        let said = annotation(&node, "slipway/drain-started").unwrap();
        assert_eq!(started.get_or_insert(said.clone()), &said, "the deadlines count from the first drain");
        assert_eq!(annotation(&node, SCALE_DOWN_DISABLED).as_deref(), Some("true"));
    }
    assert!(started.is_some(), "it was never killed");
    // A drain that has nothing to do says so, too.
    let answer = ask(&cluster, "drain old --for 60").await.unwrap();
    assert_eq!((&answer["done"], &answer["waiting"]), (&json!(true), &json!([])), "{answer}");
    assert_eq!(answer["skipped"], json!({ "daemon-set": 1, "mirror": 1 }), "{answer}");
    assert_eq!(answer["since"].as_str(), started.as_deref());

    let [web, api] = watches;
    let (web, api) = (web.end().await, api.end().await);
    assert_eq!(
        (web.least, api.least),
        (5, 3),
        "one pod of each application at a time, and never below a budget"
    );
    assert!(web.looks > 50, "{web:?}");
    let left = fleet.on("old").await;
    assert!(left.len() == 2 && left.contains("mirror"), "{left:?}");
    assert!(fleet.node("old").await["metadata"]["annotations"]["slipway/last-forced"].is_null());
    for (app, replicas) in [("web", 6), ("api", 4), ("free", 2)] {
        let pods = fleet.pods(SHOP, Some(app)).await;
        assert_eq!(pods.len(), replicas, "{app}");
        assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] == "new"), "{app}");
    }

    let answer = ask(&cluster, "uncordon old").await.unwrap();
    assert_eq!(answer, json!({ "node": "old", "cordoned": false }));
    let node = fleet.node("old").await;
    assert!(node["spec"]["unschedulable"].is_null(), "{node}");
    assert_eq!(annotation(&node, "slipway/drain-started"), None);
    assert_eq!(annotation(&node, SCALE_DOWN_DISABLED), None);

    // A setting of a person for the cluster autoscaler stays.
    let kept = json!({ "metadata": { "annotations": { SCALE_DOWN_DISABLED: "true" } } });
    assert_eq!(fleet.caller.merge("/api/v1/nodes/old", &kept).await.unwrap().status, 200);
    ask(&cluster, "drain old --for 60").await.unwrap();
    ask(&cluster, "uncordon old").await.unwrap();
    let node = fleet.node("old").await;
    assert_eq!(annotation(&node, SCALE_DOWN_DISABLED).as_deref(), Some("true"));
    assert_eq!(annotation(&node, "slipway/scale-down-disabled"), None);
    let failure = ask(&cluster, "drain nowhere").await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::DrainNoNode, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn p6_force_fires_when_all_of_its_rules_hold_and_a_pod_with_two_budgets_is_named() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let fleet = Fleet::start(&cluster, &["old", "new"]).await;
    shop(&fleet, "new").await;
    deployment(&fleet, "stuck", 2, &json!({})).await;
    budget(&fleet, "stuck", "stuck", &json!({ "minAvailable": 2 })).await;
    deployment(&fleet, "twice", 1, &json!({})).await;
    budget(&fleet, "one", "twice", &json!({ "maxUnavailable": 1 })).await;
    budget(&fleet, "two", "twice", &json!({ "maxUnavailable": 1 })).await;
    settled(&fleet, &[("stuck", 2), ("twice", 1)], "old", "new").await;

    // If the spec does not allow force, nothing is forced, and the answer names what blocks the drain.
    let answer = ask(&cluster, "drain old --for 12").await.unwrap();
    assert_eq!(answer["done"], false);
    let waiting = answer["waiting"].as_array().unwrap();
    let causes: Vec<_> = waiting.iter().map(|one| one["cause"].as_str().unwrap()).collect();
    assert_eq!(causes.iter().filter(|cause| **cause == "two-budgets").count(), 1, "{answer}");
    assert_eq!(waiting.len(), 3, "{answer}");
    let why = |cause: &str| {
        let found = waiting.iter().find(|one| one["cause"] == cause);
        found.unwrap_or_else(|| panic!("no {cause} in {answer}"))["why"].as_str().unwrap()
    };
    assert!(why("two-budgets").contains("(shop/one and shop/two)"), "{answer}");
    assert!(
        why("budget").contains("shop/stuck allows no eviction now: 2 of its 2 pods are healthy"),
        "{answer}"
    );
    let pods = fleet.pods(SHOP, None).await;
    assert_eq!(pods.len(), 3);
    assert!(pods.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null()));

    // A new drain, because deadlines count from its beginning.
    ask(&cluster, "uncordon old").await.unwrap();
    let watches = [fleet.watch(SHOP, "stuck", 2).await, fleet.watch(SHOP, "twice", 1).await];
    let begun = Timestamp::now();
    let rules =
        "--force-after 14 --force-pod-age 5 --force-healthy 6 --force-unhealthy 600 --force-interval 9";
    // Killed every few seconds: neither the age of the drain nor the interval starts from the beginning.
    let mut lives = 0;
    let answer = loop {
        lives += 1;
        assert!(lives < 20, "it does not end");
        let words = format!("drain old {rules}");
        let asked = ask(&cluster, &words);
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(6300), asked).await {
            break answer.unwrap();
        }
    };
    assert!(lives > 2, "it was hardly killed");
    assert_eq!(answer["done"], true, "{answer}");
    let [stuck, twice] = watches;
    let (stuck, twice) = (stuck.end().await, twice.end().await);
    let mut forced: Vec<_> = stuck.ending.values().chain(twice.ending.values()).copied().collect();
    forced.sort();
    assert_eq!(forced.len(), 3, "{stuck:?} {twice:?}");
    let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
    assert!(seconds(begun, forced[0]) >= 14.0, "the first came too early: {forced:?}");
    for pair in forced.windows(2) {
        // An observation is later than the deletion, by one poll and one call.
        assert!(
            seconds(pair[0], pair[1]) >= 8.0,
            "two pods were forced too soon after each other: {forced:?}"
        );
    }
    assert_eq!(stuck.least, 1, "one at a time");
    assert!(annotation(&fleet.node("old").await, "slipway/last-forced").is_some());
    assert!(fleet.on("old").await.is_empty());
}
