//! The drains of workers that a rollout replaces or removes.

use std::collections::BTreeMap;

use super::super::departures::{Departure, MOST_DRAINS};
use super::{NodeStep, Nodes, Task, Turn, WorkersState};

impl Turn<'_> {
    /// How many more may begin. Pods may hold for days what Auto Scaling terminates by itself, so it does not count.
    pub(super) fn free_drains(&self) -> usize {
        let ours = self.departures.values().filter(|one| one.is_of_a_rollout() && one.drains()).count();
        MOST_DRAINS.saturating_sub(ours)
    }
}

impl Nodes {
    /// Whether all work that has begun is drains of workers that are replaced.
    pub(in super::super) fn only_drains(&self, departures: &BTreeMap<String, Departure>) -> bool {
        let drains = |id: &String| departures.get(id).is_some_and(Departure::may_be_held);
        let only_drains = |step: &NodeStep| {
            let Task::Workers(workers) = &step.task else { return false };
            let Some(WorkersState::Roll { begun }) = workers.phase.state() else { return true };
            begun.keys().all(drains)
        };
        self.steps.iter().filter(|step| step.is_busy()).all(only_drains)
    }
}
