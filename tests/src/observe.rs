//! What happens in the embedded AWS, in order, as one stream that the demo prints and tests wait on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

/// How long a test waits for what must come, in wall time. Only one that fails waits so long: on a busy machine, where several
/// test binaries run at a time, what takes seconds elsewhere has taken two minutes.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// One thing that happened, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: Observed,
}

/// What can be seen happening.
#[derive(Debug, Clone, PartialEq)]
pub enum Observed {
    /// A call of an AWS API through the gateway.
    Call(Call),
    /// An event on a bus, as EventBridge would deliver it.
    Event {
        /// `default`, or the name of a custom bus.
        bus: String,
        /// The whole envelope.
        event: Value,
    },
    /// A try at an invocation began.
    Started(Attempt),
    /// A try ended.
    Finished {
        /// Which.
        attempt: Attempt,
        /// How.
        outcome: Outcome,
        /// How long it ran, milliseconds.
        duration_ms: u64,
        /// Peak resident memory of the environment so far, KiB; 0 if the process was gone before it could be read.
        max_rss_kib: u64,
    },
    /// An event was given up, and went where the function says (or nowhere).
    DeadLettered {
        /// The last try.
        attempt: Attempt,
        /// ARN of the queue; `None` if the function names none, and the event is lost.
        queue: Option<String>,
        /// `errorType` of the last try.
        error_type: String,
    },
    /// A rule brought an event to its function.
    Routed {
        /// ARN of the rule.
        rule: String,
        /// ARN of the function.
        function: String,
    },
    /// Somebody who may not tried to invoke a function: AWS would drop this event.
    NotPermitted {
        /// ARN of the rule or schedule.
        caller: String,
        /// Name of the function.
        function: String,
        /// What is missing.
        reason: String,
    },
    /// The embedded AWS itself did not do what it should: what is seen after this proves nothing.
    Trouble(String),
    /// A line that a function wrote to its standard output or error.
    Log {
        /// Name of the function.
        function: String,
        /// The line.
        line: String,
    },
}

/// A call of an AWS API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The function that called; `operator` for anybody else.
    pub caller: String,
    /// As IAM names it: `kms:GenerateDataKey`.
    pub action: String,
    /// ARN that it was about; `*` where the action knows no resource.
    pub resource: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// Why the gateway refused it: a missing grant, or a fault that a test injected.
    pub refused: Option<String>,
    /// The session of whoever waits for an answer that a test withholds for ever: what [`crate::lambda::Lambda::kill_session`] takes.
    pub stalled: Option<String>,
}

impl Call {
    /// Whether a call of this kind can change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let verb = self.action.split_once(':').map_or("", |(_, verb)| verb);
        !["Get", "Head", "Describe", "List", "Decrypt"].iter().any(|read| verb.starts_with(read))
    }
}

/// One try at one invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the function.
    pub function: String,
    /// Request id: the same for every try.
    pub request_id: String,
    /// 1 for the first.
    pub number: u32,
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The function answered.
    Answered(Value),
    /// The function, its runtime or its process failed.
    Failed {
        /// `errorType`, which alarms match.
        error_type: String,
        /// `errorMessage`.
        message: String,
    },
}

/// Takes observations and keeps them.
#[derive(Debug, Clone)]
pub struct Observer {
    seen: Arc<Mutex<Vec<Observation>>>,
    count: watch::Sender<usize>,
}

impl Default for Observer {
    fn default() -> Self {
        Self { seen: Arc::default(), count: watch::Sender::new(0) }
    }
}

impl Observer {
    /// Records something that happens now.
    pub fn record(&self, what: Observed) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(Observation { at: Timestamp::now(), what });
        self.count.send_replace(seen.len());
    }

    /// How many observations there are: a place to count or wait from.
    #[must_use]
    pub fn mark(&self) -> usize {
        *self.count.borrow()
    }

    /// All observations since `mark`.
    #[must_use]
    pub fn since(&self, mark: usize) -> Vec<Observation> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(mark..).unwrap_or_default().to_vec()
    }

    /// Waits until there is more than `mark` says.
    pub async fn more(&self, mark: usize) {
        // The sender lives in `self`: the channel cannot close here.
        let _ = self.count.subscribe().wait_for(|count| *count > mark).await;
    }

    /// Waits for the first observation since `mark` of which `pick` makes something; `None` after `timeout`.
    pub async fn wait<T>(
        &self,
        mark: usize,
        timeout: Duration,
        mut pick: impl FnMut(&Observation) -> Option<T>,
    ) -> Option<T> {
        let search = async {
            let mut next = mark;
            loop {
                for observation in self.since(next) {
                    next += 1;
                    if let Some(found) = pick(&observation) {
                        return found;
                    }
                }
                self.more(next).await;
            }
        };
        tokio::time::timeout(timeout, search).await.ok()
    }

    /// What the embedded AWS itself did wrong since `mark`.
    #[must_use]
    pub fn troubles(&self, mark: usize) -> Vec<String> {
        let seen = self.since(mark).into_iter();
        seen.filter_map(|one| if let Observed::Trouble(what) = one.what { Some(what) } else { None })
            .collect()
    }

    /// The calls since `mark`.
    #[must_use]
    pub fn calls(&self, mark: usize) -> Vec<Call> {
        let calls = self.since(mark).into_iter().filter_map(|observation| match observation.what {
            Observed::Call(call) => Some(call),
            Observed::Event { .. }
            | Observed::Started(_)
            | Observed::Finished { .. }
            | Observed::DeadLettered { .. }
            | Observed::Routed { .. }
            | Observed::NotPermitted { .. }
            | Observed::Trouble(_)
            | Observed::Log { .. } => None,
        });
        calls.collect()
    }

    /// The events since `mark` as (detail-type, detail).
    #[must_use]
    pub fn events(&self, mark: usize) -> Vec<(String, Value)> {
        let events = self.since(mark).into_iter().filter_map(|observation| {
            let Observed::Event { event, .. } = observation.what else { return None };
            Some((event["detail-type"].as_str().unwrap_or_default().to_owned(), event["detail"].clone()))
        });
        events.collect()
    }
}
