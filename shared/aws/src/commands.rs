//! Run Command of Systems Manager: one verb of the node agent, on one machine.

use std::collections::HashMap;

use aws_sdk_ssm::operation::get_command_invocation::GetCommandInvocationOutput;
use aws_sdk_ssm::types::{CommandFilter, CommandFilterKey};
use slipway_core::node::{Command, CommandStatus, CommandView, HowUnanswered, Invocation, Unanswered, Verb};
use slipway_flows::ports::Commands;
use slipway_ports::PortResult;

use crate::error::{code, port_error};

/// How long Run Command waits for a machine to take a command. One that is up takes it within seconds; one that is not shall not
/// begin later, when the rollout is elsewhere.
const DELIVERY_S: i32 = 120;

/// Pages of commands that are read at most, 50 a page. They come newest first: a rollout's commands to one machine are few, and
/// one that is older than 250 others of its document was of another rollout.
const MAX_PAGES: u32 = 5;

/// Run Command.
#[derive(Debug, Clone)]
pub struct RunCommand {
    client: aws_sdk_ssm::Client,
}

impl RunCommand {
    pub(crate) fn new(client: aws_sdk_ssm::Client) -> Self {
        Self { client }
    }

    /// The id of the newest command that bears `command`'s token and has its parameters. Tokens can be guessed: whoever may send one of the documents could
    /// send it before the function does, with parameters of their own. `ListCommands` returns the parameters as they were sent (its example in
    /// AWS' code library).
    async fn find(&self, command: &Command) -> PortResult<Option<String>> {
        let filter = CommandFilter::builder()
            .key(CommandFilterKey::DocumentName)
            .value(command.verb.document())
            .build()
            .expect("a filter has a key and a value");
        let mut token = None;
        for _ in 0..MAX_PAGES {
            let page = self.client.list_commands().instance_id(&command.instance).filters(filter.clone());
            let page = match page.max_results(50).set_next_token(token.take()).send().await {
                Ok(page) => page,
                // Nothing was ever asked of a machine that Run Command does not know.
                Err(error) if code(&error) == "InvalidInstanceId" => return Ok(None),
                Err(error) => return Err(port_error("ssm:ListCommands", subject(command), &error)),
            };
            token = page.next_token().filter(|token| !token.is_empty()).map(str::to_owned);
            let found = page.commands().iter().find(|sent| is_sent(sent, command));
            if let Some(id) = found.and_then(|sent| sent.command_id()) {
                return Ok(Some(id.to_owned()));
            }
            if token.is_none() {
                break;
            }
        }
        Ok(None)
    }
}

/// Whether `sent` is this command: its token, and each parameter with the one value that it has. An absent list is an empty one.
fn is_sent(sent: &aws_sdk_ssm::types::Command, command: &Command) -> bool {
    let wanted = command.verb.parameters();
    let has = |(name, value): (&String, &String)| {
        sent.parameters()
            .and_then(|all| all.get(name))
            .is_some_and(|values| values == std::slice::from_ref(value))
    };
    sent.comment() == Some(command.token.as_str())
        && sent.parameters().map_or(0, HashMap::len) == wanted.len()
        && wanted.iter().all(has)
}

fn subject(command: &Command) -> String {
    format!("{} on {}", command.verb.document(), command.instance)
}

impl Commands for RunCommand {
    async fn send(&self, command: &Command) -> PortResult<()> {
        if self.find(command).await?.is_some() {
            return Ok(());
        }
        let parameters: HashMap<String, Vec<String>> =
            command.verb.parameters().into_iter().map(|(name, value)| (name, vec![value])).collect();
        let call = self.client.send_command().document_name(command.verb.document());
        let call = call.instance_ids(&command.instance).comment(&command.token);
        let call = call.timeout_seconds(DELIVERY_S);
        match call.set_parameters((!parameters.is_empty()).then_some(parameters)).send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(port_error("ssm:SendCommand", subject(command), &error)),
        }
    }

    async fn answer(&self, command: &Command) -> PortResult<Option<CommandView>> {
        let Some(id) = self.find(command).await? else { return Ok(None) };
        match self.client.get_command_invocation().command_id(&id).instance_id(&command.instance).send().await
        {
            Ok(found) => Ok(Some(view(&command.verb, &found))),
            // A moment after it was sent.
            Err(error) if code(&error) == "InvocationDoesNotExist" => Ok(Some(CommandView::Pending)),
            // Its machine is gone (the API reference: "Invalid states are: Shutting-down and Terminated"), and with it the answer. An error
            // would stop every decision about the cluster.
            Err(error) if code(&error) == "InvalidInstanceId" => {
                Ok(Some(CommandView::Unanswered(Unanswered {
                    how: HowUnanswered::Undelivered,
                    problem: Some("its machine does not exist any more".to_owned()),
                })))
            }
            Err(error) if code(&error) == "InvalidCommandId" => Ok(None),
            Err(error) => Err(port_error("ssm:GetCommandInvocation", subject(command), &error)),
        }
    }

    async fn cancel(&self, command: &Command) -> PortResult<()> {
        let Some(id) = self.find(command).await? else { return Ok(()) };
        match self.client.cancel_command().command_id(&id).instance_ids(&command.instance).send().await {
            Ok(_) => Ok(()),
            // It is over, or its machine is gone.
            Err(error) if matches!(code(&error), "InvalidCommandId" | "InvalidInstanceId") => Ok(()),
            Err(error) => Err(port_error("ssm:CancelCommand", subject(command), &error)),
        }
    }

    async fn token(&self, id: &str) -> PortResult<Option<String>> {
        match self.client.list_commands().command_id(id).send().await {
            Ok(found) => {
                let comment = found.commands().first().and_then(|sent| sent.comment());
                Ok(comment.filter(|token| !token.is_empty()).map(str::to_owned))
            }
            Err(error) if code(&error) == "InvalidCommandId" => Ok(None),
            Err(error) => Err(port_error("ssm:ListCommands", id, &error)),
        }
    }
}

fn view(verb: &Verb, found: &GetCommandInvocationOutput) -> CommandView {
    let details = found.status_details().unwrap_or_default();
    let status = status(details)
        .or_else(|| found.status().and_then(|status| self::status(status.as_str())))
        // A word that this release does not know: what was asked for has not been answered as it should.
        .unwrap_or(CommandStatus::Failed);
    let invocation = Invocation {
        status,
        details,
        response_code: found.response_code(),
        printed: found.standard_output_content().unwrap_or_default(),
        errors: found.standard_error_content().unwrap_or_default(),
    };
    CommandView::read(verb, &invocation)
}

/// `StatusDetails`, or `Status` where there is none. The documentation spells the former with spaces, the service without.
fn status(word: &str) -> Option<CommandStatus> {
    let word: String = word.chars().filter(|c| !c.is_whitespace()).collect();
    Some(match word.as_str() {
        "Pending" | "Delayed" => CommandStatus::Pending,
        "InProgress" | "Cancelling" => CommandStatus::InProgress,
        "Success" => CommandStatus::Success,
        "Failed" | "Cancelled" | "Canceled" | "Terminated" => CommandStatus::Failed,
        "ExecutionTimedOut" | "TimedOut" => CommandStatus::TimedOut,
        "DeliveryTimedOut" | "Undeliverable" | "InvalidPlatform" | "AccessDenied" => {
            CommandStatus::Undelivered
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
