//! The plan: what a change would do to each stack and node, and why (P3).
//!
//! [`plan`] compares what is deployed with a new rendering. A rollout executes that plan and no other: before it executes a
//! CloudFormation change set, it compares the change set with the plan.

mod addons;
mod baseline;
pub mod cost;
mod exports;
mod groups;
mod html;
mod kind;
mod membership;
mod nodes;
mod reasons;
mod refusals;
mod renewal;
mod schedule;
mod sizes;
pub mod skew;
mod stacks;
mod story;
#[cfg(test)]
mod tests;
mod text;
pub mod update_rules;
mod upgrades;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use slipway_core::cluster::{Approval, RolloutPolicy};
use slipway_core::diff::Difference;
use slipway_core::digest::sha256_hex;
use slipway_core::release::{Rendering, StackKind};
use slipway_core::role::Role;

pub use addons::{AddonAction, AddonPlan};
pub use baseline::Baseline;
pub use exports::ExportInUse;
pub use groups::{GroupEffect, Undrained, UndrainedCause};
pub use kind::PlanKind;
pub use membership::{MembershipAction, MembershipChange};
pub use renewal::{RenewalPlan, deadline, renewal_of_what_runs};
pub use sizes::{Machines, Resized};
pub use upgrades::MinorChange;

/// `plans/<id>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Version of this format.
    pub format: u32,
    /// Twenty hex digits, derived from start, target and policy.
    pub id: String,
    /// `clusterName`.
    pub cluster: String,
    /// The release of each existing stack when the plan was made.
    pub from: BTreeMap<String, String>,
    /// The release whose add-ons were applied when the plan was made; `None`: none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addons_from: Option<String>,
    /// For each role, older releases that some of its nodes may still have, when the plan was made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub earlier: BTreeMap<Role, BTreeSet<String>>,
    /// Stacks whose creation by an earlier rollout did not succeed and that still exist, with the release that wanted them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unfinished: BTreeMap<String, String>,
    /// Members that may have joined etcd although an earlier rollout could not create their groups, with the release that wanted them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joined: BTreeMap<Role, String>,
    /// The release that this plan results in, by the id of its [`Rendering`].
    pub to: String,
    /// The rollout policy. Its approval may be stricter than that of the spec.
    pub policy: RolloutPolicy,
    /// What the spec itself says about approval, if that is less strict than the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_approval: Option<Approval>,
    /// All stacks before and after, in launch order, with those to be deleted last.
    pub stacks: Vec<StackPlan>,
    /// All roles before and after.
    pub nodes: Vec<NodePlan>,
    /// The changes of etcd's membership, in the order in which they are made, one at a time.
    #[serde(default)]
    pub membership: Vec<MembershipChange>,
    /// The roles that change to another minor release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minors: Vec<MinorChange>,
    /// The add-ons that are added, changed or removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addons: Vec<AddonPlan>,
    /// Exports that it would remove or change although other stacks use them, which CloudFormation refuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<ExportInUse>,
    /// Why it cannot be executed, given what is deployed: for example a minor release back or skipped, or a volume that would shrink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objections: Vec<String>,
    /// Whether the release is the one that runs with other credentials for etcd and the controllers, and nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_credentials: bool,
    /// Whether it brings credentials to nodes of any role, and nothing else is to be done, also not what an earlier rollout did not complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brings_credentials: bool,
    /// What it does to deliver renewed certificates.
    #[serde(default, skip_serializing_if = "RenewalPlan::is_none")]
    pub renewal: RenewalPlan,
    /// For each role, the older releases of [`Self::earlier`] that nodes still have after a [`renewal_of_what_runs`]. `None`: another kind of plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<BTreeMap<Role, BTreeSet<String>>>,
}

/// What happens to one stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StackPlan {
    /// The stack's name.
    pub name: String,
    /// Its kind.
    pub kind: StackKind,
    /// Whether it is created, updated, deleted or unchanged.
    pub action: StackAction,
    /// Changes of resources by logical id; for a new stack, all of its resources.
    pub resources: Vec<ResourceChange>,
    /// Changes outside the resources: outputs, tags, description.
    pub other: Vec<Difference>,
}

/// What happens to a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StackAction {
    /// It does not exist yet.
    Create,
    /// Its template or tags change.
    Update,
    /// The spec no longer has it.
    Delete,
    /// It is orphaned: an earlier rollout removed it from the cluster, and a person has to delete it. Pools are never orphaned, because
    /// the next rollout deletes them.
    Orphaned,
    /// Its bytes are unchanged.
    Unchanged,
}

/// What happens to one resource of a stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceChange {
    /// Logical id.
    pub logical_id: String,
    /// `AWS::EC2::VPC`.
    pub resource_type: String,
    /// Whether it is added, changed or removed.
    pub action: ResourceAction,
    /// Whether the resource keeps its identity.
    pub replacement: Replacement,
    /// The properties that change; all for a resource that is added, none for one that is removed.
    pub properties: Vec<PropertyChange>,
}

/// What happens to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceAction {
    /// Made.
    Add,
    /// Changed.
    Modify,
    /// Deleted, unless its deletion policy keeps it.
    Remove,
}

/// Whether a changed resource is replaced, according to AWS' schema of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Replacement {
    /// Changed in place.
    Never,
    /// It depends on the values, and CloudFormation decides.
    Conditional,
    /// A new resource is created and the old one deleted.
    Always,
}

/// What happens to one property.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PropertyChange {
    /// The values before and after, and the path below `Properties`.
    #[serde(flatten)]
    pub difference: Difference,
    /// The effect on the resource.
    pub replacement: Replacement,
    /// The resource whose change causes this one, if the text of the template is the same.
    pub because_of: Option<String>,
}

/// What happens to the nodes of a role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodePlan {
    /// The role.
    pub role: Role,
    /// The stack that it is in.
    pub stack: String,
    /// The minimum and maximum size according to the new rendering (the old one, for a role that is removed). For nodes that are replaced
    /// or refreshed, only the existing ones count.
    pub nodes: slipway_core::cluster::GroupSize,
    /// What happens to each node.
    pub action: NodeAction,
    /// Why, one line each.
    pub reasons: Vec<String>,
    /// The values of `machine` and `config` that are added or change; all of them for nodes that are created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Difference>,
    /// Which of its nodes Auto Scaling may terminate by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undrained: Vec<Undrained>,
    /// Whether one of its nodes is drained and removed, because the new rendering has fewer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fewer: bool,
    /// The size of its group before and after, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resized: Option<Resized>,
    /// Whether its group counts capacity units instead of machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
}

/// What happens to the nodes of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeAction {
    /// It is created.
    Create,
    /// Outdated: it is drained, terminated and created again.
    Replace,
    /// Stale: it receives new credentials in place.
    Refresh,
    /// It does not change.
    Untouched,
    /// It is removed with its stack.
    Remove,
    /// It is orphaned with its stack, which an earlier rollout removed from the cluster.
    Orphaned,
}

/// Compares what is deployed with a new rendering.
#[must_use]
pub fn plan(baseline: &Baseline, new: &Rendering, policy: &RolloutPolicy) -> Plan {
    let baseline = &*baseline.compared_with(new);
    compare(baseline, baseline, new, policy)
}

/// The plan from `baseline` to `new`. `compared`: what `new` is compared with, which may be less than all of the baseline.
fn compare(baseline: &Baseline, compared: &Baseline, new: &Rendering, policy: &RolloutPolicy) -> Plan {
    let known = compared.whole.as_ref().filter(|_| compared.rendering.as_ref() == Some(new));
    let to = known.cloned().unwrap_or_else(|| new.id());
    // The policy is part of what a person approves: a plan that needs approval is not the plan that needs none.
    let mut start = serde_json::to_string(&(&baseline.releases, &baseline.addons, policy))
        .expect("maps of strings and a policy are JSON");
    let earlier: BTreeMap<Role, BTreeSet<String>> = baseline
        .earlier
        .iter()
        .map(|(role, releases)| (role.clone(), releases.keys().cloned().collect()))
        .collect();
    if !earlier.is_empty() {
        start.push_str(&serde_json::to_string(&earlier).expect("roles are written as text"));
    }
    let unfinished = baseline.unfinished.iter().map(|(stack, (release, _))| (stack.clone(), release.clone()));
    let unfinished: BTreeMap<String, String> = unfinished.collect();
    if !unfinished.is_empty() {
        start.push_str(&serde_json::to_string(&unfinished).expect("a map of strings is JSON"));
    }
    let joined = baseline.joined.iter().map(|(role, (release, _))| (role.clone(), release.clone()));
    let joined: BTreeMap<Role, String> = joined.collect();
    if !joined.is_empty() {
        start.push_str(&serde_json::to_string(&joined).expect("roles are written as text"));
    }
    let nodes = nodes::compare(compared, new);
    let only_credentials = nodes.iter().any(|node| node.action == NodeAction::Refresh)
        && renewal::only_credentials(compared, new);
    if only_credentials {
        // A plan that was made before this was recorded has another id.
        start.push_str("\nonly credentials");
    }
    let stacks = stacks::compare(compared, new);
    Plan {
        format: Plan::FORMAT,
        id: sha256_hex(format!("{start}\n{to}").as_bytes())[..20].to_owned(),
        cluster: new.cluster.clone(),
        from: baseline.releases.clone(),
        addons_from: baseline.addons.clone(),
        earlier,
        unfinished,
        joined,
        objections: objections(&compared.without_joined(), new, policy),
        in_use: exports::in_use(compared, new, &stacks),
        stacks,
        membership: membership::compare(compared, new),
        minors: upgrades::compare(compared, new),
        addons: addons::compare(compared.rendering.as_ref().map(|old| &old.addons), &new.addons),
        to,
        policy: policy.clone(),
        spec_approval: None,
        only_credentials,
        brings_credentials: renewal::brings_credentials(compared, new, &nodes),
        nodes,
        renewal: RenewalPlan::default(),
        left_behind: None,
    }
}

impl Plan {
    /// What its spec says about approval, which the next spec cannot waive for itself.
    #[must_use]
    pub fn approval_of_spec(&self) -> Approval {
        self.spec_approval.unwrap_or(self.policy.approval)
    }

    /// The plan of a spec that says `approval` about itself.
    #[must_use]
    pub fn with_spec_approval(mut self, approval: Approval) -> Self {
        self.spec_approval = (approval != self.policy.approval).then_some(approval);
        if self.spec_approval.is_some() {
            // It is part of what a person approves: the next plan may not wait for anybody.
            self.id = sha256_hex(format!("{}\n{approval:?}", self.id).as_bytes())[..20].to_owned();
        }
        self
    }
}

/// Checked again for every plan, because what is deployed may differ from what was deployed when the spec was uploaded.
fn objections(baseline: &Baseline, new: &Rendering, policy: &RolloutPolicy) -> Vec<String> {
    let old = baseline.rendering.iter();
    let found = old.flat_map(|old| skew::between(old, &baseline.earlier, new));
    let found = found.map(|objection| format!("{} ({})", objection.message, objection.help));
    found.chain(upgrades::unseen(baseline, new, policy)).collect()
}

impl Plan {
    /// The current format. Since 2 it lists changes of etcd's membership.
    pub const FORMAT: u32 = 2;

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.iter().all(|stack| matches!(stack.action, StackAction::Unchanged | StackAction::Orphaned))
            && self.nodes.iter().all(|node| {
                matches!(node.action, NodeAction::Untouched | NodeAction::Orphaned) && !node.fewer
            })
            && self.addons.is_empty()
    }

    /// Whether it removes a member that may have joined etcd although its group could not be created.
    fn removes_joined(&self, role: &Role) -> bool {
        let joins = self.nodes.iter().any(|node| node.role == *role && node.action != NodeAction::Remove);
        self.joined.contains_key(role) && !joins
    }

    /// Members that join an existing etcd.
    pub fn joining_members(&self) -> impl Iterator<Item = &Role> {
        let joins = |change: &&MembershipChange| change.action == MembershipAction::Add;
        self.membership.iter().filter(joins).map(|change| &change.member)
    }

    /// The orphaned stacks: an earlier rollout removed them from the cluster, and they still exist.
    pub fn orphaned(&self) -> impl Iterator<Item = &StackPlan> {
        self.stacks.iter().filter(|stack| stack.action == StackAction::Orphaned)
    }

    /// The pools that this plan rolls before `node`.
    #[must_use]
    pub fn waits_for(&self, node: &NodePlan) -> Vec<&Role> {
        let Role::Pool(name) = &node.role else { return Vec::new() };
        let rolled = |node: &&NodePlan| matches!(node.action, NodeAction::Replace | NodeAction::Refresh);
        let Some(rollout) = self.policy.pools.get(name).filter(|_| rolled(&node)) else { return Vec::new() };
        let before = |role: &Role| matches!(role, Role::Pool(other) if rollout.after.contains(other));
        self.nodes.iter().filter(rolled).map(|other| &other.role).filter(|role| before(role)).collect()
    }

    /// A summary in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        text::summary(self)
    }

    /// How many add-ons are added, changed and removed: `1 new, 2 changed`; empty if none.
    #[must_use]
    pub fn addons_summary(&self) -> String {
        text::addons(self)
    }

    /// The plan as a self-contained HTML page: `plans/<id>.html`.
    #[must_use]
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// The plan as text for a terminal, without colour.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::whole(self)
    }
}

impl NodePlan {
    /// All reasons, including what Auto Scaling may do by itself.
    pub fn all_reasons(&self) -> impl Iterator<Item = &str> {
        self.reasons.iter().map(String::as_str).chain(self.undrained.iter().map(|one| one.words.as_str()))
    }
}

impl StackPlan {
    /// What a person has to do about an orphaned stack.
    #[must_use]
    pub const fn deletion_help(&self) -> &'static str {
        match self.kind {
            StackKind::Identity => {
                "its roles may still be assumed with the cluster's tokens: delete the stack when no pod uses them"
            }
            StackKind::Network | StackKind::Etcd | StackKind::ControlPlane | StackKind::Pool => {
                "resources that it uses cannot be removed while it exists: delete it"
            }
        }
    }

    /// The logical ids that this plan may replace or remove. CloudFormation's change set may replace or remove no others.
    #[must_use]
    pub fn may_replace(&self) -> Vec<String> {
        self.resources
            .iter()
            .filter(|change| {
                change.action == ResourceAction::Remove || change.replacement != Replacement::Never
            })
            .map(|change| change.logical_id.clone())
            .collect()
    }
}
