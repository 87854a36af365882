//! The start of each trial: a small launched cluster, and the change that is about to be made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::{SignedDuration, Timestamp};
use slipway_credentials::renewal::RenewalRequest;

use super::account::{Account, Cause, block_on};
use super::check::Checker;
use super::engine::{Deed, Engine};
use super::rules::Rules;
use super::shapes::{Change, NAME, SHAPES, Shape, sized, text, which};
use super::skew::Skew;
use super::validity::Validity;
use crate::mortal::Life;
use crate::ports::lock;
use crate::world::Power;

/// The seed of the launch.
const SEED: u64 = 1;
/// The age of a cluster whose certificates are about to expire. Certificates that are issued for a year expire in less than three days
/// then, and no window of [`text`] is open for ten hours.
const NEARLY_OVER: SignedDuration = SignedDuration::from_hours(24 * 358);

/// How long a renewal waits before it becomes urgent.
const WAITS: SignedDuration = SignedDuration::from_hours(10);

/// A running cluster, and a plan that is about to be executed. Many trials start from one base.
#[derive(Debug)]
pub struct Base {
    pub(super) account: Account,
    pub(super) rules: Rules,
    pub(super) shape: Shape,
    pub(super) change: Change,
    pub(super) skew: Skew,
    pub(super) validity: Validity,
    /// When the first certificate in use expires.
    pub(super) ends: Option<Timestamp>,
    /// From when on the renewal ignores windows and approval.
    pub(super) urgent_from: Option<Timestamp>,
}

impl Base {
    /// The base number `base` of [`BASES`].
    ///
    /// # Panics
    /// As [`Base::with`].
    #[must_use]
    pub fn numbered(base: usize) -> Self {
        let (shape, change) = which(base);
        Self::with(shape, change)
    }

    /// A cluster of the shape number `shape` with that change.
    ///
    /// # Panics
    /// If the launch does not work, with which every trial begins.
    #[must_use]
    pub fn with(shape: usize, change: Change) -> Self {
        Self::made(SHAPES[shape % SHAPES.len()], change)
    }

    /// A cluster with these numbers of members and controllers, two workers, and that change.
    ///
    /// # Panics
    /// As [`Base::with`].
    #[must_use]
    pub fn small(members: u32, controllers: u32, change: Change) -> Self {
        Self::made(sized(members, controllers, &[2]), change)
    }

    /// As [`Base::numbered`], but with a launch of its own.
    ///
    /// # Panics
    /// As [`Base::with`].
    #[must_use]
    pub fn anew(base: usize) -> Self {
        let (shape, change) = which(base);
        let shape = SHAPES[shape];
        Self::changed(shape, change, &Launched::new(shape, &text(shape, change, false, "")))
    }

    fn made(shape: Shape, change: Change) -> Self {
        Self::changed(shape, change, &launched(shape, &text(shape, change, false, "")))
    }

    /// Makes the base of a launched cluster and a change.
    fn changed(shape: Shape, change: Change, launched: &Launched) -> Self {
        let account = launched.account.fork(SEED);
        if change == Change::Urgent {
            let nearly_over = account.now() + NEARLY_OVER;
            lock(&account.world).advance(nearly_over);
        }
        let ends = lock(&account.world).machines();
        let ends = launched.validity.nearest(ends.iter()).map(|(ends, _)| ends);
        if let Some(ends) = ends.filter(|_| change.has_deadline()) {
            // No window is open for that long.
            lock(&account.world).advance(ends - launched.rules.emergency - WAITS);
        }
        if change == Change::Removal || change.adds_a_pool() {
            // As a user would do before removing a pool. A person may remove one again that was just added.
            let goes = format!("pool-p{}", shape.pools.len());
            lock(&account.world).let_pods_go_to(NAME, &goes, "pool-p0");
        }
        let (now, forever) = (account.now(), Life::unending());
        let rendered = match change {
            Change::Members
            | Change::Controllers
            | Change::Workers
            | Change::All
            | Change::Upgrade
            | Change::Fewer
            | Change::More
            | Change::Removal
            | Change::Addition
            | Change::AdditionAndRoll
            | Change::RollBeforeDeadline => {
                let version = account.upload(text(shape, change, true, ""));
                block_on(account.render(Cause::Version(&version), &forever, now))
            }
            Change::Refresh | Change::Renew => {
                let asked = RenewalRequest { everything: true, at: Some(now), ..RenewalRequest::default() };
                block_on(account.scan(&asked, &forever, now))
                    .map(drop)
                    .unwrap_or_else(|error| panic!("{error}"));
                block_on(account.render(Cause::Newest, &forever, now))
            }
            Change::Urgent | Change::Deadline => {
                block_on(account.scan(&RenewalRequest::default(), &forever, now))
                    .map(drop)
                    .unwrap_or_else(|error| panic!("{error}"));
                block_on(account.render(Cause::Newest, &forever, now))
            }
        };
        rendered.unwrap_or_else(|error| panic!("{error}"));
        drop(account.bus.drain());
        let rules = match change {
            Change::Fewer | Change::Addition | Change::AdditionAndRoll => {
                rules(&text(shape, change, true, ""))
            }
            Change::Members
            | Change::Controllers
            | Change::Workers
            | Change::All
            | Change::Refresh
            | Change::Renew
            | Change::Upgrade
            | Change::More
            | Change::Removal
            | Change::Urgent
            | Change::Deadline
            | Change::RollBeforeDeadline => launched.rules.clone(),
        };
        let (skew, validity) = (launched.skew.clone(), launched.validity.clone());
        let urgent_from = ends.map(|ends| ends - rules.emergency);
        Self { account, rules, shape, change, skew, validity, ends, urgent_from }
    }
}

pub(super) fn rules(spec: &str) -> Rules {
    let accepted =
        slipway_spec::parse(spec.as_bytes(), None).unwrap_or_else(|problems| panic!("{problems:#?}"));
    Rules::for_cluster(&accepted.cluster)
}

/// A cluster that was launched, and has run for some days.
#[derive(Debug)]
struct Launched {
    account: Account,
    rules: Rules,
    skew: Skew,
    validity: Validity,
}

impl Launched {
    fn new(shape: Shape, spec: &str) -> Self {
        let rules = rules(spec);
        let checker = Checker::new(NAME, rules.clone(), false);
        let mut engine = Engine::new(Account::new(NAME, "eu-west-1", SEED), checker, SEED, None);
        engine.person_after(SignedDuration::ZERO, Deed::Upload(spec.to_owned()));
        if shape.manual {
            engine.person_after(SignedDuration::from_mins(1), Deed::Approve);
        }
        // Pods have to be some days old, because a forced deletion depends on their age.
        engine.run_until(engine.now() + SignedDuration::from_hours(24 * 4 + 5));
        let up =
            engine.with_world(|world| world.machines().iter().all(|one| one.ready && one.power == Power::Up));
        assert!(up, "a machine does not come up in a world without faults: {:#?}", engine.transcript);
        assert_eq!(engine.checker.violations, [], "the launch breaks a promise");
        let checker = engine.checker;
        Self { account: engine.account, rules, skew: checker.skew, validity: checker.validity }
    }
}

/// The cluster of that spec. It is launched only once per process, because the launch does not depend on later changes.
fn launched(shape: Shape, spec: &str) -> Arc<Launched> {
    type All = BTreeMap<String, Arc<OnceLock<Arc<Launched>>>>;
    static ALL: Mutex<All> = Mutex::new(BTreeMap::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let one = Arc::clone(all.entry(spec.to_owned()).or_default());
    drop(all);
    Arc::clone(one.get_or_init(|| Arc::new(Launched::new(shape, spec))))
}
