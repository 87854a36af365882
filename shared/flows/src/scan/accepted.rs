//! What a scan takes from the versions of a cluster's spec.

use std::collections::BTreeSet;

use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_core::snapshots::{Retention, ScheduledSnapshots};
use slipway_core::status::Desired;
use slipway_credentials::renewal::Finding;
use slipway_ports::Objects;
use slipway_rollout::Rollout;

use crate::error::FlowResult;
use crate::rendering::{newest_accepted, renews_as};

/// What specs say, as far as it counts.
pub(super) struct Accepted {
    /// The newest accepted spec. It may be newer than what is rolled out, and wait for an approval. How long its certificates are valid, and of which kind
    /// their keys are, is as in the spec that counts without any: such certificates have to be renewed so often that no renewal could wait for one.
    pub(super) cluster: Cluster,
    /// The schedule of etcd's snapshots. What is deleted is gone, so a spec that waits for an approval makes it no smaller.
    pub(super) snapshots: Option<ScheduledSnapshots>,
}

/// What counts of the specs of the cluster. An upload that was not accepted, or not looked at yet, does not count, and the newest one in the
/// bucket may be such a one.
pub(super) async fn accepted(
    specs: &impl Objects,
    assets: &impl Objects,
    name: &str,
    desired: Option<&Desired>,
    rollout: Option<&Rollout>,
    findings: &mut Vec<Finding>,
) -> FlowResult<Option<Accepted>> {
    let key = keys::spec(name);
    if specs.head(&key).await?.is_none() {
        findings.push(Finding {
            key,
            message: "the spec was deleted; Slipway continues with its last version".to_owned(),
            help: "upload it again; or, to delete the cluster, run slipway destroy".to_owned(),
        });
    }
    let rolled_out = rollout.and_then(rolled_out);
    for version in desired.map(Desired::accepted_version).into_iter().chain(rolled_out) {
        let Some(mut cluster) = parsed(specs, name, version).await? else { continue };
        let wanted = cluster.etcd.snapshots;
        let counts = counts(assets, desired, rollout).await?;
        let Some(counts) = counts.filter(|counts| *counts != version) else {
            return Ok(Some(Accepted { cluster, snapshots: wanted }));
        };
        let other = parsed(specs, name, counts).await?;
        if let Some(other) = &other {
            renews_as(&mut cluster, other);
        }
        return Ok(Some(Accepted { cluster, snapshots: schedule(wanted, other.as_ref()) }));
    }
    Ok(None)
}

/// The version of the spec that was rolled out last; before any rollout has succeeded, of the last one that began.
fn rolled_out(rollout: &Rollout) -> Option<&str> {
    let good = rollout.rollback_targets.first().map(|good| good.spec_version.as_str());
    let begun = rollout.active().map(|active| active.spec_version.as_str());
    good.or(begun).or(rollout.last.as_ref().map(|last| last.spec_version.as_str()))
}

/// The version of the spec that counts without any approval.
async fn counts<'a>(
    assets: &impl Objects,
    desired: Option<&'a Desired>,
    rollout: Option<&'a Rollout>,
) -> FlowResult<Option<&'a str>> {
    let since = desired.and_then(|desired| desired.snapshots.as_ref());
    let good = match rollout {
        Some(rollout) => newest_accepted(assets, rollout).await?,
        None => None,
    };
    let later = good.filter(|good| since.is_none_or(|since| good.started_at > since.at));
    Ok(match (later, since) {
        (Some(good), _) => Some(good.spec_version.as_str()),
        (None, Some(since)) => Some(since.version.as_str()),
        (None, None) => rollout.and_then(rolled_out),
    })
}

/// The schedule of etcd's snapshots that the accepted spec says, and no fewer than those of the spec that counts without any approval.
fn schedule(wanted: Option<ScheduledSnapshots>, other: Option<&Cluster>) -> Option<ScheduledSnapshots> {
    let other = match other {
        Some(other) => other.etcd.snapshots,
        // Nobody knows what it keeps, so nothing that any spec could keep is deleted.
        None => wanted.map(|wanted| ScheduledSnapshots { keep: Retention::MOST, ..wanted }),
    };
    ScheduledSnapshots::larger_of_each(wanted, other)
}

/// Adds the members of etcd that the accepted spec no longer has and that still run: their certificates count until they are removed.
pub(super) async fn keep_members(
    specs: &impl Objects,
    cluster: &mut Cluster,
    rollout: &Rollout,
) -> FlowResult<()> {
    let Some(version) = rolled_out(rollout) else { return Ok(()) };
    let Some(runs) = parsed(specs, &cluster.name, version).await? else { return Ok(()) };
    let kept: BTreeSet<u32> = cluster.etcd.members.iter().map(|member| member.index).collect();
    let still_runs =
        |index: u32| !kept.contains(&index) && !rollout.removed_members.contains(&Role::Etcd(index));
    cluster.etcd.members.extend(runs.etcd.members.into_iter().filter(|member| still_runs(member.index)));
    Ok(())
}

async fn parsed(specs: &impl Objects, name: &str, version: &str) -> FlowResult<Option<Cluster>> {
    let Some(text) = specs.get_version(&keys::spec(name), version).await? else { return Ok(None) };
    let expected = slipway_spec::Expected { name, region: None };
    Ok(slipway_spec::parse(&text.bytes, Some(&expected)).ok().map(|accepted| accepted.cluster))
}
