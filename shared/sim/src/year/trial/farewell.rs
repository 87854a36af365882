//! A person who orders the destruction of the cluster, during a rollout or after it, and sometimes aborts it.

use jiff::SignedDuration;
use slipway_core::status::RolloutState;
use slipway_rollout::Order;

use super::super::base::Base;
use super::super::check::remaining_resources;
use super::super::engine::{Deed, Engine};
use super::super::random::Random;
use super::super::shapes::{Change, NAME, change_of};
use super::{AGAIN, People, Trial, message, state};
use crate::ports::lock;

/// What that person does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Farewell {
    /// When the order is given.
    at: SignedDuration,
    /// Whether the order is without a last snapshot.
    without_snapshot: bool,
    /// After this time the destruction is aborted; the spec is uploaded again when everything has settled.
    called_off: Option<SignedDuration>,
    /// Whether a group has retained a machine that nobody had drained.
    kept: bool,
    /// Whether the spec is uploaded again when the cluster is gone.
    anew: bool,
}

/// The command that deletes the records of a hosted zone, which a message tells a person to run.
pub(super) const CLEARS_RECORDS: &str = "aws route53 change-resource-record-sets";
/// The share of seeds with a destruction, among those with faults.
const SHARE: f64 = 0.06;

impl Farewell {
    /// The destruction in that trial, if there is one.
    pub(super) fn for_trial(trial: &Trial) -> Option<Self> {
        if trial.people == People::ByChance
            && (change_of(trial.base()) == Change::Removal || change_of(trial.base()).has_deadline())
        {
            return None;
        }
        let mut random = Random::new(trial.seed ^ 0x6661_7265);
        let (by_chance, off) = (random.chance(SHARE), random.chance(0.3));
        let (goes, off) = match trial.people {
            People::ByChance => (trial.faults > 0.0 && by_chance, off),
            People::Destroy => (true, false),
            People::DestroyAndAbort => (true, true),
            People::Pause | People::Abort | People::Skip | People::Newer | People::Back => (false, false),
        };
        let longest = if random.chance(0.5) { 1_800 } else { 25_200 };
        let at = SignedDuration::from_secs(random.seconds(5, longest));
        let after = SignedDuration::from_secs(random.seconds(1, 2_400));
        goes.then(|| Self {
            at,
            without_snapshot: random.chance(0.2),
            called_off: off.then_some(after),
            kept: random.chance(0.3),
            anew: random.chance(0.3),
        })
    }

    fn order(self) -> Deed {
        Deed::Say(Order::Destroy { without_snapshot: self.without_snapshot })
    }

    /// Schedules the orders.
    pub(super) fn begins(self, base: &Base, engine: &mut Engine<'_>) {
        engine.person_after(self.at, self.order());
        if let Some(after) = self.called_off {
            engine.person_after(self.at + after, Deed::Say(Order::Abort { plan: None }));
        }
        if self.kept {
            let mut world = lock(&engine.account.world);
            // A retained machine of a pool that is removed would block the removal until a person has drained the machine, which these
            // trials do not have.
            let goes = format!("pool-p{}", base.shape.pools.len());
            let workers = world.machines().into_iter();
            let workers = workers.filter(|one| one.role.starts_with("pool-") && one.role != goes);
            let worker = workers.map(|one| one.id).next();
            worker.into_iter().for_each(|worker| world.keep_machine(&worker));
        }
    }

    /// All faults have ended. The cluster must be gone, or stopped with a reason that a person can act on, who then does. If the
    /// destruction was aborted, or the spec is uploaded again, everything must come back.
    pub(super) fn comes_about(
        self,
        trial: &Trial,
        base: &Base,
        engine: &mut Engine<'_>,
        first: &mut Option<RolloutState>,
    ) {
        for round in 0..=AGAIN {
            if !trial.comes_to_rest(engine) {
                return;
            }
            first.get_or_insert_with(|| state(engine));
            let later = engine.now() + SignedDuration::from_mins(90);
            engine.run_until(later);
            let is_gone = state(engine) == RolloutState::Destroyed;
            if is_gone {
                self.check_nothing_remains(engine);
            }
            if !engine.checker.violations.is_empty() || is_gone && !self.anew && self.called_off.is_none() {
                return;
            }
            if is_gone || self.called_off.is_some() {
                engine.person_after(SignedDuration::ZERO, Deed::Again);
                if base.shape.manual {
                    engine.person_after(SignedDuration::from_mins(10), Deed::Approve);
                }
                let (soon, mut took) = (engine.now() + SignedDuration::from_mins(11), SignedDuration::ZERO);
                engine.run_until(soon);
                return trial.ends_well(base, engine, first, &mut took, soon);
            }
            if trial.faults == 0.0 || round == AGAIN {
                let what = format!("it was to go, and is {}: {}", state(engine), message(engine));
                return engine.checker.wrong(engine.now(), "liveness", what);
            }
            self.acts_on_the_reason(engine, round);
        }
    }

    /// Does what `status.json` tells a person to do.
    fn acts_on_the_reason(self, engine: &mut Engine<'_>, round: usize) {
        let words = message(engine);
        let is_stuck = engine.account.rollout().is_some_and(|rollout| rollout.is_going());
        if is_stuck && !words.contains("`slipway destroy ") {
            let what = format!("it has stopped, and nobody reads what helps: {words}");
            return engine.checker.wrong(engine.now(), "liveness", what);
        }
        if words.contains(CLEARS_RECORDS) {
            lock(&engine.account.world).clear_records();
        }
        let without_snapshot = self.without_snapshot || round > 0 && words.contains("--without-snapshot");
        engine.person_after(SignedDuration::ZERO, Deed::Say(Order::Destroy { without_snapshot }));
    }

    /// The cluster is reported as gone: none of its resources may exist, and the message must name the last snapshot.
    fn check_nothing_remains(self, engine: &mut Engine<'_>) {
        let (mut left, snapshots) = engine.with_world(|world| {
            let snapshots = world.cluster_facts(NAME).map(|facts| facts.snapshots).unwrap_or_default();
            (remaining_resources(world, NAME), snapshots)
        });
        if engine.account.rollout().is_none_or(|rollout| rollout.was_destroyed().is_none()) {
            left.push("its state is another than destroyed".to_owned());
        }
        let words = message(engine);
        let lies = |at: &jiff::Timestamp| words.contains(&at.strftime("%Y%m%dT%H%M%SZ").to_string());
        if !snapshots.iter().any(lies) && !engine.checker.may_go_unsaved() {
            left.push(format!("nobody says where its last snapshot lies: {words}"));
        }
        for what in left {
            engine.checker.wrong(engine.now(), "§9", format!("the cluster is said to be gone: {what}"));
        }
    }
}
