//! What a worker must know: nothing of controllers, etcd and other pools.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Base, Kubelet, PodNetwork};
use crate::cluster::Custom;

/// The configuration of every worker of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerConfig {
    /// What every configuration has.
    #[serde(flatten)]
    pub base: Base,
    /// Files and units of the user's.
    #[serde(default, skip_serializing_if = "Custom::is_empty")]
    pub custom: Custom,
    /// The kubelet's release, such as `1.37.0`.
    pub kubernetes_version: String,
    /// Where the API is reached.
    pub api_server: String,
    /// Its kubelet.
    pub kubelet: Kubelet,
    /// The pods' network.
    pub pod_network: PodNetwork,
    /// `featureGates` of the kubelet.
    pub feature_gates: BTreeMap<String, bool>,
    /// File systems, disks, GPUs.
    #[serde(flatten)]
    pub machine: Machine,
}

/// The part of a worker's configuration that is about its machine. A worker without any of it is told nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// In the order in which they are mounted: one below another comes after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountSettings>,
    /// The machine's own disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store: Option<InstanceStoreSettings>,
    /// The runtime that containerd uses for pods with GPUs: `nvidia`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// A file system on volumes that EC2 has attached already. On Nitro a volume appears as an NVMe disk, which tells the
/// name that it was attached under; elsewhere `/dev/sdf` may appear as `/dev/xvdf`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountSettings {
    /// As in the launch template; two or more are put together by RAID 0. The order of an array's members is part of it.
    pub devices: Vec<String>,
    /// Where it is mounted.
    pub path: String,
    /// `ext4` or `xfs`.
    pub file_system: String,
    /// It gets a folder `tmp` that everyone may write to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_tmp: bool,
}

/// All NVMe disks of the machine that are no EBS volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStoreSettings {
    /// Put together by RAID 0, where there are several; otherwise each is mounted at `<path>/0`, `<path>/1`, ….
    pub raid0: bool,
    /// `ext4` or `xfs`.
    pub file_system: String,
    /// Where it is mounted, if it has a path of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Folders that are bound to it; none if it has a path of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
}
