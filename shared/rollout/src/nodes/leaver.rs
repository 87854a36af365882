//! A member of etcd that is taken out of the membership, before the stack of etcd is updated, which takes its group away (P4).
//!
//! One at a time: a snapshot, every voter well, leadership elsewhere; then a member that stays is told to remove it, and all that are left
//! are asked whether they are well and of one mind about who is a member. Only then the next begins. Its machine stands until the stack is updated.

use super::super::outbox::Seen;
use super::danger::{self, Answers};
use super::member::{
    asks, everyone, leader, machine, may_start, out_of_date, patience, said_by_all, snapshot,
};
use super::{Look, NodeState, NodeStep, Turn};
use slipway_core::node::{EtcdMemberHealth, MemberRemoved, Verb};
use slipway_core::pki::Role;

/// Looks at a member once.
pub(super) fn look(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    match &step.state {
        NodeState::Waiting => begin(step, turn),
        NodeState::Snapshot => snapshot(step, turn),
        NodeState::Check => check(step, turn),
        NodeState::Leader => match turn.observed.groups.get(&step.group) {
            Some(Some(group)) => leader(step, turn, group),
            Some(None) => step.enter(NodeState::Waiting, turn.now),
            None => Look::Waits("looks at its machine".to_owned()),
        },
        NodeState::Leave => leave(step, turn),
        NodeState::Refresh | NodeState::Return | NodeState::Drain | NodeState::After => after(step, turn),
        NodeState::Done => Look::Again,
        NodeState::Failed(why) => Look::Waits(why.clone()),
    }
}

fn begin(step: &mut NodeStep, turn: &Turn<'_>) -> Look {
    if step.since.is_none() {
        step.since = Some(turn.now);
    }
    let Some(view) = turn.observed.groups.get(&step.group) else {
        return Look::Waits("looks at its machine".to_owned());
    };
    step.machine = view.as_ref().and_then(machine);
    if let Some(id) = step.machine.as_ref().filter(|id| turn.skipped.contains(*id)) {
        let why = format!(
            "{id} is left as it is, as it was told, and its group would go while it is a member: upload the spec again, which does not leave it"
        );
        return step.fail(why);
    }
    if !may_start(turn) {
        return Look::Waits(turn.waits_for_window.clone());
    }
    let fresh = danger::is_fresh_snapshot(*turn.snapshot_at, turn.now);
    step.enter(if fresh { NodeState::Check } else { NodeState::Snapshot }, turn.now)
}

/// Whether all of the others that answer know of it no longer.
fn is_out(step: &NodeStep, answers: &Answers) -> bool {
    let name = step.role.to_string();
    let mut others =
        answers.iter().filter(|(role, _)| **role != step.role).filter_map(|(_, answer)| answer.as_ref().ok());
    let lacks = |members: &[EtcdMemberHealth]| {
        !members.is_empty() && members.iter().all(|member| member.name != name)
    };
    let first = others.next();
    first.is_some_and(|first| lacks(&first.members)) && others.all(|other| lacks(&other.members))
}

fn check(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(answers) = said_by_all(step, turn) else { return asks() };
    // The word of an earlier command that was lost, or of an earlier rollout that ended too early.
    if is_out(step, &answers) {
        return step.enter(NodeState::After, turn.now);
    }
    // One that is ill itself may go, if the others can do without it.
    let reasons = danger::of_member(None, &answers);
    if !reasons.is_empty() && !danger::of_member(Some(&step.role), &answers).is_empty() {
        return patience(step, turn, "may not be taken out", &reasons);
    }
    if let Some(look) = out_of_date(step, turn) {
        return look;
    }
    let leads = answers.get(&step.role).and_then(|answer| answer.as_ref().ok()).is_some_and(|own| own.leads);
    if leads {
        return step.enter(NodeState::Leader, turn.now);
    }
    let answered = |role: &Role| answers.get(role).is_some_and(Result::is_ok);
    let stays =
        everyone(turn).into_iter().find(|(role, _)| turn.staying.contains_key(*role) && answered(role));
    let Some((role, id)) = stays.map(|(role, id)| (role.clone(), id)) else {
        return Look::Waits("waits for a member that stays".to_owned());
    };
    let seen_at = step.asked_at().unwrap_or(turn.now);
    step.enter(NodeState::Leave, turn.now);
    step.ask_on(
        turn,
        Seen::Members,
        seen_at,
        vec![(role, id, Verb::EtcdRemove { member: step.role.to_string() })],
    );
    Look::Waits("is taken out of the membership".to_owned())
}

fn leave(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(answers) = step.answers::<MemberRemoved>(turn) else {
        return Look::Waits("is taken out of the membership".to_owned());
    };
    match answers.into_iter().next() {
        Some((_, Ok(_))) => step.enter(NodeState::After, turn.now),
        Some((_, Err(why))) => step.again(turn, "removing", &why),
        None => step.enter(NodeState::Waiting, turn.now),
    }
}

/// All but itself are well, and know of no other members.
fn after(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(mut answers) = said_by_all(step, turn) else {
        return Look::Waits("asks the members that are left how they are".to_owned());
    };
    answers.remove(&step.role);
    let reasons = danger::of_member(None, &answers);
    if reasons.is_empty() {
        step.machine = None;
        return step.enter(NodeState::Done, turn.now);
    }
    patience(step, turn, "is out of the membership, and the others are not well", &reasons)
}
