//! Faults of the render function: where the event ends, with which error type, and how it recovers.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::Method;
use serde_json::Value;
use slipway_core::status::{Desired, SpecResult, Status};
use slipway_tests::gateway::{Effect, Fault, Refusal};
use slipway_tests::installation::Installation;
use slipway_tests::observe::{Observed, Outcome, PATIENCE};
use slipway_tests::tools;
use slipway_tests::world::Settings;

const QUIET: Duration = Duration::from_millis(300);

/// A spec whose plan waits for approval, because these tests end before a rollout.
fn spec() -> String {
    spec_of("minimal")
}

fn spec_of(cluster: &str) -> String {
    let spec = std::fs::read_to_string(tools::root().join("examples/minimal.yaml")).unwrap();
    let spec = spec.replace("clusterName: minimal", &format!("clusterName: {cluster}"));
    format!("{spec}rollout:\n  approval: manual\n")
}

async fn installed() -> Installation {
    Installation::start(&Settings { time_scale: 0.001, ..Settings::default() }).await.unwrap()
}

/// Uploads `spec` and returns the type of the event that answers it.
async fn answer(slipway: &Installation, cluster: &str) -> String {
    let mark = slipway.world().observer().mark();
    slipway.upload(cluster, spec_of(cluster)).await.unwrap();
    let kinds = ["Plan Ready", "Plan Unchanged", "Spec Rejected"];
    let found = slipway.event(mark, &kinds, PATIENCE).await;
    found.unwrap_or_else(|| panic!("no answer: {:#?}", slipway.world().observer().since(mark))).0
}

/// Waits until the render function's event is given up. Returns the error type.
async fn given_up(slipway: &Installation, mark: usize) -> String {
    let found = slipway.world().observer().wait(mark, PATIENCE, |seen| match &seen.what {
        Observed::DeadLettered { error_type, queue: Some(_), .. } => Some(error_type.clone()),
        _ => None,
    });
    found
        .await
        .unwrap_or_else(|| panic!("nothing was given up: {:#?}", slipway.world().observer().since(mark)))
}

fn refuse(action: &str, resource: &str, times: Option<u32>, refusal: Refusal) -> Fault {
    Fault {
        caller: None,
        action: action.to_owned(),
        resource: resource.to_owned(),
        times,
        effect: Effect::Refuse(refusal),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_denied_is_dead_lettered_by_kind_and_an_upload_recovers() {
    let slipway = installed().await;
    let mark = slipway.world().observer().mark();
    slipway.world().gateway().inject(refuse("kms:GenerateDataKey", "", None, Refusal::Denied));
    slipway.upload("minimal", spec()).await.unwrap();
    assert_eq!(given_up(&slipway, mark).await, "Slipway.kms.Denied");
    let url = slipway.world().reference("RenderDeadLetters").unwrap();
    let letters = slipway.world().client().take(url).await.unwrap();
    let event: Value = serde_json::from_str(&letters.first().unwrap().body).unwrap();
    assert_eq!(
        event["detail"]["object"]["key"], "clusters/minimal/cluster.yaml",
        "the dead letter is the event"
    );
    let status: Status = slipway.document("minimal", "status.json").await.unwrap().unwrap();
    let spec_status = status.spec.unwrap();
    assert_eq!(spec_status.result, SpecResult::Failed);
    assert!(spec_status.failure.unwrap().contains("kms:GenerateDataKey"));
    slipway.world().gateway().clear_faults();
    assert_eq!(answer(&slipway, "minimal").await, "Plan Ready");
    let status: Status = slipway.document("minimal", "status.json").await.unwrap().unwrap();
    assert_eq!(status.spec.unwrap().result, SpecResult::Accepted);
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_gone_is_dead_lettered_by_kind_and_an_upload_recovers() {
    // Only an empty bucket can be deleted.
    let settings = Settings { time_scale: 0.001, ..Settings::default() };
    let slipway = Installation::without_agent(&settings).await.unwrap();
    let client = slipway.world().client();
    let bucket = slipway.world().reference("AssetBucket").unwrap();
    client.s3(Method::DELETE, bucket, "", Vec::new()).await.unwrap();
    let mark = slipway.world().observer().mark();
    slipway.upload("minimal", spec()).await.unwrap();
    assert_eq!(given_up(&slipway, mark).await, "Slipway.s3.Missing");
    client.create_bucket(bucket).await;
    client.keep_versions(bucket).await;
    slipway.publish_agent(&"a".repeat(64)).await.unwrap();
    assert_eq!(answer(&slipway, "minimal").await, "Plan Ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_minute_of_s3_is_outlived_by_lambdas_own_retry() {
    let slipway = installed().await;
    let mark = slipway.world().observer().mark();
    // More often than the SDK retries by itself.
    slipway.world().gateway().inject(refuse("s3:PutObject", "/templates/", Some(8), Refusal::Throttled));
    assert_eq!(answer(&slipway, "minimal").await, "Plan Ready");
    let failed: Vec<String> = slipway
        .world()
        .observer()
        .since(mark)
        .into_iter()
        .filter_map(|seen| match seen.what {
            Observed::Finished { outcome: Outcome::Failed { error_type, .. }, .. } => Some(error_type),
            _ => None,
        })
        .collect();
    assert!(failed.iter().all(|kind| kind == "Slipway.s3.Transient"), "{failed:?}");
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}

/// Where the function is killed: the action, and a part of the resource.
const DEATHS: &[(&str, &str)] = &[
    ("s3:PutObject", "/lock.json"),
    ("kms:GenerateDataKey", ""),
    ("s3:PutObject", "/pki/manifest.json"),
    ("s3:PutObject", "/bundles/"),
    ("s3:PutObject", "/templates/"),
    ("s3:PutObject", "/addons/"),
    ("s3:PutObject", "/plans/"),
    ("s3:PutObject", "/desired.json"),
    ("events:PutEvents", ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn p8_a_function_killed_before_any_call_recovers_by_itself() {
    die_everywhere(Effect::StallBefore).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_a_function_killed_after_any_call_recovers_by_itself() {
    die_everywhere(Effect::StallAfter).await;
}

async fn die_everywhere(effect: Effect) {
    let slipway = installed().await;
    for (number, (action, resource)) in DEATHS.iter().enumerate() {
        let cluster = format!("cluster-{number}");
        let place = format!("{effect:?} {action} {resource}");
        let observer = slipway.world().observer();
        let mark = observer.mark();
        slipway.world().gateway().inject(Fault {
            caller: None,
            action: (*action).to_owned(),
            resource: (*resource).to_owned(),
            times: Some(1),
            effect,
        });
        slipway.upload(&cluster, spec_of(&cluster)).await.unwrap();
        let stalled = observer.wait(mark, PATIENCE, |seen| match &seen.what {
            Observed::Call(call) => {
                (call.action == *action && call.resource.contains(resource)).then_some(())
            }
            _ => None,
        });
        stalled.await.unwrap_or_else(|| panic!("{place} is never called"));
        assert_eq!(slipway.world().lambda().kill("slipway-render"), 1);
        let done = observer.wait(mark, PATIENCE, |seen| match &seen.what {
            Observed::Finished { outcome: Outcome::Answered(_), .. } => Some(()),
            _ => None,
        });
        done.await.unwrap_or_else(|| panic!("{place}: {:#?}", observer.since(mark)));
        assert!(slipway.world().settle(QUIET, PATIENCE).await);
        let ready = observer.events(mark).into_iter().filter(|(kind, _)| kind == "Plan Ready").count();
        assert!(ready >= 1, "{place}: no Plan Ready");
        // Nothing is half done: the same bytes again find nothing to do.
        let before = slipway.assets().await.unwrap();
        let answered = answer(&slipway, &cluster).await;
        assert!(["Plan Ready", "Plan Unchanged"].contains(&answered.as_str()), "{place}: {answered}");
        assert!(slipway.world().settle(QUIET, PATIENCE).await);
        let after = slipway.assets().await.unwrap();
        let strays: BTreeSet<_> = after.keys().filter(|key| !before.contains_key(*key)).collect();
        assert!(strays.is_empty(), "{place}: {strays:?}");
    }
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_uploads_that_overtake_each_other_end_with_the_newest_once() {
    let slipway = installed().await;
    let observer = slipway.world().observer();
    let mark = observer.mark();
    slipway.world().router().hold();
    slipway.world().router().set_copies(2);
    slipway.upload("minimal", spec()).await.unwrap();
    let newest = slipway.upload("minimal", format!("{}stackTags:\n  new: \"yes\"\n", spec())).await.unwrap();
    while slipway.world().router().held() < 4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    slipway.world().router().release(slipway.world().lambda(), true);
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let plans: BTreeSet<(String, String)> = observer
        .events(mark)
        .into_iter()
        .filter(|(kind, _)| kind == "Plan Ready")
        .map(|(_, detail)| {
            let text = |name: &str| detail[name].as_str().unwrap_or_default().to_owned();
            (text("specVersion"), text("plan"))
        })
        .collect();
    let plans: Vec<_> = plans.into_iter().collect();
    let [(version, plan)] = &plans[..] else { panic!("expected one plan of one version: {plans:?}") };
    assert_eq!(*version, newest);
    let desired: Desired = slipway.document("minimal", "desired.json").await.unwrap().unwrap();
    assert_eq!((desired.spec_version, &desired.plan), (newest, plan));
    for (key, versions) in slipway.assets().await.unwrap() {
        let state = ["/lock.json", "/desired.json", "/manifest.json", "/rollout.json"];
        let once = versions.len() == 1 || state.iter().any(|state| key.ends_with(state));
        assert!(once, "{key} was written {} times", versions.len());
    }
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}
