//! Patches: they are part of the input of a render, each change of a patch makes a plan of its own, and of two concurrent changes the last
//! one counts.

use slipway_core::event::Event;
use slipway_core::keys;
use slipway_core::status::SpecResult;
use slipway_flows::rendering::RenderOutcome;
use slipway_plan::{NodeAction, StackAction};
use slipway_sim::mortal::Life;
use slipway_spec::patch::{MOST_BYTES, MOST_FILES};
use slipway_tests::workshop::Workshop;

use super::{NAME, PRODUCTION, bigger};

/// More pods on the workers of one pool.
const PODS: &str = "target: { node: pool-general-a }\nmerge: { kubelet: { maxPods: 58 } }\n";
/// The same for another pool.
const MORE: &str = "target: { node: pool-batch-c }\nmerge: { kubelet: { maxPods: 110 } }\n";

fn key(name: &str) -> String {
    format!("{}{name}", keys::patches(NAME))
}

fn patch(account: &Workshop, name: &str, text: &str) {
    account.specs.upload(&key(name), text);
}

/// The roles that the newest plan replaces.
async fn replaced(account: &Workshop) -> Vec<String> {
    let RenderOutcome::Planned(plan) = account.rendered(None, &Life::unending()).await.unwrap() else {
        panic!("no plan")
    };
    let replaced = plan.nodes.iter().filter(|node| node.action == NodeAction::Replace);
    replaced.map(|node| node.role.to_string()).collect()
}

#[tokio::test]
async fn p2_a_patch_that_comes_replaces_its_nodes_and_one_that_goes_plans_the_way_back() {
    let account = Workshop::launched(PRODUCTION).await;
    let there = account.desired().unwrap().target;
    patch(&account, "10-pods.yaml", PODS);
    assert_eq!(replaced(&account).await, ["pool-general-a"]);
    assert_eq!(account.take_event_types(), ["Plan Ready", "Rollout Requested"]);
    assert_ne!(account.desired().unwrap().target, there);
    account.specs.purge(&key("10-pods.yaml"));
    assert_eq!(account.rendered(None, &Life::unending()).await.unwrap(), RenderOutcome::Unchanged);
    assert_eq!(account.desired().unwrap().target, there);
}

#[tokio::test]
async fn p1_patches_that_are_as_they_were_move_nothing_and_cost_no_kms_call() {
    let account = Workshop::for_spec(PRODUCTION);
    patch(&account, "10-pods.yaml", PODS);
    let plan = account.render(PRODUCTION).await.plan;
    account.deployed(&plan).await;
    account.take_event_types();
    let (writes, calls) = (account.assets.writes(), account.keys.journal().calls().len());
    patch(&account, "10-pods.yaml", PODS);
    assert_eq!(account.rendered(None, &Life::unending()).await.unwrap(), RenderOutcome::Unchanged);
    assert_eq!(account.outcome(PRODUCTION).await, RenderOutcome::Unchanged);
    assert_eq!((account.assets.writes(), account.keys.journal().calls().len()), (writes, calls));
    assert_eq!(account.take_event_types(), ["Plan Unchanged", "Plan Unchanged"]);
}

#[tokio::test]
async fn a_stack_that_is_patched_is_planned_and_no_other() {
    let account = Workshop::launched(PRODUCTION).await;
    patch(&account, "10-note.yaml", "target: { stack: network }\nmerge: { Description: mine }\n");
    let RenderOutcome::Planned(plan) = account.rendered(None, &Life::unending()).await.unwrap() else {
        panic!("no plan")
    };
    let changed = plan.stacks.iter().filter(|stack| stack.action != StackAction::Unchanged);
    assert_eq!(changed.map(|stack| stack.name.as_str()).collect::<Vec<_>>(), ["production-network"]);
    assert!(plan.nodes.iter().all(|node| node.action == NodeAction::Untouched));
}

#[tokio::test]
async fn a_patch_that_is_refused_is_named_in_the_event_and_the_status_and_changes_nothing() {
    let account = Workshop::launched(PRODUCTION).await;
    let before = account.desired();
    let cases = [
        ("merge: { kubelet: {} }\n", "missing-key"),
        ("target: { node: pool-general-x }\nmerge: { a: 1 }\n", "unknown-target"),
        ("target: { node: controller }\nops: [{ op: remove, path: /nothing }]\n", "patch-does-not-apply"),
        ("target: { stack: etcd }\nmerge: { Resources: { Group0: null } }\n", "patch-refused"),
    ];
    for (text, code) in cases {
        patch(&account, "10-bad.yaml", text);
        let calls = account.keys.journal().calls().len();
        let RenderOutcome::Rejected(found) = account.rendered(None, &Life::unending()).await.unwrap() else {
            panic!("{text}")
        };
        assert_eq!((found[0].code.as_str(), found[0].file.as_deref()), (code, Some("patches/10-bad.yaml")));
        let events = account.bus.drain();
        let [Event::SpecRejected(rejected)] = events.as_slice() else { panic!("{events:?}") };
        assert!(rejected.diagnostics[0].starts_with("patches/10-bad.yaml"), "{rejected:?}");
        let spec = account.status().unwrap().spec.unwrap();
        assert_eq!((spec.result, spec.diagnostics), (SpecResult::Rejected, found));
        assert_eq!(account.keys.journal().calls().len(), calls, "credentials are not read");
    }
    assert_eq!(account.desired(), before);
    // Removing the bad patch makes the render succeed again.
    account.specs.purge(&key("10-bad.yaml"));
    assert_eq!(account.rendered(None, &Life::unending()).await.unwrap(), RenderOutcome::Unchanged);
    assert_eq!(account.status().unwrap().spec.unwrap().result, SpecResult::Accepted);
}

#[tokio::test]
async fn findings_of_spec_and_patches_are_told_together() {
    let account = Workshop::for_spec(PRODUCTION);
    patch(&account, "10-bad.yaml", "target: 1\n");
    let RenderOutcome::Rejected(found) =
        account.outcome(PRODUCTION.replacen("maxSize: 10", "maxsize: 10", 1)).await
    else {
        panic!("the patch was accepted")
    };
    let files: Vec<Option<&str>> = found.iter().map(|found| found.file.as_deref()).collect();
    assert!(files.contains(&None) && files.contains(&Some("patches/10-bad.yaml")), "{found:?}");
}

#[tokio::test]
async fn what_a_patch_expects_is_tested_against_what_is_really_rendered() {
    let account = Workshop::launched(PRODUCTION).await;
    let version =
        r#"ops: [{ op: test, path: /kubernetesVersion, value: "1.0.0" }, { op: add, path: /a, value: 1 }]"#;
    patch(&account, "10-test.yaml", &format!("target: {{ node: controller }}\n{version}\n"));
    let RenderOutcome::Rejected(found) = account.rendered(None, &Life::unending()).await.unwrap() else {
        panic!("taken")
    };
    assert_eq!(found[0].code, "patch-does-not-apply");
}

#[tokio::test]
async fn what_lies_there_and_is_no_patch_is_left_alone_and_told() {
    let account = Workshop::launched(PRODUCTION).await;
    for name in ["readme.md", "20-more.yml", "deeper/30.yaml"] {
        patch(&account, name, PODS);
    }
    assert_eq!(account.rendered(None, &Life::unending()).await.unwrap(), RenderOutcome::Unchanged);
    let told = account.status().unwrap().spec.unwrap().diagnostics;
    let files: Vec<&str> = told.iter().filter_map(|found| found.file.as_deref()).collect();
    assert_eq!(files, ["patches/20-more.yml", "patches/deeper/30.yaml"]);
}

#[tokio::test]
async fn too_many_and_too_large_patches_are_refused_unread() {
    let account = Workshop::launched(PRODUCTION).await;
    patch(&account, "10-large.yaml", &format!("{PODS}#{}", "x".repeat(MOST_BYTES)));
    let read = account.specs.journal().count("s3:GetObject");
    let RenderOutcome::Rejected(found) = account.rendered(None, &Life::unending()).await.unwrap() else {
        panic!("taken")
    };
    assert_eq!(
        (found[0].code.as_str(), found[0].file.as_deref()),
        ("too-large", Some("patches/10-large.yaml"))
    );
    for number in 0..=MOST_FILES {
        patch(&account, &format!("{number:03}.yaml"), PODS);
    }
    let RenderOutcome::Rejected(found) = account.rendered(None, &Life::unending()).await.unwrap() else {
        panic!("taken")
    };
    assert_eq!(found[0].code, "too-many-patches");
    assert_eq!(account.specs.journal().count("s3:GetObject"), read);
}

#[tokio::test]
async fn patches_of_a_cluster_without_a_spec_wait_for_it() {
    let account = Workshop::for_spec(PRODUCTION);
    patch(&account, "10-pods.yaml", PODS);
    assert_eq!(account.rendered(None, &Life::unending()).await.unwrap(), RenderOutcome::NoSpec);
    let none_is_its_own = !account.assets.keys().iter().any(|key| key.starts_with("clusters/"));
    assert!(none_is_its_own && account.take_event_types().is_empty());
    account.render(PRODUCTION).await;
    assert!(configs(&account).iter().any(|config| config.contains(r#""maxPods":58"#)));
}

/// The configurations of the nodes in the newest plan.
fn configs(account: &Workshop) -> Vec<String> {
    let release = account.release(&account.desired().unwrap().target).unwrap();
    release.roles.values().map(|node| node.config.clone()).collect()
}

/// Another patch and another spec are uploaded between any two calls of a run: whichever run ends last, `desired.json` is for the objects
/// that exist at the end.
#[tokio::test]
async fn p8_a_patch_that_comes_between_any_two_calls_is_in_the_wish_at_the_end() {
    let calls = {
        let (account, life) = (Workshop::launched(PRODUCTION).await, Life::unending());
        patch(&account, "10-pods.yaml", PODS);
        account.rendered(None, &life).await.unwrap();
        life.calls()
    };
    for last in 0..calls {
        let account = Workshop::launched(PRODUCTION).await;
        patch(&account, "10-pods.yaml", PODS);
        // The run stops after this call until the other run has ended, and then dies.
        let death = account.rendered(None, &Life::until(last, true)).await;
        assert!(death.is_err(), "call {last} was never made");
        patch(&account, "20-more.yaml", MORE);
        account.rendered(None, &Life::unending()).await.unwrap();
        // Its event is retried.
        account.rendered(None, &Life::unending()).await.unwrap();
        let configs = configs(&account);
        for pods in [r#""maxPods":58"#, r#""maxPods":110"#] {
            assert!(configs.iter().any(|config| config.contains(pods)), "{pods} after call {last}");
        }
    }
}

/// The gap between a check and a write: another run may come in between, find that nothing has to be done, and end. The write is then
/// outdated, and only the writer can notice that.
#[tokio::test]
async fn p8_a_wish_that_is_outdated_when_it_is_written_does_not_stay() {
    let account = Workshop::launched(PRODUCTION).await;
    let there = account.desired().unwrap().target;
    patch(&account, "10-pods.yaml", PODS);
    // While `desired.json` is written, the patch is deleted, and with it the reason for the plan.
    let specs = account.specs.clone();
    account.assets.meanwhile("s3:PutObject", &keys::desired(NAME), move || specs.purge(&key("10-pods.yaml")));
    let outcome = account.rendered(None, &Life::unending()).await.unwrap();
    assert_eq!(outcome, RenderOutcome::Unchanged);
    assert_eq!(account.desired().unwrap().target, there);
}

#[tokio::test]
async fn p8_a_run_that_dies_right_behind_an_outdated_wish_is_mended_when_it_is_tried_again() {
    for after in [false, true] {
        let account = Workshop::launched(PRODUCTION).await;
        let there = account.desired().unwrap().target;
        let upload = account.upload(bigger(PRODUCTION));
        let life = Life::unending();
        account.rendered(Some(&upload), &life).await.unwrap();
        // The spec goes back to the deployed one, and the run for that finds no `desired.json` yet, as if it never existed.
        let wish = account.assets.peek(&keys::desired(NAME)).unwrap();
        let back = account.upload(PRODUCTION);
        account.rendered(Some(&back), &Life::unending()).await.unwrap();
        if after {
            account.assets.upload(&keys::desired(NAME), wish);
        }
        account.rendered(Some(&upload), &Life::unending()).await.unwrap();
        assert_eq!(account.desired().unwrap().target, there, "{after}");
    }
}

#[tokio::test]
async fn a_patch_that_changes_while_it_is_read_is_read_again() {
    let account = Workshop::launched(PRODUCTION).await;
    patch(&account, "10-pods.yaml", PODS);
    // Another version is uploaded between the listing and the read.
    let specs = account.specs.clone();
    account.specs.meanwhile("s3:ListObjectsV2", "", move || drop(specs.upload(&key("10-pods.yaml"), MORE)));
    assert_eq!(replaced(&account).await, ["pool-batch-c"]);
    assert!(account.specs.journal().count("s3:ListObjectsV2") >= 3);
}
