//! The locations of the repository, the Python tools and the function binaries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A result of the set-up steps is missing.
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

/// The Python interpreter with moto, boto3, cfn-lint and the SAM translator.
///
/// # Errors
/// If `make tools` has not run.
pub fn python() -> Result<PathBuf, Absent> {
    let path = root().join(".tools/python/bin/python3");
    present("the Python of the tests", path, "make tools".to_owned())
}

/// Reports that the running test does not test something and why, also when its output is captured. `tests/scripts/run_tests.py` reads
/// this line and counts the test as skipped.
pub fn not_tested(what: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let _ = writeln!(std::io::stderr(), "!!! NOT TESTED: {test}: {what}");
}

/// A program of a Debian package: the installed one, or one that is downloaded into `.tools/` (without root). `None` if it is not
/// available; that is reported on the standard error, also when the test's output is captured.
///
/// # Panics
/// If the download script cannot be run, or fails for another reason.
#[must_use]
pub fn debian(package: &str, program: &str) -> Option<PathBuf> {
    needed(fetched("tests/scripts/debian_tool.sh", &[package, program]), program)
}

/// A program of an etcd release, built from its Go modules into `.tools/`; `None` as for [`debian`].
///
/// # Panics
/// As [`debian`].
#[must_use]
pub fn etcd(version: &str, program: &str) -> Option<PathBuf> {
    needed(fetched("tests/scripts/etcd_release.sh", &[version, program]), program)
}

/// As [`etcd`], but only if it was built before (`make test-etcd`), because each release takes minutes. Tests do without it.
///
/// # Panics
/// As [`debian`].
#[must_use]
pub fn cached_etcd(version: &str, program: &str) -> Option<PathBuf> {
    fetched("tests/scripts/etcd_release.sh", &["--cached", version, program])
}

/// The program, without which the running test is skipped.
fn needed(program: Option<PathBuf>, name: &str) -> Option<PathBuf> {
    if program.is_none() {
        not_tested(&format!("there is no {name}, as its script has said"));
    }
    program
}

/// Runs `script` once per process, so that a missing program is reported only once.
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

/// The folder of a real Kubernetes; `None` if it was not built (`make kubernetes`), which is reported as for [`debian`].
///
/// # Panics
/// As [`debian`].
#[must_use]
pub fn kubernetes() -> Option<PathBuf> {
    needed(fetched("tests/scripts/kubernetes.sh", &["--cached"]), "Kubernetes")
}

/// A file that `cargo build` made: the binary of a function or the agent, in the profile of this code.
///
/// # Errors
/// If it was not built.
pub fn binary(name: &str) -> Result<PathBuf, Absent> {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    present("the binary", target().join(profile).join(name), "cargo build --workspace --bins".to_owned())
}

/// The agent in the profile that is shipped, whatever the profile of this code is.
///
/// # Errors
/// If it was not built.
pub fn shipped_agent() -> Result<PathBuf, Absent> {
    let path = target().join("release/slipway-node");
    present("the agent", path, "cargo build --release -p slipway-node".to_owned())
}

/// The target directory: the running test or demo is in it (`<target>/<profile>/…`).
fn target() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    let mut folders = here.ancestors().skip(1);
    // `deps/` has the tests; the binaries are one level up.
    let profile = folders.find(|folder| !folder.ends_with("deps")).map(Path::to_path_buf);
    profile.and_then(|folder| folder.parent().map(Path::to_path_buf)).unwrap_or_default()
}

fn present(what: &'static str, path: PathBuf, cure: String) -> Result<PathBuf, Absent> {
    if path.exists() { Ok(path) } else { Err(Absent { what, path, cure }) }
}
