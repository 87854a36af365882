//! An order that stops something counts from when it was given, and at the latest from the invocation that receives it: all acts of that
//! invocation come after the order. An invocation that died before it changed anything has not received the order; its retry does. That
//! the invocation wrote its state is enough. What it wrote is not read.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::Checker;
use crate::world::Power;

/// How long an agent may continue after its command was cancelled: Run Command has to list the command and reach the agent. A dead
/// invocation is retried after a minute or two.
const TAKEN_BACK: SignedDuration = SignedDuration::from_mins(6);
/// The same in a world without faults: one round of the drain, and the delay of Run Command.
const TAKEN_BACK_AT_ONCE: SignedDuration = SignedDuration::from_secs(15);

/// The orders that stop something.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    paused_at: Option<Timestamp>,
    aborted: bool,
    skipped: BTreeSet<String>,
    called_off: Option<Timestamp>,
}

impl Stops {
    /// The part of the present orders that already held at `then`. An order from before a rollout does not stop that rollout.
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
    /// The present orders, to be restored if the invocation that should receive more orders did not.
    #[must_use]
    pub fn stops(&self) -> Stops {
        Stops {
            paused_at: self.paused_at,
            aborted: self.aborted,
            skipped: self.skipped.clone(),
            called_off: self.ends.called_off,
        }
    }

    /// The invocation that should have received an order died before it did anything. The orders that let work continue may have been
    /// stored nevertheless.
    pub fn order_not_received(&mut self, before: Stops) {
        self.paused_at = before.paused_at;
        self.aborted = before.aborted;
        self.skipped = before.skipped;
        self.ends.called_off = before.called_off;
    }

    /// A pause was given at `at`.
    pub fn paused(&mut self, at: Timestamp) {
        self.paused_at = self.paused_at.max(Some(at));
    }

    /// A resume that was given at `at` may have been received.
    pub fn resumed(&mut self, at: Timestamp) {
        self.destruction_resumed(at);
        self.resumed_at = self.resumed_at.max(Some(at));
    }

    /// An abort was given at `at`. It concerns the open rollout if it was given after that had begun. If it was given a moment before, the
    /// rollout may obey it or not.
    pub fn aborted(&mut self, at: Timestamp) {
        let meant = self.begun_at.is_some_and(|begun| at >= begun);
        self.aborted |= self.target.is_some() && meant;
    }

    /// A machine is to be skipped.
    pub fn skipped(&mut self, machine: &str) {
        self.skipped.insert(machine.to_owned());
    }

    /// What is open according to the orders and the world: a rollout that has begun, a destruction, or a node that was cordoned for a
    /// drain. A worker that Auto Scaling terminates counts until its terminate hook is completed.
    #[must_use]
    pub fn open(&self) -> Option<String> {
        let cordoned = self.facts.iter().flat_map(|facts| &facts.cordoned);
        let waits = |node: &&String| {
            let machine = self.machines.get(*node).filter(|one| one.power == Power::Up);
            machine.is_some_and(|one| {
                !one.leaving || one.role.starts_with("pool-") && !self.released.contains_key(*node)
            })
        };
        let rollout = self.target.is_some().then(|| "a rollout".to_owned());
        let destruction = || self.is_ending().then(|| "a destruction".to_owned());
        let drain = || cordoned.into_iter().find(waits).map(|node| format!("the drain of {node}"));
        rollout.or_else(destruction).or_else(drain)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_at.is_some() && self.resumed_at <= self.paused_at
    }

    /// Notes since when no pod may be evicted except from machines that Auto Scaling terminates. Agents may continue for a moment.
    pub(super) fn note_standstill(&mut self, now: Timestamp) {
        let stands_still = self.target.is_none() || self.aborted;
        self.stood_still_at = stands_still.then(|| self.stood_still_at.unwrap_or(now));
    }

    /// Whether agents had the time to learn that no pod may be evicted any more.
    pub(super) fn stands_still(&self, at: Timestamp) -> bool {
        let may_take = if self.faults { TAKEN_BACK } else { TAKEN_BACK_AT_ONCE };
        self.stood_still_at.is_some_and(|since| at.duration_since(since) > may_take)
    }
}
