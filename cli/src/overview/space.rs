//! The room of etcd's databases, by the last reports of the members.

use slipway_core::node::space::{self, InWords, SpaceProblem};

use super::findings::{Finding, Gravity, finding};
use super::nodes::{Node, NodeState};
use super::words::plain;

/// The gravest problem with the room, with the next command.
pub(super) fn of_etcd(cluster: &str, nodes: &[Node]) -> Option<Finding> {
    let members = nodes.iter().filter(|node| node.standing == NodeState::Up);
    let members = members.filter_map(|node| Some((node, node.status.as_ref()?.etcd_space?)));
    let (node, space, problem) = space::gravest(members)?;
    let gravity = match problem {
        SpaceProblem::Fragmented => Gravity::Notice,
        SpaceProblem::NearQuota | SpaceProblem::Full => Gravity::Wrong,
    };
    let member = plain(&node.role);
    let words = InWords { member: &member, space, problem };
    Some(finding(gravity, "etcd", words.to_string(), words.help(cluster)))
}
