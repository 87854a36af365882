//! A server with a list of answers that records its requests.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use tokio::net::TcpListener;

/// A request that was received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Bytes,
}

type Answers = Arc<Mutex<(Vec<(u16, &'static str)>, Vec<ReceivedRequest>)>>;

/// Gives the answers in order, and the last one forever.
#[derive(Debug, Clone)]
pub(crate) struct Scripted {
    pub(crate) url: String,
    state: Answers,
}

impl Scripted {
    pub(crate) async fn start(answers: &[(u16, &'static str)]) -> Self {
        let state: Answers = Arc::new(Mutex::new((answers.to_vec(), Vec::new())));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, state }
    }

    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.state.lock().unwrap().1.clone()
    }
}

async fn answer(State(state): State<Answers>, request: Request) -> (StatusCode, &'static str) {
    let (parts, body) = request.into_parts();
    let headers = parts.headers.iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let asked = ReceivedRequest {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: headers.collect(),
        body: to_bytes(body, usize::MAX).await.unwrap(),
    };
    let mut state = state.lock().unwrap();
    state.1.push(asked);
    let (status, text) = if state.0.len() > 1 { state.0.remove(0) } else { state.0[0] };
    (StatusCode::from_u16(status).unwrap(), text)
}
