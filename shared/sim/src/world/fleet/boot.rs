//! From a machine's start to its agent's word that it is healthy.

use slipway_core::node::LAUNCH_HOOK;

use super::super::World;
use super::{Fate, FleetTask, HookResult, Power, State};

/// What an agent does before it looks at others: fetching, unpacking, writing files.
const PREPARES_S: (f64, f64) = (25.0, 60.0);
/// How often an agent looks whether it can go on.
const LOOKS_S: f64 = 5.0;

impl World {
    pub(super) fn boots(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        if machine.power != Power::Starting {
            return;
        }
        machine.power = Power::Up;
        match (&machine.node, machine.state) {
            // Nobody there who could say that it is healthy.
            (None, State::Pending) => self.in_service(id),
            (None, _) => {}
            (Some(_), _) => {
                let seconds = self.draw_s("prepare", PREPARES_S.0, PREPARES_S.1);
                self.fleet_after_s(seconds, FleetTask::Bootstraps { machine: id.to_owned() });
            }
        }
    }

    /// The agent goes on as far as it can, and looks again.
    pub(super) fn bootstraps(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id) else { return };
        if machine.power != Power::Up || machine.ready {
            return;
        }
        if machine.fate == Fate::GivesUp {
            self.settle_hook(id, LAUNCH_HOOK, HookResult::Abandon);
            return;
        }
        // The agent speaks for its machine as long as it runs.
        self.heartbeat(id, LAUNCH_HOOK);
        if !self.joins_its_cluster(id) {
            return self.fleet_after_s(LOOKS_S, FleetTask::Bootstraps { machine: id.to_owned() });
        }
        if let Some(machine) = self.fleet.machines.get_mut(id) {
            machine.ready = true;
            if machine.state == State::Pending {
                self.in_service(id);
            } else {
                self.settle_hook(id, LAUNCH_HOOK, HookResult::Continue);
            }
        }
    }
}
