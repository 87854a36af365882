//! The departure of one machine, look by look: how long it is waited for, which controller gets its commands, and when they are repeated.

use serde_json::json;
use slipway_core::node::{
    Command, CommandView, Drained, FailureCode, HowUnanswered, Unanswered, VerbFailure,
};

use super::stays::still_runs;
use super::*;
use crate::departures::advance;
use crate::departures::tests::group;
use crate::drain::EMPTY_FOR;
use crate::errand::PAUSE;
use crate::patience::RECONSIDERED;
use crate::waits::HeldBy;
use crate::{Observed, Rollout, Switch};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const REPLACED: Cause = Cause::Rollout(Ending::Replaced);

fn at(second: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(second)
}

fn departure(cause: Cause, state: DepartureState) -> Departure {
    let one = Departure::by_auto_scaling(Role::Pool("a".to_owned()), "c-pool-a", None, NOW);
    Departure { cause, state, ..one }
}

/// A command to that controller at the beginning, with that token.
fn sent_command(token: &str, controller: &str, verb: Verb) -> SentCommand {
    let command = Command { token: token.to_owned(), instance: controller.to_owned(), verb };
    SentCommand { role: Role::Controller, command, at: NOW, refused: None }
}

fn drain(token: &str, controller: &str) -> SentCommand {
    sent_command(token, controller, Drain::verb("i-1", None))
}

fn drains(sent: Option<SentCommand>) -> DepartureState {
    DepartureState::Drain { drain: Drain { sent, ..Drain::default() }, prolonged: None }
}

/// Departing machines of a pool, and a number of controllers in service.
struct Leaving {
    state: Rollout,
    observed: Observed,
}

impl Leaving {
    fn new(controllers: usize, machines: &[(&str, Lifecycle, Departure)]) -> Self {
        let departures = machines.iter().map(|(id, _, one)| ((*id).to_owned(), one.clone())).collect();
        let machines: Vec<_> = machines.iter().map(|(id, lifecycle, _)| (*id, *lifecycle)).collect();
        let serves = |id: &'static str| (id, Lifecycle::InService);
        let controllers: Vec<_> = ["i-cp-0", "i-cp-1", "i-cp-2"].map(serves)[..controllers].to_vec();
        let groups = [group("c-pool-a", &machines), group("c-control-plane", &controllers)].into();
        Self {
            state: Rollout { departures, ..Rollout::new("c") },
            observed: Observed { groups, ..Observed::default() },
        }
    }

    /// A single machine, `i-1`.
    fn one(controllers: usize, lifecycle: Lifecycle, one: Departure) -> Self {
        Self::new(controllers, &[("i-1", lifecycle, one)])
    }

    fn answers(&mut self, token: &str, view: CommandView) {
        self.observed.answers.insert(token.to_owned(), Some(view));
    }

    /// Looks at them that many seconds after the beginning, while their rollout continues.
    fn advance_at(&mut self, second: i64) -> Vec<Effect> {
        advance(&mut self.state, &self.observed, at(second), true)
    }

    /// The lifecycle of `i-1` is this one now.
    fn is_now(&mut self, lifecycle: Lifecycle) {
        self.observed.groups.extend([group("c-pool-a", &[("i-1", lifecycle)])]);
    }

    fn departure(&self) -> Option<&Departure> {
        self.state.departures.get("i-1")
    }

    fn state(&self) -> &DepartureState {
        &self.departure().expect("it is not gone").state
    }
}

/// Which controller gets a command for which node.
fn commands_of(effects: &[Effect]) -> Vec<(&str, &str)> {
    let mut sent = Vec::new();
    for effect in effects {
        if let Effect::Send(Command {
            instance,
            verb: Verb::Drain { node, .. } | Verb::Uncordon { node },
            ..
        }) = effect
        {
            sent.push((instance.as_str(), node.as_str()));
        }
    }
    sent
}

/// A controller that is being drained, and the other controllers.
fn controller(second: i64, drain: Drain, others: &[&str]) -> (Option<Departure>, Vec<Effect>) {
    let one = Departure {
        role: Role::Controller,
        group: "c-control-plane".to_owned(),
        ..departure(Cause::Rollout(Ending::Rests), DepartureState::Drain { drain, prolonged: None })
    };
    let mut leaving = Leaving::one(0, Lifecycle::InService, one);
    let machines: Vec<_> = others.iter().chain(&["i-1"]).map(|id| (*id, Lifecycle::InService)).collect();
    leaving.observed.groups.extend([group("c-control-plane", &machines)]);
    let effects = leaving.advance_at(second);
    (leaving.departure().cloned(), effects)
}

#[test]
fn p5_a_controller_is_drained_by_another_one_for_four_hours_and_not_by_itself() {
    let (_, effects) = controller(60, Drain::default(), &["i-2"]);
    assert_eq!(commands_of(&effects), [("i-2", "i-1")]);
    assert_eq!(controller(60, Drain::default(), &[]).1, [], "there is no other controller");
    for (second, why) in [
        (4 * 3_600, None),
        (4 * 3_600 + 1, Some("i-1 could not be drained within 4 hours: no controller had time for it")),
    ] {
        let (one, _) = controller(second, Drain::default(), &[]);
        assert_eq!(one.unwrap().problem.as_deref(), why, "{second}");
    }
}

fn answered(done: bool) -> CommandView {
    let answer = json!({"node": "i-1", "done": done, "waiting": []});
    CommandView::Answered(serde_json::from_value::<Drained>(answer).expect("it is an answer").into())
}

fn failed(code: FailureCode) -> CommandView {
    CommandView::Failed(VerbFailure::transient(code, "no", "look"))
}

/// A controller that gets no command has no drain to run, so it always had the fewest.
#[test]
fn p6_the_next_drain_goes_to_another_controller_than_one_that_could_not_be_reached() {
    let refused = |second| {
        let mut sent = drain("refused", "i-cp-1");
        sent.refused = Some("not in a valid state".to_owned());
        let mut leaving = Leaving::new(
            2,
            &[
                ("i-1", Lifecycle::InService, departure(REPLACED, drains(Some(drain("1", "i-cp-0"))))),
                ("i-2", Lifecycle::InService, departure(REPLACED, drains(Some(sent)))),
            ],
        );
        leaving.answers("1", CommandView::InProgress);
        leaving.advance_at(0);
        let effects = leaving.advance_at(second);
        commands_of(&effects).into_iter().map(|(controller, _)| controller.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(refused(60), ["i-cp-0"]);
    let for_s = crate::departures::UNREACHED_FOR.as_secs();
    assert_eq!((refused(for_s - 1), refused(for_s)), (vec!["i-cp-0".to_owned()], vec!["i-cp-1".to_owned()]));
}

#[test]
fn each_state_bears_the_name_that_the_table_has() {
    let states = [
        DepartureState::drains(),
        DepartureState::Leave { requested_at: NOW, last: None },
        DepartureState::Rest { emptied_at: NOW },
        DepartureState::Withdraw { sent: None, cancelled_at: None },
        DepartureState::Uncordon { sent: None, tried: RetryState::default() },
    ];
    let known: Vec<&str> = TRANSITIONS.iter().map(|way| way.from).filter(|name| *name != "gone").collect();
    assert_eq!(states.each_ref().map(DepartureState::name), known[..]);
}

#[test]
fn a_machine_that_goes_without_a_hook_is_waited_for_as_long_as_anything_and_then_forgotten() {
    let patience = PATIENCE.as_secs();
    for (second, waits) in [(0, true), (patience, true), (patience + 1, false)] {
        let leaves = departure(REPLACED, DepartureState::Leave { requested_at: NOW, last: None });
        let mut leaving = Leaving::one(1, Lifecycle::Terminating, leaves);
        assert_eq!(leaving.advance_at(second), []);
        assert_eq!(leaving.departure().is_some(), waits, "{second}");
    }
}

#[test]
fn p6_a_machine_that_auto_scaling_wants_to_go_is_drained_for_it_wherever_on_its_way_it_is() {
    let drained = DepartureState::Leave { requested_at: at(7), last: None };
    for (state, hold, then) in [
        (DepartureState::Rest { emptied_at: NOW }, Lifecycle::TerminatingWait, drains(None)),
        (DepartureState::Withdraw { sent: None, cancelled_at: None }, Lifecycle::Retained, drains(None)),
        (
            DepartureState::Uncordon { sent: None, tried: failed_often(1) },
            Lifecycle::TerminatingWait,
            drains(None),
        ),
        // A machine that is already drained is only terminated.
        (drained.clone(), Lifecycle::Retained, drained),
    ] {
        let one = Departure { problem: Some("no".to_owned()), ..departure(REPLACED, state.clone()) };
        let mut leaving = Leaving::one(0, hold, one);
        let effects = leaving.advance_at(7);
        let mut then = then;
        let mut keeps_alive = Vec::new();
        if let (DepartureState::Drain { prolonged, .. }, Lifecycle::TerminatingWait) = (&mut then, hold) {
            *prolonged = Some(at(7));
            let (group, instance) = ("c-pool-a".to_owned(), "i-1".to_owned());
            keeps_alive.push(Effect::ProlongTermination { group, instance });
        }
        let one = leaving.departure().unwrap();
        assert_eq!((&one.state, effects), (&then, keeps_alive), "{state:?}");
        let is_drained = matches!(state, DepartureState::Leave { .. });
        assert_eq!(one.cause == REPLACED && one.problem.is_some(), is_drained, "{one:?}");
        assert_eq!(one.since, if is_drained { NOW } else { at(7) });
    }
}

/// A rollout was superseded, and its drains called off, when a machine had been retained: it is drained in any case.
#[test]
fn p8_a_drain_that_was_called_off_goes_on_if_the_machine_must_go_and_was_not_cancelled() {
    let sent = drain("1", "i-cp-0");
    for (cancelled_at, sent_again) in [(None, 0), (Some(NOW), 1)] {
        let state = DepartureState::Withdraw { sent: Some(sent.clone()), cancelled_at };
        let mut leaving = Leaving::one(1, Lifecycle::Retained, departure(REPLACED, state));
        leaving.answers("1", CommandView::InProgress);
        assert_eq!(commands_of(&leaving.advance_at(7)).len(), sent_again, "{cancelled_at:?}");
        let is_same = leaving.departure().unwrap().command() == Some(&sent);
        assert_eq!(is_same, sent_again == 0, "{cancelled_at:?}");
    }
}

#[test]
fn p10_a_machine_that_rests_takes_pods_again_once_its_rollout_goes_on_no_longer() {
    for goes_on in [true, false] {
        let rests = departure(Cause::Rollout(Ending::Rests), DepartureState::Rest { emptied_at: NOW });
        let mut leaving = Leaving::one(1, Lifecycle::InService, rests);
        let effects = advance(&mut leaving.state, &leaving.observed, at(60), goes_on);
        assert_eq!(leaving.departure().unwrap().emptied_at().is_some(), goes_on);
        assert_eq!(commands_of(&effects), if goes_on { vec![] } else { vec![("i-cp-0", "i-1")] });
    }
}

#[test]
fn p6_what_was_empty_before_a_pause_is_drained_again_after_the_resume() {
    let empty = |cause| departure(cause, DepartureState::Rest { emptied_at: NOW });
    let resumed = |mut one: Departure| {
        one.resumed(at(600));
        (one.drains(), one.since)
    };
    assert_eq!(resumed(empty(Cause::Rollout(Ending::Rests))), (true, at(600)));
    assert_eq!(resumed(departure(REPLACED, drains(None))), (true, at(600)), "it has more time");
    // Nobody can hold what EC2 interrupts.
    assert_eq!(resumed(empty(Cause::Interruption { at: NOW })), (false, at(600)));
}

/// Auto Scaling's answer may be older than its hook.
#[test]
fn p6_a_machine_that_is_in_its_hook_no_more_is_looked_at_again_before_it_is_forgotten() {
    let consistent = CONSISTENT.as_secs();
    for (second, waits) in [(consistent - 1, true), (consistent, false)] {
        let mut leaving = Leaving::one(1, Lifecycle::InService, departure(Cause::AutoScaling, drains(None)));
        assert_eq!(leaving.advance_at(second), [], "nothing is evicted meanwhile");
        assert_eq!(leaving.departure().is_some(), waits, "{second}");
    }
}

#[test]
fn p6_drains_are_spread_over_the_controllers_and_another_is_asked_for_the_next_round() {
    // All of them would go to the second controller, if the others had as much to do.
    let ids = ["i-a", "i-d", "i-g", "i-j", "i-m", "i-p", "i-s", "i-v", "i-y"];
    let begins = |id| (id, Lifecycle::InService, departure(REPLACED, drains(None)));
    let mut leaving = Leaving::new(3, &ids.map(begins));
    let effects = leaving.advance_at(0);
    let controllers: Vec<&str> =
        commands_of(&effects).into_iter().map(|(controller, _)| controller).collect();
    assert_eq!(controllers, ["i-cp-1", "i-cp-2", "i-cp-0"].repeat(3));
    for (rounds, controller) in [(0, "i-cp-1"), (1, "i-cp-2"), (2, "i-cp-0"), (3, "i-cp-1")] {
        let one = Departure { rounds, ..departure(REPLACED, drains(None)) };
        let mut leaving = Leaving::new(3, &[("i-a", Lifecycle::InService, one)]);
        assert_eq!(commands_of(&leaving.advance_at(0)), [(controller, "i-a")], "{rounds}");
        assert_eq!(leaving.state.departures["i-a"].rounds, rounds + 1);
    }
}

#[test]
fn p6_a_controller_that_runs_fewer_drains_is_asked_first() {
    for (busy, idle) in [("i-cp-0", "i-cp-1"), ("i-cp-1", "i-cp-0")] {
        let runs = [("i-1", busy), ("i-2", busy), ("i-3", idle)];
        let mut machines: Vec<_> = runs
            .iter()
            .map(|(id, by)| (*id, Lifecycle::InService, departure(REPLACED, drains(Some(drain(id, by))))))
            .collect();
        machines.push(("i-4", Lifecycle::InService, departure(REPLACED, drains(None))));
        let mut leaving = Leaving::new(2, &machines);
        runs.iter().for_each(|(token, _)| leaving.answers(token, CommandView::InProgress));
        assert_eq!(commands_of(&leaving.advance_at(60)), [(idle, "i-4")]);
    }
}

#[test]
fn p10_a_drain_is_taken_back_once_a_minute_until_it_has_ended_and_then_pods_may_come() {
    let sent = drain("1", "i-cp-0");
    let state = DepartureState::Withdraw { sent: Some(sent.clone()), cancelled_at: None };
    let mut leaving = Leaving::one(1, Lifecycle::InService, departure(REPLACED, state));
    leaving.answers("1", CommandView::InProgress);
    let taken_back = [Effect::Cancel(sent.command.clone())];
    let pause = PAUSE.as_secs();
    for (second, cancelled_at, again) in [(0, 0, true), (pause - 1, 0, false), (pause, pause, true)] {
        assert_eq!(leaving.advance_at(second), if again { &taken_back[..] } else { &[] }, "{second}");
        let state =
            DepartureState::Withdraw { sent: Some(sent.clone()), cancelled_at: Some(at(cancelled_at)) };
        assert_eq!(*leaving.state(), state);
    }
    leaving.answers("1", failed(FailureCode::AwsDenied));
    assert_eq!(commands_of(&leaving.advance_at(pause + 1)), [("i-cp-0", "i-1")]);
    assert!(matches!(leaving.state(), DepartureState::Uncordon { sent: Some(_), .. }));
}

#[test]
fn p10_a_drain_that_nobody_knows_of_is_taken_for_ended_once_it_must_have_ended() {
    let sent = drain("1", "i-cp-0");
    let longest = sent.command.verb.answers_within().as_secs();
    let seen = |view| Observed { answers: [("1".to_owned(), view)].into(), ..Observed::default() };
    let runs = |observed: &Observed, second| still_runs(&sent, observed, at(second));
    for (observed, runs_on) in [
        (Observed::default(), true),
        (seen(None), true),
        (seen(Some(CommandView::InProgress)), true),
        (seen(Some(failed(FailureCode::AwsDenied))), false),
    ] {
        let looks = [0, longest, longest + 1].map(|second| runs(&observed, second));
        assert_eq!(looks, [runs_on, runs_on, false], "{observed:?}");
    }
}

#[test]
fn p6_a_machine_that_was_to_go_and_did_not_is_drained_again_after_a_while() {
    let reconsidered = RECONSIDERED.as_secs();
    let leaves = DepartureState::Leave { requested_at: NOW, last: None };
    for (second, state) in [(reconsidered, leaves.clone()), (reconsidered + 1, drains(None))] {
        let mut leaving = Leaving::one(0, Lifecycle::InService, departure(REPLACED, leaves.clone()));
        assert_eq!(leaving.advance_at(second), []);
        assert_eq!(*leaving.state(), state, "{second}");
    }
}

/// A person may uncordon a worker after its drain, until it is gone.
#[test]
fn p6_a_machine_that_a_rollout_terminated_is_drained_again_in_its_hook_before_that_is_completed() {
    let (group, instance) = ("c-pool-a".to_owned(), "i-1".to_owned());
    let terminate =
        Effect::Terminate { group: group.clone(), instance: instance.clone(), then_desired: None };
    let mut leaving =
        Leaving::one(1, Lifecycle::InService, departure(REPLACED, drains(Some(drain("1", "i-cp-0")))));
    leaving.answers("1", answered(true));
    assert_eq!(leaving.advance_at(30), [terminate]);
    // It is asked again once it is in its hook, and the hook is kept alive meanwhile.
    assert_eq!(leaving.advance_at(31), []);
    let how = leaving.departure().unwrap().departs("i-1").how;
    assert_eq!(how, HowFar::Leaves, "a person does not look for pods that hold it");
    leaving.is_now(Lifecycle::TerminatingWait);
    let effects = leaving.advance_at(32);
    assert_eq!(commands_of(&effects), [("i-cp-0", "i-1")]);
    assert!(matches!(&effects[0], Effect::ProlongTermination { .. }), "{effects:?}");
    let token = leaving.departure().unwrap().command().unwrap().command.token.clone();
    assert_eq!(leaving.advance_at(32 + PAUSE.as_secs()), [], "it runs");
    // Pods have come: another round follows.
    leaving.answers(&token, answered(false));
    let effects = leaving.advance_at(200);
    assert_eq!(commands_of(&effects), [("i-cp-0", "i-1")]);
    let departs = leaving.departure().unwrap().departs("i-1");
    assert!(matches!(departs.how, HowFar::Drains(Some(_))), "it is said what holds it: {departs:?}");
    let token = leaving.departure().unwrap().command().unwrap().command.token.clone();
    leaving.answers(&token, answered(true));
    assert_eq!(leaving.advance_at(210), [Effect::CompleteTermination { group, instance }]);
    assert_eq!(*leaving.state(), DepartureState::Leave { requested_at: at(210), last: None });
}

#[test]
fn p10_while_paused_a_machine_in_its_hook_is_kept_there_and_not_drained_again() {
    let leaves = DepartureState::Leave { requested_at: NOW, last: Some(LastDrain::default()) };
    let mut leaving = Leaving::one(1, Lifecycle::TerminatingWait, departure(REPLACED, leaves));
    leaving.state.switch = Some(Switch { paused: true, at: NOW });
    let (group, instance) = ("c-pool-a".to_owned(), "i-1".to_owned());
    let keeps_alive = [Effect::ProlongTermination { group, instance }];
    let heartbeat = HEARTBEAT.as_secs();
    for (second, effects) in [(1, &keeps_alive[..]), (heartbeat, &[]), (heartbeat + 1, &keeps_alive)] {
        assert_eq!(leaving.advance_at(second), effects, "{second}");
    }
}

/// A machine in its terminate hook, of a rollout, whose last drain was sent at the beginning.
fn drained_again(view: CommandView) -> Leaving {
    let drain = Drain { sent: Some(drain("1", "i-cp-0")), ..Drain::default() };
    let last = Some(LastDrain { drain, prolonged: Some(NOW) });
    let leaves = departure(REPLACED, DepartureState::Leave { requested_at: NOW, last });
    let mut leaving = Leaving::one(1, Lifecycle::TerminatingWait, leaves);
    leaving.answers("1", view);
    leaving
}

/// Pods may have come since the first drain, and nobody has said that they are gone.
#[test]
fn p6_a_hook_is_not_completed_because_its_last_drain_failed() {
    let undelivered = Unanswered { how: HowUnanswered::Undelivered, problem: None };
    for view in [failed(FailureCode::AwsDenied), CommandView::Unanswered(undelivered)] {
        let mut leaving = drained_again(view.clone());
        assert_eq!(leaving.advance_at(10), [], "{view:?}");
        let effects = leaving.advance_at(10 + PAUSE.as_secs());
        assert_eq!(commands_of(&effects), [("i-cp-0", "i-1")], "{view:?}");
    }
}

#[test]
fn p10_a_hook_is_not_completed_while_paused_and_later_only_by_an_answer_that_still_counts() {
    let completes =
        [Effect::CompleteTermination { group: "c-pool-a".to_owned(), instance: "i-1".to_owned() }];
    for (resumed, is_completed) in [(20, true), (EMPTY_FOR.as_secs() + 1, false)] {
        let mut leaving = drained_again(answered(true));
        leaving.state.switch = Some(Switch { paused: true, at: NOW });
        assert_eq!(leaving.advance_at(10), []);
        leaving.state.switch = None;
        let effects = leaving.advance_at(resumed);
        assert_eq!(effects == completes, is_completed, "{effects:?}");
        assert_eq!(commands_of(&effects).is_empty(), is_completed, "it is drained once more: {effects:?}");
    }
}

#[test]
fn p10_a_worker_that_is_empty_is_not_terminated_while_paused() {
    let drains = drains(Some(drain("1", "i-cp-0")));
    let mut leaving = Leaving::one(1, Lifecycle::InService, departure(REPLACED, drains));
    leaving.answers("1", answered(true));
    leaving.state.switch = Some(Switch { paused: true, at: NOW });
    assert_eq!(leaving.advance_at(10), []);
    leaving.state.switch = None;
    let effects = leaving.advance_at(20);
    assert!(matches!(&effects[..], [Effect::Terminate { instance, .. }] if instance == "i-1"), "{effects:?}");
}

/// Auto Scaling launches another machine for it.
#[test]
fn a_surplus_worker_that_auto_scaling_takes_before_its_drain_ends_does_not_shrink_the_pool() {
    let drains = drains(Some(drain("1", "i-cp-0")));
    let surplus = Cause::Rollout(Ending::Surplus { of: 4 });
    let mut leaving = Leaving::one(1, Lifecycle::TerminatingWait, departure(surplus, drains));
    leaving.answers("1", answered(true));
    let effects = leaving.advance_at(10);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::CompleteTermination { .. })), "{effects:?}");
    assert_eq!(leaving.departure().unwrap().cause, REPLACED);
}

#[test]
fn a_machine_that_was_let_go_and_is_still_there_is_told_so_again_and_after_long_it_is_said() {
    let mut leaving = Leaving::one(
        0,
        Lifecycle::TerminatingWait,
        departure(Cause::AutoScaling, DepartureState::Leave { requested_at: NOW, last: None }),
    );
    let (pause, patience) = (PAUSE.as_secs(), PATIENCE.as_secs());
    let (group, instance) = ("c-pool-a".to_owned(), "i-1".to_owned());
    let completes = [Effect::CompleteTermination { group, instance }];
    for (second, again, is_said) in [
        (pause - 1, false, false),
        (pause, true, false),
        (pause + 1, false, false),
        (patience, true, false),
        (patience + 1, false, true),
    ] {
        assert_eq!(leaving.advance_at(second), if again { &completes[..] } else { &[] }, "{second}");
        let said = "i-1 was terminated and is still there after 60 minutes";
        assert_eq!(leaving.departure().unwrap().problem.as_deref(), is_said.then_some(said), "{second}");
    }
}

/// What failed that often.
fn failed_often(tries: u32) -> RetryState {
    let last = (tries > 0).then(|| json!({"at": NOW, "why": "no"}));
    serde_json::from_value(json!({"tries": tries, "last": last})).unwrap()
}

fn uncordons(tries: u32) -> Departure {
    let sent = Some(sent_command("1", "i-cp-0", Verb::Uncordon { node: "i-1".to_owned() }));
    departure(REPLACED, DepartureState::Uncordon { sent, tried: failed_often(tries) })
}

#[test]
fn p10_a_machine_that_cannot_be_told_to_take_pods_again_is_told_so_each_minute_and_later_less_often() {
    for (tries, second, again) in [
        (0, 49, false),
        (0, 50, true),
        (28, 49, false),
        (28, 50, true),
        (29, 50, false),
        (29, 599, false),
        (29, 600, true),
    ] {
        let mut leaving = Leaving::one(1, Lifecycle::InService, uncordons(tries));
        leaving.answers("1", failed(FailureCode::AwsDenied));
        assert_eq!(commands_of(&leaving.advance_at(1)), [], "it has just failed");
        assert_eq!(
            commands_of(&leaving.advance_at(1 + second)).len(),
            usize::from(again),
            "{tries} {second}"
        );
        let one = leaving.departure().unwrap();
        let DepartureState::Uncordon { tried, .. } = &one.state else { panic!("{one:?}") };
        assert_eq!((tried.tries, &one.problem), (tries + 1, &None), "it was not to be removed");
    }
}

#[test]
fn a_machine_that_is_no_node_has_nothing_to_be_uncordoned() {
    let mut leaving = Leaving::one(1, Lifecycle::InService, uncordons(0));
    leaving.answers("1", failed(FailureCode::DrainNoNode));
    assert_eq!((leaving.advance_at(1), leaving.departure()), (Vec::new(), None));
}

#[test]
fn that_a_machine_stays_cordoned_is_said_once_it_was_tried_for_long() {
    assert!(uncordons(30).only_stays_cordoned() && !uncordons(29).only_stays_cordoned());
    assert_eq!(uncordons(29).departs("i-1").how, HowFar::Stays);
    assert_eq!(uncordons(30).departs("i-1").how, HowFar::StaysCordoned(Detail("no".to_owned())));
}

#[test]
fn p10_while_paused_a_drain_asks_for_no_further_round_whatever_the_last_one_waited_for() {
    for held in [None, Some(HeldBy::Failure(Detail("no".to_owned())))] {
        for (paused, rounds) in [(true, 0), (false, 1)] {
            let drain = Drain { held: held.clone(), ..Drain::default() };
            let state = DepartureState::Drain { drain, prolonged: None };
            let mut leaving = Leaving::one(1, Lifecycle::InService, departure(REPLACED, state));
            leaving.state.switch = Some(Switch { paused, at: NOW });
            assert_eq!(commands_of(&leaving.advance_at(60)).len(), rounds, "{held:?}, paused: {paused}");
        }
    }
}

/// Whether workers are missing is looked at again before a drain that no controller has begun (seed 9111 with faults 0.1 of 26 November).
#[test]
fn p6_a_drain_that_run_command_did_not_take_counts_as_not_requested() {
    let requested = || {
        let mut departure = departure(REPLACED, drains(Some(drain("1", "i-cp-0"))));
        departure.rounds = 1;
        assert!(!departure.is_unsent());
        departure
    };
    let mut refused = requested();
    refused.was_refused("another", "no");
    assert!(!refused.is_unsent(), "another command was refused");
    refused.was_refused("1", "no");
    refused.was_refused("1", "no");
    assert!(refused.is_unsent() && refused.unsent == 1, "it counts once");
    let mut dropped = requested();
    dropped.not_sent("another");
    assert!(!dropped.is_unsent(), "another command was dropped");
    dropped.not_sent("1");
    assert!(dropped.is_unsent());
    dropped.rounds = 2;
    assert!(!dropped.is_unsent(), "the next round was taken");
}

/// Auto Scaling refuses to make a group smaller than its minimum.
#[test]
fn p6_a_surplus_machine_asks_for_no_fewer_machines_than_the_minimum_of_its_group() {
    let (group, instance) = ("c-pool-a".to_owned(), "i-1".to_owned());
    for (desired, of, then_desired) in [(1, 1, None), (2, 1, Some(1)), (2, 2, Some(1))] {
        let one = departure(Cause::Rollout(Ending::Surplus { of }), drains(Some(drain("d", "i-cp-0"))));
        let mut leaving = Leaving::one(1, Lifecycle::InService, one);
        let view = leaving.observed.groups.get_mut(&group).unwrap().as_mut().unwrap();
        (view.desired, view.min) = (desired, 1);
        leaving.answers("d", answered(true));
        let terminates = Effect::Terminate { group: group.clone(), instance: instance.clone(), then_desired };
        assert_eq!(leaving.advance_at(10), [terminates], "{desired} {of}");
    }
}
