//! A chat and a ticket system, as servers on loopback.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// A request that came: path, `Authorization`, body.
type Came = (String, String, Value);

/// A server that takes notes, and answers everything with one status.
#[derive(Debug, Clone)]
struct Notes {
    came: Arc<Mutex<Vec<Came>>>,
    answer: StatusCode,
}

async fn server(answer: StatusCode) -> (String, Notes) {
    let notes = Notes { came: Arc::default(), answer };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(note).with_state(notes.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, notes)
}

async fn note(State(notes): State<Notes>, uri: Uri, headers: HeaderMap, body: String) -> StatusCode {
    let header = headers["authorization"].to_str().unwrap().to_owned();
    let body = serde_json::from_str(&body).unwrap();
    notes.came.lock().unwrap().push((uri.path().to_owned(), header, body));
    notes.answer
}

impl Notes {
    async fn until(&self, count: usize) -> Vec<Came> {
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.came.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("fewer than {count} came: {:?}", self.came));
        self.came.lock().unwrap().clone()
    }
}

const SLACK: &str = "https://slack.com";

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_plans_are_posted_in_the_channel() {
    let world = world().await;
    let (url, notes) = server(StatusCode::OK).await;
    let stack = deployed(&world, "chat", &[], &[(SLACK, &url)]).await;
    let template = translate(&path("chat")).await.unwrap();
    let mut wanted = kinds(&template, &template["Resources"]["Rule"]);
    wanted.push("Plan Ready".to_owned());
    // Not wanted, and so nowhere among what comes.
    world.client().put_event("slipway", &event("Rollout Step")).await.unwrap();
    for kind in &wanted {
        world.client().put_event("slipway", &event(kind)).await.unwrap();
    }
    let came = notes.until(wanted.len()).await;
    for kind in &wanted {
        let found: Vec<&Came> = came.iter().filter(|(_, _, body)| body["text"] == json!(kind)).collect();
        let [(place, header, body)] = found.as_slice() else { panic!("{kind}: {came:?}") };
        assert_eq!((place.as_str(), header.as_str()), ("/api/chat.postMessage", "Bearer xoxb-secret"));
        let detail = event(kind).detail;
        let words = if kind == "Plan Ready" { &detail["summary"] } else { &detail["message"] };
        let attachment = json!({"title": detail["cluster"], "text": words, "fallback": words});
        let whole = json!({"channel": "C0123456789", "text": kind, "attachments": [attachment]});
        assert_eq!(*body, whole);
    }
    assert_eq!(came.len(), wanted.len(), "{came:?}");
    assert_eq!(world.client().depth(&stack.deployed.references["DeadLetters"]).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chat_does_not_take_is_kept_in_the_dead_letters() {
    let world = world().await;
    let (url, notes) = server(StatusCode::SERVICE_UNAVAILABLE).await;
    let stack = deployed(&world, "chat", &[], &[(SLACK, &url)]).await;
    for kind in ["Plan Ready", "Rollout Failed"] {
        world.client().put_event("slipway", &event(kind)).await.unwrap();
        let (letter, reason) = dead_letter(&world, &stack).await;
        assert_eq!(letter["detail-type"], kind, "both rules may write there");
        assert!(reason.contains("503"), "{reason}");
    }
    assert_eq!(notes.until(2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_permission_nothing_is_posted() {
    let world = world().await;
    let (url, notes) = server(StatusCode::OK).await;
    let (action, other) = ("Action: events:InvokeApiDestination", "Action: events:DescribeApiDestination");
    let stack = broken(&world, "chat", action, other, &[(SLACK, &url)]).await;
    world.client().put_event("slipway", &event("Rollout Failed")).await.unwrap();
    let (_, reason) = dead_letter(&world, &stack).await;
    assert!(reason.contains("does not grant events:InvokeApiDestination"), "{reason}");
    assert!(notes.came.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_opens_a_ticket_with_the_cluster_and_the_message() {
    let world = world().await;
    let (url, notes) = server(StatusCode::CREATED).await;
    let stack = deployed(&world, "ticket", &[], &[("https://company.atlassian.net", &url)]).await;
    for kind in ["Rollout Waiting", "Renewal Failed"] {
        world.client().put_event("slipway", &event(kind)).await.unwrap();
    }
    let came = notes.until(1).await;
    let [(place, header, body)] = came.as_slice() else { panic!("{came:?}") };
    let basic = STANDARD.encode("ops@example.com:secret");
    assert_eq!((place.as_str(), header.as_str()), ("/rest/api/2/issue", format!("Basic {basic}").as_str()));
    let detail = event("Renewal Failed").detail;
    let fields = json!({
        "project": {"key": "OPS"}, "issuetype": {"name": "Task"}, "labels": ["slipway", detail["cluster"]],
        "summary": "Renewal Failed", "description": detail["message"],
    });
    assert_eq!(*body, json!({ "fields": fields }));
    assert_eq!(world.client().depth(&stack.deployed.references["DeadLetters"]).await.unwrap(), 0);
}
