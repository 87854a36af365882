//! The programs that the agent runs: a port, so that tests need no systemd.

use std::future::Future;
use std::process::Stdio;
use std::time::Duration;

use crate::failure::{Failure, Outcome};

/// Nothing that is run here takes as long, not even a file system on a large volume.
const PATIENCE: Duration = Duration::from_secs(600);

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
                "command.failed",
                format!("`{program} {}` failed: {words}", arguments.join(" ")),
                "run it by hand on the node to see more",
            ))
        }
    }
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
                "command.failed",
                format!("`{program} {}`: {problem}", arguments.join(" ")),
                "see that the image has it: systemd, e2fsprogs and util-linux are needed",
            )
        };
        let output = tokio::time::timeout(PATIENCE, command.output()).await;
        let output = output.map_err(|_| failed(format!("no end after {} s", PATIENCE.as_secs())))?;
        let output = output.map_err(|error| failed(error.to_string()))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) })
    }
}
