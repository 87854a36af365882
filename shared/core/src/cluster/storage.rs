//! What a worker stores things on besides its root volume.

use serde::{Deserialize, Serialize};

use super::Volume;

/// Volumes besides the root, and the instance store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Storage {
    /// `volumeMounts` and `raid0Mounts`, sorted by path, so that one that lies below another comes after it.
    pub mounts: Vec<Mount>,
    /// `ephemeralStorage`.
    pub instance_store: Option<InstanceStore>,
}

/// A file system on one volume, or on several equal ones put together by RAID 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is mounted.
    pub path: String,
    /// The names under which its volumes are attached, such as `/dev/xvdf`: two or more are RAID 0.
    pub devices: Vec<String>,
    /// What each volume is.
    pub volume: Volume,
    /// `ext4` or `xfs`.
    pub file_system: String,
    /// `createTmp`: it gets a folder `tmp` that everyone may write to.
    pub create_tmp: bool,
}

/// What the machine's own NVMe disks are used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStore {
    /// Put together by RAID 0, where there are several; otherwise each is mounted at `<path>/0`, `<path>/1`, ….
    pub raid0: bool,
    /// Where it is mounted; `None`: container images, logs and the pods' own scratch space lie on it.
    pub path: Option<String>,
    /// `ext4` or `xfs`.
    pub file_system: String,
}
