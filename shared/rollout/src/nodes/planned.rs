//! From a plan to the steps of its nodes, in their order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::Wanted;
use super::{Crew, NodeState, NodeStep, Nodes, Work};
use slipway_core::pki::Role;
use slipway_core::plan::{MinorChange, NodeAction, NodePlan, Plan};
use slipway_core::render::{NodeRole, Rendering, StackKind};

/// What `plan` has this version do to the nodes of a role by itself.
fn executes(plan: &Plan, node: &NodePlan, weighted: bool) -> Option<Work> {
    match (node.action, &node.role) {
        (NodeAction::Untouched, Role::Controller) if node.fewer => Some(Work::Fewer),
        (NodeAction::Refresh, Role::Etcd(_) | Role::Controller | Role::Pool(_)) => Some(Work::Refresh),
        (NodeAction::Replace, Role::Etcd(_) | Role::Controller) => Some(Work::Replace),
        (NodeAction::Replace, Role::Pool(name)) => {
            plan.policy.pace(name).can_move(weighted).then_some(Work::Replace)
        }
        (NodeAction::Replace | NodeAction::Refresh, Role::Admin)
        | (NodeAction::Create | NodeAction::Untouched | NodeAction::Remove | NodeAction::Left, _) => None,
    }
}

/// How many nodes `plan` says to replace or refresh that a person has to see to.
pub(in super::super) fn left(wanted: &Wanted) -> u32 {
    let plan = &wanted.plan;
    let concerned = |node: &&NodePlan| {
        matches!(node.action, NodeAction::Replace | NodeAction::Refresh)
            && executes(plan, node, is_weighted(wanted, &node.role)).is_none()
    };
    plan.nodes.iter().filter(concerned).map(|node| node.nodes.min.max(1)).sum()
}

/// Each step after those of the pools that it comes after; otherwise in the order that they have.
fn in_turn(mut steps: Vec<NodeStep>) -> Vec<NodeStep> {
    let mut ordered: Vec<NodeStep> = Vec::new();
    while !steps.is_empty() {
        let free = |step: &NodeStep| !steps.iter().any(|other| step.after.contains(&other.role));
        // Pools never wait for each other in a circle; if they did, the first would go first.
        let at = steps.iter().position(free).unwrap_or_default();
        ordered.push(steps.remove(at));
    }
    ordered
}

fn is_weighted(wanted: &Wanted, role: &Role) -> bool {
    wanted.release.roles.get(role).is_some_and(|node| node.weighted)
}

/// The pools that `role` comes after.
fn after(plan: &Plan, role: &Role) -> Vec<Role> {
    let Role::Pool(name) = role else { return Vec::new() };
    let own = plan.policy.pools.get(name).into_iter().flat_map(|pool| &pool.after);
    own.map(|name| Role::Pool(name.clone())).collect()
}

const fn wave(role: &Role) -> u8 {
    match role {
        Role::Etcd(_) => StackKind::Etcd.wave(),
        Role::Controller => StackKind::ControlPlane.wave(),
        Role::Pool(_) | Role::Admin => StackKind::Pool.wave(),
    }
}

impl NodeStep {
    /// After the stacks of which wave it is done.
    pub(super) fn wave(&self) -> u8 {
        let own = wave(&self.role);
        if self.work == Work::Leave || self.first { own.saturating_sub(1) } else { own }
    }
}

/// A member that leaves etcd. What its group is called is known from its stack, since the release has it no longer.
fn leaves(planned: &NodePlan) -> Option<NodeStep> {
    let index = planned.role.member().filter(|_| planned.action == NodeAction::Remove)?;
    Some(unknown(planned, format!("{}-{index}", planned.stack), Work::Leave))
}

/// A pool that goes with its stack, whose name its group has.
fn goes(plan: &Plan, planned: &NodePlan) -> Option<NodeStep> {
    let Role::Pool(name) = &planned.role else { return None };
    let (pace, force_after_s) = (plan.policy.pace(name), plan.policy.force_after_s(name));
    let step = NodeStep { pace, force_after_s, ..unknown(planned, planned.stack.clone(), Work::Remove) };
    (planned.action == NodeAction::Remove).then_some(step)
}

/// A step that has not begun, as far as it is known without the release, which knows nothing of what goes.
fn unknown(planned: &NodePlan, group: String, work: Work) -> NodeStep {
    NodeStep {
        role: planned.role.clone(),
        stack: planned.stack.clone(),
        group,
        work,
        credentials: String::new(),
        size: 1,
        most: 1,
        pace: slipway_core::cluster::Pace::default(),
        weighted: false,
        after: Vec::new(),
        state: NodeState::Waiting,
        since: None,
        machine: None,
        tries: 0,
        round: 0,
        asked: Vec::new(),
        done: BTreeSet::new(),
        drained: None,
        cordoned: None,
        force_after_s: None,
        left: false,
        minor: None,
        idle_since: None,
        first: false,
        crew: Crew::default(),
    }
}

/// The name of the group of `role`, which its agent was told too.
fn group_of(role: &Role, node: &NodeRole) -> String {
    let config: Option<Value> = serde_json::from_str(&node.config).ok();
    let told = config.as_ref().and_then(|config| config.get("autoScalingGroup")?.as_str()).map(str::to_owned);
    told.unwrap_or_else(|| match role {
        Role::Etcd(index) => format!("{}-{index}", node.stack),
        Role::Controller | Role::Pool(_) | Role::Admin => node.stack.clone(),
    })
}

impl Nodes {
    /// The steps that `wanted` asks for.
    pub(in super::super) fn of(wanted: &Wanted) -> Self {
        let (plan, release): (&Plan, &Rendering) = (&wanted.plan, &wanted.release);
        let step = |planned: &NodePlan, node: &NodeRole, work: Work| {
            let pool = match &planned.role {
                Role::Pool(name) => name.as_str(),
                Role::Etcd(_) | Role::Controller | Role::Admin => "",
            };
            NodeStep {
                stack: node.stack.clone(),
                credentials: node.credentials_digest.clone(),
                size: node.nodes.min,
                most: node.nodes.max,
                pace: plan.policy.pace(pool),
                weighted: node.weighted,
                after: after(plan, &planned.role),
                force_after_s: plan.policy.force_after_s(pool),
                minor: plan.minors.iter().find(|change| change.role == planned.role).map(MinorChange::words),
                ..unknown(planned, group_of(&planned.role, node), work)
            }
        };
        let mut steps: Vec<NodeStep> = Vec::new();
        let mut leaving = BTreeMap::new();
        for planned in &plan.nodes {
            let Some(node) = release.roles.get(&planned.role) else {
                steps.extend(goes(plan, planned));
                if let Some(one) = leaves(planned) {
                    leaving.insert(one.role.clone(), one.group.clone());
                    steps.push(one);
                }
                continue;
            };
            if planned.fewer {
                // What an earlier rollout left too many would be more than the group may have when its stack is updated.
                let most = node.nodes.max + 1;
                let first =
                    NodeStep { size: most, first: true, minor: None, ..step(planned, node, Work::Fewer) };
                steps.push(first);
            }
            steps.extend(executes(plan, planned, node.weighted).map(|work| step(planned, node, work)));
        }
        // What goes, goes last: pods may need the room.
        let pools =
            steps.iter().filter(|step| matches!(step.role, Role::Pool(_)) && step.work != Work::Remove);
        let stay: Vec<Role> = pools.map(|step| step.role.clone()).collect();
        for step in steps.iter_mut().filter(|step| step.work == Work::Remove) {
            step.after.clone_from(&stay);
        }
        // Of members that leave, the newest first: the founders are those that controllers and people know.
        let newest = |step: &NodeStep| step.role.member().filter(|_| step.work == Work::Leave).map(Reverse);
        steps.sort_by(|a, b| (a.wave(), newest(a), &a.role).cmp(&(b.wave(), newest(b), &b.role)));
        if steps.is_empty() {
            return Self::default();
        }
        let controllers = release.roles.get(&Role::Controller);
        let members = release.roles.iter().filter(|(role, _)| role.member().is_some());
        Self {
            steps: in_turn(steps),
            controllers: controllers.map(|node| group_of(&Role::Controller, node)),
            leaving,
            members: members.map(|(role, node)| (role.clone(), group_of(role, node))).collect(),
            snapshot_at: None,
            windows: plan.policy.windows.clone(),
            deadline: plan.renewal.deadline.clone(),
            overridden: BTreeMap::new(),
            budget: plan.policy.failure_budget,
            failures: 0,
        }
    }
}
