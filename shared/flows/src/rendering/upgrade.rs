//! Orders to upgrade: what they change in the lock, and when they cannot be carried out.

use std::collections::BTreeSet;

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::digest::sha256_hex;
use slipway_core::event::{Event, RolloutReport};
use slipway_core::keys;
use slipway_core::pin::Pin;
use slipway_core::release::Site;
use slipway_ports::Objects;
use slipway_render::lock::Lock;
use slipway_rollout::{RollbackTarget, Rollout, RolloutResult};

use super::{RenderOutcome, RenderWorld, newest_with};
use crate::error::{FlowError, FlowResult};
use crate::lock::{Upgrade, UpgradeTo};
use crate::ports::Bus as _;
use crate::store::{self, TRIES};

/// An order to upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeOrder {
    /// The kinds of pins that are meant.
    pub pins: BTreeSet<Pin>,
    /// The successful plan whose pins are put back. `None`: the newest versions are looked up.
    pub back_to: Option<String>,
    /// When it was given.
    pub at: Timestamp,
}

/// Changes pins of `cluster` as ordered, and turns its newest spec into a plan on the bus.
///
/// # Errors
/// As [`super::render_upload`], or if uploads overtake it again and again.
pub async fn upgrade(
    world: &impl RenderWorld,
    site: &Site,
    cluster: &str,
    order: &UpgradeOrder,
    now: Timestamp,
) -> FlowResult<RenderOutcome> {
    let ports = &world.ports();
    let mut outcome = RenderOutcome::Superseded;
    // A newer upload does not carry the order.
    for _ in 0..TRIES {
        outcome = newest_with(ports, site, cluster, Some(order), now).await?;
        if outcome != RenderOutcome::Superseded {
            break;
        }
    }
    if outcome == RenderOutcome::Superseded {
        return Err(FlowError::Race { key: keys::spec(cluster), tries: TRIES });
    }
    let why = match &outcome {
        RenderOutcome::NotUpgraded(why) => why.clone(),
        RenderOutcome::NoSpec => format!("the cluster {cluster} has no spec, so nothing was upgraded"),
        RenderOutcome::Superseded
        | RenderOutcome::Rejected(_)
        | RenderOutcome::Unchanged
        | RenderOutcome::Planned(_) => return Ok(outcome),
    };
    let mut event = Event::OrderIgnored(RolloutReport::new(cluster, "", why));
    event.identify(sha256_hex(format!("{cluster} upgrade {}", order.at).as_bytes()));
    ports.bus.publish(&[event]).await?;
    Ok(outcome)
}

/// What an order to upgrade changes pins to, or why it cannot be carried out.
pub(super) async fn change_of_pins(
    assets: &impl Objects,
    rollout: Option<&Rollout>,
    order: &UpgradeOrder,
) -> FlowResult<Result<Upgrade, String>> {
    let Some(rollout) = rollout else {
        return Ok(Err(
            "nothing of the cluster has been rolled out yet, so there is nothing to upgrade".to_owned()
        ));
    };
    if let Some(why) = rollout.destruction_message().or_else(|| rollout.destroyed_message()) {
        return Ok(Err(format!("{why}; nothing was upgraded")));
    }
    let to = match &order.back_to {
        None => UpgradeTo::Newest,
        Some(plan) => {
            let Some(good) = rollout.rollback_targets.iter().find(|good| good.plan == *plan) else {
                return Ok(Err(format!("no plan {plan} that succeeded is recorded; no pin was changed")));
            };
            let Some(lock) = lock_of(assets, rollout, good).await? else {
                return Ok(Err(format!(
                    "the pins of plan {plan} are no longer in the bucket; no pin was changed"
                )));
            };
            UpgradeTo::Lock(Box::new(lock))
        }
    };
    Ok(Ok(Upgrade { pins: order.pins.clone(), to, at: order.at }))
}

/// The successful rollout that an undo of upgrades goes back to, and `lock` with its pins of these kinds: the rollout of `plan`, or else
/// the newest one whose pins the cluster does not use now. `None`: none is recorded.
///
/// # Errors
/// If a lock cannot be read.
pub async fn earlier_pins<'r>(
    assets: &impl Objects,
    rollout: &'r Rollout,
    cluster: &Cluster,
    lock: &Lock,
    pins: &BTreeSet<Pin>,
    plan: Option<&str>,
) -> FlowResult<Option<(&'r RollbackTarget, Lock)>> {
    let last = rollout.last.as_ref().map(|last| last.result);
    let settled = rollout.active().is_none() && last == Some(RolloutResult::Succeeded);
    for good in rollout.rollback_targets.iter().filter(|good| plan.is_none_or(|plan| good.plan == plan)) {
        let Some(earlier) = lock_of(assets, rollout, good).await? else { continue };
        let mut back = lock.clone();
        back.put_back(pins, &earlier);
        // While a rollout is open or has failed, the way back is to the last one that succeeded, and no further.
        if plan.is_some() || !settled || back.used(cluster) != lock.used(cluster) {
            return Ok(Some((good, back)));
        }
    }
    Ok(None)
}

/// The lock that a successful rollout was rendered with. `None`: it is no longer in the bucket.
async fn lock_of(
    assets: &impl Objects,
    rollout: &Rollout,
    good: &RollbackTarget,
) -> FlowResult<Option<Lock>> {
    Ok(store::load::<Lock>(assets, &keys::release_lock(&rollout.cluster, &good.target)).await?.value)
}
