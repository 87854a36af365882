//! A record of what was applied, in a ConfigMap that all controllers share.
//!
//! It has three parts. **When** the add-ons were last applied, so that one of several controllers does it. **Which generation**
//! they are of: a controller with an older pointer must not revert a later one. **Which kinds** were ever applied: pruning looks
//! only through those.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::stored::Record;
use crate::failure::FailureCode;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ledger {
    /// The generation of the rollout whose add-ons were last started.
    pub(super) generation: u64,
    /// The digest of the last complete application; empty while one is incomplete.
    pub(super) digest: String,
    pub(super) applied_at: Option<Timestamp>,
    /// `apiVersion` and `kind` of everything that was ever applied.
    pub(super) kinds: BTreeSet<(String, String)>,
    /// Versions by add-on.
    pub(super) addons: BTreeMap<String, String>,
    /// The last try, while objects of it cannot be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<Failed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failed {
    pub(super) digest: String,
    pub(super) tries: u32,
    /// The end of the last one.
    pub(super) at: Timestamp,
    /// The objects that it did not come to, if its time was up: the next one begins with them.
    #[serde(default, skip_serializing_if = "Rest::is_all")]
    pub(super) rest: Rest,
}

/// What is left to apply of a list of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rest {
    /// The first of them.
    pub(super) from: usize,
    /// Some before it could not be applied, so this list cannot become complete.
    pub(super) lacking: bool,
}

impl Rest {
    fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

/// The first pause after a failed try; it doubles up to the interval of successful runs.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

impl Ledger {
    /// Whether `digest` failed so recently that the next try must wait: each try is hundreds of calls.
    pub(super) fn is_backing_off(&self, digest: &str, now: Timestamp, longest: SignedDuration) -> bool {
        self.failed.as_ref().filter(|failed| failed.digest == digest).is_some_and(|failed| {
            let doubled = 2_i32.saturating_pow(failed.tries.saturating_sub(1).min(10));
            let pause = PAUSE.saturating_mul(doubled).min(longest);
            let age = now.duration_since(failed.at);
            // As in `is_fresh`: the clock may have been ahead.
            age < pause && age > -pause
        })
    }

    /// What the next try of `digest` has to apply.
    pub(super) fn rest(&self, digest: &str) -> Rest {
        let failed = self.failed.as_ref().filter(|failed| failed.digest == digest);
        failed.map(|failed| failed.rest).unwrap_or_default()
    }

    /// Records a failed try of `digest`, and what it did not come to. If it came further than the one before, the pauses begin anew.
    pub(super) fn record_failure(&mut self, digest: &str, at: Timestamp, rest: Rest) {
        let before = self.failed.as_ref().filter(|failed| failed.digest == digest && failed.rest == rest);
        let tries = before.map_or(0, |failed| failed.tries).saturating_add(1);
        self.failed = Some(Failed { digest: digest.to_owned(), tries, at, rest });
    }

    /// Whether `digest` was completely applied less than `ago` before `now`.
    pub(super) fn is_fresh(&self, digest: &str, now: Timestamp, ago: SignedDuration) -> bool {
        // A controller whose clock was ahead must not block the others.
        let age = self.applied_at.map(|at| now.duration_since(at));
        self.digest == digest && age.is_some_and(|age| age < ago && age > -ago)
    }
}

impl Record for Ledger {
    const NAME: &'static str = "slipway-addons";
    const CODE: FailureCode = FailureCode::ManageLedger;
    const HELP: &'static str = "delete the ConfigMap: all add-ons are then applied again, but add-ons that were removed before are no longer pruned";
}
