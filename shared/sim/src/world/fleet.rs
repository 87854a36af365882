//! Auto Scaling and the machines that it launches.
//!
//! Groups come to be from the templates that CloudFormation applies (`made`), keep as many machines as they want (`scaling`), and
//! hold them in their lifecycle hooks (`hooks`) until the machine's agent (`boot`), or whoever drains it, speaks for them. `api` is
//! what others may ask.

mod api;
mod autoscaler;
mod boot;
mod events;
mod faults;
mod hooks;
mod leave;
mod made;
mod others;
mod outside;
mod partitions;
mod scaling;
mod shown;
mod silence;
mod targets;
mod userdata;
mod view;
mod zones;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use serde_json::Value;
use slipway_core::node::{BootstrapReport, NodeFile};
use slipway_rollout::fleet::TemplateVersion;

pub(crate) use api::Termination;
pub use faults::{Fate, FleetFaults};
pub(super) use made::groups_of;
pub use others::Process;
pub use outside::Launch;
pub(crate) use shown::{ShownGroup, ShownMachine};
pub(crate) use targets::ShownTarget;
pub use view::{GroupFacts, MachineFacts};

use super::cluster::Cluster;
use super::commands::{Delegated, Sent};

/// All that is beyond CloudFormation's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    /// What each version of each launch template holds (`LaunchTemplateData`).
    pub(super) templates: BTreeMap<String, BTreeMap<u64, Value>>,
    /// By name.
    pub(super) groups: BTreeMap<String, Group>,
    /// By id; those that are gone are not here.
    pub(super) machines: BTreeMap<String, Machine>,
    /// What runs on the machines, by the cluster's name.
    pub(super) clusters: BTreeMap<String, Cluster>,
    /// Run Command's commands, in the order in which they were sent.
    pub(super) commands: Vec<Sent>,
    /// Names that members of etcd have set in hosted zones, by zone and name: no stack knows of them.
    pub(super) records: BTreeSet<(String, String)>,
    /// Roles whose machines are commanded by somebody outside of this world, and what they have not fetched yet.
    pub(super) outside: BTreeSet<String>,
    pub(super) delegated: Vec<Delegated>,
    /// Nothing happens to machines by itself: see `outside`.
    pub(super) others_run_machines: bool,
    pub(super) faults: FleetFaults,
    pub(super) autoscaler: Option<autoscaler::Autoscaler>,
    /// How many pods of workloads fit on a worker's node; `None`: any number.
    pub(super) room: Option<usize>,
    /// Somebody lets the machines of groups go that are deleted.
    pub(super) lets_go: bool,
    /// What was said of the next machines of a group.
    pub(super) fates: BTreeMap<String, VecDeque<Fate>>,
    /// Counts machines, so that each has an id of its own.
    pub(super) launched: u64,
    /// What groups were like, newest last, for answers that are behind.
    pub(super) past: BTreeMap<String, VecDeque<(Timestamp, ShownGroup)>>,
    /// What agents told of their bootstrap, with the cluster's name.
    pub(super) reports: Vec<(String, BootstrapReport)>,
    /// What happened, a line each.
    pub(super) story: Vec<(Timestamp, String)>,
}

/// An Auto Scaling group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) desired: u32,
    pub(crate) template: Option<TemplateVersion>,
    /// How many units of capacity one machine of each instance type counts for, in the order of the types; empty: each machine counts for
    /// one.
    pub(crate) weights: Vec<u32>,
    /// Of its subnets, in their order.
    pub(crate) zones: Vec<String>,
    pub(crate) launch_hook: Option<Hook>,
    pub(crate) terminate_hook: Option<Hook>,
    /// Whether one whose terminate hook ends by `ABANDON` is kept.
    pub(crate) retains: bool,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) created_at: Timestamp,
    /// A machine that was launched before the one goes whose place it takes.
    pub(crate) ahead: Option<Ahead>,
    /// A rebalancing of its zones is about to begin.
    pub(crate) rebalances: bool,
    /// Whether it replaces Spot machines that are likely to be interrupted (`CapacityRebalance`).
    pub(crate) replaces_spot: bool,
    /// Processes that somebody has suspended.
    pub(crate) suspended: BTreeSet<Process>,
    /// Where it registers its machines, by their ARNs.
    pub(crate) target_groups: BTreeSet<String>,
}

impl Group {
    /// The largest number of units that one of its machines counts for.
    pub(crate) fn heaviest(&self) -> u32 {
        self.weights.iter().copied().max().unwrap_or(1)
    }
}

/// A machine that a group launches beyond its desired capacity, and what goes once it is in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) comes: String,
    /// `None`: the oldest of the zone that has most.
    pub(crate) goes: Option<String>,
}

/// A lifecycle hook of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) name: String,
    /// Seconds that it waits after a heartbeat.
    pub(crate) heartbeat_s: u32,
    /// What follows if nobody says.
    pub(crate) default: HookResult,
}

/// How a hook ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookResult {
    Continue,
    Abandon,
}

/// A machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) group: String,
    pub(crate) zone: String,
    /// How many units of its group's capacity it counts for.
    pub(crate) weight: u32,
    pub(crate) template: Option<TemplateVersion>,
    /// As its launch template gives them.
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) launched_at: Timestamp,
    pub(crate) state: State,
    /// When it was told to go.
    pub(crate) left_at: Option<Timestamp>,
    /// EC2's opinion.
    pub(crate) healthy: bool,
    pub(crate) power: Power,
    /// What its userdata says; `None`: nothing of Slipway's.
    pub(crate) node: Option<NodeFile>,
    /// Digest of the credentials that are in force.
    pub(crate) credentials: String,
    /// Its agent has finished.
    pub(crate) ready: bool,
    /// Whether it has what it needs from S3 and KMS.
    pub(crate) fetch: Fetch,
    /// When what runs on it has started.
    pub(crate) starts: Option<Timestamp>,
    /// What runs on it is started again until then.
    pub(crate) restarting: Option<Timestamp>,
    /// The certificates that it has have expired.
    pub(crate) expired: bool,
    /// Its kubelet's own certificate has.
    pub(crate) locked_out: bool,
    /// It is up, but nothing on it answers: it hangs, or its network is gone.
    pub(crate) silent: bool,
    /// Systems Manager does not reach its agent; all else does.
    pub(crate) unmanaged: bool,
    /// Somebody asked for its end by name; `false`: if it goes, Auto Scaling has chosen it.
    pub(crate) asked_to_go: bool,
    /// A scale-in does not choose it.
    pub(crate) protected: bool,
    pub(crate) waits: Option<Waits>,
    pub(crate) fate: Fate,
    /// Whether it answers health checks, where somebody else runs the machines.
    pub(crate) answers: bool,
    /// What it is in the target groups of its group.
    pub(crate) targets: Vec<targets::Target>,
}

/// How far a machine is with what it needs from S3 and KMS before it can join its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// It has not asked yet.
    Unasked,
    /// It has been refused since then, and tries again.
    RefusedSince(Timestamp),
    /// It has everything.
    Done,
}

/// A hook that waits.
#[derive(Debug, Clone)]
pub(crate) struct Waits {
    pub(crate) hook: Hook,
    pub(crate) since: Timestamp,
    /// When it ends by itself.
    pub(crate) deadline: Timestamp,
    pub(crate) token: String,
}

/// `LifecycleState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Pending,
    PendingWait,
    PendingProceed,
    InService,
    TerminatingWait,
    TerminatingProceed,
    TerminatingRetained,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::PendingWait => "Pending:Wait",
            Self::PendingProceed => "Pending:Proceed",
            Self::InService => "InService",
            Self::TerminatingWait => "Terminating:Wait",
            Self::TerminatingProceed => "Terminating:Proceed",
            Self::TerminatingRetained => "Terminating:Retained",
        }
    }

    /// Whether the group counts it.
    pub(crate) fn counts(self) -> bool {
        match self {
            Self::Pending | Self::PendingWait | Self::PendingProceed | Self::InService => true,
            Self::TerminatingWait | Self::TerminatingProceed | Self::TerminatingRetained => false,
        }
    }
}

/// Whether a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Power {
    /// EC2 has it; nothing of it can be reached.
    Starting,
    /// It runs, and Systems Manager knows it.
    Up,
    /// It runs no more.
    Down,
}

/// Something that happens to machines at a time.
#[derive(Debug, Clone)]
pub(crate) enum FleetTask {
    /// A group looks whether it has as many machines as it wants.
    Reconcile { group: String },
    /// A machine's system is up.
    Boots { machine: String },
    /// Its agent looks whether it can go on.
    Bootstraps { machine: String },
    /// A hook may have waited long enough.
    HookEnds { machine: String, token: String },
    /// A launch goes on after its hook.
    InService { machine: String },
    /// A machine that is terminated stops.
    Stops { machine: String },
    /// It is gone.
    Gone { machine: String },
    /// Auto Scaling learns that a machine is dead.
    Unhealthy { machine: String },
    /// A group whose zones are out of balance does something about it.
    Rebalances { group: String },
    /// A Spot machine's two minutes are over.
    Reclaimed { machine: String },
    /// A silent machine answers again.
    Speaks { machine: String },
    /// A partition that only some saw is over.
    Reconnects { machine: String },
    /// The agent of a machine that is to go has stopped what runs on it.
    Leaves { machine: String },
    /// The API servers take a silent machine's node for `NotReady`.
    NotReady { machine: String },
    /// What was started again on a machine answers.
    Restarted { machine: String },
    /// EC2 needs a machine back that it recommended to replace.
    Reclaims { machine: String },
    /// The cluster autoscaler looks.
    Autoscales,
}

impl FleetTask {
    /// The group or the machine that it is about; empty: none.
    pub(super) fn about(&self) -> &str {
        match self {
            Self::Reconcile { group } | Self::Rebalances { group } => group,
            Self::Boots { machine }
            | Self::Bootstraps { machine }
            | Self::HookEnds { machine, .. }
            | Self::InService { machine }
            | Self::Stops { machine }
            | Self::Gone { machine }
            | Self::Unhealthy { machine }
            | Self::Reclaimed { machine }
            | Self::Speaks { machine }
            | Self::Reconnects { machine }
            | Self::Leaves { machine }
            | Self::NotReady { machine }
            | Self::Reclaims { machine }
            | Self::Restarted { machine } => machine,
            Self::Autoscales => "",
        }
    }
}

impl Machine {
    /// `prod`, if it is a cluster's.
    pub(crate) fn cluster(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.cluster.as_str())
    }

    /// `etcd-0`, `controller`, `pool-general`, …; empty if it is nobody's.
    pub(crate) fn role(&self) -> &str {
        self.node.as_ref().map_or("", |node| node.role.as_str())
    }
}
