//! The events in the embedded AWS in order, as one stream that the demo prints and tests wait on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

/// How long a test waits for an expected event, in wall time. Only a failing test waits that long. On a busy machine with several test
/// programs, events that usually take seconds have taken two minutes.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// One observation and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The time.
    pub at: Timestamp,
    /// The observation.
    pub what: Observed,
}

/// The kinds of observations.
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
    /// A try of an invocation began.
    Started(Attempt),
    /// A try ended.
    Finished {
        /// The try.
        attempt: Attempt,
        /// Its result.
        outcome: Outcome,
        /// Its duration in milliseconds.
        duration_ms: u64,
        /// Peak resident memory of the environment so far in KiB; 0 if the process had ended before it could be read.
        max_rss_kib: u64,
    },
    /// An event was given up and sent to the function's dead-letter queue, or lost.
    DeadLettered {
        /// The last try.
        attempt: Attempt,
        /// ARN of the queue; `None` if the function names none, and the event is lost.
        queue: Option<String>,
        /// `errorType` of the last try.
        error_type: String,
    },
    /// A rule delivered an event to its function.
    Routed {
        /// ARN of the rule.
        rule: String,
        /// ARN of the function.
        function: String,
    },
    /// A caller without permission tried to invoke a function: AWS would drop this event.
    NotPermitted {
        /// ARN of the rule or schedule.
        caller: String,
        /// Name of the function.
        function: String,
        /// The missing permission.
        reason: String,
    },
    /// The embedded AWS itself failed: later observations prove nothing.
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
    /// The action in IAM's terms: `kms:GenerateDataKey`.
    pub action: String,
    /// The ARN of its resource; `*` if the action has no resource type.
    pub resource: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// Why the gateway refused the call: a missing permission, or an injected fault.
    pub refused: Option<String>,
    /// The session of a caller whose answer a test withholds: the argument of [`crate::lambda::Lambda::kill_session`].
    pub stalled: Option<String>,
}

impl Call {
    /// Whether a call of this kind can change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let verb = self.action.split_once(':').map_or("", |(_, verb)| verb);
        // The access level of `cloudformation:DetectStackDrift` is "Read" (service authorization reference).
        let reads = ["Get", "Head", "Describe", "Detect", "List", "Simulate", "Decrypt"];
        !reads.iter().any(|read| verb.starts_with(read))
    }
}

/// One try of one invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the function.
    pub function: String,
    /// Request id, the same for every try.
    pub request_id: String,
    /// The number of the try, from 1.
    pub number: u32,
}

/// The result of a try.
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

/// Receives and keeps observations.
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
    /// Records an observation with the present time.
    pub fn record(&self, what: Observed) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(Observation { at: Timestamp::now(), what });
        self.count.send_replace(seen.len());
    }

    /// The number of observations: a position to count or wait from.
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

    /// Waits until there are more than `mark` observations.
    pub async fn more(&self, mark: usize) {
        // The sender lives in `self`: the channel cannot close here.
        let _ = self.count.subscribe().wait_for(|count| *count > mark).await;
    }

    /// Waits for the first observation since `mark` for which `pick` returns a value; `None` after `timeout`.
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

    /// The failures of the embedded AWS itself since `mark`.
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

    /// The events since `mark` as pairs of detail-type and detail.
    #[must_use]
    pub fn events(&self, mark: usize) -> Vec<(String, Value)> {
        let events = self.since(mark).into_iter().filter_map(|observation| {
            let Observed::Event { event, .. } = observation.what else { return None };
            Some((event["detail-type"].as_str().unwrap_or_default().to_owned(), event["detail"].clone()))
        });
        events.collect()
    }
}
