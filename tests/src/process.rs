//! Child processes that cannot outlive this process: each has its own process group, which is killed as a whole when the value is dropped.

use std::io;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// A running child and all of its descendants.
#[derive(Debug)]
pub struct Group {
    child: Child,
    pid: Option<Pid>,
}

impl Group {
    /// Starts `command` in its own process group, with pipes for its three streams.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, pid })
    }

    /// The process id while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The standard input; only once.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The standard output; only once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The standard error; only once.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for its end. The text is in Lambda's form: `exit status: 101`, `signal: killed`.
    pub async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Kills the whole group.
    pub fn kill(&mut self) {
        // Not after the child was reaped: its id may belong to another process by then.
        if self.child.id().is_some()
            && let Some(pid) = self.pid
        {
            // If it has just ended by itself, nothing has to be done.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
