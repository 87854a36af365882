//! What all state machines of nodes have in common: how one moves on, and what becomes of the commands that it sent.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::deadline::BETWEEN_TRIES;

use super::super::errand::{Asked, Round, TRIES};
use super::super::states::{Way, leads};
use super::super::waits::{Danger, Detail, List, Waits};
use super::{PATIENCE, Turn};

/// How far a state machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Phase<S> {
    /// It is not over.
    Open {
        /// Its state.
        state: S,
        /// When it came there; `None`: its turn has not come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Nothing is left to do.
    Done {
        /// Whether a machine was left as it is, as a person said or since it could not be replaced.
        left: bool,
    },
    /// It failed, and why.
    Failed(String),
}

impl<S> Phase<S> {
    /// One whose turn has not come.
    pub(super) const fn new(state: S) -> Self {
        Self::Open { state, since: None }
    }

    /// The state that it is in; `None`: it is over.
    pub const fn state(&self) -> Option<&S> {
        match self {
            Self::Open { state, .. } => Some(state),
            Self::Done { .. } | Self::Failed(_) => None,
        }
    }

    /// The same, to be changed.
    pub const fn state_mut(&mut self) -> Option<&mut S> {
        match self {
            Self::Open { state, .. } => Some(state),
            Self::Done { .. } | Self::Failed(_) => None,
        }
    }
}

/// Where a state machine is, by name. Each kind of work knows some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It looks for what is to be done next.
    Look,
    /// A snapshot of etcd is being taken.
    Snapshot,
    /// The others are asked whether they can do without the machine.
    Check,
    /// Leadership of etcd is moved to another member.
    MoveLeader,
    /// Machines take new credentials.
    Refresh,
    /// The machine was terminated, and its successor comes.
    Successor,
    /// One more controller comes before one goes.
    OneMore,
    /// Pods are evicted.
    Drain,
    /// The controller was terminated, and none comes for it.
    Leave,
    /// The member is being taken out of the membership.
    Remove,
    /// Workers are replaced.
    Roll,
    /// All machines of a pool are emptied.
    Empty,
    /// CloudFormation deletes the pool's stack.
    Delete,
    /// All are asked whether they are well.
    Verify,
    /// Nothing is left to do.
    Done,
    /// It failed.
    Failed,
}

/// The states of a kind of work.
pub(super) trait State: Sized {
    /// All of them, and where each leads.
    const WAYS: &'static [Way];

    /// The state in which it begins, and in which everything is decided anew.
    fn start() -> Self;

    fn place(&self) -> Place;

    /// The machine that is worked on in it, where it is one.
    fn machine(&self) -> Option<&String> {
        None
    }

    /// What machines are asked in it.
    fn asked(&self) -> &[Asked] {
        &[]
    }

    fn asked_mut(&mut self) -> &mut [Asked] {
        &mut []
    }

    /// Whether what was begun in it had better be ended before anything else begins.
    fn is_busy(&self) -> bool;

    /// The state that it goes on in once it is known that what is asked in it was never sent.
    fn not_sent(&self) -> Self {
        Self::start()
    }
}

impl Place {
    /// Its name, as the tables have it.
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

    /// Whether what was seen in it is of no use after a pause.
    const fn only_prepares(self) -> bool {
        matches!(self, Self::Snapshot | Self::Check | Self::MoveLeader)
    }
}

/// A state machine of any kind.
pub(super) trait Open {
    fn place(&self) -> Place;
    fn machine(&self) -> Option<&String>;
    fn asked(&self) -> &[Asked];
    fn asked_mut(&mut self) -> &mut [Asked];
    fn is_left(&self) -> bool;
    fn failure(&self) -> Option<&str>;
    fn fail(&mut self, why: &str);
    fn is_busy(&self) -> bool;
    /// Time that went by before `at` does not count.
    fn resumed(&mut self, at: Timestamp);
    /// The command of that token was never sent.
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

    fn asked(&self) -> &[Asked] {
        self.state().map_or(&[], S::asked)
    }

    fn asked_mut(&mut self) -> &mut [Asked] {
        self.state_mut().map_or(&mut [], S::asked_mut)
    }

    fn is_left(&self) -> bool {
        matches!(self, Self::Done { left: true })
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
        state.asked_mut().iter_mut().for_each(|asked| asked.at = asked.at.max(at));
    }

    fn not_sent(&mut self, token: &str) {
        if let Self::Open { state, .. } = self
            && state.asked().iter().any(|asked| asked.command.token == token)
        {
            *state = state.not_sent();
        }
    }
}

/// What a state machine does next.
pub(super) enum Move<S> {
    /// It enters another state, and that state moves on at once.
    To(S),
    /// It enters another state, and waits there.
    Enter(S, Waits),
    /// It stays in its state, and waits.
    Stay(S, Waits),
    /// Nothing is left to do.
    Done {
        /// Whether a machine was left as it is.
        left: bool,
    },
    /// It fails, and why.
    Fail(String),
}

/// The work on a role's machines.
pub(super) trait Machine {
    type State: State;

    fn phase_mut(&mut self) -> &mut Phase<Self::State>;

    /// How its work failed, where it is tried again.
    fn tries(&self) -> Option<&Tries> {
        None
    }

    /// What it does next in `state`, by what was observed. `since`: when it entered that state.
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
            && let Some(waits) = machine.tries().and_then(|tries| tries.pauses(turn.now))
        {
            return Some(waits);
        }
        let phase = std::mem::replace(machine.phase_mut(), Phase::Done { left: false });
        let (phase, waits) = match phase {
            Phase::Open { state, mut since } => match machine.next_move(state, &mut since, turn) {
                Move::To(state) => {
                    *machine.phase_mut() = Phase::Open { state, since: Some(turn.now) };
                    check_way::<M>(from, machine.phase_mut().place());
                    continue;
                }
                Move::Enter(state, waits) => (Phase::Open { state, since: Some(turn.now) }, Some(waits)),
                Move::Stay(state, waits) => (Phase::Open { state, since }, Some(waits)),
                Move::Done { left } => (Phase::Done { left }, None),
                Move::Fail(why) => (Phase::Failed(why.clone()), Some(Waits::Failed(Detail(why)))),
            },
            Phase::Failed(why) => (Phase::Failed(why.clone()), Some(Waits::Failed(Detail(why)))),
            Phase::Done { left } => (Phase::Done { left }, None),
        };
        *machine.phase_mut() = phase;
        check_way::<M>(from, machine.phase_mut().place());
        return waits;
    }
    None
}

fn check_way<M: Machine>(from: Place, to: Place) {
    debug_assert!(
        leads(M::State::WAYS, from.name(), to.name()),
        "no table leads from {} to {}",
        from.name(),
        to.name()
    );
}

/// How long it has been in its state.
pub(super) fn waited(since: Option<Timestamp>, now: Timestamp) -> SignedDuration {
    since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
}

/// How the work on a machine failed, if the last try did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tries(Option<Failures>);

/// Tries that failed, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Failures {
    /// Of which machine: `i-…`.
    pub machine: String,
    /// How many.
    pub tries: u32,
    /// When the last one did.
    pub at: Timestamp,
    /// Why the last one did.
    pub why: String,
}

impl Tries {
    /// Whether the last try did not fail.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// That machine is worked on from now on: how another failed does not count.
    pub(super) fn choose(&mut self, machine: &str) {
        self.0 = self.0.take().filter(|failures| failures.machine == machine);
    }

    /// The last try did not fail.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// What it waits for where its last try failed only just now.
    fn pauses(&self, now: Timestamp) -> Option<Waits> {
        let failures = self.0.as_ref()?;
        let pause = BETWEEN_TRIES.get(failures.tries as usize - 1)?;
        (now.duration_since(failures.at) < *pause).then(|| Waits::AnotherTry(Detail(failures.why.clone())))
    }

    /// The work on `machine` failed: it is begun anew after a while, or given up.
    pub(super) fn again<S: State>(
        &mut self,
        what: &str,
        machine: &str,
        why: &str,
        now: Timestamp,
    ) -> Move<S> {
        self.choose(machine);
        let tries = self.0.as_ref().map_or(0, |failures| failures.tries) + 1;
        if tries < TRIES {
            self.0 = Some(Failures { machine: machine.to_owned(), tries, at: now, why: why.to_owned() });
            return Move::To(S::start());
        }
        Move::Fail(format!("{what} {machine} failed {TRIES} times: {why}"))
    }
}

/// Waits until `dangers` are over, and asks once more when it is time; not for ever. `what` is said where it is given up.
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
    #[should_panic(expected = "no table leads from done to snapshot")]
    fn a_move_that_no_table_has_is_refused() {
        check_way::<Saver>(Place::Done, Place::Snapshot);
    }
}
