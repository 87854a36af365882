//! The decision: from a state and what was observed to the next state, effects and a report.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::Timestamp;
use slipway_core::event::{Event, RolloutReport, RolloutStarted};
use slipway_core::release::StackKind;
use slipway_core::role::Role;
use slipway_core::status::{Report, RolloutState};
use slipway_core::words::count;
use slipway_plan::StackAction;

use super::activity::Activity;
use super::addons::{AddonStep, hand_over, makes_control_plane};
use super::due::{approved, holds_up, is_approved, is_due, is_newer, readds_a_removed_member};
use super::nodes::{self, Nodes, held_by_a_pause};
use super::order::{self, Ignored, paused};
use super::outbox::{Effects, Evidence, Seen, finish};
use super::progress::{Stage, Waiting, clipped, stage, turn};
use super::rollback_target::way_out;
use super::stack_step::{advance, called_off_creation, is_to_begin, is_unseen, take_back};
use super::transitions::{STACK, leads, step_name};
use super::waits::{Published, RolloutWaits, StackWaits};
use super::words::{aborted, detail, half_joined, idle, report, succeeded, waiting};
use super::{
    Active, Decision, Effect, Ended, Observed, Rollout, RolloutResult, Step, StepState, ToObserve, Wanted,
    departures, destroy, end, withdrawal,
};

/// Stacks of one wave that are processed in parallel, so that an invocation stays bounded and CloudFormation does not throttle it.
const AT_A_TIME: usize = 10;

/// What to observe before [`decide`]: the stacks whose turn it is, or would be if `wanted` began now.
#[must_use]
pub fn to_observe(rollout: &Rollout, wanted: Option<&Wanted>, now: Timestamp) -> ToObserve {
    let mut state = Cow::Borrowed(rollout);
    if wanted.is_some() && rollout.active().is_none() {
        begin(state.to_mut(), wanted, now);
    }
    // Orphaned stacks are checked only between two rollouts, which is often enough.
    let orphaned =
        if rollout.active().is_none() { rollout.orphaned.keys().cloned().collect() } else { BTreeSet::new() };
    let mut scope = ToObserve { orphaned, ..ToObserve::default() };
    match state.active().map(|active| (active, stage(active))) {
        Some((active, Some(Stage::Stacks(_)))) => {
            let turn = turn(&active.steps).into_iter().take(AT_A_TIME);
            scope.stacks = turn.map(|step| (step.stack.clone(), active.change_set.clone())).collect();
            withdrawal::to_observe(active, &mut scope);
        }
        Some((active, Some(Stage::Nodes))) => {
            let held = is_held(&state, active) || active.nodes.failure().is_some();
            active.nodes.to_observe(held, now, &mut scope);
        }
        Some((_, None)) | None => {}
    }
    if let Some(open) = state.destroy().filter(|_| state.active().is_none()) {
        destroy::to_observe(&state, open, &mut scope);
        if !open.sees_to_machines() {
            return scope;
        }
    }
    departures::to_observe(&state, now, &mut scope);
    scope
}

/// Decides the next safe steps. Accepts any state and any observation.
#[must_use]
pub fn decide(rollout: &Rollout, observed: &Observed, now: Timestamp) -> Decision {
    let mut decision = next_steps(rollout, observed, now);
    debug_assert!(
        decision.next.follows(&rollout.activity),
        "{:?} leads to {:?}",
        rollout.activity,
        decision.next.activity
    );
    decision.report.ignored = decision.next.ignored.as_ref().map(Ignored::words);
    decision
}

fn next_steps(rollout: &Rollout, observed: &Observed, now: Timestamp) -> Decision {
    let mut next = Rollout { format: Rollout::FORMAT, ..rollout.clone() };
    // Before a rollout begins: a plan that was made while these stacks existed is then stale, and is made again.
    next.orphaned.retain(|stack, _| !observed.gone.contains(stack));
    let mut effects = Effects::new(now);
    // Also while a last snapshot is taken or cannot be taken, and after a destruction has stopped.
    if next.destroy().is_none_or(|open| open.sees_to_machines()) || next.active().is_some() {
        let mut departures = std::mem::take(&mut next.departures);
        if let Some(active) = next.active() {
            active.nodes.reconsider(&mut departures, observed, now);
        }
        next.departures = departures;
        effects.extend(departures::advance(&mut next, observed, now, is_progressing(rollout)));
    }
    effects.extend(begin(&mut next, observed.desired.as_ref(), now));
    if next.active().is_none()
        && let Some(open) = next.take_destruction()
    {
        return destroy::decide(next, open, observed, now, effects);
    }
    let Some(mut active) = next.take_active() else {
        if !rollout.departures.is_empty() && next.departures.is_empty() {
            effects.push(Effect::DisarmTick);
        }
        if let Some(wanted) = &observed.desired {
            let why_not = readds_a_removed_member(&next, wanted);
            next.record_return(wanted, why_not, now);
        }
        let mut report = idle(&next, observed, now);
        if let Some(words) = next.departures_in_words() {
            report.message = format!("{}; {words}", report.message);
        }
        return finish(next, effects, report);
    };
    let newer = is_newer(&next, &active, observed, now);
    effects.of_the_rollout();

    let mut waits = Waiting::default();
    let before = progress(&active);
    let stopped = is_held(&next, &active);
    if !stopped {
        let to_begin = active.steps.iter().filter(|step| is_to_begin(step, observed));
        let to_begin = to_begin.map(|step| step.stack.clone()).collect();
        active.nodes.stacks_still_to_begin(&to_begin, now);
    }
    // Several waves may be done at once (nothing to change): continue until there is something to wait for.
    while let Some(stage) = stage(&active) {
        let stage_is_done = match stage {
            Stage::Stacks(wave) => {
                let gives_way = newer && !half_out(&active);
                stacks(&mut next, &mut active, wave, observed, &mut waits, &mut effects, gives_way, now);
                active.steps.iter().all(|step| step.kind.wave() != wave || step.state == StepState::Done)
            }
            Stage::Nodes => {
                // Operations of CloudFormation in progress are completed (P10).
                let held = stopped || active.nodes.failure().is_some();
                // The Nodes may need the new add-ons to be Ready.
                if !held && active.nodes.is_closing() {
                    effects.extend(hand_over(&mut next, &active));
                }
                let at = active.nodes.steps.iter().filter(|step| step.is_done()).count();
                let departures = &mut next.departures;
                let (sent, what) =
                    nodes::advance(&mut active, departures, &next.cluster, observed, now, newer, held);
                effects.append(sent);
                waits.nodes = what;
                note_members(&mut next, &active);
                let done = active.nodes.steps.iter().filter(|step| step.is_done());
                for step in done.clone().filter(|step| !step.is_skipped() && step.work().renews()) {
                    next.completes(&active, &step.role);
                }
                let went_on = done.count() > at;
                end::forget(&mut next, &active);
                went_on
            }
        };
        if !stage_is_done {
            break;
        }
    }

    let moved = before != progress(&active);
    take_back(&next, &mut active, observed, &mut waits, &mut effects, now);
    let report = conclude(&mut next, active, observed, now, &waits, moved, &mut effects);
    finish(next, effects, report)
}

/// The state of each stack's step, and the parts of the nodes' state that change when they make progress.
fn progress(active: &Active) -> (Vec<StepState>, Vec<impl PartialEq + use<>>) {
    let stacks = active.steps.iter().map(|step| step.state.clone()).collect();
    (stacks, active.nodes.steps.iter().map(nodes::NodeStep::progress).collect())
}

/// The number of published waiting reasons that are remembered. Further reasons may be published twice.
const MOST_PUBLISHED: usize = 20;

/// Whether the open rollout may continue what it has begun.
fn is_progressing(state: &Rollout) -> bool {
    state.active().is_some_and(|active| {
        let failed = active.steps.iter().any(|step| matches!(step.state, StepState::Failed(_)));
        active.aborted.is_none() && !failed && active.nodes.failure().is_none()
    })
}

/// Whether a person ordered that nothing new may start.
fn is_held(state: &Rollout, active: &Active) -> bool {
    active.aborted.is_some() || state.paused_since().is_some()
}

/// Advances the stacks of a wave as far as the observation allows. `gives_way`: a newer plan takes over, so none begins.
fn stacks(
    next: &mut Rollout,
    active: &mut Active,
    wave: u8,
    observed: &Observed,
    waits: &mut Waiting,
    effects: &mut Effects,
    gives_way: bool,
    now: Timestamp,
) {
    let stopped = is_held(next, active);
    for at in 0..active.steps.len() {
        let step = &active.steps[at];
        if step.kind.wave() != wave {
            continue;
        }
        // After a failure or an order to stop, nothing new starts; operations of CloudFormation in progress are completed (P10).
        let failed = active.steps.iter().any(|step| matches!(step.state, StepState::Failed(_)));
        let held = failed || stopped;
        if held && step.state != StepState::Executing || gives_way && step.state == StepState::Waiting {
            continue;
        }
        // Its turn has only just come, so it was not observed. The next wake observes it.
        let Some(stack) = observed.stacks.get(&step.stack) else { continue };
        if let Some(delete) = called_off_creation(next, active, step, stack.as_ref()) {
            waits.insert_stack(step, StackWaits::CreationCancelled);
            effects.push(delete);
            continue;
        }
        if let Some(view) = stack.as_ref().filter(|_| step.kind == StackKind::Etcd) {
            effects.append(withdrawal::advance(active, &next.cluster, view.status, observed, now));
        }
        let step = &active.steps[at];
        let change_set = observed.change_sets.get(&step.stack).and_then(Option::as_ref);
        let failures = observed.failures.get(&step.stack).map(Vec::as_slice).unwrap_or_default();
        let moved = advance(active, step, stack.as_ref(), change_set, failures, now);
        // The execution was decided, and CloudFormation does not show it.
        let is_not_begun = held && moved.effects.iter().any(Effect::starts_work);
        let is_unseen = is_not_begun || is_unseen(step, stack.as_ref(), change_set);
        let step = &mut active.steps[at];
        step.sees_execution(is_unseen, now);
        if is_not_begun {
            waits.insert_stack(step, StackWaits::NotBegun);
            // Once this cannot be a late answer any more, it was never received, and does not need to be.
            if step.is_execution_lost(now) {
                (step.state, step.unseen) = (StepState::ChangeSet, None);
            }
            continue;
        }
        let step = &active.steps[at];
        waits.insert_stack(step, moved.waits);
        let saved_until = active.nodes.saved_until(&step.stack);
        if step.kind == StackKind::Etcd && moved.state == StepState::Executing {
            let joins = active.joins.iter().map(|role| (role.clone(), active.target.clone()));
            next.joined_members.extend(joins);
        }
        for effect in moved.effects {
            match saved_until.filter(|_| matches!(effect, Effect::ExecuteChangeSet { .. })) {
                Some(until) => effects.push_on(effect, Evidence::new(Seen::World, now).at_most_until(until)),
                None => effects.push(effect),
            }
        }
        debug_assert!(
            leads(STACK, step_name(&step.state), step_name(&moved.state)),
            "{step:?} to {:?}",
            moved.state
        );
        if moved.state == StepState::Done {
            end::stands(next, active, &step.stack);
        }
        active.steps[at].state = moved.state;
    }
}

/// Starts the wanted plan, if nothing is open and the plan may start.
fn begin(state: &mut Rollout, wanted: Option<&Wanted>, now: Timestamp) -> Vec<Effect> {
    let mut effects = Vec::new();
    let Some(wanted) = wanted.filter(|wanted| state.active().is_none() && is_due(state, wanted, now)) else {
        return effects;
    };
    // Reported at once, and not only after an approval or a resume.
    if let Some(why) = wanted.plan.not_executable().or_else(|| readds_a_removed_member(state, wanted)) {
        effects.extend(refuse(state, wanted, why, now));
        return effects;
    }
    if !approved(state, wanted, now) || state.paused_since().is_some() {
        return effects;
    }
    state.generation += 1;
    state.published = None;
    let mut active = open(state.generation, wanted, now);
    // Of these only a renewal of what runs still knows (`readds_a_removed_member`): they are no members any more.
    active.nodes.members.retain(|role, _| !state.removed_members.contains(role));
    active.nodes.had_left_over(&state.left_over);
    active.approved = is_approved(state, wanted);
    if !active.approved {
        active.nodes.overridden.extend(nodes::unapproved(&wanted.plan, now));
    }
    let started = RolloutStarted::new(&state.cluster, &wanted.plan.id);
    effects.extend([Effect::ArmTick, Effect::Publish(Event::RolloutStarted(started))]);
    let pools = wanted.release.roles.keys().filter_map(|role| match role {
        Role::Pool(name) => Some((role.clone(), wanted.plan.policy.force_after_s(name)?)),
        Role::Etcd(_) | Role::Controller | Role::Admin => None,
    });
    if active.approved || !wanted.plan.needs_approval() {
        state.force_after_s = pools.collect();
    }
    if makes_control_plane(&wanted.plan) {
        effects.extend(hand_over(state, &active));
    }
    state.record_beginning(&active);
    state.put_active(active);
    state.ignored = None;
    effects
}

/// Ends a rollout before it begins: nothing was changed, and the message says why.
fn refuse(state: &mut Rollout, wanted: &Wanted, why: String, now: Timestamp) -> Vec<Effect> {
    let plan = &wanted.plan;
    let event = RolloutReport::new(&state.cluster, &plan.id, clipped(&why));
    state.generation += 1;
    state.published = None;
    state.approved = None;
    if state.was_destroyed().is_some() {
        state.set_activity(Activity::Idle);
    }
    state.has_ended(&plan.id, None, (RolloutResult::Failed, &why), now);
    let ended = Ended::without_beginning(wanted, RolloutResult::Failed, why, now);
    // A renewal that has not begun says nothing about the one before.
    if is_a_renewal(plan) {
        state.last = Some(ended);
    } else {
        state.ends_with(ended, wanted.release.id_without_credentials(), false);
    }
    vec![Effect::Publish(Event::RolloutFailed(event))]
}

/// Whether a plan renews certificates and does nothing else.
fn is_a_renewal(plan: &slipway_plan::Plan) -> bool {
    plan.left_behind.is_some() || plan.brings_credentials
}

fn open(generation: u64, wanted: &Wanted, now: Timestamp) -> Active {
    let plan = &wanted.plan;
    let step = |stack: &slipway_plan::StackPlan| {
        let rendered = wanted.release.stack(&stack.name)?;
        Some(Step {
            stack: stack.name.clone(),
            kind: stack.kind,
            template_key: rendered.template_key(&plan.cluster),
            tags: rendered.tags.clone(),
            may_replace: stack.may_replace(),
            state: StepState::Waiting,
            unseen: None,
        })
    };
    let in_action = |action| plan.stacks.iter().filter(move |stack| stack.action == action);
    let mut steps: Vec<Step> =
        in_action(StackAction::Create).chain(in_action(StackAction::Update)).filter_map(step).collect();
    steps.sort_by(|a, b| (a.kind, &a.stack).cmp(&(b.kind, &b.stack)));
    let nodes = Nodes::from_wanted(wanted);
    let stacks_by_hand = in_action(StackAction::Delete)
        .filter(|stack| !nodes.steps.iter().any(|step| step.stack == stack.name))
        .map(|stack| stack.name.clone())
        .collect();
    Active {
        plan: plan.id.clone(),
        spec_version: wanted.desired.spec_version.clone(),
        target: plan.to.clone(),
        changes: wanted.release.id_without_credentials(),
        approved: false,
        started_at: now,
        change_set: format!("slipway-{generation}-{}", plan.id),
        steps,
        nodes_by_hand: nodes::nodes_for_a_person(wanted),
        nodes,
        stacks_by_hand,
        addons: AddonStep::from_wanted(generation, wanted),
        aborted: None,
        skipped: BTreeSet::new(),
        left_behind: plan.left_behind.clone(),
        renews: is_a_renewal(plan),
        joins: plan.joining_members().cloned().collect(),
        withdrawal: None,
    }
}

/// Notes which members were removed from etcd. While the update of etcd's stack is still to come, its groups stand, except those of members that
/// joined by an update that did not succeed; and that update clears what is noted of both when it is done.
fn note_members(next: &mut Rollout, active: &Active) {
    let removed = active.nodes.removed_members();
    if half_out(active) {
        let had_groups = removed.filter(|role| !next.joined_members.contains_key(*role));
        next.removed_members.extend(had_groups.cloned());
    } else {
        let left =
            active.nodes.steps.iter().filter(|step| step.is_done() && step.work() == nodes::Work::Leave);
        left.for_each(|step| drop(next.joined_members.remove(&step.role)));
    }
}

/// Whether members were removed from etcd whose groups still exist.
fn half_out(active: &Active) -> bool {
    let stands =
        active.steps.iter().any(|step| step.kind == StackKind::Etcd && step.state != StepState::Done);
    stands && active.nodes.removed_members().next().is_some()
}

/// Ends the rollout if it is complete, and reports its state.
fn conclude(
    next: &mut Rollout,
    active: Active,
    observed: &Observed,
    now: Timestamp,
    waits: &Waiting,
    moved: bool,
    effects: &mut Effects,
) -> Report {
    let failures: Vec<String> = active
        .steps
        .iter()
        .filter_map(|step| match &step.state {
            StepState::Failed(reason) => Some(reason.clone()),
            StepState::Waiting | StepState::ChangeSet | StepState::Executing | StepState::Done => None,
        })
        .chain(active.nodes.failure())
        .collect();
    let paused_since = next.paused_since();
    // A change set that is being created starts nothing by itself, so it is not waited for after a failure or an order to stop.
    let stopped = !failures.is_empty() || active.aborted.is_some() || paused_since.is_some();
    let in_flight = active.steps.iter().any(|step| match step.state {
        StepState::Executing => true,
        StepState::ChangeSet => !stopped || step.is_taken_back(now),
        StepState::Waiting | StepState::Failed(_) => step.is_taken_back(now),
        StepState::Done => false,
    });
    let in_flight = in_flight || active.nodes.is_deleting();
    let done = stage(&active).is_none();
    let newer = is_newer(next, &active, observed, now);

    let ended = if active.aborted.is_some() {
        (!in_flight).then(|| (RolloutResult::Aborted, aborted(&active, &failures) + &half_joined(next)))
    } else if done && paused_since.is_none() {
        // The add-ons follow, so a pause holds this, too.
        Some((RolloutResult::Succeeded, succeeded(&active)))
    } else if !failures.is_empty() && !in_flight {
        let failed = failures.join("; ");
        Some((RolloutResult::Failed, format!("{failed}{}{}", half_joined(next), way_out(next, &active))))
    } else if newer && !in_flight && !holds_up(next, &active, observed, now) && !half_out(&active) {
        Some((RolloutResult::Superseded, "a newer plan takes its place, and follows".to_owned()))
    } else {
        None
    };
    let mut active = active;
    let Some((result, mut message)) = ended else {
        let urgency = active.nodes.urgency(now);
        let whole = waits.whole(&active);
        let waiting = waiting(&active, &whole);
        let command = match (active.aborted, paused_since) {
            (Some(_), _) => order::again(&next.cluster),
            (None, Some(_)) => order::resume(&next.cluster),
            (None, None) => whole.next(&next.cluster).words(),
        };
        let (state, message) = match (active.aborted, paused_since) {
            (Some(_), _) => (RolloutState::Aborting, format!("aborting: {waiting}")),
            (None, Some(since)) => {
                let flies = if in_flight { format!("; {waiting}") } else { String::new() };
                let ends = held_by_a_pause(urgency, next).map(|words| format!("; {words}"));
                (RolloutState::Paused, format!("{}{flies}{}", paused(next, since), ends.unwrap_or_default()))
            }
            (None, None) => (RolloutState::Running, waiting),
        };
        let event = detail(next, &active, &message).with_next(Some(command.clone()));
        if paused_since.is_some() && active.aborted.is_none() {
            // Published once when the pause began, and once more when the pause endangers a renewal.
            let expired = urgency.has_expired();
            let publication = urgency.ends().map(|ends| Published::PauseCosts { ends, expired });
            if publication.is_some() && next.published != publication {
                effects.push(Effect::Publish(Event::RolloutWaiting(event)));
                next.published = publication;
            }
        } else {
            effects.extend(say(next, &active, whole, event, moved));
        }
        let mut report = report(state, next, &active.plan, message, waits.stacks(&active.steps));
        report.next = Some(command);
        report.nodes = active.nodes.words(&waits.nodes);
        next.put_active(active);
        return report;
    };

    let stops = result != RolloutResult::Succeeded;
    for effect in stops
        .then(|| effects.begin_nothing(|token| next.departures.values().any(|one| one.drains_by(token))))
        .into_iter()
        .flatten()
    {
        if let Effect::SetDesired { group, .. } = effect {
            active.nodes.not_raised(&group);
        } else if let Effect::Send(command) = effect {
            next.not_sent(&command.token);
        }
    }
    next.left_over.retain(|role, _| !active.nodes.steps.iter().any(|step| &step.role == role));
    next.left_over.extend(active.nodes.left_over().map(|(role, left)| (role.clone(), left)));
    if stops {
        for (role, left) in active.nodes.left_over() {
            let more = count(left.machines(), "machine");
            message.push_str(&format!("; {role} has {more} more than planned, until it is rolled again"));
        }
        effects.extend(active.nodes.called_off(&mut next.departures, now));
    }
    let event = detail(next, &active, &message);
    next.unfinished.extend(end::unfinished(next, &active, observed));
    end::record_half_deleted(next, &active, observed);
    let unserved = end::record_result(next, &active, result);
    let event = match result {
        RolloutResult::Succeeded => {
            next.remember(&active, now);
            effects.extend(hand_over(next, &active));
            Event::RolloutSucceeded(event)
        }
        RolloutResult::Failed => Event::RolloutFailed(event),
        RolloutResult::Superseded => Event::RolloutSuperseded(event),
        RolloutResult::Aborted => Event::RolloutAborted(event),
    };
    // A call that executes such a change set later finds nothing to execute.
    let made = active.steps.iter().filter(|step| stops && step.state == StepState::ChangeSet);
    effects.extend(
        made.map(|step| Effect::DeleteChangeSet {
            stack: step.stack.clone(),
            name: active.change_set.clone(),
        }),
    );
    effects.push(Effect::Publish(event));
    if next.departures.is_empty() && !next.is_going() {
        effects.push(Effect::DisarmTick);
    }
    let mut report = report(result.into(), next, &active.plan, message.clone(), waits.stacks(&active.steps));
    report.nodes = active.nodes.words(&waits.nodes);
    // The destruction begins now, however long the rollout took to end.
    if let Some(open) = next.destroy_mut() {
        open.saves_again(now);
    }
    // The newer plan may be approved already.
    next.approved.take_if(|approved| *approved == active.plan);
    next.has_ended(&active.plan, Some(&active), (result, &message), now);
    let ended = Ended {
        plan: active.plan,
        spec_version: active.spec_version,
        target: active.target,
        of_what_runs: active.left_behind.is_some(),
        result,
        message,
        ended_at: now,
        steps: active.steps,
        unserved,
    };
    next.ends_with(ended, active.changes, active.renews);
    report
}

/// Publishes what an open rollout waits for if it is news: each reason once, until the rollout makes progress.
fn say(
    next: &mut Rollout,
    active: &Active,
    waits: RolloutWaits,
    event: RolloutReport,
    moved: bool,
) -> Option<Effect> {
    let publication = Published::Rolling { aborting: active.aborted.is_some(), waits };
    if next.published.as_ref() == Some(&publication) {
        return None;
    }
    if moved || next.published.is_none() || next.published_since.len() >= MOST_PUBLISHED {
        next.published_since.clear();
    }
    let is_new = next.published_since.insert(publication.clone());
    next.published = Some(publication);
    let event = if moved { Event::RolloutStep(event) } else { Event::RolloutWaiting(event) };
    (moved || is_new).then_some(Effect::Publish(event))
}
