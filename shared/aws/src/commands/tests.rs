//! Run Command's answers as the service words them.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use slipway_core::node::{
    Command, CommandStatus, CommandView, Drained, HowUnanswered, Unanswered, Verb, VerbFailure, Word,
};
use slipway_flows::ports::Commands;
use slipway_ports::ErrorKind;

use super::RunCommand;
use crate::testing::{Answer, Server};

const NONE: Answer = (200, r#"{"Commands":[]}"#);
const SENT: Answer = (
    200,
    r#"{"Commands":[{"CommandId":"c-2","Comment":"a/2/other"},{"CommandId":"c-1","Comment":"a/1/drain/i-2","Parameters":{"Node":["i-2"],"For":["600"],"ForceAfter":["never"]}}]}"#,
);

fn commands(answers: &[Answer]) -> (Server, RunCommand) {
    let server = Server::new(answers);
    let commands = server.aws().commands();
    (server, commands)
}

fn drain() -> Command {
    Command {
        token: "a/1/drain/i-2".to_owned(),
        instance: "i-1".to_owned(),
        verb: Verb::Drain { node: "i-2".to_owned(), for_s: 600, force_after_s: None },
    }
}

fn refusal(kind: &str) -> Answer {
    (400, Box::leak(format!(r#"{{"__type":"{kind}","message":"words"}}"#).into_boxed_str()))
}

fn invocation(details: &str, output: &str) -> Answer {
    let body = json!({
        "CommandId": "c-1",
        "InstanceId": "i-1",
        "Status": "Whatever",
        "StatusDetails": details,
        "ResponseCode": if details == "Failed" { 1 } else { -1 },
        "StandardOutputContent": output,
        "StandardErrorContent": "warned\n",
    });
    (200, Box::leak(body.to_string().into_boxed_str()))
}

#[tokio::test]
async fn p8_a_command_of_a_token_is_sent_once() {
    let page = (200, r#"{"Commands":[{"CommandId":"c-9","Comment":"x"}],"NextToken":"more"}"#);
    let (server, commands) = commands(&[
        NONE,
        (200, r#"{"Command":{"CommandId":"c-1"}}"#),
        page,
        SENT,
        refusal("InvalidInstanceId"),
        refusal("InvalidInstanceId"),
        refusal("ThrottlingException"),
        NONE,
        refusal("AccessDeniedException"),
    ]);
    commands.send(&drain()).await.unwrap();
    commands.send(&drain()).await.unwrap();
    for expected in [ErrorKind::Invalid, ErrorKind::Transient, ErrorKind::Denied] {
        assert_eq!(commands.send(&drain()).await.unwrap_err().kind, expected);
    }
    let bodies: Vec<serde_json::Value> = server
        .requests()
        .iter()
        .take(4)
        .map(|request| serde_json::from_str(&request.body).unwrap())
        .collect();
    assert_eq!(bodies[0]["InstanceId"], "i-1");
    assert_eq!(bodies[0]["Filters"], json!([{"key": "DocumentName", "value": "Slipway-Drain"}]));
    assert_eq!(
        bodies[1],
        json!({
            "DocumentName": "Slipway-Drain",
            "InstanceIds": ["i-1"],
            "Comment": "a/1/drain/i-2",
            "TimeoutSeconds": 120,
            "Parameters": {"Node": ["i-2"], "For": ["600"], "ForceAfter": ["never"]},
        })
    );
    assert_eq!(bodies[3]["NextToken"], "more", "a token on a later page is found");
}

fn drained(done: bool) -> CommandView {
    let text = json!({"node": "i-2", "done": done});
    CommandView::Answered(serde_json::from_value::<Drained>(text).unwrap().into())
}

fn unanswered(how: HowUnanswered, problem: &str) -> CommandView {
    CommandView::Unanswered(Unanswered { how, problem: Some(problem.to_owned()) })
}

#[tokio::test]
async fn an_answer_is_whole_or_none_and_says_why() {
    let cut = format!(r#"{{"waiting":"{}"#, "x".repeat(24_000));
    let failure = r#"{"error":{"code":"new.kind","message":"m","help":"h","transient":true,"more":1}}"#;
    let (_server, commands) = commands(&[
        SENT,
        invocation("Success", r#"{"done":true,"node":"i-2"}"#),
        SENT,
        invocation("Failed", failure),
        SENT,
        invocation("Failed", r#"{"done":false,"node":"i-2"}"#),
        SENT,
        invocation("Success", &cut),
        SENT,
        invocation("Success", "Killed"),
        SENT,
        invocation("Success", r#"{"moved":true}"#),
        SENT,
        invocation("Success", ""),
        SENT,
        invocation("Undeliverable", ""),
        SENT,
        refusal("InvocationDoesNotExist"),
        SENT,
        refusal("InvalidInstanceId"),
        NONE,
        SENT,
        refusal("InvalidCommandId"),
        SENT,
        refusal("ThrottlingException"),
    ]);
    let failure = VerbFailure {
        code: Word::Other("new.kind".to_owned()),
        message: "m".to_owned(),
        help: "h".to_owned(),
        transient: true,
    };
    let ended = HowUnanswered::Succeeded;
    for expected in [
        drained(true),
        CommandView::Failed(failure),
        // Whoever ended it knows better than what it printed before.
        unanswered(HowUnanswered::Failed, "Failed; it ended with status 1"),
        unanswered(ended, "its answer was cut after 24000 characters; warned"),
        unanswered(ended, "it printed no answer, but: Killed; warned"),
        unanswered(ended, "its answer cannot be understood: missing field `node`; warned"),
        unanswered(ended, "it printed nothing; warned"),
        unanswered(HowUnanswered::Undelivered, "Undeliverable; warned"),
        CommandView::Pending,
        // The machine was terminated while it ran the command.
        unanswered(HowUnanswered::Undelivered, "its machine does not exist any more"),
    ] {
        assert_eq!(commands.answer(&drain()).await.unwrap(), Some(expected));
    }
    for _ in ["it is not listed", "it is listed, and nobody knows it"] {
        assert_eq!(commands.answer(&drain()).await.unwrap(), None);
    }
    assert_eq!(commands.answer(&drain()).await.unwrap_err().kind, ErrorKind::Transient);
}

#[test]
fn each_word_of_run_command_is_told_apart_with_and_without_spaces() {
    for (word, expected) in [
        ("Pending", CommandStatus::Pending),
        ("Delayed", CommandStatus::Pending),
        ("In Progress", CommandStatus::InProgress),
        ("InProgress", CommandStatus::InProgress),
        // Its machine may still be at work.
        ("Cancelling", CommandStatus::InProgress),
        ("Success", CommandStatus::Success),
        ("Failed", CommandStatus::Failed),
        ("Cancelled", CommandStatus::Failed),
        ("Terminated", CommandStatus::Failed),
        ("Execution Timed Out", CommandStatus::TimedOut),
        ("ExecutionTimedOut", CommandStatus::TimedOut),
        ("Delivery Timed Out", CommandStatus::Undelivered),
        ("DeliveryTimedOut", CommandStatus::Undelivered),
        ("Undeliverable", CommandStatus::Undelivered),
        ("Access Denied", CommandStatus::Undelivered),
    ] {
        assert_eq!(super::status(word), Some(expected), "{word}");
    }
    assert_eq!(super::status("Brand New"), None);
}

#[tokio::test]
async fn p10_a_command_is_taken_back_by_its_token_and_one_that_is_over_is_left() {
    let (server, commands) = commands(&[
        SENT,
        (200, "{}"),
        NONE,
        SENT,
        refusal("InvalidCommandId"),
        SENT,
        refusal("ThrottlingException"),
    ]);
    for _ in 0..3 {
        commands.cancel(&drain()).await.unwrap();
    }
    assert_eq!(commands.cancel(&drain()).await.unwrap_err().kind, ErrorKind::Transient);
    let cancelled: serde_json::Value = serde_json::from_str(&server.requests()[1].body).unwrap();
    assert_eq!(cancelled, json!({"CommandId": "c-1", "InstanceIds": ["i-1"]}));
}

/// Whoever may send one of the documents can send it with a token that the function will use: first, and with another machine's node.
#[tokio::test]
async fn a_command_with_the_token_and_other_parameters_is_not_ours() {
    let other = |parameters: &str| -> Answer {
        let text = format!(r#"{{"Commands":[{{"CommandId":"c-1","Comment":"a/1/drain/i-2"{parameters}}}]}}"#);
        (200, Box::leak(text.into_boxed_str()))
    };
    let sent = (200, r#"{"Command":{"CommandId":"c-2"}}"#);
    let foreign = [
        "",
        r#","Parameters":{}"#,
        r#","Parameters":{"Node":["i-9"],"For":["600"],"ForceAfter":["never"]}"#,
        r#","Parameters":{"Node":["i-2"],"For":["600"],"ForceAfter":["1"]}"#,
        r#","Parameters":{"Node":["i-2","i-9"],"For":["600"],"ForceAfter":["never"]}"#,
        r#","Parameters":{"Node":["i-2"],"For":["600"]}"#,
        r#","Parameters":{"Node":["i-2"],"For":["600"],"ForceAfter":["never"],"More":["1"]}"#,
    ];
    for parameters in foreign {
        let (server, commands) = commands(&[other(parameters), sent, other(parameters)]);
        commands.send(&drain()).await.unwrap();
        assert_eq!(server.requests().len(), 2, "it is sent: {parameters}");
        assert_eq!(commands.answer(&drain()).await.unwrap(), None, "{parameters}");
    }
    let (server, commands) = commands(&[SENT]);
    commands.send(&drain()).await.unwrap();
    assert_eq!(server.requests().len(), 1, "it was sent before");
}
