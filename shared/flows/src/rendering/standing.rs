//! The spec that was rolled out last, which says what may begin without a person's approval.
//!
//! An uploader decides what is in a spec, and so how soon its renewals are urgent, how they go, and which names its certificates have and how long
//! they are valid. As long as nobody has approved that, the spec that a person approved decides.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use slipway_core::cluster::{Approval, Certificates, Cluster, KeyAlgorithm, RolloutPolicy};
use slipway_core::deadline::{self, Roll};
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_plan::{Baseline, Plan, RenewalPlan};
use slipway_ports::Objects;
use slipway_rollout::{RollbackTarget, Rollout};

use super::Prepared;
use crate::credentials::{self, Constraints, Imported, NodeBundles};
use crate::error::FlowResult;
use crate::store;

/// That version of a cluster's spec. `None`: it is gone, or is not accepted any more.
pub(super) async fn spec(specs: &impl Objects, cluster: &str, version: &str) -> FlowResult<Option<Cluster>> {
    let Some(text) = specs.get_version(&keys::spec(cluster), version).await? else { return Ok(None) };
    match slipway_spec::parse(&text.bytes, None) {
        Ok(accepted) => Ok(Some(accepted.cluster)),
        Err(findings) => {
            let why = findings.first().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(cluster, why, "the spec that runs is not accepted any more");
            Ok(None)
        }
    }
}

/// The newest rollout whose spec a person approved or did not have to. A renewal that nobody approved counts, because it is limited to what the spec
/// before it says. One that only looks is not, and so does not count.
pub(crate) async fn newest_accepted<'a>(
    assets: &impl Objects,
    rollout: &'a Rollout,
) -> FlowResult<Option<&'a RollbackTarget>> {
    for good in &rollout.rollback_targets {
        if good.approved {
            return Ok(Some(good));
        }
        let key = keys::plan(&rollout.cluster, &good.plan);
        let plan = store::load::<Plan>(assets, &key).await?.value;
        if plan.is_some_and(|plan| !plan.needs_approval() || plan.is_renewal()) {
            return Ok(Some(good));
        }
    }
    // Plans are never deleted, so this has no reason. The oldest one has the most after it that could have said otherwise.
    Ok(rollout.rollback_targets.last())
}

/// Whether rollouts and renewals go alike by both specs. No rollout brings this, so an upload that differs in nothing else has an empty plan.
fn go_alike(upload: &Cluster, runs: &Cluster) -> bool {
    let policy = |cluster: &Cluster| RolloutPolicy { approval: Approval::Auto, ..cluster.rollout.clone() };
    let (new, old) = (&upload.certificates, &runs.certificates);
    // One that renews nothing says nothing about how.
    let in_the_same_way = old
        .rollout_before_expiry
        .is_none_or(|old| new.rollout_before_expiry.is_some_and(|new| new.strategy == old.strategy));
    policy(upload) == policy(runs)
        && in_the_same_way
        && issues(new) == issues(old)
        && upload.etcd.snapshots == runs.etcd.snapshots
}

/// How certificates are issued, and when authorities are rotated. `authorities` is not part of it: an upload that changes the source of an authority
/// is refused once the cluster has that authority, and from then on its files are not used.
fn issues(certificates: &Certificates) -> (u32, KeyAlgorithm, u32, Option<u32>) {
    let Certificates {
        key_algorithm,
        ca_days,
        leaf_days,
        ca_rotation_days,
        rollout_before_expiry: _,
        authorities: _,
    } = certificates;
    (*leaf_days, *key_algorithm, *ca_days, *ca_rotation_days)
}

/// Lets certificates of `cluster` be issued and renewed, and its authorities be rotated, as `runs` says.
pub(crate) fn renews_as(cluster: &mut Cluster, runs: &Cluster) {
    let (own, other) = (&mut cluster.certificates, &runs.certificates);
    if own.leaf_days != other.leaf_days {
        // The two belong together: of certificates of a month that are renewed three months before they expire, each scan renews all.
        if let (Some(own), Some(other)) = (&mut own.rollout_before_expiry, other.rollout_before_expiry) {
            own.days = other.days;
        }
    }
    (own.leaf_days, own.key_algorithm, own.ca_days, own.ca_rotation_days) = issues(other);
}

/// The plan by which what runs is renewed, after `before` of the upload `spec` that runs. If that was only looked at, its names are those that run, but
/// nobody has approved how it renews: then `spec` renews as the one that counts, and the plan is that one's.
pub(super) async fn as_approved(
    specs: &impl Objects,
    assets: &impl Objects,
    rollout: &Rollout,
    before: Plan,
    spec: &mut Cluster,
) -> FlowResult<Plan> {
    let is_look = before.is_empty() && before.needs_approval();
    let Some(good) = newest_accepted(assets, rollout).await?.filter(|good| is_look && good.plan != before.id)
    else {
        return Ok(before);
    };
    let plan = store::load::<Plan>(assets, &keys::plan(&rollout.cluster, &good.plan)).await?.value;
    let approved = self::spec(specs, &rollout.cluster, &good.spec_version).await?;
    let (Some(plan), Some(approved)) = (plan, approved) else { return Ok(before) };
    renews_as(spec, &approved);
    spec.certificates.rollout_before_expiry = approved.certificates.rollout_before_expiry;
    Ok(plan)
}

/// The bundles that the nodes of etcd and the controllers have, or would have.
pub(super) fn of_control(digests: &BTreeMap<Role, String>) -> BTreeMap<Role, String> {
    let renews = |role: &Role| matches!(role, Role::Etcd(_) | Role::Controller);
    let digests = digests.iter().filter(|(role, _)| renews(role));
    digests.map(|(role, digest)| (role.clone(), digest.clone())).collect()
}

/// The bundles of what runs.
pub(super) fn node_bundles(deployed: &Baseline) -> NodeBundles {
    let roles = deployed.running_release().map(|runs| runs.roles).unwrap_or_default();
    roles.into_iter().map(|(role, node)| (role, [node.credentials_digest].into())).collect()
}

/// Limits `renewal`, of the upload `version`, to what the spec that was rolled out last would have of it. It is asked for a plan that would begin
/// without the approval that its policy asks for.
pub(super) async fn limit(
    renewal: RenewalPlan,
    specs: &impl Objects,
    assets: &impl Objects,
    prepared: &Prepared,
    deployed: &Baseline,
    rollout: &Rollout,
    version: &str,
    now: jiff::Timestamp,
) -> FlowResult<RenewalPlan> {
    let Some(lead) = lead(specs, assets, &prepared.cluster, rollout, version).await? else {
        return Ok(renewal);
    };
    let mut renewal = renewal;
    renewal.deadline.lead_s = lead.as_secs();
    renewal.of_another_spec =
        !has_and_says_the_same(specs, assets, prepared, deployed, rollout, version, now).await?;
    Ok(renewal)
}

/// How long before certificates expire their renewal waits for nothing, by the spec `version` of `cluster`: no longer than by the spec that a person
/// approved last. `None`: it renews nothing.
pub(super) async fn lead(
    specs: &impl Objects,
    assets: &impl Objects,
    cluster: &Cluster,
    rollout: &Rollout,
    version: &str,
) -> FlowResult<Option<SignedDuration>> {
    let (Some(own), Some(roll)) = (deadline::lead(cluster), Roll::for_cluster(cluster)) else {
        return Ok(None);
    };
    let approved = approved_lead(specs, assets, cluster, rollout, version).await?;
    // Never shorter than the slowest roll, so that it ends in time (P7).
    Ok(Some(own.min(approved).max(roll.lead(0))))
}

/// The lead that the newest spec has which a person approved or did not have to.
async fn approved_lead(
    specs: &impl Objects,
    assets: &impl Objects,
    cluster: &Cluster,
    rollout: &Rollout,
    version: &str,
) -> FlowResult<SignedDuration> {
    for good in &rollout.rollback_targets {
        let key = keys::plan(&cluster.name, &good.plan);
        let Some(plan) = store::load::<Plan>(assets, &key).await?.value else { continue };
        if good.approved || !plan.needs_approval() {
            let lead = match good.spec_version == version {
                true => deadline::lead(cluster),
                false => {
                    spec(specs, &cluster.name, &good.spec_version).await?.as_ref().and_then(deadline::lead)
                }
            };
            return Ok(lead.unwrap_or_default());
        }
        // It was limited itself.
        if !plan.renewal.deadline.is_none() {
            return Ok(SignedDuration::from_secs(plan.renewal.deadline.lead_s));
        }
    }
    Ok(SignedDuration::ZERO)
}

/// Whether the spec that was rolled out last would give etcd and the controllers the same credentials, in the same way. They differ if other names are
/// in them. If that spec cannot be read any more, which no upload brings about, nothing could be renewed by it, so the upload's are taken (P7).
async fn has_and_says_the_same(
    specs: &impl Objects,
    assets: &impl Objects,
    prepared: &Prepared,
    deployed: &Baseline,
    rollout: &Rollout,
    version: &str,
    now: jiff::Timestamp,
) -> FlowResult<bool> {
    // The last rollout may have failed. It had begun and had something to do, so this had been decided.
    let last = rollout.last.as_ref().filter(|last| !last.steps.is_empty());
    let last = last.map(|last| last.spec_version.as_str());
    let good = newest_accepted(assets, rollout).await?.map(|good| good.spec_version.as_str());
    if [last, good].contains(&Some(version)) {
        return Ok(true);
    }
    let Some(good) = good else { return Ok(true) };
    let Some(runs) = spec(specs, &prepared.cluster.name, good).await? else { return Ok(true) };
    if !go_alike(&prepared.cluster, &runs) {
        return Ok(false);
    }
    let (known, imported) = (node_bundles(deployed), Imported::new());
    let given = Constraints { known: &known, imported: &imported };
    match credentials::preview_credentials(assets, &runs, &given, now).await {
        Ok(foreseen) => Ok(of_control(&foreseen.digests) == of_control(&prepared.credentials.digests)),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(false),
    }
}
