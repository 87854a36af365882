//! Commands to the members of etcd, for any work on one of them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{Refreshed, SnapshotTaken, Verb};
use slipway_core::role::Role;

use super::super::errand::{Round, SentCommand};
use super::super::fleet::GroupView;
use super::super::outbox::FRESH;
use super::super::waits::{Asks, Danger, Waits};
use super::danger::{self, Answers, NoAnswer};
use super::machine::{Move, State, Tries, waited, waits_for};
use super::{PATIENCE, Turn, serving};

/// After this time the member to be taken down counts as silent. Healthy members answer within seconds, and their answers count for three
/// minutes.
const SILENCE: SignedDuration = SignedDuration::from_secs(100);

/// The machine of the group in service.
pub(super) fn machine(group: &GroupView) -> Option<String> {
    serving(group).map(|(id, _)| id.clone()).next()
}

/// The machine of each member in service.
pub(super) fn everyone<'a>(turn: &Turn<'a>) -> BTreeMap<&'a Role, String> {
    let found = turn.members.iter().filter_map(|(role, group)| {
        let group = turn.observed.groups.get(group)?.as_ref()?;
        Some((role, machine(group)?))
    });
    found.collect()
}

/// Takes a snapshot: on another member than the one to be taken down, or on that one if there is no other. `None` if no member is in
/// service.
pub(super) fn take_snapshot(turn: &mut Turn<'_>) -> Option<SentCommand> {
    let found = everyone(turn);
    let other =
        found.iter().find(|(role, _)| role.member() != turn.role.member()).or_else(|| found.iter().next());
    let (role, id) = other.map(|(role, id)| ((*role).clone(), id.clone()))?;
    Some(turn.ask_one(&role, id, Verb::EtcdSnapshot))
}

/// Why there is no snapshot, if no member could take one for too long.
pub(super) fn no_snapshot() -> String {
    format!("no member of etcd has served for {} minutes that could take a snapshot", PATIENCE.as_mins())
}

/// The result of a snapshot; `None` if it is being taken.
pub(super) fn snapshot(sent: &SentCommand, turn: &mut Turn<'_>) -> Option<Result<(), String>> {
    let taken = sent.answer::<SnapshotTaken>(turn.observed, turn.now)?;
    let instance = &sent.command.instance;
    let taken = taken.map_err(|why| format!("{why} (on {instance})")).and_then(|_| {
        // A snapshot is as old as its beginning: later writes are not in it.
        let age = turn.now.duration_since(sent.at);
        if age > danger::SNAPSHOT_AGE {
            let (took, most) = (age.as_mins(), danger::SNAPSHOT_AGE.as_mins());
            return Err(format!("it took {took} minutes on {instance}, and a snapshot counts for {most} minutes from its beginning"));
        }
        *turn.snapshot_at = Some(sent.at);
        Ok(())
    });
    Some(taken)
}

/// Asks all members about their health.
pub(super) fn ask_everyone(turn: &mut Turn<'_>) -> Round {
    let whom = everyone(turn).into_iter().map(|(role, id)| (role.clone(), id, Verb::EtcdHealth)).collect();
    turn.ask(whom)
}

/// Each member's answer, once all have answered. The present state of its group is newer than any answer: a member whose machine is not in
/// service any more, or that Auto Scaling is about to replace, has no answer.
pub(super) fn answers(round: &Round, turn: &Turn<'_>) -> Option<Answers> {
    let serve = everyone(turn);
    let mut by_member: Answers = turn
        .members
        .keys()
        .map(|role| (role.clone(), Err("it has no machine in service".to_owned().into())))
        .collect();
    for sent in round.iter() {
        if let Some(id) = replaced_by_others(&sent.role, turn) {
            by_member.insert(sent.role.clone(), Err(NoAnswer::ReplacedByOthers(id)));
            continue;
        }
        let health = match sent.answer(turn.observed, turn.now) {
            Some(health) => health.map_err(NoAnswer::from),
            // A hanging member is replaced because it hangs: its own answer is not waited for until the answers of the others are too old.
            None if sent.role == *turn.role && turn.now.duration_since(sent.at) > SILENCE => {
                Err(format!("it has not answered for {} seconds", SILENCE.as_secs()).into())
            }
            None => return None,
        };
        match serve.get(&sent.role) {
            Some(id) if *id == sent.command.instance => by_member.insert(sent.role.clone(), health),
            Some(id) => by_member.insert(
                sent.role.clone(),
                Err(format!("{id} has replaced the machine that was queried").into()),
            ),
            None => None,
        };
    }
    Some(by_member)
}

/// The machine of a member other than the one to be taken down, if Auto Scaling is about to replace it: such a machine may serve until then.
fn replaced_by_others(role: &Role, turn: &Turn<'_>) -> Option<String> {
    let group = turn.members.get(role).and_then(|group| turn.observed.groups.get(group)?.as_ref())?;
    let mut ill = serving(group).filter(|(_, machine)| !machine.healthy);
    ill.next().filter(|_| role != turn.role).map(|(id, _)| id.clone())
}

/// Whether leadership has to be moved from a member before its `machine` goes. It leads by its own answer. If it has none, it leads by what
/// the others say, unless moving leadership has failed already: then its agent is out of reach, and hands over as the last thing it does
/// (agent/src/leave.rs).
pub(super) fn must_hand_over(
    role: &Role,
    machine: Option<&String>,
    answers: &Answers,
    tries: &Tries,
) -> bool {
    match answers.get(role) {
        Some(Ok(own)) => own.leads,
        Some(Err(_)) | None => {
            let name = role.to_string();
            let mut others = answers.values().flatten().flat_map(|health| &health.members);
            let has_failed = machine.is_some_and(|machine| tries.keeps_leadership(machine));
            !has_failed && others.any(|member| member.name == name && member.leads)
        }
    }
}

/// Another member leads: a failure to move leadership before does not count if the member leads again later.
pub(super) fn sees_who_leads(role: &Role, answers: &Answers, tries: &mut Tries) {
    let name = role.to_string();
    let mut members = answers.values().flatten().flat_map(|health| &health.members);
    if members.any(|member| member.leads && member.name != name) {
        tries.leadership_moved();
    }
}

/// Whether a machine has installed its credentials; `None` if it is still doing so.
pub(super) fn refreshed(sent: &SentCommand, turn: &Turn<'_>) -> Option<Result<(), String>> {
    let answer = sent.answer::<Refreshed>(turn.observed, turn.now)?;
    Some(answer.and_then(|answer| match &sent.command.verb {
        Verb::Refresh { credentials, .. } if *credentials == answer.credentials => Ok(()),
        Verb::Refresh { .. }
        | Verb::Status
        | Verb::Logs { .. }
        | Verb::Serves { .. }
        | Verb::Drain { .. }
        | Verb::Uncordon { .. }
        | Verb::EtcdHealth
        | Verb::EtcdSnapshot
        | Verb::EtcdMoveLeader
        | Verb::EtcdRemove { .. }
        | Verb::EtcdRetire
        | Verb::EtcdRestore { .. }
        | Verb::EtcdDefragment => Err(format!("it has the credentials {}", answer.credentials)),
    }))
}

/// Waits until `dangers` are over, and asks all members again when it is time.
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

/// Lets the only member that is not healthy go first, if it is worked on later: until it is well, or gone, no other's work can begin or end.
/// Two of them never let each other go first, because one comes later than the other.
pub(super) fn gives_way(answers: &Answers, since: &mut Option<Timestamp>, turn: &mut Turn<'_>) -> bool {
    let can_go = |role: &&Role| danger::of_member(Some(role), answers).is_empty();
    let Some(ill) = turn.later.iter().find(can_go).filter(|_| turn.may_start()).cloned() else {
        return false;
    };
    turn.first = Some(ill);
    *since = None;
    true
}

/// The state to go back to if the evidence is too old for taking a member down: all are asked again, or the work starts from its beginning
/// if the snapshot is too old or the window has closed. `None` if the evidence is fresh.
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
