//! `slipway destroy`, the binary, and what other verbs say about a cluster that is being destroyed or is gone.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_sim::world::Phase;

use super::*;

/// A resource whose deletion fails while it is protected.
const PROTECTED: &str = "AWS::ElasticLoadBalancingV2::LoadBalancer";

async fn run(slipway: &Installation, arguments: &str) -> Run {
    named(slipway, ADMINISTRATOR, &format!("{arguments} --cluster {CLUSTER}")).await
}

/// The number of versions of the spec in the installation's spec bucket.
async fn uploads(slipway: &Installation) -> usize {
    let bucket = slipway.world().reference("SpecBucket").unwrap();
    slipway.world().client().versions(bucket).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn p10_an_order_that_comes_hours_late_is_told_and_a_destruction_that_is_called_off_is_no_success() {
    let slipway = installation(0).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    std::fs::write(&file, spec()).unwrap();
    let run = async |arguments: &str| run(&slipway, arguments).await;

    // An order that somebody redrives from the dead-letter queue.
    let mark = slipway.world().observer().mark();
    let late = json!({
        "source": "slipway", "detail-type": "Destroy Requested", "detail": { "cluster": CLUSTER },
        "time": Timestamp::now() - SignedDuration::from_hours(3),
    });
    slipway.world().invoke("RolloutFunction", &late).unwrap();
    let (_, told) = slipway.event(mark, &["Order Ignored"], PATIENCE).await.unwrap();
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("late and was ignored"), "{told}");
    assert!(message.contains("slipway destroy --cluster minimal"), "{told}");
    let status: Value = slipway.document(CLUSTER, "status.json").await.unwrap().unwrap();
    assert_eq!(
        (&status["rollout"]["ignored"], &status["rollout"]["state"]),
        (&told["message"], &json!("succeeded"))
    );
    let shown = run("status").await;
    assert!(shown.code == 0 && shown.out.contains("note  the order of "), "{shown:?}");

    // The destruction stops half-way; nothing is uploaded meanwhile.
    slipway.world().cloud().with(|cloud| cloud.fail_during(Phase::Delete, PROTECTED, "it is protected", 1));
    let unsure = run("destroy --watch").await;
    assert!(unsure.code == 1 && unsure.stderr.contains("possible only on a terminal"), "{unsure:?}");
    let stopped = run("destroy --yes --watch").await;
    assert_eq!(stopped.code, 1, "{stopped:?}");
    for words in [
        "rollout: failed: the destruction stopped: minimal-control-plane could not be deleted",
        "it is protected",
        "stack minimal-pool-general: deleted",
    ] {
        assert!(stopped.out.contains(words), "{words}: {}", stopped.out);
    }
    assert!(!stopped.out.contains("minimal-identity"), "there never was any: {}", stopped.out);
    let (before, apply) = (uploads(&slipway).await, format!("apply {}", file.display()));
    for (arguments, words) in [
        (
            apply.as_str(),
            "`slipway destroy --cluster minimal` goes on with it, or end it first: slipway abort",
        ),
        ("rollback --yes", "slipway abort --cluster minimal ends that"),
        ("scan", "its certificates are left alone"),
    ] {
        let refused = run(arguments).await;
        assert!(refused.code == 1 && refused.stderr.contains(words), "{refused:?}");
        assert!(refused.stderr.contains("minimal is being destroyed since 2"), "{refused:?}");
        assert!(refused.stderr.contains("Z, and that has stopped half-way"), "to the second: {refused:?}");
    }
    assert_eq!(uploads(&slipway).await, before);

    // Aborted: the status says so as long as something is missing.
    let mark = slipway.world().observer().mark();
    assert_eq!(run("abort --yes").await.code, 0);
    assert!(slipway.event(mark, &["Rollout Aborted"], PATIENCE).await.is_some());
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let watched = run("watch").await;
    let words = "rollout: aborted: the destruction was aborted: 1 of 4 stacks are gone";
    assert!(watched.code == 1 && watched.out.contains(words), "{watched:?}");
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_destroyed_is_told_as_such_by_every_verb_whatever_was_uploaded_meanwhile() {
    let slipway = installation(0).await;
    let folder = tempfile::tempdir().unwrap();
    let run = async |arguments: &str| run(&slipway, arguments).await;
    // The world's time is stopped, so that the order of events is certain.
    let still = slipway.world().cloud().hold();
    let mark = slipway.world().observer().mark();
    let ordered = run("destroy --yes --output json").await.json();
    assert_eq!((&ordered["asked"], ordered["stacks"].as_array().unwrap().len()), (&json!("destroy"), 4));
    assert!(slipway.event(mark, &["Rollout Step", "Rollout Waiting"], PATIENCE).await.is_some());
    let shown = run("status").await;
    assert!(shown.code == 0 && shown.out.contains("destroying"), "{shown:?}");
    slipway.upload(CLUSTER, format!("{}\n# again\n", spec())).await.unwrap();
    assert!(slipway.event(mark, &["Spec Rejected"], PATIENCE).await.is_some());
    let file = folder.path().join("cluster.yaml");
    std::fs::write(&file, spec()).unwrap();
    let refused = run(&format!("apply {} --dry-run", file.display())).await;
    assert!(
        refused.code == 1 && refused.stderr.contains("wait until it is over: slipway watch"),
        "{refused:?}"
    );
    drop(still);

    let watched = run("watch --every 1").await;
    assert_eq!(watched.code, 0, "{watched:?}");
    let last = watched.out.lines().rfind(|line| line.contains(" rollout: ")).unwrap();
    assert!(
        last.contains("rollout: destroyed: all stacks are deleted; the last snapshot of etcd is stored at "),
        "{last}"
    );
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let shown = run("status --exit-code").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in ["of the cluster that was destroyed (version ", "nothing needs attention"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    let out = folder.path().join("kubeconfig");
    for verb in [
        "destroy --yes",
        "pause",
        "resume",
        "scan",
        "scan --dry-run",
        "rollback --yes",
        &format!("kubeconfig --out {}", out.display()),
    ] {
        let refused = run(verb).await;
        assert!(
            refused.code == 1 && refused.stderr.contains("minimal was destroyed at 2"),
            "{verb}: {refused:?}"
        );
        assert!(
            refused.stderr.contains("slipway apply cluster.yaml --cluster minimal makes it anew"),
            "{refused:?}"
        );
    }
    assert!(!out.exists());
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}
