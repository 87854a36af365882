//! What becomes of a worker that EC2 interrupts, look by look.

use serde_json::json;
use slipway_core::node::{Command, CommandView, Drained, FailureCode, Verb, VerbFailure};
use slipway_core::role::Role;

use jiff::SignedDuration;

use super::*;
use crate::departures::advance;
use crate::departures::departure::{DepartureState, NOTICE_S};
use crate::departures::tests::group;
use crate::errand::RetryState;
use crate::fleet::Lifecycle;
use crate::{Effect, Given, GoingState, Observed, Order, Switch, after_order};

const POOL: &str = "c-pool-a";

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// A cluster with the pool `a`.
fn idle() -> Rollout {
    let deployed = ["c-pool-a", "c-etcd", "c-control-plane"].map(|stack| (stack.to_owned(), "t".to_owned()));
    Rollout { deployed: deployed.into(), ..Rollout::new("c") }
}

/// A clock that is ahead would make it urgent for that long, also during a pause.
#[test]
fn p10_a_notice_from_the_future_counts_from_when_it_is_received() {
    let received = |second| idle().with_interruption(POOL, "i-1", at(second), at(0));
    assert_eq!(received(86_400), received(0));
    assert_ne!(received(-60), received(0), "one of before counts from its own time");
    // Also where the machine departs already.
    let twice = |second| received(0).with_interruption(POOL, "i-1", at(second), at(10));
    assert_eq!(twice(86_400), twice(10));
}

/// Workers of the pool `a`, controllers in service, and what is known of both.
struct Notice {
    state: Rollout,
    observed: Observed,
}

impl Notice {
    fn of(state: Rollout, machines: &[(&str, Lifecycle)]) -> Self {
        let mut notice = Self { state, observed: Observed::default() };
        notice.observed.groups.extend([group("c-control-plane", &[("i-cp", Lifecycle::InService)])]);
        notice.has(machines);
        notice
    }

    /// EC2 announces at the beginning that it interrupts `i-1`, which is in service.
    fn given() -> Self {
        Self::of(idle().with_interruption(POOL, "i-1", at(0), at(0)), &[("i-1", Lifecycle::InService)])
    }

    fn has(&mut self, machines: &[(&str, Lifecycle)]) {
        self.observed.groups.extend([group(POOL, machines)]);
    }

    fn is_now(&mut self, lifecycle: Lifecycle) {
        self.has(&[("i-1", lifecycle)]);
    }

    /// Looks at that second, while no rollout is open.
    fn look(&mut self, second: i64) -> Vec<Effect> {
        let effects = advance(&mut self.state, &self.observed, at(second), false);
        effects.into_iter().filter(|effect| *effect != Effect::ArmTick).collect()
    }

    /// The last command for `i-1` ends like this.
    fn ends(&mut self, answer: CommandView) {
        let command = self.state.departures["i-1"].command().expect("a command was sent").command.clone();
        self.observed.answers.insert(command.token, Some(answer));
    }

    fn state(&self) -> Option<&DepartureState> {
        self.state.departures.get("i-1").map(|one| &one.state)
    }
}

/// The nodes that are drained or uncordoned, and for how many seconds.
fn commands_of(effects: &[Effect]) -> Vec<(&str, Option<u32>)> {
    let mut sent = Vec::new();
    for effect in effects {
        if let Effect::Send(Command { verb: Verb::Drain { node, for_s, .. }, .. }) = effect {
            sent.push((node.as_str(), Some(*for_s)));
        }
        if let Effect::Send(Command { verb: Verb::Uncordon { node }, .. }) = effect {
            sent.push((node.as_str(), None));
        }
    }
    sent
}

fn drained(done: bool) -> CommandView {
    let answer = json!({"node": "i-1", "done": done, "waiting": []});
    CommandView::Answered(serde_json::from_value::<Drained>(answer).expect("it is an answer").into())
}

#[test]
fn p6_a_second_notice_of_ec2_gives_a_machine_no_more_time() {
    let first = idle().with_interruption(POOL, "i-1", at(0), at(0));
    let second = first.clone().with_interruption(POOL, "i-1", at(60), at(60));
    assert_eq!(first.departures["i-1"], second.departures["i-1"]);
}

#[test]
fn p6_a_worker_that_ec2_interrupts_is_drained_at_once_and_rests_until_it_is_gone() {
    let mut notice = Notice::given();
    let effects = notice.look(1);
    assert_eq!(commands_of(&effects), [("i-1", Some(NOTICE_S))], "a round does not outlast the machine");
    notice.ends(drained(true));
    assert_eq!(notice.look(30), [], "EC2 terminates it, not Slipway");
    assert!(matches!(notice.state(), Some(DepartureState::Rest { .. })));
    let words = notice.state.departures_in_words().expect("it departs");
    assert!(words.contains("i-1 is empty, and EC2 interrupts it"), "{words}");
    assert_eq!(notice.look(125), []);
    notice.has(&[]);
    assert_eq!((notice.look(180), notice.state()), (vec![], None));
}

#[test]
fn p6_a_drain_that_pods_hold_asks_for_round_after_round_until_the_machine_is_gone() {
    let mut notice = Notice::given();
    notice.look(1);
    notice.ends(drained(false));
    assert_eq!(commands_of(&notice.look(122)).len(), 1);
    // However often it fails, it is not given up.
    for second in [300, 362, 424, 486] {
        notice.ends(CommandView::Failed(VerbFailure::transient(FailureCode::AwsDenied, "no", "look")));
        notice.look(second);
        assert_eq!(commands_of(&notice.look(second + 61)).len(), 1, "{second}");
    }
}

#[test]
fn p6_a_notice_counts_for_workers_and_for_ten_minutes() {
    let counts = |group: &str, late: i64| {
        idle().with_interruption(group, "i-1", at(0), at(late)).departures.contains_key("i-1")
    };
    assert!(counts(POOL, 0) && counts(POOL, 600) && counts(POOL, -2));
    assert!(!counts(POOL, 601), "its machine is gone, or was not interrupted");
    for other in ["c-pool-b", "c-etcd-0", "c-control-plane", "d-pool-a", "another"] {
        assert!(!counts(other, 0), "{other}");
    }
}

#[test]
fn p6_a_worker_that_ec2_did_not_interrupt_takes_pods_again() {
    // It is empty, or still being drained.
    for done in [true, false] {
        let mut notice = Notice::given();
        notice.look(1);
        notice.ends(drained(done));
        notice.look(122);
        let command = notice.state.departures["i-1"].command().cloned();
        if let Some(command) = command {
            notice.observed.answers.insert(command.command.token, Some(CommandView::InProgress));
        }
        assert_eq!(commands_of(&notice.look(600)), [], "done: {done}");
        notice.look(601);
        assert!(matches!(
            notice.state(),
            Some(DepartureState::Withdraw { .. } | DepartureState::Uncordon { .. })
        ));
        if !done {
            notice.ends(drained(false));
        }
        assert_eq!(commands_of(&notice.look(602)), if done { vec![] } else { vec![("i-1", None)] });
        assert!(
            matches!(notice.state(), Some(DepartureState::Uncordon { sent: Some(_), .. })),
            "done: {done}"
        );
    }
}

#[test]
fn p6_a_worker_that_its_group_terminates_at_the_notice_has_one_drain_and_then_its_hook_is_completed() {
    let mut notice = Notice::given();
    assert_eq!(commands_of(&notice.look(1)).len(), 1);
    notice.is_now(Lifecycle::TerminatingWait);
    let (group, instance) = (POOL.to_owned(), "i-1".to_owned());
    let prolongs = Effect::ProlongTermination { group: group.clone(), instance: instance.clone() };
    assert_eq!(notice.look(10), [prolongs]);
    notice.ends(drained(true));
    assert_eq!(notice.look(20), [Effect::CompleteTermination { group, instance }]);
    assert_eq!(notice.state.departures.len(), 1);
}

/// Without Capacity Rebalancing, its group notices that the machine is gone, and then calls the hook.
#[test]
fn p6_the_hook_of_a_worker_that_was_interrupted_is_completed_once_its_node_is_gone() {
    let mut notice = Notice::given();
    notice.look(1);
    notice.ends(drained(true));
    notice.look(30);
    notice.is_now(Lifecycle::TerminatingWait);
    let effects = [notice.look(200), notice.look(201)].concat();
    assert_eq!(commands_of(&effects), [("i-1", Some(600))]);
    let gone = VerbFailure::permanent(FailureCode::DrainNoNode, "no node", "look");
    notice.ends(CommandView::Failed(gone));
    let (group, instance) = (POOL.to_owned(), "i-1".to_owned());
    assert_eq!(notice.look(230), [Effect::CompleteTermination { group, instance }]);
}

/// What waits in a hook is still there after a resume. What EC2 interrupts is not.
#[test]
fn p6_p10_a_pause_holds_no_drain_of_a_worker_that_ec2_interrupts_and_holds_it_in_its_hook_after_that() {
    let paused = || Rollout { switch: Some(Switch { paused: true, at: at(0) }), ..idle() };
    for lifecycle in [Lifecycle::InService, Lifecycle::TerminatingWait] {
        let state = paused().with_interruption(POOL, "i-1", at(0), at(0));
        let mut notice = Notice::of(state, &[("i-1", lifecycle)]);
        assert_eq!(commands_of(&notice.look(1)).len(), 1, "{lifecycle:?}");
    }
    let late = paused().with_interruption(POOL, "i-1", at(0), at(0));
    let mut notice = Notice::of(late, &[("i-1", Lifecycle::TerminatingWait)]);
    assert_eq!(commands_of(&notice.look(601)), []);
    // Without a notice, a pause holds the drain in a hook.
    let mut hook = Notice::of(paused(), &[("i-1", Lifecycle::TerminatingWait)]);
    assert_eq!(commands_of(&hook.look(1)), []);
}

/// All machines would be drained before it, because fewer commands were sent for them, and one controller drains three at a time.
#[test]
fn p6_a_worker_that_ec2_interrupts_is_drained_before_all_others() {
    let mut state = idle().with_interruption(POOL, "i-9", at(0), at(0));
    if let Some(one) = state.departures.get_mut("i-9") {
        one.rounds = 5;
    }
    let ids = ["i-1", "i-2", "i-3", "i-4"];
    for id in ids {
        let one = Departure::by_auto_scaling(Role::Pool("a".to_owned()), POOL, None, at(0));
        state.departures.insert(id.to_owned(), one);
    }
    let mut machines = ids.map(|id| (id, Lifecycle::TerminatingWait)).to_vec();
    machines.push(("i-9", Lifecycle::InService));
    let effects = Notice::of(state, &machines).look(1);
    assert_eq!(commands_of(&effects).first(), Some(&("i-9", Some(NOTICE_S))));
    assert_eq!(commands_of(&effects).len(), 3);
}

#[test]
fn p6_a_drain_that_is_under_way_goes_on_and_a_worker_that_was_to_stay_is_drained_after_all() {
    let drains = DepartureState::Drain { drain: crate::Drain::default(), prolonged: None };
    let stays = [
        DepartureState::Withdraw { sent: None, cancelled_at: None },
        DepartureState::Uncordon { sent: None, tried: RetryState::default() },
    ];
    let goes = [
        drains.clone(),
        DepartureState::Leave { requested_at: at(0), last: None },
        DepartureState::Rest { emptied_at: at(0) },
    ];
    for state in stays.iter().chain(&goes) {
        let one = Departure::by_auto_scaling(Role::Pool("a".to_owned()), POOL, None, at(0));
        let one = Departure { state: state.clone(), problem: Some("no".to_owned()), ..one };
        let departures = [("i-1".to_owned(), one.clone())].into();
        let next = Rollout { departures, ..idle() }.with_interruption(POOL, "i-1", at(5), at(7));
        let after = &next.departures["i-1"];
        if *state == drains {
            assert_eq!(*after, Departure { cause: after.cause, ..one });
            assert!(
                after.is_urgent(at(605)) && !after.is_urgent(at(606)),
                "neither a pause nor an abort holds it"
            );
            // Nor does the rollout give it up because another worker is missing.
            assert!(!after.is_unsent());
        } else if goes.contains(state) {
            assert_eq!(*after, one);
        } else {
            assert_eq!((&after.state, after.since, &after.problem), (&drains, at(7), &None));
            assert!(after.is_urgent(at(605)) && !after.is_urgent(at(606)));
        }
    }
    // An event may come twice.
    let once = idle().with_interruption(POOL, "i-1", at(0), at(0));
    assert_eq!(once.clone().with_interruption(POOL, "i-1", at(0), at(3)), once);
}

/// CloudFormation terminates its machines, and what is deleted has no departures.
#[test]
fn p6_a_notice_changes_nothing_while_the_stacks_of_its_cluster_are_being_deleted() {
    let given = Given { order: Order::Destroy { without_snapshot: true }, at: at(0) };
    let mut going = after_order(&idle(), &given, None, at(0));
    let counts = |state: &Rollout| {
        state.clone().with_interruption(POOL, "i-1", at(1), at(1)).departures.contains_key("i-1")
    };
    assert!(counts(&going), "no stack is being deleted yet");
    let open = going.destroy_mut().expect("it is going");
    open.stacks[0].state = GoingState::Deleting(at(0));
    assert!(!counts(&going));
}

/// The notice names an instance of the account, and its group only by name.
#[test]
fn p6_a_worker_of_a_group_of_somebody_else_is_not_drained() {
    let mut notice = Notice::given();
    if let Some(Some(group)) = notice.observed.groups.get_mut(POOL) {
        group.tags.insert("slipway:cluster".to_owned(), "d".to_owned());
    }
    assert_eq!((notice.look(1), notice.state()), (vec![], None));
}

/// A load balancer deregisters it first, which takes longer than EC2 waits.
#[test]
fn p6_a_worker_that_ec2_interrupts_is_drained_before_it_gets_to_its_hook() {
    let mut notice = Notice::given();
    notice.is_now(Lifecycle::Terminating);
    assert_eq!(commands_of(&notice.look(1)), [("i-1", Some(NOTICE_S))]);
    notice.ends(drained(true));
    assert_eq!(notice.look(30), []);
    assert!(matches!(notice.state(), Some(DepartureState::Rest { .. })));
    notice.is_now(Lifecycle::TerminatingWait);
    assert_eq!(commands_of(&notice.look(300)).len(), 1, "pods may have come");
}

#[test]
fn p6_drains_that_pods_hold_leave_room_for_a_worker_that_ec2_interrupts() {
    let waits = ["i-2", "i-3", "i-4", "i-5"].map(|id| (id, Lifecycle::TerminatingWait));
    let serves = ["i-1", "i-6"].map(|id| (id, Lifecycle::InService));
    let mut notice = Notice::of(idle(), &[&waits[..], &serves].concat());
    assert_eq!(commands_of(&notice.look(0)).len(), 3, "as many as one controller gets");
    for one in notice.state.departures.values() {
        if let Some(sent) = one.command() {
            notice.observed.answers.insert(sent.command.token.clone(), Some(CommandView::InProgress));
        }
    }
    for id in ["i-1", "i-6"] {
        notice.state = notice.state.with_interruption(POOL, id, at(1), at(1));
    }
    let effects = notice.look(2);
    assert_eq!(commands_of(&effects).len(), 1, "its agent runs five commands at a time: {effects:?}");
    assert_eq!(commands_of(&effects)[0].1, Some(NOTICE_S));
}

/// Its pause holds what a rollout has cordoned.
#[test]
fn p6_a_worker_that_ec2_did_not_interrupt_takes_pods_again_while_a_rollout_is_paused() {
    let mut notice = Notice::given();
    notice.look(1);
    notice.ends(drained(true));
    notice.look(30);
    let paused = Given { order: Order::Pause, at: at(40) };
    notice.state = after_order(&notice.state, &paused, None, at(40));
    let mut looks = [601, 603].map(|second| advance(&mut notice.state, &notice.observed, at(second), true));
    assert!(looks.iter_mut().any(|effects| commands_of(effects) == [("i-1", None)]), "{looks:?}");
}
