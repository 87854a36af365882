//! Continues the rotations of a cluster, and begins those that are due.

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::{Decision, Finding};
use slipway_credentials::rotation::{KnownNodes, due};
use slipway_ports::{Crypto, Keys, Listing, Objects};

use super::ScanPorts;
use crate::credentials::rotation::{self, Rotated};
use crate::error::FlowResult;
use crate::ports::Groups;

/// Begins the next stage of rotations, and the rotations that the policy asks for. A failure is a finding and does not block renewals.
pub(super) async fn rotate<S, A: Objects + Listing, G: Groups, K: Keys, B, C: Crypto>(
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
        let seen = rotation::see(ports.assets, ports.groups, &cluster.name).await?;
        unreadable(&cluster.name, &seen, &mut decision.findings);
        decision.next.findings.clone_from(&decision.findings);
        rotation::advance(ports.assets, ports.keys, ports.crypto, cluster, &seen, now).await
    };
    match rotated.await {
        Err(error) if !error.is_transient() => {
            decision.findings.push(Finding {
                key: keys::manifest(&cluster.name),
                message: format!("a rotation cannot continue: {error}"),
                help: "resolve that; then the next scan continues the rotation".to_owned(),
            });
            decision.next.findings.clone_from(&decision.findings);
            Ok(Vec::new())
        }
        other => other,
    }
}

/// How many reports are named that cannot be read.
const MOST_NAMED: usize = 10;

/// Names the machines for which the rotations wait because their reports cannot be read, unless a finding does so already.
fn unreadable(cluster: &str, seen: &KnownNodes, findings: &mut Vec<Finding>) {
    let all = seen.unreadable.iter().flat_map(|(role, nodes)| nodes.iter().map(move |node| (role, node)));
    let new: Vec<Finding> = all
        .map(|(role, (node, report))| Finding {
            key: report.key.clone(),
            message: format!("the rotation waits for {node} of {role}, whose report cannot be read: {}", report.problem),
            help: "nothing, if the node writes a new report within the hour; otherwise replace that machine, and find out what runs on it"
                .to_owned(),
        })
        .filter(|new| findings.iter().all(|old| old.key != new.key))
        .collect();
    let more = new.len().saturating_sub(MOST_NAMED);
    findings.extend(new.into_iter().take(MOST_NAMED));
    findings.extend((more > 0).then(|| Finding {
        key: keys::nodes(cluster),
        message: format!("the reports of {more} more machines cannot be read"),
        help: "resolve those that are named first".to_owned(),
    }));
}
