//! The effect of a plan in a few words.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::release::StackKind;
use slipway_core::role::Role;
use slipway_plan::{GroupEffect, NodeAction, NodePlan, Plan, Replacement, ResourceAction, StackAction};

/// The effect of a plan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// `network, etcd (replaces EC2::Volume), pools`.
    pub(crate) stacks: String,
    /// `etcd replaced, controller refreshed`.
    pub(crate) nodes: String,
}

impl Effect {
    pub(crate) fn from_plan(plan: &Plan) -> Self {
        let begun = if plan.not_executable().is_some() { "not begun: " } else { "" };
        Self { stacks: format!("{begun}{}", stacks(plan)), nodes: nodes(plan) }
    }
}

fn stacks(plan: &Plan) -> String {
    let mut words: Vec<(bool, String, String)> = Vec::new();
    for stack in &plan.stacks {
        let does = match stack.action {
            StackAction::Unchanged | StackAction::Orphaned => continue,
            StackAction::Create => " is new".to_owned(),
            StackAction::Delete => " goes".to_owned(),
            StackAction::Update => {
                let replaced: BTreeSet<&str> = stack
                    .resources
                    .iter()
                    .filter(|one| {
                        one.action == ResourceAction::Modify && one.replacement == Replacement::Always
                    })
                    .map(|one| one.resource_type.trim_start_matches("AWS::"))
                    .collect();
                let replaced: Vec<&str> = replaced.into_iter().collect();
                if replaced.is_empty() {
                    String::new()
                } else {
                    format!(" (replaces {})", replaced.join(", "))
                }
            }
        };
        let name = stack.name.trim_start_matches(&plan.cluster).trim_start_matches('-').to_owned();
        words.push((stack.kind == StackKind::Pool, name, does));
    }
    let pools = plan.stacks.iter().filter(|stack| stack.kind == StackKind::Pool).count();
    group(words, pools, "pools")
}

/// Items of a kind with the same effect are listed together.
fn group(words: Vec<(bool, String, String)>, all: usize, name: &str) -> String {
    let grouped: Vec<&(bool, String, String)> = words.iter().filter(|(member, ..)| *member).collect();
    let same = grouped.len() == all && all > 1 && grouped.iter().all(|one| one.2 == grouped[0].2);
    let mut said: Vec<String> = Vec::new();
    for (member, word, does) in &words {
        let line = if *member && same { format!("{name}{does}") } else { format!("{word}{does}") };
        if said.last() != Some(&line) {
            said.push(line);
        }
    }
    said.join(", ")
}

/// What Auto Scaling may do to nodes that the rollout does not touch.
fn by_auto_scaling(node: &NodePlan) -> Option<&'static str> {
    let has = |effect| node.undrained.iter().any(|one| one.cause.effect() == effect);
    match (has(GroupEffect::Replaces), node.undrained.is_empty()) {
        (true, _) if !has(GroupEffect::Terminates) => Some(" may have nodes replaced by Auto Scaling"),
        (_, false) => Some(" may lose nodes undrained"),
        (_, true) => None,
    }
}

fn nodes(plan: &Plan) -> String {
    let mut by_kind: BTreeMap<u8, Vec<(bool, String, String)>> = BTreeMap::new();
    for node in &plan.nodes {
        let does = match node.action {
            // Auto Scaling does it, and no rollout waits for it.
            NodeAction::Untouched => match by_auto_scaling(node) {
                Some(words) => words,
                None => continue,
            },
            NodeAction::Orphaned => continue,
            NodeAction::Create => " new",
            NodeAction::Replace => " replaced",
            NodeAction::Refresh => " refreshed",
            NodeAction::Remove => " gone",
        };
        let kind = match node.role {
            Role::Etcd(_) => 0,
            Role::Controller => 1,
            Role::Pool(_) => 2,
            Role::Admin => 3,
        };
        by_kind.entry(kind).or_default().push((true, node.role.to_string(), does.to_owned()));
    }
    let total = |kind: u8| {
        let of = |role: &Role| matches!((kind, role), (0, Role::Etcd(_)) | (2, Role::Pool(_)));
        plan.nodes.iter().filter(|node| of(&node.role)).count()
    };
    let said: Vec<String> = by_kind
        .into_iter()
        .map(|(kind, words)| group(words, total(kind), if kind == 0 { "etcd" } else { "pools" }))
        .collect();
    said.join(", ")
}
