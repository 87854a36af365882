//! Patches: they are part of what is rendered, each change of them is a plan of its own, and of two changes at a time the last
//! one counts.

use slipway_core::event::Event;
use slipway_core::keys;
use slipway_core::status::SpecResult;
use slipway_flows::FlowResult;
use slipway_flows::rendering::Outcome;
use slipway_plan::{NodeAction, StackAction};
use slipway_sim::mortal::Life;
use slipway_spec::patch::{MOST_BYTES, MOST_FILES};

use super::{NAME, PRODUCTION, World, bigger};

/// More pods on the workers of one pool.
const PODS: &str = "target: { node: pool-general-a }\nmerge: { kubelet: { maxPods: 58 } }\n";
/// The same, of another pool.
const MORE: &str = "target: { node: pool-batch-c }\nmerge: { kubelet: { maxPods: 110 } }\n";

fn key(name: &str) -> String {
    format!("{}{name}", keys::patches(NAME))
}

impl World {
    fn patch(&self, name: &str, text: &str) {
        self.specs.upload(&key(name), text);
    }

    /// What the render function does when the event of a patch reaches it.
    async fn patched(&self, life: &Life) -> FlowResult<Outcome> {
        self.woken(None, life).await
    }

    /// The roles that the newest plan replaces.
    async fn replaced(&self) -> Vec<String> {
        let Outcome::Planned(plan) = self.patched(&Life::unending()).await.unwrap() else {
            panic!("no plan")
        };
        let replaced = plan.nodes.iter().filter(|node| node.action == NodeAction::Replace);
        replaced.map(|node| node.role.to_string()).collect()
    }
}

/// A world in which the example runs.
async fn running() -> World {
    let world = World::new();
    let plan = world.plan(PRODUCTION).await;
    world.deploy(&plan).await;
    world.said();
    world
}

#[tokio::test]
async fn p2_a_patch_that_comes_replaces_its_nodes_and_one_that_goes_plans_the_way_back() {
    let world = running().await;
    let there = world.desired().unwrap().target;
    world.patch("10-pods.yaml", PODS);
    assert_eq!(world.replaced().await, ["pool-general-a"]);
    assert_eq!(world.said(), ["Plan Ready", "Rollout Requested"]);
    assert_ne!(world.desired().unwrap().target, there);
    world.specs.purge(&key("10-pods.yaml"));
    assert_eq!(world.patched(&Life::unending()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(world.desired().unwrap().target, there);
}

#[tokio::test]
async fn p1_patches_that_are_as_they_were_move_nothing_and_cost_no_kms_call() {
    let world = World::new();
    world.patch("10-pods.yaml", PODS);
    let plan = world.plan(PRODUCTION).await;
    world.deploy(&plan).await;
    world.said();
    let (writes, calls) = (world.assets.writes(), world.keys.journal().calls().len());
    world.patch("10-pods.yaml", PODS);
    assert_eq!(world.patched(&Life::unending()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(world.render(PRODUCTION).await.unwrap(), Outcome::Unchanged);
    assert_eq!((world.assets.writes(), world.keys.journal().calls().len()), (writes, calls));
    assert_eq!(world.said(), ["Plan Unchanged", "Plan Unchanged"]);
}

#[tokio::test]
async fn a_stack_that_is_patched_is_planned_and_no_other() {
    let world = running().await;
    world.patch("10-note.yaml", "target: { stack: network }\nmerge: { Description: mine }\n");
    let Outcome::Planned(plan) = world.patched(&Life::unending()).await.unwrap() else { panic!("no plan") };
    let changed = plan.stacks.iter().filter(|stack| stack.action != StackAction::Unchanged);
    assert_eq!(changed.map(|stack| stack.name.as_str()).collect::<Vec<_>>(), ["production-network"]);
    assert!(plan.nodes.iter().all(|node| node.action == NodeAction::Untouched));
}

#[tokio::test]
async fn a_patch_that_is_refused_is_named_in_the_event_and_the_status_and_changes_nothing() {
    let world = running().await;
    let before = world.desired();
    let cases = [
        ("merge: { kubelet: {} }\n", "missing-key"),
        ("target: { node: pool-general-x }\nmerge: { a: 1 }\n", "unknown-target"),
        ("target: { node: controller }\nops: [{ op: remove, path: /nothing }]\n", "patch-does-not-apply"),
        ("target: { stack: etcd }\nmerge: { Resources: { Group0: null } }\n", "patch-refused"),
    ];
    for (text, code) in cases {
        world.patch("10-bad.yaml", text);
        let calls = world.keys.journal().calls().len();
        let Outcome::Rejected(found) = world.patched(&Life::unending()).await.unwrap() else {
            panic!("{text}")
        };
        assert_eq!((found[0].code.as_str(), found[0].file.as_deref()), (code, Some("patches/10-bad.yaml")));
        let events = world.bus.drain();
        let [Event::SpecRejected(rejected)] = events.as_slice() else { panic!("{events:?}") };
        assert!(rejected.diagnostics[0].starts_with("patches/10-bad.yaml"), "{rejected:?}");
        let spec = world.status().spec.unwrap();
        assert_eq!((spec.result, spec.diagnostics), (SpecResult::Rejected, found));
        assert_eq!(world.keys.journal().calls().len(), calls, "credentials are not looked at");
    }
    assert_eq!(world.desired(), before);
    // And what is good again makes it good.
    world.specs.purge(&key("10-bad.yaml"));
    assert_eq!(world.patched(&Life::unending()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(world.status().spec.unwrap().result, SpecResult::Accepted);
}

#[tokio::test]
async fn findings_of_spec_and_patches_are_told_together() {
    let world = World::new();
    world.patch("10-bad.yaml", "target: 1\n");
    let Outcome::Rejected(found) =
        world.render(PRODUCTION.replacen("maxSize: 10", "maxsize: 10", 1)).await.unwrap()
    else {
        panic!("it was taken")
    };
    let files: Vec<Option<&str>> = found.iter().map(|found| found.file.as_deref()).collect();
    assert!(files.contains(&None) && files.contains(&Some("patches/10-bad.yaml")), "{found:?}");
}

#[tokio::test]
async fn what_a_patch_expects_is_tested_against_what_is_really_rendered() {
    let world = running().await;
    let version =
        r#"ops: [{ op: test, path: /kubernetesVersion, value: "1.0.0" }, { op: add, path: /a, value: 1 }]"#;
    world.patch("10-test.yaml", &format!("target: {{ node: controller }}\n{version}\n"));
    let Outcome::Rejected(found) = world.patched(&Life::unending()).await.unwrap() else { panic!("taken") };
    assert_eq!(found[0].code, "patch-does-not-apply");
}

#[tokio::test]
async fn what_lies_there_and_is_no_patch_is_left_alone_and_told() {
    let world = running().await;
    for name in ["readme.md", "20-more.yml", "deeper/30.yaml"] {
        world.patch(name, PODS);
    }
    assert_eq!(world.patched(&Life::unending()).await.unwrap(), Outcome::Unchanged);
    let told = world.status().spec.unwrap().diagnostics;
    let files: Vec<&str> = told.iter().filter_map(|found| found.file.as_deref()).collect();
    assert_eq!(files, ["patches/20-more.yml", "patches/deeper/30.yaml"]);
}

#[tokio::test]
async fn too_many_and_too_large_patches_are_refused_unread() {
    let world = running().await;
    world.patch("10-large.yaml", &format!("{PODS}#{}", "x".repeat(MOST_BYTES)));
    let read = world.specs.journal().count("s3:GetObject");
    let Outcome::Rejected(found) = world.patched(&Life::unending()).await.unwrap() else { panic!("taken") };
    assert_eq!(
        (found[0].code.as_str(), found[0].file.as_deref()),
        ("too-large", Some("patches/10-large.yaml"))
    );
    for number in 0..=MOST_FILES {
        world.patch(&format!("{number:03}.yaml"), PODS);
    }
    let Outcome::Rejected(found) = world.patched(&Life::unending()).await.unwrap() else { panic!("taken") };
    assert_eq!(found[0].code, "too-many-patches");
    assert_eq!(world.specs.journal().count("s3:GetObject"), read);
}

#[tokio::test]
async fn patches_of_a_cluster_without_a_spec_wait_for_it() {
    let world = World::new();
    world.patch("10-pods.yaml", PODS);
    assert_eq!(world.patched(&Life::unending()).await.unwrap(), Outcome::NoSpec);
    assert!(world.assets.keys().is_empty() && world.said().is_empty());
    world.plan(PRODUCTION).await;
    assert!(configs(&world).iter().any(|config| config.contains(r#""maxPods":58"#)));
}

/// What the target of the wish gives nodes to read.
fn configs(world: &World) -> Vec<String> {
    let release = world.assets.peek(&keys::release(NAME, &world.desired().unwrap().target)).unwrap();
    let release: slipway_core::release::Rendering = serde_json::from_slice(&release).unwrap();
    release.roles.into_values().map(|node| node.config).collect()
}

/// Another patch and another spec come between any two calls of a run: whichever run ends last, the wish is of what lies
/// there at the end.
#[tokio::test]
async fn p8_a_patch_that_comes_between_any_two_calls_is_in_the_wish_at_the_end() {
    let calls = {
        let (world, life) = (running().await, Life::unending());
        world.patch("10-pods.yaml", PODS);
        world.patched(&life).await.unwrap();
        life.calls()
    };
    for last in 0..calls {
        let world = running().await;
        world.patch("10-pods.yaml", PODS);
        // It stands still after this call for longer than the other run takes, and its function ends there.
        let death = world.patched(&Life::until(last, true)).await;
        assert!(death.is_err(), "call {last} was never made");
        world.patch("20-more.yaml", MORE);
        world.patched(&Life::unending()).await.unwrap();
        // Its event is tried again.
        world.patched(&Life::unending()).await.unwrap();
        let configs = configs(&world);
        for pods in [r#""maxPods":58"#, r#""maxPods":110"#] {
            assert!(configs.iter().any(|config| config.contains(pods)), "{pods} after call {last}");
        }
    }
}

/// The hole that a check before a write leaves: between the two another run may come, find that nothing is to be done, and
/// go. What is written then is outdated, and nobody is left to say so but the writer.
#[tokio::test]
async fn p8_a_wish_that_is_outdated_when_it_is_written_does_not_stay() {
    let world = running().await;
    let there = world.desired().unwrap().target;
    world.patch("10-pods.yaml", PODS);
    // While the wish is written the patch goes, and with it the reason for the wish.
    let specs = world.specs.clone();
    world.assets.meanwhile("s3:PutObject", &keys::desired(NAME), move || specs.purge(&key("10-pods.yaml")));
    let outcome = world.patched(&Life::unending()).await.unwrap();
    assert_eq!(outcome, Outcome::Unchanged);
    assert_eq!(world.desired().unwrap().target, there);
}

#[tokio::test]
async fn p8_a_run_that_dies_right_behind_an_outdated_wish_is_mended_when_it_is_tried_again() {
    for after in [false, true] {
        let world = running().await;
        let there = world.desired().unwrap().target;
        let upload = world.upload(bigger(PRODUCTION));
        let life = Life::unending();
        world.event(&upload, &life).await.unwrap();
        // The spec goes back to what runs, and the run for that finds the wish not yet written: as if it had never been.
        let wish = world.assets.peek(&keys::desired(NAME)).unwrap();
        let back = world.upload(PRODUCTION);
        world.event(&back, &Life::unending()).await.unwrap();
        if after {
            world.assets.upload(&keys::desired(NAME), wish);
        }
        world.event(&upload, &Life::unending()).await.unwrap();
        assert_eq!(world.desired().unwrap().target, there, "{after}");
    }
}

#[tokio::test]
async fn a_patch_that_changes_while_it_is_read_is_read_again() {
    let world = running().await;
    world.patch("10-pods.yaml", PODS);
    // Between list and read another version comes.
    let specs = world.specs.clone();
    world.specs.meanwhile("s3:ListObjectsV2", "", move || drop(specs.upload(&key("10-pods.yaml"), MORE)));
    assert_eq!(world.replaced().await, ["pool-batch-c"]);
    assert!(world.specs.journal().count("s3:ListObjectsV2") >= 3);
}
