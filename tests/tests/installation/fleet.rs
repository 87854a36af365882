//! Auto Scaling and Run Command of the embedded AWS, through the SDK, with the permissions that the template gives the rollout function.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use serde_json::json;
use slipway_aws::Aws;
use slipway_core::node::{Answer, Command, CommandView, Verb};
use slipway_flows::ports::{Commands as _, Groups as _};
use slipway_ports::ErrorKind;
use slipway_rollout::fleet::Lifecycle;
use slipway_tests::client::Client;
use slipway_tests::gateway::Principal;
use slipway_tests::installation::Installation;
use slipway_tests::observe::{Observed, Outcome, PATIENCE};
use slipway_tests::world::Settings;
use slipway_tests::{iam, tools};

const QUIET: Duration = Duration::from_millis(400);
/// The rollout function's answer to an event that concerns no rollout.
const NOBODY: &str = "no rollout of ours waits for that";
/// More machines than any group of the test may have.
const TOO_LARGE: u32 = 1_000;

/// The access keys of two functions.
const ROLLOUT: &str = "ASIASLIPWAYROLLOUT";
const RENDER: &str = "ASIASLIPWAYRENDER";

/// Polls until there is a result.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let looks = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("never: {what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rollout_function_may_steer_groups_and_command_machines_of_clusters_and_nobody_elses() {
    // A machine boots in a tenth of a second.
    let slipway = Installation::start(&Settings { speed: 1_000.0, ..Settings::default() }).await.unwrap();
    let world = slipway.world();
    let mark = world.observer().mark();
    let spec = std::fs::read_to_string(tools::root().join("examples/minimal.yaml")).unwrap();
    slipway.upload("minimal", spec).await.unwrap();
    slipway.rolled_out(mark).await.unwrap();
    let rolled = world.observer().mark();

    let aws = |key: &str| Aws::emulated(world.gateway().url(), world.region(), key).unwrap();
    let (groups, commands) = (&aws(ROLLOUT).groups(), &aws(ROLLOUT).commands());
    let pool = "minimal-pool-general";
    let serving = async |group: &str, but: &str| {
        until(&format!("a machine of {group} serves"), || async move {
            let seen = groups.group(group).await.unwrap()?;
            let mut machines = seen.machines.into_iter();
            let found = machines.find(|(id, one)| one.lifecycle == Lifecycle::InService && *id != but);
            found.map(|(id, _)| id)
        })
        .await
    };
    let (controller, worker) = (serving("minimal-control-plane", "").await, serving(pool, "").await);
    let seen = groups.group(pool).await.unwrap().unwrap();
    assert_eq!(seen.tags["slipway:cluster"], "minimal");
    // The function may set the size; Auto Scaling itself refuses this one.
    let too_large = groups.raise_desired(pool, TOO_LARGE).await.unwrap_err();
    assert_eq!(too_large.kind, ErrorKind::Invalid, "{too_large:?}");

    // A verb runs, and is sent once per token.
    let status = Command { token: "minimal/1/status".to_owned(), instance: controller, verb: Verb::Status };
    for _ in 0..2 {
        commands.send(&status).await.unwrap();
    }
    let over = |view: CommandView| view.is_over().then_some(view);
    let status = &status;
    let answer =
        until("the verb's answer", || async move { commands.answer(status).await.unwrap().and_then(over) });
    let answer = answer.await;
    let CommandView::Answered(Answer::Status(answer)) = answer else { panic!("{answer:?}") };
    assert_eq!(answer.role, "controller");

    // A machine passes through its hook, and another replaces it.
    groups.terminate(pool, &worker, None).await.unwrap();
    let held = groups.group(pool).await.unwrap().unwrap();
    // The function drains it meanwhile, and may be the first to complete the hook.
    let lifecycle = held.machines.get(&worker).map(|one| one.lifecycle);
    let leaves = matches!(lifecycle, None | Some(Lifecycle::TerminatingWait | Lifecycle::Terminating));
    assert!(leaves, "{lifecycle:?}");
    groups.prolong_termination(pool, &worker).await.unwrap();
    groups.complete_termination(pool, &worker).await.unwrap();
    serving(pool, &worker).await;
    let worker = &worker;
    until("the old one is gone", || async move {
        let seen = groups.group(pool).await.unwrap()?;
        (!seen.machines.contains_key(worker)).then_some(())
    })
    .await;
    // The service itself reports that a machine does not exist any more.
    groups.terminate(pool, worker, None).await.unwrap();
    groups.complete_termination(pool, worker).await.unwrap();
    let late = Command { token: "minimal/1/late".to_owned(), instance: worker.clone(), verb: Verb::Status };
    assert_eq!(commands.send(&late).await.unwrap_err().kind, ErrorKind::Invalid);
    let refused: Vec<_> = world.observer().calls(mark).into_iter().filter_map(|call| call.refused).collect();
    assert_eq!(refused, Vec::<String>::new());

    // The events of AWS reached the function: it drained the worker that was being terminated, and ignored all events that no rollout waits
    // for.
    for rule in ["MachineMoved", "CommandEnded"] {
        let brought = world.observer().wait(rolled, PATIENCE, |seen| match &seen.what {
            Observed::Routed { rule: which, .. } => which.contains(rule).then_some(()),
            _ => None,
        });
        brought.await.unwrap_or_else(|| panic!("{rule} brought nothing"));
    }
    assert!(world.settle(QUIET, PATIENCE).await);
    let (mut left, mut stands) = (0, 0);
    for seen in world.observer().since(rolled) {
        match seen.what {
            Observed::Finished { outcome: Outcome::Answered(said), .. } if said == NOBODY => left += 1,
            Observed::Finished { outcome: Outcome::Answered(said), .. } => {
                let stood = said.as_str().is_some_and(|said| said.starts_with("succeeded: "));
                assert!(stood, "no rollout was begun: {said}");
                stands += 1;
            }
            Observed::Finished { outcome, .. } => panic!("{outcome:?}"),
            Observed::Call(call) if call.action.starts_with("s3:") => {
                assert!(call.resource.contains("/clusters/minimal"), "{call:?}");
            }
            _ => {}
        }
    }
    assert!(left >= 1 && stands >= 1, "{left} wakes concerned nothing, {stands} the worker");
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);

    // Only a person may restore etcd and read logs; other functions may do none of this; the tags decide.
    let restore = json!({
        "DocumentName": "Slipway-EtcdRestore", "InstanceIds": [status.instance], "TimeoutSeconds": 60,
        "Parameters": {"Snapshot": ["20261121T204500Z"]},
    });
    let wire = Client::new(world.gateway().url(), world.region(), ROLLOUT);
    let logs =
        json!({"DocumentName": "Slipway-Logs", "InstanceIds": [status.instance], "TimeoutSeconds": 60});
    for document in [restore, logs] {
        let no = wire.json("ssm", "AmazonSSM.SendCommand", document).await.unwrap_err();
        assert!(format!("{no:?}").contains("AccessDenied"), "{no:?}");
    }
    let denied = async |key: &str| {
        let (groups, commands) = (aws(key).groups(), aws(key).commands());
        let again = Command { token: format!("{key}/status"), ..status.clone() };
        let tried = BTreeMap::from([
            ("set", groups.raise_desired(pool, TOO_LARGE).await.map_err(|error| error.kind)),
            ("send", commands.send(&again).await.map_err(|error| error.kind)),
        ]);
        tried
            .into_iter()
            .filter(|(_, result)| *result == Err(ErrorKind::Denied))
            .map(|(what, _)| what)
            .collect::<Vec<_>>()
    };
    let both: Vec<&str> = vec!["send", "set"];
    assert_eq!(denied(RENDER).await, both);
    for (cluster, wanted) in [("another", &both), ("minimal", &Vec::new())] {
        let statements = iam::parse(&json!({"Statement": [
            {"Sid": "Look", "Effect": "Allow", "Action": ["ssm:ListCommands", "autoscaling:DescribeAutoScalingGroups"], "Resource": "*"},
            {"Sid": "Document", "Effect": "Allow", "Action": "ssm:SendCommand",
             "Resource": format!("arn:aws:ssm:{}:123456789012:document/Slipway-Status", world.region())},
            {"Sid": "Machines", "Effect": "Allow", "Action": "ssm:SendCommand", "Resource": "arn:aws:ec2:*:*:instance/*",
             "Condition": {"StringEquals": {"ssm:resourceTag/slipway:cluster": cluster}}},
            {"Sid": "Groups", "Effect": "Allow", "Action": "autoscaling:SetDesiredCapacity", "Resource": "*",
             "Condition": {"StringEquals": {"aws:ResourceTag/slipway:cluster": cluster}}},
        ]}));
        let name = format!("of {cluster}");
        let arn = "arn:aws:iam::123456789012:role/other".to_owned();
        world.gateway().know("AKIAOTHER", Principal { name, arn, statements: statements.unwrap() });
        assert_eq!(denied("AKIAOTHER").await, *wanted, "{cluster}");
    }
}
