//! `slipway status`: the report about the state of nodes, spec and rollout in the bucket.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::keys;
use slipway_tests::client::machine_arn;
use slipway_tests::installation::Installation;

use crate::{ADMINISTRATOR, CLUSTER, PATIENCE, QUIET, Run, installation, named, spec};

async fn status(slipway: &Installation, arguments: &str) -> Run {
    named(slipway, ADMINISTRATOR, &format!("status --cluster {CLUSTER} {arguments}")).await
}

/// `name`: `ROLE/INSTANCE/bootstrap` or `ROLE/INSTANCE/status`.
pub(crate) async fn node_object(slipway: &Installation, name: &str, bytes: impl Into<Vec<u8>>) {
    let [role, instance, what] = name.split('/').collect::<Vec<_>>()[..] else { panic!("{name}") };
    let key = match what {
        "bootstrap" => keys::bootstrap_report(CLUSTER, role, &machine_arn(instance)),
        "status" => keys::node_status(CLUSTER, role, &machine_arn(instance)),
        other => panic!("{other}"),
    };
    slipway.world().upload("AssetBucket", &key, bytes.into()).await.unwrap();
}

/// A bootstrap report of a machine that is healthy with the planned configuration, or gave up.
pub(crate) async fn boot(
    slipway: &Installation,
    role: &str,
    instance: &str,
    failure: Option<(&str, &str, &str)>,
) -> Vec<u8> {
    let desired: Value = slipway.document(CLUSTER, "desired.json").await.unwrap().unwrap();
    let release = format!("releases/{}.json", desired["target"].as_str().unwrap());
    let release: Value = slipway.document(CLUSTER, &release).await.unwrap().unwrap();
    let asked = &release["roles"][role];
    let report = json!({
        "format": 1, "instance": instance, "role": role, "agent": "0.1.0", "at": Timestamp::now(),
        "config": asked["configDigest"], "credentials": asked["credentialsDigest"],
        "state": if failure.is_some() { "given-up" } else { "healthy" },
        "step": failure.map(|(step, _, _)| step),
        "failure": failure.map(|(_, message, help)| json!({"code": "x", "message": message, "help": help})),
    });
    serde_json::to_vec(&report).unwrap()
}

/// The hourly status of a member or controller.
fn serves(role: &str, certificate: &Value, days: i64, problem: Option<&str>) -> Vec<u8> {
    let end = Timestamp::now() + SignedDuration::from_hours(24 * days + 1);
    let report = json!({
        "format": 1, "at": Timestamp::now(), "cluster": CLUSTER, "role": role,
        "applied": {"config": "c", "credentials": "k", "agent": "a", "matchesNodeFile": true},
        "served": [{
            "name": "kube-apiserver", "address": "127.0.0.1:6443", "verifiable": true,
            "certificate": {
                "serial": "1f", "fingerprint": certificate, "subject": "CN=kube-apiserver", "issuer": "CN=kubernetes-ca",
                "notBefore": Timestamp::now(), "notAfter": end, "verifies": true,
            },
        }],
        "components": [{"name": "kube-scheduler", "healthy": problem.is_none(), "problem": problem}],
        "healthy": problem.is_none(),
    });
    serde_json::to_vec(&report).unwrap()
}

/// All machines of the cluster report that they are well.
pub(crate) async fn all_are_well(slipway: &Installation) {
    for role in ["etcd-0", "controller", "pool-general"] {
        let report = boot(slipway, role, "i-0a1b2c3d4e5f60718", None).await;
        node_object(slipway, &format!("{role}/i-0a1b2c3d4e5f60718/bootstrap"), report).await;
    }
    let manifest: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    let current = serves("controller", &manifest["assets"]["apiserver"]["fingerprint"], 300, None);
    node_object(slipway, "controller/i-0a1b2c3d4e5f60718/status", current).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_shows_with_its_reason_and_what_helps() {
    let slipway = installation(0).await;
    let before = slipway.assets().await.unwrap();
    let shown = status(&slipway, "--exit-code").await;
    assert_eq!(shown.code, 1, "no machine says that it serves: {shown:?}");
    for words in [
        "accepted",
        "succeeded",
        "none has reported",
        "etcd: 0 of 1 members are healthy",
        "364 d left",
        "nothing needs attention",
    ] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    assert_eq!(slipway.assets().await.unwrap(), before, "a verb that only reads writes nothing");

    // Issue 5: an instance that cannot boot is reported unhealthy, with the reason.
    let gave_up = Some(("storage", "no volume \u{1b}[2J with the tag", "attach the volume of etcd-0"));
    node_object(&slipway, "etcd-0/i-0bad/bootstrap", boot(&slipway, "etcd-0", "i-0bad", gave_up).await).await;
    node_object(&slipway, "pool-general/i-0a/bootstrap", boot(&slipway, "pool-general", "i-0a", None).await)
        .await;
    node_object(&slipway, "controller/i-0c/bootstrap", boot(&slipway, "controller", "i-0c", None).await)
        .await;
    // It serves a certificate that the store does not have any more, and a component is down.
    let late = serves("controller", &json!("0".repeat(64)), 3, Some("connection refused"));
    node_object(&slipway, "controller/i-0c/status", late).await;
    node_object(&slipway, "controller/i-0d/status", b"{".to_vec()).await;
    node_object(&slipway, "controller/i-0d/bootstrap", vec![b' '; 300_000]).await;
    // A worker chooses the keys below its role's folder: what is no machine's is no report.
    let forged = boot(&slipway, "pool-general", "i-0a", gave_up).await;
    for name in ["i-0\u{1b}[2Jforged/bootstrap", "i-0\u{1b}[2Jforged/status", "\u{fffe}forged/bootstrap"] {
        node_object(&slipway, &format!("pool-general/{name}"), forged.clone()).await;
    }
    // Whoever may write into the bucket makes a folder that is no cluster's: verbs print commands to copy with the names of clusters.
    let key = "clusters/a;reboot/status.json";
    slipway.world().upload("AssetBucket", key, b"{}".to_vec()).await.unwrap();
    let shown = status(&slipway, "--exit-code").await;
    assert_eq!(shown.code, 1, "{shown:?}");
    for words in [
        "i-0bad (etcd-0) gave up at storage just now: no volume  [2J with the tag",
        "attach the volume of etcd-0",
        "i-0c (controller) is not healthy: kube-scheduler: connection refused",
        "i-0c (controller) serves a certificate on kube-apiserver with 3 d left; the store has a newer one, which is not in use",
        "runs an earlier configuration",
        "instance/i-0d/bootstrap.json cannot be read: 300000 bytes are more than any node says",
        "instance/i-0d/status.json cannot be read: 1 bytes that are not a report",
        "2 up, 1 given up",
    ] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    assert!(!shown.out.contains('\u{1b}'), "control characters of a report are not printed: {}", shown.out);
    assert!(!shown.out.contains("forged"), "{}", shown.out);
    let listed = named(&slipway, ADMINISTRATOR, "list").await;
    assert!(
        !listed.out.contains('\u{1b}') && !listed.out.contains("forged") && !listed.out.contains("reboot"),
        "{listed:?}"
    );
    let machine = status(&slipway, "--output json").await.json();
    assert_eq!((&machine["ok"], &machine["well"]), (&json!(true), &json!(false)));
    let bad = machine["nodes"].as_array().unwrap().iter().find(|node| node["instance"] == "i-0bad").unwrap();
    assert_eq!(
        (&bad["standing"], &bad["bootstrap"]["failure"]["help"]),
        (&json!("givenUp"), &json!("attach the volume of etcd-0"))
    );

    // It serves the stored certificate; and the member runs on another machine.
    let manifest: Value = slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap();
    let current = serves("controller", &manifest["assets"]["apiserver"]["fingerprint"], 300, None);
    node_object(&slipway, "controller/i-0c/status", current).await;
    node_object(&slipway, "etcd-0/i-0e/bootstrap", boot(&slipway, "etcd-0", "i-0e", None).await).await;
    let shown = status(&slipway, "--exit-code").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in ["3 up", "1 former", "300 d left (kube-apiserver)"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    // Its database has much free space, then nearly reaches its quota.
    for (in_use, words, help, code) in [
        (
            300,
            "has 1900 MiB under a quota of 2048 MiB, and only 300 MiB",
            "slipway defragment --cluster minimal",
            0,
        ),
        (
            1800,
            "etcd-0 uses 1800 MiB (87 %) of a quota of 2048 MiB",
            "slipway apply cluster.yaml --cluster minimal",
            1,
        ),
    ] {
        let mut member: Value = serde_json::from_slice(&serves("etcd-0", &json!("0"), 300, None)).unwrap();
        member["served"] = json!([]);
        member["etcd"] = json!({"format": 1, "name": "etcd-0", "healthy": true, "problems": [], "serving": true, "id": "1",
            "learner": false, "leads": true, "term": 1, "revision": 1, "raftIndex": 1, "raftAppliedIndex": 1, "alarms": [], "members": [],
            "dbSize": 1900_u64 << 20, "dbSizeInUse": in_use << 20, "dbQuota": 2048_u64 << 20});
        node_object(&slipway, "etcd-0/i-0e/status", serde_json::to_vec(&member).unwrap()).await;
        let shown = status(&slipway, "--exit-code").await;
        assert!(shown.code == code && shown.out.contains(words) && shown.out.contains(help), "{shown:?}");
    }
    assert!(!shown.out.contains("i-0bad"), "an old report is not shown: {}", shown.out);
    assert!(status(&slipway, "--all").await.out.contains("i-0bad"));

    // A spec that was refused, and a document that cannot be read.
    let mark = slipway.world().observer().mark();
    slipway.upload(CLUSTER, spec().replacen("1.37", "0.1", 1)).await.unwrap();
    assert!(slipway.event(mark, &["Spec Rejected"], PATIENCE).await.is_some());
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let key = format!("clusters/{CLUSTER}/pki/manifest.json");
    slipway.world().upload("AssetBucket", &key, b"{}".to_vec()).await.unwrap();
    let shown = status(&slipway, "--exit-code").await;
    assert_eq!(shown.code, 1, "{shown:?}");
    for words in [
        "refused",
        "the newest spec was refused",
        "slipway apply cluster.yaml --cluster minimal",
        "pki/manifest.json cannot be read",
    ] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_nodes_are_shown_within_seconds() {
    const NODES: usize = 1_050;
    let slipway = installation(0).await;
    let report = boot(&slipway, "pool-general", "i-0", None).await;
    let lane = async |first: usize| {
        for number in (first..NODES).step_by(4) {
            let name = format!("pool-general/i-{number:05}/bootstrap");
            node_object(&slipway, &name, report.clone()).await;
        }
    };
    tokio::join!(lane(0), lane(1), lane(2), lane(3));
    let (mark, began) = (slipway.world().observer().mark(), Instant::now());
    let shown = status(&slipway, "--output json").await.json();
    let took = began.elapsed();
    assert_eq!(shown["nodes"].as_array().unwrap().len(), NODES);
    let calls = slipway.world().observer().calls(mark);
    let lists = calls.iter().filter(|call| call.action == "s3:ListBucket").count();
    assert!(lists <= 4, "two pages of nodes, and whether the cluster is there: {lists}");
    println!("{NODES} nodes in {} calls and {took:?} against moto", calls.len());
    let text = status(&slipway, "").await.out;
    assert!(text.lines().count() < 70 && text.contains("that are up or former; --all lists them"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cluster_is_a_line_and_every_snapshot_of_etcd() {
    let slipway = installation(0).await;
    let run = async |arguments: &str| named(&slipway, ADMINISTRATOR, arguments).await;
    let all = run("list").await;
    assert!(
        all.code == 0 && all.out.starts_with("minimal  not known whether it serves  succeeded since "),
        "{all:?}"
    );
    assert_eq!(run("list --exit-code").await.code, 1, "no machine says that it serves");
    for words in ["0 of 0 nodes up", " ends in 364 d", "nothing wrong"] {
        assert!(all.out.contains(words), "{words}: {}", all.out);
    }

    // A controller that is not healthy, and a folder of which nothing is known.
    let none = run("snapshots --cluster minimal --max-age 1").await;
    assert!(none.code == 1 && none.out.contains("has no snapshot of etcd yet"), "{none:?}");
    let reported = boot(&slipway, "controller", "i-0a1b2c3d4e5f60718", None).await;
    node_object(&slipway, "controller/i-0a1b2c3d4e5f60718/bootstrap", reported).await;
    let unwell = serves("controller", &json!("f"), 300, Some("it does not answer"));
    node_object(&slipway, "controller/i-0a1b2c3d4e5f60718/status", unwell).await;
    let other = "clusters/other/etcd-snapshots/20261125T120000Z.db";
    slipway.world().upload("AssetBucket", other, vec![0; 3 << 20]).await.unwrap();
    let all = run("list --exit-code").await;
    assert_eq!(all.code, 1, "{all:?}");
    for words in
        ["0 of 1 node up", "1 wrong", "it does not answer", "slipway status --cluster minimal", "other"]
    {
        assert!(all.out.contains(words), "{words}: {}", all.out);
    }
    let all = run("list --output json").await.json();
    assert_eq!(
        (&all["clusters"][0]["cluster"], &all["clusters"][0]["wrong"]),
        (&json!("minimal"), &json!(1))
    );
    assert_eq!(all["clusters"].as_array().unwrap().len(), 2);

    // What nobody read back is shown, and is no backup; what Slipway does not name so is not shown.
    let forged = "clusters/other/etcd-snapshots/20261126T120000Z\u{1b}[2J.db";
    slipway.world().upload("AssetBucket", forged, vec![0; 1]).await.unwrap();
    let one = run("snapshots --cluster other --max-age 1").await;
    assert!(one.code == 1 && one.out.starts_with("20261125T120000Z  3 MiB  ordered    stored "), "{one:?}");
    let shown: Vec<&str> = one.out.lines().collect();
    assert!(shown[0].ends_with("not recorded as verified"), "{one:?}");
    assert!(shown.len() == 2 && shown[1].starts_with("no verified snapshot of this etcd"), "{one:?}");
    for file in ["20261125T180000Z.db", "20261125T180000Z.db.json", "ledger.json"] {
        let key = format!("scheduled-snapshots/other/{file}");
        slipway.world().upload("AssetBucket", &key, vec![0; 1 << 20]).await.unwrap();
    }
    assert_eq!(run("snapshots --cluster other --max-age 1").await.code, 0);
    let both = run("snapshots --cluster other").await.out;
    let scheduled = both.lines().find(|line| line.starts_with("20261125T180000Z")).unwrap();
    assert!(scheduled.contains("  1 MiB  scheduled  stored ") && scheduled.ends_with("  verified"), "{both}");
    assert_eq!(both.lines().count(), 2, "{both}");
    let both = run("snapshots --cluster other --output json").await.json();
    let shown = both["snapshots"].as_array().unwrap().iter();
    let mut shown: Vec<_> = shown.map(|one| (one["kind"].to_string(), one["verified"].clone())).collect();
    assert_eq!((&both["tooOld"], &both["incomplete"]), (&json!(false), &json!(false)));
    shown.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(shown, [("\"ordered\"".to_owned(), json!(false)), ("\"scheduled\"".to_owned(), json!(true))]);
}
