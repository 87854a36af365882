//! What is due at some time.

/// Something that is due at some time.
#[derive(Debug, Clone)]
pub(super) enum Task {
    ChangeSetBegins {
        stack: String,
        id: String,
    },
    ChangeSetMade {
        stack: String,
        id: String,
    },
    /// An operation starts its first steps.
    Pump {
        stack: String,
        operation: u64,
    },
    /// The creation of a resource was requested; the resource now has an id.
    Initiated {
        stack: String,
        operation: u64,
        step: String,
    },
    /// A step has ended.
    Finished {
        stack: String,
        operation: u64,
        step: String,
    },
    /// A drift detection ends.
    DriftDetected {
        detection: String,
    },
    /// An event of machines.
    Fleet(FleetTask),
    /// An event of a cluster.
    Cluster(ClusterTask),
    /// An event of a command.
    Command(CommandTask),
    /// A schedule fires.
    Fire {
        group: String,
        name: String,
        made: u64,
    },
}

impl Task {
    /// Whether it is about a stack or a change set.
    pub(super) fn is_a_stacks(&self) -> bool {
        match self {
            Self::ChangeSetBegins { .. }
            | Self::ChangeSetMade { .. }
            | Self::Pump { .. }
            | Self::Initiated { .. }
            | Self::Finished { .. } => true,
            Self::DriftDetected { .. }
            | Self::Fleet(_)
            | Self::Cluster(_)
            | Self::Command(_)
            | Self::Fire { .. } => false,
        }
    }
}

/// An event in a cluster that is due at some time.
#[derive(Debug, Clone)]
pub(crate) enum ClusterTask {
    /// A member of etcd may have caught up.
    EtcdSettles { cluster: String },
    /// A member's process is back after a restart.
    EtcdReturns { machine: String },
    /// A pod's containers are ready.
    PodReady { cluster: String, pod: String },
    /// A pod has stopped.
    PodGone { cluster: String, pod: String },
    /// A person uncordons a node.
    Uncordoned { cluster: String, node: String },
}

/// An event of a command that is due at some time. The number is the command's place among all commands.
#[derive(Debug, Clone)]
pub(crate) enum CommandTask {
    /// The machine receives it.
    Taken(usize),
    /// Its delivery has timed out.
    DeliveryOver(usize),
    /// Its execution has timed out.
    ExecutionOver(usize),
    /// It ends.
    Ends(usize),
    /// The next round of a drain.
    DrainLooks(usize),
    /// The machine has stopped the cancelled command.
    Stopped(usize),
    /// The total time for delivery and execution is over.
    Over(usize),
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
    /// The container runtime of a machine works again.
    Unjams { machine: String },
    /// A partition that only some observe has ended.
    Reconnects { machine: String },
    /// The agent of a machine in its terminate hook has stopped the machine's programs.
    Leaves { machine: String },
    /// The node of a machine that is silent or jammed becomes `NotReady`.
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
            | Self::Unjams { machine }
            | Self::Reconnects { machine }
            | Self::Leaves { machine }
            | Self::NotReady { machine }
            | Self::Reclaims { machine }
            | Self::Restarted { machine } => machine,
            Self::Autoscales | Self::Repairs => "",
        }
    }
}
