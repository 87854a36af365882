//! What is kept of a cluster's credentials, through the whole render flow: without a change of the spec no byte changes, whatever happens
//! to the stored objects (P1); an inventory is never replaced; and unused objects are deleted.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::Index;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::gc::{Reason, Referred, YOUNG};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::gc::{self, Nodes};
use slipway_flows::error::FlowError;
use slipway_flows::rendering::RenderOutcome;
use slipway_plan::NodeAction;
use slipway_ports::Crypto as _;
use slipway_sim::memory::{MemoryBucket, OWN_KEY};
use slipway_sim::mortal::Life;
use slipway_tests::workshop::{self, Workshop};

const MINE: &str = "arn:aws:kms:eu-west-1:111122223333:key/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";

fn plain() -> String {
    workshop::example("minimal")
}

fn with_san(name: &str) -> String {
    format!("{}\nkubernetes:\n  apiServer:\n    certSANs: [{name}]\n", plain())
}

/// All objects that are named by their content and that a node or CloudFormation reads, with the bytes of unsealed ones.
fn content(workshop: &Workshop) -> BTreeMap<String, Option<Vec<u8>>> {
    let folders = ["/templates/", "/bundles/", "/releases/", "/plans/"];
    let keys = workshop.assets.keys().into_iter().filter(|key| folders.iter().any(|part| key.contains(part)));
    keys.map(|key| {
        let bytes = workshop.assets.peek(&key).filter(|_| !key.contains("/credentials-"));
        (key, bytes)
    })
    .collect()
}

/// The KMS keys that every sealed object can be opened with.
fn sealed_under(workshop: &Workshop) -> BTreeSet<Vec<String>> {
    let keys = workshop.assets.keys().into_iter();
    let sealed = keys.filter(|key| key.ends_with(".sealed") || key.contains("/credentials-"));
    sealed
        .map(|key| {
            let bytes = workshop.assets.peek(&key).unwrap();
            AwsLc.sealings(&bytes).unwrap().iter().map(|one| one.wrapped_by.to_owned()).collect()
        })
        .collect()
}

/// Something that happens to a cluster without a change of its spec.
#[derive(Debug, Clone)]
enum Happening {
    /// The spec is uploaded again, unchanged or with the other KMS key.
    Upload {
        other_key: bool,
    },
    /// The same, but the function dies at this call.
    Death {
        other_key: bool,
        last: u64,
        after: bool,
    },
    /// A sealed bundle is lost, or its last byte is changed.
    BundleLost(Index),
    BundleTampered(Index),
    /// A private half that some bundle contains is lost.
    HalfLost(Index),
    /// `status.json` is lost.
    StatusLost,
    /// KMS rotates its key.
    Rotation,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => any::<bool>().prop_map(|other_key| Happening::Upload { other_key }),
        2 => (any::<bool>(), 0u64..60, any::<bool>())
            .prop_map(|(other_key, last, after)| Happening::Death { other_key, last, after }),
        1 => any::<Index>().prop_map(Happening::BundleLost),
        1 => any::<Index>().prop_map(Happening::BundleTampered),
        1 => any::<Index>().prop_map(Happening::HalfLost),
        1 => Just(Happening::StatusLost),
        1 => Just(Happening::Rotation),
    ]
}

/// A key among those that `wanted` accepts.
fn some_key(workshop: &Workshop, index: &Index, wanted: impl Fn(&str) -> bool) -> Option<String> {
    let keys: Vec<String> = workshop.assets.keys().into_iter().filter(|key| wanted(key)).collect();
    (!keys.is_empty()).then(|| index.get(&keys).clone())
}

async fn live(happenings: Vec<Happening>) {
    let specs = [plain(), format!("{}\nkmsKeyArn: {MINE}\n", plain())];
    let workshop = Workshop::for_spec(&specs[0]);
    let first = workshop.render(&specs[0]).await;
    workshop.deployed(&first.plan).await;
    let other = workshop.render(&specs[1]).await;
    let digests = |rendered: &workshop::Rendered| -> Vec<String> {
        rendered.rendering.roles.values().map(|role| role.credentials_digest.clone()).collect()
    };
    assert_eq!(digests(&first), digests(&other), "another KMS key changes no digest");
    // The first spec again, so that each plan was made once.
    workshop.outcome(&specs[0]).await;
    let (before, assets) = (content(&workshop), workshop.manifest().assets);
    let all = |count: usize| BTreeSet::from([count]);
    assert_eq!(sealed_under(&workshop).iter().map(Vec::len).collect::<BTreeSet<_>>(), all(2));

    for happening in happenings {
        match &happening {
            Happening::Upload { other_key } => {
                workshop.outcome(&specs[usize::from(*other_key)]).await;
            }
            Happening::Death { other_key, last, after } => {
                let life = Life::until(*last, *after);
                // The run may end before that call.
                let _ = workshop.try_upload(&specs[usize::from(*other_key)], &life).await;
            }
            Happening::BundleLost(index) => {
                if let Some(key) = some_key(&workshop, index, |key| key.contains("/credentials-")) {
                    workshop.assets.purge(&key);
                }
            }
            Happening::BundleTampered(index) => {
                if let Some(key) = some_key(&workshop, index, |key| key.contains("/credentials-")) {
                    let mut bytes = workshop.assets.peek(&key).unwrap();
                    *bytes.last_mut().unwrap() ^= 1;
                    workshop.assets.upload(&key, bytes);
                }
            }
            Happening::HalfLost(index) => {
                let held = ["scheduler", "kubelet-ca", "service-account", "etcd-peer-0"];
                let wanted = |key: &str| held.iter().any(|asset| key.contains(&format!("/pki/{asset}/")));
                // Only after a successful upload: some pairs of losses cannot be repaired.
                workshop.outcome(&specs[0]).await;
                if let Some(key) = some_key(&workshop, index, wanted) {
                    workshop.assets.purge(&key);
                    // The loss is noticed when the object is needed.
                    let bundle = if key.contains("etcd-peer-0") { "etcd-0" } else { "controller" };
                    let digest = &workshop.manifest().bundles[&bundle.parse::<Role>().unwrap()].digest;
                    let bundle = keys::credentials(&workshop.name, bundle, digest);
                    let bytes = workshop.assets.peek(&bundle).unwrap();
                    // The object is sound but different, so it is checked again.
                    let sealings = AwsLc.sealings(&bytes).unwrap();
                    let last = sealings.last().unwrap().bytes.to_vec();
                    let bytes = if sealings.len() < 4 { [bytes.clone(), last].concat() } else { last };
                    workshop.assets.upload(&bundle, bytes);
                }
            }
            Happening::StatusLost => workshop.assets.purge(&keys::status(&workshop.name)),
            Happening::Rotation => workshop.keys.rotate(None),
        }
        // After any of this, the same spec gives the same result with the same bytes.
        let outcome = workshop.outcome(&specs[0]).await;
        assert_eq!(outcome, RenderOutcome::Unchanged, "{happening:?}");
        let now = content(&workshop);
        let names =
            |content: &BTreeMap<String, Option<Vec<u8>>>| content.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(names(&now), names(&before), "{happening:?}");
        assert!(now == before, "{happening:?}: bytes changed");
        assert_eq!(workshop.manifest().assets, assets, "{happening:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]
    /// A thousand renders in all: six hundred happenings, most of them uploads, and an upload after each.
    #[test]
    fn p1_whatever_happens_to_what_is_stored_no_byte_of_a_template_and_no_digest_changes(
        happenings in proptest::collection::vec(happening(), 95..105),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(live(happenings));
    }
}

#[tokio::test]
async fn p7_members_may_open_what_was_sealed_under_each_key_that_the_cluster_ever_had() {
    const THIRD: &str = "arn:aws:kms:eu-west-1:111122223333:key/00000000-4b5a-6978-8796-a5b4c3d2e1f0";
    let under = |key: &str| format!("{}\nkmsKeyArn: {key}\n", plain());
    let workshop = Workshop::for_spec(&plain());
    let first = workshop.render(&plain()).await;
    workshop.deployed(&first.plan).await;
    // A run that dies after any call forgets no key.
    let mut last = 0;
    while workshop.fork().try_upload(&under(MINE), &Life::until(last, true)).await.is_err() {
        last += 1;
    }
    assert!(last > 10, "{last}");
    for call in 0..last {
        let fork = workshop.fork();
        let _ = fork.try_upload(&under(MINE), &Life::until(call, call % 2 == 0)).await;
        let third = fork.render(&under(THIRD)).await;
        let body = &third.rendering.stacks.iter().find(|one| one.name.ends_with("-etcd")).unwrap().body;
        assert!(body.contains(OWN_KEY), "died at call {call}");
    }
    let second = workshop.render(&under(MINE)).await;
    workshop.deployed(&second.plan).await;
    let third = workshop.render(&under(THIRD)).await;
    let body = &third.rendering.stacks.iter().find(|one| one.name.ends_with("-etcd")).unwrap().body;
    let template: serde_json::Value = serde_json::from_str(body).unwrap();
    let roles = template["Resources"].as_object().unwrap().values();
    let roles: Vec<_> = roles.filter(|one| one["Type"] == "AWS::IAM::Role").collect();
    assert!(!roles.is_empty());
    for role in roles {
        let statements = &role["Properties"]["Policies"][0]["PolicyDocument"]["Statement"];
        let find = |sid: &str| statements.as_array().unwrap().iter().find(|one| one["Sid"] == sid).unwrap();
        for sid in ["OpenFormerSnapshots", "OpenFormerCredentials"] {
            assert_eq!(find(sid)["Action"], serde_json::json!(["kms:Decrypt"]));
            assert_eq!(find(sid)["Resource"], serde_json::json!([OWN_KEY, MINE]), "{sid}");
        }
        assert_eq!(find("SealOwnSnapshots")["Resource"], serde_json::json!(THIRD));
    }
    // The plan shows the roles, and no node.
    assert!(third.plan.nodes.iter().all(|node| node.action == NodeAction::Untouched));
}

#[tokio::test]
async fn p1_a_lost_inventory_is_never_replaced_once_something_was_planned() {
    let workshop = Workshop::for_spec(&plain());
    let first = workshop.render(&plain()).await;
    let key = keys::manifest(&workshop.name);
    let good = workshop.assets.peek(&key).unwrap();
    for deployed in [false, true] {
        if deployed {
            workshop.deployed(&first.plan).await;
        }
        workshop.assets.purge(&key);
        let before = workshop.assets.keys();
        let error = workshop.try_upload(&plain(), &Life::unending()).await.unwrap_err();
        assert!(matches!(&error, FlowError::Corrupt { key: at, .. } if *at == key), "{error}");
        assert!(
            error.to_string().contains("is lost, and other stored credentials were made with it"),
            "{error}"
        );
        let mut after = workshop.assets.keys();
        after.retain(|key| !key.ends_with("/status.json"));
        assert_eq!(
            after,
            before.into_iter().filter(|key| !key.ends_with("/status.json")).collect::<Vec<_>>()
        );
        workshop.assets.upload(&key, good.clone());
        assert!(matches!(
            workshop.outcome(&plain()).await,
            RenderOutcome::Unchanged | RenderOutcome::Planned(_)
        ));
    }
}

#[tokio::test]
async fn p1_an_older_inventory_is_refused_while_what_it_does_not_know_runs() {
    let workshop = Workshop::for_spec(&plain());
    let first = workshop.render(&plain()).await;
    workshop.deployed(&first.plan).await;
    let key = keys::manifest(&workshop.name);
    let old = workshop.assets.peek(&key).unwrap();
    let wide = with_san("k8s.example.com");
    let second = workshop.render(&wide).await;
    workshop.deployed(&second.plan).await;
    let good = workshop.assets.peek(&key).unwrap();
    workshop.assets.upload(&key, old);
    let error = workshop.try_upload(&wide, &Life::unending()).await.unwrap_err().to_string();
    assert!(error.contains("that controller runs: it is older than that"), "{error}");
    workshop.assets.upload(&key, good);
    assert_eq!(workshop.outcome(&wide).await, RenderOutcome::Unchanged);
}

#[tokio::test]
async fn a_damaged_bundle_is_told_in_the_status_and_is_no_plan() {
    let workshop = Workshop::for_spec(&plain());
    let first = workshop.render(&plain()).await;
    workshop.deployed(&first.plan).await;
    workshop.outcome(&plain()).await;
    let digest = &first.rendering.roles[&Role::Controller].credentials_digest;
    let bundle = keys::credentials(&workshop.name, "controller", digest);
    workshop.assets.upload(&bundle, "gone bad");
    assert_eq!(workshop.outcome(&plain()).await, RenderOutcome::Unchanged);
    let status = String::from_utf8(workshop.assets.peek(&keys::status(&workshop.name)).unwrap()).unwrap();
    assert!(status.contains("healed-credentials") && status.contains(&bundle), "{status}");
    assert_eq!(workshop.outcome(&plain()).await, RenderOutcome::Unchanged);
    let status = String::from_utf8(workshop.assets.peek(&keys::status(&workshop.name)).unwrap()).unwrap();
    assert!(!status.contains("healed-credentials"), "{status}");
}

fn now() -> Timestamp {
    "2026-12-01T00:00:00Z".parse().unwrap()
}

/// Three generations, the third deployed, and the second on request; all of them are old.
async fn generations() -> (Workshop, [workshop::Rendered; 3]) {
    let workshop = Workshop::for_spec(&plain());
    workshop.assets.set_clock(now() - SignedDuration::from_hours(72));
    let first = workshop.render(&plain()).await;
    workshop.deployed(&first.plan).await;
    let second = workshop.render(&with_san("a.example.com")).await;
    workshop.deployed(&second.plan).await;
    let third = workshop.render(&with_san("b.example.com")).await;
    (workshop, [first, second, third])
}

async fn collect(assets: &MemoryBucket, cluster: &str, nodes: &Nodes) -> Vec<String> {
    let gone =
        gc::collect(assets, cluster, || gc::referred(assets, cluster, nodes), YOUNG, now()).await.unwrap();
    gone.into_iter().map(|verdict| verdict.name).collect()
}

#[tokio::test]
async fn old_generations_stay_until_nobody_refers_to_them_and_then_go() {
    let (workshop, [first, second, third]) = generations().await;
    let assets = &workshop.assets;
    let nobody = Nodes::Reported(Referred::default());
    // The nodes' credentials are unknown: everything that was ever rendered stays.
    assert_eq!(collect(assets, &workshop.name, &Nodes::Unknown).await, Vec::<String>::new());
    // A node still uses the first generation.
    let mut one = Referred::default();
    let old = &first.rendering.roles[&Role::Controller];
    one.add_node(&Role::Controller, &old.config_digest, &old.credentials_digest);
    assert_eq!(collect(assets, &workshop.name, &Nodes::Reported(one)).await, Vec::<String>::new());
    // That node is gone, so objects that only it used are deleted. The second generation is deployed, and the third is planned.
    let retired = workshop.manifest().retired;
    assert_eq!(retired[&Role::Controller].len(), 2);
    let gone = collect(assets, &workshop.name, &nobody).await;
    let kinds = |names: &[String]| {
        let of = |part: &str| names.iter().filter(|name| name.contains(part)).count();
        (of("pki/apiserver/"), of("bundles/controller/credentials-"), names.len())
    };
    assert_eq!(kinds(&gone), (2, 1, 3), "{gone:?}");
    assert!(gone.iter().any(|name| name.ends_with(&old.credentials_digest)), "{gone:?}");
    assert_eq!(workshop.manifest().retired[&Role::Controller].len(), 1);
    assert_eq!(collect(assets, &workshop.name, &nobody).await, Vec::<String>::new(), "again");
    // After the rollout the second generation is deleted, too, and only the objects of the inventory remain.
    workshop.deployed(&third.plan).await;
    let verdicts = {
        let referred = gc::referred(assets, &workshop.name, &nobody).await.unwrap();
        gc::verdicts(assets, &workshop.name, &referred, YOUNG, now()).await.unwrap()
    };
    let going: Vec<String> =
        verdicts.iter().filter(|verdict| verdict.goes).map(|verdict| verdict.name.clone()).collect();
    assert_eq!(kinds(&going), (2, 1, 3), "{going:?}");
    let keys_before = assets.keys();
    assert!(
        going.iter().all(|name| keys_before.iter().any(|key| key.ends_with(name))),
        "listing deletes nothing"
    );
    assert_eq!(collect(assets, &workshop.name, &nobody).await, going);
    assert!(workshop.manifest().retired.is_empty());
    assert_ne!(second.plan.to, third.plan.to);
    let referred = gc::referred(assets, &workshop.name, &nobody).await.unwrap();
    let left = gc::verdicts(assets, &workshop.name, &referred, YOUNG, now()).await.unwrap();
    let reasons: BTreeSet<Reason> = left.iter().map(|verdict| verdict.reason).collect();
    assert_eq!(
        reasons,
        BTreeSet::from([Reason::Current, Reason::InUse, Reason::Unknown]),
        "the inventory itself"
    );
    // A later upload works.
    assert_eq!(workshop.outcome(&with_san("b.example.com")).await, RenderOutcome::Unchanged);
    workshop.render(&with_san("c.example.com")).await;
}

#[tokio::test]
async fn what_is_young_stays_and_without_an_inventory_or_a_release_nothing_goes() {
    let (workshop, _) = generations().await;
    let assets = &workshop.assets;
    let nobody = Nodes::Reported(Referred::default());
    let referred = gc::referred(assets, &workshop.name, &nobody).await.unwrap();
    let early = now() - SignedDuration::from_hours(71);
    let verdicts = gc::verdicts(assets, &workshop.name, &referred, YOUNG, early).await.unwrap();
    assert!(verdicts.iter().all(|verdict| !verdict.goes));
    for key in [keys::manifest(&workshop.name), {
        let mut releases = workshop.assets.keys().into_iter();
        releases.rfind(|key| key.contains("/releases/")).unwrap()
    }] {
        let good = assets.peek(&key).unwrap();
        for damaged in [None, Some("{")] {
            assets.purge(&key);
            damaged.iter().for_each(|bytes| drop(assets.upload(&key, *bytes)));
            let before = assets.keys();
            let nodes = Nodes::Unknown;
            let run = gc::collect(
                assets,
                &workshop.name,
                || gc::referred(assets, &workshop.name, &nodes),
                YOUNG,
                now(),
            );
            match run.await {
                Err(FlowError::Corrupt { key: at, .. }) => assert_eq!(at, key),
                // A lost release matters only if a stack or `desired.json` refers to it.
                Ok(gone) => assert!(damaged.is_none() && key.contains("/releases/"), "{key}: {gone:?}"),
                Err(other) => panic!("{other}"),
            }
            if damaged.is_some() || key.contains("manifest") {
                assert_eq!(assets.keys(), before);
            }
        }
        assets.upload(&key, good);
    }
}

#[tokio::test]
async fn p8_killed_at_any_call_a_second_run_ends_it_and_every_node_can_boot() {
    let total = {
        let (workshop, _) = generations().await;
        let life = Life::unending();
        let assets = life.wrap(&workshop.assets);
        let nobody = Nodes::Reported(Referred::default());
        gc::collect(&assets, &workshop.name, || gc::referred(&assets, &workshop.name, &nobody), YOUNG, now())
            .await
            .unwrap();
        life.calls()
    };
    assert!(total > 15, "{total}");
    for last in 0..total {
        let (workshop, [_, _, third]) = generations().await;
        let nobody = Nodes::Reported(Referred::default());
        let life = Life::until(last, false);
        let mortal = life.wrap(&workshop.assets);
        gc::collect(&mortal, &workshop.name, || gc::referred(&mortal, &workshop.name, &nobody), YOUNG, now())
            .await
            .unwrap_err();
        let gone = collect(&workshop.assets, &workshop.name, &nobody).await;
        assert!(gone.len() <= 3);
        assert_eq!(workshop.manifest().retired[&Role::Controller].len(), 1, "{last}");
        let outcome = workshop.outcome(&with_san("b.example.com")).await;
        assert!(matches!(outcome, RenderOutcome::Planned(plan) if plan.to == third.plan.to), "{last}");
    }
}

#[tokio::test]
async fn p8_what_a_render_comes_to_need_while_it_is_taken_is_put_back() {
    let (workshop, [first, ..]) = generations().await;
    let cluster = workshop.name.clone();
    let digest = first.rendering.roles[&Role::Controller].credentials_digest.clone();
    let bundle = keys::credentials(&cluster, "controller", &digest);
    let sealed = workshop.assets.peek(&bundle).unwrap();
    let wish =
        serde_json::json!({"format": 1, "specVersion": "v", "plan": first.plan.id, "target": first.plan.to});
    let (bucket, at) = (workshop.assets.clone(), keys::desired(&cluster));
    workshop.assets.meanwhile("s3:DeleteObject", &digest, move || drop(bucket.upload(&at, wish.to_string())));
    let asked = RefCell::new(0);
    let nobody = Nodes::Reported(Referred::default());
    let gone = gc::collect(
        &workshop.assets,
        &cluster,
        || {
            *asked.borrow_mut() += 1;
            gc::referred(&workshop.assets, &cluster, &nobody)
        },
        YOUNG,
        now(),
    )
    .await
    .unwrap();
    assert_eq!(asked.into_inner(), 2);
    assert!(gone.iter().all(|verdict| !verdict.name.contains(&digest)), "{gone:?}");
    assert_eq!(workshop.assets.peek(&bundle).unwrap(), sealed);
}
