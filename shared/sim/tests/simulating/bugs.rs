//! The checker can fail: deliberate mistakes are put around the decision from outside, one at a time, and the checker must report each of
//! them.

mod all;
mod beliefs;
mod page;
mod place;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use all::ALL;
use beliefs::{
    drained, has_begun, has_just_begun, is_done, is_drained_for_good, keeps_the_first, no_try_failed,
    refreshed, snapshot, success, waits_since,
};
use jiff::{SignedDuration, Timestamp};
use page::page;
use place::{careful, place, surely};
use slipway_core::node::{
    Answer, Command, CommandView, HowUnanswered, LeaderMoved, RecordsRetired, Unanswered, Verb,
};
use slipway_flows::rollout::Waker;
use slipway_rollout::fleet::{GroupView, Lifecycle, TargetHealth};
use slipway_rollout::{
    Decision, Departure, Destroy, Effect, GoingState, NodeStep, Observed, Order, Place, Rollout, Work, decide,
};
use slipway_sim::year::{Meddler, Surely, Trial, Violation};

use super::seeds::{base, number};

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bug {
    TwoMembersAtOnce,
    ForgetsTheSnapshot,
    BelievesEveryAnswer,
    BelievesStaleAnswers,
    BelievesStaleGroups,
    TakesFailedForDone,
    TakesTheLeader,
    TwoControllersAtOnce,
    ForgetsTargets,
    StopsTheOnlyController,
    SkipsTheDrain,
    ForcesTheDrain,
    CompletesTheHookEarly,
    DrainsOnce,
    TwoWorkersAtOnce,
    TakesTheWrongMachine,
    TouchesOtherRoles,
    DoesNotHearPauses,
    DoesNotHearResumes,
    DoesNotHearAborts,
    ForgetsWhomToSkip,
    ApprovesByItself,
    IgnoresWindows,
    DropsTheOutbox,
    DropsATerminate,
    SendsTwice,
    ReportsTwice,
    SetsTheSizeTwice,
    DoneTooEarly,
    ForgetsFailures,
    TrustsWhoeverWakes,
    IgnoresAlarms,
    BelievesTheLastSnapshot,
    KeepsTheFirstSnapshot,
    TakesTwoStepsAtOnce,
    TakesTheNetworkFirst,
    LeavesRecords,
    DoesNotHearDestroys,
    DoesNotHearItCalledOff,
    EmptiesNothing,
    LeavesThePool,
    WaitsThoughUrgent,
    ExpiresBehindAWindow,
    BeginsAgain,
    JoinsOnAnOldSnapshot,
    ForgetsTheCordoned,
    DrainsForEver,
    LacksForEver,
    WaitsForMachinesForEver,
    WaitsForHealthForEver,
    SnapshotsForEver,
    SucceedsUnseen,
    RepairsSeveralAtOnce,
    RepairsInAPartition,
    RepairsAtOnce,
}

/// The meddler that makes the mistake.
#[derive(Debug)]
struct Mistaken {
    bug: Bug,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    looks: u64,
    answers: BTreeMap<String, CommandView>,
    groups: BTreeMap<String, Option<GroupView>>,
}

impl Meddler for Mistaken {
    fn decide(&self, rollout: &Rollout, observed: &Observed, now: Timestamp) -> Decision {
        let (mut state, mut seen) = (rollout.clone(), observed.clone());
        let mut memory = self.memory.lock().unwrap();
        memory.looks += 1;
        self.forgets(&mut state, now);
        self.sees(&state, &mut seen, &mut memory);
        let mut decision = decide(&state, &seen, now);
        drop(seen);
        self.remembers(rollout, &mut decision);
        let decided = decision.effects.len();
        self.does(&mut decision, observed, memory.looks);
        let (kept, effects) = (decision.next.outbox.len() - decided, std::mem::take(&mut decision.effects));
        decision.next.outbox.truncate(kept);
        decision.with_effects(effects, now)
    }

    fn intercept_wake(&self, by: Waker, _: Option<&Rollout>) -> Option<Waker> {
        let deaf = match &by {
            Waker::Order { order: Order::Pause, .. } => self.bug == Bug::DoesNotHearPauses,
            Waker::Order { order: Order::Resume, .. } => self.bug == Bug::DoesNotHearResumes,
            Waker::Order { order: Order::Abort { .. }, .. } => {
                matches!(self.bug, Bug::DoesNotHearAborts | Bug::DoesNotHearItCalledOff)
            }
            Waker::Order { order: Order::Destroy { .. }, .. } => self.bug == Bug::DoesNotHearDestroys,
            Waker::Order { order: Order::Approve { .. } | Order::Skip { .. }, .. }
            | Waker::Event
            | Waker::Group { .. }
            | Waker::Interruption { .. }
            | Waker::Tick
            | Waker::Look => false,
        };
        Some(if deaf { Waker::Event } else { by })
    }
}

impl Mistaken {
    /// Changes the state that the decision gets.
    fn forgets(&self, state: &mut Rollout, now: Timestamp) {
        match self.bug {
            Bug::ForgetsWhomToSkip => {
                if let Some(active) = state.active_mut() {
                    active.skipped.clear();
                }
            }
            Bug::TakesTwoStepsAtOnce => {
                for going in state.destroy_mut().into_iter().flat_map(|open| &mut open.stacks) {
                    if matches!(going.state, GoingState::Deleting(_)) {
                        going.state = GoingState::Gone;
                    }
                }
            }
            Bug::KeepsTheFirstSnapshot => keeps_the_first(state),
            Bug::TakesTheNetworkFirst => {
                if let Some(open) = state.destroy_mut() {
                    open.stacks.sort_by_key(|going| going.kind.wave());
                }
            }
            Bug::IgnoresWindows => {
                if let Some(active) = state.active_mut() {
                    active.nodes.windows.clear();
                }
            }
            Bug::WaitsThoughUrgent | Bug::ExpiresBehindAWindow => {
                if let Some(active) = state.active_mut() {
                    active.nodes.deadline = slipway_core::deadline::Deadline::default();
                }
            }
            Bug::JoinsOnAnOldSnapshot => {
                if let Some(active) = state.active_mut() {
                    active.nodes.snapshot_at = active.nodes.snapshot_at.map(|_| now);
                }
            }
            Bug::DrainsForEver => {
                state.departures.values_mut().for_each(|one| one.since = now);
            }
            Bug::LacksForEver => {
                let steps = state.active_mut().into_iter().flat_map(|active| &mut active.nodes.steps);
                steps.for_each(has_just_begun);
            }
            Bug::WaitsForMachinesForEver | Bug::WaitsForHealthForEver => {
                let steps = state.active_mut().into_iter().flat_map(|active| &mut active.nodes.steps);
                steps.for_each(|step| waits_since(step, now));
            }
            Bug::SucceedsUnseen => {
                if let Some(active) = state.active_mut() {
                    active.nodes.steps.iter_mut().filter(|step| step.is_final_check()).for_each(is_done);
                }
            }
            Bug::ForgetsFailures | Bug::SnapshotsForEver => {
                state
                    .active_mut()
                    .into_iter()
                    .flat_map(|active| &mut active.nodes.steps)
                    .for_each(no_try_failed);
            }
            _ => {}
        }
    }

    /// Changes the observation that the decision gets.
    fn sees(&self, state: &Rollout, seen: &mut Observed, memory: &mut Memory) {
        let asked: Vec<Command> = state
            .active()
            .into_iter()
            .flat_map(|active| &active.nodes.steps)
            .flat_map(NodeStep::commands)
            .chain(state.departures.values().filter_map(Departure::command))
            .chain(state.destroy().into_iter().flat_map(Destroy::commands))
            .map(|asked| asked.command.clone())
            .collect();
        if self.bug == Bug::ApprovesByItself
            && let Some(wanted) = &mut seen.desired
        {
            wanted.plan.policy.approval = slipway_core::cluster::Approval::Auto;
        }
        for command in &asked {
            let Some(answer) = seen.answers.get_mut(&command.token) else { continue };
            match (self.bug, &command.verb) {
                (Bug::ForgetsTheSnapshot, Verb::EtcdSnapshot) => *answer = snapshot(),
                (Bug::TakesTheLeader, Verb::EtcdMoveLeader) => {
                    *answer = success(LeaderMoved { moved: true, leader: "1".to_owned(), reason: None });
                }
                (Bug::SkipsTheDrain, Verb::Drain { node, .. }) => *answer = drained(node),
                (Bug::TakesFailedForDone, Verb::Refresh { credentials, .. })
                    if matches!(
                        answer,
                        Some(
                            CommandView::Failed(_)
                                | CommandView::Unanswered(Unanswered { how: HowUnanswered::Failed, .. })
                        )
                    ) =>
                {
                    *answer = refreshed(credentials);
                }
                (Bug::TrustsWhoeverWakes, Verb::Refresh { credentials, .. }) => {
                    *answer = refreshed(credentials);
                }
                (Bug::IgnoresAlarms, Verb::EtcdHealth) => {
                    if let Some(CommandView::Answered(Answer::EtcdHealth(health))) = answer {
                        health.alarms.clear();
                    }
                }
                (Bug::BelievesTheLastSnapshot, Verb::EtcdSnapshot) if state.destroy().is_some() => {
                    *answer = snapshot();
                }
                (Bug::LeavesRecords, Verb::EtcdRetire) => {
                    *answer = success(RecordsRetired { zone: "Z1".to_owned(), records: Vec::new() });
                }
                (Bug::TrustsWhoeverWakes, Verb::EtcdSnapshot) => *answer = snapshot(),
                (Bug::TrustsWhoeverWakes, Verb::Drain { node, .. }) => *answer = drained(node),
                (Bug::BelievesEveryAnswer | Bug::BelievesStaleAnswers, Verb::EtcdHealth | Verb::Status) => {
                    let kind = command.verb.document();
                    let own = format!("{kind} {}", command.instance);
                    // A single healthy component is enough, as if the code only searched for the word.
                    let well = answer.clone().filter(|view| match view {
                        CommandView::Answered(answer) => {
                            serde_json::to_string(answer).unwrap().contains("\"healthy\":true")
                        }
                        _ => false,
                    });
                    if let Some(well) = well {
                        memory.answers.entry(own.clone()).or_insert_with(|| well.clone());
                        memory.answers.insert(kind.to_owned(), well);
                    }
                    let known = match self.bug {
                        Bug::BelievesStaleAnswers => memory.answers.get(&own),
                        _ => memory.answers.get(kind),
                    };
                    if let Some(known) = known {
                        *answer = Some(known.clone());
                    }
                }
                _ => {}
            }
        }
        if self.bug == Bug::LeavesThePool {
            let leaving = state.active().into_iter().flat_map(|active| &active.nodes.steps);
            for step in leaving.filter(|step| step.place() == Place::Delete) {
                seen.stacks.insert(step.stack.clone(), None);
            }
        }
        if self.bug == Bug::EmptiesNothing {
            let leaving = state.active().into_iter().flat_map(|active| &active.nodes.steps);
            for step in leaving.filter(|step| step.work() == Work::Remove) {
                let group = seen.groups.get_mut(&step.group).and_then(Option::as_mut);
                group.into_iter().for_each(|group| group.machines.clear());
            }
        }
        if self.bug == Bug::BelievesStaleGroups {
            for (name, group) in &mut seen.groups {
                if memory.looks.is_multiple_of(10) || !memory.groups.contains_key(name) {
                    memory.groups.insert(name.clone(), group.clone());
                }
                group.clone_from(&memory.groups[name]);
            }
        }
        if self.bug == Bug::ForgetsTargets {
            for group in seen.groups.values_mut().flatten() {
                group.machines.values_mut().for_each(|machine| machine.target = TargetHealth::Healthy);
            }
        }
        if self.bug == Bug::StopsTheOnlyController {
            for group in seen.groups.values_mut().flatten().filter(|group| group.max > group.min) {
                let control = group.name.ends_with("control-plane");
                let one = group.machines.values().next().cloned();
                if let Some(one) = one.filter(|_| control && group.machines.len() <= group.desired as usize) {
                    let ghost =
                        slipway_rollout::fleet::MachineView { template: group.template.clone(), ..one };
                    group.machines.insert("i-0fffffffffffffff0".to_owned(), ghost);
                }
            }
        }
        if self.bug == Bug::DropsATerminate {
            for group in seen.groups.values_mut().flatten() {
                let template = group.template.clone();
                for machine in group.machines.values_mut().filter(|one| one.lifecycle == Lifecycle::InService)
                {
                    machine.template.clone_from(&template);
                }
            }
        }
    }

    /// Restores what was forgotten only for the decision.
    fn remembers(&self, before: &Rollout, decision: &mut Decision) {
        if self.bug == Bug::ForgetsWhomToSkip
            && let (Some(was), Some(is)) = (before.active(), decision.next.active_mut())
        {
            is.skipped.extend(was.skipped.iter().cloned());
        }
        if self.bug == Bug::BeginsAgain {
            decision.next.stopped = None;
            decision.next.last.iter_mut().for_each(|last| last.spec_version.clear());
        }
    }

    /// Changes the decision.
    fn does(&self, decision: &mut Decision, seen: &Observed, looks: u64) {
        let mut more = Vec::new();
        let serving = |group: &str, except: &str| {
            let view = seen.groups.get(group)?.as_ref()?;
            let mut others = view
                .machines
                .iter()
                .filter(|(id, one)| *id != except && one.lifecycle == Lifecycle::InService);
            others.next().map(|(id, _)| id.clone())
        };
        for effect in &mut decision.effects {
            match (self.bug, &mut *effect) {
                (Bug::TwoMembersAtOnce, Effect::Terminate { group, .. }) if group.contains("-etcd-") => {
                    let other = seen.groups.keys().find(|name| name.contains("-etcd-") && *name != group);
                    if let Some((group, instance)) = other.and_then(|name| Some((name, serving(name, "")?))) {
                        more.push(Effect::Terminate { group: group.clone(), instance, then_desired: None });
                    }
                }
                (Bug::TwoControllersAtOnce, Effect::Terminate { group, instance, .. })
                    if group.ends_with("control-plane") =>
                {
                    let other = serving(group, instance);
                    more.extend(other.map(|instance| Effect::Terminate {
                        group: group.clone(),
                        instance,
                        then_desired: None,
                    }));
                }
                (Bug::TwoWorkersAtOnce, Effect::Terminate { group, instance, .. })
                    if group.contains("-pool-") =>
                {
                    let other = serving(group, instance);
                    more.extend(other.map(|instance| Effect::Terminate {
                        group: group.clone(),
                        instance,
                        then_desired: None,
                    }));
                }
                (Bug::TakesTheWrongMachine, Effect::Terminate { group, instance, .. }) => {
                    if let Some(other) = serving(group, instance) {
                        *instance = other;
                    }
                }
                (Bug::TouchesOtherRoles, Effect::Terminate { group, .. }) => {
                    let other = seen.groups.keys().find(|name| *name != group);
                    if let Some((group, instance)) = other.and_then(|name| Some((name, serving(name, "")?))) {
                        more.push(Effect::Terminate { group: group.clone(), instance, then_desired: None });
                    }
                }
                (Bug::StopsTheOnlyController, Effect::Terminate { then_desired, .. }) => *then_desired = None,
                (Bug::ForcesTheDrain, Effect::Send(command)) => {
                    if let Verb::Drain { force_after_s, .. } = &mut command.verb {
                        *force_after_s = Some(600);
                    }
                }
                (Bug::CompletesTheHookEarly, Effect::Send(command)) => {
                    if let Verb::Drain { node, .. } = &command.verb {
                        let group = seen.groups.iter().find(|(_, view)| {
                            view.as_ref().is_some_and(|view| view.machines.contains_key(node))
                        });
                        if let Some((group, _)) = group {
                            let (group, instance) = (group.clone(), node.clone());
                            more.push(Effect::Terminate {
                                group: group.clone(),
                                instance: instance.clone(),
                                then_desired: None,
                            });
                            more.push(Effect::CompleteTermination { group, instance });
                        }
                    }
                }
                (Bug::SendsTwice, Effect::Send(command)) => {
                    let token = format!("{}+", command.token);
                    more.push(Effect::Send(Command { token, ..command.clone() }));
                }
                (Bug::ReportsTwice, Effect::Publish(_)) => more.push(effect.clone()),
                (Bug::SetsTheSizeTwice, Effect::SetDesired { desired, .. }) => *desired += 1,
                _ => {}
            }
        }
        decision.effects.extend(more);
        decision.effects.retain(|effect| match (self.bug, effect) {
            (Bug::LeavesThePool, Effect::DeleteStack { .. }) => false,
            (Bug::ForgetsTheSnapshot, Effect::Send(command)) => command.verb != Verb::EtcdSnapshot,
            (Bug::BelievesTheLastSnapshot, Effect::Send(command)) => {
                decision.next.destroy().is_none() || command.verb != Verb::EtcdSnapshot
            }
            (Bug::LeavesRecords, Effect::Send(command)) => command.verb != Verb::EtcdRetire,
            (Bug::TakesTheLeader, Effect::Send(command)) => command.verb != Verb::EtcdMoveLeader,
            (Bug::DropsTheOutbox, _) => !looks.is_multiple_of(3),
            _ => true,
        });
        if self.bug == Bug::ForgetsTheCordoned
            && decision.next.active().is_none()
            && !decision.next.departures.is_empty()
        {
            decision.next.departures.clear();
            decision.effects.push(Effect::DisarmTick);
        }
        if self.bug == Bug::DrainsOnce {
            decision.next.departures.values_mut().for_each(is_drained_for_good);
        }
        if self.bug == Bug::DoneTooEarly {
            for step in decision.next.active_mut().into_iter().flat_map(|active| &mut active.nodes.steps) {
                if has_begun(step) {
                    is_done(step);
                }
            }
        }
    }
}

/// After this time without faults, or after this number of invocations, a mistake counts as endless.
const LONG: (SignedDuration, u64) = (SignedDuration::from_hours(6), 500);

/// The number of the first seed in which a mistake is seen, and the broken promise; `None` if none of these seeds shows it. With `as_what`,
/// only that promise counts. A seed that breaks a promise without the mistake does not count.
fn seen(bug: Bug, seeds: std::ops::Range<u64>, as_what: Option<&str>) -> Option<(u64, Violation)> {
    let (faults, people, clusters) = place(bug);
    seeds.into_iter().find_map(|seed| {
        let (shape, change) = clusters[usize::try_from(seed).unwrap() % clusters.len()];
        let surely = surely(bug);
        let on = Trial { people, surely, ..Trial::on(seed, faults, shape, change) };
        let trial = match surely {
            // It shows after a day, or after hours of ticks.
            Surely::Stuck | Surely::Starved | Surely::LongAlarm | Surely::NoKeys => on,
            Surely::Nothing if bug == Bug::ExpiresBehindAWindow => on,
            Surely::Nothing | Surely::Alarm | Surely::Repairs { .. } => {
                Trial { bound: LONG.0, most: LONG.1, ..on }
            }
        };
        let meddler = Mistaken { bug, memory: Mutex::default() };
        let verdict = trial.run(base(trial.base()), Some(&meddler));
        let first = verdict.violations.first()?;
        // An endless mistake is compared with a trial of the same length; any other with a trial of full length.
        let without = careful(if first.promise == "liveness" { trial } else { on });
        let is_it = as_what.is_none_or(|what| what == first.promise)
            && without.run(base(trial.base()), None).violations.is_empty();
        is_it.then(|| (seed + 1, first.clone()))
    })
}

/// Runs `look` for all mistakes, on all processors.
fn each<T: Send>(look: impl Fn(Bug) -> T + Sync) -> Vec<T> {
    let (next, threads) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(2, usize::from));
    let work = || {
        let mut done = Vec::new();
        while let Some((bug, _)) = ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((*bug, look(*bug)));
        }
        done
    };
    let mut done: Vec<(Bug, T)> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    done.sort_by_key(|(bug, _)| *bug);
    done.into_iter().map(|(_, one)| one).collect()
}

/// The number of seeds in which a mistake is searched for, from the one in the table on.
const MOST: u64 = 24;

#[test]
fn every_mistake_that_the_page_tells_of_is_seen() {
    if let Some(most) = number("SLIPWAY_SEARCH").map(|most| most as u64) {
        each(|bug| {
            let words = ALL.iter().find(|(one, _)| *one == bug).unwrap().1;
            if std::env::var("SLIPWAY_MISTAKE").is_ok_and(|part| !words.contains(&part)) {
                return;
            }
            match seen(bug, 0..most, None) {
                Some((seeds, seen)) => println!("| {words} | {seeds} | {} | {}", seen.promise, seen.what),
                None => println!("not seen within {most}: {words}"),
            }
        });
        return;
    }
    let page = page();
    let missed = each(|bug| {
        let words = ALL.iter().find(|(one, _)| *one == bug).unwrap().1;
        let (seeds, what) = page.get(words)?;
        let from = seeds.saturating_sub(1);
        let is_seen = seen(bug, from..from + MOST, Some(what)).is_some();
        Some((!is_seen).then_some((words, what)))
    });
    let told: Vec<_> = missed.into_iter().flatten().collect();
    assert!(told.len() >= 20, "the page has only {} mistakes", told.len());
    let missed: Vec<_> = told.into_iter().flatten().collect();
    assert!(missed.is_empty(), "not seen as the page says: {missed:#?}");
}
