//! `infra/integrations/schemas.yaml`, which is made of the types of the events: `UPDATE_SCHEMAS=1 cargo test --workspace --test integrations`.
//! moto has no schema registry, so that an independent validator takes the schemas in its place.

use std::fmt::Write as _;
use std::process::Command;

use super::*;

/// CloudFormation takes no larger template without a bucket ("CloudFormation quotas").
const MOST_BYTES: usize = 51_200;

/// A schema as draft 4 has it, which is the only draft that the registry knows (AWS::EventSchemas::Schema, `Type`).
fn draft_4(schema: &Value) -> Value {
    match schema {
        Value::Object(entries) => {
            let mut made = serde_json::Map::new();
            for (key, value) in entries {
                match key.as_str() {
                    // `$schema` is that of the whole; the formats are names of Rust's types.
                    "$schema" | "format" => {}
                    "$defs" => drop(made.insert("definitions".to_owned(), draft_4(value))),
                    "const" => drop(made.insert("enum".to_owned(), json!([value]))),
                    _ => drop(made.insert(key.clone(), draft_4(value))),
                }
            }
            made.into()
        }
        Value::Array(values) => values.iter().map(draft_4).collect(),
        Value::String(text) => text.replace("#/$defs/", "#/definitions/").into(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other.clone(),
    }
}

/// The schema of a whole event: the envelope of EventBridge (EventBridge user guide, "Event structure") around the detail.
fn whole(kind: &str, detail: &Value) -> Value {
    let mut detail = draft_4(detail);
    let definitions = detail.as_object_mut().unwrap().remove("definitions");
    let text = json!({"type": "string"});
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": kind,
        "type": "object",
        "required": ["version", "id", "source", "detail-type", "account", "time", "region", "resources", "detail"],
        "properties": {
            "version": text, "id": text, "account": text, "region": text,
            "time": {"type": "string", "format": "date-time"},
            "resources": {"type": "array", "items": text},
            "source": {"enum": ["slipway"]}, "detail-type": {"enum": [kind]}, "detail": detail,
        },
    });
    if let Some(definitions) = definitions {
        schema["definitions"] = definitions;
    }
    schema
}

fn all() -> Vec<(&'static str, Value)> {
    schemas()
        .into_iter()
        .map(|(kind, detail)| (kind, whole(kind, &serde_json::to_value(detail).unwrap())))
        .collect()
}

fn template() -> String {
    let mut text = "\
AWSTemplateFormatVersion: \"2010-09-09\"
Description: The schemas of Slipway's events in a registry of EventBridge (docs/integrations.md)

# Made of shared/core/src/event.rs: UPDATE_SCHEMAS=1 cargo test --workspace --test integrations

Parameters:
  RegistryName:
    Description: Name of the registry.
    Type: String
    Default: slipway

Resources:
  Registry:
    Type: AWS::EventSchemas::Registry
    Properties:
      RegistryName: !Ref RegistryName
      Description: The events of Slipway
"
    .to_owned();
    for (kind, schema) in all() {
        let id = kind.replace(' ', "");
        let content = schema.to_string().replace('\'', "''");
        write!(
            text,
            "
  {id}:
    Type: AWS::EventSchemas::Schema
    Properties:
      RegistryName: !GetAtt Registry.RegistryName
      SchemaName: slipway@{id}
      Type: JSONSchemaDraft4
      Content: '{content}'
"
        )
        .unwrap();
    }
    text
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test may ask the environment whether to rewrite a file")]
fn the_registry_has_the_schemas_of_the_events() {
    let wanted = template();
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(path("schemas"), &wanted).unwrap();
    }
    let stored = std::fs::read_to_string(path("schemas")).unwrap_or_default();
    assert!(
        stored == wanted,
        "infra/integrations/schemas.yaml is stale: UPDATE_SCHEMAS=1 cargo test --workspace --test integrations"
    );
    assert!(stored.len() <= MOST_BYTES, "{} bytes", stored.len());
}

/// Validates each event against each schema, and prints which fit.
const VALIDATE: &str = "
import json, sys
from jsonschema import Draft4Validator
schemas, events = json.load(sys.stdin)
for kind, schema in schemas.items():
    Draft4Validator.check_schema(schema)
    fits = [i for i, event in enumerate(events) if Draft4Validator(schema).is_valid(event)]
    print(json.dumps([kind, fits]))
";

#[tokio::test]
async fn an_event_fits_the_schema_of_its_kind_in_the_registry_and_no_other() {
    use std::io::Write as _;
    let resources = translate(&path("schemas")).await.unwrap()["Resources"].clone();
    let stored = resources.as_object().unwrap().values().filter_map(|resource| {
        let content = resource["Properties"]["Content"].as_str()?;
        let schema: Value = serde_json::from_str(content).unwrap();
        Some((schema["title"].as_str().unwrap().to_owned(), schema))
    });
    let stored: BTreeMap<String, Value> = stored.collect();
    let kinds: Vec<&str> = schemas().into_keys().collect();
    assert_eq!(stored.keys().collect::<Vec<_>>(), kinds);
    let envelope = |event: Event| {
        json!({"version": "0", "id": "1", "source": event.source, "detail-type": event.detail_type, "account": ACCOUNT,
               "time": "2026-11-26T17:00:00Z", "region": "eu-west-1", "resources": [], "detail": event.detail})
    };
    let mut events: Vec<Value> = kinds.iter().map(|kind| envelope(event(kind))).collect();
    let upgrade = |pins: Value| {
        let detail = json!({"cluster": "prod", "pins": pins});
        envelope(Event { detail, ..event("Upgrade Requested") })
    };
    // One that fits as well, and two that fit nothing: a detail without what is required, and a pin that there is not.
    events.push(upgrade(json!(["images"])));
    events.push(envelope(Event { detail: json!({}), ..event("Rollout Failed") }));
    events.push(upgrade(json!(["imagez"])));

    let mut python = Command::new(tools::python().unwrap());
    let python = python
        .args(["-c", VALIDATE])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut python = python.spawn().unwrap();
    python.stdin.take().unwrap().write_all(json!([stored, events]).to_string().as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let fits: BTreeMap<String, Vec<usize>> =
        lines.lines().map(|line| serde_json::from_str::<(String, Vec<usize>)>(line).unwrap()).collect();
    for (at, kind) in kinds.iter().enumerate() {
        let wanted = if *kind == "Upgrade Requested" { vec![at, kinds.len()] } else { vec![at] };
        assert_eq!(fits[*kind], wanted, "{kind}");
    }
}
