//! How changes are rolled out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Weekday;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pin::Pin;

/// How changes are rolled out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutPolicy {
    /// Whether a plan waits for approval.
    pub approval: Approval,
    /// `maxUnavailable` of a pool: a number of machines or a percentage of the pool.
    pub max_unavailable: CountOrPercent,
    /// `surge` of a pool.
    pub surge: CountOrPercent,
    /// Minutes after which a drain may be forced. `None`: never.
    pub drain_force_after_min: Option<u32>,
    /// How many replacements may fail before the rollout fails.
    pub failure_budget: u32,
    /// Times in which disruptive steps may start. Empty: at any time.
    pub windows: Vec<MaintenanceWindow>,
    /// Settings that override these for a pool, by the pool's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, PoolRollout>,
}

/// Rollout settings of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRollout {
    /// Pools whose nodes are all replaced before this pool's first; free of cycles. From kube-aws' `nodePoolRollingStrategy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The pool's own `rollout.maxUnavailable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<CountOrPercent>,
    /// The pool's own `rollout.surge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surge: Option<CountOrPercent>,
    /// The pool's own `rollout.drain.forceAfterMinutes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_force_after_min: Option<u32>,
}

/// When the versions, images and digests that the lock pins are looked up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upgrades {
    /// After how many days.
    pub every_days: u32,
    /// The kinds of pins.
    pub pins: BTreeSet<Pin>,
}

/// Whether a plan waits for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ApprovalSpec")]
pub enum Approval {
    /// It is applied at once.
    Auto,
    /// It waits for `slipway approve`.
    Manual,
}

/// A number of nodes, or a percentage of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CountOrPercent {
    /// A number.
    Count(u32),
    /// A percentage.
    Percent(u32),
}

impl CountOrPercent {
    /// The number of `nodes` that this is, a percentage rounded up.
    #[must_use]
    pub const fn at_most(self, nodes: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => nodes.saturating_mul(percent).div_ceil(100),
        }
    }

    /// The number of `nodes` that this is, a percentage rounded down.
    #[must_use]
    pub const fn at_least(self, nodes: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => nodes.saturating_mul(percent) / 100,
        }
    }
}

impl RolloutPolicy {
    /// The pace at which the pool of that name is rolled.
    #[must_use]
    pub fn pace(&self, pool: &str) -> Pace {
        let own = self.pools.get(pool);
        Pace {
            max_unavailable: own.and_then(|own| own.max_unavailable).unwrap_or(self.max_unavailable),
            surge: own.and_then(|own| own.surge).unwrap_or(self.surge),
        }
    }

    /// Seconds after which the drain of a machine of the pool may be forced. `None`: never.
    #[must_use]
    pub fn force_after_s(&self, pool: &str) -> Option<u32> {
        let own = self.pools.get(pool).and_then(|pool| pool.drain_force_after_min);
        own.or(self.drain_force_after_min).map(|minutes| minutes.saturating_mul(60))
    }
}

/// The pace at which a pool is rolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pace {
    /// How many of its machines may be missing.
    pub max_unavailable: CountOrPercent,
    /// How many machines it may have beyond its size.
    pub surge: CountOrPercent,
}

impl Default for Pace {
    fn default() -> Self {
        Self { max_unavailable: CountOrPercent::Count(1), surge: CountOrPercent::Count(0) }
    }
}

impl Pace {
    /// The largest surge, whatever the spec allows, so that one invocation has bounded work.
    const MOST: u32 = 10;

    /// A pool so large that every percentage above 0 is at least one machine of it.
    const MANY: u32 = 100;

    /// Whether a pool may have one machine less than its size for a while, or one more. A weighted group cannot surge: nobody knows how
    /// many machines one more capacity unit is.
    #[must_use]
    pub const fn can_replace(self, weighted: bool) -> bool {
        self.max_missing(Self::MANY) > 0 || (!weighted && self.max_surge(Self::MANY) > 0)
    }

    /// How many of `nodes` machines may be missing. If both values round to 0, it is 1: otherwise the roll would never end.
    #[must_use]
    pub const fn max_missing(self, nodes: u32) -> u32 {
        match (self.max_unavailable.at_least(nodes), self.surge.at_most(nodes)) {
            (0, 0) => 1,
            (count, _) => count,
        }
    }

    /// How many machines there may be beyond `nodes`.
    #[must_use]
    pub const fn max_surge(self, nodes: u32) -> u32 {
        let more = self.surge.at_most(nodes);
        if more < Self::MOST { more } else { Self::MOST }
    }
}

/// A weekly maintenance window, in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceWindow {
    /// Days. Empty: every day.
    pub days: Vec<Day>,
    /// The minute of the day at which it opens.
    pub start_minute: u16,
    /// Its length in minutes.
    pub length_min: u16,
}

impl MaintenanceWindow {
    /// Whether it opens on that day.
    #[must_use]
    pub fn opens_on(&self, day: Day) -> bool {
        self.days.is_empty() || self.days.contains(&day)
    }
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

impl Day {
    /// All of them, from Monday on.
    pub const ALL: [Self; 7] = [Self::Mon, Self::Tue, Self::Wed, Self::Thu, Self::Fri, Self::Sat, Self::Sun];
}

impl From<Weekday> for Day {
    fn from(day: Weekday) -> Self {
        match day {
            Weekday::Monday => Self::Mon,
            Weekday::Tuesday => Self::Tue,
            Weekday::Wednesday => Self::Wed,
            Weekday::Thursday => Self::Thu,
            Weekday::Friday => Self::Fri,
            Weekday::Saturday => Self::Sat,
            Weekday::Sunday => Self::Sun,
        }
    }
}
