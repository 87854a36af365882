//! Continues the rotations of a cluster, and begins those that are due.

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::{Decision, Finding};
use slipway_credentials::rotation::due;
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
        let nodes = rotation::see(ports.assets, ports.groups, &cluster.name).await?;
        rotation::advance(ports.assets, ports.keys, ports.crypto, cluster, &nodes, now).await
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
