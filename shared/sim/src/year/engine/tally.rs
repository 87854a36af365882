//! The counts of an engine.

use std::collections::BTreeMap;

use super::super::bill::Usage;
use crate::mortal::Billed;

/// The counts of an engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Invocations, by function.
    pub invocations: BTreeMap<&'static str, u64>,
    /// Invocations that failed and were retried.
    pub failed: u64,
    /// Events whose retries all failed.
    pub dead_letters: u64,
    /// Events that were lost, doubled or late.
    pub astray: u64,
    /// Machines that died.
    pub deaths: u64,
    /// Calls, by their kind for AWS' bill.
    pub calls: BTreeMap<Billed, u64>,
    /// Invocations by Scheduler, each counted once, however often it was retried.
    pub scheduled: u64,
    /// Scans of the cluster.
    pub scans: u64,
    /// Events on the bus.
    pub events: u64,
}

impl Tally {
    /// The usage that AWS bills.
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
