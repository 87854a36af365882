//! A cluster's life with only the command line: `apply`, `status`, `approve`, `watch`, `kubeconfig`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_tests::installation::Installation;
use slipway_tests::world::Settings;

use crate::{ADMINISTRATOR, CLUSTER, PATIENCE, QUIET, Run, named, spec};

async fn slipway_as_administrator(slipway: &Installation, arguments: &str) -> Run {
    named(slipway, ADMINISTRATOR, arguments).await
}

/// The smallest spec, with plans that wait for approval.
fn waiting() -> String {
    format!("{}\nrollout:\n  approval: manual\n", spec())
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const PATCH: &str = "target:\n  stack: network\nmerge:\n  Description: patched\n";

#[tokio::test(flavor = "multi_thread")]
async fn p3_a_plan_is_applied_read_approved_and_watched_to_its_end() {
    let slipway = Installation::start(&Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "cluster.yaml", &waiting());
    let run = async |arguments: &str| slipway_as_administrator(&slipway, arguments).await;
    let cluster = format!("--cluster {CLUSTER}");

    // A refused spec is not uploaded, nor is a spec of another cluster.
    let bad = write(folder.path(), "bad.yaml", &spec().replacen("1.37", "0.1", 1));
    for (file, cluster) in [(&bad, CLUSTER), (&file, "other")] {
        let refused = run(&format!("apply {file} --cluster {cluster}")).await;
        assert_eq!(refused.code, 1, "{refused:?}");
    }
    assert!(run(&format!("status {cluster}")).await.stderr.contains("upload a spec first"));
    let dry = run(&format!("apply {file} {cluster} --dry-run")).await;
    assert!(dry.code == 0 && dry.out.starts_with("would be uploaded s3://"), "{dry:?}");
    let bucket = slipway.world().reference("SpecBucket").unwrap();
    assert_eq!(slipway.world().client().versions(bucket).await.unwrap(), []);

    let unsure = run(&format!("apply {file} {cluster}")).await;
    assert!(unsure.code == 1 && unsure.stderr.contains("add --yes"), "{unsure:?}");
    assert!(unsure.stderr.contains("the cluster is new"), "what changes is not shown first: {unsure:?}");
    assert_eq!(slipway.world().client().versions(bucket).await.unwrap(), []);

    let mark = slipway.world().observer().mark();
    // Without an option the spec names its cluster.
    let applied = run(&format!("apply -f {file} --yes -o json")).await.json();
    assert_eq!((&applied["applied"], &applied["sameSpec"]), (&json!(true), &json!(false)));
    let planned = slipway.event(mark, &["Plan Ready", "Spec Rejected"], PATIENCE).await.unwrap();
    assert_eq!((planned.0.as_str(), &planned.1["specVersion"]), ("Plan Ready", &applied["specVersion"]));
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let plan = planned.1["plan"].as_str().unwrap().to_owned();

    // The status shows that the plan waits.
    let shown = run(&format!("status {cluster} --exit-code")).await;
    assert_eq!(shown.code, 1, "nothing serves yet: {shown:?}");
    for words in
        ["waiting-for-approval", "nothing is deployed yet", &plan, "slipway approve --cluster minimal"]
    {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    let nobody = run(&format!("approve {cluster}")).await;
    assert!(nobody.code == 1 && nobody.stderr.contains("possible only on a terminal"), "{nobody:?}");
    assert!(
        nobody.stderr.contains("+ minimal-network create"),
        "the plan is not shown first: {}",
        nobody.stderr
    );
    let other = run(&format!("approve {cluster} 00000000000000000000")).await;
    assert!(
        other.code == 1
            && other.stderr.contains(&format!("is not the newest plan of minimal: that is {plan}"))
    );
    let timed = run(&format!("watch {cluster} --every 1 --minutes 0")).await;
    assert!(timed.code == 1 && timed.stderr.contains("had not ended in that time"), "{timed:?}");
    assert!(slipway.event(mark, &["Rollout Started"], QUIET).await.is_none());

    let (watched, approved) = tokio::join!(
        run("watch --cluster minimal --every 1 --minutes 3"),
        run("approve --cluster minimal --yes")
    );
    assert!(approved.code == 0 && approved.out.contains(&format!("approved plan {plan}")), "{approved:?}");
    assert_eq!(watched.code, 0, "{watched:?}");
    let last = watched.out.lines().rfind(|line| line.contains(" rollout: ")).unwrap();
    assert!(last.contains("rollout: succeeded: "), "{}", watched.out);
    assert!(watched.out.contains(" stack minimal-etcd: done"), "{}", watched.out);
    let again = run(&format!("approve {cluster} {plan}")).await;
    assert!(again.code == 1 && again.stderr.contains("was rolled out already, and succeeded"), "{again:?}");

    // Watched from the upload on. The spec that was rolled out says that a person approves, so the next one waits for that, too.
    let wide = format!("{}\nkubernetes:\n  apiServer:\n    certSANs: [k8s.minimal.example.com]\n", spec());
    write(folder.path(), "cluster.yaml", &wide);
    let mark = slipway.world().observer().mark();
    let applied = format!("apply {file} {cluster} --yes --watch --output json");
    let (run, approved) = tokio::join!(run(&applied), async {
        assert!(slipway.event(mark, &["Plan Ready"], PATIENCE).await.is_some());
        run(&format!("approve {cluster} --yes")).await
    });
    assert_eq!((run.code, approved.code), (0, 0), "{run:?} {approved:?}");
    assert!(run.out.contains(r#""about":"rollout","at":"#) && run.out.contains("succeeded: "), "{}", run.out);
    let rollout: Value = slipway.document(CLUSTER, "rollout.json").await.unwrap().unwrap();
    assert_eq!((&rollout["generation"], &rollout["last"]["result"]), (&json!(2), &json!("succeeded")));

    // Both are told afterwards.
    let told = slipway_as_administrator(&slipway, &format!("history {cluster} --output json")).await.json();
    let rollouts = told["rollouts"].as_array().unwrap();
    let of = |key: &str| -> Vec<&Value> { rollouts.iter().map(|one| &one[key]).collect() };
    assert_eq!(of("generation"), [2, 1]);
    assert_eq!(of("kind"), ["renewal", "launch"], "{told}");
    assert_eq!(of("result"), ["succeeded", "succeeded"]);
    assert_eq!(of("approved"), [true, true]);
    assert_eq!(of("plan")[1], &json!(plan));
    assert!(rollouts.iter().all(|one| one["seconds"].as_i64() > Some(0)), "{told}");
    let text = slipway_as_administrator(&slipway, &format!("history {cluster}")).await;
    for words in [
        "minimal: 2 rollouts, the newest first\n",
        "    1  launch         succeeded ",
        ", approved by a person\n",
    ] {
        assert!(text.code == 0 && text.out.contains(words), "{words}: {text:?}");
    }
    crate::permissions::a_history_needs_what_the_page_says_and_nothing_more(&slipway).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_go_with_the_spec_and_those_of_others_are_not_taken_away_unasked() {
    let slipway = Installation::start(&Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "cluster.yaml", &waiting());
    write(folder.path(), "patches/10-a.yaml", PATCH);
    let apply = async |options: &str| {
        let arguments = format!("apply {file} --cluster {CLUSTER} --yes --output json {options}");
        slipway_as_administrator(&slipway, &arguments).await
    };
    let first = apply("").await;
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(first.json()["patches"], json!(["10-a.yaml"]));
    assert_eq!(apply("").await.json()["patches"], json!([]), "the same is not uploaded again");
    std::fs::rename(folder.path().join("patches/10-a.yaml"), folder.path().join("patches/20-b.yaml"))
        .unwrap();
    let refused = apply("").await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.out.contains("patches of minimal that are not beside") && refused.out.contains("--prune")
    );
    let kept = apply("--keep-patches --dry-run").await.json();
    assert_eq!((&kept["kept"], &kept["applied"]), (&json!(["10-a.yaml"]), &json!(false)));
    let pruned = apply("--prune").await.json();
    assert_eq!((&pruned["patches"], &pruned["pruned"]), (&json!(["20-b.yaml"]), &json!(["10-a.yaml"])));
    let bucket = slipway.world().reference("SpecBucket").unwrap();
    let there = async |name: &str| {
        let key = format!("clusters/{CLUSTER}/patches/{name}");
        slipway.world().client().object(bucket, &key).await.unwrap()
    };
    assert_eq!(there("10-a.yaml").await, None);
    assert_eq!(there("20-b.yaml").await.unwrap(), PATCH.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn p9_a_kubeconfig_is_for_one_alone() {
    let slipway = crate::installation(0).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("admin.kubeconfig");
    let arguments = format!("kubeconfig --cluster {CLUSTER} --out {}", out.display());
    let written = slipway_as_administrator(&slipway, &arguments).await;
    assert_eq!(written.code, 0, "{written:?}");
    assert_eq!(out.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("server: https://api.minimal.example.com\n"), "{text}");
    let data = |field: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(field)).unwrap();
        String::from_utf8(STANDARD.decode(line.rsplit(' ').next().unwrap()).unwrap()).unwrap()
    };
    let manifest: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    let bucket = slipway.world().reference("AssetBucket").unwrap();
    let stored = async |asset: &str| {
        let fingerprint = manifest["assets"][asset]["fingerprint"].as_str().unwrap();
        let key = format!("clusters/{CLUSTER}/pki/{asset}/{fingerprint}.pem");
        String::from_utf8(slipway.world().client().object(bucket, &key).await.unwrap().unwrap()).unwrap()
    };
    assert_eq!(data("client-certificate-data:"), stored("admin").await);
    assert_eq!(data("certificate-authority-data:"), stored("ca").await);
    let key = data("client-key-data:");
    assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
    let said = format!("{}{}", written.out, written.stderr);
    assert!(!said.contains("PRIVATE") && !said.contains(&STANDARD.encode(&key)), "the key is not printed");

    let there = slipway_as_administrator(&slipway, &arguments).await;
    assert!(there.code == 1 && there.stderr.contains("is there already"), "{there:?}");
    // The new file does not get the permissions of the existing file.
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(slipway_as_administrator(&slipway, &format!("{arguments} --force")).await.code, 0);
    assert_eq!(out.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let asked = slipway_as_administrator(&slipway, &format!("kubeconfig --cluster {CLUSTER} --out -")).await;
    assert_eq!(asked.out, text, "the same credentials, because asked");
    let other = format!("kubeconfig --cluster {CLUSTER} --endpoint inside --out {}x", out.display());
    let other = slipway_as_administrator(&slipway, &other).await;
    assert!(other.code == 1 && other.stderr.contains("has no API endpoint inside"), "{other:?}");
}

/// A renewal is requested with a command: the scan function issues, the render function plans, the plan is rolled out, and the command
/// follows it to the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_asked_for_and_watched_to_its_end() {
    let slipway = crate::installation(0).await;
    let run = async |arguments: &str| slipway_as_administrator(&slipway, arguments).await;
    let old: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    for (arguments, words) in [
        ("renew ca --cluster minimal", "it is an authority"),
        ("renew apisever --cluster minimal", "did you mean apiserver?"),
        ("renew apiserver --cluster minimla", "has no objects of a cluster minimla"),
    ] {
        let refused = run(arguments).await;
        assert!(refused.code == 1 && refused.stderr.contains(words), "{arguments}: {refused:?}");
    }
    let before = slipway.assets().await.unwrap();
    let dry = run("renew --cluster minimal --dry-run --output json").await.json();
    assert_eq!((dry["certificates"].as_array().unwrap().len(), &dry["asked"]), (11, &json!(false)), "{dry}");
    let looked = run("scan --cluster minimal --dry-run --output json").await;
    assert_eq!((looked.code, &looked.json()["wouldRenew"]), (0, &json!([])), "{looked:?}");
    let recover = run("renew --recover scheduler --cluster minimal --dry-run").await;
    assert!(recover.code == 0 && recover.out.contains("would be reissued: scheduler"), "{recover:?}");
    assert_eq!(slipway.assets().await.unwrap(), before, "a verb that only reads writes nothing");

    let mark = slipway.world().observer().mark();
    let watched = run("renew apiserver --cluster minimal --watch").await;
    assert_eq!(watched.code, 0, "{watched:?}");
    for words in ["asked to issue anew: apiserver", "they are renewed", "rollout: succeeded"] {
        assert!(watched.out.contains(words), "{words}: {}", watched.out);
    }
    let new: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    for (name, entry) in old["assets"].as_object().unwrap() {
        assert_eq!(new["assets"][name] != *entry, name == "apiserver", "{name}");
    }
    for arguments in ["scan --cluster minimal", "scan --all"] {
        assert_eq!(run(arguments).await.code, 0);
    }
    let asked = slipway.event(mark, &["Scan Requested"], PATIENCE).await;
    assert_eq!(asked.unwrap().1, json!({"cluster": CLUSTER}));
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}
