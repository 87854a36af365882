//! From what AWS tells of to the cluster whose rollout may wait for it.
//!
//! AWS tells of everybody's stacks, groups and commands. Whose they are is guessed by their names, which costs no call, and held
//! against the one object that says whether a rollout is open: a guess that is wrong reads it and leaves. What Auto Scaling and Run
//! Command tell may never come: the tick wakes as well.

use jiff::Timestamp;
use slipway_core::keys;
use slipway_core::node::command::cluster_of_token;
use slipway_core::status::Report;
use slipway_ports::Objects;
use slipway_rollout::Rollout;

use super::{RolloutPorts, Wake, Waker, decide, wake, wake_from};
use crate::error::{FlowError, FlowResult};
use crate::ports::{Bus, Commands, Groups, Stacks, Ticks};
use crate::store;

/// EC2's notice that it interrupts a Spot machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interruption {
    /// The machine. It may belong to anybody.
    pub instance: String,
    /// When EC2 announced it.
    pub at: Timestamp,
}

/// Wakes the rollout of the cluster that `stack` belongs to, if it is one of ours and has something left to do.
///
/// # Errors
/// As [`super::wake`].
pub async fn wake_by_stack<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    stack: &str,
    now: Timestamp,
) -> FlowResult<Option<Report>> {
    let waits = |rollout: &Rollout| rollout.is_open() || rollout.orphaned.contains_key(stack);
    wake_matching(ports, keys::clusters_of_stack(stack), waits, Waker::Event, now).await
}

/// Wakes the rollout of the cluster that the Auto Scaling group `group` belongs to, if it is open, or the group is one whose machines
/// have to be drained.
///
/// # Errors
/// As [`super::wake`].
pub async fn wake_by_group<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    group: &str,
    now: Timestamp,
) -> FlowResult<Option<Report>> {
    let waits = |rollout: &Rollout| rollout.is_open() || rollout.drains(group);
    let by = Waker::Group { name: group.to_owned() };
    wake_matching(ports, keys::clusters_of_group(group), waits, by, now).await
}

/// Wakes the rollout of the cluster whose worker EC2 interrupts, to drain that worker. The event names no group; Auto Scaling knows it.
///
/// # Errors
/// As [`super::wake`]; also if Auto Scaling does not say which group the machine is in.
pub async fn wake_by_interruption<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    notice: &Interruption,
    now: Timestamp,
) -> FlowResult<Option<Report>> {
    let Some(group) = ports.groups.group_of(&notice.instance).await? else { return Ok(None) };
    let (clusters, waits) = (keys::clusters_of_group(&group), |rollout: &Rollout| rollout.drains(&group));
    let by = Waker::Interruption { group: group.clone(), notice: notice.clone() };
    wake_matching(ports, clusters, waits, by, now).await
}

/// Wakes the rollout that the command which Run Command calls `id` was sent for, if it is open.
///
/// # Errors
/// As [`super::wake`]; also if Run Command does not say what `id` is.
pub async fn wake_by_command<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    id: &str,
    now: Timestamp,
) -> FlowResult<Option<Report>> {
    let token = ports.commands.token(id).await?;
    let cluster = token.as_deref().and_then(cluster_of_token).map(str::to_owned);
    wake_matching(ports, cluster.into_iter().collect(), Rollout::is_open, Waker::Event, now).await
}

/// Wakes the rollout as [`super::wake`] does, and leaves what fails for a tick to the next tick: the inner error. A tick says nothing but its cluster's
/// name, and the next one says it in a minute. That one has to come: this invocation may have taken the tick away before it failed, so it is
/// armed again. One that nobody needs takes itself away.
///
/// # Errors
/// If the event has to be tried again: nothing else makes up for it.
pub async fn wake_or_leave<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    who: &Wake,
    now: Timestamp,
) -> FlowResult<Result<Report, FlowError>> {
    match wake(ports, who, now).await {
        Ok(report) => Ok(Ok(report)),
        Err(error) if who.by == Waker::Tick && ports.ticks.arm(&who.cluster).await.is_ok() => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

async fn wake_matching<A: Objects, S: Stacks, G: Groups, C: Commands, B: Bus, T: Ticks>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    // More than one, since a cluster's name may hold dashes.
    clusters: Vec<String>,
    waits: impl Fn(&Rollout) -> bool + Send + Sync,
    by: Waker,
    now: Timestamp,
) -> FlowResult<Option<Report>> {
    for cluster in clusters {
        let known = store::load::<Rollout>(ports.assets, &keys::rollout(&cluster)).await?;
        if known.value.as_ref().is_some_and(&waits) {
            return wake_from(ports, &Wake { cluster, by }, Some(known), now, &decide).await.map(Some);
        }
    }
    Ok(None)
}
