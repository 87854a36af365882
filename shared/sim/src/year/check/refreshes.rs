//! When the work on a machine has failed: the machine was told three times in a row to install new credentials, and its agent failed each
//! time. From then on nothing begins in that rollout. Commands that were lost, timed out or never arrived are not counted here, although
//! the rollout counts some of them.

use jiff::Timestamp;
use slipway_core::node::{Command, Verb};

use super::Checker;
use crate::world::World;

/// The number of tries per machine (docs/architecture.md, "Rollout").
const TRIES: usize = 3;

/// How machines of each role installed their credentials in the open rollout.
#[derive(Debug, Clone, Default)]
pub(super) struct Refreshes {
    /// For each role, the machine that was asked last, and the tokens of its commands in order.
    asked: Vec<RefreshTries>,
    /// The first machine that failed, and since when this has been visible.
    pub(super) failed: Option<(String, Timestamp)>,
}

#[derive(Debug, Clone)]
struct RefreshTries {
    role: String,
    machine: String,
    tokens: Vec<String>,
}

impl Checker {
    /// A machine is told to install its credentials.
    pub(super) fn asks_to_refresh(&mut self, command: &Command) {
        let Some(role) = self.roles.get(&command.instance).cloned() else { return };
        // If several machines of a pool are asked at once, only the first one that fails is tried again.
        if !matches!(command.verb, Verb::Refresh { .. }) || self.rules.may_miss(&role) > 1 {
            return;
        }
        let asked = &mut self.refreshes.asked;
        match asked.iter_mut().find(|one| one.role == role) {
            Some(one) if one.machine == command.instance => {
                // A retry after a dead function sends the command again.
                if !one.tokens.contains(&command.token) {
                    one.tokens.push(command.token.clone());
                }
            }
            found => {
                let new = RefreshTries {
                    role,
                    machine: command.instance.clone(),
                    tokens: vec![command.token.clone()],
                };
                match found {
                    Some(one) => *one = new,
                    None => asked.push(new),
                }
            }
        }
    }

    /// Reads the results of these commands.
    pub(super) fn note_refreshes(&mut self, world: &World, now: Timestamp) {
        if self.refreshes.failed.is_some() {
            return;
        }
        let failed = |one: &&RefreshTries| {
            let last = one.tokens.iter().rev().take(TRIES);
            one.tokens.len() >= TRIES && last.into_iter().all(|token| world.has_failed(token))
        };
        let found = self.refreshes.asked.iter().find(failed).map(|one| (one.machine.clone(), now));
        self.refreshes.failed = found;
    }
}
