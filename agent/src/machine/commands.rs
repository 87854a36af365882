//! The programs that the agent runs: a port, so that tests need no systemd.

use std::future::Future;
use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use crate::failure::{Failure, FailureCode, Outcome};

/// Nothing that is run here takes as long, not even a file system on a large volume.
const PATIENCE: Duration = Duration::from_secs(600);
/// But for these: how long they take is for the disk to say, and who ends them halfway begins again.
const UNBOUNDED: [&str; 2] = ["e2fsck", "resize2fs"];

/// What came of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// What it wrote.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// Runs programs.
pub trait Commands: Send + Sync {
    /// Runs `program` to its end.
    fn run(&self, program: &str, arguments: &[&str]) -> impl Future<Output = Outcome<Ran>> + Send;

    /// Runs `program`, which must succeed; what it wrote.
    fn must(&self, program: &str, arguments: &[&str]) -> impl Future<Output = Outcome<String>> + Send {
        async move {
            let ran = self.run(program, arguments).await?;
            if ran.status == Some(0) {
                return Ok(ran.stdout);
            }
            let words = ran.stderr.trim();
            Err(Failure::passing(
                FailureCode::CommandFailed,
                format!("`{program} {}` failed: {words}", arguments.join(" ")),
                "run it by hand on the node to see more",
            ))
        }
    }
}

/// The image lacks a program.
fn absent(program: &str) -> Failure {
    Failure::lasting(
        FailureCode::CommandAbsent,
        format!("this machine's image has no program `{program}`"),
        "take an image that has it: each needs systemd, e2fsprogs and util-linux; workers with file systems of `xfs` need xfsprogs, \
         and those that put disks together by RAID 0 need mdadm",
    )
}

/// The machine's own programs.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Commands for System {
    async fn run(&self, program: &str, arguments: &[&str]) -> Outcome<Ran> {
        let mut command = tokio::process::Command::new(program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let failed = |problem: String| {
            Failure::passing(
                FailureCode::CommandFailed,
                format!("`{program} {}`: {problem}", arguments.join(" ")),
                "run it by hand on the node to see more",
            )
        };
        let output = if UNBOUNDED.contains(&program) {
            command.output().await
        } else {
            let output = tokio::time::timeout(PATIENCE, command.output()).await;
            output.map_err(|_| failed(format!("no end after {} s", PATIENCE.as_secs())))?
        };
        // Nobody else installs anything.
        let output = output.map_err(|error| {
            if error.kind() == ErrorKind::NotFound { absent(program) } else { failed(error.to_string()) }
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) })
    }
}
