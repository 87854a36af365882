//! A plan in plain words: what happens, what is interrupted meanwhile, and how risky it is.

use slipway_core::release::StackKind;
use slipway_core::role::Role;

use super::{
    AddonAction, GroupEffect, MembershipAction, NodeAction, NodePlan, Plan, Replacement, ResourceAction,
    StackAction,
};

/// How much damage a plan can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Risk {
    /// Nothing that runs changes.
    None,
    /// Running resources are changed in place.
    Low,
    /// Machines are replaced, in an order that keeps the cluster available.
    Medium,
    /// Something is interrupted or lost that a rollout cannot keep available.
    High,
}

impl Risk {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// A plan in plain words.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) headline: String,
    pub(super) risk: Risk,
    /// Why the risk is what it is, the most serious reason first.
    pub(super) why: Vec<(Risk, String)>,
    /// What happens, in order.
    pub(super) effects: Vec<String>,
    /// What is interrupted.
    pub(super) interrupted: Vec<String>,
}

/// Types of resources that cannot be recreated, or on which everything else depends.
const GRAVE: [&str; 7] = [
    "AWS::EC2::VPC",
    "AWS::EC2::Subnet",
    "AWS::EC2::Volume",
    "AWS::AutoScaling::AutoScalingGroup",
    "AWS::ElasticLoadBalancingV2::LoadBalancer",
    "AWS::Route53::HostedZone",
    "AWS::EC2::NatGateway",
];

/// The story of `plan`.
pub(super) fn story(plan: &Plan) -> Story {
    let mut story = Story {
        headline: headline(plan),
        risk: Risk::None,
        why: Vec::new(),
        effects: Vec::new(),
        interrupted: Vec::new(),
    };
    stacks(plan, &mut story);
    growth(plan, &mut story);
    etcd(plan, &mut story);
    controllers(plan, &mut story);
    pools(plan, &mut story);
    for addon in plan.addons.iter().filter(|_| !plan.from.is_empty()) {
        let name = &addon.name;
        let versions = addon.versions();
        let versions = if versions.is_empty() { versions } else { format!(" ({versions})") };
        let (risk, does) = match addon.action {
            AddonAction::Add => (Risk::Low, "is installed"),
            AddonAction::Change => {
                (Risk::Low, "is changed; its pods are replaced a few at a time where they change")
            }
            AddonAction::Remove => (Risk::High, "is removed, and what relies on it stops working"),
        };
        story.effects.push(format!("The add-on {name}{versions} {does}."));
        story.why.push((risk, format!("The add-on {name} {does}.")));
    }
    for node in &plan.nodes {
        story.why.extend(node.undrained.iter().map(|one| {
            let risk = match one.cause.effect() {
                GroupEffect::Terminates | GroupEffect::Replaces => Risk::High,
                GroupEffect::Nothing => Risk::Low,
            };
            (risk, format!("{}: {}.", node.role, one.words))
        }));
    }
    if let Some(why) = plan.not_executable() {
        story.why.push((Risk::High, format!("This plan is not executed: {why}.")));
    }
    if !plan.is_empty() && plan.needs_approval() {
        let unless = match plan.is_renewal() && plan.renewal.deadline.first(|_| true).is_some() {
            true => ", unless certificates in use are about to expire",
            false => "",
        };
        story.effects.push(format!("Nothing begins before a person approves this plan{unless}."));
    }
    story.why.sort_by_key(|(risk, _)| std::cmp::Reverse(*risk));
    story.risk = story.why.iter().map(|(risk, _)| *risk).max().unwrap_or(Risk::None);
    story
}

fn headline(plan: &Plan) -> String {
    let cluster = &plan.cluster;
    if plan.is_empty() {
        return format!("Nothing changes in the cluster {cluster}.");
    }
    if plan.from.is_empty() {
        let machines = plan.machines(NodeAction::Create);
        return format!(
            "The cluster {cluster} is created, with {} to begin with.",
            machines.words("machine")
        );
    }
    let mut parts = Vec::new();
    for (action, words) in [
        (NodeAction::Replace, "replaced"),
        (NodeAction::Refresh, "given new credentials while it runs"),
        (NodeAction::Create, "added"),
        (NodeAction::Remove, "removed"),
    ] {
        let machines = plan.machines(action);
        if machines.any() {
            let words = words.replace("it runs", if machines.is_one() { "it runs" } else { "they run" });
            let is = if machines.is_one() { "is" } else { "are" };
            parts.push(format!("{} {is} {words}", machines.words("machine")));
        }
    }
    if parts.is_empty() {
        parts.push("no machine is replaced".to_owned());
    }
    format!("The cluster {cluster} changes: {}.", parts.join(", "))
}

fn stacks(plan: &Plan, story: &mut Story) {
    for stack in &plan.stacks {
        let name = &stack.name;
        match stack.action {
            StackAction::Unchanged => {}
            StackAction::Orphaned => story.effects.push(format!(
                "The stack {name}, which the spec no longer has, is orphaned: {}.",
                stack.deletion_help()
            )),
            StackAction::Create if plan.from.is_empty() => {}
            StackAction::Create => {
                story.effects.push(format!("The stack {name} is created."));
                story.why.push((Risk::Low, format!("{name} is new and touches nothing that runs.")));
            }
            StackAction::Delete => {
                story.effects.push(format!("The stack {name} is no longer asked for."));
                let lost = format!("{name} is no longer asked for: what runs on it has to go elsewhere.");
                story.why.push((Risk::High, lost));
            }
            StackAction::Update => {
                story.effects.push(format!("The stack {name} is updated."));
                story.why.push((Risk::Low, format!("{name} is changed in place.")));
                for change in &stack.resources {
                    let thing = format!("{} ({}) of {name}", change.logical_id, change.resource_type);
                    let grave = GRAVE.contains(&change.resource_type.as_str());
                    let risk = if grave { Risk::High } else { Risk::Medium };
                    match (change.action, change.replacement) {
                        (ResourceAction::Modify, Replacement::Always) => {
                            story.why.push((
                                risk,
                                format!("{thing} is replaced: a new one is made, the old one is deleted."),
                            ));
                            if grave {
                                let until =
                                    format!("Everything that uses {thing}, until its replacement is in use.");
                                story.interrupted.push(until);
                            }
                        }
                        (ResourceAction::Remove, _) => story.why.push((risk, format!("{thing} is deleted."))),
                        (ResourceAction::Modify, Replacement::Conditional) => {
                            story.why.push((
                                Risk::Medium,
                                format!("{thing} may be replaced; CloudFormation decides by its values."),
                            ));
                        }
                        (ResourceAction::Modify, Replacement::Never) | (ResourceAction::Add, _) => {}
                    }
                }
            }
        }
    }
}

fn growth(plan: &Plan, story: &mut Story) {
    for node in plan.nodes.iter().filter(|node| node.added().any()) {
        let added = node.added();
        let is = if added.is_one() { "is" } else { "are" };
        story.effects.push(format!("{} {is} added to {}.", added.words("machine"), node.role));
    }
}

fn nodes_with(plan: &Plan, action: NodeAction, which: impl Fn(&Role) -> bool) -> Vec<&NodePlan> {
    plan.nodes.iter().filter(|node| node.action == action && which(&node.role)).collect()
}

fn names(nodes: &[&NodePlan]) -> String {
    nodes.iter().map(|node| node.role.to_string()).collect::<Vec<_>>().join(", ")
}

fn etcd(plan: &Plan, story: &mut Story) {
    let is_member = |role: &Role| matches!(role, Role::Etcd(_));
    let replaced = nodes_with(plan, NodeAction::Replace, is_member);
    let refreshed = nodes_with(plan, NodeAction::Refresh, is_member);
    let members =
        plan.nodes.iter().filter(|node| is_member(&node.role) && node.action != NodeAction::Create).count();
    if !replaced.is_empty() {
        let who = names(&replaced);
        if members == 1 {
            story
                .effects
                .push(format!("The only etcd member ({who}) is replaced; its data stay on their volume."));
            story.interrupted.push(
                "The Kubernetes API, for the minutes in which the only etcd member is replaced. What runs goes on running; nothing can be changed.".to_owned(),
            );
            story.why.push((Risk::High, "The cluster has one etcd member, and it is replaced.".to_owned()));
        } else {
            story.effects.push(format!(
                "etcd members are replaced one after the other ({who}): each comes back with its data and its name before the next goes."
            ));
            story.why.push((Risk::Medium, "etcd members are replaced; the rest keep the quorum.".to_owned()));
        }
    }
    if !refreshed.is_empty() {
        story
            .effects
            .push(format!("etcd members take new credentials without a restart ({}).", names(&refreshed)));
        story.why.push((Risk::Low, "Credentials are renewed in place.".to_owned()));
    }
    for change in &plan.membership {
        let (member, before, after) = (&change.member, change.voters_before, change.voters_after);
        let what = match change.action {
            MembershipAction::Add => "joins etcd as a learner, and votes once it has caught up",
            MembershipAction::Readdress => "gets another address in etcd",
            MembershipAction::Replace => "leaves etcd and joins again with an empty volume",
            MembershipAction::Remove => "leaves etcd",
        };
        story.effects.push(format!("{member} {what} ({before} → {after} voters)."));
    }
    if !plan.membership.is_empty() {
        let members: Vec<_> = plan.membership.iter().map(|change| change.member.to_string()).collect();
        story.why.push((Risk::Medium, format!("The membership of etcd changes: {}.", members.join(", "))));
    }
}

fn controllers(plan: &Plan, story: &mut Story) {
    let is_controller = |role: &Role| *role == Role::Controller;
    for node in nodes_with(plan, NodeAction::Replace, is_controller) {
        let number = node.nodes.min;
        story.effects.push(if number == 1 {
            "The controller is replaced: its successor serves before it goes.".to_owned()
        } else {
            format!("The {number} controllers are replaced one after the other; the others serve meanwhile.")
        });
        story.why.push((Risk::Medium, "Controllers are replaced; the API stays up.".to_owned()));
    }
    if !nodes_with(plan, NodeAction::Refresh, is_controller).is_empty() {
        story.effects.push("Controllers take new credentials without being replaced.".to_owned());
        story.why.push((Risk::Low, "Credentials are renewed in place.".to_owned()));
    }
}

fn pools(plan: &Plan, story: &mut Story) {
    let is_pool = |role: &Role| matches!(role, Role::Pool(_));
    let replaced = nodes_with(plan, NodeAction::Replace, is_pool);
    for node in &replaced {
        let machines = node.machines();
        story.effects.push(format!(
            "{} of {} {} replaced: each is drained first, so that its pods move to others.",
            machines.words("worker"),
            node.role,
            if machines.is_one() { "is" } else { "are" },
        ));
    }
    if !replaced.is_empty() {
        let drained = match plan.policy.drain_force_after_min {
            None => "Disruption budgets are never overridden: a drain waits while a budget does not allow an eviction.".to_owned(),
            Some(minutes) => format!(
                "A drain that takes longer than {minutes} minutes is forced, disruption budgets notwithstanding."
            ),
        };
        story.effects.push(drained);
        story
            .interrupted
            .push("Workloads with a single pod on a replaced worker, while that pod moves.".to_owned());
        story.why.push((Risk::Medium, format!("Workers are replaced ({}).", names(&replaced))));
        if plan.policy.drain_force_after_min.is_some() {
            story.why.push((Risk::High, "Drains may be forced, which the spec allows.".to_owned()));
        }
    }
    let gone = nodes_with(plan, NodeAction::Remove, is_pool);
    if !gone.is_empty() {
        story.interrupted.push(format!("Workloads on {}, until they run on other nodes.", names(&gone)));
    }
}

/// The kind of stack in words.
pub(super) const fn kind(kind: StackKind) -> &'static str {
    match kind {
        StackKind::Network => "network",
        StackKind::Identity => "identity of service accounts",
        StackKind::Etcd => "etcd, where the cluster's state lies",
        StackKind::ControlPlane => "control plane",
        StackKind::Pool => "workers",
    }
}

/// The shortened id of a release.
pub(super) fn brief(id: &str) -> String {
    id.get(..12).unwrap_or(id).to_owned()
}
