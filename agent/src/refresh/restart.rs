//! Restarts one process of a node.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use slipway_core::node::NodeConfig;
use tokio::time::Instant;

use super::start::Process;
use crate::bootstrap::is_up;
use crate::credentials::below;
use crate::etcd::health::health;
use crate::etcd::leader::move_leader;
use crate::etcd::local_member::LocalMember;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::kube::{DIR, restart_mark};
use crate::machine::apply::Host;
use crate::machine::commands::Commands;
use crate::machine::files::{self, Owner};
use crate::static_pods::MANIFESTS;
use crate::status::{self, listeners::components};

const PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Restarts<'h, C> {
    pub(super) host: &'h Host<C>,
    pub(super) config: &'h NodeConfig,
    /// The digest that the restart mark of a static pod gets.
    pub(super) credentials: &'h str,
    /// For each process.
    pub(super) patience: Duration,
}

/// The state before a restart, to undo it.
#[derive(Debug)]
pub(super) struct PreviousState {
    process: Process,
    manifest: Option<Vec<u8>>,
}

impl<C: Commands> Restarts<'_, C> {
    /// Checks that etcd can spare this member for a moment, and moves leadership away. A member that does not serve may be
    /// restarted anyway, and so may a single member.
    pub(super) async fn check_etcd_may_restart(&self) -> AgentResult<()> {
        let NodeConfig::Etcd(config) = self.config else { return Ok(()) };
        let local = LocalMember { root: self.host.root.clone(), config: (**config).clone() };
        let found = health(&local).await?;
        if !found.serving {
            return Ok(());
        }
        if !found.healthy {
            return Err(AgentError::transient(
                FailureCode::RefreshEtcdUnhealthy,
                format!(
                    "{} must be restarted for these credentials, but etcd is not healthy without it: {}",
                    found.name,
                    found.problems.join("; ")
                ),
                "repair the other members first (see `/var/lib/slipway/slipway-node etcd health`), then run this again; nothing was changed",
            ));
        }
        move_leader(&local).await.map(drop)
    }

    /// Restarts `process` and waits for the new process, not for its health.
    pub(super) async fn restart(&self, process: Process, before: &mut Vec<PreviousState>) -> AgentResult<()> {
        match process {
            Process::Etcd | Process::Kubelet => {
                before.push(PreviousState { process, manifest: None });
                self.restart_unit(process).await
            }
            Process::ApiServer | Process::ControllerManager | Process::Scheduler => {
                let path = self.manifest(process);
                let stands = files::read(&path)?.ok_or_else(|| {
                    AgentError::permanent(
                        FailureCode::RefreshManifest,
                        format!("{} is missing, so the kubelet does not run that pod", path.display()),
                        "run `/var/lib/slipway/slipway-node bootstrap`, which writes it",
                    )
                })?;
                let text = String::from_utf8_lossy(&stands).into_owned();
                let marked = restart_mark::mark(&text, self.credentials)?;
                before.push(PreviousState { process, manifest: Some(stands) });
                self.restart_pod(process, marked.as_bytes()).await
            }
        }
    }

    /// Makes the kubelet retry a static pod that is down at once, instead of after up to five minutes.
    pub(super) fn retry_if_down(&self, process: Process) -> AgentResult<()> {
        let path = self.manifest(process);
        if !self.pids(process).is_empty() {
            return Ok(());
        }
        let Some(stands) = files::read(&path)? else { return Ok(()) };
        let marked = restart_mark::mark(&String::from_utf8_lossy(&stands), self.credentials)?;
        files::write(&path, 0o600, Owner::ROOT, marked.as_bytes()).map(drop)
    }

    /// Restarts a process after its files were put back.
    pub(super) async fn put_back(&self, before: PreviousState) -> AgentResult<()> {
        match before.manifest {
            None => self.restart_unit(before.process).await,
            Some(manifest) => self.restart_pod(before.process, &manifest).await,
        }
    }

    async fn restart_unit(&self, process: Process) -> AgentResult<()> {
        let unit = format!("{}.service", process.name());
        let restart = ["restart", unit.as_str()];
        // etcd's unit counts as started only once it has a majority.
        let restarted =
            tokio::time::timeout(self.patience, self.host.commands.run_checked("systemctl", &restart));
        restarted
            .await
            .map_err(|_| timed_out(process, self.patience, "systemd has not started it"))?
            .map(drop)
    }

    async fn restart_pod(&self, process: Process, manifest: &[u8]) -> AgentResult<()> {
        let was = self.pids(process);
        files::write(&self.manifest(process), 0o600, Owner::ROOT, manifest)?;
        let begun = Instant::now();
        while self.pids(process).is_subset(&was) {
            if begun.elapsed() > self.patience {
                return Err(timed_out(process, self.patience, "the kubelet has not restarted it"));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    fn manifest(&self, process: Process) -> std::path::PathBuf {
        self.host.below(&format!("{MANIFESTS}/{}.json", process.name()))
    }

    /// The pids of that program that use this machine's files, whoever started them.
    fn pids(&self, process: Process) -> BTreeSet<u32> {
        pids_of(&below(&self.host.root, DIR), process.name())
    }

    pub(super) async fn wait_until_healthy(&self, process: Process) -> AgentResult<()> {
        let begun = Instant::now();
        loop {
            let problem = match self.problem(process).await? {
                None => return Ok(()),
                Some(problem) => problem,
            };
            if begun.elapsed() > self.patience {
                return Err(timed_out(process, self.patience, &problem));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn problem(&self, process: Process) -> AgentResult<Option<String>> {
        if let (Process::Etcd, NodeConfig::Etcd(config)) = (process, self.config) {
            let local = LocalMember { root: self.host.root.clone(), config: (**config).clone() };
            let found = health(&local).await?;
            return Ok((!is_up(&found)).then(|| found.problems.join("; ")));
        }
        let all = components(&self.host.root, self.config);
        let Some(component) = all.iter().find(|component| component.name == process.component()) else {
            return Ok(None);
        };
        Ok(status::component_health(component).await.problem)
    }
}

fn timed_out(process: Process, patience: Duration, problem: &str) -> AgentError {
    AgentError::transient(
        FailureCode::RefreshRestart,
        format!("{}: after {} s {problem}", process.name(), patience.as_secs()),
        "look at its log (`journalctl -u etcd`, `journalctl -u kubelet`, or `crictl logs`)",
    )
}

/// Pids of processes called `name` with an argument that contains `folder`.
fn pids_of(folder: &Path, name: &str) -> BTreeSet<u32> {
    let folder = folder.display().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |number: &u32| {
        // The process may have just ended.
        let words = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let mut words = words.split('\0');
        let program = words.next().and_then(|program| program.rsplit('/').next());
        program == Some(name) && words.any(|word| word.contains(&folder))
    };
    numbers.filter(is_one).collect()
}
