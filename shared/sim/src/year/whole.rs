//! A year or more of one cluster: launched, scanned daily, renewed and rolled, with faults.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::status::RolloutState;

use super::account::Account;
use super::check::{Checker, Violation};
use super::engine::{Deed, Engine, Happening, Tally};
use super::imports::exported;
use super::lives::{Lifetime, Lives};
use super::rules::Rules;
use crate::ports::lock;
use crate::world::{MachineFacts, World};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A simulated year; everything follows from these values.
#[derive(Debug, Clone)]
pub struct Year {
    /// The spec that is uploaded.
    pub spec: String,
    /// The number of days after the launch.
    pub days: u32,
    /// The seed of everything random.
    pub seed: u64,
    /// The probability of faults, as in [`Engine::let_go_wrong`].
    pub faults: f64,
    /// After the launch nobody approves anything or uploads the spec again.
    pub unattended: bool,
    /// A person uploads this spec so many days after the launch.
    pub upload: Option<(u32, String)>,
}

/// The result of a year.
#[derive(Debug, Default)]
pub struct Chronicle {
    /// The first broken promise, if there is one: it ends the year.
    pub violations: Vec<Violation>,
    /// The content of `status.json` at that moment.
    pub status: Option<String>,
    /// The events about rollouts and certificates.
    pub events: Vec<(Timestamp, String)>,
    /// The counts of the engine.
    pub tally: Tally,
    /// The duration since the first machine served.
    pub lived: SignedDuration,
    /// How much of it etcd had a leader.
    pub etcd: SignedDuration,
    /// How much of it an API server answered.
    pub api: SignedDuration,
    /// The number of evictions that were granted.
    pub evicted: u64,
    /// Pods that were lost with a machine that died.
    pub lost: usize,
    /// The shortest remaining validity of any certificate in use.
    pub margin: Option<SignedDuration>,
    /// Rollouts by how they ended.
    pub rollouts: BTreeMap<String, u64>,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub until: Timestamp,
    /// All machines that ever existed.
    pub machines: Vec<Lifetime>,
    /// At the end of each day, the shortest remaining validity of a certificate in use.
    pub margins: Vec<(Timestamp, SignedDuration)>,
    /// How long before its expiry a certificate is renewed; `None` if it is not renewed automatically.
    pub renew_before: Option<SignedDuration>,
}

impl Chronicle {
    /// The share of `part` in the whole time; 0 if that is zero.
    #[must_use]
    pub fn share(&self, part: SignedDuration) -> f64 {
        if self.lived.is_zero() { 0.0 } else { part.as_secs_f64() / self.lived.as_secs_f64() }
    }
}

/// Why a year cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[error("the spec is not accepted: {0}")]
pub struct Refused(String);

/// The account during the year, and the sums so far.
struct Life<'m> {
    engine: Engine<'m>,
    name: String,
    stands: bool,
    lived: SignedDuration,
    etcd: SignedDuration,
    api: SignedDuration,
    margins: Vec<(Timestamp, SignedDuration)>,
    said: Vec<(Timestamp, String)>,
    from: Timestamp,
    lives: Lives,
    /// The machines at the last observation.
    machines: BTreeMap<String, MachineFacts>,
}

impl Year {
    /// Simulates the year.
    ///
    /// # Errors
    /// If the spec is not accepted.
    pub fn live(&self) -> Result<Chronicle, Refused> {
        let accepted = slipway_spec::parse(self.spec.as_bytes(), None).map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Refused(problems.join("; "))
        })?;
        let cluster = accepted.cluster;
        let account = Account::new(&cluster.name, &cluster.region, self.seed);
        exported(&mut lock(&account.world), &cluster);
        let checker = Checker::new(&cluster.name, Rules::for_cluster(&cluster), self.faults > 0.0);
        let mut engine = Engine::new(account, checker, self.seed, None);
        engine.scans = true;
        engine.person_after(SignedDuration::ZERO, Deed::Upload(self.spec.clone()));
        let from = engine.now();
        let mut life = Life {
            engine,
            name: cluster.name.clone(),
            stands: false,
            lived: SignedDuration::ZERO,
            etcd: SignedDuration::ZERO,
            api: SignedDuration::ZERO,
            margins: Vec::new(),
            said: Vec::new(),
            from,
            lives: Lives::default(),
            machines: BTreeMap::new(),
        };
        // The launch, on a day without faults.
        life.day(true);
        life.engine.checker.stands = true;
        life.engine.let_go_wrong(self.faults);
        for day in 0..self.days {
            life.engine.after(SignedDuration::ZERO, Happening::Daily);
            if let Some((_, text)) = self.upload.as_ref().filter(|(at, _)| *at == day) {
                life.engine.person_after(SignedDuration::from_hours(10), Deed::Upload(text.clone()));
            }
            let chance = (self.faults / 4.0).min(0.5);
            if life.engine.random.chance(chance) {
                let wait = SignedDuration::from_secs(life.engine.random.seconds(0, 86_400));
                let choice = life.engine.random.number();
                life.engine.after(wait, Happening::Death { choice, zone: false });
            }
            life.day(day % 7 < 5 && !self.unattended);
            if !life.engine.checker.violations.is_empty() {
                break;
            }
        }
        let renewal = cluster.certificates.rollout_before_expiry.as_ref();
        Ok(life.into_chronicle(renewal.map(|policy| SignedDuration::from_hours(24 * i64::from(policy.days)))))
    }
}

impl Life<'_> {
    /// One day. On a working day a person approves plans that wait for it, and uploads the spec again after a failed rollout.
    fn day(&mut self, works: bool) {
        let until = self.engine.now() + DAY;
        if works {
            let morning = SignedDuration::from_hours(9);
            self.engine.person_after(morning, Deed::ApproveWaiting);
            if self
                .engine
                .account
                .status()
                .and_then(|status| status.rollout)
                .is_some_and(|one| one.state == RolloutState::Failed)
            {
                self.engine.person_after(morning - SignedDuration::from_hours(1), Deed::Again);
            }
        }
        while self.engine.next_at().is_some_and(|next| next <= until) {
            let before = self.engine.now();
            let (led, answers) = self.serves();
            self.engine.step();
            self.observe();
            self.counts(self.engine.now().duration_since(before), led, answers);
            if !self.engine.checker.violations.is_empty() {
                self.margins();
                return self.record_events();
            }
        }
        let (before, (led, answers)) = (self.engine.now(), self.serves());
        self.engine.run_until(until);
        self.counts(until.duration_since(before), led, answers);
        self.margins();
        self.record_events();
    }

    /// Records the events.
    fn record_events(&mut self) {
        let transcript = std::mem::take(&mut self.engine.transcript);
        let heard = ["bus: spec", "bus: rollout", "bus: certificates", "bus: expiring", "bus: renewal"];
        for (at, line) in transcript {
            if heard.iter().any(|words| line.starts_with(words)) {
                self.said.push((at, line["bus: ".len()..].to_owned()));
            } else if !self.stands
                && line.contains(" fails: ")
                && self.said.iter().all(|(_, said)| *said != line)
            {
                // The launch has failed, and only the function's log says why.
                self.said.push((at, line));
            }
        }
    }

    /// Whether etcd has a leader, and whether an API server answers.
    fn serves(&mut self) -> (bool, bool) {
        let (led, answers) = self.engine.with_world(|world| world.serves(&self.name));
        self.stands |= led && answers;
        (led, answers)
    }

    fn observe(&mut self) {
        let (engine, machines) = (&self.engine, &mut self.machines);
        engine.with_world(|world| world.update_machines(machines));
        self.lives.record(engine.now(), &self.machines);
    }

    fn counts(&mut self, time: SignedDuration, led: bool, answers: bool) {
        if !self.stands {
            return;
        }
        self.lived += time;
        self.etcd += if led { time } else { SignedDuration::ZERO };
        self.api += if answers { time } else { SignedDuration::ZERO };
    }

    /// Records the shortest remaining validity of a certificate in use.
    fn margins(&mut self) {
        let now = self.engine.now();
        let machines = self.engine.with_world(World::machines);
        if let Some((end, _)) = self.engine.checker.validity.nearest(machines.iter()) {
            self.margins.push((now, end.duration_since(now)));
        }
    }

    fn into_chronicle(mut self, renew_before: Option<SignedDuration>) -> Chronicle {
        self.engine.checker.violations.truncate(1);
        let report = self.engine.account.status().and_then(|status| status.rollout);
        let status = report.map(|report| format!("{}: {}", report.state, report.message));
        let facts = self.engine.with_world(|world| world.cluster_facts(&self.name)).unwrap_or_default();
        let mut rollouts = BTreeMap::new();
        for (_, line) in &self.said {
            for end in ["succeeded", "failed", "aborted"] {
                if line.starts_with(&format!("rollout {end}")) {
                    *rollouts.entry(end.to_owned()).or_default() += 1;
                }
            }
        }
        let until = self.engine.now();
        Chronicle {
            status: status.filter(|_| !self.engine.checker.violations.is_empty()),
            violations: self.engine.checker.violations,
            events: self.said,
            tally: self.engine.tally,
            lived: self.lived,
            etcd: self.etcd,
            api: self.api,
            evicted: facts.evicted,
            lost: facts.losses.iter().filter(|loss| !loss.terminated).map(|loss| loss.pods).sum(),
            margin: self.margins.iter().map(|(_, margin)| *margin).min(),
            rollouts,
            from: self.from,
            until,
            machines: self.lives.all(),
            margins: self.margins,
            renew_before,
        }
    }
}
