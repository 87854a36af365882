//! Which plan may begin, and when: after its approval, and after the work in progress.

use jiff::Timestamp;

use super::{Active, Ended, Observed, Rollout, RolloutResult, Wanted};

/// Whether the plan has the approval that its policy requires, or may not wait for it.
pub(super) fn approved(state: &Rollout, wanted: &Wanted, now: Timestamp) -> bool {
    is_approved(state, wanted) || !wanted.plan.waits_for_approval(now)
}

/// Whether a person has approved exactly this plan.
pub(super) fn is_approved(state: &Rollout, wanted: &Wanted) -> bool {
    state.approved.as_deref() == Some(wanted.plan.id.as_str())
}

/// A plan starts only once, from the state that it was made for.
pub(super) fn is_due(state: &Rollout, wanted: &Wanted) -> bool {
    let changes = !wanted.plan.is_empty() || state.looks_again(&wanted.desired.spec_version);
    let fresh = state.is_start_of(&wanted.plan) && changes && !state.is_going();
    // What failed is tried again after another upload, or if a person approves a new plan. An approval may be delivered twice.
    fresh && !has_failed(state, wanted) && !state.is_spent(&wanted.desired)
}

/// Whether the last rollout of the same upload to the same release failed or was aborted, and nobody has approved to try again. A plan
/// that is made anew from where it ended, because the event of the upload comes again late or a scan runs, has another id.
fn has_failed(state: &Rollout, wanted: &Wanted) -> bool {
    let desired = &wanted.desired;
    let is_last = |last: &&Ended| {
        matches!(last.result, RolloutResult::Failed | RolloutResult::Aborted)
            && (&last.spec_version, &last.target) == (&desired.spec_version, &desired.target)
    };
    state.last.as_ref().filter(is_last).is_some() && !is_approved(state, wanted)
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
