//! A worker's storage besides its root volume.

use serde::{Deserialize, Serialize};

use super::Volume;

/// Volumes besides the root, and the instance store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Storage {
    /// `volumeMounts` and `raid0Mounts`, sorted by path, so that a mount point comes before those inside it.
    pub mounts: Vec<Mount>,
    /// `ephemeralStorage`.
    pub instance_store: Option<InstanceStore>,
}

/// A file system on one volume, or on several equal volumes combined by RAID 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is mounted.
    pub path: String,
    /// The device names under which its volumes are attached, such as `/dev/xvdf`. Two or more form a RAID 0 array.
    pub devices: Vec<String>,
    /// The properties of each volume.
    pub volume: Volume,
    /// `ext4` or `xfs`.
    pub file_system: String,
    /// `createTmp`: it gets a world-writable folder `tmp`.
    pub create_tmp: bool,
}

/// How the machine's own NVMe disks are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStore {
    /// Whether several disks are combined by RAID 0. If not, each is mounted at `<path>/0`, `<path>/1`, ….
    pub raid0: bool,
    /// Where it is mounted. `None`: container images, logs and the pods' ephemeral storage use it.
    pub path: Option<String>,
    /// `ext4` or `xfs`.
    pub file_system: String,
}
