//! The verbs that call AWS: the binary that a person runs, with an installation in the embedded AWS and a cluster that its functions made;
//! also with exactly the permissions that docs/pki.md and docs/cli.md list.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod agent;
mod ci;
mod cost;
mod destroying;
mod diff;
mod doctor;
mod exports;
mod logs;
mod orders;
mod permissions;
mod plans;
mod recovery;
mod rolling;
mod sign_in;
mod status;

use std::time::Duration;

use serde_json::{Value, json};
use slipway_rollout::StackStatus;
use slipway_tests::client::ACCOUNT;
use slipway_tests::gateway::Principal;
use slipway_tests::installation::Installation;
use slipway_tests::observe::PATIENCE;
use slipway_tests::tools;
use slipway_tests::world::Settings;
use tokio::process::Command;

const QUIET: Duration = Duration::from_millis(400);
const CLUSTER: &str = "minimal";

fn spec() -> String {
    std::fs::read_to_string(tools::root().join("examples/minimal.yaml")).unwrap()
}

/// An installation whose objects were all written this many hours ago, with a deployed cluster.
async fn installation(hours: u32) -> Installation {
    installation_of(&Settings { hours_ago: hours, ..Settings::default() }).await
}

/// As [`installation`].
async fn installation_of(settings: &Settings) -> Installation {
    let slipway = Installation::start(settings).await.unwrap();
    upload(&slipway, &spec()).await;
    slipway
}

/// Whoever signs in as `AKIASOMEBODY` is a maintainer, as verbs that write credentials require it.
fn maintained(mut settings: Settings) -> Settings {
    let arn = format!("arn:aws:iam::{ACCOUNT}:role/somebody");
    settings.installation.insert("MaintainerArns".to_owned(), arn);
    settings
}

/// Uploads a spec and waits until nothing happens any more.
async fn upload(slipway: &Installation, spec: &str) {
    let mark = slipway.world().observer().mark();
    slipway.upload(CLUSTER, spec).await.unwrap();
    slipway.rolled_out(mark).await.unwrap();
}

/// From now on CloudFormation shows the installation as the stack `slipway`, as in AWS.
fn stand_stack(slipway: &Installation) {
    slipway.world().stand_stack("slipway", StackStatus::CreateComplete);
}

/// The result of a run.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    stderr: String,
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs `slipway certs …` with the access key `key` and the names of the buckets.
async fn certs(slipway: &Installation, key: &str, arguments: &str) -> Run {
    named(slipway, key, &format!("certs {arguments}")).await
}

/// Runs a verb with the access key `key` and the names of the installation's buckets.
async fn named(slipway: &Installation, key: &str, arguments: &str) -> Run {
    let world = slipway.world();
    let buckets = [
        ("SLIPWAY_ASSET_BUCKET", world.reference("AssetBucket").unwrap()),
        ("SLIPWAY_SPEC_BUCKET", world.reference("SpecBucket").unwrap()),
        ("SLIPWAY_BUS_NAME", world.reference("Bus").unwrap()),
    ];
    run(slipway, key, arguments, &buckets).await
}

async fn run(slipway: &Installation, key: &str, arguments: &str, environment: &[(&str, &str)]) -> Run {
    let world = slipway.world();
    let output = Command::new(tools::binary("slipway").unwrap())
        .args(arguments.split_whitespace())
        .env_clear()
        .envs([
            ("AWS_ENDPOINT_URL", world.gateway().url()),
            ("AWS_REGION", world.region()),
            ("AWS_ACCESS_KEY_ID", key),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("HOME", "/nonexistent"),
        ])
        .envs(environment.iter().copied())
        .output()
        .await
        .unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A user who may do everything.
const ADMINISTRATOR: &str = "AKIAADMINISTRATOR";

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_aws_is_shown_and_verified_as_a_directory_is() {
    let slipway = installation(0).await;
    let before = slipway.assets().await.unwrap();
    let mark = slipway.world().observer().mark();

    let shown = certs(&slipway, ADMINISTRATOR, "show --cluster minimal").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in ["apiserver", "etcd-peer-0", "kubernetes-ca", "364 d left", "0 expired"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    let shown = certs(&slipway, ADMINISTRATOR, "show --cluster minimal --output json").await.json();
    assert_eq!(shown["layout"], "slipway");
    assert_eq!(shown["cluster"], CLUSTER);
    assert_eq!(shown["assetBucket"], slipway.world().reference("AssetBucket").unwrap());
    let manifest: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    let certificates = shown["certificates"].as_array().unwrap();
    let assets = manifest["assets"].as_object().unwrap();
    let made = assets.iter().filter(|(_, entry)| !entry["certificate"].is_null());
    assert_eq!(certificates.len(), made.clone().count());
    for (name, entry) in made {
        let one = certificates.iter().find(|one| one["name"] == **name).unwrap();
        assert_eq!(one["serial"], entry["certificate"]["serial"]);
        assert_eq!(one["roles"], entry["roles"], "{name}");
    }

    let verified = certs(&slipway, ADMINISTRATOR, "verify --cluster minimal").await;
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.out.contains("nothing is wrong"), "{}", verified.out);
    assert!(verified.out.contains("/clusters/minimal/cluster.yaml"), "{}", verified.out);
    let calls = slipway.world().observer().calls(mark);
    assert!(calls.iter().all(|call| !call.is_write() && !call.action.starts_with("kms:")), "{calls:?}");

    let opened = certs(&slipway, ADMINISTRATOR, "verify --cluster minimal --open --output json").await.json();
    assert_eq!((&opened["ok"], &opened["sealedOpened"]), (&json!(true), &json!(true)), "{opened}");
    assert!(opened["keys"].as_u64().unwrap() >= certificates.len() as u64, "{}", opened["keys"]);
    assert_eq!(slipway.assets().await.unwrap(), before, "a verb that only reads writes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_to_a_stored_object_is_found_in_aws() {
    let slipway = installation(0).await;
    let world = slipway.world();
    let manifest: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    let fingerprint = |asset: &str| manifest["assets"][asset]["fingerprint"].as_str().unwrap().to_owned();
    let bucket = world.reference("AssetBucket").unwrap();
    let key =
        |asset: &str, ending: &str| format!("clusters/{CLUSTER}/pki/{asset}/{}.{ending}", fingerprint(asset));
    // A sealed key in another one's place, and a certificate of another asset.
    let scheduler = world.client().object(bucket, &key("scheduler", "sealed")).await.unwrap().unwrap();
    world.upload("AssetBucket", &key("node-manager", "sealed"), scheduler).await.unwrap();
    let ca = world.client().object(bucket, &key("ca", "pem")).await.unwrap().unwrap();
    world.upload("AssetBucket", &key("apiserver", "pem"), ca).await.unwrap();
    let found = certs(&slipway, ADMINISTRATOR, "verify --cluster minimal --open --output json").await;
    assert_eq!(found.code, 1, "{found:?}");
    let about = |asset: &str| {
        let found = found.json();
        let findings = found["findings"].as_array().unwrap();
        findings.iter().any(|finding| finding["file"].as_str().unwrap().contains(&format!("pki/{asset}/")))
    };
    assert!(about("node-manager") && about("apiserver") && !about("scheduler"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_stored_release_refers_to_goes_and_nothing_else() {
    let slipway = installation(48).await;
    let world = slipway.world();
    let nothing = certs(&slipway, ADMINISTRATOR, "gc --cluster minimal").await;
    assert!(nothing.code == 0 && nothing.out.starts_with("nothing is unused"), "{nothing:?}");
    // Another generation is rolled out; both releases are stored, so both stay.
    let wide = format!("{}\nkubernetes:\n  apiServer:\n    certSANs: [k8s.minimal.example.com]\n", spec());
    upload(&slipway, &wide).await;
    let manifest: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    assert_eq!(manifest["retired"]["controller"].as_object().unwrap().len(), 1, "{}", manifest["retired"]);
    let nothing = certs(&slipway, ADMINISTRATOR, "gc --cluster minimal --apply").await;
    assert!(nothing.code == 0 && nothing.out.starts_with("nothing is unused"), "{nothing:?}");

    // An object of a rendering that died before the inventory named it.
    let digest = "0".repeat(64);
    let orphans =
        [format!("pki/apiserver/{digest}.sealed"), format!("bundles/controller/credentials-{digest}")];
    for orphan in &orphans {
        world.upload("AssetBucket", &format!("clusters/{CLUSTER}/{orphan}"), b"x".to_vec()).await.unwrap();
    }
    let before = slipway.assets().await.unwrap();
    let looked = certs(&slipway, ADMINISTRATOR, "gc --cluster minimal --output json").await.json();
    assert_eq!(looked["unused"], json!(orphans));
    assert_eq!(slipway.assets().await.unwrap(), before, "listing deletes nothing");
    let taken = certs(&slipway, ADMINISTRATOR, "gc --cluster minimal --apply --output json").await.json();
    assert_eq!(taken["unused"], json!(orphans));
    let bucket = world.reference("AssetBucket").unwrap();
    for key in before.keys() {
        let is_there = world.client().object(bucket, key).await.unwrap().is_some();
        assert_eq!(is_there, !orphans.iter().any(|orphan| key.ends_with(orphan)), "{key}");
    }
    let verified = certs(&slipway, ADMINISTRATOR, "verify --cluster minimal --open").await;
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_what_is_wrong_and_what_to_do() {
    let slipway = installation(0).await;
    let gateway = slipway.world().gateway();
    // An object that a rendering may be about to name.
    let key = format!("clusters/{CLUSTER}/bundles/controller/credentials-{}", "0".repeat(64));
    slipway.world().upload("AssetBucket", &key, b"x".to_vec()).await.unwrap();
    let run = certs(&slipway, ADMINISTRATOR, "gc --cluster minimal --apply --output json").await.json();
    assert_eq!(run["unused"], json!([]), "a new object is not deleted");

    let refused = async |key: &str, arguments: &str, code: i32, words: &[&str]| {
        let run = certs(&slipway, key, arguments).await;
        assert_eq!(run.code, code, "{arguments}: {run:?}");
        for words in words {
            assert!(run.stderr.contains(words), "{arguments}: {words}: {}", run.stderr);
        }
    };
    refused(ADMINISTRATOR, "show --cluster minimla", 1, &["has no objects of a cluster minimla", "minimal"])
        .await;
    refused(ADMINISTRATOR, "show --cluster ../a", 1, &["is not a valid name of a cluster"]).await;
    refused(ADMINISTRATOR, "show --cluster minimal --asset-bucket nobodys", 3, &["NoSuchBucket", "--stack"])
        .await;
    refused(ADMINISTRATOR, "show . --cluster minimal", 2, &["cannot be used with"]).await;
    refused(ADMINISTRATOR, "verify --open", 2, &["--cluster"]).await;
    let arn = "arn:aws:iam::123456789012:role/nobody".to_owned();
    let nobody = Principal { name: "nobody".to_owned(), arn, statements: Vec::new() };
    gateway.know("AKIANOBODY", nobody);
    for verb in ["show", "verify", "gc"] {
        let words = ["AccessDenied", "s3:ListBucket", "docs/pki.md"];
        refused("AKIANOBODY", &format!("{verb} --cluster minimal"), 3, &words).await;
    }
    // Without the names of the buckets, the installation's stack is queried, which does not exist here.
    let region = slipway.world().region();
    let run = self::run(&slipway, ADMINISTRATOR, "certs show --cluster minimal", &[]).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains(&format!("there is no CloudFormation stack slipway in {region}")), "{run:?}");
}

/// P2: the rollout after a renewal plans exactly what the renewal predicted, and everything else keeps its bytes.
#[tokio::test(flavor = "multi_thread")]
async fn p2_one_certificate_is_renewed_in_aws_and_the_rollout_after_it_is_as_foreseen() {
    let slipway = installation(0).await;
    let before = slipway.assets().await.unwrap();
    let old: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    let would = certs(&slipway, ADMINISTRATOR, "renew apiserver --cluster minimal").await;
    assert!(would.code == 0 && would.out.contains("nothing was changed; --apply issues it"), "{would:?}");
    assert!(would.out.contains("credentials that would change: controller"), "{}", would.out);
    let foreseen =
        certs(&slipway, ADMINISTRATOR, "renew apiserver --cluster minimal --output json").await.json();
    assert_eq!((&foreseen["applied"], &foreseen["roles"]), (&json!(false), &json!(["controller"])));
    assert_eq!(slipway.assets().await.unwrap(), before, "a verb that only reads writes nothing");

    let mark = slipway.world().observer().mark();
    let run =
        certs(&slipway, ADMINISTRATOR, "renew apiserver --cluster minimal --apply --upload --output json")
            .await;
    let done = run.json();
    assert_eq!((run.code, &done["uploaded"]), (0, &json!(true)), "{run:?}");
    let new: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    let differ = |group: &str| -> Vec<String> {
        let entries = old[group].as_object().unwrap().iter();
        entries.filter(|(name, entry)| new[group][*name] != **entry).map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(
        (differ("assets"), differ("bundles")),
        (vec!["apiserver".to_owned()], vec!["controller".to_owned()])
    );
    assert_eq!(new["assets"]["apiserver"]["certificate"]["serial"], done["serial"]);

    // The upload woke the function, whose plan is as predicted.
    slipway.rolled_out(mark).await.unwrap();
    let desired: Value = slipway.document(CLUSTER, "desired.json").await.unwrap().unwrap();
    let plan = format!("plans/{}.json", desired["plan"].as_str().unwrap());
    let plan: Value = slipway.document(CLUSTER, &plan).await.unwrap().unwrap();
    let moved = |list: &Value, still: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().filter(|one| one["action"] != still).cloned().collect()
    };
    assert_eq!(json!(moved(&plan["nodes"], "untouched")), foreseen["nodes"]);
    let stacks: Vec<Value> =
        moved(&plan["stacks"], "unchanged").iter().map(|one| one["name"].clone()).collect();
    assert_eq!(json!(stacks), foreseen["stacks"]);

    // A refused spec blocks the renewal, which says so; nothing is written.
    let mark = slipway.world().observer().mark();
    slipway.upload(CLUSTER, spec().replacen("1.37", "0.1", 1)).await.unwrap();
    assert!(slipway.event(mark, &["Spec Rejected"], PATIENCE).await.is_some());
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let before = slipway.assets().await.unwrap();
    for (name, words) in
        [("apiserver", "differs from what was planned last"), ("ca", "differs from what was planned last")]
    {
        let run = certs(&slipway, ADMINISTRATOR, &format!("renew {name} --cluster minimal --apply")).await;
        assert!(run.code == 1 && run.stderr.contains(words), "{run:?}");
    }
    assert_eq!(slipway.assets().await.unwrap(), before);
}
