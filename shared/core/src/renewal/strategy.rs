//! How renewed credentials reach nodes: in place, or by replacing those that the renewal is of.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::{Cluster, RenewalStrategy};
use crate::pki::{Manifest, Role, manifest, policy};

use super::{Topology, group};

/// With the strategy `rollout`: the roles whose nodes are replaced, because leaves of their own were renewed since they had the bundle
/// `before`; and why. Nodes that only hold a certificate of another group's (a controller, etcd's client certificate) take it in
/// place (seed 002).
#[must_use]
pub fn by_strategy(
    cluster: &Cluster,
    manifest: &Manifest,
    before: &BTreeMap<Role, String>,
) -> BTreeMap<Role, String> {
    let renewal = cluster.certificates.rollout_before_expiry;
    if renewal.is_none_or(|renewal| renewal.strategy == RenewalStrategy::Refresh) {
        return BTreeMap::new();
    }
    let recipients = policy::recipients(cluster);
    let assets = policy::assets(cluster);
    let mut replaced = BTreeMap::new();
    for (role, had) in before {
        let Some(has) = manifest.bundles.get(role) else { continue };
        // Only what the inventory remembers can be told apart; a bundle that it does not know is taken in place.
        let Some(had) = manifest.retired.get(role).and_then(|retired| retired.get(had)) else { continue };
        let new: BTreeSet<String> = manifest::fingerprints(has).difference(had).cloned().collect();
        let renewed: Vec<&str> = assets
            .iter()
            .filter(|asset| {
                let is_new =
                    manifest.assets.get(&asset.name).is_some_and(|entry| new.contains(&entry.fingerprint));
                let group = group(asset, &recipients, Topology::External);
                is_new && group.is_some_and(|group| group.rolls(role))
            })
            .map(|asset| asset.name.as_str())
            .collect();
        if !renewed.is_empty() {
            let why = "rolloutBeforeExpiry.strategy is rollout: nodes are replaced";
            replaced.insert(role.clone(), format!("renewed: {}; {why}", renewed.join(", ")));
        }
    }
    replaced
}
