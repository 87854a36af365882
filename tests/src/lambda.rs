//! Runs functions as Lambda does: an asynchronous queue with retries, timeouts and dead letters, and several execution environments in
//! parallel, each a process of the unmodified binary.

mod environment;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_sim::wire::Clock;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::client::{ACCOUNT, Client};
use crate::iam::{self, Decision, Request, Statement};
use crate::observe::{Attempt, Observed, Observer, Outcome};
use environment::{Environment, Work, failed};

pub use environment::Launch;

/// Lambda's delays before the second and the third try.
const RETRY_WAITS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(120)];

/// The number of parallel environments of a function, if the template reserves none: enough for races.
const DEFAULT_CONCURRENCY: usize = 8;

/// A function's settings in the template.
#[derive(Debug, Clone)]
pub struct Function {
    /// How to start it.
    pub launch: Launch,
    /// `Timeout`.
    pub timeout: Duration,
    /// `MemorySize`, MiB.
    pub memory_mib: u64,
    /// `EventInvokeConfig.MaximumRetryAttempts`.
    pub retries: u32,
    /// `EventInvokeConfig.MaximumEventAgeInSeconds`.
    pub max_age: Duration,
    /// `ReservedConcurrentExecutions`.
    pub concurrency: Option<usize>,
    /// `DeadLetterConfig.TargetArn`: a queue.
    pub dead_letters: Option<String>,
    /// The permissions of its role.
    pub role: Vec<Statement>,
    /// `AWS::Lambda::Permission`s.
    pub permissions: Vec<Permission>,
}

/// Who may invoke a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// `events.amazonaws.com`.
    pub principal: String,
    /// Pattern of the ARN on whose behalf the principal calls; `None`: any.
    pub source_arn: Option<String>,
}

/// The caller of a function.
#[derive(Debug, Clone)]
pub enum Caller {
    /// A service on behalf of a resource, which the function's resource-based policy must permit.
    Service {
        /// `events.amazonaws.com`.
        principal: String,
        /// ARN of the rule.
        source_arn: String,
    },
    /// A service with a role that must allow `lambda:InvokeFunction`: Scheduler.
    Role {
        /// ARN of the schedule.
        name: String,
        /// The permissions of the role.
        statements: Vec<Statement>,
    },
    /// A person.
    Operator,
}

/// The functions of the embedded AWS.
#[derive(Debug, Clone)]
pub struct Lambda {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    observer: Observer,
    /// The factor for Lambda's delays between tries.
    time_scale: f64,
    functions: Mutex<BTreeMap<String, Arc<Registered>>>,
    /// The number of events that were accepted and are not finished.
    open: watch::Sender<usize>,
    serial: Mutex<u64>,
    /// The clock of the functions; `None`: this machine's.
    clock: Mutex<Option<Time>>,
}

#[derive(Debug)]
struct Registered {
    function: Mutex<Function>,
    idle: Mutex<Vec<Environment>>,
    /// The environments that are working, by request id.
    busy: Mutex<BTreeMap<String, Busy>>,
    places: Semaphore,
}

/// A clock for the functions.
#[derive(Debug)]
struct Time {
    clock: Clock,
    /// How far the functions' clock is ahead of it.
    ahead: SignedDuration,
    /// The file that tells the functions how far their clock is from this machine's.
    file: PathBuf,
}

/// An environment that is working.
#[derive(Debug)]
struct Busy {
    process: u32,
    session: String,
}

impl Lambda {
    /// A Lambda without functions. `client` is the operator's, for dead letters. A delay of a minute takes `time_scale` minutes.
    #[must_use]
    pub fn new(client: Client, observer: Observer, time_scale: f64) -> Self {
        let shared = Shared {
            client,
            observer,
            time_scale,
            functions: Mutex::default(),
            open: watch::Sender::new(0),
            serial: Mutex::new(0),
            clock: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a function, or replaces the one with the same name.
    pub fn register(&self, function: Function) {
        let places = function.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
        let registered = Registered {
            idle: Mutex::default(),
            busy: Mutex::default(),
            places: Semaphore::new(places),
            function: Mutex::new(function.clone()),
        };
        lock(&self.shared.functions).insert(function.launch.function, Arc::new(registered));
    }

    /// From now on every function uses that clock. The file that tells them is in `folder`.
    pub fn live_by(&self, clock: &Clock, folder: &Path) {
        let file = folder.join("clock");
        for registered in lock(&self.shared.functions).values() {
            let path = file.display().to_string();
            let environment = &mut lock(&registered.function).launch.environment;
            environment.insert("SLIPWAY_CLOCK_AHEAD_S".to_owned(), path);
            lock(&registered.idle).clear();
        }
        *lock(&self.shared.clock) = Some(Time { clock: clock.clone(), ahead: SignedDuration::ZERO, file });
    }

    /// Moves the functions' clock ahead. Returns false if they use this machine's clock.
    pub fn set_clock_ahead(&self, ahead: SignedDuration) -> bool {
        lock(&self.shared.clock).as_mut().map(|time| time.ahead = ahead).is_some()
    }

    /// Changes the settings of a function, like an update of its configuration: idle environments are discarded.
    pub fn configure(&self, name: &str, change: impl FnOnce(&mut Function)) {
        if let Some(registered) = lock(&self.shared.functions).get(name) {
            change(&mut lock(&registered.function));
            lock(&registered.idle).clear();
        }
    }

    /// The ARN of a function.
    #[must_use]
    pub fn arn(&self, name: &str) -> String {
        format!("arn:aws:lambda:{}:{ACCOUNT}:function:{name}", self.shared.client.region())
    }

    /// Accepts an event for a function, if the caller may invoke it. Returns the request id. The invocation happens asynchronously.
    ///
    /// # Errors
    /// The missing function or permission.
    pub fn invoke(&self, function_arn: &str, caller: &Caller, payload: Vec<u8>) -> Result<String, String> {
        let name = function_arn.rsplit(':').next().unwrap_or_default();
        let registered = lock(&self.shared.functions).get(name).cloned();
        let registered = registered.ok_or_else(|| format!("there is no function {function_arn}"))?;
        allowed(&lock(&registered.function), function_arn, caller)?;
        let request_id = self.next_id();
        self.shared.open.send_modify(|open| *open += 1);
        let (shared, arn, id) = (Arc::clone(&self.shared), function_arn.to_owned(), request_id.clone());
        tokio::spawn(async move {
            shared.see_through(&registered, &arn, &id, payload).await;
            shared.open.send_modify(|open| *open -= 1);
        });
        Ok(request_id)
    }

    /// The number of events that were accepted and are neither finished nor dead-lettered.
    #[must_use]
    pub fn open(&self) -> usize {
        *self.shared.open.borrow()
    }

    /// The number of [`Lambda::open`] as it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<usize> {
        self.shared.open.subscribe()
    }

    /// Kills every working process of a function. Returns their number.
    pub fn kill(&self, name: &str) -> usize {
        self.kill_where(name, |_| true)
    }

    /// Kills the process of a function with that session token. Returns whether it was working.
    pub fn kill_session(&self, name: &str, session: &str) -> bool {
        self.kill_where(name, |busy| busy.session == session) == 1
    }

    fn kill_where(&self, name: &str, whom: impl Fn(&Busy) -> bool) -> usize {
        let Some(registered) = lock(&self.shared.functions).get(name).cloned() else { return 0 };
        let busy = lock(&registered.busy);
        let pids = busy.values().filter(|one| whom(one)).filter_map(|one| i32::try_from(one.process).ok());
        let pids = pids.filter_map(rustix::process::Pid::from_raw);
        pids.filter(|pid| rustix::process::kill_process_group(*pid, rustix::process::Signal::KILL).is_ok())
            .count()
    }

    fn next_id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.shared.next())
    }
}

/// Whether `caller` may invoke the function.
fn allowed(function: &Function, arn: &str, caller: &Caller) -> Result<(), String> {
    match caller {
        Caller::Operator => Ok(()),
        Caller::Service { principal, source_arn } => {
            let granted = function.permissions.iter().any(|permission| {
                permission.principal == *principal
                    && permission.source_arn.as_deref().is_none_or(|pattern| iam::like(pattern, source_arn))
            });
            if granted {
                Ok(())
            } else {
                Err(format!("no permission lets {principal} invoke {arn} for {source_arn}"))
            }
        }
        Caller::Role { name, statements } => {
            let request = Request {
                action: "lambda:InvokeFunction".to_owned(),
                resource: arn.to_owned(),
                context: BTreeMap::new(),
            };
            match iam::decide(statements, &request) {
                Decision::Allowed(_) => Ok(()),
                Decision::Denied(_) | Decision::NotGranted => {
                    Err(format!("the role of {name} does not grant lambda:InvokeFunction on {arn}"))
                }
            }
        }
    }
}

impl Shared {
    fn next(&self) -> u64 {
        let mut serial = lock(&self.serial);
        *serial += 1;
        *serial
    }

    fn write_clock(&self) -> std::io::Result<()> {
        // The lock is held until the file is written, so that an earlier time never replaces a later one.
        let time = lock(&self.clock);
        let Some(Time { clock, ahead, file }) = &*time else { return Ok(()) };
        let ahead = (clock.now() + *ahead).duration_since(Timestamp::now()).as_secs();
        let draft = file.with_extension("draft");
        std::fs::write(&draft, ahead.to_string())?;
        std::fs::rename(draft, file)
    }

    /// A session token for a new environment.
    fn session(&self) -> String {
        format!("environment-{}", self.next())
    }

    /// Tries until the function succeeds or the event is given up.
    async fn see_through(&self, registered: &Registered, arn: &str, id: &str, payload: Vec<u8>) {
        let accepted = Instant::now();
        let mut number = 0;
        loop {
            number += 1;
            let function = lock(&registered.function).clone();
            let attempt =
                Attempt { function: function.launch.function.clone(), request_id: id.to_owned(), number };
            let work = Work {
                request_id: id.to_owned(),
                function_arn: arn.to_owned(),
                payload: payload.clone(),
                timeout: function.timeout,
            };
            let Outcome::Failed { error_type, message } = self.try_once(registered, &attempt, work).await
            else {
                return;
            };
            let wait = RETRY_WAITS[usize::from(number > 1)].mul_f64(self.time_scale);
            // The maximum age is not scaled: the work between the delays takes as long as in AWS.
            let too_old = accepted.elapsed() + wait > function.max_age;
            if number > function.retries || too_old {
                let failure = Failure { error_type, message };
                return self.bury(&function, attempt, &payload, failure).await;
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn try_once(&self, registered: &Registered, attempt: &Attempt, work: Work) -> Outcome {
        // The semaphore is never closed.
        let _place = registered.places.acquire().await;
        self.observer.record(Observed::Started(attempt.clone()));
        if let Err(error) = self.write_clock() {
            self.observer.record(Observed::Trouble(format!("nobody can be told the time: {error}")));
        }
        let begun = Instant::now();
        let idle = lock(&registered.idle).pop();
        let function = lock(&registered.function).clone();
        let environment = match idle {
            Some(environment) => Ok(environment),
            None => Environment::start(&function.launch, self.session(), &self.observer).await,
        };
        let mut max_rss_kib = 0;
        let outcome = match environment {
            Err(outcome) => outcome,
            Ok(mut environment) => {
                if let Some(pid) = environment.id() {
                    let busy = Busy { process: pid, session: environment.session.clone() };
                    lock(&registered.busy).insert(work.request_id.clone(), busy);
                }
                let id = work.request_id.clone();
                let (mut outcome, mut reusable) = environment.work(work).await;
                lock(&registered.busy).remove(&id);
                max_rss_kib = environment.max_rss_kib();
                if max_rss_kib > function.memory_mib * 1024 {
                    let message = format!("RequestId: {id} Error: Runtime exited with error: signal: killed");
                    outcome = failed("Runtime.OutOfMemory", &message);
                    reusable = false;
                }
                // An environment with outdated settings is not used again.
                let told = lock(&registered.function);
                if reusable && told.launch == function.launch {
                    lock(&registered.idle).push(environment);
                }
                drop(told);
                outcome
            }
        };
        self.observer.record(Observed::Finished {
            attempt: attempt.clone(),
            outcome: outcome.clone(),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            max_rss_kib,
        });
        outcome
    }

    /// Sends an event that is given up to the function's dead-letter queue, with the permissions of the function's role.
    async fn bury(&self, function: &Function, attempt: Attempt, payload: &[u8], failure: Failure) {
        let mut buried = None;
        if let Some(queue) = &function.dead_letters {
            let request = Request {
                action: "sqs:SendMessage".to_owned(),
                resource: queue.clone(),
                context: BTreeMap::new(),
            };
            let granted = matches!(iam::decide(&function.role, &request), Decision::Allowed(_));
            let sent = granted && self.send_dead(queue, &attempt, payload, &failure).await;
            buried = sent.then(|| queue.clone());
        }
        self.observer.record(Observed::DeadLettered {
            attempt,
            queue: buried,
            error_type: failure.error_type,
        });
    }

    async fn send_dead(&self, queue: &str, attempt: &Attempt, payload: &[u8], failure: &Failure) -> bool {
        let name = queue.rsplit(':').next().unwrap_or_default();
        let text = |value: &str| json!({"DataType": "String", "StringValue": value});
        // Lambda gives the error type only in the message: `ErrorMessage` is the first kilobyte of the response.
        let said = json!({"errorMessage": failure.message, "errorType": failure.error_type}).to_string();
        let said: String = said.chars().take(1024).collect();
        let request = json!({
            "QueueUrl": self.queue_url(name), "MessageBody": String::from_utf8_lossy(payload),
            "MessageAttributes": {
                "RequestID": text(&attempt.request_id),
                "ErrorCode": {"DataType": "Number", "StringValue": "200"},
                "ErrorMessage": text(&said),
            },
        });
        match self.client.json("sqs", "AmazonSQS.SendMessage", request).await {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(%error, queue, "a dead letter is lost");
                false
            }
        }
    }

    fn queue_url(&self, name: &str) -> Value {
        Value::String(self.client.queue_url(name))
    }
}

/// Why a try failed.
#[derive(Debug)]
struct Failure {
    error_type: String,
    message: String,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
