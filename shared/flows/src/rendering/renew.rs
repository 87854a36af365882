//! The renewal of what runs, while the newest upload has no plan that may begin (P7): it was refused, it was deleted, its plan cannot be
//! executed, its rollout failed or was aborted, or its plan changes more than certificates and waits for an approval. What an earlier rollout did not complete is part of each
//! plan of an upload, so after a failed rollout, and behind an open one, every plan changes more than certificates.
//!
//! A plan that waits does not begin without its approval, however soon certificates expire: nobody has approved its other changes. So the
//! release that runs is planned once more with nothing changed but the credentials of etcd and the controllers, made for the upload
//! whose release the control plane has. The plan that waits is set aside, and desired again when the renewal is over.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::event::{Event, PlanReference};
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_core::role::Role;
use slipway_core::status::Desired;
use slipway_plan::Plan;
use slipway_ports::Objects;
use slipway_render::lock::Lock;
use slipway_rollout::{Active, Rollout};

use super::publish::{has_credentials, renewal, store_rendering};
use super::{Prepared, RenderWorld, standing};
use crate::credentials::{self, Constraints, Imported};
use crate::error::FlowResult;
use crate::ports::Bus as _;
use crate::rollout::{baseline, plan_ready, recall};
use crate::store;

/// Why a plan renews nothing in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldUp {
    /// It cannot be executed ([`Plan::not_executable`]).
    NotExecutable,
    /// It waits for an approval although certificates expire soon.
    Unapproved,
    /// Its rollout failed or was aborted, so that it begins only after an upload or an approval.
    Stopped,
}

impl HeldUp {
    /// Why `plan`, which is desired, renews nothing in time; `None` if it may begin in time.
    pub(crate) async fn find(
        assets: &impl Objects,
        rollout: &Rollout,
        desired: &Desired,
        plan: &Plan,
        now: Timestamp,
    ) -> FlowResult<Option<Self>> {
        if plan.not_executable().is_some() {
            return Ok(Some(Self::NotExecutable));
        }
        if rollout.may_block() && rollout.approved.as_ref() != Some(&plan.id) {
            let key = keys::release(&rollout.cluster, &desired.target);
            let release = store::load::<Rendering>(assets, &key).await?.value;
            if release.is_some_and(|release| rollout.is_blocked(&desired.spec_version, plan, &release)) {
                return Ok(Some(Self::Stopped));
            }
        }
        let is_approved = rollout.approved.as_ref() == Some(&plan.id);
        let waits = !is_approved && plan.waits_for_approval(now) && plan.urgency(now).overrides();
        Ok(waits.then_some(Self::Unapproved))
    }
}

/// Whether `plan`, which is desired now, renews nothing in time.
pub(super) async fn is_held_up(
    assets: &impl Objects,
    plan: &Plan,
    cluster: &str,
    now: Timestamp,
) -> FlowResult<bool> {
    if plan.not_executable().is_none() && plan.renewal.deadline.is_none() {
        // It renews nothing.
        return Ok(false);
    }
    let desired = store::load::<Desired>(assets, &keys::desired(cluster)).await?.value;
    let rollout = store::load::<Rollout>(assets, &keys::rollout(cluster)).await?.value;
    let (Some(desired), Some(rollout)) = (desired, rollout) else { return Ok(false) };
    Ok(HeldUp::find(assets, &rollout, &desired, plan, now).await?.is_some())
}

/// The upload of what runs.
struct Source<'r> {
    spec_version: &'r str,
    plan: &'r str,
    target: &'r str,
}

impl<'r> Source<'r> {
    /// The upload whose release the control plane has, whether or not its rollout succeeded. `None`: none is known, and by another one nothing is
    /// renewed, because certificates could lose names that clients use.
    fn of(rollout: &'r Rollout, runs: &Rendering) -> Option<Self> {
        let stack = &runs.roles.get(&Role::Controller)?.stack;
        let target = rollout.deployed.get(stack)?;
        let upload = rollout.uploads.get(target)?;
        Some(Self { spec_version: &upload.spec_version, plan: &upload.plan, target })
    }
}

/// Whether the open rollout, to the release `target`, brings etcd and the controllers these credentials.
async fn brings(
    assets: &impl Objects,
    cluster: &str,
    target: &str,
    digests: &BTreeMap<Role, String>,
) -> FlowResult<bool> {
    let release = store::load::<Rendering>(assets, &keys::release(cluster, target)).await?.value;
    Ok(release.is_some_and(|release| {
        let has = |(role, digest): (&Role, &String)| {
            release.roles.get(role).is_some_and(|node| node.credentials_digest == *digest)
        };
        digests.iter().all(has)
    }))
}

/// Makes the renewal of what runs the desired plan, if there is one that waits for nothing. An open rollout ends early for a renewal that is
/// urgent and that it does not bring itself: what it has begun is completed first, but it may wait for drains of workers for weeks.
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
    let is_whole = rollout.aborted_destruction().is_none() && rollout.was_destroyed().is_none();
    let stacks_move = rollout.active().is_some_and(Active::changes_stacks);
    if rollout.is_going() || !is_whole || stacks_move {
        return Ok(());
    }
    let deployed = baseline(ports.assets, &rollout).await?;
    let Some(runs) = deployed.running_release() else { return Ok(()) };
    let Some(source) = Source::of(&rollout, &runs) else { return Ok(()) };
    let Some(before) = store::load::<Plan>(ports.assets, &keys::plan(cluster, source.plan)).await?.value
    else {
        return Ok(());
    };
    let lock = store::load::<Lock>(ports.assets, &keys::release_lock(cluster, source.target)).await?.value;
    let spec = standing::spec(ports.specs, cluster, source.spec_version).await?;
    let (Some(lock), Some(mut spec)) = (lock, spec) else { return Ok(()) };
    let before = standing::as_approved(ports.specs, ports.assets, &rollout, before, &mut spec).await?;
    let (known, imported) = (standing::node_bundles(&deployed), Imported::new());
    let given = Constraints { known: &known, imported: &imported };
    let made = credentials::ensure_with(ports.assets, ports.keys, ports.crypto, &spec, &given, now).await?;
    let mut digests = standing::of_control(&made.digests);
    // They are no members any more, and their machines go with the next update of etcd's stack.
    digests.retain(|role, _| !rollout.removed_members.contains(role));
    let prepared = Prepared {
        cluster: spec,
        text_sha256: String::new(),
        warnings: Vec::new(),
        rendering: runs.with_credentials(&digests),
        credentials: made,
        lock,
    };
    if let Some(active) = rollout.active()
        && brings(ports.assets, cluster, &active.target, &digests).await?
    {
        return Ok(());
    }
    let mut known_renewal = renewal(&prepared, &deployed, now);
    let lead = standing::lead(ports.specs, ports.assets, &prepared.cluster, &rollout, source.spec_version);
    if let Some(lead) = lead.await? {
        known_renewal.deadline.lead_s = lead.as_secs();
    }
    let plan = slipway_plan::renewal_of_what_runs(&deployed, &prepared.rendering, &before.policy)
        .with_spec_approval(before.approval_of_spec())
        .with_renewal(&known_renewal);
    let stored = store::load::<Desired>(ports.assets, &keys::desired(cluster)).await?;
    let Some(desired) = stored.value.clone() else { return Ok(()) };
    let newest = store::load::<Plan>(ports.assets, &keys::plan(cluster, &desired.plan)).await?.value;
    let held_up = match &newest {
        Some(newest) => HeldUp::find(ports.assets, &rollout, &desired, newest, now).await?,
        None => None,
    };
    // The newest upload may bring nothing else either, and only have to wait because nobody has approved it.
    let begins_by_itself = !matches!(held_up, Some(HeldUp::Unapproved | HeldUp::Stopped));
    if desired.plan == plan.id || desired.target == plan.to && begins_by_itself {
        return Ok(());
    }
    // A plan that was rolled out, was stopped, or cannot be executed has nothing to wait for.
    let waits = rollout.rollback_targets.first().is_none_or(|good| desired.plan != good.plan)
        && !rollout.was_rolled_out(&desired)
        && newest.is_some()
        && !matches!(held_up, Some(HeldUp::NotExecutable | HeldUp::Stopped));
    let wish = match waits {
        true => desired.set_aside_for(source.spec_version, &plan.id, &plan.to),
        false => desired.replaced_by(source.spec_version, &plan.id, &plan.to),
    };
    if plan.is_empty() || !rollout.may_renew(&wish, &plan, &prepared.rendering, now) {
        return Ok(());
    }
    // A rollout that is open ends early only for what cannot wait.
    if rollout.active().is_some() && !plan.urgency(now).overrides() {
        return Ok(());
    }
    if plan.waits_for_approval(now) {
        tracing::warn!(cluster, plan = plan.summary(), "a renewal of what runs waits for its approval");
        return Ok(());
    }
    store_rendering(ports.assets, &prepared, &plan).await?;
    has_credentials(ports.assets, &prepared).await?;
    // First: who dies between the two announces it twice, and not never.
    ports.bus.publish(&[plan_ready(&plan, source.spec_version, now)]).await?;
    if store::save(ports.assets, &keys::desired(cluster), &stored, wish).await?.is_some() {
        let reference = PlanReference { cluster: cluster.to_owned(), plan: plan.id };
        ports.bus.publish(&[Event::RolloutRequested(reference)]).await?;
    }
    has_credentials(ports.assets, &prepared).await
}
