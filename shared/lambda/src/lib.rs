//! What makes a Lambda function of a flow. The only crate with `lambda_runtime`.
//!
//! A function implements [`Function`]: how it starts, and what it does with an event. [`run`] does the rest: the
//! runtime, [logging](log), errors as [`Failure`]s with a stable type, the clock. [`environment`] says which variables
//! there are, [`event`] turns an event into what a flow is asked, [`metrics`] are what a scan counts.

pub mod environment;
pub mod event;
mod failure;
pub mod log;
pub mod metrics;

use std::future::Future;
use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};
use lambda_runtime::{LambdaEvent, Runtime, service_fn};
use serde_json::Value;
use tracing::field::Empty;
use tracing::{Instrument, Span};

pub use environment::Environment;
pub use failure::Failure;

/// A function: started once a process, then given one event at a time, on one thread: its futures need not be `Send`.
pub trait Function: Sized {
    /// Reads the environment and makes the clients.
    ///
    /// # Errors
    /// If the environment is not as it must be. The process lives on and fails each event with this, so that every
    /// one of them reaches the dead letters with the reason, and an alarm sees it.
    fn start(environment: &Environment) -> impl Future<Output = Result<Self, Failure>>;

    /// Takes one event and says what became of it, for the log.
    ///
    /// # Errors
    /// If the event could not be dealt with. Lambda tries again, twice, and then it is a dead letter.
    fn handle(&self, event: Value, invocation: &Invocation) -> impl Future<Output = Result<String, Failure>>;
}

/// What is known of an invocation besides its event.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The ARN that the function was invoked by: its own.
    pub function_arn: String,
    /// When it was invoked. Time enters Slipway's functions here, and nowhere else.
    pub now: Timestamp,
    /// How much the clock is ahead of the machine's.
    ahead: SignedDuration,
}

impl Invocation {
    /// What time it is by now: an invocation may take minutes.
    #[must_use]
    pub fn clock(&self) -> Timestamp {
        clock(self.ahead)
    }

    /// Puts the cluster's name on each line that the rest of the invocation logs.
    pub fn about(&self, cluster: &str) {
        Span::current().record("cluster", cluster);
    }
}

/// Runs `F` on the Lambda Runtime API until the process is ended.
///
/// One thread: a function has a fraction of a core, and an idle thread more costs memory and start time.
#[must_use]
pub fn run<F: Function>() -> ExitCode {
    let environment = Environment::of_process();
    let log_problem = log::start(&environment);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(errorType = "Slipway.Start", "the asynchronous runtime does not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve::<F>(&environment, log_problem)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(
                errorType = "Slipway.Start",
                "the Lambda Runtime API cannot be spoken to: {error}"
            );
            ExitCode::FAILURE
        }
    }
}

async fn serve<F: Function>(
    environment: &Environment,
    log_problem: Option<Failure>,
) -> Result<(), lambda_runtime::Error> {
    let started = match (log_problem, environment::clock_ahead(environment)) {
        (None, Ok(_)) => F::start(environment).await,
        (Some(problem), _) | (None, Err(problem)) => Err(problem),
    };
    if let Err(failure) = &started {
        failure.log();
    }
    let started = &started;
    let handler = service_fn(async |event: LambdaEvent<Value>| {
        let span = tracing::info_span!("invocation", requestId = %event.context.request_id, cluster = Empty);
        answer(started.as_ref(), event, environment::clock_ahead(environment)).instrument(span).await
    });
    Runtime::new(handler).run().await
}

/// What time it is, by a clock that is so much ahead.
fn clock(ahead: SignedDuration) -> Timestamp {
    Timestamp::now().saturating_add(ahead).unwrap_or(Timestamp::MAX)
}

/// One invocation: its outcome, or its failure, is its last line in the log.
async fn answer<F: Function>(
    function: Result<&F, &Failure>,
    event: LambdaEvent<Value>,
    ahead: Result<SignedDuration, Failure>,
) -> Result<String, Failure> {
    let result = match (function, ahead) {
        (Ok(function), Ok(ahead)) => {
            let function_arn = event.context.invoked_function_arn.clone();
            let invocation = Invocation { function_arn, now: clock(ahead), ahead };
            function.handle(event.payload, &invocation).await
        }
        (Err(failure), _) => Err(failure.clone()),
        (Ok(_), Err(failure)) => Err(failure),
    };
    match &result {
        Ok(outcome) => tracing::info!(outcome, "done"),
        Err(failure) => failure.log(),
    }
    result
}
