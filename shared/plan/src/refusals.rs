//! Reasons for which this version of Slipway shows a plan but does not execute it. When a later version can execute such plans safely,
//! remove the reason here and nowhere else.

use std::collections::BTreeSet;

use slipway_core::cluster::Approval;
use slipway_core::role::Role;

use super::exports::few;
use super::{ExportInUse, MembershipAction, Plan, UndrainedCause};

impl Plan {
    /// Why this version of Slipway does not execute the plan; `None`: it does.
    #[must_use]
    pub fn not_executable(&self) -> Option<String> {
        let why: Vec<String> = [self.objected(), self.members_at_risk(), self.still_used(), self.undrained()]
            .into_iter()
            .flatten()
            .collect();
        (!why.is_empty()).then(|| why.join(". And "))
    }

    fn objected(&self) -> Option<String> {
        let list = self.objections.join("; ");
        (!list.is_empty()).then(|| format!("it conflicts with what is deployed: {list}. Nothing is touched"))
    }

    /// CloudFormation would stop at the first of these and roll the stack back, while nodes use it.
    fn still_used(&self) -> Option<String> {
        let list = |removed: bool| -> Vec<String> {
            self.in_use.iter().filter(|export| export.removed == removed).map(ExportInUse::words).collect()
        };
        let mut why = Vec::new();
        for (words, list) in [("takes away", list(true)), ("replaces", list(false))] {
            if !list.is_empty() {
                why.push(format!("{words} what other stacks still use: {}", list.join(", ")));
            }
        }
        let mut steps = Vec::new();
        // No spec can change an orphaned stack.
        let orphaned: BTreeSet<&str> =
            self.in_use.iter().flat_map(|export| &export.orphaned).map(String::as_str).collect();
        if !orphaned.is_empty() {
            let which = if orphaned.len() == 1 { "the stack" } else { "the stacks" };
            let orphaned: Vec<&str> = orphaned.into_iter().collect();
            steps.push(format!(
                "No spec can change {which} {}, orphaned by an earlier rollout: delete {which}, then upload this spec again; Slipway does not \
                 retry it by itself",
                few(&orphaned)
            ));
        }
        if self.in_use.iter().any(|export| export.used_by.len() > export.orphaned.len()) {
            steps.push(
                "First upload a spec in which it stays and nothing uses it (a new subnet beside the old one, other `subnets` for nodes \
                 and load balancers, no restricted public endpoint beside a NAT gateway that is removed). After that rollout the nodes \
                 have moved, and pools that the spec no longer has are deleted: then remove it"
                    .to_owned(),
            );
        }
        (!why.is_empty()).then(|| {
            format!(
                "it {}. CloudFormation refuses that: nothing is touched. {}",
                why.join(", and "),
                steps.join(". ")
            )
        })
    }

    /// Moving several members is not executed. The stack of etcd is updated as a whole, so CloudFormation would delete the volumes of all
    /// moving members at once, while etcd still counts their votes (P4).
    ///
    /// Members that leave are removed from the membership one at a time before the stack is updated. Members that join may be launched in
    /// parallel, because etcd admits them one after the other: each asks to be added as a learner, only one learner is allowed at a time
    /// (`--max-learners` is 1 by default: etcd.io/docs, "Learner"), a learner is not part of the quorum, and it can be promoted only once
    /// it has caught up with the leader.
    fn members_at_risk(&self) -> Option<String> {
        let names = |action| -> Vec<String> {
            let changes = self.membership.iter().filter(|change| change.action == action);
            changes.map(|change| change.member.to_string()).collect()
        };
        let mut why = Vec::new();
        for (action, words) in [
            (MembershipAction::Replace, "replaces the data volumes of etcd members"),
            (MembershipAction::Readdress, "changes the addresses of etcd members"),
        ] {
            let names = names(action);
            if !names.is_empty() {
                why.push(format!("{words} ({})", names.join(", ")));
            }
        }
        (!why.is_empty()).then(|| {
            format!(
                "it {}, which must be done one member at a time through etcd itself. This version of Slipway cannot do that yet, and \
                 to update the stacks at once could cost the quorum: nothing is touched. Upload a spec that leaves these members as they are",
                why.join(", and ")
            )
        })
    }

    /// Terminations by Auto Scaling follow no order, so controllers must not be terminated that way. Lowering the maximum of a pool is an
    /// explicit request and is executed. That a pool which moves loses all nodes of a zone at once is not obvious from its spec, so a
    /// person has to approve it.
    fn undrained(&self) -> Option<String> {
        let problems = |controllers: bool, causes: &[UndrainedCause]| -> Vec<String> {
            let nodes = self.nodes.iter().filter(|node| (node.role == Role::Controller) == controllers);
            let found = nodes.filter(|node| node.undrained.iter().any(|one| causes.contains(&one.cause)));
            found.map(|node| node.role.to_string()).collect()
        };
        let mut why = Vec::new();
        if !problems(true, &[UndrainedCause::LowerMaximum]).is_empty() {
            why.push(
                "Auto Scaling would terminate controllers at once, because the spec removes more than one: nothing is touched. Upload \
                 a spec with one controller fewer, and the next when that is rolled out"
                    .to_owned(),
            );
        }
        if !problems(true, &[UndrainedCause::LeavesSubnets]).is_empty() {
            why.push(
                "Auto Scaling would terminate controllers at once, since their group leaves subnets, and this version of Slipway cannot \
                 take them out of there one at a time: nothing is touched. Upload a spec that leaves the controllers' subnets as they are"
                    .to_owned(),
            );
        }
        let pools = problems(false, &[UndrainedCause::LeavesSubnets]);
        if !pools.is_empty() && self.policy.approval == Approval::Auto {
            let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
            why.push(format!(
                "Auto Scaling would terminate all nodes in the subnets that {} would leave, at once and undrained, and no person would have \
                 approved that: nothing is touched. Move what runs there to another pool first, or write `rollout: {{approval: manual}}` and \
                 approve the plan",
                few(&pools)
            ));
        }
        (!why.is_empty()).then(|| why.join(". And "))
    }
}
