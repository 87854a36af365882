//! A cluster's certificates were to be looked at: from what lies in the bucket to what is renewed and said (design §8).
//!
//! [`fan_out`] asks for each cluster by an event of its own; [`scan`] does one. It decides by
//! [`slipway_credentials::renewal::decide`], and may die anywhere: before it renews it writes down what it is about to replace; what
//! is in the inventory and not in the newest plan is said again by the next scan, until it is.

mod observe;

use std::fmt;

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::event::{CertificateExpiring, CertificateRenewed, Event, RenewalFailed, ScanRequested};
use slipway_core::keys;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::{self, Announcement, Asked, Decision, Finding, Renewal, Standing, State};
use slipway_credentials::rotation::due;
use slipway_ports::{Crypto, Folders, Keys, Listing, Objects};

use crate::credentials::rotation::{self, Rotated};
use crate::credentials::{self, ToRenew};
use crate::error::{FlowError, FlowResult};
use crate::ports::{Bus, Groups};
use crate::store::{self, Stored};

/// What a scan needs of the world.
#[derive(Debug)]
pub struct ScanPorts<'a, S, A, G, K, B, C> {
    /// The spec bucket.
    pub specs: &'a S,
    /// The asset bucket.
    pub assets: &'a A,
    /// Auto Scaling, which is asked while something is exchanged.
    pub groups: &'a G,
    /// KMS.
    pub keys: &'a K,
    /// The bus.
    pub bus: &'a B,
    /// Certificates.
    pub crypto: &'a C,
}

/// What became of a scan.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// There is nothing to look at, and why.
    Nothing(&'static str),
    /// Looked at.
    Scanned(Box<Scanned>),
}

/// How a cluster's certificates stand after a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Scanned {
    /// `clusterName`.
    pub cluster: String,
    /// Every certificate in use, as it stood before.
    pub standings: Vec<Standing>,
    /// What was issued anew.
    pub renewed: Vec<String>,
    /// What was due and was not.
    pub failed: Vec<RenewalFailed>,
    /// What was announced.
    pub announced: Vec<String>,
    /// What a person has to look at.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Outcome {
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

/// Asks for a scan of each cluster; how many. One page of clusters is in memory at a time.
///
/// # Errors
/// If a call fails. Whoever tries again asks for some of them twice, which does no harm.
pub async fn fan_out(assets: &impl Folders, bus: &impl Bus) -> FlowResult<usize> {
    let (mut count, mut last): (usize, Option<String>) = (0, None);
    loop {
        let page = assets.folders_after(keys::CLUSTERS, last.as_deref()).await?;
        let Some(end) = page.last().cloned() else { return Ok(count) };
        let ask = |cluster| Event::ScanRequested(ScanRequested { cluster: Some(cluster) });
        // Whatever else lies there is no cluster: its event would only become a dead letter.
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

/// Looks at the certificates of `cluster`, renews what is due, and says what is to be said.
///
/// # Errors
/// If a call fails for want of a permission, a resource or luck, or the inventory cannot be read. A certificate that cannot is a
/// finding, and one that cannot be issued anew is said on the bus.
pub async fn scan<S: Objects, A: Objects + Listing, G: Groups, K: Keys, B: Bus, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &str,
    asked: &Asked,
    now: Timestamp,
) -> FlowResult<Outcome> {
    let seen = match observe::observe(ports, cluster, now).await? {
        Ok(seen) => seen,
        Err(why) => return Ok(Outcome::Nothing(why)),
    };
    let mut decision = seen.decide(asked, now);
    let mut stored = seen.stored_state.clone();
    if !decision.renew.is_empty() {
        // What is about to be replaced is written down first: whoever dies after the renewal leaves it to the next scan.
        let mut intent = seen.state.clone();
        intent.superseded.clone_from(&decision.next.clone().renewed(&decision.renew).superseded);
        match store::save(ports.assets, &keys::scan(cluster), &stored, intent).await? {
            Some(written) => stored = written,
            // Somebody else scans this cluster right now. It may not know what this one was asked.
            None => return Err(FlowError::Race { key: keys::scan(cluster), tries: 1 }),
        }
    }
    let (mut renewed, failed) = renew(ports, &seen.cluster, &decision.renew, now).await?;
    let rotated = rotate(ports, &seen.cluster, &seen.manifest, now, &mut decision).await?;
    decision.unwished |= rotated.iter().any(Rotated::changes_nodes);
    renewed.extend(rotated.into_iter().flat_map(|one| one.made));
    let manifest = match renewed.is_empty() && !decision.unwished {
        true => seen.manifest.clone(),
        false => load_manifest(ports.assets, cluster).await?.unwrap_or_default(),
    };
    let mut events = events(cluster, &decision, &manifest, seen.wished.as_ref(), &renewed, &failed);
    // What is planned anew after this scan is asked for by that plan.
    let overdue = seen.overdue.clone().filter(|_| renewed.is_empty() && !decision.unwished);
    events.extend(overdue.map(Event::RolloutRequested));
    ports.bus.publish(&events).await?;
    let done: Vec<Renewal> = decision.renew.iter().filter(|one| is_done(one, &renewed)).cloned().collect();
    keep(ports.assets, cluster, &stored, decision.next.clone().renewed(&done)).await?;
    Ok(Outcome::Scanned(Box::new(Scanned {
        cluster: cluster.to_owned(),
        standings: decision.standings,
        renewed,
        failed,
        announced: decision.announce.into_iter().map(|one| one.certificate).collect(),
        findings: decision.findings,
    })))
}

/// What a scan would do.
#[derive(Debug, Clone)]
pub struct Foreseen {
    /// The spec that counts.
    pub cluster: Cluster,
    /// The inventory.
    pub manifest: Manifest,
    /// What it would decide.
    pub decision: Decision,
}

/// Looks as [`scan`] does, and decides; nothing is renewed, written or said. The inner error: there is nothing to look at, and why.
///
/// # Errors
/// As [`scan`].
pub async fn foresee<S: Objects, A: Objects + Listing, G, K, B, C: Crypto>(
    ports: &ScanPorts<'_, S, A, G, K, B, C>,
    cluster: &str,
    asked: &Asked,
    now: Timestamp,
) -> FlowResult<Result<Foreseen, &'static str>> {
    let seen = observe::observe(ports, cluster, now).await?;
    Ok(seen.map(|seen| {
        let decision = seen.decide(asked, now);
        Foreseen { cluster: seen.cluster, manifest: seen.manifest, decision }
    }))
}

impl observe::Seen {
    fn decide(&self, asked: &Asked, now: Timestamp) -> Decision {
        let observed = renewal::Observed {
            cluster: &self.cluster,
            manifest: &self.manifest,
            stored: &self.stored,
            nodes: &self.nodes,
            wished: self.wished.as_ref(),
            state: &self.state,
            asked,
        };
        let mut decision = renewal::decide(&observed, now);
        decision.findings.extend(self.findings.clone());
        decision.next.findings.clone_from(&decision.findings);
        decision
    }
}

/// Takes what is being exchanged a stage further, and begins what the policy asks for. What cannot be is a finding: it holds up no
/// renewal.
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
                help: "cure that; the next scan goes on from where it is".to_owned(),
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

/// Keeps what was said. Losing to another scan is no loss: it looked at the same.
async fn keep(assets: &impl Objects, cluster: &str, stored: &Stored<State>, next: State) -> FlowResult<()> {
    if store::save(assets, &keys::scan(cluster), stored, next).await?.is_none() {
        tracing::info!(cluster, "another scan kept its own state first");
    }
    Ok(())
}

/// Issues anew what is due: all in one version of the inventory; if that cannot be, what rolls together by itself, so that one
/// lost key holds up no more than it must. What was renewed, and what was not.
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
    wished: Option<&renewal::Wished>,
    renewed: &[String],
    failed: &[RenewalFailed],
) -> Vec<Event> {
    let mut events: Vec<Event> = decision.announce.iter().map(|one| expiring(cluster, one)).collect();
    events.extend(failed.iter().cloned().map(Event::RenewalFailed));
    if !renewed.is_empty() || decision.unwished {
        let lacks = |digests: &renewal::Wished| {
            let roles = manifest.bundles.iter().filter(|(role, bundle)| {
                digests.digests.get(*role).is_some_and(|digest| *digest != bundle.digest)
            });
            roles.map(|(role, _)| role.to_string()).collect()
        };
        let certificates = match renewed {
            // What an earlier scan renewed, and may have died before it said so.
            [] => decision.next.superseded.keys().cloned().collect(),
            renewed => renewed.to_vec(),
        };
        events.push(Event::CertificateRenewed(CertificateRenewed {
            cluster: cluster.to_owned(),
            certificates,
            roles: wished.map(lacks).unwrap_or_default(),
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
