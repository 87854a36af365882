//! Programs that the image lacks: fetched by the digest that the configuration names, unpacked beside what was there before,
//! and put in place by links, so that a program is there whole or not at all.
//!
//! Each release has a folder of its own below `/opt/slipway/software`; `/opt/slipway/bin` and `/opt/cni/bin` hold links. What
//! is there already is not fetched again, and nothing that an image brought is written over.

mod fetch;
#[cfg(test)]
mod tests;
mod unpack;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde::Serialize;
use slipway_core::software::{Program, ProgramFile};

use crate::failure::{Failure, FailureCode, Outcome};
pub use fetch::Publisher;

/// Where releases are unpacked.
const RELEASES: &str = "opt/slipway/software";
/// Where programs are linked.
pub(crate) const PROGRAMS: &str = "opt/slipway/bin";
/// Where containerd looks for the plugins of CNI, and where add-ons put theirs.
const PLUGINS: &str = "opt/cni/bin";
/// Where an image may have them.
const OF_THE_IMAGE: [&str; 4] = ["usr/local/bin", "usr/bin", "usr/sbin", "bin"];

/// What became of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    /// What.
    pub name: Program,
    /// Its release.
    pub version: String,
    /// Whether it was fetched now; else it was there.
    pub fetched: bool,
}

/// Installs `files`, in their order.
///
/// # Errors
/// If one cannot be had, is not what its digest says, or cannot be written. What was installed before stays.
pub async fn install(root: &Path, publisher: &Publisher, files: &[ProgramFile]) -> Outcome<Vec<Installed>> {
    let mut installed = Vec::new();
    for file in files {
        let name =
            format!("{}-{}-{}", file.name.as_str(), file.version, file.sha256.get(..12).unwrap_or_default());
        let folder = root.join(RELEASES).join(&name);
        let fetched = !folder.exists();
        if fetched {
            release(root, publisher, file, &folder).await?;
        }
        link(root, file.name, &name, &folder)?;
        installed.push(Installed { name: file.name, version: file.version.clone(), fetched });
    }
    Ok(installed)
}

/// Fetches one release into `folder`.
async fn release(root: &Path, publisher: &Publisher, file: &ProgramFile, folder: &Path) -> Outcome<()> {
    let releases = root.join(RELEASES);
    fs::create_dir_all(&releases).map_err(|error| unwritable(&releases, &error))?;
    // In the same file system as its place, and gone with whatever goes wrong.
    let draft = tempfile::Builder::new()
        .prefix(".draft-")
        .tempdir_in(&releases)
        .map_err(|error| unwritable(&releases, &error))?;
    let (download, unpacked) = (draft.path().join("download"), draft.path().join("programs"));
    publisher.fetch(&file.url, &file.sha256, &download).await?;
    let (name, into) = (file.name, unpacked.clone());
    let url = file.url.clone();
    let unpacking = tokio::task::spawn_blocking(move || unpack::unpack(name, &url, &download, &into));
    unpacking.await.map_err(|error| {
        Failure::passing(
            FailureCode::SoftwareUnpack,
            format!("{}: {error}", file.url),
            "run the same verb again",
        )
    })??;
    fs::rename(&unpacked, folder).map_err(|error| unwritable(folder, &error))
}

/// Puts links to everything in `folder`; a link of another release is replaced.
fn link(root: &Path, program: Program, release: &str, folder: &Path) -> Outcome<()> {
    let (place, up) = match program {
        Program::CniPlugins => (root.join(PLUGINS), "../../slipway/software"),
        Program::Containerd | Program::Etcd | Program::Kubelet | Program::Runc => {
            (root.join(PROGRAMS), "../software")
        }
    };
    fs::create_dir_all(&place).map_err(|error| unwritable(&place, &error))?;
    for entry in fs::read_dir(folder).map_err(|error| unwritable(folder, &error))? {
        let name = entry.map_err(|error| unwritable(folder, &error))?.file_name();
        let (at, target) = (place.join(&name), Path::new(up).join(release).join(&name));
        match fs::read_link(&at) {
            Ok(there) if there == target => continue,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // An image's own, or an add-on's: theirs.
            Err(_) => continue,
        }
        let mut draft = name.clone();
        draft.push(".draft");
        let draft = place.join(draft);
        // Of somebody who died here.
        let _ = fs::remove_file(&draft);
        symlink(&target, &draft).map_err(|error| unwritable(&draft, &error))?;
        fs::rename(&draft, &at).map_err(|error| unwritable(&at, &error))?;
    }
    Ok(())
}

/// Where `program` is, as those see it who live below `root`: what was installed, or else the image's.
///
/// # Errors
/// If it is nowhere.
pub fn find(root: &Path, program: &str) -> Outcome<PathBuf> {
    let runs = |path: &PathBuf| {
        let found = fs::metadata(root.join(path.strip_prefix("/").unwrap_or(path)));
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let mut places =
        std::iter::once(PROGRAMS).chain(OF_THE_IMAGE).map(|folder| Path::new("/").join(folder).join(program));
    places.find(runs).ok_or_else(|| {
        Failure::lasting(
            FailureCode::SoftwareMissing,
            format!("the program {program} is neither in /{PROGRAMS} nor in the image"),
            "write software.source: release into cluster.yaml, or take an image that has it",
        )
    })
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::passing(
        FailureCode::SoftwareUnwritable,
        format!("{}: {error}", path.display()),
        "make room on the root volume (rootVolume.size), or see why it cannot be written",
    )
}
