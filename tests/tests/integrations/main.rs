//! The templates of `infra/integrations`, deployed beside an installation's bus in the embedded AWS: events of Slipway arrive where they say,
//! and without one of their permissions they do not. What cannot be delivered goes to the dead letters.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod approval;
mod bus;
mod messages;
mod schemas;
mod web;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_core::event::schemas;
use slipway_tests::client::{ACCOUNT, Client, Event};
use slipway_tests::deploy::translate;
use slipway_tests::observe::PATIENCE;
use slipway_tests::operator::between;
use slipway_tests::tools;
use slipway_tests::world::{Beside, Embedded, Settings};

/// Every template, with the parameters that have no default if it is deployed here.
const TEMPLATES: [(&str, &[(&str, &str)]); 8] = [
    ("account", &[("TargetBusArn", "arn:aws:events:eu-west-1:123456789012:event-bus/slipway-events")]),
    ("account-bus", &[("SenderAccount", ACCOUNT)]),
    ("approval", &[]),
    ("chat", &[("Channel", "C0123456789"), ("Authorization", "Bearer xoxb-secret")]),
    // Its roles are tried by what they may run: `tests/tests/verbs_in_aws/ci.rs`.
    ("ci-roles", &[]),
    ("schemas", &[]),
    ("sns", &[]),
    (
        "ticket",
        &[
            ("Url", "https://company.atlassian.net"),
            ("Project", "OPS"),
            ("User", "ops@example.com"),
            ("Token", "secret"),
        ],
    ),
];

fn path(name: &str) -> PathBuf {
    tools::root().join(format!("infra/integrations/{name}.yaml"))
}

fn parameters(name: &str) -> &'static [(&'static str, &'static str)] {
    TEMPLATES.iter().find(|(known, _)| *known == name).unwrap().1
}

/// An embedded AWS with the bus of an installation alone.
async fn world() -> Embedded {
    let bus = tools::root().join("tests/fixtures/bus.yaml");
    Embedded::start(&bus, &Settings::default()).await.unwrap()
}

/// Deploys a template with parameters besides those that it needs.
async fn deployed(world: &Embedded, name: &str, more: &[(&str, &str)], web: &[(&str, &str)]) -> Beside {
    let parameters = [parameters(name), more].concat();
    world.deploy_beside(&path(name), name, &parameters, web).await.unwrap()
}

/// Deploys a template in which `from` is `to`.
async fn broken(world: &Embedded, name: &str, from: &str, to: &str, web: &[(&str, &str)]) -> Beside {
    let text = std::fs::read_to_string(path(name)).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{name} has `{from}` once");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("template.yaml");
    std::fs::write(&copy, text.replace(from, to)).unwrap();
    world.deploy_beside(&copy, name, parameters(name), web).await.unwrap()
}

/// An event of Slipway, whose detail has every required property of its schema, as text or what else its schema wants.
fn event(kind: &str) -> Event {
    let schema = serde_json::to_value(&schemas()[kind]).unwrap();
    let mut detail = serde_json::Map::new();
    for name in schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()) {
        let value = match schema["properties"][name]["type"].as_str().unwrap() {
            "boolean" => json!(true),
            "integer" => json!(3),
            "array" => json!(["one", "two"]),
            // What a message may contain, and what would break JSON that was put together from texts.
            "string" if ["message", "summary"].contains(&name) => {
                json!("\"etcd-0\" waits:\nit's <full> & {so on}")
            }
            "string" => json!(format!("the-{}", name.to_lowercase())),
            other => panic!("{kind}: {name} is of type {other}"),
        };
        detail.insert(name.to_owned(), value);
    }
    Event {
        source: "slipway".to_owned(),
        detail_type: kind.to_owned(),
        detail: detail.into(),
        resources: Vec::new(),
    }
}

/// The messages that come into a queue, until there are `count`.
async fn taken(client: &Client, queue: &str, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    let waited = tokio::time::timeout(PATIENCE, async {
        while found.len() < count {
            found.extend(client.take(queue).await.unwrap().into_iter().map(|message| message.body));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{queue} has fewer than {count} messages"));
    found
}

/// A queue that receives what is published in a topic.
async fn subscribed(world: &Embedded, topic: &str) -> String {
    let client = world.client();
    client.json("sqs", "AmazonSQS.CreateQueue", json!({"QueueName": "subscriber"})).await.unwrap();
    let arn = format!("arn:aws:sqs:{}:{ACCOUNT}:subscriber", world.region());
    let asked = [("TopicArn", topic), ("Protocol", "sqs"), ("Endpoint", &arn)];
    let answer = client.query("sns", Client::SNS, "Subscribe", &asked).await.unwrap();
    assert!(between(&answer, "<SubscriptionArn>").starts_with(topic), "{answer}");
    client.queue_url("subscriber")
}

/// The one event in the dead letters, with why it is there.
async fn dead_letter(world: &Embedded, stack: &Beside) -> (Value, String) {
    let queue = &stack.deployed.references["DeadLetters"];
    let mut found = Vec::new();
    let waited = tokio::time::timeout(PATIENCE, async {
        while found.is_empty() {
            found = world.client().take(queue).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited.await.expect("nothing comes into the dead letters");
    let [letter] = found.as_slice() else { panic!("{found:?}") };
    (serde_json::from_str(&letter.body).unwrap(), letter.attributes["ERROR_MESSAGE"].clone())
}

/// The detail-types of a rule's pattern.
fn kinds(template: &Value, rule: &Value) -> Vec<String> {
    let kinds = &rule["Properties"]["EventPattern"]["detail-type"];
    if let Some(parameter) = kinds["Ref"].as_str() {
        let default = template["Parameters"][parameter]["Default"].as_str().unwrap();
        return default.split(',').map(|kind| kind.trim().to_owned()).collect();
    }
    kinds.as_array().unwrap().iter().map(|kind| kind.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_template_is_known_here_and_named_in_the_documentation() {
    let page = std::fs::read_to_string(tools::root().join("docs/integrations.md")).unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(tools::root().join("infra/integrations")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            page.contains(&format!("infra/integrations/{name})")),
            "docs/integrations.md does not link {name}"
        );
        found.extend(name.strip_suffix(".yaml").map(str::to_owned));
    }
    found.sort();
    assert_eq!(found, TEMPLATES.map(|(name, _)| name));
    for (name, _) in TEMPLATES {
        let template = translate(&path(name)).await.unwrap();
        for (parameter, declared) in template["Parameters"].as_object().unwrap() {
            assert!(declared["Description"].is_string(), "{name}: {parameter} has no description");
            assert!(
                page.contains(parameter.as_str()),
                "docs/integrations.md does not name {parameter} of {name}"
            );
        }
    }
}

/// A rule that names an event which Slipway does not publish would never match. A variable whose path an event lacks leaves no JSON.
#[tokio::test]
async fn every_rule_is_about_events_that_there_are_and_reads_what_they_have() {
    let (mut rules, mut paths) = (0, 0);
    let schemas: BTreeMap<_, _> =
        schemas().into_iter().map(|(kind, schema)| (kind, serde_json::to_value(schema).unwrap())).collect();
    for (name, _) in TEMPLATES {
        let template = translate(&path(name)).await.unwrap();
        let resources = template["Resources"].as_object().unwrap();
        for (id, rule) in resources.iter().filter(|(_, resource)| resource["Type"] == "AWS::Events::Rule") {
            rules += 1;
            assert_eq!(rule["Properties"]["EventPattern"]["source"], json!(["slipway"]), "{name}: {id}");
            let target = &rule["Properties"]["Targets"][0];
            assert!(target["DeadLetterConfig"]["Arn"].is_object(), "{name}: {id} has no dead letters");
            for kind in kinds(&template, rule) {
                let schema = schemas.get(kind.as_str());
                let schema = schema.unwrap_or_else(|| panic!("{name}: {id}: there is no event {kind}"));
                for path in target["InputTransformer"]["InputPathsMap"].as_object().into_iter().flatten() {
                    let path = path.1.as_str().unwrap();
                    let Some(property) = path.strip_prefix("$.detail.") else { continue };
                    paths += 1;
                    let has = schema["required"].as_array().unwrap().contains(&json!(property));
                    assert!(has, "{name}: {id}: {path} is not always in {kind}");
                }
            }
        }
    }
    assert!(rules >= 6 && paths > 20, "{rules} rules, {paths} paths: is the search broken?");
}
