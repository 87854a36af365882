//! Programs that the image lacks: downloaded by digest, unpacked into a folder of their own, and put in place by links, so that a
//! program is installed completely or not at all.
//!
//! Each release has a folder below `/opt/slipway/software`; `/opt/slipway/bin` and `/opt/cni/bin` have links to it. An installed
//! release is not downloaded again, and files of the image are never overwritten.

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

use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::commands::Commands;
pub use fetch::Publisher;

const RELEASES: &str = "opt/slipway/software";
pub(crate) const PROGRAMS: &str = "opt/slipway/bin";
/// CNI plugins: containerd looks here, and add-ons install theirs here.
const PLUGINS: &str = "opt/cni/bin";
/// Where the image may have programs.
const OF_THE_IMAGE: [&str; 4] = ["usr/local/bin", "usr/bin", "usr/sbin", "bin"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    pub name: Program,
    pub version: String,
    /// Whether it was downloaded now.
    pub fetched: bool,
}

/// Installs `files` in order. After a failure the previously installed releases still work.
pub async fn install(
    root: &Path,
    publisher: &Publisher,
    files: &[ProgramFile],
) -> AgentResult<Vec<Installed>> {
    let mut installed = Vec::new();
    for file in files {
        let name =
            format!("{}-{}-{}", file.name.as_str(), file.version, file.sha256.get(..12).unwrap_or_default());
        let folder = root.join(RELEASES).join(&name);
        let fetched = !folder.exists();
        if fetched {
            fetch_release(root, publisher, file, &folder).await?;
        }
        link_programs(root, file.name, &name, &folder)?;
        installed.push(Installed { name: file.name, version: file.version.clone(), fetched });
    }
    Ok(installed)
}

/// Downloads and unpacks one release into `folder`.
async fn fetch_release(
    root: &Path,
    publisher: &Publisher,
    file: &ProgramFile,
    folder: &Path,
) -> AgentResult<()> {
    let releases = root.join(RELEASES);
    fs::create_dir_all(&releases).map_err(|error| unwritable(&releases, &error))?;
    // In the same file system, so that a rename works; deleted after any failure.
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
        AgentError::transient(
            FailureCode::SoftwareUnpack,
            format!("{}: {error}", file.url),
            "run the same verb again",
        )
    })??;
    fs::rename(&unpacked, folder).map_err(|error| unwritable(folder, &error))
}

/// Links everything in `folder`, and replaces links to other releases.
fn link_programs(root: &Path, program: Program, release: &str, folder: &Path) -> AgentResult<()> {
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
            // A file of the image or of an add-on stays.
            Err(_) => continue,
        }
        let mut draft = name.clone();
        draft.push(".draft");
        let draft = place.join(draft);
        // Left by a run that died.
        let _ = fs::remove_file(&draft);
        symlink(&target, &draft).map_err(|error| unwritable(&draft, &error))?;
        fs::rename(&draft, &at).map_err(|error| unwritable(&at, &error))?;
    }
    Ok(())
}

/// Runs a program once. One that needs a newer C library than the image has would otherwise look like a node that is only ill.
pub async fn check_that_it_runs(commands: &impl Commands, installed: &Installed) -> AgentResult<()> {
    let name = match installed.name {
        // Plugins are run by containerd, and are linked statically.
        Program::CniPlugins => return Ok(()),
        Program::Containerd | Program::Etcd | Program::Kubelet | Program::Runc => installed.name.as_str(),
    };
    let path = format!("/{PROGRAMS}/{name}");
    let ran = commands.run(&path, &["--version"]).await?;
    if ran.status == Some(0) {
        return Ok(());
    }
    let status = ran.status.map_or_else(|| "a signal".to_owned(), |status| format!("status {status}"));
    Err(AgentError::permanent(
        FailureCode::SoftwareCannotRun,
        format!("{name} {} ends with {status}: {}", installed.version, ran.stderr.trim()),
        "use an image whose C library and processor it was built for, or name another release in the spec (docs/cluster-yaml.md, software)",
    ))
}

/// The path of `program` as seen below `root`: the installed one, else the image's.
pub fn find_program(root: &Path, program: &str) -> AgentResult<PathBuf> {
    let runs = |path: &PathBuf| {
        let found = fs::metadata(root.join(path.strip_prefix("/").unwrap_or(path)));
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let mut places =
        std::iter::once(PROGRAMS).chain(OF_THE_IMAGE).map(|folder| Path::new("/").join(folder).join(program));
    places.find(runs).ok_or_else(|| {
        AgentError::permanent(
            FailureCode::SoftwareMissing,
            format!("the program {program} is neither in /{PROGRAMS} nor in the image"),
            "set software.source: release in cluster.yaml, or use an image that has it",
        )
    })
}

fn unwritable(path: &Path, error: &std::io::Error) -> AgentError {
    AgentError::transient(
        FailureCode::SoftwareUnwritable,
        format!("{}: {error}", path.display()),
        "make room on the root volume (rootVolume.size), or see why it cannot be written",
    )
}
