//! A process that dies at a chosen call, before or after the call takes effect (P8).
//!
//! [`Mortal`] wraps any port; the ports of one process share a [`Life`]. A test lets a flow die at every call in turn,
//! runs it again with immortal ports, and compares the ends.

use std::cmp::Ordering;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};
use std::sync::{Arc, Mutex, PoisonError};

use slipway_core::event::Event;
use slipway_core::node::{Command, CommandView};
use slipway_flows::ports::{Bus, Commands, Groups, Stacks, Ticks};
use slipway_ports::{
    Condition, Context, DataKey, ErrorKind, Folders, Head, Keys, Listed, Listing, Object, Objects,
    Parameters, PortError, PortResult, Put, Registry, Removal, Secret, SecretParameter,
};
use slipway_rollout::fleet::{GroupView, Targets};
use slipway_rollout::{ChangeSetRequest, ChangeSetView, ResourceFailure, StackView};

/// What AWS bills a call as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Billed {
    /// S3, of what is there.
    S3Read,
    /// S3: something is stored, or listed.
    S3Write,
    /// KMS.
    Kms,
    /// Nothing: CloudFormation's own resources, Auto Scaling, Run Command on EC2, standard parameters, removals from S3, and what is
    /// not AWS'. EventBridge is paid by the event, not by the call.
    Free,
}

impl Billed {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::S3Read, Self::S3Write, Self::Kms, Self::Free];
}

/// How many calls a process lives.
#[derive(Debug, Clone)]
pub struct Life(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    calls: AtomicU64,
    changes: AtomicU64,
    billed: [AtomicU64; Billed::ALL.len()],
    last: u64,
    after: bool,
    before: Option<(u64, Before)>,
    interrupted: Interrupted,
}

/// What happens before the call of that number, once.
#[derive(Default)]
struct Interrupted(Option<(u64, Mutex<Option<Meanwhile>>)>);

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupted").field(&self.0.as_ref().map(|(call, _)| call)).finish()
    }
}

/// What becomes of a process before one of the calls that change something.
enum Before {
    Dies,
    StandsStill(Mutex<Option<Meanwhile>>),
}

/// What happens while a process stands still.
type Meanwhile = Box<dyn FnOnce() + Send>;

impl fmt::Debug for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dies => "dies",
            Self::StandsStill(_) => "stands still",
        })
    }
}

impl Life {
    /// A process that stands still before its `call`th call, counted from 0, and goes on after `meanwhile`.
    #[must_use]
    pub fn interrupted(call: u64, meanwhile: impl FnOnce() + Send + 'static) -> Self {
        let meanwhile: Meanwhile = Box::new(meanwhile);
        let interrupted = Some((call, Mutex::new(Some(meanwhile))));
        Self(Arc::new(Count { last: u64::MAX, interrupted: Interrupted(interrupted), ..Count::default() }))
    }

    /// A process that dies at its `last` call, counted from 0: before the call takes effect, or `after` it.
    #[must_use]
    pub fn until(last: u64, after: bool) -> Self {
        Self(Arc::new(Count { last, after, ..Count::default() }))
    }

    /// A process that dies before its `change`th call that changes something, counted from 0, takes effect. What it reads before that
    /// makes no difference to anybody, so these are all the ways in which it can die.
    #[must_use]
    pub fn until_change(change: u64) -> Self {
        Self::with(change, Before::Dies)
    }

    /// A process that stands still before its `change`th call that changes something, and goes on after `meanwhile`.
    #[must_use]
    pub fn standing_still(change: u64, meanwhile: impl FnOnce() + Send + 'static) -> Self {
        Self::with(change, Before::StandsStill(Mutex::new(Some(Box::new(meanwhile)))))
    }

    fn with(change: u64, before: Before) -> Self {
        Self(Arc::new(Count { last: u64::MAX, before: Some((change, before)), ..Count::default() }))
    }

    /// A process that does not die.
    #[must_use]
    pub fn unending() -> Self {
        Self::until(u64::MAX, false)
    }

    /// How many calls it made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Atomic::SeqCst)
    }

    /// How many of them change something.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Atomic::SeqCst)
    }

    /// A port as this process sees it.
    pub fn of<T: Clone>(&self, port: &T) -> Mortal<T> {
        Mortal { port: port.clone(), life: self.clone() }
    }

    /// How many of them AWS bills so.
    #[must_use]
    pub fn billed(&self, as_what: Billed) -> u64 {
        self.0.billed[as_what as usize].load(Atomic::SeqCst)
    }

    /// A call that changes something.
    async fn change<T>(&self, billed: Billed, perform: impl Future<Output = PortResult<T>>) -> PortResult<T> {
        let change = self.0.changes.fetch_add(1, Atomic::SeqCst);
        if let Some((_, Before::StandsStill(happens))) =
            self.0.before.as_ref().filter(|(before, _)| *before == change)
        {
            let happens = happens.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(happens) = happens {
                happens();
            }
        }
        self.call(billed, perform).await
    }

    /// It was to die before a change that it has come to.
    fn is_dead(&self) -> bool {
        matches!(&self.0.before, Some((before, Before::Dies)) if self.changes() > *before)
    }

    async fn call<T>(&self, billed: Billed, perform: impl Future<Output = PortResult<T>>) -> PortResult<T> {
        let call = self.0.calls.fetch_add(1, Atomic::SeqCst);
        self.0.billed[billed as usize].fetch_add(1, Atomic::SeqCst);
        if self.is_dead() {
            return Err(death());
        }
        if let Some((_, meanwhile)) = self.0.interrupted.0.as_ref().filter(|(before, _)| *before == call) {
            let meanwhile = meanwhile.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(meanwhile) = meanwhile {
                meanwhile();
            }
        }
        match call.cmp(&self.0.last) {
            Ordering::Less => perform.await,
            Ordering::Equal if self.0.after => perform.await.and_then(|_| Err(death())),
            Ordering::Equal | Ordering::Greater => Err(death()),
        }
    }
}

fn death() -> PortError {
    PortError {
        kind: ErrorKind::Transient,
        operation: "test:Die",
        subject: "the process".to_owned(),
        message: "killed".to_owned(),
    }
}

/// A port as a process with a [`Life`] sees it.
#[derive(Debug, Clone)]
pub struct Mortal<T> {
    port: T,
    life: Life,
}

impl<T: Objects> Objects for Mortal<T> {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        self.life.call(Billed::S3Read, self.port.get(key)).await
    }

    async fn get_version(&self, key: &str, version: &str) -> PortResult<Option<Object>> {
        self.life.call(Billed::S3Read, self.port.get_version(key, version)).await
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        self.life.call(Billed::S3Read, self.port.head(key)).await
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: Condition) -> PortResult<Put> {
        self.life.change(Billed::S3Write, self.port.put(key, bytes, condition)).await
    }

    fn url(&self, key: &str) -> String {
        self.port.url(key)
    }
}

impl<T: Listing> Listing for Mortal<T> {
    async fn list(&self, prefix: &str, most: usize) -> PortResult<Vec<Listed>> {
        self.life.call(Billed::S3Write, self.port.list(prefix, most)).await
    }
}

impl<T: Folders> Folders for Mortal<T> {
    async fn folders_after(&self, prefix: &str, after: Option<&str>) -> PortResult<Vec<String>> {
        self.life.call(Billed::S3Write, self.port.folders_after(prefix, after)).await
    }
}

impl<T: Removal> Removal for Mortal<T> {
    async fn remove(&self, key: &str) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.remove(key)).await
    }
}

impl<T: Keys> Keys for Mortal<T> {
    fn name(&self, arn: Option<&str>) -> String {
        self.port.name(arn)
    }

    async fn generate(&self, arn: Option<&str>, context: &Context) -> PortResult<DataKey> {
        self.life.call(Billed::Kms, self.port.generate(arn, context)).await
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        self.life.call(Billed::Kms, self.port.unwrap(wrapped, context)).await
    }
}

impl<T: Parameters> Parameters for Mortal<T> {
    async fn value(&self, name: &str) -> PortResult<Option<String>> {
        self.life.call(Billed::Free, self.port.value(name)).await
    }

    async fn secret(&self, name: &str) -> PortResult<SecretParameter> {
        self.life.call(Billed::Free, self.port.secret(name)).await
    }
}

impl<T: Registry> Registry for Mortal<T> {
    async fn digest(&self, reference: &str) -> PortResult<Option<String>> {
        self.life.call(Billed::Free, self.port.digest(reference)).await
    }

    async fn text(&self, url: &str) -> PortResult<Option<String>> {
        self.life.call(Billed::Free, self.port.text(url)).await
    }
}

impl<T: Bus> Bus for Mortal<T> {
    async fn publish(&self, events: &[Event]) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.publish(events)).await
    }
}

impl<T: Ticks> Ticks for Mortal<T> {
    async fn arm(&self, cluster: &str) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.arm(cluster)).await
    }

    async fn disarm(&self, cluster: &str) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.disarm(cluster)).await
    }
}

impl<T: Groups> Groups for Mortal<T> {
    async fn group(&self, name: &str) -> PortResult<Option<GroupView>> {
        self.life.call(Billed::Free, self.port.group(name)).await
    }

    async fn targets(&self, target_group: &str) -> PortResult<Option<Targets>> {
        self.life.call(Billed::Free, self.port.targets(target_group)).await
    }

    async fn raise_desired(&self, group: &str, desired: u32) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.raise_desired(group, desired)).await
    }

    async fn terminate(&self, group: &str, instance: &str, then_desired: Option<u32>) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.terminate(group, instance, then_desired)).await
    }

    async fn complete_termination(&self, group: &str, instance: &str) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.complete_termination(group, instance)).await
    }

    async fn prolong_termination(&self, group: &str, instance: &str) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.prolong_termination(group, instance)).await
    }
}

impl<T: Commands> Commands for Mortal<T> {
    async fn send(&self, command: &Command) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.send(command)).await
    }

    async fn answer(&self, command: &Command) -> PortResult<Option<CommandView>> {
        self.life.call(Billed::Free, self.port.answer(command)).await
    }

    async fn cancel(&self, command: &Command) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.cancel(command)).await
    }

    async fn token(&self, id: &str) -> PortResult<Option<String>> {
        self.life.call(Billed::Free, self.port.token(id)).await
    }
}

impl<T: Stacks> Stacks for Mortal<T> {
    async fn stack(&self, name: &str) -> PortResult<Option<StackView>> {
        self.life.call(Billed::Free, self.port.stack(name)).await
    }

    async fn change_set(&self, stack: &str, name: &str) -> PortResult<Option<ChangeSetView>> {
        self.life.call(Billed::Free, self.port.change_set(stack, name)).await
    }

    async fn create_change_set(&self, request: &ChangeSetRequest) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.create_change_set(request)).await
    }

    async fn execute_change_set(&self, stack: &str, name: &str, token: &str) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.execute_change_set(stack, name, token)).await
    }

    async fn delete_change_set(&self, stack: &str, name: &str) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.delete_change_set(stack, name)).await
    }

    async fn delete_stack(&self, id: &str, stands: bool, token: &str) -> PortResult<()> {
        self.life.change(Billed::Free, self.port.delete_stack(id, stands, token)).await
    }

    async fn failures(&self, name: &str) -> PortResult<Vec<ResourceFailure>> {
        self.life.call(Billed::Free, self.port.failures(name)).await
    }
}
