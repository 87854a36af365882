//! A worker's disks: `volumeMounts`, `raid0Mounts`, `ephemeralStorage`.
//!
//! - [`Storage::ensure_file_systems`] finds them, assembles arrays, creates missing file systems, and links each to a stable name. It is a
//!   step of the bootstrap and a verb that a unit runs at each boot, because an instance store is empty after a stop.
//! - [`Storage::mount`] writes and starts the mount units ([`units`]) of those links.
//!
//! A volume is known by its id, which EC2 is asked for once: on Nitro, device names mean nothing. Only empty disks are formatted,
//! volumes and instance stores alike.

mod array;
mod units;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_core::node::{Machine, NodeConfig};
use tokio::time::Instant;

use crate::aws::{Aws, Endpoints};
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::apply::Host;
use crate::machine::commands::{Commands, System};
use crate::machine::disk::{self, Kind};
use crate::machine::files::{self, Owner};
use crate::node_files;
use array::Array;
use units::{LINKS, setup};

/// The mount point of the instance store if the spec has no path; pods' folders are bound to it.
const STORE: &str = "/var/lib/slipway/store";
/// EC2's answer: volume ids by device name.
const VOLUMES: &str = "/var/lib/slipway/volumes.json";
/// Labels of at most 12 bytes, XFS' limit.
const DATA: &str = "slipway-data";
const TEMP: &str = "slipway-temp";
/// udev's links of instance store disks.
const BY_ID: &str = "/dev/disk/by-id";
const INSTANCE_STORE: &str = "nvme-Amazon_EC2_NVMe_Instance_Storage";
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(2);

/// A worker's file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The name below [`LINKS`] and of its array.
    link: String,
    /// The mount point.
    path: String,
    file_system: String,
    /// One disk, or several for an array.
    disks: Vec<String>,
    create_tmp: bool,
    /// An instance store: empty after a stop.
    scratch: bool,
}

#[derive(Debug)]
pub struct Storage<'a, C> {
    pub host: &'a Host<C>,
    pub machine: &'a Machine,
    pub aws: &'a Aws,
}

/// The verb. At a boot it waits for disks that have not appeared yet.
pub async fn perform(root: &Path, endpoints: &Endpoints) -> AgentResult<Value> {
    let NodeConfig::Worker(config) = node_files::config(root)?.0 else {
        return Ok(json!({ "disks": {} }));
    };
    let aws = Aws::new(endpoints, &config.base.region)?;
    let host = Host { root: root.to_owned(), commands: System };
    let storage = Storage { host: &host, machine: &config.machine, aws: &aws };
    let begun = Instant::now();
    loop {
        match storage.ensure_file_systems().await {
            Ok(found) => return Ok(json!({ "disks": found })),
            Err(failure) if !failure.transient || begun.elapsed() > PATIENCE => return Err(failure),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Whether the configuration has any disks to prepare.
#[must_use]
pub fn is_wanted(machine: &Machine) -> bool {
    !machine.mounts.is_empty() || machine.instance_store.is_some()
}

impl<C: Commands> Storage<'_, C> {
    /// Ensures that every disk has its file system and its link; returns devices by mount point.
    pub async fn ensure_file_systems(&self) -> AgentResult<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for disk in self.disks().await? {
            let link = self.host.below(&format!("{LINKS}/{}", disk.link));
            let unit = disk::mount_unit(&disk.path);
            let active = self.host.commands.run("systemctl", &["is-active", "--quiet", &unit]).await?;
            // A mounted file system is neither created nor checked.
            if active.status == Some(0) {
                let device = fs::read_link(&link).unwrap_or_default();
                found.insert(disk.path, device.display().to_string());
                continue;
            }
            let device = self.device(&disk).await?;
            relink(&link, &self.host.below(&device)).map_err(|error| files::failed(&link, &error))?;
            found.insert(disk.path, device);
        }
        Ok(found)
    }

    /// The device of `disk`, formatted and checked.
    async fn device(&self, disk: &Disk) -> AgentResult<String> {
        let kind = Kind::from_name(&disk.file_system)?;
        let device = match disk.disks.as_slice() {
            [one] => one.clone(),
            several => {
                let name = format!("slipway-{}", disk.link);
                Array { name: &name, disks: several, scratch: disk.scratch }.ensure_running(self.host).await?
            }
        };
        let label = if disk.scratch { TEMP } else { DATA };
        self.host.format(&device, &format!("the disk for {}", disk.path), kind, label).await?;
        if kind == Kind::Ext4 {
            self.host.check(&device).await?;
        }
        Ok(device)
    }

    /// Writes and starts the mount units.
    pub async fn mount(&self) -> AgentResult<()> {
        let disks = self.disks().await?;
        let holds =
            self.machine.instance_store.as_ref().map(|store| store.holds.as_slice()).unwrap_or_default();
        let setup = setup(&disks, holds);
        self.host.write(&setup).await?;
        self.host.start(&setup).await?;
        for disk in disks.iter().filter(|disk| disk.create_tmp) {
            files::folder(&self.host.below(&format!("{}/tmp", disk.path)), 0o1777, Owner::ROOT)?;
        }
        Ok(())
    }

    /// All file systems, parents before those mounted below them.
    async fn disks(&self) -> AgentResult<Vec<Disk>> {
        // A machine without udev has no links to wait for.
        let _ = self.host.commands.run("udevadm", &["settle", "--timeout=60"]).await;
        let mut all = Vec::new();
        let volumes = if self.machine.mounts.is_empty() { BTreeMap::new() } else { self.volumes().await? };
        for mount in &self.machine.mounts {
            let mut disks = Vec::new();
            for device in &mount.devices {
                disks.push(self.attached_disk(device, volumes.get(device))?);
            }
            let first = mount.devices.first().map(String::as_str).unwrap_or_default();
            all.push(Disk {
                link: format!("data-{}", letter(first)),
                path: mount.path.clone(),
                file_system: mount.file_system.clone(),
                disks,
                create_tmp: mount.create_tmp,
                scratch: false,
            });
        }
        if let Some(store) = &self.machine.instance_store {
            let own = self.instance_store_disks()?;
            let path = store.path.as_deref().unwrap_or(STORE);
            let scratch_disk = |link: String, path: String, disks: Vec<String>| Disk {
                link,
                path,
                file_system: store.file_system.clone(),
                disks,
                create_tmp: false,
                scratch: true,
            };
            if store.raid0 {
                all.push(scratch_disk("temp".to_owned(), path.to_owned(), own));
            } else {
                let each = own.into_iter().enumerate();
                all.extend(each.map(|(at, disk)| {
                    scratch_disk(format!("temp-{at}"), format!("{path}/{at}"), vec![disk])
                }));
            }
        }
        all.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(all)
    }

    /// Volume ids by device name. They do not change during an instance's life, so they are stored, and a boot needs no network.
    async fn volumes(&self) -> AgentResult<BTreeMap<String, String>> {
        let path = self.host.below(VOLUMES);
        let wanted: Vec<&String> = self.machine.mounts.iter().flat_map(|mount| &mount.devices).collect();
        let known = files::read(&path)?.unwrap_or_default();
        let known: BTreeMap<String, String> = serde_json::from_slice(&known).unwrap_or_default();
        if wanted.iter().all(|device| self.attached_disk(device, known.get(*device)).is_ok()) {
            return Ok(known);
        }
        let attached = self.aws.attachments(&self.aws.imds().instance().await?.id).await?;
        let find = |device: &String| {
            let volume = attached.iter().find(|(name, _)| letter(name) == letter(device));
            volume.map(|(_, volume)| (device.clone(), volume.clone()))
        };
        let found: BTreeMap<String, String> = wanted.into_iter().filter_map(find).collect();
        files::write(&path, 0o600, Owner::ROOT, json!(found).to_string().as_bytes())?;
        Ok(found)
    }

    /// The disk attached as `device`.
    fn attached_disk(&self, device: &str, volume: Option<&String>) -> AgentResult<String> {
        let absent = |what: String, help: &str| AgentError::transient(FailureCode::VolumeAbsent, what, help);
        let volume = volume.ok_or_else(|| {
            absent(
                format!("no volume is attached to this instance as {device}"),
                "the launch template has one: check that it was not detached",
            )
        })?;
        disk::device(&self.host.root, volume, device).ok_or_else(|| {
            absent(
                format!("the volume {volume} is attached as {device}, but its disk has not appeared yet"),
                "wait: it appears within seconds (see `lsblk`)",
            )
        })
    }

    /// Instance store disks, one link for each, sorted.
    fn instance_store_disks(&self) -> AgentResult<Vec<String>> {
        let mut by_disk = BTreeMap::new();
        for entry in fs::read_dir(self.host.below(BY_ID)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with(INSTANCE_STORE) || name.contains("-part") {
                continue;
            }
            // Newer versions of udev also link the namespace; all versions have the shortest link.
            let Ok(disk) = fs::canonicalize(entry.path()) else { continue };
            let link = by_disk.entry(disk).or_insert_with(|| name.clone());
            if name.len() < link.len() {
                *link = name;
            }
        }
        let mut links: Vec<String> = by_disk.into_values().map(|name| format!("{BY_ID}/{name}")).collect();
        links.sort();
        if links.is_empty() {
            return Err(AgentError::transient(
                FailureCode::StorageAbsent,
                "this machine has no NVMe instance store, but its pool has ephemeralStorage",
                "use instance types with an instance store, such as m7gd.large, or remove ephemeralStorage from the pool",
            ));
        }
        Ok(links)
    }
}

/// `f` for both `/dev/sdf` and `/dev/xvdf`.
fn letter(device: &str) -> &str {
    let name = device.strip_prefix("/dev/").unwrap_or(device);
    name.strip_prefix("xvd").or_else(|| name.strip_prefix("sd")).unwrap_or(name)
}

/// Points `link` to `target` atomically.
fn relink(link: &Path, target: &Path) -> std::io::Result<()> {
    if fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = link.with_extension("new");
    let _ = fs::remove_file(&draft);
    symlink(target, &draft)?;
    fs::rename(&draft, link)
}
