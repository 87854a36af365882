//! What an uploader rolls out without an approval, together with certificates that expire soon.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_core::role::Role;
use slipway_flows::rendering::RenderOutcome;
use slipway_plan::Plan;
use slipway_sim::mortal::Life;
use slipway_sim::year::Cause;
use slipway_tests::workshop::{Workshop, example};

use super::with;
use crate::{scanned, workshop};

/// Days after the launch on which certificates are due for renewal, and on which this is urgent. They are valid for 365 days.
const DUE: i64 = 350;
const URGENT: i64 = 363;

/// The cluster whose plans a person approves.
fn manual() -> String {
    with(&example("production"), "approval: auto", "approval: manual")
}

/// That cluster, launched and approved.
async fn launched(text: &str) -> Workshop {
    let workshop = workshop(text);
    workshop.assets.set_clock(workshop.now);
    let plan = workshop.render(text).await.plan;
    workshop.uses_newest_spec(&plan);
    workshop
}

/// Renews on that day, and returns the plan of the newest upload.
async fn renewed(workshop: &mut Workshop, day: i64) -> Plan {
    let launch: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    workshop.now = launch + SignedDuration::from_hours(24 * day);
    workshop.assets.set_clock(workshop.now);
    scanned(workshop, workshop.now).await;
    match (**workshop).render(Cause::Newest, &Life::unending(), workshop.now).await.unwrap() {
        RenderOutcome::Planned(plan) => *plan,
        other => panic!("{other:?}"),
    }
}

fn release(workshop: &Workshop, id: &str) -> Rendering {
    let mut release: Rendering = workshop.read(&keys::release(&workshop.name, id)).unwrap();
    release.stacks.sort_by(|one, other| one.name.cmp(&other.name));
    release
}

/// Asserts that what runs is renewed without approval, and that nothing else comes along with it.
fn renews_what_runs_alone(workshop: &Workshop, good: &slipway_core::status::Desired, what: &str) {
    let desired = workshop.desired().unwrap();
    let plan: Plan = workshop.read(&keys::plan(&workshop.name, &desired.plan)).unwrap();
    assert_eq!(desired.spec_version, good.spec_version, "{what}");
    assert!(plan.is_renewal() && !plan.waits_for_approval(workshop.now), "{what}: {}", plan.summary());
    let new = release(workshop, &desired.target);
    let control = new.roles.iter().filter(|(role, _)| !matches!(role, Role::Pool(_)));
    let digests: BTreeMap<Role, String> =
        control.map(|(role, node)| (role.clone(), node.credentials_digest.clone())).collect();
    let runs = release(workshop, &good.target);
    assert!(new != runs && runs.with_credentials(&digests) == new, "{what}");
}

/// They replace no node, so the plan that had them counted as a renewal, and a renewal that is urgent waits for nobody.
#[tokio::test]
async fn an_urgent_renewal_brings_no_change_that_nobody_approved() {
    let text = manual();
    let count =
        |count: u32| with(&text, "controller:\n  count: 3", &format!("controller:\n  count: {count}"));
    let patch = |target: &str, ops: &str| Some(format!("target: {{stack: {target}}}\nops: [{ops}]\n"));
    let hook = "/Resources/Group/Properties/LifecycleHookSpecificationList/1/HeartbeatTimeout";
    let hook = format!("{{op: replace, path: {hook}, value: 60}}");
    let tag = "{op: add, path: /Resources/Group/Properties/Tags/-, value: {Key: team, Value: evil, PropagateAtLaunch: true}}";
    let group = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/evil/0123456789abcdef";
    let group = format!("{{op: add, path: /Resources/Group/Properties/TargetGroupARNs/-, value: '{group}'}}");
    for (what, changed, patch) in [
        ("more controllers", count(5), None),
        ("fewer controllers", count(2), None),
        ("tags", with(&text, "environment: production", "environment: evil"), None),
        (
            "a name in a certificate",
            with(&text, "  apiServer:\n", "  apiServer:\n    certSANs: [evil.example.com]\n"),
            None,
        ),
        ("a patched hook", format!("{text}\n# Again.\n"), patch("control-plane", &hook)),
        ("a patched tag", format!("{text}\n# Again.\n"), patch("control-plane", tag)),
        ("a patched target group", format!("{text}\n# Again.\n"), patch("control-plane", &group)),
    ] {
        let mut workshop = launched(&text).await;
        let good = workshop.desired().unwrap();
        if let Some(patch) = patch {
            workshop.specs.upload(&format!("{}evil.yaml", keys::patches(&workshop.name)), patch.into_bytes());
        }
        let outcome = workshop.outcome(&changed).await;
        let RenderOutcome::Planned(waiting) = &outcome else {
            // What nobody may do anyway.
            assert!(
                what == "a patched target group" && matches!(outcome, RenderOutcome::Rejected(_)),
                "{what}: {outcome:?}"
            );
            continue;
        };
        assert!(waiting.waits_for_approval(workshop.now), "{what}");
        drop(workshop.take_event_types());
        let plan = renewed(&mut workshop, URGENT).await;
        assert!(plan.waits_for_approval(workshop.now) && !plan.is_renewal(), "{what}: {}", plan.summary());
        renews_what_runs_alone(&workshop, &good, what);
        let waits = workshop.desired().unwrap().set_aside.map(|waits| waits.target);
        assert_eq!(waits, Some(plan.to), "{what}");
    }
}

/// An upload that changes nothing waits for nobody: `emergencyDays: 30` made each renewal begin at once.
#[tokio::test]
async fn an_upload_makes_no_renewal_urgent_earlier_than_the_approved_spec_does() {
    let text = manual();
    let days =
        |days: u32| with(&text, "    days: 30\n", &format!("    days: 30\n    emergencyDays: {days}\n"));
    for (from, to, urgent) in [
        (text.clone(), days(30), false),
        (days(30), text.clone(), false),
        (days(30), format!("{}\n# Again.\n", days(30)), true),
    ] {
        let mut workshop = launched(&from).await;
        assert_eq!(workshop.outcome(&to).await, RenderOutcome::Unchanged);
        let plan = renewed(&mut workshop, DUE).await;
        assert!(plan.is_renewal(), "{}", plan.summary());
        assert_eq!(!plan.waits_for_approval(workshop.now), urgent, "{}", plan.summary());
        // Nor does the renewal itself approve it for the next one.
        let plan = renewed(&mut workshop, URGENT).await;
        assert!(plan.is_renewal() && !plan.waits_for_approval(workshop.now), "{}", plan.summary());
        workshop.uses_spec_of(&plan, false);
        let next = renewed(&mut workshop, 2 * DUE).await;
        assert!(next.is_renewal(), "{}", next.summary());
        assert_eq!(!next.waits_for_approval(workshop.now), urgent, "{}", next.summary());
    }
}

/// P7: if that is all that it brings, the newest upload does not hold it up, whatever it says of approvals and days.
#[tokio::test]
async fn p7_an_upload_that_changes_nothing_holds_up_no_renewal() {
    let text = manual();
    for newest in [
        format!("{text}\n# Again.\n"),
        with(&text, "    days: 30\n", "    days: 30\n    emergencyDays: 0\n"),
        with(&text, "keyAlgorithm: ECDSA-P256", "keyAlgorithm: ECDSA-P256\n  caRotationDays: 200"),
    ] {
        let mut workshop = launched(&text).await;
        assert_eq!(workshop.outcome(&newest).await, RenderOutcome::Unchanged, "{newest}");
        renewed(&mut workshop, URGENT).await;
        let desired = workshop.desired().unwrap();
        let plan: Plan = workshop.read(&keys::plan(&workshop.name, &desired.plan)).unwrap();
        assert!(plan.is_renewal() && !plan.waits_for_approval(workshop.now), "{}", plan.summary());
    }
}

/// What an upload says of how a rollout goes, and of certificates and snapshots, was in effect with its renewal, which waited for nobody: a pool's pods
/// were evicted by force, or the control plane was replaced every few days.
#[tokio::test]
async fn an_urgent_renewal_goes_as_the_approved_spec_says() {
    let text = with(&manual(), "strategy: rollout", "strategy: refresh");
    let rollout = |more: &str| with(&text, "  failureBudget: 2\n", &format!("  failureBudget: 2\n{more}"));
    for (what, changed) in [
        ("more failures", with(&text, "failureBudget: 2", "failureBudget: 50")),
        ("force", rollout("  drain: {forceAfterMinutes: 60}\n")),
        ("surge", with(&text, "surge: 1", "surge: 0")),
        ("a strategy", with(&text, "strategy: refresh", "strategy: rollout")),
        (
            "short certificates",
            with(
                &text,
                "\ncertificatesConfiguration:\n",
                "\ntlsCertDurationDays: 300\ncertificatesConfiguration:\n",
            ),
        ),
        ("another key", with(&text, "keyAlgorithm: ECDSA-P256", "keyAlgorithm: RSA-2048")),
        ("snapshots", with(&text, "\netcd:\n", "\netcd:\n  snapshots: {enabled: false}\n")),
        (
            "rotations",
            with(&text, "keyAlgorithm: ECDSA-P256", "keyAlgorithm: ECDSA-P256\n  caRotationDays: 3649"),
        ),
        (
            "long authorities",
            with(
                &text,
                "\ncertificatesConfiguration:\n",
                "\ntlsCADurationDays: 36500\ncertificatesConfiguration:\n",
            ),
        ),
    ] {
        let mut workshop = launched(&text).await;
        let good = workshop.desired().unwrap();
        let approved: Plan = workshop.read(&keys::plan(&workshop.name, &good.plan)).unwrap();
        assert_eq!(workshop.outcome(&changed).await, RenderOutcome::Unchanged, "{what}");
        let plan = renewed(&mut workshop, URGENT).await;
        assert!(plan.waits_for_approval(workshop.now), "{what}: {}", plan.summary());
        renews_what_runs_alone(&workshop, &good, what);
        let renewal: Plan =
            workshop.read(&keys::plan(&workshop.name, &workshop.desired().unwrap().plan)).unwrap();
        assert_eq!(renewal.policy, approved.policy, "{what}");
        assert!(renewal.renewal.replaced.is_empty(), "{what}: refreshed in place");
    }
}
