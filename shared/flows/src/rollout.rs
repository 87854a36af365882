//! A rollout is woken: load → observe → decide → store → perform → record.
//!
//! Whoever wakes it (a request, CloudFormation, the tick) only names the cluster. An order is stored before
//! anything else is done. A crash after the store leaves the effects in the outbox, and another invocation performs those that are not too old.

mod perform;
mod received;
#[cfg(test)]
mod tests;
mod wakes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use slipway_core::event::{Event, PlanReady};
use slipway_core::keys;
use slipway_core::node::BootstrapReport;
use slipway_core::release::{AddonsPointer, Rendering};
use slipway_core::role::Role;
use slipway_core::status::{Desired, Report, RolloutState, Status};
use slipway_credentials::Manifest;
use slipway_plan::{Baseline, Plan};
use slipway_ports::Objects;
use slipway_rollout::fleet::{GroupView, Lifecycle};
use slipway_rollout::{
    Decision, Ended, Observed, Order, Pending, Rollout, RolloutResult, StackStatus, ToObserve, Wanted,
    decide, to_observe,
};

use crate::error::{FlowError, FlowResult};
use crate::ports::{Bus, Commands, Groups, Stacks, Ticks};
use crate::store::{self, AT_A_TIME, NodeObject, Stored};

pub use perform::attempt;
use perform::perform_and_record;
use received::{receive_notice, receive_order};
pub use wakes::{
    Interruption, wake_by_command, wake_by_group, wake_by_interruption, wake_by_stack, wake_or_leave,
};

/// How often an invocation looks and decides at most: each wave of stacks and each step of nodes that finds nothing to do is one.
const ROUNDS: u32 = 25;

/// Machines that boot whose reports are read: a role's machines come one after the other, and few words are read anyway.
const MOST_BOOTING: usize = 3;

/// What a rollout needs of the world.
#[derive(Debug)]
pub struct RolloutPorts<'a, A, S, G, C, B, T> {
    /// The asset bucket.
    pub assets: &'a A,
    /// CloudFormation.
    pub stacks: &'a S,
    /// Auto Scaling.
    pub groups: &'a G,
    /// Run Command.
    pub commands: &'a C,
    /// The bus.
    pub bus: &'a B,
    /// The tick.
    pub ticks: &'a T,
    /// What time it is: an invocation may take minutes, and what it decided on grows old meanwhile.
    pub clock: Clock<'a>,
}

/// A clock.
#[derive(Clone, Copy)]
pub struct Clock<'a>(pub &'a (dyn Fn() -> Timestamp + Send + Sync));

impl fmt::Debug for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", (self.0)())
    }
}

/// Who is woken, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// `clusterName`.
    pub cluster: String,
    /// By whom.
    pub by: Waker,
}

/// What wakes a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waker {
    /// A new plan, or CloudFormation.
    Event,
    /// A person, who tells it something.
    Order {
        /// What.
        order: Order,
        /// When it was given; `None`: just now.
        at: Option<Timestamp>,
    },
    /// Auto Scaling: something became of a machine of that group.
    Group {
        /// The Auto Scaling group's name.
        name: String,
    },
    /// EC2: it interrupts a Spot machine of a pool.
    Interruption {
        /// The machine's Auto Scaling group.
        group: String,
        /// What EC2 announced.
        notice: Interruption,
    },
    /// The tick.
    Tick,
    /// The daily look at what may be stuck.
    Look,
}

/// What decides: [`decide`], or what a test puts in its place.
pub type Decide<'a> = &'a (dyn Fn(&Rollout, &Observed, Timestamp) -> Decision + Send + Sync);

/// Takes the next safe steps of a cluster's rollout and says how it stands.
///
/// # Errors
/// If a call fails for want of a permission, a resource or luck. What was decided is stored: the next wake goes on.
/// What will not pass by itself is also said in `status.json`.
pub async fn wake<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    wake: &Wake,
    now: Timestamp,
) -> FlowResult<Report> {
    wake_deciding(ports, wake, now, &decide).await
}

/// As [`wake`], with another decision: whoever checks rollouts sees by it whether a wrong one is noticed.
///
/// # Errors
/// As [`wake`].
pub async fn wake_deciding<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    wake: &Wake,
    now: Timestamp,
    decide: Decide<'_>,
) -> FlowResult<Report> {
    wake_from(ports, wake, None, now, decide).await
}

/// As [`wake_deciding`]; `known`: the state, if it was only just read.
async fn wake_from<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    wake: &Wake,
    known: Option<Stored<Rollout>>,
    now: Timestamp,
    decide: Decide<'_>,
) -> FlowResult<Report> {
    let result = steps(ports, wake, known, now, decide).await;
    if let Err(error) = &result
        && !error.is_transient()
    {
        let message = format!("cannot go on: {error} ({})", error.kind());
        // The error that counts is the first one.
        let _ = update_report(ports.assets, &wake.cluster, |old| Report {
            state: RolloutState::Stuck,
            message: message.clone(),
            next: None,
            ..old.unwrap_or_default()
        })
        .await;
    }
    result
}

async fn steps<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    wake: &Wake,
    mut known: Option<Stored<Rollout>>,
    now: Timestamp,
    decide: Decide<'_>,
) -> FlowResult<Report> {
    let key = keys::rollout(&wake.cluster);
    let (mut is_ours, mut report, mut unsaid, mut is_at_rest) = (false, None, None, false);
    let mut is_asserted = false;
    if let Waker::Order { order, at } = &wake.by {
        (known, is_ours) = receive_order(ports, wake, order, at.unwrap_or(now), now).await?;
    }
    if let Waker::Interruption { group, notice } = &wake.by {
        (known, is_ours) = receive_notice(ports, wake, group, notice, now).await?;
    }
    // What was tried in this invocation, and stays in the outbox, is tried again by another.
    let mut tried = BTreeSet::new();
    // A step that was taken may let the next begin at once, and a lost race is run again: some rounds, no waiting, until nothing moves
    // any more. Whoever leaves before that leaves nobody who would begin the next rollout.
    for _ in 0..ROUNDS {
        // Do not read again what this invocation wrote: if somebody else has written since, the next conditional write fails.
        let mut stored = match known.take() {
            Some(stored) => stored,
            None => {
                // What another invocation stored meanwhile is its own to perform.
                is_ours = false;
                store::load::<Rollout>(ports.assets, &key).await?
            }
        };
        if wake.by == Waker::Look && stored.value.is_none() {
            // Nothing was ever rolled out: there is nothing to look at, and nothing to be told.
            return Ok(Report::default());
        }
        let is_new = |pending: &Pending| !tried.contains(&pending.id);
        if let Some(state) = stored.value.as_ref().filter(|state| state.outbox.iter().any(is_new)) {
            // The invocation that stored the effects performs them and then observes again. But without a tick nothing would wake the rollout after a crash, so then this invocation performs them.
            if !is_ours && state.is_leased(now) && state.needs_tick() {
                assert_tick(ports, wake, state).await?;
                return unsaid.map_or_else(|| Ok(words_of_another(state)), Err);
            }
            is_ours = true;
            known = perform_and_record(ports, &key, stored, &mut tried, &mut unsaid).await?;
            continue;
        }
        let is_new = stored.value.is_none();
        let state = recall(ports.assets, &wake.cluster, stored.value.take()).await?;
        // Before anything that may fail: whoever fails here for good leaves it to the tick.
        if !is_asserted {
            assert_tick(ports, wake, &state).await?;
            is_asserted = state.needs_tick();
        }
        let observed = observe(ports, wake, &state, now).await?;
        let decision = decide(&state, &observed, now);
        if is_new && observed.desired.is_none() && decision.next == state {
            // Nothing was ever planned for it: a name that was mistyped gets no status either. Nor does it keep a tick, which may have been armed
            // again after the cluster was destroyed.
            if wake.by == Waker::Tick {
                disarm(ports, &wake.cluster).await?;
            }
            return Ok(decision.report);
        }
        let over = !decision.next.needs_tick();
        let published = report.insert(decision.report).clone();
        if decision.next == state {
            if wake.by == Waker::Tick && !state.is_open() {
                // One that was armed again by an effect that came twice.
                disarm(ports, &wake.cluster).await?;
            }
            is_at_rest = true;
            break;
        }
        if let Some(stored) = store::save(ports.assets, &key, &stored, decision.next).await? {
            is_ours = true;
            if over {
                // Write the report before the outbox is empty and the tick is deleted: after a crash, nothing would wake the function to write it.
                update_report(ports.assets, &wake.cluster, |_| published.clone()).await?;
            }
            known = perform_and_record(ports, &key, stored, &mut tried, &mut unsaid).await?;
        }
    }
    let (Some(report), true) = (report, is_at_rest) else {
        return Err(FlowError::Race { key, tries: ROUNDS });
    };
    // One that stood still may come back when another has gone on.
    let newer = |old: &Report| old.generation == report.generation && old.decided > report.decided;
    update_report(ports.assets, &wake.cluster, |old| old.filter(newer).unwrap_or_else(|| report.clone()))
        .await?;
    // What could not be said holds up no step, but somebody has to know, and Lambda to try again.
    unsaid.map_or(Ok(report), Err)
}

/// Makes sure that what is open is woken again: a tick that could not be armed, or that somebody deleted, would leave silence.
async fn assert_tick<A, S, G, C, B, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    wake: &Wake,
    state: &Rollout,
) -> FlowResult<()> {
    if state.needs_tick() && wake.by != Waker::Tick {
        ports.ticks.arm(&wake.cluster).await?;
    }
    Ok(())
}

/// What is told where another invocation is at work.
fn words_of_another(state: &Rollout) -> Report {
    Report {
        state: RolloutState::Running,
        generation: state.generation,
        plan: state.active().map(|active| active.plan.clone()),
        message: "another invocation is still performing the last decision".to_owned(),
        ..Report::default()
    }
}

/// The state of a cluster's rollouts, if `stored` is what is kept of it, beside what its node managers were told.
///
/// # Errors
/// If the port fails, or what they were told cannot be read.
pub(crate) async fn recall(
    assets: &impl Objects,
    cluster: &str,
    stored: Option<Rollout>,
) -> FlowResult<Rollout> {
    let pointer = store::load::<AddonsPointer>(assets, &keys::addons_pointer(cluster)).await?.value;
    Ok(stored.unwrap_or_else(|| Rollout::new(cluster)).with_stored_generation(pointer.as_ref()))
}

/// Looks at what the next decision needs, and at nothing else.
async fn observe<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    wake: &Wake,
    state: &Rollout,
    now: Timestamp,
) -> FlowResult<Observed> {
    let desired = store::load::<Desired>(ports.assets, &keys::desired(&wake.cluster)).await?;
    let wanted = wanted(ports, state, &desired, now).await?;
    let mut scope = to_observe(state, wanted.as_ref(), now);
    if let Waker::Group { name } = &wake.by
        && state.drains(name)
    {
        scope.groups.insert(name.clone());
    }
    if wake.by == Waker::Look {
        scope.groups.extend(state.groups_to_observe(now));
    }
    let newest = newest(ports.assets, state, desired.value.as_ref()).await?;
    let mut observed = Observed { desired: wanted, newest, ..Observed::default() };
    for (name, change_set) in &scope.stacks {
        let stack = ports.stacks.stack(name).await?;
        if let Some(view) = &stack {
            if view.status.is_failure() {
                observed.failures.insert(name.clone(), ports.stacks.failures(&view.id).await?);
            }
            let view = ports.stacks.change_set(name, change_set).await?;
            observed.change_sets.insert(name.clone(), view);
        }
        observed.stacks.insert(name.clone(), stack);
    }
    for name in &scope.going {
        let stack = ports.stacks.stack(name).await?;
        if let Some(view) = stack.as_ref().filter(|view| view.status.is_failure()) {
            observed.failures.insert(name.clone(), ports.stacks.failures(&view.id).await?);
        }
        observed.stacks.insert(name.clone(), stack);
    }
    for name in &scope.orphaned {
        let stack = ports.stacks.stack(name).await?;
        if stack.is_none_or(|view| view.status == StackStatus::DeleteComplete) {
            observed.gone.insert(name.clone());
        }
    }
    machines(ports, state, &scope, &mut observed).await?;
    Ok(observed)
}

/// The newest specs that are known: of a plan, and while the cluster goes, of what was refused.
async fn newest(
    assets: &impl Objects,
    state: &Rollout,
    desired: Option<&Desired>,
) -> FlowResult<BTreeSet<String>> {
    let mut newest: BTreeSet<String> =
        desired.map(|desired| desired.spec_version.clone()).into_iter().collect();
    if state.is_going() {
        // The next report replaces a status that cannot be read.
        let (status, _) = store::load_or_none::<Status>(assets, &keys::status(&state.cluster)).await?;
        newest.extend(status.value.and_then(|status| status.spec).map(|spec| spec.version));
    }
    Ok(newest)
}

/// Looks at groups, at what became of commands, and at what machines tell that boot.
async fn machines<A: Objects, S, G: Groups, C: Commands, B, T>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    state: &Rollout,
    scope: &ToObserve,
    observed: &mut Observed,
) -> FlowResult<()> {
    // Commands first: what is seen of the groups is then never older than an answer that it is held against.
    // Ten pools of ten refreshes are a hundred commands of two calls each: one after the other they would take half of the function's 55 s.
    observed.answers = stream::iter(&scope.commands)
        .map(async |command| FlowResult::Ok((command.token.clone(), ports.commands.answer(command).await?)))
        .buffered(AT_A_TIME)
        .try_collect::<BTreeMap<_, _>>()
        .await?;
    for name in &scope.groups {
        let group = match ports.groups.group(name).await? {
            Some(group) if scope.targets.contains(name) => Some(with_targets(ports.groups, group).await?),
            group => group,
        };
        observed.groups.insert(name.clone(), group);
    }
    let mut machines: Vec<(Role, String)> = state.unnoticed(&observed.groups).collect();
    if let Some((role, group)) = &scope.booting {
        let group = observed.groups.get(group).and_then(Option::as_ref);
        let booting = group.into_iter().flat_map(|group| &group.machines);
        let booting = booting.filter(|(_, machine)| machine.lifecycle == Lifecycle::Pending);
        machines.extend(booting.take(MOST_BOOTING).map(|(id, _)| (role.clone(), id.clone())));
    }
    // All groups of a cluster are of one region and account.
    let arns = observed.groups.values().flatten().next().map(|group| group.machine_arns.clone());
    for (role, id) in machines {
        let Some(arns) = &arns else { continue };
        let key = keys::bootstrap_report(&state.cluster, &role.to_string(), &arns.arn_of(&id));
        match store::read_node_object::<BootstrapReport>(ports.assets, &key, BootstrapReport::MOST_BYTES)
            .await?
        {
            NodeObject::Missing => {}
            NodeObject::Read(report) => drop(observed.booting.insert(id, report)),
            // It holds nobody up. Without a report a machine may have served, and is drained.
            NodeObject::Unreadable(problem) => {
                tracing::warn!(cluster = state.cluster, key, problem, "a report of a machine cannot be read");
            }
        }
    }
    Ok(())
}

/// A group, with what is said of its machines by the target groups in which it registers them.
async fn with_targets(groups: &impl Groups, group: GroupView) -> FlowResult<GroupView> {
    let mut health = BTreeMap::new();
    for arn in &group.target_groups {
        health.insert(arn.clone(), groups.targets(arn).await?);
    }
    Ok(group.with_target_health(&health))
}

/// What should be executed, if that is something other than what is being executed or was.
async fn wanted<A: Objects, S, G, C, B: Bus, T>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    state: &Rollout,
    stored: &Stored<Desired>,
    now: Timestamp,
) -> FlowResult<Option<Wanted>> {
    let restored = restore_deferred_plan(ports, state, stored).await?;
    let stored = restored.as_ref().unwrap_or(stored);
    let Some(desired) = &stored.value else { return Ok(None) };
    let on_its_way = state.active().is_some_and(|active| active.target == desired.target);
    if on_its_way || state.is_going() {
        return Ok(None);
    }
    let cluster = &state.cluster;
    let over = state.active().is_none() && state.was_rolled_out(desired);
    let may_begin_again = |last: &Ended| last.result == RolloutResult::Failed && last.of_what_runs;
    if over && !state.last.as_ref().is_some_and(may_begin_again) {
        return Ok(None);
    }
    let plan: Plan = required(ports.assets, &keys::plan(cluster, &desired.plan)).await?;
    let key = keys::release(cluster, &desired.target);
    let bytes = store::verified(ports.assets, &key, &desired.target).await?;
    let release: Rendering =
        serde_json::from_slice(&bytes).map_err(|error| store::corrupt(&key, &bytes, &error))?;
    if state.active().is_some() || state.is_start_of(&plan) {
        return Ok(Some(Wanted { desired: desired.clone(), plan, release }));
    }
    replan(ports, state, stored, desired, &plan, release, now).await
}

/// Desires the plan again that was set aside for a renewal, once that is over. `None`: none was, or a newer one was written meanwhile.
async fn restore_deferred_plan<A: Objects, S, G, C, B: Bus, T>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    state: &Rollout,
    stored: &Stored<Desired>,
) -> FlowResult<Option<Stored<Desired>>> {
    let over = |desired: &&Desired| state.active().is_none() && state.was_rolled_out(desired);
    let Some(waits) = stored.value.as_ref().filter(over).and_then(Desired::restore_set_aside) else {
        return Ok(None);
    };
    store::save(ports.assets, &keys::desired(&state.cluster), stored, waits).await
}

/// The plan was made for a state that has moved on (a rollout was under way): makes it anew from where things are.
async fn replan<A: Objects, S, G, C, B: Bus, T>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    state: &Rollout,
    stored: &Stored<Desired>,
    desired: &Desired,
    stale: &Plan,
    release: Rendering,
    now: Timestamp,
) -> FlowResult<Option<Wanted>> {
    let cluster = &state.cluster;
    let baseline = baseline(ports.assets, state).await?;
    let mut renewal = stale.renewal.clone();
    if !renewal.deadline.is_none() {
        // Machines that the old plan counted on may have been replaced since: their certificates hurry nobody any more.
        let (manifest, _) = store::load_or_none::<Manifest>(ports.assets, &keys::manifest(cluster)).await?;
        let lead = SignedDuration::from_secs(renewal.deadline.lead_s);
        let known =
            manifest.value.map(|manifest| slipway_plan::deadline(&baseline, &release, &manifest, lead));
        renewal.deadline = known.unwrap_or(renewal.deadline);
    }
    if renewal.deadline.urgency(|_| true, now).has_expired() {
        // As when it is planned first: in place it can be done without the others.
        renewal.replaced.clear();
    }
    let planned = match stale.left_behind {
        Some(_) => slipway_plan::renewal_of_what_runs(&baseline, &release, &stale.policy),
        None => slipway_plan::plan(&baseline, &release, &stale.policy),
    };
    let plan = planned.with_spec_approval(stale.approval_of_spec()).with_renewal(&renewal);
    // A renewal of what ran then may not be one of what runs now: the next scan makes it anew.
    if stale.left_behind.is_some() && !plan.is_renewal() {
        return Ok(None);
    }
    store::keep(ports.assets, &keys::plan(cluster, &plan.id), store::json(&plan)).await?;
    let desired = Desired { plan: plan.id.clone(), ..desired.clone() };
    if !plan.is_empty() {
        // First: who dies between the two announces it twice, and not never.
        ports.bus.publish(&[plan_ready(&plan, &desired.spec_version, now)]).await?;
    }
    if store::save(ports.assets, &keys::desired(cluster), stored, desired.clone()).await?.is_none() {
        // A newer spec: the next wake takes that one.
        return Ok(None);
    }
    Ok(Some(Wanted { desired, plan, release }))
}

/// The event that announces `plan`.
pub(crate) fn plan_ready(plan: &Plan, spec_version: &str, now: Timestamp) -> Event {
    Event::PlanReady(PlanReady {
        cluster: plan.cluster.clone(),
        plan: plan.id.clone(),
        spec_version: spec_version.to_owned(),
        needs_approval: plan.waits_for_approval(now),
        summary: plan.summary(),
    })
}

/// What stands, put together from the releases that its stacks and add-ons are at.
///
/// # Errors
/// If a release is lost or cannot be read.
pub async fn baseline(assets: &impl Objects, rollout: &Rollout) -> FlowResult<Baseline> {
    let (cluster, addons, mut releases) = (&rollout.cluster, rollout.addons_release(), BTreeMap::new());
    let stacks = rollout.deployed.values().chain(rollout.orphaned.values()).map(String::as_str);
    let older = rollout.earlier.values().flatten().map(String::as_str);
    let unfinished = rollout.unfinished.values().chain(rollout.joined_members.values()).map(String::as_str);
    for id in stacks.chain(addons).chain(older).chain(unfinished).collect::<BTreeSet<_>>() {
        releases.insert(id.to_owned(), required(assets, &keys::release(cluster, id)).await?);
    }
    Baseline::assemble(cluster, &rollout.deployed, &rollout.orphaned, &releases)
        .and_then(|baseline| baseline.with_addons(addons, &releases))
        .and_then(|baseline| baseline.with_earlier(&rollout.earlier, &releases))
        .and_then(|baseline| baseline.with_unfinished(&rollout.unfinished, &releases))
        .and_then(|baseline| baseline.with_joined(&rollout.joined_members, &releases))
        .map(|baseline| baseline.with_refreshed(&rollout.refreshed).with_release_id(&releases))
        .map_err(|id| store::missing_object(&keys::release(cluster, &id)))
}

async fn required<T: serde::de::DeserializeOwned>(assets: &impl Objects, key: &str) -> FlowResult<T> {
    store::load(assets, key).await?.value.ok_or_else(|| store::missing_object(key))
}

/// Puts a report into `status.json`, made from the one that is there, unless it says that already.
async fn update_report(
    assets: &impl Objects,
    cluster: &str,
    report: impl Fn(Option<Report>) -> Report + Send + Sync,
) -> FlowResult<()> {
    store::update_status(assets, cluster, |old| Status { rollout: Some(report(old.rollout.clone())), ..old })
        .await
}

/// Deletes the tick; a rollout that began meanwhile gets it back. Whoever begins one stores that first and arms then,
/// so a tick that was armed before ours was deleted belongs to a rollout that can be seen now.
async fn disarm<A: Objects, S, G, C, B, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    cluster: &str,
) -> FlowResult<()> {
    ports.ticks.disarm(cluster).await?;
    let now = store::load::<Rollout>(ports.assets, &keys::rollout(cluster)).await?.value;
    if now.is_some_and(|rollout| rollout.needs_tick()) {
        ports.ticks.arm(cluster).await?;
    }
    Ok(())
}
