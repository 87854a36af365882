//! A person may uncordon a worker that is being drained, and pods come again. While a drain runs, it cordons its node again. Nobody can know of
//! what happens after a drain has ended. So a machine may be terminated although pods came after its last drain. But it waits in its
//! terminate hook then, where it has to be drained again: the hook is completed only after a drain that ended while the machine waited
//! there, and no pod is lost except one that came after that drain.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Checker;
use crate::world::{ClusterFacts, World};

/// The drains of machines, and the people who uncordoned them.
#[derive(Debug, Clone, Default)]
pub(super) struct Cordons {
    /// The last drain of each machine.
    drains: BTreeMap<String, LastDrain>,
    /// Machines that a person uncordoned after their last drain had ended; `true`: the drain ended while the machine was being terminated.
    uncordoned: BTreeMap<String, bool>,
    /// How often a person uncordoned a node, as far as was read.
    read: usize,
}

#[derive(Debug, Clone)]
struct LastDrain {
    token: String,
    /// Whether the machine was being terminated when the drain ended; `None`: it runs.
    ended: Option<bool>,
}

impl Cordons {
    /// A drain of a machine is requested. A function requests it again, with the same token, if an earlier one died.
    pub(super) fn drains(&mut self, machine: &str, token: &str) {
        if self.drains.get(machine).is_some_and(|last| last.token == token) {
            return;
        }
        self.drains.insert(machine.to_owned(), LastDrain { token: token.to_owned(), ended: None });
        self.uncordoned.remove(machine);
    }

    /// Whether a person uncordoned a machine after its last drain.
    pub(super) fn was_uncordoned(&self, machine: &str) -> bool {
        self.uncordoned.contains_key(machine)
    }

    /// Whether a person uncordoned a machine after a drain that ended while the machine was being terminated.
    pub(super) fn was_uncordoned_at_the_end(&self, machine: &str) -> bool {
        self.uncordoned.get(machine).is_some_and(|in_hook| *in_hook)
    }
}

impl Checker {
    /// Notes which drains have ended, and which nodes a person uncordoned since the last call.
    pub(super) fn note_cordons(&mut self, world: &World) {
        for (machine, last) in &mut self.cordons.drains {
            if last.ended.is_none() && world.is_over(&last.token) {
                last.ended = Some(self.machines.get(machine).is_none_or(|one| one.leaving));
            }
        }
        let all = world.uncordoned(&self.cluster);
        for node in all.iter().skip(self.cordons.read) {
            let ended = self.cordons.drains.get(node).and_then(|last| last.ended);
            if let Some(in_hook) = ended {
                self.cordons.uncordoned.insert(node.clone(), in_hook);
            }
        }
        self.cordons.read = all.len();
    }

    /// The terminate hook of a machine is completed.
    pub(super) fn completes(&mut self, facts: &ClusterFacts, machine: &str, now: Timestamp) {
        self.released.entry(machine.to_owned()).or_insert(now);
        let pods = facts.pods.get(machine).copied().unwrap_or_default();
        // A machine that is terminated while it boots may become a node after its drain found none, and then get pods.
        let joined = self
            .joined
            .get(machine)
            .copied()
            .flatten()
            .is_some_and(|at| now.duration_since(at) <= self.evidence_lasts());
        let excused = self.is_deleted_with_its_stack(machine)
            || (self.faults && joined)
            || self.cordons.was_uncordoned_at_the_end(machine);
        if pods > 0 && !excused {
            self.wrong(now, "P6", format!("the hook of {machine} is ended with {pods} pods on it"));
        }
    }
}
