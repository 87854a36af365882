//! A program that writes to a log file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// Dropping this value stops the program.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Mutex<Child>,
}

impl Program {
    pub(super) fn start(path: &Path, arguments: Vec<String>, log: &Path) -> Self {
        let child = spawn(path, &arguments, log);
        Self { path: path.to_owned(), arguments, log: log.to_owned(), child: Mutex::new(child) }
    }

    pub(super) async fn restart(&mut self) {
        self.kill();
        let child = self.child.get_mut().expect("nobody panics while he holds it");
        let _ = child.wait().await;
        *child = spawn(&self.path, &self.arguments, &self.log);
    }

    pub(super) async fn stop(&mut self) {
        self.kill();
        let child = self.child.get_mut().expect("nobody panics while he holds it");
        let _ = child.wait().await;
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child().id()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(super) fn runs(&self) -> bool {
        matches!(self.child().try_wait(), Ok(None))
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        // Not after the process was reaped: its id may belong to another process by then.
        let id = self.child().id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(Pid::from_raw) {
            // If it has just ended by itself, nothing has to be done.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(path: &Path, arguments: &[String], log: &Path) -> Child {
    fs::create_dir_all(log.parent().expect("a log lies somewhere")).expect("folders can be made");
    let file = fs::OpenOptions::new().append(true).create(true).open(log).expect("a log can be made");
    let mut command = Command::new(path);
    command.env_clear().args(arguments).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    command.spawn().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The end of a log.
pub(super) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
