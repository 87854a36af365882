//! Exports of other stacks that a spec imports: in the simulator, one stack exports all of them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use slipway_core::cluster::Cluster;

use crate::world::{StackRequest, TemplateSource, World};

/// The stack that exports them.
const STACK: &str = "somebody-elses";

/// The names of the exports that `cluster` imports.
fn names(cluster: &Cluster) -> BTreeSet<String> {
    fn collect(value: &Value, names: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                // The serialised form of `Existing::Export`.
                if let (1, Some(Value::String(name))) = (map.len(), map.get("export")) {
                    names.insert(name.clone());
                }
                map.values().for_each(|value| collect(value, names));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    collect(&serde_json::to_value(cluster).unwrap_or_default(), &mut found);
    found
}

/// Creates the stack that exports everything that `cluster` imports. The type of the resources behind the ids is unknown.
pub(super) fn exported(world: &mut World, cluster: &Cluster) {
    let names = names(cluster);
    if names.is_empty() {
        return;
    }
    let outputs = names.iter().enumerate().map(|(at, name)| {
        let value = format!("id-{at:017x}");
        (format!("Output{at}"), json!({"Value": value, "Export": {"Name": name}}))
    });
    let template = json!({
        "Resources": {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "172.16.0.0/16"}}},
        "Outputs": outputs.collect::<Map<String, Value>>(),
    });
    let request = StackRequest {
        stack_name: STACK.to_owned(),
        template: Some(TemplateSource { body: template.to_string(), from_url: true }),
        ..StackRequest::default()
    };
    let made = world.create_stack(&request);
    debug_assert!(made.is_ok(), "{made:?}");
    // CloudFormation needs some seconds for it; the spec is uploaded later.
    let there = world.now() + jiff::SignedDuration::from_mins(10);
    world.advance(there);
    drop(world.drain());
}
