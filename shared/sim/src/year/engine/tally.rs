//! What an engine counts.

use std::collections::BTreeMap;

use super::super::bill::Usage;
use crate::mortal::Billed;

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Invocations, by function.
    pub invocations: BTreeMap<&'static str, u64>,
    /// Those that failed, and were tried again.
    pub failed: u64,
    /// Events that nobody could take care of.
    pub dead_letters: u64,
    /// Events that were lost, doubled or came late.
    pub astray: u64,
    /// Machines that died.
    pub deaths: u64,
    /// Calls, by how AWS bills them.
    pub calls: BTreeMap<Billed, u64>,
    /// Invocations by Scheduler, each counted once however often it was tried.
    pub scheduled: u64,
    /// Scans of the cluster.
    pub scans: u64,
    /// Events on the bus.
    pub events: u64,
}

impl Tally {
    /// What all that is billed for.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            calls: self.calls.clone(),
            events: self.events,
            scans: self.scans,
            invocations: self.invocations.values().sum(),
            scheduled: self.scheduled,
        }
    }
}
