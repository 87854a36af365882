//! Machines that are being uncordoned when a destruction is ordered.

use super::*;

/// Finally the deletion of their stack was not requested: without this rule they would stay cordoned.
#[test]
fn p10_a_machine_on_its_way_back_takes_pods_again_where_its_stack_stays_after_all() {
    for is_aborted in [true, false] {
        let mut quay = Quay::new();
        let back = serde_json::json!({
            "role": "pool-a", "group": "c-pool-a", "cause": {"rollout": "replaced"}, "state": {"uncordon": {}}, "since": at(0),
        });
        quay.state.departures.insert("i-w".to_owned(), serde_json::from_value(back).unwrap());
        quay.serving = vec!["i-w"];
        quay.wake(Some(ordered(0, true)));
        while !quay.deletions().contains(&"c-pool-a") {
            quay.wake(None);
        }
        let effect = Effect::DeleteStack {
            stack: "c-pool-a".to_owned(),
            id: "c-pool-a".to_owned(),
            stands: true,
            token: String::new(),
        };
        // The deletion was not performed.
        quay.harbour.fake.stacks.insert("c-pool-a".to_owned(), StackStatus::CreateComplete);
        let evidence = None;
        quay.state.outbox.push(Pending { id: 1_000, effect, decided_at: at(0), evidence });
        quay.serving.push("i-cp");
        let report = if is_aborted {
            let minute = quay.minute;
            let mut report = quay.wake(Some(Given { order: Order::Abort { plan: None }, at: at(minute) }));
            // An invocation may have requested the deletion before it died.
            for _ in 0..2 {
                assert_eq!(report.state.as_str(), "aborting", "{}", report.message);
                report = quay.wake(None);
            }
            report
        } else {
            let refused = EffectOutcome::Refused("CloudFormation refuses c-pool-a: in use".to_owned());
            quay.state = quay.state.clone().recorded(&[(1_000, refused)]);
            quay.wake(None)
        };
        assert_eq!(
            report.state.as_str(),
            if is_aborted { "aborted" } else { "failed" },
            "{}",
            report.message
        );
        quay.wake(None);
        assert!(quay.log.contains(&"Slipway-Uncordon on i-cp".to_owned()), "{is_aborted}: {:?}", quay.log);
    }
}

/// An invocation requested the deletion and died before it recorded that, and the abort withdrew it.
#[test]
fn p10_a_deletion_that_comes_to_light_after_the_abort_is_seen_to_its_end() {
    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, true)));
    while !quay.deletions().contains(&"c-pool-a") {
        quay.wake(None);
    }
    quay.harbour.fake.stacks.insert("c-pool-a".to_owned(), StackStatus::UpdateComplete);
    let effect = Effect::DeleteStack {
        stack: "c-pool-a".to_owned(),
        id: "c-pool-a".to_owned(),
        stands: true,
        token: String::new(),
    };
    quay.state.outbox.push(Pending { id: 1_000, effect, decided_at: at(0), evidence: None });
    let minute = quay.minute;
    let report = quay.wake(Some(Given { order: Order::Abort { plan: None }, at: at(minute) }));
    assert_eq!(report.state.as_str(), "aborting", "{}", report.message);
    quay.harbour.fake.stacks.insert("c-pool-a".to_owned(), StackStatus::DeleteInProgress);
    for _ in 0..5 {
        assert_eq!(quay.wake(None).state.as_str(), "aborting");
    }
    quay.harbour.fake.stacks.remove("c-pool-a");
    let report = quay.wake(None);
    assert_eq!(report.state.as_str(), "aborted", "{}", report.message);
    assert!(!quay.state.deployed.contains_key("c-pool-a"));
}

/// Nothing was looked at between another order and its abort.
#[test]
fn p10_a_withdrawn_deletion_may_come_to_light_after_another_order_too() {
    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, true)));
    quay.state.destroy_mut().unwrap().withdrawn = true;
    let abort = |minute| Given { order: Order::Abort { plan: None }, at: at(minute) };
    for given in [abort(1), ordered(2, true)] {
        quay.state = after_order(&quay.state, &given, None, given.at);
    }
    assert_eq!(quay.state.destroy().unwrap().attempt, 2);
    quay.minute = 3;
    for state in [RolloutState::Aborting, RolloutState::Aborting, RolloutState::Aborted] {
        let report = quay.wake((quay.minute == 3).then(|| abort(3)));
        assert_eq!(report.state, state, "{}", report.message);
    }
}

#[test]
fn what_becomes_of_machines_whose_stack_is_seen_to_go_is_not_waited_for() {
    let mut quay = Quay::new();
    let back = serde_json::json!({
        "role": "pool-a", "group": "c-pool-a", "cause": {"rollout": "replaced"}, "state": {"uncordon": {}}, "since": at(0),
    });
    quay.state.departures.insert("i-w".to_owned(), serde_json::from_value(back).unwrap());
    quay.serving = vec!["i-w"];
    quay.harbour.fake.deleting = Some(StackStatus::DeleteInProgress);
    quay.wake(Some(ordered(0, true)));
    while !quay.deletions().contains(&"c-pool-a") {
        quay.wake(None);
    }
    assert!(quay.state.departures.contains_key("i-w"), "the deletion was only requested");
    quay.wake(None);
    assert!(quay.state.departures.is_empty());
}
