//! The lifetimes of all machines.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::world::{MachineFacts, Power};

/// The lifetime of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetime {
    /// `i-…`.
    pub id: String,
    /// `etcd-0`, `controller`, `pool-general`, ….
    pub role: String,
    /// When it was launched.
    pub from: Timestamp,
    /// When it was first seen to serve; `None` if it never was.
    pub served: Option<Timestamp>,
    /// When it was seen to be gone; `None` if it still exists.
    pub until: Option<Timestamp>,
    /// It died; nobody had terminated it.
    pub died: bool,
}

/// Observes the machines at intervals.
#[derive(Debug, Default)]
pub(super) struct Lives {
    there: BTreeMap<String, Lifetime>,
    gone: Vec<Lifetime>,
}

impl Lives {
    /// Records the machines at `now`.
    pub(super) fn record(&mut self, now: Timestamp, machines: &BTreeMap<String, MachineFacts>) {
        let runs = |machine: &MachineFacts| machine.power != Power::Down && !machine.role.is_empty();
        for (id, machine) in machines.iter().filter(|(_, machine)| runs(machine)) {
            match self.there.get_mut(id) {
                Some(life) if life.served.is_some() => {}
                Some(life) => life.served = machine.ready.then_some(now),
                None => {
                    let (id, role, from) = (id.clone(), machine.role.clone(), machine.launched_at);
                    let served = machine.ready.then_some(now);
                    let life = Lifetime { id, role, from, served, until: None, died: false };
                    self.there.insert(life.id.clone(), life);
                }
            }
        }
        for (id, life) in self.there.extract_if(.., |id, _| !machines.get(id).is_some_and(runs)) {
            let died = machines.get(&id).is_some_and(|machine| !machine.leaving);
            self.gone.push(Lifetime { until: Some(now), died, ..life });
        }
    }

    /// All lifetimes, in the order of the launches.
    pub(super) fn all(self) -> Vec<Lifetime> {
        let mut all = self.gone;
        all.extend(self.there.into_values());
        all.sort_by(|a, b| (a.from, &a.id).cmp(&(b.from, &b.id)));
        all
    }
}
