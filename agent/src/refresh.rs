//! `refresh`: newer credentials for a node that goes on running.
//!
//! Files are swapped in one rename, then each listener is asked until it *serves* the new certificate: a server that did not
//! notice would let its old one expire. If one does not in time, what was there before is put back.
//!
//! - [`start`]: what a process reads at its start alone. With [`Order::restart`] just that process is restarted ([`restart`]), one
//!   after the other, and must be well again; without, such credentials are refused.
//! - [`kubelet`]: what the bundle does not bring, and nobody renews once it has expired.
//!
//! Nothing of this needs the Kubernetes API, or a majority of etcd: where all certificates have expired it is how they come back. Whoever
//! presented nothing before is not waited for long, as it may wait for others that are refreshed after it.

mod kubelet;
mod restart;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use restart::{Before, Restarts};
use slipway_core::keys;
use slipway_core::node::report::Served;
use slipway_core::node::{NodeConfig, NodeFile, Refreshed};
use slipway_crypto::AwsLc;
use slipway_ports::{Crypto as _, sealed};
use start::Process;

use crate::aws::{Aws, Endpoints};
use crate::credentials::{self, Bundle, Written, below};
use crate::failure::{Failure, FailureCode, Outcome};
use crate::machine::apply::Host;
use crate::machine::commands::Commands;
use crate::status::listeners::{Listener, listeners};
use crate::status::{self, NODE, served};

const PAUSE: Duration = Duration::from_millis(250);
/// How long is waited for who presented nothing before.
const GRACE: Duration = Duration::from_secs(5);
/// Where userdata puts the sealed bundle.
pub const SEALED: &str = "/var/lib/slipway/credentials.sealed";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// The digest of the bundle.
    pub credentials: String,
    /// Whether to restart what reads some of it at its start alone.
    pub restart: bool,
    /// How long one listener, one process may take. kube-apiserver looks at its files once a minute; etcd at every handshake.
    pub patience: Duration,
}

impl Default for Order {
    fn default() -> Self {
        Self { credentials: String::new(), restart: false, patience: Duration::from_secs(150) }
    }
}

/// Fetches the bundle of this node's role, puts its files in place, and waits until they are served.
///
/// # Errors
/// If it cannot be had or opened, or is not served in time; then what was there before is in force. Or if the kubelet gets no
/// certificate in time; then the bundle is in force.
pub async fn refresh<C: Commands>(
    host: &Host<C>,
    endpoints: &Endpoints,
    order: &Order,
) -> Outcome<Refreshed> {
    let root = host.root.as_path();
    let node = status::node(root)?.ok_or_else(|| {
        Failure::lasting(
            FailureCode::ConfigUnreadable,
            format!("{} is missing: this machine was never told who it is", below(root, NODE).display()),
            "replace the node: its userdata writes that file",
        )
    })?;
    let config = status::config(root)?.0;
    let aws = Aws::new(endpoints, &node.region)?;
    let bytes = fetched(&aws, &node, &order.credentials).await?;
    let plain = sealed::open(&aws.keys(None), &AwsLc, &node.cluster, &node.role, &bytes).await?;
    let bundle = Bundle::read(&plain)?;
    let due = start::due(root, &config, &bundle);
    if let (false, Some((process, path))) = (order.restart, due.first_key_value()) {
        return Err(Failure::lasting(
            FailureCode::RefreshReadAtStart,
            format!(
                "these credentials bring another {path}, which {} reads when it starts and not again",
                process.name()
            ),
            "refresh with `--restart allowed`, or roll the node: its processes must start anew; nothing was changed",
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
        due: due.into_keys().collect(),
    };
    if swap.due.contains(&Process::Etcd) {
        swap.restarts.let_go().await?;
    }
    let silent = swap.silent().await;
    let written = credentials::write(root, &order.credentials, &bundle)?;
    let changed = written.changed;
    let served = swap.settled(order, &silent, written).await?;
    replace(root, SEALED, &bytes)?;
    let node = remember(root, node, &order.credentials)?;
    let kubelet = match config {
        NodeConfig::Etcd(_) => Ok(None),
        NodeConfig::Controller(_) | NodeConfig::Worker(_) => kubelet::see_to(host, order.patience).await,
    };
    // Also of what failed: it is what the node serves now.
    let published = status::publish::told(root, &aws, &node).await.is_ok();
    Ok(Refreshed {
        changed,
        credentials: order.credentials.clone(),
        served,
        restarted: swap.due.into_iter().map(|process| process.name().to_owned()).collect(),
        kubelet: kubelet?,
        published,
    })
}

async fn fetched(aws: &Aws, node: &NodeFile, digest: &str) -> Outcome<Vec<u8>> {
    let key = keys::credentials(&node.cluster, &node.role, digest);
    let found = aws.bucket(&node.asset_bucket).get(&key).await?;
    found.ok_or_else(|| {
        Failure::lasting(
            FailureCode::CredentialsMissing,
            format!("there is no s3://{}/{key}", node.asset_bucket),
            "render the cluster again, which seals what is missing, and refresh with the digest that its plan names",
        )
    })
}

/// A swap of files on a node, and what it means to those who run there.
struct Swap<'h, C> {
    restarts: Restarts<'h, C>,
    listeners: Vec<Listener>,
    /// Who must start anew, in this order.
    due: Vec<Process>,
}

impl<C: Commands> Swap<'_, C> {
    /// Who presents nothing, now.
    async fn silent(&self) -> BTreeSet<&'static str> {
        let now = Timestamp::now();
        let all = join_all(self.listeners.iter().map(|listener| served(listener, now))).await;
        let names = self.listeners.iter().map(|listener| listener.name).zip(all);
        names.filter(|(_, served)| served.certificate.is_none()).map(|(name, _)| name).collect()
    }

    /// Sees to it that what was written is in force, or is not there any more.
    async fn settled(
        &self,
        order: &Order,
        silent: &BTreeSet<&str>,
        written: Written,
    ) -> Outcome<Vec<Served>> {
        let mut before = Vec::new();
        match self.in_force(order, silent, &mut before).await {
            Ok(served) => {
                written.settle()?;
                Ok(served)
            }
            Err(problem) => {
                written.undo()?;
                let mut failure = Failure::passing(
                    FailureCode::RefreshNotServed,
                    format!("{problem}; the credentials before these are in force again"),
                    "look at the component's log (`journalctl -u etcd`, or `crictl logs` on a controller), then refresh again; \
                     or let a rollout replace the node",
                );
                for before in before {
                    if let Err(worse) = self.restarts.put_back(before).await {
                        failure.message = format!("{}; and then: {}", failure.message, worse.message);
                    }
                }
                Err(failure)
            }
        }
    }

    async fn in_force(
        &self,
        order: &Order,
        silent: &BTreeSet<&str>,
        before: &mut Vec<Before>,
    ) -> Result<Vec<Served>, String> {
        for process in &self.due {
            self.restarts.restart(*process, before).await.map_err(|failure| failure.message)?;
            self.restarts.is_well(*process).await.map_err(|failure| failure.message)?;
        }
        if order.restart {
            for process in [Process::ApiServer, Process::ControllerManager, Process::Scheduler] {
                let is_here = Process::of(self.restarts.config).contains(&process);
                if is_here && !self.due.contains(&process) {
                    self.restarts.nudge(process).map_err(|failure| failure.message)?;
                }
            }
        }
        wait(&self.listeners, silent, order.patience).await
    }
}

/// Waits until each listener presents the certificate of its file, and it verifies. Not long for those in `silent`.
async fn wait(
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
                    lagging = Some(format!("{} still serves {}", served.name, certificate.serial));
                }
                // No waiting makes it better.
                Some(certificate) if !certificate.verifies => {
                    let problem = problem(served);
                    return Err(format!(
                        "{} serves {}, which nobody takes: {problem}",
                        served.name, certificate.serial
                    ));
                }
                Some(_) => {}
                None if silent.contains(served.name.as_str()) => mute = true,
                None => lagging = Some(format!("{} presents nothing: {}", served.name, problem(served))),
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

/// Of the first certificate in `file`, which is the leaf.
fn fingerprint(file: &Path) -> Result<String, String> {
    const END: &str = "-----END CERTIFICATE-----\n";
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let first = text.split_inclusive(END).next().unwrap_or_default();
    AwsLc.facts(first).map(|(_, fingerprint)| fingerprint).map_err(|error| error.message)
}

/// Last of all: until then the node says that it is not what is asked for.
fn remember(root: &Path, node: NodeFile, digest: &str) -> Outcome<NodeFile> {
    if node.credentials == digest {
        return Ok(node);
    }
    let node = NodeFile { credentials: digest.to_owned(), ..node };
    replace(root, NODE, &serde_json::to_vec(&node).expect("a node file has string keys only"))?;
    Ok(node)
}

/// Writes a file whole or not at all.
fn replace(root: &Path, path: &str, bytes: &[u8]) -> Outcome<()> {
    let path = below(root, path);
    let draft = path.with_extension("new");
    let written = || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)
    };
    written().map_err(|error: std::io::Error| {
        Failure::passing(
            FailureCode::RefreshFiles,
            format!("{}: {error}", path.display()),
            "see that the disk has room, then run this again",
        )
    })
}
