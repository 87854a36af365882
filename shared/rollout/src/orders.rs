//! The orders of people: approve, pause, resume, abort, skip a machine, destroy the cluster (P10).
//!
//! An order may be delivered twice, late, and after a later one. So each order has the time when it was given: a pause or a resume counts
//! only against an older one, and an abort only against a rollout that had begun by then. If the clocks do not decide, the order that stops
//! the rollout counts.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::outbox::Effects;
use super::{Active, Effect, Ended, Rollout, RolloutResult, destroy};
use slipway_core::drain::lasting;
use slipway_core::event::{Event, RolloutReport};
use slipway_core::status::Desired;
use slipway_core::words::moment;

/// An order of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Execute the plan with that id.
    Approve {
        /// Its id.
        plan: String,
    },
    /// Start nothing new, in this rollout and in later ones, until a resume.
    Pause,
    /// Continue.
    Resume,
    /// End the open rollout, once CloudFormation's operations in progress have ended.
    Abort {
        /// The plan that it executes; `None`: the one that was open when the order was given.
        plan: Option<String>,
    },
    /// Skip this machine.
    Skip {
        /// `i-…`.
        instance: String,
    },
    /// Destroy the cluster.
    Destroy {
        /// Without a last snapshot of etcd.
        without_snapshot: bool,
    },
}

/// An order with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The order.
    pub order: Order,
    /// When it was given, by the clock of the program that sent it.
    pub at: Timestamp,
}

impl Given {
    /// `order`, given at `at` by the sender's clock, and received at `now` by ours.
    ///
    /// The sender of an event chooses its time (`PutEvents`, `Time`), and an order from the future would void all orders before it. So such
    /// an order counts from when it is received. A difference within the accuracy of clocks is not the future: a pause right after a resume
    /// is the later one, even if the function that receives it has a clock that is a second behind.
    #[must_use]
    pub fn received(order: Order, at: Timestamp, now: Timestamp) -> Self {
        let at = if at.duration_since(now) > CLOCKS_APART { now } else { at };
        Self { order, at }
    }
}

/// The newest pause or resume that counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Switch {
    /// Whether it is a pause.
    pub paused: bool,
    /// When it was given.
    pub at: Timestamp,
}

/// An order that was not obeyed: it came too late, or the spec protects the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ignored {
    /// When it was given.
    pub given: Timestamp,
    /// When it was received.
    pub at: Timestamp,
    /// In words.
    pub message: String,
    /// The command that gives it again.
    pub help: String,
}

impl Ignored {
    /// What happened to it, and what to do.
    pub(super) fn words(&self) -> String {
        format!("{}; {}", self.message, self.help)
    }
}

/// An order that comes later than this is late: a late order to destroy a cluster is not obeyed.
const LATEST: SignedDuration = SignedDuration::from_hours(1);

/// How far a sender's clock may be behind ours: an abort that was given this long before the rollout began still counts. Clocks in AWS are
/// kept within a second (Amazon Time Sync), and an event's time has whole seconds.
pub const CLOCKS_APART: SignedDuration = SignedDuration::from_secs(5);

/// The maximum number of skipped machines, so that the state stays small.
const MOST_SKIPPED: usize = 1_000;

/// The state after receiving `given`, to be stored before anything else is done: an order to stop counts from then on, and earlier
/// decisions that would begin something are not performed any more. `desired` is the plan that an approval may concern.
#[must_use]
pub fn after_order(rollout: &Rollout, given: &Given, desired: Option<&Desired>, now: Timestamp) -> Rollout {
    let mut next = rollout.clone();
    let mut effects = Effects::new(now);
    effects.extend(receive(&mut next, given, desired, now));
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
            if desired.is_some_and(|desired| &desired.plan == plan && !state.is_spent(desired)) {
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
            state.said = None;
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
                state.said = None;
                // The rollout has stopped until now, whenever the order was given: a late order leaves as much time as one in time.
                if let Some(active) = state.active_mut() {
                    active.nodes.resumed(now);
                }
                if let Some(open) = state.destroy_mut() {
                    open.saves_again(now);
                }
                for one in state.departures.values_mut() {
                    one.since = one.since.max(now);
                }
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
        Order::Abort { plan } => match abort(state, plan.as_ref(), given.at) {
            Abort::Ends => {
                state.said = None;
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
        },
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
        |last| format!("the rollout had ended by then ({})", last.result.as_str()),
    );
    let help = format!("what is open now: slipway status --cluster {}", state.cluster);
    ignore(state, given, now, what, &why, &help)
}

/// Whether an order of the time `at` is late: an event may be hours late, and much may have happened meanwhile.
pub(super) fn is_late(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) > LATEST
}

/// An order that cannot be obeyed is reported, because its sender waits for it.
pub(super) fn ignore(
    state: &mut Rollout,
    given: Timestamp,
    now: Timestamp,
    what: &str,
    why: &str,
    help: &str,
) -> Vec<Effect> {
    let late = lasting(SignedDuration::from_mins(now.duration_since(given).as_mins()));
    let arrived = if is_late(given, now) { format!("arrived {late} late and ") } else { String::new() };
    let message = format!("the order of {} to {what} {arrived}was ignored, because {why}", moment(given));
    report_ignored(state, Ignored { given, at: now, message, help: help.to_owned() })
}

/// Reports an order that was not obeyed, once.
fn report_ignored(state: &mut Rollout, ignored: Ignored) -> Vec<Effect> {
    if state.ignored.as_ref().is_some_and(|before| before.given == ignored.given) {
        return Vec::new();
    }
    let notice = RolloutReport::new(&state.cluster, &plan_of(state), ignored.words());
    state.ignored = Some(ignored);
    vec![Effect::Publish(Event::OrderIgnored(notice))]
}

/// The plan that a pause concerns: the one that is being executed, or was last.
pub(super) fn plan_of(state: &Rollout) -> String {
    let active = state.active().map(|active: &Active| &active.plan);
    let last = state.last.as_ref().map(|last: &Ended| &last.plan);
    active.or(last).cloned().unwrap_or_default()
}

/// That it is paused, and which operations continue.
pub(super) fn paused(state: &Rollout, since: Timestamp) -> String {
    let (since, cluster) = (moment(since), &state.cluster);
    format!("paused since {since}: nothing new starts; `slipway resume --cluster {cluster}` continues")
}

/// The next command while a pause holds everything.
pub(super) fn resume(cluster: &str) -> String {
    format!("`slipway resume --cluster {cluster}` continues")
}

/// The next command while an abort waits for what is in progress.
pub(super) fn again(cluster: &str) -> String {
    format!(
        "nothing has to be done; when it has ended, `slipway apply cluster.yaml --cluster {cluster}` continues"
    )
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
