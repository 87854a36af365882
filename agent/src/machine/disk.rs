//! A volume as a disk: which device it is, what is on it, and a file system made once and never twice.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::apply::Host;
use super::commands::Commands;
use super::files;
use crate::credentials::below;
use crate::failure::{Failure, FailureCode, Outcome};

/// So much of an empty disk is zero, at its beginning and at its end. File systems, partition tables, RAID and LUKS headers, LVM
/// labels: all begin within.
const BEGINNING: usize = 1 << 20;
/// Of an ext file system: where its magic number and its label lie.
const EXT_MAGIC_AT: usize = 1080;
const EXT_MAGIC: &[u8] = &[0x53, 0xef];
const EXT_LABEL: (usize, usize) = (1144, 16);
/// The same of XFS.
const XFS_MAGIC: &[u8] = b"XFSB";
const XFS_LABEL: (usize, usize) = (108, 12);
/// What an array of `mdadm` has on each of its disks, in format 1.2: its magic number and its name.
const ARRAY_MAGIC_AT: usize = 4096;
const ARRAY_MAGIC: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const ARRAY_NAME: (usize, usize) = (4096 + 32, 32);
/// Says, on the disk itself, that it was empty and that what is on it now is half of ours. It outlives the machine that wrote it.
const MARK: &[u8] = b"slipway: this disk was empty, and is being formatted; whatever is on it may go\n";
const MARK_BLOCK: usize = 4096;

/// What a disk is prepared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file system.
    Ext4,
    /// A file system.
    Xfs,
    /// One of the disks of an array.
    Member,
}

impl Kind {
    /// As a configuration names a file system.
    ///
    /// # Errors
    /// If it is none that is known here.
    pub fn of(name: &str) -> Outcome<Self> {
        match name {
            "ext4" => Ok(Self::Ext4),
            "xfs" => Ok(Self::Xfs),
            other => Err(Failure::lasting(
                FailureCode::VolumeFileSystem,
                format!("the configuration names the file system {other}, which is not known here"),
                "publish the agent that belongs to it, then render the cluster again",
            )),
        }
    }
}

/// What is on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeros, as EC2 gives it.
    Empty,
    /// It was empty, and whoever prepared it died.
    Begun,
    /// Of this kind, under our label.
    Ours,
    /// Something else.
    Foreign,
}

/// What is on the disk at `path`, which is or becomes of that kind.
///
/// # Errors
/// If it cannot be read.
pub fn look(path: &Path, kind: Kind, label: &str) -> io::Result<Content> {
    let mut file = File::open(path)?;
    let Some(end) = end(&mut file)? else { return Ok(Content::Foreign) };
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
    // An array's name is known with that of the machine that made it, `host:name`.
    let bears = if kind == Kind::Member {
        bears.rsplit(|byte| *byte == b':').next().unwrap_or_default()
    } else {
        bears
    };
    let is_ours = text(magic_at, magic.len()) == magic && bears == label.as_bytes();
    Ok(if is_ours { Content::Ours } else { Content::Foreign })
}

/// Where the part at the end begins that nothing is put into while a disk is being prepared, for the mark is there; `None` if there
/// is no room for one.
fn end(file: &mut File) -> io::Result<Option<u64>> {
    let size = file.seek(SeekFrom::End(0))?;
    let part = BEGINNING as u64;
    Ok((size >= 2 * part).then(|| (size - part) / MARK_BLOCK as u64 * MARK_BLOCK as u64))
}

/// Says on the disk that it is being prepared, or that it is no more.
fn mark(path: &Path, begun: bool) -> Outcome<u64> {
    let written = || {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let at = end(&mut file)?.ok_or(io::ErrorKind::StorageFull)?;
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

/// The device of `volume` (`vol-0123…`), which was attached under the name `device` (`/dev/sdf`), as the machine knows it; `None`
/// while it is not there.
///
/// On Nitro a volume is an NVMe disk whose serial number is its id, by which udev links it. On Xen it is
/// `/dev/xvdf`. A name alone is believed only where there is no NVMe disk that it could be mistaken for.
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
    // Its number may be another one after a reboot, and this is written into a unit: udev makes the link in a moment.
    if nvme {
        return None;
    }
    let xen = device.replace("/dev/sd", "/dev/xvd");
    [xen, device.to_owned()].into_iter().find(|path| below(root, path).exists())
}

impl<C: Commands> Host<C> {
    /// Lets there be a file system of that kind with that label on the disk `device`. `name`: the disk's, for people.
    ///
    /// # Errors
    /// If there is anything else on it.
    pub async fn format(&self, device: &str, name: &str, kind: Kind, label: &str) -> Outcome<()> {
        let path = self.below(device);
        match look(&path, kind, label).map_err(|error| files::failed(&path, &error))? {
            Content::Ours => return Ok(()),
            Content::Foreign => return Err(foreign(device, name)),
            Content::Empty | Content::Begun => {}
        }
        // The mark stays while the file system is made, which does not reach it, and goes when that is whole.
        let room = begin(&path)?;
        let (disk, size) = (disk(&path), format!("{}k", room / 1024));
        match kind {
            Kind::Ext4 => self.commands.must("mkfs.ext4", &["-q", "-F", "-L", label, &disk, &size]).await?,
            Kind::Xfs => {
                let size = format!("size={size}");
                self.commands.must("mkfs.xfs", &["-q", "-f", "-L", label, "-d", &size, &disk]).await?
            }
            Kind::Member => return Ok(()),
        };
        finish(&path)?;
        // The room of the mark. Where this is lost to a death, the file system grows when it is mounted.
        if kind == Kind::Ext4 {
            self.commands.must("resize2fs", &[&disk]).await?;
        }
        Ok(())
    }

    /// Repairs what a machine that died left on the disk, which is not mounted. XFS does that by itself when it is.
    ///
    /// # Errors
    /// If it cannot be repaired without a person.
    pub async fn check(&self, device: &str) -> Outcome<()> {
        let ran = self.commands.run("e2fsck", &["-p", &disk(&self.below(device))]).await?;
        // 1: errors were corrected. 2: and a machine that runs from this file system must start anew, which none does. Anything else
        // needs somebody to look.
        if ran.status.is_some_and(|status| status & !3 == 0) {
            return Ok(());
        }
        Err(Failure::lasting(
            FailureCode::VolumeDamaged,
            format!("the file system on {device} is damaged: {}", ran.stdout.trim()),
            "of an etcd member: restore it from its fellows, by a new volume, or repair this one by e2fsck on another machine; of a \
             worker: let this instance be replaced",
        ))
    }
}

/// Says on an empty disk that it is being prepared; how much room there is before that mark.
///
/// # Errors
/// If it cannot be written.
pub fn begin(path: &Path) -> Outcome<u64> {
    mark(path, true)
}

/// Takes that back.
///
/// # Errors
/// If it cannot be written.
pub fn finish(path: &Path) -> Outcome<()> {
    mark(path, false).map(drop)
}

/// Nothing was written.
#[must_use]
pub fn foreign(device: &str, name: &str) -> Failure {
    Failure::lasting(
        FailureCode::VolumeForeign,
        format!("{name} ({device}) holds something that Slipway did not put there"),
        "nothing was written. If it can go, detach the volume, write zeros over its first and last MiB on another machine, and let \
         this instance be replaced",
    )
}

fn disk(path: &Path) -> String {
    path.display().to_string()
}

/// The name of the mount unit of `path`, as `systemd-escape --path` makes it.
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
        let look = |label: &str| look(&path, Kind::Ext4, label).unwrap();
        let mut bytes = vec![0; 3 * BEGINNING];
        fs::write(&path, &bytes).unwrap();
        assert_eq!(look("slipway-etcd"), Content::Empty);
        for at in [0, 510, 4096, BEGINNING - 1, 3 * BEGINNING - 1] {
            bytes[at] = 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(look("slipway-etcd"), Content::Foreign, "at {at}");
            bytes[at] = 0;
        }
        bytes[EXT_MAGIC_AT..EXT_MAGIC_AT + 2].copy_from_slice(EXT_MAGIC);
        bytes[EXT_LABEL.0..EXT_LABEL.0 + 12].copy_from_slice(b"slipway-etcd");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(look("slipway-etcd"), Content::Ours);
        assert_eq!(look("slipway-etc"), Content::Foreign, "of somebody else");
        // Whoever died while preparing it left it to whoever comes next, on another machine or not.
        let room = begin(&path).unwrap();
        assert_eq!((room, look("slipway-etcd")), (2 * BEGINNING as u64, Content::Begun));
        finish(&path).unwrap();
        assert_eq!(look("slipway-etcd"), Content::Ours);
        assert!(fs::read(&path).unwrap() == bytes, "the mark left something behind");
        fs::write(&path, vec![0; 512]).unwrap();
        assert_eq!(look("slipway-etcd"), Content::Foreign, "too small to be a volume");
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
            assert_eq!(look(&path, kind, "slipway-data").unwrap(), Content::Ours, "{kind:?}");
            assert_eq!(look(&path, kind, "slipway-temp").unwrap(), Content::Foreign, "{kind:?}");
            assert_eq!(look(&path, Kind::Ext4, "slipway-data").unwrap(), Content::Foreign, "{kind:?}");
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
