//! A member of etcd that is taken out of the membership, before the stack of etcd is updated, which takes its group away (P4).
//!
//! One at a time: a snapshot, every voter well, leadership elsewhere; then a member that stays is told to remove it, and all that are left
//! are asked whether they are well and of one mind about who is a member. Only then the next begins. Its machine stands until the stack is updated.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::states::{Wakes, Way};

use super::super::errand::{Asked, Round};
use super::super::outbox::Seen;
use super::super::waits::{Asks, Looked, Waits};
use super::danger::{self, Answers};
use super::machine::{Machine, Move, Place, State, waited};
use super::members::{
    Age, age, answers, ask_everyone, everyone, leads, machine, no_snapshot, patience, snapshot, take_snapshot,
};
use super::{PATIENCE, Phase, Target, Turn};
use slipway_core::node::{EtcdMemberHealth, LeaderMoved, MemberRemoved, Verb};
use slipway_core::pki::Role;

/// A member of etcd that leaves the membership.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leaver {
    /// Its machine.
    #[serde(default)]
    pub target: Target,
    /// How far it is.
    pub phase: Phase<LeaverState>,
}

/// How far a [`Leaver`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LeaverState {
    /// Looks for what is to be done.
    Look,
    /// A snapshot is being taken.
    Snapshot(Round),
    /// All members are asked whether they can do without it.
    Check(Round),
    /// Leadership is moved to another member.
    MoveLeader(Round),
    /// A member that stays takes it out of the membership.
    Remove(Round),
    /// The members that are left are asked whether they are well.
    Verify(Round),
}

impl State for LeaverState {
    const WAYS: &'static [Way] = &[
        Way::new(
            "look",
            "looks for its machine; waits for a window",
            &[Wakes::Machine],
            &["snapshot", "check", "failed"],
        ),
        Way::new(
            "snapshot",
            "a snapshot is taken, on another member",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Way::new(
            "check",
            "all members are asked whether they can do without it",
            &[Wakes::Command],
            &["moveLeader", "remove", "verify", "look", "failed"],
        ),
        Way::new(
            "moveLeader",
            "leadership is moved to another member",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Way::new(
            "remove",
            "a member that stays takes it out of the membership",
            &[Wakes::Command],
            &["verify", "look", "failed"],
        ),
        Way::new(
            "verify",
            "the members that are left are asked whether they are well",
            &[Wakes::Command],
            &["done", "failed"],
        ),
        Way::new("done", "nothing is left to do", &[], &[]),
        Way::new("failed", "it failed: the rollout ends", &[], &[]),
    ];

    fn look() -> Self {
        Self::Look
    }

    fn place(&self) -> Place {
        match self {
            Self::Look => Place::Look,
            Self::Snapshot(_) => Place::Snapshot,
            Self::Check(_) => Place::Check,
            Self::MoveLeader(_) => Place::MoveLeader,
            Self::Remove(_) => Place::Remove,
            Self::Verify(_) => Place::Verify,
        }
    }

    fn asked(&self) -> &[Asked] {
        match self {
            Self::Snapshot(round)
            | Self::Check(round)
            | Self::MoveLeader(round)
            | Self::Remove(round)
            | Self::Verify(round) => round.as_slice(),
            Self::Look => &[],
        }
    }

    fn asked_mut(&mut self) -> &mut [Asked] {
        match self {
            Self::Snapshot(round)
            | Self::Check(round)
            | Self::MoveLeader(round)
            | Self::Remove(round)
            | Self::Verify(round) => round.as_mut_slice(),
            Self::Look => &mut [],
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Remove(_) | Self::Verify(_) => true,
            Self::Look | Self::Snapshot(_) | Self::Check(_) | Self::MoveLeader(_) => false,
        }
    }

    fn not_sent(&self) -> Self {
        match self {
            Self::Verify(_) => Self::Verify(Round::default()),
            Self::Look | Self::Snapshot(_) | Self::Check(_) | Self::MoveLeader(_) | Self::Remove(_) => {
                Self::Look
            }
        }
    }
}

type To = Move<LeaverState>;

impl Machine for Leaver {
    type State = LeaverState;

    fn phase_mut(&mut self) -> &mut Phase<LeaverState> {
        &mut self.phase
    }

    fn target(&self) -> Option<&Target> {
        Some(&self.target)
    }

    fn look(&mut self, state: LeaverState, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        match state {
            LeaverState::Look => self.choose(since, turn),
            LeaverState::Snapshot(round) => match snapshot(&round, turn) {
                None => Move::Stay(LeaverState::Snapshot(round), Waits::Snapshot),
                Some(Ok(())) => checks(turn),
                Some(Err(why)) => self.target.again("a snapshot before", &why, turn.now),
            },
            LeaverState::Check(round) => self.check(round, *since, turn),
            LeaverState::MoveLeader(round) => self.leader(round, turn),
            LeaverState::Remove(round) => match round.only_answer::<MemberRemoved>(turn.observed, turn.now) {
                None => Move::Stay(LeaverState::Remove(round), Waits::TakenOut),
                Some(Ok(_)) => verifies(turn),
                Some(Err(why)) => self.target.again("removing", &why, turn.now),
            },
            LeaverState::Verify(round) => verify(round, *since, turn),
        }
    }
}

fn checks(turn: &mut Turn<'_>) -> To {
    Move::Enter(LeaverState::Check(ask_everyone(turn)), Waits::Answers(Asks::Members))
}

fn verifies(turn: &mut Turn<'_>) -> To {
    Move::Enter(LeaverState::Verify(ask_everyone(turn)), Waits::Answers(Asks::MembersLeft))
}

/// Whether all of the others that know of members know of that one no longer, and one of them serves. Who was taken out itself knows of none.
fn is_out(role: &Role, answers: &Answers) -> bool {
    let name = role.to_string();
    let others =
        answers.iter().filter(|(other, _)| *other != role).filter_map(|(_, answer)| answer.as_ref().ok());
    let mut others = others.filter(|other| !other.members.is_empty()).peekable();
    let lacks = |members: &[EtcdMemberHealth]| members.iter().all(|member| member.name != name);
    let serves = answers.values().flatten().any(|answer| answer.serving && lacks(&answer.members));
    serves && others.peek().is_some() && others.all(|other| lacks(&other.members))
}

/// Of those that leave, who is out already says nothing of those that are left: an earlier rollout that ended too early took it out.
fn without_those_out(turn: &Turn<'_>, answers: Answers) -> Answers {
    let out = |role: &Role| !turn.staying.contains_key(role) && is_out(role, &answers);
    let out: Vec<Role> = answers.keys().filter(|role| out(role)).cloned().collect();
    answers.into_iter().filter(|(role, _)| !out.contains(role)).collect()
}

/// All but itself are well, and know of no other members.
fn verify(round: Round, since: Option<Timestamp>, turn: &mut Turn<'_>) -> To {
    let round = if round.is_empty() { ask_everyone(turn) } else { round };
    let Some(answers) = answers(&round, turn) else {
        return Move::Stay(LeaverState::Verify(round), Waits::Answers(Asks::MembersLeft));
    };
    let mut answers = without_those_out(turn, answers);
    answers.remove(turn.role);
    let dangers = danger::of_member(None, &answers);
    if dangers.is_empty() {
        return Move::Done { left: false };
    }
    match patience(round, since, turn, "is out of the membership, and the others are not well", dangers) {
        Ok((round, waits)) => Move::Stay(LeaverState::Verify(round), waits),
        Err(why) => Move::Fail(why),
    }
}

impl Leaver {
    fn choose(&mut self, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let Some(view) = turn.observed.groups.get(turn.group) else {
            return Move::Stay(LeaverState::Look, Waits::Look(Looked::Machine));
        };
        self.target.choose(view.as_ref().and_then(machine));
        if let Some(id) = self.target.machine.as_ref().filter(|id| turn.skipped.contains(*id)) {
            return Move::Fail(format!(
                "{id} is left as it is, as it was told, and its group would go while it is a member: upload the spec again, which does not \
                 leave it"
            ));
        }
        if !turn.may_start() {
            *since = None;
            return Move::Stay(LeaverState::Look, turn.window());
        }
        since.get_or_insert(turn.now);
        if danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) {
            return checks(turn);
        }
        match take_snapshot(turn) {
            Some(round) => Move::Enter(LeaverState::Snapshot(round), Waits::Snapshot),
            None if waited(*since, turn.now) > PATIENCE => Move::Fail(no_snapshot()),
            None => Move::Stay(LeaverState::Look, Waits::Snapshot),
        }
    }

    fn check(&mut self, round: Round, since: Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let Some(answers) = answers(&round, turn) else {
            return Move::Stay(LeaverState::Check(round), Waits::Answers(Asks::Members));
        };
        // The word of an earlier command that was lost, or of an earlier rollout that ended too early.
        if is_out(turn.role, &answers) {
            return verifies(turn);
        }
        let answers = without_those_out(turn, answers);
        // A person said to leave it while the others were asked.
        if self.target.machine.as_ref().is_some_and(|id| turn.skipped.contains(id)) {
            return Move::To(LeaverState::Look);
        }
        // One that is ill itself may go, if the others can do without it.
        let dangers = danger::of_member(None, &answers);
        if !dangers.is_empty() && !danger::of_member(Some(turn.role), &answers).is_empty() {
            return match patience(round, since, turn, "may not be taken out", dangers) {
                Ok((round, waits)) => Move::Stay(LeaverState::Check(round), waits),
                Err(why) => Move::Fail(why),
            };
        }
        match age(&round, turn) {
            Age::Fresh => {}
            Age::Answers if waited(since, turn.now) > PATIENCE => {
                return Move::Fail(format!("not all members answer within {} minutes", PATIENCE.as_mins()));
            }
            Age::Answers => {
                let round = ask_everyone(turn);
                return Move::Stay(LeaverState::Check(round), Waits::Answers(Asks::Members));
            }
            Age::Beginning => return Move::To(LeaverState::Look),
        }
        if leads(turn.role, &answers) {
            return self.moves_leader(turn);
        }
        let answered = |role: &Role| answers.get(role).is_some_and(Result::is_ok);
        let stays =
            everyone(turn).into_iter().find(|(role, _)| turn.staying.contains_key(*role) && answered(role));
        let Some((role, id)) = stays.map(|(role, id)| (role.clone(), id)) else {
            return Move::Stay(LeaverState::Check(round), Waits::MemberThatStays);
        };
        let verb = Verb::EtcdRemove { member: turn.role.to_string() };
        let at = round.at().unwrap_or(turn.now);
        let round = turn.ask_on(Seen::Members, at, vec![(role, id, verb)]);
        Move::Enter(LeaverState::Remove(round), Waits::TakenOut)
    }

    /// Its machine as its group shows it; `None`: it is not the one any more that was looked at.
    fn machine(&self, turn: &Turn<'_>) -> Option<String> {
        let view = turn.observed.groups.get(turn.group)?.as_ref()?;
        self.target.machine.clone().filter(|_| machine(view) == self.target.machine)
    }

    fn moves_leader(&mut self, turn: &mut Turn<'_>) -> To {
        let Some(id) = self.machine(turn) else { return Move::To(LeaverState::Look) };
        let round = turn.ask(vec![(turn.role.clone(), id, Verb::EtcdMoveLeader)]);
        Move::Enter(LeaverState::MoveLeader(round), Waits::Leader)
    }

    fn leader(&mut self, round: Round, turn: &mut Turn<'_>) -> To {
        if !turn.observed.groups.contains_key(turn.group) {
            return Move::Stay(LeaverState::MoveLeader(round), Waits::Look(Looked::Machine));
        }
        if self.machine(turn).is_none() {
            return Move::To(LeaverState::Look);
        }
        match round.only_answer::<LeaderMoved>(turn.observed, turn.now) {
            None => Move::Stay(LeaverState::MoveLeader(round), Waits::Leader),
            // All are asked once more: time went by, and somebody else leads.
            Some(Ok(_)) => checks(turn),
            Some(Err(why)) => self.target.again("moving leadership from", &why, turn.now),
        }
    }
}
