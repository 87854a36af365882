//! Run Command in this process, with the answers in the form that `slipway-aws` makes of the API's.

use slipway_core::node::{Command, CommandStatus, CommandView, Invocation, Verb};
use slipway_flows::ports::Commands;
use slipway_ports::PortResult;

use super::{SharedWorld, lock, port_error};
use crate::world::{CommandRequest, Details, PRINTED_AT_MOST, Sent};

/// The delivery timeout, as `slipway-aws` sets it.
const DELIVERY_S: u32 = 120;

/// Run Command in this process.
#[derive(Debug, Clone)]
pub struct SimulatedCommands {
    world: SharedWorld,
}

impl SimulatedCommands {
    /// A handle of `world`.
    #[must_use]
    pub fn new(world: SharedWorld) -> Self {
        Self { world }
    }

    fn find(&self, command: &Command) -> PortResult<Option<String>> {
        let mut world = lock(&self.world);
        let found = world.find_command(&command.instance, command.verb.document(), &command.token);
        let found = found.map_err(|error| port_error("ssm:ListCommands", &command.instance, &error))?;
        Ok(found.map(|sent| sent.id.clone()))
    }
}

impl Commands for SimulatedCommands {
    async fn send(&self, command: &Command) -> PortResult<()> {
        if self.find(command)?.is_some() {
            return Ok(());
        }
        let request = CommandRequest {
            document: command.verb.document().to_owned(),
            parameters: command.verb.parameters(),
            instance: command.instance.clone(),
            comment: command.token.clone(),
            timeout_s: DELIVERY_S,
        };
        let sent = lock(&self.world).send_command(request);
        sent.map(drop).map_err(|error| port_error("ssm:SendCommand", &command.instance, &error))
    }

    async fn answer(&self, command: &Command) -> PortResult<Option<CommandView>> {
        let Some(id) = self.find(command)? else { return Ok(None) };
        let mut world = lock(&self.world);
        match world.command_invocation(&id, &command.instance) {
            Ok(found) => Ok(Some(view(&command.verb, found))),
            // The command was sent a moment ago.
            Err(error) if error.code == "InvocationDoesNotExist" => Ok(Some(CommandView::Pending)),
            Err(error) => Err(port_error("ssm:GetCommandInvocation", &command.instance, &error)),
        }
    }

    async fn cancel(&self, command: &Command) -> PortResult<()> {
        let Some(id) = self.find(command)? else { return Ok(()) };
        let cancelled = lock(&self.world).cancel_command(&id);
        cancelled.map_err(|error| port_error("ssm:CancelCommand", &command.instance, &error))
    }

    async fn token(&self, id: &str) -> PortResult<Option<String>> {
        let mut world = lock(&self.world);
        let listed = world.list_commands(None, None);
        let listed = listed.map_err(|error| port_error("ssm:ListCommands", id, &error))?;
        let found = listed.into_iter().find(|sent| sent.id == id);
        Ok(found.map(|sent| sent.comment.clone()).filter(|token| !token.is_empty()))
    }
}

fn view(verb: &Verb, sent: &Sent) -> CommandView {
    let status = match sent.details {
        Details::Pending => CommandStatus::Pending,
        Details::InProgress | Details::Cancelling => CommandStatus::InProgress,
        Details::Success => CommandStatus::Success,
        Details::Failed | Details::Cancelled => CommandStatus::Failed,
        Details::ExecutionTimedOut => CommandStatus::TimedOut,
        Details::DeliveryTimedOut => CommandStatus::Undelivered,
    };
    let printed: String = sent.output.chars().take(PRINTED_AT_MOST).collect();
    let invocation = Invocation {
        status,
        details: sent.details.name(),
        response_code: sent.response_code,
        printed: &printed,
        errors: "",
    };
    CommandView::read(verb, &invocation)
}
