//! Plans between whole renderings.

use std::collections::BTreeMap;

use slipway_render::fixture::{cluster, credentials, lock, rendered, site};
use slipway_render::{Inputs, render};
use slipway_spec::patch;

use crate::{Baseline, NodeAction, plan};

#[test]
fn a_patched_rendering_is_planned_with_the_reason() {
    let before = rendered(&cluster());
    let text = "target: {stack: pool-general}\nmerge: {Resources: {LaunchTemplate: {Properties: {LaunchTemplateData: {Monitoring: {Enabled: true}}}}}}\n";
    let patches = patch::parse(&BTreeMap::from([("a.yaml".to_owned(), text.as_bytes().to_vec())])).unwrap();
    let (cluster, lock, site) = (cluster(), lock(), site());
    let credentials = credentials(&cluster);
    let inputs = Inputs { patches: &patches, ..Inputs::new(&cluster, &lock, &credentials, &site) };
    let after = render(&inputs).unwrap();
    let deployed: BTreeMap<String, String> =
        before.stacks.iter().map(|stack| (stack.name.clone(), before.id())).collect();
    let releases = BTreeMap::from([(before.id(), before.clone())]);
    let baseline = Baseline::assemble("prod", &deployed, &BTreeMap::new(), &releases).unwrap();
    let plan = plan(&baseline, &after, &cluster.rollout);
    let node = plan.nodes.iter().find(|node| node.role.to_string() == "pool-general").unwrap();
    assert_eq!(node.action, NodeAction::Replace);
    assert_eq!(node.reasons, [r#"machine patched: (absent) → {"Monitoring":{"Enabled":true}}"#]);
}

#[test]
fn p2_a_cluster_that_runs_without_it_gets_it_is_told_so_and_no_node_changes() {
    let now = rendered(&cluster());
    let mut before = now.clone();
    before.addons = slipway_core::release::AddonSet::new(now.addons.addons[1..].to_vec());
    let plan = plan(&Baseline::single_release(Some(before)), &now, &cluster().rollout);
    assert_eq!(plan.summary(), "no stack; nodes: none touched; add-ons: 1 new");
    assert!(plan.to_text().contains("  + cluster-access: installed\n"), "{}", plan.to_text());
    assert_eq!(plan.addons[0].fate(), "new");
    assert!(plan.to_html().contains("The add-on cluster-access is installed."));
}
