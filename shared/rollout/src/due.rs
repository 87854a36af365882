//! Which plan may begin, and when: after its approval, and after the work in progress.

use jiff::{SignedDuration, Timestamp};
use slipway_core::release::Rendering;
use slipway_core::status::Desired;
use slipway_plan::Plan;

use super::{Active, Ended, Observed, Rollout, RolloutResult, StoppedRenewal, Wanted};

/// How long after its failure a renewal of what runs is tried again. It began with a daily scan and may have failed hours later, and the next one
/// tries again.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_hours(12);

/// Whether the plan has the approval that its policy requires, or may not wait for it.
pub(super) fn approved(state: &Rollout, wanted: &Wanted, now: Timestamp) -> bool {
    is_approved(state, wanted) || !wanted.plan.waits_for_approval(now)
}

/// Whether a person has approved exactly this plan.
pub(super) fn is_approved(state: &Rollout, wanted: &Wanted) -> bool {
    state.approved.as_deref() == Some(wanted.plan.id.as_str())
}

/// A plan starts only once, from the state that it was made for.
pub(super) fn is_due(state: &Rollout, wanted: &Wanted, now: Timestamp) -> bool {
    let changes = !wanted.plan.is_empty() || state.must_check_again(&wanted.desired.spec_version);
    let fresh = state.is_start_of(&wanted.plan) && changes && !state.is_going();
    if wanted.plan.left_behind.is_some() {
        return fresh && state.may_renew(&wanted.desired, &wanted.plan, &wanted.release, now);
    }
    // What failed is tried again after another upload, or if a person approves a new plan. An approval may be delivered twice.
    let is_blocked = state.is_blocked(&wanted.desired.spec_version, &wanted.plan, &wanted.release);
    fresh && (!is_blocked || is_approved(state, wanted)) && !state.was_rolled_out(&wanted.desired)
}

impl Rollout {
    /// Whether the plan of that upload begins only after another upload, a patch or an upgrade, or if a person approves it, because its rollout failed
    /// or was aborted. A plan that is made anew from where that ended, because the event of the upload comes again late or a scan runs, has another
    /// id. One that only brings other credentials is not held up by what failed, and is by a renewal that was aborted.
    #[must_use]
    pub fn is_blocked(&self, spec_version: &str, plan: &Plan, release: &Rendering) -> bool {
        let is_last = |last: &&Ended| {
            matches!(last.result, RolloutResult::Failed | RolloutResult::Aborted)
                && (last.spec_version.as_str(), &last.target) == (spec_version, &plan.to)
        };
        if self.last.as_ref().filter(is_last).is_some() {
            return true;
        }
        if plan.brings_credentials {
            let of_upload =
                |stopped: &&StoppedRenewal| stopped.aborted && stopped.spec_version == spec_version;
            let aborted = self.stopped_renewal.as_ref().filter(of_upload);
            return aborted.is_some_and(|stopped| stopped.changes == release.id_without_credentials());
        }
        let of_upload = self.stopped.as_ref().filter(|stopped| stopped.spec_version == spec_version);
        of_upload.is_some_and(|stopped| stopped.changes == release.id_without_credentials())
    }

    /// Whether [`Self::is_blocked`] can hold for any plan.
    #[must_use]
    pub fn may_block(&self) -> bool {
        let has_stopped =
            |last: &Ended| matches!(last.result, RolloutResult::Failed | RolloutResult::Aborted);
        self.stopped.is_some()
            || self.stopped_renewal.is_some()
            || self.last.as_ref().is_some_and(has_stopped)
    }

    /// Whether a renewal of what runs ([`slipway_plan::renewal_of_what_runs`]) may begin after the last rollout. One that failed is tried again
    /// by itself as long as certificates expire soon (P7). One that a person aborted is not; after another abort, a renewal begins only then (P10).
    #[must_use]
    pub fn may_renew(&self, desired: &Desired, plan: &Plan, release: &Rendering, now: Timestamp) -> bool {
        let is_urgent = plan.urgency(now).overrides();
        if let Some(stopped) = &self.stopped_renewal
            && stopped.changes == release.id_without_credentials()
        {
            return !stopped.aborted && is_urgent && stopped.at + TRIED_AGAIN <= now;
        }
        let was_aborted = self.last.as_ref().is_some_and(|last| last.result == RolloutResult::Aborted);
        (!was_aborted || is_urgent) && !self.was_rolled_out(desired)
    }
}

/// Why the plan may not keep a member that may have been removed from etcd while its group still exists: the member would have no vote, and
/// nothing would let it join again.
pub(super) fn readds_a_removed_member(state: &Rollout, wanted: &Wanted) -> Option<String> {
    // A renewal of what runs leaves them as they are.
    if wanted.plan.left_behind.is_some() {
        return None;
    }
    let out = state.removed_members.iter().filter(|role| wanted.release.roles.contains_key(*role));
    let out: Vec<String> = out.map(ToString::to_string).collect();
    (!out.is_empty()).then(|| {
        format!(
            "{} may have been removed from etcd's membership already, because a rollout stopped while it removed members: nothing is touched. Upload the \
             spec without them first, and with them when that is rolled out: they then join anew",
            out.join(", ")
        )
    })
}

/// Whether nothing but the open rollout keeps the plan from beginning, as far as is known before it is made anew.
fn could_begin(state: &Rollout, wanted: &Wanted, now: Timestamp) -> bool {
    let Wanted { desired, plan, release } = wanted;
    if plan.not_executable().is_some() || readds_a_removed_member(state, wanted).is_some() {
        return false;
    }
    if plan.left_behind.is_some() {
        return state.may_renew(desired, plan, release, now);
    }
    !state.is_blocked(&desired.spec_version, plan, release) || is_approved(state, wanted)
}

/// Whether a newer spec waits until the work in progress is done.
pub(super) fn is_newer(state: &Rollout, active: &Active, observed: &Observed, now: Timestamp) -> bool {
    let wanted = observed.desired.as_ref();
    // A renewal that ends an open roll early could not begin while everything is paused.
    let is_held = |wanted: &Wanted| wanted.plan.left_behind.is_some() && state.paused_since().is_some();
    // The plan of a spec that goes back changes nothing, and so begins without approval. If it ended the open rollout without one, the cluster would
    // stay half rolled until somebody approves the plan that undoes what was done.
    let goes_back = |wanted: &Wanted| wanted.plan.is_empty() && wanted.plan.needs_approval();
    wanted.is_some_and(|wanted| {
        let may_end = is_approved(state, wanted) || !goes_back(wanted) && approved(state, wanted, now);
        wanted.plan.to != active.target && may_end && !is_held(wanted) && could_begin(state, wanted, now)
    })
}

/// Whether work that has begun holds up a newer spec. A renewal of certificates that expire soon does not wait for drains of workers, which
/// may last for a day, or as long as Auto Scaling holds the machine: what is not terminated yet stays.
pub(super) fn holds_up(state: &Rollout, active: &Active, observed: &Observed, now: Timestamp) -> bool {
    let urgent = observed.desired.as_ref().is_some_and(|wanted| wanted.plan.urgency(now).overrides());
    active.nodes.is_busy() && !(urgent && active.nodes.only_drains(&state.departures))
}
