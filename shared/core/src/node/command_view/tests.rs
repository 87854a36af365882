//! What became of a command, as Run Command tells it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;
use crate::node::{EtcdHealth, EtcdMemberHealth};

fn invocation(status: CommandStatus, printed: &str) -> Invocation<'_> {
    Invocation { status, details: "Cancelled", response_code: -1, printed, errors: "" }
}

#[test]
fn of_much_that_was_printed_the_end_is_told() {
    let text = format!("{}ä-end", "ö".repeat(2_000));
    let tail = super::tail(&text);
    assert_eq!((tail.chars().count(), tail.ends_with("ä-end")), (600, true));
    assert_eq!(super::tail("  short \n"), "short");
}

#[test]
fn an_answer_counts_only_where_the_command_succeeded_and_a_failure_always() {
    let uncordon = Verb::Uncordon { node: "i-1".to_owned() };
    let answer = r#"{"node":"i-1","cordoned":false}"#;
    let failure = r#"{"error":{"code":"drain.no-node","message":"m","help":"h","transient":false}}"#;
    let ended = [CommandStatus::Failed, CommandStatus::TimedOut, CommandStatus::Undelivered];
    for status in ended {
        let seen = CommandView::read(&uncordon, &invocation(status, answer));
        assert!(matches!(&seen, CommandView::Unanswered(_)), "{seen:?}");
        assert!(seen.is_over());
    }
    for status in [CommandStatus::Pending, CommandStatus::InProgress] {
        assert!(!CommandView::read(&uncordon, &invocation(status, answer)).is_over());
    }
    let seen = CommandView::read(&uncordon, &invocation(CommandStatus::Success, answer));
    assert!(matches!(&seen, CommandView::Answered(Answer::Uncordon(_))), "{seen:?}");
    for status in ended.into_iter().chain([CommandStatus::Success]) {
        let seen = CommandView::read(&uncordon, &invocation(status, failure));
        assert!(seen.failed_with(FailureCode::DrainNoNode) && seen.is_over(), "{seen:?}");
        assert!(!seen.failed_with(FailureCode::EtcdNotAMember));
    }
}

#[test]
fn an_agent_that_does_not_know_the_verb_is_told_from_one_that_failed() {
    let usage = Invocation {
        response_code: 2,
        errors: "error: unrecognized subcommand 'serves'",
        ..invocation(CommandStatus::Failed, "")
    };
    let how = |invocation: &Invocation<'_>| {
        let view = CommandView::read(&Verb::Serves { without: BTreeSet::new() }, invocation);
        if let CommandView::Unanswered(Unanswered { how, .. }) = view { Some(how) } else { None }
    };
    assert_eq!(how(&usage), Some(HowUnanswered::NotUnderstood));
    let option = "error: unexpected argument '--without' found\n\nUsage: slipway-node serves";
    assert_eq!(how(&Invocation { errors: option, ..usage }), Some(HowUnanswered::NotUnderstood));
    // The agent knows the verb and was called wrongly: that is a failure, of which nobody may say that the agent is older.
    for errors in ["error: invalid value 'x' for '--without <WITHOUT>': no ids", "bash: syntax error", ""] {
        assert_eq!(how(&Invocation { errors, ..usage }), Some(HowUnanswered::Failed), "{errors}");
    }
    assert_eq!(how(&Invocation { response_code: 127, ..usage }), Some(HowUnanswered::Failed));
    assert_eq!(how(&Invocation { printed: "{", ..usage }), Some(HowUnanswered::Failed));
    assert_eq!(how(&Invocation { status: CommandStatus::TimedOut, ..usage }), Some(HowUnanswered::TimedOut));
}

/// Whoever is root on a machine prints what it likes, and rollouts, events and chats quote it.
#[test]
fn a_machines_words_are_short_and_do_nothing_to_a_terminal() {
    let long = format!("\u{1b}]0;owned\u{7}\u{202e}{}", "x".repeat(20_000));
    let fits = |words: &str| {
        assert!(words.chars().count() <= 700, "{} characters: {words:.100}", words.chars().count());
        assert!(!words.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{words:.100}");
    };
    let read = |verb: &Verb, printed: serde_json::Value| {
        CommandView::read(verb, &invocation(CommandStatus::Success, &printed.to_string()))
    };
    let uncordon = Verb::Uncordon { node: "i-1".to_owned() };
    let failure =
        serde_json::json!({"error": {"code": long, "message": long, "help": long, "transient": false}});
    let CommandView::Failed(failure) = read(&uncordon, failure) else { panic!("it failed") };
    fits(&failure.message);
    fits(&failure.help);
    // What serde says of it quotes it.
    let CommandView::Unanswered(none) = read(&uncordon, serde_json::json!({"node": "i-1", "cordoned": long}))
    else {
        panic!("it is not an answer")
    };
    fits(&none.to_string());
    let member =
        EtcdMemberHealth { name: long.clone(), problem: Some(long.clone()), ..EtcdMemberHealth::default() };
    let health = EtcdHealth {
        problems: vec!["\u{1b}[31mx".repeat(100); 20],
        members: vec![member],
        ..EtcdHealth::default()
    };
    let health = serde_json::to_value(health).unwrap();
    let CommandView::Answered(Answer::EtcdHealth(health)) = read(&Verb::EtcdHealth, health) else {
        panic!("an answer")
    };
    fits(&health.problems.join(", "));
    fits(&health.members[0].name);
    fits(health.members[0].problem.as_deref().unwrap());
    // What was printed in the place of an answer.
    let errors = format!("{long}\u{1b}[2J");
    let garbage = Invocation { errors: &errors, ..invocation(CommandStatus::Failed, &errors) };
    let CommandView::Unanswered(none) = CommandView::read(&uncordon, &garbage) else { panic!("no answer") };
    assert!(!none.to_string().contains('\u{1b}') && none.to_string().len() < 2_000, "{none}");
}
