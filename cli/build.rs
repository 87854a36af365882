//! Tells the program the commit that it is built from. A build outside of a checkout has none.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=SLIPWAY_COMMIT");
    // The head, and the branch that it names. Both are missing in an archive.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let commit = std::env::var("SLIPWAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = commit.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo:rustc-env=SLIPWAY_COMMIT={}", commit.unwrap_or_else(|| "unknown".to_owned()));
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
