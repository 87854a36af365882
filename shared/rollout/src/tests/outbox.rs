//! What of the outbox changes what runs, and what of it begins something: the one is dropped once it is too old, the other is taken back
//! when a person says to stop.

use slipway_core::event::RolloutReport;
use slipway_core::node::{Command, Verb};
use slipway_core::release::AddonsPointer;

use super::*;

fn asks(verb: Verb) -> Effect {
    Effect::Send(Command { token: "c/x/1/0".to_owned(), instance: "i-1".to_owned(), verb })
}

/// Each verb that machines are asked, whether it changes what runs, and whether it begins something.
fn verbs() -> Vec<(Verb, bool, bool)> {
    let node = || "i-2".to_owned();
    vec![
        (Verb::Status, false, false),
        (Verb::EtcdHealth, false, false),
        // It disrupts nothing, and is a beginning all the same.
        (Verb::EtcdSnapshot, false, true),
        // What was cordoned takes pods again also after a person said to stop.
        (Verb::Uncordon { node: node() }, false, false),
        (Verb::Refresh { credentials: "new".to_owned(), restart: false }, true, true),
        (Verb::Refresh { credentials: "new".to_owned(), restart: true }, true, true),
        (Verb::EtcdMoveLeader, true, true),
        (Verb::EtcdRemove { member: "etcd-4".to_owned() }, true, true),
        (Verb::EtcdRetire, true, true),
        (Verb::Drain { node: node(), for_s: 600, force_after_s: None }, true, true),
    ]
}

/// The same of all other effects.
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
        // It was drained, and goes either way.
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
        assert_eq!((effect.is_disruptive(), effect.begins()), (disrupts, begins), "{effect:?}");
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
            let next = heard(&state, &given, Some(&wanted.desired), now);
            let stays = next.outbox.contains(&pending);
            assert_eq!(stays, !(stops && begins), "{order:?}: {:?}", pending.effect);
        }
    }
}
