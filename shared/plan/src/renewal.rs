//! What renewed certificates mean for a plan: which nodes are replaced, and when they must have the new certificates.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::cluster::{Approval, RolloutPolicy};
use slipway_core::deadline::{Deadline, Urgency, in_days};
use slipway_core::digest::sha256_hex;
use slipway_core::release::{NodeRole, Rendering, Stack};
use slipway_core::role::Role;
use slipway_core::words::moment;
use slipway_credentials::Manifest;

use super::{Baseline, NodeAction, Plan, StackAction, skew};

/// What is known of renewed certificates when a plan is made. Nothing in it depends on the time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewalPlan {
    /// Roles whose nodes are replaced although they could be refreshed in place, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<Role, String>,
    /// When the certificates on the nodes expire.
    #[serde(default, skip_serializing_if = "Deadline::is_none")]
    pub deadline: Deadline,
    /// Whether the credentials are others than the spec that was rolled out last would have, as their names differ. A person has to approve
    /// those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_another_spec: bool,
}

impl RenewalPlan {
    pub(super) fn is_none(&self) -> bool {
        self.replaced.is_empty() && self.deadline.is_none()
    }
}

/// When the certificates on the nodes of `baseline` expire, for each role to which `target` gives ones that last longer. `manifest`
/// knows when each bundle ends. `lead`: as [`slipway_core::deadline::Roll::lead`].
#[must_use]
pub fn deadline(
    baseline: &Baseline,
    target: &Rendering,
    manifest: &Manifest,
    lead: SignedDuration,
) -> Deadline {
    let standing = baseline.rendering.iter().flat_map(|rendering| &rendering.roles);
    let partly_rolled = baseline
        .earlier
        .iter()
        .flat_map(|(role, releases)| releases.values().flatten().map(move |node| (role, node)));
    let mut ends: BTreeMap<Role, Timestamp> = BTreeMap::new();
    for (role, node) in standing.chain(partly_rolled) {
        let (Some(known), Some(next)) = (manifest.ends.get(role), target.roles.get(role)) else {
            continue;
        };
        let (Some(end), after) = (known.get(&node.credentials_digest), known.get(&next.credentials_digest))
        else {
            continue;
        };
        if after.is_some_and(|after| after > end) {
            let first = ends.entry(role.clone()).or_insert(*end);
            *first = (*first).min(*end);
        }
    }
    Deadline { ends, lead_s: lead.as_secs() }
}

/// Whether `new` is what runs with other credentials for etcd and the controllers, and nothing else: no setting of a group, no tag, no value
/// that replaces no node.
pub(super) fn only_credentials(baseline: &Baseline, new: &Rendering) -> bool {
    differs_in_credentials(baseline, new, is_control)
}

/// [`Plan::brings_credentials`] of a plan with these `nodes`.
pub(super) fn brings_credentials(baseline: &Baseline, new: &Rendering, nodes: &[super::NodePlan]) -> bool {
    let is_untouched = |node: &super::NodePlan| node.action == NodeAction::Untouched;
    let is_refreshed = |node: &super::NodePlan| node.action == NodeAction::Refresh;
    let has_lost_its_group = |node: &super::NodePlan| {
        node.action == NodeAction::Remove && baseline.joined.contains_key(&node.role)
    };
    nodes.iter().any(is_refreshed)
        && nodes.iter().all(|node| is_untouched(node) || is_refreshed(node) || has_lost_its_group(node))
        && baseline.unfinished.is_empty()
        && baseline.rendering.as_ref().is_some_and(|old| old.addons == new.addons)
        && differs_in_credentials(baseline, new, |_| true)
}

/// Whether `new` is what runs with other credentials for these roles, and nothing else.
fn differs_in_credentials(baseline: &Baseline, new: &Rendering, of: impl Fn(&Role) -> bool) -> bool {
    let digests = new.roles.iter().filter(|(role, _)| of(role));
    let digests = digests.map(|(role, node)| (role.clone(), node.credentials_digest.clone())).collect();
    let Some(runs) = baseline.running_release() else { return false };
    if runs.roles.len() != new.roles.len() || runs.stacks.len() != new.stacks.len() {
        return false;
    }
    let renewed = runs.with_credentials(&digests);
    // Pools are in the order of the spec, or of their names.
    let is_same = |stack: &Stack| new.stack(&stack.name) == Some(stack);
    renewed.roles == new.roles && renewed.stacks.iter().all(is_same)
}

/// The plan that brings the credentials of `new` to etcd and the controllers, and leaves everything else as it is: pools and stacks that earlier
/// rollouts did not complete, too. `new` is what runs with other credentials ([`Baseline::runs`]).
///
/// Nodes with an older configuration are refreshed in place, because a replacement would bring them the newer one. Nobody may have
/// approved that, and it may be what the earlier rollout failed with.
#[must_use]
pub fn renewal_of_what_runs(baseline: &Baseline, new: &Rendering, policy: &RolloutPolicy) -> Plan {
    let compared = baseline.without_unfinished_work().with_members_to_remove(new);
    let mut plan = super::compare(baseline, &compared, new, policy);
    let mut left_behind = BTreeMap::new();
    for (role, releases) in &baseline.earlier {
        let has_other_config = |before: &&NodeRole| {
            let after = new.roles.get(role);
            after.is_none_or(|after| {
                before.machine != after.machine || before.config_digest != after.config_digest
            })
        };
        let stay = releases
            .iter()
            .filter(|(_, node)| !is_control(role) || node.as_ref().filter(has_other_config).is_some());
        let stay: BTreeSet<String> = stay.map(|(id, _)| id.clone()).collect();
        if stay.is_empty() {
            continue;
        }
        for node in plan.nodes.iter_mut().filter(|node| node.role == *role) {
            node.reasons.push("what an earlier rollout did not complete is left as it is".to_owned());
        }
        left_behind.insert(role.clone(), stay);
    }
    // Another plan to the same release may complete that.
    plan.id = sha256_hex(format!("{}\nof what runs", plan.id).as_bytes())[..20].to_owned();
    Plan { left_behind: Some(left_behind), ..plan }
}

/// Whether a role gets its certificates from Slipway.
const fn is_control(role: &Role) -> bool {
    matches!(role, Role::Etcd(_) | Role::Controller)
}

impl Baseline {
    /// The same, but older nodes of these roles have those credentials: they were refreshed in place, and kept their older configuration.
    #[must_use]
    pub fn with_refreshed(mut self, refreshed: &BTreeMap<Role, String>) -> Self {
        for (role, digest) in refreshed {
            let older = self.earlier.get_mut(role).into_iter().flat_map(BTreeMap::values_mut).flatten();
            older.for_each(|node| node.credentials_digest.clone_from(digest));
        }
        self
    }

    /// What runs, without what earlier rollouts did not complete. Of nodes of etcd and of controllers that may have older releases, only the
    /// older credentials remain.
    fn without_unfinished_work(&self) -> Self {
        let mut earlier = skew::Earlier::new();
        let roles = self.rendering.iter().flat_map(|rendering| &rendering.roles);
        for (role, node) in roles.filter(|(role, _)| is_control(role)) {
            let older = self.earlier.get(role).into_iter().flatten();
            let older = older.filter_map(|(id, before)| {
                let credentials_digest = before.as_ref()?.credentials_digest.clone();
                Some((id.clone(), Some(NodeRole { credentials_digest, ..node.clone() })))
            });
            earlier.insert(role.clone(), older.collect());
        }
        Self {
            rendering: self.running_release(),
            orphaned: BTreeSet::new(),
            unfinished: BTreeMap::new(),
            earlier,
            ..self.clone()
        }
    }

    /// What runs and belongs to the cluster; `None`: nothing was ever deployed.
    #[must_use]
    pub fn running_release(&self) -> Option<Rendering> {
        let mut runs = self.rendering.clone()?;
        runs.stacks.retain(|stack| !self.orphaned.contains(&stack.name));
        runs.roles
            .retain(|role, node| !self.orphaned.contains(&node.stack) && !self.joined.contains_key(role));
        Some(runs)
    }
}

impl Plan {
    /// The plan with what is known of renewed certificates. Facts about roles that it does not change are left out.
    #[must_use]
    pub fn with_renewal(mut self, known: &RenewalPlan) -> Self {
        let mut renewal =
            RenewalPlan { replaced: BTreeMap::new(), deadline: known.deadline.clone(), ..*known };
        for node in self.nodes.iter_mut().filter(|node| node.action == NodeAction::Refresh) {
            let is_in_place = self.left_behind.as_ref().is_some_and(|left| left.contains_key(&node.role));
            if let Some(why) = known.replaced.get(&node.role).filter(|_| !is_in_place) {
                node.action = NodeAction::Replace;
                node.reasons = vec![why.clone()];
                renewal.replaced.insert(node.role.clone(), why.clone());
            }
        }
        let renews = |role: &Role| {
            let mut nodes = self.nodes.iter().filter(|node| node.role == *role);
            nodes.any(|node| matches!(node.action, NodeAction::Refresh | NodeAction::Replace))
        };
        renewal.deadline.ends.retain(|role, _| renews(role));
        if !renewal.is_none() {
            // It is part of what a person approves.
            let text = serde_json::to_string(&renewal).expect("roles are written as text");
            self.id = sha256_hex(format!("{}\n{text}", self.id).as_bytes())[..20].to_owned();
            self.renewal = renewal;
        }
        self
    }

    /// Whether its policy asks for approval, as long as nothing is urgent.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        self.policy.approval == Approval::Manual
    }

    /// Whether it waits for approval at `now`. Only a plan that does nothing but bring credentials to etcd and controllers can begin
    /// without the approval that its policy asks for, so that no other change is executed along with it. A plan that changes nothing needs
    /// none: its rollout only looks whether the cluster serves.
    #[must_use]
    pub fn waits_for_approval(&self, now: Timestamp) -> bool {
        self.needs_approval() && !self.is_empty() && !(self.urgency(now).overrides() && self.is_renewal())
    }

    /// How soon the certificates on its nodes expire.
    #[must_use]
    pub fn urgency(&self, now: Timestamp) -> Urgency {
        self.renewal.deadline.urgency(|_| true, now)
    }

    /// From when on the plan ignores approval or windows, in words; `None`: never, or it waits for neither.
    pub(super) fn deadline_in_words(&self) -> Option<String> {
        let deadline = &self.renewal.deadline;
        let (ends, from) = (deadline.first(|_| true)?, deadline.urgent_from(|_| true)?);
        let approval = self.needs_approval() && self.is_renewal();
        let held = match (approval, self.policy.windows.is_empty()) {
            (true, false) => "neither an approval nor a maintenance window holds this up",
            (true, true) => "it begins without approval",
            (false, false) => "no maintenance window holds up etcd and the controllers",
            (false, true) if self.needs_approval() => {
                return Some(format!(
                    "certificates in use expire at {}: this plan changes more than them, so it waits for its approval, and from {} on a plan of its \
                     own renews what runs",
                    moment(ends),
                    moment(from)
                ));
            }
            (false, true) => return None,
        };
        let lead = in_days(SignedDuration::from_secs(deadline.lead_s));
        Some(format!(
            "certificates in use expire at {}: from {} on ({lead} before, rolloutBeforeExpiry.emergencyDays or what the slowest roll \
             takes) {held}",
            moment(ends),
            moment(from)
        ))
    }

    /// Whether it only brings other credentials to etcd members and controllers, which the spec that was rolled out last would have, too.
    #[must_use]
    pub fn is_renewal(&self) -> bool {
        let renews = |node: &super::NodePlan| {
            node.action == NodeAction::Refresh
                || node.action == NodeAction::Replace && self.renewal.replaced.contains_key(&node.role)
        };
        let nodes = |node: &super::NodePlan| {
            matches!(node.action, NodeAction::Untouched | NodeAction::Orphaned)
                || renews(node)
                || self.removes_joined(&node.role)
        };
        let stacks = |stack: &super::StackPlan| match stack.action {
            StackAction::Unchanged | StackAction::Orphaned | StackAction::Update => true,
            // One that was never created as a whole, or that no rollout needs any more.
            StackAction::Create | StackAction::Delete => false,
        };
        self.only_credentials
            && !self.renewal.of_another_spec
            && self.nodes.iter().any(renews)
            && self.nodes.iter().all(nodes)
            && self.stacks.iter().all(stacks)
            && self.membership.iter().all(|change| self.removes_joined(&change.member))
            && self.addons.is_empty()
            && self.minors.is_empty()
            && self.in_use.is_empty()
            && self.objections.is_empty()
    }
}
