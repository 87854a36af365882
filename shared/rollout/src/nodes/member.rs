//! One member of etcd: a snapshot, a look at all the others, leadership moved, then its credentials or its successor, and a look at
//! all of them (P4).
//!
//! Nothing is taken on trust from an earlier state: what counts is what each member said moments before.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::states::{Wakes, Way};

use super::super::Effect;
use super::super::errand::{Asked, Round};
use super::super::fleet::{GroupView, MachineView};
use super::super::outbox::Seen;
use super::super::waits::{Asks, Boot, Boots, Comes, Looked, Many, Waits};
use super::idle::surely;
use super::machine::{Machine, Move, Place, State, waited};
use super::members::{
    Age, age, answers, ask_everyone, leads, machine, no_snapshot, patience, snapshot, take_snapshot,
};
use super::{PATIENCE, Phase, RECONSIDERED, Target, Turn, danger, is_current, serving};
use slipway_core::node::{LeaderMoved, Refreshed, Verb};

/// A member of etcd that is replaced, or takes new credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// Which of the two.
    pub work: MemberWork,
    /// Its machine.
    #[serde(default)]
    pub target: Target,
    /// The machine that took the new credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<String>,
    /// How far it is.
    pub phase: Phase<MemberState>,
}

/// What is done to a member of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemberWork {
    /// It takes credentials of that digest in place.
    Refresh {
        /// The digest.
        credentials: String,
    },
    /// Another machine takes its place.
    Replace,
}

/// How far a [`Member`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MemberState {
    /// Looks for what is to be done.
    Look {
        /// Since when nothing seems to be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_since: Option<Timestamp>,
    },
    /// A snapshot is being taken.
    Snapshot(Round),
    /// All members are asked whether they can do without it.
    Check(Round),
    /// Leadership is moved to another member.
    MoveLeader(Round),
    /// It takes its credentials.
    Refresh(Round),
    /// It was terminated, and its successor comes.
    Successor,
    /// All members are asked whether they are well.
    Verify(Round),
}

impl State for MemberState {
    const WAYS: &'static [Way] = &[
        Way::new(
            "look",
            "looks for what is to be done; waits for its machine, or for a window",
            &[Wakes::Machine],
            &["snapshot", "check", "verify", "done", "failed"],
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
            &["moveLeader", "refresh", "successor", "look", "failed"],
        ),
        Way::new(
            "moveLeader",
            "leadership is moved to another member",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Way::new("refresh", "it takes its new credentials", &[Wakes::Command], &["verify", "look", "failed"]),
        Way::new(
            "successor",
            "it was terminated, and its successor comes",
            &[Wakes::Machine],
            &["verify", "look", "failed"],
        ),
        Way::new(
            "verify",
            "all members are asked whether they are well",
            &[Wakes::Command],
            &["done", "failed"],
        ),
        Way::new("done", "nothing is left to do", &[], &[]),
        Way::new("failed", "it failed: the rollout ends", &[], &[]),
    ];

    fn look() -> Self {
        Self::Look { idle_since: None }
    }

    fn place(&self) -> Place {
        match self {
            Self::Look { .. } => Place::Look,
            Self::Snapshot(_) => Place::Snapshot,
            Self::Check(_) => Place::Check,
            Self::MoveLeader(_) => Place::MoveLeader,
            Self::Refresh(_) => Place::Refresh,
            Self::Successor => Place::Successor,
            Self::Verify(_) => Place::Verify,
        }
    }

    fn asked(&self) -> &[Asked] {
        match self {
            Self::Snapshot(round)
            | Self::Check(round)
            | Self::MoveLeader(round)
            | Self::Refresh(round)
            | Self::Verify(round) => round.as_slice(),
            Self::Look { .. } | Self::Successor => &[],
        }
    }

    fn asked_mut(&mut self) -> &mut [Asked] {
        match self {
            Self::Snapshot(round)
            | Self::Check(round)
            | Self::MoveLeader(round)
            | Self::Refresh(round)
            | Self::Verify(round) => round.as_mut_slice(),
            Self::Look { .. } | Self::Successor => &mut [],
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Refresh(_) | Self::Successor | Self::Verify(_) => true,
            Self::Look { .. } | Self::Snapshot(_) | Self::Check(_) | Self::MoveLeader(_) => false,
        }
    }

    fn not_sent(&self) -> Self {
        match self {
            Self::Verify(_) => Self::Verify(Round::default()),
            Self::Look { .. }
            | Self::Snapshot(_)
            | Self::Check(_)
            | Self::MoveLeader(_)
            | Self::Refresh(_)
            | Self::Successor => Self::look(),
        }
    }
}

type To = Move<MemberState>;

/// Grace period after a refresh of what has expired: others may not have expired, and quorum and the API are theirs meanwhile.
const COMES_BACK: SignedDuration = SignedDuration::from_mins(3);

/// Whether it goes on although somebody is not well: where nobody's health is waited for, not longer than for its own.
pub(super) fn goes_on(has_expired: bool, since: Option<Timestamp>, now: Timestamp) -> bool {
    has_expired && waited(since, now) >= COMES_BACK
}

impl Machine for Member {
    type State = MemberState;

    fn phase_mut(&mut self) -> &mut Phase<MemberState> {
        &mut self.phase
    }

    fn target(&self) -> Option<&Target> {
        Some(&self.target)
    }

    fn look(&mut self, state: MemberState, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let Some(view) = turn.observed.groups.get(turn.group) else {
            return Move::Stay(state, Waits::Look(Looked::Machine));
        };
        let Some(group) = view else { return Move::Fail(turn.no_group()) };
        match state {
            MemberState::Look { idle_since } => self.choose(idle_since, since, turn, group),
            MemberState::Snapshot(round) => match snapshot(&round, turn) {
                None => Move::Stay(MemberState::Snapshot(round), Waits::Snapshot),
                Some(Ok(())) => checks(turn),
                Some(Err(why)) => self.target.again("a snapshot before", &why, turn.now),
            },
            // The machine may have gone since.
            MemberState::Check(_) | MemberState::MoveLeader(_) if machine(group) != self.target.machine => {
                Move::To(MemberState::look())
            }
            // A person said to leave it while the others were asked.
            MemberState::Check(_)
                if self.target.machine.as_ref().is_some_and(|id| turn.skipped.contains(id)) =>
            {
                Move::To(MemberState::look())
            }
            MemberState::Check(round) => self.check(round, *since, turn),
            MemberState::MoveLeader(round) => {
                match round.only_answer::<LeaderMoved>(turn.observed, turn.now) {
                    None => Move::Stay(MemberState::MoveLeader(round), Waits::Leader),
                    // All are asked once more: time went by, and somebody else leads.
                    Some(Ok(_)) => checks(turn),
                    Some(Err(why)) => self.target.again("moving leadership from", &why, turn.now),
                }
            }
            MemberState::Refresh(round) => self.refresh(round, turn),
            MemberState::Successor => self.successor(*since, turn, group),
            MemberState::Verify(round) => self.verify(round, *since, turn),
        }
    }
}

/// All members are asked whether they can do without one.
fn checks(turn: &mut Turn<'_>) -> To {
    Move::Enter(MemberState::Check(ask_everyone(turn)), Waits::Answers(Asks::Members))
}

fn verifies(turn: &mut Turn<'_>) -> To {
    Move::Enter(MemberState::Verify(ask_everyone(turn)), Waits::Answers(Asks::Members))
}

impl Member {
    /// Certificates that have expired are why the others do not answer: waiting for them to be well would be for ever (P7). What is about
    /// to expire has not: then quorum and the API are kept as ever. Only a refresh can do without the others.
    fn has_expired(&self, turn: &Turn<'_>) -> bool {
        match self.work {
            MemberWork::Refresh { .. } => turn.urgency.has_expired(),
            MemberWork::Replace => false,
        }
    }

    /// Whether what is asked for is so already.
    fn is_as_planned(&self, group: &GroupView) -> bool {
        serving(group).any(|(id, machine)| is_current(group, machine) || self.renewed.as_ref() == Some(id))
    }

    fn choose(
        &mut self,
        idle_since: Option<Timestamp>,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        let Some(id) = machine(group) else {
            since.get_or_insert(turn.now);
            let boots = Boot::of(group, &turn.observed.booting);
            if waited(*since, turn.now) > PATIENCE {
                return Move::Fail(format!(
                    "{} has no machine in service after {} minutes: {}",
                    turn.group,
                    PATIENCE.as_mins(),
                    Boots(&boots)
                ));
            }
            return Move::Stay(MemberState::look(), Waits::Boot(Comes::Own, boots));
        };
        if self.is_as_planned(group) {
            *since = None;
            let idle_since = idle_since.unwrap_or(turn.now);
            if self.renewed.is_none() && !surely(idle_since, turn.now) {
                let state = MemberState::Look { idle_since: Some(idle_since) };
                return Move::Stay(state, Waits::SecondLook(Many::One));
            }
            return verifies(turn);
        }
        if turn.skipped.contains(&id) {
            return Move::Done { left: true };
        }
        if !turn.may_start() {
            *since = None;
            return Move::Stay(MemberState::look(), turn.window());
        }
        self.target.choose(Some(id));
        // Where nothing may hold it up there may be no majority to take a snapshot of; a refresh loses nothing.
        if self.has_expired(turn) || danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) {
            return checks(turn);
        }
        match take_snapshot(turn) {
            Some(round) => Move::Enter(MemberState::Snapshot(round), Waits::Snapshot),
            None if waited(*since, turn.now) > PATIENCE => Move::Fail(no_snapshot()),
            None => {
                since.get_or_insert(turn.now);
                Move::Stay(MemberState::look(), Waits::Snapshot)
            }
        }
    }

    fn check(&mut self, round: Round, since: Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let Some(answers) = answers(&round, turn) else {
            return Move::Stay(MemberState::Check(round), Waits::Answers(Asks::Members));
        };
        if !self.has_expired(turn) {
            let dangers = danger::of_member(Some(turn.role), &answers);
            if !dangers.is_empty() {
                return match patience(round, since, turn, "may not be taken down", dangers) {
                    Ok((round, waits)) => Move::Stay(MemberState::Check(round), waits),
                    Err(why) => Move::Fail(why),
                };
            }
            match age(&round, turn) {
                Age::Fresh => {}
                Age::Answers if waited(since, turn.now) > PATIENCE => {
                    return Move::Fail(format!(
                        "not all members answer within {} minutes",
                        PATIENCE.as_mins()
                    ));
                }
                Age::Answers => {
                    let round = ask_everyone(turn);
                    return Move::Stay(MemberState::Check(round), Waits::Answers(Asks::Members));
                }
                Age::Beginning => return Move::To(MemberState::look()),
            }
        }
        let Some(instance) = self.target.machine.clone() else { return Move::To(MemberState::look()) };
        match &self.work {
            MemberWork::Replace if leads(turn.role, &answers) && answers.len() > 1 => {
                let round = turn.ask(vec![(turn.role.clone(), instance, Verb::EtcdMoveLeader)]);
                Move::Enter(MemberState::MoveLeader(round), Waits::Leader)
            }
            MemberWork::Replace => {
                let group = turn.group.to_owned();
                let effect = Effect::Terminate { group, instance, then_desired: None };
                turn.effects.push_on(effect, Seen::Members, round.at().unwrap_or(turn.now));
                Move::Enter(MemberState::Successor, Waits::Replaced)
            }
            MemberWork::Refresh { credentials } => {
                // Where nothing may hold it up, it is not decided on what the others said.
                let (seen, at) = match round.at() {
                    Some(at) if !self.has_expired(turn) => (Seen::Members, at),
                    Some(_) | None => (Seen::World, turn.now),
                };
                let verb = Verb::Refresh { credentials: credentials.clone(), restart: true };
                let round = turn.ask_on(seen, at, vec![(turn.role.clone(), instance, verb)]);
                Move::Enter(MemberState::Refresh(round), Waits::Credentials(Vec::new()))
            }
        }
    }

    fn refresh(&mut self, round: Round, turn: &mut Turn<'_>) -> To {
        let Some(answer) = round.only_answer::<Refreshed>(turn.observed, turn.now) else {
            return Move::Stay(MemberState::Refresh(round), Waits::Credentials(Vec::new()));
        };
        let has = answer.and_then(|answer| match &self.work {
            MemberWork::Refresh { credentials } if *credentials == answer.credentials => Ok(()),
            MemberWork::Refresh { .. } | MemberWork::Replace => {
                Err(format!("it has the credentials {}", answer.credentials))
            }
        });
        match has {
            Ok(()) => {
                self.renewed.clone_from(&self.target.machine);
                verifies(turn)
            }
            Err(why) => self.target.again("refreshing", &why, turn.now),
        }
    }

    fn successor(&mut self, since: Option<Timestamp>, turn: &mut Turn<'_>, group: &GroupView) -> To {
        let is_new = |(id, machine): (&String, &MachineView)| {
            Some(id) != self.target.machine.as_ref() && is_current(group, machine)
        };
        if serving(group).any(is_new) {
            return verifies(turn);
        }
        // It was decided and never done: what it was decided on became too old.
        let stays = self.target.machine.is_some() && machine(group) == self.target.machine;
        if stays && waited(since, turn.now) > RECONSIDERED {
            return Move::To(MemberState::look());
        }
        let boots = Boot::of(group, &turn.observed.booting);
        if waited(since, turn.now) > PATIENCE {
            return Move::Fail(format!(
                "nobody took the place of its machine within {} minutes: {}",
                PATIENCE.as_mins(),
                Boots(&boots)
            ));
        }
        Move::Stay(MemberState::Successor, Waits::Boot(Comes::Successor, boots))
    }

    fn verify(&mut self, round: Round, since: Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let round = if round.is_empty() { ask_everyone(turn) } else { round };
        let Some(answers) = answers(&round, turn) else {
            return Move::Stay(MemberState::Verify(round), Waits::Answers(Asks::Members));
        };
        let dangers = danger::of_member(None, &answers);
        // The others' certificates may still be those that have expired: theirs is the next turn.
        let is_last = turn.members.keys().next_back() == Some(turn.role);
        let goes_on = goes_on(self.has_expired(turn), since, turn.now) && !is_last;
        if dangers.is_empty() || goes_on {
            return Move::Done { left: false };
        }
        match patience(round, since, turn, "is not well with the others", dangers) {
            Ok((round, waits)) => Move::Stay(MemberState::Verify(round), waits),
            Err(why) => Move::Fail(why),
        }
    }
}
