//! The orders of people: approve, pause, resume, abort, skip a machine, destroy the cluster (P10).
//!
//! An order may be delivered twice, late, and after a later one. So each order has the time when it was given: a pause or a resume counts
//! only against an older one, and an abort only against a rollout that had begun by then. If the clocks do not decide, the order that stops
//! the rollout counts.

use jiff::Timestamp;

use super::order::{CLOCKS_APART, Given, Ignored, Order, Switch, ignore, paused, plan_of, report_ignored};
use super::outbox::Effects;
use super::{Effect, Ended, Rollout, RolloutResult, destroy};
use slipway_core::event::{Event, RolloutReport};
use slipway_core::status::{Desired, RolloutState};
use slipway_core::words::moment;

/// The maximum number of skipped machines, so that the state stays small.
const MOST_SKIPPED: usize = 1_000;

/// The state after receiving `given`, to be stored before anything else is done: an order to stop counts from then on, and earlier
/// decisions that would begin something are not performed any more. `desired` is the plan that an approval may concern.
#[must_use]
pub fn after_order(rollout: &Rollout, given: &Given, desired: Option<&Desired>, now: Timestamp) -> Rollout {
    let mut next = rollout.clone();
    let mut effects = Effects::new(now);
    effects.extend(receive(&mut next, given, desired, now));
    debug_assert!(next.follows(&rollout.activity), "{:?} leads to {:?}", rollout.activity, next.activity);
    if next.is_stopped() {
        next.withdraw_pending();
    }
    next.enqueue(effects);
    next
}

/// Receives `given`.
fn receive(state: &mut Rollout, given: &Given, desired: Option<&Desired>, now: Timestamp) -> Vec<Effect> {
    match &given.order {
        Order::Approve { plan } => {
            // A plan's id follows from its content: after another upload of the same spec it is the same plan, and an approval that comes
            // twice is about the rollout before.
            let is_over = |last: &Ended| last.plan == *plan && given.at + CLOCKS_APART < last.ended_at;
            let was_obeyed = state.last.as_ref().is_some_and(is_over);
            if desired.is_some_and(|desired| &desired.plan == plan && !state.was_rolled_out(desired))
                && !was_obeyed
            {
                state.approved = Some(plan.clone());
            }
            Vec::new()
        }
        Order::Pause => {
            let older = state.switch.as_ref().is_some_and(|switch| given.at < switch.at);
            let already = state.paused_since().is_some();
            if older {
                return Vec::new();
            }
            state.switch = Some(Switch { paused: true, at: given.at });
            // The state is the same already; but a late resume that was given before this one concerns the older pause.
            if already {
                return Vec::new();
            }
            // The waiting reason is published again after a resume.
            state.published = None;
            vec![Effect::Publish(Event::RolloutPaused(RolloutReport::new(
                &state.cluster,
                &plan_of(state),
                paused(state, given.at),
            )))]
        }
        Order::Resume => {
            if state.switch.as_ref().is_some_and(|switch| given.at <= switch.at) {
                return Vec::new();
            }
            // Even if nothing is paused: an earlier pause may be delivered after it.
            let was_paused = state.paused_since().is_some();
            state.switch = Some(Switch { paused: false, at: given.at });
            if was_paused {
                state.published = None;
                // The rollout has stopped until now, whenever the order was given: a late order leaves as much time as one in time.
                if let Some(active) = state.active_mut() {
                    active.nodes.resumed(now);
                }
                if let Some(open) = state.destroy_mut() {
                    open.saves_again(now);
                }
                state.departures.values_mut().for_each(|one| one.resumed(now));
            }
            Vec::new()
        }
        Order::Destroy { .. } if desired.is_some_and(|desired| desired.deletion_protection) => {
            let message = format!(
                "the order of {} to destroy the cluster was ignored, because its spec has `deletionProtection: true`",
                moment(given.at)
            );
            let help = "upload a spec without `deletionProtection: true` first, then give the order again"
                .to_owned();
            report_ignored(state, Ignored { given: given.at, at: now, message, help })
        }
        Order::Destroy { without_snapshot } => destroy::receive(state, given, *without_snapshot, now),
        Order::Abort { plan } => {
            // An order to destroy has ended the rollout already, and what that waits for was published.
            let was_aborted = state.active().is_some_and(|active| active.aborted.is_some());
            match abort(state, plan.as_ref(), given.at) {
                Abort::Ends => {
                    if !was_aborted {
                        state.published = None;
                    }
                    state.ignored = None;
                    Vec::new()
                }
                Abort::Again => Vec::new(),
                Abort::Other => {
                    let help = format!("to abort it nevertheless: slipway abort --cluster {}", state.cluster);
                    let why = "another rollout or destruction is open than at that time";
                    ignore(state, given.at, now, "abort", why, &help)
                }
                Abort::Nothing => nothing_is_open(state, given.at, now, "abort"),
            }
        }
        Order::Skip { instance } => {
            let what = format!("skip {instance}");
            let had_ended = state.last.as_ref().is_some_and(|last| given.at <= last.ended_at);
            match state.active_mut() {
                Some(active) if active.skipped.len() < MOST_SKIPPED || active.skipped.contains(instance) => {
                    active.skipped.insert(instance.clone());
                    state.leave_alone(instance, now);
                    Vec::new()
                }
                Some(_) => {
                    let help =
                        format!("abort the rollout instead: slipway abort --cluster {}", state.cluster);
                    let why = format!("{MOST_SKIPPED} machines are skipped already");
                    ignore(state, given.at, now, &what, &why, &help)
                }
                // The rollout that was open then may have heard it, and the event comes twice.
                None if had_ended => Vec::new(),
                None => nothing_is_open(state, given.at, now, &what),
            }
        }
    }
}

/// What an abort concerns.
enum Abort {
    /// What is open, and it ends now.
    Ends,
    /// What was aborted already: its event comes twice, or another abort came before it.
    Again,
    /// Something that was open before what is open now.
    Other,
    /// Nothing is open.
    Nothing,
}

/// Aborts what is open if an abort of `plan`, given at `at`, concerns it.
fn abort(state: &mut Rollout, plan: Option<&String>, at: Timestamp) -> Abort {
    if let Some(open) = state.destroy_mut().filter(|_| plan.is_none()) {
        return if open.abort(at) { Abort::Ends } else { Abort::Other };
    }
    let is_obeyed = |last: &Ended| {
        let concerns = plan.map_or(at <= last.ended_at, |plan| *plan == last.plan);
        last.result == RolloutResult::Aborted && concerns
    };
    let comes_twice = plan.is_none() && state.destroys_over == Some(at);
    let was_obeyed = comes_twice || state.last.as_ref().is_some_and(is_obeyed);
    if plan.is_none() {
        // It may concern an earlier order to destroy the cluster that is delivered after it.
        state.destroys_over = state.destroys_over.max(Some(at));
    }
    match state.active_mut() {
        Some(active) if active.aborted.is_some() => Abort::Again,
        Some(active) => {
            let meant = match plan {
                Some(plan) => plan == &active.plan,
                None => at.saturating_add(CLOCKS_APART).is_ok_and(|at| at >= active.started_at),
            };
            if meant {
                active.aborted = Some(at);
                return Abort::Ends;
            }
            if was_obeyed { Abort::Again } else { Abort::Other }
        }
        None if was_obeyed => Abort::Again,
        None => Abort::Nothing,
    }
}

/// Reports an order to a rollout while none is open.
fn nothing_is_open(state: &mut Rollout, given: Timestamp, now: Timestamp, what: &str) -> Vec<Effect> {
    let ended = state.last.as_ref().filter(|last| given <= last.ended_at);
    let why = ended.map_or_else(
        || "no rollout is open".to_owned(),
        |last| format!("the rollout had ended by then ({})", RolloutState::from(last.result)),
    );
    let help = format!("what is open now: slipway status --cluster {}", state.cluster);
    ignore(state, given, now, what, &why, &help)
}

impl Rollout {
    /// Whether a person ordered that nothing new may start.
    fn is_stopped(&self) -> bool {
        let aborted = self.active().is_some_and(|active| active.aborted.is_some());
        let called_off = self.destroy().is_some_and(|open| open.aborted.is_some());
        aborted || called_off || self.paused_since().is_some()
    }

    /// Since when nothing new may start; `None` if it may.
    #[must_use]
    pub fn paused_since(&self) -> Option<Timestamp> {
        self.switch.as_ref().filter(|switch| switch.paused).map(|switch| switch.at)
    }
}
