//! The clusters of trials, what is changed in them, and which seeds choose which: see [`SHAPES`] and [`Change`].

use super::random::Random;

/// The cluster of every trial.
pub(super) const NAME: &str = "trial";

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
    /// The size of the pool that a change adds or removes.
    other: u32,
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
    /// A quarter of the workers may be missing, and the surge is a tenth.
    Quartered,
    /// Pools of three zones; half of the workers may be missing, and the surge is a third.
    Halved,
    /// All workers may be missing: the number of drains alone limits how many go at once.
    AtOnce,
}

/// Two windows, of which one is open on most days.
const DAILY: &str = "  windows:\n    - {days: [mon, wed, sat], start: \"06:00\", minutes: 300}\n    - {start: \"22:30\", minutes: 180}\n";
/// Forty minutes every three hours: a roll needs several.
const OFTEN: &str = "  windows:\n    - {start: \"00:10\", minutes: 40}\n    - {start: \"03:10\", minutes: 40}\n    - {start: \"06:10\", minutes: 40}\n    - {start: \"09:10\", minutes: 40}\n    - {start: \"12:10\", minutes: 40}\n    - {start: \"15:10\", minutes: 40}\n    - {start: \"18:10\", minutes: 40}\n    - {start: \"21:10\", minutes: 40}\n";
/// One hour a week.
const WEEKLY: &str = "  windows:\n    - {days: [sun], start: \"02:30\", minutes: 60}\n";
/// Ten minutes a week: enough for one machine.
const TEN_MINUTES: &str = "  windows:\n    - {days: [sun], start: \"02:30\", minutes: 10}\n";

/// A cluster of the usual kind, except for its sizes.
pub(super) const fn sized(members: u32, controllers: u32, pools: &'static [u32]) -> Shape {
    let (manual, windows, days, pools_are, other) = (false, "", 30, Pools::Plain, 2);
    Shape { members, controllers, pools, manual, windows, days, pools_are, other }
}

/// A cluster with pools of another kind.
const fn with_pools(controllers: u32, pools_are: Pools, pools: &'static [u32]) -> Shape {
    Shape { pools_are, ..sized(1, controllers, pools) }
}

pub(super) const SHAPES: [Shape; 22] = [
    sized(1, 1, &[2]),
    sized(3, 1, &[2]),
    sized(3, 2, &[3, 2]),
    sized(3, 3, &[3]),
    Shape { manual: true, ..sized(3, 3, &[2]) },
    Shape { windows: DAILY, ..sized(5, 2, &[2]) },
    Shape { windows: DAILY, ..sized(1, 1, &[2]) },
    Shape { manual: true, windows: DAILY, ..sized(3, 2, &[2]) },
    Shape { windows: WEEKLY, days: 7, ..sized(3, 3, &[2]) },
    Shape { manual: true, windows: TEN_MINUTES, ..sized(3, 2, &[2]) },
    Shape { windows: WEEKLY, days: 2, ..sized(1, 1, &[2]) },
    Shape { manual: true, days: 7, ..sized(5, 2, &[2]) },
    with_pools(2, Pools::Broad, &[5]),
    Shape { pools_are: Pools::Broad, ..sized(3, 3, &[4, 3]) },
    with_pools(2, Pools::Surging, &[3, 4]),
    with_pools(2, Pools::Weighted, &[6]),
    with_pools(2, Pools::Quartered, &[24]),
    with_pools(3, Pools::Halved, &[16, 9]),
    with_pools(1, Pools::AtOnce, &[22]),
    Shape { other: 22, ..sized(1, 2, &[3]) },
    Shape { windows: OFTEN, ..with_pools(2, Pools::Halved, &[9]) },
    Shape { windows: OFTEN, ..with_pools(2, Pools::Broad, &[4]) },
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
    /// One pool more.
    Addition,
    /// One pool more, and other machines for the workers of the other pools.
    AdditionAndRoll,
    /// New credentials, installed in place, while some are about to expire.
    Urgent,
    /// New credentials. The renewal waits for a window, or for a person who never comes, until it becomes urgent.
    Deadline,
    /// Other machines for the workers. Certificates come near their expiry while these are rolled.
    RollBeforeDeadline,
}

impl Change {
    /// All changes.
    pub const ALL: [Self; 15] = [
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
        Self::Addition,
        Self::AdditionAndRoll,
        Self::Urgent,
        Self::Deadline,
        Self::RollBeforeDeadline,
    ];

    /// Whether the changed spec has a pool more.
    pub(super) const fn adds_a_pool(self) -> bool {
        matches!(self, Self::Addition | Self::AdditionAndRoll)
    }

    /// Whether certificates come near their expiry during the trial.
    pub(super) const fn has_deadline(self) -> bool {
        matches!(self, Self::Deadline | Self::RollBeforeDeadline)
    }

    /// Whether the changed spec has other machines for this role, which is one of the first three changes.
    fn replaces(self, role: Self) -> bool {
        self == role
            || self == Self::All
            || matches!(self, Self::AdditionAndRoll | Self::RollBeforeDeadline) && role == Self::Workers
    }
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

/// Pairs in which a pool is added to a cluster that runs.
const ADDED: [(usize, Change); 10] = [
    (1, Change::Addition),
    (2, Change::Addition),
    (5, Change::Addition),
    (7, Change::Addition),
    (12, Change::Addition),
    (15, Change::Addition),
    (1, Change::AdditionAndRoll),
    (2, Change::AdditionAndRoll),
    (5, Change::AdditionAndRoll),
    (14, Change::AdditionAndRoll),
];

/// Pairs in which a pool has many machines: limits and shares of a pool do something there that they do not in small ones.
const LARGE: [(usize, Change); 9] = [
    (16, Change::Workers),
    (16, Change::All),
    (16, Change::Refresh),
    (17, Change::Workers),
    (17, Change::Renew),
    (18, Change::Workers),
    (19, Change::Addition),
    (19, Change::AdditionAndRoll),
    (19, Change::Removal),
];

/// Pairs in which a pool with a surge is rolled in several windows.
const WINDOWED: [(usize, Change); 4] =
    [(20, Change::Workers), (20, Change::All), (21, Change::Workers), (21, Change::Renew)];

/// Pairs in which certificates come near their expiry while workers are rolled: without approval, with it, by replacement, in place, and in
/// several windows.
const NEAR_EXPIRY: [(usize, Change); 6] = [
    (2, Change::RollBeforeDeadline),
    (3, Change::RollBeforeDeadline),
    (4, Change::RollBeforeDeadline),
    (11, Change::RollBeforeDeadline),
    (20, Change::RollBeforeDeadline),
    (21, Change::RollBeforeDeadline),
];

/// The number of cluster sizes that most seeds choose from.
pub const SIZES: usize = 6;
/// The number of different bases that most seeds choose from.
const USUAL: usize = SIZES * CHANGES.len();
/// The number of all bases.
pub const BASES: usize = USUAL + RARE.len() + ADDED.len() + LARGE.len() + WINDOWED.len() + NEAR_EXPIRY.len();

/// Pairs that a share of the seeds choose. The number makes the choice independent of the other ones.
struct Choice {
    pairs: &'static [(usize, Change)],
    share: f64,
    stream: u64,
}

/// The choices, in the order of the numbers of their bases.
const CHOICES: [Choice; 5] = [
    Choice { pairs: &RARE, share: 0.06, stream: 0x7261_7265 },
    Choice { pairs: &ADDED, share: 0.04, stream: 0x6164_6465 },
    Choice { pairs: &LARGE, share: 0.02, stream: 0x6c61_7267 },
    Choice { pairs: &WINDOWED, share: 0.01, stream: 0x7769_6e64 },
    Choice { pairs: &NEAR_EXPIRY, share: 0.01, stream: 0x6e65_6172 },
];

/// The number of the base that a seed chooses.
pub(super) fn chosen_by(seed: u64) -> usize {
    let below =
        |random: &mut Random, most: usize| usize::try_from(random.below(most as u64)).unwrap_or_default();
    let mut first = USUAL;
    for choice in CHOICES {
        let mut random = Random::new(seed ^ choice.stream);
        if random.chance(choice.share) {
            return first + below(&mut random, choice.pairs.len());
        }
        first += choice.pairs.len();
    }
    below(&mut Random::new(seed ^ 0x6261_7365), USUAL)
}

/// The cluster's number and the change of the base number `base`.
pub(super) fn which(base: usize) -> (usize, Change) {
    let chosen = CHOICES.iter().flat_map(|choice| choice.pairs);
    let chosen = base.checked_sub(USUAL).and_then(|at| chosen.into_iter().nth(at).copied());
    chosen.unwrap_or((base % SIZES, CHANGES[base / SIZES % CHANGES.len()]))
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
        if changed && change.replaces(role) { "m7i.xlarge" } else { "m7i.large" }
    };
    // The pool that the changed spec no longer has, or that only the changed spec has.
    let has_other = change == Change::Removal && !changed || change.adds_a_pool() && changed;
    let other = has_other.then_some(&shape.other);
    let pools: String = shape
        .pools
        .iter()
        .chain(other)
        .enumerate()
        .map(|(index, size)| {
            let zone = ["a", "b"][index % 2];
            let kind = if workers.is_empty() { kind(Change::Workers) } else { workers };
            let subnets = match shape.pools_are {
                Pools::Broad | Pools::Weighted | Pools::Halved => {
                    "{name: private-a}, {name: private-b}, {name: private-c}".to_owned()
                }
                Pools::Plain | Pools::Surging | Pools::Quartered | Pools::AtOnce => {
                    format!("{{name: private-{zone}}}")
                }
            };
            let own = match (shape.pools_are, index) {
                (Pools::Surging, 0) => "      rollout: {maxUnavailable: 0, surge: 2}\n".to_owned(),
                (Pools::Surging, _) => "      rollout: {maxUnavailable: 50%, surge: 34%}\n".to_owned(),
                (Pools::Weighted, _) => format!(
                    "      mixedInstances:\n        overrides:\n          \
                     - {{instanceType: {kind}, weightedCapacity: 1}}\n          \
                     - {{instanceType: m6i.2xlarge, weightedCapacity: 2}}\n"
                ),
                // Later than the cluster's own limit.
                (Pools::Broad | Pools::Halved, 0) => {
                    "      rollout: {drain: {forceAfterMinutes: 45}}\n".to_owned()
                }
                (Pools::Plain | Pools::Broad | Pools::Quartered | Pools::Halved | Pools::AtOnce, _) => {
                    String::new()
                }
            };
            format!(
                "    - name: p{index}\n      instanceType: {kind}\n      subnets: [{subnets}]\n      \
                 autoScalingGroup: {{minSize: {size}, maxSize: {}}}\n{own}",
                size + (size / 2).max(2)
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
    let in_place = match change {
        Change::Refresh | Change::Urgent => true,
        Change::Deadline => shape.days == 30,
        Change::RollBeforeDeadline => shape.days == 30 && shape.pools_are == Pools::Plain,
        Change::Members
        | Change::Controllers
        | Change::Workers
        | Change::All
        | Change::Renew
        | Change::Upgrade
        | Change::Fewer
        | Change::More
        | Change::Removal
        | Change::Addition
        | Change::AdditionAndRoll => false,
    };
    let strategy = if in_place { "refresh" } else { "rollout" };
    let approval = if shape.manual { "manual" } else { "auto" };
    let (windows, days) = (shape.windows, shape.days);
    let pace = match shape.pools_are {
        Pools::Broad => "  maxUnavailable: 2\n  surge: 1\n  drain: {forceAfterMinutes: 20}\n",
        Pools::Surging => "  maxUnavailable: 1\n  failureBudget: 0\n",
        Pools::Quartered => "  maxUnavailable: 25%\n  surge: 10%\n",
        Pools::Halved => "  maxUnavailable: 50%\n  surge: 34%\n  drain: {forceAfterMinutes: 20}\n",
        Pools::AtOnce => "  maxUnavailable: 100%\n",
        Pools::Plain | Pools::Weighted => "  maxUnavailable: 1\n",
    };
    let turns = match shape.pools_are {
        Pools::Surging => "  nodePoolRollingStrategy: Sequential\n",
        Pools::Plain | Pools::Broad | Pools::Weighted | Pools::Quartered | Pools::Halved | Pools::AtOnce => {
            ""
        }
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
