//! Why a cluster does not serve, although everything is rolled out.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipway_core::node::report::ComponentName;
use slipway_core::role::Role;

use super::words::Boots;
use super::{Boot, Detail};

/// A part of the cluster that does not serve.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Gap {
    /// No controller is in service that could be asked.
    NoController,
    /// A controller that was asked is not in service any more.
    Changed {
        /// `i-…`.
        machine: String,
    },
    /// A controller does not answer.
    Silent {
        /// `i-…`.
        machine: String,
        /// The reason, as far as is known.
        problem: Detail<String>,
    },
    /// The API server of a controller does not answer `/readyz`.
    ApiServer {
        /// `i-…`.
        machine: String,
        /// The reason, as far as is known.
        problem: Detail<Option<String>>,
    },
    /// Another component of a controller is not healthy.
    Component {
        /// `i-…`.
        machine: String,
        /// Which.
        component: ComponentName,
        /// The reason, as far as is known.
        problem: Detail<Option<String>>,
    },
    /// The node manager of a controller does not do all its work.
    NodeManager {
        /// `i-…`.
        machine: String,
        /// The reason, as far as is known.
        problem: Detail<Option<String>>,
    },
    /// No member of etcd serves.
    NoQuorum,
    /// A machine of etcd is in no list of its members.
    NoMember {
        /// Its role, which is the name of its member.
        member: String,
    },
    /// A member of etcd does not serve.
    Member {
        /// The member's name.
        member: String,
        /// The reason, as far as is known.
        problem: Detail<Option<String>>,
    },
    /// There is no such group.
    NoGroup {
        /// The group's name.
        group: String,
    },
    /// A group has fewer machines in service than it wants.
    Fewer {
        /// The role of its machines.
        role: Role,
        /// The capacity in service.
        serve: u32,
        /// The desired capacity.
        desired: u32,
        /// The booting machines.
        boots: Vec<Boot>,
    },
    /// Nodes of machines in service are missing or not Ready.
    Nodes {
        /// The role of the machines.
        role: Role,
        /// How many there should be.
        wanted: u32,
        /// How many are registered.
        registered: Detail<u32>,
        /// How many are Ready.
        ready: Detail<u32>,
        /// The first that are not.
        not_ready: Vec<String>,
        /// Why the first of them is not, as far as is known.
        why: Detail<Option<String>>,
    },
    /// The API servers are healthy, and did not list the Nodes.
    NodesUnknown,
}

/// The text for a part that gives no reason.
const SILENT: &str = "it does not say why";

fn why(problem: &Detail<Option<String>>) -> &str {
    problem.0.as_deref().unwrap_or(SILENT)
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoController => f.write_str("no controller is in service"),
            Self::Changed { machine } => write!(f, "{machine} is not in service any more"),
            Self::Silent { machine, problem } => {
                write!(f, "the controller {machine} does not answer: {problem}")
            }
            Self::ApiServer { machine, problem } => {
                write!(f, "the API server on {machine} is not ready: {}", why(problem))
            }
            Self::Component { machine, component, problem } => {
                write!(f, "{component} on {machine} is not healthy: {}", why(problem))
            }
            Self::NodeManager { machine, problem } => {
                write!(f, "the node manager on {machine} does not work: {}", why(problem))
            }
            Self::NoQuorum => f.write_str("no member of etcd serves"),
            Self::NoMember { member } => write!(f, "{member} is not a member of etcd"),
            Self::Member { member, problem } => {
                write!(f, "the member {member} of etcd does not serve: {}", why(problem))
            }
            Self::NoGroup { group } => write!(f, "there is no Auto Scaling group {group}"),
            Self::Fewer { role, serve, desired, boots } => {
                write!(f, "{role}: {serve} of {desired} wanted are in service: {}", Boots(boots))
            }
            Self::Nodes { role, wanted, registered, ready, not_ready, why } => {
                write!(
                    f,
                    "{role}: {ready} Nodes are Ready and {registered} registered, of {wanted} machines in service"
                )?;
                if !not_ready.is_empty() {
                    write!(f, "; not Ready: {}", not_ready.join(", "))?;
                }
                why.0.iter().try_for_each(|why| write!(f, " ({why})"))
            }
            Self::NodesUnknown => f.write_str("the API server does not list the Nodes"),
        }
    }
}
