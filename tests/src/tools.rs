//! Where things are: the repository, the Python tools, the function binaries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Something that the set-up steps should have made is not there.
#[derive(Debug, thiserror::Error)]
#[error("{what} is not at {path}: run `{cure}`")]
pub struct Absent {
    what: &'static str,
    path: PathBuf,
    cure: String,
}

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The interpreter that has moto, boto3, cfn-lint and the SAM translator.
///
/// # Errors
/// If `make tools` has not run.
pub fn python() -> Result<PathBuf, Absent> {
    let path = root().join(".tools/python/bin/python3");
    present("the Python of the tests", path, "make tools".to_owned())
}

/// Says what is not tested, and why, past the capture of a test's own output.
pub fn not_tested(what: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "!!! NOT TESTED: {what}");
}

/// A program that a Debian package has: the installed one, or one that is fetched into `.tools/` (no root needed). `None` where
/// it cannot be had, which is said on the standard error, past the test's own capture.
///
/// # Panics
/// If the script that fetches it cannot be run, or fails otherwise.
#[must_use]
pub fn debian(package: &str, program: &str) -> Option<PathBuf> {
    fetched("tests/scripts/debian_tool.sh", &[package, program])
}

/// A program of an etcd release, built out of its Go modules into `.tools/`; `None` as for [`debian`].
///
/// # Panics
/// As [`debian`].
#[must_use]
pub fn etcd(version: &str, program: &str) -> Option<PathBuf> {
    fetched("tests/scripts/etcd_release.sh", &[version, program])
}

/// As [`etcd`], but only where it was built before (`make test-etcd`): each release takes minutes.
///
/// # Panics
/// As [`debian`].
#[must_use]
pub fn cached_etcd(version: &str, program: &str) -> Option<PathBuf> {
    fetched("tests/scripts/etcd_release.sh", &["--cached", version, program])
}

/// Asks `script` once a process: what it says of something that cannot be had is said once, too.
fn fetched(script: &str, of: &[&str]) -> Option<PathBuf> {
    static FOUND: Mutex<BTreeMap<String, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    found.entry(format!("{script} {}", of.join(" "))).or_insert_with(|| fetch(script, of)).clone()
}

fn fetch(script: &str, of: &[&str]) -> Option<PathBuf> {
    let output = Command::new(root().join(script)).args(of).stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{script} cannot be run: {error}"));
    match output.status.code() {
        Some(0) => Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        Some(3) => None,
        _ => panic!("{script} {}: {}", of.join(" "), output.status),
    }
}

/// The folder of a real Kubernetes; `None` where it was not built (`make kubernetes`), which is said as for [`debian`].
///
/// # Panics
/// As [`debian`].
#[must_use]
pub fn kubernetes() -> Option<PathBuf> {
    fetched("tests/scripts/kubernetes.sh", &["--cached"])
}

/// A file that `cargo build` made: a function's binary or the agent, in the profile that this code was built in.
///
/// # Errors
/// If it was not built.
pub fn binary(name: &str) -> Result<PathBuf, Absent> {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    present("the binary", target().join(profile).join(name), "cargo build --workspace --bins".to_owned())
}

/// The target directory: the running test or demo lies in it (`<target>/<profile>/…`).
fn target() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    let mut folders = here.ancestors().skip(1);
    // `deps/` holds the tests; their binaries lie one up.
    let profile = folders.find(|folder| !folder.ends_with("deps")).map(Path::to_path_buf);
    profile.and_then(|folder| folder.parent().map(Path::to_path_buf)).unwrap_or_default()
}

fn present(what: &'static str, path: PathBuf, cure: String) -> Result<PathBuf, Absent> {
    if path.exists() { Ok(path) } else { Err(Absent { what, path, cure }) }
}
