//! The members of etcd: their machines, and verbs of the agent that a person sends to them through Run Command.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::answer::VerbAnswer;
use slipway_core::node::{Command, CommandView, Verb};
use slipway_core::role::Role;
use slipway_flows::error::FlowError;
use slipway_flows::ports::Commands as _;
use slipway_flows::recovery;
use slipway_ports::ErrorKind;
use tokio::time::sleep;

use crate::cloud::Cloud;
use crate::failure::CliError;

/// The pause between two queries of Run Command.
pub(crate) const LOOKS: Duration = Duration::from_secs(3);

/// The machines of the members, by role; an error if Auto Scaling has none.
pub(crate) async fn machines(cloud: &Cloud) -> Result<Vec<(Role, String)>, CliError> {
    let name = cloud.cluster.as_str();
    let machines = recovery::machines(cloud.assets(), &cloud.groups(), name).await.map_err(in_cloud)?;
    let members: Vec<(Role, String)> = machines
        .into_iter()
        .filter(|(role, _)| matches!(role, Role::Etcd(_)))
        .flat_map(|(role, instances)| instances.into_iter().map(move |instance| (role.clone(), instance)))
        .collect();
    if members.is_empty() {
        let problem = format!("Auto Scaling has no machine of an etcd member of {name}");
        return Err(CliError::refused(problem, format!("slipway status --cluster {name} shows its nodes")));
    }
    Ok(members)
}

/// The answer of the machine, or why it gave none. `token`: what identifies the command. It is not the name of a cluster, so the rollout
/// function ignores the events about it.
pub(crate) async fn answer<A: VerbAnswer>(
    cloud: &Cloud,
    instance: &str,
    verb: Verb,
    token: &str,
) -> Result<Result<A, String>, CliError> {
    let commands = cloud.commands();
    let command = Command { token: format!("{token}/{instance}"), instance: instance.to_owned(), verb };
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

fn result<A: VerbAnswer>(view: &CommandView) -> Result<A, String> {
    match view {
        CommandView::Answered(answer) => {
            A::from_answer(answer).ok_or_else(|| "it gave another verb's answer".to_owned())
        }
        CommandView::Failed(failure) => Err(failure.with_help()),
        CommandView::Unanswered(unanswered) => Err(unanswered.to_string()),
        CommandView::Pending | CommandView::InProgress => Err("it has not ended".to_owned()),
    }
}

pub(crate) fn in_cloud(error: FlowError) -> CliError {
    CliError::from(error).in_cloud()
}
