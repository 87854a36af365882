//! What a rendering promises as a whole.
#![allow(clippy::unwrap_used, reason = "tests")]

mod blast_radius;
mod endpoints;
mod etcd;
mod identity;
mod order;
mod patches;
mod pools;
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

/// A spec of `examples/`, with a lock that has all it needs and credentials of every role.
fn example(text: &str) -> Rendering {
    let cluster = slipway_spec::parse(text.as_bytes(), None).unwrap().cluster;
    let lock = pinned(&cluster);
    let site = Site { issuer_bucket: Some("issuer".to_owned()), ..fixture::site() };
    render(&Inputs::new(&cluster, &lock, &fixture::credentials(&cluster), &site)).unwrap()
}

fn pinned(cluster: &Cluster) -> Lock {
    fixture::pinned(cluster, fixture::lock())
}

const PRODUCTION: &str = include_str!("../../../examples/production.yaml");

/// The text of every example that is one file.
fn examples() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut specs: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "yaml")).collect();
    specs.sort();
    assert!(specs.len() > 25, "{specs:?}");
    specs.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn goldens_of_the_production_example() {
    let rendering = example(PRODUCTION);
    for stack in &rendering.stacks {
        let template: Value = serde_json::from_str(&stack.body).unwrap();
        insta::assert_json_snapshot!(stack.name.clone(), template);
    }
    for (role, node) in &rendering.roles {
        let config: Value = serde_json::from_str(&node.config).unwrap();
        let node = serde_json::json!({ "nodes": node.nodes, "machine": node.machine, "config": config });
        insta::assert_json_snapshot!(format!("node-{role}"), node);
    }
}

#[test]
fn every_example_renders_and_nothing_in_it_dangles() {
    for text in examples() {
        let mut dangling = references::dangling(&example(&text));
        // What stacks of somebody else's export.
        dangling.retain(|found| !found.contains(": import of landing-zone-"));
        assert_eq!(dangling, Vec::<String>::new());
    }
}

#[test]
fn p1_a_rendering_survives_its_own_json() {
    let rendering = example(PRODUCTION);
    let read: Rendering = serde_json::from_str(&rendering.to_json()).unwrap();
    assert_eq!((read.id(), read.to_json()), (rendering.id(), rendering.to_json()));
}

#[test]
fn p6_a_worker_whose_drain_nobody_finished_is_kept() {
    for stack in &rendered(&cluster()).stacks {
        let template: Value = serde_json::from_str(&stack.body).unwrap();
        for group in of_type(&template, "AWS::AutoScaling::AutoScalingGroup") {
            let properties = &group["Properties"];
            let hooks = properties["LifecycleHookSpecificationList"].as_array().unwrap();
            let end = hooks
                .iter()
                .find(|hook| hook["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING")
                .unwrap();
            let retained = properties["InstanceLifecyclePolicy"]["RetentionTriggers"]["TerminateHookAbandon"]
                == "retain";
            // The policy is deaf to a hook that ends with CONTINUE, and an etcd member that is kept keeps its volume.
            let workers = stack.kind == StackKind::Pool;
            assert_eq!(retained, workers, "{}", stack.name);
            assert_eq!(end["DefaultResult"] == "ABANDON", workers, "{}", stack.name);
        }
    }
}

#[test]
fn every_configuration_is_what_the_agent_reads_to_the_last_byte() {
    for text in examples() {
        for (role, node) in example(&text).roles {
            if node.config.is_empty() {
                continue;
            }
            let read = slipway_core::node::NodeConfig::read(&node.config).unwrap();
            let again = slipway_core::canonical::canonical_json(&serde_json::to_value(&read).unwrap());
            assert_eq!(again, node.config, "{role}");
            assert_eq!(read.base().role, role.to_string());
        }
    }
}
