//! Stop is stop (P10): orders to a rollout, at every moment, repeated, late, and in any order.

use serde_json::json;

use super::decisions::rolling;
use super::undeleted::{Harbour, exporting};
use super::*;
use crate::RolloutResult;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn given(order: Order, second: i64) -> Given {
    Given { order, at: at(second) }
}

fn abort() -> Order {
    Order::Abort { plan: None }
}

/// A launch that is woken step by step, with its own clock.
struct Run {
    fake: Fake,
    state: Rollout,
    wanted: Wanted,
    report: Report,
    second: i64,
}

impl Run {
    fn new() -> Self {
        let wanted = wanted(&rendering(1), &Baseline::default(), Approval::Auto);
        Self {
            fake: Fake::default(),
            state: Rollout::new("c"),
            wanted,
            report: Report::default(),
            second: 100,
        }
    }

    fn wake(&mut self, order: Option<&Given>) {
        self.second += 10;
        if let Some(order) = order {
            let state = std::mem::replace(&mut self.state, Rollout::new(""));
            self.state = self.fake.after_order_performed(state, order, Some(&self.wanted), at(self.second));
        }
        let look = to_observe(&self.state, Some(&self.wanted), at(self.second));
        let observed = self.fake.observe(&look, Some(&self.wanted));
        let decision = decide(&self.state, &observed, at(self.second));
        self.fake.perform(&decision.effects);
        self.state = Rollout { outbox: Vec::new(), ..decision.next };
        self.report = decision.report;
    }

    fn give(&mut self, order: Order) {
        let given = given(order, self.second + 10);
        self.wake(Some(&given));
    }

    /// Wakes it often enough that it would come to rest if it could.
    fn rest(&mut self) {
        for _ in 0..40 {
            self.wake(None);
        }
    }

    fn begun(&self) -> Vec<&String> {
        let begins = |line: &&String| ["change set", "execute"].iter().any(|word| line.starts_with(word));
        self.fake.log.iter().filter(begins).collect()
    }

    fn times(&self, what: &str) -> usize {
        self.fake.log.iter().filter(|line| line.as_str() == what).count()
    }
}

/// The number of wakes of an undisturbed launch.
fn whole() -> usize {
    let mut run = Run::new();
    (1..)
        .find(|_| {
            run.wake(None);
            run.state.active().is_none()
        })
        .unwrap()
}

/// A sender chooses the time of its event, and clocks differ by seconds.
#[test]
fn p10_an_order_from_the_future_counts_from_when_it_is_received_unless_clocks_explain_it() {
    let apart = CLOCKS_APART.as_secs();
    for (given, counts) in [(-100, -100), (0, 0), (apart, apart), (apart + 1, 0), (2_000_000_000, 0)] {
        assert_eq!(Given::received(Order::Pause, at(given), at(0)).at, at(counts), "{given}");
    }
}

#[test]
fn p10_after_a_pause_nothing_new_starts_and_a_resume_goes_on_to_the_end() {
    for moment in 0..whole() {
        let mut run = Run::new();
        (0..moment).for_each(|_| run.wake(None));
        run.give(Order::Pause);
        let begun = run.begun().len();
        run.rest();
        assert_eq!(run.begun().len(), begun, "at {moment}: {:?}", run.fake.log);
        assert_eq!(run.times("Rollout Paused"), 1, "at {moment}");
        assert_eq!((run.report.state.as_str(), run.times("Rollout Succeeded")), ("paused", 0), "at {moment}");
        assert!(
            run.report.message.contains("`slipway resume --cluster c` continues"),
            "{}",
            run.report.message
        );

        run.give(Order::Resume);
        run.rest();
        assert_eq!(run.report.state.as_str(), "succeeded", "at {moment}: {}", run.report.message);
        assert_eq!(run.state.deployed.len(), 5);
    }
}

#[test]
fn p10_after_an_abort_nothing_new_starts_and_it_ends_as_aborted() {
    for moment in 1..whole() {
        for order in [abort(), Order::Abort { plan: Some(Run::new().wanted.plan.id) }] {
            let mut run = Run::new();
            (0..moment).for_each(|_| run.wake(None));
            let before = run.begun().len();
            run.give(order);
            run.rest();
            assert_eq!(run.begun().len(), before, "at {moment}: {:?}", run.fake.log);
            assert_eq!((run.times("Rollout Aborted"), run.times("disarm")), (1, 1), "at {moment}");
            assert_eq!(run.report.state.as_str(), "aborted");
            assert_eq!(run.state.last.as_ref().unwrap().result, RolloutResult::Aborted);
            let done =
                run.fake.stacks.values().filter(|status| **status == StackStatus::CreateComplete).count();
            assert_eq!(run.state.deployed.len(), done, "the result of CloudFormation is known");
        }
    }
}

#[test]
fn p10_what_cloudformation_works_at_is_seen_to_its_end_before_an_abort_is_over() {
    let mut run = Run::new();
    while run.times("execute c-etcd") == 0 {
        run.wake(None);
    }
    let done = run.fake.stacks.insert("c-etcd".to_owned(), StackStatus::UpdateInProgress).unwrap();
    run.give(abort());
    for _ in 0..3 {
        run.wake(None);
        assert_eq!(run.report.state.as_str(), "aborting");
        assert!(
            run.report.message.contains("CloudFormation is at work (UPDATE_IN_PROGRESS)"),
            "{}",
            run.report.message
        );
    }
    run.fake.stacks.insert("c-etcd".to_owned(), done);
    run.wake(None);
    assert_eq!(run.report.state.as_str(), "aborted");
    assert_eq!(run.state.deployed.keys().collect::<Vec<_>>(), ["c-etcd", "c-network"]);
}

#[test]
fn p10_a_stack_whose_creation_goes_on_when_it_is_aborted_is_deleted_and_not_waited_for() {
    let mut run = Run::new();
    while run.times("execute c-etcd") == 0 {
        run.wake(None);
    }
    run.fake.stacks.insert("c-etcd".to_owned(), StackStatus::CreateInProgress);
    run.give(abort());
    run.rest();
    assert_eq!(run.times("delete c-etcd"), 1, "{:?}", run.fake.log);
    assert_eq!(run.report.state.as_str(), "aborted");
    assert_eq!(run.state.deployed.keys().collect::<Vec<_>>(), ["c-network"]);
}

#[test]
fn p12_what_was_decided_before_a_person_said_to_stop_is_not_performed_after_it() {
    for (order, stops) in
        [(Order::Pause, true), (abort(), true), (Order::Skip { instance: "i-1".to_owned() }, false)]
    {
        let mut run = Run::new();
        while run.times("change set c-network") == 0 {
            run.wake(None);
        }
        // Decided and stored; the invocation died before it performed the effects.
        let look = to_observe(&run.state, Some(&run.wanted), at(run.second));
        let decided = decide(&run.state, &run.fake.observe(&look, Some(&run.wanted)), at(run.second)).next;
        let executes = |state: &Rollout| {
            state.outbox.iter().any(|one| matches!(one.effect, Effect::ExecuteChangeSet { .. }))
        };
        assert!(executes(&decided), "{:?}", decided.outbox);
        let heard =
            after_order(&decided, &given(order, run.second), Some(&run.wanted.desired), at(run.second));
        assert_eq!(executes(&heard), !stops, "{:?}", heard.outbox);
    }
}

#[test]
fn p12_what_is_performed_too_late_is_decided_anew() {
    let mut run = Run::new();
    while run.times("change set c-network") == 0 {
        run.wake(None);
    }
    let look = to_observe(&run.state, Some(&run.wanted), at(run.second));
    let decided = decide(&run.state, &run.fake.observe(&look, Some(&run.wanted)), at(run.second)).next;
    let pending = &decided.outbox[0];
    assert!(matches!(pending.effect, Effect::ExecuteChangeSet { .. }), "{pending:?}");
    assert!(!pending.is_stale(at(run.second + 180)) && pending.is_stale(at(run.second + 181)));
    run.state =
        Rollout { outbox: Vec::new(), ..decided.clone().recorded(&[(pending.id, EffectOutcome::Dropped)]) };
    run.wake(None);
    assert_eq!(run.times("execute c-network"), 1, "it is asked for again: {:?}", run.fake.log);
}

#[test]
fn p8_events_have_an_id_each_and_whoever_records_twice_records_once() {
    let mut run = Run::new();
    let look = to_observe(&run.state, Some(&run.wanted), at(run.second));
    let decided = decide(&run.state, &run.fake.observe(&look, Some(&run.wanted)), at(run.second)).next;
    let id = |one: &Pending| {
        let Effect::Publish(event) = &one.effect else { return None };
        let detail: serde_json::Value = serde_json::from_str(&event.to_wire().1).unwrap();
        Some(detail["id"].as_str().unwrap().to_owned())
    };
    let ids: BTreeSet<String> = decided.outbox.iter().filter_map(id).collect();
    let published = decided.outbox.iter().filter(|one| matches!(one.effect, Effect::Publish(_))).count();
    assert_eq!((ids.len(), published > 0), (published, true));
    let done: Vec<(u64, EffectOutcome)> =
        decided.outbox.iter().map(|one| (one.id, EffectOutcome::Done)).collect();
    run.state = decided.recorded(&done);
    assert!(run.state.outbox.is_empty());
    assert_eq!(run.state.clone().recorded(&done), run.state);
}

#[test]
fn p10_a_stack_that_fails_while_it_is_aborted_is_in_the_words() {
    let mut run = Run::new();
    run.fake.fails = Some("c-etcd");
    while run.times("execute c-etcd") == 0 {
        run.wake(None);
    }
    run.give(abort());
    run.rest();
    assert_eq!(run.report.state.as_str(), "aborted");
    assert!(run.report.message.contains("c-etcd could not be created: Thing"), "{}", run.report.message);
}

#[test]
fn p10_an_execution_that_cloudformation_never_heard_of_is_not_told_again() {
    for order in [Order::Pause, abort()] {
        let mut run = Run::new();
        while run.times("execute c-network") == 0 {
            run.wake(None);
        }
        // As if the call had been lost.
        run.fake.stacks.insert("c-network".to_owned(), StackStatus::ReviewInProgress);
        run.fake.change_sets.get_mut("c-network").unwrap().status = ChangeSetStatus::Ready;
        let paused = order == Order::Pause;
        run.give(order);
        run.rest();
        assert_eq!(run.times("execute c-network"), 1, "{:?}", run.fake.log);
        assert_eq!(run.times("delete c-network"), usize::from(!paused), "nobody can execute it later");
        if paused {
            run.give(Order::Resume);
            run.rest();
            assert_eq!(run.report.state.as_str(), "succeeded");
        }
    }
}

#[test]
fn p10_an_execution_that_a_late_answer_does_not_show_is_not_forgotten_by_an_abort() {
    let mut run = Run::new();
    while run.times("execute c-network") == 0 {
        run.wake(None);
    }
    run.fake.stacks.insert("c-network".to_owned(), StackStatus::ReviewInProgress);
    run.fake.change_sets.get_mut("c-network").unwrap().status = ChangeSetStatus::Ready;
    run.give(abort());
    run.wake(None);
    assert_eq!(run.report.state.as_str(), "aborting", "{}", run.report.message);
    run.fake.stacks.insert("c-network".to_owned(), StackStatus::CreateComplete);
    run.fake.change_sets.get_mut("c-network").unwrap().status = ChangeSetStatus::Executed;
    run.rest();
    assert_eq!(run.report.state.as_str(), "aborted");
    assert_eq!(run.state.deployed.keys().collect::<Vec<_>>(), ["c-network"]);
    assert_eq!((run.times("drop c-network"), run.times("delete c-network")), (0, 0), "{:?}", run.fake.log);
}

#[test]
fn p10_a_pause_before_anything_began_holds_what_would_begin() {
    let mut run = Run::new();
    run.give(Order::Pause);
    run.rest();
    assert_eq!(run.fake.log, ["Rollout Paused"]);
    assert_eq!(run.report.state.as_str(), "paused");
    assert!(
        run.report.message.starts_with(&format!("plan {} waits", run.wanted.plan.id)),
        "{}",
        run.report.message
    );
    assert!(run.report.next.as_ref().is_some_and(|next| next.contains("slipway resume --cluster c")));
    run.give(Order::Resume);
    run.rest();
    assert_eq!(run.report.state.as_str(), "succeeded");
}

#[test]
fn p10_an_abort_holds_although_it_is_paused_and_the_pause_stays() {
    let mut run = Run::new();
    run.wake(None);
    run.give(Order::Pause);
    run.give(abort());
    run.rest();
    assert_eq!(run.state.last.as_ref().unwrap().result, RolloutResult::Aborted);
    assert!(run.state.paused_since().is_some());
}

#[test]
fn p8_pauses_and_resumes_that_come_late_twice_or_out_of_order_end_as_the_newest_says() {
    let (pause, resume) = (given(Order::Pause, 200), given(Order::Resume, 300));
    for (order, paused) in [
        (vec![&pause, &resume, &pause], false),
        (vec![&pause, &pause, &resume, &resume], false),
        (vec![&resume, &pause], false),
        (vec![&resume], false),
        (vec![&pause, &resume, &resume, &pause], false),
    ] {
        let mut run = Run::new();
        order.iter().for_each(|given| run.wake(Some(given)));
        assert_eq!(run.state.paused_since().is_some(), paused, "{order:?}");
    }
    // A resume that was given between two pauses, and comes after both, concerns the first.
    let mut run = Run::new();
    for one in [given(Order::Pause, 200), given(Order::Pause, 400), given(Order::Resume, 300)] {
        run.wake(Some(&one));
    }
    assert!(run.state.paused_since().is_some());
    assert_eq!(run.times("Rollout Paused"), 1);
    run.wake(Some(&given(Order::Resume, 500)));
    assert_eq!(run.state.paused_since(), None);
    // If both have the same time, nobody knows which came first: the pause wins in any order.
    let both = [given(Order::Pause, 200), given(Order::Resume, 200)];
    for orders in [[&both[0], &both[1]], [&both[1], &both[0]]] {
        let mut run = Run::new();
        orders.iter().for_each(|one| run.wake(Some(one)));
        assert!(run.state.paused_since().is_some(), "{orders:?}");
    }
}

#[test]
fn p8_an_abort_that_comes_late_does_not_end_a_later_rollout() {
    let mut run = Run::new();
    run.wake(None);
    let began = run.state.active().unwrap().started_at.as_second();
    let late = [
        given(abort(), began - 60),
        given(Order::Abort { plan: Some("an earlier plan".to_owned()) }, began + 60),
    ];
    for order in &late {
        run.wake(Some(order));
        assert_eq!(run.state.active().unwrap().aborted, None);
    }
    // Clocks may differ by some seconds: an abort of the moment when the rollout began concerns the rollout.
    run.wake(Some(&given(abort(), began - 2)));
    assert_eq!(run.report.state.as_str(), "aborted");
    // A repeated abort finds nothing open; it may concern an order to destroy that has not come yet.
    let state = run.state.clone();
    run.wake(Some(&given(abort(), began + 5)));
    run.state.destroys_over = state.destroys_over;
    assert_eq!((&run.state, run.times("Rollout Aborted")), (&state, 1));
}

#[test]
fn p10_an_order_that_finds_nothing_open_is_reported_once_unless_it_was_obeyed_before() {
    let ignored = |run: &Run| run.state.ignored.as_ref().map(|ignored| ignored.message.clone());
    let skip = || Order::Skip { instance: "i-1".to_owned() };
    let mut run = Run::new();
    run.rest();
    assert_eq!(run.report.state.as_str(), "succeeded");
    let ended = run.state.last.as_ref().unwrap().ended_at.as_second();
    // It was given while the rollout was open, and is delivered after it has ended.
    let late = given(abort(), ended - 20);
    (0..2).for_each(|_| run.wake(Some(&late)));
    let why = "to abort was ignored, because the rollout had ended by then (succeeded)";
    assert!(ignored(&run).is_some_and(|told| told.contains(why)), "{:?}", ignored(&run));
    assert_eq!(run.times("Order Ignored"), 1);
    // Nothing was open when it was given.
    for (order, what) in [(abort(), "abort"), (skip(), "skip i-1")] {
        run.give(order);
        let why = format!("to {what} was ignored, because no rollout is open");
        assert!(ignored(&run).is_some_and(|told| told.contains(&why)), "{:?}", ignored(&run));
    }
    assert_eq!(run.times("Order Ignored"), 3);
    // The rollout that has ended may have obeyed it.
    let (mut run, mut before) = (Run::new(), Run::new());
    for (order, run) in [(abort(), &mut run), (skip(), &mut before)] {
        run.wake(None);
        let order = given(order, run.second + 10);
        run.wake(Some(&order));
        run.rest();
        run.wake(Some(&order));
        assert_eq!((ignored(run), run.times("Order Ignored")), (None, 0));
    }
    // An abort that names the plan is obeyed by the rollout of that plan alone.
    let plan = run.wanted.plan.id.clone();
    run.give(Order::Abort { plan: Some(plan) });
    assert_eq!(run.times("Order Ignored"), 0);
    run.give(Order::Abort { plan: Some("another".to_owned()) });
    assert_eq!(run.times("Order Ignored"), 1);
}

#[test]
fn p8_an_abort_of_what_is_being_aborted_changes_nothing() {
    let mut state = rolling(&[], &[]);
    state.active_mut().unwrap().aborted = Some(at(5));
    let (given_at, message) = (at(1), "an order that was ignored".to_owned());
    state.ignored = Some(crate::Ignored { given: given_at, at: at(2), message, help: String::new() });
    for plan in [Some("p".to_owned()), Some("another".to_owned()), None] {
        let after = after_order(&state, &given(Order::Abort { plan }, 9), None, at(9));
        assert_eq!(after.active().unwrap().aborted, Some(at(5)));
        assert_eq!((after.ignored, after.outbox.len()), (state.ignored.clone(), 0));
    }
}

#[test]
fn p10_an_aborted_plan_begins_again_only_with_another_upload() {
    let mut run = Run::new();
    run.wake(None);
    run.give(abort());
    let begun = run.begun().len();
    let plan = run.wanted.plan.id.clone();
    run.give(Order::Approve { plan });
    run.rest();
    assert_eq!((run.begun().len(), run.report.state.as_str()), (begun, "aborted"));
    // A daily scan, or the event of the upload that comes again, plans the same upload anew.
    run.wanted.plan.id = "anew".to_owned();
    run.wanted.desired.plan = "anew".to_owned();
    run.rest();
    assert_eq!((run.begun().len(), run.report.state.as_str()), (begun, "aborted"));
    run.wanted.desired.spec_version = "v2".to_owned();
    run.rest();
    assert_eq!(run.report.state.as_str(), "succeeded");
}

#[test]
fn a_rollout_is_told_to_leave_a_thousand_machines_at_most() {
    let mut state = rolling(&[], &[]);
    let skip = |name: &str| given(Order::Skip { instance: name.to_owned() }, 5);
    let first = (0..999).map(|at| format!("i-{at}"));
    state.active_mut().unwrap().skipped = first.collect();
    let state = after_order(&state, &skip("i-last"), None, at(5));
    assert!(state.active().unwrap().skipped.contains("i-last"));
    let state = after_order(&state, &skip("i-more"), None, at(5));
    assert_eq!(state.active().unwrap().skipped.len(), 1_000);
    assert!(!state.active().unwrap().skipped.contains("i-more"));
    assert!(
        state
            .ignored
            .unwrap()
            .message
            .contains("to skip i-more was ignored, because 1000 machines are skipped")
    );
}

#[test]
fn p10_a_pause_is_told_of_the_plan_that_is_executed_or_was_last() {
    let ended = json!({
        "plan": "before", "specVersion": "v0", "target": "t", "result": "succeeded", "message": "", "endedAt": at(0), "steps": [],
    });
    let last: Option<Ended> = Some(serde_json::from_value(ended).unwrap());
    for (state, plan) in [
        (Rollout { last: last.clone(), ..rolling(&[], &[]) }, "p"),
        (Rollout { last, ..Rollout::new("c") }, "before"),
        (Rollout::new("c"), ""),
    ] {
        let next = after_order(&state, &given(Order::Pause, 5), None, at(5));
        let told: Vec<_> = next.outbox.iter().map(|pending| &pending.effect).collect();
        let [Effect::Publish(event @ Event::RolloutPaused(_))] = &told[..] else { panic!("{told:?}") };
        let detail: serde_json::Value = serde_json::from_str(&event.to_wire().1).unwrap();
        assert_eq!(detail["plan"], plan);
    }
}

#[test]
fn p13_an_order_to_destroy_a_protected_cluster_is_ignored_with_the_reason() {
    let (mut harbour, state) = Harbour::launched();
    let mut desired = harbour.plan(&state, &exporting(1, true)).desired;
    let now = Timestamp::from_second(1_000_000).unwrap();
    let order = Given { order: Order::Destroy { without_snapshot: true }, at: now };
    assert!(after_order(&state, &order, Some(&desired), now).is_going());
    desired.deletion_protection = true;
    let after = after_order(&state, &order, Some(&desired), now);
    assert!(!after.is_going());
    assert!(after.ignored.unwrap().message.contains("`deletionProtection: true`"));
}

/// The id of a plan follows from its content: another upload of the same spec is the same plan.
#[test]
fn p3_an_approval_that_comes_twice_begins_nothing_that_was_aborted_and_uploaded_again() {
    let mut run = Run::new();
    run.wanted = wanted(&rendering(1), &Baseline::default(), Approval::Manual);
    let plan = run.wanted.plan.id.clone();
    run.wanted.desired.plan.clone_from(&plan);
    let approval = given(Order::Approve { plan: plan.clone() }, run.second + 10);
    run.wake(Some(&approval));
    assert!(run.state.active().is_some());
    run.give(abort());
    run.rest();
    assert!(run.state.active().is_none(), "{}", run.report.message);
    run.wanted.desired.spec_version = "another upload".to_owned();
    run.wake(Some(&approval));
    assert!(run.state.active().is_none() && run.state.approved.is_none(), "{:?}", run.state.approved);
    run.give(Order::Approve { plan });
    run.wake(None);
    assert!(run.state.active().is_some(), "{}", run.report.message);
}
