//! The start of each trial: a small launched cluster, and the change that is about to be made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::{SignedDuration, Timestamp};
use slipway_credentials::renewal::RenewalRequest;

use super::account::{Account, Cause, block_on};
use super::check::Checker;
use super::engine::{Deed, Engine};
use super::rules::Rules;
use super::skew::Skew;
use super::validity::Validity;
use crate::mortal::Life;
use crate::ports::lock;
use crate::world::Power;

/// The cluster of every trial.
pub(super) const NAME: &str = "trial";
/// The seed of the launch.
const SEED: u64 = 1;
/// The age of a cluster whose certificates are about to expire. Certificates that are issued for a year expire in less than three days
/// then, and no window of [`text`] is open for ten hours.
const NEARLY_OVER: SignedDuration = SignedDuration::from_hours(24 * 358);

/// How long a renewal waits before it becomes urgent.
const WAITS: SignedDuration = SignedDuration::from_hours(10);

/// The size of a cluster, and how it is rolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    members: u32,
    controllers: u32,
    /// The sizes of its pools.
    pub(super) pools: &'static [u32],
    pub(super) manual: bool,
    windows: &'static str,
    /// `rolloutBeforeExpiry.days`.
    days: u32,
    pools_are: Pools,
}

/// The kind of its pools, and how they are rolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pools {
    /// Pools of one zone; one worker may be missing.
    Plain,
    /// Pools of three zones; two workers may be missing, the surge is one, and drains are forced after a while.
    Broad,
    /// Two pools of one zone, rolled one after the other. In the first, no worker may be missing and the surge is two. In the second, half
    /// of the workers may be missing and the surge is a third. No worker may fail.
    Surging,
    /// Pools of three zones with Spot machines of two sizes: their groups count capacity units, and replace machines that are likely to be
    /// interrupted.
    Weighted,
}

/// Two windows, of which one is open on most days.
const DAILY: &str = "  windows:\n    - {days: [mon, wed, sat], start: \"06:00\", minutes: 300}\n    - {start: \"22:30\", minutes: 180}\n";
/// One hour a week.
const WEEKLY: &str = "  windows:\n    - {days: [sun], start: \"02:30\", minutes: 60}\n";
/// Ten minutes a week: enough for one machine.
const TEN_MINUTES: &str = "  windows:\n    - {days: [sun], start: \"02:30\", minutes: 10}\n";

pub(super) const SHAPES: [Shape; 16] = [
    Shape {
        members: 1,
        controllers: 1,
        pools: &[2],
        manual: false,
        windows: "",
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 3,
        controllers: 1,
        pools: &[2],
        manual: false,
        windows: "",
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 3,
        controllers: 2,
        pools: &[3, 2],
        manual: false,
        windows: "",
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 3,
        controllers: 3,
        pools: &[3],
        manual: false,
        windows: "",
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 3,
        controllers: 3,
        pools: &[2],
        manual: true,
        windows: "",
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 5,
        controllers: 2,
        pools: &[2],
        manual: false,
        windows: DAILY,
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 1,
        controllers: 1,
        pools: &[2],
        manual: false,
        windows: DAILY,
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 3,
        controllers: 2,
        pools: &[2],
        manual: true,
        windows: DAILY,
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 3,
        controllers: 3,
        pools: &[2],
        manual: false,
        windows: WEEKLY,
        days: 7,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 3,
        controllers: 2,
        pools: &[2],
        manual: true,
        windows: TEN_MINUTES,
        days: 30,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 1,
        controllers: 1,
        pools: &[2],
        manual: false,
        windows: WEEKLY,
        days: 2,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 5,
        controllers: 2,
        pools: &[2],
        manual: true,
        windows: "",
        days: 7,
        pools_are: Pools::Plain,
    },
    Shape {
        members: 1,
        controllers: 2,
        pools: &[5],
        manual: false,
        windows: "",
        days: 30,
        pools_are: Pools::Broad,
    },
    Shape {
        members: 3,
        controllers: 3,
        pools: &[4, 3],
        manual: false,
        windows: "",
        days: 30,
        pools_are: Pools::Broad,
    },
    Shape {
        members: 1,
        controllers: 2,
        pools: &[3, 4],
        manual: false,
        windows: "",
        days: 30,
        pools_are: Pools::Surging,
    },
    Shape {
        members: 1,
        controllers: 2,
        pools: &[6],
        manual: false,
        windows: "",
        days: 30,
        pools_are: Pools::Weighted,
    },
];

/// The change of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Other machines for etcd.
    Members,
    /// Other machines for the controllers.
    Controllers,
    /// Other machines for the workers.
    Workers,
    /// Other machines for all roles.
    All,
    /// New credentials, installed in place.
    Refresh,
    /// New credentials, by replacing the machines.
    Renew,
    /// Another minor of Kubernetes and of etcd.
    Upgrade,
    /// Two members of etcd and one controller fewer.
    Fewer,
    /// Two members of etcd more.
    More,
    /// One pool less.
    Removal,
    /// New credentials, installed in place, while some are about to expire.
    Urgent,
    /// New credentials. The renewal waits for a window, or for a person who never comes, until it becomes urgent.
    Deadline,
}

impl Change {
    /// All changes.
    pub const ALL: [Self; 12] = [
        Self::Members,
        Self::Controllers,
        Self::Workers,
        Self::All,
        Self::Refresh,
        Self::Renew,
        Self::Upgrade,
        Self::Fewer,
        Self::More,
        Self::Removal,
        Self::Urgent,
        Self::Deadline,
    ];
}

pub(super) const CHANGES: [Change; 6] =
    [Change::Members, Change::Controllers, Change::Workers, Change::All, Change::Refresh, Change::Renew];

/// Pairs of a cluster's number and its change that few seeds choose.
const RARE: [(usize, Change); 28] = [
    (1, Change::Removal),
    (2, Change::Removal),
    (5, Change::Removal),
    (7, Change::Removal),
    (1, Change::More),
    (2, Change::More),
    (3, Change::More),
    (2, Change::Fewer),
    (5, Change::Fewer),
    (6, Change::Urgent),
    (7, Change::Urgent),
    (6, Change::Refresh),
    (6, Change::All),
    (7, Change::Workers),
    (8, Change::Deadline),
    (9, Change::Deadline),
    (10, Change::Deadline),
    (11, Change::Deadline),
    (12, Change::Workers),
    (12, Change::All),
    (13, Change::Workers),
    (13, Change::All),
    (13, Change::Renew),
    (14, Change::Workers),
    (14, Change::All),
    (15, Change::Workers),
    (15, Change::All),
    (15, Change::Renew),
];

/// The number of cluster sizes that most seeds choose from.
pub const SIZES: usize = 6;
/// The number of different bases that most seeds choose from.
pub(super) const USUAL: usize = SIZES * CHANGES.len();
/// The number of all bases.
pub const BASES: usize = USUAL + RARE.len();

/// The cluster's number and the change of the base number `base`.
fn which(base: usize) -> (usize, Change) {
    let rare = base.checked_sub(USUAL).and_then(|at| RARE.get(at).copied());
    rare.unwrap_or((base % SIZES, CHANGES[base / SIZES % CHANGES.len()]))
}

/// The change of the base number `base`.
pub(super) fn change_of(base: usize) -> Change {
    which(base).1
}

/// The number of the base with that cluster and change; `None` if no seed chooses it.
pub(super) fn number_of(shape: usize, change: Change) -> Option<usize> {
    (0..BASES).find(|base| which(*base) == (shape, change))
}

/// The spec of a cluster of that shape. `changed`: the spec after the change, with other machines than at the launch.
pub(super) fn text(shape: Shape, change: Change, changed: bool, workers: &str) -> String {
    let kind = |role: Change| {
        if changed && (change == role || change == Change::All) { "m7i.xlarge" } else { "m7i.large" }
    };
    // The pool that the changed spec no longer has.
    let goes: &[u32] = if change == Change::Removal && !changed { &[2] } else { &[] };
    let pools: String = shape
        .pools
        .iter()
        .chain(goes)
        .enumerate()
        .map(|(index, size)| {
            let zone = ["a", "b"][index % 2];
            let kind = if workers.is_empty() { kind(Change::Workers) } else { workers };
            let subnets = match shape.pools_are {
                Pools::Broad | Pools::Weighted => {
                    "{name: private-a}, {name: private-b}, {name: private-c}".to_owned()
                }
                Pools::Plain | Pools::Surging => format!("{{name: private-{zone}}}"),
            };
            let own = match (shape.pools_are, index) {
                (Pools::Surging, 0) => "      rollout: {maxUnavailable: 0, surge: 2}\n".to_owned(),
                (Pools::Surging, _) => "      rollout: {maxUnavailable: 50%, surge: 34%}\n".to_owned(),
                (Pools::Weighted, _) => format!(
                    "      mixedInstances:\n        overrides:\n          \
                     - {{instanceType: {kind}, weightedCapacity: 1}}\n          \
                     - {{instanceType: m6i.2xlarge, weightedCapacity: 2}}\n"
                ),
                (Pools::Plain | Pools::Broad, _) => String::new(),
            };
            format!(
                "    - name: p{index}\n      instanceType: {kind}\n      subnets: [{subnets}]\n      \
                 autoScalingGroup: {{minSize: {size}, maxSize: {}}}\n{own}",
                size + 2
            )
        })
        .collect();
    let minor = if change == Change::Upgrade && !changed { "1.36" } else { "1.37" };
    let (mut controllers, mut members) = (shape.controllers, shape.members);
    if change == Change::Fewer && changed {
        (controllers, members) = ((controllers - 1).max(1), members.saturating_sub(2).max(1));
    }
    if change == Change::More && changed {
        members += 2;
    }
    let in_place =
        matches!(change, Change::Refresh | Change::Urgent) || change == Change::Deadline && shape.days == 30;
    let strategy = if in_place { "refresh" } else { "rollout" };
    let approval = if shape.manual { "manual" } else { "auto" };
    let (windows, days) = (shape.windows, shape.days);
    let pace = match shape.pools_are {
        Pools::Broad => "  maxUnavailable: 2\n  surge: 1\n  drain: {forceAfterMinutes: 20}\n",
        Pools::Surging => "  maxUnavailable: 1\n  failureBudget: 0\n",
        Pools::Plain | Pools::Weighted => "  maxUnavailable: 1\n",
    };
    let turns = match shape.pools_are {
        Pools::Surging => "  nodePoolRollingStrategy: Sequential\n",
        Pools::Plain | Pools::Broad | Pools::Weighted => "",
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
         worker:\n{turns}  nodePools:\n{pools}\
         certificatesConfiguration:\n  rolloutBeforeExpiry: {{enabled: true, days: {days}, strategy: {strategy}}}\n\
         rollout:\n  approval: {approval}\n{pace}{windows}",
        controllers,
        kind(Change::Controllers),
        members,
        kind(Change::Members),
    )
}

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
        Self::made(
            Shape {
                members,
                controllers,
                pools: &[2],
                manual: false,
                windows: "",
                days: 30,
                pools_are: Pools::Plain,
            },
            change,
        )
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
        if let Some(ends) = ends.filter(|_| change == Change::Deadline) {
            // No window is open for that long.
            lock(&account.world).advance(ends - launched.rules.emergency - WAITS);
        }
        if change == Change::Removal {
            // As a user would do before removing a pool.
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
            | Change::Removal => {
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
            Change::Fewer => rules(&text(shape, change, true, "")),
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
            | Change::Deadline => launched.rules.clone(),
        };
        let (skew, validity) = (launched.skew.clone(), launched.validity.clone());
        let urgent_from = ends.map(|ends| ends - rules.emergency);
        Self { account, rules, shape, change, skew, validity, ends, urgent_from }
    }
}

fn rules(spec: &str) -> Rules {
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
