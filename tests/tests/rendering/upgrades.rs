//! Orders to upgrade: what the lock pins is looked up anew, or earlier pins are put back, and the result is a plan like any other.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use slipway_core::event::{Event, UpgradeRequested};
use slipway_core::keys;
use slipway_core::pin::Pin;
use slipway_credentials::renewal::RenewalRequest;
use slipway_flows::rendering::{RenderOutcome, UpgradeOrder, earlier_pins};
use slipway_flows::store;
use slipway_plan::Plan;
use slipway_render::lock::Lock;
use slipway_rollout::{Ended, Given, Order, RollbackTarget, Rollout, RolloutResult, Stopped};
use slipway_sim::mortal::Life;
use slipway_tests::workshop::{Workshop, rolled_out};

use super::{NAME, PRODUCTION};

const PARAMETER: &str = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64";
const NEWER: &str = "ami-0feedfeedfeedfeed";

fn lock(account: &Workshop) -> Lock {
    account.read(&keys::lock(NAME)).unwrap()
}

fn order(account: &Workshop, pins: &[Pin]) -> UpgradeOrder {
    let pins = pins.iter().copied().collect();
    UpgradeOrder { pins, back_to: None, at: account.now - SignedDuration::from_secs(1) }
}

async fn upgraded(account: &Workshop, order: &UpgradeOrder) -> RenderOutcome {
    account.upgrade(order, &Life::unending()).await.unwrap()
}

fn planned(outcome: RenderOutcome) -> Plan {
    match outcome {
        RenderOutcome::Planned(plan) => *plan,
        other => panic!("no plan but {other:?}"),
    }
}

/// Makes `plan` count as rolled out, after those that succeeded before.
fn succeeded(account: &Workshop, plan: &Plan, at: Timestamp) {
    let before: Option<Rollout> = account.read(&keys::rollout(NAME));
    let good = RollbackTarget {
        generation: 1,
        spec_version: "v".to_owned(),
        plan: plan.id.clone(),
        target: plan.to.clone(),
        approved: plan.needs_approval(),
        started_at: at,
        ended_at: at,
    };
    let earlier = before.map(|rollout| rollout.rollback_targets).unwrap_or_default();
    let last = Ended {
        plan: plan.id.clone(),
        spec_version: "v".to_owned(),
        target: plan.to.clone(),
        of_what_runs: false,
        result: RolloutResult::Succeeded,
        message: String::new(),
        ended_at: at,
        steps: Vec::new(),
        unserved: false,
    };
    let rollout =
        Rollout { rollback_targets: [vec![good], earlier].concat(), last: Some(last), ..rolled_out(plan) };
    account.assets.upload(&keys::rollout(NAME), store::json(&rollout));
}

#[tokio::test]
async fn p1_only_an_order_moves_a_pin_and_only_the_kinds_that_it_names() {
    let mut account = Workshop::launched(PRODUCTION).await;
    let (before, launched) = (lock(&account), account.now);
    account.parameters.set(PARAMETER, NEWER);
    assert_eq!(account.outcome(PRODUCTION).await, RenderOutcome::Unchanged, "no upload moves a pin");
    account.now += SignedDuration::from_hours(24 * 30);
    assert_eq!(upgraded(&account, &order(&account, &[Pin::Agent])).await, RenderOutcome::Unchanged);
    assert_eq!(lock(&account).images, before.images);

    account.now += SignedDuration::from_mins(1);
    let plan = planned(upgraded(&account, &order(&account, &[Pin::Images])).await);
    let after = lock(&account);
    assert_eq!(after.images[PARAMETER], NEWER);
    assert_eq!(after.looked_up[&Pin::Images], account.now);
    assert_eq!(after.looked_up[&Pin::Kubernetes], launched, "what was not named keeps its date");
    assert_eq!(after.program_files, before.program_files, "nothing else was looked up");
    assert!(plan.to_text().contains(NEWER), "{}", plan.to_text());
    assert_eq!(account.take_event_types().last().unwrap(), "Rollout Requested");

    // The new pins are those of the next upload, too.
    succeeded(&account, &plan, account.now);
    assert_eq!(account.outcome(PRODUCTION).await, RenderOutcome::Unchanged);
}

#[tokio::test]
async fn p8_an_order_that_arrives_twice_or_late_or_at_a_function_that_dies_is_carried_out_once() {
    let account = Workshop::launched(PRODUCTION).await;
    account.parameters.set(PARAMETER, NEWER);
    let order = order(&account, &[Pin::Images]);
    let first = account.fork();
    let plan = planned(upgraded(&first, &order).await);
    // Again, after EC2's image moved on: the order was for what was newest then.
    first.parameters.set(PARAMETER, "ami-0aaaaaaaaaaaaaaaa");
    let again = upgraded(&first, &order).await;
    assert_eq!(planned(again).id, plan.id);
    let late = UpgradeOrder { at: order.at - SignedDuration::from_hours(1), ..order.clone() };
    upgraded(&first, &late).await;
    assert_eq!(lock(&first).images[PARAMETER], NEWER);

    for change in 0..40 {
        let account = account.fork();
        let died = account.upgrade(&order, &Life::until_change(change)).await.is_err();
        let end = upgraded(&account, &order).await;
        assert_eq!(planned(end).id, plan.id, "{change}");
        assert_eq!(lock(&account).images[PARAMETER], NEWER);
        if !died {
            assert!(change > 5, "it died {change} times");
            return;
        }
    }
    panic!("a run of the render function changes more than forty things");
}

#[tokio::test]
async fn the_pins_of_an_earlier_rollout_come_back_and_a_newer_one_never_goes_by_itself() {
    let mut account = Workshop::for_spec(PRODUCTION);
    account.assets.set_clock(account.now);
    let launch = account.render(PRODUCTION).await.plan;
    succeeded(&account, &launch, account.now);
    let before = lock(&account);
    account.parameters.set(PARAMETER, NEWER);
    account.now += SignedDuration::from_hours(1);
    planned(upgraded(&account, &order(&account, &[Pin::Images])).await);

    // Its canary failed: a person puts the images back.
    account.now += SignedDuration::from_hours(1);
    let back = UpgradeOrder { back_to: Some(launch.id.clone()), ..order(&account, &Pin::ALL) };
    assert_eq!(upgraded(&account, &back).await, RenderOutcome::Unchanged, "it is what runs");
    let after = lock(&account);
    assert_eq!((&after.images, &after.looked_up), (&before.images, &before.looked_up));
    // The upgrade's order arrives once more.
    let old =
        UpgradeOrder { at: account.now - SignedDuration::from_mins(90), ..order(&account, &[Pin::Images]) };
    upgraded(&account, &old).await;
    assert_eq!(lock(&account).images, before.images);

    // A Slipway that knows newer releases pinned them; this one is older, and takes nothing back.
    let mut newer = before.clone();
    newer
        .program_versions
        .values_mut()
        .for_each(|programs| drop(programs.insert("runc".to_owned(), "1.99.0".to_owned())));
    let file = "https://github.com/opencontainers/runc/releases/download/v1.99.0/runc.amd64".to_owned();
    newer.program_files.insert(file, "a".repeat(64));
    account.assets.upload(&keys::lock(NAME), store::json(&newer));
    account.now += SignedDuration::from_hours(1);
    upgraded(&account, &order(&account, &[Pin::Programs])).await;
    let kept: BTreeSet<&String> = newer.program_versions.values().map(|programs| &programs["runc"]).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(lock(&account).program_versions, newer.program_versions);
}

#[tokio::test]
async fn an_undo_goes_to_the_last_success_and_from_a_success_to_the_one_before_with_other_pins() {
    let mut account = Workshop::for_spec(PRODUCTION);
    account.assets.set_clock(account.now);
    let launch = account.render(PRODUCTION).await.plan;
    succeeded(&account, &launch, account.now);
    let old = lock(&account).images[PARAMETER].clone();
    let cluster = slipway_spec::parse(PRODUCTION.as_bytes(), None).unwrap().cluster;
    let goes_to = async |account: &Workshop, last: RolloutResult, plan: Option<&str>| {
        let mut rollout: Rollout = account.read(&keys::rollout(NAME)).unwrap();
        rollout.last.as_mut().unwrap().result = last;
        let (lock, pins) = (lock(account), BTreeSet::from(Pin::ALL));
        let found = earlier_pins(&account.assets, &rollout, &cluster, &lock, &pins, plan).await.unwrap();
        found.map(|(good, lock)| (good.plan.clone(), lock.images[PARAMETER].clone()))
    };
    let launched = Some((launch.id.clone(), old));
    // Nothing has other pins yet. After a failure, the last success counts even so.
    assert_eq!(goes_to(&account, RolloutResult::Succeeded, None).await, None);
    assert_eq!(goes_to(&account, RolloutResult::Failed, None).await, launched);
    assert_eq!(goes_to(&account, RolloutResult::Succeeded, Some(&launch.id)).await, launched);
    assert_eq!(goes_to(&account, RolloutResult::Succeeded, Some("0a1b")).await, None);

    account.parameters.set(PARAMETER, NEWER);
    account.now += SignedDuration::from_hours(1);
    let upgrade = planned(upgraded(&account, &order(&account, &[Pin::Images])).await);
    succeeded(&account, &upgrade, account.now);
    assert_eq!(goes_to(&account, RolloutResult::Succeeded, None).await, launched);
    assert_eq!(goes_to(&account, RolloutResult::Failed, None).await, Some((upgrade.id, NEWER.to_owned())));
}

#[tokio::test]
async fn an_order_that_cannot_be_carried_out_changes_nothing_and_says_why() {
    let account = Workshop::launched(PRODUCTION).await;
    let before = account.assets.keys();
    for (back_to, says) in [("0a1b", "no plan 0a1b that succeeded is recorded")] {
        let order = UpgradeOrder { back_to: Some(back_to.to_owned()), ..order(&account, &Pin::ALL) };
        let RenderOutcome::NotUpgraded(why) = upgraded(&account, &order).await else { panic!("{back_to}") };
        assert!(why.contains(says), "{why}");
        assert_eq!(account.take_event_types(), ["Order Ignored"]);
    }
    // A cluster that was never planned, and one without a spec.
    let empty = Workshop::for_spec(PRODUCTION);
    assert_eq!(upgraded(&empty, &order(&empty, &Pin::ALL)).await, RenderOutcome::NoSpec);
    drop(empty.upload(PRODUCTION));
    let RenderOutcome::NotUpgraded(why) = upgraded(&empty, &order(&empty, &Pin::ALL)).await else { panic!() };
    assert!(why.contains("nothing of the cluster has been rolled out yet"), "{why}");
    assert_eq!(account.assets.keys(), before);
}

#[tokio::test]
async fn a_spec_with_a_schedule_has_its_pins_looked_up_when_they_are_old_and_nothing_is_open() {
    let spec = format!("{PRODUCTION}\nupgrades: {{everyDays: 30, pins: [images]}}\n");
    let mut account = Workshop::for_spec(&spec);
    account.assets.set_clock(account.now);
    let launch = account.render(&spec).await.plan;
    let orders = async |account: &Workshop, days: i64| -> Vec<UpgradeRequested> {
        drop(account.bus.drain());
        let now = account.now + SignedDuration::from_hours(24 * days);
        account.assets.set_clock(now);
        account.scan(&RenewalRequest::default(), &Life::unending(), now).await.unwrap();
        let ordered = account.bus.drain().into_iter().filter_map(|event| match event {
            Event::UpgradeRequested(order) => Some(order),
            _ => None,
        });
        ordered.collect()
    };
    assert_eq!(orders(&account, 31).await, [], "nothing was rolled out yet");
    succeeded(&account, &launch, account.now);
    assert_eq!(orders(&account, 29).await, []);
    let due = orders(&account, 30).await;
    let at = account.now + SignedDuration::from_hours(24 * 30);
    let expected = UpgradeRequested {
        cluster: NAME.to_owned(),
        pins: BTreeSet::from([Pin::Images]),
        back_to: None,
        at: Some(at),
    };
    assert_eq!(due, [expected]);

    // A person paused the cluster.
    let rollout: Rollout = account.read(&keys::rollout(NAME)).unwrap();
    let pause = Given { order: Order::Pause, at };
    let paused = slipway_rollout::after_order(&rollout, &pause, None, at);
    account.assets.upload(&keys::rollout(NAME), store::json(&paused));
    assert_eq!(orders(&account, 30).await, []);
    account.assets.upload(&keys::rollout(NAME), store::json(&rollout));

    // A rollout failed or was aborted, or a plan waits: work begins again only after an upload.
    for result in [RolloutResult::Failed, RolloutResult::Aborted] {
        let last = Ended { result, ..rollout.last.clone().unwrap() };
        account
            .assets
            .upload(&keys::rollout(NAME), store::json(&Rollout { last: Some(last), ..rollout.clone() }));
        assert_eq!(orders(&account, 30).await, [], "{result:?}");
    }
    let newest = account.desired().unwrap().spec_version;
    for (spec_version, expected) in [(newest.as_str(), 0), ("another", 1)] {
        let stopped = Stopped { spec_version: spec_version.to_owned(), changes: String::new() };
        let state = Rollout { stopped: Some(stopped), ..rollout.clone() };
        account.assets.upload(&keys::rollout(NAME), store::json(&state));
        assert_eq!(
            orders(&account, 30).await.len(),
            expected,
            "{spec_version}: a person may have gone back to what runs"
        );
    }
    account.assets.upload(&keys::rollout(NAME), store::json(&rollout));
    let waits = account.fork();
    waits.render(super::bigger(&spec)).await;
    assert_eq!(orders(&waits, 30).await, []);

    // Carried out, with or without something newer, it is due again after as many days; put back, too.
    account.now = at;
    upgraded(&account, &UpgradeOrder { pins: [Pin::Images].into(), back_to: None, at }).await;
    assert_eq!(orders(&account, 29).await, []);
    assert_eq!(orders(&account, 30).await.len(), 1);
    account.now += SignedDuration::from_hours(24 * 30);
    let back = UpgradeOrder { pins: Pin::ALL.into(), back_to: Some(launch.id), at: account.now };
    upgraded(&account, &back).await;
    assert_eq!(orders(&account, 29).await, [], "what was put back stays");
}

/// A rendering is slow, and meanwhile a person moves the pins.
#[tokio::test]
async fn p8_a_slow_rendering_brings_back_no_pin_that_an_order_has_moved_meanwhile() {
    let account = Workshop::launched(PRODUCTION).await;
    account.parameters.set(PARAMETER, NEWER);
    let moved = {
        let other = account.fork();
        planned(upgraded(&other, &order(&other, &[Pin::Images])).await);
        other.assets.peek(&keys::lock(NAME)).unwrap()
    };
    let version = account.upload(super::bigger(PRODUCTION));
    let whole = Life::unending();
    let fork = account.fork();
    fork.rendered(Some(&version), &whole).await.unwrap();
    let (mut overtaken, mut late) = (0, Vec::new());
    for call in 0..whole.calls() {
        let account = account.fork();
        let (assets, moved) = (account.assets.clone(), moved.clone());
        let life = Life::interrupted(call, move || drop(assets.upload(&keys::lock(NAME), moved)));
        match account.rendered(Some(&version), &life).await {
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                overtaken += 1;
            }
            Ok(_) => {
                let target = account.desired().unwrap().target;
                let used: Lock = account.read(&keys::release_lock(NAME, &target)).unwrap();
                if used.images != lock(&account).images {
                    late.push(call);
                }
            }
        }
    }
    assert!(overtaken > 3, "{overtaken}");
    // After its last look it only reports, and the order's own rendering comes later.
    assert!(late.iter().all(|call| call + 6 > whole.calls()), "{late:?} of {}", whole.calls());
}
