//! What a machine's agent tells of a command that it carried out outside of this world.

use super::{Details, World};

/// How a command ended on its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit status of its lines; -1 where they were killed.
    pub code: i32,
    /// What they printed, as far as the agent tells it.
    pub output: String,
    /// They took longer than their document allows.
    pub timed_out: bool,
}

impl World {
    /// The command of that id has ended on its machine. One that is over stays as it is.
    pub fn command_ended(&mut self, id: &str, ended: Ended) {
        let Some(place) = self.fleet.commands.iter().position(|sent| sent.id == id) else { return };
        if self.fleet.commands[place].details.is_over() {
            return;
        }
        let details = match ended {
            Ended { timed_out: true, .. } => Details::ExecutionTimedOut,
            Ended { code: 0, .. } => Details::Success,
            Ended { .. } => Details::Failed,
        };
        self.command_ends(place, details, None);
        let sent = &mut self.fleet.commands[place];
        sent.output = ended.output;
        sent.response_code = ended.code;
    }
}
