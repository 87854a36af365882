//! The event bus.

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use slipway_core::event::{Event, SOURCE};
use slipway_flows::ports::Bus;
use slipway_ports::refusal::kind_of;
use slipway_ports::{PortError, PortResult};

use crate::error::port_error;

/// `PutEvents` takes so many entries.
const MAX_ENTRIES: usize = 10;

/// `PutEvents` takes so many bytes in all its entries.
const MAX_BYTES: usize = 256 * 1024;

/// What EventBridge counts of an entry besides its texts, generously: the time.
const ENTRY_BYTES: usize = 64;

/// An event bus of EventBridge.
#[derive(Debug, Clone)]
pub struct EventBus {
    client: aws_sdk_eventbridge::Client,
    name: String,
}

impl EventBus {
    pub(crate) fn new(client: aws_sdk_eventbridge::Client, name: String) -> Self {
        Self { client, name }
    }

    async fn send(&self, entries: Vec<PutEventsRequestEntry>) -> PortResult<()> {
        const OPERATION: &str = "events:PutEvents";
        let output = self
            .client
            .put_events()
            .set_entries(Some(entries))
            .send()
            .await
            .map_err(|error| port_error(OPERATION, &self.name, &error))?;
        if output.failed_entry_count() == 0 {
            return Ok(());
        }
        // The call succeeds though some of its entries did not. All are published again by whoever tries again: who
        // hears of them knows that an event may come twice.
        let refused = output.entries().iter().find(|entry| entry.error_code().is_some());
        let code = refused.and_then(|entry| entry.error_code()).unwrap_or("InternalFailure");
        let words = refused.and_then(|entry| entry.error_message()).unwrap_or("no message");
        Err(PortError {
            kind: kind_of(code, 200),
            operation: OPERATION,
            subject: self.name.clone(),
            message: format!("{} entries were refused, {code}: {words}", output.failed_entry_count()),
        })
    }
}

impl Bus for EventBus {
    async fn publish(&self, events: &[Event]) -> PortResult<()> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        for event in events {
            let (detail_type, detail) = event.to_wire();
            let size = SOURCE.len() + detail_type.len() + detail.len() + ENTRY_BYTES;
            if batch.len() == MAX_ENTRIES || (!batch.is_empty() && bytes + size > MAX_BYTES) {
                self.send(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            bytes += size;
            batch.push(
                PutEventsRequestEntry::builder()
                    .event_bus_name(&self.name)
                    .source(SOURCE)
                    .detail_type(detail_type)
                    .detail(detail)
                    .build(),
            );
        }
        if batch.is_empty() { Ok(()) } else { self.send(batch).await }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_core::event::{ClusterReference, PlanUnchanged, SpecRejected};
    use slipway_ports::ErrorKind;

    use super::*;
    use crate::testing::Server;

    const FINE: (u16, &str) = (200, r#"{"FailedEntryCount":0,"Entries":[]}"#);

    fn unchanged(version: usize) -> Event {
        let spec_version = format!("v{version}");
        Event::PlanUnchanged(PlanUnchanged { cluster: "a".to_owned(), spec_version })
    }

    #[tokio::test]
    async fn events_go_ten_a_call_and_in_order() {
        let server = Server::new(&[FINE, FINE, FINE]);
        let events: Vec<Event> = (0..23).map(unchanged).collect();
        server.aws().bus("slipway").publish(&events).await.unwrap();
        let sizes: Vec<usize> = server
            .requests()
            .iter()
            .map(|request| serde_json::from_str::<serde_json::Value>(&request.body).unwrap())
            .map(|body| body["Entries"].as_array().unwrap().len())
            .collect();
        assert_eq!(sizes, [10, 10, 3]);
        let first: serde_json::Value = serde_json::from_str(&server.requests()[0].body).unwrap();
        assert_eq!(first["Entries"][1]["Detail"], r#"{"cluster":"a","specVersion":"v1"}"#);
        assert_eq!(first["Entries"][1]["DetailType"], "Plan Unchanged");
        assert_eq!(first["Entries"][1]["Source"], "slipway");
        assert_eq!(first["Entries"][1]["EventBusName"], "slipway");
    }

    /// `Time` is left to EventBridge: the clock of whoever gives an order may be minutes off.
    #[tokio::test]
    async fn p10_an_orders_detail_says_when_it_was_given_and_its_time_is_eventbridges() {
        let server = Server::new(&[FINE]);
        let at = "2026-11-22T12:00:07.25Z".parse().unwrap();
        let pause = ClusterReference { cluster: "a".to_owned(), at: None };
        let events = [Event::RolloutPause(pause).given(at), unchanged(1).given(at)];
        server.aws().bus("slipway").publish(&events).await.unwrap();
        let body: serde_json::Value = serde_json::from_str(&server.requests()[0].body).unwrap();
        let detail = |at: usize| body["Entries"][at]["Detail"].as_str().unwrap();
        assert_eq!(detail(0), r#"{"at":"2026-11-22T12:00:07.25Z","cluster":"a"}"#);
        assert_eq!(detail(1), r#"{"cluster":"a","specVersion":"v1"}"#);
        assert!(body["Entries"][0].get("Time").is_none());
    }

    #[tokio::test]
    async fn large_events_go_in_calls_of_their_own() {
        let server = Server::new(&[FINE, FINE]);
        let large = Event::SpecRejected(SpecRejected {
            cluster: "a".to_owned(),
            spec_version: "v".to_owned(),
            diagnostics: vec!["x".repeat(150_000)],
            total: 1,
        });
        server.aws().bus("slipway").publish(&[large.clone(), large]).await.unwrap();
        assert_eq!(server.requests().len(), 2);
    }

    #[tokio::test]
    async fn an_entry_that_was_refused_fails_a_call_that_succeeded() {
        let answer = r#"{"FailedEntryCount":1,"Entries":[{"EventId":"1"},{"ErrorCode":"ThrottlingException","ErrorMessage":"slow"}]}"#;
        let server = Server::new(&[(200, answer)]);
        let error = server.aws().bus("slipway").publish(&[unchanged(0), unchanged(1)]).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transient);
        assert!(error.message.contains("ThrottlingException"), "{error}");
    }

    #[tokio::test]
    async fn an_entry_that_a_policy_forbids_is_denied() {
        for answer in [
            r#"{"FailedEntryCount":1,"Entries":[{"ErrorCode":"NotAuthorizedForSourceException","ErrorMessage":"no"}]}"#,
            r#"{"FailedEntryCount":1,"Entries":[{"ErrorCode":"NotAuthorizedForDetailTypeException","ErrorMessage":"no"}]}"#,
        ] {
            let server = Server::new(&[(200, answer)]);
            let error = server.aws().bus("slipway").publish(&[unchanged(0)]).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        }
    }

    #[tokio::test]
    async fn nothing_to_say_costs_no_call() {
        let server = Server::new(&[]);
        server.aws().bus("slipway").publish(&[]).await.unwrap();
        assert!(server.requests().is_empty());
    }
}
