//! The log: one JSON object per line on standard output, in Lambda's JSON log format.
//!
//! `timestamp`, `level`, `message` and the fields are at the top level; `span` contains `requestId` and `cluster`. Events, specs and
//! bodies are never logged (P9).

use std::io;
use std::str::FromStr;

use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::{Environment, InvocationError};

/// Starts logging at the level of `RUST_LOG` (`info` if it is not set), and makes panics log lines as well. Returns the failure if
/// `RUST_LOG` cannot be read; then the level is `info`.
#[must_use]
pub fn start(environment: &Environment) -> Option<InvocationError> {
    let wanted = environment.get(crate::environment::RUST_LOG).unwrap_or("info");
    let (targets, problem) = match Targets::from_str(wanted) {
        Ok(targets) => (targets, None),
        Err(error) => (
            Targets::new().with_default(Level::INFO),
            Some(InvocationError::environment(format!(
                "RUST_LOG is {wanted:?}, which cannot be read: {error}; use a level such as info, or slipway_flows=debug,info"
            ))),
        ),
    };
    // A test may have installed a subscriber already; it is kept.
    let _ = tracing_subscriber::registry().with(layer(targets, io::stdout)).try_init();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, ToString::to_string);
        let words = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(errorType = "Slipway.Panic", place, "panicked: {words}");
    }));
    problem
}

fn layer<S, W>(targets: Targets, writer: W) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    // Libraries never log below `info`, whatever RUST_LOG says: below it, SDKs and HTTP clients print what they send and receive.
    let ours_or_info = filter_fn(|line| line.target().starts_with("slipway") || *line.level() <= Level::INFO);
    // The runtime repeats in debug form what `InvocationError::log` has logged.
    let said_once = filter_fn(|line| line.target() != "lambda_runtime::layers::panic");
    tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_span_list(false)
        .with_writer(writer)
        .with_filter(targets)
        .with_filter(ours_or_info)
        .with_filter(said_once)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: &str, what: impl FnOnce()) -> Vec<Value> {
        let lines = Lines::default();
        let writer = lines.clone();
        let targets = Targets::from_str(level).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer(targets, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, what);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_failure_is_one_line_with_its_type_at_the_top_as_the_metric_filters_expect() {
        let lines = logged("info", || {
            let span = tracing::info_span!("invocation", requestId = "r-1", cluster = "prod");
            let _entered = span.enter();
            InvocationError::malformed("no version").log();
        });
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["errorType"], "Slipway.Event.Malformed");
        assert_eq!(lines[0]["errorMessage"], "no version");
        assert_eq!(lines[0]["level"], "ERROR");
        assert_eq!(lines[0]["span"]["requestId"], "r-1");
        assert_eq!(lines[0]["span"]["cluster"], "prod");
        assert!(lines[0]["timestamp"].is_string());
    }

    #[test]
    fn a_tick_that_fails_is_counted_by_its_type_and_by_its_message() {
        let mut outcome = String::new();
        let lines =
            logged("info", || outcome = InvocationError::malformed("no version").left_to_the_next_tick());
        assert_eq!(outcome, "the next tick tries again");
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["errorType"], "Slipway.Event.Malformed");
        assert_eq!(lines[0]["errorMessage"], "no version");
        assert_eq!(lines[0]["message"], "tick failed");
        let template = include_str!("../../../infra/template.yaml");
        assert!(template.contains("FilterPattern: '{ $.message = \"tick failed\" }'"));
    }

    #[test]
    fn p9_libraries_never_log_below_info() {
        let lines = logged("trace", || {
            tracing::trace!(target: "aws_smithy_runtime::client", body = "hunter2", "response");
            tracing::debug!(target: "hyper", "bytes");
            tracing::info!(target: "lambda_runtime", "fine");
            tracing::trace!(target: "slipway_flows::rollout", "fine");
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|line| line["message"] == "fine"), "{lines:?}");
    }
}
