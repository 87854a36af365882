//! Run Command: sending a command, its delivery to a machine, and its result.

mod agent;
mod documents;
mod outside;
mod workers;

pub use documents::{DocumentFacts, documents};
pub use outside::Ended;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::node::answer::{VerbOutcome, printed};
use slipway_core::node::{FailureCode, Verb, VerbFailure};

use super::World;
use super::cluster::Drain;
use super::error::{ApiError, ApiResult};
use super::machine::Power;
use super::task::{CommandTask, Task};

/// The time from sending a command to its delivery to the machine.
const TAKEN_S: (f64, f64) = (0.5, 3.0);
/// How long a slow snapshot takes. Those that take longer than a quarter of an hour do not count.
const SLOW_SNAPSHOT_S: (f64, f64) = (60.0, 1_200.0);
/// Characters of its standard output that `GetCommandInvocation` gives (botocore: "The first 24,000 characters written by the plugin to
/// stdout").
pub(crate) const PRINTED_AT_MOST: usize = 24_000;
/// For how long a command may be missing from lists, if that fault occurs.
const UNLISTED_S: (f64, f64) = (2.0, 20.0);

/// A command, sent to one machine.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) document: String,
    pub(crate) parameters: BTreeMap<String, String>,
    /// The verb that its document runs with these parameters.
    verb: Verb,
    pub(crate) instance: String,
    pub(crate) comment: String,
    pub(crate) sent_at: Timestamp,
    pub(crate) timeout_s: u32,
    /// The time from which it is listed.
    listed_at: Timestamp,
    pub(crate) details: Details,
    /// Its output.
    pub(crate) output: String,
    pub(crate) response_code: i32,
    pub(crate) started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    drain: Option<Drain>,
    /// The time from which `GetCommandInvocation` knows it.
    known_at: Timestamp,
    place: Place,
    /// Its result and output, while Systems Manager does not reach the agent of its machine.
    untold: Option<(Details, Value)>,
}

/// Where a command is on its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The agent has not taken it.
    Outside,
    /// The agent has accepted it, and no worker is free.
    Buffer,
    /// A worker runs it.
    Worker,
    /// It is over.
    Gone,
}

/// A command that somebody outside of this world executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegated {
    /// `CommandId`.
    pub id: String,
    /// `Slipway-EtcdHealth`, ….
    pub document: String,
    /// By name.
    pub parameters: BTreeMap<String, String>,
    /// The machine that it was sent to.
    pub instance: String,
    /// The role of that machine: `etcd-0`, ….
    pub role: String,
    /// How long it may take.
    pub timeout_s: u32,
}

/// The time span of a node's drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainFacts {
    /// The node that was drained.
    pub node: String,
    /// When the command was sent to a controller.
    pub from: Timestamp,
    /// When the command ended.
    pub until: Timestamp,
}

/// `StatusDetails`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Details {
    Pending,
    InProgress,
    /// It was cancelled while its machine was running it.
    Cancelling,
    Success,
    Failed,
    Cancelled,
    ExecutionTimedOut,
    DeliveryTimedOut,
}

impl Details {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::InProgress => "InProgress",
            Self::Cancelling => "Cancelling",
            Self::Cancelled => "Cancelled",
            Self::Success => "Success",
            Self::Failed => "Failed",
            Self::ExecutionTimedOut => "ExecutionTimedOut",
            Self::DeliveryTimedOut => "DeliveryTimedOut",
        }
    }

    /// `Status`, which has fewer values.
    pub(crate) fn status(self) -> &'static str {
        match self {
            Self::ExecutionTimedOut | Self::DeliveryTimedOut => "TimedOut",
            Self::Pending
            | Self::InProgress
            | Self::Cancelling
            | Self::Success
            | Self::Failed
            | Self::Cancelled => self.name(),
        }
    }

    pub(crate) fn is_over(self) -> bool {
        !matches!(self, Self::Pending | Self::InProgress | Self::Cancelling)
    }
}

/// The parameters of `SendCommand`.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandRequest {
    pub(crate) document: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) instance: String,
    pub(crate) comment: String,
    pub(crate) timeout_s: u32,
}

impl World {
    /// The completed drains, in the order in which they were requested.
    #[must_use]
    pub fn drains(&self) -> Vec<DrainFacts> {
        let drains = self.fleet.commands.iter().filter_map(|sent| {
            let node = sent.verb.drains()?.to_owned();
            Some(DrainFacts { node, from: sent.sent_at, until: sent.ended_at? })
        });
        drains.collect()
    }

    /// From now on, somebody outside of this world executes the commands to machines of these roles: see [`World::delegated`].
    pub fn delegate(&mut self, roles: &[&str]) {
        self.fleet.outside = roles.iter().map(|role| (*role).to_owned()).collect();
    }

    /// Returns the commands to execute outside, each once. A command ends by [`World::answer`] or by the timeout of its document.
    pub fn delegated(&mut self) -> Vec<Delegated> {
        std::mem::take(&mut self.fleet.delegated)
    }

    /// Sets the result of the command with that id. A command that has ended does not change.
    pub fn answer(&mut self, id: &str, answer: Result<Value, Value>) {
        let Some(place) = self.fleet.commands.iter().position(|sent| sent.id == id) else { return };
        match answer {
            Ok(answer) => self.command_ends(place, Details::Success, Some(&answer)),
            Err(error) => self.command_ends(place, Details::Failed, Some(&error)),
        }
    }

    /// The verb ends with this outcome and prints it.
    fn verb_ends(&mut self, place: usize, outcome: &VerbOutcome) {
        let details = if outcome.is_ok() { Details::Success } else { Details::Failed };
        if self.is_reached(place) {
            return self.command_ends(place, details, Some(&printed(outcome)));
        }
        let sent = &mut self.fleet.commands[place];
        sent.untold = Some((details, printed(outcome)));
        sent.place = Place::Gone;
        let instance = sent.instance.clone();
        self.worker_is_free(&instance);
    }

    /// Systems Manager reaches the agent of a machine again. The agent reports results that it could not report, and stops
    /// cancelled commands.
    pub(in crate::world) fn report_ended_commands(&mut self, instance: &str) {
        let of_it = self.fleet.commands.iter().enumerate().filter(|(_, sent)| sent.instance == instance);
        let of_it = of_it.filter(|(_, sent)| !sent.details.is_over());
        let places: Vec<usize> = of_it.map(|(place, _)| place).collect();
        for place in places {
            if let Some((details, answer)) = self.fleet.commands[place].untold.take() {
                self.command_ends(place, details, Some(&answer));
            } else if self.fleet.commands[place].details == Details::Cancelling {
                self.command_stops(place);
            }
        }
    }

    /// A machine learns that a command was cancelled.
    fn command_stops(&mut self, place: usize) {
        let seconds = self.draw_s("command stops", TAKEN_S.0, TAKEN_S.1);
        self.after_s(seconds, Task::Command(CommandTask::Stopped(place)));
    }

    /// Whether somebody outside executes the command. If so, it is handed over.
    fn is_delegated(&mut self, place: usize) -> bool {
        let sent = &self.fleet.commands[place];
        let role = self.fleet.machines.get(&sent.instance).map(|machine| machine.role().to_owned());
        let others = self.fleet.others_run_machines;
        let Some(role) = role.filter(|role| others || self.fleet.outside.contains(role)) else {
            return false;
        };
        self.fleet.delegated.push(Delegated {
            id: sent.id.clone(),
            document: sent.document.clone(),
            parameters: sent.parameters.clone(),
            instance: sent.instance.clone(),
            role,
            timeout_s: documents::timeout_s(&sent.document),
        });
        true
    }

    /// `SendCommand`. Returns the command's id.
    pub(crate) fn send_command(&mut self, request: CommandRequest) -> ApiResult<String> {
        self.enter("SendCommand")?;
        let verb = documents::verb(&request.document, &request.parameters)?;
        if request.comment.chars().count() > 100 {
            return Err(ApiError::validation_exception(
                "1 validation error detected: Value at 'comment' failed to satisfy constraint: Member must have length less than or equal to 100",
            ));
        }
        if !(30..=2_592_000).contains(&request.timeout_s) {
            return Err(ApiError::validation_exception(
                "1 validation error detected: Value at 'timeoutSeconds' failed to satisfy constraint: Member must have value between 30 and 2592000",
            ));
        }
        let machine = self.fleet.machines.get(&request.instance);
        let known = machine.is_some_and(|one| one.power == Power::Up && !one.unregistered);
        if !known {
            let account = &self.config.account;
            return Err(ApiError::invalid_instance_id(format!(
                "Instances [[{}]] not in a valid state for account {account}",
                request.instance
            )));
        }
        let id = self.uuid();
        let unlisted = self.fleet.faults.command_unlisted;
        let mut listed_at = self.now;
        if self.chance("unlisted command", unlisted) {
            listed_at += SignedDuration::from_secs_f64(self.draw_s("unlisted", UNLISTED_S.0, UNLISTED_S.1));
        }
        let undescribed = self.fleet.faults.command_undescribed;
        let mut known_at = self.now;
        if self.chance("undescribed command", undescribed) {
            known_at += SignedDuration::from_secs_f64(self.draw_s("undescribed", UNLISTED_S.0, UNLISTED_S.1));
        }
        let place = self.fleet.commands.len();
        self.record(format!("{} is sent to {}", request.document, request.instance));
        self.fleet.commands.push(Sent {
            id: id.clone(),
            document: request.document,
            parameters: request.parameters,
            verb,
            instance: request.instance,
            comment: request.comment,
            sent_at: self.now,
            timeout_s: request.timeout_s,
            listed_at,
            details: Details::Pending,
            output: String::new(),
            response_code: -1,
            started_at: None,
            ended_at: None,
            drain: None,
            known_at,
            place: Place::Outside,
            untold: None,
        });
        let seconds = self.draw_s("command taken", TAKEN_S.0, TAKEN_S.1);
        self.after_s(seconds, Task::Command(CommandTask::Taken(place)));
        self.exactly_after_s(request.timeout_s, Task::Command(CommandTask::DeliveryOver(place)));
        Ok(id)
    }

    /// `ListCommands`, newest first, of one machine and one document.
    pub(crate) fn list_commands(
        &mut self,
        instance: Option<&str>,
        document: Option<&str>,
    ) -> ApiResult<Vec<&Sent>> {
        self.enter("ListCommands")?;
        let now = self.now;
        let sent = self.fleet.commands.iter().rev().filter(|sent| sent.listed_at <= now);
        let sent = sent.filter(|sent| instance.is_none_or(|id| sent.instance == id));
        Ok(sent.filter(|sent| document.is_none_or(|name| sent.document == name)).collect())
    }

    /// As [`World::list_commands`]: the newest command with that comment.
    pub(crate) fn find_command(
        &mut self,
        instance: &str,
        document: &str,
        comment: &str,
    ) -> ApiResult<Option<&Sent>> {
        self.enter("ListCommands")?;
        let now = self.now;
        let is_it = |sent: &&Sent| {
            sent.comment == comment
                && sent.listed_at <= now
                && sent.instance == instance
                && sent.document == document
        };
        Ok(self.fleet.commands.iter().rev().find(is_it))
    }

    /// `GetCommandInvocation`.
    pub(crate) fn command_invocation(&mut self, id: &str, instance: &str) -> ApiResult<&Sent> {
        self.enter("GetCommandInvocation")?;
        let now = self.now;
        let mut sent = self.fleet.commands.iter().rev();
        // "This means that the result of an API command … might not be immediately visible to all subsequent commands" (botocore,
        // `GetCommandInvocation`).
        let found = sent.find(|sent| sent.id == id && sent.instance == instance && sent.known_at <= now);
        found.ok_or_else(|| ApiError::invocation_does_not_exist(id))
    }

    /// The command with that id, whether or not the API lists it yet.
    pub(crate) fn sent(&self, id: &str, instance: &str) -> Option<&Sent> {
        self.fleet.commands.iter().rev().find(|sent| sent.id == id && sent.instance == instance)
    }

    /// `CancelCommand`. A command that has ended does not change.
    pub(crate) fn cancel_command(&mut self, id: &str) -> ApiResult<()> {
        self.enter("CancelCommand")?;
        let place = self.fleet.commands.iter().position(|sent| sent.id == id);
        let Some(place) = place else { return Err(ApiError::invalid_command_id(id)) };
        match self.fleet.commands[place].details {
            Details::Pending => self.command_ends(place, Details::Cancelled, None),
            Details::InProgress if self.fleet.commands[place].place == Place::Buffer => {
                self.command_ends(place, Details::Cancelled, None);
            }
            Details::InProgress => {
                self.fleet.commands[place].details = Details::Cancelling;
                self.command_stops(place);
            }
            Details::Cancelling
            | Details::Success
            | Details::Failed
            | Details::Cancelled
            | Details::ExecutionTimedOut
            | Details::DeliveryTimedOut => {}
        }
        Ok(())
    }

    pub(super) fn run_command(&mut self, task: CommandTask) {
        match task {
            CommandTask::Taken(place) => self.command_arrives(place),
            CommandTask::DeliveryOver(place) => {
                if self.fleet.commands[place].details == Details::Pending {
                    self.command_ends(place, Details::DeliveryTimedOut, None);
                }
            }
            CommandTask::ExecutionOver(place) => {
                // This includes a command whose machine is gone and never stopped it.
                if matches!(self.fleet.commands[place].details, Details::InProgress | Details::Cancelling) {
                    self.command_ends(place, Details::ExecutionTimedOut, None);
                }
            }
            CommandTask::Over(place) => {
                if !self.fleet.commands[place].details.is_over() {
                    self.command_ends(place, Details::ExecutionTimedOut, None);
                }
            }
            CommandTask::Ends(place) => self.command_done(place),
            CommandTask::DrainLooks(place) => self.command_drains(place),
            CommandTask::Stopped(place) => {
                if self.is_reached(place) && self.fleet.commands[place].details == Details::Cancelling {
                    self.command_ends(place, Details::Cancelled, None);
                }
            }
        }
    }

    /// Whether the machine runs the command.
    fn works(&self, place: usize) -> bool {
        let instance = &self.fleet.commands[place].instance;
        self.fleet.machines.get(instance).is_some_and(|machine| machine.power == Power::Up && !machine.silent)
    }

    /// Whether Systems Manager reaches the agent of the machine of a command.
    fn is_reached(&self, place: usize) -> bool {
        let instance = &self.fleet.commands[place].instance;
        self.works(place) && self.fleet.machines.get(instance).is_some_and(|machine| !machine.unmanaged)
    }

    /// Whether a command was cancelled, and its machine could learn of that.
    fn was_cancelled(&self, place: usize) -> bool {
        let details = self.fleet.commands[place].details;
        matches!(details, Details::Cancelling | Details::Cancelled) && self.is_reached(place)
    }

    /// A worker of the machine's agent starts the command.
    fn command_begins(&mut self, place: usize) {
        let now = self.now;
        let faults = self.fleet.faults;
        let sent = &mut self.fleet.commands[place];
        sent.place = Place::Worker;
        sent.started_at = Some(now);
        let (document, verb) = (sent.document.clone(), sent.verb.clone());
        self.exactly_after_s(
            documents::timeout_s(&document),
            Task::Command(CommandTask::ExecutionOver(place)),
        );
        if self.fleet.others_run_machines {
            self.is_delegated(place);
            return;
        }
        if self.chance("command hangs", faults.command_hangs) {
            return self.record(format!("{document} hangs"));
        }
        if let Verb::Drain { node, for_s, force_after_s } = verb {
            let ends_at = now + SignedDuration::from_secs(for_s.into());
            self.fleet.commands[place].drain = Some(Drain::new(&node, ends_at, force_after_s));
            return self.after_s(0.5, Task::Command(CommandTask::DrainLooks(place)));
        }
        let (mut least, mut most) = documents::takes_s(&document);
        // It waits for a scheduled one, and is sealed, uploaded and read back (`agent/src/etcd/snapshot.rs`).
        if verb == Verb::EtcdSnapshot && self.chance("slow snapshot", faults.slow_member) {
            (least, most) = SLOW_SNAPSHOT_S;
        }
        let seconds = self.draw_s("command runs", least, most);
        self.after_s(seconds, Task::Command(CommandTask::Ends(place)));
        if self.chance("command doubled", faults.command_doubled) {
            let seconds = seconds + self.draw_s("command runs again", least, most);
            self.after_s(seconds, Task::Command(CommandTask::Ends(place)));
        }
    }

    /// The verb has finished its work.
    fn command_done(&mut self, place: usize) {
        // A cancelled command has no effect, except for the effects of its duplicate before.
        if !self.works(place) || self.was_cancelled(place) {
            return;
        }
        let fails = self.fleet.faults.command_fails;
        if self.chance("command fails", fails) {
            let message = "the machine is too busy to answer";
            let failure = VerbFailure::transient(FailureCode::CommandFailed, message, "try again");
            return self.verb_ends(place, &Err(failure));
        }
        if self.is_delegated(place) {
            return;
        }
        let outcome = self.perform_verb(place);
        self.verb_ends(place, &outcome);
    }

    fn command_drains(&mut self, place: usize) {
        if !self.works(place) || self.was_cancelled(place) || self.fleet.commands[place].details.is_over() {
            return;
        }
        let instance = self.fleet.commands[place].instance.clone();
        let cluster = self.fleet.machines[&instance].cluster().unwrap_or_default().to_owned();
        let Some(mut drain) = self.fleet.commands[place].drain.take() else { return };
        match self.drain_round(&cluster, &mut drain) {
            super::cluster::DrainRound::Again(at) => {
                self.fleet.commands[place].drain = Some(drain);
                self.sequence += 1;
                self.queue.insert((at, self.sequence), Task::Command(CommandTask::DrainLooks(place)));
            }
            super::cluster::DrainRound::Answer(outcome) => {
                self.verb_ends(place, &outcome.map(Into::into));
            }
        }
    }

    fn command_ends(&mut self, place: usize, details: Details, answer: Option<&Value>) {
        let sent = &mut self.fleet.commands[place];
        if sent.details.is_over() {
            return;
        }
        sent.details = details;
        sent.ended_at = Some(self.now);
        sent.response_code = match details {
            Details::Success => 0,
            Details::Failed => 1,
            Details::Pending
            | Details::InProgress
            | Details::Cancelling
            | Details::Cancelled
            | Details::ExecutionTimedOut
            | Details::DeliveryTimedOut => -1,
        };
        sent.output = answer.map(ToString::to_string).unwrap_or_default();
        let had_worker = std::mem::replace(&mut sent.place, Place::Gone) == Place::Worker;
        let line = format!("{} on {} ends: {}", sent.document, sent.instance, details.name());
        let (id, document, instance) = (sent.id.clone(), sent.document.clone(), sent.instance.clone());
        self.record(line);
        let resource =
            format!("arn:aws:ec2:{}:{}:instance/{instance}", self.config.region, self.config.account);
        let detail = json!({
            "command-id": id,
            "document-name": document,
            "instance-id": &instance,
            "status": details.status(),
        });
        self.send_event("aws.ssm", "EC2 Command Invocation Status-change Notification", &resource, detail);
        let cut = self.fleet.faults.output_cut;
        if self.chance("more is printed than is kept", cut) {
            let output = &mut self.fleet.commands[place].output;
            *output = format!("{}{output}", " ".repeat(PRINTED_AT_MOST));
        }
        if had_worker {
            self.worker_is_free(&instance);
        }
    }

    /// A timeout has its full length at any pace of the world.
    fn exactly_after_s(&mut self, seconds: u32, task: Task) {
        self.sequence += 1;
        let at = self.now + SignedDuration::from_secs(seconds.into());
        self.queue.insert((at, self.sequence), task);
    }
}
