//! Orders the upgrades that the spec's schedule asks for.

use jiff::Timestamp;
use slipway_core::event::{Event, UpgradeRequested};
use slipway_core::keys;
use slipway_ports::Objects;
use slipway_render::lock::Lock;

use super::observe::Observation;
use crate::error::FlowResult;
use crate::store;

/// The order to upgrade that the spec's schedule gives now. It waits until what is desired was rolled out.
pub(super) async fn due_order(
    assets: &impl Objects,
    seen: &Observation,
    now: Timestamp,
) -> FlowResult<Option<Event>> {
    let Some(upgrades) = seen.cluster.upgrades.as_ref().filter(|_| seen.idle) else { return Ok(None) };
    let lock = store::load::<Lock>(assets, &keys::lock(&seen.cluster.name)).await?.value;
    let due = lock.is_some_and(|lock| lock.is_due(upgrades, now));
    Ok(due.then(|| {
        Event::UpgradeRequested(UpgradeRequested {
            cluster: seen.cluster.name.clone(),
            pins: upgrades.pins.clone(),
            back_to: None,
            at: Some(now),
        })
    }))
}
