//! Faults of the rollout function: how a rollout ends, and how it recovers.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use slipway_tests::client::Event;
use slipway_tests::gateway::{Effect, Fault, Refusal};
use slipway_tests::installation::Installation;
use slipway_tests::observe::{Observed, Outcome, PATIENCE};
use slipway_tests::tools;
use slipway_tests::world::Settings;

const QUIET: Duration = Duration::from_millis(500);

fn spec_of(cluster: &str) -> String {
    let spec = std::fs::read_to_string(tools::root().join("examples/minimal.yaml")).unwrap();
    let spec = spec.replace("clusterName: minimal", &format!("clusterName: {cluster}"));
    format!("{spec}rollout:\n  approval: auto\n  surge: 1\n")
}

fn stacks_of(cluster: &str) -> [String; 4] {
    ["network", "etcd", "control-plane", "pool-general"].map(|kind| format!("{cluster}-{kind}"))
}

async fn installed() -> Installation {
    Installation::start(&Settings { time_scale: 0.001, ..Settings::default() }).await.unwrap()
}

/// Uploads the cluster's spec and waits for the end of the rollout.
async fn roll_out(slipway: &Installation, cluster: &str) -> (String, String) {
    let mark = slipway.world().observer().mark();
    slipway.upload(cluster, spec_of(cluster)).await.unwrap();
    end(slipway, mark, cluster).await
}

async fn end(slipway: &Installation, mark: usize, cluster: &str) -> (String, String) {
    let found = slipway.world().observer().wait(mark, PATIENCE, |seen| {
        let Observed::Event { bus, event } = &seen.what else { return None };
        let kind = event["detail-type"].as_str()?;
        let ended =
            ["Rollout Succeeded", "Rollout Failed"].contains(&kind) && event["detail"]["cluster"] == cluster;
        let message = event["detail"]["message"].as_str().unwrap_or_default();
        (bus == "slipway" && ended).then(|| (kind.to_owned(), message.to_owned()))
    });
    let found = found.await;
    let found =
        found.unwrap_or_else(|| panic!("{cluster}: no end: {:#?}", slipway.world().observer().events(mark)));
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    found
}

fn statuses(slipway: &Installation, cluster: &str) -> Vec<String> {
    slipway.world().cloud().with(|cloud| {
        stacks_of(cluster).iter().map(|stack| cloud.stack_status(stack).unwrap_or_default()).collect()
    })
}

fn all_created(slipway: &Installation, cluster: &str) {
    assert_eq!(statuses(slipway, cluster), ["CREATE_COMPLETE"; 4], "{cluster}");
}

/// How often each stack entered a status, from CloudFormation's own events.
fn begun(slipway: &Installation, mark: usize, status: &str) -> BTreeMap<String, usize> {
    let mut begun = BTreeMap::new();
    for (kind, detail) in slipway.world().observer().events(mark) {
        if kind == "CloudFormation Stack Status Change" && detail["status-details"]["status"] == status {
            let stack = detail["stack-id"].as_str().unwrap().split('/').nth(1).unwrap().to_owned();
            *begun.entry(stack).or_default() += 1;
        }
    }
    begun
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_stack_ends_the_launch_with_the_failing_resource_first_and_an_upload_recovers() {
    let slipway = installed().await;
    let reason = "Maximum number of volumes exceeded";
    slipway.world().cloud().with(|cloud| cloud.fail("AWS::EC2::Volume", reason, 1));
    let (kind, message) = roll_out(&slipway, "minimal").await;
    assert_eq!(kind, "Rollout Failed");
    assert!(message.contains("minimal-etcd") && message.contains(reason), "{message}");
    assert!(
        !message.contains("cancelled"),
        "the message contains resources that were only cancelled: {message}"
    );
    assert!(!slipway.world().cloud().with(|cloud| cloud.faults_pending()));
    let [network, etcd, control_plane, pool] = &statuses(&slipway, "minimal")[..] else { panic!() };
    assert_eq!((network.as_str(), etcd.as_str()), ("CREATE_COMPLETE", "ROLLBACK_COMPLETE"));
    assert_eq!((control_plane.as_str(), pool.as_str()), ("", ""), "no stack after the failed one is begun");
    assert_eq!(slipway.dead_letters().await.unwrap(), 0, "a failed launch is not an error of the function");
    let (kind, message) = roll_out(&slipway, "minimal").await;
    assert_eq!(kind, "Rollout Succeeded", "{message}");
    all_created(&slipway, "minimal");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_template_ends_the_launch_in_cloudformations_words_and_an_upload_recovers() {
    let slipway = installed().await;
    slipway.world().gateway().inject(Fault {
        caller: Some("slipway-rollout".to_owned()),
        action: "cloudformation:CreateChangeSet".to_owned(),
        resource: "minimal-etcd".to_owned(),
        times: Some(1),
        effect: Effect::Refuse(Refusal::Missing),
    });
    let (kind, message) = roll_out(&slipway, "minimal").await;
    assert_eq!(kind, "Rollout Failed");
    assert!(message.contains("minimal-etcd") && message.contains("ValidationError"), "{message}");
    let (kind, message) = roll_out(&slipway, "minimal").await;
    assert_eq!(kind, "Rollout Succeeded", "{message}");
    all_created(&slipway, "minimal");
}

#[tokio::test(flavor = "multi_thread")]
async fn cloudformation_denied_buries_no_tick_and_the_next_one_recovers() {
    let slipway = installed().await;
    let mark = slipway.world().observer().mark();
    slipway.world().gateway().inject(Fault {
        caller: None,
        action: "cloudformation:ExecuteChangeSet".to_owned(),
        resource: String::new(),
        times: None,
        effect: Effect::Refuse(Refusal::Denied),
    });
    slipway.upload("minimal", spec_of("minimal")).await.unwrap();
    // Ticks alone execute change sets: each fails, is logged for the alarm, and is followed by the next one.
    let mut since = mark;
    for _ in 0..2 {
        let denied = slipway.world().observer().wait(since, PATIENCE, |seen| match &seen.what {
            Observed::Call(call) if call.action == "cloudformation:ExecuteChangeSet" => Some(()),
            _ => None,
        });
        denied.await.unwrap();
        since = slipway.world().observer().mark();
    }
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
    slipway.world().gateway().clear_faults();
    let (kind, message) = end(&slipway, mark, "minimal").await;
    assert_eq!(kind, "Rollout Succeeded", "the tick continues after a person has fixed it: {message}");
    all_created(&slipway, "minimal");
}

/// P8: killed at any of its calls, before and after it, with doubled events, a launch and then a roll of every node end as if the function
/// had not died: nothing is created, terminated or begun twice, and no event is lost.
#[tokio::test(flavor = "multi_thread")]
async fn p8_a_launch_and_a_roll_of_all_nodes_end_the_same_wherever_the_function_is_killed() {
    let settings = Settings { time_scale: 0.001, one_clock: true, ..Settings::default() };
    let slipway = Installation::start(&settings).await.unwrap();
    let mut ends = Vec::new();
    for (cluster, effect, copies) in [("before", Effect::StallBefore, 2), ("after", Effect::StallAfter, 1)] {
        slipway.world().router().set_copies(copies);
        ends.push(live(&slipway, cluster, effect).await);
        assert_eq!(
            slipway.world().cloud().with(|cloud| cloud.schedules()),
            Vec::<String>::new(),
            "{cluster}"
        );
        assert_eq!(slipway.dead_letters().await.unwrap(), 0, "{cluster}");
    }
    assert_eq!(ends[0], ends[1]);
}

/// Launches a cluster, approves and performs a roll of all its nodes, and kills the function in both. Returns what remains.
async fn live(slipway: &Installation, cluster: &str, effect: Effect) -> Value {
    let observer = slipway.world().observer();
    let mark = observer.mark();
    let once = |kinds: &[&str]| -> BTreeMap<String, usize> {
        kinds.iter().map(|kind| (format!("{cluster}-{kind}"), 1)).collect()
    };
    // No event meets three of these calls, because that would be its last try.
    let places = [
        ("scheduler:CreateSchedule", ""),
        ("cloudformation:ExecuteChangeSet", "network"),
        ("cloudformation:CreateChangeSet", "etcd"),
        ("cloudformation:ExecuteChangeSet", "pool"),
        ("s3:PutObject", "/addons.json"),
        ("scheduler:DeleteSchedule", ""),
    ];
    slipway.upload(cluster, spec_of(cluster)).await.unwrap();
    killed_at(slipway, mark, cluster, effect, &places).await;
    all_created(slipway, cluster);
    let stacks = ["network", "etcd", "control-plane", "pool-general"];
    assert_eq!(begun(slipway, mark, "CREATE_IN_PROGRESS"), once(&stacks), "{cluster}");
    let old = machines(slipway, cluster).await;

    let mark = observer.mark();
    let spec = spec_of(cluster).replace("approval: auto", "approval: manual");
    slipway.upload(cluster, format!("{spec}keyName: operations\n")).await.unwrap();
    let (kind, ready) = slipway.event(mark, &["Plan Ready", "Spec Rejected"], PATIENCE).await.unwrap();
    assert_eq!((kind.as_str(), &ready["needsApproval"]), ("Plan Ready", &json!(true)), "{ready}");
    let approve = Event {
        source: "slipway".to_owned(),
        detail_type: "Rollout Approved".to_owned(),
        detail: json!({"cluster": cluster, "plan": ready["plan"]}),
        resources: Vec::new(),
    };
    slipway.world().client().put_event("slipway", &approve).await.unwrap();
    let places = [
        ("s3:PutObject", "/rollout.json"),
        ("cloudformation:ExecuteChangeSet", "control-plane"),
        ("ssm:SendCommand", "EtcdSnapshot"),
        ("ssm:SendCommand", "Drain"),
        ("autoscaling:TerminateInstanceInAutoScalingGroup", "etcd"),
        ("autoscaling:TerminateInstanceInAutoScalingGroup", "control-plane"),
        ("autoscaling:SetDesiredCapacity", "control-plane"),
        ("autoscaling:CompleteLifecycleAction", "pool"),
    ];
    killed_at(slipway, mark, cluster, effect, &places).await;
    assert_eq!(begun(slipway, mark, "UPDATE_IN_PROGRESS"), once(&stacks[1..]), "{cluster}");
    let new = machines(slipway, cluster).await;
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let groups = once(&["etcd-0", "control-plane", "pool-general"]);
    for (what, machines) in [("before", &old), ("after", &new)] {
        let sizes: BTreeMap<_, _> = machines.iter().map(|(group, ids)| (group.clone(), ids.len())).collect();
        assert_eq!(sizes, groups, "{cluster}: {what} the roll");
    }
    assert!(new.iter().all(|(group, ids)| ids.is_disjoint(&old[group])), "{cluster}: {old:?} {new:?}");
    for what in ["EC2 Instance Launch Successful", "EC2 Instance Terminate Successful"] {
        let mut counts = BTreeMap::new();
        for (kind, detail) in observer.events(mark) {
            // Late events about machines of the launch do not belong to the roll.
            let was = old.values().flatten().any(|id| detail["EC2InstanceId"] == **id);
            if kind == what && was == kind.contains("Terminate") {
                *counts.entry(detail["AutoScalingGroupName"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        assert_eq!(counts, groups, "{cluster}: {what}");
    }
    let rollout: Value = slipway.document(cluster, "rollout.json").await.unwrap().unwrap();
    let last = &rollout["last"]["result"];
    json!({"generation": rollout["generation"], "activity": rollout["activity"], "last": last, "earlier": rollout["earlier"]})
}

/// Waits until a rollout succeeds although its function was killed at each of these calls: the process that made the call, at that moment.
async fn killed_at(
    slipway: &Installation,
    mark: usize,
    cluster: &str,
    effect: Effect,
    places: &[(&str, &str)],
) {
    let world = slipway.world();
    for (action, resource) in places {
        world.gateway().inject(Fault {
            caller: Some("slipway-rollout".to_owned()),
            action: (*action).to_owned(),
            resource: (*resource).to_owned(),
            times: Some(1),
            effect,
        });
    }
    let killing = async {
        let mut next = mark;
        for _ in places {
            let stalled = world.observer().wait(next, PATIENCE, |seen| {
                next += 1;
                let Observed::Call(call) = &seen.what else { return None };
                Some((call.action.clone(), call.stalled.clone()?))
            });
            let (place, session) =
                stalled.await.unwrap_or_else(|| panic!("{cluster}: not every call was made"));
            assert!(world.lambda().kill_session("slipway-rollout", &session), "{cluster}: {place}");
        }
    };
    let (end, ()) = tokio::join!(end(slipway, mark, cluster), killing);
    assert_eq!(end.0, "Rollout Succeeded", "{cluster}: {}", end.1);
    let killed = world.observer().since(mark).into_iter().filter(|seen| match &seen.what {
        Observed::Finished { outcome: Outcome::Failed { error_type, .. }, .. } => {
            assert_eq!(error_type, "Runtime.ExitError", "{cluster}: {seen:?}");
            true
        }
        _ => false,
    });
    assert_eq!(killed.count(), places.len(), "{cluster}");
}

/// The machines of a cluster by their groups, when all of them are in service.
async fn machines(slipway: &Installation, cluster: &str) -> BTreeMap<String, BTreeSet<String>> {
    let ours = || {
        let machines = slipway.world().cloud().with(|cloud| cloud.machines()).into_iter();
        machines.filter(|one| one.cluster == cluster)
    };
    let serve = async {
        while !ours().all(|one| one.ready && !one.leaving) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, serve).await.unwrap();
    let mut groups = BTreeMap::<String, BTreeSet<String>>::new();
    for one in ours() {
        groups.entry(one.group.clone()).or_default().insert(one.id.clone());
    }
    groups
}
