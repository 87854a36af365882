//! Refreshing workers in place, look by look.

use slipway_core::node::Refreshed;

use super::dock::*;
use super::*;
use crate::waits::{Boot, Comes, Detail, Many};

const HOUR: i64 = 3_600;

const BOOTS: (&str, &str) = ("pending", "1");

fn pool(phase: Value) -> Dock {
    Dock::with_step(step("pool-a", pool_refresh(phase)))
}

fn takes(machine: &str) -> (String, Verb) {
    (machine.to_owned(), Verb::Refresh { credentials: "new".to_owned(), restart: true })
}

fn has(credentials: &str) -> Refreshed {
    serde_json::from_value(json!({"changed": true, "credentials": credentials})).unwrap()
}

#[test]
fn a_worker_of_before_that_boots_is_waited_for_an_hour_and_a_pool_that_seems_as_planned_two_minutes() {
    let mut dock = pool(look_state());
    dock.sees("c-pool-a", &[("i-1", BOOTS)]);
    let boot = Boot { machine: "i-1".to_owned(), step: Detail(None), failure: None };
    for second in [0, HOUR] {
        let waits = Waits::Boot(Comes::Earlier, vec![boot.clone()]);
        assert_eq!(dock.advance_at(second), (Place::Look, Some(waits)), "{second}");
    }
    for second in [HOUR + 1, HOUR + 120] {
        assert_eq!(
            dock.advance_at(second),
            (Place::Look, Some(Waits::SecondLook(Many::Several))),
            "{second}"
        );
    }
    assert_eq!(dock.advance_at(HOUR + 121), (Place::Done, None));
    // If some workers were refreshed, the group's answer is not late.
    let mut dock = pool(look_state());
    dock.sees("c-pool-a", &[("i-1", OLD)]);
    let Task::PoolRefresh(task) = &mut dock.active.nodes.steps[0].task else { panic!() };
    task.done.insert("i-1".to_owned());
    assert_eq!(dock.advance_at(0), (Place::Done, None));
}

#[test]
fn p7_a_worker_that_does_not_take_its_credentials_is_told_so_again_after_pauses_before_any_other() {
    let mut dock = pool(look_state());
    dock.sees("c-pool-a", &[("i-1", OLD), ("i-2", OLD)]);
    let again = (Place::Look, Some(Waits::AnotherTry(Detail(String::new()))));
    // It reports other credentials than it should have; then it fails.
    assert_eq!(dock.advance_at(0), (Place::Refresh, Some(Waits::Credentials(vec!["i-1".to_owned()]))));
    assert_eq!(dock.commands_sent(), [takes("i-1")]);
    dock.set_answer(&dock.token(), has("older"));
    assert_eq!(dock.advance_at(10), again);
    let failed = |tries, second, why| {
        let tried = json!({"tries": tries, "last": {"at": at(second), "why": why}});
        json!({"machine": "i-1", "byDocument": {"Slipway-Refresh": tried}})
    };
    assert_eq!(dock.task()["tries"], failed(1, 10, "it has the credentials older"));
    assert_eq!((dock.advance_at(69), dock.effects()), (again.clone(), Vec::new()));
    assert_eq!(dock.advance_at(70).0, Place::Refresh);
    assert_eq!(dock.commands_sent(), [takes("i-1")]);
    dock.fails(&dock.token());
    assert_eq!(dock.advance_at(80), again);
    assert_eq!(dock.task()["tries"], failed(2, 80, "no"));
    assert_eq!((dock.advance_at(379), dock.effects()), (again, Vec::new()));
    assert_eq!(dock.advance_at(380).0, Place::Refresh);
    assert_eq!(dock.commands_sent(), [takes("i-1")]);
    // Finally it is refreshed, and the next one follows: the failures of the first one are forgotten.
    dock.set_answer(&dock.token(), has("new"));
    assert_eq!(dock.advance_at(390), (Place::Refresh, Some(Waits::Credentials(vec!["i-2".to_owned()]))));
    assert_eq!(dock.commands_sent(), [takes("i-2")]);
    let state = json!({"refresh": dock.step().commands()});
    let task = json!({
        "credentials": "new", "pace": Pace::default(), "done": ["i-1"], "phase": since(390, state),
    });
    assert_eq!(dock.task(), task);
}

#[test]
fn how_often_one_worker_failed_counts_neither_for_the_next_nor_once_it_has_taken_its_credentials() {
    let mut dock = pool(look_state());
    let tries = json!({"machine": "i-1", "byDocument": {"Slipway-Refresh": {"tries": 2}}});
    let Task::PoolRefresh(task) = &mut dock.active.nodes.steps[0].task else { panic!() };
    task.tries = serde_json::from_value(tries).unwrap();
    // The failed machine is gone.
    dock.sees("c-pool-a", &[("i-2", OLD)]);
    assert_eq!(dock.advance_at(300).0, Place::Refresh);
    assert_eq!((dock.commands_sent(), dock.task().get("tries")), (vec![takes("i-2")], None));
    dock.fails(&dock.token());
    assert_eq!(dock.advance_at(310).0, Place::Look);
    assert_eq!(dock.task()["tries"]["byDocument"]["Slipway-Refresh"]["tries"], 1);
    // Nor once it is refreshed.
    assert_eq!(dock.advance_at(370).0, Place::Refresh);
    dock.set_answer(&dock.token(), has("new"));
    assert_eq!((dock.advance_at(380), dock.task().get("tries")), ((Place::Done, None), None));
}

/// It comes back with the credentials of before.
#[test]
fn p7_a_worker_in_standby_counts_as_skipped_when_its_pool_is_refreshed() {
    for (done, skipped) in [(&["i-1"][..], true), (&["i-1", "i-3"], false)] {
        let mut dock = pool(look_state());
        dock.sees("c-pool-a", &[("i-1", OLD), ("i-3", ("elsewhere", "1"))]);
        let Task::PoolRefresh(task) = &mut dock.active.nodes.steps[0].task else { panic!() };
        task.done.extend(done.iter().map(|id| (*id).to_owned()));
        assert_eq!(dock.advance_at(0), (Place::Done, None));
        assert_eq!(dock.step().is_skipped(), skipped);
    }
}

/// It was waited for for half an hour.
#[test]
fn p7_a_worker_that_goes_while_it_is_refreshed_is_not_waited_for() {
    let mut dock = pool(look_state());
    dock.sees("c-pool-a", &[("i-1", OLD)]);
    assert_eq!(dock.advance_at(0).0, Place::Refresh);
    dock.sees("c-pool-a", &[("i-9", OLD)]);
    for (second, machine) in [(120, "i-1"), (121, "i-9")] {
        let waits = Waits::Credentials(vec![machine.to_owned()]);
        assert_eq!(dock.advance_at(second), (Place::Refresh, Some(waits)), "{second}");
    }
}
