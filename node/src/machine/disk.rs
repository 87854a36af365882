//! A volume as a disk: which device it is, what is on it, and a file system made once and never twice.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use super::accounts::Owner;
use super::apply::Host;
use super::commands::Commands;
use super::files;
use crate::credentials::below;
use crate::failure::{Failure, Outcome};

/// So much of an empty disk is zero. File systems, partition tables, RAID and LUKS headers, LVM labels: all begin within.
const BEGINNING: usize = 1 << 20;
/// Of an ext file system: where its magic number and its label lie.
const EXT_MAGIC_AT: usize = 1080;
const EXT_MAGIC: [u8; 2] = [0x53, 0xef];
const EXT_LABEL_AT: usize = 1144;
const EXT_LABEL_LENGTH: usize = 16;

/// What is on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeros, as EC2 gives it.
    Empty,
    /// An ext file system that bears our label.
    Ours,
    /// Something else.
    Foreign,
}

/// What is on the disk at `path`.
///
/// # Errors
/// If it cannot be read.
pub fn look(path: &Path, label: &str) -> io::Result<Content> {
    let mut beginning = Vec::with_capacity(BEGINNING);
    File::open(path)?.take(BEGINNING as u64).read_to_end(&mut beginning)?;
    if beginning.len() == BEGINNING && beginning.iter().all(|byte| *byte == 0) {
        return Ok(Content::Empty);
    }
    let part = |at: usize, length: usize| beginning.get(at..at + length).unwrap_or_default();
    let bears = part(EXT_LABEL_AT, EXT_LABEL_LENGTH);
    let bears = bears.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_ours = part(EXT_MAGIC_AT, EXT_MAGIC.len()) == EXT_MAGIC && bears == label.as_bytes();
    Ok(if is_ours { Content::Ours } else { Content::Foreign })
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
    /// Lets there be an ext4 file system with that label on the disk `device`. `name`: the volume's, by which a run that died while it
    /// made one is remembered.
    ///
    /// # Errors
    /// If there is anything else on it.
    pub async fn format(&self, device: &str, name: &str, label: &str) -> Outcome<()> {
        let path = self.below(device);
        // From before the first byte is written until the last one is: the disk was empty, and what is on it is half of ours.
        let intent = self.below(&format!("/var/lib/slipway/formatting-{name}"));
        let content = look(&path, label).map_err(|error| files::failed(&path, &error))?;
        let begun = files::read(&intent)?.is_some();
        match content {
            Content::Ours if !begun => return Ok(()),
            Content::Foreign if !begun => {
                return Err(Failure::lasting(
                    "volume.foreign",
                    format!(
                        "the volume {name} ({device}) holds something that is no file system of Slipway's"
                    ),
                    "nothing was written. If it can go, detach the volume, write zeros over its first MiB on another machine, and let \
                     this instance be replaced",
                ));
            }
            Content::Ours | Content::Foreign | Content::Empty => {}
        }
        files::write(&intent, 0o600, Owner::ROOT, b"")?;
        self.commands.must("mkfs.ext4", &["-q", "-F", "-L", label, &disk(&path)]).await?;
        files::gone(&intent)
    }

    /// Repairs what a machine that died left on the disk.
    ///
    /// # Errors
    /// If it cannot be repaired without a person.
    pub async fn check(&self, device: &str) -> Outcome<()> {
        let ran = self.commands.run("e2fsck", &["-p", &disk(&self.below(device))]).await?;
        // 0: there were no errors. 1: they were corrected. Anything else needs somebody to look.
        if matches!(ran.status, Some(0 | 1)) {
            return Ok(());
        }
        Err(Failure::lasting(
            "volume.damaged",
            format!("the file system on {device} is damaged: {}", ran.stdout.trim()),
            "restore this member from its fellows: give it a new volume, or repair this one by e2fsck on another machine",
        ))
    }
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
        let mut bytes = vec![0; BEGINNING + 4096];
        fs::write(&path, &bytes).unwrap();
        assert_eq!(look(&path, "slipway-etcd").unwrap(), Content::Empty);
        for at in [0, 510, 4096, BEGINNING - 1] {
            bytes[at] = 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(look(&path, "slipway-etcd").unwrap(), Content::Foreign, "at {at}");
            bytes[at] = 0;
        }
        bytes[EXT_MAGIC_AT..EXT_MAGIC_AT + 2].copy_from_slice(&EXT_MAGIC);
        bytes[EXT_LABEL_AT..EXT_LABEL_AT + 12].copy_from_slice(b"slipway-etcd");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(look(&path, "slipway-etcd").unwrap(), Content::Ours);
        assert_eq!(look(&path, "slipway-etc").unwrap(), Content::Foreign, "of somebody else");
        fs::write(&path, vec![0; 512]).unwrap();
        assert_eq!(look(&path, "slipway-etcd").unwrap(), Content::Foreign, "too small to be a volume");
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
