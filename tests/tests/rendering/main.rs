//! From an upload to a plan, through the real flow and real cryptography, over buckets and keys in memory.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod patches;
mod software;

use slipway_core::event::Event;
use slipway_core::keys;
use slipway_core::release::Site;
use slipway_core::status::{Desired, SpecResult, Status};
use slipway_crypto::AwsLc;
use slipway_flows::rendering::{Outcome, RenderPorts, Upload, render_newest, render_upload};
use slipway_flows::{FlowResult, store};
use slipway_plan::{NodeAction, Plan, StackAction};
use slipway_ports::{Condition, ErrorKind, Objects as _};
use slipway_render::lock::Lock;
use slipway_sim::memory::{
    Fault, MemoryBucket, MemoryBus, MemoryKeys, MemoryParameters, MemoryRegistry, OWN_KEY,
};
use slipway_sim::mortal::Life;
use slipway_tests::workshop::rolled_out;

const PRODUCTION: &str = include_str!("../../../examples/production.yaml");
const NAME: &str = "production";
/// Makes a spec of one: its issuer is in use.
const WITH_ROLES: &str = "\niamRolesForServiceAccounts: {enabled: true}\n";
const X86_64: &str = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64";

struct World {
    specs: MemoryBucket,
    assets: MemoryBucket,
    issuer: MemoryBucket,
    keys: MemoryKeys,
    parameters: MemoryParameters,
    registry: MemoryRegistry,
    bus: MemoryBus,
}

impl World {
    fn new() -> Self {
        Self {
            specs: MemoryBucket::new("specs", "eu-west-1"),
            assets: MemoryBucket::new("assets", "eu-west-1"),
            issuer: MemoryBucket::new("issuer", "eu-west-1"),
            keys: MemoryKeys::new(1),
            parameters: MemoryParameters::new([(X86_64, "ami-0123456789abcdef0")]),
            registry: MemoryRegistry::default(),
            bus: MemoryBus::new(),
        }
    }

    /// Uploads, and says which version that made.
    fn upload(&self, text: impl Into<Vec<u8>>) -> Upload {
        Upload { cluster: NAME.to_owned(), version: self.specs.upload(&keys::spec(NAME), text) }
    }

    /// What the render function does when `upload`'s event reaches it.
    async fn event(&self, upload: &Upload, life: &Life) -> FlowResult<Outcome> {
        self.woken(Some(upload), life).await
    }

    /// What it does when an upload's event reaches it, or with `None` that of a patch.
    async fn woken(&self, upload: Option<&Upload>, life: &Life) -> FlowResult<Outcome> {
        let ports = RenderPorts {
            specs: &life.of(&self.specs),
            assets: &life.of(&self.assets),
            issuer: Some(&life.of(&self.issuer)),
            keys: &life.of(&self.keys),
            parameters: &life.of(&self.parameters),
            registry: &life.of(&self.registry),
            bus: &life.of(&self.bus),
            crypto: &AwsLc,
        };
        let site = Site {
            asset_bucket: "assets".to_owned(),
            kms_key_arn: OWN_KEY.to_owned(),
            region: Some("eu-west-1".to_owned()),
            issuer_bucket: Some("issuer".to_owned()),
        };
        let now = "2026-11-20T12:00:00Z".parse().unwrap();
        match upload {
            Some(upload) => render_upload(&ports, &site, upload, now).await,
            None => render_newest(&ports, &site, NAME, now).await,
        }
    }

    async fn render(&self, text: impl Into<Vec<u8>>) -> FlowResult<Outcome> {
        let upload = self.upload(text);
        self.event(&upload, &Life::unending()).await
    }

    async fn plan(&self, text: impl Into<Vec<u8>>) -> Plan {
        match self.render(text).await.unwrap() {
            Outcome::Planned(plan) => *plan,
            other => panic!("no plan but {other:?}"),
        }
    }

    /// As if `plan` had been rolled out.
    async fn deploy(&self, plan: &Plan) {
        let rollout = store::json(&rolled_out(plan));
        self.assets.put(&keys::rollout(NAME), rollout, Condition::Always).await.unwrap();
    }

    fn status(&self) -> Status {
        serde_json::from_slice(&self.assets.peek(&keys::status(NAME)).unwrap()).unwrap()
    }

    fn desired(&self) -> Option<Desired> {
        self.assets.peek(&keys::desired(NAME)).map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    fn said(&self) -> Vec<String> {
        self.bus.drain().iter().map(|event| event.to_wire().0).collect()
    }
}

fn bigger(text: &str) -> String {
    let changed = text.replacen("maxSize: 10", "maxSize: 12", 1);
    assert_ne!(changed, text);
    changed
}

#[tokio::test]
async fn p3_a_first_upload_ends_with_a_plan_that_creates_every_stack() {
    let world = World::new();
    let plan = world.plan(PRODUCTION).await;
    let stacks: Vec<&str> = plan.stacks.iter().map(|stack| stack.name.as_str()).collect();
    assert_eq!(
        stacks,
        [
            "production-network",
            "production-etcd",
            "production-control-plane",
            "production-pool-general-a",
            "production-pool-general-b",
            "production-pool-batch-c"
        ]
    );
    assert!(plan.stacks.iter().all(|stack| stack.action == StackAction::Create));
    assert!(plan.nodes.iter().all(|node| node.action == NodeAction::Create));
    assert_eq!(world.said(), ["Plan Ready", "Rollout Requested"]);
    assert_eq!(world.desired().unwrap().plan, plan.id);
    assert_eq!(world.status().spec.unwrap().result, SpecResult::Accepted);
    // Everything that the plan refers to lies there.
    for stack in &plan.stacks {
        let prefix = format!("clusters/production/templates/{}/", stack.name);
        assert_eq!(world.assets.keys().iter().filter(|key| key.starts_with(&prefix)).count(), 1);
    }
}

#[tokio::test]
async fn p1_uploading_the_same_bytes_again_makes_no_kms_call_and_writes_nothing() {
    let world = World::new();
    let plan = world.plan(PRODUCTION).await;
    world.deploy(&plan).await;
    world.said();
    let (writes, calls) = (world.assets.writes(), world.keys.journal().calls().len());
    assert_eq!(world.render(PRODUCTION).await.unwrap(), Outcome::Unchanged);
    assert_eq!(world.assets.writes(), writes);
    assert_eq!(world.keys.journal().calls().len(), calls);
    assert_eq!(world.said(), ["Plan Unchanged"]);
}

#[tokio::test]
async fn p1_pools_in_another_order_change_nothing() {
    let world = World::new();
    let plan = world.plan(PRODUCTION).await;
    world.deploy(&plan).await;
    let (head, rest) = PRODUCTION.split_once("    - name: general-a\n").unwrap();
    let (a, rest) = rest.split_once("    - name: general-b\n").unwrap();
    let (b, tail) = rest.split_once("    # Spot instances").unwrap();
    let swapped =
        format!("{head}    - name: general-b\n{b}    - name: general-a\n{a}    # Spot instances{tail}");
    assert_eq!(world.render(swapped).await.unwrap(), Outcome::Unchanged);
}

#[tokio::test]
async fn a_change_that_is_taken_back_before_it_was_approved_can_no_longer_be_approved() {
    let manual = |text: &str| text.replacen("approval: auto", "approval: manual", 1);
    let world = World::new();
    let plan = world.plan(manual(PRODUCTION)).await;
    world.deploy(&plan).await;
    let change = world.plan(manual(&bigger(PRODUCTION))).await;
    assert_eq!(world.desired().unwrap().plan, change.id);
    assert_eq!(world.render(manual(PRODUCTION)).await.unwrap(), Outcome::Unchanged);
    assert_ne!(world.desired().unwrap().plan, change.id);
}

#[tokio::test]
async fn p2_a_pools_new_size_plans_that_pools_stack_alone_and_touches_no_node() {
    let world = World::new();
    let first = world.plan(PRODUCTION).await;
    world.deploy(&first).await;
    let plan = world.plan(bigger(PRODUCTION)).await;
    let changed: Vec<&str> = plan
        .stacks
        .iter()
        .filter(|stack| stack.action != StackAction::Unchanged)
        .map(|stack| stack.name.as_str())
        .collect();
    assert_eq!(changed, ["production-pool-general-a"]);
    assert!(plan.nodes.iter().all(|node| node.action == NodeAction::Untouched));
}

#[tokio::test]
async fn of_two_uploads_that_overtake_each_other_the_newest_is_rendered_once() {
    for reversed in [false, true] {
        let world = World::new();
        let old = world.upload(PRODUCTION);
        let new = world.upload(bigger(PRODUCTION));
        let mut events = vec![old.clone(), new.clone(), old.clone()];
        if reversed {
            events.reverse();
        }
        let mut planned = 0;
        for upload in &events {
            match world.event(upload, &Life::unending()).await.unwrap() {
                Outcome::Planned(_) => planned += 1,
                Outcome::Superseded => assert_eq!(upload, &old),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(planned, 1);
        assert_eq!(world.desired().unwrap().spec_version, new.version);
    }
}

#[tokio::test]
async fn an_upload_that_lands_while_an_older_one_is_rendered_wins() {
    // The older render dies after each of its calls in turn, as if it stood still there, and goes on after the newer.
    let calls = {
        let (world, life) = (World::new(), Life::unending());
        let upload = world.upload(PRODUCTION);
        world.event(&upload, &life).await.unwrap();
        life.calls()
    };
    for last in (0..calls).step_by(7) {
        let world = World::new();
        let old = world.upload(PRODUCTION);
        let _ = world.event(&old, &Life::until(last, true)).await;
        let new = world.upload(bigger(PRODUCTION));
        world.event(&new, &Life::unending()).await.unwrap();
        assert_eq!(world.event(&old, &Life::unending()).await.unwrap(), Outcome::Superseded);
        assert_eq!(world.desired().unwrap().spec_version, new.version, "after call {last}");
    }
}

#[tokio::test]
async fn p8_a_render_that_dies_at_any_call_ends_the_same_when_it_is_tried_again() {
    let text = format!("{PRODUCTION}{WITH_ROLES}");
    let reference = World::new();
    let life = Life::unending();
    let upload = reference.upload(text.as_str());
    reference.event(&upload, &life).await.unwrap();
    for last in 0..life.calls() {
        // In turn before and after the call takes effect.
        let after = last % 2 == 0;
        let world = World::new();
        let upload = world.upload(text.as_str());
        let death = world.event(&upload, &Life::until(last, after)).await;
        assert!(death.is_err(), "call {last} was never made");
        let Outcome::Planned(plan) = world.event(&upload, &Life::unending()).await.unwrap() else {
            panic!("no plan after a death at call {last}");
        };
        assert_eq!(world.desired().unwrap().plan, plan.id);
        assert_eq!(world.status().spec.unwrap().result, SpecResult::Accepted);
        assert_eq!(world.said().last().map(String::as_str), Some("Rollout Requested"));
        assert_eq!(world.issuer.keys(), reference.issuer.keys());
        // One PKI: tried once more it changes nothing.
        world.deploy(&plan).await;
        assert_eq!(world.event(&upload, &Life::unending()).await.unwrap(), Outcome::Unchanged);
    }
}

#[tokio::test]
async fn a_refused_spec_says_so_and_changes_nothing_else() {
    let world = World::new();
    let plan = world.plan(PRODUCTION).await;
    world.deploy(&plan).await;
    world.said();
    let before = world.assets.keys();
    let Outcome::Rejected(findings) =
        world.render(PRODUCTION.replacen("maxSize: 10", "maxsize: 10", 1)).await.unwrap()
    else {
        panic!("a typo was accepted");
    };
    assert!(findings[0].line > 0 && findings[0].help.as_deref().unwrap().contains("maxSize"), "{findings:?}");
    assert_eq!(world.assets.keys(), before);
    assert_eq!(world.desired().unwrap().plan, plan.id);
    assert_eq!(world.status().spec.unwrap().result, SpecResult::Rejected);
    let events = world.bus.drain();
    let [Event::SpecRejected(rejected)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(rejected.total, findings.len());
    // And the next good one makes it good, though it changes nothing.
    assert_eq!(world.render(PRODUCTION).await.unwrap(), Outcome::Unchanged);
    assert_eq!(world.status().spec.unwrap().result, SpecResult::Accepted);
}

#[tokio::test]
async fn a_status_that_cannot_be_read_holds_nobody_up() {
    let world = World::new();
    world.assets.upload(&keys::status(NAME), "{ half a");
    world.plan(PRODUCTION).await;
    assert_eq!(world.said(), ["Plan Ready", "Rollout Requested"]);
    assert_eq!(world.status().spec.unwrap().result, SpecResult::Accepted);
}

#[tokio::test]
async fn a_state_that_another_version_wrote_says_so_and_is_left_as_it_is() {
    let world = World::new();
    let foreign = br#"{"format": 9, "somethingNew": true}"#;
    world.assets.upload(&keys::rollout(NAME), foreign);
    let error = world.render(PRODUCTION).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.Corrupt");
    assert!(error.to_string().contains("its format is 9"), "{error}");
    assert_eq!(world.assets.peek(&keys::rollout(NAME)).unwrap(), foreign);
}

#[tokio::test]
async fn p3_a_plan_that_now_needs_approval_is_another_plan() {
    let world = World::new();
    let auto = world.plan(PRODUCTION).await;
    let manual = world.plan(PRODUCTION.replacen("approval: auto", "approval: manual", 1)).await;
    assert_ne!(auto.id, manual.id);
    assert_eq!(world.desired().unwrap().plan, manual.id);
    assert_eq!(world.said(), ["Plan Ready", "Rollout Requested", "Plan Ready"]);
}

#[tokio::test]
async fn a_spec_of_ten_megabytes_is_refused_unread() {
    let world = World::new();
    let Outcome::Rejected(findings) = world.render(vec![b'#'; 10 << 20]).await.unwrap() else { panic!() };
    assert_eq!(findings[0].code, "too-large");
    assert_eq!(world.specs.journal().count("s3:GetObjectVersion"), 0);
}

#[tokio::test]
async fn p9_no_private_key_leaves_the_vault_unsealed() {
    let world = World::new();
    world.plan(PRODUCTION).await;
    for key in world.assets.keys() {
        let bytes = world.assets.peek(&key).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("PRIVATE KEY"), "{key}");
    }
    for event in world.bus.events() {
        assert!(!event.to_wire().1.contains("PRIVATE KEY"));
    }
}

#[tokio::test]
async fn a_denied_key_is_told_by_kind_in_the_error_and_the_status_and_a_new_upload_recovers() {
    let world = World::new();
    world.keys.faults().plan("kms:GenerateDataKey", "", Fault::Before(ErrorKind::Denied), 1);
    let error = world.render(PRODUCTION).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.kms.Denied");
    let spec = world.status().spec.unwrap();
    assert_eq!(spec.result, SpecResult::Failed);
    assert!(spec.failure.unwrap().starts_with("Slipway.kms.Denied: "));
    assert_eq!(world.desired(), None);
    world.plan(PRODUCTION).await;
    assert_eq!(world.status().spec.unwrap().result, SpecResult::Accepted);
}

#[tokio::test]
async fn an_image_parameter_that_does_not_exist_is_named() {
    let world = World { parameters: MemoryParameters::new([]), ..World::new() };
    let error = world.render(PRODUCTION).await.unwrap_err();
    assert!(error.to_string().contains(X86_64), "{error}");
    assert_eq!(error.kind(), "Slipway.Refused");
}

#[tokio::test]
async fn a_spec_of_another_region_is_refused_before_anything_is_made() {
    let world = World::new();
    let elsewhere = PRODUCTION.replace("eu-west-1", "us-west-2");
    let Outcome::Rejected(findings) = world.render(elsewhere).await.unwrap() else {
        panic!("a spec of another region was taken");
    };
    let found: Vec<(&str, &str)> =
        findings.iter().map(|found| (found.code.as_str(), found.path.as_str())).collect();
    assert_eq!(found, [("other-region", "region")]);
    assert!(findings[0].line > 0);
    assert_eq!(world.said(), ["Spec Rejected"]);
    // Neither an image nor a credential: the status is all there is.
    assert_eq!(world.assets.keys(), [keys::status(NAME)]);
}

#[tokio::test]
async fn a_spec_that_skips_a_minor_release_is_refused_at_its_line_and_changes_nothing() {
    let world = World::new();
    let older = PRODUCTION.replace("\"1.37\"", "\"1.34\"");
    let plan = world.plan(older.clone()).await;
    world.deploy(&plan).await;
    world.said();
    let (writes, calls) = (world.assets.writes(), world.keys.journal().calls().len());

    let Outcome::Rejected(found) = world.render(PRODUCTION.replace("\"1.37\"", "\"1.36\"")).await.unwrap()
    else {
        panic!("it was taken")
    };
    let line = PRODUCTION.lines().position(|line| line.starts_with("kubernetesVersion")).unwrap() + 1;
    assert_eq!((found.len(), found[0].line as usize, found[0].column), (1, line, 20));
    assert_eq!(
        found[0].message,
        "Kubernetes 1.34.13 runs, and 1.36 is asked for: a minor release cannot be skipped"
    );
    assert_eq!(
        found[0].help.as_deref(),
        Some("upload 1.35 first, then 1.36, each when the one before has been rolled out")
    );
    assert_eq!(world.said(), ["Spec Rejected"]);
    // status.json alone says so: no release was pinned, no credential made, no pointer moved.
    assert_eq!(world.assets.writes(), writes + 1);
    assert_eq!(world.keys.journal().calls().len(), calls);
    let lock: Lock = serde_json::from_slice(&world.assets.peek(&keys::lock(NAME)).unwrap()).unwrap();
    assert_eq!(lock.kubernetes.keys().collect::<Vec<_>>(), ["1.34"]);
    assert_eq!(world.desired().unwrap().plan, plan.id);

    // One minor on, with a pool that stays behind: its nodes are left alone.
    let next = PRODUCTION.replace("\"1.37\"", "\"1.35\"").replacen(
        "    - name: general-a\n",
        "    - name: general-a\n      kubernetesVersion: \"1.34\"\n",
        1,
    );
    let plan = world.plan(next).await;
    let untouched: Vec<String> = plan
        .nodes
        .iter()
        .filter(|node| node.action == NodeAction::Untouched)
        .map(|node| node.role.to_string())
        .collect();
    assert_eq!(untouched, ["etcd-0", "etcd-1", "etcd-2", "pool-general-a"]);
}

#[tokio::test]
async fn p2_more_etcd_members_leave_those_that_stand_as_they_are() {
    let world = World::new();
    let first = world.plan(PRODUCTION).await;
    world.deploy(&first).await;
    let etcd = PRODUCTION.find("\netcd:").unwrap();
    let (head, tail) = PRODUCTION.split_at(etcd);
    let five = format!("{head}{}", tail.replacen("count: 3", "count: 5", 1));
    assert_ne!(five, PRODUCTION);
    let plan = world.plan(five.clone()).await;
    let touched: Vec<(String, NodeAction)> = plan
        .nodes
        .iter()
        .filter(|node| node.action != NodeAction::Untouched)
        .map(|node| (node.role.to_string(), node.action))
        .collect();
    let one = |role: &str, action| (role.to_owned(), action);
    assert_eq!(
        touched,
        [
            one("etcd-3", NodeAction::Create),
            one("etcd-4", NodeAction::Create),
            one("controller", NodeAction::Replace)
        ]
    );
    assert_eq!(plan.membership.len(), 2);
    world.deploy(&plan).await;
    assert_eq!(world.render(five).await.unwrap(), Outcome::Unchanged);
    // And back, to the bytes of before.
    let back = world.plan(PRODUCTION).await;
    assert_eq!((back.to, back.membership.len()), (first.to, 2));
}

/// What is published of service accounts is there with the first plan, approved or not; it is written once, and again
/// only where it is lost or another.
#[tokio::test]
async fn p1_public_keys_are_published_before_a_token_needs_them_and_then_left_alone() {
    let world = World::new();
    let text = format!("{PRODUCTION}{WITH_ROLES}").replace("approval: auto", "approval: manual");
    world.deploy(&world.plan(text.clone()).await).await;
    let (discovery, jwks) = (keys::discovery(NAME), keys::jwks(NAME));
    assert_eq!(world.issuer.keys(), [discovery.clone(), jwks.clone()]);
    let read = |key: &str| -> serde_json::Value {
        serde_json::from_slice(&world.issuer.peek(key).unwrap()).unwrap()
    };
    assert_eq!(read(&discovery)["issuer"], "https://issuer.s3.eu-west-1.amazonaws.com/clusters/production");
    assert_eq!(read(&jwks)["keys"].as_array().unwrap().len(), 1);

    let writes = world.issuer.writes();
    assert_eq!(world.render(text.clone()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(world.issuer.writes(), writes);

    let good = world.issuer.peek(&jwks).unwrap();
    world.issuer.upload(&jwks, "{}");
    world.issuer.purge(&discovery);
    assert_eq!(world.render(text).await.unwrap(), Outcome::Unchanged);
    assert_eq!((world.issuer.peek(&jwks).unwrap(), world.issuer.versions(&discovery)), (good, 1));
}

/// Who does not ask for roles has nothing published, and a spec that is refused publishes nothing.
#[tokio::test]
async fn nothing_is_published_that_nobody_asked_for() {
    let world = World::new();
    world.plan(PRODUCTION).await;
    let between = format!("{PRODUCTION}\niamRolesForServiceAccounts: {{enabled: false}}\n");
    world.plan(between).await;
    let refused =
        format!("{PRODUCTION}{WITH_ROLES}").replace("instanceType: m7i.large", "instanceTyp: m7i.large");
    assert!(matches!(world.render(refused).await.unwrap(), Outcome::Rejected(_)));
    assert_eq!(world.issuer.keys(), Vec::<String>::new());
}
