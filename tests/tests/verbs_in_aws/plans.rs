//! `plan`, and the plan that `apply` shows before it asks: what the render function then publishes, without a write, a key or an event.

use serde_json::{Value, json};
use slipway_tests::installation::Installation;

use crate::{ADMINISTRATOR, CLUSTER, PATIENCE, installation, named, spec, stand_stack, upload};

/// Writes `text` into a folder of its own.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

/// Plans `text`, verifies that nothing was written and no key was used, then uploads it. Returns what the command printed, and the plan
/// that the render function published.
async fn planned_and_uploaded(slipway: &Installation, text: &str) -> (Value, Value) {
    let (_folder, path) = file(text);
    let before = slipway.assets().await.unwrap();
    let mark = slipway.world().observer().mark();
    let run = named(slipway, ADMINISTRATOR, &format!("plan {path} --output json")).await;
    assert_eq!(run.code, 0, "{run:?}");
    let calls = slipway.world().observer().calls(mark);
    assert!(!calls.is_empty(), "nothing was read");
    assert!(calls.iter().all(|call| !call.is_write() && !call.action.starts_with("kms:")), "{calls:?}");
    assert_eq!(slipway.assets().await.unwrap(), before);

    let mark = slipway.world().observer().mark();
    upload(slipway, text).await;
    let (_, ready) = slipway.event(mark, &["Plan Ready"], PATIENCE).await.unwrap();
    let name = format!("plans/{}.json", ready["plan"].as_str().unwrap());
    (run.json(), slipway.document(CLUSTER, &name).await.unwrap().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_what_slipway_plan_shows_is_what_the_render_function_publishes() {
    let slipway = installation(0).await;
    stand_stack(&slipway);

    // Nothing changes.
    let (_folder, path) = file(&spec());
    let same = named(&slipway, ADMINISTRATOR, &format!("plan {path} --exit-code --output json")).await;
    assert_eq!(same.code, 0, "{same:?}");
    assert_eq!((&same.json()["unchanged"], &same.json()["exact"]), (&json!(true), &json!(true)));

    // No credential is made: the same plan to the last digest, and so with the same id.
    let (shown, plan) =
        planned_and_uploaded(&slipway, &format!("{}      autoScalingGroup: {{maxSize: 4}}\n", spec())).await;
    assert_eq!((&shown["exact"], &shown["unchanged"]), (&json!(true), &json!(false)));
    assert_eq!(shown["plan"], plan);

    // A certificate is made: the same rows.
    let names = "kubernetes:\n  apiServer:\n    certSANs: [more.example.com]\n";
    let (shown, plan) =
        planned_and_uploaded(&slipway, &format!("{}      autoScalingGroup: {{maxSize: 4}}\n{names}", spec()))
            .await;
    assert_eq!((&shown["exact"], &shown["credentialsToMake"]), (&json!(false), &json!(["apiserver"])));
    assert_ne!(shown["plan"]["id"], plan["id"]);
    for part in ["nodes", "policy", "addons"] {
        assert_eq!(shown["plan"][part], plan[part], "{part}");
    }
    let actions = |plan: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        plan["stacks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (text(&one["name"]), text(&one["action"])))
            .collect()
    };
    assert_eq!(actions(&shown["plan"]), actions(&plan));
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_shows_the_plan_before_it_asks_and_refuses_what_the_render_function_would() {
    let slipway = installation(0).await;
    stand_stack(&slipway);
    let bucket = slipway.world().reference("SpecBucket").unwrap();
    let before = slipway.world().client().versions(bucket).await.unwrap();

    let (_folder, path) = file(&format!("{}      autoScalingGroup: {{maxSize: 4}}\n", spec()));
    let page = named(&slipway, ADMINISTRATOR, &format!("plan {path}")).await;
    assert_eq!(page.code, 0, "{page:?}");
    let asked = named(&slipway, ADMINISTRATOR, &format!("apply {path}")).await;
    assert!(asked.code == 1 && asked.stderr.contains("possible only on a terminal"), "{asked:?}");
    assert!(
        page.out.contains("minimal-pool-general") && asked.stderr.contains(&page.out),
        "{asked:?} {page:?}"
    );

    // Only what the installation allows, which a check without the installation does not know.
    let refused =
        spec().replace("clusterName", "software: {baseURL: s3://not-allowed/programs}\nclusterName");
    let (_folder, path) = file(&refused);
    for verb in ["plan", "apply"] {
        let run = named(&slipway, ADMINISTRATOR, &format!("{verb} {path}")).await;
        assert!(run.code == 1 && run.stderr.contains("not-allowed"), "{run:?}");
    }

    // Another installation's stack, and one that shows no settings.
    for (stack, words) in [("missing", "there is no CloudFormation stack missing"), (CLUSTER, "")] {
        let run = named(&slipway, ADMINISTRATOR, &format!("plan {path} --stack {stack}")).await;
        assert!(run.code == 1 && run.stderr.contains(words), "{run:?}");
    }
    assert_eq!(slipway.world().client().versions(bucket).await.unwrap(), before, "something was uploaded");
}
