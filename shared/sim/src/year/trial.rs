//! One rollout, with whatever goes wrong: a small cluster that stands is changed, things fail and people interfere for some hours, and
//! then nothing does any more. It must come to an end, and in the end to what was asked for.

use jiff::{SignedDuration, Timestamp};
use slipway_core::render::Rendering;
use slipway_core::renewal::Asked;
use slipway_core::rollout::Order;
use slipway_core::spec;
use slipway_core::status::Desired;
use slipway_driver::keys;
use slipway_driver::launch::Waker;

use super::account::{Account, Woken};
use super::check::{Checker, Violation};
use super::engine::{Deed, Engine, Happening, Tally};
use super::meddle::Meddler;
use super::random::Random;
use super::rules::Rules;
use super::skew::Skew;
use crate::mortal::Life;
use crate::ports::lock;
use crate::world::{FleetFaults, Power};

/// The cluster of every trial.
const NAME: &str = "trial";
/// For how long things go wrong.
const TROUBLE: SignedDuration = SignedDuration::from_hours(8);
/// After so long without trouble nothing may be open: the longest that is waited for is an hour at each of a few machines.
const BOUND: SignedDuration = SignedDuration::from_hours(36);
/// How often a person uploads the spec again after a rollout that did not end well.
const AGAIN: usize = 3;

/// How large a cluster is, and how it is to be rolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    members: u32,
    controllers: u32,
    /// Sizes of its pools.
    pools: &'static [u32],
    manual: bool,
    windows: bool,
}

const SHAPES: [Shape; 6] = [
    Shape { members: 1, controllers: 1, pools: &[2], manual: false, windows: false },
    Shape { members: 3, controllers: 1, pools: &[2], manual: false, windows: false },
    Shape { members: 3, controllers: 2, pools: &[3, 2], manual: false, windows: false },
    Shape { members: 3, controllers: 3, pools: &[3], manual: false, windows: false },
    Shape { members: 3, controllers: 3, pools: &[2], manual: true, windows: false },
    Shape { members: 5, controllers: 2, pools: &[2], manual: false, windows: true },
];

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The machines of etcd.
    Members,
    /// The controllers.
    Controllers,
    /// The workers.
    Workers,
    /// All machines.
    All,
    /// Credentials, in place.
    Refresh,
    /// Credentials, by other machines.
    Renew,
    /// The minor of Kubernetes, and of etcd with it.
    Upgrade,
    /// There are two members of etcd fewer, and one controller.
    Fewer,
}

const CHANGES: [Change; 6] =
    [Change::Members, Change::Controllers, Change::Workers, Change::All, Change::Refresh, Change::Renew];

/// How many different bases seeds choose from.
pub const BASES: usize = SHAPES.len() * CHANGES.len();
/// How many sizes of clusters there are.
pub const SIZES: usize = SHAPES.len();

/// The spec of a cluster of that shape; `changed` are the machines that are other ones than at its launch.
fn text(shape: Shape, change: Change, changed: bool, workers: &str) -> String {
    let kind = |role: Change| {
        if changed && (change == role || change == Change::All) { "m7i.xlarge" } else { "m7i.large" }
    };
    let pools: String = shape
        .pools
        .iter()
        .enumerate()
        .map(|(index, size)| {
            let zone = ["a", "b"][index % 2];
            let kind = if workers.is_empty() { kind(Change::Workers) } else { workers };
            format!(
                "    - name: p{index}\n      instanceType: {kind}\n      subnets: [{{name: private-{zone}}}]\n      \
                 autoScalingGroup: {{minSize: {size}, maxSize: {}}}\n",
                size + 2
            )
        })
        .collect();
    let minor = if change == Change::Upgrade && !changed { "1.36" } else { "1.37" };
    let (mut controllers, mut members) = (shape.controllers, shape.members);
    if change == Change::Fewer && changed {
        (controllers, members) = ((controllers - 1).max(1), members.saturating_sub(2).max(1));
    }
    let strategy = if change == Change::Refresh { "refresh" } else { "rollout" };
    let approval = if shape.manual { "manual" } else { "auto" };
    let windows = if shape.windows {
        "  windows:\n    - {days: [mon, wed, sat], start: \"06:00\", minutes: 300}\n    - {start: \"22:30\", minutes: 180}\n"
    } else {
        ""
    };
    format!(
        "clusterName: {NAME}\nregion: eu-west-1\nkubernetesVersion: \"{minor}\"\nkeyName: operations\n\
         apiEndpoints:\n  - name: default\n    dnsName: api.example.com\n    loadBalancer:\n      type: network\n      \
         hostedZone: {{id: Z0123456789ABCDEFGHIJ}}\n\
         vpcCIDR: 10.0.0.0/16\nsubnets:\n\
         \x20 - {{name: public-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.0.0/24}}\n\
         \x20 - {{name: public-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.1.0/24}}\n\
         \x20 - {{name: public-c, availabilityZone: eu-west-1c, instanceCIDR: 10.0.2.0/24}}\n\
         \x20 - {{name: private-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.32.0/19, private: true}}\n\
         \x20 - {{name: private-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.64.0/19, private: true}}\n\
         \x20 - {{name: private-c, availabilityZone: eu-west-1c, instanceCIDR: 10.0.96.0/19, private: true}}\n\
         controller:\n  count: {}\n  instanceType: {}\netcd:\n  count: {}\n  instanceType: {}\n\
         worker:\n  nodePools:\n{pools}\
         certificatesConfiguration:\n  rolloutBeforeExpiry: {{enabled: true, days: 30, strategy: {strategy}}}\n\
         rollout:\n  approval: {approval}\n  maxUnavailable: 1\n{windows}",
        controllers,
        kind(Change::Controllers),
        members,
        kind(Change::Members),
    )
}

/// A cluster that stands, and a plan that is about to be executed. Many trials go on from one.
#[derive(Debug)]
pub struct Base {
    account: Account,
    rules: Rules,
    shape: Shape,
    change: Change,
    skew: Skew,
}

impl Base {
    /// The base number `which` of [`BASES`].
    ///
    /// # Panics
    /// As [`Base::with`].
    #[must_use]
    pub fn of(which: usize) -> Self {
        Self::with(which, CHANGES[which / SHAPES.len() % CHANGES.len()])
    }

    /// A cluster of the shape number `shape` of [`SIZES`], which is about to be changed so.
    ///
    /// # Panics
    /// If what every trial begins with does not work: without it nothing is shown.
    #[must_use]
    pub fn with(shape: usize, change: Change) -> Self {
        Self::made(SHAPES[shape % SHAPES.len()], change)
    }

    /// A cluster of so many members and controllers, and two workers, which is about to be changed so.
    ///
    /// # Panics
    /// As [`Base::with`].
    #[must_use]
    pub fn small(members: u32, controllers: u32, change: Change) -> Self {
        Self::made(Shape { members, controllers, pools: &[2], manual: false, windows: false }, change)
    }

    fn made(shape: Shape, change: Change) -> Self {
        let before = text(shape, change, false, "");
        let accepted =
            spec::parse(before.as_bytes(), None).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let mut rules = Rules::of(&accepted.cluster);
        let checker = Checker::new(NAME, rules.clone(), false);
        let mut engine = Engine::new(Account::new(NAME, "eu-west-1", 1), checker, 1, None);
        engine.person_after(SignedDuration::ZERO, Deed::Upload(before));
        if shape.manual {
            engine.person_after(SignedDuration::from_mins(1), Deed::Approve);
        }
        // Pods are some days old: what depends on their age is not spared.
        let later = engine.now() + SignedDuration::from_hours(24 * 4 + 5);
        engine.run_until(later);
        let up =
            engine.with_world(|world| world.machines().iter().all(|one| one.ready && one.power == Power::Up));
        assert!(up, "a machine does not come up in a world without faults: {:#?}", engine.transcript);
        assert_eq!(engine.checker.violations, [], "a launch does what it must not");

        let (account, skew, now) = (engine.account, engine.checker.skew, later);
        let forever = Life::unending();
        let rendered = match change {
            Change::Members
            | Change::Controllers
            | Change::Workers
            | Change::All
            | Change::Upgrade
            | Change::Fewer => {
                let version = account.upload(&text(shape, change, true, ""));
                account.render(Some(&version), &forever, now)
            }
            Change::Refresh | Change::Renew => {
                let asked = Asked { everything: true, at: Some(now), ..Asked::default() };
                account.scan(&asked, &forever, now).map(drop).unwrap_or_else(|error| panic!("{error}"));
                account.render(None, &forever, now)
            }
        };
        rendered.unwrap_or_else(|error| panic!("{error}"));
        drop(account.bus.drain());
        if change == Change::Fewer {
            let after = spec::parse(text(shape, change, true, "").as_bytes(), None);
            rules = Rules::of(&after.unwrap_or_else(|problems| panic!("{problems:#?}")).cluster);
        }
        Self { account, rules, shape, change, skew }
    }
}

/// What people do while it is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum People {
    /// What the seed says; nothing where nothing goes wrong.
    ByChance,
    /// They pause it within half an hour, and resume it an hour or two later.
    Pause,
    /// They end it within half an hour.
    Abort,
    /// They have a machine skipped within a minute.
    Skip,
}

/// What is tried: everything follows from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// From which all follows that is left to chance.
    pub seed: u64,
    /// How likely things go wrong.
    pub faults: f64,
    /// What people do.
    pub people: People,
    /// What it goes on from; `None`: what the seed says.
    pub on: Option<usize>,
    /// After so long without trouble nothing may be open.
    pub bound: SignedDuration,
    /// So often functions are invoked at most.
    pub most: u64,
}

/// How a trial ended.
#[derive(Debug)]
pub struct Verdict {
    /// All that was wrong.
    pub violations: Vec<Violation>,
    /// What happened.
    pub transcript: Vec<(Timestamp, String)>,
    /// How the first rollout ended.
    pub first: String,
    /// What was counted.
    pub tally: Tally,
    /// From the request to the end of the first rollout.
    pub took: SignedDuration,
}

impl Trial {
    /// The trial of that seed.
    #[must_use]
    pub fn new(seed: u64, faults: f64) -> Self {
        Self { seed, faults, people: People::ByChance, on: None, bound: BOUND, most: u64::MAX }
    }

    /// The trial of that seed on the cluster number `shape`, of which that is changed.
    ///
    /// # Panics
    /// If there is no such cluster.
    #[must_use]
    pub fn on(seed: u64, faults: f64, shape: usize, change: Change) -> Self {
        let change = CHANGES.iter().position(|one| *one == change).expect("all changes are listed");
        assert!(shape < SHAPES.len(), "there is no cluster {shape}");
        Self { on: Some(change * SHAPES.len() + shape), ..Self::new(seed, faults) }
    }

    /// Which base it goes on from.
    #[must_use]
    pub fn base(&self) -> usize {
        if let Some(base) = self.on {
            return base;
        }
        let choice = Random::new(self.seed ^ 0x6261_7365).below(BASES as u64);
        usize::try_from(choice).unwrap_or_default()
    }

    /// Lives through it.
    #[must_use]
    pub fn run(&self, base: &Base, meddler: Option<&dyn Meddler>) -> Verdict {
        let mut engine = self.begins(base, meddler);
        let began = engine.now();

        let (mut first, mut took) = (None, SignedDuration::ZERO);
        let healed = began + TROUBLE;
        while engine.next_at().is_some_and(|at| at < healed) {
            engine.step();
            if self.is_over(&mut engine) {
                break;
            }
            if first.is_none()
                && engine
                    .account
                    .rollout()
                    .is_some_and(|one| one.last.is_some() && !one.is_open() && one.generation > 1)
            {
                first = Some(state(&engine));
                took = engine.now().duration_since(began);
                if self.faults == 0.0 {
                    break;
                }
            }
        }
        if engine.checker.violations.is_empty() {
            heal(base, &mut engine);
            self.ends_well(base, &mut engine, &mut first, &mut took, began);
        }
        Verdict {
            violations: std::mem::take(&mut engine.checker.violations),
            transcript: std::mem::take(&mut engine.transcript),
            first: first.unwrap_or_else(|| state(&engine)),
            tally: engine.tally.clone(),
            took,
        }
    }

    /// An engine in which all that happens is on its way.
    pub(super) fn begins<'m>(&self, base: &Base, meddler: Option<&'m dyn Meddler>) -> Engine<'m> {
        let checker = Checker::new(NAME, base.rules.clone(), self.faults > 0.0);
        let mut engine = Engine::new(base.account.fork(self.seed), checker, self.seed, meddler);
        engine.checker.stands = true;
        engine.checker.skew = base.skew.clone();
        engine.let_go_wrong(self.faults);
        self.trouble(base, &mut engine);
        let who = Woken::Rollout(Waker::Event);
        engine.after(SignedDuration::ZERO, Happening::Invoke { who, tried: 0, durable: true });
        engine
    }

    /// What people do, and what dies.
    fn trouble(&self, base: &Base, engine: &mut Engine<'_>) {
        let mut random = Random::new(self.seed ^ 0x7065_7273);
        if base.shape.manual {
            engine.person_after(SignedDuration::from_secs(random.seconds(1, 5_400)), Deed::Approve);
        }
        let (soon, later) = (random.seconds(5, 1_800), random.seconds(3_600, 7_200));
        let (soon, later) = (SignedDuration::from_secs(soon), SignedDuration::from_secs(later));
        match self.people {
            People::ByChance if self.faults == 0.0 => return,
            People::ByChance => {}
            People::Pause => {
                engine.person_after(soon, Deed::Say(Order::Pause));
                return engine.person_after(soon + later, Deed::Say(Order::Resume));
            }
            People::Abort => return engine.person_after(soon, Deed::Say(Order::Abort { plan: None })),
            People::Skip => return engine.person_after(soon / 30, Deed::Skip(random.number())),
        }
        let mut some_time = |most: i64| SignedDuration::from_secs(random.seconds(0, most));
        let (pause, resume, abort) = (some_time(7_200), some_time(7_200), some_time(14_400));
        let (newer, skip, quick) = (some_time(10_800), some_time(3_600), some_time(120));
        if random.chance(0.25) {
            engine.person_after(pause, Deed::Say(Order::Pause));
            engine.person_after(pause + resume, Deed::Say(Order::Resume));
            if random.chance(0.3) {
                engine.person_after(pause + resume + quick, Deed::Say(Order::Pause));
            }
        }
        if random.chance(0.1) {
            engine.person_after(abort, Deed::Say(Order::Abort { plan: None }));
        }
        if random.chance(0.15) {
            let newer_text = text(base.shape, base.change, true, "m7i.2xlarge");
            engine.person_after(newer, Deed::Upload(newer_text));
            if base.shape.manual {
                engine.person_after(newer + resume, Deed::Approve);
            }
        }
        if random.chance(0.1) {
            engine.person_after(skip, Deed::Skip(random.number()));
        }
        for _ in 0..4 {
            if random.chance((self.faults * 5.0).min(0.5)) {
                let wait = SignedDuration::from_secs(random.seconds(0, 21_600));
                let (choice, zone) = (random.number(), random.chance(0.1));
                engine.after(wait, Happening::Death { choice, zone });
            }
        }
        if random.chance((self.faults * 2.0).min(0.5)) {
            lock(&engine.account.world).set_budgets(NAME, "pool-p0", 0);
        }
    }

    /// Without trouble it comes to an end, and by uploading again to what was asked for.
    pub(super) fn ends_well(
        &self,
        base: &Base,
        engine: &mut Engine<'_>,
        first: &mut Option<String>,
        took: &mut SignedDuration,
        began: Timestamp,
    ) {
        for round in 0..=AGAIN {
            let until = engine.now() + self.bound;
            let is_open = |engine: &Engine<'_>| engine.account.rollout().is_none_or(|one| one.is_open());
            // What was said and comes late may begin another.
            let calm = |engine: &Engine<'_>| !is_open(engine) && engine.is_quiet();
            while !calm(engine) && !self.is_over(engine) && engine.next_at().is_some_and(|at| at < until) {
                engine.step();
            }
            if !engine.checker.violations.is_empty() {
                return;
            }
            if !calm(engine) {
                let what = format!(
                    "it has not ended {} hours after all trouble has: {}",
                    self.bound.as_hours(),
                    message(engine)
                );
                return engine.checker.wrong(engine.now(), "liveness", what);
            }
            if first.is_none() {
                *first = Some(state(engine));
                *took = engine.now().duration_since(began);
            }
            let later = engine.now() + SignedDuration::from_mins(90);
            engine.run_until(later);
            let amiss = amiss(base, engine);
            let ended_well = state(engine) == "succeeded" && amiss.is_empty();
            if ended_well || !engine.checker.violations.is_empty() {
                break;
            }
            if self.faults == 0.0 || round == AGAIN {
                let what = format!("it ends as {}: {}; {}", state(engine), message(engine), amiss.join("; "));
                return engine.checker.wrong(engine.now(), "liveness", what);
            }
            engine.person_after(SignedDuration::ZERO, Deed::Again);
            if base.shape.manual {
                engine.person_after(SignedDuration::from_mins(10), Deed::Approve);
            }
            let soon = engine.now() + SignedDuration::from_mins(11);
            engine.run_until(soon);
        }
        self.no_step_twice(engine);
    }

    /// Something was wrong, or the functions are woken more often than they may be.
    fn is_over(&self, engine: &mut Engine<'_>) -> bool {
        let woken: u64 = engine.tally.invocations.values().sum();
        if woken > self.most && engine.checker.violations.is_empty() {
            let what = format!("{woken} invocations, and no end: {}", message(engine));
            engine.checker.wrong(engine.now(), "liveness", what);
        }
        !engine.checker.violations.is_empty()
    }

    /// P8: where lists of commands are never late, none is sent twice.
    fn no_step_twice(&self, engine: &mut Engine<'_>) {
        if self.faults > 0.0 {
            return;
        }
        let twice: Vec<String> = engine.with_world(|world| {
            let counts = world.commands_by_comment().into_iter();
            counts.filter(|(_, count)| *count > 1).map(|(token, _)| token.to_owned()).collect()
        });
        for token in twice {
            engine.checker.wrong(engine.now(), "P8", format!("{token} was sent twice"));
        }
    }
}

/// All trouble ends: what was held up is let go.
fn heal(base: &Base, engine: &mut Engine<'_>) {
    engine.let_go_wrong(0.0);
    let mut world = lock(&engine.account.world);
    world.set_fleet_faults(FleetFaults::default());
    for index in 0..base.shape.pools.len() {
        world.set_budgets(NAME, &format!("pool-p{index}"), 1);
    }
    drop(world);
    engine.person_after(SignedDuration::from_mins(20), Deed::Say(Order::Resume));
    if base.shape.manual {
        engine.person_after(SignedDuration::from_mins(30), Deed::Approve);
    }
}

fn state(engine: &Engine<'_>) -> String {
    let report = engine.account.status().and_then(|status| status.rollout);
    report.map(|report| report.state).unwrap_or_default()
}

fn message(engine: &Engine<'_>) -> String {
    let report = engine.account.status().and_then(|status| status.rollout);
    report.map(|report| report.message).unwrap_or_default()
}

/// In what the cluster is another than what is wished.
fn amiss(base: &Base, engine: &Engine<'_>) -> Vec<String> {
    let account = &engine.account;
    let desired: Option<Desired> = account.read(&keys::desired(NAME));
    let release = desired.and_then(|one| account.read::<Rendering>(&keys::release(NAME, &one.target)));
    let Some(release) = release else { return vec!["nothing is wished".to_owned()] };
    engine.with_world(|world| {
        let mut amiss = Vec::new();
        let machines = world.machines();
        for (role, node) in &release.roles {
            // One that nobody drained is kept, dead as it is.
            let stay = machines.iter().filter(|one| !one.leaving && one.role == role.to_string());
            let of_role: Vec<_> = stay.collect();
            let size = node.nodes.min as usize;
            if of_role.len() < size || role.member().is_some() && of_role.len() > size {
                amiss.push(format!("{role} has {} machines instead of {size}", of_role.len()));
            }
            for machine in of_role {
                let (id, group) = (&machine.id, world.group_facts(&machine.group));
                if !machine.ready {
                    amiss.push(format!("{id} of {role} does not serve"));
                } else if machine.config != node.config_digest {
                    amiss.push(format!("{id} of {role} is of an earlier configuration"));
                } else if !matches!(base.change, Change::Refresh | Change::Renew)
                    && group.as_ref().is_some_and(|group| group.template != machine.template)
                {
                    amiss.push(format!("{id} of {role} is not what its group launches now"));
                } else if machine.credentials != node.credentials_digest {
                    amiss.push(format!("{id} of {role} has earlier credentials"));
                }
                if role.to_string() == "controller"
                    && group.is_some_and(|group| group.desired as usize != size)
                {
                    amiss.push(format!("{} wants another number of machines than {size}", machine.group));
                }
            }
        }
        let Some(facts) = world.cluster_facts(NAME) else { return vec!["there is no cluster".to_owned()] };
        let ill = facts.members.iter().filter(|(_, member)| !(member.voter && member.up));
        amiss.extend(ill.map(|(role, _)| format!("{role} does not serve")));
        let asked_for = |member: &String| release.roles.keys().any(|role| role.to_string() == *member);
        let stays = facts.members.keys().filter(|member| !asked_for(member));
        amiss.extend(stays.map(|role| format!("{role} is still a member of etcd")));
        amiss.extend(facts.cordoned.iter().map(|node| format!("nothing is scheduled to {node}")));
        amiss.extend(world.schedules().into_iter().map(|name| format!("the tick {name} is still there")));
        amiss.sort();
        amiss.dedup();
        amiss
    })
}
