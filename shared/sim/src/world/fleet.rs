//! Auto Scaling and the machines that it launches.
//!
//! Groups are created from the templates that CloudFormation applies (`made`). They keep the desired number of machines
//! (`scaling`), and hold machines in lifecycle hooks (`hooks`) until the machine's agent (`boot`), or whoever drains the machine,
//! completes the hook. `api` has the actions that others may call.

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
mod repairs;
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
pub use repairs::{Repairers, Reported};
pub(crate) use shown::{ShownGroup, ShownMachine};
pub(crate) use targets::ShownTarget;
pub use view::{GroupFacts, MachineFacts};

use super::cluster::Cluster;
use super::commands::{Delegated, Sent};

/// The state of everything outside of CloudFormation itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    /// The content of each version of each launch template (`LaunchTemplateData`).
    pub(super) templates: BTreeMap<String, BTreeMap<u64, Value>>,
    /// By name.
    pub(super) groups: BTreeMap<String, Group>,
    /// By id; machines that are gone are not included.
    pub(super) machines: BTreeMap<String, Machine>,
    /// The programs on the machines, by the cluster's name.
    pub(super) clusters: BTreeMap<String, Cluster>,
    /// Run Command's commands, in the order in which they were sent.
    pub(super) commands: Vec<Sent>,
    /// Records that members of etcd have written to hosted zones, by zone and name. No stack knows of them.
    pub(super) records: BTreeSet<(String, String)>,
    /// Roles whose machines get their commands executed by somebody outside of this world, and the commands that were not fetched
    /// yet.
    pub(super) outside: BTreeSet<String>,
    pub(super) delegated: Vec<Delegated>,
    /// Nothing happens to machines by itself: see `outside`.
    pub(super) others_run_machines: bool,
    pub(super) faults: FleetFaults,
    pub(super) autoscaler: Option<autoscaler::Autoscaler>,
    /// How node managers have workers replaced that are not Ready; `None`: they do not.
    pub(super) repairers: Option<Repairers>,
    /// How many pods of workloads fit on a worker's node; `None`: any number.
    pub(super) room: Option<usize>,
    /// How many of the next workers that are cordoned a person uncordons.
    pub(super) uncordons: usize,
    /// Whether somebody releases the machines of groups that are deleted.
    pub(super) lets_go: bool,
    /// The planned fates of the next machines of a group.
    pub(super) fates: BTreeMap<String, VecDeque<Fate>>,
    /// The number of machines that were launched, so that each gets an id of its own.
    pub(super) launched: u64,
    /// Earlier states of groups, newest last, for answers that are late.
    pub(super) past: BTreeMap<String, VecDeque<(Timestamp, ShownGroup)>>,
    /// The bootstrap reports of agents, with the cluster's name.
    pub(super) reports: Vec<(String, BootstrapReport)>,
    /// What happened, one line per event.
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
    /// The number of capacity units per machine of each instance type, in the order of the types. If empty, each machine counts for
    /// one.
    pub(crate) weights: Vec<u32>,
    /// The zones of its subnets, in their order.
    pub(crate) zones: Vec<String>,
    pub(crate) launch_hook: Option<Hook>,
    pub(crate) terminate_hook: Option<Hook>,
    /// Whether it retains a machine whose terminate hook ends with `ABANDON`.
    pub(crate) retains: bool,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) created_at: Timestamp,
    /// A machine that was launched before the machine that it replaces is terminated.
    pub(crate) ahead: Option<Ahead>,
    /// A rebalancing of its zones is about to begin.
    pub(crate) rebalances: bool,
    /// Whether it replaces Spot machines that are likely to be interrupted (`CapacityRebalance`).
    pub(crate) replaces_spot: bool,
    /// The processes that are suspended.
    pub(crate) suspended: BTreeSet<Process>,
    /// The ARNs of the target groups in which it registers its machines.
    pub(crate) target_groups: BTreeSet<String>,
}

impl Group {
    /// The largest weight of its instance types.
    pub(crate) fn heaviest(&self) -> u32 {
        self.weights.iter().copied().max().unwrap_or(1)
    }
}

/// A machine that a group launches beyond its desired capacity, and the machine that is terminated when the new one is in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) comes: String,
    /// `None`: the oldest machine in the zone with the most machines.
    pub(crate) goes: Option<String>,
}

/// A lifecycle hook of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) name: String,
    /// The timeout in seconds after a heartbeat.
    pub(crate) heartbeat_s: u32,
    /// The result if nobody completes the hook.
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
    /// The number of capacity units that it counts for.
    pub(crate) weight: u32,
    pub(crate) template: Option<TemplateVersion>,
    /// The tags of its launch template.
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) launched_at: Timestamp,
    pub(crate) state: State,
    /// When its termination began.
    pub(crate) left_at: Option<Timestamp>,
    /// The result of EC2's status checks.
    pub(crate) healthy: bool,
    pub(crate) power: Power,
    /// The content of its user data; `None` if it is not a machine of Slipway.
    pub(crate) node: Option<NodeFile>,
    /// Digest of the credentials in use.
    pub(crate) credentials: String,
    /// Its agent has completed the bootstrap.
    pub(crate) ready: bool,
    /// Whether it has its files from S3 and its credentials from KMS.
    pub(crate) fetch: Fetch,
    /// When its programs have started.
    pub(crate) starts: Option<Timestamp>,
    /// Its programs are being restarted until then.
    pub(crate) restarting: Option<Timestamp>,
    /// Its certificates have expired.
    pub(crate) expired: bool,
    /// The client certificate of its kubelet has expired.
    pub(crate) locked_out: bool,
    /// It is up, but nothing on it answers: it hangs, or its network has failed.
    pub(crate) silent: bool,
    /// Systems Manager does not reach its agent; everybody else does.
    pub(crate) unmanaged: bool,
    /// Somebody terminated it by its id; `false`: if it is terminated, Auto Scaling has chosen it.
    pub(crate) asked_to_go: bool,
    /// It is protected from scale-in.
    pub(crate) protected: bool,
    /// EC2 has announced that it interrupts it.
    pub(crate) interrupted: bool,
    pub(crate) waits: Option<Waits>,
    pub(crate) fate: Fate,
    /// Whether it answers health checks, where machines outside of this world are used.
    pub(crate) answers: bool,
    /// Its state in the target groups of its group.
    pub(crate) targets: Vec<targets::Target>,
}

/// Whether a machine has its files from S3 and its credentials from KMS, which it needs before it can join its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// It has not requested them yet.
    Unasked,
    /// Its requests have failed since then, and it retries.
    RefusedSince(Timestamp),
    /// It has everything.
    Done,
}

/// The hook in which a machine waits.
#[derive(Debug, Clone)]
pub(crate) struct Waits {
    pub(crate) hook: Hook,
    pub(crate) since: Timestamp,
    /// When the hook ends without a call.
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

    /// Whether the group counts the machine.
    pub(crate) fn counts(self) -> bool {
        match self {
            Self::Pending | Self::PendingWait | Self::PendingProceed | Self::InService => true,
            Self::TerminatingWait | Self::TerminatingProceed | Self::TerminatingRetained => false,
        }
    }
}

/// Whether a machine is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Power {
    /// EC2 has launched it, but nothing on it can be reached yet.
    Starting,
    /// It runs, and is registered in Systems Manager.
    Up,
    /// It has stopped.
    Down,
}

/// An event of a group or machine that is due at some time.
#[derive(Debug, Clone)]
pub(crate) enum FleetTask {
    /// A group compares its machines with its desired capacity.
    Reconcile { group: String },
    /// The system of a machine has booted.
    Boots { machine: String },
    /// The agent of a machine checks whether it can continue.
    Bootstraps { machine: String },
    /// The timeout of a hook may be over.
    HookEnds { machine: String, token: String },
    /// A machine is in service after its launch hook.
    InService { machine: String },
    /// A machine that is being terminated stops.
    Stops { machine: String },
    /// The machine is gone.
    Gone { machine: String },
    /// Auto Scaling learns that a machine is dead.
    Unhealthy { machine: String },
    /// Auto Scaling replaces an unhealthy machine.
    Replaces { machine: String },
    /// A group whose zones are out of balance rebalances them.
    Rebalances { group: String },
    /// The two minutes after the notice of a Spot machine are over.
    Reclaimed { machine: String },
    /// A silent machine answers again.
    Speaks { machine: String },
    /// A partition that only some observe has ended.
    Reconnects { machine: String },
    /// The agent of a machine in its terminate hook has stopped the machine's programs.
    Leaves { machine: String },
    /// The node of a silent machine becomes `NotReady`.
    NotReady { machine: String },
    /// The programs that were restarted on a machine answer.
    Restarted { machine: String },
    /// EC2 reclaims a machine that it recommended replacing.
    Reclaims { machine: String },
    /// A loop of the cluster autoscaler.
    Autoscales,
    /// The node managers look at the workers.
    Repairs,
}

impl FleetTask {
    /// The group or the machine of the event; empty if there is none.
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
            | Self::Replaces { machine }
            | Self::Reclaimed { machine }
            | Self::Speaks { machine }
            | Self::Reconnects { machine }
            | Self::Leaves { machine }
            | Self::NotReady { machine }
            | Self::Reclaims { machine }
            | Self::Restarted { machine } => machine,
            Self::Autoscales | Self::Repairs => "",
        }
    }
}

impl Machine {
    /// The cluster's name, if it is the machine of a cluster: `prod`.
    pub(crate) fn cluster(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.cluster.as_str())
    }

    /// `etcd-0`, `controller`, `pool-general`, …; empty if it belongs to no cluster.
    pub(crate) fn role(&self) -> &str {
        self.node.as_ref().map_or("", |node| node.role.as_str())
    }
}
