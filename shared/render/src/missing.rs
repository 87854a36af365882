//! What a cluster needs from its lock and the lock lacks: releases that this version of Slipway knows, and what has to be looked up.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::Cluster;
use slipway_core::pin::Pin;
use slipway_core::versions;

use crate::lock::{Lock, Missing, minor, parameters};
use crate::{images as addons, software};

impl Lock {
    /// What `cluster` needs and this lock lacks.
    #[must_use]
    pub fn missing(&self, cluster: &Cluster) -> Missing {
        Missing {
            parameters: parameters(cluster)
                .into_iter()
                .filter(|name| !self.images.contains_key(name))
                .collect(),
            kubernetes: self.missing_releases(cluster),
            etcd: self.missing_etcd(cluster).into_iter().collect(),
            agent: cluster.architectures().into_iter().filter(|one| !self.agent.contains_key(one)).collect(),
            addon_versions: self.missing_addon_versions(cluster),
            addon_images: self.missing_addon_images(cluster),
            program_versions: software::missing_versions(cluster, self),
            program_files: software::missing_files(cluster, &self.versioned(cluster)),
        }
    }

    /// What `cluster` needs and this lock lacks, if what it has of these kinds did not count.
    #[must_use]
    pub fn outdated(&self, cluster: &Cluster, pins: &BTreeSet<Pin>) -> Missing {
        let mut without = self.clone();
        for pin in pins {
            match pin {
                Pin::Images => without.images.clear(),
                Pin::Kubernetes => without.kubernetes.clear(),
                Pin::Etcd => without.etcd.clear(),
                Pin::Programs => without.program_versions.clear(),
                Pin::Addons => without.addon_versions.clear(),
                Pin::Agent => without.agent.clear(),
            }
        }
        without.missing(cluster)
    }

    fn missing_addon_versions(&self, cluster: &Cluster) -> BTreeMap<String, BTreeMap<String, String>> {
        let minor = minor(cluster.kubernetes_version);
        let pinned = self.addon_versions.get(&minor);
        let missing: BTreeMap<String, String> = addons::enabled(cluster)
            .into_iter()
            .flat_map(|addon| addons::newest(cluster.kubernetes_version, addon))
            .filter(|(image, _)| pinned.is_none_or(|pinned| !pinned.contains_key(image)))
            .collect();
        if missing.is_empty() { BTreeMap::new() } else { BTreeMap::from([(minor, missing)]) }
    }

    /// This lock with all releases that it lacks, as [`Lock::pin_known`] will pin them.
    fn versioned(&self, cluster: &Cluster) -> Self {
        let mut versioned = self.clone();
        versioned.kubernetes.extend(self.missing_releases(cluster));
        versioned.etcd.extend(self.missing_etcd(cluster));
        versioned.take_addon_versions(self.missing_addon_versions(cluster));
        versioned.take_program_versions(software::missing_versions(cluster, self));
        versioned
    }

    fn missing_addon_images(&self, cluster: &Cluster) -> BTreeSet<String> {
        let versioned = self.versioned(cluster);
        let of_addons = addons::references(cluster, &versioned).into_iter();
        of_addons
            .chain(software::references(cluster, &versioned))
            .filter(|reference| !self.addon_images.contains_key(reference))
            .collect()
    }

    /// Missing releases of the controllers and of pools with their own version.
    fn missing_releases(&self, cluster: &Cluster) -> BTreeMap<String, String> {
        let pools = cluster.pools.iter().map(|pool| cluster.version_of(pool));
        std::iter::once(cluster.kubernetes_version)
            .chain(pools)
            .filter(|version| version.patch.is_none() && !self.kubernetes.contains_key(&version.to_string()))
            .filter_map(|version| Some((version.to_string(), versions::newest_patch(version)?.to_string())))
            .collect()
    }

    fn missing_etcd(&self, cluster: &Cluster) -> Option<(String, String)> {
        let minor = minor(cluster.kubernetes_version);
        if cluster.etcd.version.is_some() || self.etcd.contains_key(&minor) {
            return None;
        }
        Some((minor, versions::etcd(cluster.kubernetes_version)?.to_owned()))
    }
}
