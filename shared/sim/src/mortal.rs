//! A process that dies at a chosen call, before or after the call takes effect (P8).
//!
//! [`Mortal`] wraps any port; the ports of one process share a [`Life`]. A test lets a flow die at each of its calls in turn, runs
//! the flow again with immortal ports, and compares the results.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};
use std::sync::{Arc, Mutex, PoisonError};

use slipway_core::event::Event;
use slipway_core::node::{Command, CommandView};
use slipway_flows::ports::{Bus, Commands, Groups, Stacks, Ticks};
use slipway_ports::{
    Bounded, Condition, Context, DataKey, ErrorKind, Folders, Head, Keys, Listed, Listing, Object, Objects,
    Parameters, PortError, PortResult, Put, Registry, Removal, Secret, SecretParameter,
};
use slipway_rollout::fleet::{GroupView, Targets};
use slipway_rollout::{ChangeSetRequest, ChangeSetView, ResourceFailure, StackView};

/// The kinds of calls that AWS bills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Billed {
    /// A read of an S3 object.
    S3Read,
    /// A write or a listing in S3.
    S3Write,
    /// A call to KMS.
    Kms,
    /// A free call: CloudFormation's own resources, Auto Scaling, Run Command on EC2, standard parameters, deletions in S3, and
    /// everything that is not AWS. EventBridge bills each event, and not each call.
    Free,
}

impl Billed {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::S3Read, Self::S3Write, Self::Kms, Self::Free];
}

/// How long a process lives, and how many calls it makes.
#[derive(Debug, Clone)]
pub struct Life(Arc<Count>);

#[derive(Debug)]
struct Count {
    calls: AtomicU64,
    changes: AtomicU64,
    billed: [AtomicU64; Billed::ALL.len()],
    fate: Fate,
    /// The seed that decides how often each call yields to other processes first.
    yields: Option<u64>,
}

/// When a process dies or stops, as the number of a call, counted from 0.
#[derive(Debug)]
enum Fate {
    Lives,
    Dies { at: Moment, after: bool },
    StandsStill { at: Moment, meanwhile: Mutex<Option<Meanwhile>> },
}

#[derive(Debug, Clone, Copy)]
enum Moment {
    /// The number counts all calls.
    Call(u64),
    /// The number counts only the calls that change something.
    Change(u64),
}

/// What happens while a process is stopped.
struct Meanwhile(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Life {
    fn with(fate: Fate, yields: Option<u64>) -> Self {
        let (calls, changes, billed) = Default::default();
        Self(Arc::new(Count { calls, changes, billed, fate, yields }))
    }

    fn stopped(at: Moment, meanwhile: impl FnOnce() + Send + 'static) -> Self {
        let meanwhile = Mutex::new(Some(Meanwhile(Box::new(meanwhile))));
        Self::with(Fate::StandsStill { at, meanwhile }, None)
    }

    /// A process that does not die.
    #[must_use]
    pub fn unending() -> Self {
        Self::with(Fate::Lives, None)
    }

    /// A process that does not die. Each of its calls first yields to other processes; `seed` decides how often.
    #[must_use]
    pub fn yielding(seed: u64) -> Self {
        Self::with(Fate::Lives, Some(seed))
    }

    /// A process that dies at its call number `last`, counted from 0: before the call takes effect, or after it if `after` is true.
    #[must_use]
    pub fn until(last: u64, after: bool) -> Self {
        Self::with(Fate::Dies { at: Moment::Call(last), after }, None)
    }

    /// A process that dies before its change number `change` takes effect, counted from 0. Reads make no difference to anybody, so
    /// these are all the ways in which a process can die.
    #[must_use]
    pub fn until_change(change: u64) -> Self {
        Self::with(Fate::Dies { at: Moment::Change(change), after: false }, None)
    }

    /// A process that stops before its call number `call`, counted from 0, and continues after `meanwhile`.
    #[must_use]
    pub fn interrupted(call: u64, meanwhile: impl FnOnce() + Send + 'static) -> Self {
        Self::stopped(Moment::Call(call), meanwhile)
    }

    /// A process that stops before its change number `change`, and continues after `meanwhile`.
    #[must_use]
    pub fn standing_still(change: u64, meanwhile: impl FnOnce() + Send + 'static) -> Self {
        Self::stopped(Moment::Change(change), meanwhile)
    }

    /// Whether it neither dies nor stops.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.0.fate, Fate::Lives)
    }

    /// The number of calls that the process has made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Atomic::SeqCst)
    }

    /// The number of calls that changed something.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Atomic::SeqCst)
    }

    /// A port as this process sees it.
    pub fn wrap<T: Clone>(&self, port: &T) -> Mortal<T> {
        Mortal { port: port.clone(), life: self.clone() }
    }

    /// The number of calls that AWS bills as `as_what`.
    #[must_use]
    pub fn billed(&self, as_what: Billed) -> u64 {
        self.0.billed[as_what as usize].load(Atomic::SeqCst)
    }

    /// A call that only reads.
    async fn read<T>(&self, billed: Billed, perform: impl Future<Output = PortResult<T>>) -> PortResult<T> {
        self.call(billed, false, perform).await
    }

    /// A call that changes something.
    async fn change<T>(&self, billed: Billed, perform: impl Future<Output = PortResult<T>>) -> PortResult<T> {
        self.call(billed, true, perform).await
    }

    async fn call<T>(
        &self,
        billed: Billed,
        changes: bool,
        perform: impl Future<Output = PortResult<T>>,
    ) -> PortResult<T> {
        let call = self.0.calls.fetch_add(1, Atomic::SeqCst);
        let change = self.0.changes.fetch_add(u64::from(changes), Atomic::SeqCst);
        self.0.billed[billed as usize].fetch_add(1, Atomic::SeqCst);
        if let Some(seed) = self.0.yields {
            let mut random =
                (seed ^ call.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            random ^= random >> 31;
            for _ in 0..random % 4 {
                tokio::task::yield_now().await;
            }
        }
        let reached = |at: Moment| match at {
            Moment::Call(at) => call.cmp(&at),
            Moment::Change(at) if changes => change.cmp(&at),
            // This is a read before or after that change.
            Moment::Change(at) if change <= at => Ordering::Less,
            Moment::Change(_) => Ordering::Greater,
        };
        match &self.0.fate {
            Fate::Lives => {}
            Fate::Dies { at, after } => match reached(*at) {
                Ordering::Less => {}
                Ordering::Equal if *after => return perform.await.and_then(|_| Err(death())),
                Ordering::Equal | Ordering::Greater => return Err(death()),
            },
            Fate::StandsStill { at, meanwhile } if reached(*at) == Ordering::Equal => {
                let meanwhile = meanwhile.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(Meanwhile(happens)) = meanwhile {
                    happens();
                }
            }
            Fate::StandsStill { .. } => {}
        }
        perform.await
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

/// Methods that need no call of the port, such as those by which a person looks at a bucket in memory.
impl<T> Deref for Mortal<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.port
    }
}

/// Implements ports. Each line is a method: whether its call reads or changes something, and how AWS bills it. Methods in square
/// brackets make no call.
macro_rules! mortal {
    ($($port:ident $([$named:ident($of:ident: $of_type:ty)])? {
        $($kind:ident $billed:ident $method:ident($($name:ident: $type:ty),*) -> $done:ty;)*
    })*) => {$(
        impl<T: $port> $port for Mortal<T> {
            $(async fn $method(&self, $($name: $type),*) -> PortResult<$done> {
                self.life.$kind(Billed::$billed, self.port.$method($($name),*)).await
            })*
            $(fn $named(&self, $of: $of_type) -> String {
                self.port.$named($of)
            })?
        }
    )*};
}

mortal! {
    Objects [url(key: &str)] {
        read S3Read get(key: &str) -> Option<Object>;
        read S3Read get_at_most(key: &str, most: u64) -> Option<Bounded>;
        read S3Read get_version(key: &str, version: &str) -> Option<Object>;
        read S3Read head(key: &str) -> Option<Head>;
        change S3Write put(key: &str, bytes: Vec<u8>, condition: Condition) -> Put;
    }
    Listing {
        read S3Write list(prefix: &str, most: usize) -> Vec<Listed>;
    }
    Folders {
        read S3Write folders_after(prefix: &str, after: Option<&str>) -> Vec<String>;
    }
    Removal {
        change Free remove(key: &str) -> ();
    }
    Keys [name(arn: Option<&str>)] {
        read Kms generate(arn: Option<&str>, context: &Context) -> DataKey;
        read Kms unwrap(wrapped: &[u8], context: &Context) -> Secret;
    }
    Parameters {
        read Free value(name: &str) -> Option<String>;
        read Free secret(name: &str) -> SecretParameter;
    }
    Registry {
        read Free digest(reference: &str) -> Option<String>;
        read Free text(url: &str) -> Option<String>;
    }
    Bus {
        change Free publish(events: &[Event]) -> ();
    }
    Ticks {
        change Free arm(cluster: &str) -> ();
        change Free disarm(cluster: &str) -> ();
    }
    Groups {
        read Free group(name: &str) -> Option<GroupView>;
        read Free group_of(instance: &str) -> Option<String>;
        read Free targets(target_group: &str) -> Option<Targets>;
        change Free raise_desired(group: &str, desired: u32) -> ();
        change Free terminate(group: &str, instance: &str, then_desired: Option<u32>) -> ();
        change Free complete_termination(group: &str, instance: &str) -> ();
        change Free prolong_termination(group: &str, instance: &str) -> ();
    }
    Commands {
        change Free send(command: &Command) -> ();
        read Free answer(command: &Command) -> Option<CommandView>;
        change Free cancel(command: &Command) -> ();
        read Free token(id: &str) -> Option<String>;
    }
    Stacks {
        read Free stack(name: &str) -> Option<StackView>;
        read Free change_set(stack: &str, name: &str) -> Option<ChangeSetView>;
        change Free create_change_set(request: &ChangeSetRequest) -> ();
        change Free execute_change_set(stack: &str, name: &str, token: &str) -> ();
        change Free delete_change_set(stack: &str, name: &str) -> ();
        change Free delete_stack(id: &str, stands: bool, token: &str) -> ();
        read Free failures(name: &str) -> Vec<ResourceFailure>;
    }
}
