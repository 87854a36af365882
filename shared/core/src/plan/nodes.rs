//! What happens to the nodes, and why (design §6: outdated, stale, or neither).

use serde_json::Value;

use super::diff::Difference;
use super::membership::other_volume;
use super::{NodeAction, NodePlan, diff, short};
use crate::pki::Role;
use crate::render::{NodeRole, Rendering};

/// One line for each role of either side: first the new ones in order, then those that go.
pub(super) fn compare(old: Option<&Rendering>, new: &Rendering) -> Vec<NodePlan> {
    let mut plans: Vec<NodePlan> = new
        .roles
        .iter()
        .map(|(role, node)| one(role, old.and_then(|old| old.roles.get(role)), node))
        .collect();
    let gone = old.into_iter().flat_map(|old| &old.roles).filter(|(role, _)| !new.roles.contains_key(role));
    plans.extend(gone.map(|(role, node)| NodePlan {
        role: role.clone(),
        stack: node.stack.clone(),
        nodes: node.nodes,
        action: NodeAction::Remove,
        reasons: vec![match role.member() {
            Some(_) => {
                "the spec no longer has it: it leaves the membership first, then its machine goes".to_owned()
            }
            None => "the spec no longer has it".to_owned(),
        }],
    }));
    plans
}

fn one(role: &Role, before: Option<&NodeRole>, after: &NodeRole) -> NodePlan {
    let (action, reasons) = match before {
        None => (NodeAction::Create, vec![created(after).to_owned()]),
        Some(before) => judge(before, after),
    };
    NodePlan { role: role.clone(), stack: after.stack.clone(), nodes: after.nodes, action, reasons }
}

fn created(node: &NodeRole) -> &'static str {
    if node.member.as_ref().is_some_and(|member| member.pin.joins) {
        "it joins the etcd cluster as a learner, and votes once it has caught up"
    } else {
        "the spec has it, and nothing is deployed"
    }
}

fn judge(before: &NodeRole, after: &NodeRole) -> (NodeAction, Vec<String>) {
    let mut reasons: Vec<String> = another_volume(before, after).into_iter().collect();
    reasons.extend(
        diff(&before.machine, &after.machine)
            .iter()
            .filter(|found| !allows_more_types(found))
            .map(|found| line("machine", &found.path, found.before.as_ref(), found.after.as_ref())),
    );
    if before.config_digest != after.config_digest {
        reasons.extend(config_reasons(&before.config, &after.config));
    }
    if !reasons.is_empty() {
        return (NodeAction::Replace, reasons);
    }
    if before.credentials_digest != after.credentials_digest {
        return (NodeAction::Refresh, vec!["its credentials changed, and nothing else".to_owned()]);
    }
    if before.nodes != after.nodes {
        let (old, new) = (before.nodes, after.nodes);
        let reason =
            format!("the group's size: {}–{} → {}–{}; no node changes", old.min, old.max, new.min, new.max);
        return (NodeAction::Untouched, vec![reason]);
    }
    (NodeAction::Untouched, Vec::new())
}

/// Why an etcd member does not find its data again.
fn another_volume(before: &NodeRole, after: &NodeRole) -> Option<String> {
    let (before, after) = (&before.member.as_ref()?.pin.volume, &after.member.as_ref()?.pin.volume);
    (before != after).then(|| other_volume(before, after))
}

/// Whether a mixed group only gained instance types: the nodes that it has are still of a type that it names.
fn allows_more_types(found: &Difference) -> bool {
    let types = |value: &Option<Value>| value.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let after = types(&found.after);
    found.path == "instanceTypes" && types(&found.before).iter().all(|one| after.contains(one))
}

fn config_reasons(before: &str, after: &str) -> Vec<String> {
    match (serde_json::from_str(before), serde_json::from_str(after)) {
        (Ok(before), Ok(after)) => diff(&before, &after)
            .iter()
            .map(|found| line("config", &found.path, found.before.as_ref(), found.after.as_ref()))
            .collect(),
        // A config of an older format that is no JSON: the digests differ, and that is all that can be said.
        _ => vec!["config: its bytes differ".to_owned()],
    }
}

fn line(
    part: &str,
    path: &str,
    before: Option<&serde_json::Value>,
    after: Option<&serde_json::Value>,
) -> String {
    format!("{part} {path}: {} → {}", short(before), short(after))
}
