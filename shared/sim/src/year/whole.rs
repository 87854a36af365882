//! A year of one cluster, and more: launched, scanned day by day, renewed and rolled, with whatever goes wrong besides.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::account::Account;
use super::check::{Checker, Violation};
use super::engine::{Deed, Engine, Happening, Tally};
use super::imports::exported;
use super::lives::{Lifetime, Lives};
use super::picture;
use super::rules::Rules;
use crate::ports::lock;
use crate::world::{MachineFacts, World};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// What is lived through: everything follows from it.
#[derive(Debug, Clone)]
pub struct Year {
    /// The spec, as it is uploaded.
    pub spec: String,
    /// For how many days after the launch.
    pub days: u32,
    /// From which what is left to chance follows.
    pub seed: u64,
    /// How likely things go wrong, as [`Engine::let_go_wrong`] has it.
    pub faults: f64,
    /// From the launch on nobody approves anything, or uploads the spec again.
    pub unattended: bool,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Chronicle {
    /// The first promise that was broken, if one was: it ends the year.
    pub violations: Vec<Violation>,
    /// What `status.json` said at that moment.
    pub status: Option<String>,
    /// What the bus said of rollouts and certificates.
    pub said: Vec<(Timestamp, String)>,
    /// What was counted.
    pub tally: Tally,
    /// How long it was, from the first machine that served on.
    pub lived: SignedDuration,
    /// Of it, how long etcd had a leader.
    pub etcd: SignedDuration,
    /// Of it, how long an API server answered.
    pub api: SignedDuration,
    /// Evictions that were granted.
    pub evicted: u64,
    /// Pods that were lost with a machine that died.
    pub lost: usize,
    /// How long the certificate that was nearest to its end still held, of those that a machine had in force.
    pub margin: Option<SignedDuration>,
    /// Rollouts by how they ended.
    pub rollouts: BTreeMap<String, u64>,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub until: Timestamp,
    /// Every machine that there was.
    pub machines: Vec<Lifetime>,
    /// At the end of each day: how long the certificate in force that is nearest to its end still held.
    pub margins: Vec<(Timestamp, SignedDuration)>,
    /// How long before its end a certificate is renewed; `None`: nobody does.
    pub renew_before: Option<SignedDuration>,
}

impl Chronicle {
    /// The page that shows it; `subject` says what was lived through.
    #[must_use]
    pub fn to_html(&self, name: &str, subject: &str) -> String {
        picture::page(name, subject, self)
    }

    /// Which share of the time `part` is; 0 if there was none.
    #[must_use]
    pub fn share(&self, part: SignedDuration) -> f64 {
        if self.lived.is_zero() { 0.0 } else { part.as_secs_f64() / self.lived.as_secs_f64() }
    }
}

/// Why a year cannot be lived through.
#[derive(Debug, thiserror::Error)]
#[error("the spec is not accepted: {0}")]
pub struct Refused(String);

/// The account as it goes on, and what is summed up of it.
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
    /// As they were seen last.
    machines: BTreeMap<String, MachineFacts>,
}

impl Year {
    /// Lives through it.
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
        let checker = Checker::new(&cluster.name, Rules::of(&cluster), self.faults > 0.0);
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
        // The launch, in a day on which nothing goes wrong.
        life.day(true);
        life.engine.checker.stands = true;
        life.engine.let_go_wrong(self.faults);
        for day in 0..self.days {
            life.engine.after(SignedDuration::ZERO, Happening::Daily);
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
        Ok(life.told(renewal.map(|policy| SignedDuration::from_hours(24 * i64::from(policy.days)))))
    }
}

impl Life<'_> {
    /// A day; on a working day a person approves what waits for it, and uploads the spec again where a rollout ended badly.
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
                .is_some_and(|one| one.state == "failed")
            {
                self.engine.person_after(morning - SignedDuration::from_hours(1), Deed::Again);
            }
        }
        while self.engine.next_at().is_some_and(|next| next <= until) {
            let before = self.engine.now();
            let (led, answers) = self.serves();
            self.engine.step();
            self.looks();
            self.counts(self.engine.now().duration_since(before), led, answers);
            if !self.engine.checker.violations.is_empty() {
                self.margins();
                return self.heard();
            }
        }
        let (before, (led, answers)) = (self.engine.now(), self.serves());
        self.engine.run_until(until);
        self.counts(until.duration_since(before), led, answers);
        self.margins();
        self.heard();
    }

    /// Takes down what was said.
    fn heard(&mut self) {
        let transcript = std::mem::take(&mut self.engine.transcript);
        let heard = ["bus: spec", "bus: rollout", "bus: certificates", "bus: expiring", "bus: renewal"];
        for (at, line) in transcript {
            if heard.iter().any(|words| line.starts_with(words)) {
                self.said.push((at, line["bus: ".len()..].to_owned()));
            } else if !self.stands
                && line.contains(" fails: ")
                && self.said.iter().all(|(_, said)| *said != line)
            {
                // Nothing comes of the launch, and nobody but the function's log says why.
                self.said.push((at, line));
            }
        }
    }

    /// Whether etcd has a leader, and an API server answers.
    fn serves(&mut self) -> (bool, bool) {
        let (led, answers) = self.engine.with_world(|world| world.serves(&self.name));
        self.stands |= led && answers;
        (led, answers)
    }

    fn looks(&mut self) {
        let (engine, machines) = (&self.engine, &mut self.machines);
        engine.with_world(|world| world.update_machines(machines));
        self.lives.look(engine.now(), &self.machines);
    }

    fn counts(&mut self, time: SignedDuration, led: bool, answers: bool) {
        if !self.stands {
            return;
        }
        self.lived += time;
        self.etcd += if led { time } else { SignedDuration::ZERO };
        self.api += if answers { time } else { SignedDuration::ZERO };
    }

    /// How long what is in force still holds, where it ends first.
    fn margins(&mut self) {
        let now = self.engine.now();
        let machines = self.engine.with_world(World::machines);
        if let Some((end, _)) = self.engine.checker.validity.nearest(machines.iter()) {
            self.margins.push((now, end.duration_since(now)));
        }
    }

    fn told(mut self, renew_before: Option<SignedDuration>) -> Chronicle {
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
            said: self.said,
            tally: self.engine.tally,
            lived: self.lived,
            etcd: self.etcd,
            api: self.api,
            evicted: facts.evicted,
            lost: facts.losses.iter().filter(|loss| !loss.asked).map(|loss| loss.pods).sum(),
            margin: self.margins.iter().map(|(_, left)| *left).min(),
            rollouts,
            from: self.from,
            until,
            machines: self.lives.all(),
            margins: self.margins,
            renew_before,
        }
    }
}
