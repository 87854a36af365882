//! Orders during a roll, and actions of Auto Scaling.

use super::*;

/// Whether a line of the log stops, drains or creates something, or makes a machine install something.
fn disrupts(line: &str) -> bool {
    ["goes", "drains", "wants", "takes new", "leads no more", "snapshot"]
        .iter()
        .any(|what| line.contains(what))
}

#[test]
fn p10_after_a_pause_at_any_minute_nothing_begins_and_a_resume_goes_on_to_the_end() {
    for at in 0..40 {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|_| true, &auto());
        (0..at).for_each(|_| yard.wake(None));
        yard.wake(Some(Order::Pause));
        let before = yard.log.len();
        (0..25).for_each(|_| yard.wake(None));
        // A machine that was drained during the pause is only released from its hook.
        let after: Vec<&String> = yard.log[before..].iter().filter(|line| disrupts(line)).collect();
        assert!(after.is_empty(), "paused at {at}: {after:?}");
        yard.wake(Some(Order::Resume));
        assert_eq!(yard.run(), "succeeded", "paused at {at}: {}", yard.report.message);
        let replaced = yard.groups.values().flat_map(|group| group.machines.values()).all(|one| one.current);
        assert!(replaced, "paused at {at}");
    }
}

#[test]
fn p10_after_an_abort_at_any_minute_nothing_begins_and_all_take_pods_again() {
    // Also if it comes while effects are performed that are not recorded yet.
    for (at, performed) in (1..45).flat_map(|at| [(at, false), (at, true)]) {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|_| true, &auto());
        yard.stuck.extend(["controller.1".to_owned(), "pool-a.1".to_owned()]);
        (0..at).for_each(|_| yard.wake(None));
        let (abort, mut drains, told) = (Order::Abort { plan: None }, 0, yard.log.len());
        if performed {
            let decision = yard.decides(None);
            yard.hanging.extend(yard.groups["c-control-plane"].machines.keys().cloned());
            let drain =
                |effect: &&Effect| matches!(effect, Effect::Send(Command { verb: Verb::Drain { .. }, .. }));
            drains = decision.effects.iter().filter(drain).count();
            yard.performs(decision.effects);
            yard.hanging.clear();
            let given = Given { order: abort, at: Timestamp::from_second(yard.now).unwrap() };
            yard.state = after_order(&decision.next, &given, Some(&yard.wanted.desired), given.at);
            yard.state.outbox.retain(|pending| !pending.effect.starts_work());
        } else {
            yard.wake(Some(abort));
        }
        let before = yard.log.len();
        (0..25).for_each(|_| yard.wake(None));
        let after: Vec<&String> = yard.log[before..].iter().filter(|line| disrupts(line)).collect();
        assert!(after.is_empty(), "aborted at {at}: {after:?}");
        let taken_back = yard.log[told..].iter().filter(|line| line.contains("Drain is taken back")).count();
        assert!(!performed || taken_back >= drains, "at {at}: {drains} {:?}", &yard.log[told..]);
        assert_eq!(yard.report.state.as_str(), "aborted", "at {at}: {}", yard.report.message);
        assert!(yard.state.departures.is_empty() && !yard.state.is_open(), "at {at}");
        for (line, node) in yard.log.iter().filter_map(|line| Some((line, line.split_once(" drains ")?.1))) {
            let gone = yard.log.iter().any(|other| other.starts_with(&format!("{node} goes")));
            let back = yard.log.contains(&format!("{node} takes pods again"));
            assert!(gone || back, "at {at}: {line}");
        }
    }
}

#[test]
fn p10_a_machine_that_a_person_says_to_leave_is_left_and_the_others_are_replaced() {
    for left in ["etcd-1.0", "pool-a.1"] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|role| !is_controller(role), &auto());
        yard.wake(None);
        yard.wake(Some(Order::Skip { instance: left.to_owned() }));
        assert_eq!(yard.run(), "succeeded", "{left}: {}", yard.report.message);
        let old: Vec<String> = yard
            .groups
            .values()
            .flat_map(|group| &group.machines)
            .filter(|(_, one)| !one.current)
            .map(|(id, _)| id.clone())
            .collect();
        assert_eq!(old, [left]);
        assert!(yard.report.message.contains("left as they are, as told"), "{}", yard.report.message);
    }
}

/// Whether `line` shows a change of the machine `id`; uncordoning it is part of skipping it.
fn touches(line: &str, id: &str) -> bool {
    line.starts_with(&format!("{id} goes"))
        || line.starts_with(&format!("{id} takes new"))
        || line.ends_with(&format!(" drains {id}"))
}

#[test]
fn p10_a_machine_is_left_whenever_a_person_says_so_before_it_is_told_to_go() {
    // Also if the order comes after the decision was stored and before anything was done, because the function died.
    for (change, left) in [
        (Change::Machines, "etcd-1.0"),
        (Change::Machines, "controller.1"),
        (Change::Machines, "pool-a.1"),
        (Change::Credentials, "etcd-1.0"),
        (Change::Credentials, "controller.1"),
        (Change::Credentials, "pool-a.1"),
    ] {
        for (moment, dies) in (1..90).flat_map(|moment| [(moment, false), (moment, true)]) {
            let mut yard = Yard::new(&SMALL, change, &|_| true, &auto());
            (0..moment).for_each(|_| yard.wake(None));
            // A machine that is being drained may still be skipped.
            let gone = |line: &String| touches(line, left) && !line.contains(" drains ");
            if yard.state.active().is_none() || yard.log.iter().any(gone) {
                break;
            }
            let skip = Order::Skip { instance: left.to_owned() };
            if dies {
                let decision = yard.decides(None);
                let now = Timestamp::from_second(yard.now).unwrap();
                let given = Given { order: skip, at: now };
                let state = after_order(&decision.next, &given, Some(&yard.wanted.desired), now);
                let before = yard.log.len();
                yard.performs(state.outbox.iter().map(|pending| pending.effect.clone()).collect());
                let done: Vec<&String> =
                    yard.log[before..].iter().filter(|line| touches(line, left)).collect();
                assert!(done.is_empty(), "{left} at {moment}: {done:?}");
                yard.state = Rollout { outbox: Vec::new(), ..state };
            } else {
                yard.wake(Some(skip));
            }
            let before = yard.log.len();
            assert_eq!(yard.run(), "succeeded", "{left} at {moment}: {}", yard.report.message);
            let after: Vec<&String> = yard.log[before..].iter().filter(|line| touches(line, left)).collect();
            assert!(after.is_empty(), "{left} at {moment}, {dies}: {:#?}", yard.log);
        }
    }
}

#[test]
fn p10_a_rollout_that_makes_way_for_a_newer_spec_begins_nothing_in_the_same_moment() {
    let mut made_way = 0;
    for change in [Change::Machines, Change::Credentials] {
        for moment in 0..60 {
            let mut yard = Yard::new(&SMALL, change, &|_| true, &auto());
            (0..moment).for_each(|_| yard.wake(None));
            if yard.state.active().is_none() && moment > 0 {
                break;
            }
            yard.wanted.plan.id = "newer".to_owned();
            yard.wanted.plan.to = "newer".to_owned();
            yard.wanted.desired.plan = "newer".to_owned();
            yard.wanted.desired.target = "newer".to_owned();
            let decision = yard.decides(None);
            if decision.report.state.as_str() == "superseded" {
                made_way += 1;
                let begins: Vec<&Effect> =
                    decision.effects.iter().filter(|effect| effect.starts_work()).collect();
                assert!(begins.is_empty(), "{moment}: {begins:?}");
            }
        }
    }
    assert!(made_way > 5, "{made_way}");
}
