//! `refresh`: newer credentials for a node that goes on running.
//!
//! Files are swapped in one rename, then each listener is asked until it *serves* the new certificate: a server that did not
//! notice would let its old one expire. If one does not in time, what was there before is put back.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use slipway_core::node::report::Served;
use slipway_core::node::{NodeConfig, NodeFile};
use slipway_core::pki::policy::{ETCD_DIR, KUBERNETES_DIR};
use slipway_driver::ports::Crypto as _;
use slipway_driver::{credentials as sealed, keys};
use slipway_pki::AwsLc;

use crate::aws::{Aws, Endpoints};
use crate::credentials::{self, Bundle, below};
use crate::failure::{Failure, Outcome};
use crate::status::listeners::{Listener, listeners};
use crate::status::{self, NODE, served};

/// kube-apiserver looks at its files once a minute; etcd at every handshake.
const PATIENCE: Duration = Duration::from_secs(150);
const PAUSE: Duration = Duration::from_millis(250);
/// Where userdata puts the sealed bundle.
pub const SEALED: &str = "/var/lib/slipway/credentials.sealed";

/// What `refresh` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refreshed {
    /// Whether any file is another now.
    pub changed: bool,
    /// The digest of the credentials that are in force.
    pub credentials: String,
    /// What each listener presents now whose certificate the bundle brings.
    pub served: Vec<Served>,
}

/// Fetches the bundle of this node's role whose digest is `digest`, puts its files in place, and waits until they are served.
///
/// # Errors
/// If it cannot be had or opened, or is not served in time; then what was there before is in force.
pub async fn refresh(root: &Path, endpoints: &Endpoints, digest: &str) -> Outcome<Refreshed> {
    let node = status::node(root)?.ok_or_else(|| {
        Failure::lasting(
            "config.unreadable",
            format!("{} is missing: this machine was never told who it is", below(root, NODE).display()),
            "replace the node: its userdata writes that file",
        )
    })?;
    let config = status::config(root)?.0;
    let aws = Aws::new(endpoints, &node.region)?;
    let key = keys::credentials(&node.cluster, &node.role, digest);
    let found = aws.bucket(&node.asset_bucket).get(&key).await?;
    let bytes = found.ok_or_else(|| {
        Failure::lasting(
            "credentials.missing",
            format!("there is no s3://{}/{key}", node.asset_bucket),
            "render the cluster again, which seals what is missing, and refresh with the digest that its plan names",
        )
    })?;
    let plain = sealed::open(&aws.keys(None), &AwsLc, &node.cluster, &node.role, &bytes).await?;
    let bundle = Bundle::read(&plain)?;
    refuse_what_is_read_at_start(root, &config, &bundle)?;
    let written = credentials::write(root, digest, &bundle)?;
    let changed = written.changed;
    let listeners: Vec<Listener> =
        listeners(root, &config).into_iter().filter(|listener| listener.file.is_some()).collect();
    match wait(&listeners, PATIENCE).await {
        Ok(served) => {
            replace(root, SEALED, &bytes)?;
            written.settle()?;
            remember(root, &node, digest)?;
            Ok(Refreshed { changed, credentials: digest.to_owned(), served })
        }
        Err(problem) => {
            written.undo()?;
            Err(Failure::passing(
                "refresh.not-served",
                format!("{problem}; the credentials before these are in force again"),
                "look at the component's log (`journalctl -u etcd`, or `crictl logs` on a controller), then refresh again; \
                 or let a rollout replace the node",
            ))
        }
    }
}

/// What a process reads at its start alone, of the files that may change: etcd whom it trusts (etcd #11555); the API server its
/// static tokens, the keys of service accounts and etcd's authority; the controller manager the key that it signs tokens with, and
/// what it gives pods to know the API server by.
const READ_AT_START: [(&str, &[&str]); 2] = [
    (ETCD_DIR, &["etcd-ca.pem"]),
    (
        KUBERNETES_DIR,
        &[
            "ca.pem",
            "etcd-ca.pem",
            "root-ca.pem",
            "service-account-key.pem",
            "service-account.pub.pem",
            "tokens.csv",
        ],
    ),
];

/// Refuses what would be on the disk and in no process.
fn refuse_what_is_read_at_start(root: &Path, config: &NodeConfig, bundle: &Bundle) -> Outcome<()> {
    if let NodeConfig::Worker(_) = config {
        // The kubelet reads its authority anew, and the token once in its life.
        return Ok(());
    }
    for (folder, names) in READ_AT_START {
        for name in names {
            let path = format!("{folder}/{name}");
            let stands = std::fs::read_to_string(below(root, &path)).ok();
            let comes = bundle.text(&path);
            if stands.is_some() && comes.is_some() && stands.as_deref() != comes {
                return Err(Failure::lasting(
                    "refresh.read-at-start",
                    format!(
                        "these credentials bring another {path}, which is read when a process starts and not again"
                    ),
                    "roll the node instead of refreshing it: its processes must start anew; nothing was changed",
                ));
            }
        }
    }
    Ok(())
}

/// Waits until each listener presents the certificate of its file, and it verifies.
async fn wait(listeners: &[Listener], patience: Duration) -> Result<Vec<Served>, String> {
    let mut fingerprints = BTreeMap::new();
    for listener in listeners {
        if let Some(file) = &listener.file {
            fingerprints.insert(listener.name, fingerprint(file)?);
        }
    }
    let start = Instant::now();
    loop {
        let now = Timestamp::now();
        let all =
            futures_util::future::join_all(listeners.iter().map(|listener| served(listener, now))).await;
        let mut lagging = None;
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
                None => lagging = Some(format!("{} presents nothing: {}", served.name, problem(served))),
            }
        }
        match lagging {
            None => return Ok(all),
            Some(lagging) if start.elapsed() > patience => {
                return Err(format!("after {} s {lagging}", patience.as_secs()));
            }
            Some(_) => tokio::time::sleep(PAUSE).await,
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
fn remember(root: &Path, node: &NodeFile, digest: &str) -> Outcome<()> {
    if node.credentials == digest {
        return Ok(());
    }
    let node = NodeFile { credentials: digest.to_owned(), ..node.clone() };
    replace(root, NODE, &serde_json::to_vec(&node).expect("a node file has string keys only"))
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
            "refresh.files",
            format!("{}: {error}", path.display()),
            "see that the disk has room, then run this again",
        )
    })
}
