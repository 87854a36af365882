//! Renews the certificates that a scan found due.

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::event::RenewalFailed;
use slipway_core::keys;
use slipway_credentials::renewal::{Decision, Renewal, State};
use slipway_ports::{Crypto, Keys, Objects};

use super::ScanPorts;
use super::observe::Observation;
use crate::credentials::{self, ToRenew};
use crate::error::{FlowError, FlowResult};
use crate::store::{self, Stored};

/// Records what is about to be replaced: if this run dies after the renewal, the next scan continues. Returns the stored state.
pub(super) async fn record_intent(
    assets: &impl Objects,
    seen: &Observation,
    decision: &Decision,
) -> FlowResult<Stored<State>> {
    if decision.renew.is_empty() {
        return Ok(seen.stored_state.clone());
    }
    let key = keys::scan(&seen.cluster.name);
    let mut intent = seen.state.clone();
    intent.superseded.clone_from(&decision.next.clone().renewed(&decision.renew).superseded);
    // If it was written meanwhile, another scan of this cluster runs at the same time, and may not know of this request.
    let written = store::save(assets, &key, &seen.stored_state, intent).await?;
    written.ok_or(FlowError::Race { key, tries: 1 })
}

/// Renews what is due in one version of the inventory. If that fails, each group is renewed by itself, so that one lost key blocks only
/// its own group. Returns what was renewed, and the failures.
pub(super) async fn renew<S, A: Objects, G, K: Keys, B, C: Crypto>(
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

/// Those of `renewals` of which a certificate was renewed.
pub(super) fn done(renewals: &[Renewal], renewed: &[String]) -> Vec<Renewal> {
    let is_done = |one: &&Renewal| one.certificates.iter().any(|one| renewed.contains(&one.name));
    renewals.iter().filter(is_done).cloned().collect()
}
