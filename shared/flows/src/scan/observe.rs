//! Observes what a scan decides about. What cannot be read is a finding with its key, and the scan continues.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use slipway_core::cluster::Cluster;
use slipway_core::event::PlanReference;
use slipway_core::keys;
use slipway_core::node::NodeStatus;
use slipway_core::release::{Rendering, StackKind, stack_name};
use slipway_core::role::Role;
use slipway_core::status::Desired;
use slipway_core::words::moment;
use slipway_credentials::renewal::{Finding, Planned, Reported, State, Stored, reported};
use slipway_credentials::{Manifest, manifest, policy};
use slipway_plan::Plan;
use slipway_ports::{Crypto, Listing, Objects};
use slipway_rollout::{Rollout, RolloutResult, Stopped, StoppedRenewal};

use super::ScanPorts;
use super::accepted::{Accepted, accepted, keep_members};
use super::managers::Managers;
use super::snapshots::{self, SnapshotScan};
use super::space::Spaces;
use crate::credentials::lost_inventory;
use crate::error::{FlowError, FlowResult};
use crate::rendering::HeldUp;
use crate::store::{self, AT_A_TIME, MOST_KEPT_BYTES, NodeObject};

/// The largest certificate that is read. PEM certificates have some kilobytes.
const MOST_BYTES: u64 = 64 * 1024;
/// How many objects of a cluster's `pki/`, and of each role's `nodes/`, are listed. Certificates beyond that are queried one by one, nodes
/// are ignored.
const MOST_LISTED: usize = 4_000;
/// How many reports of a role are read, the newest first.
const MOST_NODES: usize = 40;
/// Older reports are not read.
const OLD: SignedDuration = SignedDuration::from_hours(24 * 14);

/// What a scan observed.
pub(super) struct Observation {
    pub(super) cluster: Cluster,
    pub(super) manifest: Manifest,
    pub(super) stored: BTreeMap<String, Stored>,
    pub(super) nodes: Vec<Reported>,
    pub(super) planned: Option<Planned>,
    pub(super) state: State,
    pub(super) stored_state: store::Stored<State>,
    pub(super) findings: Vec<Finding>,
    /// The newest plan, if it may no longer wait for approval and no rollout of it has begun.
    pub(super) overdue: Option<PlanReference>,
    /// Whether that plan changes more than certificates and waits for an approval nevertheless: what runs is then renewed by a plan of its own.
    pub(super) held_up: bool,
    /// Whether certificates are renewed, and not only announced: it is not being destroyed.
    pub(super) may_renew: bool,
    /// Whether what is desired was rolled out, and nothing is open or paused.
    pub(super) idle: bool,
    /// The scheduled snapshots of a cluster that has an etcd. A failure must not hold up renewals.
    pub(super) snapshots: FlowResult<Option<SnapshotScan>>,
    /// The room of etcd's databases.
    pub(super) spaces: Spaces,
    /// Whether the node managers work.
    pub(super) managers: Managers,
}

/// The needed parts of a release, which contains every template.
#[derive(Deserialize)]
struct Release {
    roles: BTreeMap<Role, ReleasedRole>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReleasedRole {
    credentials_digest: String,
}

/// Observes. The inner error is the reason why there is nothing to scan.
pub(super) async fn observe<S: Objects, A: Objects + Listing, G, K, B, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    name: &str,
    now: Timestamp,
) -> FlowResult<Result<Observation, &'static str>> {
    let desired = store::load::<Desired>(ports.assets, &keys::desired(name)).await?.value;
    let rollout = store::load::<Rollout>(ports.assets, &keys::rollout(name)).await?.value;
    let manifest = super::load_manifest(ports.assets, name).await?;
    if manifest.is_none() && desired.is_none() && rollout.is_none() {
        return Ok(Err("no credentials yet: left alone"));
    }
    let mut findings = Vec::new();
    let stalled = rollout.as_ref().and_then(Rollout::stalled_destruction);
    let is_going = rollout.as_ref().is_some_and(Rollout::is_going) && stalled.is_none();
    if is_going || rollout.as_ref().is_some_and(|rollout| rollout.was_destroyed().is_some()) {
        return Ok(Err("destroyed, or about to be: left alone"));
    }
    let Some(manifest) = manifest else { return Err(lost_inventory(&keys::manifest(name))) };
    findings.extend(stalled.map(|since| stalled_destruction(name, since)));
    let spec =
        accepted(ports.specs, ports.assets, name, desired.as_ref(), rollout.as_ref(), &mut findings).await?;
    let Some(Accepted { mut cluster, snapshots }) = spec else {
        let stands = rollout.is_some_and(|rollout| !rollout.existing_releases().is_empty());
        if !stands {
            return Ok(Err("no accepted spec, and nothing stands: left alone"));
        }
        let problem = "has no accepted version that can be read, and the cluster stands".to_owned();
        let help = "upload a spec, so that its certificates are looked after".to_owned();
        return Err(FlowError::Corrupt { key: keys::spec(name), problem, help });
    };
    if let Some(rollout) = &rollout {
        keep_members(ports.specs, &mut cluster, rollout).await?;
    }
    // Before that there is no etcd, so nothing is missing. A launch may have failed after it, and the cluster be in use.
    let etcd = stack_name(name, StackKind::Etcd, "");
    let has_etcd = rollout.as_ref().is_some_and(|rollout| rollout.existing_releases().contains_key(&etcd));
    let snapshots = match has_etcd {
        true => {
            let earlier_until = rollout.as_ref().and_then(|rollout| rollout.etcd_gone_at);
            snapshots::read_snapshots(ports.assets, name, snapshots, earlier_until, now).await.map(Some)
        }
        false => Ok(None),
    };
    match &snapshots {
        Ok(scan) => findings.extend(scan.as_ref().and_then(|scan| scan.finding.clone())),
        Err(error) if error.is_transient() => {}
        Err(error) => findings.push(snapshots::not_tended(name, error)),
    }
    let (stored_state, state) = load_state(ports.assets, name, now, &mut findings).await?;
    let paused_since = rollout.as_ref().and_then(Rollout::paused_since);
    findings.extend(paused_since.and_then(|since| forgotten_pause(&cluster, &manifest, since, now)));
    let (nodes, spaces, managers) = nodes(ports.assets, &cluster, now, &mut findings).await?;
    findings.extend(spaces.findings(name));
    let (overdue, held_up) = overdue(ports.assets, name, desired.as_ref(), rollout.as_ref(), now).await?;
    let stopped = rollout.as_ref().and_then(|rollout| rollout.stopped_renewal.as_ref());
    findings.extend(held_up.map(|why| nothing_renews(name, why, stopped)));
    Ok(Ok(Observation {
        stored: certificates(ports, &cluster, &manifest).await?,
        nodes,
        planned: planned(ports.assets, name, desired.as_ref(), rollout.as_ref()).await?,
        held_up: held_up.is_some(),
        overdue,
        may_renew: stalled.is_none(),
        idle: rollout
            .as_ref()
            .zip(desired.as_ref())
            .is_some_and(|(rollout, desired)| is_idle(rollout, desired)),
        cluster,
        manifest,
        state,
        stored_state,
        findings,
        snapshots,
        spaces,
        managers,
    }))
}

/// Whether what is desired was rolled out, and nothing is open or paused. After a failure or an abort, work begins again only after an upload (P10).
fn is_idle(rollout: &Rollout, desired: &Desired) -> bool {
    let done = rollout.last.as_ref().is_some_and(|last| last.result == RolloutResult::Succeeded);
    let reached = rollout.rollback_targets.first().is_some_and(|good| good.target == desired.target);
    let is_of_another = |stopped: &Stopped| stopped.spec_version != desired.spec_version;
    let nothing_waits = rollout.stopped.as_ref().is_none_or(is_of_another);
    done && reached && nothing_waits && rollout.active().is_none() && rollout.paused_since().is_none()
}

/// How long a pause is taken for one that somebody remembers.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24 * 7);

/// A pause that somebody seems to have forgotten, or that would hold a renewal within a week. While it lasts, no renewed certificate
/// reaches a node (P7). As a finding of the scan it raises the alarm `ScanNeedsPerson`.
fn forgotten_pause(
    cluster: &Cluster,
    manifest: &Manifest,
    since: Timestamp,
    now: Timestamp,
) -> Option<Finding> {
    let certificates = manifest.ends.values().flat_map(BTreeMap::values);
    let ends = certificates.filter(|end| **end > now).min().copied();
    let renewal = cluster.certificates.rollout_before_expiry;
    let days = renewal.map_or(0, |renewal| i64::from(renewal.days));
    let due = ends.map(|end| end - SignedDuration::from_hours(24 * days));
    let holds_soon = due.is_some_and(|due| due <= now + REMEMBERED);
    if !holds_soon && now.duration_since(since) < REMEMBERED {
        return None;
    }
    let held = match due.filter(|_| holds_soon) {
        Some(due) if due <= now => "; it holds a renewal that is due".to_owned(),
        Some(due) => format!("; the next renewal is due at {}, and the pause would hold it", moment(due)),
        None => String::new(),
    };
    Some(Finding {
        key: keys::rollout(&cluster.name),
        message: format!(
            "everything is paused since {}, so no renewed certificate reaches a node{held}",
            moment(since)
        ),
        help: format!("slipway resume --cluster {}", cluster.name),
    })
}

/// The newest plan renews nothing in time. `stopped`: the last renewal of what runs, if it stopped.
fn nothing_renews(cluster: &str, why: HeldUp, stopped: Option<&StoppedRenewal>) -> Finding {
    let (what, help) = match why {
        HeldUp::Unapproved => (
            "waits for an approval",
            format!("slipway approve --cluster {cluster} rolls out both; or upload the spec that runs again"),
        ),
        HeldUp::Stopped => (
            "failed or was aborted",
            format!(
                "slipway status --cluster {cluster} says why; upload the spec again, or the one that runs"
            ),
        ),
        HeldUp::NotExecutable => (
            "cannot be executed",
            format!("slipway status --cluster {cluster} says why; upload a spec without that change"),
        ),
    };
    let instead = match stopped {
        Some(StoppedRenewal { aborted: true, at, .. }) => format!(
            "nothing renews them, because a person aborted the renewal of what runs at {}; another upload or an approval ends that",
            moment(*at)
        ),
        Some(StoppedRenewal { at, .. }) => format!(
            "what runs is renewed without it; that failed at {}, and is tried again each day",
            moment(*at)
        ),
        None => "what runs is renewed without it, as long as its spec is still in the bucket".to_owned(),
    };
    Finding {
        key: keys::desired(cluster),
        message: format!("the newest plan {what}, and certificates expire soon: {instead}"),
        help,
    }
}

/// A destruction that makes no progress. What it has not deleted serves, and its certificates expire.
fn stalled_destruction(cluster: &str, since: Timestamp) -> Finding {
    Finding {
        key: keys::rollout(cluster),
        message: format!(
            "the destruction that was ordered at {} makes no progress, and until it is over no certificate is renewed",
            moment(since)
        ),
        help: format!(
            "slipway status --cluster {cluster} says why; slipway abort --cluster {cluster} keeps what is left"
        ),
    }
}

/// The stored state. If it cannot be read, the scan continues without it and announces again what had been announced.
async fn load_state(
    assets: &impl Objects,
    name: &str,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) -> FlowResult<(store::Stored<State>, State)> {
    let (stored, problem) = store::load_or_none::<State>(assets, &keys::scan(name)).await?;
    findings.extend(problem.map(|message| Finding {
        key: keys::scan(name),
        message,
        help: "no action is needed: the state was written again, and expiring certificates are announced again".to_owned(),
    }));
    let state = stored.value.clone().unwrap_or_else(|| State::new(now));
    Ok((stored, state))
}

/// The stored certificates that the inventory names.
async fn certificates<S, A: Objects + Listing, G, K, B, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &Cluster,
    manifest: &Manifest,
) -> FlowResult<BTreeMap<String, Stored>> {
    let listed = ports.assets.list(&keys::pki(&cluster.name), MOST_LISTED).await?;
    let whole = listed.len() < MOST_LISTED;
    let sizes: BTreeMap<String, u64> = listed.into_iter().map(|one| (one.key, one.size)).collect();
    let assets = policy::assets(cluster);
    let wanted = assets.iter().filter(|asset| manifest::profile(asset).is_some()).filter_map(|asset| {
        let entry = manifest.assets.get(&asset.name)?;
        Some((asset.name.clone(), keys::public_half(&cluster.name, &asset.name, &entry.fingerprint), entry))
    });
    stream::iter(wanted)
        .map(|(name, key, entry)| {
            let known = sizes.get(&key).copied();
            async move {
                let size = match known {
                    None if !whole => ports.assets.head(&key).await?.map(|head| head.size),
                    known => known,
                };
                let stored = certificate(ports, key, size, &entry.fingerprint).await?;
                Ok::<_, FlowError>((name, stored))
            }
        })
        .buffer_unordered(AT_A_TIME)
        .try_collect()
        .await
}

async fn certificate<S, A: Objects, G, K, B, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    key: String,
    size: Option<u64>,
    fingerprint: &str,
) -> FlowResult<Stored> {
    let broken = |message: String, help: &str| {
        Stored::Broken(Finding { key: key.clone(), message, help: help.to_owned() })
    };
    let bring_back = "bring back an earlier version of the object (the bucket keeps them), or issue it anew; then find out who \
                      wrote or deleted it: no function of Slipway does";
    let Some(size) = size else {
        return Ok(broken("the inventory names it, and it is lost".to_owned(), bring_back));
    };
    if size > MOST_BYTES {
        let message =
            format!("it has {size} bytes, and a certificate has {MOST_BYTES} at most: it was not read");
        return Ok(broken(message, bring_back));
    }
    let Some(object) = ports.assets.get(&key).await? else {
        return Ok(broken("the inventory names it, and it is lost".to_owned(), bring_back));
    };
    let seen = match ports.crypto.examine(&key, &object.bytes) {
        Ok(seen) => seen,
        Err(flaw) => return Ok(broken(flaw.message, &flaw.help)),
    };
    if seen.fingerprint != fingerprint {
        let message = format!(
            "the object contains another certificate than its name says: one with the fingerprint {}",
            seen.fingerprint
        );
        return Ok(broken(message, bring_back));
    }
    let flaws = seen.flaws.into_iter().map(|flaw| (flaw.message, flaw.help)).collect();
    Ok(Stored::Read { key, facts: seen.facts, flaws })
}

/// The last reports of the nodes that hold leaves: etcd members and controllers. Workers hold none, so what they write is not read.
///
/// A node can write anything below the folder of its role, and nothing elsewhere. So the role is the folder's, a report about another machine
/// is a finding, no report is newer than its object, and each role has a limit of its own.
///
/// # Errors
/// If a port fails, and may work later.
pub async fn nodes(
    assets: &(impl Objects + Listing),
    cluster: &Cluster,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) -> FlowResult<(Vec<Reported>, Spaces, Managers)> {
    let since = now.saturating_sub(OLD).unwrap_or(Timestamp::MIN);
    let roles = policy::roles(cluster).into_iter().filter(|role| match role {
        Role::Etcd(_) | Role::Controller => true,
        Role::Pool(_) | Role::Admin => false,
    });
    let read: Vec<Vec<(Place, NodeObject<NodeStatus>)>> = stream::iter(roles)
        .map(|role| read_of_role(assets, &cluster.name, role, since))
        .buffered(AT_A_TIME)
        .try_collect()
        .await?;
    let (mut nodes, mut spaces, mut managers) = (Vec::new(), Spaces::default(), Managers::default());
    for (place, told) in read.into_iter().flatten() {
        match told {
            NodeObject::Missing => {}
            NodeObject::Read(status) if !place.is_of(&status) => findings.push(Finding {
                message: format!(
                    "it claims to be from {} ({}), but only a node of {} can write here, so it was ignored",
                    store::clipped(&status.role),
                    store::clipped(status.instance.as_ref().map_or("no machine", |instance| &instance.id)),
                    place.role
                ),
                help: "find out what runs on that machine, and replace it".to_owned(),
                key: place.key,
            }),
            NodeObject::Read(status) => {
                if let Some(etcd) = &status.etcd {
                    spaces.note(&place.role, &place.key, status.at.min(place.modified), etcd, now);
                }
                if place.role == Role::Controller {
                    managers.note(&place.instance, &place.key, &status, place.modified, now);
                }
                let Some(report) = reported(cluster, &place.instance, &place.key, &status) else { continue };
                match excess(&report) {
                    None => nodes.push(Reported { at: report.at.min(place.modified), ..report }),
                    Some(message) => findings.push(Finding {
                        message,
                        help: "find out what runs on that machine, and replace it".to_owned(),
                        key: place.key,
                    }),
                }
            }
            NodeObject::Unreadable(problem) => findings.push(Finding {
                message: format!("the report of {} of {} cannot be read: {problem}", place.instance, place.role),
                help: "nothing, if the node writes a new report within the hour; otherwise check slipway-node on the node"
                    .to_owned(),
                key: place.key,
            }),
        }
    }
    Ok((nodes, spaces, managers))
}

/// What is wrong with a report that says more of its certificates than an agent does. What they say is stored.
fn excess(report: &Reported) -> Option<String> {
    let Reported { role, instance, .. } = report;
    let kept = report.held.iter().map(|held| held.asset.len() + held.fingerprint.len() + held.by.len());
    let kept: usize = kept.sum();
    (kept > MOST_KEPT_BYTES).then(|| {
        format!(
            "the names and fingerprints in the report of {instance} of {role} have {kept} bytes, and those of an agent have {MOST_KEPT_BYTES} at \
             most, so it was ignored"
        )
    })
}

/// Where a report lies.
struct Place {
    key: String,
    role: Role,
    instance: String,
    modified: Timestamp,
}

impl Place {
    /// Whether the report is of the machine that its key names.
    fn is_of(&self, status: &NodeStatus) -> bool {
        status.role == self.role.to_string()
            && status.instance.as_ref().is_none_or(|instance| instance.id == self.instance)
    }
}

/// The newest reports of a role.
async fn read_of_role(
    assets: &(impl Objects + Listing),
    cluster: &str,
    role: Role,
    since: Timestamp,
) -> FlowResult<Vec<(Place, NodeObject<NodeStatus>)>> {
    let name = role.to_string();
    let listed = assets.list(&keys::nodes_of(cluster, &name), MOST_LISTED).await?;
    let mut places: Vec<Place> = listed
        .into_iter()
        .filter(|one| one.modified >= since)
        .filter_map(|one| {
            let instance = keys::instance_of_status(cluster, &name, &one.key)?.to_owned();
            Some(Place { role: role.clone(), instance, modified: one.modified, key: one.key })
        })
        .collect();
    places.sort_by(|one, other| (other.modified, &one.key).cmp(&(one.modified, &other.key)));
    places.truncate(MOST_NODES);
    stream::iter(places)
        .map(|place| async move {
            let told = store::read_node_object(assets, &place.key, NodeStatus::MOST_BYTES).await?;
            Ok::<_, FlowError>((place, told))
        })
        .buffered(AT_A_TIME)
        .try_collect()
        .await
}

/// The newest plan, if its nodes' certificates expire so soon that it waits for nothing, and no rollout is open. Only the scan wakes a
/// rollout then, because a plan that waits for approval has no tick. Also why it renews nothing even so.
async fn overdue(
    assets: &impl Objects,
    name: &str,
    desired: Option<&Desired>,
    rollout: Option<&Rollout>,
    now: Timestamp,
) -> FlowResult<(Option<PlanReference>, Option<HeldUp>)> {
    let (Some(desired), Some(rollout)) = (desired, rollout) else { return Ok((None, None)) };
    if rollout.active().is_some_and(|active| active.plan == desired.plan) {
        return Ok((None, None));
    }
    // A plan that cannot be read is reported by the rollout.
    let (plan, _) = store::load_or_none::<Plan>(assets, &keys::plan(name, &desired.plan)).await?;
    let Some(plan) = plan.value.filter(|plan| plan.urgency(now).overrides()) else {
        return Ok((None, None));
    };
    let held_up = HeldUp::find(assets, rollout, desired, &plan, now).await?;
    if rollout.active().is_some() {
        // It has a tick.
        return Ok((None, held_up));
    }
    let begins_again = match plan.left_behind {
        Some(_) => {
            let release =
                store::load::<Rendering>(assets, &keys::release(name, &desired.target)).await?.value;
            release.is_some_and(|release| rollout.may_renew(desired, &plan, &release, now))
        }
        None => false,
    };
    if rollout.was_rolled_out(desired) && !begins_again {
        // One that was refused renews nothing. Any other result was published.
        let has_stopped = |why: &HeldUp| matches!(why, HeldUp::NotExecutable | HeldUp::Stopped);
        return Ok((None, held_up.filter(has_stopped)));
    }
    Ok((Some(PlanReference { cluster: name.to_owned(), plan: desired.plan.clone() }), held_up))
}

/// The result of the newest plan.
async fn planned(
    assets: &impl Objects,
    name: &str,
    desired: Option<&Desired>,
    rollout: Option<&Rollout>,
) -> FlowResult<Option<Planned>> {
    let Some(desired) = desired else { return Ok(None) };
    let release = store::load::<Release>(assets, &keys::release(name, &desired.target)).await?.value;
    let Some(release) = release else { return Ok(None) };
    let reached = rollout.is_some_and(|rollout| {
        let last = rollout.last.as_ref();
        rollout.active().is_none()
            && last
                .is_some_and(|last| last.result == RolloutResult::Succeeded && last.target == desired.target)
    });
    let digests = release.roles.into_iter().map(|(role, node)| (role, node.credentials_digest)).collect();
    Ok(Some(Planned { digests, reached }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_credentials::renewal::LeafOnNode;

    use super::*;

    #[test]
    fn p7_whoever_is_told_that_a_plan_renews_nothing_is_told_what_renews_instead() {
        let stopped = |aborted| StoppedRenewal {
            spec_version: "v1".to_owned(),
            changes: String::new(),
            aborted,
            at: Timestamp::UNIX_EPOCH,
        };
        for (stopped, says) in [
            (None, "as long as its spec is still in the bucket"),
            (Some(stopped(false)), "is tried again each day"),
            (
                Some(stopped(true)),
                "nothing renews them, because a person aborted the renewal of what runs at",
            ),
        ] {
            let finding = nothing_renews("c", HeldUp::Stopped, stopped.as_ref());
            assert!(finding.message.contains(says), "{}", finding.message);
        }
    }

    #[test]
    fn a_report_of_more_than_an_agent_says_is_not_kept() {
        let report = |fingerprint: usize, times: usize| {
            let held = LeafOnNode {
                asset: "apiserver-etcd-client".to_owned(),
                fingerprint: "f".repeat(fingerprint),
                ends: Timestamp::MIN,
                by: "/etc/kubernetes/pki/apiserver-etcd-client.pem".to_owned(),
            };
            let (role, instance, key) = (Role::Controller, "i-1".to_owned(), String::new());
            Reported { role, instance, key, at: Timestamp::MIN, held: vec![held; times] }
        };
        assert_eq!(excess(&report(64, 20)), None, "a controller has fewer than ten");
        assert!(
            excess(&report(200_000, 1))
                .is_some_and(|why| why.contains("i-1 of controller have 200066 bytes"))
        );
        assert!(excess(&report(0, 2_000)).is_some());
    }

    #[test]
    fn p7_a_forgotten_pause_is_a_finding_and_one_that_would_hold_a_renewal_before_it_does() {
        let text = include_bytes!("../../../../examples/production.yaml");
        let cluster = slipway_spec::parse(text, None).unwrap().cluster;
        assert_eq!(cluster.certificates.rollout_before_expiry.unwrap().days, 30);
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        let finding = |since: i64, ends_in: i64| {
            let ends = BTreeMap::from([("digest".to_owned(), now + days(ends_in))]);
            let ends = BTreeMap::from([(Role::Controller, ends)]);
            let manifest = Manifest { ends, ..Manifest::default() };
            forgotten_pause(&cluster, &manifest, now - days(since), now).map(|found| found.message)
        };
        assert_eq!(finding(1, 300), None);
        assert!(finding(7, 300).unwrap().ends_with("so no renewed certificate reaches a node"));
        // Thirty days before the end a renewal is due.
        assert_eq!(finding(1, 38), None);
        assert!(finding(1, 37).unwrap().contains("the next renewal is due at 2026-11-29T12:00:00Z"));
        assert!(finding(1, 29).unwrap().ends_with("; it holds a renewal that is due"));
    }
}
