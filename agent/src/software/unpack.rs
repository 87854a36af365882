//! Unpacks a release: only its programs, by their base names, so that an archive cannot choose paths.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use flate2::read::GzDecoder;
use slipway_core::software::Program;

use super::unwritable;
use crate::failure::{AgentError, AgentResult, FailureCode};

/// Limit of the unpacked size: containerd has 120 MB.
const MOST_BYTES: u64 = 1 << 30;

pub(super) fn unpack(program: Program, url: &str, from: &Path, into: &Path) -> AgentResult<()> {
    fs::create_dir(into).map_err(|error| unwritable(into, &error))?;
    let names = match program {
        // Published as bare binaries.
        Program::Kubelet | Program::Runc => {
            let mut file = File::open(from).map_err(|error| unwritable(from, &error))?;
            write(&mut file, &into.join(program.as_str()))?;
            BTreeSet::from([program.as_str().to_owned()])
        }
        Program::CniPlugins | Program::Containerd | Program::Etcd => unpack_archive(url, from, into)?,
    };
    let wanted: &[&str] = match program {
        Program::CniPlugins => &["bridge", "host-local", "loopback", "portmap"],
        Program::Containerd => &["containerd", "containerd-shim-runc-v2"],
        Program::Etcd => &["etcd", "etcdctl"],
        Program::Kubelet => &["kubelet"],
        Program::Runc => &["runc"],
    };
    match wanted.iter().find(|name| !names.contains(**name)) {
        None => Ok(()),
        Some(name) => Err(bad_layout(url, format!("the program {name} is not in it"))),
    }
}

/// Extracts executable regular files of a `tar.gz`; returns their names.
fn unpack_archive(url: &str, from: &Path, into: &Path) -> AgentResult<BTreeSet<String>> {
    let file = File::open(from).map_err(|error| unwritable(from, &error))?;
    let mut archive = tar::Archive::new(GzDecoder::new(file).take(MOST_BYTES));
    let broken = |error: io::Error| bad_layout(url, format!("it cannot be unpacked: {error}"));
    let mut names = BTreeSet::new();
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let may_run = entry.header().mode().map_err(broken)? & 0o111 != 0;
        if !entry.header().entry_type().is_file() || !may_run {
            continue;
        }
        let path = entry.path().map_err(broken)?.into_owned();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !names.insert(name.to_owned()) {
            return Err(bad_layout(url, format!("it has two programs {name}")));
        }
        write(&mut entry, &into.join(name))?;
    }
    Ok(names)
}

fn write(from: &mut impl Read, to: &Path) -> AgentResult<()> {
    let failed = |error: io::Error| unwritable(to, &error);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o755).open(to).map_err(failed)?;
    io::copy(from, &mut file).map_err(failed)?;
    // The umask restricts the mode at creation.
    file.set_permissions(fs::Permissions::from_mode(0o755)).map_err(failed)?;
    file.sync_all().map_err(failed)
}

fn bad_layout(url: &str, why: String) -> AgentError {
    let help = "report this: Slipway expects another layout of that release";
    AgentError::permanent(FailureCode::SoftwareLayout, format!("{url}: {why}"), help)
}
