//! Replacing the machine of a member: leadership is moved, the machine is terminated, and its successor comes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::deadline::Urgency;
use slipway_core::node::{LeaderMoved, Verb};

use super::{Act, LOOK, MemberState, MemberWork, SNAPSHOT, To, VERIFY, checks, still_serves, verifies};
use crate::Effect;
use crate::errand::{Round, SentCommand};
use crate::fleet::serving;
use crate::fleet::{GroupView, MachineView};
use crate::nodes::danger::Answers;
use crate::nodes::machine::{Move, Place, State, Tries, waited};
use crate::nodes::members::must_hand_over;
use crate::nodes::{Turn, is_current};
use crate::patience::{PATIENCE, RECONSIDERED};
use crate::transitions::{Transition, Wakes};
use crate::waits::{Boot, Boots, Comes, Waits};

/// The replacement of a member's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplaceMember {
    /// Whether this rollout has replaced it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

/// The own states of a replacement of a member that the others can do without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Replacing {
    /// It hands leadership to another member.
    MoveLeader(SentCommand),
    /// It was terminated, and its successor is expected.
    Successor {
        /// The old machine.
        machine: String,
    },
}

impl Act for Replacing {
    const TRANSITIONS: &'static [Transition] = &[
        LOOK,
        SNAPSHOT,
        Transition::new(
            "check",
            "checks on all members whether they can do without it",
            &[Wakes::Command],
            &["moveLeader", "successor", "look", "failed"],
        ),
        Transition::new(
            "moveLeader",
            "leadership is moved to another member",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Transition::new(
            "successor",
            "its machine was terminated; waits for the successor",
            &[Wakes::Machine],
            &["verify", "look", "failed"],
        ),
        VERIFY,
        Transition::DONE,
        Transition::FAILED,
    ];

    fn place(&self) -> Place {
        match self {
            Self::MoveLeader(_) => Place::MoveLeader,
            Self::Successor { .. } => Place::Successor,
        }
    }

    fn machine(&self) -> &String {
        match self {
            Self::MoveLeader(sent) => &sent.command.instance,
            Self::Successor { machine } => machine,
        }
    }

    fn commands(&self) -> &[SentCommand] {
        match self {
            Self::MoveLeader(sent) => std::slice::from_ref(sent),
            Self::Successor { .. } => &[],
        }
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        match self {
            Self::MoveLeader(sent) => std::slice::from_mut(sent),
            Self::Successor { .. } => &mut [],
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Successor { .. } => true,
            Self::MoveLeader(_) => false,
        }
    }
}

impl MemberWork<Replacing> for ReplaceMember {
    fn has_expired(&self, _: Urgency) -> bool {
        false
    }

    fn needs_successor(&self) -> bool {
        true
    }

    fn done(&self) -> Option<&String> {
        None
    }

    fn has_acted(&self) -> bool {
        self.replaced
    }

    fn begin(
        &self,
        machine: String,
        round: &Round,
        answers: &Answers,
        tries: &Tries,
        turn: &mut Turn<'_>,
    ) -> To<Replacing> {
        if answers.len() > 1 && must_hand_over(turn.role, Some(&machine), answers, tries) {
            let sent = turn.ask_one(turn.role, machine, Verb::EtcdMoveLeader);
            return Move::Enter(MemberState::Act(Replacing::MoveLeader(sent)), Waits::Leader);
        }
        let (group, instance) = (turn.group.to_owned(), machine.clone());
        let effect = Effect::Terminate { group, instance, then_desired: None };
        turn.effects.push_on(effect, turn.evidence_of_members(round));
        Move::Enter(MemberState::Act(Replacing::Successor { machine }), Waits::Replaced)
    }

    fn go_on(
        &mut self,
        act: Replacing,
        tries: &mut Tries,
        since: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To<Replacing> {
        match act {
            // The machine may be gone by now.
            Replacing::MoveLeader(sent) if !still_serves(&sent.command.instance, group) => {
                Move::To(MemberState::start())
            }
            Replacing::MoveLeader(sent) => match sent.answer::<LeaderMoved>(turn.observed, turn.now) {
                None => Move::Stay(MemberState::Act(Replacing::MoveLeader(sent)), Waits::Leader),
                // All are asked again: time has passed, and another member leads.
                Some(Ok(_)) => {
                    tries.leadership_moved();
                    checks(sent.command.instance, turn)
                }
                Some(Err(why)) => {
                    tries.again("moving leadership from", &sent.command.instance, &sent, &why, turn)
                }
            },
            Replacing::Successor { machine } => {
                let is_new = |(id, one): (&String, &MachineView)| *id != machine && is_current(group, one);
                if serving(group).any(is_new) {
                    self.replaced = true;
                    return verifies(turn);
                }
                successor(machine, since, turn, group)
            }
        }
    }
}

/// The next move while there is no successor.
fn successor(
    machine: String,
    since: Option<Timestamp>,
    turn: &mut Turn<'_>,
    group: &GroupView,
) -> To<Replacing> {
    // The effect was decided and never performed, because its evidence became too old.
    if still_serves(&machine, group) && waited(since, turn.now) > RECONSIDERED {
        return Move::To(MemberState::start());
    }
    let boots = Boot::pending_in(group, &turn.observed.booting);
    if waited(since, turn.now) > PATIENCE {
        return Move::Fail(format!(
            "its machine had no successor within {} minutes: {}",
            PATIENCE.as_mins(),
            Boots(&boots)
        ));
    }
    let state = MemberState::Act(Replacing::Successor { machine });
    Move::Stay(state, Waits::Boot(Comes::Successor, boots))
}
