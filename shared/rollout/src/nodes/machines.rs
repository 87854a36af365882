//! Controllers that are replaced, and controllers and workers that take new credentials in place.
//!
//! Of controllers one at a time, and only while every other API server is well (P5); who is replaced goes only once there is one more
//! than there need be. Of a pool first one, then as many as it allows: a worker is not drained for new credentials, its pods go on while
//! its kubelet starts anew.
//!
//! Between two minors (kubernetes.io/releases/version-skew-policy) the controllers' step ends only when no API server of the older one is
//! left, since what comes after it, workers and add-ons, may be newer than none of them.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::super::Effect;
use super::super::departures::{DRAINS_FOR_S, waiting};
use super::super::fleet::GroupView;
use super::super::outbox::{FRESH, Seen};
use super::member::{goes_on, has_expired, may_start};
use super::{
    AT_A_TIME, Look, NodeState, NodeStep, PATIENCE, RECONSIDERED, Turn, Work, boots, counting, is_current,
    serving,
};
use super::{danger, member};
use slipway_core::node::{Drained, FailureCode, NodeStatus, Refreshed, Verb};
use slipway_core::pki::Role;

/// How long pods may hold up a controller: they are few, and their budgets are the cluster's own.
const DRAIN_PATIENCE: SignedDuration = slipway_core::renewal::deadline::CONTROLLER_DRAIN;

/// Looks at a group once.
pub(super) fn look(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(view) = turn.observed.groups.get(&step.group) else {
        return Look::Waits("looks at its machines".to_owned());
    };
    let Some(group) = view else {
        return step.fail(format!("there is no Auto Scaling group {}", step.group));
    };
    match &step.state {
        NodeState::Waiting => begin(step, turn, group),
        NodeState::Check => check(step, turn, group),
        NodeState::Refresh => refresh(step, turn),
        NodeState::Return => one_more(step, turn, group),
        NodeState::Drain => drain(step, turn, group),
        NodeState::Leave => leaves(step, turn, group),
        NodeState::After => after(step, turn, group),
        NodeState::Snapshot => member::snapshot(step, turn),
        // Not entered here.
        NodeState::Leader => step.enter(NodeState::Waiting, turn.now),
        NodeState::Done => Look::Again,
        NodeState::Failed(why) => Look::Waits(why.clone()),
    }
}

/// The machines that still have other credentials, and serve.
pub(super) fn stale<'g>(step: &NodeStep, turn: &Turn<'_>, group: &'g GroupView) -> Vec<&'g String> {
    let found = serving(group).filter(|(id, machine)| {
        step.work.renews()
            && !is_current(group, machine)
            && !step.done.contains(*id)
            && !turn.skipped.contains(*id)
    });
    found.map(|(id, _)| id).collect()
}

/// Whether there are more controllers than there are to be: a rollout that ended early may have left one, and the next takes it away,
/// whatever else it does to them. Where nothing may hold it up, that waits. One that the group does not want is Auto Scaling's own: it
/// launches first and terminates then where it balances the zones, and takes it away by itself.
fn too_many(step: &NodeStep, turn: &Turn<'_>, group: &GroupView) -> bool {
    step.role == Role::Controller && !has_expired(step, turn) && has_spare(step, group)
}

/// Whether one more than there are to be was asked for, and is there.
fn has_spare(step: &NodeStep, group: &GroupView) -> bool {
    group.desired > step.size && counting(group).count() > step.size as usize
}

/// Of machines that are to go the first of the zone that has most: where the zones are balanced without it, Auto Scaling has no reason to
/// balance them (docs.aws.amazon.com/autoscaling/ec2/userguide/auto-scaling-benefits.html, "Rebalancing activities").
fn first_to_go<'g>(stale: &[&'g String], group: &GroupView) -> Option<&'g String> {
    let in_zone = |zone: &str| counting(group).filter(|(_, machine)| machine.zone == zone).count();
    let most = |id: &&&String| group.machines.get(**id).map(|machine| in_zone(&machine.zone));
    // Of several that are equal, the last wins: so the first of all is looked at last.
    stale.iter().rev().max_by_key(most).copied()
}

/// A controller too many that its group wants and has not launched yet, since one died meanwhile: it goes when it has come. To want one
/// less at once would have Auto Scaling choose who goes.
fn still_to_come(step: &NodeStep, turn: &Turn<'_>, group: &GroupView) -> Option<String> {
    let wants_more = step.role == Role::Controller && !has_expired(step, turn) && group.desired > step.size;
    wants_more.then(|| {
        format!(
            "{} wants {} machines, and there are to be {}: one more is still to come, and goes then",
            step.group, group.desired, step.size
        )
    })
}

fn begin(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Look {
    if step.since.is_none() {
        step.since = Some(turn.now);
    }
    let mut stale = stale(step, turn, group);
    // One more than there are to be, left by whoever died between two calls: the last of them goes as the others did.
    if stale.is_empty() && too_many(step, turn, group) {
        stale.extend(serving(group).map(|(id, _)| id).filter(|id| !turn.skipped.contains(*id)).last());
    }
    // One whose pods have left already goes first; else the choice is made anew each time, since it depends on who is there.
    let cordoned = step.cordoned.as_ref().filter(|id| stale.contains(id)).cloned();
    let first = cordoned.or_else(|| first_to_go(&stale, group).cloned());
    if step.cordoned != first {
        step.call_off(turn.departures, turn.now);
    }
    // What was called off takes pods again before anything else is done to it.
    let called_off = stale.iter().find(|id| turn.departures.contains_key(**id));
    if let Some(id) = called_off.filter(|_| step.role == Role::Controller) {
        return Look::Waits(format!("has {id} take pods again"));
    }
    let Some(first) = first else {
        // One of before that is still coming up has to come up first.
        let comes = counting(group).any(|(id, machine)| {
            step.work.renews()
                && !is_current(group, machine)
                && !step.done.contains(id)
                && !turn.skipped.contains(id)
        });
        if comes && step.has_waited(turn) <= PATIENCE {
            let boots = boots(group, &turn.observed.booting);
            return Look::Waits(format!("waits for a machine of before: {boots}"));
        }
        if let Some(why) = holds_back(step, turn, group) {
            return step.fail(why);
        }
        if !step.is_surely_idle(turn.now) {
            return Look::Waits("makes sure that its machines are as planned".to_owned());
        }
        step.left = serving(group).any(|(id, _)| turn.skipped.contains(id));
        return step
            .enter(if step.role == Role::Controller { NodeState::After } else { NodeState::Done }, turn.now);
    };
    if !may_start(turn) {
        return Look::Waits(turn.waits_for_window.clone());
    }
    if step.machine.as_ref() != Some(&first) {
        step.machine = Some(first);
        step.tries = 0;
    }
    if step.role == Role::Controller {
        return step.enter(NodeState::Check, turn.now);
    }
    // Before the first has taken them, nobody else does.
    let of = u32::try_from(counting(group).count()).unwrap_or(u32::MAX);
    let width = if step.done.is_empty() { 1 } else { step.pace.may_miss(of).clamp(1, AT_A_TIME) };
    let whom: Vec<String> = stale.into_iter().take(width as usize).cloned().collect();
    ask_to_refresh(step, turn, whom, true)
}

/// A controller of an older minor that a person said to leave: nothing may be newer than its API server.
fn holds_back(step: &NodeStep, turn: &Turn<'_>, group: &GroupView) -> Option<String> {
    let minor = step.minor.as_ref().filter(|_| step.role == Role::Controller)?;
    let (left, _) = serving(group).find(|(id, one)| turn.skipped.contains(*id) && !is_current(group, one))?;
    Some(format!(
        "{left} is left as it is, as it was told, in the midst of {minor}: workers and add-ons may not be newer than its API server. \
         Upload the spec again, which does not leave it"
    ))
}

fn ask_to_refresh(step: &mut NodeStep, turn: &mut Turn<'_>, whom: Vec<String>, restart: bool) -> Look {
    step.enter(NodeState::Refresh, turn.now);
    let verb = Verb::Refresh { credentials: step.credentials.clone(), restart };
    let role = step.role.clone();
    step.ask(turn, whom.into_iter().map(|id| (role.clone(), id, verb.clone())).collect());
    Look::Waits(taking(step))
}

fn taking(step: &NodeStep) -> String {
    let whom: Vec<&str> = step.asked.iter().map(|asked| asked.command.instance.as_str()).collect();
    match whom.as_slice() {
        [one] => format!("{one} takes its new credentials"),
        _ => format!("{} machines take their new credentials", whom.len()),
    }
}

/// Asks all controllers but `except` how they are.
fn ask_the_others(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView, except: Option<&String>) {
    let others = serving(group).filter(|(id, _)| Some(*id) != except);
    let whom = others.map(|(id, _)| (step.role.clone(), id.clone(), Verb::Status)).collect();
    step.ask(turn, whom);
}

fn statuses(step: &NodeStep, turn: &Turn<'_>) -> Option<BTreeMap<String, Result<NodeStatus, String>>> {
    let answers = step.answers(turn)?.into_iter();
    let answers = answers.map(|(asked, status)| (asked.command.instance.clone(), status));
    Some(answers.collect())
}

/// What keeps a controller from being taken down; `None`: it is not known yet.
fn reasons(step: &NodeStep, turn: &Turn<'_>, group: &GroupView) -> Option<Vec<String>> {
    let mut reasons = danger::of_controller(&statuses(step, turn)?);
    let serve = serving(group).count();
    if serve < step.size as usize {
        reasons.push(format!(
            "{serve} of {} controllers are in service: {}",
            step.size,
            boots(group, &turn.observed.booting)
        ));
    }
    Some(reasons)
}

/// API servers of an older minor that answer as long as their machine is there, on its way out or not.
fn linger(step: &NodeStep, group: &GroupView) -> Vec<String> {
    let of_before =
        group.machines.iter().filter(|(_, machine)| step.minor.is_some() && !is_current(group, machine));
    of_before.map(|(id, _)| format!("{id}, of the older minor, is still there")).collect()
}

fn check(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Look {
    let may_go = |id: &String| !turn.skipped.contains(id) && serving(group).any(|(one, _)| one == id);
    let Some(id) = step.machine.clone().filter(may_go) else {
        return step.enter(NodeState::Waiting, turn.now);
    };
    let alone = serving(group).count() == 1 && step.size == 1;
    let asks_nobody = has_expired(step, turn) || (alone && step.work == Work::Refresh);
    if !asks_nobody {
        let waits = || Look::Waits("asks the other controllers how they are".to_owned());
        if step.asked.is_empty() {
            // Where nobody else serves, the one that is to go says how it is: another joins it first.
            let except = (!alone).then_some(&id);
            ask_the_others(step, turn, group, except);
            if !step.asked.is_empty() {
                return waits();
            }
        }
        let Some(reasons) = reasons(step, turn, group) else { return waits() };
        if !reasons.is_empty() {
            return patience(step, turn, group, "may not be taken down", &reasons, Some(&id));
        }
        if step.asked_at().is_none_or(|at| turn.now.duration_since(at) > FRESH) {
            ask_the_others(step, turn, group, (!alone).then_some(&id));
            return waits();
        }
        if !may_start(turn) {
            return step.enter(NodeState::Waiting, turn.now);
        }
    }
    // What it was chosen for may be over: another went meanwhile.
    if !too_many(step, turn, group) && !stale(step, turn, group).contains(&&id) {
        return step.enter(NodeState::Waiting, turn.now);
    }
    let only_too_many = too_many(step, turn, group) && !stale(step, turn, group).contains(&&id);
    if step.work == Work::Replace || only_too_many {
        return replace(step, turn, group, id);
    }
    // A single API server is never stopped: what it reads at its start alone needs another machine first (P5).
    ask_to_refresh(step, turn, vec![id], !alone || has_expired(step, turn))
}

/// There is one more than there are to be: this one goes. Or else one more comes.
fn replace(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView, id: String) -> Look {
    let size = step.size as usize;
    // Once an API server of another minor writes to etcd, what it wrote may be for that minor alone: the way back is a snapshot.
    let first = step.minor.is_some() && !counting(group).any(|(_, machine)| is_current(group, machine));
    if first && !danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) {
        return step.enter(NodeState::Snapshot, turn.now);
    }
    if has_spare(step, group) && serving(group).count() > size {
        if step.drained.as_ref() != Some(&id) {
            return step.enter(NodeState::Drain, turn.now);
        }
        let seen_at = step.asked_at().unwrap_or(turn.now);
        step.enter(NodeState::Leave, turn.now);
        let (group, then_desired) = (step.group.clone(), Some(step.size));
        let effect = Effect::Terminate { group, instance: id, then_desired };
        turn.effects.push_on(effect, Seen::Controllers, seen_at);
        return Look::Waits("a controller leaves".to_owned());
    }
    if group.max <= step.size {
        return step.fail(format!(
            "{} may have {} machines at most, and one more than {} has to come before one goes: upload the spec again, which lets it",
            step.group, group.max, step.size
        ));
    }
    step.enter(NodeState::Return, turn.now);
    if group.desired <= step.size {
        turn.effects.push(Effect::SetDesired { group: step.group.clone(), desired: step.size + 1 });
    }
    Look::Waits("one more controller comes".to_owned())
}

/// Its pods are evicted, by another controller; then it is looked at once more.
fn drain(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Look {
    let Some(id) = step.machine.clone().filter(|id| serving(group).any(|(one, _)| one == id)) else {
        return step.enter(NodeState::Waiting, turn.now);
    };
    if turn.skipped.contains(&id) {
        step.call_off(turn.departures, turn.now);
        return step.enter(NodeState::Waiting, turn.now);
    }
    if step.asked.is_empty() {
        let Some((other, _)) = serving(group).find(|(one, _)| **one != id) else {
            if step.has_waited(turn) > PATIENCE {
                return step.fail(format!("no controller serves that could drain {id}"));
            }
            return Look::Waits(format!("waits for a controller that drains {id}"));
        };
        let verb = Verb::Drain { node: id.clone(), for_s: DRAINS_FOR_S, force_after_s: step.force_after_s };
        step.ask(turn, vec![(step.role.clone(), other.clone(), verb)]);
        step.cordoned = Some(id.clone());
    }
    let Some(answers) = step.answers::<Drained>(turn) else { return Look::Waits(format!("drains {id}")) };
    let Some((_, answer)) = answers.into_iter().next() else {
        return step.enter(NodeState::Waiting, turn.now);
    };
    let answer = match answer {
        Ok(answer) => answer,
        // What is no node has no pods.
        Err(_) if step.is_told(turn, FailureCode::DrainNoNode) => {
            step.drained = Some(id);
            return step.enter(NodeState::Check, turn.now);
        }
        Err(why) => return step.again(turn, "draining", &why),
    };
    if answer.done {
        step.drained = Some(id);
        return step.enter(NodeState::Check, turn.now);
    }
    let waiting = waiting(&answer);
    if step.has_waited(turn) > DRAIN_PATIENCE {
        return step.fail(format!(
            "{id} could not be drained within {} hours: {waiting}",
            DRAIN_PATIENCE.as_hours()
        ));
    }
    step.asked.clear();
    Look::Waits(format!("drains {id}, which waits for {waiting}"))
}

fn one_more(step: &mut NodeStep, turn: &Turn<'_>, group: &GroupView) -> Look {
    // Who goes depends on the zone in which it came.
    if has_spare(step, group) && serving(group).count() > step.size as usize {
        return step.enter(NodeState::Waiting, turn.now);
    }
    // It was decided and never done.
    if step.has_waited(turn) > RECONSIDERED && group.desired <= step.size {
        return step.enter(NodeState::Waiting, turn.now);
    }
    let boots = boots(group, &turn.observed.booting);
    if step.has_waited(turn) > PATIENCE {
        let (minutes, one_more) = (PATIENCE.as_mins(), step.size + 1);
        return step.fail(format!(
            "no new controller came within {minutes} minutes: {boots}; {} wants {one_more} machines until a rollout goes on",
            step.group
        ));
    }
    Look::Waits(format!("waits for one more controller: {boots}"))
}

fn leaves(step: &mut NodeStep, turn: &Turn<'_>, group: &GroupView) -> Look {
    let Some(id) = step.machine.clone().filter(|id| group.machines.contains_key(id)) else {
        step.cordoned = None;
        return step.enter(NodeState::After, turn.now);
    };
    // It was decided and never done.
    if step.has_waited(turn) > RECONSIDERED && serving(group).any(|(one, _)| *one == id) {
        return step.enter(NodeState::Waiting, turn.now);
    }
    if step.has_waited(turn) > PATIENCE {
        return step
            .fail(format!("{id} was terminated and is still there after {} minutes", PATIENCE.as_mins()));
    }
    Look::Waits(format!("waits for {id} to leave"))
}

fn patience(
    step: &mut NodeStep,
    turn: &mut Turn<'_>,
    group: &GroupView,
    what: &str,
    reasons: &[String],
    except: Option<&String>,
) -> Look {
    let reasons = reasons.join("; ");
    if step.has_waited(turn) > PATIENCE {
        return step.fail(format!("{what} after {} minutes: {reasons}", PATIENCE.as_mins()));
    }
    if step.may_ask_again(turn) {
        ask_the_others(step, turn, group, except);
    }
    Look::Waits(format!("waits: {reasons}"))
}

fn refresh(step: &mut NodeStep, turn: &mut Turn<'_>) -> Look {
    let Some(answers) = step.answers::<Refreshed>(turn) else { return Look::Waits(taking(step)) };
    let (mut done, mut failed) = (Vec::new(), None);
    for (asked, answer) in answers {
        let instance = asked.command.instance.clone();
        match answer {
            Ok(answer) if answer.credentials == step.credentials => done.push(instance),
            Ok(answer) => failed = Some((instance, format!("it has the credentials {}", answer.credentials))),
            Err(why) => failed = Some((instance, why)),
        }
    }
    if !done.is_empty() && failed.is_none() {
        step.tries = 0;
    }
    step.done.extend(done);
    match failed {
        None if step.role == Role::Controller => step.enter(NodeState::After, turn.now),
        None => step.enter(NodeState::Waiting, turn.now),
        Some((instance, why)) => {
            step.machine = Some(instance);
            step.again(turn, "refreshing", &why)
        }
    }
}

fn after(step: &mut NodeStep, turn: &mut Turn<'_>, group: &GroupView) -> Look {
    let waits = || Look::Waits("asks all controllers how they are".to_owned());
    if step.asked.is_empty() {
        ask_the_others(step, turn, group, None);
        if !step.asked.is_empty() {
            return waits();
        }
    }
    let Some(mut reasons) = reasons(step, turn, group) else { return waits() };
    let more = too_many(step, turn, group) || !stale(step, turn, group).is_empty();
    if !more {
        reasons.extend(linger(step, group));
        reasons.extend(still_to_come(step, turn, group));
    }
    if reasons.is_empty() || (goes_on(step, turn) && more) {
        step.machine = None;
        step.left = serving(group).any(|(id, _)| turn.skipped.contains(id));
        return step.enter(if more { NodeState::Waiting } else { NodeState::Done }, turn.now);
    }
    patience(step, turn, group, "the controllers are not well", &reasons, None)
}
