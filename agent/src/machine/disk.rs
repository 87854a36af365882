//! A volume as a disk: its device, its content, and a file system that is created once and never again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::apply::Host;
use super::commands::Commands;
use super::files;
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};

/// A disk counts as empty if this much is zero at its beginning and at its end. File systems, partition tables, RAID, LUKS and
/// LVM headers all begin there.
const BEGINNING: usize = 1 << 20;
/// ext4: position of its magic number and its label.
const EXT_MAGIC_AT: usize = 1080;
const EXT_MAGIC: &[u8] = &[0x53, 0xef];
const EXT_LABEL: (usize, usize) = (1144, 16);
/// XFS: the same.
const XFS_MAGIC: &[u8] = b"XFSB";
const XFS_LABEL: (usize, usize) = (108, 12);
/// A disk of an `mdadm` array, metadata 1.2: position of its magic number and its name.
const ARRAY_MAGIC_AT: usize = 4096;
const ARRAY_MAGIC: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const ARRAY_NAME: (usize, usize) = (4096 + 32, 32);
/// Written on the disk while it is being formatted. It outlives the machine that wrote it, so a later one may start over.
const MARK: &[u8] = b"slipway: this disk was empty, and is being formatted; whatever is on it may go\n";
const MARK_BLOCK: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Member,
}

impl Kind {
    /// The kind by the configuration's name of a file system.
    pub fn from_name(name: &str) -> AgentResult<Self> {
        match name {
            "ext4" => Ok(Self::Ext4),
            "xfs" => Ok(Self::Xfs),
            other => Err(AgentError::permanent(
                FailureCode::VolumeFileSystem,
                format!("the configuration names the file system {other}, which this agent does not know"),
                "publish the agent that belongs to it, then render the cluster again",
            )),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Zeros, as EC2 delivers it.
    Empty,
    /// It was empty, and formatting it was interrupted.
    Begun,
    /// Of the wanted kind, with our label.
    Ours,
    Foreign,
}

/// The content of the disk at `path`, compared with the wanted kind and label.
pub fn content(path: &Path, kind: Kind, label: &str) -> io::Result<Content> {
    let mut file = File::open(path)?;
    let Some(end) = mark_offset(&mut file)? else { return Ok(Content::Foreign) };
    let mut part = vec![0; BEGINNING];
    file.read_exact_at(&mut part, end)?;
    let is_begun = part.starts_with(MARK);
    let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    let ends_empty = is_zero(&part);
    if is_begun {
        return Ok(Content::Begun);
    }
    file.read_exact_at(&mut part, 0)?;
    if ends_empty && is_zero(&part) {
        return Ok(Content::Empty);
    }
    let (magic_at, magic, (label_at, length)) = match kind {
        Kind::Ext4 => (EXT_MAGIC_AT, EXT_MAGIC, EXT_LABEL),
        Kind::Xfs => (0, XFS_MAGIC, XFS_LABEL),
        Kind::Member => (ARRAY_MAGIC_AT, ARRAY_MAGIC, ARRAY_NAME),
    };
    let text = |at: usize, length: usize| part.get(at..at + length).unwrap_or_default();
    let bears = text(label_at, length).split(|byte| *byte == 0).next().unwrap_or_default();
    // The name may have the machine's as a prefix, `host:name`.
    let bears = if kind == Kind::Member {
        bears.rsplit(|byte| *byte == b':').next().unwrap_or_default()
    } else {
        bears
    };
    let is_ours = text(magic_at, magic.len()) == magic && bears == label.as_bytes();
    Ok(if is_ours { Content::Ours } else { Content::Foreign })
}

/// The offset of the mark near the disk's end, which formatting leaves free; `None` if the disk is too small.
fn mark_offset(file: &mut File) -> io::Result<Option<u64>> {
    let size = file.seek(SeekFrom::End(0))?;
    let part = BEGINNING as u64;
    Ok((size >= 2 * part).then(|| (size - part) / MARK_BLOCK as u64 * MARK_BLOCK as u64))
}

/// Writes or clears the mark; returns its offset.
fn mark(path: &Path, begun: bool) -> AgentResult<u64> {
    let written = || {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let at = mark_offset(&mut file)?.ok_or(io::ErrorKind::StorageFull)?;
        let mut block = [0; MARK_BLOCK];
        if begun {
            block[..MARK.len()].copy_from_slice(MARK);
        }
        file.write_all_at(&block, at)?;
        file.sync_all()?;
        Ok(at)
    };
    written().map_err(|error: io::Error| files::failed(path, &error))
}

/// The device of `volume` (`vol-0123…`), attached as `device` (`/dev/sdf`); `None` while it is missing.
///
/// On Nitro a volume is an NVMe disk whose serial number is its id, and udev links it by that. On Xen it is `/dev/xvdf`. The name
/// alone is trusted only on machines without NVMe disks.
#[must_use]
pub fn device(root: &Path, volume: &str, device: &str) -> Option<String> {
    let serial = volume.replace('-', "");
    let link = format!("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{serial}");
    if below(root, &link).exists() {
        return Some(link);
    }
    let nvme = fs::read_dir(below(root, "/sys/block")).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("nvme"))
    });
    // An NVMe disk's number may change at a reboot, and the device is written into a unit: wait for udev's link.
    if nvme {
        return None;
    }
    let xen = device.replace("/dev/sd", "/dev/xvd");
    [xen, device.to_owned()].into_iter().find(|path| below(root, path).exists())
}

impl<C: Commands> Host<C> {
    /// Ensures that `device` has a file system of that kind and label. `name` is for messages. Refuses a disk with any other
    /// content.
    pub async fn format(&self, device: &str, name: &str, kind: Kind, label: &str) -> AgentResult<()> {
        let path = self.below(device);
        match content(&path, kind, label).map_err(|error| files::failed(&path, &error))? {
            Content::Ours => return Ok(()),
            Content::Foreign => return Err(foreign(device, name)),
            Content::Empty | Content::Begun => {}
        }
        // The mark stays until the file system, which does not reach it, is complete.
        let room = mark_begun(&path)?;
        let (disk, size) = (text(&path), format!("{}k", room / 1024));
        match kind {
            Kind::Ext4 => {
                self.commands.run_checked("mkfs.ext4", &["-q", "-F", "-L", label, &disk, &size]).await?
            }
            Kind::Xfs => {
                let size = format!("size={size}");
                self.commands.run_checked("mkfs.xfs", &["-q", "-f", "-L", label, "-d", &size, &disk]).await?
            }
            Kind::Member => return Ok(()),
        };
        clear_mark(&path)?;
        // Extends the file system over the mark. If this is interrupted, it grows when it is mounted.
        if kind == Kind::Ext4 {
            self.commands.run_checked("resize2fs", &[&disk]).await?;
        }
        Ok(())
    }

    /// Repairs an unmounted ext4 after a crash. XFS repairs itself when mounted. A damage that needs a person is a failure.
    pub async fn check(&self, device: &str) -> AgentResult<()> {
        let ran = self.commands.run("e2fsck", &["-p", &text(&self.below(device))]).await?;
        // 1: errors were corrected. 2: a reboot is needed, but only for a root file system. Anything else needs a person.
        if ran.status.is_some_and(|status| status & !3 == 0) {
            return Ok(());
        }
        Err(AgentError::permanent(
            FailureCode::VolumeDamaged,
            format!("the file system on {device} is damaged: {}", ran.stdout.trim()),
            "for an etcd member, replace the volume and let the member join again, or repair it with e2fsck on another machine; for a worker, \
             replace this instance",
        ))
    }
}

/// Marks an empty disk as being formatted; returns the room before the mark in bytes.
pub fn mark_begun(path: &Path) -> AgentResult<u64> {
    mark(path, true)
}

pub fn clear_mark(path: &Path) -> AgentResult<()> {
    mark(path, false).map(drop)
}

#[must_use]
pub fn foreign(device: &str, name: &str) -> AgentError {
    AgentError::permanent(
        FailureCode::VolumeForeign,
        format!("{name} ({device}) has content that Slipway did not write"),
        "nothing was written. If the content is not needed, detach the volume, overwrite its first and last MiB with zeros on another \
         machine, and replace this instance",
    )
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The mount unit of `path`, named as by `systemd-escape --path`.
#[must_use]
pub fn mount_unit(path: &str) -> String {
    let mut name = String::new();
    for (at, byte) in path.trim_matches('/').bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => name.push(char::from(byte)),
            _ => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    format!("{name}.mount")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_disk_with_anything_on_it_is_not_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let found = |label: &str| content(&path, Kind::Ext4, label).unwrap();
        let mut bytes = vec![0; 3 * BEGINNING];
        fs::write(&path, &bytes).unwrap();
        assert_eq!(found("slipway-etcd"), Content::Empty);
        for at in [0, 510, 4096, BEGINNING - 1, 3 * BEGINNING - 1] {
            bytes[at] = 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(found("slipway-etcd"), Content::Foreign, "at {at}");
            bytes[at] = 0;
        }
        bytes[EXT_MAGIC_AT..EXT_MAGIC_AT + 2].copy_from_slice(EXT_MAGIC);
        bytes[EXT_LABEL.0..EXT_LABEL.0 + 12].copy_from_slice(b"slipway-etcd");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(found("slipway-etcd"), Content::Ours);
        assert_eq!(found("slipway-etc"), Content::Foreign, "of another user");
        // A later run, on any machine, continues after a crash.
        let room = mark_begun(&path).unwrap();
        assert_eq!((room, found("slipway-etcd")), (2 * BEGINNING as u64, Content::Begun));
        clear_mark(&path).unwrap();
        assert_eq!(found("slipway-etcd"), Content::Ours);
        assert!(fs::read(&path).unwrap() == bytes, "the mark left something behind");
        fs::write(&path, vec![0; 512]).unwrap();
        assert_eq!(found("slipway-etcd"), Content::Foreign, "too small to be a volume");
    }

    #[test]
    fn each_kind_is_known_by_its_own_magic_and_label() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        for (kind, magic_at, magic, label_at, label) in [
            (Kind::Xfs, 0, XFS_MAGIC, XFS_LABEL.0, "slipway-data"),
            (Kind::Member, ARRAY_MAGIC_AT, ARRAY_MAGIC, ARRAY_NAME.0, "ip-10-0-0-1:slipway-data"),
        ] {
            let mut bytes = vec![0; 3 * BEGINNING];
            bytes[magic_at..magic_at + magic.len()].copy_from_slice(magic);
            bytes[label_at..label_at + label.len()].copy_from_slice(label.as_bytes());
            fs::write(&path, &bytes).unwrap();
            assert_eq!(content(&path, kind, "slipway-data").unwrap(), Content::Ours, "{kind:?}");
            assert_eq!(content(&path, kind, "slipway-temp").unwrap(), Content::Foreign, "{kind:?}");
            assert_eq!(content(&path, Kind::Ext4, "slipway-data").unwrap(), Content::Foreign, "{kind:?}");
        }
    }

    #[test]
    fn a_volume_is_known_by_its_id_and_never_taken_for_another() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str, text: &str| {
            let path = below(root.path(), path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let find = || device(root.path(), "vol-0abc", "/dev/sdf");
        assert_eq!(find(), None);
        make("/dev/xvdf", "");
        assert_eq!(find().as_deref(), Some("/dev/xvdf"), "Xen");
        make("/sys/block/nvme0n1/device/serial", "vol0fff  \n");
        assert_eq!(find(), None, "on Nitro a name says nothing");
        make("/sys/block/nvme1n1/device/serial", "vol0abc  \n");
        assert_eq!(find(), None, "its number may change at a reboot");
        make("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0abc", "");
        let link = find().unwrap();
        assert!(link.ends_with("_vol0abc"), "{link}");
    }

    #[test]
    fn a_mount_is_called_as_systemd_calls_it() {
        assert_eq!(mount_unit("/var/lib/etcd"), "var-lib-etcd.mount");
        assert_eq!(mount_unit("/srv/my-data/.x"), "srv-my\\x2ddata-.x.mount");
        assert_eq!(mount_unit("/.x"), "\\x2ex.mount");
    }
}
