//! Orders of a person: when an order takes effect, and the message about an order that is ignored.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::drain::lasting;
use slipway_core::event::{Event, RolloutReport};
use slipway_core::words::moment;

use super::{Active, Effect, Ended, Rollout};

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
pub(super) fn report_ignored(state: &mut Rollout, ignored: Ignored) -> Vec<Effect> {
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
