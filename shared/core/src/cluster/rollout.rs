//! How changes are rolled out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How changes are rolled out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutPolicy {
    /// Whether a plan waits for a person.
    pub approval: Approval,
    /// `maxUnavailable` of a pool: a number or a percentage of it.
    pub max_unavailable: CountOrPercent,
    /// `surge` of a pool.
    pub surge: CountOrPercent,
    /// Minutes after which a drain may be forced; `None`: never.
    pub drain_force_after_min: Option<u32>,
    /// How many replacements may fail before the rollout stops.
    pub failure_budget: u32,
    /// Times in which disruptive steps may start; empty is always.
    pub windows: Vec<MaintenanceWindow>,
    /// What is otherwise for a pool, by its name; a pool without an entry is rolled as this says, whenever it likes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, PoolRollout>,
}

/// How changes are rolled out to one pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRollout {
    /// Pools whose nodes are all replaced before this pool's first: never in a circle. From `nodePoolRollingStrategy`.
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

/// Whether a plan waits for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Approval {
    /// Applied at once.
    Auto,
    /// Applied after `Rollout Approved`.
    Manual,
}

/// A number of nodes, or a share of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CountOrPercent {
    /// So many.
    Count(u32),
    /// So many in a hundred.
    Percent(u32),
}

/// A weekly window, in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceWindow {
    /// Days, `mon` to `sun`; empty is each day.
    pub days: Vec<String>,
    /// Minute of the day at which it opens.
    pub start_minute: u16,
    /// How long it is open, in minutes.
    pub length_min: u16,
}
