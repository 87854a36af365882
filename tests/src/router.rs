//! EventBridge's delivery: moto matches events against the rules of the template, and the router delivers them to Lambda.
//!
//! moto's own Lambda target does not work, so the deployer gives every rule its own queue; everything that moto's pattern engine puts there
//! is for that rule's function. A second queue on every bus, whose rule matches everything, shows all events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::client::{AT_ONCE, Client, ClientError};
use crate::gateway::Gateway;
use crate::iam::{self, Decision, Request, Statement};
use crate::lambda::{Caller, Lambda};
use crate::observe::{Observed, Observer};

/// How long the router sleeps if no call rings the bell.
const IDLE: Duration = Duration::from_millis(200);

/// The route from a rule to a function.
#[derive(Debug, Clone)]
pub struct Route {
    /// `default`, or the name of a custom bus.
    pub bus: String,
    /// ARN of the rule.
    pub rule_arn: String,
    /// URL of the queue in which moto puts matching events.
    pub queue_url: String,
    /// ARN of the function.
    pub function_arn: String,
    /// The queue for events that cannot be delivered.
    pub dead_letters: Option<DeadLetters>,
}

/// The dead-letter queue of a rule.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    /// Its ARN.
    pub arn: String,
    /// Its own policy, which must permit EventBridge.
    pub policy: Vec<Statement>,
}

/// The running router. Dropping this value stops it.
#[derive(Debug)]
pub struct Router {
    task: JoinHandle<()>,
    delivery: Arc<Delivery>,
}

/// The settings of the delivery, which tests change.
#[derive(Debug, Default)]
struct Delivery {
    state: Mutex<DeliveryState>,
    changed: Notify,
}

#[derive(Debug)]
struct DeliveryState {
    held: Option<Vec<(Route, Value)>>,
    copies: usize,
}

impl Default for DeliveryState {
    fn default() -> Self {
        Self { held: None, copies: 1 }
    }
}

struct Courier {
    client: Client,
    lambda: Lambda,
    observer: Observer,
    routes: Vec<Route>,
    /// Pairs of a bus and a queue URL.
    taps: Vec<(String, String)>,
    sequencers: Sequencers,
    delivery: Arc<Delivery>,
}

impl Router {
    /// Delivers the events of `routes` to their functions, and shows the events of `taps` (bus, queue URL).
    #[must_use]
    pub fn start(
        client: Client,
        gateway: &Gateway,
        lambda: Lambda,
        observer: Observer,
        routes: Vec<Route>,
        taps: Vec<(String, String)>,
    ) -> Self {
        let delivery = Arc::new(Delivery::default());
        let (bell, disturbed) = (gateway.bell(), Arc::clone(&delivery));
        let mut courier = Courier {
            client,
            lambda,
            observer,
            routes,
            taps,
            sequencers: Sequencers::default(),
            delivery: Arc::clone(&delivery),
        };
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = bell.rung() => {}
                    () = disturbed.changed.notified() => {}
                    () = tokio::time::sleep(IDLE) => {}
                }
                let then = bell.rings();
                if let Err(error) = courier.round().await {
                    courier
                        .observer
                        .record(Observed::Trouble(format!("the router cannot read a queue: {error:?}")));
                }
                bell.answer(then);
            }
        });
        Self { task, delivery }
    }

    /// Holds all deliveries from now on.
    pub fn hold(&self) {
        self.state(|state| {
            state.held.get_or_insert_default();
        });
    }

    /// The number of held deliveries.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state(|state| state.held.as_ref().map_or(0, Vec::len))
    }

    /// Delivers all held events now; if `reversed`, in reverse order.
    pub fn release(&self, lambda: &Lambda, reversed: bool) {
        let mut held = self.state(|state| state.held.take()).unwrap_or_default();
        if reversed {
            held.reverse();
        }
        for (route, event) in held {
            // Held events were matched and shown already. A missing permission is found when events are not held.
            let caller = Caller::Service {
                principal: "events.amazonaws.com".to_owned(),
                source_arn: route.rule_arn.clone(),
            };
            if let Err(reason) = lambda.invoke(&route.function_arn, &caller, event.to_string().into_bytes()) {
                tracing::error!(reason, "a kept-back event is lost");
            }
        }
    }

    /// Delivers each event this many times from now on: EventBridge only guarantees at least once.
    pub fn set_copies(&self, copies: usize) {
        self.state(|state| state.copies = copies);
    }

    fn state<T>(&self, change: impl FnOnce(&mut DeliveryState) -> T) -> T {
        let changed = change(&mut self.delivery.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.delivery.changed.notify_one();
        changed
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Courier {
    /// Empties all queues in turns, so that a busy one does not block the others. New events ring the bell again.
    async fn round(&mut self) -> Result<(), ClientError> {
        loop {
            let mut more = false;
            let waiting = self.client.waiting().await?;
            let waits =
                |queue_url: &str| queue_url.rsplit('/').next().is_some_and(|name| waiting.contains(name));
            for (bus, queue_url) in self.taps.clone().into_iter().filter(|(_, url)| waits(url)) {
                for event in self.some(&bus, &queue_url, &mut more).await? {
                    self.observer.record(Observed::Event { bus: bus.clone(), event });
                }
            }
            for route in self.routes.clone().into_iter().filter(|route| waits(&route.queue_url)) {
                for event in self.some(&route.bus, &route.queue_url, &mut more).await? {
                    self.deliver(&route, &event).await?;
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    async fn some(&mut self, bus: &str, queue_url: &str, more: &mut bool) -> Result<Vec<Value>, ClientError> {
        let messages = self.client.take(queue_url).await?;
        *more |= messages.len() == AT_ONCE;
        let events = messages.into_iter().filter_map(|message| {
            let event = serde_json::from_str(&message.body).unwrap_or_default();
            as_aws_sends_it(event, bus, &mut self.sequencers)
        });
        Ok(events.collect())
    }

    async fn deliver(&self, route: &Route, event: &Value) -> Result<(), ClientError> {
        let copies = {
            let mut state = self.delivery.state.lock().unwrap_or_else(PoisonError::into_inner);
            let copies = state.copies;
            if let Some(held) = &mut state.held {
                held.extend(std::iter::repeat_n((route.clone(), event.clone()), copies));
                return Ok(());
            }
            copies
        };
        let caller = Caller::Service {
            principal: "events.amazonaws.com".to_owned(),
            source_arn: route.rule_arn.clone(),
        };
        for _ in 0..copies {
            let invoked = self.lambda.invoke(&route.function_arn, &caller, event.to_string().into_bytes());
            match invoked {
                Ok(_) => self.observer.record(Observed::Routed {
                    rule: route.rule_arn.clone(),
                    function: route.function_arn.clone(),
                }),
                Err(reason) => self.cannot_deliver(route, event, &reason).await?,
            }
        }
        Ok(())
    }

    /// What EventBridge does if its target refuses an event because of a missing permission: it does not retry, and sends the event to the
    /// rule's dead-letter queue, if the queue's policy permits it.
    async fn cannot_deliver(&self, route: &Route, event: &Value, reason: &str) -> Result<(), ClientError> {
        self.observer.record(Observed::NotPermitted {
            caller: route.rule_arn.clone(),
            function: route.function_arn.clone(),
            reason: reason.to_owned(),
        });
        let Some(queue) = &route.dead_letters else { return Ok(()) };
        bury(&self.client, queue, &route.rule_arn, &route.function_arn, event, reason).await
    }
}

/// Sends an event that its target refuses because of a missing permission to the rule's dead-letter queue, if the queue's policy permits it.
pub(crate) async fn bury(
    client: &Client,
    queue: &DeadLetters,
    rule: &str,
    target: &str,
    event: &Value,
    reason: &str,
) -> Result<(), ClientError> {
    let context = [
        ("aws:sourcearn".to_owned(), vec![rule.to_owned()]),
        ("aws:securetransport".to_owned(), vec!["true".to_owned()]),
    ];
    let request = Request {
        action: "sqs:SendMessage".to_owned(),
        resource: queue.arn.clone(),
        context: BTreeMap::from(context),
    };
    let decision = iam::decide_for(&queue.policy, "service:events.amazonaws.com", &request);
    if !matches!(decision, Decision::Allowed(_)) {
        return Ok(());
    }
    let text = |value: &str| json!({"DataType": "String", "StringValue": value});
    let name = queue.arn.rsplit(':').next().unwrap_or_default();
    let message = json!({
        "QueueUrl": client.queue_url(name), "MessageBody": event.to_string(),
        "MessageAttributes": {
            "RULE_ARN": text(rule), "TARGET_ARN": text(target),
            "ERROR_CODE": text("NO_PERMISSIONS"), "ERROR_MESSAGE": text(reason),
        },
    });
    client.json("sqs", "AmazonSQS.SendMessage", message).await?;
    Ok(())
}

/// The order in which versions of objects were first seen, which is the order in which they were written.
#[derive(Debug, Default)]
struct Sequencers {
    by_version: BTreeMap<String, u64>,
}

impl Sequencers {
    fn for_version(&mut self, version: &str) -> u64 {
        let next = self.by_version.len() as u64 + 1;
        *self.by_version.entry(version.to_owned()).or_insert(next)
    }
}

/// Corrects moto's S3 events; `None` for events that AWS does not send.
///
/// moto 5.2 gives every S3 event the same id and sequencer, spells `etag` as `eTag`, sends tagging events for untagged objects, and sends
/// S3's events to custom buses, where AWS' services never publish.
fn as_aws_sends_it(mut event: Value, bus: &str, sequencers: &mut Sequencers) -> Option<Value> {
    if event["source"] != "aws.s3" {
        return Some(event);
    }
    if bus != "default" || event["detail-type"] == "Object Tags Added" {
        return None;
    }
    let version = event["detail"]["object"]["version-id"].as_str().unwrap_or_default();
    let sequencer = sequencers.for_version(version);
    event["id"] = json!(format!("00000000-0000-4000-9000-{sequencer:012x}"));
    let object = event["detail"]["object"].as_object_mut()?;
    object.insert("sequencer".to_owned(), json!(format!("{sequencer:018X}")));
    if let Some(etag) = object.remove("eTag") {
        object.insert("etag".to_owned(), etag);
    }
    if event["detail-type"] == "Object Created" {
        event["detail"]["reason"] = json!("PutObject");
    }
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_events_are_put_right() {
        let mut sequencers = Sequencers::default();
        let event = |version: &str| {
            json!({"source": "aws.s3", "detail-type": "Object Created", "id": "same",
                   "detail": {"object": {"eTag": "e", "version-id": version, "sequencer": "same"}}})
        };
        let first = as_aws_sends_it(event("v1"), "default", &mut sequencers);
        let second = as_aws_sends_it(event("v2"), "default", &mut sequencers);
        let again = as_aws_sends_it(event("v1"), "default", &mut sequencers);
        assert_eq!(first, again, "the rule's copy and the tap's copy are one event");
        let sequencer = |event: &Option<Value>| {
            event
                .as_ref()
                .and_then(|event| event["detail"]["object"]["sequencer"].as_str().map(str::to_owned))
        };
        assert!(sequencer(&first) < sequencer(&second));
        assert_eq!(first.as_ref().map(|event| &event["detail"]["object"]["etag"]), Some(&json!("e")));
        assert_eq!(as_aws_sends_it(event("v3"), "slipway", &mut sequencers), None);
    }
}
