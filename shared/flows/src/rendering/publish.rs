//! Publishes the result of a checked spec: its plan or its findings, on the bus and in `status.json`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use slipway_core::cluster::{Approval, RolloutPolicy};
use slipway_core::diagnostic::Diagnostic;
use slipway_core::event::{Event, PlanReference, PlanUnchanged, SpecRejected};
use slipway_core::members::DeployedMembers;
use slipway_core::release::Site;
use slipway_core::role::Role;
use slipway_core::status::{AcceptedSpec, Desired, SnapshotsSince, SpecResult, SpecStatus, Status};
use slipway_core::{deadline, keys};
use slipway_credentials::Manifest;
use slipway_credentials::renewal::by_strategy;
use slipway_plan::{Baseline, Plan, RenewalPlan};
use slipway_ports::{Listing, Objects};
use slipway_render::lock::Lock;
use slipway_rollout::Rollout;

use super::{Prepared, RenderOutcome, RenderWorld, Running, Upload, standing};
use crate::error::{FlowError, FlowResult};
use crate::patches::PatchSet;
use crate::ports::Bus as _;
use crate::rollout::{baseline, plan_ready, recall};
use crate::store::{self, TRIES};

/// Compares with what is deployed, stores what is new, makes the plan the desired one, and publishes it.
pub(super) async fn publish_plan(
    world: &impl RenderWorld,
    upload: &Upload,
    patches: &PatchSet,
    prepared: &Prepared,
    running: Running,
    site: &Site,
    now: Timestamp,
) -> FlowResult<RenderOutcome> {
    let ports = &world.ports();
    let cluster = &prepared.cluster.name;
    let status = |plan: Option<&Plan>| SpecStatus {
        version: upload.version.clone(),
        result: SpecResult::Accepted,
        diagnostics: prepared.warnings.clone(),
        failure: None,
        plan: plan.map(|plan| plan.id.clone()),
        summary: plan.map(Plan::summary),
    };
    for _ in 0..TRIES {
        let desired = store::load::<Desired>(ports.assets, &keys::desired(cluster)).await?;
        let rollout = store::load::<Rollout>(ports.assets, &keys::rollout(cluster)).await?.value;
        let rollout = recall(ports.assets, cluster, rollout).await?;
        let unfinished = running.baseline.unfinished.iter().map(|(stack, (release, _))| (stack, release));
        let joined = running.baseline.joined.iter().map(|(role, (release, _))| (role, release));
        let known = rollout.existing_releases() == running.baseline.releases
            && rollout.unfinished.iter().eq(unfinished)
            && rollout.joined_members.iter().eq(joined)
            && rollout.addons_release() == running.baseline.addons.as_deref();
        let deployed = match known {
            true => Cow::Borrowed(&running.baseline),
            false => Cow::Owned(baseline(ports.assets, &rollout).await?),
        };
        // The members were pinned as founders, and another rollout is founding the cluster by now: start again.
        let started = running.baseline.etcd(running.in_progress) == DeployedMembers::Nothing
            && deployed.etcd(rollout.active().is_some()) != DeployedMembers::Nothing;
        if started {
            return Err(FlowError::Race { key: keys::rollout(cluster), tries: 1 });
        }
        let Compared { plan, unchanged, manual_since, approval } = compare(
            ports.specs,
            ports.assets,
            prepared,
            &deployed,
            desired.value.as_ref(),
            &rollout,
            site,
            &upload.version,
            now,
        )
        .await?;
        // The pointer may be to a plan that was never rolled out and is no longer wanted.
        let pointed = desired.value.as_ref().is_none_or(|desired| desired.target == plan.to);
        let accepted = accepted(desired.value.as_ref(), upload, &prepared.text_sha256);
        if !(unchanged && pointed) {
            store_rendering(ports.assets, prepared, &plan).await?;
            is_current(ports.assets, prepared).await?;
            if !is_newest(ports.specs, upload, Some(patches)).await? {
                return Ok(RenderOutcome::Superseded);
            }
            let wish = Desired {
                format: Desired::FORMAT,
                spec_version: upload.version.clone(),
                plan: plan.id.clone(),
                target: plan.to.clone(),
                deletion_protection: prepared.cluster.deletion_protection,
                manual_since: manual_since.clone(),
                accepted: Some(accepted.clone()),
                snapshots: desired.value.as_ref().and_then(|desired| desired.snapshots.clone()),
                set_aside: None,
            };
            if desired.value.as_ref() != Some(&wish)
                && store::save(ports.assets, &keys::desired(cluster), &desired, wish).await?.is_none()
            {
                continue;
            }
            // The run for the newest upload or order may have found nothing to do before this was written.
            is_current(ports.assets, prepared).await?;
            if !is_newest(ports.specs, upload, Some(patches)).await? {
                return Ok(RenderOutcome::Superseded);
            }
        }
        if unchanged
            && pointed
            && let Some(before) = &desired.value
            && let wish = without_plan(before, prepared, manual_since, accepted, approval, now)
            && &wish != before
        {
            // They change nothing that is rolled out, so no plan brings them.
            if !is_newest(ports.specs, upload, Some(patches)).await? {
                return Ok(RenderOutcome::Superseded);
            }
            if store::save(ports.assets, &keys::desired(cluster), &desired, wish).await?.is_none() {
                continue;
            }
        }
        if unchanged {
            update_spec_status(ports.assets, cluster, status(None)).await?;
            let event = PlanUnchanged { cluster: cluster.clone(), spec_version: upload.version.clone() };
            ports.bus.publish(&[Event::PlanUnchanged(event)]).await?;
            return Ok(RenderOutcome::Unchanged);
        }
        update_spec_status(ports.assets, cluster, status(Some(&plan))).await?;
        let mut events = vec![plan_ready(&plan, &upload.version, now)];
        if !plan.waits_for_approval(now) {
            let reference = PlanReference { cluster: cluster.clone(), plan: plan.id.clone() };
            events.push(Event::RolloutRequested(reference));
        }
        ports.bus.publish(&events).await?;
        return Ok(RenderOutcome::Planned(Box::new(plan)));
    }
    Err(FlowError::Race { key: keys::desired(cluster), tries: TRIES })
}

/// [`Desired::accepted`] after `upload` is accepted.
fn accepted(desired: Option<&Desired>, upload: &Upload, sha256: &str) -> AcceptedSpec {
    let before = desired.and_then(|desired| desired.accepted.as_ref());
    // The same text again changes nothing (P1).
    before
        .filter(|before| before.sha256 == sha256)
        .cloned()
        .unwrap_or_else(|| AcceptedSpec { version: upload.version.clone(), sha256: sha256.to_owned() })
}

/// What is desired after a spec is accepted that changes nothing that is rolled out.
fn without_plan(
    before: &Desired,
    prepared: &Prepared,
    manual_since: Option<BTreeSet<String>>,
    accepted: AcceptedSpec,
    approval: Approval,
    now: Timestamp,
) -> Desired {
    let is_new = before.accepted.as_ref() != Some(&accepted);
    // Without a plan nobody is asked. Where somebody has to be, fewer snapshots wait for the next plan.
    let snapshots = match approval {
        Approval::Auto if is_new => Some(SnapshotsSince { version: accepted.version.clone(), at: now }),
        Approval::Auto | Approval::Manual => before.snapshots.clone(),
    };
    let deletion_protection = prepared.cluster.deletion_protection;
    Desired { deletion_protection, manual_since, accepted: Some(accepted), snapshots, ..before.clone() }
}

/// A rendering, compared with what is deployed.
pub(super) struct Compared {
    /// The plan.
    pub(super) plan: Plan,
    /// Whether nothing has to be rolled out that is not being rolled out already.
    pub(super) unchanged: bool,
    /// [`Desired::manual_since`] of the plan.
    manual_since: Option<BTreeSet<String>>,
    /// Whether what the spec changes waits for a person.
    approval: Approval,
}

/// Compares with what is deployed.
#[allow(clippy::too_many_arguments, reason = "what is compared, and where it is stored")]
pub(super) async fn compare(
    specs: &impl Objects,
    assets: &impl Objects,
    prepared: &Prepared,
    deployed: &Baseline,
    desired: Option<&Desired>,
    rollout: &Rollout,
    site: &Site,
    version: &str,
    now: Timestamp,
) -> FlowResult<Compared> {
    let of_spec = prepared.cluster.rollout.approval;
    let good = last_plan(assets, rollout).await?;
    let manual_since = manual_since(desired, rollout, &good, of_spec);
    let approval = approval(site, &good, manual_since.as_ref(), of_spec);
    let policy = RolloutPolicy { approval, ..prepared.cluster.rollout.clone() };
    let plan = slipway_plan::plan(deployed, &prepared.rendering, &policy).with_spec_approval(of_spec);
    let mut renewal = renewal(prepared, deployed, now);
    if plan.needs_approval() && plan.is_renewal() && !renewal.deadline.is_none() {
        renewal = standing::limit(renewal, specs, assets, prepared, deployed, rollout, version, now).await?;
    }
    let plan = plan.with_renewal(&renewal);
    let unchanged = match rollout.active() {
        Some(active) => active.target == plan.to,
        None => plan.is_empty() && !rollout.must_check_again(version),
    };
    Ok(Compared { plan, unchanged, manual_since, approval })
}

/// Fails if another run changed the lock or the credentials meanwhile. The run is then repeated.
async fn is_current(assets: &impl Objects, prepared: &Prepared) -> FlowResult<()> {
    has_credentials(assets, prepared).await?;
    has_lock(assets, prepared).await
}

/// Fails if another run changed the lock meanwhile: its pins would be lost, or those come back that it has taken back.
async fn has_lock(assets: &impl Objects, prepared: &Prepared) -> FlowResult<()> {
    let key = keys::lock(&prepared.cluster.name);
    let stored = store::load::<Lock>(assets, &key).await?.value;
    if stored.as_ref() == Some(&prepared.lock) { Ok(()) } else { Err(FlowError::Race { key, tries: 1 }) }
}

/// Fails if a bundle was sealed meanwhile, as by the renewal of a scan: the credentials before it would be desired again.
pub(super) async fn has_credentials(assets: &impl Objects, prepared: &Prepared) -> FlowResult<()> {
    let key = keys::manifest(&prepared.cluster.name);
    let inventory = store::load::<Manifest>(assets, &key).await?.value.unwrap_or_default();
    let is_newest = |(role, digest): (&Role, &String)| {
        inventory.bundles.get(role).is_some_and(|bundle| bundle.digest == *digest)
    };
    let all = prepared.credentials.digests.iter().all(is_newest);
    if all { Ok(()) } else { Err(FlowError::Race { key, tries: 1 }) }
}

/// The plan that was rolled out last.
enum LastPlan {
    /// None was.
    Nothing,
    /// Nobody deletes plans. If one is missing nevertheless, a person decides.
    Missing,
    /// `approved`: as [`slipway_rollout::RollbackTarget::approved`].
    Plan { plan: Box<Plan>, approved: bool },
}

async fn last_plan(assets: &impl Objects, rollout: &Rollout) -> FlowResult<LastPlan> {
    let Some(good) = rollout.rollback_targets.first() else { return Ok(LastPlan::Nothing) };
    let plan = store::load::<Plan>(assets, &keys::plan(&rollout.cluster, &good.plan)).await?.value;
    Ok(plan
        .map_or(LastPlan::Missing, |plan| LastPlan::Plan { plan: Box::new(plan), approved: good.approved }))
}

/// Whether the plan of a spec that says `of_spec` waits for a person. An upload cannot waive its own review: it also waits if the spec that was
/// rolled out last says `manual`, or one that was accepted since, or the installation does. A plan that should have waited and began without a
/// person says nothing: the uploader decides how soon a renewal is urgent.
fn approval(
    site: &Site,
    good: &LastPlan,
    manual_since: Option<&BTreeSet<String>>,
    of_spec: Approval,
) -> Approval {
    let floor = site.allowed.as_ref().map_or(Approval::Auto, |allowed| allowed.approval);
    if of_spec == Approval::Manual || floor == Approval::Manual || manual_since.is_some() {
        return Approval::Manual;
    }
    match good {
        LastPlan::Nothing => Approval::Auto,
        LastPlan::Missing => Approval::Manual,
        LastPlan::Plan { plan, approved: false } if plan.needs_approval() => Approval::Manual,
        LastPlan::Plan { plan, approved: _ } => plan.approval_of_spec(),
    }
}

/// [`Desired::manual_since`] after a spec that says `of_spec` is accepted.
fn manual_since(
    desired: Option<&Desired>,
    rollout: &Rollout,
    good: &LastPlan,
    of_spec: Approval,
) -> Option<BTreeSet<String>> {
    let since = desired.and_then(|desired| desired.manual_since.as_ref());
    let since = since.filter(|since| match good {
        // A plan that waited for a person although its spec says `auto`, and that a person approved.
        LastPlan::Plan { plan, approved } => {
            let takes_it_off =
                *approved && plan.needs_approval() && plan.approval_of_spec() == Approval::Auto;
            since.contains(&plan.id) || !takes_it_off
        }
        LastPlan::Nothing | LastPlan::Missing => true,
    });
    match of_spec {
        Approval::Auto => since.cloned(),
        Approval::Manual => Some(since.cloned().unwrap_or_else(|| {
            let rolled_out = rollout.rollback_targets.first().map(|good| good.plan.clone());
            let under_way = rollout.active().map(|active| active.plan.clone());
            let announced = desired.map(|desired| desired.plan.clone());
            rolled_out.into_iter().chain(under_way).chain(announced).collect()
        })),
    }
}

/// How renewed certificates reach the nodes, and when they must have.
pub(super) fn renewal(prepared: &Prepared, deployed: &Baseline, now: Timestamp) -> RenewalPlan {
    let cluster = &prepared.cluster;
    let Some(lead) = deadline::lead(cluster) else { return RenewalPlan::default() };
    let manifest = &prepared.credentials.manifest;
    let roles = deployed.rendering.iter().flat_map(|rendering| &rendering.roles);
    let before: BTreeMap<Role, String> =
        roles.map(|(role, node)| (role.clone(), node.credentials_digest.clone())).collect();
    let deadline = slipway_plan::deadline(deployed, &prepared.rendering, manifest, lead);
    // Replacing a machine needs healthy other machines, and with expired certificates they do not answer. A refresh in place works
    // without them.
    let replaced = match deadline.urgency(|_| true, now).has_expired() {
        true => BTreeMap::new(),
        false => by_strategy(cluster, manifest, &before),
    };
    RenewalPlan { replaced, deadline, of_another_spec: false }
}

/// Stores templates, configurations, add-ons, release and plan. All are named by their content, so this may be repeated.
pub(super) async fn store_rendering(
    assets: &impl Objects,
    prepared: &Prepared,
    plan: &Plan,
) -> FlowResult<()> {
    let (rendering, cluster) = (&prepared.rendering, &prepared.cluster.name);
    // Before anything is written.
    let (release, of_plan) = (keys::release(cluster, &plan.to), keys::plan(cluster, &plan.id));
    let content = store::readable(&release, rendering.to_json().into())?;
    let described = store::readable(&of_plan, store::json(plan))?;
    let templates = rendering.stacks.iter().map(|stack| (stack.template_key(cluster), stack.body.clone()));
    let configs = rendering.roles.iter().map(|(role, node)| {
        (keys::config(cluster, &role.to_string(), &node.config_digest), node.config.clone())
    });
    let addons = [(keys::addons(cluster, &rendering.addons.digest), rendering.addons.to_json())];
    stream::iter(templates.chain(configs).chain(addons))
        .map(|(key, body)| async move { store::keep(assets, &key, body).await })
        .buffer_unordered(store::AT_A_TIME)
        .try_collect::<Vec<bool>>()
        .await?;
    store::keep(assets, &keys::release_lock(cluster, &plan.to), store::json(&prepared.lock)).await?;
    // The object that refers to the others comes last.
    store::keep(assets, &release, content).await?;
    store::keep(assets, &keys::plan_page(cluster, &plan.id), plan.to_html()).await?;
    store::keep(assets, &of_plan, described).await?;
    Ok(())
}

/// Whether spec and patches are still those that were read.
pub(super) async fn is_newest(
    specs: &(impl Objects + Listing),
    upload: &Upload,
    patches: Option<&PatchSet>,
) -> FlowResult<bool> {
    let head = specs.head(&keys::spec(&upload.cluster)).await?;
    let newest = head.is_some_and(|head| head.version == upload.version);
    match patches {
        Some(patches) if newest => patches.is_current(specs, &upload.cluster).await,
        Some(_) | None => Ok(newest),
    }
}

/// How many findings `Spec Rejected` contains: an event may have 256 KiB.
const MOST_DIAGNOSTICS: usize = 50;

pub(super) async fn reject(
    world: &impl RenderWorld,
    upload: &Upload,
    patches: Option<&PatchSet>,
    diagnostics: Vec<Diagnostic>,
) -> FlowResult<RenderOutcome> {
    let ports = &world.ports();
    let rejected = SpecStatus {
        version: upload.version.clone(),
        result: SpecResult::Rejected,
        diagnostics: diagnostics.iter().take(MOST_DIAGNOSTICS).cloned().collect(),
        failure: None,
        plan: None,
        summary: None,
    };
    // The findings about an older spec must not overwrite the result of a newer one.
    if !is_newest(ports.specs, upload, patches).await? {
        return Ok(RenderOutcome::Superseded);
    }
    update_spec_status(ports.assets, &upload.cluster, rejected).await?;
    let line = |found: &Diagnostic| match &found.help {
        Some(help) => format!("{found} ({help})"),
        None => found.to_string(),
    };
    let event = SpecRejected {
        cluster: upload.cluster.clone(),
        spec_version: upload.version.clone(),
        diagnostics: diagnostics.iter().take(MOST_DIAGNOSTICS).map(line).collect(),
        total: diagnostics.len(),
    };
    ports.bus.publish(&[Event::SpecRejected(event)]).await?;
    Ok(RenderOutcome::Rejected(diagnostics))
}

/// Writes the result for the spec into `status.json`. If only the version differs it is not written, because an upload that changes
/// nothing writes nothing.
pub(super) async fn update_spec_status(
    assets: &impl Objects,
    cluster: &str,
    spec: SpecStatus,
) -> FlowResult<()> {
    store::update_status(assets, cluster, |old| {
        let mut spec = spec.clone();
        if let Some(before) = &old.spec
            && spec.result == SpecResult::Accepted
            && before.result == SpecResult::Accepted
            && spec.plan.is_none()
            && before.diagnostics == spec.diagnostics
        {
            spec.clone_from(before);
        }
        Status { spec: Some(spec), ..old }
    })
    .await
}
