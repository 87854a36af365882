//! A snapshot of etcd before a stack is updated (P4). Joining members change the membership, and API servers of another minor may write what
//! the older one cannot read. The way back from both is a snapshot from before.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::transitions::{Transition, Wakes};

use super::super::errand::SentCommand;
use super::super::waits::Waits;
use super::machine::{Machine, Move, Place, State, Tries, waited};
use super::members::{no_snapshot, snapshot, take_snapshot};
use super::{PATIENCE, Phase, Turn, danger};

/// A snapshot before a stack is updated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Saver {
    /// Failed tries.
    #[serde(default, skip_serializing_if = "Tries::is_none")]
    pub tries: Tries,
    /// The state of the work.
    pub phase: Phase<SaverState>,
}

/// The states of a [`Saver`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SaverState {
    /// Checks whether there is a recent snapshot.
    Look,
    /// A snapshot is being taken.
    Snapshot(SentCommand),
}

impl State for SaverState {
    const TRANSITIONS: &'static [Transition] = &[
        Transition::new(
            "look",
            "checks whether there is a snapshot that is recent enough",
            &[Wakes::Machine],
            &["snapshot", "done", "failed"],
        ),
        Transition::new(
            "snapshot",
            "a member takes a snapshot",
            &[Wakes::Command],
            &["look", "done", "failed"],
        ),
        Transition::new(
            "done",
            "there is a snapshot; another one is taken if it becomes too old before CloudFormation updates the stack",
            &[],
            &["look"],
        ),
        Transition::FAILED,
    ];

    fn start() -> Self {
        Self::Look
    }

    fn place(&self) -> Place {
        match self {
            Self::Look => Place::Look,
            Self::Snapshot(_) => Place::Snapshot,
        }
    }

    fn commands(&self) -> &[SentCommand] {
        match self {
            Self::Look => &[],
            Self::Snapshot(sent) => std::slice::from_ref(sent),
        }
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        match self {
            Self::Look => &mut [],
            Self::Snapshot(sent) => std::slice::from_mut(sent),
        }
    }

    fn is_busy(&self) -> bool {
        false
    }
}

impl Saver {
    /// The stack is not being updated yet. Takes another snapshot if the one of `snapshot_at` is too old by now.
    pub(super) fn stack_still_to_begin(&mut self, snapshot_at: Option<Timestamp>, now: Timestamp) {
        if matches!(self.phase, Phase::Done { .. }) && !danger::is_fresh_snapshot(snapshot_at, now) {
            self.phase = Phase::new(SaverState::Look);
        }
    }
}

impl Machine for Saver {
    type State = SaverState;

    fn phase_mut(&mut self) -> &mut Phase<SaverState> {
        &mut self.phase
    }

    fn tries_mut(&mut self) -> Option<&mut Tries> {
        Some(&mut self.tries)
    }

    fn next_move(
        &mut self,
        state: SaverState,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
    ) -> Move<SaverState> {
        match state {
            SaverState::Look => {
                since.get_or_insert(turn.now);
                if danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) {
                    return Move::Done { skipped: false };
                }
                match take_snapshot(turn) {
                    Some(sent) => {
                        self.tries.choose(&sent.command.instance);
                        Move::Enter(SaverState::Snapshot(sent), Waits::Snapshot)
                    }
                    None if waited(*since, turn.now) > PATIENCE => Move::Fail(no_snapshot()),
                    None => Move::Stay(SaverState::Look, Waits::Snapshot),
                }
            }
            SaverState::Snapshot(sent) => match snapshot(&sent, turn) {
                None => Move::Stay(SaverState::Snapshot(sent), Waits::Snapshot),
                Some(Ok(())) => Move::Done { skipped: false },
                Some(Err(why)) => {
                    let machine = &sent.command.instance;
                    self.tries.again("a snapshot on", machine, &sent, &why, turn)
                }
            },
        }
    }
}
