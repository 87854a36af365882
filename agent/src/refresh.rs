//! `refresh`: newer credentials for a running node.
//!
//! The files are switched in one rename, then every listener is polled until it *serves* its new certificate: a server that
//! missed the change would let its old one expire. If one does not in time, the previous files are put back.
//!
//! - [`start`]: files that a process reads only at its start. With [`Order::restart`] just that process is restarted
//!   ([`restart`]), one after the other, and must become healthy; without it such credentials are refused.
//! - [`kubelet`]: the kubelet's own certificate, which nobody renews once it has expired.
//!
//! This needs neither the Kubernetes API nor a majority of etcd, so it also recovers a cluster whose certificates have all
//! expired. Listeners that presented nothing before are not waited for long, as they may wait for machines that are refreshed
//! later.

mod kubelet;
mod restart;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use restart::{PreviousState, Restarts};
use slipway_core::node::report::Served;
use slipway_core::node::{NodeConfig, NodeFile, Refreshed};
use slipway_crypto::AwsLc;
use slipway_ports::{Crypto as _, sealed};
use start::Process;

use crate::aws::{Aws, Endpoints};
use crate::credentials::{self, Bundle, Written, below};
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::apply::Host;
use crate::machine::commands::Commands;
use crate::machine::files::{self, Owner};
use crate::node_files::{self, NODE, SEALED};
use crate::status::listeners::{Listener, listeners};
use crate::status::{self, served};
use crate::{sealed_bundle, static_pods};

const PAUSE: Duration = Duration::from_millis(250);
/// How long to wait for listeners that presented nothing before.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Order {
    /// The digest of the wanted bundle.
    pub credentials: String,
    /// Whether processes that read a changed file only at their start may be restarted.
    pub restart: bool,
    /// The time limit for each listener and each process. kube-apiserver polls its files once a minute; etcd reads them at every
    /// handshake.
    pub patience: Duration,
}

impl Default for Order {
    fn default() -> Self {
        Self { credentials: String::new(), restart: false, patience: Duration::from_secs(150) }
    }
}

/// Fetches the bundle of this node's role, puts its files in place, and waits until they are served. After a failure the previous
/// files are in force, except if only the kubelet got no certificate: then the new ones are.
pub async fn refresh<C: Commands>(
    host: &Host<C>,
    endpoints: &Endpoints,
    order: &Order,
) -> AgentResult<Refreshed> {
    let root = host.root.as_path();
    let node = node_files::required_node(root)?;
    let config = node_files::config(root)?.0;
    let aws = Aws::new(endpoints, &node.region)?;
    let bytes = sealed_bundle::fetch(&aws, &node, &order.credentials).await?;
    let plain = sealed::open(&aws.keys(None), &AwsLc, &node.cluster, &node.role, &bytes).await?;
    let bundle = static_pods::with_copies(Bundle::read(&plain)?, &config);
    let to_restart = start::needs_restart(root, &config, &bundle);
    if let (false, Some((process, path))) = (order.restart, to_restart.first_key_value()) {
        return Err(AgentError::permanent(
            FailureCode::RefreshReadAtStart,
            format!("these credentials change {path}, which {} reads only when it starts", process.name()),
            "refresh with `--restart allowed`, or roll the node; nothing was changed",
        ));
    }
    let swap = Swap {
        restarts: Restarts {
            host,
            config: &config,
            credentials: &order.credentials,
            patience: order.patience,
        },
        listeners: listeners(root, &config).into_iter().filter(|one| one.file.is_some()).collect(),
        to_restart: to_restart.into_keys().collect(),
    };
    if swap.to_restart.contains(&Process::Etcd) {
        swap.restarts.check_etcd_may_restart().await?;
    }
    let silent = swap.silent_listeners().await;
    let written = credentials::write(root, &order.credentials, &bundle)?;
    let changed = written.changed;
    let served = swap.wait_or_undo(order, &silent, written).await?;
    write_file(root, SEALED, &bytes)?;
    let node = record_digest(root, node, &order.credentials)?;
    let kubelet = match config {
        NodeConfig::Etcd(_) => Ok(None),
        NodeConfig::Controller(_) | NodeConfig::Worker(_) => {
            kubelet::renew_if_refused(host, order.patience).await
        }
    };
    // Also after a failure of the kubelet: this is what the node serves now.
    let published = status::publish::publish_with(root, &aws, &node).await.is_ok();
    Ok(Refreshed {
        changed,
        credentials: order.credentials.clone(),
        served,
        restarted: swap.to_restart.into_iter().map(|process| process.name().to_owned()).collect(),
        kubelet: kubelet?,
        published,
    })
}

/// A change of files, with the listeners and processes that it concerns.
struct Swap<'h, C> {
    restarts: Restarts<'h, C>,
    listeners: Vec<Listener>,
    /// The processes to restart, in order.
    to_restart: Vec<Process>,
}

impl<C: Commands> Swap<'_, C> {
    /// Names of listeners that present no certificate now.
    async fn silent_listeners(&self) -> BTreeSet<&'static str> {
        let now = Timestamp::now();
        let all = join_all(self.listeners.iter().map(|listener| served(listener, now))).await;
        let names = self.listeners.iter().map(|listener| listener.name).zip(all);
        names.filter(|(_, served)| served.certificate.is_none()).map(|(name, _)| name).collect()
    }

    /// Keeps the written files if they come into force, else undoes the change.
    async fn wait_or_undo(
        &self,
        order: &Order,
        silent: &BTreeSet<&str>,
        written: Written,
    ) -> AgentResult<Vec<Served>> {
        let mut before = Vec::new();
        match self.restart_and_wait(order, silent, &mut before).await {
            Ok(served) => {
                written.remove_previous()?;
                Ok(served)
            }
            Err(problem) => {
                written.undo()?;
                let mut failure = AgentError::transient(
                    FailureCode::RefreshNotServed,
                    format!("{problem}; the previous credentials are in force again"),
                    "look at the component's log (`journalctl -u etcd`, or `crictl logs` on a controller), then refresh again; \
                     or let a rollout replace the node",
                );
                for before in before {
                    if let Err(worse) = self.restarts.put_back(before).await {
                        failure.message =
                            format!("{}; putting them back failed: {}", failure.message, worse.message);
                    }
                }
                Err(failure)
            }
        }
    }

    async fn restart_and_wait(
        &self,
        order: &Order,
        silent: &BTreeSet<&str>,
        before: &mut Vec<PreviousState>,
    ) -> Result<Vec<Served>, String> {
        for process in &self.to_restart {
            self.restarts.restart(*process, before).await.map_err(|failure| failure.message)?;
            self.restarts.wait_until_healthy(*process).await.map_err(|failure| failure.message)?;
        }
        if order.restart {
            for process in [Process::ApiServer, Process::ControllerManager, Process::Scheduler] {
                let is_here = Process::all_of(self.restarts.config).contains(&process);
                if is_here && !self.to_restart.contains(&process) {
                    self.restarts.retry_if_down(process).map_err(|failure| failure.message)?;
                }
            }
        }
        wait_until_served(&self.listeners, silent, order.patience).await
    }
}

/// Waits until each listener presents the certificate of its file and it verifies; only shortly for those in `silent`.
async fn wait_until_served(
    listeners: &[Listener],
    silent: &BTreeSet<&str>,
    patience: Duration,
) -> Result<Vec<Served>, String> {
    let mut fingerprints = BTreeMap::new();
    for listener in listeners {
        if let Some(file) = &listener.file {
            fingerprints.insert(listener.name, fingerprint(file)?);
        }
    }
    let start = Instant::now();
    loop {
        let now = Timestamp::now();
        let all = join_all(listeners.iter().map(|listener| served(listener, now))).await;
        let (mut lagging, mut mute) = (None, false);
        for served in &all {
            let wanted = fingerprints.get(served.name.as_str());
            match &served.certificate {
                Some(certificate) if Some(&certificate.fingerprint) != wanted => {
                    lagging =
                        Some(format!("{} still serves the certificate {}", served.name, certificate.serial));
                }
                // Waiting does not help.
                Some(certificate) if !certificate.verifies => {
                    let problem = problem(served);
                    return Err(format!(
                        "{} serves the certificate {}, which does not verify: {problem}",
                        served.name, certificate.serial
                    ));
                }
                Some(_) => {}
                None if silent.contains(served.name.as_str()) => mute = true,
                None => {
                    lagging = Some(format!("{} presents no certificate: {}", served.name, problem(served)))
                }
            }
        }
        match lagging {
            None if !mute || start.elapsed() > GRACE.min(patience) => return Ok(all),
            Some(lagging) if start.elapsed() > patience => {
                return Err(format!("after {} s {lagging}", patience.as_secs()));
            }
            None | Some(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn problem(served: &Served) -> &str {
    served.problem.as_deref().unwrap_or("it does not say why")
}

/// The fingerprint of the first certificate in `file`, which is the leaf.
fn fingerprint(file: &Path) -> Result<String, String> {
    const END: &str = "-----END CERTIFICATE-----\n";
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let first = text.split_inclusive(END).next().unwrap_or_default();
    AwsLc.facts(first).map(|(_, fingerprint)| fingerprint).map_err(|error| error.message)
}

/// Done last: until then the node's status says that it lacks the wanted credentials.
fn record_digest(root: &Path, node: NodeFile, digest: &str) -> AgentResult<NodeFile> {
    if node.credentials == digest {
        return Ok(node);
    }
    let node = NodeFile { credentials: digest.to_owned(), ..node };
    write_file(root, NODE, &serde_json::to_vec(&node).expect("a node file has string keys only"))?;
    Ok(node)
}

fn write_file(root: &Path, path: &str, bytes: &[u8]) -> AgentResult<()> {
    let written = files::write(&below(root, path), 0o600, Owner::ROOT, bytes);
    written.map(drop).map_err(|failure| {
        AgentError::transient(
            FailureCode::RefreshFiles,
            failure.message,
            "see that the disk has room, then run this again",
        )
    })
}
