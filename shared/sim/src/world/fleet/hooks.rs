//! Lifecycle hooks: their timeouts and their results.

use jiff::SignedDuration;

use super::super::World;
use super::super::machine::{Hook, HookResult, Machine, State, Waits};
use super::super::task::{FleetTask, Task};

/// "The maximum is 172800 seconds (48 hours) or 100 times the heartbeat timeout, whichever is smaller."
const LONGEST_S: u32 = 172_800;

/// The time from the end of a launch hook to `InService`.
const SERVES_S: (f64, f64) = (1.0, 5.0);

impl World {
    /// A machine waits in `hook` from now on.
    pub(super) fn wait_for_hook(&mut self, id: &str, hook: Hook) {
        let token = self.uuid();
        let deadline = self.now + SignedDuration::from_secs(hook.heartbeat_s.into());
        let since = self.now;
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        let launches = machine.state.counts();
        machine.waits = Some(Waits { hook, since, deadline, token: token.clone() });
        let machine = machine.clone();
        self.lifecycle_action(&machine, launches);
        self.end_hook_at(id, &token, deadline);
    }

    /// A hook's timeout has its full length at any pace of the world.
    fn end_hook_at(&mut self, id: &str, token: &str, at: jiff::Timestamp) {
        self.sequence += 1;
        let task = FleetTask::HookEnds { machine: id.to_owned(), token: token.to_owned() };
        self.queue.insert((at, self.sequence), Task::Fleet(task));
    }

    /// The programs that are being restarted on a machine answer at that time.
    pub(in crate::world) fn restarted_at(&mut self, at: jiff::Timestamp, id: &str) {
        self.sequence += 1;
        let task = FleetTask::Restarted { machine: id.to_owned() };
        self.queue.insert((at, self.sequence), Task::Fleet(task));
    }

    /// Extends the hook in which a machine waits. Returns whether it waits in a hook with that name.
    pub(super) fn heartbeat(&mut self, id: &str, hook: &str) -> bool {
        let now = self.now;
        let Some(waits) = self.fleet.machines.get_mut(id).and_then(|machine| machine.waits.as_mut()) else {
            return false;
        };
        if waits.hook.name != hook {
            return false;
        }
        let longest = LONGEST_S.min(waits.hook.heartbeat_s.saturating_mul(100));
        let end = waits.since + SignedDuration::from_secs(longest.into());
        waits.deadline = (now + SignedDuration::from_secs(waits.hook.heartbeat_s.into())).min(end);
        true
    }

    /// Completes the hook in which a machine waits. Returns whether it waits in a hook with that name.
    pub(super) fn settle_hook(&mut self, id: &str, hook: &str, result: HookResult) -> bool {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return false };
        if machine.waits.as_ref().is_none_or(|waits| waits.hook.name != hook) {
            return false;
        }
        machine.waits = None;
        match (machine.state, result) {
            (State::PendingWait, HookResult::Continue) => {
                machine.state = State::PendingProceed;
                machine.ready |= self.fleet.others_run_machines;
                let seconds = self.draw_s("serve", SERVES_S.0, SERVES_S.1);
                self.fleet_after_s(seconds, FleetTask::InService { machine: id.to_owned() });
            }
            (State::PendingWait, HookResult::Abandon) => {
                let group = machine.group.clone();
                self.record(format!("{id} of {group} is given up before it served"));
                let rate = self.fleet.faults.abandoned_hooks;
                if self.chance("an abandoned launch passes the terminate hook", rate) {
                    // "Applies to all launches and terminations" (userguide/lifecycle-hooks, the table of their availability). AWS
                    // does not say whether the termination after an abandoned launch is included, so trials try both.
                    self.begin_termination(id);
                    return true;
                }
                self.proceed(id);
                self.reconcile_soon(&group);
            }
            (State::TerminatingWait, result) => {
                let retains = self.fleet.groups.get(&machine.group).is_some_and(|group| group.retains);
                if retains && result == HookResult::Abandon {
                    machine.state = State::TerminatingRetained;
                    let line = format!("{} keeps {id}, which nobody has drained", machine.group);
                    self.record(line);
                } else {
                    self.proceed(id);
                }
            }
            (
                State::Pending
                | State::PendingProceed
                | State::InService
                | State::TerminatingProceed
                | State::TerminatingRetained,
                _,
            ) => {}
        }
        true
    }

    /// The timeout of a hook may be over: unless the hook was extended or completed, it ends with its default result.
    pub(super) fn hook_ends(&mut self, id: &str, token: &str) {
        let Some(Machine { waits: Some(waits), .. }) = self.fleet.machines.get(id) else { return };
        if waits.token != token {
            return;
        }
        let waits = waits.clone();
        if waits.deadline > self.now {
            return self.end_hook_at(id, token, waits.deadline);
        }
        self.record(format!("nobody speaks for {id} in {} any more", waits.hook.name));
        self.settle_hook(id, &waits.hook.name, waits.hook.default);
    }

    pub(super) fn in_service(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        match machine.state {
            State::Pending | State::PendingProceed => machine.state = State::InService,
            State::PendingWait
            | State::InService
            | State::TerminatingWait
            | State::TerminatingProceed
            | State::TerminatingRetained => return,
        }
        let machine = machine.clone();
        self.record(format!("{id} of {} is in service", machine.group));
        self.register(id);
        self.launched(&machine);
        if self.fleet.groups.get(&machine.group).is_some_and(|group| group.ahead.is_some()) {
            self.reconcile_soon(&machine.group);
        }
    }
}
