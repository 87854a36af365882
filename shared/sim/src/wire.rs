//! The world as HTTP endpoints: the query protocol of CloudFormation, Auto Scaling and Elastic Load Balancing, Run Command's JSON
//! and Scheduler's REST-JSON on the loopback address. Unmodified programs with an AWS SDK run against it
//! (`AWS_ENDPOINT_URL_CLOUDFORMATION`, `…_AUTO_SCALING`, `…_ELASTIC_LOAD_BALANCING_V2`, `…_SSM`, `…_SCHEDULER`).
//!
//! One port serves all services. Calls are `POST /`; the query's version or the header `X-Amz-Target` names the service.
//! Scheduler's calls are below `/schedules`. Of Systems Manager, only Run Command is served, and no parameters. Signatures are not
//! checked. An action or a parameter that the world does not model is answered with an error.

mod actions;
mod clock;
mod commands;
mod fetch;
mod groups;
mod query;
mod render;
mod scheduler;
mod targets;
#[cfg(test)]
mod tests;
mod xml;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::ports::{SharedWorld, lock};
use crate::world::{ApiError, Outgoing};

pub use clock::Clock;
pub use fetch::client;

/// How the world is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seconds of the world per second of the wall clock.
    pub speed: f64,
    /// The endpoint from which `TemplateURL`s are read: an S3 endpoint with path-style requests, `http://127.0.0.1:5000`.
    pub s3_endpoint: Option<String>,
}

/// A world that is being served. Dropping this value stops the server.
#[derive(Debug)]
pub struct Served {
    /// The address of the server.
    pub address: SocketAddr,
    /// The events and invocations that the world sends, in order.
    pub outgoing: mpsc::UnboundedReceiver<Outgoing>,
    world: SharedWorld,
    clock: Clock,
    tasks: [JoinHandle<()>; 2],
}

impl Served {
    /// The world that is served, so that a test can observe it or make it fail. Its time is that of the last call.
    #[must_use]
    pub fn world(&self) -> &SharedWorld {
        &self.world
    }

    /// The clock of the world.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

#[derive(Clone)]
struct Service {
    world: SharedWorld,
    clock: Clock,
    templates: fetch::Templates,
}

/// Serves `world` on `address`. From now on its time is the wall clock's, times `options.speed`.
///
/// # Errors
/// If the address cannot be bound.
pub async fn serve(address: SocketAddr, world: SharedWorld, options: Options) -> std::io::Result<Served> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let (sender, outgoing) = mpsc::unbounded_channel();
    let clock = Clock::start(lock(&world).now(), options.speed);
    let service = Service {
        world: Arc::clone(&world),
        clock: clock.clone(),
        templates: fetch::Templates::new(options.s3_endpoint),
    };
    let router = Router::new().fallback(answer).with_state(service);
    let server = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the simulated AWS has stopped");
        }
    });
    let driver = tokio::spawn(clock::drive(Arc::clone(&world), clock.clone(), sender));
    Ok(Served { address, outgoing, world, clock, tasks: [server, driver] })
}

async fn answer(
    State(service): State<Service>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let response = if uri.path().starts_with("/schedule") {
        scheduler::answer(&service, &method, &uri, &body)
    } else if let Some(target) = headers.get("x-amz-target") {
        commands::answer(&service, target.to_str().unwrap_or_default(), &body)
    } else if method == Method::POST && uri.path() == "/" {
        actions::answer(&service, &headers, &body).await
    } else {
        let error = ApiError::not_modelled(&format!("{method} {}", uri.path()));
        xml_response(error.http_status, actions::error_text(&error, "none"), "none")
    };
    service.clock.called();
    response
}

impl Service {
    /// The world, advanced to the present time of its clock.
    fn now(&self) -> std::sync::MutexGuard<'_, crate::World> {
        let mut world = lock(&self.world);
        world.advance(self.clock.now());
        world
    }
}

fn xml_response(status: u16, body: String, request_id: &str) -> Response {
    respond(status, "text/xml", body, request_id)
}

fn respond(status: u16, content_type: &'static str, body: String, request_id: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert("x-amzn-requestid", id);
    }
    response
}
