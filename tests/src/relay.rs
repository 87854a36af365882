//! Delivers events to what is no function: SNS topics, addresses of others (API destinations), state machines, and other buses. It is for
//! the templates of `infra/integrations`; functions get theirs by [`crate::router`].
//!
//! An event that cannot be delivered goes to the rule's dead letters at once: EventBridge would try for as long as the rule says.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client::{ACCOUNT, AT_ONCE, Client, ClientError};
use crate::gateway::Gateway;
use crate::iam::{self, Decision, Request, Statement};
use crate::router::{self, DeadLetters};

/// How often the queues are looked at.
const EVERY: Duration = Duration::from_millis(50);

/// A rule whose target is no function.
#[derive(Debug, Clone)]
pub struct Relay {
    /// ARN of the rule.
    pub rule_arn: String,
    /// URL of the queue in which moto puts matching events.
    pub queue_url: String,
    /// ARN of the target.
    pub target_arn: String,
    /// The role with which EventBridge calls the target. A topic has a policy of its own instead.
    pub role: Option<Lent>,
    /// What becomes of the event; `None`: it is delivered as it is.
    pub input: Option<Transformer>,
    /// The queue for events that cannot be delivered.
    pub dead_letters: Option<DeadLetters>,
}

/// A role of the template.
#[derive(Debug, Clone)]
pub struct Lent {
    /// Its trust policy.
    pub trusts: Vec<Statement>,
    /// Its permissions.
    pub statements: Vec<Statement>,
}

/// An API destination, with the header by which its connection signs in.
#[derive(Debug, Clone)]
pub struct Destination {
    /// Its address.
    pub url: String,
    /// The header's name and value.
    pub header: (String, String),
}

/// An input transformer. Only variables outside of quotes are modelled: EventBridge puts their JSON there, and does not escape what it puts
/// between quotes (EventBridge user guide, "Transforming Amazon EventBridge target input").
#[derive(Debug, Clone)]
pub struct Transformer {
    /// JSON pointers by the names of variables.
    paths: BTreeMap<String, String>,
    template: String,
}

impl Transformer {
    pub(crate) fn new(value: &Value) -> Result<Self, String> {
        let template = value["InputTemplate"].as_str().ok_or("no InputTemplate")?.to_owned();
        let mut paths = BTreeMap::new();
        for (name, path) in value["InputPathsMap"].as_object().into_iter().flatten() {
            let path = path.as_str().and_then(|path| path.strip_prefix("$."));
            let path = path.ok_or_else(|| format!("the path of `{name}` does not begin with $."))?;
            paths.insert(name.clone(), format!("/{}", path.replace('.', "/")));
        }
        let mut quoted = false;
        for (at, letter) in template.char_indices() {
            match letter {
                '"' => quoted = !quoted,
                '<' if quoted => return Err("a variable between quotes is not modelled".to_owned()),
                '<' => {
                    let name = template[at + 1..].split('>').next().unwrap_or_default();
                    if !paths.contains_key(name) {
                        return Err(format!("the variable `{name}` has no path"));
                    }
                }
                _ => {}
            }
        }
        Ok(Self { paths, template })
    }

    /// What the target is given.
    ///
    /// # Errors
    /// If the event lacks what a path names: the result would not be JSON.
    pub fn apply(&self, event: &Value) -> Result<Value, String> {
        let mut parts = self.template.split('<');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('>').unwrap_or((part, ""));
            let path = self.paths.get(name).map(String::as_str).unwrap_or_default();
            let value = event.pointer(path).ok_or_else(|| format!("the event has no {path}: {event}"))?;
            text += &value.to_string();
            text += rest;
        }
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }
}

/// The running relays. Dropping this value stops them.
#[derive(Debug)]
pub struct Relays {
    task: JoinHandle<()>,
}

struct Post {
    client: Client,
    policies: BTreeMap<String, Policies>,
    relays: Vec<Relay>,
    destinations: BTreeMap<String, Destination>,
    /// What is reached in the place of an address: origins of URLs.
    web: BTreeMap<String, String>,
    http: reqwest::Client,
}

/// The policies of a target, and of the key that encrypts it.
#[derive(Default)]
struct Policies {
    own: Vec<Statement>,
    key: Option<Vec<Statement>>,
}

impl Relays {
    /// Delivers the events of `relays`. Whatever goes to the origin of a URL that `web` names goes to its value instead.
    #[must_use]
    pub fn start(
        client: &Client,
        gateway: &Gateway,
        relays: Vec<Relay>,
        destinations: BTreeMap<String, Destination>,
        web: BTreeMap<String, String>,
    ) -> Self {
        let targets = relays.iter().map(|relay| relay.target_arn.clone());
        let policies = targets.map(|arn| {
            let key = gateway.key_of(&arn).map(|key| gateway.policy_of(&key).unwrap_or_default());
            let own = gateway.policy_of(&arn).unwrap_or_default();
            (arn, Policies { own, key })
        });
        let (client, http) = (client.clone(), slipway_sim::wire::client());
        let post = Post { client, policies: policies.collect(), relays, destinations, web, http };
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = post.round().await {
                    tracing::error!(?error, "a relay cannot read or write a queue");
                }
                tokio::time::sleep(EVERY).await;
            }
        });
        Self { task }
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Post {
    async fn round(&self) -> Result<(), ClientError> {
        for relay in &self.relays {
            loop {
                let messages = self.client.take(&relay.queue_url).await?;
                let full = messages.len() == AT_ONCE;
                for message in messages {
                    let event: Value = serde_json::from_str(&message.body).unwrap_or_default();
                    if let Err(reason) = self.deliver(relay, &event).await
                        && let Some(letters) = &relay.dead_letters
                    {
                        let (rule, target) = (&relay.rule_arn, &relay.target_arn);
                        router::bury(&self.client, letters, rule, target, &event, &reason).await?;
                    }
                }
                if !full {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn deliver(&self, relay: &Relay, event: &Value) -> Result<(), String> {
        let input = relay.input.as_ref().map_or_else(|| Ok(event.clone()), |input| input.apply(event))?;
        let arn = relay.target_arn.as_str();
        let said = |error: ClientError| format!("{error:?}");
        match arn.split(':').nth(2).unwrap_or_default() {
            "sns" => {
                self.topic_lets_in(arn)?;
                let asked = [("TopicArn", arn), ("Message", &input.to_string())];
                self.client.query("sns", Client::SNS, "Publish", &asked).await.map_err(said)?;
            }
            "states" => {
                Self::role_lets(relay, "states:StartExecution", &[])?;
                let request = json!({"stateMachineArn": arn, "input": input.to_string()});
                self.client.json("states", "AWSStepFunctions.StartExecution", request).await.map_err(said)?;
            }
            "events" if arn.contains(":api-destination/") => {
                Self::role_lets(relay, "events:InvokeApiDestination", &[])?;
                self.post(arn, &input).await?;
            }
            "events" => {
                let kind = event["detail-type"].as_str().unwrap_or_default();
                let source = event["source"].as_str().unwrap_or_default();
                let context = [("events:source", source), ("events:detail-type", kind)];
                Self::role_lets(relay, "events:PutEvents", &context)?;
                self.bus_lets_in(relay, &context)?;
                let bus = arn.rsplit('/').next().unwrap_or_default();
                let event = crate::client::Event {
                    source: source.to_owned(),
                    detail_type: kind.to_owned(),
                    detail: event["detail"].clone(),
                    resources: Vec::new(),
                };
                self.client.put_event(bus, &event).await.map_err(said)?;
            }
            other => return Err(format!("targets of {other} are not modelled: {arn}")),
        }
        Ok(())
    }

    async fn post(&self, arn: &str, body: &Value) -> Result<(), String> {
        let Destination { url, header: (name, value) } =
            self.destinations.get(arn).ok_or_else(|| format!("there is no {arn}"))?;
        let place = self
            .web
            .iter()
            .find_map(|(origin, instead)| Some(format!("{instead}{}", url.strip_prefix(origin)?)));
        let place = place.ok_or_else(|| format!("nothing stands in for {url}"))?;
        let request = self.http.post(place).header(name, value).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.map_err(|error| format!("{error:?}"))?;
        // "EventBridge … retries … 401, 407, 409, 429 and 5xx" (EventBridge user guide, "API destinations"); no other answer is success either.
        if answer.status().is_success() { Ok(()) } else { Err(format!("{url} answers {}", answer.status())) }
    }

    /// EventBridge calls with the role of the target.
    fn role_lets(relay: &Relay, action: &str, context: &[(&str, &str)]) -> Result<(), String> {
        let role =
            relay.role.as_ref().ok_or_else(|| format!("the target {} has no role", relay.target_arn))?;
        if !iam::trusts(&role.trusts, "events.amazonaws.com", ACCOUNT) {
            return Err("the target's role does not trust events.amazonaws.com".to_owned());
        }
        let context = context.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()]));
        let request = Request {
            action: action.to_owned(),
            resource: relay.target_arn.clone(),
            context: context.collect(),
        };
        match iam::decide(&role.statements, &request) {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied(_) | Decision::NotGranted => {
                Err(format!("the target's role does not grant {action} on {}", relay.target_arn))
            }
        }
    }

    /// A topic's policy, and that of its key. EventBridge brings no condition keys there: neither policy may have a condition for it (EventBridge
    /// user guide, "Amazon SNS permissions"; SNS developer guide, "Enable compatibility between event sources … and encrypted topics").
    fn topic_lets_in(&self, topic: &str) -> Result<(), String> {
        let Some(policies) = self.policies.get(topic) else { return Err(format!("there is no {topic}")) };
        let decide = |policy: &[Statement], action: &str, context: &[(&str, &str)]| {
            let context = context.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()]));
            let resource = if action.starts_with("kms:") { "*" } else { topic };
            let request = Request {
                action: action.to_owned(),
                resource: resource.to_owned(),
                context: context.collect(),
            };
            match iam::decide_for(policy, "service:events.amazonaws.com", &request) {
                Decision::Allowed(_) => Ok(()),
                Decision::Denied(_) | Decision::NotGranted => {
                    Err(format!("no policy lets events.amazonaws.com call {action} for {topic}"))
                }
            }
        };
        decide(&policies.own, "sns:Publish", &[("aws:securetransport", "true")])?;
        for action in ["kms:GenerateDataKey", "kms:Decrypt"] {
            policies.key.as_ref().map_or(Ok(()), |key| decide(key, action, &[]))?;
        }
        Ok(())
    }

    /// The policy of a bus in another account must let the sender's account in.
    fn bus_lets_in(&self, relay: &Relay, context: &[(&str, &str)]) -> Result<(), String> {
        let context = context.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()]));
        let request = Request {
            action: "events:PutEvents".to_owned(),
            resource: relay.target_arn.clone(),
            context: context.collect(),
        };
        let policy = self.policies.get(&relay.target_arn).map(|policies| policies.own.as_slice());
        let account = format!("aws:arn:aws:iam::{ACCOUNT}:root");
        match iam::decide_for(policy.unwrap_or_default(), &account, &request) {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied(_) | Decision::NotGranted => {
                Err(format!("the policy of {} does not let {account} in", relay.target_arn))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn transformer(template: &str) -> Result<Transformer, String> {
        let paths = json!({"kind": "$.detail-type", "message": "$.detail.message"});
        Transformer::new(&json!({"InputPathsMap": paths, "InputTemplate": template}))
    }

    #[test]
    fn variables_become_json_whatever_is_in_them() {
        let event = json!({"detail-type": "Plan Ready", "detail": {"message": "a \"b\"\n<kind>"}});
        let made = transformer(r#"{"of": <kind>, "all": [<message>], "text": "none"}"#).unwrap();
        let wanted = json!({"of": "Plan Ready", "all": ["a \"b\"\n<kind>"], "text": "none"});
        assert_eq!(made.apply(&event).unwrap(), wanted);
        assert!(made.apply(&json!({"detail-type": "Plan Ready", "detail": {}})).is_err());
    }

    #[test]
    fn what_the_transformer_does_not_model_is_an_error() {
        for template in [r#"{"of": "<kind>"}"#, r#"{"of": <nobody>}"#] {
            assert!(transformer(template).is_err(), "{template}");
        }
    }
}
