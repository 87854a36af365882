//! Successful rollouts, and how to go back to one.
//!
//! Going back is a normal rollout: a spec that succeeded becomes the newest again, and is rendered, planned, approved and rolled out from
//! the present state. So credentials that were renewed since stay renewed, and the usual refusals apply (an older minor, another volume of
//! a member).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::progress::only_forward;
use super::{Active, Rollout};

/// A successful rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RollbackTarget {
    /// Its generation.
    pub generation: u64,
    /// Version id of its spec.
    pub spec_version: String,
    /// Id of the plan.
    pub plan: String,
    /// Id of its release.
    pub target: String,
    /// Whether a person had approved exactly this plan. One that renews certificates which expire soon begins without the approval that its
    /// policy asks for, and so does one that only looks: neither says anything about what a person wants.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
    /// When it began: earlier uploads are included in it.
    pub started_at: Timestamp,
    /// When it succeeded.
    pub ended_at: Timestamp,
}

/// The number of specs that are remembered. Older ones are in a user's repository, or in the versions of the bucket.
const MOST: usize = 5;

impl Rollout {
    /// Whether that version of the spec is being rolled out, or was rolled out last.
    #[must_use]
    pub fn uses_spec(&self, version: &str) -> bool {
        let rolling = self.active().map(|active| &active.spec_version);
        let newest = self.rollback_targets.first().map(|good| &good.spec_version);
        [rolling, newest].into_iter().flatten().any(|used| used == version)
    }

    /// `active` has succeeded. Its spec is not rolled out as a whole if it left behind what an earlier rollout did not complete.
    pub(super) fn remember(&mut self, active: &Active, now: Timestamp) {
        if active.left_behind.as_ref().is_some_and(|left| !left.is_empty()) {
            return;
        }
        self.put(RollbackTarget {
            generation: self.generation,
            spec_version: active.spec_version.clone(),
            plan: active.plan.clone(),
            target: active.target.clone(),
            approved: active.approved,
            started_at: active.started_at,
            ended_at: now,
        });
    }

    fn put(&mut self, good: RollbackTarget) {
        // Of several rollouts of one spec, which renewals roll out again and again, the newest is kept.
        self.rollback_targets.retain(|one| one.spec_version != good.spec_version);
        self.rollback_targets.insert(0, good);
        self.rollback_targets.truncate(MOST);
    }
}

/// What to do after a failed rollout: continue, if going back is impossible, or go back to the last successful spec, if that is another
/// one.
pub(super) fn way_out(rollout: &Rollout, active: &Active) -> String {
    let forward = only_forward(active);
    if !forward.is_empty() {
        return forward;
    }
    let back = rollout.rollback_targets.first().filter(|good| good.spec_version != active.spec_version);
    let words = |good: &RollbackTarget| {
        format!(
            "; generation {} succeeded last ({}): `slipway rollback --cluster {}` brings back its spec",
            good.generation, good.ended_at, rollout.cluster
        )
    };
    back.map(words).unwrap_or_default()
}
