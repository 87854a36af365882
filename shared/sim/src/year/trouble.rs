//! What AWS and other users do to a world during a rollout, in addition to machines that fail.

use jiff::SignedDuration;

use super::engine::{Engine, Happening};
use super::strikes::{Strike, strikes};
use crate::world::{Power, Repairers, World};

fn one<T: Clone>(all: &[T], choice: u64) -> Option<T> {
    all.get(usize::try_from(choice).unwrap_or_default() % all.len().max(1)).cloned()
}

/// So many workers in a hundred, one at least, are silent for a while, and no status check notices it.
pub(super) fn silences(world: &mut World, choice: u64, percent: usize, long: SignedDuration) {
    let workers = machines(world, "pool-");
    let first = usize::try_from(choice >> 1).unwrap_or_default() % workers.len().max(1);
    let count = (workers.len() * percent).div_ceil(100).clamp(1, workers.len().max(1));
    for id in workers.iter().cycle().skip(first).take(count.min(workers.len())) {
        world.hang_machine(id, long, None);
    }
}

/// The ids of the machines that are up and whose role has this prefix.
fn machines(world: &World, role: &str) -> Vec<String> {
    let machines = world.machines().into_iter();
    machines.filter(|one| one.power == Power::Up && one.role.starts_with(role)).map(|one| one.id).collect()
}

fn groups(world: &World, role: &str) -> Vec<String> {
    let mut groups: Vec<String> =
        world.machines().into_iter().filter(|one| one.role.starts_with(role)).map(|one| one.group).collect();
    groups.sort();
    groups.dedup();
    groups
}

impl Engine<'_> {
    /// Schedules the strikes.
    pub(super) fn troubles(&mut self, seed: u64) {
        for (wait, strike) in strikes(seed, self.faults, &self.rates.clone()) {
            self.after(wait, Happening::Strike(strike));
        }
    }

    pub(super) fn strike(&mut self, strike: Strike) {
        if let Strike::Exhaust { long } = strike {
            self.exhausted_until = Some(self.now() + long);
            let line = format!("Lambda has no concurrency for {} minutes", long.as_mins());
            return self.transcript.push((self.now(), line));
        }
        let is_announced = matches!(strike, Strike::Reclaim { .. } | Strike::Recommend { .. });
        self.strikes(|world| match strike {
            Strike::Hang { choice, long, noticed_after } => {
                if let Some(id) = one(&machines(world, ""), choice) {
                    world.hang_machine(&id, long, noticed_after);
                }
            }
            Strike::Reclaim { choice } => {
                if let Some(id) = one(&machines(world, "pool-"), choice) {
                    world.reclaim_machine(&id);
                }
            }
            Strike::Grow { choice } => {
                if let Some(group) = one(&groups(world, "pool-"), choice) {
                    world.others_grow(&group);
                }
            }
            Strike::Shrink { choice } => {
                if let Some(group) = one(&groups(world, "pool-"), choice) {
                    world.others_shrink(&group, choice >> 8);
                }
            }
            Strike::Suspend { choice, process, is_suspended } => {
                if let Some(group) = one(&groups(world, ""), choice) {
                    world.suspend(&group, process, is_suspended);
                }
            }
            Strike::Protect { choice } => {
                if let Some(id) = one(&machines(world, ""), choice) {
                    world.protect(&id, true);
                }
            }
            Strike::ChangeStack { choice } => {
                let stacks: Vec<String> = world.stacks_there().into_keys().collect();
                if let Some(name) = one(&stacks, choice) {
                    world.change_by_hand(&name);
                }
            }
            Strike::DeleteChangeSets => {
                let stacks: Vec<String> = world.stacks_there().into_keys().collect();
                stacks.iter().for_each(|name| world.delete_change_sets_by_hand(name));
            }
            Strike::CutMember { choice, long } => {
                if let Some(id) = one(&machines(world, "etcd-"), choice) {
                    world.isolate_member(&id, long);
                }
            }
            Strike::LoseAgent { choice, long } => {
                if let Some(id) = one(&machines(world, ""), choice) {
                    world.lose_agent(&id, long, choice / 7 % 2 == 1);
                }
            }
            Strike::Recommend { choice, reclaimed_after } => {
                if let Some(id) = one(&machines(world, "pool-"), choice) {
                    world.recommend_to_replace(&id, reclaimed_after);
                }
            }
            Strike::Autoscale => world.set_autoscaler(true),
            Strike::Repair => world.set_repairs(Some(Repairers::Careful)),
            Strike::Silence { choice, percent, long } => {
                silences(world, choice, percent, long);
            }
            Strike::Jam { choice, long } => {
                if let Some(id) = one(&machines(world, "pool-"), choice) {
                    world.jam_machine(&id, long);
                }
            }
            Strike::Uncordon => world.uncordon_next_by_hand(),
            Strike::Condemn { choice } => {
                if let Some(id) = one(&machines(world, ""), choice) {
                    world.condemn_machine(&id);
                }
            }
            Strike::Mend => world.mend_by_hand(),
            Strike::Outage { service, long } => world.outage(service, long),
            Strike::Storm { long } => world.storm(long),
            Strike::Exhaust { .. } => {}
        });
        // Two minutes are short: the notice does not wait until something else happens.
        if is_announced {
            self.go_on(self.now());
        }
    }

    /// Ends all strikes and reverts what they did.
    pub(super) fn troubles_end(&mut self) {
        self.exhausted_until = None;
        self.queue.retain(|_, happening| !matches!(happening, Happening::Strike(_)));
        self.strikes(|world| {
            world.others_let_be();
            world.end_silence();
            world.uncordon_none_by_hand();
            world.end_partitions();
            world.set_autoscaler(false);
            world.set_repairs(None);
            world.clear_weather();
            world.mend_by_hand();
        });
    }
}

#[cfg(test)]
mod tests;
