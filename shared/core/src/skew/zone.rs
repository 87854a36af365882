//! The hosted zone of etcd's names stays the one that it was: a member learns it when its machine starts, and may set records in no other.
//! Were it changed, the members that run would lose the permission for the zone that they know, and the new one would have no records.

use serde_json::Value;

use super::Objection;
use crate::render::{Rendering, StackKind};

/// The statement that lets a member set its record.
pub(crate) const STATEMENT: &str = "SetOwnRecord";

/// The zone that the members of `rendering` set their records in; the inner `None`: the one that the network stack makes. Nothing, if it
/// has no members.
pub(super) fn of(rendering: &Rendering) -> Option<Option<String>> {
    let stack = rendering.stacks.iter().find(|stack| stack.kind == StackKind::Etcd)?;
    let template: Value = serde_json::from_str(&stack.body).ok()?;
    let zone = resource(&template)?;
    Some(zone.as_str().and_then(|arn| arn.rsplit_once('/')).map(|(_, id)| id.to_owned()))
}

/// What the first statement of that name is about.
fn resource(template: &Value) -> Option<&Value> {
    match template {
        Value::Object(object) if object.get("Sid").is_some_and(|sid| sid == STATEMENT) => {
            object.get("Resource")
        }
        Value::Object(object) => object.values().find_map(resource),
        Value::Array(items) => items.iter().find_map(resource),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Objects to another zone than the one that the running members use.
pub(super) fn objection(running: &Rendering, asked: Option<&str>) -> Option<Objection> {
    let stands = of(running)?;
    let words = |zone: Option<&str>| {
        zone.map_or_else(|| "the zone that Slipway made".to_owned(), |id| format!("the hosted zone {id}"))
    };
    (stands.as_deref() != asked).then(|| {
        let help = match &stands {
            Some(id) => format!("write `hostedZone: {{id: {id}}}`: it cannot be changed once the cluster runs"),
            None => "remove `hostedZone`: it cannot be changed once the cluster runs".to_owned(),
        };
        Objection::error(
            "etcd-zone",
            vec!["etcd.hostedZone.id".to_owned(), "etcd.hostedZone".to_owned(), "etcd".to_owned()],
            format!(
                "the names of the etcd members that run are in {}, and {} is asked for: nobody would find them there",
                words(stands.as_deref()),
                words(asked)
            ),
            help,
        )
    })
}
