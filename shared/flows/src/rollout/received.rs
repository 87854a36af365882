//! What is stored before anything else is done: orders of people, and EC2's notices. Whatever fails after that, they are not lost.

use jiff::Timestamp;
use slipway_core::digest::sha256_hex;
use slipway_core::event::{Event, RolloutReport};
use slipway_core::keys;
use slipway_core::status::Desired;
use slipway_ports::Objects;
use slipway_rollout::{Given, Order, Rollout, after_order};

use super::{Interruption, RolloutPorts, Wake, recall};
use crate::error::{FlowError, FlowResult};
use crate::ports::Bus;
use crate::store::{self, Stored, TRIES};

/// Hears an order and stores that, before anything else is done: whatever fails after it, the order is not lost, and what it stops
/// is not performed any more. The state from then on, and whether what is in its outbox is for this invocation to perform.
pub(super) async fn receive_order<A: Objects, S, G, C, B: Bus, T>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    wake: &Wake,
    order: &Order,
    at: Timestamp,
    now: Timestamp,
) -> FlowResult<(Option<Stored<Rollout>>, bool)> {
    let key = keys::rollout(&wake.cluster);
    for _ in 0..TRIES {
        let mut stored = store::load::<Rollout>(ports.assets, &key).await?;
        let is_ours = stored.value.as_ref().is_none_or(|state| !state.is_leased(now));
        let desired = store::load::<Desired>(ports.assets, &keys::desired(&wake.cluster)).await?.value;
        let state = recall(ports.assets, &wake.cluster, stored.value.clone()).await?;
        if !is_meant(order, &state, desired.as_ref()) {
            tracing::warn!(cluster = wake.cluster, ?order, "an order about nothing that there is: ignored");
            let is_known = stored.value.is_some() || desired.is_some();
            if let Some(message) = mistyped(ports.assets, wake, order, is_known).await? {
                let plan = match order {
                    Order::Approve { plan } => plan.as_str(),
                    Order::Pause
                    | Order::Resume
                    | Order::Abort { .. }
                    | Order::Skip { .. }
                    | Order::Destroy { .. } => "",
                };
                // An order that is delivered twice is reported with the same id.
                let id = sha256_hex(format!("{} {message} {at}", wake.cluster).as_bytes());
                let mut ignored = Event::OrderIgnored(RolloutReport::new(&wake.cluster, plan, message));
                ignored.identify(id);
                ports.bus.publish(&[ignored]).await?;
            }
            return Ok((Some(stored), is_ours));
        }
        let given = Given::received(order.clone(), at, now);
        let next = after_order(&state, &given, desired.as_ref(), now);
        if stored.value.take().as_ref() == Some(&next) {
            stored.value = Some(next);
            return Ok((Some(stored), is_ours));
        }
        if let Some(stored) = store::save(ports.assets, &key, &stored, next).await? {
            return Ok((Some(stored), is_ours));
        }
    }
    Err(FlowError::Race { key, tries: TRIES })
}

/// Stores EC2's notice before anything else is done, as an order is: nothing that can be observed later says the same.
pub(super) async fn receive_notice<A: Objects, S, G, C, B, T>(
    ports: &RolloutPorts<'_, A, S, G, C, B, T>,
    wake: &Wake,
    group: &str,
    notice: &Interruption,
    now: Timestamp,
) -> FlowResult<(Option<Stored<Rollout>>, bool)> {
    let key = keys::rollout(&wake.cluster);
    for _ in 0..TRIES {
        let mut stored = store::load::<Rollout>(ports.assets, &key).await?;
        let Some(state) = stored.value.take() else { return Ok((Some(stored), false)) };
        let is_ours = !state.is_leased(now);
        let next = state.clone().with_interruption(group, &notice.instance, notice.at, now);
        if next == state {
            stored.value = Some(next);
            return Ok((Some(stored), is_ours));
        }
        if let Some(stored) = store::save(ports.assets, &key, &stored, next).await? {
            return Ok((Some(stored), is_ours));
        }
    }
    Err(FlowError::Race { key, tries: TRIES })
}

/// What is wrong with an order that names a cluster or a plan that there never was. `None`: what it is about has only moved on.
async fn mistyped(
    assets: &impl Objects,
    wake: &Wake,
    order: &Order,
    is_known: bool,
) -> FlowResult<Option<String>> {
    let cluster = &wake.cluster;
    if !is_known {
        return Ok(Some(format!(
            "the order was ignored, because nothing was ever planned for a cluster `{cluster}`: check its name, which is that of its folder in \
             the spec bucket"
        )));
    }
    let Order::Approve { plan } = order else { return Ok(None) };
    let exists = assets.head(&keys::plan(cluster, plan)).await?.is_some();
    Ok((!exists).then(|| {
        format!(
            "the order was ignored, because {cluster} has no plan `{plan}`: `slipway status --cluster {cluster}` names the one that waits"
        )
    }))
}

/// Whether an order is about anything that there is.
pub(super) fn is_meant(order: &Order, state: &Rollout, desired: Option<&Desired>) -> bool {
    match order {
        Order::Approve { plan } => desired.is_some_and(|desired| &desired.plan == plan),
        // A name that was mistyped is no cluster, and gets no state.
        Order::Pause | Order::Resume => desired.is_some() || state.generation > 0,
        // What it takes back may come after it.
        Order::Abort { plan } => state.active().is_some() || plan.is_none() && state.generation > 0,
        Order::Skip { .. } => state.active().is_some(),
        Order::Destroy { .. } => state.generation > 0,
    }
}
