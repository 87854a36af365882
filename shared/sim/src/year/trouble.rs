//! What AWS and other users do to a world during a rollout, in addition to machines that fail.

use jiff::SignedDuration;

use super::engine::{Engine, Happening};
use super::random::Random;
use super::rates::{Rates, Trouble};
use crate::world::{Power, Process, Repairers, Service, World};

/// Something that is done to a world. `choice` selects a random target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// A machine is silent for a while; its status check may fail after some time.
    Hang {
        /// Selects the machine.
        choice: u64,
        /// For how long.
        long: SignedDuration,
        /// When its status check fails.
        noticed_after: Option<SignedDuration>,
    },
    /// A worker is reclaimed two minutes after its notice.
    Reclaim {
        /// Selects the worker.
        choice: u64,
    },
    /// Somebody raises the desired capacity of a pool by one.
    Grow {
        /// Selects the pool.
        choice: u64,
    },
    /// Somebody terminates a worker with a decrement.
    Shrink {
        /// Selects the worker.
        choice: u64,
    },
    /// Somebody suspends a process of a group, or resumes it.
    Suspend {
        /// Selects the group.
        choice: u64,
        /// The process.
        process: Process,
        /// Whether it is suspended from now on.
        is_suspended: bool,
    },
    /// Somebody protects a machine from scale-in.
    Protect {
        /// Selects the machine.
        choice: u64,
    },
    /// Somebody changes a stack by hand.
    ChangeStack {
        /// Selects the stack.
        choice: u64,
    },
    /// Somebody deletes the change sets of all stacks.
    DeleteChangeSets,
    /// Somebody repairs stacks whose rollback failed.
    Mend,
    /// A service is down for a while.
    Outage {
        /// The service.
        service: Service,
        /// For how long.
        long: SignedDuration,
    },
    /// The other members of etcd do not reach one member for a while; everybody else does.
    CutMember {
        /// Selects the member.
        choice: u64,
        /// For how long.
        long: SignedDuration,
    },
    /// Systems Manager does not reach a machine for a while; everybody else does.
    LoseAgent {
        /// Selects the machine.
        choice: u64,
        /// For how long.
        long: SignedDuration,
    },
    /// EC2 recommends replacing a worker, and may reclaim it later.
    Recommend {
        /// Selects the worker.
        choice: u64,
        /// When its notice comes.
        reclaimed_after: Option<SignedDuration>,
    },
    /// A person uncordons the next worker that is drained.
    Uncordon,
    /// Auto Scaling finds a machine unhealthy that serves.
    Condemn {
        /// Selects the machine.
        choice: u64,
    },
    /// A cluster autoscaler runs from now on.
    Autoscale,
    /// Node managers have workers replaced that are not Ready, from now on.
    Repair,
    /// Workers are silent for a while, and no status check notices it: one hangs, or the way to many is closed.
    Silence {
        /// Selects the first.
        choice: u64,
        /// How many in a hundred; one at least.
        percent: usize,
        /// For how long.
        long: SignedDuration,
    },
    /// Half of all calls are throttled for a while.
    Storm {
        /// For how long.
        long: SignedDuration,
    },
    /// Lambda has no concurrency for a while.
    Exhaust {
        /// For how long.
        long: SignedDuration,
    },
}

/// All strikes in the first hours of a trial; everything follows from `seed`.
pub(super) fn strikes(seed: u64, faults: f64, rates: &Rates) -> Vec<(SignedDuration, Strike)> {
    let mut random = Random::new(seed ^ 0x7374_7269);
    let mut all = Vec::new();
    let mut some = |trouble: Trouble,
                    times: usize,
                    what: &mut dyn FnMut(&mut Random) -> Vec<(SignedDuration, Strike)>| {
        for _ in 0..times {
            // Drawn at any rate, so that one trouble more or less does not change the others.
            let (happens, wait) =
                (random.chance((faults * rates.rate_of(trouble)).min(0.5)), some_time(&mut random));
            let strikes = what(&mut random);
            if happens {
                all.extend(strikes.into_iter().map(|(after, strike)| (wait + after, strike)));
            }
        }
    };
    some(Trouble::Hangs, 4, &mut |random| {
        let (choice, long) = (random.number(), SignedDuration::from_secs(random.seconds(60, 3_600)));
        let (noticed, after) = (random.chance(0.5), SignedDuration::from_secs(random.seconds(120, 900)));
        vec![(SignedDuration::ZERO, Strike::Hang { choice, long, noticed_after: noticed.then_some(after) })]
    });
    some(Trouble::Reclaims, 4, &mut |random| {
        vec![(SignedDuration::ZERO, Strike::Reclaim { choice: random.number() })]
    });
    some(Trouble::Sizes, 6, &mut |random| {
        let choice = random.number();
        let strike = if random.chance(0.5) { Strike::Grow { choice } } else { Strike::Shrink { choice } };
        vec![(SignedDuration::ZERO, strike)]
    });
    some(Trouble::Suspends, 2, &mut |random| {
        let (choice, long) = (random.number(), within(random, 7_200));
        let all = [Process::Launch, Process::Terminate, Process::ReplaceUnhealthy, Process::AzRebalance];
        let process = random.one(&all).copied().unwrap_or(Process::Launch);
        vec![
            (SignedDuration::ZERO, Strike::Suspend { choice, process, is_suspended: true }),
            (long, Strike::Suspend { choice, process, is_suspended: false }),
        ]
    });
    some(Trouble::Protects, 2, &mut |random| {
        vec![(SignedDuration::ZERO, Strike::Protect { choice: random.number() })]
    });
    let now = SignedDuration::ZERO;
    let longest = if rates.rate_of(Trouble::LongOutages) > 0.0 { 3_600 } else { 600 };
    some(Trouble::HandChanges, 3, &mut |random| vec![(now, Strike::ChangeStack { choice: random.number() })]);
    some(Trouble::ChangeSetsDeleted, 3, &mut |_| vec![(now, Strike::DeleteChangeSets)]);
    some(Trouble::Outages, 3, &mut |random| {
        let services = [
            Service::CloudFormation,
            Service::AutoScaling,
            Service::LoadBalancing,
            Service::RunCommand,
            Service::Scheduler,
        ];
        let service = random.one(&services).copied().unwrap_or(Service::AutoScaling);
        vec![(now, Strike::Outage { service, long: SignedDuration::from_secs(random.seconds(120, longest)) })]
    });
    some(Trouble::Storms, 3, &mut |random| {
        vec![(now, Strike::Storm { long: SignedDuration::from_secs(random.seconds(60, 1_200)) })]
    });
    some(Trouble::Exhausted, 3, &mut |random| {
        vec![(now, Strike::Exhaust { long: SignedDuration::from_secs(random.seconds(60, longest)) })]
    });
    some(Trouble::StorageOutages, 3, &mut |random| {
        let services = [Service::Storage, Service::Keys, Service::Parameters, Service::Bus];
        let service = random.one(&services).copied().unwrap_or(Service::Storage);
        vec![(now, Strike::Outage { service, long: SignedDuration::from_secs(random.seconds(120, longest)) })]
    });
    some(Trouble::CutMembers, 3, &mut |random| {
        let (choice, long) = (random.number(), SignedDuration::from_secs(random.seconds(60, 3_600)));
        vec![(now, Strike::CutMember { choice, long })]
    });
    some(Trouble::LostAgents, 4, &mut |random| {
        let (choice, long) = (random.number(), SignedDuration::from_secs(random.seconds(60, 3_600)));
        vec![(now, Strike::LoseAgent { choice, long })]
    });
    some(Trouble::Recommendations, 4, &mut |random| {
        let (choice, follows) = (random.number(), random.chance(0.5));
        let after = SignedDuration::from_secs(random.seconds(0, 3_600));
        vec![(now, Strike::Recommend { choice, reclaimed_after: follows.then_some(after) })]
    });
    some(Trouble::Autoscales, 1, &mut |_| vec![(now, Strike::Autoscale)]);
    some(Trouble::Uncordons, 3, &mut |_| vec![(now, Strike::Uncordon)]);
    some(Trouble::Condemns, 3, &mut |random| vec![(now, Strike::Condemn { choice: random.number() })]);
    some(Trouble::Repairs, 1, &mut |random| {
        let (choice, after, long) = (random.number(), within(random, 3_600), random.seconds(1_200, 10_800));
        let hangs = Strike::Silence { choice, percent: 0, long: SignedDuration::from_secs(long) };
        let (closed, percent) = (random.chance(0.5), random.one(&[40, 60, 100]).copied().unwrap_or(100));
        let (choice, later, long) = (random.number(), within(random, 10_800), random.seconds(1_200, 5_400));
        let closes = Strike::Silence { choice, percent, long: SignedDuration::from_secs(long) };
        let closes = closed.then_some((later, closes));
        [(now, Strike::Repair), (after, hangs)].into_iter().chain(closes).collect()
    });
    if faults * rates.rate_of(Trouble::RollbacksFail) > 0.0 {
        all.extend((1..8).map(|hour| (SignedDuration::from_hours(hour), Strike::Mend)));
    }
    all
}

/// A rollout is over in an hour or two, so half of all strikes come in that time.
fn some_time(random: &mut Random) -> SignedDuration {
    let most = if random.chance(0.5) { 2_400 } else { 21_600 };
    within(random, most)
}

fn within(random: &mut Random, most: i64) -> SignedDuration {
    SignedDuration::from_secs(random.seconds(0, most))
}

fn one<T: Clone>(all: &[T], choice: u64) -> Option<T> {
    all.get(usize::try_from(choice).unwrap_or_default() % all.len().max(1)).cloned()
}

/// The ids of the machines that are up and whose role has this prefix.
/// So many workers in a hundred, one at least, are silent for a while, and no status check notices it.
pub(super) fn silences(world: &mut World, choice: u64, percent: usize, long: SignedDuration) {
    let workers = machines(world, "pool-");
    let first = usize::try_from(choice >> 1).unwrap_or_default() % workers.len().max(1);
    let count = (workers.len() * percent).div_ceil(100).clamp(1, workers.len().max(1));
    for id in workers.iter().cycle().skip(first).take(count.min(workers.len())) {
        world.hang_machine(id, long, None);
    }
}

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
                    world.lose_agent(&id, long);
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
