//! Events as the services send them, and what becomes of each.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use slipway_core::event::{ClusterReference, Event};
use slipway_rollout::{Given, Rollout};

use super::*;

/// As S3 sends it (Amazon S3 user guide, "EventBridge event message structure").
fn object_created(key: &str) -> Value {
    json!({
        "version": "0", "id": "17793124-05d4-b198-2fde-7ededc63b103", "detail-type": "Object Created",
        "source": "aws.s3", "account": "123456789012", "time": "2026-11-20T12:00:00Z", "region": "eu-west-1",
        "resources": ["arn:aws:s3:::specs"],
        "detail": {
            "version": "0", "bucket": {"name": "specs"},
            "object": {"key": key, "size": 5, "etag": "b1", "version-id": "v7", "sequencer": "00617F08299329D189"},
            "request-id": "N4N7GDK58NMKJ12R", "requester": "123456789012", "reason": "PutObject"
        }
    })
}

/// Of a versioned bucket, whose deletion adds a marker (same page).
fn object_deleted(key: &str) -> Value {
    json!({
        "version": "0", "id": "2ee9cc15-d022-99ea-1fb8-1b1bac4850f9", "detail-type": "Object Deleted",
        "source": "aws.s3", "account": "123456789012", "time": "2026-11-20T12:00:00Z", "region": "eu-west-1",
        "resources": ["arn:aws:s3:::specs"],
        "detail": {
            "version": "0", "bucket": {"name": "specs"},
            "object": {"key": key, "etag": "d41d8", "version-id": "v9", "sequencer": "0062E99A88DC407460"},
            "request-id": "0BH729840619AG5K", "requester": "123456789012", "reason": "DeleteObject",
            "deletion-type": "Delete Marker Created"
        }
    })
}

#[test]
fn a_scan_is_of_one_cluster_or_of_all_and_a_renewal_of_one() {
    let event = |kind: &str, detail: Value| json!({"source": "slipway", "detail-type": kind, "detail": detail, "time": "2026-11-20T12:00:00Z"});
    // As the schedule sends it.
    let daily = json!({"source": "slipway", "detail-type": "Scan Requested", "detail": {}});
    assert_eq!(to_scan(daily, now()).unwrap(), ToScan::Everything);
    let one = |asked: RenewalRequest| ToScan::Cluster { cluster: "prod".to_owned(), request: asked };
    for kind in ["Scan Requested", "Rollout Succeeded"] {
        assert_eq!(
            to_scan(event(kind, json!({"cluster": "prod", "plan": "1"})), now()).unwrap(),
            one(RenewalRequest::default())
        );
    }
    let at = Some("2026-11-20T12:00:00Z".parse().unwrap());
    let asked = json!({"cluster": "prod", "certificates": ["apiserver"]});
    let named = RenewalRequest { certificates: vec!["apiserver".to_owned()], everything: false, at };
    assert_eq!(to_scan(event("Renewal Requested", asked), now()).unwrap(), one(named));
    let everything = RenewalRequest { certificates: Vec::new(), everything: true, at };
    assert_eq!(
        to_scan(event("Renewal Requested", json!({"cluster": "prod"})), now()).unwrap(),
        one(everything)
    );
    for (kind, detail) in [
        ("Renewal Requested", json!({})),
        ("Scan Requested", json!({"cluster": "../prod"})),
        ("Scan Requested", json!({"cluster": 7})),
        ("Plan Ready", json!({"cluster": "prod"})),
    ] {
        assert_eq!(self::kind(to_scan(event(kind, detail), now())), "Slipway.Event.Malformed", "{kind}");
    }
}

/// Whoever puts it on the bus chooses its time. No certificate is newer than the year 2100, so that each retry would renew everything again.
#[test]
fn a_renewal_of_the_future_is_refused_and_one_of_a_clock_that_is_ahead_is_of_now() {
    let event = |time: &str| json!({"source": "slipway", "detail-type": "Renewal Requested", "detail": {"cluster": "prod"}, "time": time});
    let error = to_scan(event("2100-01-01T00:00:00Z"), now()).unwrap_err();
    assert!(error.to_string().contains("2100-01-01T00:00:00Z"), "{error}");
    assert_eq!(kind(Err::<(), _>(error)), "Slipway.Event.Malformed");
    let ahead = now() + CLOCKS_APART;
    let ToScan::Cluster { request, .. } = to_scan(event(&ahead.to_string()), now()).unwrap() else {
        panic!()
    };
    assert_eq!(request.at, Some(now()));
}

fn now() -> Timestamp {
    "2026-11-25T12:00:00Z".parse().unwrap()
}

#[test]
fn an_upgrade_names_kinds_of_pins_and_is_never_of_the_future() {
    let event = |time: &str, detail: Value| json!({"source": "slipway", "detail-type": "Upgrade Requested", "detail": detail, "time": time});
    let order = |event: Value| match changed(event, "specs", now()).unwrap().unwrap() {
        Changed::Pins { cluster, order } => (cluster, order),
        other @ (Changed::Spec(_) | Changed::Patches(_) | Changed::Credentials(_)) => panic!("{other:?}"),
    };
    let (cluster, all) = order(event("2026-11-25T11:00:00Z", json!({"cluster": "prod"})));
    assert_eq!((cluster.as_str(), all.pins, all.back_to), ("prod", BTreeSet::from(Pin::ALL), None));
    assert_eq!(all.at, "2026-11-25T11:00:00Z".parse().unwrap());
    let detail =
        json!({"cluster": "prod", "pins": ["images"], "backTo": "0a1b", "at": "2026-11-25T11:00:00.25Z"});
    let (_, back) = order(event("2026-11-25T11:00:00Z", detail));
    assert_eq!((back.pins, back.back_to), (BTreeSet::from([Pin::Images]), Some("0a1b".to_owned())));
    assert_eq!(back.at, "2026-11-25T11:00:00.25Z".parse().unwrap());
    let future = json!({"cluster": "prod", "at": "2100-01-01T00:00:00Z"});
    assert_eq!(order(event("2100-01-01T00:00:00Z", future)).1.at, now());
    for bad in [
        json!({"cluster": "../prod"}),
        json!({"cluster": "prod", "pins": ["image"]}),
        json!({"cluster": "prod", "backTo": "../x"}),
    ] {
        let result = changed(event("2026-11-25T11:00:00Z", bad.clone()), "specs", now());
        assert_eq!(kind(result), "Slipway.Event.Malformed", "{bad}");
    }
}

#[test]
fn renewed_certificates_are_rendered() {
    let event = |cluster: &str| json!({"source": "slipway", "detail-type": "Certificate Renewed", "detail": {"cluster": cluster}});
    let changed = changed(event("prod"), "specs", now()).unwrap();
    assert_eq!(changed, Some(Changed::Credentials("prod".to_owned())));
    assert_eq!(kind(super::changed(event("a/b"), "specs", now())), "Slipway.Event.Malformed");
}

fn kind<T: std::fmt::Debug>(result: Result<T, InvocationError>) -> String {
    result.unwrap_err().kind().to_owned()
}

#[test]
fn an_upload_is_its_folder_and_the_version_that_the_event_names() {
    let changed = changed(object_created("clusters/prod/cluster.yaml"), "specs", now()).unwrap().unwrap();
    let upload = Upload { cluster: "prod".to_owned(), version: "v7".to_owned() };
    assert_eq!(changed, Changed::Spec(upload));
}

#[test]
fn a_patch_that_comes_or_goes_is_its_cluster() {
    let patches = Some(Changed::Patches("prod".to_owned()));
    let key = "clusters/prod/patches/10-a.yaml";
    assert_eq!(changed(object_created(key), "specs", now()).unwrap(), patches);
    assert_eq!(changed(object_deleted(key), "specs", now()).unwrap(), patches);
    for other in ["clusters/prod/patches/sub/a.yaml", "clusters/prod/patches/notes.md"] {
        assert_eq!(changed(object_created(other), "specs", now()).unwrap(), None);
    }
    // Taking the spec away changes nothing that runs.
    assert_eq!(changed(object_deleted("clusters/prod/cluster.yaml"), "specs", now()).unwrap(), None);
    assert_eq!(kind(changed(object_deleted(key), "other", now())), "Slipway.Event.Malformed");
}

#[test]
fn what_is_no_spec_is_left_alone_and_what_is_no_event_is_malformed() {
    assert_eq!(changed(object_created("clusters/a/b/cluster.yaml"), "specs", now()).unwrap(), None);
    assert_eq!(
        kind(changed(object_created("clusters/a/cluster.yaml"), "other", now())),
        "Slipway.Event.Malformed"
    );
    assert_eq!(kind(changed(json!({"Records": []}), "specs", now())), "Slipway.Event.Malformed");
    assert_eq!(kind(changed(json!(null), "specs", now())), "Slipway.Event.Malformed");
    let mut unversioned = object_created("clusters/a/cluster.yaml");
    unversioned["detail"]["object"].as_object_mut().unwrap().remove("version-id");
    let failure = changed(unversioned, "specs", now()).unwrap_err();
    assert!(failure.message().contains("turn versioning on"), "{failure:?}");
}

#[test]
fn a_rollout_is_woken_by_requests_approvals_ticks_and_stacks() {
    let ours = |detail_type: &str, detail: Value| {
        woken(json!({"source": "slipway", "detail-type": detail_type, "detail": detail}))
    };
    let about = |by| Woken::Cluster(Wake { cluster: "prod".to_owned(), by });
    let named = json!({"cluster": "prod", "plan": "p1"});
    assert_eq!(ours("Rollout Requested", named.clone()).unwrap(), about(Waker::Event));
    let approves = Waker::Order { order: Order::Approve { plan: "p1".to_owned() }, at: None };
    assert_eq!(ours("Rollout Approved", named.clone()).unwrap(), about(approves));
    assert_eq!(ours("Rollout Tick", json!({"cluster": "prod"})).unwrap(), about(Waker::Tick));
    assert_eq!(kind(ours("Rollout Approved", json!({"cluster": "prod"}))), "Slipway.Event.Malformed");
    assert_eq!(kind(ours("Plan Ready", named)), "Slipway.Event.Malformed");

    let stack = |id: &str| {
        woken(json!({
            "source": "aws.cloudformation", "detail-type": "CloudFormation Stack Status Change",
            "detail": {"stack-id": id, "status-details": {"status": "CREATE_COMPLETE", "status-reason": ""}}
        }))
    };
    let id = "arn:aws:cloudformation:eu-west-1:123456789012:stack/prod-etcd/8f0a";
    assert_eq!(stack(id).unwrap(), Woken::Stack("prod-etcd".to_owned()));
    // A name of a stack is short, and each `-pool-` in it is one more cluster that it may belong to.
    let long = id.replace("etcd", &"pool-a-".repeat(20));
    for bad in ["prod-etcd", "arn:aws:cloudformation:eu-west-1:123456789012:stack/../8f0a", &long] {
        assert_eq!(kind(stack(bad)), "Slipway.Event.Malformed", "{bad}");
    }
}

/// Two orders within one second, as `slipway pause` and `slipway resume` put them on the bus and EventBridge brings them: with whole
/// seconds, and in any order.
#[test]
fn p10_of_a_pause_and_a_resume_within_one_second_the_later_holds_whichever_comes_first() {
    let brought = |event: Event| {
        let (kind, detail) = event.to_wire();
        let second = event.given_at().unwrap().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let detail: Value = serde_json::from_str(&detail).unwrap();
        json!({"source": "slipway", "detail-type": kind, "time": second, "detail": detail})
    };
    let reference = || ClusterReference { cluster: "prod".to_owned(), at: None };
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let (first, then) = (at("2026-11-22T12:00:00.5Z"), at("2026-11-22T12:00:00.7Z"));
    let is_paused = |orders: [Event; 2]| {
        let now = at("2026-11-22T12:00:02Z");
        let heard = orders.into_iter().fold(Rollout::new("prod"), |state, event| {
            let Woken::Cluster(Wake { by: Waker::Order { order, at }, .. }) = woken(brought(event)).unwrap()
            else {
                panic!("it is an order");
            };
            slipway_rollout::after_order(&state, &Given::received(order, at.unwrap(), now), None, now)
        });
        heard.paused_since().is_some()
    };
    let paused = || Event::RolloutPause(reference());
    let resumed = || Event::RolloutResume(reference());
    assert!(!is_paused([paused().given(first), resumed().given(then)]));
    assert!(!is_paused([resumed().given(then), paused().given(first)]));
    assert!(is_paused([resumed().given(first), paused().given(then)]));
    assert!(is_paused([paused().given(then), resumed().given(first)]));
}

#[test]
fn p10_what_a_detail_says_of_the_time_counts_within_seconds_of_its_event_and_no_further() {
    let at = |kind: &str, said: Value| {
        let event = json!({"source": "slipway", "detail-type": kind, "time": "2026-11-22T12:00:00Z",
            "detail": {"cluster": "prod", "at": said}});
        let Woken::Cluster(Wake { by: Waker::Order { at, .. }, .. }) = woken(event).unwrap() else {
            panic!("it is an order");
        };
        at.unwrap().to_string()
    };
    let resume = |said: &str| at("Rollout Resume", json!(said));
    assert_eq!(resume("2026-11-22T12:00:00.25Z"), "2026-11-22T12:00:00.25Z");
    assert_eq!(resume("2026-11-22T13:00:00.999999999+01:00"), "2026-11-22T12:00:00.999999999Z");
    // The event is put on the bus a moment later than it was given.
    assert_eq!(resume("2026-11-22T11:59:59.95Z"), "2026-11-22T11:59:59.95Z");
    for elsewhere in ["2026-11-22T12:00:06Z", "2026-11-22T11:59:54Z", "2026-11-22T13:00:00.25Z", "noon", ""] {
        assert_eq!(resume(elsewhere), "2026-11-22T12:00:00Z", "{elsewhere}");
        // Of a pause that says nothing of use nobody knows whether it came last: it holds.
        assert_eq!(at("Rollout Pause", json!(elsewhere)), "2026-11-22T12:00:00.999999999Z", "{elsewhere}");
    }
    for odd in [Value::Null, json!(7), json!({})] {
        assert_eq!(at("Rollout Abort", odd.clone()), "2026-11-22T12:00:00Z", "{odd}");
    }
}

#[test]
fn p10_orders_carry_the_time_at_which_they_were_put_on_the_bus() {
    let ours = |kind: &str, detail: Value| {
        woken(
            json!({"source": "slipway", "detail-type": kind, "detail": detail, "time": "2026-11-22T12:00:00Z"}),
        )
    };
    let wakes = |order| {
        let last = if order == Order::Pause { ".999999999" } else { "" };
        let at = Some(format!("2026-11-22T12:00:00{last}Z").parse().unwrap());
        Woken::Cluster(Wake { cluster: "prod".to_owned(), by: Waker::Order { order, at } })
    };
    let prod = json!({"cluster": "prod"});
    let (p1, machine) = (Some("p1".to_owned()), "i-0abc123def4567890".to_owned());
    for (kind, detail, order) in [
        ("Rollout Pause", prod.clone(), Order::Pause),
        ("Rollout Resume", prod.clone(), Order::Resume),
        ("Rollout Abort", prod.clone(), Order::Abort { plan: None }),
        ("Destroy Requested", prod.clone(), Order::Destroy { without_snapshot: false }),
        (
            "Destroy Requested",
            json!({"cluster": "prod", "withoutSnapshot": true}),
            Order::Destroy { without_snapshot: true },
        ),
        ("Rollout Abort", json!({"cluster": "prod", "plan": "p1"}), Order::Abort { plan: p1 }),
        ("Rollout Skip", json!({"cluster": "prod", "instance": machine}), Order::Skip { instance: machine }),
    ] {
        assert_eq!(ours(kind, detail).unwrap(), wakes(order), "{kind}");
    }
    for (kind, detail) in [
        ("Rollout Skip", prod),
        ("Rollout Skip", json!({"cluster": "prod", "instance": "etcd-0"})),
        ("Rollout Skip", json!({"cluster": "prod", "instance": "i-0/../../x"})),
        ("Rollout Approved", json!({"cluster": "prod", "plan": "../../other/plans/p1"})),
        ("Rollout Approved", json!({"cluster": "prod", "plan": "p".repeat(65)})),
        ("Rollout Abort", json!({"cluster": "prod", "plan": ""})),
        ("Rollout Pause", json!({})),
        ("Rollout Pause", json!({"cluster": "../prod"})),
    ] {
        assert_eq!(self::kind(ours(kind, detail)), "Slipway.Event.Malformed", "{kind}");
    }
}

/// As the user guides of Auto Scaling and Systems Manager show them.
#[test]
fn machines_and_commands_wake_and_what_cannot_be_used_wakes_nobody_and_is_no_error() {
    let told = |source: &str, kind: &str, detail: Value| {
        woken(json!({"source": source, "detail-type": kind, "detail": detail})).unwrap()
    };
    let machine = |group: Value| {
        let detail = json!({
            "LifecycleActionToken": "87654321-4321-4321-4321-210987654321", "AutoScalingGroupName": group,
            "LifecycleHookName": "terminate", "EC2InstanceId": "i-0abc123def4567890",
            "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        });
        told("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", detail)
    };
    assert_eq!(machine(json!("prod-etcd-0")), Woken::Group("prod-etcd-0".to_owned()));
    let command = |id: Value| {
        let detail = json!({
            "command-id": id, "document-name": "Slipway-Drain", "instance-id": "i-0abc123def4567890",
            "requested-date-time": "2026-11-22T12:00:00Z", "status": "Success",
        });
        told("aws.ssm", "EC2 Command Invocation Status-change Notification", detail)
    };
    let id = "e8d3c0e4-71f7-4491-898f-c9b35bee5f3b";
    assert_eq!(command(json!(id)), Woken::Command(id.to_owned()));
    for (woken, word) in [
        (machine(json!("../prod-control-plane")), "not a group of ours"),
        (machine(json!("team group_7")), "not a group of ours"),
        (machine(json!(7)), "cannot be read"),
        (command(json!("")), "not a command's id"),
        (command(Value::Null), "cannot be read"),
    ] {
        assert!(matches!(&woken, Woken::Nobody(why) if why.contains(word)), "{woken:?}");
    }
}

/// As the EC2 user guide shows it ("Spot Instance interruption notices").
fn interruption(time: Value, detail: Value) -> Woken {
    woken(json!({
        "version": "0", "id": "12345678-1234-1234-1234-123456789012", "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2", "account": "123456789012", "time": time, "region": "eu-west-1",
        "resources": ["arn:aws:ec2:eu-west-1a:instance/i-0abc123def4567890"], "detail": detail,
    }))
    .unwrap()
}

#[test]
fn p6_a_notice_of_ec2_wakes_for_the_machine_and_the_time_that_it_names() {
    let named = |instance: &str| json!({"instance-id": instance, "instance-action": "terminate"});
    let time = json!("2026-11-22T12:00:00Z");
    let (instance, at) = ("i-0abc123def4567890".to_owned(), "2026-11-22T12:00:00Z".parse().unwrap());
    let woken = Woken::Interruption(Interruption { instance: instance.clone(), at });
    assert_eq!(interruption(time.clone(), named(&instance)), woken);
    for (time, detail, word) in [
        (time.clone(), named("i-0/../../x"), "without a machine"),
        (time.clone(), named(""), "without a machine"),
        (Value::Null, named(&instance), "or a time"),
        (time, json!({}), "cannot be read"),
    ] {
        let woken = interruption(time, detail);
        assert!(matches!(&woken, Woken::Nobody(why) if why.contains(word)), "{woken:?}");
    }
    // No rule lets another event of EC2 through.
    let other =
        json!({"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {}});
    assert_eq!(kind(super::woken(other)), "Slipway.Event.Malformed");
}

#[test]
fn a_name_that_leads_out_of_the_folder_is_refused() {
    for name in ["", "../other", "a/b", "a b", &"x".repeat(65)] {
        let event = json!({"source": "slipway", "detail-type": "Rollout Tick", "detail": {"cluster": name}});
        assert_eq!(kind(woken(event)), "Slipway.Event.Malformed", "{name}");
    }
}
