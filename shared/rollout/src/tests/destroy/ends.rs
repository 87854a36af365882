//! The end of a destruction.

use slipway_plan::StackAction;

use super::*;

#[test]
fn controllers_whose_stack_goes_are_not_waited_for_in_their_terminate_hooks() {
    let mut quay = Quay::new();
    quay.hooked = vec!["i-cp"];
    quay.wake(Some(ordered(0, false)));
    while !quay.deletions().contains(&"c-control-plane") {
        quay.wake(None);
    }
    quay.harbour.fake.stacks.insert("c-control-plane".to_owned(), StackStatus::CreateComplete);
    quay.wake(None);
    let let_go = |quay: &Quay| quay.log.contains(&"let i-cp go".to_owned());
    assert!(
        !let_go(&quay),
        "the deletion may not have been requested, and the order may be aborted: {:?}",
        quay.log
    );
    quay.harbour.fake.stacks.insert("c-control-plane".to_owned(), StackStatus::DeleteInProgress);
    quay.wake(None);
    assert!(let_go(&quay), "{:?}", quay.log);
}

#[test]
fn what_is_called_off_when_the_last_of_it_is_gone_was_destroyed() {
    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, false)));
    while !quay.deletions().contains(&"c-network") {
        quay.wake(None);
    }
    quay.harbour.fake.stacks.clear();
    let minute = quay.minute;
    let report = quay.wake(Some(Given { order: Order::Abort { plan: None }, at: at(minute) }));
    assert_eq!(
        report.state.as_str(),
        "destroyed",
        "nothing is left that an upload could bring back: {}",
        report.message
    );
    assert!(quay.state.was_destroyed().is_some());
}

#[test]
fn p10_a_pool_that_is_half_gone_and_no_longer_wanted_is_taken_away_by_the_next_rollout() {
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    assert_eq!(quay.run(ordered(0, false)).state.as_str(), "failed");
    assert!(!quay.state.deployed.contains_key("c-pool-b"), "it cannot be updated any more");
    assert!(quay.state.unfinished.contains_key("c-pool-b"), "{:?}", quay.state.unfinished);
    let mut release = exporting(2, true);
    release.stacks.retain(|stack| stack.name != "c-pool-b");
    release.roles.remove(&Role::Pool("b".to_owned()));
    for (release, action) in [(exporting(2, true), StackAction::Create), (release, StackAction::Delete)] {
        let plan = quay.harbour.plan(&quay.state, &release).plan;
        let pool = plan.stacks.iter().find(|stack| stack.name == "c-pool-b").unwrap();
        assert_eq!(pool.action, action);
    }
}

#[test]
fn p4_an_order_with_a_last_snapshot_counts_after_one_without() {
    for etcd_stands in [true, false] {
        let mut quay = Quay::new();
        if !etcd_stands {
            quay.members = 0;
            quay.state.deployed.remove("c-etcd");
        }
        quay.wake(Some(ordered(0, true)));
        let minute = quay.minute;
        assert_eq!(quay.run(ordered(minute, false)).state.as_str(), "destroyed");
        let gone = quay.log.iter().position(|line| line == "delete c-etcd");
        let taken = quay.log.iter().position(|line| line.starts_with("Slipway-EtcdSnapshot"));
        assert_eq!(taken.is_some(), etcd_stands, "{:?}", quay.log);
        assert!(taken.is_none_or(|taken| gone.is_some_and(|gone| taken < gone)), "{:?}", quay.log);
    }
}

#[test]
fn p10_a_destruction_whose_resume_comes_over_an_hour_late_looks_for_its_leader_anew() {
    let mut quay = Quay::new();
    quay.members = 0;
    (0..3).for_each(|minute| {
        quay.wake((minute == 0).then(|| ordered(0, false)));
    });
    quay.wake(Some(Given { order: Order::Pause, at: at(3) }));
    (0..100).for_each(|_| {
        quay.wake(None);
    });
    // Given a minute after the pause. Members come back soon after it was received.
    let report = quay.wake(Some(Given { order: Order::Resume, at: at(4) }));
    assert_eq!(report.state.as_str(), "destroying", "{}", report.message);
    quay.wake(None);
    quay.members = 3;
    while quay.state.destroy().is_some_and(|open| !open.has_stopped()) {
        quay.wake(None);
    }
    let gone = quay.state.was_destroyed().expect("nothing had failed");
    assert_eq!(gone.snapshot.as_deref(), Some(KEY));
}

#[test]
fn a_deletion_that_cloudformation_refuses_stops_a_destruction_and_one_that_came_too_late_is_told_again() {
    for outcome in
        [EffectOutcome::Refused("CloudFormation refuses c-pool-a: in use".to_owned()), EffectOutcome::Dropped]
    {
        let mut quay = Quay::new();
        quay.wake(Some(ordered(0, false)));
        while !quay.state.destroy().unwrap().stacks.iter().any(|going| going.state != GoingState::Stands) {
            quay.wake(None);
        }
        // The deletion was never requested.
        let told = quay.deletions().len();
        quay.harbour.fake.stacks.insert("c-pool-a".to_owned(), StackStatus::CreateComplete);
        let effect = Effect::DeleteStack {
            stack: "c-pool-a".to_owned(),
            id: "c-pool-a".to_owned(),
            stands: true,
            token: String::new(),
        };
        let pending = Pending { id: 1_000, effect, decided_at: at(0), evidence: None };
        let state = Rollout { outbox: vec![pending], ..quay.state.clone() };
        quay.state = state.recorded(&[(1_000, outcome.clone())]);
        let report = quay.wake(None);
        let again = quay.deletions()[told..].contains(&"c-pool-a");
        assert_eq!(again, outcome == EffectOutcome::Dropped, "{:?}", quay.log);
        let says =
            report.message.contains("the destruction stopped: CloudFormation refuses c-pool-a: in use");
        assert_eq!(says, !again, "{}", report.message);
    }
}

#[test]
fn a_late_answer_without_tags_does_not_make_a_stack_that_is_being_deleted_somebody_elses() {
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteInProgress);
    quay.wake(Some(ordered(0, false)));
    while !quay.deletions().contains(&"c-pool-a") {
        quay.wake(None);
    }
    quay.harbour.fake.tags.clear();
    for _ in 0..3 {
        let report = quay.wake(None);
        assert_eq!(report.state.as_str(), "destroying", "{}", report.message);
    }
    quay.harbour.fake.tags = BTreeMap::from([("slipway:cluster".to_owned(), "another".to_owned())]);
    assert!(quay.wake(None).message.contains("is not Slipway's"));
}

/// The earlier deletion failed, and the first answer after another order is from before the new one.
#[test]
fn p10_a_failure_of_the_deletion_before_does_not_end_the_one_that_another_order_began() {
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    assert_eq!(quay.run(ordered(0, false)).state.as_str(), "failed");
    let minute = quay.minute;
    let mut report = quay.wake(Some(ordered(minute, true)));
    for _ in 0..2 {
        assert_eq!(report.state.as_str(), "destroying", "{}", report.message);
        report = quay.wake(None);
    }
    // After two minutes it is the answer about this one.
    assert_eq!(quay.wake(None).state.as_str(), "failed");
    quay.harbour.fake.deleting = None;
    let minute = quay.minute;
    assert_eq!(quay.run(ordered(minute, true)).state.as_str(), "destroyed");
}

/// A person gave the order twice, and the event of the second one was redriven after the cluster was launched anew.
#[test]
fn p8_an_order_from_before_the_end_does_not_destroy_what_was_launched_anew() {
    let mut quay = Quay::new();
    assert_eq!(quay.run(ordered(0, false)).state.as_str(), "destroyed");
    let (ended, second) = (quay.minute - 1, ordered(1, false));
    assert!(quay.state.destroys_over >= Some(second.at) && quay.state.destroys_over == Some(at(ended)));
    let anew = Quay::new().state.deployed;
    quay.state = Rollout { deployed: anew, activity: Activity::Idle, ..quay.state.clone() };
    quay.wake(Some(second));
    assert!(!quay.state.is_going());
    let minute = quay.minute;
    quay.wake(Some(ordered(minute, false)));
    assert!(quay.state.is_going());
}

/// Members and API servers find each other by these records, and only a boot writes them.
#[test]
fn p10_an_abort_after_members_were_told_to_delete_their_records_says_how_they_come_back() {
    let words = "first reboot the machines of the groups c-etcd-0";
    for (told, says) in [("Slipway-EtcdRetire", true), ("Slipway-EtcdSnapshot", false)] {
        let mut quay = Quay::new();
        quay.retires = None;
        quay.wake(Some(ordered(0, false)));
        while !quay.log.iter().any(|line| line.contains(told)) {
            quay.wake(None);
        }
        let minute = quay.minute;
        let report = quay.wake(Some(Given { order: Order::Abort { plan: None }, at: at(minute) }));
        assert_eq!(report.state.as_str(), "aborted", "{}", report.message);
        assert_eq!(report.message.contains(words), says, "{}", report.message);
    }
}

/// An hour is the patience with members that do not answer.
#[test]
fn p4_a_destruction_that_waited_for_a_rollout_to_end_is_as_patient_as_any() {
    let state = crate::tests::decisions::rolling(&[], &[]);
    let going = after_order(&state, &ordered(0, false), None, at(0));
    assert!(going.active().is_some() && going.is_going());
    let ended = decide(&going, &Observed::default(), at(120)).next;
    assert_eq!(ended.active(), None);
    let LastSnapshot::Wanted { save: Save::Leader(inquiry), .. } = &ended.destroy().unwrap().snapshot else {
        panic!("{:?}", ended.destroy());
    };
    assert_eq!(inquiry.since, at(120));
}

#[test]
fn p7_a_destruction_that_has_stopped_or_is_paused_makes_no_progress() {
    let mut quay = Quay::new();
    assert_eq!(quay.state.stalled_destruction(), None);
    quay.wake(Some(ordered(0, false)));
    assert_eq!((quay.state.is_going(), quay.state.stalled_destruction()), (true, None));
    let minute = quay.minute;
    quay.wake(Some(Given { order: Order::Pause, at: at(minute) }));
    assert_eq!(quay.state.stalled_destruction(), Some(at(0)));
    let mut quay = Quay::new();
    quay.snapshot = Err("no");
    assert_eq!(quay.run(ordered(0, false)).state.as_str(), "failed");
    assert_eq!(quay.state.stalled_destruction(), Some(at(0)));
}

/// Otherwise the last snapshot would be taken again, and a person who aborted would see the destruction go on.
#[test]
fn p8_an_order_to_destroy_that_comes_twice_while_it_is_obeyed_changes_nothing() {
    let mut quay = Quay::new();
    let order = ordered(0, false);
    quay.wake(Some(order.clone()));
    while !quay.deletions().contains(&"c-control-plane") {
        quay.wake(None);
        let minute = quay.minute;
        let again = after_order(&quay.state, &order, None, at(minute));
        assert_eq!(again, quay.state, "minute {minute}");
    }
}

/// Somebody ordered it again between two aborts, and the events come in another order.
#[test]
fn p8_p10_the_newest_abort_of_a_destruction_decides_whichever_abort_comes_last() {
    let abort = |minute| Given { order: Order::Abort { plan: None }, at: at(minute) };
    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, true)));
    for given in [abort(9), abort(5), ordered(7, true)] {
        quay.state = after_order(&quay.state, &given, None, at(10));
    }
    let open = quay.state.destroy().unwrap();
    assert_eq!((open.aborted, open.attempt), (Some(at(9)), 1));
}

/// It costs money, and no later rollout would find it.
#[test]
fn a_stack_that_some_earlier_rollout_began_and_did_not_complete_is_deleted_with_the_others() {
    let mut quay = Quay::new();
    let last = quay.state.last.as_ref().unwrap();
    assert!(!last.steps.iter().any(|step| step.stack == "c-pool-old"));
    quay.state.unfinished.insert("c-pool-old".to_owned(), last.target.clone());
    quay.harbour.fake.stacks.insert("c-pool-old".to_owned(), StackStatus::RollbackFailed);
    assert_eq!(quay.run(ordered(0, true)).state, RolloutState::Destroyed);
    assert!(quay.deletions().contains(&"c-pool-old"), "{:?}", quay.log);
    assert!(quay.harbour.fake.stacks.is_empty() && quay.state.unfinished.is_empty());
}

#[test]
fn p10_the_abort_of_a_plan_is_no_word_on_an_order_to_destroy_that_comes_after_it() {
    for (plan, is_going) in [(Some("p".to_owned()), true), (None, false)] {
        let mut quay = Quay::new();
        quay.wake(Some(Given { order: Order::Abort { plan: plan.clone() }, at: at(5) }));
        quay.wake(Some(ordered(4, false)));
        assert_eq!(quay.state.is_going(), is_going, "{plan:?}");
    }
}

/// The tokens under which the stack of pool `a` is to be deleted, until the destruction ends or stops.
fn deletion_tokens(quay: &mut Quay, order: &Given) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut order = Some(order.clone());
    for _ in 0..200 {
        let now = at(quay.minute);
        // As the next wake does it.
        let state = order.as_ref().map(|order| after_order(&quay.state, order, None, now));
        let state = state.map_or_else(|| quay.state.clone(), |state| Rollout { outbox: Vec::new(), ..state });
        let look = to_observe(&state, None, now);
        let observed = quay.harbour.fake.observe(&look, None);
        for effect in decide(&state, &observed, now).effects {
            if let Effect::DeleteStack { stack, token, .. } = effect
                && stack == "c-pool-a"
            {
                tokens.push(token);
            }
        }
        quay.wake(order.take());
        if quay.state.destroy().is_none_or(Destroy::has_stopped) {
            break;
        }
    }
    tokens
}

/// CloudFormation takes a call with the token of an earlier one for that one, and deletes nothing.
#[test]
fn p8_a_stack_is_deleted_under_another_token_by_each_order() {
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    let mut tokens = deletion_tokens(&mut quay, &ordered(0, true));
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    let minute = quay.minute;
    tokens.extend(deletion_tokens(&mut quay, &ordered(minute, true)));
    assert_eq!(tokens.len(), 2, "{tokens:?}");
    assert_ne!(tokens[0], tokens[1]);
}
