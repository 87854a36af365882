//! From an upload to a plan, through the real flow and real cryptography, with buckets and keys in memory.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod credentials;
mod patches;
mod previews;
mod software;
mod upgrades;

use slipway_core::event::Event;
use slipway_core::keys;
use slipway_core::status::SpecResult;
use slipway_flows::rendering::RenderOutcome;
use slipway_plan::{NodeAction, StackAction};
use slipway_ports::ErrorKind;
use slipway_render::lock::Lock;
use slipway_sim::memory::{Fault, MemoryParameters};
use slipway_sim::mortal::Life;
use slipway_tests::workshop::Workshop;

const PRODUCTION: &str = include_str!("../../../examples/production.yaml");
const NAME: &str = "production";
/// Makes a spec one with a public issuer.
const WITH_ROLES: &str = "\niamRolesForServiceAccounts: {enabled: true}\n";

fn bigger(text: &str) -> String {
    let changed = text.replacen("maxSize: 10", "maxSize: 12", 1);
    assert_ne!(changed, text);
    changed
}

#[tokio::test]
async fn p3_a_first_upload_ends_with_a_plan_that_creates_every_stack() {
    let account = Workshop::for_spec(PRODUCTION);
    let plan = account.render(PRODUCTION).await.plan;
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
    assert_eq!(account.take_event_types(), ["Plan Ready", "Rollout Requested"]);
    assert_eq!(account.desired().unwrap().plan, plan.id);
    assert_eq!(account.status().unwrap().spec.unwrap().result, SpecResult::Accepted);
    // All objects of the plan exist.
    for stack in &plan.stacks {
        let prefix = format!("clusters/production/templates/{}/", stack.name);
        assert_eq!(account.assets.keys().iter().filter(|key| key.starts_with(&prefix)).count(), 1);
    }
}

#[tokio::test]
async fn p1_uploading_the_same_bytes_again_makes_no_kms_call_and_writes_nothing() {
    let account = Workshop::for_spec(PRODUCTION);
    let plan = account.render(PRODUCTION).await.plan;
    account.deployed(&plan).await;
    account.take_event_types();
    let (writes, calls) = (account.assets.writes(), account.keys.journal().calls().len());
    assert_eq!(account.outcome(PRODUCTION).await, RenderOutcome::Unchanged);
    assert_eq!(account.assets.writes(), writes);
    assert_eq!(account.keys.journal().calls().len(), calls);
    assert_eq!(account.take_event_types(), ["Plan Unchanged"]);
}

#[tokio::test]
async fn p1_pools_in_another_order_change_nothing() {
    let account = Workshop::for_spec(PRODUCTION);
    let plan = account.render(PRODUCTION).await.plan;
    account.deployed(&plan).await;
    let (head, rest) = PRODUCTION.split_once("    - name: general-a\n").unwrap();
    let (a, rest) = rest.split_once("    - name: general-b\n").unwrap();
    let (b, tail) = rest.split_once("    # Spot instances").unwrap();
    let swapped =
        format!("{head}    - name: general-b\n{b}    - name: general-a\n{a}    # Spot instances{tail}");
    assert_eq!(account.outcome(swapped).await, RenderOutcome::Unchanged);
}

#[tokio::test]
async fn a_change_that_is_taken_back_before_it_was_approved_can_no_longer_be_approved() {
    let manual = |text: &str| text.replacen("approval: auto", "approval: manual", 1);
    let account = Workshop::for_spec(PRODUCTION);
    let plan = account.render(manual(PRODUCTION)).await.plan;
    account.deployed(&plan).await;
    let change = account.render(manual(&bigger(PRODUCTION))).await.plan;
    assert_eq!(account.desired().unwrap().plan, change.id);
    assert_eq!(account.outcome(manual(PRODUCTION)).await, RenderOutcome::Unchanged);
    assert_ne!(account.desired().unwrap().plan, change.id);
}

#[tokio::test]
async fn p2_a_pools_new_size_plans_that_pools_stack_alone_and_touches_no_node() {
    let account = Workshop::for_spec(PRODUCTION);
    let first = account.render(PRODUCTION).await.plan;
    account.deployed(&first).await;
    let plan = account.render(bigger(PRODUCTION)).await.plan;
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
        let account = Workshop::for_spec(PRODUCTION);
        let old = account.upload(PRODUCTION);
        let new = account.upload(bigger(PRODUCTION));
        let mut events = vec![old.clone(), new.clone(), old.clone()];
        if reversed {
            events.reverse();
        }
        let mut planned = 0;
        for upload in &events {
            match account.rendered(Some(upload), &Life::unending()).await.unwrap() {
                RenderOutcome::Planned(_) => planned += 1,
                RenderOutcome::Superseded => assert_eq!(upload, &old),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(planned, 1);
        assert_eq!(account.desired().unwrap().spec_version, new);
    }
}

#[tokio::test]
async fn an_upload_that_lands_while_an_older_one_is_rendered_wins() {
    // The older render stops after each of its calls in turn, as if it died there, and continues after the newer one.
    let calls = {
        let (account, life) = (Workshop::for_spec(PRODUCTION), Life::unending());
        let upload = account.upload(PRODUCTION);
        account.rendered(Some(&upload), &life).await.unwrap();
        life.calls()
    };
    for last in (0..calls).step_by(7) {
        let account = Workshop::for_spec(PRODUCTION);
        let old = account.upload(PRODUCTION);
        let _ = account.rendered(Some(&old), &Life::until(last, true)).await;
        let new = account.upload(bigger(PRODUCTION));
        account.rendered(Some(&new), &Life::unending()).await.unwrap();
        assert_eq!(account.rendered(Some(&old), &Life::unending()).await.unwrap(), RenderOutcome::Superseded);
        assert_eq!(account.desired().unwrap().spec_version, new, "after call {last}");
    }
}

#[tokio::test]
async fn p8_a_render_that_dies_at_any_call_ends_the_same_when_it_is_tried_again() {
    let text = format!("{PRODUCTION}{WITH_ROLES}");
    let reference = Workshop::for_spec(PRODUCTION);
    let life = Life::unending();
    let upload = reference.upload(text.as_str());
    reference.rendered(Some(&upload), &life).await.unwrap();
    for last in 0..life.calls() {
        // Alternately before and after the call takes effect.
        let after = last % 2 == 0;
        let account = Workshop::for_spec(PRODUCTION);
        let upload = account.upload(text.as_str());
        let death = account.rendered(Some(&upload), &Life::until(last, after)).await;
        assert!(death.is_err(), "call {last} was never made");
        let RenderOutcome::Planned(plan) = account.rendered(Some(&upload), &Life::unending()).await.unwrap()
        else {
            panic!("no plan after a death at call {last}");
        };
        assert_eq!(account.desired().unwrap().plan, plan.id);
        assert_eq!(account.status().unwrap().spec.unwrap().result, SpecResult::Accepted);
        assert_eq!(account.take_event_types().last().map(String::as_str), Some("Rollout Requested"));
        assert_eq!(account.issuer.keys(), reference.issuer.keys());
        // There is one PKI: a second try changes nothing.
        account.deployed(&plan).await;
        assert_eq!(
            account.rendered(Some(&upload), &Life::unending()).await.unwrap(),
            RenderOutcome::Unchanged
        );
    }
}

#[tokio::test]
async fn a_refused_spec_says_so_and_changes_nothing_else() {
    let account = Workshop::for_spec(PRODUCTION);
    let plan = account.render(PRODUCTION).await.plan;
    account.deployed(&plan).await;
    account.take_event_types();
    let before = account.assets.keys();
    let RenderOutcome::Rejected(findings) =
        account.outcome(PRODUCTION.replacen("maxSize: 10", "maxsize: 10", 1)).await
    else {
        panic!("a typo was accepted");
    };
    assert!(findings[0].line > 0 && findings[0].help.as_deref().unwrap().contains("maxSize"), "{findings:?}");
    assert_eq!(account.assets.keys(), before);
    assert_eq!(account.desired().unwrap().plan, plan.id);
    assert_eq!(account.status().unwrap().spec.unwrap().result, SpecResult::Rejected);
    let events = account.bus.drain();
    let [Event::SpecRejected(rejected)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(rejected.total, findings.len());
    // The next valid spec clears the error, even if it changes nothing.
    assert_eq!(account.outcome(PRODUCTION).await, RenderOutcome::Unchanged);
    assert_eq!(account.status().unwrap().spec.unwrap().result, SpecResult::Accepted);
}

#[tokio::test]
async fn a_status_that_cannot_be_read_holds_nobody_up() {
    let account = Workshop::for_spec(PRODUCTION);
    account.assets.upload(&keys::status(NAME), "{ half a");
    account.render(PRODUCTION).await;
    assert_eq!(account.take_event_types(), ["Plan Ready", "Rollout Requested"]);
    assert_eq!(account.status().unwrap().spec.unwrap().result, SpecResult::Accepted);
}

#[tokio::test]
async fn a_state_that_another_version_wrote_says_so_and_is_left_as_it_is() {
    let account = Workshop::for_spec(PRODUCTION);
    let foreign = br#"{"format": 9, "somethingNew": true}"#;
    account.assets.upload(&keys::rollout(NAME), foreign);
    let error = account.try_upload(PRODUCTION, &Life::unending()).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.Corrupt");
    assert!(error.to_string().contains("its format is 9"), "{error}");
    assert_eq!(account.assets.peek(&keys::rollout(NAME)).unwrap(), foreign);
}

#[tokio::test]
async fn p3_a_plan_that_now_needs_approval_is_another_plan() {
    let account = Workshop::for_spec(PRODUCTION);
    let auto = account.render(PRODUCTION).await.plan;
    let manual = account.render(PRODUCTION.replacen("approval: auto", "approval: manual", 1)).await.plan;
    assert_ne!(auto.id, manual.id);
    assert_eq!(account.desired().unwrap().plan, manual.id);
    assert_eq!(account.take_event_types(), ["Plan Ready", "Rollout Requested", "Plan Ready"]);
}

#[tokio::test]
async fn a_spec_of_ten_megabytes_is_refused_unread() {
    let account = Workshop::for_spec(PRODUCTION);
    let RenderOutcome::Rejected(findings) = account.outcome(vec![b'#'; 10 << 20]).await else { panic!() };
    assert_eq!(findings[0].code, "too-large");
    assert_eq!(account.specs.journal().count("s3:GetObjectVersion"), 0);
}

#[tokio::test]
async fn p9_no_private_key_leaves_the_vault_unsealed() {
    let account = Workshop::for_spec(PRODUCTION);
    account.render(PRODUCTION).await;
    for key in account.assets.keys() {
        let bytes = account.assets.peek(&key).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("PRIVATE KEY"), "{key}");
    }
    for event in account.bus.events() {
        assert!(!event.to_wire().1.contains("PRIVATE KEY"));
    }
}

#[tokio::test]
async fn a_denied_key_is_told_by_kind_in_the_error_and_the_status_and_a_new_upload_recovers() {
    let account = Workshop::for_spec(PRODUCTION);
    account.keys.faults().plan("kms:GenerateDataKey", "", Fault::Before(ErrorKind::Denied), 1);
    let error = account.try_upload(PRODUCTION, &Life::unending()).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.kms.Denied");
    let spec = account.status().unwrap().spec.unwrap();
    assert_eq!(spec.result, SpecResult::Failed);
    assert!(spec.failure.unwrap().starts_with("Slipway.kms.Denied: "));
    assert_eq!(account.desired(), None);
    account.render(PRODUCTION).await;
    assert_eq!(account.status().unwrap().spec.unwrap().result, SpecResult::Accepted);
}

#[tokio::test]
async fn an_image_parameter_that_does_not_exist_is_named() {
    let mut account = Workshop::for_spec(PRODUCTION);
    account.parameters = MemoryParameters::default();
    let error = account.try_upload(PRODUCTION, &Life::unending()).await.unwrap_err();
    let parameter = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64";
    assert!(error.to_string().contains(parameter), "{error}");
    assert_eq!(error.kind(), "Slipway.Refused");
}

#[tokio::test]
async fn a_spec_of_another_region_is_refused_before_anything_is_made() {
    let account = Workshop::for_spec(PRODUCTION);
    let elsewhere = PRODUCTION.replace("eu-west-1", "us-west-2");
    let RenderOutcome::Rejected(findings) = account.outcome(elsewhere).await else {
        panic!("a spec of another region was accepted");
    };
    let found: Vec<(&str, &str)> =
        findings.iter().map(|found| (found.code.as_str(), found.path.as_str())).collect();
    assert_eq!(found, [("other-region", "region")]);
    assert!(findings[0].line > 0);
    assert_eq!(account.take_event_types(), ["Spec Rejected"]);
    // No image was looked up and no credential was made: the status is the cluster's only object.
    let own: Vec<String> =
        account.assets.keys().into_iter().filter(|key| key.starts_with("clusters/")).collect();
    assert_eq!(own, [keys::status(NAME)]);
}

#[tokio::test]
async fn a_spec_that_skips_a_minor_release_is_refused_at_its_line_and_changes_nothing() {
    let account = Workshop::for_spec(PRODUCTION);
    let older = PRODUCTION.replace("\"1.37\"", "\"1.34\"");
    let plan = account.render(older.clone()).await.plan;
    account.deployed(&plan).await;
    account.take_event_types();
    let (writes, calls) = (account.assets.writes(), account.keys.journal().calls().len());

    let RenderOutcome::Rejected(found) = account.outcome(PRODUCTION.replace("\"1.37\"", "\"1.36\"")).await
    else {
        panic!("the spec was accepted")
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
    assert_eq!(account.take_event_types(), ["Spec Rejected"]);
    // Only status.json says so: no release was pinned, no credential made, no pointer moved.
    assert_eq!(account.assets.writes(), writes + 1);
    assert_eq!(account.keys.journal().calls().len(), calls);
    let lock: Lock = serde_json::from_slice(&account.assets.peek(&keys::lock(NAME)).unwrap()).unwrap();
    assert_eq!(lock.kubernetes.keys().collect::<Vec<_>>(), ["1.34"]);
    assert_eq!(account.desired().unwrap().plan, plan.id);

    // The next minor, with a pool that stays on the old one: its nodes are not changed.
    let next = PRODUCTION.replace("\"1.37\"", "\"1.35\"").replacen(
        "    - name: general-a\n",
        "    - name: general-a\n      kubernetesVersion: \"1.34\"\n",
        1,
    );
    let plan = account.render(next).await.plan;
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
    let account = Workshop::for_spec(PRODUCTION);
    let first = account.render(PRODUCTION).await.plan;
    account.deployed(&first).await;
    let etcd = PRODUCTION.find("\netcd:").unwrap();
    let (head, tail) = PRODUCTION.split_at(etcd);
    let five = format!("{head}{}", tail.replacen("count: 3", "count: 5", 1));
    assert_ne!(five, PRODUCTION);
    let plan = account.render(five.clone()).await.plan;
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
    account.deployed(&plan).await;
    assert_eq!(account.outcome(five).await, RenderOutcome::Unchanged);
    // Back to the earlier spec, with the same bytes as before.
    let back = account.render(PRODUCTION).await.plan;
    assert_eq!((back.to, back.membership.len()), (first.to, 2));
}

/// The public keys of service accounts are published with the first plan, approved or not. They are written once, and again only if they
/// are lost or have changed.
#[tokio::test]
async fn p1_public_keys_are_published_before_a_token_needs_them_and_then_left_alone() {
    let account = Workshop::for_spec(PRODUCTION);
    let text = format!("{PRODUCTION}{WITH_ROLES}").replace("approval: auto", "approval: manual");
    account.deployed(&account.render(text.clone()).await.plan).await;
    let (discovery, jwks) = (keys::discovery(NAME), keys::jwks(NAME));
    assert_eq!(account.issuer.keys(), [discovery.clone(), jwks.clone()]);
    let read = |key: &str| -> serde_json::Value {
        serde_json::from_slice(&account.issuer.peek(key).unwrap()).unwrap()
    };
    assert_eq!(read(&discovery)["issuer"], "https://issuer.s3.eu-west-1.amazonaws.com/clusters/production");
    assert_eq!(read(&jwks)["keys"].as_array().unwrap().len(), 1);

    let writes = account.issuer.writes();
    assert_eq!(account.outcome(text.clone()).await, RenderOutcome::Unchanged);
    assert_eq!(account.issuer.writes(), writes);

    let good = account.issuer.peek(&jwks).unwrap();
    account.issuer.upload(&jwks, "{}");
    account.issuer.purge(&discovery);
    assert_eq!(account.outcome(text).await, RenderOutcome::Unchanged);
    assert_eq!((account.issuer.peek(&jwks).unwrap(), account.issuer.versions(&discovery)), (good, 1));
}

/// Without roles for service accounts, nothing is published, and a refused spec publishes nothing.
#[tokio::test]
async fn nothing_is_published_that_nobody_asked_for() {
    let account = Workshop::for_spec(PRODUCTION);
    account.render(PRODUCTION).await;
    let between = format!("{PRODUCTION}\niamRolesForServiceAccounts: {{enabled: false}}\n");
    account.render(between).await;
    let refused =
        format!("{PRODUCTION}{WITH_ROLES}").replace("instanceType: m7i.large", "instanceTyp: m7i.large");
    assert!(matches!(account.outcome(refused).await, RenderOutcome::Rejected(_)));
    assert_eq!(account.issuer.keys(), Vec::<String>::new());
}
