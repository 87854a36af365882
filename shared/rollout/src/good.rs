//! What succeeded, and the way back to it.
//!
//! The way back is a way on: a spec that succeeded becomes the newest again, and is rendered, planned, approved and rolled out from where
//! things are. So credentials that were renewed since stay renewed, and what forbids a plan (a minor back, a member's volume) forbids this one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::words::only_forward;
use super::{Active, Rollout, RolloutResult};

/// A rollout that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Good {
    /// Which rollout of the cluster it was.
    pub generation: u64,
    /// Version id of the spec that asked for it.
    pub spec_version: String,
    /// Id of the plan.
    pub plan: String,
    /// Id of the release that it led to.
    pub target: String,
    /// When it began: what was written before is in it. Of one that an older Slipway ended, when it ended.
    pub started_at: Timestamp,
    /// When it succeeded.
    pub ended_at: Timestamp,
}

/// Specs that are remembered: who wants to go back further has them in a repository, or in the bucket's versions.
const MOST: usize = 5;

impl Rollout {
    /// `active` has succeeded.
    pub(super) fn remember(&mut self, active: &Active, now: Timestamp) {
        self.put(Good {
            generation: self.generation,
            spec_version: active.spec_version.clone(),
            plan: active.plan.clone(),
            target: active.target.clone(),
            started_at: active.started_at,
            ended_at: now,
        });
    }

    /// An older Slipway remembered no more than how the last one ended.
    pub(super) fn remember_last(&mut self) {
        let Some(last) = self.last.as_ref().filter(|last| last.result == RolloutResult::Succeeded) else {
            return;
        };
        if self.good.is_empty() {
            self.put(Good {
                generation: self.generation,
                spec_version: last.spec_version.clone(),
                plan: last.plan.clone(),
                target: last.target.clone(),
                started_at: last.ended_at,
                ended_at: last.ended_at,
            });
        }
    }

    fn put(&mut self, good: Good) {
        // Of one spec, which renewals roll out again and again, the newest.
        self.good.retain(|one| one.spec_version != good.spec_version);
        self.good.insert(0, good);
        self.good.truncate(MOST);
    }
}

/// Where to go from a rollout that failed: on, if there is no way back, or back to the spec that succeeded last, if that is another.
pub(super) fn way_out(rollout: &Rollout, active: &Active) -> String {
    let forward = only_forward(active);
    if !forward.is_empty() {
        return forward;
    }
    let back = rollout.good.first().filter(|good| good.spec_version != active.spec_version);
    let words = |good: &Good| {
        format!(
            "; generation {} succeeded last ({}): `slipway rollback --cluster {}` brings back its spec",
            good.generation, good.ended_at, rollout.cluster
        )
    };
    back.map(words).unwrap_or_default()
}
