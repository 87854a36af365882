//! Groups and their machines: what is known of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::NodeFile;
use slipway_rollout::fleet::TemplateVersion;

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
    /// EC2 has no capacity for it (`InsufficientInstanceCapacity`).
    pub(crate) no_capacity: bool,
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
    /// Its kubelet speaks and can neither start nor stop pods, because the container runtime hangs.
    pub(crate) jammed: bool,
    /// Systems Manager does not reach its agent; everybody else does.
    pub(crate) unmanaged: bool,
    /// Systems Manager refuses commands to it meanwhile.
    pub(crate) unregistered: bool,
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
    pub(crate) targets: Vec<Target>,
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

/// The outcome of a machine's boot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate {
    /// It boots, slower than usual by this factor.
    Boots(f64),
    /// It never comes up.
    Dead,
    /// Its agent gives up.
    GivesUp,
}

/// A process of a group that can be suspended (`SuspendProcesses`; EC2 Auto Scaling user guide, "How suspended processes affect other
/// processes").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    /// No machine is launched, not even to replace a lost one.
    Launch,
    /// No machine is terminated for a scale-in or because it is unhealthy. A termination by id still works.
    Terminate,
    /// No unhealthy machine is replaced.
    ReplaceUnhealthy,
    /// Zones are not rebalanced.
    AzRebalance,
}

impl Process {
    /// As the API writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "Launch",
            Self::Terminate => "Terminate",
            Self::ReplaceUnhealthy => "ReplaceUnhealthy",
            Self::AzRebalance => "AZRebalance",
        }
    }
}

/// A machine in one target group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The ARN of the target group.
    pub(super) group: String,
    /// When it was registered.
    pub(super) registered_at: Timestamp,
    /// When its checks begin.
    pub(super) checked_from: Timestamp,
    /// How long it takes to pass the checks, and how long it may fail them.
    pub(super) passes_for: SignedDuration,
    pub(super) fails_for: SignedDuration,
    /// Whether its machine answers the checks, and since when.
    pub(super) answers: bool,
    pub(super) since: Timestamp,
    /// Its state at that time.
    pub(super) was: Health,
}

/// The result of a target's checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Initial,
    Healthy,
    Unhealthy,
}

/// A worker that was reported as unhealthy, and the facts at that moment. The node managers' own judgement is not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// When.
    pub at: Timestamp,
    /// The machine.
    pub machine: String,
    /// Its role.
    pub role: String,
    /// Since when its node was not Ready; `None`: it was Ready.
    pub unready_since: Option<Timestamp>,
    /// Whether somebody had cordoned its node.
    pub cordoned: bool,
    /// How many nodes of workers were not Ready.
    pub unready: usize,
    /// How many nodes of workers there were.
    pub all: usize,
    /// The machines of its role that were reported before, and are still being replaced.
    pub others: Vec<String>,
}

/// The names of the groups of one cluster whose role has this prefix.
pub(super) fn groups_of<'a>(
    groups: impl Iterator<Item = &'a Group>,
    cluster: &str,
    role: &str,
) -> BTreeSet<String> {
    let tag = |group: &Group, key: &str| group.tags.get(key).cloned().unwrap_or_default();
    groups
        .filter(|group| tag(group, "slipway:cluster") == cluster)
        .map(|group| tag(group, "slipway:role"))
        .filter(|found| found.starts_with(role))
        .collect()
}
