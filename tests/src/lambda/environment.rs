//! One execution environment: a process of the function, and the Runtime API from which it gets its work.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::observe::{Observed, Observer, Outcome};
use crate::process::Group;

/// Lambda gives a function ten seconds until it asks for its first event.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How to start a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Name of the function.
    pub function: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments; Lambda itself passes none.
    pub arguments: Vec<String>,
    /// All environment variables except `AWS_LAMBDA_RUNTIME_API` and `AWS_SESSION_TOKEN`.
    pub environment: BTreeMap<String, String>,
}

/// One event for a function.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) request_id: String,
    pub(super) function_arn: String,
    pub(super) payload: Vec<u8>,
    pub(super) timeout: Duration,
}

/// A running environment.
#[derive(Debug)]
pub(super) struct Environment {
    process: Group,
    work: mpsc::Sender<Work>,
    desk: Arc<Desk>,
    server: JoinHandle<()>,
    /// The time from the start of the process to its first request for work.
    pub(super) init: Duration,
    /// The session token, which identifies its calls.
    pub(super) session: String,
}

/// The state that the Runtime API shares with the environment.
#[derive(Debug)]
struct Desk {
    inbox: tokio::sync::Mutex<mpsc::Receiver<Work>>,
    /// The request that is being worked on, and the channel for its answer.
    waiting: Mutex<Option<(String, oneshot::Sender<Outcome>)>>,
    asked: Notify,
    init_error: Mutex<Option<Outcome>>,
}

impl Environment {
    /// Starts the process and waits until it asks for work.
    ///
    /// # Errors
    /// In Lambda's terms: `Runtime.ExitError`, the function's own init error, or a timeout.
    pub(super) async fn start(
        launch: &Launch,
        session: String,
        observer: &Observer,
    ) -> Result<Self, Outcome> {
        let start = Self::try_start(launch, session, observer).await;
        start.map_err(|error| {
            failed("Runtime.InvalidEntrypoint", &format!("{}: {error}", launch.program.display()))
        })?
    }

    async fn try_start(
        launch: &Launch,
        session: String,
        observer: &Observer,
    ) -> io::Result<Result<Self, Outcome>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (work, inbox) = mpsc::channel(1);
        let desk = Arc::new(Desk {
            inbox: tokio::sync::Mutex::new(inbox),
            waiting: Mutex::default(),
            asked: Notify::new(),
            init_error: Mutex::default(),
        });
        let app = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .route("/2018-06-01/runtime/init/error", post(init_error))
            .layer(DefaultBodyLimit::max(6 << 20))
            .with_state(Arc::clone(&desk));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!(%error, "a Runtime API ended");
            }
        });
        let begun = Instant::now();
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.arguments)
            .env_clear()
            .envs(&launch.environment)
            .env("AWS_SESSION_TOKEN", &session)
            .env("AWS_LAMBDA_RUNTIME_API", address);
        let mut process = Group::spawn(&mut command)?;
        drop(process.stdin());
        collect(process.stdout(), &launch.function, observer);
        collect(process.stderr(), &launch.function, observer);
        let mut environment = Self { process, work, desk, server, init: Duration::ZERO, session };
        let ready = tokio::select! {
            () = environment.desk.asked.notified() => None,
            status = environment.process.ended() => Some(environment.desk.died(&status)),
            () = tokio::time::sleep(INIT_TIMEOUT) => Some(failed("Sandbox.Timedout", "Init timed out after 10 s")),
        };
        environment.init = begun.elapsed();
        Ok(ready.map_or(Ok(environment), Err))
    }

    /// Lets the process handle an event. The second value says whether the process may be used again.
    pub(super) async fn work(&mut self, work: Work) -> (Outcome, bool) {
        let (sender, answer) = oneshot::channel();
        *lock(&self.desk.waiting) = Some((work.request_id.clone(), sender));
        let (timeout, id) = (work.timeout, work.request_id.clone());
        // A closed channel means that the server task is gone; the process then ends or times out below.
        let _ = self.work.send(work).await;
        tokio::select! {
            outcome = answer => match outcome {
                Ok(outcome) => (outcome, true),
                Err(_) => (failed("Runtime.Unknown", "the Runtime API dropped the request"), false),
            },
            status = self.process.ended() => {
                let message = format!("RequestId: {id} Error: Runtime exited with error: {status}");
                (failed("Runtime.ExitError", &message), false)
            }
            () = tokio::time::sleep(timeout) => {
                self.process.kill();
                let message = format!("RequestId: {id} Error: Task timed out after {:.2} seconds", timeout.as_secs_f64());
                (failed("Sandbox.Timedout", &message), false)
            }
        }
    }

    /// Peak resident memory of the process, KiB; 0 if it is gone.
    pub(super) fn max_rss_kib(&self) -> u64 {
        let read = |id| std::fs::read_to_string(format!("/proc/{id}/status")).ok();
        let status = self.process.id().and_then(read).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok()).unwrap_or(0)
    }

    /// Its process id, while it runs.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Desk {
    fn died(&self, status: &str) -> Outcome {
        let own = lock(&self.init_error).take();
        own.unwrap_or_else(|| {
            failed("Runtime.ExitError", &format!("Error: Runtime exited with error: {status}"))
        })
    }

    fn answer(&self, id: &str, outcome: Outcome) -> Response {
        let mut waiting = lock(&self.waiting);
        match waiting.take_if(|(wanted, _)| wanted == id) {
            Some((_, sender)) => {
                // If it has just timed out, nobody waits any more.
                let _ = sender.send(outcome);
                StatusCode::ACCEPTED.into_response()
            }
            None => (StatusCode::BAD_REQUEST, r#"{"errorType":"InvalidRequestID"}"#).into_response(),
        }
    }
}

/// An outcome that is a failure.
pub(super) fn failed(error_type: &str, message: &str) -> Outcome {
    Outcome::Failed { error_type: error_type.to_owned(), message: message.to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn next(State(desk): State<Arc<Desk>>) -> Response {
    desk.asked.notify_one();
    let Some(work) = desk.inbox.lock().await.recv().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let timeout = SignedDuration::try_from(work.timeout).unwrap_or(SignedDuration::MAX);
    let deadline = Timestamp::now().saturating_add(timeout).unwrap_or(Timestamp::MAX);
    let id = work.request_id.replace('-', "");
    let trace =
        format!("Root=1-{:08x}-{};Sampled=0", Timestamp::now().as_second(), id.get(..24).unwrap_or_default());
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("lambda-runtime-aws-request-id", work.request_id),
        ("lambda-runtime-deadline-ms", deadline.as_millisecond().to_string()),
        ("lambda-runtime-invoked-function-arn", work.function_arn),
        ("lambda-runtime-trace-id", trace),
        ("content-type", "application/json".to_owned()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    (headers, work.payload).into_response()
}

async fn response(State(desk): State<Arc<Desk>>, Path(id): Path<String>, body: Bytes) -> Response {
    let value = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
    desk.answer(&id, Outcome::Answered(value))
}

async fn error(
    State(desk): State<Arc<Desk>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    desk.answer(&id, reported(&headers, &body))
}

async fn init_error(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> Response {
    *lock(&desk.init_error) = Some(reported(&headers, &body));
    StatusCode::ACCEPTED.into_response()
}

/// The error that the runtime library reports.
fn reported(headers: &HeaderMap, body: &[u8]) -> Outcome {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let header = headers.get("lambda-runtime-function-error-type").and_then(|value| value.to_str().ok());
    let kind = body["errorType"].as_str().or(header).unwrap_or("Unhandled");
    failed(kind, body["errorMessage"].as_str().unwrap_or_default())
}

/// Records the output of a process as log lines.
fn collect(stream: Option<impl AsyncRead + Unpin + Send + 'static>, function: &str, observer: &Observer) {
    let (function, observer) = (function.to_owned(), observer.clone());
    let Some(stream) = stream else { return };
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            observer.record(Observed::Log { function: function.clone(), line });
        }
    });
}
