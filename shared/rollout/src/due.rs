//! Which plan may begin, and when: after its approval, and after the work in progress.

use jiff::{SignedDuration, Timestamp};
use slipway_core::release::Rendering;
use slipway_core::status::Desired;
use slipway_plan::Plan;

use super::{Active, Observed, Rollout, RolloutResult, Wanted};

/// How long after its failure a renewal of what runs is tried again: each daily scan does.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_hours(20);

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
    let changes = !wanted.plan.is_empty() || state.looks_again(&wanted.desired.spec_version);
    let fresh = state.is_start_of(&wanted.plan) && changes && !state.is_going();
    if wanted.plan.left_behind.is_some() {
        return fresh && state.may_renew(&wanted.desired, &wanted.plan, now);
    }
    // What failed is tried again after another upload, or if a person approves a new plan. An approval may be delivered twice.
    let has_stopped = state.has_stopped(&wanted.desired.spec_version, &wanted.release);
    fresh && (!has_stopped || is_approved(state, wanted)) && !state.is_spent(&wanted.desired)
}

impl Rollout {
    /// Whether the last rollout of that upload failed or was aborted, and was to the same release but for its credentials. A plan that is
    /// made anew from where it ended, because the event of the upload comes again late or a scan runs, has another id.
    #[must_use]
    pub fn has_stopped(&self, spec_version: &str, release: &Rendering) -> bool {
        let of_upload = self.stopped.as_ref().filter(|stopped| stopped.spec_version == spec_version);
        of_upload.is_some_and(|stopped| stopped.changes == release.id_without_credentials())
    }

    /// Whether a renewal of what runs ([`slipway_plan::renewal_of_what_runs`]) may begin after the last rollout. One that failed is tried again
    /// by itself as long as certificates expire soon (P7). After an abort, a renewal begins only then, and not the aborted one (P10).
    #[must_use]
    pub fn may_renew(&self, desired: &Desired, plan: &Plan, now: Timestamp) -> bool {
        let Some(last) = &self.last else { return true };
        let is_urgent = plan.urgency(now).overrides();
        match last.result {
            RolloutResult::Failed if last.target == plan.to => {
                is_urgent && last.ended_at + TRIED_AGAIN <= now
            }
            RolloutResult::Aborted => is_urgent && last.target != plan.to,
            RolloutResult::Failed | RolloutResult::Succeeded | RolloutResult::Superseded => {
                !self.is_spent(desired)
            }
        }
    }
}

/// Whether a newer spec waits until the work in progress is done.
pub(super) fn is_newer(state: &Rollout, active: &Active, observed: &Observed, now: Timestamp) -> bool {
    let wanted = observed.desired.as_ref();
    wanted.is_some_and(|wanted| wanted.plan.to != active.target && approved(state, wanted, now))
}

/// Whether work that has begun holds up a newer spec. A renewal of certificates that expire soon does not wait for drains of workers, which
/// may last for a day, or as long as Auto Scaling holds the machine: what is not terminated yet stays.
pub(super) fn holds_up(state: &Rollout, active: &Active, observed: &Observed, now: Timestamp) -> bool {
    let urgent = observed.desired.as_ref().is_some_and(|wanted| wanted.plan.urgency(now).overrides());
    active.nodes.is_busy() && !(urgent && active.nodes.only_drains(&state.departures))
}
