//! One simulated rollout: a small running cluster is changed, faults happen and people interfere for some hours, and then all faults end.
//! The rollout must come to an end, and the cluster must finally be as the spec says.

mod farewell;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use slipway_core::keys;
use slipway_core::status::{Desired, RolloutState};
use slipway_flows::rollout::Waker;
use slipway_rollout::Order;

use super::account::Woken;
use super::base::Base;
use super::check::{Checker, Violation};
use super::engine::{Deed, Engine, Happening, Tally};
use super::meddle::Meddler;
use super::random::Random;
use super::rates::Rates;
use super::shapes::{Change, NAME, chosen_by, number_of, text};
use super::trouble::silences;
use crate::ports::lock;
use crate::world::{FleetFaults, Repairers, Service};
use farewell::{CLEARS_RECORDS, Farewell};

/// How long faults happen.
const TROUBLE: SignedDuration = SignedDuration::from_hours(8);
/// After this time without faults nothing may be open. The longest wait is an hour at each of a few machines.
const BOUND: SignedDuration = SignedDuration::from_hours(36);
/// How long the pods of a pool allow no eviction in a trial of that kind.
const STUCK: SignedDuration = SignedDuration::from_hours(30);
/// After this time a scan has seen an urgent renewal, and so has the rollout that it wakes.
const SCANNED: SignedDuration = SignedDuration::from_hours(26);
/// In a world without faults, urgent work is completed within this time.
const URGENT: SignedDuration = SignedDuration::from_hours(1);
/// How often a person uploads the spec again after a rollout that did not succeed.
pub(super) const AGAIN: usize = 3;

/// What people do during the rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum People {
    /// What the seed says; nothing in a world without faults.
    ByChance,
    /// They pause within half an hour, and resume an hour or two later.
    Pause,
    /// They abort within half an hour.
    Abort,
    /// They have a machine skipped within a minute.
    Skip,
    /// They upload another change within half an hour, on top of the first one.
    Newer,
    /// They upload the spec from before the change within half an hour.
    Back,
    /// They destroy the cluster.
    Destroy,
    /// They destroy the cluster, and abort that within some minutes.
    DestroyAndAbort,
}

/// What certainly goes wrong in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surely {
    /// Nothing.
    Nothing,
    /// A member of etcd raises an alarm within minutes.
    Alarm,
    /// The budgets of the first pool allow no eviction for 30 hours.
    Stuck,
    /// Auto Scaling launches no machine for eight hours: for the first pool, or for the members or the controllers if those change.
    Starved,
    /// A member of etcd raises an alarm within minutes, and nobody disarms it for six hours.
    LongAlarm,
    /// KMS is down for three hours, so that no snapshot can be sealed.
    NoKeys,
    /// Workers are silent for three hours from the beginning, and node managers have those replaced that are not Ready.
    Repairs {
        /// How they decide.
        how: Repairers,
        /// How many workers in a hundred are silent; one at least.
        silent_percent: usize,
    },
}

/// A trial; everything follows from these values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The seed of everything random.
    pub seed: u64,
    /// The probability of faults.
    pub faults: f64,
    /// What people do.
    pub people: People,
    /// What certainly goes wrong, whatever the probability is.
    pub surely: Surely,
    /// The rates of the troubles.
    pub rates: Rates,
    /// The number of its base; `None`: what the seed says.
    pub on: Option<usize>,
    /// After this time without faults nothing may be open.
    pub bound: SignedDuration,
    /// The maximum number of invocations.
    pub most: u64,
}

/// The result of a trial.
#[derive(Debug)]
pub struct Verdict {
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// What happened.
    pub transcript: Vec<(Timestamp, String)>,
    /// How the first rollout ended.
    pub first: RolloutState,
    /// The counts of the engine.
    pub tally: Tally,
    /// From the request to the end of the first rollout.
    pub took: SignedDuration,
}

impl Trial {
    /// The trial with that seed.
    #[must_use]
    pub fn new(seed: u64, faults: f64) -> Self {
        let (people, rates) = (People::ByChance, Rates::default());
        Self { seed, faults, people, surely: Surely::Nothing, rates, on: None, bound: BOUND, most: u64::MAX }
    }

    /// The trial with that seed on the cluster number `shape` with that change.
    ///
    /// # Panics
    /// If there is no such cluster.
    #[must_use]
    pub fn on(seed: u64, faults: f64, shape: usize, change: Change) -> Self {
        let base = number_of(shape, change);
        assert!(base.is_some(), "no seed makes this change of cluster {shape}: {change:?}");
        Self { on: base, ..Self::new(seed, faults) }
    }

    /// The number of its base.
    #[must_use]
    pub fn base(&self) -> usize {
        self.on.unwrap_or_else(|| chosen_by(self.seed))
    }

    /// Runs the trial.
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
            heal(base, self.bound, &mut engine);
            self.waits_for_pods(&mut engine, began + STUCK);
            if base.change.has_deadline() {
                self.waits_no_longer(base, &mut engine);
            }
            match Farewell::for_trial(self) {
                Some(farewell) => farewell.comes_about(self, base, &mut engine, &mut first),
                None => self.ends_well(base, &mut engine, &mut first, &mut took, began),
            }
        }
        Verdict {
            violations: std::mem::take(&mut engine.checker.violations),
            transcript: std::mem::take(&mut engine.transcript),
            first: first.unwrap_or_else(|| state(&engine)),
            tally: engine.tally.clone(),
            took,
        }
    }

    /// Continues until no renewal may wait any longer for a window or a person, and the next daily scan has seen that.
    fn waits_no_longer(&self, base: &Base, engine: &mut Engine<'_>) {
        let Some(from) = base.urgent_from else { return };
        while engine.next_at().is_some_and(|at| at < from + SCANNED) && !self.is_over(engine) {
            engine.step();
        }
    }

    /// An engine in which everything that will happen is scheduled.
    pub(super) fn begins<'m>(&self, base: &Base, meddler: Option<&'m dyn Meddler>) -> Engine<'m> {
        let checker = Checker::new(NAME, base.rules.clone(), self.faults > 0.0);
        let mut engine = Engine::new(base.account.fork(self.seed), checker, self.seed, meddler);
        engine.checker.stands = true;
        engine.checker.skew = base.skew.clone();
        engine.checker.validity = base.validity.clone();
        engine.rates = self.rates;
        engine.let_go_wrong(self.faults);
        self.trouble(base, &mut engine);
        engine.troubles(self.seed);
        self.alarms(&mut engine);
        self.surely(base, &engine);
        if let Some(farewell) = Farewell::for_trial(self) {
            farewell.begins(base, &mut engine);
        }
        let who = Woken::Rollout(Waker::Event);
        engine.after(SignedDuration::ZERO, Happening::Invoke { who, tried: 0, durable: true });
        engine
    }

    /// What certainly goes wrong from the beginning.
    fn surely(&self, base: &Base, engine: &Engine<'_>) {
        let mut world = lock(&engine.account.world);
        match self.surely {
            Surely::Nothing | Surely::Alarm | Surely::LongAlarm => {}
            Surely::NoKeys => world.outage(Service::Keys, SignedDuration::from_hours(3)),
            Surely::Repairs { how, silent_percent } => {
                world.set_repairs(Some(how));
                silences(&mut world, self.seed, silent_percent, SignedDuration::from_hours(3));
            }
            Surely::Stuck => world.set_budgets(NAME, "pool-p0", 0),
            Surely::Starved => {
                let (members, controllers) =
                    (base.change == Change::Members, base.change == Change::Controllers);
                let others = if controllers { "controller" } else { "pool-p0" };
                let role = if members { "etcd-" } else { others };
                let machines = world.machines().into_iter().filter(|one| one.role.starts_with(role));
                let groups: BTreeSet<String> = machines.map(|one| one.group).collect();
                groups.iter().for_each(|group| world.set_capacity(group, false));
            }
        }
    }

    /// Continues while the pods of a pool cannot be evicted, and then they can.
    fn waits_for_pods(&self, engine: &mut Engine<'_>, until: Timestamp) {
        if self.surely != Surely::Stuck {
            return;
        }
        lock(&engine.account.world).set_budgets(NAME, "pool-p0", 0);
        while engine.next_at().is_some_and(|at| at < until) && !self.is_over(engine) {
            engine.step();
        }
        lock(&engine.account.world).set_budgets(NAME, "pool-p0", 1);
    }

    /// Schedules an alarm of etcd, and the person who disarms it.
    fn alarms(&self, engine: &mut Engine<'_>) {
        let mut random = Random::new(self.seed ^ 0x616c_6172);
        let surely = matches!(self.surely, Surely::Alarm | Surely::LongAlarm);
        if !surely && !random.chance((self.faults * 5.0).min(0.3)) {
            return;
        }
        // A rollout that waits an hour for an alarm fails.
        let (within, most) = if surely { (300, 3_000) } else { (7_200, 5_400) };
        let wait = SignedDuration::from_secs(random.seconds(0, within));
        let long = SignedDuration::from_secs(random.seconds(300, most));
        let long = if self.surely == Surely::LongAlarm { SignedDuration::from_hours(6) } else { long };
        let kind = if random.chance(0.5) { "NOSPACE" } else { "CORRUPT" };
        engine.after(wait, Happening::Alarm { choice: random.number(), kind });
        engine.after(wait + long, Happening::Disarm);
    }

    /// Schedules what people do, and which machines die.
    fn trouble(&self, base: &Base, engine: &mut Engine<'_>) {
        let mut random = Random::new(self.seed ^ 0x7065_7273);
        if base.change.has_deadline() {
            // The second scan comes after the renewal has become urgent.
            for day in 0..2 {
                engine.after(SignedDuration::from_hours(24 * day + 3), Happening::Daily);
            }
        }
        if base.shape.manual && base.change != Change::Deadline {
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
            People::Newer | People::Back => {
                let (changed, workers) =
                    if self.people == People::Back { (false, "") } else { (true, "m7i.2xlarge") };
                let newer = text(base.shape, base.change, changed, workers);
                engine.person_after(soon, Deed::Upload(newer));
                if base.shape.manual {
                    engine.person_after(soon + later, Deed::Approve);
                }
                return;
            }
            People::Destroy | People::DestroyAndAbort => return,
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
            // A person who removed a pool may want it back, and one who added a pool may want it gone.
            let has_other_pool = base.change == Change::Removal || base.change.adds_a_pool();
            let changed = !has_other_pool || self.seed.is_multiple_of(2);
            let newer_text = text(base.shape, base.change, changed, "m7i.2xlarge");
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
            let goes = base.shape.pools.len();
            let pool = if base.change == Change::Removal { goes } else { 0 };
            lock(&engine.account.world).set_budgets(NAME, &format!("pool-p{pool}"), 0);
        }
    }

    /// Without faults everything must come to an end, and after further uploads to what the spec says.
    pub(super) fn ends_well(
        &self,
        base: &Base,
        engine: &mut Engine<'_>,
        first: &mut Option<RolloutState>,
        took: &mut SignedDuration,
        began: Timestamp,
    ) {
        for round in 0..=AGAIN {
            if !self.comes_to_rest(engine) {
                return;
            }
            if first.is_none() {
                *first = Some(state(engine));
                *took = engine.now().duration_since(began);
            }
            if round == 0 && base.change == Change::RollBeforeDeadline {
                // Nobody uploads anything until the certificates would expire (P7).
                self.outlives_certificates(base, engine);
            }
            // The next daily check for work that is stuck: retained machines whose event was lost.
            let who = Woken::Rollout(Waker::Look);
            engine.after(SignedDuration::ZERO, Happening::Invoke { who, tried: 0, durable: true });
            let later = engine.now() + SignedDuration::from_mins(90);
            engine.run_until(later);
            let mut amiss = amiss(base, engine);
            amiss.extend(unmentioned(engine));
            amiss.extend(engine.checker.enlarged_pools());
            // A cluster that was stopped when nothing was left to do is as the spec says, and an upload of that spec changes nothing.
            let is_over = state(engine) == RolloutState::Succeeded
                || round > 0 && state(engine) == RolloutState::Aborted;
            let ended_well = is_over && amiss.is_empty();
            if ended_well || !engine.checker.violations.is_empty() {
                break;
            }
            // A roll that pods blocked for a day has failed, and one that ended for a renewal waits for its approval again.
            let succeeds = self.faults == 0.0 && base.change != Change::RollBeforeDeadline;
            if succeeds || round == AGAIN {
                let what = format!("it ends as {}: {}; {}", state(engine), message(engine), amiss.join("; "));
                return engine.checker.wrong(engine.now(), "liveness", what);
            }
            deletes_wrecks(engine);
            // The abort of the destruction ended in a dead-letter queue that nobody redrives. The status says that the destruction has
            // stopped, so the person aborts it again.
            if engine.account.rollout().is_some_and(|rollout| rollout.destroy().is_some()) {
                engine.person_after(SignedDuration::ZERO, Deed::Say(Order::Abort { plan: None }));
                let soon = engine.now() + SignedDuration::from_mins(10);
                engine.run_until(soon);
            }
            engine.person_after(SignedDuration::ZERO, Deed::Again);
            if base.shape.manual {
                engine.person_after(SignedDuration::from_mins(10), Deed::Approve);
            }
            let soon = engine.now() + SignedDuration::from_mins(11);
            engine.run_until(soon);
        }
        if base.change == Change::Urgent && self.faults == 0.0 && *took > URGENT {
            let what = format!("what nothing may hold up took {} minutes", took.as_mins());
            engine.checker.wrong(engine.now(), "§9", what);
        }
        self.no_step_twice(engine);
        if base.change.has_deadline() {
            self.outlives_certificates(base, engine);
        }
    }

    /// Continues until the certificates that were in use at the beginning have expired: P7 is checked until then, and beyond.
    /// Of a cluster that was to be destroyed, nothing is renewed before another upload.
    fn outlives_certificates(&self, base: &Base, engine: &mut Engine<'_>) {
        if let Some(ends) = base.ends.filter(|_| Farewell::for_trial(self).is_none()) {
            engine.run_until(ends + SignedDuration::from_hours(1));
        }
    }

    /// Continues until nothing is open and nothing is on its way. Returns `false` if a promise was broken, or that state is never reached.
    pub(super) fn comes_to_rest(&self, engine: &mut Engine<'_>) -> bool {
        // A pool that waits for its window may wait until next week.
        let week = SignedDuration::from_hours(if engine.checker.rules.has_windows() { 7 * 24 } else { 0 });
        let until = engine.now() + self.bound + week;
        // A late order or event may begin something.
        let calm = |engine: &Engine<'_>| engine.checker.open().is_none() && engine.is_quiet();
        while !calm(engine) && !self.is_over(engine) && engine.next_at().is_some_and(|at| at < until) {
            engine.step();
        }
        if engine.checker.violations.is_empty() && !calm(engine) {
            let what = format!(
                "it has not ended {} hours after all trouble has: {}",
                self.bound.as_hours(),
                message(engine)
            );
            engine.checker.wrong(engine.now(), "liveness", what);
        }
        engine.checker.violations.is_empty()
    }

    /// A promise was broken, or the functions are invoked too often.
    fn is_over(&self, engine: &mut Engine<'_>) -> bool {
        let woken: u64 = engine.tally.invocations.values().sum();
        if woken > self.most && engine.checker.violations.is_empty() {
            let what = format!("{woken} invocations, and no end: {}", message(engine));
            engine.checker.wrong(engine.now(), "liveness", what);
        }
        !engine.checker.violations.is_empty()
    }

    /// P8: if lists of commands are never late, no command is sent twice.
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

/// Ends all faults, and removes what they blocked.
fn heal(base: &Base, bound: SignedDuration, engine: &mut Engine<'_>) {
    engine.let_go_wrong(0.0);
    engine.troubles_end();
    let mut world = lock(&engine.account.world);
    world.set_fleet_faults(FleetFaults::default());
    world.disarm(NAME);
    for index in 0..=base.shape.pools.len() {
        world.set_budgets(NAME, &format!("pool-p{index}"), 1);
    }
    drop(world);
    engine.person_after(SignedDuration::from_mins(20), Deed::Say(Order::Resume));
    engine.person_after(bound / 6, Deed::TakeDown);
    if base.shape.manual && !base.change.has_deadline() {
        engine.person_after(SignedDuration::from_mins(30), Deed::Approve);
    }
}

/// Deletes by hand what `status.json` names: stacks that a destruction has partly deleted.
fn deletes_wrecks(engine: &mut Engine<'_>) {
    let words = message(engine);
    if !words.contains("delete the stack by hand") {
        return;
    }
    let mut world = lock(&engine.account.world);
    let there = world.stacks_there().into_iter().filter(|(_, status)| status == "DELETE_FAILED");
    let wrecks: Vec<String> = there.map(|(name, _)| name).filter(|name| words.contains(name)).collect();
    if words.contains(CLEARS_RECORDS) {
        world.clear_records();
    }
    wrecks.iter().for_each(|name| world.delete_by_hand(name));
    drop(world);
    let gone = engine.now() + SignedDuration::from_mins(60);
    engine.run_until(gone);
}

pub(super) fn state(engine: &Engine<'_>) -> RolloutState {
    let report = engine.account.status().and_then(|status| status.rollout);
    report.map(|report| report.state).unwrap_or_default()
}

pub(super) fn message(engine: &Engine<'_>) -> String {
    let report = engine.account.status().and_then(|status| status.rollout);
    report.map(|report| report.message).unwrap_or_default()
}

/// Retained machines that the status does not mention. They run, cost money, and block every change of their group.
fn unmentioned(engine: &Engine<'_>) -> Vec<String> {
    let words =
        engine.account.status().and_then(|status| serde_json::to_string(&status).ok()).unwrap_or_default();
    let kept = engine.with_world(|world| world.machines()).into_iter().filter(|one| one.retained);
    let kept = kept.filter(|one| !words.contains(&one.id));
    kept.map(|one| format!("{} of {} is kept by its group, and nobody reads of it", one.id, one.role))
        .collect()
}

/// The differences between the cluster and the spec.
fn amiss(base: &Base, engine: &Engine<'_>) -> Vec<String> {
    let account = &engine.account;
    let desired: Option<Desired> = account.read(&keys::desired(NAME));
    let release = desired.and_then(|one| account.release(&one.target));
    let Some(release) = release else { return vec!["nothing is wished".to_owned()] };
    engine.with_world(|world| {
        let mut amiss = Vec::new();
        let machines = world.machines();
        for (role, node) in &release.roles {
            // A machine that nobody drained is retained, even if it is dead.
            let stay = machines.iter().filter(|one| !one.leaving && one.role == role.to_string());
            let of_role: Vec<_> = stay.collect();
            let size = node.nodes.min as usize;
            let units: u32 = of_role.iter().map(|one| one.weight).sum();
            if units < node.nodes.min || role.member().is_some() && of_role.len() > size {
                let what = if node.weighted { "units" } else { "machines" };
                amiss.push(format!("{role} has {units} {what} instead of {size}"));
            }
            for machine in of_role {
                let (id, group) = (&machine.id, world.group_facts(&machine.group));
                if !machine.ready {
                    amiss.push(format!("{id} of {role} does not serve"));
                } else if machine.config != node.config_digest {
                    amiss.push(format!("{id} of {role} is of an earlier configuration"));
                } else if !matches!(
                    base.change,
                    Change::Refresh
                        | Change::Renew
                        | Change::Urgent
                        | Change::Deadline
                        | Change::RollBeforeDeadline
                ) && group.as_ref().is_some_and(|group| group.template != machine.template)
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
        let of_no_role = |role: &str| !release.roles.keys().any(|one| one.to_string() == *role);
        let still_there = machines.iter().filter(|one| of_no_role(&one.role));
        amiss.extend(still_there.map(|one| format!("{} of {} is still there", one.id, one.role)));
        let stacks = world.stacks_there().into_keys().filter(|name| release.stack(name).is_none());
        amiss.extend(stacks.map(|name| format!("{name} is still there")));
        amiss.extend(facts.cordoned.iter().map(|node| format!("nothing is scheduled to {node}")));
        amiss.extend(world.schedules().into_iter().map(|name| format!("the tick {name} is still there")));
        amiss.sort();
        amiss.dedup();
        amiss
    })
}
