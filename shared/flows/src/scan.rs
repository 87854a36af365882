//! The scan of a cluster's certificates: from the stored objects to renewals and events.
//!
//! [`fan_out`] requests a scan of each cluster by a separate event, and [`scan`] scans one. Decisions are those of
//! [`slipway_credentials::renewal::decide`]. A scan may be interrupted anywhere: before it renews, it records what it is about to
//! replace, and credentials that are in the inventory but not in the newest plan are announced by each scan until they are.

mod observe;

use std::fmt;

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::event::{
    CertificateExpiring, CertificateRenewed, Event, RenewalFailed, ScanRequested, UpgradeRequested,
};
use slipway_core::keys;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::{
    self, Announcement, CertificateState, Decision, Finding, Renewal, RenewalRequest, State,
};
use slipway_credentials::rotation::due;
use slipway_ports::{Crypto, Folders, Keys, Listing, Objects};
use slipway_render::lock::Lock;

use crate::credentials::rotation::{self, Rotated};
use crate::credentials::{self, ToRenew};
use crate::error::{FlowError, FlowResult};
use crate::ports::{Bus, Groups};
use crate::store::{self, Stored};

/// The ports that a scan needs.
#[derive(Debug)]
pub struct ScanPorts<'a, S, A, G, K, B, C> {
    /// The spec bucket.
    pub specs: &'a S,
    /// The asset bucket.
    pub assets: &'a A,
    /// Auto Scaling, which is queried during rotations.
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
        let events: Vec<Event> = page.into_iter().filter(|name| is_name(name)).map(ask).collect();
        count += events.len();
        bus.publish(&events).await?;
        last = Some(end);
    }
}

fn is_name(folder: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=64).contains(&folder.len()) && folder.bytes().all(fits)
}

/// Scans the certificates of `cluster`, renews those that are due, and publishes events.
///
/// # Errors
/// If a call fails, or the inventory cannot be read. A certificate that cannot be read is a finding, and one that cannot be renewed is
/// announced on the bus.
pub async fn scan<S: Objects, A: Objects + Listing, G: Groups, K: Keys, B: Bus, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &str,
    request: &RenewalRequest,
    now: Timestamp,
) -> FlowResult<ScanOutcome> {
    let seen = match observe::observe(ports, cluster, now).await? {
        Ok(seen) => seen,
        Err(why) => return Ok(ScanOutcome::Nothing(why)),
    };
    let mut decision = seen.decide(request, now);
    let mut stored = seen.stored_state.clone();
    if !decision.renew.is_empty() {
        // Record first what is about to be replaced: if this run dies after the renewal, the next scan continues.
        let mut intent = seen.state.clone();
        intent.superseded.clone_from(&decision.next.clone().renewed(&decision.renew).superseded);
        match store::save(ports.assets, &keys::scan(cluster), &stored, intent).await? {
            Some(written) => stored = written,
            // Another scan of this cluster runs at the same time, and may not know of this request.
            None => return Err(FlowError::Race { key: keys::scan(cluster), tries: 1 }),
        }
    }
    let (mut renewed, failed) = renew(ports, &seen.cluster, &decision.renew, now).await?;
    let rotated = rotate(ports, &seen.cluster, &seen.manifest, now, &mut decision).await?;
    decision.unplanned |= rotated.iter().any(Rotated::changes_nodes);
    renewed.extend(rotated.into_iter().flat_map(|one| one.made));
    let manifest = match renewed.is_empty() && !decision.unplanned {
        true => seen.manifest.clone(),
        false => load_manifest(ports.assets, cluster).await?.unwrap_or_default(),
    };
    let mut events = events(cluster, &decision, &manifest, seen.planned.as_ref(), &renewed, &failed);
    // If a new plan is about to be made, it will request its own rollout.
    let overdue = seen.overdue.clone().filter(|_| renewed.is_empty() && !decision.unplanned);
    events.extend(overdue.map(Event::RolloutRequested));
    if renewed.is_empty() && !decision.unplanned {
        events.extend(upgrade(ports.assets, &seen, now).await?);
    }
    ports.bus.publish(&events).await?;
    let done: Vec<Renewal> = decision.renew.iter().filter(|one| is_done(one, &renewed)).cloned().collect();
    keep(ports.assets, cluster, &stored, decision.next.clone().renewed(&done)).await?;
    Ok(ScanOutcome::Scanned(Box::new(Scanned {
        cluster: cluster.to_owned(),
        standings: decision.standings,
        renewed,
        failed,
        announced: decision.announce.into_iter().map(|one| one.certificate).collect(),
        findings: decision.findings,
    })))
}

/// The order to upgrade that the spec's schedule gives now. It waits until what is desired was rolled out.
async fn upgrade(assets: &impl Objects, seen: &observe::Seen, now: Timestamp) -> FlowResult<Option<Event>> {
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

/// Observes and decides as [`scan`] does, without renewing, writing or publishing. The inner error is the reason why there is nothing to
/// scan.
///
/// # Errors
/// As [`scan`].
pub async fn foresee<S: Objects, A: Objects + Listing, G, K, B, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &str,
    request: &RenewalRequest,
    now: Timestamp,
) -> FlowResult<Result<Foreseen, &'static str>> {
    let seen = observe::observe(ports, cluster, now).await?;
    Ok(seen.map(|seen| {
        let decision = seen.decide(request, now);
        Foreseen { cluster: seen.cluster, manifest: seen.manifest, decision }
    }))
}

impl observe::Seen {
    fn decide(&self, request: &RenewalRequest, now: Timestamp) -> Decision {
        let observed = renewal::Observed {
            cluster: &self.cluster,
            manifest: &self.manifest,
            stored: &self.stored,
            nodes: &self.nodes,
            planned: self.planned.as_ref(),
            state: &self.state,
            request,
        };
        let mut decision = renewal::decide(&observed, now);
        decision.findings.extend(self.findings.clone());
        decision.next.findings.clone_from(&decision.findings);
        decision
    }
}

/// Begins the next stage of rotations, and the rotations that the policy asks for. A failure is a finding and does not block renewals.
async fn rotate<S, A: Objects + Listing, G: Groups, K: Keys, B, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &Cluster,
    manifest: &Manifest,
    now: Timestamp,
    decision: &mut Decision,
) -> FlowResult<Vec<Rotated>> {
    let begins = due(manifest, &cluster.certificates, now).iter().any(|due| due.start);
    if manifest.rotations.is_empty() && !begins {
        return Ok(Vec::new());
    }
    let rotated = async {
        let nodes = rotation::see(ports.assets, ports.groups, &cluster.name).await?;
        rotation::advance(ports.assets, ports.keys, ports.crypto, cluster, &nodes, now).await
    };
    match rotated.await {
        Err(error) if !error.is_transient() => {
            decision.findings.push(Finding {
                key: keys::manifest(&cluster.name),
                message: format!("a rotation cannot go on: {error}"),
                help: "resolve that; the next scan continues the rotation".to_owned(),
            });
            decision.next.findings.clone_from(&decision.findings);
            Ok(Vec::new())
        }
        other => other,
    }
}

async fn load_manifest(assets: &impl Objects, cluster: &str) -> FlowResult<Option<Manifest>> {
    Ok(store::load::<Manifest>(assets, &keys::manifest(cluster)).await?.value)
}

fn is_done(renewal: &Renewal, renewed: &[String]) -> bool {
    renewal.certificates.iter().any(|one| renewed.contains(&one.name))
}

/// Stores the state. If another scan wrote first, nothing is lost, because it saw the same.
async fn keep(assets: &impl Objects, cluster: &str, stored: &Stored<State>, next: State) -> FlowResult<()> {
    if store::save(assets, &keys::scan(cluster), stored, next).await?.is_none() {
        tracing::info!(cluster, "another scan kept its own state first");
    }
    Ok(())
}

/// Renews what is due in one version of the inventory. If that fails, each group is renewed by itself, so that one lost key blocks only
/// its own group. Returns what was renewed, and the failures.
async fn renew<S, A: Objects, G, K: Keys, B, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &Cluster,
    renewals: &[Renewal],
    now: Timestamp,
) -> FlowResult<(Vec<String>, Vec<RenewalFailed>)> {
    let (mut renewed, mut failed) = (Vec::new(), Vec::new());
    if renewals.is_empty() {
        return Ok((renewed, failed));
    }
    let issue = async |some: &[Renewal]| {
        let wanted: Vec<ToRenew> = some
            .iter()
            .flat_map(|renewal| &renewal.certificates)
            .map(|one| ToRenew { name: one.name.clone(), fingerprint: Some(one.fingerprint.clone()) })
            .collect();
        credentials::renew_all(ports.assets, ports.keys, ports.crypto, cluster, &wanted, true, now).await
    };
    match issue(renewals).await {
        Ok(credentials) => return Ok((credentials.made, failed)),
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => tracing::warn!(cluster = cluster.name, %error, "not all can be renewed together"),
    }
    for renewal in renewals {
        match issue(std::slice::from_ref(renewal)).await {
            Ok(credentials) => renewed.extend(credentials.made),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                let ends = renewal.certificates.iter().map(|one| one.ends).min().unwrap_or(now);
                failed.push(RenewalFailed {
                    cluster: cluster.name.clone(),
                    certificates: renewal.certificates.iter().map(|one| one.name.clone()).collect(),
                    not_after: ends.to_string(),
                    message: format!("{}: {error} ({})", renewal.group, error.kind()),
                });
            }
        }
    }
    Ok((renewed, failed))
}

fn events(
    cluster: &str,
    decision: &Decision,
    manifest: &Manifest,
    planned: Option<&renewal::Planned>,
    renewed: &[String],
    failed: &[RenewalFailed],
) -> Vec<Event> {
    let mut events: Vec<Event> = decision.announce.iter().map(|one| expiring(cluster, one)).collect();
    events.extend(failed.iter().cloned().map(Event::RenewalFailed));
    if !renewed.is_empty() || decision.unplanned {
        let lacks = |digests: &renewal::Planned| {
            let roles = manifest.bundles.iter().filter(|(role, bundle)| {
                digests.digests.get(*role).is_some_and(|digest| *digest != bundle.digest)
            });
            roles.map(|(role, _)| role.to_string()).collect()
        };
        let certificates = match renewed {
            // Renewed by an earlier scan, which may have died before it announced them.
            [] => decision.next.superseded.keys().cloned().collect(),
            renewed => renewed.to_vec(),
        };
        events.push(Event::CertificateRenewed(CertificateRenewed {
            cluster: cluster.to_owned(),
            certificates,
            roles: planned.map(lacks).unwrap_or_default(),
            urgent: decision.next.urgent.as_ref().map(renewal::Urgent::words),
        }));
    }
    events
}

fn expiring(cluster: &str, one: &Announcement) -> Event {
    Event::CertificateExpiring(CertificateExpiring {
        cluster: cluster.to_owned(),
        certificate: one.certificate.clone(),
        not_after: one.ends.to_string(),
        days_left: one.days_left,
        threshold_days: one.threshold_days,
        place: one.place.clone(),
        renewed_from: one.renewed_from.map(|from| from.to_string()),
        message: one.message.clone(),
        help: one.help.clone(),
    })
}
