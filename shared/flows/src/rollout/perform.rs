//! The outbox is performed, and what became of it recorded. A crash after the store finds the effects in the outbox, and another
//! invocation performs them.

use std::collections::BTreeSet;

use slipway_core::keys;
use slipway_core::release::AddonsPointer;
use slipway_ports::{ErrorKind, Objects, PortError};
use slipway_rollout::{Effect, EffectOutcome, Pending, Rollout};

use super::{RolloutPorts, disarm};
use crate::error::{FlowError, FlowResult};
use crate::ports::{Bus, Commands, Groups, Stacks, Ticks};
use crate::store::{self, Stored, TRIES};

/// Performs what is in the outbox and was not `tried` yet, and records what became of it: the state from then on, or `None` if that has to be
/// read. What could not be performed stays in the outbox, until what it was decided on is too old. `unsaid` is why something could not be
/// said or cleaned up that holds up nothing else.
///
/// # Errors
/// If something could not be performed that what comes next depends on. What became of all else is recorded.
pub(super) async fn perform_and_record<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    key: &str,
    stored: Stored<Rollout>,
    tried: &mut BTreeSet<u64>,
    unsaid: &mut Option<FlowError>,
) -> FlowResult<Option<Stored<Rollout>>> {
    let Some(state) = &stored.value else { return Ok(Some(stored)) };
    let (mut outcomes, mut error, mut refused) = (Vec::new(), None, false);
    for pending in &state.outbox {
        // The tick goes last, and only if nothing is left that somebody has to be woken for.
        let is_last = pending.effect == Effect::DisarmTick;
        if !tried.insert(pending.id) || is_last && (unsaid.is_some() || error.is_some()) {
            continue;
        }
        // After a failure nothing else begins.
        if refused && pending.effect.starts_work() {
            outcomes.push((pending.id, EffectOutcome::Dropped));
            continue;
        }
        match attempt(ports, &state.cluster, pending).await {
            Ok(outcome) => {
                refused |= matches!(outcome, EffectOutcome::Refused(_)) && fails_more(&pending.effect);
                outcomes.push((pending.id, outcome));
            }
            Err(failure) if pending.blocks_decision() => error = error.or(Some(failure)),
            Err(failure) => {
                unsaid.get_or_insert(failure);
            }
        }
    }
    let recorded = record(ports.assets, key, stored, &outcomes).await?;
    error.map_or(Ok(recorded), Err)
}

/// Records what became of effects. Whoever wrote meanwhile may have taken some back, and added others.
async fn record(
    assets: &impl Objects,
    key: &str,
    mut stored: Stored<Rollout>,
    outcomes: &[(u64, EffectOutcome)],
) -> FlowResult<Option<Stored<Rollout>>> {
    if outcomes.is_empty() {
        return Ok(Some(stored));
    }
    for _ in 0..TRIES {
        let Some(state) = stored.value.take() else { return Ok(None) };
        let next = state.clone().recorded(outcomes);
        if next == state {
            // Somebody else recorded all of it.
            return Ok(None);
        }
        if let Some(stored) = store::save(assets, key, &stored, next).await? {
            return Ok(Some(stored));
        }
        stored = store::load::<Rollout>(assets, key).await?;
    }
    Err(FlowError::Race { key: key.to_owned(), tries: TRIES })
}

/// Performs one pending effect, if it may still be performed.
///
/// # Errors
/// If it may work later, or somebody has to see to it.
pub async fn attempt<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    cluster: &str,
    pending: &Pending,
) -> FlowResult<EffectOutcome> {
    let effect = &pending.effect;
    if pending.is_stale((ports.clock.0)()) {
        tracing::warn!(cluster, effect = name(effect), "too old: decided anew");
        return Ok(EffectOutcome::Dropped);
    }
    if effect.is_disruptive() || effect.starts_work() {
        // An invocation that stood still may come back when a person has said to stop, or others have gone on.
        let now = store::load::<Rollout>(ports.assets, &keys::rollout(cluster)).await?.value;
        if now.is_none_or(|now| now.outbox.iter().all(|one| one.id != pending.id)) {
            return Ok(EffectOutcome::Dropped);
        }
    }
    tracing::info!(cluster, effect = name(effect), "perform");
    let Err(error) = perform(ports, cluster, effect).await else { return Ok(EffectOutcome::Done) };
    match (error, refusal_of(effect)) {
        // The service's no is final: the rollout says so in its words.
        (
            FlowError::Port(PortError { kind: ErrorKind::Invalid, message, .. }),
            Refusal::By(service, whom),
        ) => {
            tracing::warn!(cluster, effect = name(effect), whom, message, "is refused");
            Ok(EffectOutcome::Refused(format!("{service} refuses {whom}: {message}")))
        }
        // A machine that Run Command does not know may be on its way: whoever asked hears that.
        (FlowError::Port(PortError { kind: ErrorKind::Invalid, message, .. }), Refusal::Command) => {
            Ok(EffectOutcome::Refused(message))
        }
        // Somebody deleted the change set, or the group: the next look at the world says what is there.
        (FlowError::Port(error), Refusal::By(..)) if error.kind == ErrorKind::Missing => {
            tracing::warn!(cluster, effect = name(effect), %error, "is gone: decided anew");
            Ok(EffectOutcome::Dropped)
        }
        // What can never be said or cleaned up must not hold up what comes after it.
        (FlowError::Port(error), Refusal::Left) if error.kind == ErrorKind::Invalid => {
            left_undone(cluster, effect, &error);
            Ok(EffectOutcome::Done)
        }
        (error, _) => Err(error),
    }
}

/// Says that a refused effect is given up: nothing else remembers it, so the line has a type that the alarms count (`RolloutNeedsPerson`,
/// infra/template.yaml).
fn left_undone(cluster: &str, effect: &Effect, error: &PortError) {
    tracing::error!(errorType = "Slipway.LeftUndone", cluster, effect = name(effect), %error, "left undone");
}

/// The digest by which a template is named: `templates/<stack>/<sha256>.json`.
fn digest_in(key: &str) -> &str {
    let name = key.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".json").unwrap_or(name)
}

/// Performs one effect. Twice is once.
///
/// # Errors
/// If the port fails.
async fn perform<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    cluster: &str,
    effect: &Effect,
) -> FlowResult<()> {
    match effect {
        Effect::CreateChangeSet(request) => {
            store::verified(ports.assets, &request.template_key, digest_in(&request.template_key)).await?;
            ports.stacks.create_change_set(request).await?;
        }
        Effect::ExecuteChangeSet { stack, name, token } => {
            ports.stacks.execute_change_set(stack, name, token).await?;
        }
        Effect::DeleteChangeSet { stack, name } => ports.stacks.delete_change_set(stack, name).await?,
        Effect::DeleteStack { id, stands, token, .. } => {
            ports.stacks.delete_stack(id, *stands, token).await?
        }
        Effect::PointAddons(pointer) => point_addons(ports.assets, cluster, pointer).await?,
        Effect::Send(command) => ports.commands.send(command).await?,
        Effect::Cancel(command) => ports.commands.cancel(command).await?,
        Effect::SetDesired { group, desired } => ports.groups.raise_desired(group, *desired).await?,
        Effect::Terminate { group, instance, then_desired } => {
            ports.groups.terminate(group, instance, *then_desired).await?;
        }
        Effect::ProlongTermination { group, instance } => {
            ports.groups.prolong_termination(group, instance).await?;
        }
        Effect::CompleteTermination { group, instance } => {
            ports.groups.complete_termination(group, instance).await?;
        }
        Effect::ArmTick => ports.ticks.arm(cluster).await?,
        Effect::DisarmTick => disarm(ports, cluster).await?,
        Effect::Publish(event) => ports.bus.publish(std::slice::from_ref(event)).await?,
    }
    Ok(())
}

fn name(effect: &Effect) -> &'static str {
    match effect {
        Effect::CreateChangeSet(_) => "CreateChangeSet",
        Effect::ExecuteChangeSet { .. } => "ExecuteChangeSet",
        Effect::DeleteChangeSet { .. } => "DeleteChangeSet",
        Effect::DeleteStack { .. } => "DeleteStack",
        Effect::PointAddons(_) => "PointAddons",
        Effect::Send(_) => "Send",
        Effect::Cancel(_) => "Cancel",
        Effect::SetDesired { .. } => "SetDesired",
        Effect::Terminate { .. } => "Terminate",
        Effect::ProlongTermination { .. } => "ProlongTermination",
        Effect::CompleteTermination { .. } => "CompleteTermination",
        Effect::ArmTick => "ArmTick",
        Effect::DisarmTick => "DisarmTick",
        Effect::Publish(_) => "Publish",
    }
}

/// Whether a refusal of the effect fails what the rollout does. A command that Run Command refuses concerns only whoever asked, and a hook that
/// Auto Scaling does not settle concerns only its machine, which another call or the hook's timeout lets go.
const fn fails_more(effect: &Effect) -> bool {
    match effect {
        Effect::Send(_) | Effect::ProlongTermination { .. } | Effect::CompleteTermination { .. } => false,
        Effect::CreateChangeSet(_)
        | Effect::ExecuteChangeSet { .. }
        | Effect::DeleteChangeSet { .. }
        | Effect::DeleteStack { .. }
        | Effect::PointAddons(_)
        | Effect::Cancel(_)
        | Effect::SetDesired { .. }
        | Effect::Terminate { .. }
        | Effect::ArmTick
        | Effect::DisarmTick
        | Effect::Publish(_) => true,
    }
}

/// What an effect's refusal means.
enum Refusal<'e> {
    /// What that service would do to that has failed.
    By(&'static str, &'e str),
    /// A command has its answer.
    Command,
    /// The world is as the state says without it.
    Left,
    /// The state is wrong without it: what the node managers were told is part of it.
    Needed,
}

fn refusal_of(effect: &Effect) -> Refusal<'_> {
    match effect {
        Effect::CreateChangeSet(request) => Refusal::By("CloudFormation", &request.stack),
        Effect::ExecuteChangeSet { stack, .. } | Effect::DeleteStack { stack, .. } => {
            Refusal::By("CloudFormation", stack)
        }
        Effect::SetDesired { group, .. }
        | Effect::Terminate { group, .. }
        | Effect::ProlongTermination { group, .. }
        | Effect::CompleteTermination { group, .. } => Refusal::By("Auto Scaling", group),
        Effect::Send(_) => Refusal::Command,
        Effect::PointAddons(_) => Refusal::Needed,
        // One that cannot be taken back comes to its end by itself.
        Effect::Cancel(_)
        | Effect::DeleteChangeSet { .. }
        | Effect::ArmTick
        | Effect::DisarmTick
        | Effect::Publish(_) => Refusal::Left,
    }
}

/// Tells the node managers of `pointer`, unless they were told of it or of a later one: an invocation that stood still may
/// come back when others have gone on.
async fn point_addons(assets: &impl Objects, cluster: &str, pointer: &AddonsPointer) -> FlowResult<()> {
    store::update(assets, &keys::addons_pointer(cluster), |old: Option<&AddonsPointer>| {
        let is_newer = old.is_some_and(|old| old.generation >= pointer.generation);
        (!is_newer).then(|| pointer.clone())
    })
    .await
}

#[cfg(test)]
mod tests;
