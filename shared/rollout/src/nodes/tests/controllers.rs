//! Replacing, refreshing and removing controllers, look by look.

use slipway_core::node::NodeStatus;

use super::dock::*;
use super::*;
use crate::departures::{DepartureState, Ending};
use crate::drain::EMPTY_FOR;
use crate::fleet::TargetHealth;
use crate::outbox::{Evidence, Seen};
use crate::waits::{Asks, Boot, Comes, Danger, Departs, Detail, HowFar, Many};

const HOUR: i64 = 3_600;
const GROUP: &str = "c-controller";

const BOOTS: (&str, &str) = ("pending", "1");
const LEAVES: (&str, &str) = ("terminating", "1");

fn replace() -> Value {
    json!("replace")
}

fn refresh() -> Value {
    json!({"refresh": {"credentials": "new"}})
}

fn fewer() -> Value {
    json!({"fewer": {"beforeStack": false}})
}

/// A step for controllers with the given size and without load balancers; the desired capacity of their group equals the size.
fn dock(work: Value, size: u32, phase: Value, machines: &[(&str, (&str, &str))]) -> Dock {
    let task = json!({"work": work, "size": size, "phase": phase});
    let mut dock = Dock::with_step(step("controller", json!({"controllers": task})));
    has(&mut dock, size, machines);
    dock
}

/// Sets the desired capacity and the machines of their group.
fn has(dock: &mut Dock, desired: u32, machines: &[(&str, (&str, &str))]) {
    dock.sees(GROUP, machines);
    let group = dock.observed.groups.get_mut(GROUP).unwrap().as_mut().unwrap();
    (group.desired, group.max) = (desired, 4);
    for machine in group.machines.values_mut() {
        machine.target = TargetHealth::NoTargetGroup;
    }
}

/// The answer of a healthy controller.
fn well() -> NodeStatus {
    serde_json::from_value(json!({
        "format": 1, "at": NOW, "cluster": "c", "role": "controller", "healthy": true, "applied": {"matchesNodeFile": true},
        "served": [], "held": [], "components": [{"name": "kube-apiserver", "healthy": true}],
    }))
    .unwrap()
}

/// All controllers of the last round answer that they are healthy.
fn answer(dock: &mut Dock) {
    let tokens: Vec<String> = dock.step().commands().iter().map(|one| one.command.token.clone()).collect();
    for token in tokens {
        dock.set_answer(&token, well());
    }
}

/// Whether i-0 may be taken down: the other of two controllers, i-1, was asked at `asked`, and is healthy.
fn checked(work: Value, since_when: i64, sent: i64, machines: &[(&str, (&str, &str))]) -> Dock {
    let round = json!([asks(1, &json!("status"), sent)]);
    let state = json!({"check": {"machine": "i-0", "round": round}});
    let mut dock = dock(work, 2, since(since_when, state), machines);
    answer(&mut dock);
    dock
}

fn asks_status(machines: &[&str]) -> Vec<(String, Verb)> {
    machines.iter().map(|machine| ((*machine).to_owned(), Verb::Status)).collect()
}

fn answers() -> Option<Waits> {
    Some(Waits::Answers(Asks::Controllers))
}

fn others_answer() -> Option<Waits> {
    Some(Waits::Answers(Asks::OtherControllers))
}

fn too_few(serve: usize, size: u32, boots: &[&str]) -> Option<Waits> {
    let boots = boots.iter().map(|machine| boot(machine)).collect();
    Some(Waits::Dangers(vec![Danger::TooFew { serve, size, boots }]))
}

fn boot(machine: &str) -> Boot {
    Boot { machine: machine.to_owned(), step: Detail(None), failure: None }
}

fn wants(desired: u32) -> Effect {
    Effect::SetDesired { group: GROUP.to_owned(), desired }
}

#[test]
fn p1_controllers_of_which_none_is_too_many_stay_as_they_are_whatever_their_group_launches() {
    let mut dock = dock(fewer(), 2, look_state(), &[("i-0", OLD), ("i-1", OLD)]);
    assert_eq!(dock.advance_at(0), (Place::Verify, answers()));
    assert_eq!(dock.commands_sent(), asks_status(&["i-0", "i-1"]));
    answer(&mut dock);
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Done, None), Vec::new()));
    // Nor if one was about to be terminated, and another one was terminated meanwhile.
    let mut dock = checked(fewer(), 0, 0, &[("i-0", OLD), ("i-1", OLD)]);
    assert_eq!(dock.advance_at(10), (Place::Verify, answers()));
    assert_eq!((dock.commands_sent(), dock.effects().len()), (asks_status(&["i-0", "i-1"]), 2));
}

/// It was chosen while the window was open, and the others answered late.
#[test]
fn a_controller_is_not_taken_down_or_refreshed_after_its_window_has_closed() {
    for work in [replace(), refresh()] {
        let closes = |is_closed: bool| {
            let mut dock = checked(work.clone(), 0, 0, &[("i-0", OLD), ("i-1", OLD)]);
            if is_closed {
                let closed = MaintenanceWindow { days: vec![], start_minute: 600, length_min: 30 };
                dock.active.nodes.windows = vec![closed];
            }
            let (place, waits) = dock.advance_at(10);
            (place, waits, dock.effects())
        };
        let closed = (Place::Look, Some(Waits::Window { at_most_until: None }), Vec::new());
        assert_eq!(closes(true), closed, "{work}");
        assert_ne!(closes(false).2, [], "{work}: in its window it is");
    }
}

#[test]
fn a_controller_of_before_that_boots_is_waited_for_an_hour() {
    let mut dock = dock(replace(), 1, look_state(), &[("i-0", BOOTS)]);
    for second in [0, HOUR] {
        let waits = Waits::Boot(Comes::Earlier, vec![boot("i-0")]);
        assert_eq!(dock.advance_at(second), (Place::Look, Some(waits)), "{second}");
    }
    assert_eq!(dock.advance_at(HOUR + 1), (Place::Look, Some(Waits::SecondLook(Many::Several))));
}

#[test]
fn controllers_that_took_their_credentials_are_known_to_have_them_whatever_their_group_shows() {
    let mut dock = dock(refresh(), 1, look_state(), &[("i-0", OLD)]);
    let Task::Controllers(task) = &mut dock.active.nodes.steps[0].task else { panic!() };
    task.done.insert("i-0".to_owned());
    assert_eq!(dock.advance_at(0), (Place::Verify, answers()));
    assert_eq!(dock.commands_sent(), asks_status(&["i-0"]));
}

#[test]
fn p5_a_controller_that_serves_alone_and_is_to_have_a_fellow_waits_for_that_one() {
    let mut dock = dock(refresh(), 2, look_state(), &[("i-0", OLD), ("i-1", BOOTS)]);
    assert_eq!((dock.advance_at(0), dock.effects()), ((Place::Check, too_few(1, 2, &["i-1"])), Vec::new()));
    // Nor is the step done while no controller is in service.
    let mut dock = self::dock(replace(), 1, since(0, json!({"verify": []})), &[("i-0", BOOTS)]);
    assert_eq!((dock.advance_at(0), dock.effects()), ((Place::Verify, too_few(0, 1, &["i-0"])), Vec::new()));
}

#[test]
fn p6_a_controller_is_drained_before_it_goes_although_another_one_was_drained() {
    let long_ago = -EMPTY_FOR.as_secs();
    for (drained, emptied, place) in [
        ("i-0", 0, Place::Leave),
        ("i-1", 0, Place::Drain),
        ("i-0", long_ago + 10, Place::Leave),
        // A person may have uncordoned it since.
        ("i-0", long_ago + 9, Place::Drain),
    ] {
        let machines = &[("i-0", OLD), ("i-1", OLD), ("i-2", NEW)];
        let mut dock = checked(replace(), 0, 0, machines);
        has(&mut dock, 3, machines);
        rests(&mut dock, drained, emptied);
        assert_eq!(dock.advance_at(10).0, place, "{drained} {emptied}");
        let drains = dock.departures["i-0"].drains();
        assert_eq!(drains, place == Place::Drain, "{drained} {emptied}");
    }
}

/// That controller is empty by the answer to a command of that second.
fn rests(dock: &mut Dock, machine: &str, second: i64) {
    let controllers = group(GROUP, &[]);
    let mut one = Departure::by_rollout(&Role::Controller, &controllers, Ending::Rests, None, at(0));
    one.state = DepartureState::Rest { emptied_at: at(second) };
    dock.departures.insert(machine.to_owned(), one);
    let Task::Controllers(task) = &mut dock.active.nodes.steps[0].task else { panic!() };
    task.departs = Some(machine.to_owned());
}

#[test]
fn p5_p12_what_other_controllers_said_more_than_three_minutes_ago_is_asked_anew() {
    let machines = &[("i-0", OLD), ("i-1", OLD)];
    let mut dock = checked(replace(), 0, 0, machines);
    assert_eq!(dock.advance_at(180), (Place::OneMore, Some(Waits::OneMoreController)));
    assert_eq!(dock.effects(), [wants(3)]);
    let mut dock = checked(replace(), 0, 0, machines);
    assert_eq!(dock.advance_at(181), (Place::Check, others_answer()));
    assert_eq!((dock.commands_sent(), dock.effects().len()), (asks_status(&["i-1"]), 1));
}

#[test]
fn p1_a_controller_that_is_as_planned_by_now_is_told_nothing() {
    let mut dock = checked(refresh(), 0, 0, &[("i-0", NEW), ("i-1", NEW)]);
    let waits = Waits::SecondLook(Many::Several);
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Look, Some(waits)), Vec::new()));
}

#[test]
fn p7_controllers_take_credentials_on_what_the_others_said_and_where_theirs_expired_on_what_is_seen_now() {
    for (expired, evidence) in
        [(false, Evidence::new(Seen::Controllers, at(0))), (true, Evidence::new(Seen::World, at(100)))]
    {
        let mut dock = checked(refresh(), 0, 0, &[("i-0", OLD), ("i-1", OLD)]);
        if expired {
            dock.active.nodes.deadline = Deadline { ends: [(Role::Controller, NOW)].into(), lead_s: 0 };
        }
        assert_eq!(dock.advance_at(100), (Place::Refresh, Some(Waits::Credentials(vec!["i-0".to_owned()]))));
        let verb = Verb::Refresh { credentials: "new".to_owned(), restart: true };
        assert_eq!(dock.commands_sent(), [("i-0".to_owned(), verb)]);
        assert_eq!(dock.done[0].evidence, Some(evidence), "{expired}");
    }
}

/// As [`checked`], during a minor upgrade.
fn checked_for_a_minor(since_when: i64, sent: i64, machines: &[(&str, (&str, &str))]) -> Dock {
    let mut dock = checked(replace(), since_when, sent, machines);
    dock.active.nodes.steps[0].minor = Some("Kubernetes 1.36 → 1.37".to_owned());
    dock
}

#[test]
fn p4_a_snapshot_is_taken_before_the_first_controller_of_another_minor_comes_and_before_no_other() {
    let of_before = [("i-0", OLD), ("i-1", OLD)];
    let checked = |machines| {
        let mut dock = checked_for_a_minor(1_990, 1_990, machines);
        dock.active.nodes.members.insert(Role::Etcd(0), "c-etcd-0".to_owned());
        dock.sees("c-etcd-0", &[("i-9", OLD)]);
        dock
    };
    let mut dock = checked(&of_before);
    assert_eq!(dock.advance_at(2_000), (Place::Snapshot, Some(Waits::Snapshot)));
    assert_eq!((dock.commands_sent(), dock.effects().len()), (asks_snapshot("i-9"), 1));
    dock.takes_snapshot();
    assert_eq!(dock.advance_at(2_010), (Place::Check, others_answer()));
    assert_eq!(dock.commands_sent(), asks_status(&["i-1"]));
    answer(&mut dock);
    assert_eq!(dock.advance_at(2_020), (Place::OneMore, Some(Waits::OneMoreController)));
    assert_eq!(dock.effects(), [wants(3)]);
    // A machine of the newer minor exists, or the last snapshot still counts.
    let fresh = checked(&of_before).saved(2_000 - 15 * 60);
    for mut dock in [fresh, checked(&[("i-0", OLD), ("i-1", NEW)])] {
        assert_eq!(dock.advance_at(2_000), (Place::OneMore, Some(Waits::OneMoreController)));
        assert_eq!(dock.effects(), [wants(3)]);
    }
}

/// The call may come late, and the new API server begins to convert what is stored.
#[test]
fn p4_the_first_controller_of_another_minor_comes_by_no_call_that_is_later_than_the_snapshot_counts() {
    for (minor, counts) in [(true, 60), (false, 180)] {
        let mut dock = checked_for_a_minor(1_990, 1_990, &[("i-0", OLD), ("i-1", OLD)]);
        if !minor {
            dock.active.nodes.steps[0].minor = None;
        }
        let mut dock = dock.saved(2_000 - 14 * 60);
        assert_eq!(dock.advance_at(2_000), (Place::OneMore, Some(Waits::OneMoreController)));
        assert_eq!(dock.effects(), [wants(3)]);
        assert_eq!(dock.done[0].evidence.unwrap().until, at(2_000 + counts), "another minor: {minor}");
    }
}

#[test]
fn p4_a_snapshot_that_no_member_can_take_before_another_minor_is_waited_for_an_hour() {
    let look = |second| {
        let mut dock = checked_for_a_minor(0, second, &[("i-0", OLD), ("i-1", OLD)]);
        (dock.advance_at(second), dock.effects().len(), dock.step().failure().map(str::to_owned))
    };
    for second in [0, 10, HOUR] {
        assert_eq!(look(second), ((Place::Check, Some(Waits::Snapshot)), 0, None), "{second}");
    }
    let why = "no member of etcd has served for 60 minutes that could take a snapshot".to_owned();
    let failed = (Place::Failed, Some(Waits::Failed(Detail(String::new()))));
    assert_eq!(look(HOUR + 1), (failed, 0, Some(why)));
}

#[test]
fn a_controller_of_the_older_minor_that_is_to_be_left_holds_the_step_back_and_one_of_the_newer_does_not() {
    for (template, place) in [(NEW, Place::Look), (OLD, Place::Failed)] {
        let mut dock = dock(replace(), 1, look_state(), &[("i-0", template)]);
        dock.active.nodes.steps[0].minor = Some("Kubernetes 1.36 → 1.37".to_owned());
        dock.active.skipped.insert("i-0".to_owned());
        assert_eq!((dock.advance_at(0).0, dock.effects()), (place, Vec::new()), "{template:?}");
    }
}

/// A step whose controller i-0 is being drained.
fn draining() -> Dock {
    let state = json!({"drain": {"machine": "i-0"}});
    let mut dock = dock(replace(), 1, since(0, state), &[]);
    has(&mut dock, 2, &[("i-0", OLD), ("i-1", NEW)]);
    let departs = Departs { machine: "i-0".to_owned(), how: HowFar::Drains(None) };
    assert_eq!(dock.advance_at(0), (Place::Drain, Some(Waits::Departure(departs))));
    assert!(dock.departures["i-0"].drains());
    dock
}

#[test]
fn p6_a_controller_whose_drain_ends_is_checked_once_more_or_fails_with_its_reason() {
    let mut dock = draining();
    assert_eq!(dock.advance_at(10).0, Place::Drain);
    rests(&mut dock, "i-0", 10);
    assert_eq!(dock.advance_at(20), (Place::Check, others_answer()));
    // Its drain was given up.
    let mut dock = draining();
    dock.departures.get_mut("i-0").unwrap().withdraw(Some("no".to_owned()), at(10));
    assert_eq!(dock.advance_at(20).0, Place::Failed);
    assert_eq!(dock.step().failure(), Some("no"));
    // Its window closed before its drain was sent.
    let mut dock = draining();
    dock.departures.clear();
    assert_eq!(dock.advance_at(20), (Place::Check, others_answer()));
    assert_eq!(dock.task().get("departs"), None);
}

/// Its uncordon would run beside its drain, and pods would come to it again.
#[test]
fn p6_a_controller_that_is_being_uncordoned_is_not_worked_on_before_it_is() {
    let mut dock = dock(replace(), 2, look_state(), &[("i-0", OLD), ("i-1", NEW)]);
    let mut one = Departure::by_rollout(&Role::Controller, &group(GROUP, &[]), Ending::Rests, None, at(0));
    one.withdraw(None, at(0));
    dock.departures.insert("i-0".to_owned(), one.clone());
    let waits = Waits::Uncordon("i-0".to_owned());
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Look, Some(waits)), Vec::new()));
    assert_eq!(dock.departures["i-0"], one);
    dock.departures.clear();
    assert_eq!(dock.advance_at(20), (Place::Check, others_answer()));
}

/// A newer spec, or Auto Scaling, has made the choice wrong.
#[test]
fn p10_an_empty_controller_that_is_not_to_go_any_more_takes_pods_again() {
    for (template, stays) in [(NEW, true), (OLD, false)] {
        let mut dock = dock(replace(), 2, look_state(), &[]);
        has(&mut dock, 3, &[("i-0", template), ("i-1", OLD), ("i-2", NEW)]);
        rests(&mut dock, "i-0", 0);
        assert_eq!(dock.advance_at(10), (Place::Check, others_answer()));
        let withdrawn = matches!(dock.departures["i-0"].state, DepartureState::Withdraw { .. });
        assert_eq!(withdrawn, stays, "{template:?}");
    }
}

/// Auto Scaling's answer may be from before it served.
#[test]
fn p7_a_controller_that_is_gone_while_it_installs_credentials_is_not_waited_for() {
    for (second, machine, place) in
        [(120, "i-9", Place::Refresh), (121, "i-9", Place::Look), (121, "i-0", Place::Refresh)]
    {
        let sent = asks(0, &json!({"refresh": {"credentials": "new", "restart": true}}), 0);
        let mut dock = dock(refresh(), 1, since(0, json!({"refresh": sent})), &[(machine, BOOTS)]);
        if machine == "i-0" {
            has(&mut dock, 1, &[(machine, OLD)]);
        }
        assert_eq!(dock.advance_at(second).0, place, "{machine} {second}");
    }
}

#[test]
fn p10_where_the_rollout_ends_or_a_person_skips_it_the_drain_of_a_controller_is_taken_back_with_its_cordon() {
    let withdrawn = |dock: &Dock| {
        dock.departures["i-0"].state == DepartureState::Withdraw { sent: None, cancelled_at: None }
    };
    let mut dock = draining();
    assert_eq!(dock.active.nodes.called_off(&mut dock.departures, at(10)), []);
    assert!(withdrawn(&dock));
    // Also if it is empty, or if its termination was decided and may not have been performed.
    let mut dock = draining();
    rests(&mut dock, "i-0", 5);
    assert_eq!(dock.active.nodes.called_off(&mut dock.departures, at(10)), []);
    assert!(withdrawn(&dock));
    let mut dock = draining();
    dock.active.skipped.insert("i-0".to_owned());
    dock.advance_at(10);
    assert!(withdrawn(&dock));
}

#[test]
fn p5_one_more_controller_that_was_never_asked_for_is_decided_anew_after_five_minutes() {
    let mut dock = dock(replace(), 1, since(0, json!("oneMore")), &[("i-0", OLD)]);
    for second in [10, 300] {
        let waits = Waits::Boot(Comes::OneMore, Vec::new());
        assert_eq!(dock.advance_at(second), (Place::OneMore, Some(waits)), "{second}");
        assert_eq!(dock.effects(), []);
    }
    assert_eq!(dock.advance_at(301), (Place::OneMore, Some(Waits::OneMoreController)));
    assert_eq!(dock.effects(), [wants(2)]);
}

/// It was asked about its own health, and the rollout that would have replaced it failed after an hour.
#[test]
fn p5_a_single_controller_gets_a_fellow_before_it_goes_however_ill_it_is_itself() {
    let mut dock = dock(replace(), 1, look_state(), &[("i-0", OLD)]);
    sees_ill_target(&mut dock, "i-0");
    assert_eq!(dock.advance_at(0), (Place::OneMore, Some(Waits::OneMoreController)));
    assert_eq!(dock.effects(), [wants(2)]);
}

/// Otherwise an outdated controller that is ill blocks its own replacement, because no other may go while it is ill.
#[test]
fn p5_of_outdated_controllers_the_one_that_load_balancers_find_ill_goes_first() {
    for (ill, sent) in [("i-0", "i-1"), ("i-1", "i-0")] {
        let mut dock = dock(replace(), 2, look_state(), &[("i-0", OLD), ("i-1", OLD)]);
        sees_ill_target(&mut dock, ill);
        assert_eq!(dock.advance_at(0), (Place::Check, others_answer()), "{ill}");
        assert_eq!(dock.commands_sent(), asks_status(&[sent]), "{ill}");
    }
}

fn sees_ill_target(dock: &mut Dock, machine: &str) {
    let group = dock.observed.groups.get_mut(GROUP).unwrap().as_mut().unwrap();
    let ill = TargetHealth::NotHealthy("unhealthy (Target.FailedHealthChecks) in api".to_owned());
    group.machines.get_mut(machine).unwrap().target = ill;
}

/// Auto Scaling would terminate the additional controller in the same minute.
#[test]
fn p5_no_controller_goes_while_auto_scaling_is_about_to_replace_another_one() {
    let machines = &[("i-0", OLD), ("i-1", OLD), ("i-2", NEW)];
    for (unhealthy, place) in [("i-0", Place::Drain), ("i-1", Place::Check), ("i-2", Place::Check)] {
        let mut dock = checked(replace(), 0, 0, machines);
        has(&mut dock, 3, machines);
        let group = dock.observed.groups.get_mut(GROUP).unwrap().as_mut().unwrap();
        group.machines.get_mut(unhealthy).unwrap().healthy = false;
        let (reached, waits) = dock.advance_at(10);
        assert_eq!(reached, place, "{unhealthy}: {waits:?}");
        let replaced = Waits::Dangers(vec![Danger::ReplacedByOthers(unhealthy.to_owned())]);
        assert_eq!(waits == Some(replaced), place == Place::Check, "{unhealthy}: {waits:?}");
    }
}

/// It comes back with what it had: its old credentials and configuration are not forgotten.
#[test]
fn p11_controllers_of_which_one_is_in_standby_with_what_it_had_are_not_all_as_planned() {
    for (version, left) in [("1", true), ("2", false)] {
        let machines = &[("i-0", NEW), ("i-1", ("elsewhere", version))];
        let mut dock = dock(replace(), 1, since(0, json!({"verify": []})), machines);
        assert_eq!(dock.advance_at(0), (Place::Verify, answers()));
        answer(&mut dock);
        assert_eq!(dock.advance_at(10), (Place::Done, None));
        assert_eq!(dock.step().is_skipped(), left, "{version}");
    }
    // With new credentials the configuration is the same, and only those that installed them have them.
    for (installed, left) in [(false, true), (true, false)] {
        let mut dock =
            dock(refresh(), 1, since(0, json!({"verify": []})), &[("i-0", NEW), ("i-1", ("elsewhere", "2"))]);
        let Task::Controllers(task) = &mut dock.active.nodes.steps[0].task else { panic!() };
        task.done.insert("i-0".to_owned());
        task.done.extend(installed.then(|| "i-1".to_owned()));
        dock.advance_at(0);
        answer(&mut dock);
        assert_eq!(dock.advance_at(10), (Place::Done, None));
        assert_eq!(dock.step().is_skipped(), left, "{installed}");
    }
}

#[test]
fn p5_one_more_controller_that_was_asked_for_is_waited_for_an_hour() {
    let mut dock = dock(replace(), 1, since(0, json!("oneMore")), &[]);
    has(&mut dock, 2, &[("i-0", OLD), ("i-1", BOOTS)]);
    for second in [10, 301, HOUR] {
        let waits = Waits::Boot(Comes::OneMore, vec![boot("i-1")]);
        assert_eq!(dock.advance_at(second), (Place::OneMore, Some(waits)), "{second}");
    }
    assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
    let why = "no new controller came within 60 minutes: i-1 boots; c-controller wants 2 machines until a rollout goes on";
    assert_eq!(dock.step().failure(), Some(why));
}

#[test]
fn p5_a_controller_that_was_told_to_go_and_still_serves_is_looked_at_anew_after_five_minutes() {
    let leave = || since(0, json!({"leave": {"machine": "i-0"}}));
    let departs = Departs { machine: "i-0".to_owned(), how: HowFar::Leaves };
    let waits = Some(Waits::Departure(departs));
    let mut dock = dock(replace(), 1, leave(), &[]);
    has(&mut dock, 2, &[("i-0", OLD), ("i-1", NEW)]);
    for second in [10, 300] {
        assert_eq!(dock.advance_at(second), (Place::Leave, waits.clone()), "{second}");
        assert_eq!(dock.effects(), []);
    }
    assert_eq!(dock.advance_at(301), (Place::Check, others_answer()));
    assert_eq!(dock.commands_sent(), asks_status(&["i-1"]));
    // A machine that is being terminated is waited for an hour.
    let mut dock = self::dock(replace(), 1, leave(), &[("i-0", LEAVES), ("i-1", NEW)]);
    for second in [10, 301, HOUR] {
        assert_eq!(dock.advance_at(second), (Place::Leave, waits.clone()), "{second}");
        assert_eq!(dock.effects(), []);
    }
    assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
    assert_eq!(dock.step().failure(), Some("i-0 was terminated and is still there after 60 minutes"));
}
