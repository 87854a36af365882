//! What a renewal of certificates does to a plan: which nodes are replaced for it, and until when that may wait.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::cluster::Approval;
use slipway_core::deadline::{Deadline, Urgency, in_days};
use slipway_core::digest::sha256_hex;
use slipway_core::release::StackKind;
use slipway_core::role::Role;
use slipway_core::words::moment;
use slipway_credentials::Manifest;

use super::{Baseline, NodeAction, Plan, ResourceAction, StackAction};

/// What is known of renewed certificates when a plan is made: facts, and nothing that depends on when it is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewalPlan {
    /// Roles whose nodes are replaced although they could take their credentials in place, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<Role, String>,
    /// Until when what the nodes have is good.
    #[serde(default, skip_serializing_if = "Deadline::is_none")]
    pub deadline: Deadline,
}

impl RenewalPlan {
    pub(super) fn is_none(&self) -> bool {
        self.replaced.is_empty() && self.deadline.is_none()
    }
}

/// Until when the nodes of `baseline` are good, of each role that would have credentials that last longer: by what `manifest` knows of the
/// bundles that they were made for. `lead`: as [`slipway_core::deadline::Roll::lead`].
#[must_use]
pub fn deadline(baseline: &Baseline, manifest: &Manifest, lead: SignedDuration) -> Deadline {
    let standing = baseline.rendering.iter().flat_map(|rendering| &rendering.roles);
    let behind = baseline
        .behind
        .iter()
        .flat_map(|(role, releases)| releases.values().flatten().map(move |node| (role, node)));
    let mut ends: BTreeMap<Role, Timestamp> = BTreeMap::new();
    for (role, node) in standing.chain(behind) {
        let (Some(known), Some(bundle)) = (manifest.ends.get(role), manifest.bundles.get(role)) else {
            continue;
        };
        let (Some(end), after) = (known.get(&node.credentials_digest), known.get(&bundle.digest)) else {
            continue;
        };
        if after.is_some_and(|after| after > end) {
            let first = ends.entry(role.clone()).or_insert(*end);
            *first = (*first).min(*end);
        }
    }
    Deadline { ends, lead_s: lead.as_secs() }
}

impl Plan {
    /// This plan with what is known of renewed certificates. What does not concern it leaves it as it is.
    #[must_use]
    pub fn with_renewal(mut self, known: &RenewalPlan) -> Self {
        let mut renewal = RenewalPlan { deadline: known.deadline.clone(), ..RenewalPlan::default() };
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
            // Part of what a person approves.
            let text = serde_json::to_string(&renewal).expect("roles are written as text");
            self.id = sha256_hex(format!("{}\n{text}", self.id).as_bytes())[..20].to_owned();
            self.renewal = renewal;
        }
        self
    }

    /// Whether its policy has it wait for a person, as long as nothing is urgent.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        self.policy.approval == Approval::Manual
    }

    /// Whether it waits for a person at `now`. Only a plan that does nothing but bring credentials to etcd and controllers ever begins
    /// without the approval that its policy asks for, so that nothing else slips through with it.
    #[must_use]
    pub fn waits_for_approval(&self, now: Timestamp) -> bool {
        self.needs_approval() && !(self.urgency(now).overrides() && self.is_renewal())
    }

    /// How near the end of what its nodes have is.
    #[must_use]
    pub fn urgency(&self, now: Timestamp) -> Urgency {
        self.renewal.deadline.urgency(|_| true, now)
    }

    /// Until when it may wait, and for what it waits no longer from then on; `None`: it may wait as long as it likes, or waits for
    /// nothing.
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
                    "certificates in use expire at {}, and since this plan changes more than them, nothing but its approval renews them",
                    moment(ends)
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

    /// Whether it does nothing but bring other credentials to members of etcd and to controllers.
    #[must_use]
    pub fn is_renewal(&self) -> bool {
        let renews = |node: &super::NodePlan| {
            node.action == NodeAction::Refresh
                || node.action == NodeAction::Replace && self.renewal.replaced.contains_key(&node.role)
        };
        let nodes = |node: &super::NodePlan| {
            matches!(node.action, NodeAction::Untouched | NodeAction::Left) || renews(node)
        };
        let stacks = |stack: &super::StackPlan| match stack.action {
            StackAction::Unchanged | StackAction::Left => true,
            StackAction::Create | StackAction::Delete => false,
            StackAction::Update => {
                matches!(stack.kind, StackKind::Etcd | StackKind::ControlPlane)
                    && stack.other.is_empty()
                    && stack.resources.iter().all(|change| {
                        change.action == ResourceAction::Modify
                            && ["AWS::EC2::LaunchTemplate", "AWS::AutoScaling::AutoScalingGroup"]
                                .contains(&change.resource_type.as_str())
                    })
            }
        };
        self.nodes.iter().any(renews)
            && self.nodes.iter().all(nodes)
            && self.stacks.iter().all(stacks)
            && self.membership.is_empty()
            && self.addons.is_empty()
            && self.minors.is_empty()
            && self.in_use.is_empty()
            && self.objections.is_empty()
    }
}
