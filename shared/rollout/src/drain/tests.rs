//! How long pods may block a drain, and when the next round begins.

use std::collections::BTreeMap;

use slipway_core::node::{Command, CommandView, Drained, VerbFailure};
use slipway_core::role::Role;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const MOST: SignedDuration = SignedDuration::from_hours(2);
const PATIENCE: Patience = Patience { since: NOW, most: MOST };

fn after(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

/// A drain with a running round.
fn running() -> Drain {
    let verb = Drain::verb("i-1", None);
    let command = Command { token: "1".to_owned(), instance: "i-cp".to_owned(), verb };
    let sent = SentCommand { role: Role::Controller, command, at: NOW, refused: None };
    Drain { sent: Some(sent), ..Drain::default() }
}

fn seen(view: CommandView) -> Observed {
    Observed { answers: BTreeMap::from([("1".to_owned(), Some(view))]), ..Observed::default() }
}

fn failed(code: FailureCode) -> Observed {
    seen(CommandView::Failed(VerbFailure::transient(code, "no", "look")))
}

fn answered(done: bool) -> Observed {
    let answer = serde_json::json!({"node": "i-1", "done": done, "waiting": []});
    seen(CommandView::Answered(serde_json::from_value::<Drained>(answer).unwrap().into()))
}

const fn name(look: &DrainProgress) -> &'static str {
    match look {
        DrainProgress::Idle => "idle",
        DrainProgress::Runs => "runs",
        DrainProgress::Pauses => "pauses",
        DrainProgress::Empty { .. } => "empty",
        DrainProgress::GivenUp(_) => "given up",
    }
}

#[test]
fn p6_a_drain_is_given_up_after_its_patience_and_not_at_the_last_moment_of_it() {
    let most = MOST.as_secs();
    for (second, is_left) in [(most, "idle"), (most + 1, "given up")] {
        let look = Drain::default().progress("i-1", &Observed::default(), after(second), Some(PATIENCE));
        assert_eq!(name(&look), is_left, "no command is sent");
        let look = running().progress("i-1", &answered(false), after(second), Some(PATIENCE));
        assert_eq!(name(&look), is_left, "pods block it");
    }
    // A node that has to leave is drained for as long as it takes.
    let look = Drain::default().progress("i-1", &Observed::default(), after(most + 1), None);
    assert_eq!(name(&look), "idle");
}

#[test]
fn p6_after_a_round_that_failed_the_next_comes_a_while_later() {
    let mut drain = running();
    assert_eq!(name(&drain.progress("i-1", &failed(FailureCode::AwsDenied), after(10), None)), "pauses");
    for (second, then) in [(59, "pauses"), (60, "idle")] {
        assert_eq!(name(&drain.progress("i-1", &Observed::default(), after(second), None)), then, "{second}");
    }
}

/// The agent of its controller does not run: another controller may do it.
#[test]
fn p6_a_drain_that_run_command_refuses_is_no_try() {
    let mut drain = Drain::default();
    let patience = Patience { since: NOW, most: SignedDuration::from_hours(24) };
    let mut refused = |second| {
        drain.sent = running().sent;
        drain.sent.as_mut().unwrap().refused = Some("not in a valid state".to_owned());
        name(&drain.progress("i-1", &Observed::default(), after(second), Some(patience)))
    };
    for second in [0, 60, 120, 180, 7_200] {
        assert_eq!(refused(second), "pauses", "{second}");
    }
    assert_eq!(refused(7_201), "given up");
    // What reached a controller ends it.
    let mut drain =
        Drain { tried: RetryState { unreached_since: Some(NOW), ..RetryState::default() }, ..running() };
    drain.progress("i-1", &failed(FailureCode::AwsDenied), after(1), Some(patience));
    assert_eq!((drain.tried.unreached_since, drain.tried.tries), (None, 1));
}

/// Auto Scaling terminates it in any case.
#[test]
fn p6_the_drain_of_a_node_that_has_to_leave_is_never_given_up() {
    for (tries, unreached_since) in [(9, None), (0, Some(NOW))] {
        let tried: RetryState = serde_json::from_value(serde_json::json!({
            "tries": tries, "unreachedSince": unreached_since, "last": {"at": after(7_000), "why": "no"},
        }))
        .unwrap();
        let last = |second: i64| {
            let mut drain = Drain { tried: tried.clone(), ..running() };
            let sent = drain.sent.as_mut().unwrap();
            sent.at = after(7_100);
            sent.refused = unreached_since.map(|_| "no".to_owned());
            let seen = failed(FailureCode::AwsDenied);
            let patience = Patience { since: after(7_000), most: MOST };
            let name_of = |patience| name(&drain.clone().progress("i-1", &seen, after(second), patience));
            (name_of(None), name_of(Some(patience)))
        };
        assert_eq!(last(7_201), ("pauses", "given up"), "{tries}");
    }
}

#[test]
fn p6_what_is_no_node_has_no_pods_and_any_other_failure_says_nothing_of_them() {
    assert_eq!(name(&running().progress("i-1", &failed(FailureCode::DrainNoNode), after(1), None)), "empty");
    assert_eq!(name(&running().progress("i-1", &failed(FailureCode::AwsDenied), after(1), None)), "pauses");
    assert_eq!(name(&running().progress("i-1", &answered(true), after(1), None)), "empty");
}

#[test]
fn p12_what_was_empty_or_no_node_is_looked_at_again_when_the_answer_is_old() {
    let cases = [(failed(FailureCode::DrainNoNode), FRESH), (answered(true), EMPTY_FOR)];
    for (seen, most) in cases {
        for (second, is_seen) in [(most.as_secs(), "empty"), (most.as_secs() + 1, "idle"), (25_000, "idle")] {
            let mut drain = running();
            assert_eq!(name(&drain.progress("i-1", &seen, after(second), None)), is_seen, "{second}");
            assert_eq!(drain.tried, RetryState::default(), "it is not a failure");
        }
    }
}

/// A person may have uncordoned it while the answer was on its way.
#[test]
fn p6_a_node_is_known_to_be_empty_from_when_it_was_asked_about_and_not_from_when_the_answer_was_seen() {
    for (seen, second) in [(answered(true), 300), (failed(FailureCode::DrainNoNode), 100)] {
        let look = running().progress("i-1", &seen, after(second), None);
        assert!(matches!(look, DrainProgress::Empty { asked_at } if asked_at == NOW), "{}", name(&look));
    }
}

/// A budget may block a drain for a night, in many rounds, of which some fail one by one.
#[test]
fn p6_only_rounds_that_fail_one_after_the_other_give_a_drain_up() {
    let mut drain = Drain::default();
    let patience = Patience { since: NOW, most: SignedDuration::from_hours(24) };
    let mut second = 0;
    let mut round = |seen: &Observed| {
        second += 100;
        drain.sent = running().sent;
        drain.sent.as_mut().unwrap().at = after(second);
        let look = name(&drain.progress("i-1", seen, after(second + 1), Some(patience)));
        (look, drain.tried.tries)
    };
    let fails = failed(FailureCode::AwsDenied);
    for (seen, expected) in [
        (&fails, ("pauses", 1)),
        (&fails, ("pauses", 2)),
        (&answered(false), ("idle", 0)),
        (&fails, ("pauses", 1)),
        (&fails, ("pauses", 2)),
        (&fails, ("given up", 3)),
    ] {
        assert_eq!(round(seen), expected);
    }
}
