//! From when to when each machine was there.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::world::{MachineFacts, Power};

/// A machine, from its launch to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetime {
    /// `i-…`.
    pub id: String,
    /// `etcd-0`, `controller`, `pool-general`, ….
    pub role: String,
    /// When it was launched.
    pub from: Timestamp,
    /// When it was seen to serve first; `None`: it never did.
    pub served: Option<Timestamp>,
    /// When it was seen to be gone; `None`: it is there.
    pub until: Option<Timestamp>,
    /// It broke, and nobody had asked it to go.
    pub died: bool,
}

/// Looks at the machines now and then.
#[derive(Debug, Default)]
pub(super) struct Lives {
    there: BTreeMap<String, Lifetime>,
    gone: Vec<Lifetime>,
}

impl Lives {
    /// The machines are so at `now`.
    pub(super) fn look(&mut self, now: Timestamp, machines: &[MachineFacts]) {
        let runs = |machine: &&MachineFacts| machine.power != Power::Down && !machine.role.is_empty();
        for machine in machines.iter().filter(runs) {
            let life = self.there.entry(machine.id.clone()).or_insert_with(|| Lifetime {
                id: machine.id.clone(),
                role: machine.role.clone(),
                from: machine.launched_at,
                served: None,
                until: None,
                died: false,
            });
            if machine.ready && life.served.is_none() {
                life.served = Some(now);
            }
        }
        let (there, gone) = std::mem::take(&mut self.there)
            .into_iter()
            .partition(|(id, _)| machines.iter().filter(runs).any(|machine| &machine.id == id));
        self.there = there;
        for (id, life) in gone {
            let died = machines.iter().any(|machine| machine.id == id && !machine.leaving);
            self.gone.push(Lifetime { until: Some(now), died, ..life });
        }
    }

    /// All of them, in the order of their launch.
    pub(super) fn all(self) -> Vec<Lifetime> {
        let mut all = self.gone;
        all.extend(self.there.into_values());
        all.sort_by(|a, b| (a.from, &a.id).cmp(&(b.from, &b.id)));
        all
    }
}
