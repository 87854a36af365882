//! Why a machine may not be taken down now.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipway_core::node::Word;
use slipway_core::node::report::ComponentName;
use slipway_core::role::Role;

use super::words::Boots;
use super::{Boot, Detail};

/// Why a member of etcd or a controller may not be taken down now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Danger {
    /// A member does not answer.
    SilentMember {
        /// The member.
        role: Role,
        /// The reason, as far as is known.
        problem: Detail<String>,
    },
    /// The only member does not answer.
    SilentEtcd {
        /// The member.
        role: Role,
        /// The reason, as far as is known.
        problem: Detail<String>,
    },
    /// A member has no vote yet.
    Learner(Role),
    /// A member answers, but does not serve.
    NotServing {
        /// The member.
        role: Role,
        /// The problems that it reports.
        problems: Detail<Vec<String>>,
    },
    /// A member lacks entries of the leader.
    Behind {
        /// The member.
        role: Role,
        /// How many entries.
        entries: Detail<u64>,
        /// The maximum.
        limit: u64,
    },
    /// A member knows no leader.
    NoLeader(Role),
    /// A member sees another membership.
    Membership {
        /// How many members it sees.
        has: usize,
        /// The expected number.
        expected: usize,
    },
    /// The membership has a learner.
    LearnerInMembership(String),
    /// A member cannot reach another.
    Unreachable {
        /// The member.
        role: Role,
        /// The other's name.
        member: String,
        /// The reason, as far as is known.
        problem: Detail<Option<String>>,
    },
    /// An alarm of etcd is raised.
    Alarm(String),
    /// Members belong to different clusters.
    TwoClusters,
    /// Without this member there would be no majority.
    NoneToSpare {
        /// The number of voters.
        voters: usize,
    },
    /// A controller does not answer.
    SilentController {
        /// `i-…`.
        machine: String,
        /// The reason, as far as is known.
        problem: Detail<String>,
    },
    /// A component of a controller is not healthy.
    Component {
        /// The component.
        name: Word<ComponentName>,
        /// `i-…`.
        machine: String,
        /// The reason, as far as is known.
        problem: Detail<Option<String>>,
    },
    /// A controller reports no API server.
    NoApiServer(String),
    /// Load balancers do not send requests to a controller.
    NoTarget {
        /// `i-…`.
        machine: String,
        /// The reason; `None` if the load balancers were not queried.
        why: Option<Detail<String>>,
    },
    /// Auto Scaling finds a machine unhealthy, and is about to replace it.
    ReplacedByOthers(String),
    /// Too few controllers are in service.
    TooFew {
        /// How many are in service.
        serve: usize,
        /// The expected number.
        size: u32,
        /// The booting controllers.
        boots: Vec<Boot>,
    },
    /// A group launches no machine in place of one that is terminated.
    CannotLaunch(String),
    /// A member leads, and has no machine in service that could hand over.
    LeadsOutOfService(Role),
    /// A controller of the older minor is still there.
    Lingers(String),
    /// A surplus controller that its group wants is not launched yet.
    StillToCome {
        /// The group.
        group: String,
        /// The desired capacity.
        desired: u32,
        /// The number of controllers in the spec.
        size: u32,
    },
}

/// The text for a component or a member that reports no reason.
const SILENT: &str = "it does not say why";

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SilentMember { role, problem } => write!(f, "{role} does not answer: {problem}"),
            Self::SilentEtcd { role, problem } => {
                write!(f, "{role}, the only member of etcd, does not answer: {problem}")
            }
            Self::Learner(role) => write!(f, "{role} is a learner, and has no vote yet"),
            Self::NotServing { role, problems } => {
                write!(f, "{role} does not serve: {}", problems.0.join(", "))
            }
            Self::Behind { role, entries: Detail(entries), limit } => {
                write!(f, "{role} has to catch up (raft index {entries} behind, limit {limit})")
            }
            Self::NoLeader(role) => write!(f, "{role} knows of no leader that answers"),
            Self::Membership { has, expected } => {
                write!(f, "the membership has {has} members, and the cluster {expected}")
            }
            Self::LearnerInMembership(name) => write!(f, "the membership has a learner, {name}"),
            Self::Unreachable { role, member, problem } => {
                write!(f, "{role} cannot reach {member}: {}", problem.0.as_deref().unwrap_or(SILENT))
            }
            Self::Alarm(kind) => write!(f, "the alarm {kind} is raised"),
            Self::TwoClusters => f.write_str("the members belong to different clusters"),
            Self::NoneToSpare { voters } => write!(f, "none of the {voters} members may be missing"),
            Self::SilentController { machine, problem } => {
                write!(f, "{machine} does not answer: {problem}")
            }
            Self::Component { name, machine, problem } => {
                write!(f, "{name} on {machine} is not healthy: {}", problem.0.as_deref().unwrap_or(SILENT))
            }
            Self::NoApiServer(machine) => write!(f, "{machine} reports no kube-apiserver"),
            Self::NoTarget { machine, why: Some(why) } => {
                write!(f, "{machine} is not a healthy target: {why}")
            }
            Self::NoTarget { machine, why: None } => {
                write!(f, "it is not known whether {machine} is a healthy target")
            }
            Self::ReplacedByOthers(machine) => {
                write!(f, "Auto Scaling finds {machine} unhealthy, and replaces it")
            }
            Self::TooFew { serve, size, boots } => {
                write!(f, "{serve} of {size} controllers are in service: {}", Boots(boots))
            }
            Self::CannotLaunch(group) => {
                write!(f, "{group} launches no machine, because its process Launch is suspended")
            }
            Self::LeadsOutOfService(role) => {
                write!(f, "{role} leads etcd, and its machine is not in service (Standby, for example)")
            }
            Self::Lingers(machine) => write!(f, "{machine}, of the older minor release, still runs"),
            Self::StillToCome { group, desired, size } => write!(
                f,
                "{group} wants {desired} machines, and the spec has {size}: a surplus machine is still to be launched, and is terminated then"
            ),
        }
    }
}
