//! Pools whose desired capacity changes for a while: what happens if Auto Scaling launches no machine, and if a call comes too late.

use super::*;

/// No worker may be missing, and the surge is `more`.
fn surging(more: u32) -> RolloutPolicy {
    let (surge, max_unavailable) = (CountOrPercent::Count(more), CountOrPercent::Count(0));
    RolloutPolicy { surge, max_unavailable, ..auto() }
}

impl Yard {
    /// A newer spec is uploaded.
    fn newer_spec_is_uploaded(&mut self) {
        self.wanted.plan.id = "newer".to_owned();
        self.wanted.plan.to = "newer".to_owned();
        self.wanted.desired.plan = "newer".to_owned();
        self.wanted.desired.target = "newer".to_owned();
    }
}

/// The group wants 4, and shows 3 in service and none that boots: that was neither a shortage nor a state that could continue.
#[test]
fn p6_a_pool_whose_machines_never_come_first_fails_as_any_that_is_short_and_nobody_is_drained() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging(1));
    yard.launches = false;
    (0..30).for_each(|_| yard.wake(None));
    let waits = "waits for 1 additional machine: no machine boots";
    assert!(yard.report.message.contains(waits), "{}", yard.report.message);
    assert_eq!(yard.run(), "failed");
    let why = "pool-a: it is not whole after 60 minutes: no machine boots";
    assert!(yard.report.message.contains(why), "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["c-pool-a wants 4"]);
    // The next rollout knows that its group wants one more, and ends with the right number.
    yard.launches = true;
    yard.wanted.desired.spec_version = "v3".to_owned();
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.groups["c-pool-a"].desired, 3, "{:?}", yard.log);
}

#[test]
fn p6_machines_that_come_first_after_half_an_hour_are_waited_for() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging(1));
    yard.launches = false;
    (0..30).for_each(|_| yard.wake(None));
    yard.launches = true;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(yard.groups["c-pool-a"].machines.values().all(|one| one.current), "{:?}", yard.log);
    assert_eq!(yard.groups["c-pool-a"].desired, 3);
}

/// Also if the successor of an earlier worker is not launched.
#[test]
fn p6_a_pool_whose_second_batch_never_comes_first_fails_too() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging(1));
    while !yard.log.iter().any(|line| line.contains("goes")) {
        yard.wake(None);
    }
    yard.launches = false;
    assert_eq!(yard.run(), "failed");
    assert!(yard.report.message.contains("no machine boots"), "{}", yard.report.message);
}

#[test]
fn p6_a_newer_spec_takes_over_from_a_pool_whose_machines_do_not_come_first() {
    for (launches, minutes, takes_over) in [(false, 3, false), (false, 12, true), (true, 12, false)] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging(1));
        (yard.launches, yard.boots) = (launches, 25);
        while yard.in_order().is_empty() {
            yard.wake(None);
        }
        (0..minutes).for_each(|_| yard.wake(None));
        assert_eq!(yard.in_order(), ["c-pool-a wants 4"]);
        yard.newer_spec_is_uploaded();
        let decision = yard.decides(None);
        let state = decision.report.state;
        assert_eq!(
            state == RolloutState::Superseded,
            takes_over,
            "{launches}, {minutes}: {}",
            decision.report.message
        );
        assert!(!decision.effects.iter().any(Effect::starts_work));
        assert_eq!(decision.next.left_over.contains_key(&Role::Pool("a".to_owned())), takes_over);
    }
}

/// The first of two that are terminated at the same time lowers the desired capacity; the second one mistook that for a change by somebody
/// else, and was replaced.
#[test]
fn p6_all_surplus_machines_that_go_at_once_lower_the_desired_capacity_whichever_is_first() {
    let policy = RolloutPolicy {
        surge: CountOrPercent::Count(2),
        max_unavailable: CountOrPercent::Count(2),
        ..auto()
    };
    for (workers, late) in (2..6).flat_map(|workers| [None, Some(0), Some(1)].map(|late| (workers, late))) {
        let mut yard = Yard::new(&Size { workers, ..SMALL }, Change::Machines, &is_worker, &policy);
        for _ in 0..400 {
            yard.wake(None);
            let surplus: Vec<String> = { yard.state.departures.iter() }
                .filter(|(_, one)| one.is_surplus())
                .map(|(id, _)| id.clone())
                .collect();
            // The drain of one of them takes longer than that of the other.
            yard.stuck = late
                .and_then(|at| surplus.get(at).cloned())
                .filter(|_| surplus.len() > 1)
                .into_iter()
                .collect();
            if yard.state.active().is_none() && yard.state.departures.is_empty() {
                break;
            }
        }
        assert_eq!(yard.report.state.as_str(), "succeeded", "{}", yard.report.message);
        assert_eq!(yard.groups["c-pool-a"].desired, workers, "{late:?}: {:?}", yard.log);
    }
}

/// A cluster autoscaler keeps the pool above its minimum, and a person aborts when the surge is about to be requested: it is unknown
/// whether the group received the request.
#[test]
fn p6_what_a_group_was_never_told_to_want_is_not_taken_away_by_the_next_rollout() {
    for was_told in [false, true] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging(1));
        yard.groups.get_mut("c-pool-a").unwrap().desired = 4;
        // It is in service before anything begins.
        yard.boots = 0;
        let raises = |effect: &Effect| matches!(effect, Effect::SetDesired { .. });
        let decision = loop {
            let decision = yard.decides(None);
            if decision.effects.iter().any(raises) {
                break decision;
            }
            yard.performs(decision.effects);
            yard.state = Rollout { outbox: Vec::new(), ..decision.next };
        };
        if was_told {
            yard.performs(decision.effects);
        }
        let at = Timestamp::from_second(yard.now).unwrap();
        let given = Given { order: Order::Abort { plan: None }, at };
        let state = after_order(&decision.next, &given, Some(&yard.wanted.desired), at);
        assert!(!state.outbox.iter().any(|pending| raises(&pending.effect)), "it is withdrawn");
        yard.state = Rollout { outbox: Vec::new(), ..state };
        assert_eq!(yard.run(), "aborted");
        assert_eq!(yard.groups["c-pool-a"].desired, if was_told { 5 } else { 4 });
        yard.wanted.desired.spec_version = "v3".to_owned();
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        assert_eq!(yard.groups["c-pool-a"].desired, 4, "{was_told}: {:?}", yard.log);
    }
}

#[test]
fn p8_what_was_left_over_reads_back() {
    let left = |written: Value| serde_json::from_value::<LeftOver>(written).unwrap();
    assert_eq!(left(json!(2)), LeftOver::Machines(2));
    let told = LeftOver::Requested { machines: 1, desired: 5 };
    assert_eq!(left(serde_json::to_value(told).unwrap()), told);
}

/// Two machines are surplus. The termination of one came too late, and the desired capacity counted twice; or the call for the first was
/// throttled, and the call for the second set a size that left no decrement for the first.
#[test]
fn p6_surplus_machines_that_are_terminated_late_or_in_another_order_leave_none_too_many() {
    let five = Size { workers: 5, ..SMALL };
    let shrinks = |effect: &Effect| matches!(effect, Effect::Terminate { then_desired: Some(_), .. });
    for (drops, after) in (0..4).flat_map(|drops| (0..3).map(move |after| (drops, after))) {
        let mut yard = Yard::new(&five, Change::Machines, &is_worker, &surging(2));
        let (mut seen, mut dropped) = (0, 0);
        for _ in 0..400 {
            let decision = yard.decides(None);
            let (mut performed, mut outcomes) = (Vec::new(), Vec::new());
            for Pending { id, effect, .. } in &decision.next.outbox {
                seen += usize::from(shrinks(effect));
                if shrinks(effect) && seen > after && dropped < drops {
                    dropped += 1;
                    outcomes.push((*id, EffectOutcome::Dropped));
                } else {
                    performed.push(effect.clone());
                    outcomes.push((*id, EffectOutcome::Done));
                }
            }
            if drops == 0 {
                performed.reverse();
            }
            yard.performs(performed);
            yard.state = decision.next.recorded(&outcomes);
            yard.report = decision.report;
            if yard.state.active().is_none() && yard.state.departures.is_empty() {
                break;
            }
        }
        assert_eq!(yard.report.state.as_str(), "succeeded", "{}", yard.report.message);
        assert_eq!(yard.groups["c-pool-a"].desired, 5, "{drops} after {after}: {:?}", yard.log);
    }
}

/// Auto Scaling terminated a surplus machine by itself while the call was throttled, or a late answer showed that the desired capacity was
/// low enough: nothing was decremented, and the pool was left with one machine too many.
#[test]
fn p6_a_decrement_that_was_never_made_leaves_none_too_many() {
    let (three, five) = (Size { workers: 3, ..SMALL }, Size { workers: 5, ..SMALL });
    for (size, more, nth, last) in [
        (&three, 1, 0, 0),
        (&three, 2, 0, 0),
        (&three, 2, 1, 1),
        (&three, 2, 0, 1),
        (&five, 2, 0, 0),
        (&five, 2, 1, 1),
        (&five, 3, 1, 2),
    ] {
        let mut yard = Yard::new(size, Change::Machines, &is_worker, &surging(more));
        let mut seen = 0;
        for _ in 0..400 {
            let mut decision = yard.decides(None);
            for effect in &mut decision.effects {
                if let Effect::Terminate { then_desired, .. } = effect
                    && then_desired.is_some()
                {
                    if (nth..=last).contains(&seen) {
                        *then_desired = None;
                    }
                    seen += 1;
                }
            }
            yard.performs(decision.effects);
            yard.state = Rollout { outbox: Vec::new(), ..decision.next };
            yard.report = decision.report;
            if yard.state.active().is_none() && yard.state.departures.is_empty() {
                break;
            }
        }
        assert!(seen > last, "{:?}", yard.log);
        assert_eq!(yard.report.state.as_str(), "succeeded", "{}", yard.report.message);
        assert_eq!(yard.groups["c-pool-a"].desired, size.workers, "{more}, {nth}: {:?}", yard.log);
        assert!(yard.groups["c-pool-a"].machines.values().all(|one| one.current), "{:?}", yard.log);
    }
}

/// The next rollout knows that a decrement that no answer has shown may not have been made.
#[test]
fn p6_an_abort_right_after_a_decrement_that_was_never_made_leaves_none_too_many_after_the_next_rollout() {
    for was_made in [false, true] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging(1));
        // An autoscaler keeps the pool above its minimum.
        yard.groups.get_mut("c-pool-a").unwrap().desired = 4;
        yard.boots = 0;
        let shrinks = |effect: &Effect| matches!(effect, Effect::Terminate { then_desired: Some(_), .. });
        loop {
            let mut decision = yard.decides(None);
            let is_last = decision.effects.iter().any(shrinks);
            for effect in &mut decision.effects {
                if let Effect::Terminate { then_desired, .. } = effect {
                    *then_desired = then_desired.filter(|_| was_made);
                }
            }
            yard.performs(decision.effects);
            yard.state = Rollout { outbox: Vec::new(), ..decision.next };
            if is_last {
                break;
            }
        }
        yard.wake(Some(Order::Abort { plan: None }));
        assert_eq!(yard.run(), "aborted", "{}", yard.report.message);
        assert_eq!(yard.groups["c-pool-a"].desired, if was_made { 4 } else { 5 });
        yard.wanted.desired.spec_version = "v3".to_owned();
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        assert_eq!(yard.groups["c-pool-a"].desired, 4, "{was_made}: {:?}", yard.log);
    }
}

/// A late answer showed a dead machine as healthy, and the next answer, before the drain was requested, did not.
#[test]
fn p6_a_drain_that_was_decided_and_not_requested_is_given_up_if_too_many_would_be_missing() {
    for (missing, dies) in [(1, false), (1, true), (2, true)] {
        let policy = RolloutPolicy { max_unavailable: CountOrPercent::Count(missing), ..auto() };
        let five = Size { workers: 5, ..SMALL };
        let mut yard = Yard::new(&five, Change::Machines, &is_worker, &policy);
        let chosen = |yard: &Yard| -> Vec<String> {
            let unsent = yard.state.departures.iter().filter(|(_, one)| one.is_unsent());
            unsent.map(|(id, _)| id.clone()).collect()
        };
        let seen = loop {
            yard.wake(None);
            let seen = chosen(&yard);
            // After the canary.
            if yard.log.iter().any(|line| line.contains("goes")) && seen.len() == missing as usize {
                break seen;
            }
        };
        if dies {
            let mut machines = yard.groups.get_mut("c-pool-a").unwrap().machines.iter_mut();
            let (_, one) = machines.find(|(id, one)| !seen.contains(id) && one.current).unwrap();
            one.lifecycle = Lifecycle::Terminating;
        }
        let before = yard.log.len();
        yard.wake(None);
        let drained = yard.log[before..].iter().filter(|line| line.contains(" drains ")).count();
        assert_eq!(drained, missing as usize - usize::from(dies), "{:?}", &yard.log[before..]);
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        let group = &yard.groups["c-pool-a"];
        assert!(group.machines.values().all(|one| one.current) && group.desired == 5, "{:?}", yard.log);
    }
}

/// While a person paused, an autoscaler made the group larger, and a drained surplus worker was terminated right after the resume.
#[test]
fn p6_a_decrement_right_after_somebody_raised_the_size_is_seen_as_made() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging(1));
    let id = yard.drains_one_too_many();
    yard.wake(Some(Order::Pause));
    yard.stuck.clear();
    for minute in 0..20 {
        if minute == 10 {
            yard.groups.get_mut("c-pool-a").unwrap().desired += 1;
        }
        yard.wake(None);
    }
    yard.wake(Some(Order::Resume));
    let went = |yard: &Yard| yard.log.iter().any(|line| line.starts_with(&format!("{id} goes")));
    (0..20).for_each(|_| {
        if !went(&yard) {
            yard.wake(None)
        }
    });
    assert!(went(&yard) && yard.groups["c-pool-a"].desired == 4, "{:?}", yard.log);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.groups["c-pool-a"].desired, 4, "{:?}", yard.log);
}
