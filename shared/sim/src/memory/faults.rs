//! The journal of calls, and planned faults.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use slipway_ports::{ErrorKind, PortError, PortResult};

/// A call to a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The name of the call in AWS: `s3:PutObject`.
    pub operation: &'static str,
    /// The subject of the call: a key, a parameter's name, an encryption context.
    pub subject: String,
}

/// How a planned call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call is refused, and nothing happened.
    Before(ErrorKind),
    /// The call took effect, but the answer was lost: the caller gets [`ErrorKind::Transient`].
    After,
}

#[derive(Debug)]
struct Planned {
    operation: &'static str,
    subject: String,
    fault: Fault,
    times: usize,
}

/// Every call in order. Clones of the same handle share it.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<Call>>>);

impl Journal {
    /// All calls so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.0).clone()
    }

    /// The number of calls of `operation` so far.
    #[must_use]
    pub fn count(&self, operation: &str) -> usize {
        lock(&self.0).iter().filter(|call| call.operation == operation).count()
    }

    /// Deletes the entries, so that a test sees only the later calls.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }

    fn note(&self, operation: &'static str, subject: &str) {
        lock(&self.0).push(Call { operation, subject: subject.to_owned() });
    }
}

/// Faults that wait for their call, and whether the whole service is down.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<VecDeque<Planned>>>, Arc<AtomicBool>);

impl Faults {
    /// The next `times` calls of `operation` whose subject contains `subject` fail with `fault`.
    pub fn plan(&self, operation: &'static str, subject: &str, fault: Fault, times: usize) {
        lock(&self.0).push_back(Planned { operation, subject: subject.to_owned(), fault, times });
    }

    /// From now on every call fails because the service is down, or none does.
    pub fn set_down(&self, is_down: bool) {
        self.1.store(is_down, Ordering::SeqCst);
    }

    /// Whether the service is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }

    /// Whether a planned fault has not happened yet. A test whose fault never happens proves nothing.
    #[must_use]
    pub fn pending(&self) -> bool {
        lock(&self.0).iter().any(|planned| planned.times > 0)
    }

    fn take(&self, operation: &str, subject: &str) -> Option<Fault> {
        let mut planned = lock(&self.0);
        let hit = planned
            .iter_mut()
            .find(|p| p.times > 0 && p.operation == operation && subject.contains(&p.subject))?;
        hit.times -= 1;
        Some(hit.fault)
    }
}

/// What happens in the world between a call and the caller's next call.
#[derive(Clone, Default)]
pub(super) struct Meanwhile(Arc<Mutex<Vec<Happening>>>);

struct Happening {
    operation: &'static str,
    subject: String,
    happens: Box<dyn FnOnce() + Send>,
}

impl Meanwhile {
    pub(super) fn plan(&self, operation: &'static str, subject: &str, happens: Box<dyn FnOnce() + Send>) {
        lock(&self.0).push(Happening { operation, subject: subject.to_owned(), happens });
    }

    /// Runs what was planned for this call, once.
    pub(super) fn strike(&self, operation: &str, subject: &str) {
        let planned = {
            let mut planned = lock(&self.0);
            let hit = planned.iter().position(|p| p.operation == operation && subject.contains(&p.subject));
            hit.map(|index| planned.remove(index))
        };
        // The lock must be free, because what happens may be a call itself.
        if let Some(Happening { happens, .. }) = planned {
            happens();
        }
    }
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meanwhile({})", lock(&self.0).len())
    }
}

/// Writes a call to the journal and performs it with the faults that were planned for it.
pub(super) fn call<T>(
    journal: &Journal,
    faults: &Faults,
    operation: &'static str,
    subject: &str,
    perform: impl FnOnce() -> PortResult<T>,
) -> PortResult<T> {
    journal.note(operation, subject);
    let failed = |kind, message: &str| {
        Err(PortError { kind, operation, subject: subject.to_owned(), message: message.to_owned() })
    };
    if faults.is_down() {
        return failed(ErrorKind::Transient, "ServiceUnavailable: the service is down");
    }
    match faults.take(operation, subject) {
        None => perform(),
        Some(Fault::Before(kind)) => failed(
            kind,
            match kind {
                ErrorKind::Transient => "SlowDown: Please reduce your request rate. (injected)",
                ErrorKind::Denied => "AccessDenied: Access Denied (injected)",
                ErrorKind::Missing => "NotFound: The specified resource does not exist (injected)",
                ErrorKind::Invalid => "ValidationException: Invalid request (injected)",
            },
        ),
        Some(Fault::After) => {
            perform()?;
            failed(
                ErrorKind::Transient,
                "RequestTimeout: the answer was lost after the call was done (injected)",
            )
        }
    }
}

/// A poisoned lock only means that another test thread panicked; the state is consistent after every call.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
