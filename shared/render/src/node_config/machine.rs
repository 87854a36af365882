//! A worker's settings for its machine: file systems, disks, GPUs.

use slipway_core::cluster::{InstanceStore, Mount, NodePool};
use slipway_core::node::{InstanceStoreSettings, Machine, MountSettings, SCRATCH};

pub(super) fn machine(pool: &NodePool) -> Machine {
    Machine {
        mounts: pool.storage.mounts.iter().map(mount).collect(),
        instance_store: pool.storage.instance_store.as_ref().map(instance_store),
        gpu: pool.nvidia.then(|| "nvidia".to_owned()),
    }
}

fn mount(mount: &Mount) -> MountSettings {
    let Mount { path, devices, volume: _, file_system, create_tmp } = mount;
    MountSettings {
        devices: devices.clone(),
        path: path.clone(),
        file_system: file_system.clone(),
        create_tmp: *create_tmp,
    }
}

fn instance_store(store: &InstanceStore) -> InstanceStoreSettings {
    let InstanceStore { raid0, path, file_system } = store;
    let holds = if path.is_some() { Vec::new() } else { SCRATCH.map(str::to_owned).into() };
    InstanceStoreSettings { raid0: *raid0, file_system: file_system.clone(), path: path.clone(), holds }
}
