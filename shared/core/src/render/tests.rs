//! What a rendering promises as a whole.
#![allow(clippy::unwrap_used, reason = "tests")]

mod blast_radius;
mod order;
mod references;
mod security;
mod userdata;
mod variants;

use super::fixture::{cluster, rendered};
use super::*;

/// The resources of one type.
fn of_type<'a>(template: &'a Value, kind: &str) -> Vec<&'a Value> {
    template["Resources"].as_object().unwrap().values().filter(|resource| resource["Type"] == kind).collect()
}

#[test]
fn p1_same_arguments_render_the_same_bytes() {
    assert_eq!(rendered(&cluster()).to_json(), rendered(&cluster()).to_json());
}

#[test]
fn goldens_of_the_production_example() {
    for stack in &rendered(&cluster()).stacks {
        let template: Value = serde_json::from_str(&stack.body).unwrap();
        insta::assert_json_snapshot!(stack.name.clone(), template);
    }
}
