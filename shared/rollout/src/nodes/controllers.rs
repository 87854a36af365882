//! Replacing or refreshing controllers, and removing a surplus one.
//!
//! One controller at a time, and only while every other API server is healthy (P5). Before a controller is replaced, an additional one is
//! in service.
//!
//! A controller is healthy when its API server says so and every load balancer that it is a target of sends requests to it: clients come
//! through these, and a target counts only after several health checks. So the successor of a single controller receives requests before
//! that controller is terminated.
//!
//! During a minor upgrade (kubernetes.io/releases/version-skew-policy) the step ends only when no API server of the older minor is left,
//! because workers and add-ons, which come next, may not be newer than any API server.

mod state;

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::deadline::Urgency;
use slipway_core::node::{NodeStatus, Verb};

use super::super::Effect;
use super::super::departures::{Departure, Ending};
use super::super::drain::EMPTY_FOR;
use super::super::errand::{Round, SentCommand};
use super::super::fleet::{GroupView, MachineView, TargetHealth};
use super::super::outbox::{Evidence, FRESH, Seen};
use super::super::waits::{Asks, Boot, Boots, Comes, Danger, Departs, HowFar, Many, ObservedParts, Waits};
use super::credentials::{earlier_boot, outdated};
use super::idle::is_idle_long_enough;
use super::machine::{Machine, Move, State, Tries, waited, waits_for};
use super::member::grace_is_over;
use super::members::{no_snapshot, refreshed, snapshot, take_snapshot};
use super::{
    CONSISTENT, PATIENCE, Phase, RECONSIDERED, Turn, counting, danger, is_current, serves, serving, stands_by,
};

pub(crate) use state::{Controllers, ControllersState, ControllersWork};

type To = Move<ControllersState>;

impl Machine for Controllers {
    type State = ControllersState;

    fn phase_mut(&mut self) -> &mut Phase<ControllersState> {
        &mut self.phase
    }

    fn tries_mut(&mut self) -> Option<&mut Tries> {
        Some(&mut self.tries)
    }

    fn next_move(
        &mut self,
        state: ControllersState,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
    ) -> To {
        let Some(view) = turn.observed.groups.get(turn.group) else {
            return Move::Stay(state, Waits::Look(ObservedParts::Machines));
        };
        let Some(group) = view else { return Move::Fail(turn.no_group()) };
        match state {
            ControllersState::Look { idle_since } => self.choose(idle_since, since, turn, group),
            ControllersState::Check { machine, round } => self.check(machine, round, *since, turn, group),
            ControllersState::Snapshot { machine, sent } => match snapshot(&sent, turn) {
                None => Move::Stay(ControllersState::Snapshot { machine, sent }, Waits::Snapshot),
                Some(Ok(())) => Move::To(checks(machine)),
                Some(Err(why)) => self.tries.again("a snapshot before", &machine, &sent, &why, turn),
            },
            ControllersState::Refresh(sent) => self.refresh(sent, turn, group),
            ControllersState::OneMore => self.one_more(*since, turn, group),
            ControllersState::Drain { machine } => self.drain(machine, turn, group),
            ControllersState::Leave { machine } => self.leave(machine, *since, turn, group),
            ControllersState::Verify(round) => self.verify(round, *since, turn, group),
        }
    }
}

impl Controllers {
    /// Whether the old machines are gone, or have changed, when the work is done.
    const fn renews(&self) -> bool {
        match self.work {
            ControllersWork::Refresh { .. } | ControllersWork::Replace => true,
            ControllersWork::Fewer { .. } => false,
        }
    }

    /// Whether expired certificates are the reason why the others do not answer (P7): only a refresh can continue without them.
    pub(super) const fn has_expired(&self, urgency: Urgency) -> bool {
        match self.work {
            ControllersWork::Refresh { .. } => urgency.has_expired(),
            ControllersWork::Replace | ControllersWork::Fewer { .. } => false,
        }
    }

    /// Controllers in service that still have to change.
    fn outdated<'g>(&self, turn: &Turn<'_>, group: &'g GroupView) -> Vec<&'g String> {
        if self.renews() { outdated(&self.done, turn, group) } else { Vec::new() }
    }

    /// Whether there are more controllers than the spec asks for. A rollout that ended early may have left a surplus one, and the next
    /// rollout removes it, whatever else it does. A refresh of expired certificates comes first. A machine above the desired capacity is Auto Scaling's
    /// own: when it balances zones, it launches first and terminates afterwards.
    fn too_many(&self, turn: &Turn<'_>, group: &GroupView) -> bool {
        !self.has_expired(turn.urgency) && self.has_spare(group)
    }

    /// Whether an additional controller was requested and exists.
    fn has_spare(&self, group: &GroupView) -> bool {
        group.desired > self.size && counting(group).count() > self.size as usize
    }

    /// Whether an additional controller is in service.
    fn can_spare(&self, group: &GroupView) -> bool {
        self.has_spare(group) && serving(group).count() > self.size as usize
    }

    /// A surplus controller that its group wants and has not launched yet, because one died meanwhile: it is removed after its launch. If
    /// the desired capacity were lowered at once, Auto Scaling would choose the machine.
    fn still_to_come(&self, turn: &Turn<'_>, group: &GroupView) -> Option<Danger> {
        (!self.has_expired(turn.urgency) && group.desired > self.size).then(|| Danger::StillToCome {
            group: turn.group.to_owned(),
            desired: group.desired,
            size: self.size,
        })
    }

    /// Windows limit the beginning: work on a cordoned controller has begun, and the controller would stay cordoned until the next window.
    fn may_go_on(&self, id: &String, turn: &Turn<'_>) -> bool {
        self.departs.as_ref() == Some(id) || turn.may_start()
    }

    /// A cordoned controller is not terminated now: it is uncordoned.
    pub(super) fn call_off(&mut self, departures: &mut BTreeMap<String, Departure>, now: Timestamp) {
        let Some(id) = self.departs.take() else { return };
        if let Some(one) = departures.get_mut(&id).filter(|one| one.goes_by_a_rollout()) {
            one.withdraw(None, now);
        }
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
        // A surplus controller that a dead function left: as the last one, it is removed like the others.
        if outdated.is_empty() && self.too_many(turn, group) {
            outdated.extend(serving(group).map(|(id, _)| id).filter(|id| !turn.skipped.contains(*id)).last());
        }
        // A controller that is already empty comes first; otherwise the choice is made again each time, because it depends on the present
        // controllers.
        let kept = self.departs.as_ref().filter(|id| outdated.contains(id)).cloned();
        let first = kept.or_else(|| first_to_go(&outdated, group).cloned());
        if self.departs != first {
            self.call_off(turn.departures, turn.now);
        }
        // A controller that is to be uncordoned is uncordoned before anything else is done to it.
        let is_ours = |id: &String| turn.departures.get(id).is_some_and(Departure::goes_by_a_rollout);
        if let Some(id) = outdated.iter().find(|id| turn.departs(id) && !is_ours(id)) {
            return Move::Stay(ControllersState::start(), Waits::Uncordon((*id).clone()));
        }
        let Some(first) = first else { return self.none_to_go(idle_since, *since, turn, group) };
        // No old machine is waited for yet.
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
        // An old machine that is still booting has to be in service first.
        let comes = self.renews() && earlier_boot(&self.done, turn, group);
        if comes && waited(since, turn.now) <= PATIENCE {
            let boots = Boot::pending_in(group, &turn.observed.booting);
            return Move::Stay(ControllersState::start(), Waits::Boot(Comes::Earlier, boots));
        }
        if let Some(why) = holds_back(turn, group) {
            return Move::Fail(why);
        }
        let idle_since = idle_since.unwrap_or(turn.now);
        if self.renews() && self.done.is_empty() && !is_idle_long_enough(idle_since, turn.now) {
            let state = ControllersState::Look { idle_since: Some(idle_since) };
            return Move::Stay(state, Waits::SecondLook(Many::Several));
        }
        Move::To(ControllersState::Verify(Round::default()))
    }

    /// Why a controller may not be taken down, for `goes` if the machine is known; `None` if that is not known yet.
    fn dangers(
        &self,
        round: &Round,
        turn: &Turn<'_>,
        group: &GroupView,
        goes: Option<&String>,
    ) -> Option<Vec<Danger>> {
        let answers = round.answers::<NodeStatus>(turn.observed, turn.now)?.into_iter();
        let statuses = answers.map(|(sent, status)| (sent.command.instance.clone(), status)).collect();
        let mut dangers = danger::of_controller(&statuses);
        // With expired certificates, nobody was asked.
        if !self.has_expired(turn.urgency) {
            dangers.extend(danger::of_targets(serving(group).filter(|(id, _)| Some(*id) != goes)));
        }
        let ill = serving(group).filter(|(id, machine)| Some(*id) != goes && !machine.healthy);
        dangers.extend(ill.map(|(id, _)| Danger::ReplacedByOthers(id.clone())));
        let serve = serving(group).count();
        if serve < self.size as usize {
            let boots = Boot::pending_in(group, &turn.observed.booting);
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
        // A single controller may be ill itself: an additional one joins before it goes.
        if self.has_expired(turn.urgency) || alone {
            return self.act(id, &round, since, alone, turn, group);
        }
        let check = |round| ControllersState::Check { machine: id.clone(), round };
        let asks = |round| Move::Stay(check(round), Waits::Answers(Asks::OtherControllers));
        let except = Some(&id);
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

    /// Takes `id` down, or refreshes it; `round`: the answers of the others.
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
                // A single API server is never stopped: a file that is read only at the start needs another machine first (P5).
                let restart = !alone || self.has_expired(turn.urgency);
                let verb = Verb::Refresh { credentials: credentials.clone(), restart };
                // With expired certificates, the decision is not based on the answers of the others.
                let evidence = match round.at() {
                    Some(at) if !self.has_expired(turn.urgency) => Evidence::new(Seen::Controllers, at),
                    Some(_) | None => Evidence::new(Seen::World, turn.now),
                };
                let waits = Waits::Credentials(vec![id.clone()]);
                let sent = turn.ask_one_on(evidence, turn.role, id, verb);
                Move::Enter(ControllersState::Refresh(sent), waits)
            }
            // The reason for the choice may be gone: another machine was terminated meanwhile.
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

    /// If there is an additional controller, this one is terminated. Otherwise an additional one is requested.
    fn replace(
        &mut self,
        id: String,
        round: &Round,
        since: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        // Once an API server of another minor writes to etcd, the data may be readable only by that minor: the way back is a snapshot.
        let first = turn.minor.is_some() && !counting(group).any(|(_, machine)| is_current(group, machine));
        if first && !danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) {
            return match take_snapshot(turn) {
                Some(sent) => Move::Enter(ControllersState::Snapshot { machine: id, sent }, Waits::Snapshot),
                None if waited(since, turn.now) > PATIENCE => Move::Fail(no_snapshot()),
                None => Move::Stay(checks(id), Waits::Snapshot),
            };
        }
        if self.can_spare(group) {
            if !is_empty(&id, turn) {
                return Move::To(ControllersState::Drain { machine: id });
            }
            let (group, instance, then_desired) = (turn.group.to_owned(), id.clone(), Some(self.size));
            let effect = Effect::Terminate { group, instance, then_desired };
            let evidence = Evidence::new(Seen::Controllers, round.at().unwrap_or(turn.now));
            turn.effects.push_on(effect, evidence);
            return Move::Enter(ControllersState::Leave { machine: id }, Waits::ControllerLeaves);
        }
        if group.max <= self.size {
            return Move::Fail(format!(
                "{} may have at most {} machines, and an additional one beyond {} has to be launched before one is terminated: upload the spec again, which raises the maximum",
                turn.group, group.max, self.size
            ));
        }
        if group.desired <= self.size {
            let effect = Effect::SetDesired { group: turn.group.to_owned(), desired: self.size + 1 };
            let evidence = Evidence::new(Seen::World, turn.now);
            let until = danger::counts_until(*turn.snapshot_at).filter(|_| first);
            turn.effects.push_on(effect, until.map_or(evidence, |until| evidence.at_most_until(until)));
        }
        Move::Enter(ControllersState::OneMore, Waits::OneMoreController)
    }

    /// Another controller evicts its pods; then its state is checked once more.
    fn drain(&mut self, id: String, turn: &mut Turn<'_>, group: &GroupView) -> To {
        // If it is not in service, it is gone, or the answer is late: then a drain command would cordon it after it was uncordoned.
        if !serves(group, &id) || turn.skipped.contains(&id) {
            self.call_off(turn.departures, turn.now);
            return Move::To(ControllersState::start());
        }
        if is_empty(&id, turn) {
            return Move::To(checks(id));
        }
        let now = turn.now;
        if self.departs.as_ref() != Some(&id) {
            // One that could not be uncordoned for a long time does not have to be uncordoned any more.
            let one = Departure::by_rollout(turn.role, group, Ending::Rests, self.force_after_s, now);
            turn.departures.insert(id.clone(), one);
            self.departs = Some(id.clone());
        }
        let one = turn.departures.get_mut(&id);
        if let Some(why) = one.as_ref().and_then(|one| one.problem.clone()) {
            return Move::Fail(why);
        }
        let Some(one) = one.filter(|one| one.goes_by_a_rollout()) else {
            // Its drain was never sent, and its window has closed.
            self.departs = None;
            return Move::To(ControllersState::start());
        };
        if one.emptied_at().is_some() {
            one.drains_anew(now);
        }
        let waits = Waits::Departure(one.departs(&id));
        Move::Stay(ControllersState::Drain { machine: id }, waits)
    }

    fn one_more(&mut self, since: Option<Timestamp>, turn: &Turn<'_>, group: &GroupView) -> To {
        // The zone of the additional controller decides which one is terminated.
        if self.can_spare(group) {
            return Move::To(ControllersState::start());
        }
        // The effect was decided and never performed.
        if waited(since, turn.now) > RECONSIDERED && group.desired <= self.size {
            return Move::To(ControllersState::start());
        }
        let boots = Boot::pending_in(group, &turn.observed.booting);
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
            self.departs = None;
            return Move::To(ControllersState::Verify(Round::default()));
        }
        // The effect was decided and never performed.
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

    fn refresh(&mut self, sent: SentCommand, turn: &Turn<'_>, group: &GroupView) -> To {
        let id = sent.command.instance.clone();
        // It has gone, and does not answer any more. An answer of Auto Scaling may be from before it served.
        if !serves(group, &id) && sent.is_older_than(CONSISTENT, turn.now) {
            return Move::To(ControllersState::start());
        }
        match refreshed(&sent, turn) {
            None => Move::Stay(ControllersState::Refresh(sent), Waits::Credentials(vec![id])),
            Some(Ok(())) => {
                self.done.insert(id);
                self.tries.forget();
                Move::To(ControllersState::Verify(Round::default()))
            }
            Some(Err(why)) => self.tries.again("refreshing", &id, &sent, &why, turn),
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
            let skipped = serving(group).any(|(id, _)| turn.skipped.contains(id));
            let renewed = |id: &String, machine: &MachineView| match self.work {
                ControllersWork::Refresh { .. } => self.done.contains(id),
                ControllersWork::Fewer { .. } | ControllersWork::Replace => is_current(group, machine),
            };
            return Move::Done { skipped: skipped || stands_by(group, renewed) };
        }
        let ask = |turn: &mut Turn<'_>| ask_the_others(turn, group, None);
        let what = "the controllers are not healthy";
        waits_for(dangers, round, since, turn, what, ask, ControllersState::Verify)
    }
}

/// Whether it has no pods, as far as is known: a person may uncordon a node while a rollout is paused.
fn is_empty(id: &str, turn: &Turn<'_>) -> bool {
    let one = turn.departures.get(id).filter(|one| one.is_of_a_rollout());
    one.and_then(Departure::emptied_at).is_some_and(|at| turn.now.duration_since(at) <= EMPTY_FOR)
}

/// Asks the others whether they can do without `machine`.
fn checks(machine: String) -> ControllersState {
    ControllersState::Check { machine, round: Round::default() }
}

/// Among these machines, one that load balancers find ill, because the others have to be healthy when one goes. Otherwise the first in the
/// zone with the most: if the zones are balanced without it, Auto Scaling has no reason to rebalance
/// (docs.aws.amazon.com/autoscaling/ec2/userguide/auto-scaling-benefits.html, "Rebalancing activities").
fn first_to_go<'g>(outdated: &[&'g String], group: &GroupView) -> Option<&'g String> {
    let in_zone = |zone: &str| counting(group).filter(|(_, machine)| machine.zone == zone).count();
    let is_ill = |machine: &MachineView| matches!(machine.target, TargetHealth::NotHealthy(_));
    let most =
        |id: &&&String| group.machines.get(**id).map(|machine| (is_ill(machine), in_zone(&machine.zone)));
    // The last of several equal elements wins, so the first machine is compared last.
    outdated.iter().rev().max_by_key(most).copied()
}

/// A skipped controller of an older minor: nothing may be newer than its API server.
fn holds_back(turn: &Turn<'_>, group: &GroupView) -> Option<String> {
    let minor = turn.minor?;
    let (left, _) = serving(group).find(|(id, one)| turn.skipped.contains(*id) && !is_current(group, one))?;
    Some(format!(
        "{left} was skipped by order of a person in the middle of {minor}: workers and add-ons may not be newer than its API server. \
         Upload the spec again, which ends the skip"
    ))
}

/// API servers of an older minor, which may answer as long as their machine exists, even while it is being terminated.
fn linger(turn: &Turn<'_>, group: &GroupView) -> Vec<Danger> {
    let of_before =
        group.machines.iter().filter(|(_, machine)| turn.minor.is_some() && !is_current(group, machine));
    of_before.map(|(id, _)| Danger::Lingers(id.clone())).collect()
}

/// Asks all controllers except `except` about their health.
fn ask_the_others(turn: &mut Turn<'_>, group: &GroupView, except: Option<&String>) -> Round {
    let others = serving(group).filter(|(id, _)| Some(*id) != except);
    let whom = others.map(|(id, _)| (turn.role.clone(), id.clone(), Verb::Status)).collect();
    turn.ask(whom)
}
