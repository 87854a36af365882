//! The plan: what a change would do, per stack and per node, and why (P3).
//!
//! [`plan`] compares what is deployed with a new rendering. Applying a plan executes that plan and no other: the
//! rollout holds CloudFormation's own change set against it before it executes one.

mod addons;
mod exports;
mod html;
mod membership;
mod nodes;
mod refusals;
mod renewal;
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
use slipway_core::cluster::RolloutPolicy;
use slipway_core::diff::Difference;
use slipway_core::digest::sha256_hex;
use slipway_core::members::{MemberPin, Standing};
use slipway_core::release::{AddonSet, Rendering, StackKind};
use slipway_core::role::Role;

pub use addons::{AddonAction, AddonPlan};
pub use exports::ExportInUse;
pub use membership::{MembershipAction, MembershipChange};
pub use renewal::{RenewalPlan, deadline};
pub use upgrades::MinorChange;

/// `plans/<id>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Version of this format.
    pub format: u32,
    /// Twenty hex digits, the same for the same start, target and policy.
    pub id: String,
    /// `clusterName`.
    pub cluster: String,
    /// The release that each stack that stands is at, which this plan starts from.
    pub from: BTreeMap<String, String>,
    /// The release whose add-ons are applied, which this plan starts from; `None` if none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addons_from: Option<String>,
    /// Releases that some nodes of a role may be of besides, which this plan starts from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub behind: BTreeMap<Role, BTreeSet<String>>,
    /// The release (id of a [`Rendering`]) that this plan leads to.
    pub to: String,
    /// How it is to be rolled out.
    pub policy: RolloutPolicy,
    /// Each stack of either side, in the order of the launch; those that go away last.
    pub stacks: Vec<StackPlan>,
    /// Each role of either side.
    pub nodes: Vec<NodePlan>,
    /// What becomes of etcd's membership, in order, one at a time; empty if nothing does.
    #[serde(default)]
    pub membership: Vec<MembershipChange>,
    /// The roles that would go to another minor release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minors: Vec<MinorChange>,
    /// The add-ons that come, change or go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addons: Vec<AddonPlan>,
    /// What it would take away or change although other stacks use it, which CloudFormation refuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<ExportInUse>,
    /// What forbids it, given what runs: a minor release back or skipped, a volume that would shrink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objections: Vec<String>,
    /// What it does for renewed certificates.
    #[serde(default, skip_serializing_if = "RenewalPlan::is_none")]
    pub renewal: RenewalPlan,
}

/// What happens to a stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StackPlan {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: StackKind,
    /// Created, updated, deleted, left alone.
    pub action: StackAction,
    /// Changes of resources, by logical id; for a stack that is created, each resource once.
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
    /// It is no longer asked for.
    Delete,
    /// It has not been asked for since an earlier rollout, and still stands: a person deletes it. No pool: the next rollout does that.
    Left,
    /// Byte for byte as it was.
    Unchanged,
}

/// What happens to a resource of a stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceChange {
    /// Logical id.
    pub logical_id: String,
    /// `AWS::EC2::VPC`.
    pub resource_type: String,
    /// Added, changed, removed.
    pub action: ResourceAction,
    /// Whether the resource keeps its identity.
    pub replacement: Replacement,
    /// The properties that change; empty for one that is added or removed.
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

/// Whether a changed resource keeps its identity, from AWS' own schema of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Replacement {
    /// Changed in place.
    Never,
    /// CloudFormation decides when it sees the values.
    Conditional,
    /// A new one is made and the old one deleted.
    Always,
}

/// What happens to a property.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PropertyChange {
    /// Where it was, where it is to be, and its path below `Properties`.
    #[serde(flatten)]
    pub difference: Difference,
    /// What that does to the resource.
    pub replacement: Replacement,
    /// The resource whose change brings this one along, when the template's text is the same.
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
    /// How many nodes at least and at most, as the new rendering says (the old one, for a role that goes); of those that
    /// are replaced or refreshed only the ones that are there already.
    pub nodes: slipway_core::cluster::GroupSize,
    /// What happens to each.
    pub action: NodeAction,
    /// Why, one line each.
    pub reasons: Vec<String>,
    /// What Auto Scaling may do to its nodes besides, by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undrained: Vec<Undrained>,
    /// One of its nodes is drained and leaves, since there are to be fewer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fewer: bool,
}

/// Something by which Auto Scaling terminates nodes that nobody drained (P6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Undrained {
    /// What makes it do so.
    pub cause: UndrainedCause,
    /// What it may do and when, and what to do before.
    pub words: String,
}

/// What makes Auto Scaling terminate nodes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UndrainedCause {
    /// The group may have fewer nodes than before: those above it go when its stack is updated.
    LowerMaximum,
    /// The group leaves subnets: the nodes there go when its stack is updated.
    LeavesSubnets,
    /// The group may shrink further than before: no node goes before something scales it.
    LowerMinimum,
}

/// What happens to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeAction {
    /// New.
    Create,
    /// Outdated: drained, terminated, made anew.
    Replace,
    /// Stale: takes its new credentials in place.
    Refresh,
    /// Left alone.
    Untouched,
    /// Goes with its stack.
    Remove,
    /// Stands although the spec has not had it since an earlier rollout, and goes with its stack.
    Left,
}

/// What is deployed: the release that each stack is at, and the stacks and roles themselves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Baseline {
    /// Stack → release, of everything that stands.
    pub releases: BTreeMap<String, String>,
    /// Those of them that an earlier rollout left standing when the spec had them no longer.
    pub left: BTreeSet<String>,
    /// The release whose add-ons are applied.
    pub addons: Option<String>,
    /// The stacks and roles, each taken from its own release; `None` if nothing was ever deployed.
    pub rendering: Option<Rendering>,
    /// What some nodes of a role may be besides.
    pub behind: skew::Behind,
}

impl Baseline {
    /// Puts together what stands: each stack, with its roles, from the release that it is at. What is `left` is no longer asked for,
    /// and yet it uses exports, and its kubelets talk to the API server.
    ///
    /// # Errors
    /// The release that `deployed` or `left` names and `releases` lacks.
    pub fn assemble(
        cluster: &str,
        deployed: &BTreeMap<String, String>,
        left: &BTreeMap<String, String>,
        releases: &BTreeMap<String, Rendering>,
    ) -> Result<Self, String> {
        let standing: BTreeMap<String, String> =
            left.iter().chain(deployed).map(|(stack, release)| (stack.clone(), release.clone())).collect();
        if standing.is_empty() {
            return Ok(Self::default());
        }
        let mut whole = Rendering {
            format: Rendering::FORMAT,
            cluster: cluster.to_owned(),
            stacks: Vec::new(),
            roles: BTreeMap::new(),
            addons: AddonSet::default(),
        };
        for (name, id) in &standing {
            let release = releases.get(id).ok_or_else(|| id.clone())?;
            whole.stacks.extend(release.stack(name).cloned());
            whole.roles.extend(
                release
                    .roles
                    .iter()
                    .filter(|(_, role)| &role.stack == name)
                    .map(|(role, node)| (role.clone(), node.clone())),
            );
        }
        whole.stacks.sort_by_key(|stack| stack.kind);
        let left = left.keys().filter(|stack| !deployed.contains_key(*stack)).cloned().collect();
        Ok(Self { releases: standing, left, addons: None, rendering: Some(whole), behind: BTreeMap::new() })
    }

    /// With the add-ons of the release `addons`, which are applied.
    ///
    /// # Errors
    /// That release, if `releases` lacks it.
    pub fn with_addons(
        self,
        addons: Option<&str>,
        releases: &BTreeMap<String, Rendering>,
    ) -> Result<Self, String> {
        let Some(id) = addons else { return Ok(self) };
        let addons = &releases.get(id).ok_or_else(|| id.to_owned())?.addons;
        let rendering = self.rendering.map(|whole| Rendering { addons: addons.clone(), ..whole });
        Ok(Self { addons: Some(id.to_owned()), rendering, ..self })
    }

    /// With roles some of whose nodes may be of other releases, too.
    ///
    /// # Errors
    /// The first of those that `releases` lacks.
    pub fn with_behind(
        mut self,
        behind: &BTreeMap<Role, BTreeSet<String>>,
        releases: &BTreeMap<String, Rendering>,
    ) -> Result<Self, String> {
        for (role, ids) in behind {
            for id in ids {
                let node = releases.get(id).ok_or_else(|| id.clone())?.roles.get(role).cloned();
                self.behind.entry(role.clone()).or_default().insert(id.clone(), node);
            }
        }
        Ok(self)
    }

    /// One release of which every stack is deployed; nothing if there is none.
    #[must_use]
    pub fn whole(release: Option<Rendering>) -> Self {
        let Some(release) = release else { return Self::default() };
        let id = release.id();
        let releases = release.stacks.iter().map(|stack| (stack.name.clone(), id.clone())).collect();
        let addons = (!release.addons.digest.is_empty()).then_some(id);
        Self { releases, left: BTreeSet::new(), addons, rendering: Some(release), behind: BTreeMap::new() }
    }

    /// How etcd stands; `on_its_way`: a rollout is at work, which may be making members that are not written down yet.
    #[must_use]
    pub fn etcd(&self, on_its_way: bool) -> Standing {
        let roles = self.rendering.iter().flat_map(|rendering| &rendering.roles);
        let members: BTreeMap<u32, MemberPin> = roles
            .filter_map(|(role, node)| Some((role.member()?, node.member.as_ref()?.pin.clone())))
            .collect();
        match (members.is_empty(), on_its_way) {
            (false, _) => Standing::Members(members),
            (true, true) => Standing::OnItsWay,
            (true, false) => Standing::Nothing,
        }
    }
}

/// Compares what is deployed with a new rendering.
#[must_use]
pub fn plan(baseline: &Baseline, new: &Rendering, policy: &RolloutPolicy) -> Plan {
    let to = new.id();
    // The policy is part of what a person approves: a plan that waits is another than one that does not.
    let mut start = serde_json::to_string(&(&baseline.releases, &baseline.addons, policy))
        .expect("maps of strings and a policy are JSON");
    let behind: BTreeMap<Role, BTreeSet<String>> = baseline
        .behind
        .iter()
        .map(|(role, releases)| (role.clone(), releases.keys().cloned().collect()))
        .collect();
    if !behind.is_empty() {
        start.push_str(&serde_json::to_string(&behind).expect("roles are written as text"));
    }
    let stacks = stacks::compare(baseline, new);
    Plan {
        format: Plan::FORMAT,
        id: sha256_hex(format!("{start}\n{to}").as_bytes())[..20].to_owned(),
        cluster: new.cluster.clone(),
        from: baseline.releases.clone(),
        addons_from: baseline.addons.clone(),
        behind,
        objections: objections(baseline, new, policy),
        in_use: exports::in_use(baseline, new, &stacks),
        stacks,
        nodes: nodes::compare(baseline, new),
        membership: membership::compare(baseline.rendering.as_ref(), new),
        minors: upgrades::compare(baseline, new),
        addons: addons::compare(baseline.rendering.as_ref().map(|old| &old.addons), &new.addons),
        to,
        policy: policy.clone(),
        renewal: RenewalPlan::default(),
    }
}

/// Asked again of every plan: what was checked when a spec was uploaded is not what runs when a rollout under way has ended.
fn objections(baseline: &Baseline, new: &Rendering, policy: &RolloutPolicy) -> Vec<String> {
    let old = baseline.rendering.iter();
    let found = old.flat_map(|old| skew::between(old, &baseline.behind, new));
    let found = found.map(|objection| format!("{} ({})", objection.message, objection.help));
    found.chain(upgrades::unseen(baseline, new, policy)).collect()
}

impl Plan {
    /// The current format: 2 since it lists changes of etcd's membership.
    pub const FORMAT: u32 = 2;

    /// Nothing would move.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.iter().all(|stack| matches!(stack.action, StackAction::Unchanged | StackAction::Left))
            && self
                .nodes
                .iter()
                .all(|node| matches!(node.action, NodeAction::Untouched | NodeAction::Left) && !node.fewer)
            && self.addons.is_empty()
    }

    /// The stacks that stand although the spec has had them no longer since an earlier rollout.
    pub fn left(&self) -> impl Iterator<Item = &StackPlan> {
        self.stacks.iter().filter(|stack| stack.action == StackAction::Left)
    }

    /// How many nodes meet `action`, counting each role's lower bound (and at least one).
    #[must_use]
    pub fn count(&self, action: NodeAction) -> u32 {
        self.nodes.iter().filter(|node| node.action == action).map(|node| node.nodes.min.max(1)).sum()
    }

    /// The pools that are rolled before `node` is, where this plan rolls both.
    #[must_use]
    pub fn waits_for(&self, node: &NodePlan) -> Vec<&Role> {
        let Role::Pool(name) = &node.role else { return Vec::new() };
        let rolled = |node: &&NodePlan| matches!(node.action, NodeAction::Replace | NodeAction::Refresh);
        let Some(rollout) = self.policy.pools.get(name).filter(|_| rolled(&node)) else { return Vec::new() };
        let before = |role: &Role| matches!(role, Role::Pool(other) if rollout.after.contains(other));
        self.nodes.iter().filter(rolled).map(|other| &other.role).filter(|role| before(role)).collect()
    }

    /// One line for a person.
    #[must_use]
    pub fn summary(&self) -> String {
        text::summary(self)
    }

    /// How many add-ons come, change and go, in words: `1 new, 2 changed`; empty if none does.
    #[must_use]
    pub fn addons_summary(&self) -> String {
        text::addons(self)
    }

    /// The plan as one page for a browser that stands alone: `plans/<id>.html`.
    #[must_use]
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// The plan as a person reads it on a terminal, without colour.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::whole(self)
    }
}

impl NodePlan {
    /// Every line of why: the reasons, and what Auto Scaling may do besides.
    pub fn why(&self) -> impl Iterator<Item = &str> {
        self.reasons.iter().map(String::as_str).chain(self.undrained.iter().map(|one| one.words.as_str()))
    }
}

impl StackPlan {
    /// What a person does about a stack that is left standing.
    #[must_use]
    pub const fn to_clear(&self) -> &'static str {
        match self.kind {
            StackKind::Identity => {
                "its roles may still be assumed with the cluster's tokens: delete the stack when no pod uses them"
            }
            StackKind::Network | StackKind::Etcd | StackKind::ControlPlane | StackKind::Pool => {
                "what it uses cannot be taken away: delete it"
            }
        }
    }

    /// The logical ids that executing this plan may replace or remove: CloudFormation's change set may name no other.
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
