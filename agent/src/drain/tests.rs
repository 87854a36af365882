//! What is read from the API server's objects, and what its refusals mean.
#![allow(clippy::unwrap_used, reason = "tests")]

use clap::Parser;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as KubePod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use slipway_core::drain::{Answer, Force, NodeState, ObjectName, Observed, Owner, Pod, Policy, Target};
use slipway_core::node::DrainRecord;

use super::observe::{Budgets, Observation, PastTries, ScaleDown, pod, sibling, state};
use super::{act, after_begin, options::Drain, remember};
use crate::failure::{AgentError, FailureCode};

fn read(metadata: &Value, spec: &Value, status: &Value) -> KubePod {
    let mut object = json!({
        "metadata": {
            "namespace": "shop", "name": "web-0", "uid": "u-1", "creationTimestamp": "2026-11-01T08:00:00Z",
            "labels": { "app": "web" },
        },
        "spec": spec, "status": status,
    });
    object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn mapped(metadata: &Value, spec: &Value, status: &Value) -> Pod {
    pod(&read(metadata, spec, status), &Budgets::new(&[]))
}

fn owned_by(kind: &str) -> Value {
    json!({ "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1" },
        { "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "2", "controller": true },
    ]})
}

#[test]
fn who_makes_a_pod_again_is_its_controller_its_kubelet_or_nobody() {
    let owner = |metadata: Value| mapped(&metadata, &json!({ "containers": [] }), &json!({})).owner;
    assert_eq!(owner(owned_by("ReplicaSet")), Owner::Controller);
    assert_eq!(owner(owned_by("StatefulSet")), Owner::Controller);
    assert_eq!(owner(owned_by("DaemonSet")), Owner::DaemonSet);
    // A static pod is owned by its node.
    let mut mirror = owned_by("Node");
    mirror["annotations"] = json!({ "kubernetes.io/config.mirror": "abc" });
    assert_eq!(owner(mirror), Owner::Kubelet);
    let not_controlled =
        json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "DaemonSet", "name": "c", "uid": "1" }] });
    assert_eq!(owner(not_controlled), Owner::Nobody);
    assert_eq!(owner(json!({})), Owner::Nobody);
}

#[test]
fn what_a_pod_loses_and_whether_it_comes_back_is_in_its_spec() {
    let spec = |spec: Value| mapped(&json!({}), &spec, &json!({}));
    let volumes = json!([{ "name": "a", "configMap": { "name": "c" } }, { "name": "b", "emptyDir": {} }]);
    assert!(spec(json!({ "containers": [], "volumes": volumes })).empty_dir);
    assert!(!spec(json!({ "containers": [] })).empty_dir);
    let tolerates =
        |toleration: Value| spec(json!({ "containers": [], "tolerations": [toleration] })).tolerates_cordon;
    let key = "node.kubernetes.io/unschedulable";
    assert!(tolerates(json!({ "operator": "Exists" })));
    assert!(tolerates(json!({ "key": key, "operator": "Exists" })));
    assert!(tolerates(json!({ "key": key, "effect": "NoSchedule" })));
    assert!(tolerates(json!({ "operator": "Exists", "effect": "NoSchedule" })));
    assert!(!tolerates(json!({ "operator": "Exists", "effect": "NoExecute" })));
    assert!(!tolerates(json!({ "key": "dedicated", "operator": "Exists" })));
    assert!(!tolerates(json!({ "key": key, "operator": "Equal", "value": "other" })));
}

#[test]
fn a_budget_selects_in_its_namespace_by_labels_and_nothing_without_a_selector() {
    let budget = |namespace: &str, name: &str, spec: Value| -> PodDisruptionBudget {
        serde_json::from_value(json!({ "metadata": { "namespace": namespace, "name": name }, "spec": spec }))
            .unwrap()
    };
    let among = json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web", "api"] }] });
    let not = json!({ "matchExpressions": [{ "key": "app", "operator": "DoesNotExist" }] });
    let all = [
        budget("shop", "by-label", json!({ "selector": { "matchLabels": { "app": "web" } } })),
        budget("shop", "by-set", json!({ "selector": among })),
        budget("shop", "all", json!({ "selector": {} })),
        budget("shop", "none", json!({})),
        budget("shop", "others", json!({ "selector": not })),
        budget("else", "all", json!({ "selector": {} })),
    ];
    let found = pod(&read(&json!({}), &json!({ "containers": [] }), &json!({})), &Budgets::new(&all));
    let names: Vec<_> = found.budgets.iter().map(|budget| budget.name.as_str()).collect();
    assert_eq!(names, ["all", "by-label", "by-set"]);
}

#[test]
fn a_sibling_is_as_its_ready_condition_says_and_since_then() {
    let ready = |status: &str| {
        let conditions = json!([
            { "type": "Initialized", "status": "True", "lastTransitionTime": "2026-11-01T08:00:01Z" },
            { "type": "Ready", "status": status, "lastTransitionTime": "2026-11-02T08:00:00Z" },
        ]);
        json!({ "phase": "Running", "conditions": conditions })
    };
    let of = |metadata: Value, status: Value| {
        let found = sibling(&read(&metadata, &json!({ "containers": [] }), &status))?;
        Some((found.healthy, found.since.to_string()))
    };
    let since = |at: &str| at.to_owned();
    assert_eq!(of(json!({}), ready("True")), Some((true, since("2026-11-02T08:00:00Z"))));
    assert_eq!(of(json!({}), ready("False")), Some((false, since("2026-11-02T08:00:00Z"))));
    assert_eq!(of(json!({}), json!({ "phase": "Pending" })), Some((false, since("2026-11-01T08:00:00Z"))));
    let going = json!({ "deletionTimestamp": "2026-11-03T08:00:30Z", "deletionGracePeriodSeconds": 30 });
    assert_eq!(of(going, ready("True")), Some((false, since("2026-11-03T08:00:00Z"))));
    assert_eq!(of(json!({}), json!({ "phase": "Succeeded" })), None);
}

#[test]
fn refusals_are_told_apart() {
    let error = |code: u16, message: &str, cause: Option<&str>| {
        let causes: Vec<_> = cause.iter().map(|reason| json!({ "reason": reason, "message": "m" })).collect();
        let status = json!({
            "status": "Failure", "code": code, "message": message, "reason": "r", "details": { "causes": causes },
        });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    };
    let refused = |words: &str| Ok(Some(Answer::Refused(words.to_owned())));
    let two =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let would = "Cannot evict pod as it would violate the pod's disruption budget.";
    assert_eq!(act::refusal(&error(429, would, Some("DisruptionBudget"))), Ok(Some(Answer::Budget)));
    // The API server itself has too much to do: that is no budget's word, and no ground for force.
    assert_eq!(act::refusal(&error(429, "too many requests", None)), refused("too many requests"));
    assert_eq!(act::refusal(&error(500, two, None)), Ok(Some(Answer::TwoBudgets)));
    assert_eq!(act::refusal(&error(500, "a webhook failed", None)), refused("a webhook failed"));
    assert_eq!(act::refusal(&error(409, "another UID", None)), refused("another UID"));
    assert_eq!(act::refusal(&kube::Error::LinesCodecMaxLineLengthExceeded), Err(()));
    assert_eq!(act::refusal(&error(404, "not found", None)), Ok(None));
    assert_eq!(act::refusal(&error(403, "denied by a webhook", None)), refused("denied by a webhook"));
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    drain: Drain,
}

#[test]
fn without_a_word_nothing_is_forced_and_with_one_the_rules_are_zalandos() {
    let policy = |words: &[&str]| {
        let line = Line::try_parse_from([&["drain"], words].concat());
        line.map(|line| line.drain.policy()).map_err(|error| error.to_string())
    };
    assert_eq!(policy(&["node-1"]), Ok(Policy::with(None)));
    assert_eq!(policy(&["node-1", "--force-after", "never"]), Ok(Policy::with(None)));
    let hour = Force::after(jiff::SignedDuration::from_secs(3600));
    assert_eq!(policy(&["node-1", "--force-after", "3600"]), Ok(Policy::with(Some(hour))));
    for bad in [
        &["-x"] as &[&str],
        &["../../namespaces/kube-system"],
        &["node-1?x"],
        &["Node"],
        &["a."],
        &[""],
        &["node-1", "--for", "0"],
        &["node-1", "--force-after", "soon"],
        &["node-1", "--force-after", "-1"],
    ] {
        assert!(policy(bad).is_err(), "{bad:?}");
    }
}

/// The node controller writes `Unknown`, and the kubelet `False`; both write when it began.
#[test]
fn a_kubelet_that_is_silent_is_told_from_one_that_can_run_no_pods() {
    let ready = |status: &str| {
        let at = "2026-11-01T08:00:00Z";
        let conditions = json!([
            { "type": "MemoryPressure", "status": status, "lastTransitionTime": "2026-11-01T01:00:00Z" },
            { "type": "Ready", "status": status, "lastTransitionTime": at },
        ]);
        let node =
            json!({ "metadata": { "name": "i-1" }, "spec": {}, "status": { "conditions": conditions } });
        let state = state(&serde_json::from_value(node).unwrap()).unwrap();
        let text = |since: Option<Timestamp>| since.map(|since| since.to_string());
        (text(state.silent), text(state.unable))
    };
    let since = Some("2026-11-01T08:00:00Z".to_owned());
    assert_eq!(ready("True"), (None, None));
    assert_eq!(ready("Unknown"), (since.clone(), None));
    assert_eq!(ready("False"), (None, since));
}

const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
const OURS: &str = "slipway/scale-down-disabled";

fn scale_down(annotations: &Value) -> ScaleDown {
    let node = json!({ "metadata": { "name": "i-1", "annotations": annotations } });
    ScaleDown::from_node(&serde_json::from_value(node).unwrap())
}

#[test]
fn a_drain_keeps_the_cluster_autoscaler_away_unless_somebody_else_has_written_that_annotation() {
    let begin = |annotations: Value| {
        let scene = Observation {
            observed: Observed::default(),
            node: "i-1".to_owned(),
            version: Some("7".to_owned()),
            not_ready: None,
            scale_down: scale_down(&annotations),
        };
        act::cordoned(&scene, "2026-11-01T08:00:00Z".parse().unwrap())
    };
    let both = json!({
        "slipway/drain-started": "2026-11-01T08:00:00Z", DISABLED: "true", OURS: "true", "slipway/was-cordoned": null,
    });
    for before in [json!({}), json!({ DISABLED: "true", OURS: "true" }), json!({ "other": "x" })] {
        let patch = begin(before);
        assert_eq!(patch["metadata"]["annotations"], both);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["unschedulable"], true);
    }
    for of_a_person in ["true", "false"] {
        let patch = begin(json!({ DISABLED: of_a_person }));
        let annotations =
            json!({ "slipway/drain-started": "2026-11-01T08:00:00Z", "slipway/was-cordoned": null });
        assert_eq!(patch["metadata"]["annotations"], annotations, "{of_a_person}");
    }
}

#[test]
fn whoever_uncordons_removes_the_annotation_for_the_autoscaler_only_where_a_drain_wrote_it() {
    let removed = |annotations: Value| {
        let patch = act::uncordoned(scale_down(&annotations), false);
        assert!(patch["spec"]["unschedulable"].is_null());
        patch["metadata"]["annotations"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let own = ["slipway/drain-started", "slipway/last-forced", "slipway/was-cordoned"];
    assert_eq!(removed(json!({})), own);
    assert_eq!(removed(json!({ DISABLED: "true" })), own);
    let mut all = removed(json!({ DISABLED: "true", OURS: "true" }));
    all.sort();
    assert_eq!(all, [DISABLED, own[0], own[1], OURS, own[2]]);
}

/// A rollout that is aborted lets pods come again, but not to a node that a person had cordoned for a reason of their own.
#[test]
fn p10_a_node_that_a_person_had_cordoned_stays_cordoned_after_a_drain() {
    let began = "2026-11-01T07:00:00Z".parse().ok();
    for (cordoned, started, marks) in [
        (true, None, json!("true")),
        // A drain has cordoned it, or a person did before that: what is marked stays.
        (true, began, Value::Null),
        (false, None, Value::Null),
        (false, began, Value::Null),
    ] {
        let node = NodeState { cordoned, started, ..NodeState::default() };
        let scene = Observation {
            observed: Observed { node, ..Observed::default() },
            node: "i-1".to_owned(),
            version: None,
            not_ready: None,
            scale_down: ScaleDown::Unset,
        };
        let patch = act::cordoned(&scene, "2026-11-01T08:00:00Z".parse().unwrap());
        let annotations = patch["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.get("slipway/was-cordoned").is_none(), cordoned && started.is_some());
        assert_eq!(annotations.get("slipway/was-cordoned").cloned().unwrap_or_default(), marks);
    }
    let stays = |was_cordoned| act::uncordoned(ScaleDown::Unset, was_cordoned).get("spec").is_none();
    assert_eq!((stays(true), stays(false)), (true, false));
}

#[test]
fn a_drain_that_another_writer_forestalled_tries_again_after_a_second_and_not_at_once() {
    let now: Timestamp = "2026-11-01T08:00:00Z".parse().unwrap();
    assert_eq!(after_begin(true, now), now);
    assert_eq!(after_begin(false, now).to_string(), "2026-11-01T08:00:01Z");
}

fn target(name: &str, uid: &str) -> Target {
    Target { name: ObjectName { namespace: "shop".to_owned(), name: name.to_owned() }, uid: uid.to_owned() }
}

#[test]
fn p6_of_two_drains_that_looked_at_the_same_node_one_forces_a_pod() {
    let looked = Observation {
        observed: Observed::default(),
        node: "i-1".to_owned(),
        version: Some("7".to_owned()),
        not_ready: None,
        scale_down: ScaleDown::Unset,
    };
    let patch = act::forced(&looked, "2026-11-01T08:00:00Z".parse().unwrap());
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(patch["metadata"]["annotations"], json!({ "slipway/last-forced": "2026-11-01T08:00:00Z" }));
}

#[test]
fn p6_the_successor_of_a_pod_that_has_its_name_is_not_evicted() {
    let eviction = serde_json::to_value(act::eviction(&target("web-0", "u-1"))).unwrap();
    assert_eq!(eviction["metadata"], json!({ "namespace": "shop", "name": "web-0" }));
    assert_eq!(eviction["deleteOptions"]["preconditions"], json!({ "uid": "u-1" }));
}

#[test]
fn an_eviction_that_was_accepted_counts_although_another_one_got_no_answer() {
    let now = "2026-11-01T08:00:00Z".parse().unwrap();
    let silent = AgentError::transient(FailureCode::KubernetesUnavailable, "no answer", "");
    let answers = vec![
        (target("web-0", "u-0"), Err(silent)),
        (target("web-1", "u-1"), Ok(Some(Answer::Accepted))),
        (target("web-2", "u-2"), Ok(None)),
        (target("web-3", "u-3"), Ok(Some(Answer::Budget))),
    ];
    let (mut tries, mut record) = (PastTries::default(), DrainRecord::new("i-1"));
    assert_eq!(remember(answers, now, &mut tries, &mut record).unwrap_err().message, "no answer");
    assert_eq!(record.answer(false).evicted.last, ["shop/web-1"]);
    assert_eq!(tries.uids(), ["u-1", "u-3"]);
}
