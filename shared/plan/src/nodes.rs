//! What happens to the nodes, and why: nodes are outdated, stale, or neither.

use serde_json::{Value, json};
use slipway_core::cluster::GroupSize;
use slipway_core::diff::{Difference, diff};
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;

use super::groups::{self, Placed};
use super::membership::other_volume;
use super::reasons;
use super::{Baseline, NodeAction, NodePlan, Resized};

/// A plan for each role: the roles of the new rendering in order, then those that are removed.
pub(super) fn compare(baseline: &Baseline, new: &Rendering) -> Vec<NodePlan> {
    let old = baseline.rendering.as_ref();
    let mut plans: Vec<NodePlan> = new
        .roles
        .iter()
        .map(|(role, node)| {
            let before = old.and_then(|old| Some(Placed { node: old.roles.get(role)?, rendering: old }));
            let planned = node_plan(role, before, Placed { node, rendering: new });
            let earlier =
                baseline.earlier.get(role).into_iter().flat_map(|releases| releases.values().flatten());
            earlier.fold(planned, |planned, before| besides(planned, before, node))
        })
        .collect();
    let gone = old.into_iter().flat_map(|old| &old.roles).filter(|(role, _)| !new.roles.contains_key(role));
    plans.extend(gone.map(|(role, node)| {
        let (action, why) = match role.member() {
            Some(_) if baseline.joined.contains_key(role) => (
                NodeAction::Remove,
                "it may have joined etcd in a rollout that could not create its group: it leaves the membership",
            ),
            Some(_) => (
                NodeAction::Remove,
                "the spec no longer has it: it leaves the membership first, then its machine goes",
            ),
            None if baseline.unfinished.contains_key(&node.stack) => (
                NodeAction::Remove,
                "an earlier rollout did not complete its creation, and the spec no longer has it: nodes that came up are drained, then what \
                 there is of its stack is deleted",
            ),
            None if baseline.orphaned.contains(&node.stack) => (
                NodeAction::Remove,
                "the spec has had it no longer since an earlier rollout, and its stack still stands: all its nodes are drained, then the \
                 stack is deleted",
            ),
            None => (
                NodeAction::Remove,
                "the spec no longer has it: all its nodes are drained, then its stack is deleted",
            ),
        };
        NodePlan {
            role: role.clone(),
            stack: node.stack.clone(),
            nodes: node.nodes,
            action,
            reasons: vec![why.to_owned()],
            values: Vec::new(),
            undrained: Vec::new(),
            fewer: false,
            resized: None,
            weighted: node.weighted,
        }
    }));
    plans
}

fn node_plan(role: &Role, placed: Option<Placed<'_>>, now: Placed<'_>) -> NodePlan {
    let (before, after) = (placed.map(|placed| placed.node), now.node);
    let ((action, mut reasons), undrained) = match placed {
        None => ((NodeAction::Create, vec![created(after).to_owned()]), Vec::new()),
        Some(placed) => (judge(placed.node, after), groups::undrained(role, placed, now)),
    };
    let nodes = before.map_or(after.nodes, |before| concerned(action, before.nodes, after.nodes));
    let resized = before
        .filter(|before| before.nodes != after.nodes)
        .map(|before| Resized { from: before.nodes, to: after.nodes });
    let fewer =
        *role == Role::Controller && resized.is_some_and(|size| groups::one_fewer(size.from, size.to));
    if let Some(size) = resized {
        let comes = size.words(after.weighted);
        let nobody = comes.is_empty() && action == NodeAction::Untouched && undrained.is_empty() && !fewer;
        let nobody = if nobody { "; no node changes" } else { "" };
        reasons.push(format!("the group's size: {} → {}{comes}{nobody}", limits(size.from), limits(size.to)));
    }
    if fewer {
        reasons.push("one controller is drained and leaves when the stack is updated".to_owned());
    }
    NodePlan {
        role: role.clone(),
        stack: after.stack.clone(),
        nodes,
        action,
        reasons,
        values: values(before, after),
        undrained,
        fewer,
        resized,
        weighted: after.weighted,
    }
}

/// `3`, or `2–10`.
fn limits(size: GroupSize) -> String {
    if size.min == size.max { size.min.to_string() } else { format!("{}–{}", size.min, size.max) }
}

/// Extends the plan to nodes of the role that may still have the release of `before`.
fn besides(planned: NodePlan, before: &NodeRole, after: &NodeRole) -> NodePlan {
    let (action, reasons) = judge(before, after);
    let more = match (planned.action, action) {
        (NodeAction::Untouched | NodeAction::Refresh, NodeAction::Replace) => true,
        (NodeAction::Untouched, NodeAction::Refresh) => true,
        (
            NodeAction::Create
            | NodeAction::Replace
            | NodeAction::Untouched
            | NodeAction::Refresh
            | NodeAction::Remove
            | NodeAction::Orphaned,
            _,
        ) => false,
    };
    if !more {
        return planned;
    }
    let unfinished = "a rollout ended before all nodes were as it meant them to be".to_owned();
    let reasons = std::iter::once(unfinished).chain(reasons).collect();
    let nodes = concerned(action, before.nodes, after.nodes);
    NodePlan { action, reasons, values: values(Some(before), after), nodes, ..planned }
}

fn created(node: &NodeRole) -> &'static str {
    if node.member.as_ref().is_some_and(|member| member.pin.joins) {
        "it joins the etcd cluster as a learner, and votes once it has caught up"
    } else {
        "the spec has it, and nothing is deployed"
    }
}

/// The number of nodes that `action` affects. If the group is resized as well, only existing nodes that stay count.
fn concerned(action: NodeAction, before: GroupSize, after: GroupSize) -> GroupSize {
    match action {
        NodeAction::Replace | NodeAction::Refresh => {
            GroupSize { min: before.min.min(after.min), max: before.max.min(after.max) }
        }
        NodeAction::Create | NodeAction::Untouched | NodeAction::Remove | NodeAction::Orphaned => after,
    }
}

fn judge(before: &NodeRole, after: &NodeRole) -> (NodeAction, Vec<String>) {
    let mut reasons: Vec<String> = another_volume(before, after).into_iter().collect();
    reasons.extend(
        diff(&before.machine, &after.machine)
            .iter()
            .filter(|found| !allows_more_types(found))
            .flat_map(reasons::of_machine),
    );
    if before.config_digest != after.config_digest {
        let same_machines = before.machine.get("architecture") == after.machine.get("architecture");
        reasons.extend(reasons::of_config(&before.config, &after.config, same_machines));
    }
    if !reasons.is_empty() {
        return (NodeAction::Replace, reasons);
    }
    if before.credentials_digest != after.credentials_digest {
        reasons.push("its credentials changed, and nothing else".to_owned());
        return (NodeAction::Refresh, reasons);
    }
    (NodeAction::Untouched, reasons)
}

/// What its machines are made of and what runs on them: all of it, or what differs.
fn values(before: Option<&NodeRole>, after: &NodeRole) -> Vec<Difference> {
    let whole = |node: &NodeRole| {
        // One that cannot be read is shown as the text that it is.
        let config = serde_json::from_str(&node.config).unwrap_or_else(|_| Value::from(node.config.as_str()));
        json!({ "machine": node.machine, "config": config })
    };
    let empty = json!({ "machine": {}, "config": {} });
    match before {
        Some(before) if before.machine == after.machine && before.config_digest == after.config_digest => {
            Vec::new()
        }
        Some(before) => diff(&whole(before), &whole(after)),
        None => diff(&empty, &whole(after)),
    }
}

/// Why an etcd member cannot find its data again.
fn another_volume(before: &NodeRole, after: &NodeRole) -> Option<String> {
    let (before, after) = (&before.member.as_ref()?.pin.volume, &after.member.as_ref()?.pin.volume);
    (before != after).then(|| other_volume(before, after))
}

/// Whether a mixed group only gained instance types, so that existing nodes are still of a type that it names.
fn allows_more_types(found: &Difference) -> bool {
    let types = |value: &Option<Value>| value.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let after = types(&found.after);
    found.path == "instanceTypes" && types(&found.before).iter().all(|one| after.contains(one))
}
