//! What people tell a rollout: approve, pause, resume, abort, skip a machine, take the cluster away (P10).
//!
//! An order may come twice, late, and after one that was given later. So each carries when it was given: a pause or a resume counts
//! only against an older one, and an abort only against a rollout that had begun by then. Where the clocks leave it open, the order
//! that stops counts.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::outbox::Effects;
use super::{Active, Effect, Ended, Rollout, destroy};
use slipway_core::drain::lasting;
use slipway_core::event::{Event, RolloutReport};
use slipway_core::status::Desired;
use slipway_core::words::moment;

/// What a person tells a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Execute the plan of that id.
    Approve {
        /// Its id.
        plan: String,
    },
    /// Start nothing new, in this rollout and in any to come, until told to go on.
    Pause,
    /// Go on.
    Resume,
    /// End the rollout that is open, once what CloudFormation works at has ended.
    Abort {
        /// The plan that it executes; `None`: whichever was open when the order was given.
        plan: Option<String>,
    },
    /// Leave this machine as it is.
    Skip {
        /// `i-…`.
        instance: String,
    },
    /// Take the cluster away.
    Destroy {
        /// Without a last snapshot of etcd.
        without_snapshot: bool,
    },
}

/// An order, and when it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// What.
    pub order: Order,
    /// When, by the clock of whoever carried it.
    pub at: Timestamp,
}

impl Given {
    /// `order`, given at `at` by the clock of whoever gave it, and heard at `now` by ours.
    ///
    /// Whoever puts an event on the bus chooses its time (`PutEvents`, `Time`), and an order from the future would void all that come before
    /// it: it counts from when it is heard. What clocks may be apart is no future: a pause right after a resume is the later one also where
    /// the function that hears it has a clock that is a second behind.
    #[must_use]
    pub fn heard(order: Order, at: Timestamp, now: Timestamp) -> Self {
        let at = if at.duration_since(now) > CLOCKS_APART { now } else { at };
        Self { order, at }
    }
}

/// The newest pause or resume that counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Switch {
    /// Which of the two.
    pub paused: bool,
    /// When it was given.
    pub at: Timestamp,
}

/// An order that came too late and was not obeyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ignored {
    /// When it was given.
    pub given: Timestamp,
    /// When it came.
    pub at: Timestamp,
    /// In words.
    pub message: String,
    /// The command that gives it again.
    pub help: String,
}

impl Ignored {
    /// What became of it, and what helps.
    pub(super) fn words(&self) -> String {
        format!("{}; {}", self.message, self.help)
    }
}

/// An order that comes later than this is late: one to take a cluster away is not obeyed any more.
const LATEST: SignedDuration = SignedDuration::from_hours(1);

/// How far the clock of whoever carries an order may be behind ours: an abort that was given this long before the rollout began still
/// counts. Clocks in AWS are kept within a second (Amazon Time Sync), and an event's time has whole seconds.
pub const CLOCKS_APART: SignedDuration = SignedDuration::from_secs(5);

/// Machines that a rollout is told to leave at most: its state stays small, whoever floods it.
const MOST_SKIPPED: usize = 1_000;

/// The state once it has heard `given`, to be stored before anything else is done: a stop counts from then on, and whatever was
/// decided before it and would begin something is not performed any more. `desired` is what an approval may be of.
#[must_use]
pub fn heard(rollout: &Rollout, given: &Given, desired: Option<&Desired>, now: Timestamp) -> Rollout {
    let mut next = rollout.clone();
    let mut effects = Effects::new(now);
    effects.extend(hear(&mut next, given, desired, now));
    if next.is_stopped() {
        next.withdraw_pending();
    }
    next.enqueue(effects);
    next
}

/// Takes note of `given`.
fn hear(state: &mut Rollout, given: &Given, desired: Option<&Desired>, now: Timestamp) -> Vec<Effect> {
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
            // It was said already; but a resume that was given before this one, and comes late, is about the older.
            if already {
                return Vec::new();
            }
            // What is waited for then is said again after a resume.
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
            // Also where nothing is paused: a pause that was given before it may come after it.
            let was_paused = state.paused_since().is_some();
            state.switch = Some(Switch { paused: false, at: given.at });
            if was_paused {
                state.said = None;
                // It stood still until now, whenever the order was given: one that comes late leaves as much patience as one that does not.
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
        Order::Destroy { without_snapshot } => destroy::hear(state, given, *without_snapshot, now),
        Order::Abort { plan } => {
            if let Some(open) = state.destroy_mut().filter(|_| plan.is_none()) {
                let meant = open.abort(given.at);
                return aborted(state, given.at, meant, now);
            }
            if plan.is_none() {
                // It may be about an order to take the cluster away that was given before it, and comes after it.
                state.destroys_over = state.destroys_over.max(Some(given.at));
            }
            if let Some(active) = state.active_mut().filter(|active| active.aborted.is_none()) {
                let meant = match plan {
                    Some(plan) => plan == &active.plan,
                    None => given.at.saturating_add(CLOCKS_APART).is_ok_and(|at| at >= active.started_at),
                };
                if meant {
                    active.aborted = Some(given.at);
                }
                return aborted(state, given.at, meant, now);
            }
            Vec::new()
        }
        Order::Skip { instance } => {
            if let Some(active) = state.active_mut().filter(|active| active.skipped.len() < MOST_SKIPPED) {
                active.skipped.insert(instance.clone());
                state.leave_alone(instance, now);
            }
            Vec::new()
        }
    }
}

/// An abort, and whether it was meant for what is open.
fn aborted(state: &mut Rollout, at: Timestamp, meant: bool, now: Timestamp) -> Vec<Effect> {
    if meant {
        state.said = None;
        state.ignored = None;
        return Vec::new();
    }
    let cluster = &state.cluster;
    let cure = format!("if that is to end: slipway abort --cluster {cluster}");
    match is_late(at, now) {
        true => ignore(state, at, now, "abort", "what is open is not what was open then", &cure),
        // One that comes twice.
        false => Vec::new(),
    }
}

/// Whether an order that was given at `at` comes late: an event may be hours late, and much may have happened meanwhile.
pub(super) fn is_late(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) > LATEST
}

/// An order that comes so late that it is not obeyed is not passed over in silence: whoever gave it waits for it.
pub(super) fn ignore(
    state: &mut Rollout,
    given: Timestamp,
    now: Timestamp,
    what: &str,
    why: &str,
    cure: &str,
) -> Vec<Effect> {
    if state.ignored.as_ref().is_some_and(|ignored| ignored.given == given) {
        return Vec::new();
    }
    let late = lasting(SignedDuration::from_mins(now.duration_since(given).as_mins()));
    let message =
        format!("the order of {} to {what} came {late} late and was not obeyed, since {why}", moment(given));
    let ignored = Ignored { given, at: now, message, help: cure.to_owned() };
    let said = RolloutReport::new(&state.cluster, &plan_of(state), ignored.words());
    state.ignored = Some(ignored);
    vec![Effect::Publish(Event::OrderIgnored(said))]
}

/// The plan that a pause is about: the one that is being executed, or was last.
pub(super) fn plan_of(state: &Rollout) -> String {
    let active = state.active().map(|active: &Active| &active.plan);
    let last = state.last.as_ref().map(|last: &Ended| &last.plan);
    active.or(last).cloned().unwrap_or_default()
}

/// That it is paused, and what goes on.
pub(super) fn paused(state: &Rollout, since: Timestamp) -> String {
    let (since, cluster) = (moment(since), &state.cluster);
    format!("paused since {since}: nothing new starts; `slipway resume --cluster {cluster}` goes on")
}

impl Rollout {
    /// Whether a person said that nothing new may start.
    fn is_stopped(&self) -> bool {
        let aborted = self.active().is_some_and(|active| active.aborted.is_some());
        let called_off = self.destroy().is_some_and(|open| open.aborted.is_some());
        aborted || called_off || self.paused_since().is_some()
    }

    /// Since when nothing new may start; `None`: it may.
    #[must_use]
    pub fn paused_since(&self) -> Option<Timestamp> {
        self.switch.as_ref().filter(|switch| switch.paused).map(|switch| switch.at)
    }
}
