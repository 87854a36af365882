//! The drains of workers that a rollout replaces or removes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::Observed;
use super::super::departures::{Departure, MOST_DRAINS};
use super::{NodeStep, Nodes, Task, Turn, WorkersState, window_is_open};

impl Turn<'_> {
    /// How many more may begin. Pods may hold for days what Auto Scaling terminates by itself, so it does not count.
    pub(super) fn free_drains(&self) -> usize {
        let ours = self.departures.values().filter(|one| one.is_of_a_rollout() && one.drains()).count();
        MOST_DRAINS.saturating_sub(ours)
    }
}

impl Nodes {
    /// Machines whose drain was decided and not requested stay if too many would be missing, or if the window has closed.
    pub(in super::super) fn reconsider(
        &self,
        departures: &mut BTreeMap<String, Departure>,
        observed: &Observed,
        now: Timestamp,
    ) {
        for step in &self.steps {
            if !self.urgency_of(&step.role, now).overrides() && !window_is_open(&self.windows, now) {
                departures.retain(|_, one| one.role != step.role || !one.is_unsent());
            }
            if let (Task::Workers(workers), Some(Some(group))) =
                (&step.task, observed.groups.get(&step.group))
            {
                workers.reconsider(departures, group);
            }
        }
    }

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
