//! What of a release is taken: its programs, by their names alone. Nothing in an archive says where anything goes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use flate2::read::GzDecoder;
use slipway_core::software::Program;

use super::unwritable;
use crate::failure::{Failure, FailureCode, Outcome};

/// More than any release has when it is unpacked (containerd's: 120 MB), and little enough for a root volume.
const MOST_BYTES: u64 = 1 << 30;

/// Unpacks the release at `from` into the new folder `into`.
pub(super) fn unpack(program: Program, url: &str, from: &Path, into: &Path) -> Outcome<()> {
    fs::create_dir(into).map_err(|error| unwritable(into, &error))?;
    let names = match program {
        // Published as they are.
        Program::Kubelet | Program::Runc => {
            let mut file = File::open(from).map_err(|error| unwritable(from, &error))?;
            write(&mut file, &into.join(program.as_str()))?;
            BTreeSet::from([program.as_str().to_owned()])
        }
        Program::CniPlugins | Program::Containerd | Program::Etcd => of_archive(url, from, into)?,
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
        Some(name) => Err(odd(url, format!("the program {name} is not in it"))),
    }
}

/// The programs of a `tar.gz`: regular files that may be run. Their names.
fn of_archive(url: &str, from: &Path, into: &Path) -> Outcome<BTreeSet<String>> {
    let file = File::open(from).map_err(|error| unwritable(from, &error))?;
    let mut archive = tar::Archive::new(GzDecoder::new(file).take(MOST_BYTES));
    let broken = |error: io::Error| odd(url, format!("it is no archive that can be unpacked: {error}"));
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
            return Err(odd(url, format!("it has two programs {name}")));
        }
        write(&mut entry, &into.join(name))?;
    }
    Ok(names)
}

fn write(from: &mut impl Read, to: &Path) -> Outcome<()> {
    let failed = |error: io::Error| unwritable(to, &error);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o755).open(to).map_err(failed)?;
    io::copy(from, &mut file).map_err(failed)?;
    // Whatever the mask says.
    file.set_permissions(fs::Permissions::from_mode(0o755)).map_err(failed)?;
    file.sync_all().map_err(failed)
}

fn odd(url: &str, why: String) -> Failure {
    let help = "report this: Slipway expects another layout of that release";
    Failure::lasting(FailureCode::SoftwareLayout, format!("{url}: {why}"), help)
}
