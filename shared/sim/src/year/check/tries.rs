//! When the work on a machine or a pool has failed. From then on nothing begins in that rollout.
//!
//! - The same verb failed on a machine three times in a row, each time by its agent's own word. Commands that were lost, timed out or never
//!   arrived are not counted here, although the rollout counts some of them. Snapshots are not judged: any member is asked for them.
//! - A worker could not be drained within a day: in the world it was cordoned and in service all the time.
//! - A pool was not whole for an hour, while none of its workers was being replaced.
//!
//! The last two are failures of the rollout if the first worker of the pool was not replaced yet, or if more of them happen than the spec's
//! `failureBudget` allows.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{Command, Verb};

use super::Checker;
use crate::world::World;

/// The number of tries per machine (docs/architecture.md, "Rollout").
const TRIES: usize = 3;

/// How long a worker may be drained, including the last round, which a drain does not interrupt (docs/architecture.md, "Rollout").
const DRAINED: SignedDuration = SignedDuration::from_mins(24 * 60 + 45);
/// How long a pool may lack machines: an hour from when a decision first observed it, which an outage may delay.
const LACKS: SignedDuration = SignedDuration::from_mins(150);

/// What was tried in the open rollout.
#[derive(Debug, Clone, Default)]
pub(super) struct Tried {
    /// For each verb and role, the machine that it was for last, and the tokens of its commands in order.
    tried: Vec<Tries>,
    /// Workers that could not be drained.
    undrained: BTreeSet<String>,
    /// The pools whose replacement has begun and may not be done; since when each lacks machines while none of its workers is replaced.
    pools: BTreeMap<String, Option<Timestamp>>,
    /// How often a pool lacked machines for too long.
    lacked: usize,
    /// When the rollout was last paused: the time of a pause does not count.
    held_at: Option<Timestamp>,
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

    /// A rollout begins to replace workers of a pool.
    pub(super) fn note_begun(&mut self, role: &str) {
        if role.starts_with("pool-") && self.target.is_some() && !self.is_to_go(role) {
            self.tried.pools.entry(role.to_owned()).or_default();
        }
    }

    /// Notes which workers could not be drained, and which pools lack machines.
    fn note_pools(&mut self, world: &World, now: Timestamp) {
        if self.target.is_none() || self.is_paused() {
            self.tried.held_at = Some(now);
            self.tried.pools.values_mut().for_each(|since| *since = None);
            return;
        }
        let held_at = self.tried.held_at.max(self.begun_at);
        let stuck = self.drained.iter().filter(|(id, at)| {
            let stays = self.machines.get(*id).filter(|one| one.serves && !one.leaving);
            let counts = stays.is_some_and(|one| self.tried.pools.contains_key(&one.role));
            counts && held_at.max(Some(**at)).is_some_and(|from| now.duration_since(from) > DRAINED)
        });
        let stuck: Vec<(String, String)> =
            stuck.map(|(id, _)| (id.clone(), self.machines[id].role.clone())).collect();
        for (id, role) in stuck {
            if self.tried.undrained.insert(id.clone()) {
                self.may_have_failed(&role, id, now);
            }
        }
        for role in self.tried.pools.keys().cloned().collect::<Vec<_>>() {
            self.note_pool(world, &role, now);
        }
    }

    fn note_pool(&mut self, world: &World, role: &str, now: Timestamp) {
        let of_role = || self.machines.values().filter(|one| one.role == role);
        let Some(group) = of_role().next().map(|one| one.group.clone()) else { return };
        let Some(wanted) = world.group_facts(&group).map(|facts| facts.desired as usize) else { return };
        let serve = of_role().filter(|one| one.serves && !one.leaving).count();
        let is_replacing = of_role().any(|one| one.leaving || self.drained.contains_key(&one.id));
        // What a person skipped, or could not be drained, stays as it is, and nobody can tell from the world whether the pool is done.
        let stays = |id: &String| self.skipped.contains(id) || self.tried.undrained.contains(id);
        if of_role().any(|one| stays(&one.id)) || serve >= wanted && !self.is_replaced(world, &group) {
            self.tried.pools.remove(role);
            return;
        }
        let Some(since) = self.tried.pools.get_mut(role) else { return };
        if serve >= wanted || is_replacing {
            *since = None;
        } else if now.duration_since(*since.get_or_insert(now)) > LACKS {
            *since = Some(now);
            self.tried.lacked += 1;
            self.may_have_failed(role, role.to_owned(), now);
        }
    }

    /// A worker could not be replaced, or a pool lacks machines.
    fn may_have_failed(&mut self, role: &str, what: String, now: Timestamp) {
        let is_proved = self.has_proved(role);
        let failures = self.tried.undrained.len() + self.tried.lacked;
        if !is_proved || failures > self.rules.failure_budget {
            self.tried.failed.get_or_insert((what, now));
        }
    }

    /// Reads the results of these commands.
    pub(super) fn note_tries(&mut self, world: &World, now: Timestamp) {
        self.note_pools(world, now);
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
