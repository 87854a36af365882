//! Translates a node's report of its certificates into assets of the inventory.

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::node::NodeStatus;
use slipway_core::role::Role;

use crate::manifest;
use crate::policy::{self, BundleFile, ETCD_DIR, KUBERNETES_DIR, Part};

/// A node's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// Its role.
    pub role: Role,
    /// Which machine.
    pub instance: String,
    /// Its key in the asset bucket.
    pub key: String,
    /// When it was written, by the node's clock.
    pub at: Timestamp,
    /// The leaves that it serves or uses as a client.
    pub held: Vec<LeafOnNode>,
}

/// A leaf of the inventory on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafOnNode {
    /// The asset.
    pub asset: String,
    /// The fingerprint of the certificate that the node has.
    pub fingerprint: String,
    /// When that certificate expires.
    pub ends: Timestamp,
    /// The component that serves it, or its path: `kube-apiserver`, `/etc/kubernetes/pki/scheduler.pem`.
    pub by: String,
}

/// The bundle's file that determines what each listener presents.
const SERVED: [(&str, &str, &str); 3] = [
    ("etcd-client", ETCD_DIR, "server.pem"),
    ("etcd-peer", ETCD_DIR, "peer.pem"),
    ("kube-apiserver", KUBERNETES_DIR, "apiserver.pem"),
];

/// The leaves of this cluster in `status`, which `instance` wrote at `key`; `None` if it is of a role that the cluster does not have. Certificates that a node makes or
/// requests itself (a kubelet's, a scheduler's) are in no inventory.
#[must_use]
pub fn reported(cluster: &Cluster, instance: &str, key: &str, status: &NodeStatus) -> Option<Reported> {
    let role: Role = status.role.parse().ok()?;
    if status.cluster != cluster.name || !policy::roles(cluster).contains(&role) {
        return None;
    }
    let leaves: Vec<String> = policy::assets(cluster)
        .iter()
        .filter(|asset| manifest::profile(asset).is_some_and(|profile| !profile.authority))
        .map(|asset| asset.name.clone())
        .collect();
    let files = policy::bundle(cluster, &role);
    let asset_at = |path: &str| {
        let sources =
            files.iter().filter(|file: &&BundleFile| file.path == path).flat_map(|file| &file.sources);
        let leaf =
            sources.filter(|source| source.part == Part::Certificate && leaves.contains(&source.asset));
        leaf.map(|source| source.asset.clone()).next()
    };
    let served = status.served.iter().filter_map(|served| {
        let (_, folder, file) = SERVED.iter().find(|(name, ..)| *name == served.name)?;
        let certificate = served.certificate.as_ref()?;
        Some(LeafOnNode {
            asset: asset_at(&format!("{folder}/{file}"))?,
            fingerprint: certificate.fingerprint.clone(),
            ends: certificate.not_after,
            by: served.name.clone(),
        })
    });
    let lies = status.held.iter().filter_map(|held| {
        Some(LeafOnNode {
            asset: asset_at(&held.path)?,
            fingerprint: held.fingerprint.clone(),
            ends: held.not_after,
            by: held.path.clone(),
        })
    });
    let held = served.chain(lies).collect();
    let (instance, key) = (instance.to_owned(), key.to_owned());
    Some(Reported { role: role.clone(), instance, key, at: status.at, held })
}
