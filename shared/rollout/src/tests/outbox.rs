//! Which effects of the outbox change what runs, and which begin something: the former are dropped when they are too old, the latter are
//! withdrawn after an order to stop.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use slipway_core::event::RolloutReport;
use slipway_core::node::{Command, RestoreOrder, RestoreStage, Verb};
use slipway_core::release::AddonsPointer;

use super::*;
use crate::departures::Departure;
use crate::outbox::{Effects, LEASE};

fn asks(verb: Verb) -> Effect {
    Effect::Send(Command { token: "c/x/1/0".to_owned(), instance: "i-1".to_owned(), verb })
}

/// Each verb, whether it changes what runs, and whether it begins something.
fn verbs() -> Vec<(Verb, bool, bool)> {
    let node = || "i-2".to_owned();
    vec![
        (Verb::Status, false, false),
        (Verb::Logs { unit: None, lines: 9 }, false, false),
        (Verb::Serves { without: BTreeSet::new() }, false, false),
        (Verb::EtcdHealth, false, false),
        // It disrupts nothing, but counts as a beginning.
        (Verb::EtcdSnapshot, false, true),
        // Cordoned nodes are uncordoned also after an order to stop.
        (Verb::Uncordon { node: node() }, false, false),
        (Verb::Refresh { credentials: "new".to_owned(), restart: false }, true, true),
        (Verb::Refresh { credentials: "new".to_owned(), restart: true }, true, true),
        (Verb::EtcdMoveLeader, true, true),
        (Verb::EtcdRemove { member: "etcd-4".to_owned() }, true, true),
        (Verb::EtcdRetire, true, true),
        // Only people send them.
        (Verb::EtcdDefragment, true, true),
        (
            Verb::EtcdRestore(Box::new(RestoreOrder {
                snapshot: "20261121T204500Z".to_owned(),
                token: "t".to_owned(),
                members: BTreeMap::new(),
                bump: 1_000_000_000,
                sha256: None,
                stage: RestoreStage::Whole,
            })),
            true,
            true,
        ),
        (Verb::Drain { node: node(), for_s: 600, force_after_s: None }, true, true),
    ]
}

/// The same for all other effects.
fn others() -> Vec<(Effect, bool, bool)> {
    let (stack, name, token) = ("c-pool-a".to_owned(), "n".to_owned(), "t".to_owned());
    let (group, instance) = (stack.clone(), "i-1".to_owned());
    let pointer = serde_json::json!({"format": 1, "generation": 1, "release": "r", "digest": "d"});
    let pointer: AddonsPointer = serde_json::from_value(pointer).unwrap();
    let request = ChangeSetRequest {
        stack: stack.clone(),
        name: name.clone(),
        create: false,
        template_key: "k".to_owned(),
        tags: BTreeMap::new(),
    };
    let drain = Command {
        token: "c/x/1/0".to_owned(),
        instance: instance.clone(),
        verb: Verb::Drain { node: "i-2".to_owned(), for_s: 600, force_after_s: None },
    };
    let says = RolloutReport::new("c", "p", "it goes on".to_owned());
    vec![
        (Effect::CreateChangeSet(request), false, true),
        (
            Effect::ExecuteChangeSet { stack: stack.clone(), name: name.clone(), token: token.clone() },
            true,
            true,
        ),
        (Effect::DeleteChangeSet { stack: stack.clone(), name }, false, false),
        (Effect::DeleteStack { stack, id: "arn".to_owned(), stands: true, token }, true, true),
        (Effect::PointAddons(pointer), false, false),
        (Effect::Cancel(drain), false, false),
        (Effect::SetDesired { group: group.clone(), desired: 3 }, true, true),
        (
            Effect::Terminate { group: group.clone(), instance: instance.clone(), then_desired: None },
            true,
            true,
        ),
        (Effect::ProlongTermination { group: group.clone(), instance: instance.clone() }, false, false),
        // The machine was drained, and is terminated in any case.
        (Effect::CompleteTermination { group, instance }, true, false),
        (Effect::ArmTick, false, false),
        (Effect::DisarmTick, false, false),
        (Effect::Publish(Event::RolloutStep(says)), false, false),
    ]
}

fn each() -> Vec<(Effect, bool, bool)> {
    let verbs = verbs().into_iter().map(|(verb, disrupts, begins)| (asks(verb), disrupts, begins));
    verbs.chain(others()).collect()
}

#[test]
fn p10_p12_of_each_effect_it_is_known_whether_it_changes_what_runs_and_whether_it_begins_something() {
    for (effect, disrupts, begins) in each() {
        assert_eq!((effect.is_disruptive(), effect.starts_work()), (disrupts, begins), "{effect:?}");
    }
}

#[test]
fn p10_p12_whatever_begins_something_is_taken_back_when_a_person_says_to_stop_and_all_else_stays() {
    let now = Timestamp::from_second(1_000).unwrap();
    let wanted = wanted(&rendering(1), &Baseline::default(), Approval::Auto);
    let observed = Observed { desired: Some(wanted.clone()), ..Observed::default() };
    let begun = Rollout { outbox: Vec::new(), ..decide(&Rollout::new("c"), &observed, now).next };
    assert!(begun.active().is_some());
    for (order, stops) in [
        (Order::Pause, true),
        (Order::Abort { plan: None }, true),
        (Order::Resume, false),
        (Order::Skip { instance: "i-7".to_owned() }, false),
    ] {
        for (effect, _, begins) in each() {
            let evidence = Some(Evidence::new(Seen::World, now));
            let pending = Pending { id: 100_000, effect, decided_at: now, evidence };
            let state = Rollout { outbox: vec![pending.clone()], ..begun.clone() };
            let given = Given { order: order.clone(), at: now };
            let next = after_order(&state, &given, Some(&wanted.desired), now);
            let stays = next.outbox.contains(&pending);
            assert_eq!(stays, !(stops && begins), "{order:?}: {:?}", pending.effect);
        }
    }
}

/// Whether it only reports or cleans up.
fn only_reports(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::DeleteChangeSet { .. }
            | Effect::Cancel(_)
            | Effect::ArmTick
            | Effect::DisarmTick
            | Effect::Publish(_)
    )
}

#[test]
fn p12_each_effect_has_a_number_of_its_own_and_what_it_was_decided_on_unless_it_is_never_too_late() {
    let now = Timestamp::from_second(1_000).unwrap();
    let mut effects = Effects::new(now);
    effects.extend(each().into_iter().map(|(effect, ..)| effect));
    let mut state = Rollout { effects_decided: 7, ..Rollout::new("c") };
    state.enqueue(effects);
    assert_eq!(state.effects_decided, 7 + each().len() as u64);
    for (id, (pending, (effect, ..))) in (8..).zip(state.outbox.iter().zip(each())) {
        assert_eq!((pending.id, pending.decided_at), (id, now));
        assert_eq!(pending.blocks_decision(), !only_reports(&effect), "{effect:?}");
        let lasts = only_reports(&effect) || matches!(effect, Effect::PointAddons(_));
        assert_eq!(pending.evidence, (!lasts).then(|| Evidence::new(Seen::World, now)), "{effect:?}");
        match (&pending.effect, &effect) {
            (Effect::Publish(event), _) => {
                assert!(event.to_wire().1.contains(&format!(r#""id":"c/{id}""#)), "{event:?}");
            }
            // Also of a change set that is made anew under the same name: CloudFormation refuses a token that it knows.
            (
                Effect::ExecuteChangeSet { token, .. } | Effect::DeleteStack { token, .. },
                Effect::ExecuteChangeSet { token: of, .. } | Effect::DeleteStack { token: of, .. },
            ) => assert_eq!(*token, format!("{of}-{id}")),
            (pending, effect) => assert_eq!(pending, effect),
        }
    }
}

#[test]
fn p10_a_rollout_that_ends_gives_back_what_it_would_have_begun_and_nothing_of_what_goes_on_without_it() {
    let terminates = |instance: &str| {
        let (group, instance) = ("c-pool-a".to_owned(), instance.to_owned());
        Effect::Terminate { group, instance, then_desired: None }
    };
    let raises = Effect::SetDesired { group: "c-pool-a".to_owned(), desired: 3 };
    let command = |token: &str| json!({"token": token, "instance": "i-cp", "verb": "status"});
    let sends = |token: &str| Effect::Send(serde_json::from_value(command(token)).unwrap());
    // A machine that the rollout drains, and one that Auto Scaling terminates.
    let departs = |token: &str, cause: Value| {
        let sent = json!({"role": "controller", "command": command(token), "at": Timestamp::UNIX_EPOCH});
        let departure = json!({
            "role": "pool-a", "group": "c-pool-a", "cause": cause, "since": Timestamp::UNIX_EPOCH,
            "state": {"drain": {"drain": {"sent": sent}}},
        });
        (token.to_owned(), serde_json::from_value(departure).unwrap())
    };
    let departures: BTreeMap<String, Departure> = BTreeMap::from([
        departs("ours", json!({"rollout": "replaced"})),
        departs("theirs", json!("autoScaling")),
    ]);
    let mut effects = Effects::new(Timestamp::UNIX_EPOCH);
    effects.extend([terminates("i-1"), sends("ours"), sends("theirs")]);
    effects.of_the_rollout();
    effects.extend([terminates("i-2"), Effect::DisarmTick, raises.clone()]);
    assert_eq!(
        effects.begin_nothing(|token| departures.values().any(|one| one.drains_by(token))),
        [sends("ours"), terminates("i-2"), raises]
    );
    let mut state = Rollout::new("c");
    state.enqueue(effects);
    let rest: Vec<&Effect> = state.outbox.iter().map(|pending| &pending.effect).collect();
    assert_eq!(rest, [&terminates("i-1"), &sends("theirs"), &Effect::DisarmTick]);
}

#[test]
fn p8_what_another_invocation_stored_is_left_to_it_for_as_long_as_it_may_live() {
    let template = include_str!("../../../../infra/template.yaml");
    let (_, function) = template.split_once("Binary: slipway-rollout }").unwrap();
    let timeout = function.lines().find_map(|line| line.trim().strip_prefix("Timeout: ")).unwrap();
    let most: i64 = timeout.parse().unwrap();
    // Another invocation's clock may be behind.
    assert_eq!(LEASE.as_secs(), most + CLOCKS_APART.as_secs());
    let most = LEASE.as_secs();
    let at = |second| Timestamp::from_second(second).unwrap();
    let pending = |second| {
        let effect = Effect::ArmTick;
        Pending { id: 1, effect, decided_at: at(second), evidence: None }
    };
    for (decided, now, is_leased) in [
        (&[][..], 0, false),
        (&[0], 0, true),
        (&[0], most - 1, true),
        (&[0], most, false),
        (&[0], most + 1, false),
        // The newest of them counts.
        (&[0, 10], most + 9, true),
        (&[10, 0], most + 9, true),
        (&[0, 10], most + 10, false),
    ] {
        let outbox = decided.iter().copied().map(pending).collect();
        let state = Rollout { outbox, ..Rollout::new("c") };
        assert_eq!(state.is_leased(at(now)), is_leased, "{decided:?} at {now}");
    }
}

/// A person skips a machine of which the termination was requested before: nothing would undo that, and its pods would get no new place if it
/// counted as one that stays.
#[test]
fn p10_a_machine_that_was_told_to_go_is_not_taken_back_by_an_order_to_skip_it_and_one_that_was_not_is() {
    let now = Timestamp::from_second(1_000).unwrap();
    let leaves = json!({
        "role": "pool-a", "group": "c-pool-a", "cause": {"rollout": "replaced"}, "since": now, "state": {"leave": {"requestedAt": now}},
    });
    let leaves: Departure = serde_json::from_value(leaves).unwrap();
    let (group, instance) = ("c-pool-a".to_owned(), "i-1".to_owned());
    let effect = Effect::Terminate { group, instance: instance.clone(), then_desired: None };
    let evidence = Some(Evidence::new(Seen::World, now));
    let pending = Pending { id: 1, effect, decided_at: now, evidence };
    for (outbox, stays) in [(vec![pending], true), (Vec::new(), false)] {
        let departures = BTreeMap::from([(instance.clone(), leaves.clone())]);
        let state = Rollout { departures, outbox, ..super::decisions::rolling(&[], &[]) };
        let skip = Given { order: Order::Skip { instance: instance.clone() }, at: now };
        let next = after_order(&state, &skip, None, now);
        assert_eq!(next.departures["i-1"] != leaves, stays);
    }
}

/// Auto Scaling terminates it, whatever a person says: its drain is not cancelled, and nobody uncordons it in between.
#[test]
fn p6_the_drain_of_a_machine_that_auto_scaling_terminates_goes_on_after_an_order_to_skip_it() {
    let now = Timestamp::from_second(1_000).unwrap();
    let verb = Verb::Drain { node: "i-1".to_owned(), for_s: 600, force_after_s: None };
    let command = Command { token: "c/x/1/0".to_owned(), instance: "i-cp".to_owned(), verb };
    let drains = json!({
        "role": "pool-a", "group": "c-pool-a", "cause": "autoScaling", "since": now,
        "state": {"drain": {"drain": {"sent": {"role": "controller", "command": command, "at": now}}}},
    });
    let departures = BTreeMap::from([("i-1".to_owned(), serde_json::from_value(drains).unwrap())]);
    let evidence = Some(Evidence::new(Seen::World, now));
    let pending = Pending { id: 1, effect: Effect::Send(command), decided_at: now, evidence };
    let state = Rollout { departures, outbox: vec![pending], ..super::decisions::rolling(&[], &[]) };
    let skip = Given { order: Order::Skip { instance: "i-1".to_owned() }, at: now };
    let next = after_order(&state, &skip, None, now);
    assert_eq!((next.departures, next.outbox), (state.departures, state.outbox));
}

/// Nobody would send its command any more, and its answer would be waited for until the pool fails.
#[test]
fn p10_the_answer_of_a_machine_that_a_person_skips_before_it_is_told_is_not_waited_for() {
    let now = Timestamp::from_second(1_000).unwrap();
    let verb = || Verb::Refresh { credentials: "new".to_owned(), restart: true };
    let command =
        |number: u32| Command { token: number.to_string(), instance: format!("i-{number}"), verb: verb() };
    let sent = |number: u32| json!({"role": "pool-a", "command": command(number), "at": now});
    let refresh = json!({"credentials": "new", "pace": slipway_core::cluster::Pace::default(), "phase": {
        "open": {"state": {"refresh": [sent(1), sent(2)]}},
    }});
    let node = super::decisions::node("pool-a", json!({"poolRefresh": refresh}));
    let evidence = Some(Evidence::new(Seen::World, now));
    let pending = Pending { id: 1, effect: Effect::Send(command(1)), decided_at: now, evidence };
    let state = Rollout { outbox: vec![pending], ..super::decisions::rolling(&[], &[node]) };
    let skip = Given { order: Order::Skip { instance: "i-1".to_owned() }, at: now };
    let next = after_order(&state, &skip, None, now);
    let waits_for = next.active().unwrap().nodes.steps[0].commands();
    let waits_for: Vec<_> = waits_for.iter().map(|one| one.command.token.as_str()).collect();
    assert_eq!(waits_for, ["2"]);
    assert_eq!(next.outbox.iter().filter(|one| matches!(one.effect, Effect::Send(_))).count(), 0);
}
