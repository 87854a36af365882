//! What a renewal of certificates does to a plan: which nodes are replaced for it, and whether it may wait.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{NodeAction, Plan, ResourceAction, StackAction};
use crate::digest::sha256_hex;
use crate::pki::Role;
use crate::render::StackKind;

/// What is known of renewed certificates when a plan is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewalPlan {
    /// Roles whose nodes are replaced although they could take their credentials in place, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<Role, String>,
    /// Why it waits for neither approval nor a maintenance window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgent: Option<String>,
}

impl RenewalPlan {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Plan {
    /// This plan with what is known of renewed certificates. What does not concern it leaves it as it is: only a plan that does
    /// nothing but bring credentials to etcd and controllers is ever urgent, so that nothing else slips through with it.
    #[must_use]
    pub fn with_renewal(mut self, known: &RenewalPlan) -> Self {
        let mut renewal = RenewalPlan {
            urgent: known.urgent.clone().filter(|_| self.is_renewal()),
            ..RenewalPlan::default()
        };
        for node in self.nodes.iter_mut().filter(|node| node.action == NodeAction::Refresh) {
            if let Some(why) = known.replaced.get(&node.role) {
                node.action = NodeAction::Replace;
                node.reasons = vec![why.clone()];
                renewal.replaced.insert(node.role.clone(), why.clone());
            }
        }
        if !renewal.is_none() {
            // Part of what a person approves.
            let text = serde_json::to_string(&renewal).expect("roles are written as text");
            self.id = sha256_hex(format!("{}\n{text}", self.id).as_bytes())[..20].to_owned();
            self.renewal = renewal;
        }
        self
    }

    /// Whether it waits for a person.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        self.policy.approval == crate::cluster::Approval::Manual && self.renewal.urgent.is_none()
    }

    /// Whether it does nothing but bring other credentials to members of etcd and to controllers.
    fn is_renewal(&self) -> bool {
        let nodes = |node: &super::NodePlan| {
            matches!(node.action, NodeAction::Untouched | NodeAction::Left | NodeAction::Refresh)
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
        let refreshed = self.nodes.iter().any(|node| node.action == NodeAction::Refresh);
        refreshed
            && self.nodes.iter().all(nodes)
            && self.stacks.iter().all(stacks)
            && self.membership.is_empty()
            && self.addons.is_empty()
            && self.minors.is_empty()
            && self.in_use.is_empty()
            && self.objections.is_empty()
    }
}
