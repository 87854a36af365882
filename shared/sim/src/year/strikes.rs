//! What AWS and other users do to a world during a rollout, and when.

use jiff::SignedDuration;

use super::random::Random;
use super::rates::{Rates, Trouble};
use crate::world::{Process, Service};

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
    /// The container runtime of a worker hangs for a while, and its kubelet speaks.
    Jam {
        /// Selects the worker.
        choice: u64,
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
        let long = SignedDuration::from_secs(long);
        let hangs = if choice / 7 % 2 == 1 {
            Strike::Jam { choice, long }
        } else {
            Strike::Silence { choice, percent: 0, long }
        };
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
