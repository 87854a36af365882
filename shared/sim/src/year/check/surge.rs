//! The number of machines that a pool should have without its surge. Somebody else may have raised the desired capacity of its group above
//! the spec's minimum. The acts of a rollout show how many machines it has added, and at its end it has removed them again.
//!
//! Nobody knows who requested which machine of a group. If somebody else terminates a machine while there is a surge, the machine may have
//! been one of the surge or not; from then on the checker accepts both readings.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Checker;
use crate::world::{ClusterFacts, MachineFacts, World};

/// By the name of each pool's group.
#[derive(Debug, Clone, Default)]
pub(super) struct Surges(BTreeMap<String, Surge>);

#[derive(Debug, Clone, Default)]
struct Surge {
    /// The desired capacity of the group.
    wanted: usize,
    /// The maximum number of these machines that a rollout may have added.
    added: usize,
    /// The number of these machines that a rollout has certainly added.
    surely_added: usize,
    /// How many decrements a rollout has requested since. The group shows whether they took effect; they do not have to.
    terminated: usize,
    /// The largest size without the surge during this rollout.
    most: usize,
    /// When somebody else last raised the size, and the desired capacity before. A decision may not know of it yet.
    grown: Option<(Timestamp, usize)>,
}

impl Surges {
    /// A rollout begins.
    pub(super) fn begun(&mut self) {
        self.0.values_mut().for_each(|surge| surge.most = surge.wanted - surge.surely_added);
    }

    /// A rollout sets the desired capacity of a group. If somebody else has just raised it as far, nobody knows whose machine is the
    /// additional one.
    pub(super) fn sized(&mut self, group: &str, wanted: usize, now: Timestamp, grace: SignedDuration) {
        let Some(surge) = self.0.get_mut(group) else { return };
        if wanted > surge.wanted {
            surge.added += wanted - surge.wanted;
            surge.surely_added += wanted - surge.wanted;
            surge.wanted = wanted;
        } else if let Some((_, before)) = surge.grown.filter(|(at, _)| now.duration_since(*at) <= grace) {
            surge.added += wanted.saturating_sub(before);
        }
    }

    /// A rollout has succeeded and has removed what it added: the remaining size is the pool's own, except for machines that were certainly
    /// added.
    pub(super) fn ended(&mut self) {
        self.0.values_mut().for_each(|surge| surge.added = surge.surely_added);
    }

    /// A rollout terminates a machine with a decrement.
    pub(super) fn shrunk(&mut self, group: &str) {
        if let Some(surge) = self.0.get_mut(group) {
            surge.terminated += 1;
        }
    }

    /// Observes the desired capacity of a group. A change that no rollout made was made by somebody else.
    fn seen(&mut self, group: &str, wanted: usize, now: Timestamp, grace: SignedDuration) {
        let surge = self.0.entry(group.to_owned()).or_default();
        if surge.wanted > 0 && wanted > surge.wanted {
            // Of several changes in a row, the first counts.
            let lately = surge.grown.filter(|(at, _)| now.duration_since(*at) <= grace);
            surge.grown = lately.map(|(_, before)| (now, before)).or(Some((now, surge.wanted)));
        }
        let taken_down = surge.wanted.saturating_sub(wanted);
        surge.surely_added = surge.surely_added.saturating_sub(taken_down);
        surge.added = surge.added.saturating_sub(taken_down.min(surge.terminated)).min(wanted);
        (surge.wanted, surge.terminated) = (wanted, 0);
        surge.most = surge.most.max(wanted - surge.surely_added);
    }
}

impl Checker {
    /// A rollout sets the desired capacity of a group.
    pub(super) fn sizes(&mut self, world: &World, facts: &ClusterFacts, group: &str, desired: u32) {
        let role = self.machines.values().find(|machine| machine.group == group).map(|one| one.role.clone());
        let Some(role) = role else { return };
        if role == "controller" {
            self.brings_minor(facts, world.now());
            self.note_one_more(world.now());
        }
        // If certificates are renewed in place, a single controller gets an additional one first.
        let more = self.machines.values().filter(|one| one.group == group && !one.leaving).count();
        let renews = role == "controller" && self.target.is_some();
        if desired as usize > more.max(self.rules.size(&role)) && !self.is_replaced(world, group) && !renews {
            let what = format!("{group} is to have {desired} machines, and none of it is to be replaced");
            self.wrong(world.now(), "P2", what);
        }
        let most = self.most(&role, group);
        if desired as usize > most {
            self.wrong(
                world.now(),
                "P8",
                format!("{group} is to have {desired} machines, and {most} are the most"),
            );
        }
        self.surges.sized(group, desired as usize, world.now(), self.grace());
        self.note_begun(&role);
    }

    /// Observes the desired capacity of all groups, which others change, too.
    pub(super) fn note_sizes(&mut self, world: &World, now: Timestamp) {
        let grace = self.grace();
        let mut of_pools: Vec<&MachineFacts> =
            self.machines.values().filter(|one| one.role.starts_with("pool-")).collect();
        of_pools.dedup_by(|one, other| one.group == other.group);
        for machine in of_pools {
            if let Some(group) = world.group_facts(&machine.group) {
                self.surges.seen(&machine.group, group.desired as usize, now, grace);
            }
        }
    }

    /// The maximum desired capacity of a group, including its surge.
    pub(super) fn most(&self, role: &str, group: &str) -> usize {
        let besides = self.surges.0.get(group).map_or(0, |surge| surge.most);
        let size = besides.max(self.rules.most(role));
        size + self.rules.surge(role, size)
    }

    /// Pools that a rollout left larger than they were, without changes by others.
    pub fn enlarged_pools(&self) -> Vec<String> {
        let larger = self.surges.0.iter().filter(|(_, surge)| surge.surely_added > 0);
        larger
            .map(|(group, surge)| format!("{group} wants {} machines more than before", surge.surely_added))
            .collect()
    }

    /// P6: when the drain of a worker begins, the number of missing workers is at most `maxUnavailable`, counted against the size without
    /// the surge.
    pub(super) fn may_miss_one(&mut self, machine: &MachineFacts, now: Timestamp) {
        let role = machine.role.as_str();
        // In a pool that is removed, drained machines stay empty until the last one is drained.
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
        let may = self.rules.max_missing(role, wanted);
        if serve + may < wanted {
            let what = format!(
                "{} is drained while {serve} others of {role} serve, of {wanted}, and {may} may be missing",
                machine.id
            );
            self.wrong(now, "P6", what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of the desired capacity of a group.
    enum Does {
        /// At second 100.
        Rollout(usize),
        Shrinks,
        /// At second 0.
        Others(usize),
        /// At second 90.
        JustNow(usize),
        Begins,
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn pool(all: &[Does]) -> Surge {
        let mut surges = Surges::default();
        for one in all {
            match one {
                Does::Rollout(wanted) => surges.sized("g", *wanted, at(100), SignedDuration::from_secs(60)),
                Does::Shrinks => surges.shrunk("g"),
                Does::Others(wanted) => surges.seen("g", *wanted, at(0), SignedDuration::ZERO),
                Does::JustNow(wanted) => surges.seen("g", *wanted, at(90), SignedDuration::from_secs(60)),
                Does::Begins => surges.begun(),
            }
        }
        surges.0["g"].clone()
    }

    /// Seeds 1074, 1114 and 1306 of pools of several zones: a terminated machine always counted as the pool's own, and never as one of the
    /// surge.
    #[test]
    fn p8_what_others_take_down_may_have_been_of_the_surge_or_not() {
        use Does::{Begins, Others, Rollout, Shrinks};
        for (all, most) in [
            (&[Others(5), Rollout(6), Others(5), Rollout(6), Others(7), Others(6), Begins][..], 6),
            (&[Others(5), Rollout(6), Others(5), Rollout(6), Others(7), Shrinks, Others(6), Begins], 6),
            (
                &[
                    Others(5),
                    Rollout(6),
                    Others(7),
                    Others(6),
                    Rollout(7),
                    Shrinks,
                    Others(6),
                    Others(7),
                    Begins,
                ],
                7,
            ),
            // Nobody else terminated a machine, so the machine that the rollout added does not belong to the pool's own size.
            (&[Others(5), Rollout(6), Begins], 5),
            (&[Others(5), Rollout(6), Others(7), Begins], 6),
            // A machine that was terminated before there was a surge did not belong to it.
            (&[Others(5), Others(4), Rollout(5), Begins], 4),
        ] {
            assert_eq!(pool(all).most, most);
        }
    }

    /// Seed 526 of pools of many workers: an autoscaler asked for the same 17 machines seconds before.
    #[test]
    fn p6_a_machine_that_two_asked_for_may_be_of_the_surge_or_not() {
        use Does::{JustNow, Others, Rollout};
        for (all, added) in [
            (&[Others(16), JustNow(17), Rollout(17)][..], (1, 0)),
            (&[Others(16), Others(17), Rollout(17)], (0, 0)),
        ] {
            let surge = pool(all);
            assert_eq!((surge.added, surge.surely_added), added);
        }
    }

    #[test]
    fn p8_a_pool_is_left_larger_by_what_was_surely_added() {
        use Does::{Others, Rollout, Shrinks};
        for (all, larger) in [
            (&[Others(5), Rollout(6)][..], 1),
            (&[Others(5), Rollout(6), Shrinks, Others(5)], 0),
            // A decrement was requested, and did not take effect.
            (&[Others(5), Rollout(6), Shrinks, Others(6)], 1),
            (&[Others(5), Rollout(7), Shrinks, Shrinks, Others(6)], 1),
            (&[Others(5), Rollout(6), Others(5)], 0),
            (&[Others(5), Others(4), Rollout(5)], 1),
        ] {
            assert_eq!(pool(all).surely_added, larger);
        }
    }
}
