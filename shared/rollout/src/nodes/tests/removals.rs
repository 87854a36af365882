//! Removing a pool, look by look, and what is reverted if its rollout ends.

use super::dock::*;
use super::*;
use crate::StackView;
use crate::departures::DepartureState;
use crate::waits::{Boot, Comes, Departs, Detail, HowFar, Idle, Kept};

const HOUR: i64 = 3_600;

const POOL: &str = "c-pool-a";
const BOOTS: (&str, &str) = ("pending", "1");

fn stack(status: &str) -> Option<StackView> {
    let stack = json!({"id": "arn:1", "status": status, "reason": null, "tags": {"slipway:cluster": "c"}});
    Some(serde_json::from_value(stack).unwrap())
}

/// A pool of two machines that is removed.
fn pool(phase: Value) -> Dock {
    let mut dock = Dock::with_step(step("pool-a", removal(phase)));
    dock.active.nodes.controllers = Some("c-control-plane".to_owned());
    dock.sees("c-control-plane", &[]);
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD)]);
    dock.observed.stacks.insert(POOL.to_owned(), stack("UPDATE_COMPLETE"));
    dock
}

/// A pool whose two machines are empty.
fn empty() -> Dock {
    let mut dock = pool(since(0, json!("empty")));
    let Task::Removal(task) = &mut dock.active.nodes.steps[0].task else { panic!() };
    task.empty = ["i-1", "i-2"].map(str::to_owned).into();
    dock
}

fn waits(drains_of: &[&str], idle: Option<Idle>) -> Option<Waits> {
    let drains = |id: &&str| Departs { machine: (*id).to_owned(), how: HowFar::Drains(None) };
    let departs = drains_of.iter().map(drains).collect();
    Some(Waits::Removal { departs, idle, empty: Detail((0, 0)) })
}

fn kept() -> Kept {
    Kept { group: POOL.to_owned(), machine: "i-3".to_owned() }
}

fn deletes() -> Vec<Effect> {
    // The first effect of its rollout.
    let token = format!("{}-1", crate::operation_token("s", "arn:1", "delete"));
    vec![Effect::DeleteStack { stack: POOL.to_owned(), id: "arn:1".to_owned(), stands: true, token }]
}

#[test]
fn p6_a_pool_goes_once_all_its_machines_are_empty_one_after_the_other() {
    let mut dock = pool(open(json!("empty")));
    assert_eq!(dock.advance_at(0), (Place::Empty, waits(&["i-1"], None)));
    // A machine that is still being drained does not count as empty.
    assert_eq!(dock.advance_at(10), (Place::Empty, waits(&["i-1"], None)));
    let task = |fields: Value| {
        let mut task = json!({"pace": Pace::default(), "phase": open(json!("empty"))});
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        task
    };
    assert_eq!(dock.task(), task(json!({"begun": ["i-1"]})));
    dock.departures.get_mut("i-1").unwrap().state = DepartureState::Rest { emptied_at: at(0) };
    assert_eq!(dock.advance_at(20), (Place::Empty, waits(&["i-2"], None)));
    assert_eq!(dock.task(), task(json!({"begun": ["i-2"], "empty": ["i-1"]})));
    assert_eq!(Vec::from_iter(dock.departures.keys()), ["i-2"]);
    dock.departures.get_mut("i-2").unwrap().state = DepartureState::Rest { emptied_at: at(0) };
    assert_eq!(dock.advance_at(30), (Place::Delete, Some(Waits::DeletionBegins { emptied: true })));
    assert_eq!(dock.effects(), deletes());
}

/// A late answer of Auto Scaling does not show the machine that is being drained.
#[test]
fn p6_a_pool_whose_last_machine_is_being_drained_stays_whether_it_is_seen_or_not() {
    let mut dock = empty();
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD), ("i-3", OLD)]);
    assert_eq!(dock.advance_at(10), (Place::Empty, waits(&["i-3"], None)));
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD)]);
    assert_eq!((dock.advance_at(20), dock.effects()), ((Place::Empty, waits(&["i-3"], None)), Vec::new()));
    // It has left by itself.
    dock.departures.clear();
    assert_eq!(dock.advance_at(30).0, Place::Delete);
}

/// A cluster autoscaler launched it for the pods that were evicted. Its Node takes pods before Auto Scaling shows it in service.
#[test]
fn p6_a_pool_in_which_a_machine_boots_is_not_deleted_for_an_hour() {
    let boots = |machine: &str| {
        let boot = Boot { machine: machine.to_owned(), step: Detail(None), failure: None };
        Some(Waits::Boot(Comes::Earlier, vec![boot]))
    };
    let mut dock = empty();
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD), ("i-3", BOOTS)]);
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Empty, boots("i-3")), Vec::new()));
    // It serves: it is drained, and the wait for another one begins anew.
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD), ("i-3", OLD)]);
    assert_eq!(dock.advance_at(HOUR), (Place::Empty, waits(&["i-3"], None)));
    dock.departures.get_mut("i-3").unwrap().state = DepartureState::Rest { emptied_at: at(0) };
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD), ("i-3", OLD), ("i-4", BOOTS)]);
    for second in [HOUR + 10, 2 * HOUR + 10] {
        assert_eq!(dock.advance_at(second), (Place::Empty, boots("i-4")), "{second}");
    }
    // A pool whose machines never come is deleted nevertheless.
    assert_eq!(dock.advance_at(2 * HOUR + 11).0, Place::Delete);
    assert_eq!(dock.effects(), deletes());
}

#[test]
fn p6_an_empty_pool_stays_while_a_newer_spec_waits_or_no_window_is_open_or_its_group_keeps_a_machine() {
    let mut dock = Dock { newer: true, ..empty() };
    assert_eq!(dock.advance_at(10), (Place::Empty, waits(&[], Some(Idle::NewerSpec))));
    let mut dock = empty();
    dock.active.nodes.windows = vec![MaintenanceWindow { days: vec![], start_minute: 600, length_min: 30 }];
    let idle = Idle::Window { at_most_until: None };
    assert_eq!(dock.advance_at(10), (Place::Empty, waits(&[], Some(idle))));
    let mut dock = empty();
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD), ("i-3", ("retained", "1"))]);
    assert_eq!(dock.advance_at(10), (Place::Empty, Some(Waits::Kept(kept()))));
    // CloudFormation is changing its stack for another reason.
    let mut dock = empty();
    dock.observed.stacks.insert(POOL.to_owned(), stack("UPDATE_IN_PROGRESS"));
    let busy = Waits::StackBusy(crate::StackStatus::UpdateInProgress);
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Empty, Some(busy)), Vec::new()));
    // Somebody has already requested the deletion of the stack, so the rollout does not.
    let mut dock = empty();
    dock.observed.stacks.insert(POOL.to_owned(), stack("DELETE_IN_PROGRESS"));
    let begins = Waits::DeletionBegins { emptied: true };
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Delete, Some(begins)), Vec::new()));
}

#[test]
fn a_deletion_that_does_not_begin_is_waited_for_an_hour_and_one_that_has_begun_for_ever() {
    let mut dock = pool(since(0, json!("delete")));
    let waits = |kept| Some(Waits::Deletion { machines: Detail(2), kept });
    for second in [1, HOUR] {
        assert_eq!(dock.advance_at(second), (Place::Delete, waits(None)), "{second}");
    }
    dock.observed.stacks.insert(POOL.to_owned(), stack("DELETE_IN_PROGRESS"));
    dock.sees(POOL, &[("i-3", ("retained", "1"))]);
    assert_eq!(dock.advance_at(10 * HOUR), (Place::Delete, waits(Some(kept()))));
    dock.observed.stacks.insert(POOL.to_owned(), stack("UPDATE_COMPLETE"));
    assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
}

/// The state of each departing machine.
fn departs(dock: &Dock) -> Vec<(&str, HowFar)> {
    dock.departures.iter().map(|(id, one)| (id.as_str(), one.departs(id).how)).collect()
}

#[test]
fn p10_machines_of_a_pool_that_stays_after_all_take_pods_again() {
    let half = || {
        let mut dock = pool(open(json!("empty")));
        dock.advance_at(0);
        dock.departures.get_mut("i-1").unwrap().state = DepartureState::Rest { emptied_at: at(0) };
        dock.advance_at(10);
        assert_eq!(departs(&dock), [("i-2", HowFar::Drains(None))]);
        dock
    };
    let stay = [("i-1", HowFar::Stays), ("i-2", HowFar::Stays)];
    // A person skips one of them: the whole pool stays.
    let mut dock = half();
    dock.active.skipped.insert("i-2".to_owned());
    assert_eq!(dock.advance_at(20), (Place::Done, None));
    assert!(dock.step().is_skipped());
    assert_eq!(departs(&dock), stay);
    // The rollout ends.
    let mut dock = half();
    assert_eq!(dock.active.nodes.called_off(&mut dock.departures, at(20)), []);
    assert_eq!(departs(&dock), stay);
    // Once the deletion of the stack was requested, no command is sent: its machines are terminated.
    let mut dock = empty();
    assert_eq!(dock.advance_at(10).0, Place::Delete);
    assert_eq!(dock.active.nodes.called_off(&mut dock.departures, at(20)), []);
    assert_eq!(departs(&dock), []);
}

/// An earlier deletion failed, and the answer may be from before this one.
#[test]
fn p8_a_deletion_that_failed_is_believed_after_two_minutes() {
    for (second, place) in [(0, Place::Delete), (119, Place::Delete), (120, Place::Failed)] {
        let mut dock = pool(since(0, json!("delete")));
        dock.observed.stacks.insert(POOL.to_owned(), stack("DELETE_FAILED"));
        assert_eq!(dock.advance_at(second).0, place, "{second}");
    }
}

/// Until its departure is over, it may have been uncordoned and have taken pods again: the deletion of the stack would kill them.
#[test]
fn p6_an_empty_machine_that_ec2_wanted_to_interrupt_and_did_not_is_drained_again_before_its_pool_goes() {
    let mut dock = empty();
    let back = json!({
        "role": "pool-a", "group": POOL, "cause": {"interruption": {"at": at(0)}}, "since": at(0),
        "state": {"uncordon": {}},
    });
    dock.departures.insert("i-1".to_owned(), serde_json::from_value(back).unwrap());
    assert_eq!(dock.advance_at(10), (Place::Empty, waits(&[], Some(Idle::Others))));
    assert_eq!(dock.task()["empty"], json!(["i-2"]));
    dock.departures.clear();
    assert_eq!(dock.advance_at(20), (Place::Empty, waits(&["i-1"], None)));
    assert_eq!(dock.effects(), []);
}

/// A group with machines is not deleted, so the pool would be half deleted.
#[test]
fn p6_a_pool_with_a_machine_in_standby_or_held_in_its_hook_is_not_deleted() {
    let mut dock = empty();
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD), ("i-3", ("elsewhere", "1"))]);
    let standby = Waits::Standby { group: POOL.to_owned(), machine: "i-3".to_owned() };
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Empty, Some(standby)), Vec::new()));
    let mut dock = empty();
    dock.sees(POOL, &[("i-1", OLD), ("i-2", OLD), ("i-3", ("terminatingWait", "1"))]);
    let by_others = Departure::by_auto_scaling(Role::Pool("a".to_owned()), POOL, None, at(0));
    let waits = Waits::Departure(by_others.departs("i-3"));
    dock.departures.insert("i-3".to_owned(), by_others);
    assert_eq!((dock.advance_at(10), dock.effects()), ((Place::Empty, Some(waits)), Vec::new()));
}

#[test]
fn p6_a_worker_that_ec2_wanted_to_interrupt_and_that_is_slow_to_take_pods_again_fails_no_removal() {
    for (cause, place) in
        [(json!({"interruption": {"at": at(0)}}), Place::Empty), (json!({"rollout": "rests"}), Place::Failed)]
    {
        let mut dock = pool(open(json!("empty")));
        dock.advance_at(0);
        let one = json!({
            "role": "pool-a", "group": POOL, "cause": cause, "since": at(0), "state": {"uncordon": {}}, "problem": "no",
        });
        dock.departures.insert("i-1".to_owned(), serde_json::from_value(one).unwrap());
        assert_eq!(dock.advance_at(10).0, place, "{cause}");
    }
}

/// The function stood still, or Run Command was down, until the window had closed.
#[test]
fn p6_a_drain_that_was_decided_in_a_window_and_not_requested_does_not_begin_after_it() {
    let windows = vec![MaintenanceWindow { days: vec![], start_minute: 0, length_min: 30 }];
    for (second, rounds, stays) in [(1_700, 0, true), (1_900, 0, false), (1_900, 1, true)] {
        let mut dock = pool(open(json!("empty")));
        dock.active.nodes.windows.clone_from(&windows);
        dock.advance_at(0);
        dock.departures.values_mut().for_each(|one| one.rounds = rounds);
        dock.active.nodes.reconsider(&mut dock.departures, &dock.observed, at(second));
        assert_eq!(!dock.departures.is_empty(), stays, "{second} {rounds}");
    }
}
