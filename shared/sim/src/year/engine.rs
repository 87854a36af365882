//! Runs the simulation: advances the world, delivers events of the world and the bus to the functions, injects faults, and lets the checker
//! observe after each event.

mod bus;
mod happening;
mod overlap;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use slipway_core::event::{Event, RolloutStarted};
use slipway_core::keys;
use slipway_core::status::Desired;
use slipway_credentials::Manifest;
use slipway_flows::rollout::Waker;
use slipway_plan::Plan;
use slipway_rollout::Rollout;

use super::account::{Account, Woken};
use super::acts::Act;
use super::check::{Begun, Checker, End, Knowledge};
use super::meddle::Meddler;
use super::random::Random;
use super::rates::{Rates, Trouble};
use crate::mortal::{Billed, Life};
use crate::ports::lock;
use crate::world::{FleetFaults, World};

pub use happening::{Deed, Happening};
pub use tally::Tally;

/// After this time a person redrives an event from a dead-letter queue.
const REDRIVEN: SignedDuration = SignedDuration::from_mins(30);
/// The delays of Lambda's retries.
const RETRIES: [SignedDuration; 2] = [SignedDuration::from_mins(1), SignedDuration::from_mins(2)];
/// The number of calls of the longest invocations.
const CALLS: u64 = 40;
/// The maximum delay of an event.
const LATE_S: i64 = 4 * 3_600;
/// The maximum pause in an invocation: after 55 s the function is stopped (`infra/template.yaml`, `Timeout`).
const PAUSES_S: i64 = 50;
/// How long Lambda waits before it retries an asynchronous event for which it had no concurrency: "from 1 second after the first attempt to
/// a maximum of 5 minutes", "for up to 6 hours by default" (Lambda developer guide, "How Lambda handles errors and retries with
/// asynchronous invocation").
const THROTTLED: SignedDuration = SignedDuration::from_mins(5);

/// When an order that came during another invocation comes again: EventBridge delivers an event at least once.
const AGAIN: SignedDuration = SignedDuration::from_secs(2);
/// A day.
const DAY_S: i64 = 86_400;

/// A pause in an invocation: the acts before it, and the world before and after it.
#[derive(Debug)]
struct Midst {
    acts: Vec<Act>,
    before: World,
    after: World,
}

/// Another invocation that ran during an invocation.
#[derive(Debug)]
struct Overlap {
    who: Woken,
    /// The range of its acts in the journal.
    acts: Range<usize>,
    /// The version of the state before and after it.
    before: Option<String>,
    after: Option<String>,
    succeeded: bool,
}

/// An account, its clock, and its checker.
#[derive(Debug)]
pub struct Engine<'m> {
    /// The account.
    pub account: Account,
    /// The checker.
    pub checker: Checker,
    /// The counts for the report.
    pub tally: Tally,
    /// What happened.
    pub transcript: Vec<(Timestamp, String)>,
    /// The probability of faults.
    pub faults: f64,
    /// The rate of each trouble, as a multiple of `faults`.
    pub rates: Rates,
    /// Whether successful rollouts wake the scan.
    pub scans: bool,
    /// The randomness of everything outside of the world.
    pub random: Random,
    meddler: Option<&'m dyn Meddler>,
    pub(super) queue: BTreeMap<(Timestamp, u64), Happening>,
    queued: u64,
    /// The world has advanced since the checker last observed it.
    unseen: bool,
    /// Until when Lambda has no concurrency.
    pub(super) exhausted_until: Option<Timestamp>,
    /// The ids of the rollout events that the bus delivered. A retry publishes an event again.
    published: BTreeSet<String>,
    /// The ids of the successes that were judged.
    judged: BTreeSet<String>,
    /// The ids of the reports of rollouts on the bus, and what the last one says.
    reported: (BTreeSet<String>, Option<serde_json::Value>),
    /// Whether an invocation died, failed, or was interrupted: a report may come twice from then on.
    torn: bool,
    midst: Arc<Mutex<Option<Midst>>>,
    overlap: Arc<Mutex<Option<Overlap>>>,
}

impl<'m> Engine<'m> {
    /// Starts at the present time of `account`.
    #[must_use]
    pub fn new(account: Account, checker: Checker, seed: u64, meddler: Option<&'m dyn Meddler>) -> Self {
        Self {
            account,
            checker,
            tally: Tally::default(),
            transcript: Vec::new(),
            faults: 0.0,
            rates: Rates::default(),
            scans: false,
            random: Random::new(seed),
            meddler,
            queue: BTreeMap::new(),
            queued: 0,
            unseen: true,
            exhausted_until: None,
            published: BTreeSet::new(),
            judged: BTreeSet::new(),
            reported: Default::default(),
            torn: false,
            midst: Arc::default(),
            overlap: Arc::default(),
        }
    }

    /// A copy that develops independently, with all events that are on their way. Its transcript begins here.
    pub(super) fn fork(&self) -> Self {
        let seed = lock(&self.account.world).config().seed;
        Self {
            account: self.account.fork(seed),
            checker: self.checker.clone(),
            tally: self.tally.clone(),
            transcript: Vec::new(),
            faults: self.faults,
            rates: self.rates,
            scans: self.scans,
            random: self.random.clone(),
            meddler: self.meddler,
            queue: self.queue.clone(),
            queued: self.queued,
            unseen: self.unseen,
            exhausted_until: self.exhausted_until,
            published: self.published.clone(),
            judged: self.judged.clone(),
            reported: self.reported.clone(),
            torn: self.torn,
            midst: Arc::default(),
            overlap: Arc::default(),
        }
    }

    /// Sets the probability of faults from now on; 0 means never.
    pub fn let_go_wrong(&mut self, faults: f64) {
        self.faults = faults;
        lock(&self.account.world).set_fleet_faults(FleetFaults {
            slow_boot: faults,
            dead_boot: faults / 2.0,
            failed_boot: faults / 2.0,
            report_lost: faults,
            abandoned_hooks: (faults * self.rates.rate_of(Trouble::AbandonedHooks)).min(1.0),
            stale_groups: faults * self.rates.rate_of(Trouble::StaleGroups),
            stale_stacks: faults * self.rates.rate_of(Trouble::StaleStacks),
            stale_targets: faults * self.rates.rate_of(Trouble::StaleTargets),
            rebalances: (faults * self.rates.rate_of(Trouble::Rebalances)).min(1.0),
            command_hangs: faults / 4.0,
            command_fails: faults,
            command_doubled: faults,
            command_unlisted: faults,
            command_undescribed: faults * self.rates.rate_of(Trouble::Undescribed),
            output_cut: faults * self.rates.rate_of(Trouble::CutAnswers),
            stubborn_budget: 0.0,
            slow_member: faults,
            throttled: faults / 10.0,
            resource_fails: faults / 50.0,
            rollback_fails: (faults * self.rates.rate_of(Trouble::RollbacksFail)).min(0.5),
        });
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.account.now()
    }

    /// Schedules a happening after `wait`.
    pub fn after(&mut self, wait: SignedDuration, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now() + wait, self.queued), happening);
    }

    /// Schedules a person's deed after `wait`.
    pub fn person_after(&mut self, wait: SignedDuration, deed: Deed) {
        self.after(wait, Happening::Person(deed));
    }

    /// The time of the next happening; `None` if there is none.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        let world = lock(&self.account.world).next_event_at();
        let ours = self.queue.keys().next().map(|(at, _)| *at);
        [world, ours].into_iter().flatten().min()
    }

    /// Performs the next happening. Returns whether there was one.
    pub fn step(&mut self) -> bool {
        let Some(at) = self.next_at() else { return false };
        self.go_on(at);
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > at {
                break;
            }
            let happening = entry.remove();
            self.happens(happening);
        }
        true
    }

    /// Whether nothing is scheduled outside of the world.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// Performs everything that happens until `at`.
    pub fn run_until(&mut self, at: Timestamp) {
        while self.next_at().is_some_and(|next| next <= at) {
            self.step();
        }
        self.go_on(at);
    }

    /// Advances the world, and delivers the events that it sends.
    pub(super) fn go_on(&mut self, at: Timestamp) {
        let (sent, story, reports) = {
            let mut world = lock(&self.account.world);
            world.advance(at);
            let story = world.story();
            self.unseen = story.is_empty();
            if !self.unseen {
                self.checker.observe(&world);
            }
            (world.drain(), story, world.bootstrap_reports())
        };
        self.account.keep_reports(reports);
        self.transcript.extend(story);
        for outgoing in sent {
            if let Some((who, durable)) = bus::woken(&outgoing) {
                self.send(who, durable);
            }
        }
    }

    /// Sends an event. Some events are lost, late, doubled, or delivered in another order.
    pub(super) fn send(&mut self, who: Woken, durable: bool) {
        let mut copies = 1;
        if !durable && self.random.chance(self.faults * 4.0) {
            self.tally.astray += 1;
            copies = 0;
        } else if self.random.chance(self.faults) {
            self.tally.astray += 1;
            copies = 2;
        }
        for _ in 0..copies {
            let late = self.rates.rate_of(Trouble::Late);
            let wait = match self.random.chance(self.faults) {
                true if late > 0.0 && self.random.chance(late) => {
                    SignedDuration::from_secs(self.random.seconds(900, LATE_S))
                }
                true => SignedDuration::from_secs(self.random.seconds(5, 900)),
                false if self.faults > 0.0 => SignedDuration::from_millis(self.random.seconds(200, 2_000)),
                false => SignedDuration::from_millis(500),
            };
            let wait = wait + self.held_up(&who);
            let who = who.clone();
            self.after(wait, Happening::Invoke { who, tried: 0, durable });
        }
    }

    pub(super) fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Invoke { who, tried, durable } => self.invoke(who, tried, durable),
            Happening::Person(deed) => self.does(deed),
            Happening::Death { choice, zone } => self.death(choice, zone),
            Happening::Alarm { choice, kind } => {
                let name = self.account.name.clone();
                self.strikes(|world| world.raise_alarm(&name, choice, kind));
            }
            Happening::Disarm => {
                let name = self.account.name.clone();
                self.strikes(|world| world.disarm(&name));
            }
            Happening::Strike(strike) => self.strike(strike),
            Happening::Daily => self.send(Woken::Scans, true),
        }
    }

    /// Invokes a function. A failed invocation is retried as Lambda does it.
    pub fn invoke(&mut self, who: Woken, tried: usize, durable: bool) {
        if self.exhausted_until.is_some_and(|until| self.now() < until) {
            return self.throttles(who, tried, durable);
        }
        if let Some(life) = self.interrupted_by_order(&who) {
            self.after(AGAIN, Happening::Invoke { who, tried, durable });
            return self.invoke_living(Woken::Rollout(Waker::Tick), 0, false, &life, SignedDuration::ZERO);
        }
        let life = match self.random.chance(self.faults * 2.0) {
            true => Life::until(self.random.below(CALLS), self.random.chance(0.5)),
            false => self.interrupted(&who).unwrap_or_else(Life::unending),
        };
        let skew = if self.faults > 0.0 { self.random.seconds(-2_000, 2_001) } else { 0 };
        self.invoke_living(who, tried, durable, &life, SignedDuration::from_millis(skew));
    }

    /// Lambda has no concurrency: the event waits. A tick is lost, because it would be too late (`RetryPolicy` of `slipway-aws`' ticks).
    fn throttles(&mut self, who: Woken, tried: usize, durable: bool) {
        if matches!(who, Woken::Rollout(Waker::Tick)) {
            return self.transcript.push((self.now(), "a tick finds no concurrency, and is lost".to_owned()));
        }
        self.after(THROTTLED, Happening::Invoke { who, tried, durable });
    }

    /// As [`Engine::invoke`], with the given life of the process, and a clock that is off by `skew`.
    pub(super) fn invoke_living(
        &mut self,
        who: Woken,
        tried: usize,
        durable: bool,
        life: &Life,
        skew: SignedDuration,
    ) {
        let function = match &who {
            Woken::Rollout(_)
            | Woken::Stack(_)
            | Woken::Group(_)
            | Woken::Interruption(_)
            | Woken::Command(_) => "rollout",
            Woken::Spec(_) | Woken::Credentials | Woken::Pins(_) => "render",
            Woken::Scans | Woken::Scan(_) => "scan",
        };
        *self.tally.invocations.entry(function).or_default() += 1;
        let at = self.now() + skew;
        self.observe_first();
        let before = self.checker.stops();
        self.order_may_be_received(&who);
        let (began, version) = (self.now(), self.account.state_version());
        let result = self.account.invoke(&who, life, at, self.meddler);
        self.torn |= result.is_err() || !life.is_whole();
        for billed in Billed::ALL {
            *self.tally.calls.entry(billed).or_default() += life.billed(billed);
        }
        self.tally.scheduled +=
            u64::from(tried == 0 && matches!(who, Woken::Rollout(Waker::Tick) | Woken::Scans));
        self.tally.scans += u64::from(matches!(who, Woken::Scan(_)));
        let before_start = self.account.journal.before_start();
        let mut unsaid = self.account.journal.drain_unpublished();
        let overlap = self.overlap.lock().unwrap_or_else(PoisonError::into_inner).take();
        let after_it = overlap.as_ref().map(|one| self.account.journal.acts_at(one.after.as_ref()));
        let acts = self.account.journal.drain();
        let events = self.account.bus.drain();
        self.judge_successes(events.iter().chain(&unsaid));
        keep_starts(&mut unsaid);
        let of_others = overlap.as_ref().map_or(0, |one| one.acts.len());
        let (until, since) = match &overlap {
            Some(one) => (&one.before, &one.after),
            None => (&version, &version),
        };
        let has_written = *until != version || *since != self.account.state_version();
        // A function receives its order before it changes anything. What it writes does not matter here.
        if result.is_err() && acts.len() == of_others && !has_written {
            self.checker.order_not_received(before.clone());
        }
        let unheard = overlap
            .as_ref()
            .and_then(|one| self.unheard(one, &version, before, after_it.unwrap_or_default()));
        let midst = self.midst.lock().unwrap_or_else(PoisonError::into_inner).take();
        let published: Vec<&Event> = events.iter().chain(&unsaid).collect();
        let earlier = before_start.and_then(|until| self.checker.until(until));
        let (ended, gone) = self.begins(&published, midst.as_ref().map(|midst| &midst.before));
        if let Some(midst) = midst {
            // Acts before the pause are judged by the world before it.
            self.checker.acts(&midst.before, &midst.acts, Knowledge::default());
            self.checker.observe(&midst.before);
            self.checker.observe(&midst.after);
            self.transcript.extend(midst.acts.iter().map(|act| (began, format!("  {act}"))));
        }
        {
            let mut world = lock(&self.account.world);
            self.checker.acts(&world, &acts, Knowledge { unheard, earlier });
            ended.into_iter().for_each(|end| self.checker.ended(&world, end));
            if gone {
                self.checker.gone(world.now());
            }
            // The observed facts do not change within one moment without an act.
            if !acts.is_empty() {
                self.checker.observe(&world);
            }
            self.unseen = false;
            // The time may have advanced during the invocation.
            let story = world.story();
            if world.now() > began {
                self.transcript.extend(story);
            }
        }
        let now = self.now();
        self.transcript.extend(acts.iter().map(|act| (now, format!("  {act}"))));
        if let Some(other) = overlap.filter(|other| other.succeeded) {
            self.order_received(&other.who);
        }
        match &result {
            Ok(message) => {
                self.transcript.push((now, format!("{function}: {message}")));
                self.order_received(&who);
            }
            Err(error) => {
                self.transcript.push((now, format!("{function} fails: {error}")));
                self.tally.failed += 1;
                if let Some(wait) = RETRIES.get(tried) {
                    self.after(*wait, Happening::Invoke { who, tried: tried + 1, durable });
                } else {
                    self.lies_there(who, durable);
                }
            }
        }
        for event in events {
            self.published(&event, now);
        }
        self.is_woken_again(now);
    }

    /// Each success is judged when a function reports it for the first time. The bus may take the event much later, when the cluster may
    /// no longer be as it was.
    fn judge_successes<'e>(&mut self, events: impl Iterator<Item = &'e Event>) {
        for event in events {
            if let Event::RolloutSucceeded(detail) = event
                && (detail.id.is_empty() || self.judged.insert(detail.id.clone()))
            {
                // S3 or the bus may have been out of reach since it was stored.
                let state: Option<Rollout> = self.account.read(&keys::rollout(&self.account.name));
                let last = state.and_then(|state| state.last);
                self.checker.succeeded(&lock(&self.account.world), last.map(|last| last.ended_at));
            }
        }
    }

    /// Reads from the events which rollouts begin and end. Returns how each ended, and whether the cluster is gone.
    /// A start is handled before the acts, because it was published before them, with the world `then` or the present one. Ends are handled
    /// after the acts.
    fn begins(&mut self, events: &[&Event], then: Option<&World>) -> (Vec<End>, bool) {
        let (mut ended, mut gone) = (Vec::new(), false);
        for event in events {
            let Some(boundary) = Boundary::from_event(event) else { continue };
            let id = boundary.id();
            if !id.is_empty() && !self.published.insert(id.to_owned()) {
                continue;
            }
            match boundary {
                Boundary::Start(started) => {
                    let plan = self.account.read::<Plan>(&keys::plan(&self.account.name, &started.plan));
                    // From the plan, only the release is read.
                    let target = plan.map(|plan| plan.to).unwrap_or_default();
                    let release = self.account.release(&target);
                    release.iter().for_each(|release| self.checker.skew.knows(release));
                    let manifest = self.account.read::<Manifest>(&keys::manifest(&self.account.name));
                    if let Some(manifest) = &manifest {
                        let not_after = |key: &str| self.account.not_after(key);
                        self.checker.validity.knows(&self.account.name, manifest, not_after);
                    }
                    let desired: Option<Desired> = self.account.read(&keys::desired(&self.account.name));
                    let begun = desired.zip(release).map(|(desired, release)| Begun {
                        plan: started.plan.clone(),
                        spec_version: desired.spec_version,
                        target,
                        release,
                    });
                    // Rollouts that ended in the same invocation ended before this one began.
                    let present = lock(&self.account.world);
                    let world = then.unwrap_or(&present);
                    ended.drain(..).for_each(|end| self.checker.ended(world, end));
                    self.checker.begun(world, begun);
                    self.checker.begun_in(&present);
                }
                Boundary::End { end, .. } => ended.push(end),
                Boundary::Destroyed { .. } => {
                    ended.push(End::Succeeded);
                    gone = true;
                }
            }
        }
        (ended, gone)
    }

    /// The checker observes the world before something happens to it: a machine that has just become healthy, and dies now, was healthy.
    fn observe_first(&mut self) {
        if std::mem::take(&mut self.unseen) {
            self.checker.observe(&lock(&self.account.world));
        }
    }

    fn death(&mut self, choice: u64, zone: bool) {
        self.observe_first();
        let mut world = lock(&self.account.world);
        let machines = world.machines();
        let at = usize::try_from(choice).unwrap_or_default() % machines.len().max(1);
        let Some(first) = machines.get(at) else { return };
        let all = machines.iter().filter(|one| one.id == first.id || zone && one.zone == first.zone);
        for machine in all {
            world.kill_machine(&machine.id);
            self.tally.deaths += 1;
        }
        self.checker.observe(&world);
        self.transcript.extend(world.story());
    }

    /// Something outside of Slipway changes the world.
    pub(super) fn strikes(&mut self, what: impl FnOnce(&mut World)) {
        self.observe_first();
        let mut world = lock(&self.account.world);
        what(&mut world);
        self.checker.observe(&world);
        self.transcript.extend(world.story());
    }

    /// Reads the world.
    pub fn with_world<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        read(&lock(&self.account.world))
    }
}

/// Of events that the bus did not take, keeps the last `Rollout Started` and all before it. An outage of the bus delays no step, so acts
/// that follow the start are allowed.
fn keep_starts(unsaid: &mut Vec<Event>) {
    let starts = unsaid.iter().rposition(|event| matches!(event, Event::RolloutStarted(_)));
    unsaid.truncate(starts.map_or(0, |at| at + 1));
}

/// An event that begins or ends a rollout.
enum Boundary<'e> {
    Start(&'e RolloutStarted),
    End { id: &'e str, end: End },
    Destroyed { id: &'e str },
}

impl<'e> Boundary<'e> {
    /// `None` for other events.
    fn from_event(event: &'e Event) -> Option<Self> {
        Some(match event {
            Event::RolloutStarted(started) => Self::Start(started),
            Event::RolloutSucceeded(detail) => Self::End { id: &detail.id, end: End::Succeeded },
            Event::RolloutSuperseded(detail) => Self::End { id: &detail.id, end: End::Superseded },
            Event::RolloutFailed(detail) | Event::RolloutAborted(detail) => {
                Self::End { id: &detail.id, end: End::Stopped }
            }
            Event::ClusterDestroyed(detail) => Self::Destroyed { id: &detail.id },
            Event::SpecRejected(_)
            | Event::PlanReady(_)
            | Event::PlanUnchanged(_)
            | Event::RolloutRequested(_)
            | Event::RolloutApproved(_)
            | Event::RolloutPause(_)
            | Event::RolloutResume(_)
            | Event::RolloutAbort(_)
            | Event::RolloutSkip(_)
            | Event::DestroyRequested(_)
            | Event::OrderIgnored(_)
            | Event::RolloutStep(_)
            | Event::RolloutWaiting(_)
            | Event::RolloutPaused(_)
            | Event::ScanRequested(_)
            | Event::RenewalRequested(_)
            | Event::UpgradeRequested(_)
            | Event::CertificateExpiring(_)
            | Event::CertificateRenewed(_)
            | Event::RenewalFailed(_) => return None,
        })
    }

    /// The ID of the effect that published it; empty if it has none.
    const fn id(&self) -> &'e str {
        match self {
            Self::Start(started) => started.id.as_str(),
            Self::End { id, .. } | Self::Destroyed { id } => id,
        }
    }
}
