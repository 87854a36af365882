//! `slipway logs`: a machine's report about its bootstrap, and the lines that its agent reads through Run Command.

use serde_json::json;
use slipway_tests::installation::Installation;

use crate::permissions::logs_need_what_the_page_says_and_nothing_more;
use crate::status::{boot, node_object};
use crate::{ADMINISTRATOR, CLUSTER, Run, installation, named};

async fn logs(slipway: &Installation, arguments: &str) -> Run {
    named(slipway, ADMINISTRATOR, &format!("logs --cluster {CLUSTER} {arguments}")).await
}

/// The machine of a role that has one.
fn machine(slipway: &Installation, role: &str) -> String {
    let machines = slipway.world().cloud().with(|cloud| cloud.machines());
    machines.into_iter().find(|one| one.role == role && !one.leaving).unwrap().id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_shows_its_bootstrap_and_the_last_lines_of_its_units() {
    let slipway = installation(0).await;
    let before = slipway.assets().await.unwrap();
    let (member, worker) = (machine(&slipway, "etcd-0"), machine(&slipway, "pool-general"));
    let shown = logs(&slipway, "etcd-0").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in [
        &format!("{member} (etcd-0)\nbootstrap: it has not reported anything\n"),
        "\nagent: active (running)\n",
        "\netcd: active (running)\n",
        &format!("Z etcd of {member} runs, 0 to go, token=(removed)\n"),
    ] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    assert!(!shown.out.contains("kubelet"), "a member has none: {}", shown.out);
    assert_eq!(slipway.assets().await.unwrap(), before, "a verb that only reads writes nothing");
    let one = logs(&slipway, &format!("{worker} --unit kubelet --lines 500 --output json")).await;
    let document = one.json();
    let units = document["units"].as_array().unwrap();
    assert_eq!((one.code, &document["ok"], units.len()), (0, &json!(true), 1), "{one:?}");
    assert_eq!((&document["role"], &units[0]["unit"]), (&json!("pool-general"), &json!("kubelet")));
    // Systems Manager would cut the answer with all lines.
    let lines = units[0]["lines"].as_array().unwrap();
    let newest = format!("kubelet of {worker} runs, 0 to go, token=(removed)");
    assert_eq!(lines.last().unwrap()["text"], json!(newest));
    assert!(lines.len() > 100 && units[0]["leftOut"] == json!(500 - lines.len()), "{}", lines.len());
    let all = logs(&slipway, &format!("{worker} --lines 500")).await;
    assert!(all.code == 0 && all.out.matches(" earlier lines left out: ").count() == 3, "{all:?}");
    logs_need_what_the_page_says_and_nothing_more(&slipway, &member).await;

    // It says that it gave up, with words that would do something to a terminal; and what is asked for is not there.
    let gave_up = Some(("volume", "no volume \u{1b}[2J with the tag", "attach it"));
    let report = boot(&slipway, "pool-general", &worker, gave_up).await;
    node_object(&slipway, &format!("pool-general/{worker}/bootstrap"), report).await;
    let none = logs(&slipway, &format!("{worker} --unit etcd")).await;
    assert_eq!(none.code, 1, "{none:?}");
    for words in [
        "bootstrap: gave up at the step volume at ",
        ": no volume  [2J with the tag\n  attach it\n",
        "no logs: pool-general has no unit etcd",
    ] {
        assert!(none.out.contains(words), "{words}: {}", none.out);
    }
    assert!(!none.out.contains('\u{1b}'), "{}", none.out);
    // A machine that is gone, with a report that is none; and one of which only the report about what it serves is left.
    node_object(&slipway, "controller/i-0a1b/bootstrap", b"{".to_vec()).await;
    node_object(&slipway, "controller/i-0a1c/status", b"{}".to_vec()).await;
    for (gone, words) in [
        ("i-0a1b", "bootstrap: its report cannot be read: "),
        ("i-0a1c", "bootstrap: it has not reported anything"),
    ] {
        let run = logs(&slipway, gone).await;
        assert!(run.code == 1 && run.out.contains(words) && run.out.contains("so it is gone"), "{run:?}");
        assert!(run.out.starts_with(&format!("{gone} (controller)\n")), "{run:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_wrongly_is_told_before_anything_is_sent() {
    let slipway = installation(0).await;
    let mark = slipway.world().observer().mark();
    for (arguments, code, words) in [
        ("i-0123456789abcdef0", 1, "minimal has no machine i-0123456789abcdef0"),
        ("etcd-7", 1, "Auto Scaling has no machine of etcd-7 of minimal"),
        ("pool-nobodys", 1, "Auto Scaling has no machine of pool-nobodys of minimal"),
        ("minimal", 2, "a machine is named by its instance id"),
        ("admin", 2, "a machine is named by its instance id"),
        ("etcd-0 --unit sshd", 2, "the units are agent, kubelet, containerd, etcd"),
        ("etcd-0 --lines 0", 2, "0 is not in 1..=500"),
        ("etcd-0 --lines 501", 2, "501 is not in 1..=500"),
        ("", 2, "NODE"),
    ] {
        let run = logs(&slipway, arguments).await;
        assert!(run.code == code && run.stderr.contains(words), "{arguments}: {run:?}");
    }
    let other = named(&slipway, ADMINISTRATOR, "logs etcd-0 --cluster nobodys").await;
    assert!(other.code == 1 && other.stderr.contains("has no objects of a cluster nobodys"), "{other:?}");
    let calls = slipway.world().observer().calls(mark);
    assert!(!calls.is_empty() && calls.iter().all(|call| call.action != "ssm:SendCommand"), "{calls:?}");
}
