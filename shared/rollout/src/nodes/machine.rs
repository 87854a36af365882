//! The common part of all state machines of nodes: how one moves, and what happens to its commands.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::deadline::TRIES;
use slipway_core::node::Verb;

use super::super::errand::{RetryDecision, RetryPolicy, RetryState, Round, SentCommand};
use super::super::transitions::{Transition, leads};
use super::super::waits::{Danger, Detail, List, Waits};
use super::{PATIENCE, Turn};

/// The progress of a state machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Phase<S> {
    /// It is not complete.
    Open {
        /// Its state.
        state: S,
        /// When it entered the state; `None` if its turn has not come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Nothing is left to do.
    Done {
        /// Whether a machine was skipped, or could not be replaced.
        skipped: bool,
    },
    /// It failed, for this reason.
    Failed(String),
}

impl<S> Phase<S> {
    /// A state machine whose turn has not come.
    pub(super) const fn new(state: S) -> Self {
        Self::Open { state, since: None }
    }

    /// Its state; `None` if it is complete or has failed.
    pub const fn state(&self) -> Option<&S> {
        match self {
            Self::Open { state, .. } => Some(state),
            Self::Done { .. } | Self::Failed(_) => None,
        }
    }

    /// Its state, to be changed.
    pub const fn state_mut(&mut self) -> Option<&mut S> {
        match self {
            Self::Open { state, .. } => Some(state),
            Self::Done { .. } | Self::Failed(_) => None,
        }
    }
}

/// The names of all states. Each kind of work has some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It looks for the next work.
    Look,
    /// A snapshot of etcd is being taken.
    Snapshot,
    /// The others are asked whether they can do without the machine.
    Check,
    /// Leadership of etcd is moved to another member.
    MoveLeader,
    /// Machines install new credentials.
    Refresh,
    /// The machine was terminated, and its successor is expected.
    Successor,
    /// An additional controller is launched before one is terminated.
    OneMore,
    /// Pods are evicted.
    Drain,
    /// The controller was terminated, and no machine replaces it.
    Leave,
    /// The member is being removed from etcd.
    Remove,
    /// Workers are replaced.
    Roll,
    /// All machines of a pool are drained.
    Empty,
    /// CloudFormation deletes the pool's stack.
    Delete,
    /// All are asked whether they are healthy.
    Verify,
    /// Nothing is left to do.
    Done,
    /// It failed.
    Failed,
}

/// The states of a kind of work.
pub(super) trait State: Sized {
    /// All states, and the moves from each.
    const TRANSITIONS: &'static [Transition];

    /// The state in which it begins, and in which everything is decided again.
    fn start() -> Self;

    fn place(&self) -> Place;

    /// The machine that the state works on, if it is a single one.
    fn machine(&self) -> Option<&String> {
        None
    }

    /// The commands of the state.
    fn commands(&self) -> &[SentCommand] {
        &[]
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        &mut []
    }

    /// Whether work has begun in the state that should be completed before anything else begins.
    fn is_busy(&self) -> bool;

    /// The state to continue in if the command of this state was never sent.
    fn not_sent(&self) -> Self {
        Self::start()
    }
}

impl Place {
    /// Its name in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Snapshot => "snapshot",
            Self::Check => "check",
            Self::MoveLeader => "moveLeader",
            Self::Refresh => "refresh",
            Self::Successor => "successor",
            Self::OneMore => "oneMore",
            Self::Drain => "drain",
            Self::Leave => "leave",
            Self::Remove => "remove",
            Self::Roll => "roll",
            Self::Empty => "empty",
            Self::Delete => "delete",
            Self::Verify => "verify",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// Whether the observations of the state are useless after a pause.
    const fn only_prepares(self) -> bool {
        matches!(self, Self::Snapshot | Self::Check | Self::MoveLeader)
    }
}

/// A state machine of any kind.
pub(super) trait Open {
    fn place(&self) -> Place;
    fn machine(&self) -> Option<&String>;
    fn commands(&self) -> &[SentCommand];
    fn commands_mut(&mut self) -> &mut [SentCommand];
    fn is_skipped(&self) -> bool;
    fn failure(&self) -> Option<&str>;
    fn fail(&mut self, why: &str);
    fn is_busy(&self) -> bool;
    /// The time before `at` does not count.
    fn resumed(&mut self, at: Timestamp);
    /// The command with that token was never sent.
    fn not_sent(&mut self, token: &str);
}

impl<S: State> Open for Phase<S> {
    fn place(&self) -> Place {
        match self {
            Self::Open { state, .. } => state.place(),
            Self::Done { .. } => Place::Done,
            Self::Failed(_) => Place::Failed,
        }
    }

    fn machine(&self) -> Option<&String> {
        self.state().and_then(S::machine)
    }

    fn commands(&self) -> &[SentCommand] {
        self.state().map_or(&[], S::commands)
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        self.state_mut().map_or(&mut [], S::commands_mut)
    }

    fn is_skipped(&self) -> bool {
        matches!(self, Self::Done { skipped: true })
    }

    fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Open { .. } | Self::Done { .. } => None,
        }
    }

    fn fail(&mut self, why: &str) {
        *self = Self::Failed(why.to_owned());
    }

    fn is_busy(&self) -> bool {
        self.state().is_some_and(S::is_busy)
    }

    fn resumed(&mut self, at: Timestamp) {
        let Self::Open { state, since } = self else { return };
        if state.place().only_prepares() {
            *self = Self::Open { state: S::start(), since: Some(at) };
            return;
        }
        *since = since.map(|since| since.max(at));
        // What members said before the pause says nothing now.
        if state.place() == Place::Verify {
            *state = state.not_sent();
            return;
        }
        state.commands_mut().iter_mut().for_each(|sent| sent.at = sent.at.max(at));
    }

    fn not_sent(&mut self, token: &str) {
        if let Self::Open { state, .. } = self
            && state.commands().iter().any(|sent| sent.command.token == token)
        {
            *state = state.not_sent();
        }
    }
}

/// The next move of a state machine.
pub(super) enum Move<S> {
    /// It enters another state, which moves on at once.
    To(S),
    /// It enters another state, and waits there.
    Enter(S, Waits),
    /// It stays in its state, and waits.
    Stay(S, Waits),
    /// Nothing is left to do.
    Done {
        /// Whether a machine was skipped.
        skipped: bool,
    },
    /// It fails, for this reason.
    Fail(String),
}

/// The work on a role's machines.
pub(super) trait Machine {
    type State: State;

    fn phase_mut(&mut self) -> &mut Phase<Self::State>;

    /// The failed tries, if the work is tried again.
    fn tries_mut(&mut self) -> Option<&mut Tries> {
        None
    }

    /// The next move in `state` for this observation. `since`: when it entered that state.
    fn next_move(
        &mut self,
        state: Self::State,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
    ) -> Move<Self::State>;
}

/// Moves a state machine on until it waits or is over. Returns what it waits for.
pub(super) fn run<M: Machine>(machine: &mut M, turn: &mut Turn<'_>) -> Option<Waits> {
    // Each round enters another state, and no machine has more than a dozen.
    for _ in 0..64 {
        let from = machine.phase_mut().place();
        if from == Place::Look
            && let Some(waits) = machine.tries_mut().and_then(|tries| tries.pauses(turn.now))
        {
            return Some(waits);
        }
        let phase = std::mem::replace(machine.phase_mut(), Phase::Done { skipped: false });
        if let Phase::Open { state, .. } = &phase
            && let Some(tries) = machine.tries_mut()
        {
            tries.note_reached(state.commands(), turn);
        }
        let (phase, waits) = match phase {
            Phase::Open { state, mut since } => match machine.next_move(state, &mut since, turn) {
                Move::To(state) => {
                    *machine.phase_mut() = Phase::Open { state, since: Some(turn.now) };
                    check_way::<M>(from, machine.phase_mut().place());
                    continue;
                }
                Move::Enter(state, waits) => (Phase::Open { state, since: Some(turn.now) }, Some(waits)),
                Move::Stay(state, waits) => (Phase::Open { state, since }, Some(waits)),
                Move::Done { skipped } => (Phase::Done { skipped }, None),
                Move::Fail(why) => (Phase::Failed(why.clone()), Some(Waits::Failed(Detail(why)))),
            },
            Phase::Failed(why) => (Phase::Failed(why.clone()), Some(Waits::Failed(Detail(why)))),
            Phase::Done { skipped } => (Phase::Done { skipped }, None),
        };
        *machine.phase_mut() = phase;
        check_way::<M>(from, machine.phase_mut().place());
        return waits;
    }
    None
}

fn check_way<M: Machine>(from: Place, to: Place) {
    debug_assert!(
        leads(M::State::TRANSITIONS, from.name(), to.name()),
        "the table has no move from {} to {}",
        from.name(),
        to.name()
    );
}

/// How long it has been in its state.
pub(super) fn waited(since: Option<Timestamp>, now: Timestamp) -> SignedDuration {
    since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
}

/// Failed tries of the work on a machine; empty if none failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tries(Option<Failures>);

/// Consecutive failed tries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Failures {
    /// The machine: `i-…`.
    pub machine: String,
    /// By document. A machine that one does not reach may be reached by another: Run Command refuses a document that does not exist, for
    /// example, and another member of etcd takes the snapshot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_document: BTreeMap<String, RetryState>,
    /// Whether leadership could not be moved from the machine, and has not been moved since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_leadership: bool,
}

impl Tries {
    /// Whether the last try did not fail.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Whether leadership could not be moved from `machine`.
    pub(super) fn keeps_leadership(&self, machine: &str) -> bool {
        self.0.as_ref().is_some_and(|failures| failures.machine == machine && failures.keeps_leadership)
    }

    /// Leadership was moved from the machine: it can be moved again if the machine leads again.
    pub(super) fn leadership_moved(&mut self) {
        if let Some(failures) = &mut self.0 {
            failures.keeps_leadership = false;
        }
    }

    /// What has reached its machine ends that no command did.
    fn note_reached(&mut self, commands: &[SentCommand], turn: &Turn<'_>) {
        let Some(failures) = &mut self.0 else { return };
        for sent in commands.iter().filter(|sent| sent.has_reached(turn.observed)) {
            if let Some(tried) = failures.by_document.get_mut(sent.command.verb.document()) {
                tried.record_reached();
            }
        }
    }

    /// That machine is worked on from now on: failures of another one do not count.
    pub(super) fn choose(&mut self, machine: &str) {
        self.0 = self.0.take().filter(|failures| failures.machine == machine);
    }

    /// The last try did not fail.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// What it waits for if its last try has only just failed.
    fn pauses(&self, now: Timestamp) -> Option<Waits> {
        let mut tried = self.0.as_ref()?.by_document.values();
        let why = tried.find_map(|tried| tried.pauses(now, RetryPolicy::WORK))?;
        Some(Waits::AnotherTry(Detail(why.to_owned())))
    }

    /// The work on `machine` failed, by the answer to `asked`: it begins again after a while, or is given up.
    pub(super) fn again<S: State>(
        &mut self,
        what: &str,
        machine: &str,
        sent: &SentCommand,
        why: &str,
        turn: &Turn<'_>,
    ) -> Move<S> {
        self.choose(machine);
        let failures = self.0.get_or_insert_with(|| Failures {
            machine: machine.to_owned(),
            by_document: BTreeMap::new(),
            keeps_leadership: false,
        });
        let verb = &sent.command.verb;
        failures.keeps_leadership |= *verb == Verb::EtcdMoveLeader;
        let tried = failures.by_document.entry(verb.document().to_owned()).or_default();
        let reached = sent.has_reached(turn.observed);
        match tried.failed(reached, sent.at, why, turn.now, RetryPolicy::WORK.by(verb)) {
            RetryDecision::Again => Move::To(S::start()),
            RetryDecision::Unreached(lasting) => Move::Fail(format!(
                "{what} {machine}: no command has reached {} for {} minutes: {why}",
                sent.command.instance,
                lasting.as_mins()
            )),
            RetryDecision::TooOften => Move::Fail(format!("{what} {machine} failed {TRIES} times: {why}")),
        }
    }
}

/// Waits until `dangers` are over, and asks again when it is time; after a while it gives up with the message `what`.
pub(super) fn waits_for<S>(
    dangers: Vec<Danger>,
    round: Round,
    since: Option<Timestamp>,
    turn: &mut Turn<'_>,
    what: &str,
    ask: impl FnOnce(&mut Turn<'_>) -> Round,
    state: impl FnOnce(Round) -> S,
) -> Move<S> {
    if waited(since, turn.now) > PATIENCE {
        return Move::Fail(format!("{what} after {} minutes: {}", PATIENCE.as_mins(), List(&dangers)));
    }
    let round = if round.may_ask_again(turn.now) { ask(turn) } else { round };
    Move::Stay(state(round), Waits::Dangers(dangers))
}

#[cfg(test)]
mod tests {
    use super::super::Saver;
    use super::*;

    #[test]
    fn a_move_that_a_table_has_goes_through() {
        check_way::<Saver>(Place::Look, Place::Snapshot);
        check_way::<Saver>(Place::Look, Place::Look);
    }

    #[test]
    #[should_panic(expected = "the table has no move from done to snapshot")]
    fn a_move_that_no_table_has_is_refused() {
        check_way::<Saver>(Place::Done, Place::Snapshot);
    }
}
