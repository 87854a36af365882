//! The rules of a spec that rollouts have to keep, computed independently of the code that decides.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::{Approval, Cluster, CountOrPercent, Day, MaintenanceWindow, RenewalStrategy};

/// The rules of a spec.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The number of controllers.
    pub controllers: usize,
    /// The largest number of controllers, if a person uploads a spec with another one.
    most_controllers: usize,
    /// By role.
    pools: BTreeMap<String, PoolRules>,
    /// After how many minutes of a drain pods may be deleted against their budget: by default, and in each pool with a value of its own.
    force: (Option<u32>, BTreeMap<String, u32>),
    /// Whether a person has to approve rollouts.
    pub manual: bool,
    /// Whether renewed credentials are installed in place; `false`: machines are replaced.
    pub in_place: bool,
    windows: Vec<MaintenanceWindow>,
    /// Whether certificates are renewed automatically.
    pub renews: bool,
    /// Whether orders to destroy the cluster are not obeyed.
    pub(super) protected: bool,
    /// How many replacements of workers may fail before the rollout fails.
    pub(super) failure_budget: usize,
    /// How long before the expiry of a certificate its renewal becomes urgent.
    pub(super) emergency: SignedDuration,
}

#[derive(Debug, Clone, Copy)]
struct PoolRules {
    /// The minimum number of machines.
    size: usize,
    /// How many may be missing.
    away: CountOrPercent,
    /// The surge.
    more: CountOrPercent,
}

/// How long before the expiry of a certificate its renewal ignores windows and approval: `emergencyDays`, or the duration of the slowest
/// roll after the next day's scan. In minutes, as in docs/architecture.md, "The longest roll"; the code that decides is not used.
fn emergency(cluster: &Cluster) -> SignedDuration {
    let Some(policy) = cluster.certificates.rollout_before_expiry else { return SignedDuration::ZERO };
    let (member, controller) = match policy.strategy {
        RenewalStrategy::Refresh => (180 + 102 + 6 + 102 + 6, 180 + 102 + 6),
        RenewalStrategy::Rollout => (240 + 102 + 6 + 27 + 6, 240 + 240 + 19),
    };
    let members = i64::try_from(cluster.etcd.members.len()).unwrap_or_default();
    // 499: the controller that an open rollout is replacing, which lasts longer than the creation of its stack.
    let roll = 499 + 120 + 1_470 + members * member + i64::from(cluster.controller.count) * controller;
    SignedDuration::from_mins(roll.max(i64::from(policy.emergency_days) * 1_440))
}

fn count_of(share: CountOrPercent, size: usize) -> usize {
    match share {
        CountOrPercent::Count(count) => count as usize,
        CountOrPercent::Percent(percent) => (size * percent as usize).div_ceil(100),
    }
}

impl Rules {
    /// The rules of `cluster`.
    #[must_use]
    pub fn for_cluster(cluster: &Cluster) -> Self {
        let policy = &cluster.rollout;
        let pools = cluster.pools.iter().map(|pool| {
            let own = policy.pools.get(&pool.name);
            // For a pool whose group counts capacity units: the number of machines of the heaviest type that its minimum needs.
            let types = pool.mixed_instances.iter().flat_map(|mixed| &mixed.types);
            let heaviest = types.filter_map(|one| one.weight).max().unwrap_or(1);
            let size = pool.size.min.div_ceil(heaviest) as usize;
            let away = own.and_then(|own| own.max_unavailable).unwrap_or(policy.max_unavailable);
            let more = own.and_then(|own| own.surge).unwrap_or(policy.surge);
            (format!("pool-{}", pool.name), PoolRules { size, away, more })
        });
        let renews = cluster.certificates.rollout_before_expiry;
        let own_force = policy.pools.iter();
        let own_force = own_force.filter_map(|(name, pool)| Some((name, pool.drain_force_after_min?)));
        let own_force = own_force.map(|(name, minutes)| (format!("pool-{name}"), minutes)).collect();
        Self {
            controllers: cluster.controller.count as usize,
            most_controllers: cluster.controller.count as usize,
            pools: pools.collect(),
            force: (policy.drain_force_after_min, own_force),
            manual: policy.approval == Approval::Manual,
            in_place: renews.is_none_or(|policy| policy.strategy == RenewalStrategy::Refresh),
            windows: policy.windows.clone(),
            renews: renews.is_some(),
            protected: cluster.deletion_protection,
            failure_budget: policy.failure_budget as usize,
            emergency: emergency(cluster),
        }
    }

    /// A person uploads a spec with `other` rules. Until it is rolled out, the cluster may have the controllers of either.
    pub(super) fn may_have_controllers_of(&mut self, other: &Self) {
        self.most_controllers = self.most_controllers.max(other.controllers);
        self.controllers = self.controllers.min(other.controllers);
    }

    /// The largest minimum number of machines of a role that a spec asks for.
    #[must_use]
    pub(super) fn most(&self, role: &str) -> usize {
        if role == "controller" { self.most_controllers } else { self.size(role) }
    }

    /// The minimum number of machines of a role.
    #[must_use]
    pub fn size(&self, role: &str) -> usize {
        match role {
            "controller" => self.controllers,
            role if role.starts_with("etcd-") => 1,
            role => self.pools.get(role).map_or(0, |pool| pool.size),
        }
    }

    /// How long a machine of that role has to be drained before pods may be deleted against their budget; `None`: this is never allowed.
    #[must_use]
    pub fn forces_after(&self, role: &str) -> Option<SignedDuration> {
        let minutes = self.force.1.get(role).copied().or(self.force.0)?;
        Some(SignedDuration::from_mins(i64::from(minutes)))
    }

    /// How many of the `size` machines of a pool may be missing.
    #[must_use]
    pub fn max_missing(&self, role: &str, size: usize) -> usize {
        self.pools.get(role).map_or(1, |pool| count_of(pool.away, size).max(1))
    }

    /// The surge of a role with `size` machines.
    #[must_use]
    pub fn surge(&self, role: &str, size: usize) -> usize {
        match role {
            "controller" => 1,
            role if role.starts_with("etcd-") => 0,
            role => self.pools.get(role).map_or(0, |pool| count_of(pool.more, size)),
        }
    }

    /// Whether a role is a pool with a surge.
    pub(super) fn has_surge(&self, role: &str) -> bool {
        self.surge(role, self.size(role)) > 0 && role != "controller"
    }

    /// Whether disruptive work begins only in windows.
    pub(super) fn has_windows(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Whether work may begin at `now`, or might have begun until `grace` ago. If there is a grace, a function's clock may be two seconds ahead.
    #[must_use]
    pub fn is_open(&self, now: Timestamp, grace: SignedDuration) -> bool {
        let by_its_clock = if grace.is_zero() { now } else { now + SignedDuration::from_secs(2) };
        let is_open = |window| opens(window, now, grace) || opens(window, by_its_clock, SignedDuration::ZERO);
        self.windows.is_empty() || self.windows.iter().any(is_open)
    }
}

fn opens(window: &MaintenanceWindow, now: Timestamp, grace: SignedDuration) -> bool {
    const WEEK_MIN: i64 = 7 * 24 * 60;
    let zoned = now.to_zoned(TimeZone::UTC);
    let of_week = i64::from(zoned.weekday().to_monday_zero_offset()) * 1_440
        + i64::from(zoned.hour()) * 60
        + i64::from(zoned.minute());
    let length = i64::from(window.length_min) + grace.as_mins();
    (0..).zip(Day::ALL).any(|(from_monday, day)| {
        let listed = window.days.is_empty() || window.days.contains(&day);
        let opens = from_monday * 1_440 + i64::from(window.start_minute);
        listed && (of_week - opens).rem_euclid(WEEK_MIN) < length
    })
}
