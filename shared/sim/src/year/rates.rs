//! How likely AWS, and whoever else has the rights, do what a rollout does not expect: one table for all of it.

use std::str::FromStr;

/// Something that a world does besides what goes wrong with machines and commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// A launch that is abandoned passes through the terminate hook; of all launches that are.
    AbandonedHooks,
    /// An answer of Auto Scaling is some seconds behind.
    StaleGroups,
    /// Zones that are out of balance are brought back; of all that are.
    Rebalances,
    /// A machine is silent for a while; four times in a trial.
    Hangs,
    /// A machine is reclaimed, with a notice of two minutes.
    Reclaims,
    /// Somebody has a pool want one more machine, or takes one down for which none comes.
    Sizes,
    /// Somebody suspends a process of a group for a while.
    Suspends,
    /// Somebody protects a machine from scale-in.
    Protects,
    /// A command is sent, and `InvocationDoesNotExist` for some seconds.
    Undescribed,
    /// A command's answer is cut.
    CutAnswers,
    /// A service, or Lambda's concurrency, is out for up to an hour, and not for ten minutes at most; 0: never.
    LongOutages,
    /// Somebody changes a stack by hand.
    HandChanges,
    /// Somebody deletes the change sets of a stack.
    ChangeSetsDeleted,
    /// A stack that rolls back cannot.
    RollbacksFail,
    /// A service is down for up to an hour.
    Outages,
    /// Half of all calls are throttled for some minutes.
    Storms,
    /// Lambda has no more concurrency for some minutes.
    Exhausted,
    /// Nobody brings what lies in a dead-letter queue to its function again.
    Unredriven,
    /// An event is late by up to four hours.
    Late,
    /// Another invocation comes and goes in the midst of one, between any two calls.
    Overlaps,
    /// Time passes in the midst of an invocation.
    Pauses,
    /// S3, KMS, Parameter Store or EventBridge is down for up to an hour.
    StorageOutages,
    /// A member of etcd is cut off from its fellows, and from nobody else.
    CutMembers,
    /// Systems Manager does not reach a machine, and everybody else does.
    LostAgents,
    /// EC2 recommends to replace a machine, and may need it back later.
    Recommendations,
    /// A cluster autoscaler runs.
    Autoscales,
    /// An answer of CloudFormation is some seconds behind.
    StaleStacks,
    /// An answer of load balancers is some seconds behind.
    StaleTargets,
}

/// What it is called, and how likely: so many times `faults`.
const TABLE: [(Trouble, &str, f64); 28] = [
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
];

/// How likely each [`Trouble`] is: so many times as likely as `faults` says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates([f64; TABLE.len()]);

impl Default for Rates {
    fn default() -> Self {
        Self(TABLE.map(|(_, _, rate)| rate))
    }
}

impl Rates {
    /// So many times `faults`.
    #[must_use]
    pub fn of(&self, trouble: Trouble) -> f64 {
        self.0[trouble as usize]
    }

    /// None of it.
    #[must_use]
    pub fn none() -> Self {
        Self([0.0; TABLE.len()])
    }
}

/// `stale-groups=2,hangs=0`: as by default but for these; `none,hangs=4`: nothing but these.
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
            let (trouble, ..) = found.ok_or_else(|| format!("{name} is no trouble"))?;
            rates.0[*trouble as usize] = value.parse().map_err(|_| format!("{value} is no rate"))?;
        }
        Ok(rates)
    }
}
