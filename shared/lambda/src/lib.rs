//! Turns a flow into a Lambda function. The only crate that uses `lambda_runtime`.
//!
//! A function implements [`Function`]: how it starts, and how it handles an event. [`run`] does the rest: runtime, [logging](log), clock,
//! and errors as [`InvocationError`]s with a stable type. [`environment`] defines the variables, [`event`] translates events, and [`metrics`]
//! writes the metrics of a scan.

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
pub use failure::InvocationError;

/// A function. It is started once per process and then handles one event at a time on one thread, so its futures need not be `Send`.
pub trait Function: Sized {
    /// Reads the environment and creates the clients.
    ///
    /// # Errors
    /// If the environment is incomplete or wrong. The process keeps running and fails each event with this error, so that every event
    /// becomes a dead letter with the reason, and an alarm is raised.
    fn start(environment: &Environment) -> impl Future<Output = Result<Self, InvocationError>>;

    /// Handles one event and returns a description of the result for the log.
    ///
    /// # Errors
    /// If the event could not be handled. Lambda retries it twice, and then it becomes a dead letter.
    fn handle(
        &self,
        event: Value,
        invocation: &Invocation,
    ) -> impl Future<Output = Result<String, InvocationError>>;
}

/// The invocation of a function, besides its event.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The ARN by which the function was invoked.
    pub function_arn: String,
    /// When it was invoked. This is the only source of time in the functions.
    pub now: Timestamp,
    /// How far the clock is ahead of the machine's.
    ahead: SignedDuration,
}

impl Invocation {
    /// The present time, since an invocation may take minutes.
    #[must_use]
    pub fn clock(&self) -> Timestamp {
        clock(self.ahead)
    }

    /// Adds the cluster's name to each later log line of the invocation.
    pub fn about(&self, cluster: &str) {
        Span::current().record("cluster", cluster);
    }
}

/// Runs `F` on the Lambda Runtime API until the process is terminated.
///
/// It uses one thread: a function has a fraction of a core, and idle threads cost memory and start-up time.
#[must_use]
pub fn run<F: Function>() -> ExitCode {
    let environment = environment::of_process();
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
    log_problem: Option<InvocationError>,
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

/// The present time by a clock that is so far ahead of the machine's.
fn clock(ahead: SignedDuration) -> Timestamp {
    Timestamp::now().saturating_add(ahead).unwrap_or(Timestamp::MAX)
}

/// Handles one invocation. The last line that it logs is the result or the failure.
async fn answer<F: Function>(
    function: Result<&F, &InvocationError>,
    event: LambdaEvent<Value>,
    ahead: Result<SignedDuration, InvocationError>,
) -> Result<String, InvocationError> {
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
