//! When the work on a machine has failed: the same verb failed on it three times in a row, each time by its agent's own word. From then on
//! nothing begins in that rollout. Commands that were lost, timed out or never arrived are not counted here, although the rollout counts
//! some of them. Snapshots and drains are not judged: any member or controller is asked for them, and a drain may go on for hours.

use jiff::Timestamp;
use slipway_core::node::{Command, Verb};

use super::Checker;
use crate::world::World;

/// The number of tries per machine (docs/architecture.md, "Rollout").
const TRIES: usize = 3;

/// What was tried in the open rollout.
#[derive(Debug, Clone, Default)]
pub(super) struct Tried {
    /// For each verb and role, the machine that it was for last, and the tokens of its commands in order.
    tried: Vec<Tries>,
    /// The first machine that failed, and since when this has been visible.
    pub(super) failed: Option<(String, Timestamp)>,
}

#[derive(Debug, Clone)]
struct Tries {
    document: &'static str,
    role: String,
    /// An instance, or an etcd member that is removed.
    machine: String,
    tokens: Vec<String>,
}

impl Checker {
    /// A machine is told to do something.
    pub(super) fn note_try(&mut self, command: &Command) {
        let Some(role) = self.roles.get(&command.instance).cloned() else { return };
        let (role, machine) = match &command.verb {
            // If several machines of a pool are asked at once, only the first one that fails is tried again.
            Verb::Refresh { .. } if self.rules.may_miss(&role) <= 1 => (role, &command.instance),
            Verb::EtcdMoveLeader => (role, &command.instance),
            // Any of the others can be asked to remove it.
            Verb::EtcdRemove { member } => (String::new(), member),
            Verb::Refresh { .. }
            | Verb::Status
            | Verb::EtcdHealth
            | Verb::EtcdSnapshot
            | Verb::EtcdRetire
            | Verb::Drain { .. }
            | Verb::Uncordon { .. } => return,
        };
        let document = command.verb.document();
        let mut tried = self.tried.tried.iter_mut();
        match tried.find(|one| one.document == document && one.role == role) {
            Some(one) if one.machine == *machine => {
                // A retry after a dead function sends the command again.
                if !one.tokens.contains(&command.token) {
                    one.tokens.push(command.token.clone());
                }
            }
            found => {
                let tokens = vec![command.token.clone()];
                let new = Tries { document, role, machine: machine.clone(), tokens };
                match found {
                    Some(one) => *one = new,
                    None => self.tried.tried.push(new),
                }
            }
        }
    }

    /// Reads the results of these commands.
    pub(super) fn note_tries(&mut self, world: &World, now: Timestamp) {
        if self.tried.failed.is_some() {
            return;
        }
        let failed = |one: &&Tries| {
            let last = one.tokens.iter().rev().take(TRIES);
            one.tokens.len() >= TRIES && last.into_iter().all(|token| world.has_failed(token))
        };
        let found = self.tried.tried.iter().find(failed).map(|one| (one.machine.clone(), now));
        self.tried.failed = found;
    }
}
