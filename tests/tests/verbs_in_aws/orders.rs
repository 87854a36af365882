//! `pause`, `resume`, `skip` and `abort`: a person's orders, from the binary over the bus to the rollout function and back.

use serde_json::{Value, json};
use slipway_core::keys;
use slipway_tests::client::machine_arn;
use slipway_tests::installation::Installation;
use slipway_tests::world::Settings;

use crate::{ADMINISTRATOR, CLUSTER, PATIENCE, QUIET, named, spec};

#[tokio::test(flavor = "multi_thread")]
async fn p10_nothing_starts_while_paused_and_an_abort_ends_it() {
    // So slow that the launch takes longer than this test on any machine: a tick comes every ten seconds, and the launch needs eight.
    let slipway = Installation::start(&Settings { speed: 6.0, ..Settings::default() }).await.unwrap();
    let run = async |arguments: &str| {
        named(&slipway, ADMINISTRATOR, &format!("{arguments} --cluster {CLUSTER}")).await
    };
    let mark = slipway.world().observer().mark();
    slipway.upload(CLUSTER, format!("{}\nrollout:\n  approval: manual\n", spec())).await.unwrap();
    let (_, planned) = slipway.event(mark, &["Plan Ready"], PATIENCE).await.unwrap();
    let plan = planned["plan"].as_str().unwrap().to_owned();
    let early = run("abort --yes").await;
    assert!(early.code == 1 && early.stderr.contains("no rollout of minimal is open"), "{early:?}");

    // Paused and approved: nothing begins.
    let paused = run("pause --output json").await.json();
    assert_eq!((&paused["asked"], &paused["pausedSince"]), (&json!("pause"), &Value::Null));
    assert!(slipway.event(mark, &["Rollout Paused"], PATIENCE).await.is_some());
    let again = run("pause").await;
    assert!(again.code == 0 && again.out.starts_with("minimal is paused since "), "{again:?}");
    assert_eq!(run(&format!("approve {plan}")).await.code, 0);
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    assert!(slipway.event(mark, &["Rollout Started"], QUIET).await.is_none());
    let shown = run("status --exit-code").await;
    assert_eq!(shown.code, 1, "nothing serves yet: {shown:?}");
    for words in ["paused", "slipway resume --cluster minimal"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }

    // Resumed: the rollout continues.
    let resumed = run("resume").await;
    assert!(resumed.code == 0 && resumed.out.contains("continues"), "{resumed:?}");
    assert!(slipway.event(mark, &["Rollout Started"], PATIENCE).await.is_some());
    let (nobody, unsure) = tokio::join!(run("skip i-0123456789abcdef0"), run("abort"));
    assert!(
        nobody.code == 1 && nobody.stderr.contains("no machine i-0123456789abcdef0 of minimal"),
        "{nobody:?}"
    );
    let key = keys::bootstrap_report(CLUSTER, "pool-general", &machine_arn("i-0123456789abcdef0"));
    slipway.world().upload("AssetBucket", &key, b"{}".to_vec()).await.unwrap();
    let skipped = run("skip i-0123456789abcdef0").await;
    assert!(skipped.code == 0 && skipped.out.contains(&plan), "{skipped:?}");
    assert!(unsure.code == 1 && unsure.stderr.contains("possible only on a terminal"), "{unsure:?}");

    // Aborted: CloudFormation's operation is completed, and nothing else begins.
    let abort = format!("abort {plan}");
    let (watched, aborted) = tokio::join!(run("watch --every 1 --minutes 3"), run(&abort));
    assert!(aborted.code == 0 && aborted.out.contains("requested that the rollout"), "{aborted:?}");
    assert!(watched.code == 1 && watched.out.contains("rollout: aborted: "), "{watched:?}");
    assert!(slipway.event(mark, &["Rollout Aborted"], PATIENCE).await.is_some());
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let rollout: Value = slipway.document(CLUSTER, "rollout.json").await.unwrap().unwrap();
    assert_eq!((&rollout["activity"], &rollout["last"]["result"]), (&json!("idle"), &json!("aborted")));
    let stack = |name: &str| slipway.world().cloud().with(|cloud| cloud.stack_status(name));
    assert_eq!(stack("minimal-pool-general"), None, "the rollout never came to this stack");
    let shown = run("status").await.out;
    assert!(shown.contains("aborted") && shown.contains("slipway apply cluster.yaml"), "{shown}");
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}
