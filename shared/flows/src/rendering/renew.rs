//! The renewal of what runs, while the newest upload has no plan that may begin (P7): it was refused, it was deleted, its plan cannot be
//! executed, or its plan changes more than certificates and waits for an approval.
//!
//! A plan that waits does not begin without its approval, however soon certificates expire: nobody has approved its other changes. So the
//! release that runs is planned once more with nothing changed but the credentials of etcd and the controllers, made for the spec that was
//! rolled out last. The plan that waits is set aside, and desired again when the renewal is over.

use jiff::Timestamp;
use slipway_core::event::{Event, PlanReference};
use slipway_core::keys;
use slipway_core::status::Desired;
use slipway_plan::Plan;
use slipway_render::lock::Lock;
use slipway_rollout::Rollout;

use super::publish::{has_credentials, renewal, store_rendering};
use super::{Prepared, RenderWorld, standing};
use crate::credentials::{self, Constraints, Imported};
use crate::error::FlowResult;
use crate::launch::{baseline, plan_ready, recall};
use crate::ports::Bus as _;
use crate::store;

/// Why a plan renews nothing in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldUp {
    /// It cannot be executed ([`Plan::not_executable`]).
    NotExecutable,
    /// It waits for an approval although certificates expire soon.
    Unapproved,
}

impl HeldUp {
    /// Why `plan` renews nothing in time; `None` if it may begin in time.
    pub(crate) fn by(plan: &Plan, now: Timestamp) -> Option<Self> {
        if plan.not_executable().is_some() {
            return Some(Self::NotExecutable);
        }
        (plan.waits_for_approval(now) && plan.urgency(now).overrides()).then_some(Self::Unapproved)
    }
}

/// Makes the renewal of what runs the desired plan, if there is one that waits for nothing.
///
/// # Errors
/// If a call fails. The next scan tries again.
pub(super) async fn renew_what_runs(
    world: &impl RenderWorld,
    cluster: &str,
    now: Timestamp,
) -> FlowResult<()> {
    let ports = &world.ports();
    let rollout = store::load::<Rollout>(ports.assets, &keys::rollout(cluster)).await?.value;
    let rollout = recall(ports.assets, cluster, rollout).await?;
    // After a destruction that was aborted, a part of the cluster is missing: only the upload makes it whole.
    let is_whole = rollout.called_off().is_none() && rollout.was_destroyed().is_none();
    let is_idle = rollout.active().is_none() && !rollout.is_going();
    let Some(good) = rollout.good.first().filter(|_| is_idle && is_whole) else { return Ok(()) };
    let Some(before) = store::load::<Plan>(ports.assets, &keys::plan(cluster, &good.plan)).await?.value
    else {
        return Ok(());
    };
    let lock = store::load::<Lock>(ports.assets, &keys::release_lock(cluster, &good.target)).await?.value;
    let spec = standing::spec(ports.specs, cluster, &good.spec_version).await?;
    let (Some(lock), Some(mut spec)) = (lock, spec) else { return Ok(()) };
    let before = standing::as_approved(ports.specs, ports.assets, &rollout, before, &mut spec).await?;
    let deployed = baseline(ports.assets, &rollout).await?;
    let Some(runs) = deployed.runs() else { return Ok(()) };
    let (known, imported) = (standing::node_bundles(&deployed), Imported::new());
    let given = Constraints { known: &known, imported: &imported };
    let made = credentials::ensure_with(ports.assets, ports.keys, ports.crypto, &spec, &given, now).await?;
    let digests = standing::of_control(&made.digests);
    let prepared = Prepared {
        cluster: spec,
        text_sha256: String::new(),
        warnings: Vec::new(),
        rendering: runs.with_credentials(&digests),
        credentials: made,
        lock,
    };
    let plan = slipway_plan::plan(&deployed, &prepared.rendering, &before.policy)
        .of_spec_with(before.approval_of_spec())
        .with_renewal(&renewal(&prepared, &deployed, now));
    let stored = store::load::<Desired>(ports.assets, &keys::desired(cluster)).await?;
    let Some(desired) = stored.value.clone() else { return Ok(()) };
    let newest = store::load::<Plan>(ports.assets, &keys::plan(cluster, &desired.plan)).await?.value;
    let held_up = newest.as_ref().and_then(|newest| HeldUp::by(newest, now));
    // The newest upload may bring nothing else either, and only have to wait because nobody has approved it.
    if desired.target == plan.to && held_up != Some(HeldUp::Unapproved) {
        return Ok(());
    }
    // A plan that was rolled out, is spent, or cannot be executed has nothing to wait for.
    let waits = desired.plan != good.plan
        && !rollout.is_spent(&desired)
        && newest.is_some()
        && held_up != Some(HeldUp::NotExecutable);
    let wish = match waits {
        true => desired.after(&good.spec_version, &plan.id, &plan.to),
        false => desired.replaced_by(&good.spec_version, &plan.id, &plan.to),
    };
    if plan.is_empty() || rollout.is_spent(&wish) {
        return Ok(());
    }
    if plan.waits_for_approval(now) {
        tracing::warn!(cluster, plan = plan.summary(), "a renewal of what runs waits for its approval");
        return Ok(());
    }
    store_rendering(ports.assets, &prepared, &plan).await?;
    has_credentials(ports.assets, &prepared).await?;
    // First: who dies between the two announces it twice, and not never.
    ports.bus.publish(&[plan_ready(&plan, &good.spec_version, now)]).await?;
    if store::save(ports.assets, &keys::desired(cluster), &stored, wish).await?.is_some() {
        let reference = PlanReference { cluster: cluster.to_owned(), plan: plan.id };
        ports.bus.publish(&[Event::RolloutRequested(reference)]).await?;
    }
    has_credentials(ports.assets, &prepared).await
}
