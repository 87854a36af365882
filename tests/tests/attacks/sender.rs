//! Somebody who may send Slipway's documents of Systems Manager to the machines of a cluster. That a command with a guessed token is not taken for a
//! function's is shown in `shared/aws/src/commands/tests.rs`, and that a member lets no restore raise revisions too little in `tests/tests/etcd`.

use slipway_core::node::{Answer, CommandStatus, CommandView, Invocation, Verb};
use slipway_tests::client::ACCOUNT;
use slipway_tests::iam;

use crate::{installation, is_allowed, request, role};

fn said(verb: &Verb, printed: &str) -> CommandView {
    let invocation = Invocation {
        status: CommandStatus::Success,
        details: "Success",
        response_code: 0,
        printed,
        errors: "",
    };
    CommandView::read(verb, &invocation)
}

/// "Empty" of a drain has a machine terminated: it must be said of that machine.
#[test]
fn what_is_said_of_another_node_says_nothing_of_this_one() {
    let node = "i-0abc".to_owned();
    let drain = Verb::Drain { node: node.clone(), for_s: 600, force_after_s: None };
    let uncordon = Verb::Uncordon { node };
    let answers = [(&drain, r#","done":true}"#), (&uncordon, r#","cordoned":false}"#)];
    for (verb, rest) in answers {
        let own = said(verb, &format!(r#"{{"node":"i-0abc"{rest}"#));
        assert!(matches!(own, CommandView::Answered(Answer::Drain(_) | Answer::Uncordon(_))), "{own:?}");
        for other in ["i-9", "", "i-0abc\u{1b}"] {
            let other = said(
                verb,
                &serde_json::json!({ "node": other, "done": true, "cordoned": false }).to_string(),
            );
            let CommandView::Unanswered(why) = other else { panic!("{other:?}") };
            assert!(why.to_string().contains("another node"), "{why}");
        }
    }
}

/// What only people do: whoever has a function's role does none of it.
#[tokio::test]
async fn no_function_restores_etcd_or_reads_logs() {
    let world = installation().await;
    for id in ["RenderRole", "RolloutRole", "ScanRole"] {
        let may = |document: &str| {
            let arn = format!("arn:aws:ssm:{}:{ACCOUNT}:document/{document}", world.region());
            is_allowed(&iam::decide(role(&world, id), &request("ssm:SendCommand", &arn, &[])))
        };
        for document in
            ["Slipway-EtcdRestore", "Slipway-EtcdDefragment", "Slipway-Logs", "AWS-RunShellScript"]
        {
            assert!(!may(document), "{id}: {document}");
        }
        assert_eq!(may("Slipway-EtcdSnapshot"), id == "RolloutRole", "{id}");
    }
}
