//! Refreshing and replacing nodes, with machines of a few lines.

use serde_json::json;

use super::*;
use slipway_core::cluster::Pace;

#[test]
fn the_reasons_of_five_hundred_resources_fit_into_an_event() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let look = to_observe(&Rollout::new("c"), Some(&wanted), Timestamp::UNIX_EPOCH);
    let observed = Fake::default().observe(&look, Some(&wanted));
    let begun = decide(&Rollout::new("c"), &observed, Timestamp::UNIX_EPOCH).next;
    let refused = refused(begun, "c-network", &"é".repeat(300_000));
    let decision = decide(&refused, &Observed::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(decision.report.message.chars().count(), 300_000);
    let mut said = decision.effects.iter().filter_map(|effect| match effect {
        Effect::Publish(event) => Some(event.to_wire()),
        Effect::CreateChangeSet(_)
        | Effect::ExecuteChangeSet { .. }
        | Effect::DeleteChangeSet { .. }
        | Effect::DeleteStack { .. }
        | Effect::PointAddons(_)
        | Effect::Send(_)
        | Effect::Cancel(_)
        | Effect::SetDesired { .. }
        | Effect::Terminate { .. }
        | Effect::ProlongTermination { .. }
        | Effect::CompleteTermination { .. }
        | Effect::ArmTick
        | Effect::DisarmTick => None,
    });
    let (detail_type, detail) = said.next().expect("the failure is published");
    assert_eq!(detail_type, "Rollout Failed");
    assert!(detail.len() < 32 * 1024, "{} bytes", detail.len());
}

/// A snapshot and answers from before a pause have their real age, even if a look follows soon after the resume.
#[test]
fn p4_nothing_that_was_seen_before_a_pause_counts_after_the_resume() {
    let failures = json!({"machine": "i-1", "byDocument": {"Slipway-Refresh": {"tries": 1}}});
    let step = |state: &str| {
        let sent = json!({
            "role": "etcd-1",
            "command": {"token": "c/etcd-0/4/x", "instance": "i-1", "verb": "etcdSnapshot"},
            "at": "2026-01-01T00:00:00Z",
        });
        let (task, work, state) = match state {
            "snapshot" => ("memberReplace", json!({}), json!({"snapshot": {"machine": "i-1", "sent": sent}})),
            "check" => ("memberReplace", json!({}), json!({"check": {"machine": "i-1", "round": [sent]}})),
            "moveLeader" => ("memberReplace", json!({}), json!({"act": {"moveLeader": sent}})),
            "refresh" => ("memberRefresh", json!({"credentials": "new"}), json!({"act": {"refresh": sent}})),
            _ => ("memberReplace", json!({}), json!({"verify": [sent]})),
        };
        let phase = json!({"open": {"state": state, "since": "2026-01-01T00:00:00Z"}});
        json!({
            "role": "etcd-0", "stack": "c-etcd", "group": "c-etcd-0", "rounds": 4,
            "task": {task: {"work": work, "tries": failures, "phase": phase}},
        })
    };
    let resumed: Timestamp = "2026-01-01T00:40:00Z".parse().unwrap();
    for (state, looks_anew) in
        [("snapshot", true), ("check", true), ("moveLeader", true), ("refresh", false), ("verify", false)]
    {
        let mut nodes: Nodes = serde_json::from_value(json!({"steps": [step(state)]})).unwrap();
        nodes.resumed(resumed);
        let step = &nodes.steps[0];
        let kept = serde_json::to_value(&step.task).unwrap();
        let kept = kept.as_object().unwrap().values().next().unwrap();
        assert_eq!((&kept["phase"]["open"]["since"], step.rounds), (&json!(resumed), 4));
        assert_eq!(kept["tries"], failures);
        assert_eq!(step.place() == Place::Look && step.commands().is_empty(), looks_anew, "{step:?}");
        assert!(step.commands().iter().all(|sent| sent.at == resumed), "{step:?}");
    }
}

/// A rollout whose stacks are done and whose controllers have their turn.
fn controllers() -> Rollout {
    let phase = json!({"open": {"state": {"look": {}}}});
    let step = json!({
        "role": "controller", "stack": "c-control-plane", "group": "c-control-plane",
        "task": {"controllers": {"work": "replace", "size": 2, "phase": phase}},
    });
    let active = json!({
        "plan": "p", "specVersion": "v1", "target": "t", "startedAt": Timestamp::UNIX_EPOCH, "changeSet": "slipway-1-p",
        "steps": [], "nodesByHand": 0, "stacksByHand": [], "nodes": {"steps": [step]},
    });
    let activity = Activity::RollingOut(serde_json::from_value(active).unwrap());
    Rollout { activity, generation: 1, ..Rollout::new("c") }
}

/// Two controllers of the first version of their group's template, and the version of the group in an answer.
fn answer(template: &str) -> Observed {
    let machine = json!({
        "zone": "eu-west-1a", "lifecycle": "inService", "healthy": true, "weight": 1, "template": {"id": "lt-1", "version": "1"},
    });
    let group = json!({
        "name": "c-control-plane", "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/", "desired": 2, "min": 2, "max": 3, "template": {"id": "lt-1", "version": template},
        "machines": {"i-1": machine, "i-2": machine}, "tags": {},
    });
    let groups = BTreeMap::from([("c-control-plane".to_owned(), serde_json::from_value(group).unwrap())]);
    Observed { groups, ..Observed::default() }
}

#[test]
fn an_answer_of_before_the_update_of_a_group_is_not_taken_for_the_end_of_its_roll() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    // Every machine seems to be as planned, because the answer is late.
    let late = decide(&controllers(), &answer("1"), at(0)).next;
    assert_eq!(late.active().unwrap().nodes.steps[0].place(), Place::Look);
    let known = decide(&late, &answer("2"), at(30)).next;
    assert_eq!(known.active().unwrap().nodes.steps[0].place(), Place::Check);
    // If it still seems so after a while, it is true.
    let mut state = late;
    for second in [60, 130] {
        state = decide(&state, &answer("1"), at(second)).next;
    }
    assert_eq!(state.active().unwrap().nodes.steps[0].place(), Place::Verify);
}

/// Pools are rolled in parallel: when one fails, another may have been about to get its surge. The surge is never launched, and a later
/// rollout removed as many machines if an autoscaler had made the pool larger.
#[test]
fn p6_what_another_pool_was_to_get_in_the_moment_in_which_a_rollout_fails_is_not_left_over() {
    let pool = |name: &str, state: serde_json::Value| {
        let phase = serde_json::json!({"open": {"state": state}});
        let pace = Pace { max_unavailable: CountOrPercent::Count(0), surge: CountOrPercent::Count(1) };
        serde_json::json!({
            "role": name, "stack": format!("c-{name}"), "group": format!("c-{name}"),
            "task": {"workers": {"size": 1, "most": 2, "pace": pace, "phase": phase}},
        })
    };
    let at = Timestamp::from_second(1_000).unwrap();
    let group = |name: &str, machine: &str| {
        let one = serde_json::json!({
            "zone": "a", "lifecycle": "inService", "healthy": true, "weight": 1, "template": {"id": "lt-1", "version": "1"},
        });
        let view = serde_json::json!({
            "name": name, "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/", "desired": 1, "min": 1, "max": 2, "template": {"id": "lt-1", "version": "2"}, "machines": {machine: one},
            "tags": {"slipway:cluster": "c"},
        });
        (name.to_owned(), Some(serde_json::from_value(view).unwrap()))
    };
    for (begun, ends, raised) in [
        (serde_json::json!({"roll": {"begun": {"i-a": "goes"}}}), "failed", 0),
        (serde_json::json!({"look": {}}), "running", 2),
    ] {
        let mut state = controllers();
        let active = state.active_mut().unwrap();
        active.nodes = serde_json::from_value(serde_json::json!({
            "steps": [pool("pool-a", begun), pool("pool-b", serde_json::json!({"look": {}}))],
            "controllers": "c-control-plane",
        }))
        .unwrap();
        let stays = serde_json::json!({
            "role": "pool-a", "group": "c-pool-a", "cause": {"rollout": "replaced"}, "state": {"uncordon": {}}, "since": at,
            "problem": "no controller could drain it",
        });
        if ends == "failed" {
            state.departures.insert("i-a".to_owned(), serde_json::from_value(stays).unwrap());
        }
        let groups =
            [group("c-pool-a", "i-a"), group("c-pool-b", "i-b"), group("c-control-plane", "i-c")].into();
        let decision = decide(&state, &Observed { groups, ..Observed::default() }, at);
        assert_eq!(decision.report.state.as_str(), ends, "{}", decision.report.message);
        let sizes = decision.effects.iter().filter(|effect| matches!(effect, Effect::SetDesired { .. }));
        assert_eq!(sizes.count(), raised);
        assert!(decision.next.left_over.is_empty(), "{:?}", decision.next.left_over);
        assert!(!decision.report.message.contains("machine more"), "{}", decision.report.message);
    }
}
