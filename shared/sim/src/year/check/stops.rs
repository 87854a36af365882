//! What a person says that stops something counts from when it was given, and no later than when it was brought to a function: what that
//! very invocation does is after it. One that died before it did anything has not heard it; whoever is invoked in its place does.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::{CLOCKS, Checker};
use crate::world::Power;

/// So long an agent may go on after its command was taken back: Run Command has to list it, and to reach the agent. An invocation that
/// died is tried again after a minute or two.
const TAKEN_BACK: SignedDuration = SignedDuration::from_mins(6);
/// The same where nothing goes wrong: one look of an agent, and what Run Command takes.
const TAKEN_BACK_AT_ONCE: SignedDuration = SignedDuration::from_secs(15);

/// What was said that stops something.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    paused_at: Option<Timestamp>,
    aborted: bool,
    skipped: BTreeSet<String>,
    called_off: Option<Timestamp>,
}

impl Stops {
    /// Of what stops now, what did already as of `then`; a rollout that has begun since is stopped by nothing of before.
    pub(super) fn as_of(&self, then: &Self) -> Self {
        Self {
            paused_at: then.paused_at,
            aborted: self.aborted && then.aborted,
            skipped: self.skipped.intersection(&then.skipped).cloned().collect(),
            called_off: self.called_off.min(then.called_off),
        }
    }
}

impl Checker {
    /// What stops, as far as it is known, to be taken back when whoever was to hear of more did not.
    #[must_use]
    pub fn stops(&self) -> Stops {
        Stops {
            paused_at: self.paused_at,
            aborted: self.aborted,
            skipped: self.skipped.clone(),
            called_off: self.ends.called_off,
        }
    }

    /// Whoever was to hear it has died before it did anything. What lets it go on may have been stored all the same.
    pub fn not_heard(&mut self, before: Stops) {
        self.paused_at = before.paused_at;
        self.aborted = before.aborted;
        self.skipped = before.skipped;
        self.ends.called_off = before.called_off;
    }

    /// A pause that was given at `at`.
    pub fn paused(&mut self, at: Timestamp) {
        self.paused_at = self.paused_at.max(Some(at));
    }

    /// A resume that was given at `at` may have been heard.
    pub fn resumed(&mut self, at: Timestamp) {
        self.goes_on(at);
        self.resumed_at = self.resumed_at.max(Some(at));
    }

    /// An abort that was given at `at`. One of which the clocks leave open whether it is about what is open counts if the rollout takes it
    /// so itself.
    pub fn aborted(&mut self, at: Timestamp, taken: bool) {
        let meant = self.begun_at.is_some_and(|begun| at.duration_since(begun) > CLOCKS);
        self.aborted |= self.target.is_some() && (meant || taken);
    }

    /// A machine is to be left as it is.
    pub fn skipped(&mut self, machine: &str) {
        self.skipped.insert(machine.to_owned());
    }

    /// Whether something is open, by what was asked for and by what the world shows: a rollout that has begun, a cluster that is being taken
    /// away, or a node that was cordoned for a drain. A worker that Auto Scaling takes down counts until its terminate hook is ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let cordoned = self.facts.iter().flat_map(|facts| &facts.cordoned);
        let waits = |node: &String| {
            let machine = self.machines.get(node).filter(|one| one.power == Power::Up);
            machine.is_some_and(|one| {
                !one.leaving || one.role.starts_with("pool-") && !self.released.contains_key(node)
            })
        };
        self.target.is_some() || self.is_ending() || cordoned.into_iter().any(waits)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_at.is_some() && self.resumed_at <= self.paused_at
    }

    /// Since when nothing is evicted any more but from machines that go by themselves; an agent may go on for a moment.
    pub(super) fn note_standstill(&mut self, now: Timestamp) {
        let stands_still = self.target.is_none() || self.aborted;
        self.stood_still_at = stands_still.then(|| self.stood_still_at.unwrap_or(now));
    }

    /// Whether agents had the time to hear that nothing is evicted any more.
    pub(super) fn stands_still(&self, at: Timestamp) -> bool {
        let may_take = if self.faults { TAKEN_BACK } else { TAKEN_BACK_AT_ONCE };
        self.stood_still_at.is_some_and(|since| at.duration_since(since) > may_take)
    }
}
