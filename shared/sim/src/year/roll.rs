//! The roll of a pool in a world without faults, compared with the lowest possible time: that of the drains and boots themselves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use jiff::{SignedDuration, Timestamp};
use slipway_core::keys;

use super::account::Account;
use super::check::{Checker, Violation};
use super::engine::{Deed, Engine};
use super::meddle::Meddler;
use super::rules::Rules;
use crate::world::World;

const NAME: &str = "roll";
const POOL: &str = "pool-workers";
/// A launch takes less than a day, and a roll of any size less than a month.
const LAUNCHED: SignedDuration = SignedDuration::from_hours(24);
const PATIENCE: SignedDuration = SignedDuration::from_hours(24 * 30);

/// A pool whose machines are all replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roll {
    /// The number of workers.
    pub workers: u32,
    /// How many of them may be missing.
    pub max_unavailable: u32,
    /// The surge: how many additional machines there may be.
    pub surge: u32,
}

/// The measured costs of a roll.
#[derive(Debug)]
pub struct Rolled {
    /// From the upload to the end of the rollout.
    pub whole: SignedDuration,
    /// From the first drain or launch until the last machine was in service, or the last drained.
    pub rolling: SignedDuration,
    /// The lowest possible time: the sum of the drains, each from its command to its answer, and of the boots, each from the beginning of
    /// the predecessor's termination until the machine is in service, in their order: the first worker alone, and then as many at a time as
    /// are allowed.
    pub floor: SignedDuration,
    /// Invocations of the rollout function.
    pub invocations: u64,
    /// The calls of the rollout function.
    pub calls: u64,
    /// The largest size of `rollout.json` in bytes.
    pub state: usize,
    /// Broken promises.
    pub violations: Vec<Violation>,
}

impl Roll {
    fn spec(self, kind: &str) -> String {
        let Self { workers, max_unavailable, surge } = self;
        let most = workers + surge;
        format!(
            "clusterName: {NAME}\nregion: eu-west-1\nkubernetesVersion: \"1.37\"\nkeyName: operations\n\
             apiEndpoints:\n  - name: default\n    dnsName: api.example.com\n    loadBalancer:\n      type: network\n      \
             hostedZone: {{id: Z0123456789ABCDEFGHIJ}}\n\
             vpcCIDR: 10.0.0.0/16\npodCIDR: 100.64.0.0/12\nsubnets:\n\
             \x20 - {{name: public-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.0.0/24}}\n\
             \x20 - {{name: public-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.1.0/24}}\n\
             \x20 - {{name: private-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.32.0/19, private: true}}\n\
             \x20 - {{name: private-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.64.0/19, private: true}}\n\
             controller:\n  count: 2\netcd:\n  count: 1\n\
             worker:\n  nodePools:\n    - name: workers\n      instanceType: {kind}\n      \
             autoScalingGroup: {{minSize: {workers}, maxSize: {most}}}\n\
             rollout:\n  approval: auto\n  maxUnavailable: {max_unavailable}\n  surge: {surge}\n"
        )
    }

    /// Launches the cluster and rolls its pool; `meddler` may observe.
    ///
    /// # Panics
    /// If its spec is invalid.
    #[must_use]
    pub fn run(self, meddler: Option<&dyn Meddler>) -> Rolled {
        let before = self.spec("m7i.large");
        let accepted =
            slipway_spec::parse(before.as_bytes(), None).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let checker = Checker::new(NAME, Rules::for_cluster(&accepted.cluster), false);
        let mut engine = Engine::new(Account::new(NAME, "eu-west-1", 1), checker, 1, meddler);
        engine.person_after(SignedDuration::ZERO, Deed::Upload(before));
        engine.run_until(engine.now() + LAUNCHED);
        engine.checker.stands = true;
        engine.tally = super::engine::Tally::default();
        engine.transcript.clear();

        let asked = engine.now();
        let generation = |engine: &Engine<'_>| engine.account.rollout().map(|one| one.generation);
        let launched = generation(&engine);
        engine.person_after(SignedDuration::ZERO, Deed::Upload(self.spec("m7i.xlarge")));
        let mut seen = Seen::default();
        let mut state = 0;
        while engine.next_at().is_some_and(|next| next.duration_since(asked) < PATIENCE) {
            engine.step();
            engine.with_world(|world| seen.record(world, asked));
            // Nobody reads the transcript, and with a thousand nodes it is long.
            engine.transcript.clear();
            let rollout = engine.account.assets.peek(&keys::rollout(NAME));
            state = state.max(rollout.map_or(0, |bytes| bytes.len()));
            let is_open = engine.account.rollout().is_some_and(|one| one.is_open());
            if generation(&engine) > launched && !is_open {
                break;
            }
        }
        let (rolling, floor) =
            engine.with_world(|world| seen.sum(world, asked, self.max_unavailable + self.surge));
        Rolled {
            whole: engine.now().duration_since(asked),
            rolling,
            floor,
            invocations: engine.tally.invocations.get("rollout").copied().unwrap_or_default(),
            calls: engine.tally.calls.values().sum(),
            state,
            violations: engine.checker.violations,
        }
    }
}

/// When each new worker was in service, and when the termination of each old one began.
#[derive(Debug, Default)]
struct Seen {
    up: BTreeMap<(Timestamp, String), Timestamp>,
    left: BTreeMap<String, Timestamp>,
}

impl Seen {
    fn record(&mut self, world: &World, since: Timestamp) {
        let now = world.now();
        for machine in world.machines() {
            if machine.role == POOL && machine.serves && machine.launched_at > since {
                self.up.entry((machine.launched_at, machine.id)).or_insert(now);
            } else if machine.role == POOL && machine.leaving {
                self.left.entry(machine.id).or_insert(now);
            }
        }
    }

    /// The time from the first drain to the last boot, and the lowest possible time with that many machines at a time.
    fn sum(&self, world: &World, since: Timestamp, at_a_time: u32) -> (SignedDuration, SignedDuration) {
        // The drain of each machine, and not the one in its terminate hook, which ends at once.
        let mut seen = BTreeSet::new();
        let drains = world.drains().into_iter().filter(|drain| drain.from > since);
        let drains: Vec<_> = drains.filter(|drain| seen.insert(drain.node.clone())).collect();
        let all = drains
            .iter()
            .map(|drain| (drain.from, drain.until))
            .chain(self.up.iter().map(|((from, _), until)| (*from, *until)));
        let (froms, untils): (Vec<_>, Vec<_>) = all.unzip();
        let first = froms.into_iter().min();
        let rolling = first.zip(untils.into_iter().max());
        let rolling = rolling.map_or(SignedDuration::ZERO, |(from, until)| until.duration_since(from));
        // Each machine is drained and replaced.
        let drained = drains.iter().map(|drain| drain.until.duration_since(drain.from));
        // Auto Scaling reacts some seconds after a termination begins, and launches then; no rollout can be faster.
        let mut left: Vec<Timestamp> = self.left.values().copied().collect();
        left.sort();
        let begun = self.up.keys().enumerate();
        let begun = begun.map(|(at, (from, _))| left.get(at).map_or(*from, |left| *from.min(left)));
        let booted = begun.zip(self.up.values()).map(|(begun, up)| up.duration_since(begun));
        let places: Vec<_> = drained.zip(booted).map(|(drained, booted)| drained + booted).collect();
        (rolling, alone(&places, at_a_time))
    }
}

/// The total time if `hands` workers do these in parallel: the first one alone, to see whether its successor comes up, and then each by
/// whichever worker is free first.
fn alone(places: &[SignedDuration], hands: u32) -> SignedDuration {
    let Some((canary, others)) = places.split_first() else { return SignedDuration::ZERO };
    let mut free: BinaryHeap<_> = (0..hands.max(1)).map(|_| Reverse(*canary)).collect();
    let mut end = *canary;
    for place in others {
        let Reverse(begun) = free.pop().unwrap_or(Reverse(*canary));
        end = end.max(begun + *place);
        free.push(Reverse(begun + *place));
    }
    end
}
