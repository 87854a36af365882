//! Verbs of the agent that a person sends to a machine through Run Command, and the machines of the members of etcd.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::answer::VerbAnswer;
use slipway_core::node::{Command, CommandView, Unanswered, Verb, VerbFailure};
use slipway_core::role::Role;
use slipway_flows::credentials::rotation::Machines;
use slipway_flows::error::FlowError;
use slipway_flows::ports::Commands as _;
use slipway_flows::recovery;
use slipway_ports::ErrorKind;
use tokio::time::sleep;

use crate::cloud::{Cloud, must_stand};
use crate::failure::CliError;

/// The pause between two queries of Run Command.
pub(crate) const POLL_PAUSE: Duration = Duration::from_secs(3);

/// The machines of all roles that are in service or starting.
pub(crate) async fn all_machines(cloud: &Cloud) -> Result<Machines, CliError> {
    recovery::machines(cloud.assets(), &cloud.groups(), &cloud.cluster).await.map_err(in_cloud)
}

/// The machines of the members, by role; an error if Auto Scaling has none.
pub(crate) async fn machines(cloud: &Cloud) -> Result<Vec<(Role, String)>, CliError> {
    let name = cloud.cluster.as_str();
    let machines = all_machines(cloud).await?;
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

/// Fails if a rollout or a destruction is open: both count on members that another command would make stand still.
pub(crate) async fn must_be_at_rest(cloud: &Cloud) -> Result<(), CliError> {
    let (rollout, name) = (cloud.rollout().await?, cloud.cluster.as_str());
    must_stand(&rollout)?;
    if rollout.active().is_none() && !rollout.is_going() {
        return Ok(());
    }
    let what = if rollout.is_going() { "destruction" } else { "rollout" };
    Err(CliError::refused(
        format!("a {what} of {name} is open, and needs its members of etcd"),
        format!(
            "wait until it has ended (slipway watch --cluster {name}); if it waits because etcd is full, end it: slipway abort --cluster {name}"
        ),
    ))
}

/// The machine of each member. While one is replaced, it has two.
pub(crate) fn one_each(
    name: &str,
    machines: Vec<(Role, String)>,
) -> Result<BTreeMap<Role, String>, CliError> {
    let mut members = BTreeMap::new();
    for (role, instance) in machines {
        if let Some(other) = members.insert(role.clone(), instance.clone()) {
            let problem = format!("{role} has two machines, {other} and {instance}");
            let help = format!("wait until one is gone: slipway status --cluster {name}");
            return Err(CliError::refused(problem, help));
        }
    }
    Ok(members)
}

/// Why a machine gave no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Run Command did not take the command, in words.
    NotSent(String),
    /// The verb failed.
    Failed(VerbFailure),
    /// It ended otherwise.
    Unanswered(Unanswered),
    /// It gave the answer of another verb.
    OfAnotherVerb,
    /// It has not ended in time.
    NotInTime,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => f.write_str(why),
            Self::Failed(failure) => f.write_str(&failure.with_help()),
            Self::Unanswered(unanswered) => unanswered.fmt(f),
            Self::OfAnotherVerb => f.write_str("it gave another verb's answer"),
            Self::NotInTime => f.write_str("it gave no answer in time"),
        }
    }
}

/// The answer of the machine, or why it gave none. `token`: what identifies the command. It is not the name of a cluster, so the rollout
/// function ignores the events about it.
pub(crate) async fn answer<A: VerbAnswer>(
    cloud: &Cloud,
    instance: &str,
    verb: Verb,
    token: &str,
) -> Result<Result<A, NoAnswer>, CliError> {
    let commands = cloud.commands();
    let command = Command { token: format!("{token}/{instance}"), instance: instance.to_owned(), verb };
    if let Err(error) = commands.send(&command).await {
        return match error.kind {
            ErrorKind::Denied => Err(in_cloud(error.into())),
            ErrorKind::Transient | ErrorKind::Missing | ErrorKind::Invalid => {
                Ok(Err(NoAnswer::NotSent(recovery::not_sent(&error))))
            }
        };
    }
    let until = Timestamp::now() + command.verb.answers_within() + SignedDuration::from_mins(1);
    while Timestamp::now() < until {
        match commands.answer(&command).await {
            Ok(Some(view)) if view.is_over() => return Ok(result(view)),
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::Transient => {}
            Err(error) => return Err(in_cloud(error.into())),
        }
        sleep(POLL_PAUSE).await;
    }
    Ok(Err(NoAnswer::NotInTime))
}

fn result<A: VerbAnswer>(view: CommandView) -> Result<A, NoAnswer> {
    match view {
        CommandView::Answered(answer) => A::from_answer(&answer).ok_or(NoAnswer::OfAnotherVerb),
        CommandView::Failed(failure) => Err(NoAnswer::Failed(failure)),
        CommandView::Unanswered(unanswered) => Err(NoAnswer::Unanswered(unanswered)),
        CommandView::Pending | CommandView::InProgress => Err(NoAnswer::NotInTime),
    }
}

pub(crate) fn in_cloud(error: FlowError) -> CliError {
    CliError::from(error).in_cloud()
}
