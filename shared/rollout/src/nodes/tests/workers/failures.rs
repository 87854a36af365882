//! When a pool fails, and what counts against it.

use super::*;

#[test]
fn a_pool_that_is_not_whole_for_an_hour_fails_where_its_first_was_not_replaced_or_too_many_failed() {
    // One is missing; or all are there and one more boots, as when Auto Scaling balances zones.
    let one_more = [("i-1", OLD), ("i-2", OLD), ("i-3", BOOTS)];
    for machines in [&one_more[..1], &one_more] {
        let mut dock = pool(2, machines, &json!({"pace": pace(0, 1)})).without_room();
        dock.active.nodes.budget = 5;
        assert_eq!((dock.advance_at(0).0, dock.advance_at(HOUR).0), (Place::Look, Place::Look));
        assert_eq!((dock.advance_at(HOUR + 1).0, dock.active.nodes.failures), (Place::Failed, 1));
        // After the canary, one such hour counts as one failure, and one failure is allowed.
        let fields = json!({"pace": pace(0, 1), "proved": true});
        let mut dock = pool(2, machines, &fields).without_room();
        dock.active.nodes.budget = 1;
        for (second, place, failures) in [
            (0, Place::Look, 0),
            (HOUR, Place::Look, 0),
            (HOUR + 1, Place::Look, 1),
            (2 * HOUR + 1, Place::Look, 1),
            (2 * HOUR + 2, Place::Failed, 2),
        ] {
            assert_eq!(
                (dock.advance_at(second).0, dock.active.nodes.failures),
                (place, failures),
                "{second}"
            );
        }
    }
}

/// It took another day each time.
#[test]
fn p6_a_worker_that_could_not_be_drained_is_not_the_surplus_one() {
    let machines: Vec<_> =
        ["i-0", "i-1", "i-2", "i-3"].map(|id| (id, NEW)).into_iter().chain([("i-4", OLD)]).collect();
    let mut dock = pool(
        5,
        &machines,
        &json!({
            "pace": pace(0, 1), "extra": extra(1), "proved": true, "givenUp": {"i-4": "no"},
        }),
    );
    dock.active.nodes.budget = 2;
    dock.advance_at(0);
    let goes: Vec<_> = dock.departures.keys().collect();
    assert_eq!(goes, ["i-3"]);
}

/// A roll of many workers takes hours, and each successor has an hour of its own.
#[test]
fn a_pool_that_was_whole_or_at_work_in_between_has_its_hour_again() {
    let state = since(0, json!({"roll": {"begun": {"i-1": "goes"}}}));
    let mut dock = pool(2, &[("i-1", OLD), ("i-2", BOOTS)], &json!({"phase": state}));
    dock.departs("i-1", Ending::Replaced);
    assert_eq!(dock.advance_at(3_700).0, Place::Roll);
    dock.departures.clear();
    for second in [3_710, 3_710 + 3_600] {
        dock.wants(2, &[("i-2", BOOTS), ("i-3", BOOTS)]);
        let waits = waits(&[], Some(&["i-2", "i-3"]), None);
        assert_eq!(dock.advance_at(second), (Place::Look, waits), "{second}");
    }
    assert_eq!(dock.advance_at(3_710 + 3_601).0, Place::Failed);
}

/// EC2 takes Spot machines and leaves others of which it said that it would: neither says anything of the new release.
#[test]
fn a_worker_that_ec2_wanted_to_interrupt_and_that_could_not_be_drained_is_no_failure_of_the_rollout() {
    for (interrupted, place) in [(true, Place::Roll), (false, Place::Failed)] {
        let state = since(0, json!({"roll": {"begun": {"i-1": "goes"}}}));
        let mut dock = pool(2, &[("i-1", OLD), ("i-2", OLD)], &json!({"phase": state}));
        dock.departs("i-1", Ending::Replaced);
        let one = dock.departures.get_mut("i-1").unwrap();
        one.withdraw(Some("no".to_owned()), at(5));
        if interrupted {
            one.cause = serde_json::from_value(json!({"interruption": {"at": at(5)}})).unwrap();
        }
        assert_eq!(dock.advance_at(10).0, place, "interrupted: {interrupted}");
        assert_eq!(dock.task().get("givenUp").is_none(), interrupted);
    }
}
