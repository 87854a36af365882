//! The programs that the agent runs, behind a trait so that tests need no systemd.

use std::future::Future;
use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use crate::failure::{AgentError, AgentResult, FailureCode};

/// Longer than any program here takes, including mkfs on a large volume.
const PATIENCE: Duration = Duration::from_secs(600);
/// These depend on the disk's size and must not be interrupted.
const UNBOUNDED: [&str; 2] = ["e2fsck", "resize2fs"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub trait Commands: Send + Sync {
    fn run(&self, program: &str, arguments: &[&str]) -> impl Future<Output = AgentResult<Ran>> + Send;

    /// Runs `program` and returns its output. A status other than 0 is a failure.
    fn run_checked(
        &self,
        program: &str,
        arguments: &[&str],
    ) -> impl Future<Output = AgentResult<String>> + Send {
        async move {
            let ran = self.run(program, arguments).await?;
            if ran.status == Some(0) {
                return Ok(ran.stdout);
            }
            let words = ran.stderr.trim();
            Err(AgentError::transient(
                FailureCode::CommandFailed,
                format!("`{program} {}` failed: {words}", arguments.join(" ")),
                "run it by hand on the node to see more",
            ))
        }
    }
}

fn absent(program: &str) -> AgentError {
    AgentError::permanent(
        FailureCode::CommandAbsent,
        format!("this machine's image has no program `{program}`"),
        "use an image that has it: all nodes need systemd, e2fsprogs and util-linux; workers with xfs need xfsprogs, and those with RAID 0 \
         need mdadm",
    )
}

#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Commands for System {
    async fn run(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
        let mut command = tokio::process::Command::new(program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let failed = |problem: String| {
            AgentError::transient(
                FailureCode::CommandFailed,
                format!("`{program} {}`: {problem}", arguments.join(" ")),
                "run it by hand on the node to see more",
            )
        };
        let output = if UNBOUNDED.contains(&program) {
            command.output().await
        } else {
            let output = tokio::time::timeout(PATIENCE, command.output()).await;
            output.map_err(|_| failed(format!("it did not end within {} s", PATIENCE.as_secs())))?
        };
        // Nothing installs a missing program later, so that failure lasts.
        let output = output.map_err(|error| {
            if error.kind() == ErrorKind::NotFound { absent(program) } else { failed(error.to_string()) }
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) })
    }
}
