//! Records the changes that the rollout function makes to the world.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipway_core::event::Event;
use slipway_core::keys;
use slipway_core::node::{Command, CommandView};
use slipway_flows::ports::{Bus, Commands, Groups, Stacks};
use slipway_ports::PortResult;
use slipway_rollout::fleet::{GroupView, Targets};
use slipway_rollout::{ChangeSetRequest, ChangeSetView, ResourceFailure, StackView};

use crate::memory::MemoryBucket;

/// A successful call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A command was sent, or existed already.
    Send(Command),
    /// The desired capacity of a group was set.
    SetDesired(String, u32),
    /// A machine of a group was terminated; `true`: with a decrement.
    Terminate(String, String, bool),
    /// The terminate hook of a machine was completed.
    Complete(String, String),
    /// A change set of a stack was created.
    CreateChangeSet(String, String),
    /// The execution of a change set of a stack was requested.
    Execute(String, String),
    /// A stack was deleted; `false`: a stack that was never created, and the world ensures that no other is deleted.
    DeleteStack(String, bool),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Send(command) => write!(f, "{} is sent to {}", command.verb.document(), command.instance),
            Act::SetDesired(group, desired) => write!(f, "{group} is to have {desired} machines"),
            Act::Terminate(_, machine, false) => write!(f, "{machine} is terminated"),
            Act::Terminate(group, machine, true) => {
                write!(f, "{machine} is terminated, and {group} wants one less")
            }
            Act::Complete(_, machine) => write!(f, "the hook of {machine} is ended"),
            Act::CreateChangeSet(stack, _) => write!(f, "a change set of {stack} is made"),
            Act::Execute(stack, _) => write!(f, "a change set of {stack} is executed"),
            Act::DeleteStack(stack, _) => write!(f, "{stack} is deleted"),
        }
    }
}

/// The acts in order.
#[derive(Debug, Clone)]
pub struct Journal {
    written: Arc<Mutex<Written>>,
    assets: MemoryBucket,
    state_key: String,
}

#[derive(Debug, Default)]
struct Written {
    acts: Vec<Act>,
    /// The version of the stored state of the rollouts at each act.
    versions: Vec<Option<String>>,
    /// The number of acts when `Rollout Started` was last sent to the bus.
    before_start: Option<usize>,
    /// The events that were sent to the bus, and that the bus did not take.
    unpublished: Vec<Event>,
}

impl Journal {
    /// The journal of the functions whose bucket this is.
    pub(super) fn new(cluster: &str, assets: &MemoryBucket) -> Self {
        Self { written: Arc::default(), assets: assets.clone(), state_key: keys::rollout(cluster) }
    }

    /// Takes the acts since the last call.
    #[must_use]
    pub fn drain(&self) -> Vec<Act> {
        let mut written = self.written();
        (written.before_start, written.versions) = (None, Vec::new());
        std::mem::take(&mut written.acts)
    }

    /// The acts since the last call of [`Journal::drain`] at which the stored state had this version.
    pub(super) fn acts_at(&self, version: Option<&String>) -> BTreeSet<usize> {
        let written = self.written();
        let at = written.versions.iter().enumerate().filter(|(_, one)| one.as_ref() == version);
        at.map(|(index, _)| index).collect()
    }

    /// The number of these acts that came before `Rollout Started` was sent to the bus; `None` if it was not sent.
    #[must_use]
    pub fn before_start(&self) -> Option<usize> {
        self.written().before_start
    }

    /// Takes the events that the function sent to the bus since the last call, and that the bus did not take.
    #[must_use]
    pub fn drain_unpublished(&self) -> Vec<Event> {
        std::mem::take(&mut self.written().unpublished)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of acts since the last call of [`Journal::drain`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.written().acts.len()
    }

    /// Whether there was no act.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn note(&self, act: impl FnOnce() -> Act, done: PortResult<()>) -> PortResult<()> {
        if done.is_ok() {
            let version = self.assets.version(&self.state_key);
            let mut written = self.written();
            written.acts.push(act());
            written.versions.push(version);
        }
        done
    }
}

/// A port whose calls are recorded.
#[derive(Debug, Clone)]
pub(super) struct Watched<T> {
    port: T,
    journal: Journal,
}

impl<T: Clone> Watched<T> {
    /// Wraps `port`; its calls are recorded in `journal`.
    pub(super) fn new(port: &T, journal: &Journal) -> Self {
        Self { port: port.clone(), journal: journal.clone() }
    }
}

impl<T: Bus> Bus for Watched<T> {
    async fn publish(&self, events: &[Event]) -> PortResult<()> {
        let done = self.port.publish(events).await;
        let mut written = self.journal.written();
        if events.iter().any(|event| matches!(event, Event::RolloutStarted(_))) {
            written.before_start = Some(written.acts.len());
        }
        if done.is_err() {
            written.unpublished.extend_from_slice(events);
        }
        done
    }
}

impl<T: Groups> Groups for Watched<T> {
    async fn group(&self, name: &str) -> PortResult<Option<GroupView>> {
        self.port.group(name).await
    }

    async fn group_of(&self, instance: &str) -> PortResult<Option<String>> {
        self.port.group_of(instance).await
    }

    async fn targets(&self, target_group: &str) -> PortResult<Option<Targets>> {
        self.port.targets(target_group).await
    }

    async fn raise_desired(&self, group: &str, desired: u32) -> PortResult<()> {
        let done = self.port.raise_desired(group, desired).await;
        self.journal.note(|| Act::SetDesired(group.to_owned(), desired), done)
    }

    async fn terminate(&self, group: &str, instance: &str, then_desired: Option<u32>) -> PortResult<()> {
        let done = self.port.terminate(group, instance, then_desired).await;
        self.journal
            .note(|| Act::Terminate(group.to_owned(), instance.to_owned(), then_desired.is_some()), done)
    }

    async fn complete_termination(&self, group: &str, instance: &str) -> PortResult<()> {
        let done = self.port.complete_termination(group, instance).await;
        self.journal.note(|| Act::Complete(group.to_owned(), instance.to_owned()), done)
    }

    async fn prolong_termination(&self, group: &str, instance: &str) -> PortResult<()> {
        self.port.prolong_termination(group, instance).await
    }
}

impl<T: Commands> Commands for Watched<T> {
    async fn send(&self, command: &Command) -> PortResult<()> {
        let done = self.port.send(command).await;
        self.journal.note(|| Act::Send(command.clone()), done)
    }

    async fn answer(&self, command: &Command) -> PortResult<Option<CommandView>> {
        self.port.answer(command).await
    }

    async fn cancel(&self, command: &Command) -> PortResult<()> {
        // Cancelling a command begins nothing.
        self.port.cancel(command).await
    }

    async fn token(&self, id: &str) -> PortResult<Option<String>> {
        self.port.token(id).await
    }
}

impl<T: Stacks> Stacks for Watched<T> {
    async fn stack(&self, name: &str) -> PortResult<Option<StackView>> {
        self.port.stack(name).await
    }

    async fn change_set(&self, stack: &str, name: &str) -> PortResult<Option<ChangeSetView>> {
        self.port.change_set(stack, name).await
    }

    async fn create_change_set(&self, request: &ChangeSetRequest) -> PortResult<()> {
        let done = self.port.create_change_set(request).await;
        let act = || Act::CreateChangeSet(request.stack.clone(), request.name.clone());
        self.journal.note(act, done)
    }

    async fn execute_change_set(&self, stack: &str, name: &str, token: &str) -> PortResult<()> {
        let done = self.port.execute_change_set(stack, name, token).await;
        self.journal.note(|| Act::Execute(stack.to_owned(), name.to_owned()), done)
    }

    async fn delete_change_set(&self, stack: &str, name: &str) -> PortResult<()> {
        self.port.delete_change_set(stack, name).await
    }

    async fn delete_stack(&self, id: &str, stands: bool, token: &str) -> PortResult<()> {
        let done = self.port.delete_stack(id, stands, token).await;
        self.journal.note(|| Act::DeleteStack(id.to_owned(), stands), done)
    }

    async fn failures(&self, name: &str) -> PortResult<Vec<ResourceFailure>> {
        self.port.failures(name).await
    }
}
