//! The lock: what the outside world decided, pinned so that the same spec renders the same bytes (P1).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cluster::{Architecture, Cluster, Image, KubernetesVersion};
use crate::members::MemberPin;
use crate::versions;

/// `clusters/<name>/lock.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lock {
    /// Version of this file's format.
    pub format: u32,
    /// The exact release for the `kubernetesVersion` that was asked for, by what was asked (`1.34` → `1.34.2`).
    pub kubernetes: BTreeMap<String, String>,
    /// The etcd release that goes with a Kubernetes minor (`1.34` → `3.6.16`), where `etcd.version` names none.
    pub etcd: BTreeMap<String, String>,
    /// The image id behind each SSM public parameter.
    pub images: BTreeMap<String, String>,
    /// How each etcd member comes up, by index: see [`crate::members`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub etcd_members: BTreeMap<u32, MemberPin>,
    /// SHA-256 of the node agent for each architecture; empty while none has been published.
    pub agent: BTreeMap<Architecture, String>,
}

/// What a cluster needs from the lock and does not find there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// SSM parameters whose image is not pinned.
    pub parameters: BTreeSet<String>,
    /// The release that `kubernetesVersion` is to be pinned to, by what was asked: the newest patch that this
    /// version of Slipway knows.
    pub kubernetes: BTreeMap<String, String>,
    /// The etcd release, by Kubernetes minor.
    pub etcd: BTreeMap<String, String>,
    /// No agent is pinned.
    pub agent: bool,
}

impl Lock {
    /// The current format.
    pub const FORMAT: u32 = 1;

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
            agent: self.agent.is_empty(),
        }
    }

    /// Of the controllers' version, and of each pool's that lags.
    fn missing_releases(&self, cluster: &Cluster) -> BTreeMap<String, String> {
        let pools = cluster.pools.iter().map(|pool| cluster.version_of(pool));
        std::iter::once(cluster.kubernetes_version)
            .chain(pools)
            .filter(|asked| asked.patch.is_none() && !self.kubernetes.contains_key(&asked.to_string()))
            .filter_map(|asked| Some((asked.to_string(), versions::newest_patch(asked)?.to_string())))
            .collect()
    }

    fn missing_etcd(&self, cluster: &Cluster) -> Option<(String, String)> {
        let minor = minor(cluster.kubernetes_version);
        if cluster.etcd.version.is_some() || self.etcd.contains_key(&minor) {
            return None;
        }
        Some((minor, versions::etcd(cluster.kubernetes_version)?.to_owned()))
    }

    /// The etcd release of `cluster`; `None` if the spec names none and the lock lacks it.
    #[must_use]
    pub fn etcd_version<'a>(&'a self, cluster: &'a Cluster) -> Option<&'a str> {
        let pinned = || self.etcd.get(&minor(cluster.kubernetes_version));
        cluster.etcd.version.as_ref().or_else(pinned).map(String::as_str)
    }

    /// The image id of `image` for `architecture`; `None` if the lock lacks it.
    #[must_use]
    pub fn image<'a>(&'a self, image: &'a Image, architecture: Architecture) -> Option<&'a str> {
        match image {
            Image::Ami(id) => Some(id),
            Image::SsmParameter(names) => {
                names.get(&architecture).and_then(|name| self.images.get(name)).map(String::as_str)
            }
        }
    }
}

/// `1.34` of `1.34.2`.
fn minor(version: KubernetesVersion) -> String {
    KubernetesVersion { patch: None, ..version }.to_string()
}

/// The SSM public parameters that `cluster`'s nodes take their images from.
fn parameters(cluster: &Cluster) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    let mut want = |image: &Image, instance_type: &str| {
        if let Image::SsmParameter(names) = image {
            wanted.extend(names.get(&Architecture::of_instance_type(instance_type)).cloned());
        }
    };
    want(&cluster.image, &cluster.controller.instance_type);
    want(&cluster.image, &cluster.etcd.instance_type);
    for pool in &cluster.pools {
        want(cluster.image_of(pool), &pool.instance_type);
    }
    wanted
}
