//! Replacing the workers of a pool, look by look.

mod failures;

use super::dock::*;
use super::*;
use crate::departures::{DepartureState, Ending};
use crate::waits::{Boot, Comes, Departs, Detail, HowFar, Idle, Many, WorkersWait};

const HOUR: i64 = 3_600;

const POOL: &str = "c-pool-a";

const BOOTS: (&str, &str) = ("pending", "2");
const GOES: (&str, &str) = ("terminatingWait", "1");

/// The machines of a pool, each with its lifecycle state and version.
type Machines<'a> = &'a [(&'a str, (&'a str, &'a str))];

/// How many of its machines may be missing, and its surge.
fn pace(missing: u32, surge: u32) -> Value {
    json!({"maxUnavailable": {"count": missing}, "surge": {"count": surge}})
}

/// The surge that its group shows.
fn extra(machines: u32) -> Value {
    json!({"known": {"machines": machines}})
}

/// A pool with this desired capacity and room for one more machine; `fields` are the important fields of its task.
fn pool(desired: u32, machines: Machines<'_>, fields: &Value) -> Dock {
    let mut task = json!({
        "size": 1, "most": desired, "pace": Pace::default(), "extra": extra(0), "phase": look_state(),
    });
    task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let mut dock = Dock::with_step(step("pool-a", json!({"workers": task})));
    dock.active.nodes.controllers = Some("c-control-plane".to_owned());
    dock.sees("c-control-plane", &[]);
    dock.wants(desired, machines);
    dock
}

impl Dock {
    /// Sets the desired capacity and the machines of the pool's group.
    fn wants(&mut self, desired: u32, machines: Machines<'_>) {
        let group = GroupView { desired, max: desired + 1, ..group(POOL, machines) };
        self.observed.groups.insert(POOL.to_owned(), Some(group));
    }

    /// The maximum of the group equals its desired capacity.
    fn without_room(mut self) -> Self {
        let group = self.observed.groups.get_mut(POOL).unwrap().as_mut().unwrap();
        group.max = group.desired;
        self
    }

    /// That machine of a group departs.
    fn departs(&mut self, machine: &str, ends: Ending) {
        let group = self.observed.groups[POOL].as_ref().unwrap();
        let one = Departure::by_rollout(&Role::Pool("a".to_owned()), group, ends, None, at(0));
        self.departures.insert(machine.to_owned(), one);
    }

    /// The machines that were to be terminated.
    fn terminated(&self) -> Vec<&str> {
        self.departures.keys().map(String::as_str).collect()
    }

    /// No window is open.
    fn closed(mut self) -> Self {
        self.active.nodes.windows =
            vec![MaintenanceWindow { days: vec![], start_minute: 600, length_min: 30 }];
        self
    }

    fn newer(self) -> Self {
        Self { newer: true, ..self }
    }
}

fn boots(machines: &[&str]) -> Vec<Boot> {
    let boot = |id: &&str| Boot { machine: (*id).to_owned(), step: Detail(None), failure: None };
    machines.iter().map(boot).collect()
}

/// Waits for drains, of which three are named, and until booting machines are in service.
fn waits(drains: &[&str], boot: Option<&[&str]>, idle: Option<Idle>) -> Option<Waits> {
    let departs = |id: &&str| Departs { machine: (*id).to_owned(), how: HowFar::Drains(None) };
    Some(Waits::Workers(WorkersWait {
        departs: drains.iter().take(3).map(departs).collect(),
        in_all: (drains.len() > 3).then_some(Detail(0)),
        whole: boot.map(boots),
        idle,
        done: Detail(0),
    }))
}

fn first(machines: u32, boot: &[&str]) -> Option<Waits> {
    Some(Waits::Boot(Comes::First(machines), boots(boot)))
}

#[test]
fn of_a_pool_one_worker_goes_alone_and_the_others_as_many_at_once_as_may_be_missing_once_it_is_whole_again() {
    let old = |id| (id, OLD);
    let all = ["i-1", "i-2", "i-3", "i-4", "i-5"].map(old);
    let mut dock = pool(5, &all, &json!({"pace": pace(4, 0)}));
    assert_eq!(dock.advance_at(0), (Place::Roll, waits(&["i-1"], None, None)));
    assert_eq!(dock.task()["phase"], open(json!({"roll": {"begun": {"i-1": "goes"}}})));
    // It is gone, and its successor boots.
    dock.departures.clear();
    dock.wants(5, &[old("i-2"), old("i-3"), old("i-4"), old("i-5"), ("i-6", BOOTS)]);
    assert_eq!(dock.advance_at(10), (Place::Look, waits(&[], Some(&["i-6"]), None)));
    assert_eq!((&dock.task()["done"], &dock.task()["proved"]), (&json!(["i-1"]), &json!(false)));
    // The successor is in service: four more may be missing.
    dock.wants(5, &[old("i-2"), old("i-3"), old("i-4"), old("i-5"), ("i-6", NEW)]);
    let four = ["i-2", "i-3", "i-4", "i-5"];
    assert_eq!(dock.advance_at(20), (Place::Roll, waits(&four, None, None)));
    assert_eq!((dock.terminated(), &dock.task()["proved"]), (four.to_vec(), &json!(true)));
    // Two are gone, and Auto Scaling has launched no successors yet.
    dock.departures.retain(|id, _| id == "i-4" || id == "i-5");
    dock.wants(5, &[old("i-4"), old("i-5"), ("i-6", NEW)]);
    assert_eq!(dock.advance_at(30), (Place::Roll, waits(&["i-4", "i-5"], Some(&[]), None)));
    dock.departures.clear();
    dock.wants(5, &["i-6", "i-7", "i-8", "i-9", "i-a"].map(|id| (id, NEW)));
    assert_eq!(dock.advance_at(40), (Place::Done, None));
    assert!(!dock.step().is_skipped());
}

/// It comes back with what it had: its release is not forgotten.
#[test]
fn p11_a_pool_of_which_a_worker_of_before_is_in_standby_is_not_wholly_as_planned() {
    for (version, left) in [("1", true), ("2", false)] {
        let fields = json!({"size": 2, "extra": extra(0), "done": ["i-9"], "proved": true, "pace": pace(1, 0), "phase": look_state()});
        let mut dock = pool(2, &[("i-1", NEW), ("i-2", NEW), ("i-3", ("elsewhere", version))], &fields);
        assert_eq!(dock.advance_at(0), (Place::Done, None));
        assert_eq!(dock.step().is_skipped(), left, "{version}");
    }
}

#[test]
fn how_many_workers_were_told_to_go_is_news() {
    let rolls = |begun: Value| step("pool-a", workers(open(json!({"roll": {"begun": begun}}))));
    let moved = |before: &NodeStep, after: &NodeStep| before.progress() != after.progress();
    let (one, two) = (rolls(json!({"i-1": "goes"})), rolls(json!({"i-1": "goes", "i-2": "goes"})));
    assert!(moved(&one, &two) && !moved(&one, &one));
}

#[test]
fn no_worker_goes_after_the_first_of_a_pool_while_none_comes_for_it_whatever_may_be_missing() {
    for missing in [1, 2] {
        let fields = json!({"pace": pace(missing, 0), "done": ["i-1"]});
        let mut dock = pool(3, &[("i-2", OLD), ("i-3", OLD)], &fields);
        for second in [0, HOUR] {
            let found = dock.advance_at(second);
            assert_eq!(found, (Place::Look, waits(&[], Some(&[]), None)), "{second} of {missing}");
            assert_eq!((&dock.task()["proved"], dock.terminated()), (&json!(false), Vec::new()));
        }
        assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
    }
    // A machine that was missing before the first one was terminated does not block it.
    let mut dock = pool(3, &[("i-2", OLD), ("i-3", OLD)], &json!({"pace": pace(2, 0)}));
    assert_eq!(dock.advance_at(0), (Place::Roll, waits(&["i-2"], Some(&[]), None)));
}

#[test]
fn a_pool_that_seems_as_planned_is_looked_at_for_two_minutes_and_not_after_workers_went() {
    let mut dock = pool(1, &[("i-1", NEW)], &json!({}));
    for second in [0, 119] {
        assert_eq!(
            dock.advance_at(second),
            (Place::Look, Some(Waits::SecondLook(Many::Several))),
            "{second}"
        );
    }
    assert_eq!((dock.advance_at(120), dock.step().is_skipped()), ((Place::Done, None), false));
    let mut dock = pool(1, &[("i-1", NEW)], &json!({"done": ["i-0"]}));
    assert_eq!(dock.advance_at(0), (Place::Done, None));
    // A person skips one of them.
    let mut dock = pool(1, &[("i-1", NEW)], &json!({"done": ["i-0"]}));
    dock.active.skipped.insert("i-1".to_owned());
    assert_eq!((dock.advance_at(0), dock.step().is_skipped()), ((Place::Done, None), true));
}

#[test]
fn p6_no_worker_goes_and_none_comes_first_while_a_newer_spec_waits_or_no_window_is_open() {
    for pace in [pace(1, 0), pace(0, 1)] {
        let outdated = || pool(2, &[("i-1", OLD), ("i-2", OLD)], &json!({"pace": pace}));
        for (mut dock, idle) in [
            (outdated().newer(), Idle::NewerSpec),
            (outdated().closed(), Idle::Window { at_most_until: None }),
        ] {
            // Drains of a pool that is whole are waited for without a limit.
            for second in [0, HOUR + 1, 3 * HOUR] {
                let found = dock.advance_at(second);
                assert_eq!(found, (Place::Look, waits(&[], None, Some(idle.clone()))), "{second} {pace}");
                assert_eq!((dock.terminated(), dock.effects()), (Vec::new(), Vec::new()));
            }
        }
    }
}

#[test]
fn a_pool_that_may_miss_no_worker_gets_one_first_where_its_group_may_have_one_more() {
    let surges = json!({"pace": pace(0, 1)});
    let two = [("i-1", OLD), ("i-2", OLD)];
    let mut dock = pool(2, &two, &surges).without_room();
    let idle = Idle::NoRoom { group: POOL.to_owned(), max: 2 };
    assert_eq!(dock.advance_at(0), (Place::Look, waits(&[], None, Some(idle))));
    let mut dock = pool(2, &two, &surges);
    assert_eq!(dock.advance_at(0), (Place::Roll, first(1, &[])));
    assert_eq!(dock.effects(), [Effect::SetDesired { group: POOL.to_owned(), desired: 3 }]);
    let expected = |since: i64| json!({"desired": 3, "first": 1, "since": at(since)});
    assert_eq!(dock.task()["extra"], json!({"known": {"machines": 1, "expected": expected(0)}}));
    // The group's answer is late; then it shows a booting machine.
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Roll, first(1, &[])), Vec::new()));
    dock.wants(3, &[two[0], two[1], ("i-3", BOOTS)]);
    assert_eq!(dock.advance_at(20), (Place::Roll, waits(&[], Some(&["i-3"]), None)));
    dock.wants(3, &[two[0], two[1], ("i-3", NEW)]);
    assert_eq!(dock.advance_at(30), (Place::Roll, waits(&["i-1"], None, None)));
}

#[test]
fn a_newer_spec_waits_five_minutes_for_workers_that_are_to_come_first_and_no_other_gives_them_up() {
    let lacks = || pool(2, &[("i-1", OLD)], &json!({"pace": pace(0, 1), "extra": extra(1)}));
    let mut dock = lacks().newer();
    for second in [0, 300] {
        assert_eq!(dock.advance_at(second), (Place::Roll, first(1, &[])), "{second}");
    }
    assert_eq!(dock.advance_at(301), (Place::Look, first(1, &[])));
    let mut dock = lacks();
    for second in [0, 301, HOUR] {
        assert_eq!(dock.advance_at(second), (Place::Roll, first(1, &[])), "{second}");
    }
    assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
}

#[test]
fn p6_of_a_pool_that_has_one_too_many_one_goes_also_while_a_newer_spec_waits_and_no_other() {
    let four = ["i-1", "i-2", "i-3", "i-4"].map(|id| (id, OLD));
    for pace in [pace(0, 1), pace(1, 1)] {
        let fields = json!({"pace": pace, "extra": extra(1), "proved": true});
        let mut dock = pool(4, &four, &fields).newer();
        assert_eq!(dock.advance_at(0), (Place::Roll, waits(&["i-1"], None, None)), "{pace}");
        assert!(dock.departures["i-1"].is_surplus());
    }
}

#[test]
fn a_pool_waits_while_as_many_machines_are_drained_elsewhere_as_may_be() {
    let mut dock = pool(2, &[("i-1", OLD), ("i-2", OLD)], &json!({}));
    for other in 0..20 {
        dock.departs(&format!("i-other-{other}"), Ending::Rests);
    }
    assert_eq!(dock.advance_at(0), (Place::Look, waits(&[], None, Some(Idle::Others))));
    assert_eq!(dock.departures.len(), 20);
}

/// Seed 800 of a pool of many workers: the canary i-1 has gone, and its successor is not there yet.
#[test]
fn p6_an_answer_from_before_the_canary_had_gone_proves_nothing() {
    for weighted in [false, true] {
        let fields = json!({
            "pace": pace(3, 0), "weighted": weighted, "done": ["i-1"], "phase": since(0, json!({"roll": {"begun": {}}})),
        });
        let mut dock = pool(4, &[("i-1", OLD), ("i-2", OLD), ("i-3", OLD), ("i-4", OLD)], &fields);
        dock.advance_at(10);
        assert_eq!(dock.terminated(), Vec::<&str>::new(), "weighted: {weighted}");
        dock.wants(4, &[("i-5", NEW), ("i-2", OLD), ("i-3", OLD), ("i-4", OLD)]);
        dock.advance_at(20);
        assert_eq!(dock.terminated(), ["i-2", "i-3", "i-4"], "weighted: {weighted}");
    }
}

/// An autoscaler took twenty workers of another pool, whose budgets let no pod go: they wait in their hooks for days.
#[test]
fn p6_at_most_twenty_drains_of_rollouts_go_on_at_a_time_and_those_of_auto_scaling_do_not_count() {
    for (ours, drained) in [(0, 2), (19, 1), (20, 0)] {
        let fields = json!({"pace": pace(2, 0), "proved": true});
        let mut dock = pool(4, &[("i-1", OLD), ("i-2", OLD), ("i-3", OLD), ("i-4", OLD)], &fields);
        for number in 0..40 {
            let id = format!("i-b{number}");
            dock.departs(&id, Ending::Replaced);
            if number >= ours {
                let one = Departure::by_auto_scaling(Role::Pool("b".to_owned()), "c-pool-b", None, at(0));
                dock.departures.insert(id, one);
            }
        }
        dock.advance_at(0);
        assert_eq!(dock.terminated().len(), 40 + drained, "{ours}");
    }
}

#[test]
fn p6_a_group_with_weights_wants_those_that_serve_that_come_and_that_go() {
    let fields = json!({"pace": pace(2, 0), "proved": true, "weighted": true});
    let mut machines = [("i-1", OLD), ("i-2", OLD), ("i-3", OLD), ("i-4", BOOTS)];
    let mut dock = pool(4, &machines, &fields);
    dock.departs("i-1", Ending::Replaced);
    // Of four, two are missing already.
    assert_eq!(dock.advance_at(0), (Place::Look, waits(&[], Some(&["i-4"]), None)));
    assert_eq!(dock.terminated(), ["i-1"]);
    machines[3].1 = NEW;
    dock.wants(4, &machines);
    assert_eq!(dock.advance_at(10).0, Place::Roll);
    assert_eq!(dock.terminated(), ["i-1", "i-2"]);
}

#[test]
fn a_group_that_somebody_made_larger_is_followed_after_five_minutes_but_for_those_that_go_with_a_smaller_one()
{
    let wants = |desired: u32, seen: i64| json!({"desired": desired, "first": 0, "since": at(seen)});
    // The desired capacity should be two, and is three: the state of i-1, its lifecycle, and the desired capacity afterwards.
    for (told, ends, machine, desired) in [
        ("goes", Ending::Replaced, OLD, 3),
        ("shrinks", Ending::Surplus { of: 3 }, GOES, 3),
        ("shrinks", Ending::Surplus { of: 3 }, OLD, 2),
    ] {
        let phase = since(0, json!({"roll": {"begun": {"i-1": told}}}));
        let extra = json!({"known": {"machines": 0, "expected": wants(2, 0)}});
        let machines = [("i-1", machine), ("i-2", NEW), ("i-3", NEW)];
        let mut dock = pool(3, &machines, &json!({"extra": extra, "phase": phase}));
        dock.departs("i-1", ends);
        dock.departures.get_mut("i-1").unwrap().state =
            DepartureState::Leave { requested_at: at(0), last: None };
        // A size that somebody else has set counts from when it was first observed.
        let seen = if desired == 2 { 0 } else { 301 };
        for (second, desired, seen) in [(300, 2, 0), (301, desired, seen)] {
            assert_eq!(dock.advance_at(second).0, Place::Roll);
            assert_eq!(dock.task()["extra"]["known"]["expected"], wants(desired, seen), "{told} {second}");
        }
    }
}

#[test]
fn p8_a_late_answer_after_somebody_raised_the_desired_capacity_takes_nothing_from_the_surge() {
    let expected = json!({"desired": 6, "first": 1, "since": at(0)});
    let known = json!({"known": {"machines": 1, "expected": expected}});
    let machines = [("i-1", NEW), ("i-2", NEW), ("i-3", BOOTS)];
    let fields = json!({"size": 5, "extra": known, "phase": since(0, json!({"roll": {"begun": {}}}))});
    let mut dock = pool(6, &machines, &fields);
    // An autoscaler sets 7, and a later answer is from before that. A value that stays lower shows that the autoscaler removed a machine.
    for (second, desired, left) in [(1_200, 7, 1), (1_201, 6, 1), (1_202, 7, 1), (1_600, 6, 0)] {
        dock.wants(desired, &machines);
        dock.advance_at(second);
        assert_eq!(dock.task()["extra"]["known"]["machines"], left, "{second}");
    }
}

#[test]
fn p6_a_current_worker_goes_as_surplus_only_where_more_serve_than_there_are_to_be() {
    let fields = json!({"size": 5, "extra": extra(1), "proved": true, "done": ["i-9"], "pace": pace(2, 1), "phase": since(0, json!({"roll": {"begun": {}}}))});
    let mut machines =
        [("i-1", NEW), ("i-2", NEW), ("i-3", NEW), ("i-4", NEW), ("i-5", BOOTS), ("i-6", BOOTS)];
    let mut dock = pool(6, &machines, &fields);
    dock.advance_at(0);
    assert!(dock.departures.is_empty(), "four of five serve: {:?}", dock.departures);
    (machines[4].1, machines[5].1) = (NEW, NEW);
    dock.wants(6, &machines);
    dock.advance_at(10);
    assert_eq!(dock.terminated().len(), 1, "{:?}", dock.departures);
}

/// Otherwise it would be terminated, and another one would replace it.
#[test]
fn p2_a_current_worker_is_not_drained_any_more_once_somebody_else_has_taken_back_the_surge() {
    for (machine, left, ends, exit, stays) in [
        (NEW, 0, Ending::Surplus { of: 5 }, "goes", true),
        (NEW, 1, Ending::Surplus { of: 5 }, "goes", false),
        (OLD, 0, Ending::Surplus { of: 5 }, "goes", false),
        (GOES, 0, Ending::Surplus { of: 5 }, "goes", false),
        (NEW, 0, Ending::Replaced, "goes", false),
        // Its termination was requested and dropped, so it is drained again: it was counted before.
        (NEW, 0, Ending::Surplus { of: 5 }, "shrinks", false),
    ] {
        let phase = since(0, json!({"roll": {"begun": {"i-1": exit}}}));
        let known = json!({"known": {"machines": left, "expected": null}});
        let fields = json!({
            "size": 4, "extra": known, "proved": true, "done": ["i-9"], "pace": pace(0, 1), "phase": phase,
        });
        let machines = [("i-1", machine), ("i-2", NEW), ("i-3", NEW), ("i-4", NEW)];
        let mut dock = pool(4, &machines, &fields);
        dock.departs("i-1", ends);
        dock.departures.get_mut("i-1").unwrap().rounds = 1;
        dock.advance_at(1);
        let is_kept = matches!(dock.departures["i-1"].state, DepartureState::Withdraw { .. });
        assert_eq!(is_kept, stays, "{machine:?} {left} {ends:?} {exit}");
        // What becomes of it from now on is no success and no failure of the roll.
        let is_begun = dock.task().to_string().contains("\"i-1\":\"");
        assert_eq!(is_begun, !stays, "{}", dock.task());
    }
}

/// The desired capacity with which a surplus machine leaves counts every other surplus machine that has not left yet: one that is drained, even
/// if it died meanwhile, and one whose termination was requested, as long as it serves.
#[test]
fn p6_a_surplus_machine_leaves_room_for_each_other_one_that_still_goes() {
    for (leaves, first, desired) in [(false, NEW, 6), (false, GOES, 6), (true, NEW, 6), (true, GOES, 7)] {
        let phase = since(0, json!({"roll": {"begun": {"i-1": "goes"}}}));
        let fields = json!({
            "size": 4, "extra": extra(2), "proved": true, "done": ["i-9"], "pace": pace(2, 2), "phase": phase,
        });
        let rest = ["i-3", "i-4", "i-5", "i-6", "i-7"].map(|id| (id, NEW));
        let machines: Vec<_> = [("i-1", first), ("i-2", OLD)].into_iter().chain(rest).collect();
        let mut dock = pool(7, &machines, &fields);
        dock.departs("i-1", Ending::Surplus { of: 7 });
        if leaves {
            dock.departures.get_mut("i-1").unwrap().state =
                DepartureState::Leave { requested_at: at(0), last: None };
        }
        dock.advance_at(1);
        let second = serde_json::to_value(dock.departures.get("i-2")).unwrap();
        assert_eq!(second["cause"]["rollout"]["surplus"]["of"], desired, "{leaves} {first:?}: {second}");
    }
}

#[test]
fn machines_that_were_to_come_first_and_that_auto_scaling_was_never_told_of_are_not_left_over() {
    let expected = json!({"desired": 6, "first": 2, "since": at(0)});
    let known = json!({"known": {"machines": 3, "expected": expected}});
    let mut dock = pool(3, &[], &json!({"extra": known}));
    dock.active.nodes.not_raised(POOL);
    assert_eq!(dock.task()["extra"], extra(1));
}

/// The size would have been that before the decrement, and one more.
#[test]
fn p8_no_surge_is_requested_until_an_answer_shows_the_decrement_of_a_surplus_worker() {
    let phase = since(0, json!({"roll": {"begun": {"i-1": "goes"}}}));
    let fields = json!({"size": 3, "extra": extra(1), "proved": true, "done": ["i-9"], "pace": pace(0, 1), "phase": phase});
    let machines = [("i-1", OLD), ("i-2", OLD), ("i-3", OLD), ("i-4", NEW)];
    let mut dock = pool(4, &machines, &fields);
    dock.departs("i-1", Ending::Surplus { of: 4 });
    dock.departures.get_mut("i-1").unwrap().state = DepartureState::Leave { requested_at: at(0), last: None };
    dock.advance_at(1);
    assert_eq!(dock.effects(), []);
    dock.wants(3, &[("i-1", GOES), machines[1], machines[2], machines[3]]);
    dock.advance_at(2);
    assert_eq!(dock.effects(), [Effect::SetDesired { group: POOL.to_owned(), desired: 4 }]);
}

/// A cluster autoscaler took the surge back while no invocation ran: fewer may be missing than the surge would allow.
#[test]
fn p6_a_drain_that_was_not_requested_is_given_up_if_somebody_took_the_surge_back() {
    for (desired, stays) in [(6, true), (5, false)] {
        let phase = since(0, json!({"roll": {"begun": {"i-1": "goes"}}}));
        let known = json!({"known": {"machines": 1, "expected": {"desired": 6, "first": 0, "since": at(0)}}});
        let fields = json!({"size": 5, "extra": known, "proved": true, "pace": pace(1, 1), "phase": phase});
        let machines = ["i-1", "i-2", "i-3", "i-4"].map(|id| (id, OLD));
        let mut dock = pool(desired, &machines, &fields);
        let one = [("i-5", if stays { NEW } else { GOES })];
        dock.wants(desired, &machines.into_iter().chain(one).collect::<Vec<_>>());
        dock.departs("i-1", Ending::Replaced);
        dock.active.nodes.reconsider(&mut dock.departures, &dock.observed, at(0));
        assert_eq!(dock.departures.contains_key("i-1"), stays, "{desired}");
    }
}

/// What was decided by a late answer is given up before anything is requested.
#[test]
fn p6_a_drain_that_was_not_requested_is_given_up_if_a_later_answer_shows_too_few_workers() {
    let surplus = Ending::Surplus { of: 6 };
    for (ends, first, lost, stays) in [
        (surplus, NEW, 0, true),
        (surplus, NEW, 1, false),
        // As many as may be missing: the one that goes, and those that are lost.
        (surplus, OLD, 2, true),
        (surplus, OLD, 3, false),
        (Ending::Replaced, OLD, 2, true),
        (Ending::Replaced, OLD, 3, false),
    ] {
        let phase = since(0, json!({"roll": {"begun": {"i-1": "goes"}}}));
        let fields =
            json!({"size": 5, "extra": extra(1), "proved": true, "pace": pace(2, 1), "phase": phase});
        let rest = ["i-2", "i-3", "i-4", "i-5", "i-6"].into_iter().enumerate();
        let rest = rest.map(|(at, id)| (id, if at < lost { GOES } else { NEW }));
        let machines: Vec<_> = std::iter::once(("i-1", first)).chain(rest).collect();
        // A round that Run Command refused has drained nothing.
        for (rounds, unsent) in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)] {
            let mut dock = pool(6, &machines, &fields);
            dock.departs("i-1", ends);
            let departure = dock.departures.get_mut("i-1").unwrap();
            (departure.rounds, departure.unsent) = (rounds, unsent);
            dock.active.nodes.reconsider(&mut dock.departures, &dock.observed, at(0));
            let is_left = dock.departures.contains_key("i-1");
            assert_eq!(is_left, stays || rounds > unsent, "{ends:?} {first:?} {lost} {rounds} {unsent}");
        }
    }
}

/// Each of several drains that were decided together is looked at again.
#[test]
fn p6_of_several_drains_that_were_not_requested_as_many_are_given_up_as_workers_are_short() {
    for (lost, left) in [(0, &["i-1", "i-2"][..]), (1, &["i-1"]), (2, &[])] {
        let phase = since(0, json!({"roll": {"begun": {"i-1": "goes", "i-2": "goes"}}}));
        let fields = json!({"size": 5, "proved": true, "pace": pace(2, 0), "phase": phase});
        let rest = ["i-3", "i-4", "i-5"].into_iter().enumerate();
        let rest = rest.map(|(at, id)| (id, if at < lost { GOES } else { NEW }));
        let machines: Vec<_> = [("i-1", OLD), ("i-2", OLD)].into_iter().chain(rest).collect();
        let mut dock = pool(5, &machines, &fields);
        ["i-1", "i-2"].iter().for_each(|id| dock.departs(id, Ending::Replaced));
        dock.active.nodes.reconsider(&mut dock.departures, &dock.observed, at(0));
        assert_eq!(dock.terminated(), left, "{lost}");
    }
}

/// A decision of somebody else about the size of the group is no surge that is still to come.
#[test]
fn a_pool_without_a_surge_goes_on_at_once_after_an_autoscaler_made_it_smaller() {
    let fields = json!({"pace": pace(1, 0), "extra": serde_json::to_value(Extra::default()).unwrap()});
    let mut dock = pool(3, &[("i-1", OLD), ("i-2", OLD), ("i-3", OLD)], &fields);
    assert_eq!(dock.advance_at(0), (Place::Roll, waits(&["i-1"], None, None)));
    // It is gone, and its successor is in service.
    dock.departures.clear();
    dock.wants(2, &[("i-2", OLD), ("i-4", NEW)]);
    assert_eq!(dock.advance_at(10), (Place::Roll, waits(&["i-2"], None, None)));
}

/// A worker with pods was drained in place of the surge's machine, whenever that came.
#[test]
fn p6_outside_of_a_window_the_surge_stays_and_no_worker_goes() {
    let old = ["i-1", "i-2", "i-3", "i-4"].map(|id| (id, OLD));
    let new = [("i-5", NEW)];
    let machines: Vec<_> = old.into_iter().chain(new).collect();
    for (minute, goes) in [(600, false), (0, true)] {
        let mut dock = pool(5, &machines, &json!({"pace": pace(0, 1), "extra": extra(1), "proved": true}));
        dock.active.nodes.windows =
            vec![MaintenanceWindow { days: Vec::new(), start_minute: minute, length_min: 30 }];
        dock.advance_at(0);
        assert_eq!(!dock.departures.is_empty(), goes, "{minute}");
    }
}
