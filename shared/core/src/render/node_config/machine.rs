//! What a worker is told of its machine: file systems, disks, GPUs. A worker without any of them is told nothing.

use serde::Serialize;

use crate::cluster::{InstanceStore, Mount, NodePool};

/// The part of a worker's configuration that is about its machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Machine {
    /// In the order in which they are mounted: one below another comes after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<MountSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_store: Option<InstanceStoreSettings>,
    /// The runtime that containerd uses for pods with GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<&'static str>,
}

/// A file system on volumes that EC2 has attached already. On Nitro a volume appears as an NVMe disk, which tells the
/// name that it was attached under; elsewhere `/dev/sdf` may appear as `/dev/xvdf`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MountSettings {
    /// As in the launch template; two or more are put together by RAID 0.
    devices: Vec<String>,
    path: String,
    file_system: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    create_tmp: bool,
}

impl From<&Mount> for MountSettings {
    fn from(mount: &Mount) -> Self {
        let Mount { path, devices, volume: _, file_system, create_tmp } = mount;
        // The order of an array's members is part of it.
        Self {
            devices: devices.clone(),
            path: path.clone(),
            file_system: file_system.clone(),
            create_tmp: *create_tmp,
        }
    }
}

/// All NVMe disks of the machine that are no EBS volume.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceStoreSettings {
    raid0: bool,
    file_system: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Folders that are bound to it; none if it has a path of its own.
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    holds: &'static [&'static str],
}

/// Where containerd keeps images and writable layers, the kubelet pods' scratch space, and both logs.
pub(crate) const SCRATCH: [&str; 3] = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];

impl From<&InstanceStore> for InstanceStoreSettings {
    fn from(store: &InstanceStore) -> Self {
        let InstanceStore { raid0, path, file_system } = store;
        Self {
            raid0: *raid0,
            file_system: file_system.clone(),
            path: path.clone(),
            holds: if path.is_some() { &[] } else { &SCRATCH },
        }
    }
}

impl Machine {
    pub(super) fn of(pool: &NodePool) -> Self {
        Self {
            mounts: pool.storage.mounts.iter().map(MountSettings::from).collect(),
            instance_store: pool.storage.instance_store.as_ref().map(InstanceStoreSettings::from),
            gpu: pool.nvidia.then_some("nvidia"),
        }
    }
}
