//! How renewed credentials reach nodes: in place, or by replacing the nodes.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::{Cluster, RenewalStrategy};
use slipway_core::role::Role;

use super::{Topology, group};
use crate::{Asset, Manifest, manifest, policy};

/// With the strategy `rollout`: the roles whose nodes are replaced because leaves of their own were renewed since the bundle `before`,
/// each with the reason.
#[must_use]
pub fn by_strategy(
    cluster: &Cluster,
    manifest: &Manifest,
    before: &BTreeMap<Role, String>,
) -> BTreeMap<Role, String> {
    let assets = policy::assets(cluster);
    let mut renewed = BTreeMap::new();
    for (role, had) in before {
        let Some(has) = manifest.bundles.get(role) else { continue };
        // Only bundles that the inventory lists can be compared; an unknown bundle is replaced in place.
        let Some(had) = manifest.retired.get(role).and_then(|retired| retired.get(had)) else { continue };
        let new: BTreeSet<String> = manifest::fingerprints(has).difference(had).cloned().collect();
        let is_new = |asset: &&Asset| {
            manifest.assets.get(&asset.name).is_some_and(|entry| new.contains(&entry.fingerprint))
        };
        renewed.insert(role.clone(), assets.iter().filter(is_new).map(|asset| asset.name.clone()).collect());
    }
    replaced(cluster, &renewed)
}

/// With the strategy `rollout`: the roles whose nodes are replaced when these assets of theirs are renewed, each with the reason. Nodes
/// that hold a certificate of another group (a controller: etcd's client certificate) take it in place.
#[must_use]
pub fn replaced(cluster: &Cluster, renewed: &BTreeMap<Role, Vec<String>>) -> BTreeMap<Role, String> {
    let renewal = cluster.certificates.rollout_before_expiry;
    if renewal.is_none_or(|renewal| renewal.strategy == RenewalStrategy::Refresh) {
        return BTreeMap::new();
    }
    let (assets, recipients) = (policy::assets(cluster), policy::recipients(cluster));
    let mut replaced = BTreeMap::new();
    for (role, names) in renewed {
        let rolls = |name: &&String| {
            let asset = assets.iter().find(|asset| asset.name == **name);
            let group = asset.and_then(|asset| group(asset, &recipients, Topology::External));
            group.is_some_and(|group| group.rolls(role))
        };
        let names: Vec<&str> = names.iter().filter(rolls).map(String::as_str).collect();
        if !names.is_empty() {
            let why = "rolloutBeforeExpiry.strategy is rollout: nodes are replaced";
            replaced.insert(role.clone(), format!("renewed: {}; {why}", names.join(", ")));
        }
    }
    replaced
}
