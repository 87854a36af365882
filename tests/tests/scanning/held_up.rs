//! Renewals while the newest upload has no plan that may begin.

use serde_json::json;
use slipway_core::release::Rendering;
use slipway_core::status::Desired;

use slipway_rollout::{Active, Activity, Stopped};

use super::*;

/// P7: an upload that nobody approves holds up no renewal. What runs is renewed with nothing else changed, and the upload waits as before.
#[tokio::test]
async fn p7_an_upload_that_nobody_approves_holds_up_no_renewal() {
    let spec = PRODUCTION.replace("approval: auto", "approval: manual");
    let changed = spec.replace("minSize: 2", "minSize: 3");
    assert_ne!(changed, spec);
    let account = Workshop::launched(&spec).await;
    account.uses_newest_spec(&account.desired_plan());
    let good = account.desired().unwrap();
    let waiting = account.render(&changed).await.plan;
    assert!(waiting.waits_for_approval(account.now), "{}", waiting.summary());
    // The renewal is due, and the plan that waits has it, too.
    let early = launch() + days(350);
    scan(&account, early).await;
    let both = planned(&account, early).await.unwrap();
    assert!(both.waits_for_approval(early) && !both.is_renewal(), "{}", both.summary());
    assert_eq!(account.desired().unwrap().plan, both.id);
    take_event_counts(&account);

    let now = launch() + days(363);
    let scanned = scan(&account, now).await;
    assert!(
        scanned.findings.iter().any(|finding| finding.help.contains("slipway approve --cluster production"))
    );
    assert!(take_event_counts(&account).contains_key("Certificate Renewed"), "the render function is woken");
    planned(&account, now).await.unwrap();
    let desired = account.desired().unwrap();
    assert_eq!(desired.spec_version, good.spec_version);
    let plan: Plan = account.read(&keys::plan(NAME, &desired.plan)).unwrap();
    assert!(plan.is_renewal() && !plan.waits_for_approval(now), "{}", plan.summary());
    assert_eq!(desired.set_aside.as_ref().unwrap().target, both.to);
    let said = take_event_counts(&account);
    assert_eq!((said["Plan Ready"], said["Rollout Requested"]), (2, 1), "{said:?}");
    // The event comes twice.
    planned(&account, now).await.unwrap();
    assert_eq!(account.desired().unwrap(), desired);
    // Afterwards the upload waits again.
    let upload =
        Desired { plan: both.id, target: both.to, ..account.desired().unwrap().restore_set_aside().unwrap() };
    assert_eq!(account.desired().unwrap().restore_set_aside().unwrap(), upload);

    // It is, byte for byte, what the spec that runs renders to with the renewed credentials.
    let again = account.render(&spec).await.plan;
    let release = |target: &str| {
        let mut release: Rendering = account.read(&keys::release(NAME, target)).unwrap();
        // Pools are in the order of the spec, or of their names.
        release.stacks.sort_by(|one, other| one.name.cmp(&other.name));
        release
    };
    assert_eq!(release(&again.to), release(&desired.target));
}

/// Whether a renewal of what runs is desired, and nothing was set aside for it.
fn renews_what_runs(account: &Workshop, good: &Desired, now: Timestamp) -> bool {
    let desired = account.desired().unwrap();
    let plan: Plan = account.read(&keys::plan(NAME, &desired.plan)).unwrap();
    let begins = plan.is_renewal() && !plan.waits_for_approval(now) && plan.not_executable().is_none();
    begins && desired.spec_version == good.spec_version && desired.set_aside.is_none()
}

/// The store was renewed, and no plan ever brought that to a node.
#[tokio::test]
async fn p7_a_renewal_reaches_the_nodes_although_the_newest_upload_was_refused_or_is_gone() {
    let mistyped = PRODUCTION.replace("instanceType:", "instanceTyp:");
    for newest in [Some(mistyped), None] {
        let account = Workshop::launched(PRODUCTION).await;
        account.uses_newest_spec(&account.desired_plan());
        let good = account.desired().unwrap();
        match &newest {
            Some(text) => {
                assert!(matches!(account.outcome(text).await, rendering::RenderOutcome::Rejected(_)));
            }
            None => account.specs.remove(&keys::spec(NAME)).await.unwrap(),
        }
        assert_eq!(account.desired().unwrap(), good, "nothing is renewed yet");
        let now = launch() + days(350);
        assert_eq!(scan(&account, now).await.renewed.len(), 15);
        for _ in 0..2 {
            let outcome = (*account).render(Cause::Newest, &Life::unending(), now).await.unwrap();
            let has_no_plan =
                matches!(outcome, rendering::RenderOutcome::Rejected(_) | rendering::RenderOutcome::NoSpec);
            assert!(has_no_plan, "{outcome:?}");
            assert!(renews_what_runs(&account, &good, now));
        }
    }
}

/// An upload whose plan is refused is left at that: nothing was touched. A year later its plan was still the only one.
#[tokio::test]
async fn p7_a_plan_that_cannot_be_executed_holds_up_no_renewal() {
    let controllers = |count: u32| {
        let (from, to) = (
            "  count: 3\n  instanceType: m7i.large\n  rootVolume",
            format!("  count: {count}\n  instanceType: m7i.large\n  rootVolume"),
        );
        PRODUCTION.replace(from, &to)
    };
    let account = Workshop::launched(&controllers(5)).await;
    account.uses_newest_spec(&account.desired_plan());
    let good = account.desired().unwrap();
    let refused = account.render(&controllers(3)).await.plan;
    assert!(refused.not_executable().is_some(), "{}", refused.summary());
    let early = launch() + days(350);
    assert_eq!(scan(&account, early).await.renewed.len(), 15);
    let both = planned(&account, early).await.unwrap();
    assert!(both.not_executable().is_some());
    assert!(renews_what_runs(&account, &good, early));
    // If that was lost, the scan makes up for it before anything expires, although the plan was refused.
    let desired = account.desired().unwrap().replaced_by(&good.spec_version, &both.id, &both.to);
    account.assets.upload(&keys::desired(NAME), store::json(&desired));
    let mut state: Rollout = account.read(&keys::rollout(NAME)).unwrap();
    let last = ended(&both, RolloutResult::Failed, early);
    state.last = Some(Ended { spec_version: desired.spec_version.clone(), ..last });
    account.assets.upload(&keys::rollout(NAME), store::json(&state));
    take_event_counts(&account);
    let now = launch() + days(363);
    let scanned = scan(&account, now).await;
    assert!(
        scanned.findings.iter().any(|finding| finding.message.contains("the newest plan cannot be executed")),
        "{:?}",
        scanned.findings
    );
    assert!(take_event_counts(&account).contains_key("Certificate Renewed"), "the render function is woken");
    planned(&account, now).await.unwrap();
    assert!(renews_what_runs(&account, &good, now));
}

/// They run until somebody approves that they leave, and expired together, unseen.
#[tokio::test]
async fn p7_members_that_only_an_unapproved_spec_lacks_are_renewed() {
    let members = |count: u32| {
        let spec = PRODUCTION.replace("approval: auto", "approval: manual");
        spec.replace("etcd:\n  count: 3", &format!("etcd:\n  count: {count}"))
    };
    let account = Workshop::launched(&members(5)).await;
    account.uses_newest_spec(&account.desired_plan());
    let good = account.desired().unwrap();
    let waiting = account.render(&members(3)).await.plan;
    assert!(waiting.waits_for_approval(account.now), "{}", waiting.summary());
    let now = launch() + days(350);
    let scanned = scan(&account, now).await;
    assert!(scanned.renewed.contains(&"etcd-peer-4".to_owned()), "{:?}", scanned.renewed);
    assert_eq!(scanned.findings, []);
    planned(&account, now).await.unwrap();
    // Urgent: what runs is renewed, those members included.
    let late = launch() + days(363);
    scan(&account, late).await;
    planned(&account, late).await.unwrap();
    let desired = account.desired().unwrap();
    assert_eq!(desired.spec_version, good.spec_version);
    let plan: Plan = account.read(&keys::plan(NAME, &desired.plan)).unwrap();
    assert!(plan.is_renewal() && actions(&plan)["etcd-4"] == NodeAction::Replace, "{}", plan.to_text());
    // Once they are removed, nothing is missing.
    let mut state: Rollout = account.read(&keys::rollout(NAME)).unwrap();
    state.removed_members = [Role::Etcd(3), Role::Etcd(4)].into();
    account.assets.upload(&keys::rollout(NAME), store::json(&state));
    let scanned = scan(&account, late).await;
    let stands = |name: &str| scanned.standings.iter().any(|one| one.name == name);
    assert!(stands("etcd-peer-2") && !stands("etcd-peer-4"));
    // If that rollout then stops, the others are renewed without them.
    planned(&account, late).await.unwrap();
    let plan: Plan = account.read(&keys::plan(NAME, &account.desired().unwrap().plan)).unwrap();
    assert!(plan.is_renewal() && plan.left_behind.is_some(), "{}", plan.to_text());
    let actions = actions(&plan);
    assert_eq!((actions["etcd-4"], actions["etcd-2"]), (NodeAction::Untouched, NodeAction::Replace));
}

/// A person approved that a pool is rolled, and that rollout is open for weeks, or has failed. Every plan of the upload contains the rest of it.
#[tokio::test]
async fn p7_neither_an_open_roll_nor_one_that_failed_holds_up_a_renewal() {
    let spec = PRODUCTION.replace("approval: auto", "approval: manual");
    let changed = spec.replace("instanceType: m7i.xlarge", "instanceType: m7i.2xlarge");
    assert_ne!(changed, spec);
    for is_open in [true, false] {
        let account = Workshop::launched(&spec).await;
        account.uses_newest_spec(&account.desired_plan());
        let good = account.desired().unwrap();
        let roll = account.render(&changed).await.plan;
        let uploaded = account.desired().unwrap();
        let rolled = roll.nodes.iter().find(|node| node.action == NodeAction::Replace).unwrap();
        let mut state: Rollout = account.read(&keys::rollout(NAME)).unwrap();
        let before = state.deployed.insert(rolled.stack.clone(), roll.to.clone()).unwrap();
        state.earlier = BTreeMap::from([(rolled.role.clone(), BTreeSet::from([before]))]);
        let release: Rendering = account.read(&keys::release(NAME, &roll.to)).unwrap();
        if is_open {
            let active = json!({
                "plan": roll.id, "specVersion": uploaded.spec_version, "target": roll.to, "approved": true, "startedAt": account.now,
                "changeSet": "slipway-2-x", "steps": [], "nodesByHand": 0, "stacksByHand": [], "nodes": {"steps": []},
                "changes": release.id_without_credentials(),
            });
            let active: Active = serde_json::from_value(active).unwrap();
            state.activity = Activity::RollingOut(Box::new(active));
        } else {
            let last = ended(&roll, RolloutResult::Failed, account.now);
            state.last = Some(Ended { spec_version: uploaded.spec_version.clone(), ..last });
        }
        account.assets.upload(&keys::rollout(NAME), store::json(&state));

        let early = launch() + days(350);
        scan(&account, early).await;
        let both = planned(&account, early).await.unwrap();
        assert!(both.waits_for_approval(early) && !both.is_renewal(), "{}", both.summary());
        assert_eq!(account.desired().unwrap().plan, both.id, "a roll goes on until something cannot wait");
        let late = launch() + days(363);
        let scanned = scan(&account, late).await;
        let found = scanned.findings.iter().any(|found| found.message.contains("waits for an approval"));
        assert!(found, "{:?}", scanned.findings);
        planned(&account, late).await.unwrap();
        let desired = account.desired().unwrap();
        let plan: Plan = account.read(&keys::plan(NAME, &desired.plan)).unwrap();
        assert!(plan.is_renewal() && !plan.waits_for_approval(late), "{is_open}: {}", plan.to_text());
        assert_eq!(actions(&plan)[&rolled.role.to_string()], NodeAction::Untouched);
        assert_eq!((&plan.from, &plan.earlier), (&state.deployed, &state.earlier));
        // The controllers still have the release of the spec before.
        assert_eq!(desired.spec_version, good.spec_version);
        assert_eq!(desired.set_aside.unwrap().target, both.to);
    }
}

/// The cluster is in use, although its first rollout failed; and since then somebody uploaded what was refused.
#[tokio::test]
async fn p7_what_runs_is_renewed_although_no_rollout_ever_succeeded() {
    let account = Workshop::launched(PRODUCTION).await;
    account.uses_newest_spec(&account.desired_plan());
    let good = account.desired().unwrap();
    let mut state: Rollout = account.read(&keys::rollout(NAME)).unwrap();
    let release: Rendering = account.read(&keys::release(NAME, &good.target)).unwrap();
    state.rollback_targets.clear();
    let (spec_version, changes) = (good.spec_version.clone(), release.id_without_credentials());
    state.stopped = Some(Stopped { spec_version, changes });
    let refused = ended(&account.desired_plan(), RolloutResult::Failed, account.now);
    state.last = Some(Ended { plan: "p".to_owned(), target: "t".to_owned(), ..refused });
    account.assets.upload(&keys::rollout(NAME), store::json(&state));
    let now = launch() + days(363);
    scan(&account, now).await;
    planned(&account, now).await.unwrap();
    let desired = account.desired().unwrap();
    let plan: Plan = account.read(&keys::plan(NAME, &desired.plan)).unwrap();
    assert!(plan.is_renewal() || plan.brings_credentials, "{}", plan.to_text());
    assert!(!plan.waits_for_approval(now) && desired.spec_version == good.spec_version);
}
