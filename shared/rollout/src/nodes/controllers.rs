//! Controllers that are replaced, that take new credentials in place, or of which there is one too many.
//!
//! One at a time, and only while every other API server is well (P5); who is replaced goes only once there is one more than there need be.
//!
//! A controller is well when its API server says so and when every load balancer that it is a target of sends requests to it: clients come
//! by these, and a target takes several health checks until it counts. So its successor serves them before an only controller goes.
//!
//! Between two minors (kubernetes.io/releases/version-skew-policy) the step ends only when no API server of the older one is left, since what
//! comes after it, workers and add-ons, may be newer than none of them.

mod state;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::deadline::Urgency;
use slipway_core::node::{NodeStatus, Verb};
use slipway_core::role::Role;

use super::super::Effect;
use super::super::departures::Departure;
use super::super::drain::{Drain, DrainProgress, Patience};
use super::super::errand::{Asked, Round};
use super::super::fleet::GroupView;
use super::super::outbox::{FRESH, Seen};
use super::super::waits::{Asks, Boot, Boots, Comes, Danger, Departs, HowFar, Looked, Many, Waits};
use super::credentials::{earlier_boot, outdated};
use super::idle::surely;
use super::machine::{Machine, Move, State, Tries, waited, waits_for};
use super::member::grace_is_over;
use super::members::{no_snapshot, refreshed, snapshot, take_snapshot};
use super::{PATIENCE, Phase, RECONSIDERED, Turn, counting, danger, is_current, serves, serving};

pub(crate) use state::{Controllers, ControllersState, ControllersWork, Cordon};

/// How long pods may hold up a controller: they are few, and their budgets are the cluster's own.
const DRAIN_PATIENCE: SignedDuration = slipway_core::deadline::CONTROLLER_DRAIN;

type To = Move<ControllersState>;

impl Machine for Controllers {
    type State = ControllersState;

    fn phase_mut(&mut self) -> &mut Phase<ControllersState> {
        &mut self.phase
    }

    fn tries(&self) -> Option<&Tries> {
        Some(&self.tries)
    }

    fn next_move(
        &mut self,
        state: ControllersState,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
    ) -> To {
        let Some(view) = turn.observed.groups.get(turn.group) else {
            return Move::Stay(state, Waits::Look(Looked::Machines));
        };
        let Some(group) = view else { return Move::Fail(turn.no_group()) };
        match state {
            ControllersState::Look { idle_since } => self.choose(idle_since, since, turn, group),
            ControllersState::Check { machine, round } => self.check(machine, round, *since, turn, group),
            ControllersState::Snapshot { machine, asked } => match snapshot(&asked, turn) {
                None => Move::Stay(ControllersState::Snapshot { machine, asked }, Waits::Snapshot),
                Some(Ok(())) => Move::To(checks(machine)),
                Some(Err(why)) => self.tries.again("a snapshot before", &machine, &why, turn.now),
            },
            ControllersState::Refresh(asked) => self.refresh(asked, turn),
            ControllersState::OneMore => self.one_more(*since, turn, group),
            ControllersState::Drain { machine, drain } => self.drain(machine, drain, *since, turn, group),
            ControllersState::Leave { machine } => self.leave(machine, *since, turn, group),
            ControllersState::Verify(round) => self.verify(round, *since, turn, group),
        }
    }
}

impl Controllers {
    /// Whether machines of before are gone, or have changed, when it is done.
    const fn renews(&self) -> bool {
        match self.work {
            ControllersWork::Refresh { .. } | ControllersWork::Replace => true,
            ControllersWork::Fewer { .. } => false,
        }
    }

    /// Certificates that have expired are why the others do not answer (P7): only a refresh can do without them.
    pub(super) const fn has_expired(&self, urgency: Urgency) -> bool {
        match self.work {
            ControllersWork::Refresh { .. } => urgency.has_expired(),
            ControllersWork::Replace | ControllersWork::Fewer { .. } => false,
        }
    }

    /// Those that serve and still have to change.
    fn outdated<'g>(&self, turn: &Turn<'_>, group: &'g GroupView) -> Vec<&'g String> {
        if self.renews() { outdated(&self.done, turn, group) } else { Vec::new() }
    }

    /// Whether there are more controllers than there are to be: a rollout that ended early may have left one, and the next takes it away,
    /// whatever else it does to them. Where nothing may hold it up, that waits. One that the group does not want is Auto Scaling's own: it
    /// launches first and terminates then where it balances the zones, and takes it away by itself.
    fn too_many(&self, turn: &Turn<'_>, group: &GroupView) -> bool {
        !self.has_expired(turn.urgency) && self.has_spare(group)
    }

    /// Whether one more than there are to be was asked for, and is there.
    fn has_spare(&self, group: &GroupView) -> bool {
        group.desired > self.size && counting(group).count() > self.size as usize
    }

    /// Whether one more serves than there are to be.
    fn can_spare(&self, group: &GroupView) -> bool {
        self.has_spare(group) && serving(group).count() > self.size as usize
    }

    /// A controller too many that its group wants and has not launched yet, since one died meanwhile: it goes when it has come. To want one
    /// less at once would have Auto Scaling choose who goes.
    fn still_to_come(&self, turn: &Turn<'_>, group: &GroupView) -> Option<Danger> {
        (!self.has_expired(turn.urgency) && group.desired > self.size).then(|| Danger::StillToCome {
            group: turn.group.to_owned(),
            desired: group.desired,
            size: self.size,
        })
    }

    /// Windows bound the start: one that is cordoned has begun, and would stay so until the next window.
    fn may_go_on(&self, id: &String, turn: &Turn<'_>) -> bool {
        self.cordon.as_ref().is_some_and(|cordon| cordon.machine == *id) || turn.may_start()
    }

    /// The drain that a controller is asked for, if one is.
    pub(super) fn drain_asked(&self) -> Option<Asked> {
        match self.phase.state()? {
            ControllersState::Drain { drain, .. } => drain.asked.clone(),
            ControllersState::Look { .. }
            | ControllersState::Check { .. }
            | ControllersState::Snapshot { .. }
            | ControllersState::Refresh(_)
            | ControllersState::OneMore
            | ControllersState::Leave { .. }
            | ControllersState::Verify(_) => None,
        }
    }

    /// A controller that was cordoned does not go now: pods may come to it again ([`Departure`]). `asked`: the drain that may still run.
    pub(super) fn call_off(
        &mut self,
        asked: Option<Asked>,
        role: &Role,
        group: &str,
        departures: &mut BTreeMap<String, Departure>,
        now: Timestamp,
    ) {
        let Some(cordon) = self.cordon.take() else { return };
        departures.insert(cordon.machine, Departure::called_off(role.clone(), group, asked, now));
    }

    fn choose(
        &mut self,
        idle_since: Option<Timestamp>,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        since.get_or_insert(turn.now);
        let mut outdated = self.outdated(turn, group);
        // One more than there are to be, left by whoever died between two calls: the last of them goes as the others did.
        if outdated.is_empty() && self.too_many(turn, group) {
            outdated.extend(serving(group).map(|(id, _)| id).filter(|id| !turn.skipped.contains(*id)).last());
        }
        // One whose pods have left already goes first; else the choice is made anew each time, since it depends on who is there.
        let cordoned = self.cordon.as_ref().map(|cordon| &cordon.machine);
        let kept = cordoned.filter(|id| outdated.contains(id)).cloned();
        let first = kept.or_else(|| first_to_go(&outdated, group).cloned());
        if cordoned != first.as_ref() {
            self.call_off(None, turn.role, turn.group, turn.departures, turn.now);
        }
        // What was called off takes pods again before anything else is done to it.
        if let Some(id) = outdated.iter().find(|id| turn.departs(id)) {
            return Move::Stay(ControllersState::start(), Waits::Uncordon((*id).clone()));
        }
        let Some(first) = first else { return self.none_to_go(idle_since, *since, turn, group) };
        // Nobody of before is waited for yet.
        *since = None;
        if !self.may_go_on(&first, turn) {
            return Move::Stay(ControllersState::start(), turn.window());
        }
        self.tries.choose(&first);
        Move::To(checks(first))
    }

    fn none_to_go(
        &mut self,
        idle_since: Option<Timestamp>,
        since: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        // One of before that is still coming up has to come up first.
        let comes = self.renews() && earlier_boot(&self.done, turn, group);
        if comes && waited(since, turn.now) <= PATIENCE {
            let boots = Boot::of(group, &turn.observed.booting);
            return Move::Stay(ControllersState::start(), Waits::Boot(Comes::Earlier, boots));
        }
        if let Some(why) = holds_back(turn, group) {
            return Move::Fail(why);
        }
        let idle_since = idle_since.unwrap_or(turn.now);
        if self.renews() && self.done.is_empty() && !surely(idle_since, turn.now) {
            let state = ControllersState::Look { idle_since: Some(idle_since) };
            return Move::Stay(state, Waits::SecondLook(Many::Several));
        }
        Move::To(ControllersState::Verify(Round::default()))
    }

    /// What keeps a controller from being taken down, `goes` if it is known which; `None`: it is not known yet.
    fn dangers(
        &self,
        round: &Round,
        turn: &Turn<'_>,
        group: &GroupView,
        goes: Option<&String>,
    ) -> Option<Vec<Danger>> {
        let answers = round.answers::<NodeStatus>(turn.observed, turn.now)?.into_iter();
        let statuses = answers.map(|(asked, status)| (asked.command.instance.clone(), status)).collect();
        let mut dangers = danger::of_controller(&statuses);
        // Where certificates have expired nobody asked.
        if !self.has_expired(turn.urgency) {
            dangers.extend(danger::of_targets(serving(group).filter(|(id, _)| Some(*id) != goes)));
        }
        let serve = serving(group).count();
        if serve < self.size as usize {
            let boots = Boot::of(group, &turn.observed.booting);
            dangers.push(Danger::TooFew { serve, size: self.size, boots });
        }
        Some(dangers)
    }

    fn check(
        &mut self,
        id: String,
        round: Round,
        since: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        if turn.skipped.contains(&id) || !serves(group, &id) {
            return Move::To(ControllersState::start());
        }
        let alone = serving(group).count() == 1 && self.size == 1;
        let refreshes = matches!(self.work, ControllersWork::Refresh { .. });
        if self.has_expired(turn.urgency) || (alone && refreshes) {
            return self.act(id, &round, since, alone, turn, group);
        }
        let check = |round| ControllersState::Check { machine: id.clone(), round };
        let asks = |round| Move::Stay(check(round), Waits::Answers(Asks::OtherControllers));
        // Where nobody else serves, the one that is to go says how it is: another joins it first.
        let except = (!alone).then_some(&id);
        let round = if round.is_empty() {
            let round = ask_the_others(turn, group, except);
            if !round.is_empty() {
                return asks(round);
            }
            round
        } else {
            round
        };
        let Some(dangers) = self.dangers(&round, turn, group, Some(&id)) else { return asks(round) };
        if !dangers.is_empty() {
            let ask = |turn: &mut Turn<'_>| ask_the_others(turn, group, except);
            return waits_for(dangers, round, since, turn, "may not be taken down", ask, check);
        }
        if round.at().is_none_or(|at| turn.now.duration_since(at) > FRESH) {
            return asks(ask_the_others(turn, group, except));
        }
        if !self.may_go_on(&id, turn) {
            return Move::To(ControllersState::start());
        }
        self.act(id, &round, since, alone, turn, group)
    }

    /// Takes `id` down, or has it take its credentials; `round`: what the others said.
    fn act(
        &mut self,
        id: String,
        round: &Round,
        since: Option<Timestamp>,
        alone: bool,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        let is_outdated = self.outdated(turn, group).contains(&&id);
        match &self.work {
            ControllersWork::Refresh { credentials } if is_outdated => {
                // A single API server is never stopped: what it reads at its start alone needs another machine first (P5).
                let restart = !alone || self.has_expired(turn.urgency);
                let verb = Verb::Refresh { credentials: credentials.clone(), restart };
                // Where nothing may hold it up, it is not decided on what the others said.
                let (seen, at) = match round.at() {
                    Some(at) if !self.has_expired(turn.urgency) => (Seen::Controllers, at),
                    Some(_) | None => (Seen::World, turn.now),
                };
                let waits = Waits::Credentials(vec![id.clone()]);
                let asked = turn.ask_one_on(seen, at, turn.role, id, verb);
                Move::Enter(ControllersState::Refresh(asked), waits)
            }
            // What it was chosen for may be over: another went meanwhile.
            ControllersWork::Refresh { .. } | ControllersWork::Fewer { .. } | ControllersWork::Replace
                if !is_outdated && !self.too_many(turn, group) =>
            {
                Move::To(ControllersState::start())
            }
            ControllersWork::Refresh { .. } | ControllersWork::Fewer { .. } | ControllersWork::Replace => {
                self.replace(id, round, since, turn, group)
            }
        }
    }

    /// There is one more than there are to be: this one goes. Or else one more comes.
    fn replace(
        &mut self,
        id: String,
        round: &Round,
        since: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        // Once an API server of another minor writes to etcd, what it wrote may be for that minor alone: the way back is a snapshot.
        let first = turn.minor.is_some() && !counting(group).any(|(_, machine)| is_current(group, machine));
        if first && !danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) {
            return match take_snapshot(turn) {
                Some(asked) => {
                    Move::Enter(ControllersState::Snapshot { machine: id, asked }, Waits::Snapshot)
                }
                None if waited(since, turn.now) > PATIENCE => Move::Fail(no_snapshot()),
                None => Move::Stay(checks(id), Waits::Snapshot),
            };
        }
        if self.can_spare(group) {
            let is_empty = self.cordon.as_ref().is_some_and(|one| one.machine == id && one.drained);
            if !is_empty {
                return Move::To(ControllersState::Drain { machine: id, drain: Drain::default() });
            }
            let (group, instance, then_desired) = (turn.group.to_owned(), id.clone(), Some(self.size));
            let effect = Effect::Terminate { group, instance, then_desired };
            turn.effects.push_on(effect, Seen::Controllers, round.at().unwrap_or(turn.now));
            return Move::Enter(ControllersState::Leave { machine: id }, Waits::ControllerLeaves);
        }
        if group.max <= self.size {
            return Move::Fail(format!(
                "{} may have {} machines at most, and one more than {} has to come before one goes: upload the spec again, which lets it",
                turn.group, group.max, self.size
            ));
        }
        if group.desired <= self.size {
            turn.effects.push(Effect::SetDesired { group: turn.group.to_owned(), desired: self.size + 1 });
        }
        Move::Enter(ControllersState::OneMore, Waits::OneMoreController)
    }

    /// Its pods are evicted, by another controller; then it is looked at once more.
    fn drain(
        &mut self,
        id: String,
        mut drain: Drain,
        since: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        // If it does not serve, it is gone, or the answer is late: then what was asked for would cordon it after it has been told to take pods
        // again.
        if !serves(group, &id) || turn.skipped.contains(&id) {
            self.call_off(drain.asked, turn.role, turn.group, turn.departures, turn.now);
            return Move::To(ControllersState::start());
        }
        let patience = since.map(|since| Patience { since, most: DRAIN_PATIENCE });
        match drain.progress(&id, turn.observed, turn.now, patience) {
            DrainProgress::Runs | DrainProgress::Pauses => {}
            DrainProgress::Empty => {
                self.cordon = Some(Cordon { machine: id.clone(), drained: true });
                return Move::To(checks(id));
            }
            DrainProgress::GivenUp(why) => return Move::Fail(why),
            DrainProgress::Idle => {
                // Another one each time: one may be out of reach.
                let others: Vec<&String> =
                    serving(group).map(|(one, _)| one).filter(|one| **one != id).collect();
                let turns = *turn.rounds as usize % others.len().max(1);
                let Some(other) = others.get(turns).copied() else {
                    if waited(since, turn.now) > PATIENCE {
                        return Move::Fail(format!("no controller serves that could drain {id}"));
                    }
                    let waits = Waits::Drainer(id.clone());
                    return Move::Stay(ControllersState::Drain { machine: id, drain }, waits);
                };
                let verb = Drain::verb(&id, self.force_after_s);
                drain.asked = Some(turn.ask_one(turn.role, other.clone(), verb));
                // It need not take pods again any more.
                turn.departures.remove(&id);
                self.cordon = Some(Cordon { machine: id.clone(), drained: false });
            }
        }
        let waits = Departs { machine: id.clone(), how: HowFar::Drains(drain.held.clone()) };
        Move::Stay(ControllersState::Drain { machine: id, drain }, Waits::Departure(waits))
    }

    fn one_more(&mut self, since: Option<Timestamp>, turn: &Turn<'_>, group: &GroupView) -> To {
        // Who goes depends on the zone in which it came.
        if self.can_spare(group) {
            return Move::To(ControllersState::start());
        }
        // It was decided and never done.
        if waited(since, turn.now) > RECONSIDERED && group.desired <= self.size {
            return Move::To(ControllersState::start());
        }
        let boots = Boot::of(group, &turn.observed.booting);
        if waited(since, turn.now) > PATIENCE {
            return Move::Fail(format!(
                "no new controller came within {} minutes: {}; {} wants {} machines until a rollout goes on",
                PATIENCE.as_mins(),
                Boots(&boots),
                turn.group,
                self.size + 1
            ));
        }
        Move::Stay(ControllersState::OneMore, Waits::Boot(Comes::OneMore, boots))
    }

    fn leave(&mut self, id: String, since: Option<Timestamp>, turn: &Turn<'_>, group: &GroupView) -> To {
        if !group.machines.contains_key(&id) {
            self.cordon = None;
            return Move::To(ControllersState::Verify(Round::default()));
        }
        // It was decided and never done.
        if waited(since, turn.now) > RECONSIDERED && serves(group, &id) {
            return Move::To(ControllersState::start());
        }
        if waited(since, turn.now) > PATIENCE {
            let minutes = PATIENCE.as_mins();
            return Move::Fail(format!("{id} was terminated and is still there after {minutes} minutes"));
        }
        let waits = Departs { machine: id.clone(), how: HowFar::Leaves };
        Move::Stay(ControllersState::Leave { machine: id }, Waits::Departure(waits))
    }

    fn refresh(&mut self, asked: Asked, turn: &Turn<'_>) -> To {
        let id = asked.command.instance.clone();
        match refreshed(&asked, turn) {
            None => Move::Stay(ControllersState::Refresh(asked), Waits::Credentials(vec![id])),
            Some(Ok(())) => {
                self.done.insert(id);
                self.tries.forget();
                Move::To(ControllersState::Verify(Round::default()))
            }
            Some(Err(why)) => self.tries.again("refreshing", &id, &why, turn.now),
        }
    }

    fn verify(
        &mut self,
        round: Round,
        since: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        let asks = |round| Move::Stay(ControllersState::Verify(round), Waits::Answers(Asks::Controllers));
        let round = if round.is_empty() {
            let round = ask_the_others(turn, group, None);
            if !round.is_empty() {
                return asks(round);
            }
            round
        } else {
            round
        };
        let Some(mut dangers) = self.dangers(&round, turn, group, None) else { return asks(round) };
        let more = self.too_many(turn, group) || !self.outdated(turn, group).is_empty();
        if !more {
            dangers.extend(linger(turn, group));
            dangers.extend(self.still_to_come(turn, group));
        }
        if dangers.is_empty() || (grace_is_over(self.has_expired(turn.urgency), since, turn.now) && more) {
            if more {
                return Move::To(ControllersState::start());
            }
            return Move::Done { left: serving(group).any(|(id, _)| turn.skipped.contains(id)) };
        }
        let ask = |turn: &mut Turn<'_>| ask_the_others(turn, group, None);
        let what = "the controllers are not well";
        waits_for(dangers, round, since, turn, what, ask, ControllersState::Verify)
    }
}

/// The others are to be asked whether they can do without `machine`.
fn checks(machine: String) -> ControllersState {
    ControllersState::Check { machine, round: Round::default() }
}

/// Of machines that are to go the first of the zone that has most: where the zones are balanced without it, Auto Scaling has no reason to
/// balance them (docs.aws.amazon.com/autoscaling/ec2/userguide/auto-scaling-benefits.html, "Rebalancing activities").
fn first_to_go<'g>(outdated: &[&'g String], group: &GroupView) -> Option<&'g String> {
    let in_zone = |zone: &str| counting(group).filter(|(_, machine)| machine.zone == zone).count();
    let most = |id: &&&String| group.machines.get(**id).map(|machine| in_zone(&machine.zone));
    // Of several that are equal, the last wins: so the first of all is looked at last.
    outdated.iter().rev().max_by_key(most).copied()
}

/// A controller of an older minor that a person said to leave: nothing may be newer than its API server.
fn holds_back(turn: &Turn<'_>, group: &GroupView) -> Option<String> {
    let minor = turn.minor?;
    let (left, _) = serving(group).find(|(id, one)| turn.skipped.contains(*id) && !is_current(group, one))?;
    Some(format!(
        "{left} is left as it is, as it was told, in the midst of {minor}: workers and add-ons may not be newer than its API server. \
         Upload the spec again, which does not leave it"
    ))
}

/// API servers of an older minor that answer as long as their machine is there, on its way out or not.
fn linger(turn: &Turn<'_>, group: &GroupView) -> Vec<Danger> {
    let of_before =
        group.machines.iter().filter(|(_, machine)| turn.minor.is_some() && !is_current(group, machine));
    of_before.map(|(id, _)| Danger::Lingers(id.clone())).collect()
}

/// Asks all controllers but `except` how they are.
fn ask_the_others(turn: &mut Turn<'_>, group: &GroupView, except: Option<&String>) -> Round {
    let others = serving(group).filter(|(id, _)| Some(*id) != except);
    let whom = others.map(|(id, _)| (turn.role.clone(), id.clone(), Verb::Status)).collect();
    turn.ask(whom)
}
