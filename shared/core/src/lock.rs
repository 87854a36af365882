//! The lock: what the outside world decided, pinned so that the same spec renders the same bytes (P1).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cluster::{Architecture, Cluster, Image};

/// `clusters/<name>/lock.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lock {
    /// Version of this file's format.
    pub format: u32,
    /// The exact release for the `kubernetesVersion` that was asked for, by what was asked (`1.34` → `1.34.2`).
    pub kubernetes: BTreeMap<String, String>,
    /// The image id behind each SSM public parameter.
    pub images: BTreeMap<String, String>,
    /// SHA-256 of the node agent for each architecture; empty while none has been published.
    pub agent: BTreeMap<Architecture, String>,
}

/// What a cluster needs from the lock and does not find there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// SSM parameters whose image is not pinned.
    pub parameters: BTreeSet<String>,
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
            agent: self.agent.is_empty(),
        }
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
