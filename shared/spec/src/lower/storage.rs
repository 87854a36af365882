//! Volumes besides the root, RAID 0, and the machines' own disks.

use slipway_core::cluster::{InstanceStore, Mount, Storage, Volume};
use slipway_core::node::SCRATCH;

use super::{Lowering, word};
use crate::instance_types::lookup;
use crate::model::{FileSystemSpec, MountKind, PoolSpec, VolumeKind, VolumeSpec};
use crate::path::Path;

/// Folders that the system, the node agent or those who sign in need as the image has them: a mount at one, or above it, would
/// hide what is in them. A volume at `/var/lib/kubelet`, `/var/lib/containerd` or `/var/log` is a choice.
const TAKEN: [&str; 26] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc/cni",
    "/etc/containerd",
    "/etc/etcd",
    "/etc/kubernetes",
    "/etc/slipway",
    "/etc/ssh",
    "/etc/systemd",
    "/home",
    "/lib",
    "/lib64",
    "/opt/cni",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/var/lib/amazon",
    "/var/lib/cloud",
    "/var/lib/slipway",
    "/var/lib/systemd",
    "/var/run",
];
/// Folders of the kernel's, the image's or Slipway's, in which nothing is to be mounted either.
const CLOSED: [&str; 14] = [
    "/bin/",
    "/boot/",
    "/dev/",
    "/etc/kubernetes/",
    "/etc/slipway/",
    "/etc/systemd/",
    "/lib/",
    "/lib64/",
    "/proc/",
    "/run/",
    "/sbin/",
    "/sys/",
    "/usr/",
    "/var/lib/slipway/",
];
/// The least that a throughput-optimized or cold volume may have (docs.aws.amazon.com/ebs, "Amazon EBS volume types").
const LEAST_HDD_GIB: u32 = 125;
/// The most that a magnetic volume may have.
const MOST_MAGNETIC_GIB: u32 = 1024;

/// One of `volumeMounts` or `raid0Mounts`, whose keys are the same but for the devices.
struct MountSpec {
    path: Path,
    kind: MountKind,
    volume: VolumeSpec,
    devices: Vec<(Path, String)>,
    mount: Option<String>,
    file_system: Option<FileSystemSpec>,
    create_tmp: bool,
}

impl Lowering<'_, '_, '_> {
    /// `volumeMounts`, `raid0Mounts` and `ephemeralStorage` of a pool with those instance types.
    pub(super) fn storage(&mut self, spec: &PoolSpec, types: &[String], path: &Path) -> Storage {
        let given = mount_specs(spec, path);
        let mut mounts: Vec<Mount> = Vec::new();
        for one in &given {
            self.devices(&one.devices, &mounts);
            let Some(mount) = one.mount.as_deref() else { continue };
            self.mount_path(mount, &one.path.key("path"), mounts.iter().map(|other| other.path.as_str()));
            let volume = self.mounted_volume(one.kind, &one.volume, &one.path);
            mounts.extend(volume.map(|volume| Mount {
                path: mount.to_owned(),
                devices: one.devices.iter().map(|(_, device)| device.clone()).collect(),
                volume,
                file_system: one.file_system.map_or_else(|| "xfs".to_owned(), word),
                create_tmp: one.create_tmp,
            }));
        }
        for (index, array) in spec.raid0_mounts.iter().enumerate() {
            if array.devices.len() == 1 {
                let help = "name two devices or more, or write it as one of `volumeMounts`";
                let path = path.key("raid0Mounts").index(index).key("devices");
                self.report.error("raid0-devices", &path, "RAID 0 of one device is none", help);
            }
        }
        let instance_store = self.instance_store(spec, types, &mounts, path);
        mounts.sort_by(|one, other| one.path.cmp(&other.path));
        Storage { mounts, instance_store }
    }

    /// Names under which EC2 attaches volumes (docs.aws.amazon.com/ebs, "Device names for Amazon EBS volumes"), each once:
    /// `/dev/sdf` and `/dev/xvdf` are the same.
    fn devices(&mut self, devices: &[(Path, String)], mounts: &[Mount]) {
        let mut taken: Vec<&str> =
            mounts.iter().flat_map(|mount| &mount.devices).filter_map(|device| letter(device)).collect();
        for (path, device) in devices {
            let Some(letter) = letter(device) else {
                self.report.error(
                    "device-name",
                    path,
                    format!("`{device}` is not a device name to attach a volume"),
                    "write one from `/dev/xvdf` to `/dev/xvdz`; those before belong to the image",
                );
                continue;
            };
            if taken.contains(&letter) {
                let help = "give each volume of the pool a letter of its own, from `f` to `z`";
                self.report.error(
                    "duplicate-name",
                    path,
                    format!("the device `{device}` is named twice"),
                    help,
                );
            }
            taken.push(letter);
        }
    }

    fn mount_path<'p>(&mut self, mount: &str, path: &Path, mut others: impl Iterator<Item = &'p str>) {
        let fits = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if mount != "/" && !mount.strip_prefix('/').is_some_and(|rest| rest.split('/').all(fits)) {
            self.report.error(
                "mount-path",
                path,
                format!("`{mount}` is not a path to mount at"),
                "write an absolute path of letters, digits and `-_.`, without a slash at its end, such as `/var/data`",
            );
        } else if TAKEN.iter().any(|taken| within(taken, mount))
            || CLOSED.iter().any(|folder| mount.starts_with(folder))
        {
            let message = format!("a volume mounted at `{mount}` would hide what the system keeps there");
            self.report.error("mount-path", path, message, "choose a folder of its own, such as `/var/data`");
        } else if others.any(|other| other == mount) {
            let message = format!("the path `{mount}` is given twice");
            self.report.error("duplicate-name", path, message, "give each file system a path of its own");
        }
    }

    /// A volume that may be of the kinds that no root can be.
    fn mounted_volume(&mut self, kind: MountKind, spec: &VolumeSpec, path: &Path) -> Option<Volume> {
        let (name, sizes) = match kind {
            MountKind::Gp3 | MountKind::Gp2 | MountKind::Io1 | MountKind::Io2 => {
                return self.volume(spec, 0, path);
            }
            MountKind::St1 => ("st1", LEAST_HDD_GIB..=16_384),
            MountKind::Sc1 => ("sc1", LEAST_HDD_GIB..=16_384),
            MountKind::Standard => ("standard", 1..=MOST_MAGNETIC_GIB),
        };
        for (key, given) in [("iops", spec.iops.is_some()), ("throughput", spec.throughput.is_some())] {
            if given {
                let help = "write `type: gp3`, or remove the line";
                self.report.error("volume", &path.key(key), format!("{name} takes no `{key}`"), help);
            }
        }
        if let Some(size) = spec.size.filter(|size| !sizes.contains(size)) {
            let message = format!("{name} has {} to {} GiB, not {size}", sizes.start(), sizes.end());
            self.report.error(
                "volume",
                &path.key("size"),
                message,
                "write a size within, or another `type` such as `gp3`",
            );
        }
        let plain = VolumeSpec { iops: None, throughput: None, kind: None, ..spec.clone() };
        Some(Volume { kind: name.to_owned(), ..self.volume(&plain, 0, path)? })
    }

    /// `ephemeralStorage`, or kube-aws' `ephemeralImageStorage`.
    fn instance_store(
        &mut self,
        spec: &PoolSpec,
        types: &[String],
        mounts: &[Mount],
        path: &Path,
    ) -> Option<InstanceStore> {
        let legacy = spec.ephemeral_image_storage.as_ref().filter(|store| store.enabled);
        let modern = spec.ephemeral_storage.as_ref().filter(|store| store.enabled != Some(false));
        if legacy.is_some() && spec.ephemeral_storage.is_some() {
            let message = "`ephemeralImageStorage` and `ephemeralStorage` say the same";
            let place = path.key("ephemeralImageStorage");
            self.report.error("given-twice", &place, message, "keep `ephemeralStorage`");
        }
        let key = if modern.is_some() { "ephemeralStorage" } else { "ephemeralImageStorage" };
        let group = path.key(key);
        let store = match (modern, legacy) {
            (Some(store), _) => InstanceStore {
                raid0: store.raid0.unwrap_or(true),
                path: store.path.clone(),
                file_system: store.filesystem.map_or_else(|| "xfs".to_owned(), word),
            },
            (None, Some(store)) => InstanceStore {
                raid0: true,
                path: None,
                file_system: store.filesystem.map_or_else(|| "xfs".to_owned(), word),
            },
            (None, None) => return None,
        };
        self.apart(&store, key, mounts, spec, path);
        match &store.path {
            Some(mount) => {
                self.mount_path(mount, &group.key("path"), mounts.iter().map(|other| other.path.as_str()));
            }
            None if !store.raid0 => {
                let message = "disks that are not put together by `raid0` need a `path` to be mounted at";
                let help = "add `path`, or remove `raid0: false`";
                self.report.error("instance-store", &group.key("raid0"), message, help);
            }
            None => {}
        }
        let known = |name: &&String| lookup(name).filter(|instance_type| instance_type.processor.is_some());
        if let Some(name) =
            types.iter().find(|name| known(name).is_some_and(|instance_type| instance_type.disks.is_none()))
        {
            self.report.error(
                "instance-store",
                &group,
                format!("`{key}` needs NVMe disks, and the instance type `{name}` has none"),
                format!("choose instance types that have them, such as `m7gd.large` or `i4i.large`, or remove `{key}`"),
            );
        }
        Some(store)
    }

    /// The disks' own folders and the volumes': one would hide the other. Two at the very same `path` are told by that.
    fn apart(&mut self, store: &InstanceStore, key: &str, mounts: &[Mount], spec: &PoolSpec, path: &Path) {
        let folders = store.path.as_deref().map_or(SCRATCH.to_vec(), |folder| vec![folder]);
        for one in mount_specs(spec, path) {
            let Some(mount) = one.mount.filter(|mount| mounts.iter().any(|other| other.path == *mount))
            else {
                continue;
            };
            let clash = folders.iter().find(|folder| within(&mount, folder) || within(folder, &mount));
            if let Some(folder) = clash.filter(|folder| store.path.is_none() || **folder != mount) {
                let message = format!(
                    "`{key}` keeps `{folder}` on the machine's own disks, and a volume is mounted at `{mount}`"
                );
                let help = format!("mount the volume elsewhere, or give `{key}` another `path`");
                self.report.error("mount-path", &one.path.key("path"), message, help);
            }
        }
    }
}

/// Whether the path is the folder, or lies in it.
fn within(path: &str, folder: &str) -> bool {
    folder == "/" || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The volume in one of `volumeMounts` or `raid0Mounts`: two types with the same keys.
macro_rules! volume_of {
    ($of:expr) => {
        VolumeSpec {
            size: $of.size,
            kind: $of.kind.and_then(solid),
            iops: $of.iops,
            throughput: $of.throughput,
            kms_key_arn: $of.kms_key_arn.clone(),
            encrypted: $of.encrypted,
        }
    };
}

/// All that is to be mounted on volumes, in the order of the spec.
fn mount_specs(spec: &PoolSpec, path: &Path) -> Vec<MountSpec> {
    let single = spec.volume_mounts.iter().enumerate().map(|(index, mount)| {
        let path = path.key("volumeMounts").index(index);
        MountSpec {
            kind: mount.kind.unwrap_or(MountKind::Gp3),
            volume: volume_of!(mount),
            devices: mount.device.iter().map(|device| (path.key("device"), device.clone())).collect(),
            mount: mount.path.clone(),
            file_system: mount.filesystem,
            create_tmp: mount.create_tmp,
            path,
        }
    });
    let arrays = spec.raid0_mounts.iter().enumerate().map(|(index, mount)| {
        let path = path.key("raid0Mounts").index(index);
        let devices = mount.devices.iter().enumerate();
        MountSpec {
            kind: mount.kind.unwrap_or(MountKind::Gp3),
            volume: volume_of!(mount),
            devices: devices.map(|(at, device)| (path.key("devices").index(at), device.clone())).collect(),
            mount: mount.path.clone(),
            file_system: mount.filesystem,
            create_tmp: mount.create_tmp,
            path,
        }
    });
    single.chain(arrays).collect()
}

/// The same kind among those that a root volume may be of.
fn solid(kind: MountKind) -> Option<VolumeKind> {
    match kind {
        MountKind::Gp3 => Some(VolumeKind::Gp3),
        MountKind::Gp2 => Some(VolumeKind::Gp2),
        MountKind::Io1 => Some(VolumeKind::Io1),
        MountKind::Io2 => Some(VolumeKind::Io2),
        MountKind::St1 | MountKind::Sc1 | MountKind::Standard => None,
    }
}

/// The letter that tells a device: `f` of `/dev/sdf` and of `/dev/xvdf`.
fn letter(device: &str) -> Option<&str> {
    let letter = device.strip_prefix("/dev/sd").or_else(|| device.strip_prefix("/dev/xvd"))?;
    matches!(letter.as_bytes(), [b'f'..=b'z']).then_some(letter)
}
