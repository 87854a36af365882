//! What goes wrong around the rollout function: how it ends, and how it recovers.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use slipway_tests::gateway::{Effect, Fault, Refusal};
use slipway_tests::installation::Installation;
use slipway_tests::observe::{Observed, Outcome};
use slipway_tests::tools;
use slipway_tests::world::Settings;

const PATIENCE: Duration = Duration::from_secs(120);
const QUIET: Duration = Duration::from_millis(500);

fn spec_of(cluster: &str) -> String {
    let spec = std::fs::read_to_string(tools::root().join("examples/minimal.yaml")).unwrap();
    let spec = spec.replace("clusterName: minimal", &format!("clusterName: {cluster}"));
    format!("{spec}rollout:\n  approval: auto\n")
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

/// How often each stack was created, from CloudFormation's own events.
fn creations(slipway: &Installation, mark: usize) -> BTreeMap<String, usize> {
    let mut begun = BTreeMap::new();
    for (kind, detail) in slipway.world().observer().events(mark) {
        if kind == "CloudFormation Stack Status Change"
            && detail["status-details"]["status"] == "CREATE_IN_PROGRESS"
        {
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
    assert!(!message.contains("cancelled"), "what was only cancelled says nothing: {message}");
    assert!(!slipway.world().cloud().with(|cloud| cloud.faults_pending()));
    let [network, etcd, control_plane, pool] = &statuses(&slipway, "minimal")[..] else { panic!() };
    assert_eq!((network.as_str(), etcd.as_str()), ("CREATE_COMPLETE", "ROLLBACK_COMPLETE"));
    assert_eq!((control_plane.as_str(), pool.as_str()), ("", ""), "nothing after the failed one is begun");
    assert_eq!(slipway.dead_letters().await.unwrap(), 0, "a launch that fails is no failure of the function");
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
async fn cloudformation_denied_is_dead_lettered_by_kind_and_the_tick_recovers() {
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
    let given_up = slipway.world().observer().wait(mark, PATIENCE, |seen| match &seen.what {
        Observed::DeadLettered { error_type, queue: Some(_), .. } => Some(error_type.clone()),
        _ => None,
    });
    assert_eq!(given_up.await.unwrap(), "Slipway.cloudformation.Denied");
    slipway.world().gateway().clear_faults();
    let (kind, message) = end(&slipway, mark, "minimal").await;
    assert_eq!(kind, "Rollout Succeeded", "the tick goes on when a person has mended it: {message}");
    all_created(&slipway, "minimal");
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_a_rollout_killed_before_any_call_ends_the_same() {
    die_everywhere("before", Effect::StallBefore).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_a_rollout_killed_after_any_call_ends_the_same() {
    die_everywhere("after", Effect::StallAfter).await;
}

/// P8: killed at a call, with every event delivered twice, it ends the same, and no stack is made twice.
async fn die_everywhere(word: &str, effect: Effect) {
    let slipway = installed().await;
    slipway.world().router().set_copies(2);
    let observer = slipway.world().observer();
    for (number, (action, resource)) in [
        ("scheduler:CreateSchedule", ""),
        ("s3:PutObject", "/rollout.json"),
        ("s3:PutObject", "/addons.json"),
        ("cloudformation:CreateChangeSet", "network"),
        ("cloudformation:ExecuteChangeSet", "network"),
        ("cloudformation:ExecuteChangeSet", "pool"),
        ("events:PutEvents", ""),
        ("scheduler:DeleteSchedule", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let cluster = format!("c{number}{word}");
        let place = format!("killed {word} {action} {resource}");
        let mark = observer.mark();
        slipway.world().gateway().inject(Fault {
            caller: Some("slipway-rollout".to_owned()),
            action: action.to_owned(),
            resource: resource.to_owned(),
            times: Some(1),
            effect,
        });
        slipway.upload(&cluster, spec_of(&cluster)).await.unwrap();
        let stalled = observer.wait(mark, PATIENCE, |seen| match &seen.what {
            Observed::Call(call) => (call.caller == "slipway-rollout"
                && call.action == action
                && call.resource.contains(resource))
            .then_some(()),
            _ => None,
        });
        stalled.await.unwrap_or_else(|| panic!("{place}: never called"));
        assert!(slipway.world().lambda().kill("slipway-rollout") >= 1, "{place}");
        let (kind, message) = end(&slipway, mark, &cluster).await;
        assert_eq!(kind, "Rollout Succeeded", "{place}: {message}");
        all_created(&slipway, &cluster);
        let created = creations(&slipway, mark);
        let once = stacks_of(&cluster).into_iter().map(|stack| (stack, 1)).collect::<BTreeMap<_, _>>();
        assert_eq!(created, once, "{place}: {:?}", observer.troubles(0));
        assert_eq!(slipway.world().cloud().with(|cloud| cloud.schedules()), Vec::<String>::new(), "{place}");
        let failed: Vec<_> = observer
            .since(mark)
            .into_iter()
            .filter_map(|seen| match seen.what {
                Observed::Finished { attempt, outcome: Outcome::Failed { error_type, message }, .. } => {
                    Some((attempt, error_type, message))
                }
                _ => None,
            })
            .collect();
        assert_eq!(slipway.dead_letters().await.unwrap(), 0, "{place}: {failed:#?}");
    }
}
