//! The hosted zone of etcd's names cannot change. A member learns it when its machine starts and may write records in no other zone.
//! After a change, the running members would lose the permission for the zone that they know, and the new one would have no records.

use serde_json::Value;
use slipway_core::members::NameZone;
use slipway_core::release::{OWN_RECORD_STATEMENT, Rendering, StackKind};
use slipway_spec::Objection;

/// The zone in which the members of `rendering` write their records. `None`: it has no members, or a release of an older Slipway did not
/// record it. Those wrote the zone only into the policy statement, which members with the user's instance profile do not have.
pub(super) fn members_zone(rendering: &Rendering) -> Option<NameZone> {
    let members = rendering.roles.values().filter_map(|node| node.member.as_ref());
    members.filter_map(|member| member.zone.clone()).next().or_else(|| permitted(rendering))
}

/// The zone in which the policy allows the members of `rendering` to write their records.
fn permitted(rendering: &Rendering) -> Option<NameZone> {
    let stack = rendering.stacks.iter().find(|stack| stack.kind == StackKind::Etcd)?;
    let template: Value = serde_json::from_str(&stack.body).ok()?;
    let zone = resource(&template)?;
    Some(NameZone::from_id(zone.as_str().and_then(|arn| arn.rsplit_once('/')).map(|(_, id)| id)))
}

/// The resource of the first statement of that name.
fn resource(template: &Value) -> Option<&Value> {
    match template {
        Value::Object(object) if object.get("Sid").is_some_and(|sid| sid == OWN_RECORD_STATEMENT) => {
            object.get("Resource")
        }
        Value::Object(object) => object.values().find_map(resource),
        Value::Array(items) => items.iter().find_map(resource),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Objects to another zone than the one that the running members use.
pub(super) fn objection(running: &Rendering, asked: &NameZone) -> Option<Objection> {
    let stands = members_zone(running)?;
    let words = |zone: &NameZone| match zone {
        NameZone::Made => "the zone that Slipway made".to_owned(),
        NameZone::Given(id) => format!("the hosted zone {id}"),
    };
    (stands != *asked).then(|| {
        let help = match &stands {
            NameZone::Given(id) => {
                format!("write `hostedZone: {{id: {id}}}`: it cannot be changed once the cluster runs")
            }
            NameZone::Made => "remove `hostedZone`: it cannot be changed once the cluster runs".to_owned(),
        };
        Objection::error(
            "etcd-zone",
            vec!["etcd.hostedZone.id".to_owned(), "etcd.hostedZone".to_owned(), "etcd".to_owned()],
            format!(
                "the names of the etcd members that run are in {}, and {} is asked for: nobody would find them there",
                words(&stands),
                words(asked)
            ),
            help,
        )
    })
}
