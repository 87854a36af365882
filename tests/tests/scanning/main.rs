//! Scans through the real flow and real cryptography, with buckets and keys in memory: what they renew, what follows from it, and what they
//! find.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod damage;
mod held_up;
mod managers;
mod recovery;
mod rotation;
mod silent;
mod snapshots;
mod space;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use slipway_core::event::Event;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::{RenewalRequest, State};
use slipway_crypto::AwsLc;
use slipway_flows::scan::{ScanOutcome, Scanned, fan_out};
use slipway_flows::{rendering, store};
use slipway_plan::{NodeAction, Plan};
use slipway_ports::Removal as _;
use slipway_rollout::{Ended, Given, Order, Rollout, RolloutResult, after_order};
use slipway_sim::memory::{Fault, MemoryBucket, MemoryBus};
use slipway_sim::mortal::Life;
use slipway_sim::year::Cause;
use slipway_tests::client::machine_arn;
use slipway_tests::workshop::{Workshop, rolled_out};

const PRODUCTION: &str = include_str!("../../../examples/production.yaml");
const NAME: &str = "production";

fn launch() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

/// Invokes the scan function for the cluster.
async fn scan(account: &Workshop, now: Timestamp) -> Scanned {
    account.assets.set_clock(now);
    match account.scan(&RenewalRequest::default(), &Life::unending(), now).await.unwrap() {
        ScanOutcome::Scanned(scanned) => *scanned,
        ScanOutcome::Nothing(why) => panic!("{why}"),
    }
}

/// The plan that the render function makes after the event about renewed certificates.
async fn planned(account: &Workshop, now: Timestamp) -> Option<Plan> {
    match (**account).render(Cause::Newest, &Life::unending(), now).await.unwrap() {
        rendering::RenderOutcome::Planned(plan) => Some(*plan),
        rendering::RenderOutcome::Unchanged => None,
        other => panic!("{other:?}"),
    }
}

fn scan_state(account: &Workshop) -> State {
    account.read(&keys::scan(NAME)).unwrap()
}

/// The number of events of each type since the last call.
fn take_event_counts(account: &Workshop) -> BTreeMap<String, usize> {
    let mut said = BTreeMap::new();
    for kind in account.take_event_types() {
        *said.entry(kind).or_default() += 1;
    }
    said
}

fn certificates(manifest: &Manifest) -> BTreeMap<String, (String, Timestamp)> {
    let certificates = manifest.assets.iter().filter_map(|(name, entry)| {
        Some((name.clone(), (entry.fingerprint.clone(), entry.certificate.as_ref()?.not_after)))
    });
    certificates.collect()
}

fn actions(plan: &Plan) -> BTreeMap<String, NodeAction> {
    plan.nodes.iter().map(|node| (node.role.to_string(), node.action)).collect()
}

/// The rollout of `plan` ended at that time.
fn ended(plan: &Plan, result: RolloutResult, ended_at: Timestamp) -> Ended {
    Ended {
        plan: plan.id.clone(),
        spec_version: String::new(),
        target: plan.to.clone(),
        of_what_runs: false,
        result,
        message: String::new(),
        ended_at,
        steps: Vec::new(),
        unserved: false,
    }
}

/// P2, P7: the demonstration of the issue, without processes.
#[tokio::test]
async fn p7_six_days_before_expiry_a_scan_renews_and_the_plan_rolls_etcd_and_control_plane_alone() {
    let account = Workshop::launched(PRODUCTION).await;
    let (before, quiet) = (account.manifest(), launch() + days(300));
    let scanned = scan(&account, quiet).await;
    assert_eq!(
        (scanned.renewed.len(), scanned.findings.len(), scanned.standings.len()),
        (0, 0, 19),
        "{scanned:?}"
    );
    assert_eq!(take_event_counts(&account), BTreeMap::new());
    assert_eq!(account.manifest(), before);

    let now = launch() + days(359);
    let scanned = scan(&account, now).await;
    assert_eq!(scanned.renewed.len(), 15, "{:?}", scanned.renewed);
    assert_eq!(
        take_event_counts(&account),
        [("Certificate Renewed".to_owned(), 1)].into(),
        "no expiry is announced"
    );
    let (old, new) = (certificates(&before), certificates(&account.manifest()));
    for (name, (fingerprint, ends)) in &new {
        let renewed = scanned.renewed.contains(name);
        assert_eq!(*fingerprint != old[name].0, renewed, "{name}");
        assert_eq!(renewed, !name.ends_with("-ca") && name != "ca", "{name}");
        assert!(*ends >= now + days(364), "{name} ends {ends}");
    }

    let plan = planned(&account, now).await.unwrap();
    for (role, action) in actions(&plan) {
        let wanted = if role.starts_with("pool-") { NodeAction::Untouched } else { NodeAction::Replace };
        assert_eq!(action, wanted, "{role}: {}", plan.to_text());
    }
    assert!(!plan.urgency(now).overrides(), "six days are enough");
    let ends: Vec<_> = plan.renewal.deadline.ends.values().collect();
    assert_eq!(ends, [&(launch() + days(365)); 4], "of three members and the controllers: {plan:?}");
    assert!(plan.urgency(launch() + days(363)).overrides(), "the same plan is urgent when the clock says so");
    let controller = plan.nodes.iter().find(|node| node.role == Role::Controller).unwrap();
    assert!(
        controller.reasons[0].contains("apiserver") && controller.reasons[0].contains("strategy is rollout")
    );
    account.deployed(&plan).await;
    take_event_counts(&account);

    // Another scan finds nothing to do, and the old certificates count as gone once the rollout has succeeded.
    let rollout = Rollout { last: Some(ended(&plan, RolloutResult::Succeeded, now)), ..rolled_out(&plan) };
    account.assets.upload(&keys::rollout(NAME), store::json(&rollout));
    let scanned = scan(&account, now + days(1)).await;
    assert_eq!((scanned.renewed.len(), scanned.announced.len()), (0, 0));
    assert_eq!(
        (take_event_counts(&account), scan_state(&account).superseded),
        (BTreeMap::new(), BTreeMap::new())
    );
}

/// Seed 002: certificates are renewed in place if the spec says so, and controllers do not roll for etcd's.
#[tokio::test]
async fn p2_refresh_replaces_nobody() {
    let spec = PRODUCTION.replace("strategy: rollout", "strategy: refresh");
    assert_ne!(spec, PRODUCTION);
    let account = Workshop::launched(&spec).await;
    scan(&account, launch() + days(359)).await;
    let plan = planned(&account, launch() + days(359)).await.unwrap();
    for (role, action) in actions(&plan) {
        let wanted = if role.starts_with("pool-") { NodeAction::Untouched } else { NodeAction::Refresh };
        assert_eq!(action, wanted, "{role}");
    }
}

/// P7: a certificate that expires within days, or has expired, waits for no approval; nothing else is begun together with it.
#[tokio::test]
async fn p7_an_expired_certificate_waits_for_no_approval() {
    let spec = PRODUCTION.replace("approval: auto", "approval: manual");
    assert_ne!(spec, PRODUCTION);
    for (passed, urgent) in [(350, false), (363, true), (400, true)] {
        let account = Workshop::launched(&spec).await;
        account.uses_newest_spec(&account.desired_plan());
        let now = launch() + days(passed);
        scan(&account, now).await;
        let renewed = account.bus.drain().into_iter().find_map(|event| match event {
            Event::CertificateRenewed(detail) => Some(detail),
            _ => None,
        });
        assert_eq!(renewed.unwrap().urgent.is_some(), urgent, "after {passed} days");
        let plan = planned(&account, now).await.unwrap();
        assert_eq!(!plan.waits_for_approval(now), urgent, "{}", plan.summary());
        let asked = take_event_counts(&account).contains_key("Rollout Requested");
        assert_eq!(asked, urgent, "after {passed} days");
        let until = "certificates in use expire at 2027-11-20T12:00:00Z: from 2027-11-17T05:11:00Z on";
        assert!(
            plan.summary().contains(until) && plan.summary().contains("it begins without approval"),
            "{}",
            plan.summary()
        );
        // Expired certificates are refreshed in place, because replacing a machine requires the others to be healthy.
        let expected = if passed == 400 { NodeAction::Refresh } else { NodeAction::Replace };
        assert_eq!(actions(&plan)["etcd-0"], expected, "after {passed} days");
        if !urgent {
            // The rollout waits, and the scan requests it on the day on which it becomes urgent; nothing else wakes the rollout then.
            take_event_counts(&account);
            for (passed, asked) in [(361, 0), (362, 1), (363, 1)] {
                scan(&account, launch() + days(passed)).await;
                let said = take_event_counts(&account).get("Rollout Requested").copied().unwrap_or_default();
                assert_eq!(said, asked, "after {passed} days");
            }
        }
    }
}

/// P8: killed at any call, a scan is completed by the next one; nothing is renewed twice, and renewals are published.
#[tokio::test]
async fn p8_a_scan_that_dies_at_any_call_is_finished_by_the_next() {
    let now = launch() + days(359);
    let base = Workshop::launched(PRODUCTION).await;
    let total = {
        let (account, life) = (base.fork(), Life::unending());
        account.scan(&RenewalRequest::default(), &life, now).await.unwrap();
        life.calls()
    };
    assert!(total > 60, "{total} calls");
    for (last, after) in (0..total).flat_map(|last| [(last, false), (last, true)]) {
        let (account, at) = (base.fork(), format!("at call {last}, after: {after}"));
        let died = account.scan(&RenewalRequest::default(), &Life::until(last, after), now).await;
        // The last write stores the scan's own memory: it is the only call whose lost answer nobody notices.
        assert!(died.is_err(), "{at}");
        scan(&account, now).await;
        let renewed = account.manifest();
        assert!(
            take_event_counts(&account).get("Certificate Renewed").is_some_and(|said| *said >= 1),
            "{at}"
        );
        // All renewals are in one version of the inventory: two versions show that nothing was renewed twice.
        assert_eq!(account.assets.versions(&keys::manifest(NAME)), 2, "{at}");
        let third = scan(&account, now).await;
        assert!(third.renewed.is_empty() && account.manifest() == renewed, "{at}");
        assert_eq!(scan_state(&account).superseded.len(), 14, "{at}: nodes still have the old ones");
        if last % 16 == 0 {
            assert!(planned(&account, now).await.is_some(), "{at}");
        }
    }
}

/// P8: of two concurrent scans, one renews.
#[tokio::test]
async fn p8_of_two_scans_one_renews() {
    let account = Workshop::launched(PRODUCTION).await;
    let now = launch() + days(359);
    let (life, asked) = (Life::unending(), RenewalRequest::default());
    let (one, other) = tokio::join!(account.scan(&asked, &life, now), account.scan(&asked, &life, now));
    let lost: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert!(lost.len() < 2 && lost.iter().all(slipway_flows::FlowError::is_transient), "{lost:?}");
    assert_eq!(account.assets.versions(&keys::manifest(NAME)), 2);
    assert!(scan(&account, now).await.renewed.is_empty());
}

#[tokio::test]
async fn what_is_asked_for_is_renewed_and_a_doubled_event_renews_nothing() {
    let account = Workshop::launched(PRODUCTION).await;
    let asked = RenewalRequest {
        certificates: vec!["scheduler".to_owned()],
        everything: false,
        at: Some(launch() + days(1)),
    };
    for (now, renewed) in [(launch() + days(1), 1), (launch() + days(2), 0)] {
        let outcome = account.scan(&asked, &Life::unending(), now).await.unwrap();
        let ScanOutcome::Scanned(scanned) = outcome else { panic!("{outcome}") };
        assert_eq!(scanned.renewed.len(), renewed);
    }
    let plan = planned(&account, launch() + days(2)).await.unwrap();
    let touched: Vec<_> = plan.nodes.iter().filter(|node| node.action != NodeAction::Untouched).collect();
    assert_eq!(touched.len(), 1);
    assert_eq!(touched[0].role, Role::Controller);
}

#[tokio::test]
async fn every_cluster_is_asked_for_once_and_ten_thousand_are_no_more_memory() {
    let (assets, bus) = (MemoryBucket::new("assets", "eu-west-1"), MemoryBus::new());
    for index in 0..2_345 {
        assets.upload(&keys::manifest(&format!("c{index}")), "{}");
        assets.upload(&keys::status(&format!("c{index}")), "{}");
    }
    assets.upload("clusters/not a cluster/x", "");
    assets.upload("agent/manifest.json", "{}");
    assert_eq!(fan_out(&assets, &bus).await.unwrap(), 2_345);
    let asked: Vec<String> = bus.events().iter().map(|event| event.cluster().to_owned()).collect();
    assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), asked.len());
    assert_eq!(asked.len(), 2_345);
    // Page by page: three pages of clusters, and one that ends the listing.
    assert_eq!(assets.journal().count("s3:ListObjectsV2"), 4);
    assert_eq!(bus.journal().count("events:PutEvents"), 3);
}

#[tokio::test]
async fn p7_what_cannot_be_renewed_is_said_and_holds_up_no_more_than_it_must() {
    let account = Workshop::launched(PRODUCTION).await;
    let manifest = account.manifest();
    let key = keys::private_half(NAME, "etcd-ca", &manifest.assets["etcd-ca"].fingerprint);
    account.assets.purge(&key);
    let now = launch() + days(359);
    let scanned = scan(&account, now).await;
    assert_eq!(scanned.failed.len(), 1, "{:?}", scanned.failed);
    assert!(scanned.failed[0].certificates.contains(&"etcd-peer-1".to_owned()));
    assert!(scanned.failed[0].message.contains("etcd-ca"), "{}", scanned.failed[0].message);
    assert!(scanned.renewed.contains(&"apiserver".to_owned()), "{:?}", scanned.renewed);
    let said = take_event_counts(&account);
    assert_eq!((said["Renewal Failed"], said["Certificate Renewed"]), (1, 1));
    // A refusal of KMS is an error of the function, and not of the certificates.
    let account = Workshop::launched(PRODUCTION).await;
    account.keys.faults().plan("kms:Decrypt", "", Fault::Before(slipway_ports::ErrorKind::Transient), 1);
    let outcome = account.scan(&RenewalRequest::default(), &Life::unending(), now).await;
    assert!(outcome.is_err(), "it is tried again: {outcome:?}");
    assert_eq!(scan(&account, now).await.renewed.len(), 15);
}
