//! What renewed certificates mean for a plan: which nodes are replaced, and when they must have the new certificates.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::cluster::Approval;
use slipway_core::deadline::{Deadline, Urgency, in_days};
use slipway_core::digest::sha256_hex;
use slipway_core::release::{Rendering, Stack};
use slipway_core::role::Role;
use slipway_core::words::moment;
use slipway_credentials::Manifest;

use super::{Baseline, NodeAction, Plan, StackAction};

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
    let renews = |role: &Role| matches!(role, Role::Etcd(_) | Role::Controller);
    let digests = new.roles.iter().filter(|(role, _)| renews(role));
    let digests = digests.map(|(role, node)| (role.clone(), node.credentials_digest.clone())).collect();
    let Some(runs) = baseline.runs() else { return false };
    if runs.roles.len() != new.roles.len() || runs.stacks.len() != new.stacks.len() {
        return false;
    }
    let renewed = runs.with_credentials(&digests);
    // Pools are in the order of the spec, or of their names.
    let is_same = |stack: &Stack| new.stack(&stack.name) == Some(stack);
    renewed.roles == new.roles && renewed.stacks.iter().all(is_same)
}

impl Baseline {
    /// What runs and belongs to the cluster; `None`: nothing was ever deployed.
    #[must_use]
    pub fn runs(&self) -> Option<Rendering> {
        let mut runs = self.rendering.clone()?;
        runs.stacks.retain(|stack| !self.orphaned.contains(&stack.name));
        runs.roles.retain(|_, node| !self.orphaned.contains(&node.stack));
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
            if let Some(why) = known.replaced.get(&node.role) {
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
            matches!(node.action, NodeAction::Untouched | NodeAction::Orphaned) || renews(node)
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
            && self.membership.is_empty()
            && self.addons.is_empty()
            && self.minors.is_empty()
            && self.in_use.is_empty()
            && self.objections.is_empty()
    }
}
