//! The scan of a cluster: what it finds expiring or due, and what follows from that.
//!
//! [`fan_out`] requests a scan of each cluster by a separate event, and [`scan`] scans one. It is a sequence of steps, each a module:
//!
//! 1. `observe` reads certificates, inventory, node reports and plan, `machines` lists who has to report, `space` judges the room of etcd's
//!    databases, and `managers` whether a node manager works; [`slipway_credentials::renewal::decide`] decides.
//! 2. `renewal` renews the certificates that are due.
//! 3. `rotation` continues rotations and begins those that are due.
//! 4. `snapshots` writes the schedule of etcd's snapshots, and deletes old ones.
//! 5. `events` makes the events about all this, and `upgrade` the order to upgrade that the spec's schedule gives.
//!
//! A scan may be interrupted anywhere: before it renews, it records what it is about to replace, and credentials that are in the inventory
//! but not in the newest plan are announced by each scan until they are.

mod accepted;
mod events;
mod machines;
mod managers;
mod observe;
mod renewal;
mod rotation;
mod snapshots;
mod space;
mod upgrade;

use std::fmt;

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::event::{Event, RenewalFailed, ScanRequested};
use slipway_core::keys;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::{
    self as policy, CertificateState, Decision, Finding, Machines, RenewalRequest, State,
};
use slipway_ports::{Crypto, Folders, Keys, Listing, Objects, Removal};

use crate::credentials::rotation::Rotated;
use crate::error::FlowResult;
use crate::ports::{Bus, Groups};
use crate::store::{self, Stored};

pub use observe::nodes;

/// The ports that a scan needs.
#[derive(Debug)]
pub struct ScanPorts<'a, S, A, G, K, B, C> {
    /// The spec bucket.
    pub specs: &'a S,
    /// The asset bucket.
    pub assets: &'a A,
    /// Auto Scaling, which lists the machines that have to report.
    pub groups: &'a G,
    /// KMS.
    pub keys: &'a K,
    /// The bus.
    pub bus: &'a B,
    /// Certificates.
    pub crypto: &'a C,
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq)]
pub enum ScanOutcome {
    /// There was nothing to scan, with the reason.
    Nothing(&'static str),
    /// The cluster was scanned.
    Scanned(Box<Scanned>),
}

/// The state of a cluster's certificates after a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Scanned {
    /// `clusterName`.
    pub cluster: String,
    /// All certificates in use, before the renewals.
    pub standings: Vec<CertificateState>,
    /// The certificates that were renewed.
    pub renewed: Vec<String>,
    /// Renewals that were due and failed.
    pub failed: Vec<RenewalFailed>,
    /// The certificates whose expiry was announced.
    pub announced: Vec<String>,
    /// The problems that a person has to resolve.
    pub findings: Vec<Finding>,
    /// When the newest verified snapshot of the schedule was stored.
    pub newest_snapshot: Option<Timestamp>,
    /// How much of its quota etcd uses, in percent, by the reports of its members; 100 while it refuses writes.
    pub etcd_quota_percent: Option<u64>,
}

impl fmt::Display for ScanOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(why) => f.write_str(why),
            Self::Scanned(scanned) => {
                let (all, renewed) = (scanned.standings.len(), scanned.renewed.len());
                write!(f, "{all} certificates, {renewed} renewed, {} not, ", scanned.failed.len())?;
                write!(f, "{} announced, {} findings", scanned.announced.len(), scanned.findings.len())
            }
        }
    }
}

/// Requests a scan of each cluster, and returns how many there are. One page of clusters is in memory at a time.
///
/// # Errors
/// If a call fails. A retry requests some scans twice, which is harmless.
pub async fn fan_out(assets: &impl Folders, bus: &impl Bus) -> FlowResult<usize> {
    let (mut count, mut last): (usize, Option<String>) = (0, None);
    loop {
        let page = assets.folders_after(keys::CLUSTERS, last.as_deref()).await?;
        let Some(end) = page.last().cloned() else { return Ok(count) };
        let ask = |cluster| Event::ScanRequested(ScanRequested { cluster: Some(cluster) });
        // Folders with other names are no clusters, and their events would become dead letters.
        let events: Vec<Event> = page.into_iter().filter(|name| keys::is_cluster(name)).map(ask).collect();
        count += events.len();
        bus.publish(&events).await?;
        last = Some(end);
    }
}

/// Scans the certificates of `cluster`, renews those that are due, and publishes events.
///
/// # Errors
/// If a call fails, or the inventory cannot be read. A certificate that cannot be read is a finding, and one that cannot be renewed is
/// announced on the bus.
pub async fn scan<S: Objects, A: Objects + Listing + Removal, G: Groups, K: Keys, B: Bus, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &str,
    request: &RenewalRequest,
    now: Timestamp,
) -> FlowResult<ScanOutcome> {
    let mut seen = match observe::observe(ports, cluster, now).await? {
        Ok(seen) => seen,
        Err(why) => return Ok(ScanOutcome::Nothing(why)),
    };
    let (machines, listed) = machines::list(ports.assets, ports.groups, cluster, &mut seen.findings).await;
    seen.findings.extend(seen.managers.finding(cluster, &machines));
    let mut decision = seen.decide(&machines, request, now);
    let stored = renewal::record_intent(ports.assets, &seen, &decision).await?;
    let (mut renewed, failed) = renewal::renew(ports, &seen.cluster, &decision.renew, now).await?;
    let rotated = match seen.may_renew {
        true => rotation::rotate(ports, &seen.cluster, &seen.manifest, now, &mut decision).await?,
        false => Vec::new(),
    };
    decision.unplanned |= rotated.iter().any(Rotated::changes_nodes) || seen.may_renew && seen.held_up;
    renewed.extend(rotated.into_iter().flat_map(|one| one.made));
    let snapshots = std::mem::replace(&mut seen.snapshots, Ok(None));
    let snapshots = tend_snapshots(ports.assets, cluster, snapshots, &mut decision).await;
    let manifest = match renewed.is_empty() && !decision.unplanned {
        true => seen.manifest.clone(),
        false => load_manifest(ports.assets, cluster).await?.unwrap_or_default(),
    };
    let mut events = events::of_scan(cluster, &decision, &manifest, seen.planned.as_ref(), &renewed, &failed);
    // If a new plan is about to be made, it will request its own rollout.
    let overdue = seen.overdue.clone().filter(|_| renewed.is_empty() && !decision.unplanned);
    events.extend(overdue.map(Event::RolloutRequested));
    if renewed.is_empty() && !decision.unplanned && seen.may_renew {
        events.extend(upgrade::due_order(ports.assets, &seen, now).await?);
    }
    ports.bus.publish(&events).await?;
    let done = renewal::done(&decision.renew, &renewed);
    keep(ports.assets, cluster, &stored, decision.next.clone().renewed(&done)).await?;
    let newest_snapshot = snapshots?;
    listed?;
    Ok(ScanOutcome::Scanned(Box::new(Scanned {
        cluster: cluster.to_owned(),
        standings: decision.standings,
        renewed,
        failed,
        announced: decision.announce.into_iter().map(|one| one.certificate).collect(),
        findings: decision.findings,
        etcd_quota_percent: seen.spaces.percent(),
        newest_snapshot,
    })))
}

/// Writes the schedule of snapshots and deletes old ones. Returns when the newest verified one was stored. What no retry resolves is a finding;
/// after any other failure the whole scan is repeated, once the events of its renewals are published.
async fn tend_snapshots(
    assets: &(impl Objects + Removal),
    cluster: &str,
    scan: FlowResult<Option<snapshots::SnapshotScan>>,
    decision: &mut Decision,
) -> FlowResult<Option<Timestamp>> {
    let Some(scan) = scan.or_else(|error| if error.is_transient() { Err(error) } else { Ok(None) })? else {
        return Ok(None);
    };
    match scan.act(assets, cluster).await {
        Err(error) if !error.is_transient() => {
            decision.findings.push(snapshots::not_tended(cluster, &error));
            decision.next.findings.clone_from(&decision.findings);
        }
        acted => acted?,
    }
    Ok(scan.newest)
}

/// What a scan would do.
#[derive(Debug, Clone)]
pub struct Foreseen {
    /// The cluster of the accepted spec.
    pub cluster: Cluster,
    /// The inventory.
    pub manifest: Manifest,
    /// What it would decide.
    pub decision: Decision,
}

/// Observes and decides as [`scan`] does, without renewing, writing or publishing, and without listing the machines. The inner error is the
/// reason why there is nothing to scan.
///
/// # Errors
/// As [`scan`].
pub async fn preview_scan<S: Objects, A: Objects + Listing, G, K, B, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &str,
    request: &RenewalRequest,
    now: Timestamp,
) -> FlowResult<Result<Foreseen, &'static str>> {
    let seen = observe::observe(ports, cluster, now).await?;
    Ok(seen.map(|mut seen| {
        seen.findings.extend(seen.managers.finding(cluster, &Machines::Unknown));
        let decision = seen.decide(&Machines::default(), request, now);
        Foreseen { cluster: seen.cluster, manifest: seen.manifest, decision }
    }))
}

impl observe::Observation {
    fn decide(&self, machines: &Machines, request: &RenewalRequest, now: Timestamp) -> Decision {
        let mut cluster = self.cluster.clone();
        if !self.may_renew {
            // So all that expire are announced, as if renewals were off.
            cluster.certificates.rollout_before_expiry = None;
        }
        let observed = policy::Observed {
            cluster: &cluster,
            manifest: &self.manifest,
            stored: &self.stored,
            nodes: &self.nodes,
            machines,
            planned: self.planned.as_ref(),
            state: &self.state,
            request,
        };
        let mut decision = policy::decide(&observed, now);
        if !self.may_renew {
            decision.renew.clear();
            decision.unplanned = false;
        }
        decision.findings.extend(self.findings.clone());
        decision.next.findings.clone_from(&decision.findings);
        decision
    }
}

async fn load_manifest(assets: &impl Objects, cluster: &str) -> FlowResult<Option<Manifest>> {
    Ok(store::load::<Manifest>(assets, &keys::manifest(cluster)).await?.value)
}

/// Stores the state. If another scan wrote first, nothing is lost, because it saw the same.
async fn keep(assets: &impl Objects, cluster: &str, stored: &Stored<State>, next: State) -> FlowResult<()> {
    if store::save(assets, &keys::scan(cluster), stored, next).await?.is_none() {
        tracing::info!(cluster, "another scan kept its own state first");
    }
    Ok(())
}
