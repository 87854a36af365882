//! The effect of certificates that expire soon, or have expired, on an open rollout.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use slipway_core::node::Verb;

const LEAD_S: i64 = 48 * 3_600;

fn ends() -> Timestamp {
    "2027-11-20T12:00:00Z".parse().unwrap()
}

fn hours_before(hours: i64) -> Timestamp {
    ends() - SignedDuration::from_hours(hours)
}

/// The step of a role in that state, with that work.
fn step(role: &str, place: &str, work: &str) -> Value {
    let state =
        if place == "look" { json!({"look": {}}) } else { json!({place: {"machine": "i-1", "round": []}}) };
    let phase = json!({"open": {"state": state, "since": hours_before(100)}});
    let refresh = json!({"refresh": {"credentials": "new"}});
    let work = if work == "refresh" { refresh } else { json!(work) };
    let task = match role.split('-').next() {
        Some("etcd") => json!({"memberReplace": {"work": {}, "phase": phase}}),
        Some("controller") => json!({"controllers": {"work": work, "size": 2, "phase": phase}}),
        _ => {
            let pace = serde_json::to_value(slipway_core::cluster::Pace::default()).unwrap();
            let phase = json!({"open": {"state": {"look": {}}}});
            json!({"workers": {"size": 2, "most": 2, "pace": pace, "phase": phase}})
        }
    };
    json!({"role": role, "stack": "c-control-plane", "group": "c-control-plane", "task": task})
}

/// A rollout of these steps; the certificates of the roles in `expires` expire at that time. Its window opens on Sundays, and no moment of
/// these tests is a Sunday.
fn active(steps: Value, expires: &[&str]) -> Active {
    let ends: BTreeMap<&str, Timestamp> = expires.iter().map(|role| (*role, ends())).collect();
    serde_json::from_value(json!({
        "plan": "p", "specVersion": "v1", "target": "t", "startedAt": hours_before(200), "changeSet": "slipway-1-p",
        "steps": [], "nodesByHand": 0, "stacksByHand": [],
        "nodes": {
            "steps": steps,
            "windows": [{"days": ["mon"], "start_minute": 150, "length_min": 60}],
            "deadline": {"ends": ends, "leadS": LEAD_S},
        },
    }))
    .unwrap()
}

/// Two controllers are in service, both old.
fn observed() -> Observed {
    let machine = json!({
        "zone": "eu-west-1a", "lifecycle": "inService", "healthy": true, "weight": 1, "template": {"id": "lt-1", "version": "1"},
    });
    let group = json!({
        "name": "c-control-plane", "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/", "desired": 2, "min": 2, "max": 3, "template": {"id": "lt-1", "version": "2"},
        "machines": {"i-1": machine, "i-2": machine}, "tags": {},
    });
    Observed {
        groups: BTreeMap::from([("c-control-plane".to_owned(), serde_json::from_value(group).unwrap())]),
        ..Observed::default()
    }
}

/// The commands by machine, and the waiting reason.
fn asks(active: &mut Active, observed: &Observed, now: Timestamp) -> (Vec<(String, Verb)>, String) {
    let state = Rollout { activity: Activity::RollingOut(Box::new(active.clone())), ..Rollout::new("c") };
    let decision = decide(&state, observed, now);
    *active = decision.next.active().cloned().expect("it is open");
    let sent = decision.effects.into_iter().filter_map(|effect| {
        let Effect::Send(command) = effect else { return None };
        Some((command.instance, command.verb))
    });
    (sent.collect(), decision.report.nodes.into_values().collect())
}

/// P7: it began long before, and nothing was urgent then.
#[test]
fn p7_an_open_rollout_that_waits_for_a_window_goes_on_without_when_the_end_comes_near() {
    let mut active = active(json!([step("controller", "look", "refresh")]), &["controller"]);
    let (sent, waits) = asks(&mut active, &observed(), hours_before(49));
    assert_eq!(sent, []);
    assert!(
        waits.starts_with("waits for the next maintenance window, or until 2027-11-18T12:00:00Z"),
        "{waits}"
    );
    assert!(active.nodes.overridden.is_empty());
    let (sent, _) = asks(&mut active, &observed(), hours_before(48));
    assert_eq!(
        sent,
        [("i-2".to_owned(), Verb::Status)],
        "the other one is asked about its health, as always"
    );
    let overridden = active.nodes.overridden;
    assert_eq!(overridden, BTreeMap::from([(crate::nodes::Held::Window, ends())]));
}

/// P4, P5: certificates that expire soon have not expired, so the others have to be healthy. Only expired certificates are a reason for ill
/// health.
#[test]
fn p5_only_what_has_really_expired_waits_for_nobody() {
    for (hours, asks_nobody) in [(48, false), (1, false), (0, true), (-24, true)] {
        let mut active = active(json!([step("controller", "check", "refresh")]), &["controller"]);
        let (sent, _) = asks(&mut active, &observed(), hours_before(hours));
        let refresh = Verb::Refresh { credentials: "new".to_owned(), restart: true };
        let wanted = if asks_nobody { ("i-1", refresh) } else { ("i-2", Verb::Status) };
        assert_eq!(sent, [(wanted.0.to_owned(), wanted.1)], "{hours} hours before");
        // A successor cannot come while no machine answers: a replacement waits for the others nevertheless.
        let mut active = self::active(json!([step("controller", "check", "replace")]), &["controller"]);
        let (sent, _) = asks(&mut active, &observed(), hours_before(hours));
        assert_eq!(sent, [("i-2".to_owned(), Verb::Status)], "{hours} hours before");
    }
}

/// etcd has its turn before the controllers, so they wait for what etcd waits for. Pools come after them, and wait.
#[test]
fn p7_the_steps_before_and_those_after_are_as_urgent_as_they_have_to_be() {
    let steps = json!([
        step("etcd-0", "look", "replace"),
        step("controller", "look", "refresh"),
        step("pool-a", "look", "replace")
    ]);
    let mut active = active(steps, &["controller"]);
    let (due, over) = (hours_before(1), hours_before(-1));
    let urgency = |active: &Active, role: &str, now| active.nodes.urgency_of(&role.parse().unwrap(), now);
    for role in ["etcd-0", "controller"] {
        assert!(
            urgency(&active, role, due).overrides() && !urgency(&active, role, due).has_expired(),
            "{role}"
        );
        assert!(!urgency(&active, role, hours_before(49)).overrides(), "{role}");
    }
    assert!(!urgency(&active, "pool-a", over).overrides());
    // Expired certificates of a controller do not excuse an unhealthy member of etcd.
    assert!(urgency(&active, "etcd-0", over).overrides() && !urgency(&active, "etcd-0", over).has_expired());
    assert!(urgency(&active, "controller", over).has_expired());
    // A role with its new credentials is not urgent any more.
    let Task::Controllers(task) = &mut active.nodes.steps[1].task else { panic!("{active:?}") };
    task.phase = Phase::Done { skipped: false };
    for role in ["etcd-0", "controller", "pool-a"] {
        assert!(!urgency(&active, role, over).overrides(), "{role}");
    }
}

/// P10: a pause is a person's order. Its effect on a renewal that cannot wait is published once, and is in every report.
#[test]
fn p7_p10_a_pause_holds_a_renewal_and_says_what_it_costs() {
    let mut state = Rollout::new("c");
    state.put_active(active(json!([step("controller", "look", "refresh")]), &["controller"]));
    state.switch = Some(Switch { paused: true, at: hours_before(60) });
    let waits = |decision: &Decision| {
        let said = |effect: &&Effect| matches!(effect, Effect::Publish(Event::RolloutWaiting(_)));
        assert!(
            !decision.effects.iter().any(|effect| matches!(effect, Effect::Send(_))),
            "{:?}",
            decision.effects
        );
        decision.effects.iter().filter(said).count()
    };
    let early = decide(&state, &observed(), hours_before(49));
    assert_eq!((early.report.state.as_str(), waits(&early)), ("paused", 0));
    let late = decide(&early.next, &observed(), hours_before(48));
    assert_eq!(waits(&late), 1);
    let words = "certificates in use expire at 2027-11-20T12:00:00Z, and nothing renews them before `slipway resume --cluster c`";
    assert!(late.report.message.contains(words), "{}", late.report.message);
    let again = decide(&late.next, &observed(), hours_before(47));
    assert_eq!((waits(&again), again.report.message), (0, late.report.message));
}

/// The wait of one does not affect the other: pools come after etcd and the controllers.
#[test]
fn p7_a_pool_waits_for_its_window_whenever_a_controllers_certificates_end_and_the_other_way_round() {
    let steps = json!([
        step("etcd-0", "look", "replace"),
        step("controller", "look", "refresh"),
        step("pool-a", "look", "replace")
    ]);
    let from = ends() - SignedDuration::from_secs(LEAD_S);
    for (expires, urgent) in [("controller", [true, true, false]), ("pool-a", [false, false, true])] {
        let active = active(steps.clone(), &[expires]);
        let of =
            ["etcd-0", "controller", "pool-a"].map(|role| active.nodes.urgent_from(&role.parse().unwrap()));
        assert_eq!(of, urgent.map(|urgent| urgent.then_some(from)), "{expires}");
    }
}

/// Pods may hold the drain of a worker for a day, and that of one which Auto Scaling terminates for as long as its hook waits.
#[test]
fn p7_an_urgent_renewal_waits_for_no_drain_of_a_worker_and_for_one_that_is_being_terminated() {
    let pool = |begun: Value| {
        let pace = slipway_core::cluster::Pace::default();
        let phase = json!({"open": {"state": {"roll": {"begun": begun}}}});
        let task = json!({"workers": {"size": 2, "most": 2, "pace": pace, "phase": phase}});
        json!([{"role": "pool-a", "stack": "c-pool-a", "group": "c-pool-a", "task": task}])
    };
    let drains = json!({"drain": {"drain": {}}});
    let leaves = json!({"leave": {"requestedAt": ends()}});
    let held = json!({"leave": {"requestedAt": ends(), "last": {"drain": {"held": {"pods": []}}}}});
    let renewal = |hours: i64| {
        let mut wanted = wanted(&rendering(2), &Baseline::default(), Approval::Auto);
        wanted.plan.renewal.deadline =
            slipway_core::deadline::Deadline { ends: [(Role::Controller, ends())].into(), lead_s: LEAD_S };
        (Observed { desired: Some(wanted), ..observed() }, hours_before(hours))
    };
    for (begun, state, hours, held) in [
        (json!({"i-1": "goes"}), &drains, 47, false),
        (json!({"i-1": "goes"}), &drains, 49, true),
        (json!({"i-1": "goes"}), &leaves, 47, true),
        // A person uncordoned it after its drain, and pods came that hold its hook.
        (json!({"i-1": "goes"}), &held, 47, false),
        (json!({"i-1": "goes"}), &held, 49, true),
        (json!({"i-1": "goes", "i-2": "goes"}), &drains, 47, true),
        // Only the surge is waited for.
        (json!({}), &drains, 47, false),
    ] {
        let one = json!({
            "role": "pool-a", "group": "c-pool-a", "cause": {"rollout": "replaced"}, "since": hours_before(100), "state": state,
        });
        let departures = BTreeMap::from([("i-1".to_owned(), serde_json::from_value(one).unwrap())]);
        let state = Rollout { departures, ..Rollout::new("c") };
        let (observed, now) = renewal(hours);
        let active = active(pool(begun.clone()), &[]);
        assert_eq!(crate::due::holds_up(&state, &active, &observed, now), held, "{begun} {hours}");
    }
}
