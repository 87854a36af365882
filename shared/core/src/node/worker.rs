//! The configuration of a worker. It says nothing about controllers, etcd or other pools.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Base, Kubelet, PodNetwork};
use crate::cluster::Custom;

/// The configuration of every worker of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerConfig {
    /// The fields that every configuration has.
    #[serde(flatten)]
    pub base: Base,
    /// Files and units of the user's.
    #[serde(default, skip_serializing_if = "Custom::is_empty")]
    pub custom: Custom,
    /// The kubelet's release, such as `1.37.0`.
    pub kubernetes_version: String,
    /// The URL of the API.
    pub api_server: String,
    /// Its kubelet.
    pub kubelet: Kubelet,
    /// The pods' network.
    pub pod_network: PodNetwork,
    /// `featureGates` of the kubelet.
    pub feature_gates: BTreeMap<String, bool>,
    /// Its file systems, disks and GPUs.
    #[serde(flatten)]
    pub machine: Machine,
}

/// The part of a worker's configuration that is about its machine. It is left out if it is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// In mount order: a mount point comes before those inside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountSettings>,
    /// Its instance store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store: Option<InstanceStoreSettings>,
    /// The containerd runtime for pods with GPUs: `nvidia`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// A file system on volumes that EC2 has attached. On Nitro a volume appears as an NVMe disk, which reports the device name that it was
/// attached under; elsewhere `/dev/sdf` may appear as `/dev/xvdf`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountSettings {
    /// Device names as in the launch template. Two or more are combined by RAID 0; their order is part of the array.
    pub devices: Vec<String>,
    /// Where it is mounted.
    pub path: String,
    /// `ext4` or `xfs`.
    pub file_system: String,
    /// It gets a world-writable folder `tmp`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_tmp: bool,
}

/// All NVMe disks of the machine that are not EBS volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStoreSettings {
    /// Whether several disks are combined by RAID 0. If not, each is mounted at `<path>/0`, `<path>/1`, ….
    pub raid0: bool,
    /// `ext4` or `xfs`.
    pub file_system: String,
    /// Where it is mounted, if it has a path of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Folders that are bind-mounted from it; none if it has a path of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
}
