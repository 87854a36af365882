//! `slipway snapshot`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::node::answer::VerbAnswer as _;
use slipway_core::node::{Command, CommandView, SnapshotTaken, Verb};
use slipway_core::role::Role;
use slipway_flows::error::FlowError;
use slipway_flows::ports::Commands as _;
use slipway_flows::recovery;
use slipway_ports::ErrorKind;
use tokio::time::sleep;

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::overview::plain;
use crate::printer::Printer;

/// Take a snapshot of etcd now, and wait until it is stored and read back.
///
/// Members are asked one after the other, through Run Command, until one has taken it. The snapshot is sealed on the member; this command cannot read it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  taken and stored
  1  there is no such cluster or no member, or no member could take it
  2  wrong usage
  3  something could not be read, or AWS refused

The IAM permissions for this are listed in docs/cli.md. `slipway snapshots` lists what is stored.

Examples:
  slipway snapshot --cluster prod
  slipway snapshot --cluster prod --output json | jq -r .key")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
}

/// The pause between two queries of Run Command.
const LOOKS: Duration = Duration::from_secs(3);

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    must_stand(&cloud.rollout().await?)?;
    let machines = recovery::machines(cloud.assets(), &cloud.groups(), name).await.map_err(in_cloud)?;
    let members: Vec<(&Role, &String)> = machines
        .iter()
        .filter(|(role, _)| matches!(role, Role::Etcd(_)))
        .flat_map(|(role, instances)| instances.iter().map(move |instance| (role, instance)))
        .collect();
    if members.is_empty() {
        let problem = format!("Auto Scaling has no machine of an etcd member of {name}");
        return Err(CliError::refused(problem, format!("slipway status --cluster {name} shows its nodes")));
    }
    let begun = Timestamp::now();
    let mut failed = Vec::new();
    for (role, instance) in members {
        match taken(&cloud, instance, begun).await? {
            Ok(snapshot) => {
                let text = format!(
                    "{role} ({instance}) took the snapshot {} in {} s: {} bytes, revision {} or later\n{}\n",
                    snapshot.time, snapshot.seconds, snapshot.size, snapshot.revision, snapshot.key
                );
                let machine = json!({
                    "ok": true, "cluster": name, "role": role.to_string(), "instance": instance, "key": snapshot.key,
                    "time": snapshot.time, "bytes": snapshot.size, "revision": snapshot.revision, "failed": failed,
                });
                printer.result(&text, &machine);
                return Ok(Exit::Done);
            }
            Err(why) => {
                let words = format!("{role} ({instance}) took none: {}", plain(&why));
                printer.beside(&format!("{words}\n"));
                failed.push(words);
            }
        }
    }
    let help = format!("slipway status --cluster {name} shows what is wrong with etcd; then try again");
    Err(CliError::refused(format!("no member of {name} took a snapshot: {}", failed.join("; ")), help))
}

/// The snapshot that the machine took, or why it took none.
async fn taken(
    cloud: &Cloud,
    instance: &str,
    begun: Timestamp,
) -> Result<Result<SnapshotTaken, String>, CliError> {
    let (commands, verb) = (cloud.commands(), Verb::EtcdSnapshot);
    // No cluster has this name, so the rollout function ignores the events about it.
    let token = format!("snapshot-{}/{instance}", begun.as_millisecond());
    let command = Command { token, instance: instance.to_owned(), verb };
    if let Err(error) = commands.send(&command).await {
        return match error.kind {
            ErrorKind::Denied => Err(in_cloud(error.into())),
            ErrorKind::Transient | ErrorKind::Missing | ErrorKind::Invalid => {
                Ok(Err(recovery::not_sent(&error)))
            }
        };
    }
    let until = Timestamp::now() + command.verb.answers_within() + SignedDuration::from_mins(1);
    while Timestamp::now() < until {
        match commands.answer(&command).await {
            Ok(Some(view)) if view.is_over() => return Ok(result(&view)),
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::Transient => {}
            Err(error) => return Err(in_cloud(error.into())),
        }
        sleep(LOOKS).await;
    }
    Ok(Err("it gave no answer in time".to_owned()))
}

fn result(view: &CommandView) -> Result<SnapshotTaken, String> {
    match view {
        CommandView::Answered(answer) => {
            SnapshotTaken::from_answer(answer).ok_or_else(|| "it gave another verb's answer".to_owned())
        }
        CommandView::Failed(failure) => Err(failure.with_help()),
        CommandView::Unanswered(unanswered) => Err(unanswered.to_string()),
        CommandView::Pending | CommandView::InProgress => Err("it has not ended".to_owned()),
    }
}

fn in_cloud(error: FlowError) -> CliError {
    CliError::from(error).in_cloud()
}
