//! Commands to machines: when they are repeated, given up, and cancelled.

use std::collections::BTreeMap;

use super::*;
use slipway_core::node::VerbFailure;
use slipway_core::node::command::cluster_of_token;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn sent_command(token: &str, verb: Verb) -> SentCommand {
    let command = Command { token: token.to_owned(), instance: "i-1".to_owned(), verb };
    SentCommand { role: Role::Controller, command, at: NOW, refused: None }
}

fn after(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

fn seen(token: &str, view: Option<CommandView>) -> Observed {
    Observed { answers: BTreeMap::from([(token.to_owned(), view)]), ..Observed::default() }
}

#[test]
fn a_command_that_was_never_sent_is_forgotten_and_the_others_of_its_round_are_not() {
    let mut round = Round(["1", "2", "3"].map(|token| sent_command(token, Verb::Status)).to_vec());
    round.forget("2");
    assert_eq!(round.iter().map(|one| one.command.token.as_str()).collect::<Vec<_>>(), ["1", "3"]);
}

#[test]
fn p8_the_token_of_a_command_is_not_known_before_the_command_is_decided() {
    let sender = Sender { owner: "1 2026-11-28T03:00:00Z", cluster: "c", name: "etcd-0" };
    let at = |nanosecond: i128| Timestamp::from_nanosecond(1_764_300_000_000_000_000 + nanosecond).unwrap();
    let token = |nanosecond| sender.command(2, "i-1".to_owned(), Verb::EtcdHealth, at(nanosecond)).token;
    assert_eq!(token(0), token(0));
    assert_ne!(token(0), token(1));
}

/// `SendCommand` takes 100 characters of `Comment`, and a cluster's name has up to 56. Run Command's event wakes the cluster that the token names.
#[test]
fn the_token_of_a_command_names_its_cluster_whole_and_fits_a_comment() {
    let longest = "c".repeat(56);
    for (cluster, name) in [
        ("c", "etcd-0"),
        (&longest, "controller"),
        (&longest, "pool-with-a-name-of-more-characters-than-fit"),
    ] {
        let sender = Sender { owner: "1 2026-11-28T03:00:00Z", cluster, name };
        let token = sender.command(u32::MAX, "i-1".to_owned(), Verb::EtcdHealth, NOW).token;
        assert_eq!(cluster_of_token(&token), Some(cluster), "{token}");
        assert!(token.chars().count() <= 100, "{token}");
        assert_eq!(token.split('/').count(), 4, "{token}");
    }
}

#[test]
fn machines_are_asked_again_once_a_tick_and_at_once_where_nobody_was_asked() {
    assert!(Round::default().may_ask_again(NOW));
    let round = Round(vec![sent_command("1", Verb::Status)]);
    let pause = PAUSE.as_secs();
    for (second, may) in [(0, false), (pause - 1, false), (pause, true)] {
        assert_eq!(round.may_ask_again(after(second)), may, "{second}");
    }
}

#[test]
fn p10_a_drain_and_a_snapshot_are_taken_back_and_credentials_that_are_half_taken_are_not() {
    let drain = Verb::Drain { node: "i-2".to_owned(), for_s: 600, force_after_s: None };
    for verb in [drain, Verb::EtcdSnapshot] {
        let sent = sent_command("1", verb);
        assert_eq!(sent.take_back(), Some(Effect::Cancel(sent.command.clone())));
    }
    let refresh = Verb::Refresh { credentials: "new".to_owned(), restart: true };
    for verb in [refresh, Verb::Status, Verb::EtcdRemove { member: "etcd-1".to_owned() }] {
        assert_eq!(sent_command("1", verb).take_back(), None);
    }
}

#[test]
fn an_error_is_known_by_its_code_and_by_its_own_command() {
    let sent = sent_command("1", Verb::Status);
    let failed = |code| Some(CommandView::Failed(VerbFailure::transient(code, "no", "look")));
    let no_node = FailureCode::DrainNoNode;
    for (observed, is_so) in [
        (seen("1", failed(no_node)), true),
        (seen("1", failed(FailureCode::AwsDenied)), false),
        (seen("2", failed(no_node)), false),
        (seen("1", Some(CommandView::Pending)), false),
        (seen("1", None), false),
    ] {
        assert_eq!(sent.failed_with(&observed, no_node), is_so, "{observed:?}");
    }
}

#[test]
fn p8_an_answer_is_waited_for_as_long_as_it_may_take_and_not_for_ever() {
    let sent = sent_command("1", Verb::EtcdSnapshot);
    let most = Verb::EtcdSnapshot.answers_within().as_secs();
    for (view, words) in
        [(None, "did not appear in Run Command"), (Some(CommandView::InProgress), "was not answered")]
    {
        let observed = seen("1", view);
        for (second, is_over) in [(1, false), (most, false), (most + 1, true)] {
            let outcome = sent.outcome(&observed, after(second));
            assert_eq!(outcome.is_some(), is_over, "{second}: {outcome:?}");
            if let Some(outcome) = outcome {
                assert!(outcome.unwrap_err().contains(words));
            }
        }
    }
}

/// Three failed tries give the work up, and Systems Manager may be out of reach for longer than that.
#[test]
fn p7_what_run_command_has_not_handed_over_reached_no_machine() {
    let undelivered = Unanswered { how: HowUnanswered::Undelivered, problem: None };
    for (view, reached) in [
        (Some(CommandView::Pending), false),
        (None, false),
        (Some(CommandView::Unanswered(undelivered)), false),
        (Some(CommandView::InProgress), true),
    ] {
        let sent = sent_command("1", Verb::Status);
        assert_eq!(sent.has_reached(&seen("1", view.clone())), reached, "{view:?}");
    }
}
