//! One member of etcd: a snapshot, a look at all the others, leadership moved, then its credentials or its successor, and a look at
//! all of them (P4).
//!
//! Nothing is taken on trust from an earlier state: what counts is what each member said moments before.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::super::Effect;
use super::super::fleet::GroupView;
use super::super::outbox::{FRESH, Seen};
use super::super::urgency::asks_nobody;
use super::danger::{self, Answers};
use super::{
    Look, NodeState, NodeStep, PATIENCE, RECONSIDERED, Turn, Work, boots, is_current, serving, window_is_open,
};
use slipway_core::node::{LeaderMoved, Refreshed, SnapshotTaken, Verb};
use slipway_core::pki::Role;

/// Looks at a member once.
pub(super) fn look(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(view) = turn.observed.groups.get(&step.group) else {
        return Look::Waits("looks at its machine".to_owned());
    };
    let Some(group) = view else {
        return step.fail(format!("there is no Auto Scaling group {}", step.group));
    };
    match &step.state {
        NodeState::Waiting => begin(step, turn, group),
        NodeState::Snapshot => snapshot(step, turn),
        NodeState::Check => check(step, turn, group),
        NodeState::Leader => leader(step, turn, group),
        NodeState::Refresh => refresh(step, turn),
        NodeState::Return => returns(step, turn, group),
        NodeState::Drain | NodeState::Leave | NodeState::After => after(step, turn),
        NodeState::Done => Look::Again,
        NodeState::Failed(why) => Look::Waits(why.clone()),
    }
}

/// The machine of the group that serves.
pub(super) fn machine(group: &GroupView) -> Option<String> {
    serving(group).map(|(id, _)| id.clone()).next()
}

/// Whether what is asked for is so already.
fn is_done(step: &NodeStep, group: &GroupView) -> bool {
    serving(group).any(|(id, machine)| {
        is_current(group, machine) || (step.work == Work::Refresh && step.done.contains(id))
    })
}

fn begin(step: &mut NodeStep, turn: &Turn<'_>, group: &GroupView) -> Look {
    if step.since.is_none() {
        step.since = Some(turn.now);
    }
    let Some(id) = machine(group) else {
        let boots = boots(group, &turn.observed.booting);
        if step.has_waited(turn) > PATIENCE {
            return step.fail(format!(
                "{} has no machine in service after {} minutes: {boots}",
                step.group,
                PATIENCE.as_mins()
            ));
        }
        return Look::Waits(format!("waits for its machine: {boots}"));
    };
    if is_done(step, group) {
        if !step.is_surely_idle(turn.now) {
            return Look::Waits("makes sure that its machine is as planned".to_owned());
        }
        return step.enter(NodeState::After, turn.now);
    }
    if turn.skipped.contains(&id) {
        step.left = true;
        return step.enter(NodeState::Done, turn.now);
    }
    if !may_start(turn) {
        return Look::Waits(turn.waits_for_window.clone());
    }
    if step.machine.as_ref() != Some(&id) {
        step.machine = Some(id);
        step.tries = 0;
    }
    // Where nothing may hold it up there may be no majority to take one of; a refresh loses nothing.
    let needed = !has_expired(step, turn) && !danger::is_fresh_snapshot(*turn.snapshot_at, turn.now);
    step.enter(if needed { NodeState::Snapshot } else { NodeState::Check }, turn.now)
}

/// Windows bound the start of what is disruptive.
pub(super) fn may_start(turn: &Turn<'_>) -> bool {
    turn.urgency.overrides() || window_is_open(turn.windows, turn.now)
}

/// Certificates that have expired are why the others do not answer: waiting for them to be well would be for ever (P7). What is about to
/// expire has not: then quorum and the API are kept as ever.
pub(super) fn has_expired(step: &NodeStep, turn: &Turn<'_>) -> bool {
    asks_nobody(step, turn.urgency)
}

/// Grace period after a refresh of what has expired: others may not have expired, and quorum and the API are theirs meanwhile.
const COMES_BACK: SignedDuration = SignedDuration::from_mins(3);

/// Whether it goes on although somebody is not well: it waits for the others no longer than for itself.
pub(super) fn goes_on(step: &NodeStep, turn: &Turn<'_>) -> bool {
    has_expired(step, turn) && step.has_waited(turn) >= COMES_BACK
}

/// Another member's machine, so that the one that goes is left alone; its own where there is no other.
fn who_takes_snapshots(step: &NodeStep, turn: &Turn<'_>) -> Option<(Role, String)> {
    let found = everyone(turn);
    let other =
        found.iter().find(|(role, _)| role.member() != step.role.member()).or_else(|| found.iter().next());
    other.map(|(role, id)| ((*role).clone(), id.clone()))
}

/// The machine of each member that serves.
pub(super) fn everyone<'a>(turn: &Turn<'a>) -> BTreeMap<&'a Role, String> {
    let found = turn.members.iter().filter_map(|(role, group)| {
        let group = turn.observed.groups.get(group)?.as_ref()?;
        Some((role, machine(group)?))
    });
    found.collect()
}

/// A snapshot is taken; what is done next is checked anew after it.
pub(super) fn snapshot(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let waits = || Look::Waits("waits for a snapshot".to_owned());
    if step.asked.is_empty() {
        let Some((role, id)) = who_takes_snapshots(step, turn) else {
            return step.enter(NodeState::Waiting, turn.now);
        };
        step.ask(turn, vec![(role, id, Verb::EtcdSnapshot)]);
        return waits();
    }
    let Some(answers) = step.answers::<SnapshotTaken>(turn) else { return waits() };
    let asked_at = step.asked_at();
    match answers.into_iter().next() {
        // As old as its beginning: what was written since is not in it.
        Some((_, Ok(_))) => {
            *turn.snapshot_at = asked_at;
            step.enter(NodeState::Check, turn.now)
        }
        Some((asked, Err(why))) => {
            let why = format!("{why} (on {})", asked.command.instance);
            step.again(turn, "a snapshot before", &why)
        }
        None => step.enter(NodeState::Waiting, turn.now),
    }
}

fn ask_everyone(step: &mut NodeStep, turn: &mut Turn<'_>) {
    let whom = everyone(turn).into_iter().map(|(role, id)| (role.clone(), id, Verb::EtcdHealth)).collect();
    step.ask(turn, whom);
}

/// What each member says. What its group shows now is newer than any answer: a member whose machine no longer serves says nothing.
fn healths(step: &NodeStep, turn: &Turn<'_>) -> Option<Answers> {
    let serve = everyone(turn);
    let mut said: Answers = turn
        .members
        .keys()
        .map(|role| (role.clone(), Err("it has no machine in service".to_owned())))
        .collect();
    for (asked, health) in step.answers(turn)? {
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

pub(super) fn asks() -> Look {
    Look::Waits("asks all members how they are".to_owned())
}

/// What each member says, once all have answered; they are asked first where nobody was.
pub(super) fn said_by_all(step: &mut NodeStep, turn: &mut Turn<'_>) -> Option<Answers> {
    if step.asked.is_empty() {
        ask_everyone(step, turn);
        return None;
    }
    healths(step, turn)
}

/// Where nobody may be taken down on what is known: what was said is asked for again, and a snapshot that has grown old and a window that
/// has closed are seen to from the beginning.
pub(super) fn out_of_date(step: &mut NodeStep, turn: &mut Turn<'_>) -> Option<Look> {
    if step.asked_at().is_none_or(|at| turn.now.duration_since(at) > FRESH) {
        ask_everyone(step, turn);
        return Some(asks());
    }
    let may_go = danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) && may_start(turn);
    (!may_go).then(|| step.enter(NodeState::Waiting, turn.now))
}

fn check(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Look {
    // The machine may have gone since, and what was said may be old.
    if machine(group) != step.machine {
        return step.enter(NodeState::Waiting, turn.now);
    }
    let Some(answers) = said_by_all(step, turn) else { return asks() };
    let reasons = danger::of_member(Some(&step.role), &answers);
    if !has_expired(step, turn) {
        if !reasons.is_empty() {
            return patience(step, turn, "may not be taken down", &reasons);
        }
        if let Some(look) = out_of_date(step, turn) {
            return look;
        }
    }
    let leads = answers.get(&step.role).and_then(|answer| answer.as_ref().ok()).is_some_and(|own| own.leads);
    if step.work == Work::Replace && leads && answers.len() > 1 {
        return step.enter(NodeState::Leader, turn.now);
    }
    act(step, turn)
}

/// Waits, and asks once more when it is time; not for ever.
pub(super) fn patience(step: &mut NodeStep, turn: &mut Turn<'_>, what: &str, reasons: &[String]) -> Look {
    let reasons = reasons.join("; ");
    if step.has_waited(turn) > PATIENCE {
        return step.fail(format!("{what} after {} minutes: {reasons}", PATIENCE.as_mins()));
    }
    if step.may_ask_again(turn) {
        ask_everyone(step, turn);
    }
    Look::Waits(format!("waits: {reasons}"))
}

pub(super) fn leader(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Look {
    let Some(id) = step.machine.clone().filter(|_| machine(group) == step.machine) else {
        return step.enter(NodeState::Waiting, turn.now);
    };
    let waits = || Look::Waits("moves leadership to another member".to_owned());
    if step.asked.is_empty() {
        step.ask(turn, vec![(step.role.clone(), id, Verb::EtcdMoveLeader)]);
        return waits();
    }
    let Some(answers) = step.answers::<LeaderMoved>(turn) else { return waits() };
    match answers.into_iter().next() {
        // All are asked once more: time went by, and somebody else leads.
        Some((_, Ok(_))) => step.enter(NodeState::Check, turn.now),
        Some((_, Err(why))) => step.again(turn, "moving leadership from", &why),
        None => step.enter(NodeState::Waiting, turn.now),
    }
}

fn act(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(instance) = step.machine.clone() else { return step.enter(NodeState::Waiting, turn.now) };
    match step.work {
        Work::Replace | Work::Fewer | Work::Leave | Work::Remove => {
            let seen_at = step.asked_at().unwrap_or(turn.now);
            step.enter(NodeState::Return, turn.now);
            let effect = Effect::Terminate { group: step.group.clone(), instance, then_desired: None };
            turn.effects.push_on(effect, Seen::Members, seen_at);
            Look::Waits("is replaced".to_owned())
        }
        Work::Refresh => {
            // Where nothing may hold it up, it is not decided on what the others said.
            let (seen, seen_at) = match step.asked_at() {
                Some(at) if !has_expired(step, turn) => (Seen::Members, at),
                Some(_) | None => (Seen::World, turn.now),
            };
            step.enter(NodeState::Refresh, turn.now);
            let verb = Verb::Refresh { credentials: step.credentials.clone(), restart: true };
            step.ask_on(turn, seen, seen_at, vec![(step.role.clone(), instance, verb)]);
            Look::Waits("takes its new credentials".to_owned())
        }
    }
}

fn refresh(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(answers) = step.answers::<Refreshed>(turn) else {
        return Look::Waits("takes its new credentials".to_owned());
    };
    let answer = answers.into_iter().next().map(|(_, answer)| answer);
    let taken = answer.unwrap_or_else(|| Err("nobody was asked".to_owned())).and_then(|answer| {
        let has = answer.credentials;
        if has == step.credentials { Ok(()) } else { Err(format!("it has the credentials {has}")) }
    });
    match taken {
        Ok(()) => {
            step.done.extend(step.machine.clone());
            step.enter(NodeState::After, turn.now)
        }
        Err(why) => step.again(turn, "refreshing", &why),
    }
}

fn returns(step: &mut NodeStep, turn: &Turn<'_>, group: &GroupView) -> Look {
    if serving(group).any(|(id, machine)| Some(id) != step.machine.as_ref() && is_current(group, machine)) {
        return step.enter(NodeState::After, turn.now);
    }
    // It was decided and never done: what it was decided on became too old.
    let stays = step.machine.is_some() && machine(group) == step.machine;
    if stays && step.has_waited(turn) > RECONSIDERED {
        return step.enter(NodeState::Waiting, turn.now);
    }
    let boots = boots(group, &turn.observed.booting);
    if step.has_waited(turn) > PATIENCE {
        let minutes = PATIENCE.as_mins();
        return step.fail(format!("nobody took the place of its machine within {minutes} minutes: {boots}"));
    }
    Look::Waits(format!("waits for its new machine: {boots}"))
}

fn after(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(answers) = said_by_all(step, turn) else { return asks() };
    let reasons = danger::of_member(None, &answers);
    // The others' certificates may still be those that have expired: theirs is the next turn.
    let is_last = turn.members.keys().next_back() == Some(&step.role);
    if reasons.is_empty() || (goes_on(step, turn) && !is_last) {
        step.machine = None;
        return step.enter(NodeState::Done, turn.now);
    }
    patience(step, turn, "is not well with the others", &reasons)
}
