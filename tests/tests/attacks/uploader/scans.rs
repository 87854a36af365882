//! What an uploader reaches through the scan: it renews certificates and deletes snapshots as a spec says.

use jiff::SignedDuration;
use serde_json::json;
use slipway_core::cluster::Approval;
use slipway_core::keys;
use slipway_core::role::successor;
use slipway_flows::rendering::RenderOutcome;
use slipway_flows::store;
use slipway_plan::Plan;
use slipway_rollout::{Ended, Rollout, RolloutResult};
use slipway_sim::mortal::Life;
use slipway_sim::year::Cause;
use slipway_tests::workshop::{Workshop, example, rolled_out};

use super::with;
use crate::{refused, says, scanned, workshop};

/// A verified snapshot was stored on each of so many days before the scan.
const DAYS: usize = 40;
/// How many of them the fewest are that a spec can keep: of the last 24 hours, which begin and end with one.
const FEWEST: usize = 2;
/// Days after the launch on which certificates are due for renewal, and on which none is.
const DUE: i64 = 359;
const QUIET: i64 = 200;

/// `text`, which asks for no renewals, and for the fewest snapshots.
fn careless(text: &str) -> String {
    let text = with(text, "    enabled: true\n    days: 30", "    enabled: false\n    days: 30");
    few(&text)
}

/// `text`, which asks for the fewest snapshots.
fn few(text: &str) -> String {
    with(text, "\netcd:\n", "\netcd:\n  snapshots: {keep: {allDays: 1, dailyDays: 1, atLeast: 1}}\n")
}

/// `text`, which asks for no snapshots.
fn none(text: &str) -> String {
    with(text, "\netcd:\n", "\netcd:\n  snapshots: {enabled: false}\n")
}

/// `text`, whose certificates are valid for few days.
fn short(text: &str) -> String {
    with(text, "\ncertificatesConfiguration:\n", "\ntlsCertDurationDays: 40\ncertificatesConfiguration:\n")
}

/// `text`, whose authorities are rotated so many days before they expire.
fn rotates(text: &str, days: u32) -> String {
    with(text, "keyAlgorithm: ECDSA-P256", &format!("keyAlgorithm: ECDSA-P256\n  caRotationDays: {days}"))
}

/// `text` with something that a plan changes.
fn other(text: &str) -> String {
    with(text, "\nstackTags:\n", "\nstackTags:\n  changed: by-hand\n")
}

/// The cluster of `text` so many days after its launch, with its snapshots.
async fn old(text: &str, days: i64) -> Workshop {
    let mut workshop = workshop(text);
    workshop.assets.set_clock(workshop.now);
    let plan = workshop.render(text).await.plan;
    workshop.deployed(&plan).await;
    workshop.now += SignedDuration::from_hours(24 * days);
    for before in (0..DAYS as i64).rev() {
        let at = workshop.now - SignedDuration::from_hours(24 * before);
        workshop.assets.set_clock(at);
        let key = keys::scheduled_snapshot(&workshop.name, &at.strftime("%Y%m%dT%H%M%SZ").to_string());
        workshop.assets.upload(&key, "sealed");
        workshop.assets.upload(&keys::snapshot_record(&key), "{}");
    }
    workshop
}

/// How many certificates a scan renews, and how many snapshots are there afterwards.
async fn after_scan(workshop: &Workshop) -> (usize, usize) {
    let renewed = scanned(workshop, workshop.now).await.renewed.len();
    let folder = keys::scheduled_snapshots(&workshop.name);
    let left = workshop.assets.keys().into_iter().filter(|key| {
        key.starts_with(&folder) && key.ends_with(".db") && workshop.assets.newest(key).is_some()
    });
    (renewed, left.count())
}

/// A scan took the newest upload if it could be read: it renewed nothing any more, and deleted all snapshots but the last one.
#[tokio::test]
async fn an_upload_that_nobody_accepted_steers_no_scan() {
    let text = example("production");
    let honest = after_scan(&old(&text, DUE).await).await;
    assert!(honest.0 == 15 && honest.1 > 25, "{honest:?}");
    // It was uploaded a moment ago, and nothing has looked at it.
    let account = old(&text, DUE).await;
    account.specs.upload(&keys::spec(&account.name), careless(&text));
    assert_eq!(after_scan(&account).await, honest);
    // It was refused, by what the installation allows.
    let account = old(&text, DUE).await;
    let foreign = with(&careless(&text), "clusterName:", "software: {baseURL: 's3://payroll'}\nclusterName:");
    refused(&account, &foreign).await;
    assert_eq!(after_scan(&account).await, honest);
    // What was accepted counts.
    let account = old(&text, DUE).await;
    assert_eq!(account.outcome(careless(&text)).await, RenderOutcome::Unchanged);
    assert_eq!(after_scan(&account).await, (0, FEWEST));
}

/// The rollout of `plan` succeeds.
fn rolls_out(workshop: &Workshop, plan: &Plan) {
    let (state, spec_version) = (rolled_out(plan), workshop.desired().unwrap().spec_version);
    let upload = slipway_rollout::Upload { spec_version: spec_version.clone(), plan: plan.id.clone() };
    let good = slipway_rollout::RollbackTarget {
        generation: 2,
        spec_version,
        plan: plan.id.clone(),
        target: plan.to.clone(),
        approved: plan.needs_approval(),
        started_at: workshop.now,
        ended_at: workshop.now,
    };
    let uploads = [(plan.to.clone(), upload)].into_iter().collect();
    let state = Rollout { rollback_targets: vec![good], uploads, ..state };
    workshop.assets.upload(&keys::rollout(&workshop.name), store::json(&state));
}

/// What reduces the snapshots waits for the approval that a plan waits for.
#[tokio::test]
async fn an_upload_that_waits_for_approval_deletes_no_snapshot() {
    let text = with(&example("production"), "approval: auto", "approval: manual");
    for (reduced, fewer) in [(few(&text), true), (none(&text), false)] {
        let account = old(&text, QUIET).await;
        rolls_out(&account, &account.desired_plan());
        let honest = after_scan(&account).await.1;
        assert!(honest > 25, "{honest}");
        // Alone it is nothing that a plan would bring, and no approval would be asked for.
        assert_eq!(account.outcome(&reduced).await, RenderOutcome::Unchanged);
        assert_eq!(after_scan(&account).await.1, honest, "{reduced}");
        // With a plan, it waits for that.
        let plan = account.render(other(&reduced)).await.plan;
        assert_eq!(plan.policy.approval, Approval::Manual);
        assert_eq!(after_scan(&account).await.1, honest, "{reduced}");
        rolls_out(&account, &plan);
        // Without a schedule, nothing says what to keep.
        let left = if fewer { FEWEST } else { honest };
        assert_eq!(after_scan(&account).await.1, left, "{reduced}");
    }
}

/// More snapshots, or more often, need no approval. Where none is asked for, fewer count at once, and a plan that was rolled out before does not
/// bring the earlier ones back.
#[tokio::test]
async fn a_reduction_of_snapshots_counts_at_once_where_no_approval_is_asked_for() {
    let text = example("production");
    let account = old(&text, QUIET).await;
    rolls_out(&account, &account.desired_plan());
    let honest = after_scan(&account).await.1;
    assert_eq!(account.outcome(few(&text)).await, RenderOutcome::Unchanged);
    let writes = account.assets.writes();
    assert_eq!(account.outcome(few(&text)).await, RenderOutcome::Unchanged);
    assert_eq!(account.assets.writes(), writes, "the same again writes nothing (P1)");
    assert_eq!(after_scan(&account).await.1, FEWEST);
    assert!(honest > FEWEST);
    // A rollout that began before counts no more than it, one that began later does.
    let manual = with(&few(&text), "approval: auto", "approval: manual");
    let mut account = old(&text, QUIET).await;
    let first = account.desired_plan();
    rolls_out(&account, &first);
    assert_eq!(account.outcome(few(&text)).await, RenderOutcome::Unchanged);
    account.now += SignedDuration::from_hours(1);
    let plan = account
        .render(other(&with(&manual, "allDays: 1, dailyDays: 1", "allDays: 365, dailyDays: 365")))
        .await;
    assert_eq!(after_scan(&account).await.1, DAYS, "more needs no approval");
    account.now += SignedDuration::from_hours(1);
    rolls_out(&account, &plan.plan);
    assert_eq!(account.outcome(other(&manual)).await, RenderOutcome::Unchanged);
    assert_eq!(after_scan(&account).await.1, DAYS, "fewer needs it");
}

/// After a cluster did not serve in the end, any upload is looked at, without the approval that it asks for: nothing is rolled out. That look approves
/// nothing of the upload.
#[tokio::test]
async fn a_look_that_nobody_approved_makes_no_spec_the_one_that_counts() {
    let text = with(&example("production"), "approval: auto", "approval: manual");
    for changed in [few(&text), short(&text), with(&text, "failureBudget: 2", "failureBudget: 50")] {
        let mut account = old(&text, QUIET).await;
        let first = account.desired_plan();
        rolls_out(&account, &first);
        let (honest, good) = (after_scan(&account).await.1, account.desired().unwrap());
        let mut state: Rollout = account.read(&keys::rollout(&account.name)).unwrap();
        state.last = serde_json::from_value(json!({
            "plan": first.id, "specVersion": good.spec_version, "target": first.to, "result": "failed",
            "message": "the cluster does not serve", "endedAt": account.now, "steps": [], "unserved": true,
        }))
        .unwrap();
        account.assets.upload(&keys::rollout(&account.name), store::json(&state));
        account.now += SignedDuration::from_hours(1);
        account.assets.set_clock(account.now);
        let RenderOutcome::Planned(look) = account.outcome(&changed).await else { panic!("no look") };
        assert!(look.is_empty() && look.needs_approval() && !look.waits_for_approval(account.now));
        // The look succeeds.
        let version = account.desired().unwrap().spec_version;
        let last = Ended {
            spec_version: version.clone(),
            plan: look.id.clone(),
            result: RolloutResult::Succeeded,
            unserved: false,
            ..state.last.clone().unwrap()
        };
        let ended = slipway_rollout::RollbackTarget {
            generation: 3,
            spec_version: version,
            plan: look.id.clone(),
            approved: false,
            started_at: account.now,
            ended_at: account.now,
            ..state.rollback_targets[0].clone()
        };
        state.rollback_targets.insert(0, ended);
        state.last = Some(last);
        account.assets.upload(&keys::rollout(&account.name), store::json(&state));
        let left = after_scan(&account).await.1;
        assert!(left + 1 >= honest && honest > 25, "{left} of {honest}\n{changed}");
        // Nor does the renewal go as it says.
        account.now += SignedDuration::from_hours(24 * (364 - QUIET));
        account.assets.set_clock(account.now);
        let renewed = scanned(&account, account.now).await.renewed;
        let (soon, manifest) = (account.now + SignedDuration::from_hours(24 * 300), account.manifest());
        let ends = |name: &String| manifest.assets[name].certificate.as_ref().unwrap().not_after;
        assert!(!renewed.is_empty() && renewed.iter().all(|name| ends(name) > soon), "{changed}");
        let outcome = (*account).render(Cause::Newest, &Life::unending(), account.now).await.unwrap();
        let RenderOutcome::Planned(plan) = outcome else { panic!("{outcome:?}") };
        assert!(plan.waits_for_approval(account.now), "{}\n{changed}", plan.summary());
        let renewal = account.desired_plan();
        assert!(renewal.is_renewal() && !renewal.waits_for_approval(account.now), "{}", renewal.summary());
        assert_eq!(renewal.policy, first.policy, "{changed}");
    }
}

/// The scan issued certificates as the newest upload says: of few days, so that the control plane had to be rolled again and again, each time too soon to
/// wait for an approval.
#[tokio::test]
async fn an_upload_that_waits_for_approval_makes_no_certificate_shorter() {
    let text = with(&example("production"), "approval: auto", "approval: manual");
    let short = short(&text);
    for (upload, plan) in [(short.clone(), false), (other(&short), true)] {
        let mut account = old(&text, QUIET).await;
        rolls_out(&account, &account.desired_plan());
        let outcome = account.outcome(&upload).await;
        assert!(
            if plan {
                matches!(outcome, RenderOutcome::Planned(_))
            } else {
                outcome == RenderOutcome::Unchanged
            },
            "{outcome:?}"
        );
        account.now += SignedDuration::from_hours(24 * (364 - QUIET));
        account.assets.set_clock(account.now);
        let renewed = scanned(&account, account.now).await.renewed;
        let (soon, manifest) = (account.now + SignedDuration::from_hours(24 * 300), account.manifest());
        let ends = |name: &String| manifest.assets[name].certificate.as_ref().unwrap().not_after;
        assert!(!renewed.is_empty() && renewed.iter().all(|name| ends(name) > soon), "a plan: {plan}");
    }
    // Once a person has approved it, it counts.
    let mut account = old(&text, QUIET).await;
    let plan = account.render(other(&short)).await.plan;
    rolls_out(&account, &plan);
    account.now += SignedDuration::from_hours(24 * (364 - QUIET));
    account.assets.set_clock(account.now);
    let renewed = scanned(&account, account.now).await.renewed;
    let manifest = account.manifest();
    let ends = |name: &String| manifest.assets[name].certificate.as_ref().unwrap().not_after;
    assert!(!renewed.is_empty());
    assert!(renewed.iter().all(|name| ends(name) < account.now + SignedDuration::from_hours(24 * 41)));
}

/// The scan began rotations as the newest upload says: of all authorities at once, one after the other without end, or never. And it issued their
/// successors for as few days as their certificates, or for a century.
#[tokio::test]
async fn an_upload_that_waits_for_approval_rotates_no_authority_and_sets_no_days_of_one() {
    let never = with(&example("production"), "approval: auto", "approval: manual");
    let early = rotates(&never, 3600);
    let days = |text: &str, days: u32| {
        let days = format!("\ntlsCADurationDays: {days}\ncertificatesConfiguration:\n");
        with(text, "\ncertificatesConfiguration:\n", &days)
    };
    for (approved, upload, rotations) in [
        (&never, rotates(&never, 3649), 0),
        (&never, other(&rotates(&never, 3649)), 0),
        (&early, never.clone(), 4),
        (&early, days(&early, 36_500), 4),
        (&early, other(&days(&early, 3601)), 4),
        (&early, short(&days(&never, 41)), 4),
    ] {
        let account = old(approved, QUIET).await;
        rolls_out(&account, &account.desired_plan());
        account.outcome(&upload).await;
        scanned(&account, account.now).await;
        let manifest = account.manifest();
        assert_eq!(manifest.rotations.len(), rotations, "{upload}");
        for name in manifest.rotations.keys() {
            let ends = manifest.assets[&successor(name)].certificate.as_ref().unwrap().not_after;
            let left = ends.duration_since(account.now).as_hours() / 24;
            assert!((3649..=3650).contains(&left), "{name}: {left}");
        }
    }
    // It takes no authority of its own either, which every node would trust.
    let account = old(&never, QUIET).await;
    let import = "keyAlgorithm: ECDSA-P256\n  authorities: {etcd-ca: {source: imported}}";
    let findings = refused(&account, &with(&never, "keyAlgorithm: ECDSA-P256", import)).await;
    says(&findings, "import-rotation", &["etcd-ca", "source: generated"]);
    // Once a person has approved it, it counts.
    let account = old(&never, QUIET).await;
    let plan = account.render(other(&rotates(&never, 3649))).await.plan;
    rolls_out(&account, &plan);
    scanned(&account, account.now).await;
    assert_eq!(account.manifest().rotations.len(), 4);
}
