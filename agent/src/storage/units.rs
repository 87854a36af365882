//! systemd units of a worker's disks.
//!
//! A mount unit names a link below [`LINKS`] that `slipway-storage.service` creates at each boot before anything is mounted, so
//! it does not depend on the kernel's device names, nor on whether an instance store is new. containerd and the kubelet start
//! only when everything is mounted: otherwise pods would fill the root volume.

use std::fmt::Write as _;

use super::{Disk, STORE};
use crate::machine::disk::mount_unit;
use crate::machine::{File, Setup, Unit};

/// Links to disks. Empty at every boot.
pub(super) const LINKS: &str = "/run/slipway/disks";
const SERVICE: &str = "slipway-storage.service";
const FOLDERS: &str = "slipway-folders.service";

/// The folder on the instance store that is bound to `folder`.
fn bind_source(folder: &str) -> String {
    format!("{STORE}/{}", folder.trim_matches('/').replace('/', "-"))
}

/// Units and drop-ins, in starting order. `holds`: folders that are bound to [`STORE`].
pub(super) fn setup(disks: &[Disk], holds: &[String]) -> Setup {
    let mut units = vec![Unit { name: SERVICE.to_owned(), content: Some(service()) }];
    for disk in disks {
        let what = format!("{LINKS}/{}", disk.link);
        units.push(mount(&disk.path, &what, &disk.file_system, "noatime", SERVICE));
    }
    if !holds.is_empty() {
        units.push(Unit { name: FOLDERS.to_owned(), content: Some(folders(holds)) });
        units.extend(holds.iter().map(|folder| mount(folder, &bind_source(folder), "none", "bind", FOLDERS)));
    }
    let paths: Vec<&str> =
        disks.iter().map(|disk| disk.path.as_str()).chain(holds.iter().map(String::as_str)).collect();
    let wait = format!("[Unit]\nRequiresMountsFor={}\n", paths.join(" "));
    let drop_in = |unit: &str| {
        File::public(format!("/etc/systemd/system/{unit}.service.d/50-slipway-storage.conf"), wait.clone())
    };
    Setup { files: vec![drop_in("containerd"), drop_in("kubelet")], units }
}

fn service() -> String {
    "[Unit]\nDescription=Slipway: this worker's disks\nAfter=local-fs.target\n\n\
     [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/var/lib/slipway/slipway-node storage\n\
     # A file system is checked as long as that takes.\nTimeoutStartSec=infinity\n\n\
     [Install]\nWantedBy=multi-user.target\n"
        .to_owned()
}

fn folders(holds: &[String]) -> String {
    let mut all = String::new();
    for folder in holds {
        let _ = write!(all, " {}", bind_source(folder));
    }
    format!(
        "[Unit]\nDescription=Slipway: folders on this machine's own disks\nRequiresMountsFor={STORE}\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=mkdir -p{all}\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

/// By default a mount is ordered before `local-fs.target` and so before every service, but this one follows a service. `Wants`
/// and not `Requires`: a restart of that service must not unmount it, and without the service's link the mount fails by itself.
fn mount(path: &str, what: &str, kind: &str, options: &str, after: &str) -> Unit {
    let content = format!(
        "[Unit]\nDescription=Slipway: {path}\nDefaultDependencies=no\nWants={after}\nAfter={after}\n\
         Conflicts=umount.target\nBefore=umount.target\n\n\
         [Mount]\nWhat={what}\nWhere={path}\nType={kind}\nOptions={options}\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    );
    Unit { name: mount_unit(path), content: Some(content) }
}
