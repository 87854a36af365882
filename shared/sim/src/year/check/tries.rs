//! When the work on a machine or a pool has failed. From then on nothing begins in that rollout.
//!
//! - The same verb failed on a machine three times in a row, each time by its agent's own word. Commands that were lost, timed out or never
//!   arrived are not counted here, although the rollout counts some of them. Any member may be asked for a snapshot, and the count begins
//!   again with another machine whose turn it is, so six in a row have to fail.
//! - A member or a controller that was terminated had no successor for hours, or an additional controller did not come for hours.
//! - For hours, members or controllers were asked again and again whether they are healthy, and nothing followed.
//! - A worker could not be drained within a day: in the world it was cordoned and in service all the time.
//! - A pool was not whole for an hour, while none of its workers was being replaced.
//!
//! What happens in a pool is a failure of the rollout if the first worker of the pool was not replaced yet, or if more of them happen than the spec's
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

/// How long a member or a controller that was terminated may have no successor, how long an additional controller may not come, and how
/// long members or controllers may be asked in vain: an hour for the machine and an hour for the health of all (docs/architecture.md,
/// "Rollout"), each of which an outage may delay by an hour.
const RETURNS: SignedDuration = SignedDuration::from_hours(4);
/// Who waits for the health of others asks them every few minutes. After this time, a query belongs to something else.
const ASKS_AGAIN: SignedDuration = SignedDuration::from_mins(30);

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
    /// Since when an additional controller has been requested that does not serve.
    one_more: Option<Timestamp>,
    /// The first and the last of the queries after which nothing was begun.
    asked: Option<(Timestamp, Timestamp)>,
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
    /// The number of failed tries in a row after which the work has failed.
    most: usize,
    tokens: Vec<String>,
}

impl Checker {
    /// A machine is told to do something.
    pub(super) fn note_try(&mut self, command: &Command, now: Timestamp) {
        let Some(role) = self.roles.get(&command.instance).cloned() else { return };
        let (any_member, mut most) = ("etcd".to_owned(), TRIES);
        let (role, machine) = match &command.verb {
            Verb::Refresh { .. } if self.rules.max_missing(&role, self.rules.size(&role)) <= 1 => {
                (role, &command.instance)
            }
            // If several machines of a pool are asked at once, the failures of the first one count: another one may have failed beside it.
            Verb::Refresh { .. } => {
                most = 2 * TRIES;
                (command.instance.clone(), &command.instance)
            }
            Verb::EtcdMoveLeader => (role, &command.instance),
            // Any of the others can be asked to remove it.
            Verb::EtcdRemove { member } => (String::new(), member),
            Verb::EtcdSnapshot => {
                most = 2 * TRIES;
                (String::new(), &any_member)
            }
            Verb::EtcdHealth | Verb::Status => {
                let goes_on = self.tried.asked.filter(|(_, last)| now.duration_since(*last) <= ASKS_AGAIN);
                self.tried.asked = Some((goes_on.map_or(now, |(first, _)| first), now));
                return;
            }
            Verb::Logs { .. }
            | Verb::Serves { .. }
            | Verb::EtcdRetire
            | Verb::EtcdRestore { .. }
            | Verb::EtcdDefragment
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
                let new = Tries { document, role, machine: machine.clone(), most, tokens };
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

    /// Something else is done than to ask.
    pub(super) fn note_going_on(&mut self) {
        self.tried.asked = None;
    }

    /// An additional controller is requested.
    pub(super) fn note_one_more(&mut self, now: Timestamp) {
        self.tried.one_more.get_or_insert(now);
    }

    /// Notes which machines did not come for hours, and who was asked for hours.
    fn note_absent(&mut self, world: &World, now: Timestamp) {
        if self.target.is_none() || self.is_paused() {
            (self.tried.one_more, self.tried.asked) = (None, None);
            return;
        }
        let controllers = || self.machines.values().filter(|one| one.role == "controller");
        let wanted = controllers().next().and_then(|one| world.group_facts(&one.group));
        let serve = controllers().filter(|one| one.serves && !one.leaving).count();
        if wanted.is_none_or(|group| serve >= group.desired as usize) {
            self.tried.one_more = None;
        }
        let held_at = self.tried.held_at.max(self.begun_at);
        let is_late =
            |at: Timestamp| held_at.max(Some(at)).is_some_and(|from| now.duration_since(from) > RETURNS);
        let absent = self.taken.iter().filter(|one| one.restart.is_none() && !one.role.starts_with("pool-"));
        let absent = absent.into_iter().find(|one| is_late(one.at)).map(|one| one.machine.clone());
        let one_more = self.tried.one_more.filter(|at| is_late(*at)).map(|_| "controller".to_owned());
        let asked = self.tried.asked.filter(|(first, last)| last.duration_since(*first) > RETURNS);
        let asked = asked.map(|_| "the wait for healthy machines".to_owned());
        if let Some(what) = absent.or(one_more).or(asked) {
            self.tried.failed.get_or_insert((what, now));
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
        self.note_absent(world, now);
        if self.tried.failed.is_some() {
            return;
        }
        let failed = |one: &&Tries| {
            let last = one.tokens.iter().rev().take(one.most);
            one.tokens.len() >= one.most && last.into_iter().all(|token| world.has_failed(token))
        };
        let found = self.tried.tried.iter().find(failed).map(|one| (one.machine.clone(), now));
        self.tried.failed = found;
    }
}
