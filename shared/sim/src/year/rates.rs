//! How likely AWS and other users do things that a rollout does not expect: all rates in one table.

use std::str::FromStr;

/// Something that AWS or another user does to a world, in addition to the faults of machines and commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// An abandoned launch passes through the terminate hook; a share of all abandoned launches.
    AbandonedHooks,
    /// An answer of Auto Scaling is some seconds old.
    StaleGroups,
    /// Zones that are out of balance are rebalanced; a share of all cases.
    Rebalances,
    /// A machine is silent for a while; up to four times in a trial.
    Hangs,
    /// A machine is reclaimed two minutes after its notice.
    Reclaims,
    /// Somebody raises a pool's desired capacity by one, or terminates a worker with a decrement.
    Sizes,
    /// Somebody suspends a process of a group for a while.
    Suspends,
    /// Somebody protects a machine from scale-in.
    Protects,
    /// A command was sent, and the API answers `InvocationDoesNotExist` for some seconds.
    Undescribed,
    /// A command's answer is cut.
    CutAnswers,
    /// Outages and missing concurrency last up to an hour, and not only up to ten minutes; 0 means never.
    LongOutages,
    /// Somebody changes a stack by hand.
    HandChanges,
    /// Somebody deletes the change sets of a stack.
    ChangeSetsDeleted,
    /// The rollback of a stack fails.
    RollbacksFail,
    /// A service is down for up to an hour.
    Outages,
    /// Half of all calls are throttled for some minutes.
    Storms,
    /// Lambda has no concurrency for some minutes.
    Exhausted,
    /// Nobody redrives an event from a dead-letter queue.
    Unredriven,
    /// An event is up to four hours late.
    Late,
    /// Another invocation runs during an invocation, between any two calls.
    Overlaps,
    /// Time passes during an invocation.
    Pauses,
    /// S3, KMS, Parameter Store or EventBridge is down for up to an hour.
    StorageOutages,
    /// The other members of etcd do not reach a member; everybody else does.
    CutMembers,
    /// Systems Manager does not reach a machine; everybody else does.
    LostAgents,
    /// EC2 recommends replacing a machine, and may reclaim it later.
    Recommendations,
    /// A cluster autoscaler runs.
    Autoscales,
    /// An answer of CloudFormation is some seconds old.
    StaleStacks,
    /// An answer of load balancers is some seconds old.
    StaleTargets,
    /// A person uncordons a worker that is being drained.
    Uncordons,
    /// Auto Scaling finds a machine unhealthy that serves.
    Condemns,
    /// Node managers have workers replaced that are not Ready. A worker hangs for hours, and the way to some or all workers is closed for a while.
    Repairs,
}

/// The name of each trouble, and its rate as a multiple of `faults`.
const TABLE: [(Trouble, &str, f64); 31] = [
    (Trouble::AbandonedHooks, "abandoned-hooks", 5.0),
    (Trouble::StaleGroups, "stale-groups", 1.0),
    (Trouble::Rebalances, "rebalances", 20.0),
    (Trouble::Hangs, "hangs", 2.0),
    (Trouble::Reclaims, "reclaims", 2.0),
    (Trouble::Sizes, "sizes", 2.0),
    (Trouble::Suspends, "suspends", 1.0),
    (Trouble::Protects, "protects", 1.0),
    (Trouble::Undescribed, "undescribed", 1.0),
    (Trouble::CutAnswers, "cut-answers", 0.5),
    (Trouble::LongOutages, "long-outages", 1.0),
    (Trouble::HandChanges, "hand-changes", 2.0),
    (Trouble::ChangeSetsDeleted, "change-sets-deleted", 2.0),
    (Trouble::RollbacksFail, "rollbacks-fail", 5.0),
    (Trouble::Outages, "outages", 2.0),
    (Trouble::Storms, "storms", 2.0),
    (Trouble::Exhausted, "exhausted", 2.0),
    (Trouble::Unredriven, "unredriven", 5.0),
    (Trouble::Late, "late", 0.1),
    (Trouble::Overlaps, "overlaps", 1.0),
    (Trouble::Pauses, "pauses", 1.0),
    (Trouble::StorageOutages, "storage-outages", 2.0),
    (Trouble::CutMembers, "cut-members", 2.0),
    (Trouble::LostAgents, "lost-agents", 2.0),
    (Trouble::Recommendations, "recommendations", 2.0),
    (Trouble::Autoscales, "autoscales", 4.0),
    (Trouble::StaleStacks, "stale-stacks", 1.0),
    (Trouble::StaleTargets, "stale-targets", 1.0),
    (Trouble::Uncordons, "uncordons", 2.0),
    (Trouble::Condemns, "condemns", 2.0),
    (Trouble::Repairs, "repairs", 6.0),
];

/// The rate of each [`Trouble`], as a multiple of `faults`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates([f64; TABLE.len()]);

impl Default for Rates {
    fn default() -> Self {
        Self(TABLE.map(|(_, _, rate)| rate))
    }
}

impl Rates {
    /// The rate of that trouble, as a multiple of `faults`.
    #[must_use]
    pub fn rate_of(&self, trouble: Trouble) -> f64 {
        self.0[trouble as usize]
    }

    /// All rates are zero.
    #[must_use]
    pub fn none() -> Self {
        Self([0.0; TABLE.len()])
    }
}

/// `stale-groups=2,hangs=0`: the default rates except for these; `none,hangs=4`: only these.
impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut rates = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            if word == "none" {
                rates = Self::none();
                continue;
            }
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word} has no rate"))?;
            let found = TABLE.iter().find(|(_, known, _)| *known == name);
            let (trouble, ..) = found.ok_or_else(|| format!("{name} is not a trouble"))?;
            rates.0[*trouble as usize] = value.parse().map_err(|_| format!("{value} is not a rate"))?;
        }
        Ok(rates)
    }
}
