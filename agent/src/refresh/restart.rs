//! One process of a node is started anew, and nothing else of it.

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
use crate::etcd::place::Place;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::kube::{DIR, MANIFESTS, restarted};
use crate::machine::accounts::Owner;
use crate::machine::apply::Host;
use crate::machine::commands::Commands;
use crate::machine::files;
use crate::status::{self, listeners::components};

const PAUSE: Duration = Duration::from_millis(250);

/// A node whose processes are restarted.
#[derive(Debug)]
pub(super) struct Restarts<'h, C> {
    pub(super) host: &'h Host<C>,
    pub(super) config: &'h NodeConfig,
    /// What a static pod is restarted for.
    pub(super) credentials: &'h str,
    /// For each.
    pub(super) patience: Duration,
}

/// What stood before a process was restarted.
#[derive(Debug)]
pub(super) struct Before {
    process: Process,
    manifest: Option<Vec<u8>>,
}

impl<C: Commands> Restarts<'_, C> {
    /// Lets a member of etcd go for a moment, if the others can do without it: they lead, and are well. One that serves nobody is
    /// missed by nobody; one that is alone is missed whenever it goes.
    pub(super) async fn let_go(&self) -> Outcome<()> {
        let NodeConfig::Etcd(config) = self.config else { return Ok(()) };
        let place = Place { root: self.host.root.clone(), config: (**config).clone() };
        let found = health(&place).await?;
        if !found.serving {
            return Ok(());
        }
        if !found.healthy {
            return Err(Failure::passing(
                FailureCode::RefreshEtcdUnhealthy,
                format!(
                    "{} must be restarted for these credentials, and the others cannot do without it: {}",
                    found.name,
                    found.problems.join("; ")
                ),
                "mend the others first (`slipway-node etcd health`), then run this again; nothing was changed",
            ));
        }
        move_leader(&place).await.map(drop)
    }

    /// Restarts `process`; it runs anew then, and need not be well yet.
    pub(super) async fn restart(&self, process: Process, before: &mut Vec<Before>) -> Outcome<()> {
        match process {
            Process::Etcd | Process::Kubelet => {
                before.push(Before { process, manifest: None });
                self.unit(process).await
            }
            Process::ApiServer | Process::ControllerManager | Process::Scheduler => {
                let path = self.manifest(process);
                let stands = files::read(&path)?.ok_or_else(|| {
                    Failure::lasting(
                        FailureCode::RefreshManifest,
                        format!("{} is missing: no kubelet runs that pod here", path.display()),
                        "run `slipway-node bootstrap`, which writes it",
                    )
                })?;
                let text = String::from_utf8_lossy(&stands).into_owned();
                let anew = restarted::mark(&text, self.credentials)?;
                before.push(Before { process, manifest: Some(stands) });
                self.pod(process, anew.as_bytes()).await
            }
        }
    }

    /// Lets a static pod that does not run try again at once: the kubelet waits up to five minutes between two tries.
    pub(super) fn nudge(&self, process: Process) -> Outcome<()> {
        let path = self.manifest(process);
        if !self.processes(process).is_empty() {
            return Ok(());
        }
        let Some(stands) = files::read(&path)? else { return Ok(()) };
        let anew = restarted::mark(&String::from_utf8_lossy(&stands), self.credentials)?;
        files::write(&path, 0o600, Owner::ROOT, anew.as_bytes()).map(drop)
    }

    /// Puts a process back, whose files are as they were.
    pub(super) async fn put_back(&self, before: Before) -> Outcome<()> {
        match before.manifest {
            None => self.unit(before.process).await,
            Some(manifest) => self.pod(before.process, &manifest).await,
        }
    }

    async fn unit(&self, process: Process) -> Outcome<()> {
        let unit = format!("{}.service", process.name());
        let restart = ["restart", unit.as_str()];
        // etcd is started once it has found its fellows.
        let restarted = tokio::time::timeout(self.patience, self.host.commands.must("systemctl", &restart));
        restarted.await.map_err(|_| late(process, self.patience, "it has not started"))?.map(drop)
    }

    async fn pod(&self, process: Process, manifest: &[u8]) -> Outcome<()> {
        let was = self.processes(process);
        files::write(&self.manifest(process), 0o600, Owner::ROOT, manifest)?;
        let begun = Instant::now();
        while self.processes(process).is_subset(&was) {
            if begun.elapsed() > self.patience {
                return Err(late(process, self.patience, "the kubelet has not started it anew"));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    fn manifest(&self, process: Process) -> std::path::PathBuf {
        self.host.below(&format!("{MANIFESTS}/{}.json", process.name()))
    }

    /// The processes of that program that were told by files of this machine's, whoever started them.
    fn processes(&self, process: Process) -> BTreeSet<u32> {
        running(&below(&self.host.root, DIR), process.name())
    }

    /// Waits until `process` says that it is well.
    pub(super) async fn is_well(&self, process: Process) -> Outcome<()> {
        let begun = Instant::now();
        loop {
            let problem = match self.problem(process).await? {
                None => return Ok(()),
                Some(problem) => problem,
            };
            if begun.elapsed() > self.patience {
                return Err(late(process, self.patience, &problem));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn problem(&self, process: Process) -> Outcome<Option<String>> {
        if let (Process::Etcd, NodeConfig::Etcd(config)) = (process, self.config) {
            let place = Place { root: self.host.root.clone(), config: (**config).clone() };
            let found = health(&place).await?;
            return Ok((!is_up(&found)).then(|| found.problems.join("; ")));
        }
        let all = components(&self.host.root, self.config);
        let Some(component) = all.iter().find(|component| component.name == process.component()) else {
            return Ok(None);
        };
        Ok(status::ask(component).await.problem)
    }
}

fn late(process: Process, patience: Duration, problem: &str) -> Failure {
    Failure::passing(
        FailureCode::RefreshRestart,
        format!("{}: after {} s {problem}", process.name(), patience.as_secs()),
        "look at its log (`journalctl -u etcd`, `journalctl -u kubelet`, or `crictl logs`)",
    )
}

/// Processes called `name` whose words hold `told`.
fn running(told: &Path, name: &str) -> BTreeSet<u32> {
    let told = told.display().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |number: &u32| {
        // One that is gone in this moment says nothing.
        let words = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let mut words = words.split('\0');
        let program = words.next().and_then(|program| program.rsplit('/').next());
        program == Some(name) && words.any(|word| word.contains(&told))
    };
    numbers.filter(is_one).collect()
}
