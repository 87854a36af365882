//! Spot machines that EC2 is about to interrupt.
//!
//! EC2 sends its notice two minutes before it takes the machine, on a best-effort basis (EC2 user guide, "Spot Instance interruption
//! notices"). If the machine's group has Capacity Rebalancing, Auto Scaling calls the terminate hook and launches another machine at the
//! notice; otherwise it does so only after the interruption, once it finds the machine unhealthy (EC2 Auto Scaling user guide, "Capacity
//! Rebalancing"; README of aws-node-termination-handler, "Queue Processor"). So there is one departure, from the notice until the machine
//! is gone: it drains the machine at once, and completes the hook if Auto Scaling calls it before or after that.

use std::collections::btree_map::Entry;

use jiff::Timestamp;

use super::Departure;
use super::departure::NOTICE_COUNTS;
use crate::Rollout;

impl Rollout {
    /// The state after EC2's notice of the time `at` that it interrupts `instance`, a machine of the group `group`: a worker is drained from
    /// now on. A drain in progress continues and is no longer cancelled. A worker whose departure was cancelled departs after all.
    ///
    /// The notice is stored, as an order is, because nothing that can be observed later says the same.
    #[must_use]
    pub fn with_interruption(mut self, group: &str, instance: &str, at: Timestamp, now: Timestamp) -> Self {
        let Some(role) = self.pool_of(group) else { return self };
        // Nothing may be urgent longer than from now on.
        let at = at.min(now);
        let is_being_deleted =
            self.active().is_none() && self.destroy().is_some_and(|open| !open.sees_to_machines());
        if is_being_deleted || now.duration_since(at) > NOTICE_COUNTS {
            return self;
        }
        let force_after_s = self.force_after_s.get(&role).copied();
        match self.departures.entry(instance.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(Departure::by_interruption(role, group, force_after_s, at, now));
            }
            Entry::Occupied(entry) => entry.into_mut().goes_after_all(at, now),
        }
        self
    }
}

#[cfg(test)]
mod tests;
