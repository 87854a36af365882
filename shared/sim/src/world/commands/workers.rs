//! How many commands the SSM agent of a machine runs at a time.
//!
//! amazon-ssm-agent, `agent/appconfig/constants.go`: `DefaultCommandWorkersLimit` = 5 and `DefaultCommandWorkerBufferLimit` = 5.
//! Five commands run, and five more are accepted and wait; the service shows them as `InProgress` (`processAgentJobMessage` reports
//! that once it has queued one). The next command is refused with `ProcessorBufferFull` and stays with the service, which offers it
//! again (`mdsinteractor.go`: "For Processor Buffer Full, we retry indefinitely") until its delivery times out.

use super::super::World;
use super::super::task::{CommandTask, Task};
use super::{Details, Place, documents};

/// `DefaultCommandWorkersLimit`.
const WORKERS: usize = 5;
/// `DefaultCommandWorkerBufferLimit`.
const BUFFER: usize = 5;
/// The time until the service offers a refused command again.
const AGAIN_S: (f64, f64) = (5.0, 20.0);

impl World {
    /// A command reaches its machine.
    pub(super) fn command_arrives(&mut self, place: usize) {
        if !self.is_reached(place) || self.fleet.commands[place].details != Details::Pending {
            return;
        }
        let instance = self.fleet.commands[place].instance.clone();
        let count = |at: Place| {
            let of_it =
                self.fleet.commands.iter().filter(|sent| sent.place == at && sent.instance == instance);
            of_it.count()
        };
        let (busy, waiting) = (count(Place::Worker), count(Place::Buffer));
        if busy >= WORKERS && waiting >= BUFFER {
            let seconds = self.draw_s("a full agent", AGAIN_S.0, AGAIN_S.1);
            return self.after_s(seconds, Task::Command(CommandTask::Taken(place)));
        }
        let sent = &mut self.fleet.commands[place];
        sent.details = Details::InProgress;
        if busy < WORKERS {
            return self.command_begins(place);
        }
        // "Execution Timed Out" is reported by the agent; the service uses another status for a command that it never hears of
        // again.
        let longest = sent.timeout_s + documents::timeout_s(&sent.document);
        sent.place = Place::Buffer;
        let line = format!("{} waits for a worker of {instance}", sent.document);
        self.record(line);
        self.exactly_after_s(longest, Task::Command(CommandTask::Over(place)));
    }

    /// A machine that was silent answers again: it accepts the commands that still wait for it, and continues.
    pub(in crate::world) fn takes_what_waits(&mut self, instance: &str) {
        let waits: Vec<usize> = (0..self.fleet.commands.len())
            .filter(|place| {
                let sent = &self.fleet.commands[*place];
                sent.instance == instance && sent.details == Details::Pending
            })
            .collect();
        for place in waits {
            let seconds = self.draw_s("command taken", super::TAKEN_S.0, super::TAKEN_S.1);
            self.after_s(seconds, Task::Command(CommandTask::Taken(place)));
        }
        (0..WORKERS).for_each(|_| self.worker_is_free(instance));
    }

    /// A worker of a machine's agent is free and starts the command that has waited longest.
    pub(super) fn worker_is_free(&mut self, instance: &str) {
        let busy = self
            .fleet
            .commands
            .iter()
            .filter(|sent| sent.place == Place::Worker && sent.instance == instance);
        if busy.count() >= WORKERS {
            return;
        }
        let next = self.fleet.commands.iter().position(|sent| {
            sent.place == Place::Buffer && sent.instance == instance && !sent.details.is_over()
        });
        if let Some(next) = next.filter(|next| self.is_reached(*next)) {
            self.command_begins(next);
        }
    }
}
