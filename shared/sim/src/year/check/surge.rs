//! How many machines a pool is to have when its surge is left out. Somebody else may have had it grow, so that it is more than the spec's
//! least; what a rollout has added is known from what it did, and in the end it has taken that back.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Checker;
use crate::world::{MachineFacts, World};

/// Of each pool, by its group.
#[derive(Debug, Clone, Default)]
pub(super) struct Surges(BTreeMap<String, Surge>);

#[derive(Debug, Clone, Default)]
struct Surge {
    /// How many machines its group wants.
    wanted: usize,
    /// How many of them a rollout has added.
    added: usize,
    /// The most that it was to have besides in this rollout. Where somebody else takes one down, nobody can tell whether that was the one
    /// that was added.
    most: usize,
    /// When somebody else had it grow last, and what it wanted before: whoever decides may not know of it yet.
    grown: Option<(Timestamp, usize)>,
    /// How many somebody else has taken down: as many of those that were added may be gone.
    lost: usize,
}

impl Surges {
    /// A rollout begins.
    pub(super) fn begun(&mut self) {
        self.0.values_mut().for_each(|surge| surge.most = surge.wanted - surge.added);
    }

    /// A rollout has a group want so many.
    pub(super) fn sized(&mut self, group: &str, wanted: usize) {
        if let Some(surge) = self.0.get_mut(group).filter(|surge| wanted > surge.wanted) {
            surge.added += wanted - surge.wanted;
            surge.wanted = wanted;
        }
    }

    /// A rollout has a machine go for which none comes.
    pub(super) fn shrunk(&mut self, group: &str) {
        if let Some(surge) = self.0.get_mut(group) {
            surge.added = surge.added.saturating_sub(1);
            surge.wanted = surge.wanted.saturating_sub(1);
        }
    }
}

impl Checker {
    /// Looks at how many machines groups want: others change it, too.
    pub(super) fn note_sizes(&mut self, world: &World, now: Timestamp) {
        let grace = self.grace();
        let mut of_pools: Vec<&MachineFacts> =
            self.machines.values().filter(|one| one.role.starts_with("pool-")).collect();
        of_pools.dedup_by(|one, other| one.group == other.group);
        for machine in of_pools {
            if let Some(group) = world.group_facts(&machine.group) {
                let surge = self.surges.0.entry(machine.group.clone()).or_default();
                if surge.wanted > 0 && group.desired as usize > surge.wanted {
                    // Of several in a row the first counts.
                    let lately = surge.grown.filter(|(at, _)| now.duration_since(*at) <= grace);
                    surge.grown = lately.map(|(_, before)| (now, before)).or(Some((now, surge.wanted)));
                }
                surge.lost += surge.wanted.saturating_sub(group.desired as usize);
                surge.wanted = group.desired as usize;
                surge.added = surge.added.min(surge.wanted);
                surge.most = surge.most.max(surge.wanted - surge.added);
            }
        }
    }

    /// How many machines a group may want, its surge included.
    pub(super) fn most(&self, role: &str, group: &str) -> usize {
        let besides = self.surges.0.get(group).map_or(0, |surge| surge.most);
        besides.max(self.rules.size(role)) + self.rules.surge(role)
    }

    /// Pools of which a rollout has left more machines than there were, whoever else changed their size.
    pub fn left_larger(&self) -> Vec<String> {
        let larger = self.surges.0.iter().filter(|(_, surge)| surge.added > surge.lost);
        larger
            .map(|(group, surge)| format!("{group} wants {} machines more than before", surge.added))
            .collect()
    }

    /// P6: where the drain of a worker begins, so many others take pods that no more than `maxUnavailable` of those that there are to be
    /// without a surge are missing.
    pub(super) fn may_miss_one(&mut self, machine: &MachineFacts, now: Timestamp) {
        let role = machine.role.as_str();
        // Of a pool that goes those that are drained stay, empty, until the last of them is.
        if !role.starts_with("pool-") || self.is_to_go(role) {
            return;
        }
        let wanted = self.surges.0.get(&machine.group).map_or(0, |surge| {
            let lately = surge.grown.filter(|(at, _)| now.duration_since(*at) <= self.grace());
            lately.map_or(surge.wanted, |(_, before)| before.min(surge.wanted)).saturating_sub(surge.added)
        });
        let wanted = wanted.max(self.rules.size(role));
        let others = self.machines.values().filter(|one| one.role == role && one.id != machine.id);
        let serve = others
            .filter(|one| !self.drained.contains_key(&one.id) && self.counts_as_well(&one.id, now))
            .count();
        let may = self.rules.may_miss(role);
        if serve + may < wanted {
            let what = format!(
                "{} is drained while {serve} others of {role} serve, of {wanted}, and {may} may be missing",
                machine.id
            );
            self.wrong(now, "P6", what);
        }
    }
}
