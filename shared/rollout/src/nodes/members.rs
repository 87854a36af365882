//! What is asked of the members of etcd, whatever is done to one of them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{Refreshed, SnapshotTaken, Verb};
use slipway_core::role::Role;

use super::super::errand::{Asked, Round};
use super::super::fleet::GroupView;
use super::super::outbox::FRESH;
use super::super::waits::{Asks, Danger, Waits};
use super::danger::{self, Answers};
use super::machine::{Move, State, waited, waits_for};
use super::{PATIENCE, Turn, serving};

/// After so long the member that is to go counts as silent. Healthy ones answer within seconds, and what they say counts for three minutes.
const SILENCE: SignedDuration = SignedDuration::from_secs(100);

/// The machine of the group that serves.
pub(super) fn machine(group: &GroupView) -> Option<String> {
    serving(group).map(|(id, _)| id.clone()).next()
}

/// The machine of each member that serves.
pub(super) fn everyone<'a>(turn: &Turn<'a>) -> BTreeMap<&'a Role, String> {
    let found = turn.members.iter().filter_map(|(role, group)| {
        let group = turn.observed.groups.get(group)?.as_ref()?;
        Some((role, machine(group)?))
    });
    found.collect()
}

/// Has a snapshot taken: on another member than the one that goes, which is left alone, or on that one where there is no other. `None`: no
/// member serves.
pub(super) fn take_snapshot(turn: &mut Turn<'_>) -> Option<Asked> {
    let found = everyone(turn);
    let other =
        found.iter().find(|(role, _)| role.member() != turn.role.member()).or_else(|| found.iter().next());
    let (role, id) = other.map(|(role, id)| ((*role).clone(), id.clone()))?;
    Some(turn.ask_one(&role, id, Verb::EtcdSnapshot))
}

/// Why there is no snapshot, where nobody has been there to take one for too long.
pub(super) fn no_snapshot() -> String {
    format!("no member of etcd has served for {} minutes that could take a snapshot", PATIENCE.as_mins())
}

/// What became of a snapshot; `None`: it is being taken.
pub(super) fn snapshot(asked: &Asked, turn: &mut Turn<'_>) -> Option<Result<(), String>> {
    let taken = asked.answer::<SnapshotTaken>(turn.observed, turn.now)?;
    let taken = taken.map_err(|why| format!("{why} (on {})", asked.command.instance));
    Some(taken.map(|_| {
        // As old as its beginning: what was written since is not in it.
        *turn.snapshot_at = Some(asked.at);
    }))
}

/// Asks all members how they are.
pub(super) fn ask_everyone(turn: &mut Turn<'_>) -> Round {
    let whom = everyone(turn).into_iter().map(|(role, id)| (role.clone(), id, Verb::EtcdHealth)).collect();
    turn.ask(whom)
}

/// What each member says, once all have answered. What its group shows now is newer than any answer: a member whose machine no longer
/// serves says nothing.
pub(super) fn answers(round: &Round, turn: &Turn<'_>) -> Option<Answers> {
    let serve = everyone(turn);
    let mut said: Answers = turn
        .members
        .keys()
        .map(|role| (role.clone(), Err("it has no machine in service".to_owned())))
        .collect();
    for asked in round.iter() {
        let health = match asked.answer(turn.observed, turn.now) {
            Some(health) => health,
            // One that hangs is replaced for that: its own word is not waited for until those of the others are old.
            None if asked.role == *turn.role && turn.now.duration_since(asked.at) > SILENCE => {
                Err(format!("it has said nothing for {} seconds", SILENCE.as_secs()))
            }
            None => return None,
        };
        match serve.get(&asked.role) {
            Some(id) if *id == asked.command.instance => said.insert(asked.role.clone(), health),
            Some(id) => said.insert(
                asked.role.clone(),
                Err(format!("{id} has taken the place of the machine that was asked")),
            ),
            None => None,
        };
    }
    Some(said)
}

/// Whether a member leads, as it says itself.
pub(super) fn leads(role: &Role, answers: &Answers) -> bool {
    answers.get(role).and_then(|answer| answer.as_ref().ok()).is_some_and(|own| own.leads)
}

/// Whether a machine has the credentials that it was asked to take; `None`: it is at it.
pub(super) fn refreshed(asked: &Asked, turn: &Turn<'_>) -> Option<Result<(), String>> {
    let answer = asked.answer::<Refreshed>(turn.observed, turn.now)?;
    Some(answer.and_then(|answer| match &asked.command.verb {
        Verb::Refresh { credentials, .. } if *credentials == answer.credentials => Ok(()),
        Verb::Refresh { .. }
        | Verb::Status
        | Verb::Drain { .. }
        | Verb::Uncordon { .. }
        | Verb::EtcdHealth
        | Verb::EtcdSnapshot
        | Verb::EtcdMoveLeader
        | Verb::EtcdRemove { .. }
        | Verb::EtcdRetire => Err(format!("it has the credentials {}", answer.credentials)),
    }))
}

/// Waits until `dangers` are over, and asks all members once more when it is time.
pub(super) fn waits_for_members<S>(
    dangers: Vec<Danger>,
    round: Round,
    since: Option<Timestamp>,
    turn: &mut Turn<'_>,
    what: &str,
    state: impl FnOnce(Round) -> S,
) -> Move<S> {
    waits_for(dangers, round, since, turn, what, ask_everyone, state)
}

/// What comes first where what is known is too old to take a member down on it: all are asked again, or the snapshot that has grown old and
/// the window that has closed are seen to from the beginning. `None`: it is fresh.
pub(super) fn is_old<S: State>(
    round: &Round,
    since: Option<Timestamp>,
    turn: &mut Turn<'_>,
    state: impl FnOnce(Round) -> S,
) -> Option<Move<S>> {
    if round.at().is_some_and(|at| turn.now.duration_since(at) <= FRESH) {
        let may_go = danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) && turn.may_start();
        return (!may_go).then(|| Move::To(S::start()));
    }
    if waited(since, turn.now) > PATIENCE {
        return Some(Move::Fail(format!("not all members answer within {} minutes", PATIENCE.as_mins())));
    }
    Some(Move::Stay(state(ask_everyone(turn)), Waits::Answers(Asks::Members)))
}
