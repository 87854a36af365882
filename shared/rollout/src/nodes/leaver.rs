//! Removing a member from etcd, before the update of etcd's stack deletes its group (P4).
//!
//! One member at a time: a snapshot, every voter healthy, leadership moved to another member. Then a member that stays removes it, and all
//! remaining members are asked whether they are healthy and agree on the membership. Only then the next removal begins. The machine exists
//! until the stack is updated.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::node::{EtcdHealth, EtcdMemberHealth, LeaderMoved, MemberRemoved, Verb};
use slipway_core::role::Role;

use super::super::errand::{Round, SentCommand};
use super::super::waits::{Asks, Danger, ObservedParts, Waits};
use super::danger::{self, Answers};
use super::machine::{Machine, Move, Place, State, Tries, waited};
use super::members::{
    answers, ask_everyone, everyone, gives_way, is_old, machine, must_hand_over, no_snapshot, sees_who_leads,
    snapshot, take_snapshot, waits_for_members,
};
use super::{PATIENCE, Phase, Turn};
use crate::transitions::{Transition, Wakes};

/// The removal of a member from etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leaver {
    /// Failed tries.
    #[serde(default, skip_serializing_if = "Tries::is_none")]
    pub tries: Tries,
    /// The state of the work.
    pub phase: Phase<LeaverState>,
}

/// The states of a [`Leaver`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum LeaverState {
    /// Looks for the next work.
    Look,
    /// A snapshot is being taken.
    Snapshot {
        /// Its machine, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<String>,
        /// The command.
        sent: SentCommand,
    },
    /// All members are asked whether they can do without it.
    Check {
        /// Its machine, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<String>,
        /// The queries.
        round: Round,
    },
    /// It moves leadership to another member.
    MoveLeader(SentCommand),
    /// A member that stays removes it.
    Remove {
        /// Its machine, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<String>,
        /// The command.
        sent: SentCommand,
    },
    /// The remaining members are asked whether they are healthy.
    Verify(Round),
}

impl State for LeaverState {
    const TRANSITIONS: &'static [Transition] = &[
        Transition::new(
            "look",
            "finds its machine; waits for a window",
            &[Wakes::Machine],
            &["snapshot", "check", "failed"],
        ),
        Transition::new(
            "snapshot",
            "another member takes a snapshot",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Transition::new(
            "check",
            "checks on all members whether they can do without it",
            &[Wakes::Command],
            &["moveLeader", "remove", "verify", "look", "failed"],
        ),
        Transition::new(
            "moveLeader",
            "leadership is moved to another member",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Transition::new(
            "remove",
            "a member that remains removes it from the membership",
            &[Wakes::Command],
            &["verify", "look", "failed"],
        ),
        Transition::new(
            "verify",
            "checks the health of the remaining members",
            &[Wakes::Command],
            &["done", "failed"],
        ),
        Transition::DONE,
        Transition::FAILED,
    ];

    fn start() -> Self {
        Self::Look
    }

    fn place(&self) -> Place {
        match self {
            Self::Look => Place::Look,
            Self::Snapshot { .. } => Place::Snapshot,
            Self::Check { .. } => Place::Check,
            Self::MoveLeader(_) => Place::MoveLeader,
            Self::Remove { .. } => Place::Remove,
            Self::Verify(_) => Place::Verify,
        }
    }

    fn machine(&self) -> Option<&String> {
        match self {
            Self::Snapshot { machine, .. } | Self::Check { machine, .. } | Self::Remove { machine, .. } => {
                machine.as_ref()
            }
            Self::MoveLeader(sent) => Some(&sent.command.instance),
            Self::Look | Self::Verify(_) => None,
        }
    }

    fn commands(&self) -> &[SentCommand] {
        match self {
            Self::Snapshot { sent, .. } | Self::MoveLeader(sent) | Self::Remove { sent, .. } => {
                std::slice::from_ref(sent)
            }
            Self::Check { round, .. } | Self::Verify(round) => round.as_slice(),
            Self::Look => &[],
        }
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        match self {
            Self::Snapshot { sent, .. } | Self::MoveLeader(sent) | Self::Remove { sent, .. } => {
                std::slice::from_mut(sent)
            }
            Self::Check { round, .. } | Self::Verify(round) => round.as_mut_slice(),
            Self::Look => &mut [],
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Remove { .. } | Self::Verify(_) => true,
            Self::Look | Self::Snapshot { .. } | Self::Check { .. } | Self::MoveLeader(_) => false,
        }
    }

    fn not_sent(&self) -> Self {
        if let Self::Verify(_) = self { Self::Verify(Round::default()) } else { Self::Look }
    }
}

type To = Move<LeaverState>;

impl Machine for Leaver {
    type State = LeaverState;

    fn phase_mut(&mut self) -> &mut Phase<LeaverState> {
        &mut self.phase
    }

    fn tries_mut(&mut self) -> Option<&mut Tries> {
        Some(&mut self.tries)
    }

    fn next_move(&mut self, state: LeaverState, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        match state {
            LeaverState::Look => self.choose(since, turn),
            LeaverState::Snapshot { machine, sent } => match snapshot(&sent, turn) {
                None => Move::Stay(LeaverState::Snapshot { machine, sent }, Waits::Snapshot),
                Some(Ok(())) => checks(machine, turn),
                Some(Err(why)) => self.tries.again("a snapshot before", called(&machine), &sent, &why, turn),
            },
            LeaverState::Check { machine, round } => check(machine, round, &mut self.tries, since, turn),
            LeaverState::MoveLeader(sent) => self.leader(sent, turn),
            LeaverState::Remove { machine, sent } => {
                match sent.answer::<MemberRemoved>(turn.observed, turn.now) {
                    None => Move::Stay(LeaverState::Remove { machine, sent }, Waits::MemberRemoval),
                    Some(Ok(_)) => verifies(turn),
                    Some(Err(why)) => self.tries.again("removing", called(&machine), &sent, &why, turn),
                }
            }
            LeaverState::Verify(round) => verify(round, *since, turn),
        }
    }
}

/// The name of its machine in a failure.
fn called(machine: &Option<String>) -> &str {
    machine.as_deref().unwrap_or("its machine")
}

fn checks(machine: Option<String>, turn: &mut Turn<'_>) -> To {
    let round = ask_everyone(turn);
    Move::Enter(LeaverState::Check { machine, round }, Waits::Answers(Asks::Members))
}

fn verifies(turn: &mut Turn<'_>) -> To {
    Move::Enter(LeaverState::Verify(ask_everyone(turn)), Waits::Answers(Asks::MembersLeft))
}

/// Whether none of the others that know the membership lists the member any more, and one of them serves. A removed member itself knows no
/// membership.
fn is_out(role: &Role, answers: &Answers) -> bool {
    let name = role.to_string();
    let others =
        answers.iter().filter(|(other, _)| *other != role).filter_map(|(_, answer)| answer.as_ref().ok());
    let mut others = others.filter(|other| !other.members.is_empty()).peekable();
    // A member that was added and has never run has no name (etcd API, `Member.name`): it may be this one.
    let lacks = |members: &[EtcdMemberHealth]| {
        members.iter().all(|member| member.name != name && !member.name.is_empty())
    };
    let serves = answers.values().flatten().any(|answer| answer.serving && lacks(&answer.members));
    serves && others.peek().is_some() && others.all(|other| lacks(&other.members))
}

/// The answers without those of members that are already removed, because an earlier rollout that ended early removed them.
fn without_those_out(turn: &Turn<'_>, answers: Answers) -> Answers {
    let out = |role: &Role| !turn.staying.contains_key(role) && is_out(role, &answers);
    let out: Vec<Role> = answers.keys().filter(|role| out(role)).cloned().collect();
    answers.into_iter().filter(|(role, _)| !out.contains(role)).collect()
}

/// All others must be healthy, and must know of no other members.
fn verify(round: Round, since: Option<Timestamp>, turn: &mut Turn<'_>) -> To {
    let round = if round.is_empty() { ask_everyone(turn) } else { round };
    let Some(answers) = answers(&round, turn) else {
        return Move::Stay(LeaverState::Verify(round), Waits::Answers(Asks::MembersLeft));
    };
    let mut answers = without_those_out(turn, answers);
    answers.remove(turn.role);
    let mut dangers = danger::of_member(None, &answers);
    dangers.retain(|danger| !is_of_lost_member(danger, turn));
    if dangers.is_empty() {
        return Move::Done { skipped: false };
    }
    let what = "was removed from the membership, and the others are not healthy";
    waits_for_members(dangers, round, since, turn, what, LeaverState::Verify)
}

impl Leaver {
    fn choose(&mut self, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> To {
        let Some(view) = turn.observed.groups.get(turn.group) else {
            return Move::Stay(LeaverState::Look, Waits::Look(ObservedParts::Machine));
        };
        let machine = view.as_ref().and_then(machine);
        self.tries.choose(called(&machine));
        if let Some(id) = machine.as_ref().filter(|id| turn.skipped.contains(*id)) {
            return Move::Fail(format!(
                "{id} was skipped by order of a person, and its group would be deleted while it is still a member: upload the spec again, which \
                 ends the skip"
            ));
        }
        if !turn.may_start() {
            *since = None;
            return Move::Stay(LeaverState::Look, turn.window());
        }
        since.get_or_insert(turn.now);
        if danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) {
            return checks(machine, turn);
        }
        match take_snapshot(turn) {
            Some(sent) => Move::Enter(LeaverState::Snapshot { machine, sent }, Waits::Snapshot),
            None if waited(*since, turn.now) > PATIENCE => Move::Fail(no_snapshot()),
            None => Move::Stay(LeaverState::Look, Waits::Snapshot),
        }
    }

    fn leader(&mut self, sent: SentCommand, turn: &mut Turn<'_>) -> To {
        let Some(view) = turn.observed.groups.get(turn.group) else {
            return Move::Stay(LeaverState::MoveLeader(sent), Waits::Look(ObservedParts::Machine));
        };
        let id = sent.command.instance.clone();
        if view.as_ref().and_then(machine).as_ref() != Some(&id) {
            return Move::To(LeaverState::Look);
        }
        match sent.answer::<LeaderMoved>(turn.observed, turn.now) {
            None => Move::Stay(LeaverState::MoveLeader(sent), Waits::Leader),
            // All are asked again: time has passed, and another member leads.
            Some(Ok(_)) => {
                self.tries.leadership_moved();
                checks(Some(id), turn)
            }
            Some(Err(why)) => self.tries.again("moving leadership from", &id, &sent, &why, turn),
        }
    }
}

/// Whether the other members can do without it. As a learner it has no vote. Of members that are to be removed and have lost their groups, nothing
/// is expected; then those that stay must be a majority without it and them.
fn may_be_removed(answers: &Answers, turn: &Turn<'_>) -> bool {
    let name = turn.role.to_string();
    let stays = |role: &Role| turn.staying.contains_key(role);
    let serving: Vec<&EtcdHealth> = answers
        .iter()
        .filter(|(role, _)| stays(role))
        .filter_map(|(_, answer)| answer.as_ref().ok().filter(|health| health.serving))
        .collect();
    let listed = |health: &&EtcdHealth| {
        let named = |name: &str| health.members.iter().find(|member| member.name == name);
        named(&name).or_else(|| named("")).map(|member| member.learner)
    };
    let is_learner = serving.iter().find_map(listed).unwrap_or(false);
    let may_be_ignored = |danger: &Danger| {
        // Of these, it counts all members as voters.
        let counts_it = is_learner && matches!(danger, Danger::NoneToSpare { .. });
        let is_it = matches!(danger, Danger::LearnerInMembership(member) if *member == name);
        counts_it || is_it || is_of_lost_member(danger, turn)
    };
    let (ignored, dangers): (Vec<Danger>, Vec<Danger>) =
        danger::of_member(Some(turn.role), answers).into_iter().partition(may_be_ignored);
    let voters = |health: &&EtcdHealth| {
        health.members.iter().filter(|member| !member.learner && member.name != name).count()
    };
    let voters = serving.iter().map(voters).max().unwrap_or_default();
    dangers.is_empty() && (ignored.is_empty() || serving.len() > voters / 2)
}

/// Whether a danger comes from a member that is to be removed and whose group does not exist.
fn is_of_lost_member(danger: &Danger, turn: &Turn<'_>) -> bool {
    let is_lost = |role: &Role| {
        let group = turn.members.get(role).filter(|_| !turn.staying.contains_key(role));
        group.and_then(|group| turn.observed.groups.get(group)).is_some_and(Option::is_none)
    };
    // Where the member that is to be removed has no machine, one that has never run may be that member.
    let is_named = |name: &str| {
        name.is_empty() && is_lost(turn.role)
            || turn.members.keys().any(|role| role.to_string() == name && is_lost(role))
    };
    if let Danger::SilentMember { role, .. } = danger {
        return is_lost(role);
    }
    matches!(danger, Danger::LearnerInMembership(member) | Danger::Unreachable { member, .. } if is_named(member))
}

fn check(
    own: Option<String>,
    round: Round,
    tries: &mut Tries,
    since: &mut Option<Timestamp>,
    turn: &mut Turn<'_>,
) -> To {
    let Some(answers) = answers(&round, turn) else {
        return Move::Stay(LeaverState::Check { machine: own, round }, Waits::Answers(Asks::Members));
    };
    sees_who_leads(turn.role, &answers, tries);
    // A removal by a lost earlier command, or by an earlier rollout that ended early.
    if is_out(turn.role, &answers) {
        return verifies(turn);
    }
    let answers = without_those_out(turn, answers);
    // A person skipped it while the others were asked.
    if own.as_ref().is_some_and(|id| turn.skipped.contains(id)) {
        return Move::To(LeaverState::Look);
    }
    let checks = |round| LeaverState::Check { machine: own.clone(), round };
    // An unhealthy member may be removed, if the others can do without it.
    let dangers = danger::of_member(None, &answers);
    if !dangers.is_empty() && !may_be_removed(&answers, turn) {
        if gives_way(&answers, since, turn) {
            return Move::Stay(LeaverState::Look, Waits::Dangers(dangers));
        }
        return waits_for_members(dangers, round, *since, turn, "may not be taken out", checks);
    }
    if let Some(first) = is_old(&round, *since, turn, checks) {
        return first;
    }
    if must_hand_over(turn.role, own.as_ref(), &answers, tries) {
        // Its machine may be another one by now.
        let view = turn.observed.groups.get(turn.group).and_then(Option::as_ref);
        let Some(id) = own else {
            // Somebody put it into Standby, for example: no command reaches it there.
            let dangers = vec![Danger::LeadsOutOfService(turn.role.clone())];
            let checks = |round| LeaverState::Check { machine: None, round };
            return waits_for_members(dangers, round, *since, turn, "may not be taken out", checks);
        };
        if view.and_then(machine).as_ref() != Some(&id) {
            return Move::To(LeaverState::Look);
        }
        let sent = turn.ask_one(turn.role, id, Verb::EtcdMoveLeader);
        return Move::Enter(LeaverState::MoveLeader(sent), Waits::Leader);
    }
    let answered = |role: &Role| answers.get(role).is_some_and(Result::is_ok);
    let stays =
        everyone(turn).into_iter().find(|(role, _)| turn.staying.contains_key(*role) && answered(role));
    let Some((role, id)) = stays.map(|(role, id)| (role.clone(), id)) else {
        return Move::Stay(checks(round), Waits::MemberThatStays);
    };
    let verb = Verb::EtcdRemove { member: turn.role.to_string() };
    let sent = turn.ask_one_on(turn.evidence_of_members(&round), &role, id, verb);
    Move::Enter(LeaverState::Remove { machine: own, sent }, Waits::MemberRemoval)
}
