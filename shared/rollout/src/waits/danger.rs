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
        /// Which.
        role: Role,
        /// Why, as far as is known.
        problem: Detail<String>,
    },
    /// The only member does not answer.
    SilentEtcd {
        /// Which.
        role: Role,
        /// Why, as far as is known.
        problem: Detail<String>,
    },
    /// A member has no vote yet.
    Learner(Role),
    /// A member answers, and does not serve.
    NotServing {
        /// Which.
        role: Role,
        /// What it says of that.
        problems: Detail<Vec<String>>,
    },
    /// A member lacks entries that the leader has.
    Behind {
        /// Which.
        role: Role,
        /// How many.
        entries: Detail<u64>,
        /// How many it may lack.
        limit: u64,
    },
    /// A member knows of no leader.
    NoLeader(Role),
    /// A member sees another membership.
    Membership {
        /// How many members it sees.
        has: usize,
        /// How many there are to be.
        expected: usize,
    },
    /// The membership has a learner.
    LearnerInMembership(String),
    /// A member cannot reach another.
    Unreachable {
        /// Which.
        role: Role,
        /// The other's name.
        member: String,
        /// Why, as far as is known.
        problem: Detail<Option<String>>,
    },
    /// An alarm of etcd is raised.
    Alarm(String),
    /// Members are not of one cluster.
    TwoClusters,
    /// Without one there would be no majority.
    NoneToSpare {
        /// How many voters there are.
        voters: usize,
    },
    /// A controller does not answer.
    SilentController {
        /// `i-…`.
        machine: String,
        /// Why, as far as is known.
        problem: Detail<String>,
    },
    /// A component of a controller is not well.
    Component {
        /// Which.
        name: Word<ComponentName>,
        /// `i-…`.
        machine: String,
        /// Why, as far as is known.
        problem: Detail<Option<String>>,
    },
    /// A controller tells of no API server.
    NoApiServer(String),
    /// Load balancers do not send requests to a controller.
    NoTarget {
        /// `i-…`.
        machine: String,
        /// Why; `None`: nobody asked them.
        why: Option<Detail<String>>,
    },
    /// Fewer controllers serve than there are to be.
    TooFew {
        /// How many serve.
        serve: usize,
        /// How many there are to be.
        size: u32,
        /// Those that boot.
        boots: Vec<Boot>,
    },
    /// A controller of the older minor is still there.
    Lingers(String),
    /// A controller too many that its group wants has not come yet.
    StillToCome {
        /// The group.
        group: String,
        /// How many it wants.
        desired: u32,
        /// How many there are to be.
        size: u32,
    },
}

/// What a component or a member says that does not say why.
const SILENT: &str = "it does not say why";

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SilentMember { role, problem } => write!(f, "{role} does not answer: {problem}"),
            Self::SilentEtcd { role, problem } => {
                write!(f, "{role}, which is all of etcd, does not answer: {problem}")
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
            Self::TwoClusters => f.write_str("the members are not of one cluster"),
            Self::NoneToSpare { voters } => write!(f, "of {voters} members none can be spared"),
            Self::SilentController { machine, problem } => {
                write!(f, "{machine} does not answer: {problem}")
            }
            Self::Component { name, machine, problem } => {
                write!(f, "{name} on {machine} is not well: {}", problem.0.as_deref().unwrap_or(SILENT))
            }
            Self::NoApiServer(machine) => write!(f, "{machine} tells of no kube-apiserver"),
            Self::NoTarget { machine, why: Some(why) } => {
                write!(f, "{machine} is not a healthy target: {why}")
            }
            Self::NoTarget { machine, why: None } => {
                write!(f, "whether {machine} is a healthy target is not known")
            }
            Self::TooFew { serve, size, boots } => {
                write!(f, "{serve} of {size} controllers are in service: {}", Boots(boots))
            }
            Self::Lingers(machine) => write!(f, "{machine}, of the older minor, is still there"),
            Self::StillToCome { group, desired, size } => write!(
                f,
                "{group} wants {desired} machines, and there are to be {size}: one more is still to come, and goes then"
            ),
        }
    }
}
